# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions in processes of their own: each ends, hangs or breaks for itself."""

from __future__ import annotations

import os
import subprocess
import time

from ansible_collections.baremetal.dgx.plugins.module_utils._health_children import (
    ANSWERED,
    BROKEN,
    HUNG,
    LEFT,
    Process,
    Question,
    ask_all,
    is_alive,
    start_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import PASS, Record

SOUND = [Record("a.b", "node:n", PASS)]


def hang():
    time.sleep(60)
    return []


def ask(limit_s=5.0, until_s=10.0, left=None, **questions):
    asked = [Question(name, call, limit_s) for name, call in questions.items()]
    return ask_all(asked, time.monotonic() + until_s, left)


def test_all_are_asked_at_once_and_one_that_hangs_costs_only_itself():
    begun = time.monotonic()
    found = ask(0.5, a=hang, b=hang, c=lambda: SOUND)
    assert time.monotonic() - begun < 2
    assert {name: answer.how for name, answer in found.items()} == {
        "a": HUNG, "b": HUNG, "c": ANSWERED,
    }  # fmt: skip
    assert found["c"].records[0]["check"] == "a.b"
    assert "0.5 s" in found["a"].said
    # Both could be ended.
    assert found["a"].left is None


def test_the_whole_has_a_limit_too():
    begun = time.monotonic()
    assert ask(60, until_s=0.3, a=hang)["a"].how == HUNG
    assert time.monotonic() - begun < 2


def test_what_breaks_says_why():
    found = ask(
        a=lambda: 1 / 0, b=lambda: os.kill(os.getpid(), 9), c=lambda: os._exit(4), d=lambda: SOUND
    )
    assert "ZeroDivisionError" in found["a"].said
    assert found["b"].said == "ended by signal 9 without a whole answer"
    assert found["c"].said == "ended with status 4 without a whole answer"
    assert [found[name].how for name in "abcd"] == [BROKEN, BROKEN, BROKEN, ANSWERED]


def test_a_large_answer_arrives_whole():
    many = [Record("a.b", f"node:{n}", PASS, "x" * 200) for n in range(5000)]
    assert len(ask(a=lambda: many)["a"].records) == 5000


def test_what_a_child_has_started_does_not_hold_it_up_and_goes_with_it():
    def starts():
        # It keeps the pipe of the answer open.
        return [Record("a.b", str(_fork_sleeper()), PASS)]

    begun = time.monotonic()
    answer = ask(a=starts)["a"]
    assert time.monotonic() - begun < 3
    assert answer.how == ANSWERED
    sleeper = int(answer.records[0]["subject"])
    until = time.monotonic() + 5
    while start_of(sleeper) and time.monotonic() < until:
        time.sleep(0.01)
    assert not start_of(sleeper)


def _fork_sleeper():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def test_one_that_was_left_behind_is_not_asked_again():
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        there = Process(sleeper.pid, start_of(sleeper.pid))
        assert is_alive(there)
        found = ask(left={"a": there}, a=hang, b=lambda: SOUND)
        sleeper.kill()
    assert found["a"].how == LEFT
    assert found["a"].left == there
    assert found["b"].how == ANSWERED
    assert not is_alive(there)
    # A number that somebody else has now is another process.
    assert not is_alive(Process(os.getpid(), "1"))
    assert ask(left={"a": there}, a=lambda: SOUND)["a"].how == ANSWERED


def test_nothing_of_a_child_reaches_our_output(capfd):
    def loud():
        os.write(1, b"noise")
        os.write(2, b"noise")
        return SOUND

    assert ask(a=loud)["a"].how == ANSWERED
    assert capfd.readouterr() == ("", "")
