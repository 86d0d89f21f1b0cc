# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each fault of the simulated GPUs is found on the right GPU, and nothing on the others.

GPU_FAULTS names those to try, separated by commas; all without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .conftest import CHECKOUT, POD, STATE, playbook

sys.path.insert(0, str(CHECKOUT / "virtual_pod"))

from podlib import gpus

FAULTS = gpus.faults()
CHOSEN = [name for name in os.environ.get("GPU_FAULTS", "").split(",") if name] or list(FAULTS)


def pretend(*arguments: str) -> None:
    """Run `pod gpus`."""
    subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), "gpus", "--name", POD, *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def repaired() -> Iterator[None]:
    """Leave healthy GPUs behind."""
    yield
    pretend()


def failed(node: str) -> set[tuple[str, str]]:
    """Check and subject of every record of a node that did not pass."""
    path = STATE / "inventory" / ".dgx" / "nodes" / f"{node}.json"
    records = json.loads(path.read_text())["records"]
    assert records
    return {(one["check"], one["subject"]) for one in records if one["status"] != "pass"}


def validate(level: str) -> int:
    """Without the other loads: they are tried in test_levels.py."""
    parts = dict.fromkeys(["cpu_memory", "dcgm", "nccl", "fio"], False)
    asked = {"level": level, "again": True, "parts": parts}
    done = playbook("validate_nodes", "-e", json.dumps(asked))
    return done.rc


def test_healthy_gpus_pass_under_load(nodes: list[str]) -> None:
    pretend()
    assert validate("standard") == 0
    for node in nodes:
        assert not failed(node)


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.usefixtures("repaired")
def test_a_fault_is_found_on_its_gpu_and_nothing_else(nodes: list[str], name: str) -> None:
    fault = FAULTS[name]
    broken = nodes[-1]
    pretend("--fault", name, "--node", broken)
    assert validate("standard" if fault.needs_load else "quick") != 0
    found = failed(broken)
    subject = f"node:{broken}" if fault.gpu is None else f"gpu:{broken}/{fault.gpu}"
    assert {(check, subject) for check in fault.checks} <= found, found
    # Of a GPU that is lost nothing else can be measured.
    assert {one for _check, one in found} == {subject}, found
    for node in nodes[:-1]:
        assert not failed(node)
