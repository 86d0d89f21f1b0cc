# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls in separate processes: each ends, hangs or breaks for itself."""

from __future__ import annotations

import itertools
import os
import subprocess
import time

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._core import child
from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock as _lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.child import (
    BROKEN,
    DONE,
    HUNG,
    LEFT,
    Call,
    Process,
    ask_all,
    is_alive,
    limited,
    parts_of,
    start_of,
)

SOUND = [{"check": "a.b"}]


def hang():
    time.sleep(60)
    return []


def ask(limit_s=5.0, until_s=10.0, left=None, **questions):
    asked = [Call(name, call, limit_s) for name, call in questions.items()]
    return ask_all(asked, time.monotonic() + until_s, left)


def test_all_are_asked_at_once_and_one_that_hangs_costs_only_itself():
    begun = time.monotonic()
    found = ask(0.5, a=hang, b=hang, c=lambda: SOUND)
    assert time.monotonic() - begun < 20
    assert {name: answer.how for name, answer in found.items()} == {
        "a": HUNG, "b": HUNG, "c": DONE,
    }  # fmt: skip
    assert found["c"].value == SOUND
    assert "0.5 s" in found["a"].message
    # Both could be ended.
    assert found["a"].left is None


def test_the_whole_has_a_limit_too():
    begun = time.monotonic()
    assert ask(60, until_s=0.3, a=hang)["a"].how == HUNG
    assert time.monotonic() - begun < 20


def test_what_breaks_says_why():
    found = ask(
        a=lambda: 1 / 0, b=lambda: os.kill(os.getpid(), 9), c=lambda: os._exit(4), d=lambda: SOUND
    )
    assert "ZeroDivisionError" in found["a"].message
    assert found["b"].message == "ended by signal 9 without a whole answer"
    assert found["c"].message == "ended with status 4 without a whole answer"
    assert [found[name].how for name in "abcd"] == [BROKEN, BROKEN, BROKEN, DONE]


def test_a_large_answer_arrives_whole():
    many = [f"{n} {'x' * 200}" for n in range(5000)]
    assert ask(a=lambda: many)["a"].value == many


def test_what_a_child_has_started_does_not_hold_it_up_and_goes_with_it():
    def starts():
        # It keeps the pipe of the answer open.
        return _fork_sleeper()

    begun = time.monotonic()
    answer = ask(30, until_s=30, a=starts)["a"]
    assert time.monotonic() - begun < 20
    assert answer.how == DONE
    sleeper = answer.value
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
    assert found["b"].how == DONE
    assert not is_alive(there)
    # A number that was given out again is another process.
    assert not is_alive(Process(os.getpid(), "1"))
    assert ask(left={"a": there}, a=lambda: SOUND)["a"].how == DONE


def test_nothing_of_a_child_reaches_our_output(capfd):
    def loud():
        os.write(1, b"noise")
        os.write(2, b"noise")
        return SOUND

    assert ask(a=loud)["a"].how == DONE
    assert capfd.readouterr() == ("", "")


def test_one_call_with_a_limit():
    died = limited(lambda: os.kill(os.getpid(), 9), 5)
    assert (died.how, died.message) == (BROKEN, "ended by signal 9 without a whole answer")
    assert "ZeroDivisionError" in limited(lambda: 1 / 0, 5).message
    assert limited(lambda: "x" * 300000, 5).value == "x" * 300000
    begun = time.monotonic()
    hung = limited(hang, 0.3)
    assert (hung.how, hung.message) == (HUNG, "did not come back within 0.3 s")
    assert 0.3 <= hung.took_s <= time.monotonic() - begun < 20


def test_a_slow_machine_does_not_change_the_limit_that_is_reported(monkeypatch):
    real, asked = time.monotonic, itertools.count()
    monkeypatch.setattr(child.time, "monotonic", lambda: real() + next(asked) * 0.01)
    hung = limited(hang, 0.3)
    assert (hung.how, hung.message) == (HUNG, "did not come back within 0.3 s")


def test_parts_arrive_of_a_call_that_hangs_or_dies():
    def some(send, then):
        send({"one": 1})
        send("two\n")
        return then()

    hung = parts_of(lambda send: some(send, hang), 0.3)
    assert (hung.how, hung.parts) == (HUNG, ({"one": 1}, "two\n"))
    died = parts_of(lambda send: some(send, lambda: os._exit(3)), 5)
    assert (died.how, died.parts) == (BROKEN, ({"one": 1}, "two\n"))
    done = parts_of(lambda send: some(send, lambda: 5), 5)
    assert (done.how, done.value, done.parts) == (DONE, 5, ({"one": 1}, "two\n"))


def test_a_child_that_closes_its_end_and_stays_is_not_waited_for():
    def closes():
        os.closerange(3, 256)
        time.sleep(60)

    begun = time.monotonic()
    answer = limited(closes, 30)
    assert time.monotonic() - begun < 20
    assert (answer.how, answer.message) == (BROKEN, "closed its end without a whole answer")


def test_what_cannot_be_sent_says_so():
    assert "not JSON serializable" in limited(object, 5).message


def test_when_no_more_processes_can_be_had_those_begun_are_ended(monkeypatch):
    fork, begun = os.fork, []

    def few():
        if begun:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        begun.append(fork())
        return begun[0]

    monkeypatch.setattr(os, "fork", few)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BlockingIOError):
        ask(a=hang, b=hang)
    assert not start_of(begun[0])
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_child_that_is_left_behind_holds_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(_lock, "_folder", lambda: str(tmp_path))
    # Nothing kills it, as if it waited in the kernel.
    monkeypatch.setattr(child, "_kill", lambda pid: Process(pid, start_of(pid)))
    with _lock.host_lock("one", 0):
        left = limited(lambda: time.sleep(60), 0.2).left
        with pytest.raises(_lock.BusyError), _lock.host_lock("one", 0):
            pass
    try:
        with _lock.host_lock("one", 0):
            pass
    finally:
        os.kill(left.pid, 9)
        os.waitpid(left.pid, 0)


def test_this_is_the_only_place_that_forks():
    # A burn-in goes on after its caller: it has no limit, and no process waits for it.
    plugins = ROOT / "plugins"
    found = {path.name for path in plugins.rglob("*.py") if "os.fork()" in path.read_text()}
    assert found == {"child.py", "program.py"}


def test_a_child_does_not_outlive_the_one_who_asked():
    reader, writer = os.pipe()
    asking = os.fork()
    if not asking:
        ask_all([Call("a", lambda: os.write(writer, b"%d" % os.getpid()) and hang(), 60)], 1e9)
        os._exit(0)
    child_pid = int(os.read(reader, 20))
    os.kill(asking, 9)
    os.waitpid(asking, 0)
    until = time.monotonic() + 5
    while start_of(child_pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not start_of(child_pid)
    os.close(reader)
    os.close(writer)
