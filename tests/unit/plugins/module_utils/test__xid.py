# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of kernel logs, the table of Xids, and what the captures hold as read by eye."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils import _xid_table as table
from ansible_collections.baremetal.dgx.plugins.module_utils._xid import (
    Event,
    meaning,
    open_events,
    parse_line,
    parse_log,
)

ROOT = Path(__file__).resolve().parents[4]
CAPTURES = Path(os.environ.get("CAPTURES", ROOT.parent / "shared" / "captures")) / "dmesg"


def xid(text: str) -> Event:
    event = parse_line(text)
    assert event is not None
    return event


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "3,917,5000001,-;NVRM: Xid (PCI:0000:c3:00): 79, pid=7, GPU has fallen off the bus.",
            Event("xid", 79, "0000:c3:00.0", "pid=7, GPU has fallen off the bus.", 5.000001),
        ),
        (
            "[  12.500000] NVRM: Xid (PCI:00000000:1B:00): 31, pid=9, name=a: b, MMU Fault",
            Event("xid", 31, "0000:1b:00.0", "pid=9, name=a: b, MMU Fault", 12.5),
        ),
        (
            "Nov 21 08:00:00 dgx-01 kernel: NVRM: Xid (0000:03:00): 14, Channel 00000001",
            Event("xid", 14, "0000:03:00.0", "Channel 00000001"),
        ),
        (
            "[90300.111333] dgx-07 kernel: NVRM: Xid (PCI:0000:c3:00): 79, pid=7, GPU lost.",
            Event("xid", 79, "0000:c3:00.0", "pid=7, GPU lost.", 90300.111333),
        ),
        (
            "NVRM: Xid (PCI:0000:66:00 GPU-I:05): 45, pid=3, Ch 00000008",
            Event("xid", 45, "0000:66:00.0", "pid=3, Ch 00000008"),
        ),
        (
            "[ 9.25] nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 20034, Fatal, Link 30 LTSSM Up",
            Event("sxid", 20034, "0000:08:00.0", "Fatal, Link 30 LTSSM Up", 9.25),
        ),
        ("nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 20034, Severity 1 Engine instance 30", None),
        ("nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 20034, Data {0x00000140, 0x0}", None),
        ("NVRM: Xid error: xyz, invalid data", None),
        ("NVRM: GPU at PCI:0000:c3:00: GPU-51a7ed00-0000-4000-8000-000000000006", None),
    ],
)
def test_lines(line: str, event: Event | None) -> None:
    assert parse_line(line) == event


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (13, table.RESTART_JOB),
        (31, table.RESTART_JOB),
        (43, table.IGNORE),
        (48, table.RESET),
        (63, table.IGNORE),
        (64, table.REPLACE),
        (74, table.RESET),
        (79, table.REBOOT),
        (94, table.RESTART_JOB),
        (95, table.RESET),
        (119, table.RESET),
        (135, table.RESTART_JOB),
        (167, table.REBOOT),
        (999, None),
    ],
)
def test_actions(code: int, action: str | None) -> None:
    assert meaning(Event("xid", code, "0000:1b:00.0", "")).action == action


def test_every_row_has_a_meaning_an_action_and_a_source() -> None:
    for code, row in table.XIDS.items():
        assert row.meaning, code
        assert row.action in table.ACTIONS, code
        assert "atalogue" in row.source, code
    # What has to be read from the line has no row.
    assert not {154, *range(144, 151)} & set(table.XIDS)


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("0x0 (None)", table.IGNORE),
        ("0x1 (GPU Reset Required)", table.RESET),
        ("0x2 (Node Reboot Required)", table.REBOOT),
        ("0x3 (Drain P2P)", table.RESET),
        ("0x4 (Drain and Reset)", table.RESET),
        ("0x6 (Something New)", table.RESET),
        ("0x9 (Something New)", None),
    ],
)
def test_the_driver_says_what_to_do(words: str, action: str | None) -> None:
    line = (
        f"NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to {words}"
    )
    assert meaning(xid(line)).action == action


