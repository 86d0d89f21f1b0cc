# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host import kernel_log as _kernel_log
from ansible_collections.baremetal.dgx.plugins.module_utils._host.kernel_log import (
    KernelLog,
    Message,
    message,
    messages,
    read_log,
    read_ring,
    ring_gap,
)

FIRST = "6,0,0,-;Linux version 6.8.0\n"
LATER = "6,412,90000,-;something\n"


@pytest.mark.parametrize(
    ("record", "text"),
    [(FIRST, ""), (LATER, "first 412 messages"), ("", "is empty"), ("nonsense", "is empty")],
)
def test_whether_the_beginning_is_there(record: str, text: str) -> None:
    gap = ring_gap(record)
    assert text in gap
    assert bool(text) == bool(gap)


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LATER)
    assert read_log(str(tmp_path / "log"), never, 1) == KernelLog(LATER)
    assert "No such file" in read_log(str(tmp_path / "none"), never, 1).gap
    (tmp_path / "log").write_bytes(b"[ 1.0] a[7]: segfault in b\rc\n")
    assert read_log(str(tmp_path / "log"), never, 1) == KernelLog("[ 1.0] a[7]: segfault in b\rc\n")


def test_a_ring_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in read_ring(str(tmp_path / "kmsg")).gap
    (tmp_path / "kmsg").write_text(FIRST + LATER)
    assert read_ring(str(tmp_path / "kmsg")) == KernelLog(FIRST + LATER)


def never(argv, timeout_s=0, env=None):
    raise AssertionError(argv)


def answer(outcome: str, rc: int = 0, out: str = "", err: str = ""):
    return lambda argv, timeout_s=0, env=None: CommandResult(tuple(argv), outcome, rc, out, err, 1)


@pytest.mark.parametrize(
    ("run", "text", "gap"),
    [
        (answer(ENDED, 0, "[    0.1] Linux\n"), "[    0.1] Linux\n", ""),
        (answer(ENDED, 0, ""), LATER, "first 412 messages"),
        (answer(ENDED, 1, "", "No journal files were found."), LATER, "No journal files"),
        (answer(MISSING), LATER, "journalctl is not installed"),
        (answer(TIMED_OUT), LATER, "did not end"),
    ],
)
def test_where_the_ring_has_a_gap_the_journal_is_asked(monkeypatch, run, text, gap) -> None:
    monkeypatch.setattr(_kernel_log, "read_ring", lambda: KernelLog(LATER, ring_gap(LATER)))
    found = read_log("", run, 1)
    assert found.text == text
    assert gap in found.gap
    assert bool(gap) == bool(found.gap)


def test_a_whole_ring_is_enough(monkeypatch) -> None:
    monkeypatch.setattr(_kernel_log, "read_ring", lambda: KernelLog(FIRST))
    assert read_log("", never, 1) == KernelLog(FIRST)


XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"3,917,5000001,-;{XID}", Message(XID, 5.000001)),
        (f"3,917,5000001,-,caller=T42;{XID}", Message(XID, 5.000001)),
        # As the driver prints: each of its lines is marked as if it went on with another.
        (f"4,360,28043816,c;{XID}", Message(XID, 28.043816)),
        (f"4,360,28043816,c,caller=T42;{XID}", Message(XID, 28.043816)),
        (f"[    5.000001] {XID}", Message(XID, 5.000001)),
        (f"[    5.000001][  T917] {XID}", Message(XID, 5.000001)),
        (f"[    5.000001] [   C17] {XID}", Message(XID, 5.000001)),
        (f"<3>[    5.000001] {XID}", Message(XID, 5.000001)),
        (f"kern  :err   : [    5.000001] {XID}", Message(XID, 5.000001)),
        (f"kern  :err   : 2026-01-21T04:41:44,283302+00:00 {XID}", Message(XID)),
        (f"[Wed Jan 21 04:41:44 2026] {XID}", Message(XID)),
        (f"2026-01-21T04:41:44,283302+00:00 {XID}", Message(XID)),
        (f"Jan 21 04:41:44 dgx-01 kernel: {XID}", Message(XID)),
        (f"Jan 21 04:41:44 dgx-01 kernel: [    5.000001] {XID}", Message(XID, 5.000001)),
        (f"2026-01-21T04:41:44.283302+00:00 dgx-01 kernel: {XID}", Message(XID)),
        (f"[    5.000001] dgx-01 kernel: {XID}", Message(XID, 5.000001)),
        (XID, Message(XID)),
    ],
)
def test_what_the_kernel_says_in_every_form(line: str, found: Message) -> None:
    assert message(line) == found


@pytest.mark.parametrize(
    "line",
    [
        # Facility 1 is user space, and 3 a daemon: what was written to /dev/kmsg.
        f"11,917,5000001,-;{XID}",
        f"30,917,5000001,-;{XID}",
        f"<11>[    5.000001] {XID}",
        f"user  :err   : [    5.000001] {XID}",
        # Fragments of a message: how the kernel goes on about a crash, and those of old kernels.
        f"6,917,5000001,c; in {XID}[11,5+1]",
        f"3,917,5000001,+;{XID}",
        # What logger -t writes, and a daemon that quotes the kernel.
        f"Jan 21 04:41:44 dgx-01 me: {XID}",
        f"Jan 21 04:41:44 dgx-01 me[7]: kernel: {XID}",
        f"3,917,5000001,-;{XID[:15]}[21108]: segfault at 0 ip 0 sp 0 error 6 in {XID}[1132,5642+1]",
        f"[ 5.1] traps: a[7] general protection fault ip:0 sp:0 error:0 in {XID}[1132,5642+1]",
    ],
)
def test_what_others_have_said(line: str) -> None:
    found = message(line)
    assert found is None or not found.text.startswith(XID)


@pytest.mark.parametrize("end", ["\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_the_name_of_a_program_begins_no_line(end: str) -> None:
    named = f"[   20.500000] dgx-01 kernel: a[7]: segfault at 0 ip 0 error 6 in b{end}{XID}[11,5+1]"
    assert [one for one in messages(f"[ 1.0] Linux\n{named}\n") if "79" in one.text[:40]] == []
    record = f"6,1,20500000,-;a[7]: segfault at 0 ip 0 error 6 in b{end}{XID}[11,5+1]\n {XID}"
    assert [one for one in messages(record) if one.text.startswith(XID)] == []


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
@pytest.mark.parametrize("head", ["[   20.600000] dgx-01 kernel: ", "3,9,20600000,-;", "<3>"])
def test_a_name_that_holds_a_whole_line_begins_none(end: str, head: str) -> None:
    for log in (
        f"[ 1.0] Linux\n[   20.500000] dgx-01 kernel: a[7]: segfault in b{end}{head}{XID}[11,5+1]",
        f"6,1,20500000,-;traps: a[7] general protection in b{end}{head}{XID}[11,5+1]\n",
    ):
        assert [one for one in messages(log) if one.text.startswith(XID)] == []


def test_what_is_said_of_a_process_is_no_message_of_a_driver() -> None:
    assert message(f"6,1,20500000,-;{XID[:15]}[6404]: segfault at 0 ip 0 sp 0 error 6") is None
    assert message(f"Jan 21 04:41:44 {XID}") is None


def test_lines_without_any_prefix_are_a_log_as_well() -> None:
    assert list(messages(f"usb 1-1: new\n{XID}\n", ("Xid",))) == [Message(XID)]
