# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random histories of a cluster under repair; 10,000 of them in soak."""

from __future__ import annotations

import pytest
from repair_walk import walk


@pytest.mark.parametrize("seed", range(200))
def test_a_history_keeps_the_rules(seed: int) -> None:
    walk(seed)


def test_histories_have_what_they_are_about() -> None:
    """Steps were taken, incidents came to each end, and runs were cut."""
    worlds = [walk(seed) for seed in range(200)]
    ends = {event.text for world in worlds for event in world.events() if event.what == "closed"}
    assert {"back", "let in by the operator"} <= ends
    assert {step for world in worlds for _at, _node, step in world.taken} == {
        "reset_gpu", "restart_driver", "reboot", "power_cycle", "ac_cycle"
    }  # fmt: skip
    assert sum(len(world.taken) for world in worlds) > 100
    assert any(len(world.events()) < len(world.lines) for world in worlds)
    assert sum(len(world.failed) for world in worlds) > 5
    assert sum(world.again for world in worlds) > 20
    assert sum(world.late for world in worlds) > 20
    assert sum(world.lost for world in worlds) > 20
