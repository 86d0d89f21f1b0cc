# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts: at once, after each pause, and once more when the time is up."""

from __future__ import annotations

import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.wait import attempts


class Clock:
    """Time that passes only during a sleep."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture(name="clock")
def fixture_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


@pytest.mark.parametrize(
    ("limit_s", "left", "slept"),
    [
        (0, [0], []),
        (-1, [0], []),
        (2, [2, 1, 0], [1, 1]),
        # The last pause is as short as the time that is left.
        (2.5, [2.5, 1.5, 0.5, 0], [1, 1, 0.5]),
    ],
)
def test_the_last_attempt_is_when_the_time_is_up(
    clock: Clock, limit_s: float, left: list[float], slept: list[float]
) -> None:
    assert list(attempts(limit_s, 1)) == left
    assert clock.slept == slept


def test_an_attempt_that_takes_long_leaves_less(clock: Clock) -> None:
    found = []
    for left in attempts(5, 1):
        found.append(left)
        clock.now += 3
    assert found == [5, 1, 0]


def test_what_is_reached_ends_it(clock: Clock) -> None:
    for left in attempts(60, 1):
        if left < 59:
            break
    assert clock.slept == [1, 1]
