# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets Ansible resolve expressions of a role on a host of any family, without the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from role_rules import Role, short

ROLES = Path(__file__).resolve().parents[3] / "roles"
SHARED = ROLES / "_service"
# Beside the play, so that Ansible finds it: files as managed_files gets them from its action.
ACTION = """\
import json
from pathlib import Path
from ansible_collections.baremetal.dgx.plugins.action.managed_files import ActionModule as Files

OWN = {"template", "source", "when"}


class ActionModule(Files):
    def run(self, tmp=None, task_vars=None):
        arguments = self._task.args
        self.shared = arguments["shared"]
        shown = {name: self._whole(value, task_vars) for name, value in arguments["shown"].items()}
        Path(arguments["dest"]).write_text(json.dumps(shown))
        return {"changed": False}

    def _whole(self, value, task_vars):
        listed = value if isinstance(value, list) else []
        files = [one for one in listed if isinstance(one, dict) and "path" in one]
        if any(OWN.intersection(one) for one in files):
            return self.entries(value, task_vars)
        return value

    def _found(self, folder, name, path, task_vars):
        for role in (task_vars["role_path"], self.shared):
            if Path(role, folder, name).is_file():
                return str(Path(role, folder, name))
        return super()._found(folder, name, path, task_vars)
"""


def private(role: str) -> dict[str, Any]:
    """The role's variables, those of its tasks too, and what the role _service makes of them."""
    own = Role(ROLES / role)
    calls = [call for _stem, task in own.tasks for key, call in task.items() if _calls(key)]
    shared = any(call["name"] == "baremetal.dgx._service" for call in calls)
    return {**own.values, **(Role(SHARED).values if shared else {})}


def _calls(key: str) -> bool:
    return short(key) == "import_role"


def render(
    folder: Path,
    role: str,
    distribution: str,
    inputs: dict[str, Any],
    shown: dict[str, str],
    host: str = "dgx-01",
    facts: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the values of `shown` (name -> expression) as the role would see them."""
    return render_many(folder, role, distribution, {host: inputs}, shown, facts)[host]


def render_many(
    folder: Path,
    role: str,
    distribution: str,
    inputs: dict[str, dict[str, Any]],
    shown: dict[str, str],
    facts: dict[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """The same for many hosts (host -> inputs) in one run, since each run takes seconds."""
    family = "RedHat" if distribution in ("RedHat", "Rocky") else "Debian"
    path = ROLES / role
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"role_path": str(path)},
        "vars_files": [
            str(path / "defaults/main.yml"),
            "private.yml",
            *map(str, path.glob(f"vars/{family}.yml")),
        ],
        "tasks": [
            # what is included wins over vars_files, as an inventory wins over defaults
            {"ansible.builtin.include_vars": f"{folder}/{{{{ inventory_hostname }}}}.json"},
            {
                "ansible.builtin.set_fact": {
                    "os_family": family,
                    "distribution": distribution,
                    "distribution_version": "9.6" if family == "RedHat" else "13.1",
                    **(facts or {}),
                    "cacheable": True,
                }
            },
            # As arguments of a task: what the role omits is gone, and nothing is templated twice,
            # which up to ansible-core 2.18 would read the content of files as templates.
            {
                "shown": {
                    "shown": {name: "{{ %s }}" % value for name, value in shown.items()},
                    "shared": str(SHARED),
                    "dest": f"{folder}/{{{{ inventory_hostname }}}}.out",
                }
            },
        ],
    }
    if (path / "files").is_dir() and not (folder / "files").exists():
        # Beside the play, where a lookup finds them as it does in the role.
        (folder / "files").symlink_to(path / "files")
    (folder / "private.yml").write_text(yaml.safe_dump(private(role), sort_keys=False))
    (folder / "action_plugins").mkdir(exist_ok=True)
    (folder / "action_plugins/shown.py").write_text(ACTION)
    for host, values in inputs.items():
        (folder / f"{host}.json").write_text(json.dumps(values))
    done = played(folder, {key: {} for key in inputs}, play)
    assert done.returncode == 0, done.stdout + done.stderr
    return {host: json.loads((folder / f"{host}.out").read_text()) for host in inputs}


def played(
    folder: Path,
    hosts: Mapping[str, Mapping[str, Any]],
    play: Mapping[str, Any],
    *options: str,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """Run a play for hosts with these variables, all of them on this machine."""
    (folder / "play.yml").write_text(json.dumps([play]))
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        f"--inventory={folder}/hosts.yml",
        "--connection=local",
        f"--extra-vars=ansible_python_interpreter={sys.executable}",
        str(folder / "play.yml"),
        *options,
    ]
    settings = {"ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1", **environ}
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **settings}, cwd=folder,
        check=False,
    )  # fmt: skip


def by_path(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Files of managed_files by their paths, each path once."""
    found = {entry["path"]: entry for entry in entries}
    assert len(found) == len(entries)
    return found


def lines(entry: dict[str, Any]) -> list[str]:
    """What is in a file, without comments and empty lines."""
    return [line for line in entry["content"].splitlines() if line and not line.startswith("#")]
