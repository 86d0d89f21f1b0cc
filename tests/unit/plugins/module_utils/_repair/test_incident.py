# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of incidents: what they come to, also when some were cut."""

from __future__ import annotations

import json

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._repair.incident import (
    BEGUN,
    CLOSED,
    ENDED,
    JUDGED,
    OPENED,
    PERSON,
    RETURN,
    Event,
    fold,
    line_of,
    open_of,
    read_line,
)

NAME = "dgx-01-20261124T000000Z"


def event(at: float, what: str, **more: str) -> Event:
    return Event(at, NAME, "dgx-01", what, **more)


HISTORY = [
    event(100, OPENED, check="gpu.xid", subject="gpu:dgx-01/3", text="Xid 79"),
    event(110, BEGUN, step="reset_gpu"),
    event(120, ENDED, step="reset_gpu", text="done"),
    event(200, JUDGED, check="gpu.access", text="GPU 3 is lost"),
    event(210, BEGUN, step="reboot"),
    event(300, ENDED, step="reboot", text="failed"),
    event(400, CLOSED, text="back"),
]


def test_a_line_is_read_as_it_was_written() -> None:
    assert [read_line(line_of(one)) for one in HISTORY] == HISTORY


@pytest.mark.parametrize(
    "line",
    ["", "{", '"text"', "[]", "null", line_of(HISTORY[0])[:-9],
     json.dumps({**json.loads(line_of(HISTORY[0])), "version": 2}),
     json.dumps({**json.loads(line_of(HISTORY[0])), "at": "now"}),
     json.dumps({**json.loads(line_of(HISTORY[0])), "at": True}),
     json.dumps({**json.loads(line_of(HISTORY[0])), "what": "forgotten"}),
     json.dumps({**json.loads(line_of(HISTORY[0])), "node": 7}),
     json.dumps({**json.loads(line_of(HISTORY[0])), "more": "x"})],
)  # fmt: skip
def test_what_is_no_line_is_none(line: str) -> None:
    assert read_line(line) is None


def test_what_the_lines_come_to() -> None:
    seen = [fold(HISTORY[: count + 1])[NAME] for count in range(len(HISTORY))]
    assert [one.running for one in seen] == ["", "reset_gpu", "", "", "reboot", "", ""]
    assert [one.since for one in seen] == [100, 110, 120, 120, 210, 300, 300]
    assert [one.check for one in seen] == ["gpu.xid"] * 3 + ["gpu.access"] * 4
    assert seen[-1].steps == (("reset_gpu", 110), ("reboot", 210))
    assert (seen[-1].closed, seen[-1].how) == (400, "back")
    assert [list(open_of(fold(HISTORY[:6]))), list(open_of(fold(HISTORY)))] == [["dgx-01"], []]


def test_a_step_that_was_not_taken_is_still_to_come() -> None:
    ended = event(120, ENDED, step="reset_gpu", text="not_measured")
    incident = fold([*HISTORY[:2], ended])[NAME]
    assert (incident.steps, incident.running, incident.since) == ((), "", 120)


def test_lines_after_the_end_and_about_others_change_nothing() -> None:
    more = [event(500, BEGUN, step="reboot"), event(600, OPENED, check="x.y")]
    assert fold([*HISTORY, *more]) == fold(HISTORY)
    assert fold(HISTORY[1:]) == {}


def test_a_step_takes_back_that_a_person_is_needed() -> None:
    waiting = fold([HISTORY[0], event(150, RETURN, text="return the part")])[NAME]
    assert (waiting.waits, waiting.returns) == ("return the part", True)
    person = fold([HISTORY[0], event(150, PERSON, text="look")])[NAME]
    assert (person.waits, person.returns) == ("look", False)
    again = fold([HISTORY[0], event(150, PERSON, text="look"), event(160, BEGUN, step="reboot")])
    assert again[NAME].waits == ""
