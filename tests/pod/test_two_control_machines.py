# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs at once, as from two control machines: neither touches what the other holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import command, environment, on, playbook

HEAD, JOB = "head-01", "dgx-validate"


def asked(state: Path, node: str) -> list[str]:
    """Return the options of a run that loads the node, with its own .dgx."""
    parts = {"dcgm": False, "nccl": False, "cpu_memory": False}
    given = {
        "level": "standard",
        "parts": parts,
        "again": True,
        "target": node,
        "cluster_state_dir": str(state),
    }
    return ["-e", json.dumps(given)]


def start(state: Path, node: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command("validate_nodes", *asked(state, node)),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(found: Callable[[], str], seconds: float = 300) -> str:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return found()


def job() -> str:
    lines = on(HEAD, "squeue -h -o '%A %j'").stdout.splitlines()
    return " ".join(line.split()[0] for line in lines if JOB in line)


def reservation() -> str:
    lines = on(HEAD, "scontrol show reservation -o").stdout.splitlines()
    return " ".join(line.split()[0] for line in lines if JOB in line)


@pytest.fixture
def node(nodes: list[str]) -> Iterator[str]:
    yield nodes[0]
    on(HEAD, f"scontrol update NodeName={nodes[0]} State=RESUME")


def why(state: Path, node: str) -> str:
    return (state / "nodes" / f"{node}.json").read_text()


def test_the_second_run_is_refused_by_name_and_ends_nothing(node: str, tmp_path: Path) -> None:
    first = start(tmp_path / "one", node)
    held = wait_for(job)
    second = playbook("validate_nodes", *asked(tmp_path / "two", node))
    assert second.rc != 0
    assert "holds it since" in why(tmp_path / "two", node), second.output
    assert job() == held, "the hold of the first was ended by the second"
    assert first.wait(900) == 0
    assert not job()


def test_a_drained_node_is_reserved_and_stays_free_when_resumed(node: str, tmp_path: Path) -> None:
    on(HEAD, f"scontrol update NodeName={node} State=DRAIN Reason='two control machines'")
    first = start(tmp_path / "one", node)
    held = wait_for(reservation)
    assert node in held
    # Resumed by hand under the load: no job starts there until the run is over.
    on(HEAD, f"scontrol update NodeName={node} State=RESUME")
    ran = on(HEAD, f"timeout 20 srun --immediate=5 -w {node} hostname", 60)
    assert ran.returncode != 0
    second = playbook("validate_nodes", *asked(tmp_path / "two", node))
    assert "holds it since" in why(tmp_path / "two", node), second.output
    assert first.wait(900) == 0
    assert not reservation()
    assert on(HEAD, f"timeout 60 srun -w {node} hostname", 90).returncode == 0


def test_a_killed_run_comes_back_and_takes_its_hold_over(node: str, tmp_path: Path) -> None:
    first = start(tmp_path / "one", node)
    held = wait_for(job)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(30)
    time.sleep(2)
    assert job() == held
    back = playbook("validate_nodes", *asked(tmp_path / "one", node))
    assert back.rc == 0, back.output
    assert not job()
