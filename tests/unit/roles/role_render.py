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
) -> dict[str, Any]:
    """Return the values of `shown` (name -> expression) as the role would see them."""
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
            {
                "ansible.builtin.set_fact": {
                    "os_family": family,
                    "distribution": distribution,
                    "cacheable": True,
                }
            },
            # as arguments of a task, so that what the role omits is gone
            {"ansible.builtin.set_fact": {f"shown_{k}": "{{ %s }}" % v for k, v in shown.items()}},
            {
                "ansible.builtin.copy": {
                    "content": "{{ {%s} | to_json }}"
                    % ", ".join(f"'{k}': shown_{k}" for k in shown),
                    "dest": str(folder / "out.json"),
                    "mode": "0600",
                }
            },
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "inputs.json").write_text(json.dumps(inputs))
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        f"--inventory={host},",
        "--connection=local",
        f"--extra-vars=ansible_python_interpreter={sys.executable}",
        f"--extra-vars=@{folder / 'inputs.json'}",
        str(folder / "play.yml"),
    ]
    environment = {**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "out.json").read_text())  # type: ignore[no-any-return]


def by_path(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Files of managed_files by their paths, each path once."""
    found = {entry["path"]: entry for entry in entries}
    assert len(found) == len(entries)
    return found


def lines(entry: dict[str, Any]) -> list[str]:
    """What stands in a file, without comments and empty lines."""
    return [line for line in entry["content"].splitlines() if line and not line.startswith("#")]