@pytest.mark.parametrize(
    ("code", "text", "action"),
    [
        # Status bits: of SRC_TRACK 0x1 asks for a reset, 0x8 leaves it to Xid 154.
        (145, "RLW_SRC_TRACK Fatal XC0 i0 Link 02 (0x000000e2 0x00000001 0x0)", table.RESET),
        (145, "RLW_SRC_TRACK Nonfatal XC0 i0 Link 02 (0x000000e2 0x00000008 0x0)", table.IGNORE),
        (145, "RLW_SRC_TRACK Nonfatal XC0 i0 Link 02 (0x000000e2 0x00000009 0x0)", table.RESET),
        (146, "TLW_RX_PIPE1 Fatal XC0 i0 Link 02 (0x00000143 0x00000004 0x0)", table.RESET),
        (144, "SAW_MVB Nonfatal XC0 i0 Link 02 (0x00000021 0x00000001 0x0)", table.IGNORE),
        # A bit that the sheet does not have: the driver's word decides.
        (144, "SAW_MVB Fatal XC0 i0 Link 02 (0x00000021 0x00000400 0x0)", table.RESET),
        (144, "SAW_MVB Nonfatal XC0 i0 Link 02 (0x00000021 0x00000400 0x0)", table.IGNORE),
        # Sub-code 38: fatal to the link, and no reset: software took it down.
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x0)", table.IGNORE),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x0)", table.RESET),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x0)", table.IGNORE),
        (149, "NETIR_MFDE_EVENT Fatal XC0 i0 Link 03 (0x00000246 0x00000003 0x0)", table.IGNORE),
        (149, "NETIR_MFDE_EVENT Fatal XC0 i0 Link 03 (0x00000246 0x00000004 0x0)", table.RESET),
        (150, "MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x00000000 0x0)", table.RESET),
        # A driver before R575 prints one word.
        (149, "NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]", table.RESET),
        (149, "something that nobody can decode", None),
    ],
)
def test_fifth_generation_links(code: int, text: str, action: str | None) -> None:
    assert meaning(Event("xid", code, "0000:1b:00.0", text)).action == action


def test_what_a_link_tells() -> None:
    text = "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x0)"
    said = meaning(Event("xid", 149, "0000:1b:00.0", text)).text
    assert "link 8, sub-code 4" in said
    assert "signal integrity" in said


@pytest.mark.parametrize(
    ("code", "word", "action"),
    [
        (20034, "Fatal", table.RESET),
        (12028, "Non-fatal", table.IGNORE),
        (12020, "Non-fatal", table.REBOOT),
        (23017, "Fatal", table.REBOOT),
        (23018, "Fatal", table.RESET),
    ],
)
def test_switch_errors(code: int, word: str, action: str) -> None:
    assert meaning(Event("sxid", code, "0000:08:00.0", f"{word}, Link 30 text")).action == action


CHANGED = "NVRM: Xid (PCI:0000:{bus}:00): 154, GPU recovery action changed from 0x0 (x) to {to}"


def test_the_driver_settles_what_came_before_on_this_gpu_only() -> None:
    log = "\n".join(
        [
            "NVRM: Xid (PCI:0000:1b:00): 95, a",
            "NVRM: Xid (PCI:0000:43:00): 95, b",
            CHANGED.format(bus="1b", to="0x1 (GPU Reset Required)"),
            CHANGED.format(bus="1b", to="0x0 (None)"),
            "NVRM: Xid (PCI:0000:1b:00): 31, c",
        ]
    )
    left = open_events(parse_log(log))
    assert [(event.pci[5:7], event.code) for event in left] == [("43", 95), ("1b", 31)]


def test_of_several_wishes_of_the_driver_the_last_counts() -> None:
    log = "\n".join(
        CHANGED.format(bus="1b", to=to)
        for to in ("0x2 (Node Reboot Required)", "0x1 (GPU Reset Required)")
    )
    assert [meaning(event).action for event in open_events(parse_log(log))] == [table.RESET]


def test_events_before_a_time_do_not_count() -> None:
    log = "[10.0] NVRM: Xid (PCI:0000:1b:00): 95, a\n[20.0] NVRM: Xid (PCI:0000:1b:00): 95, b\n"
    assert [event.text for event in open_events(parse_log(log), 15.0)] == ["b"]


def capture(name: str) -> list[Event]:
    if not (CAPTURES / name).is_file():
        pytest.skip("the captures are not here")
    return parse_log((CAPTURES / name).read_text(errors="replace"))


def test_capture_of_fifth_generation_links() -> None:
    events = capture("xid-nvlink5-lines.txt")
    assert len(events) == 23
    assert [event.code for event in events].count(154) == 4
    actions = [meaning(event).action for event in events]
    # By eye: nine lines of one incident, all of them fatal or a wish of the driver.
    assert actions[:9] == [table.RESET] * 9
    fatal = [event for event in events if " Fatal " in event.text]
    assert {meaning(event).action for event in fatal} == {table.RESET}
    others = [event for event in events if " Nonfatal " in event.text]
    assert len(others) == 9
    assert {meaning(event).action for event in others} == {table.IGNORE}


def test_capture_of_a_program_that_failed() -> None:
    events = capture("memory-oom.log")
    assert [event.code for event in events] == [13] * 16 + [43]
    assert {event.pci for event in events} == {"0000:38:00.0"}
    assert {meaning(event).action for event in events} == {table.RESTART_JOB, table.IGNORE}


@pytest.mark.parametrize(
    "name",
    [
        "kmsg-boot-and-runtime.kmsg",
        "nvidia-peermem-invalid-context.kmsg",
        "os-component.log",
        "nccl-segfault.log",
        "pstore-erst.txt",
        "ib-lost-carrier-6flaps.syslog",
    ],
)
def test_captures_without_an_xid(name: str) -> None:
    assert capture(name) == []
