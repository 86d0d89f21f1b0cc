# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of site.yml that concern a GPU node: Ansible forks for each, run or skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Tasks that imports bring in, whether they run or not. Raise it only for what a node must be asked;
# a module that does more in one call costs less. It was 265 on 24 November 2026, 277 on the 28th.
MOST = 283
_PLAY = re.compile(r"^  play #\d+ \(([^)]*)\): .*TAGS: \[", re.MULTILINE)


def _tasks_of_gpu_nodes(listing: str) -> int:
    """Return the number of tasks in the plays whose hosts are gpu_nodes or cluster."""
    _before, *parts = _PLAY.split(listing)
    plays = zip(parts[::2], parts[1::2], strict=True)
    return sum(
        tasks.count("TAGS: [")
        for hosts, tasks in plays
        if {"gpu_nodes", "cluster"} & set(hosts.split(":"))
    )


def test_only_plays_over_gpu_nodes_count() -> None:
    listing = (
        "  play #1 (localhost:all): Check\tTAGS: []\n    tasks:\n      a\tTAGS: []\n"
        "  play #2 (gpu_nodes:cpu_nodes): Rails\tTAGS: []\n    tasks:\n"
        "      b\tTAGS: [x]\n      c\tTAGS: []\n"
        "  play #3 (slurm_controllers[0]): Lock\tTAGS: []\n    tasks:\n      d\tTAGS: []\n"
        "  play #4 (cluster): Summary\tTAGS: []\n    tasks:\n      e\tTAGS: []\n"
    )
    assert _tasks_of_gpu_nodes(listing) == 3


@pytest.mark.slow
def test_a_gpu_node_has_no_more_tasks_than_before() -> None:
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "baremetal.dgx.site", "--list-tasks"]
    done = subprocess.run(
        [*command, "-i", str(ROOT / "inventories" / "core_12")],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Fewer than this is a listing that was read wrongly.
    assert 100 < _tasks_of_gpu_nodes(done.stdout) <= MOST
