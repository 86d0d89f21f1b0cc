# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ends the session with a node that freezes: it is in every play, for any inventory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
CONNECTION = "vars/cluster.yml"
ALIVE = ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]


def plays_without(plays: list[dict[str, Any]]) -> list[str]:
    """Return the plays that reach nodes over SSH and do not read vars/cluster.yml."""
    return [
        play["name"]
        for play in plays
        if play.get("hosts", "localhost") != "localhost"
        and play.get("connection") != "local"
        and CONNECTION not in play.get("vars_files", [])
    ]


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_play_over_nodes_ends_frozen_sessions(path: Path) -> None:
    assert not plays_without(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_the_rule_finds_a_play_without() -> None:
    bad = [{"name": "x", "hosts": "gpu_nodes", "vars_files": ["vars/other.yml"]}]
    assert plays_without(bad) == ["x"]
    assert not plays_without([{"name": "x", "hosts": "localhost"}])
    assert not plays_without([{"name": "x", "hosts": "all", "connection": "local"}])


def test_no_test_bench_has_ssh_settings_that_a_site_has_not() -> None:
    benches = [ROOT / "virtual_pod/podlib/nodes.py", ROOT / ".config/molecule/config.yml"]
    assert not [str(path) for path in benches if "ServerAlive" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("inventory", "words", "settings", "first"),
    [
        ({}, [], "", []),
        ({"ansible_ssh_common_args": "-o ProxyJump=gate"}, [], "", ["-o", "ProxyJump=gate"]),
        ({}, ["--ssh-common-args=-o ProxyJump=gate"], "", ["-o", "ProxyJump=gate"]),
        ({}, [], "ssh_common_args = -o ProxyJump=gate\n", ["-o", "ProxyJump=gate"]),
        (
            {"ansible_ssh_common_args": "-o ServerAliveInterval=5"}, [], "",
            ["-o", "ServerAliveInterval=5"],
        ),
    ],
    ids=["nothing", "inventory", "command line", "ansible.cfg", "their own interval"],
)  # fmt: skip
def test_ssh_gets_them_after_what_the_site_says(
    tmp_path: Path, inventory: dict[str, str], words: list[str], settings: str, first: list[str]
) -> None:
    """ssh uses the first value that it is given of an option."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nfor one; do echo "$one"; done >> {tmp_path}/words\nexit 255\n')
    ssh.chmod(0o755)
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars_files": [str(ROOT / "playbooks" / CONNECTION)],
        "tasks": [{"ansible.builtin.raw": "true"}],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    hosts = {"all": {"hosts": {"dgx-01": {"ansible_ssh_executable": str(ssh), **inventory}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (tmp_path / "ansible.cfg").write_text(f"[ssh_connection]\n{settings}")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml"]
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_SSH")},
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        "ANSIBLE_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(
        [*command, *words, "play.yml"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "unreachable=1" in done.stdout, done.stdout + done.stderr
    given = (tmp_path / "words").read_text().splitlines()
    at = given.index(ALIVE[1])
    assert given[at - 1 : at + 3] == ALIVE, json.dumps(given)
    assert given[at - 1 - len(first) : at - 1] == first, json.dumps(given)
    assert not [one for one in given if "{" in one], json.dumps(given)
