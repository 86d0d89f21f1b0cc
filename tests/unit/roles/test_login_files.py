# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role login_environment would write, run by the shell that would run it."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from role_render import by_path, render_many

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node, parse_states

SHOWN = {
    "files": "__login_environment_files",
    "program": "__login_environment_program_files",
    "refusals": "__login_environment_refusals | selectattr('when') | map(attribute='say') | list",
}
FABRIC = "/etc/profile.d/baremetal-dgx-fabric.sh"
BANNER = "/etc/profile.d/zz-baremetal-dgx-banner.sh"
PROGRAM = "/usr/local/libexec/baremetal-dgx/cluster-state"
STATE = "/run/baremetal-dgx-cluster-state/text"
CASES: dict[str, dict[str, Any]] = {
    "login": {
        "login_environment_environment": {
            "NCCL_IB_HCA": "=mlx5_rail0:1,mlx5_rail1:1",
            "X": "a b'c",
        },
        "login_environment_hpcx_home": "/opt/hpcx",
        "login_environment_banner": True,
        "login_environment_banner_title": "Cluster demo",
        "login_environment_banner_text": "Questions: it's #hpc\nSecond line",
    },
    "plain": {"login_environment_environment": {}, "login_environment_hpcx_home": ""},
    "refused": {
        "login_environment_environment": {"NOT-A-NAME": "x"},
        "login_environment_hpcx_home": "hpcx",
        "login_environment_banner_interval_s": 1,
    },
}
TOOLS = {
    "sinfo": 'case "$*" in *Node*) printf \'dgx-01 idle\\ndgx-01 idle\\ndgx-02 drained\\n'
    "dgx-03 mixed\\n' ;; *) echo 'debug up 30:00 1/1/1/3' ;; esac",
    "squeue": "printf 'RUNNING\\nPENDING\\nRUNNING\\n'",
}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Case → what the role would do."""
    found = render_many(tmp_path_factory.mktemp("x"), "login_environment", "Debian", CASES, SHOWN)
    for values in found.values():
        values["files"] = by_path(values["files"])
    return found


def test_defaults_give_way_to_what_is_set(rendered: dict[str, dict[str, Any]]) -> None:
    script = rendered["login"]["files"][FABRIC]["content"] + '\necho "$NCCL_IB_HCA|$X"\n'
    ask = {"NCCL_IB_HCA": "=mine"}
    for given, message in (({}, "=mlx5_rail0:1,mlx5_rail1:1|a b'c"), (ask, "=mine|a b'c")):
        done = subprocess.run(
            ["sh", "-euc", script], env=given, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == message


def test_hpcx_only_where_it_is(rendered: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    script = rendered["login"]["files"][FABRIC]["content"].replace("/opt/hpcx", str(tmp_path))
    script += '\necho "${MODULEPATH-}"\n'

    def modules(**given: str) -> str:
        done = subprocess.run(
            ["sh", "-euc", script], env=given, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert modules(MODULEPATH="/m") == "/m"
    (tmp_path / "modulefiles").mkdir()
    mine = f"{tmp_path}/modulefiles"
    assert modules() == mine
    assert modules(MODULEPATH="/m") == f"{mine}:/m"
    assert modules(MODULEPATH=f"{mine}:/m") == f"{mine}:/m"


def state_after(program: str, folder: Path, tools: dict[str, str]) -> tuple[int, str]:
    """Run the program with models of Slurm's commands; its status, and what was written."""
    for name, text in tools.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", program.replace(STATE, f"{folder}/text")],
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    text = folder / "text"
    return done.returncode, text.read_text() if text.exists() else ""


def test_state_of_the_cluster(rendered: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    program = rendered["login"]["program"][-1]["content"]
    assert program.startswith("#!/bin/sh\n")
    rc, text = state_after(program, tmp_path, TOOLS)
    assert rc == 0
    assert text.splitlines() == [
        "Cluster demo",
        "  nodes      2 in service of 3, 1 idle",
        "  jobs       2 running, 1 waiting",
        "  debug      up, up to 30:00, 1 of 3 nodes idle",
        "Questions: it's #hpc",
        "Second line",
    ]


# What sinfo's %T prints: a word of sinfo(1) and its suffixes.
WORDS = [
    "idle", "mixed", "allocated", "completing", "planned", "reserved", "blocked", "down", "drained",
    "draining", "error", "fail", "failing", "future", "inval", "maint", "perfctrs", "power_down",
    "powered_down", "powering_down", "powering_up", "reboot", "unknown",
]  # fmt: skip


def test_what_takes_jobs_is_in_service(rendered: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """By the words of _slurm.nodes, so that the banner and the metrics count the same nodes."""
    states = [word + mark for word in WORDS for mark in ("", *"*~#!%$@^-+")]
    nodes = {f"dgx-{place}": state for place, state in enumerate(states)}
    usable = [name for name, one in nodes.items() if Node(name, parse_states(one)).usable]
    assert {nodes[name] for name in usable} >= {"mixed-", "planned", "reserved", "allocated+"}
    (tmp_path / "states").write_text("".join(f"{name} {one}\n" for name, one in nodes.items()))
    tools = {**TOOLS, "sinfo": f"case $* in *Node*) cat {tmp_path}/states ;; esac"}
    program = rendered["login"]["program"][-1]["content"]
    _rc, text = state_after(program, tmp_path, tools)
    assert f"  nodes      {len(usable)} in service of {len(nodes)}, 1 idle" in text.splitlines()


def test_slurm_that_is_down_leaves_the_last_text(
    rendered: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("old\n")
    program = rendered["login"]["program"][-1]["content"]
    rc, text = state_after(program, tmp_path, {**TOOLS, "squeue": "exit 1"})
    assert rc != 0
    assert text == "old\n"


def at_terminal(script: str, **given: str) -> str:
    """Run an interactive shell at a terminal, and return what it shows."""
    shown = bytearray()

    def read(handle: int) -> bytes:
        data = os.read(handle, 4096)
        shown.extend(data)
        return data

    old = dict(os.environ)
    os.environ.update({"ENV": "/dev/null", **given})
    try:
        pty.spawn(["sh", "-ic", script], read, lambda _handle: b"")
    finally:
        os.environ.clear()
        os.environ.update(old)
    return shown.decode()


def test_banner(rendered: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    text = tmp_path / "text"
    script = rendered["login"]["files"][BANNER]["content"].replace(STATE, str(text))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
    text.write_text("2 in service\n")
    # scp, rsync, an editor: no terminal
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "2 in service" in at_terminal(script)
    assert "2 in service" not in at_terminal(script, SLURM_JOB_ID="7")
    os.utime(text, (time.time() - 3600, time.time() - 3600))
    assert "is not known" in at_terminal(script)


def test_nothing_asked_for(rendered: dict[str, dict[str, Any]]) -> None:
    assert {entry["state"] for entry in rendered["plain"]["files"].values()} == {"absent"}
    assert rendered["plain"]["refusals"] == []


def test_refused(rendered: dict[str, dict[str, Any]]) -> None:
    assert len(rendered["refused"]["refusals"]) == 3
