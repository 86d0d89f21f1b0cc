# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random histories of machines that are switched; 10,000 of them in soak."""

from __future__ import annotations

import pytest
from power_walk import walk


@pytest.mark.parametrize("seed", range(200))
def test_a_history_keeps_the_rules(seed: int) -> None:
    walk(seed)


def test_histories_have_what_they_are_about() -> None:
    """Machines got each command, and runs ended in each way."""
    worlds = [walk(seed) for seed in range(200)]
    assert {kind for world in worlds for _name, kind in world.acts} == {
        "on", "soft_off", "off", "ac_cycle"
    }  # fmt: skip
    assert {end for world in worlds for end in world.ended} == {
        "on", "off", "cycle", "ac_cycle", "killed"
    }  # fmt: skip
    assert sum(len(world.acts) for world in worlds) > 1900
