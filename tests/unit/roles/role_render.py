# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets Ansible resolve expressions of a role on a host of any family, without the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"


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
            str(path / "vars/main.yml"),
            str(path / f"vars/{family}.yml"),
        ],
        "tasks": [
            # what is included wins over vars_files, as an inventory wins over defaults
            {"ansible.builtin.include_vars": f"{folder}/{{{{ inventory_hostname }}}}.json"},
            {
                "ansible.builtin.set_fact": {
                    "os_family": family,
                    "distribution": distribution,
                    **(facts or {}),
                    "cacheable": True,
                }
            },
            # as arguments of a task, so that what the role omits is gone
            {"ansible.builtin.set_fact": {f"shown_{k}": "{{ %s }}" % v for k, v in shown.items()}},
            {
                "ansible.builtin.copy": {
                    "content": "{{ {%s} | to_json }}"
                    % ", ".join(f"'{k}': shown_{k}" for k in shown),
                    "dest": f"{folder}/{{{{ inventory_hostname }}}}.out",
                    "mode": "0600",
                }
            },
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    for host, values in inputs.items():
        (folder / f"{host}.json").write_text(json.dumps(values))
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        f"--inventory={','.join(inputs)},",
        "--connection=local",
        f"--extra-vars=ansible_python_interpreter={sys.executable}",
        str(folder / "play.yml"),
    ]
    environment = {**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {host: json.loads((folder / f"{host}.out").read_text()) for host in inputs}


def by_path(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Files of managed_files by their paths, each path once."""
    found = {entry["path"]: entry for entry in entries}
    assert len(found) == len(entries)
    return found


def lines(entry: dict[str, Any]) -> list[str]:
    """What stands in a file, without comments and empty lines."""
    return [line for line in entry["content"].splitlines() if line and not line.startswith("#")]
