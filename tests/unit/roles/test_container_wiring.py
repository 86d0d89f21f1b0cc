# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What configure_containers, configure_scheduler and configure_logins give to their roles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
NAMES = (
    "__containers_roles", "pyxis_parts", "pyxis_holds_files", "pyxis_nodes", "pyxis_builder",
    "pyxis_submit_host", "pyxis_trial_user", "pyxis_other_lines", "slurm_controller_plugstack",
    "slurm_base_plugins", "slurm_base_state_dir", "login_comfort_environment",
    "login_comfort_banner",
)  # fmt: skip
LINE = "required /usr/local/lib/slurm/spank_pyxis-0123456789ab.so runtime_path=/run/pyxis"
ASKS = {"enroot_source": "packages", "pyxis_source": "directory"}
PLAN = {"slurm": {"nodes": [{"name": "dgx-01"}, {"name": "dgx-02"}], "topology": []}}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Host → the values of NAMES, of a cluster whose plug-in is in use."""
    folder = tmp_path_factory.mktemp("cluster")
    plan = folder / ".dgx/plan"
    (plan / "nodes").mkdir(parents=True)
    (plan / "plan.json").write_text(json.dumps(PLAN))
    for host, rails in (("dgx-01", 8), ("dgx-02", 4)):
        text = json.dumps({"profile_data": {"rails": [{"rail": n} for n in range(rails)]}})
        (plan / "nodes" / f"{host}.json").write_text(text)
    (folder / ".dgx/pyxis").mkdir()
    record = {"release": "24.11", "line": LINE, "plugin": LINE.split()[1], "built": True}
    (folder / ".dgx/pyxis/in-use.json").write_text(json.dumps(record))
    everybody = {
        "cluster_name": "demo",
        "cluster_fabric": {"topology": "basepod", "rails": 8},
        "slurm_base_version": "24.11",
        "slurm_controller_plugstack": ["optional /x.so"],
        "slurm_controller_accounts": [{"name": "empty"}, {"name": "lab", "users": ["alice"]}],
    }
    groups = {
        "slurm_controllers": {"head-01": ASKS},
        "login_nodes": {
            # a release in which the plug-in would not load
            "login-01": {**ASKS, "slurm_base_version": "22.05", "login_comfort_banner": False},
            "login-02": {"enroot_state": "absent", "pyxis_trial_user": "carol"},
        },
        "gpu_nodes": {"dgx-01": ASKS, "dgx-02": {"login_comfort_environment": {"X": "1"}}},
    }
    inventory = {
        "all": {
            "vars": everybody,
            "children": {name: {"hosts": hosts} for name, hosts in groups.items()},
        }
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    play = {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "vars_files": [
            str(ROOT / f"playbooks/vars/{name}.yml") for name in ("slurm", "containers", "logins")
        ],
        "tasks": [
            {
                "ansible.builtin.copy": {
                    "content": "{{ {%s} | to_json }}" % ", ".join(f"'{n}': {n}" for n in NAMES),
                    "dest": f"{folder}/{{{{ inventory_hostname }}}}.out",
                    "mode": "0600",
                }
            }
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            f"--inventory={folder}/hosts.yml",
            f"--extra-vars=ansible_python_interpreter={sys.executable}",
            str(folder / "play.yml"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1"},
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = [host for members in groups.values() for host in members]
    return {host: json.loads((folder / f"{host}.out").read_text()) for host in hosts}


def test_who_gets_which_role(given: dict[str, dict[str, Any]]) -> None:
    assert {host: values["__containers_roles"] for host, values in given.items()} == {
        # the controller only submits
        "head-01": ["pyxis"],
        "login-01": ["enroot", "pyxis"],
        "login-02": ["enroot"],
        "dgx-01": ["enroot", "pyxis"],
        "dgx-02": [],
    }


def test_what_a_host_is_to_slurm(given: dict[str, dict[str, Any]]) -> None:
    assert given["head-01"]["pyxis_parts"] == ["controller"]
    assert given["dgx-01"]["pyxis_parts"] == ["compute"]
    # configless compute nodes, and login hosts with and without sackd
    assert not given["dgx-01"]["pyxis_holds_files"]
    assert given["login-01"]["pyxis_holds_files"]
    assert not given["login-02"]["pyxis_holds_files"]
    assert given["dgx-01"]["pyxis_nodes"] == ["dgx-01", "dgx-02"]


def test_who_builds_and_who_tries(given: dict[str, dict[str, Any]]) -> None:
    assert given["dgx-01"]["pyxis_builder"] == "head-01"
    assert given["dgx-01"]["pyxis_submit_host"] == "login-01"
    assert given["dgx-01"]["pyxis_trial_user"] == "alice"
    assert given["login-02"]["pyxis_trial_user"] == "carol"


def test_the_scheduler_keeps_the_line_while_it_would_load(given: dict[str, dict[str, Any]]) -> None:
    assert given["head-01"]["slurm_controller_plugstack"] == ["optional /x.so", LINE]
    assert given["head-01"]["pyxis_other_lines"] == ["optional /x.so"]
    (plugin,) = given["dgx-01"]["slurm_base_plugins"]
    assert plugin["dest"] == LINE.split()[1]
    assert plugin["src"].endswith("/.dgx/pyxis/builds/spank_pyxis-0123456789ab.so")
    assert given["login-01"]["slurm_controller_plugstack"] == ["optional /x.so"]
    assert given["login-01"]["slurm_base_plugins"] == []


def test_only_controllers_have_state(given: dict[str, dict[str, Any]]) -> None:
    assert given["head-01"]["slurm_base_state_dir"] == "/var/lib/slurm/slurmctld"
    assert given["dgx-01"]["slurm_base_state_dir"] == ""


def test_shells(given: dict[str, dict[str, Any]]) -> None:
    rails = "mlx5_rail0:1,mlx5_rail1:1,mlx5_rail2:1,mlx5_rail3:1"
    # no more rails than every node has, on login hosts as on nodes
    assert given["login-02"]["login_comfort_environment"] == {
        "NCCL_IB_HCA": f"={rails}", "NCCL_CROSS_NIC": "0", "UCX_NET_DEVICES": rails
    }  # fmt: skip
    assert given["dgx-02"]["login_comfort_environment"]["X"] == "1"
    assert {host: values["login_comfort_banner"] for host, values in given.items()} == {
        "head-01": False, "login-01": False, "login-02": True, "dgx-01": False, "dgx-02": False
    }  # fmt: skip
