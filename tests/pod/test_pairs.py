# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pair tests over SSH and as a Slurm job, on routes of a real subnet manager.

The simulated fabric carries no data, so a stand-in for ib_write_bw says what a pair reaches: it
listens and connects over the pod's network, and takes its figures from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from .conftest import CHECKOUT, STATE, on, playbook

STAND_IN = CHECKOUT / "tests" / "unit" / "fixtures" / "pairs" / "perftest.py"
PLACE = "/run/pairs"
TOOL = "/usr/local/bin/ib_write_bw"
RESULTS = STATE / "inventory" / ".dgx" / "fabric" / "pairs"


def write(node: str, path: str, text: str) -> None:
    """Write a file on a node."""
    done = on(node, f"cat > {path} <<'END'\n{text}\nEND\nchmod 755 {path}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def stand_in(nodes: list[str]) -> Iterator[list[str]]:
    """Put the stand-in and eight adapters on every node."""
    for node in nodes:
        rails = " ".join(f"{PLACE}/sys/class/infiniband/mlx5_rail{rail}" for rail in range(8))
        assert on(node, f"mkdir -p {rails}").returncode == 0
        write(node, f"{PLACE}/perftest.py", STAND_IN.read_text())
        write(
            node,
            TOOL,
            f"#!/bin/sh\nexport FABRIC_PAIRS_STATE={PLACE}/state.json FABRIC_PAIRS_NODE={node}\n"
            f'exec python3 -E -S {PLACE}/perftest.py "$@"',
        )
    yield nodes
    for node in nodes:
        on(node, f"rm -rf {PLACE} {TOOL}")


def figures(nodes: list[str], values: dict[str, float]) -> None:
    """What the pairs reach: nodes share no file, so each gets its own."""
    for node in nodes:
        write(node, f"{PLACE}/state.json", json.dumps({"figures": values}))


def slow_cable(nodes: list[str], node: str, rail: int) -> dict[str, float]:
    """All ways through one cable at half the rate."""
    here = f"{node}/mlx5_rail{rail}"
    ends = [f"{other}/mlx5_rail{r}" for other in nodes for r in range(8)]
    ways = [(here, end) for end in ends if end != here]
    return {f"{a}>{b}": 196.0 for one, two in ways for a, b in ((one, two), (two, one))}


def validate(transport: str) -> tuple[int, str]:
    options = {
        "transport": transport,
        "duration_s": 3,
        "pairs_per_link": 2,
        "sysfs_root": f"{PLACE}/sys",
    }
    done = playbook("validate_fabric", "-e", json.dumps({"pair_tests": options}))
    return done.rc, done.output


@pytest.mark.parametrize("transport", ["ssh", "slurm"])
def test_a_slow_cable_is_named(stand_in: list[str], transport: str) -> None:
    figures(stand_in, slow_cable(stand_in, stand_in[0], 3))
    rc, output = validate(transport)
    assert rc != 0, output
    assert f"cable:{stand_in[0]}/rail3--" in output, output
    records = json.loads((RESULTS / "pairs-records.json").read_text())
    failed = [record["subject"] for record in records if record["status"] == "fail"]
    assert len(failed) == 1, failed
    assert f"{stand_in[0]}/rail3--" in failed[0]


def test_healthy_cables_pass_and_nothing_is_left_on_the_nodes(stand_in: list[str]) -> None:
    figures(stand_in, {})
    rc, output = validate("slurm")
    assert rc == 0, output
    assert "0 failed, 0 were not measured" in output, output
    for node in stand_in:
        left = on(node, "pgrep -af '[p]erftest.py'; ls -d /tmp/fabric_pairs.* 2>/dev/null; true")
        assert not left.stdout, left.stdout
    jobs = on("head-01", "squeue --noheader --name fabric_pairs")
    assert not jobs.stdout.strip(), jobs.stdout
