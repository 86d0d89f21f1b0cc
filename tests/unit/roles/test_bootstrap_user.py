# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The account that bootstrap makes for Ansible: its home is where node_base_users has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from role_render import ACTION, ROLES, played
from role_rules import flat, read_yaml
from wiring import Wiring, example, write

ADMIT = "Admit the user by key"
OPS = {"name": "dgxadmin", "uid": 990, "home": "/var/lib/dgxadmin"}
USERS: dict[str, Any] = {
    "declared": {"node_base_users": [{"name": "alice", "uid": 2001}, OPS]},
    "homeless": {"node_base_users": [{"name": "dgxadmin"}]},
    "another": {"node_base_users": [{"name": "alice", "home": "/x"}], "bootstrap_admin_uid": 7},
    "none": {},
    # usermod refuses to move the account that is logged in.
    "itself": {"node_base_users": [OPS], "__bootstrap_first": "dgxadmin"},
}


def test_home_and_number_are_those_of_node_base_users(tmp_path: Path) -> None:
    plays = read_yaml(ROLES.parent / "playbooks/bootstrap.yml")
    (task,) = (one for play in plays for one in flat(play.get("tasks")) if one.get("name") == ADMIT)
    given = {
        "__bootstrap_admin": "dgxadmin",
        "__bootstrap_first": "admin",
        "__bootstrap_keys": ["k"],
    }
    # As arguments of a task, in which nothing is left of what is omitted.
    shown = {"user": task["baremetal.dgx.system_accounts"]["users"][0]}
    dest = f"{tmp_path}/{{{{ inventory_hostname }}}}.out"
    show = {"shown": {"shown": shown, "shared": "", "dest": dest}, "vars": task["vars"]}
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins/shown.py").write_text(ACTION)
    play = {"hosts": "all", "gather_facts": False, "tasks": [show]}
    done = played(tmp_path, {name: {**given, **more} for name, more in USERS.items()}, play)
    assert done.returncode == 0, done.stdout + done.stderr
    whole = {"name": "dgxadmin", "ssh_keys": ["k"], "system": True, "shell": "/bin/bash"}
    assert {name: json.loads((tmp_path / f"{name}.out").read_text())["user"] for name in USERS} == {
        "declared": {**whole, "home": "/var/lib/dgxadmin", "uid": 990},
        "homeless": whole,
        "another": {**whole, "uid": 7},
        "none": whole,
        "itself": {"name": "dgxadmin", "ssh_keys": ["k"], "system": False},
    }


def test_the_login_of_core_12_is_not_below_its_home(tmp_path: Path) -> None:
    """As docs/quick_start.md has it, and as an installation leaves the node."""

    def warned() -> list[str]:
        lines = Wiring(inventory).plan_warnings
        return [line for line in lines if "hides the home" in line]

    inventory = example(tmp_path, "core_12")
    assert warned() == []
    path = inventory / "group_vars/cluster/node.yml"
    path.write_text(path.read_text().replace("ansible_user: root", "ansible_user: dgxadmin"))
    assert [line.partition(" hides ")[0] for line in warned()] == [
        f"cluster.ansible_user: {group}.cephfs_mounts[0]" for group in ("all", "slurm_controllers")
    ]
    admin = {"name": "dgxadmin", "home": "/var/lib/dgxadmin", "system": True}
    users = [{"name": "alice", "uid": 2001}, {"name": "bob", "uid": 2002}, admin]
    write(inventory, "group_vars/cluster/node_base.yml", {"node_base_users": users})
    assert warned() == []
