# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of kernel logs, the table of Xids, and what the captures hold as read by eye."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu import xid_table as table
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.xid import (
    Event,
    meaning,
    open_events,
    parse_line,
    parse_log,
)


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
        ("NVRM: Xid error: xyz, invalid data", None),
        ("6,1,20500000,-;bash[7]: it says NVRM: Xid (PCI:0000:c3:00): 79, pid=7, GPU lost.", None),
        ("6,1,20500000,-;a nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 20034, Fatal, Link 3", None),
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
        (61, table.CHECK),
        (64, table.RESET),
        (108, table.IGNORE),
        (125, table.CHECK),
        (169, table.RESET),
        (175, table.CHECK),
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
        assert "atalogue" in row.source or "nverror.h" in row.source, code
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
        ("0x9 (Recover IMEX Domain)", table.CHECK),
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
        (149, "something that cannot be decoded", None),
    ],
)
def test_fifth_generation_links(code: int, text: str, action: str | None) -> None:
    assert meaning(Event("xid", code, "0000:1b:00.0", text)).action == action


def test_what_a_link_tells() -> None:
    text = "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x0)"
    reported = meaning(Event("xid", 149, "0000:1b:00.0", text)).text
    assert "link 8, sub-code 4" in reported
    assert "signal integrity" in reported


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


def test_of_several_requests_of_the_driver_the_last_counts() -> None:
    log = "\n".join(
        CHANGED.format(bus="1b", to=to)
        for to in ("0x2 (Node Reboot Required)", "0x1 (GPU Reset Required)")
    )
    assert [meaning(event).action for event in open_events(parse_log(log))] == [table.RESET]


def test_events_before_a_time_do_not_count() -> None:
    log = "[10.0] NVRM: Xid (PCI:0000:1b:00): 95, a\n[20.0] NVRM: Xid (PCI:0000:1b:00): 95, b\n"
    assert [event.text for event in open_events(parse_log(log), 15.0)] == ["b"]


def test_of_what_came_before_only_the_same_request_is_replaced() -> None:
    log = "\n".join(
        [
            "NVRM: Xid (PCI:0000:1b:00): 79, a",
            CHANGED.format(bus="1b", to="0x1 (GPU Reset Required)"),
            CHANGED.format(bus="1b", to="0x2 (Node Reboot Required)"),
        ]
    )
    assert [event.code for event in open_events(parse_log(log))] == [79, 154]
    assert open_events(parse_log("[15.0] NVRM: Xid (PCI:0000:1b:00): 95, a"), 15.0)


PREVIOUS = "NVRM: Xid (PCI:0000:1b:00): 45, pid=7, name=a, Ch 00000008, caused by previous Xid {}"


@pytest.mark.parametrize(
    ("log", "codes", "action"),
    [
        # The cause is there and decides.
        (["NVRM: Xid (PCI:0000:1b:00): 79, a", PREVIOUS.format(79)], [79], table.REBOOT),
        # It is there on another GPU only, or not at all.
        (["NVRM: Xid (PCI:0000:43:00): 31, a", PREVIOUS.format(79)], [31, 45], table.REBOOT),
        ([PREVIOUS.format(149)], [45], table.CHECK),
        ([PREVIOUS.format(31)], [45], table.RESTART_JOB),
        ([PREVIOUS.format(999)], [45], None),
        # Alone it is what an ended program leaves.
        (["NVRM: Xid (PCI:0000:1b:00): 45, pid=7, name=a, Ch 00000008"], [45], table.IGNORE),
    ],
)
def test_a_clean_up_names_its_cause(log: list[str], codes: list[int], action: str | None) -> None:
    left = open_events(parse_log("\n".join(log)))
    assert [event.code for event in left] == codes
    assert meaning(left[-1]).action == action


@pytest.mark.parametrize(
    ("words", "action", "look"),
    [
        ("0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", table.RESET, "marginal signal"),
        ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", table.RESET, "ECC or parity"),
        ("0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", table.RESET, "perhaps the hardware"),
        ("0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", table.RESET, "follows from another"),
        ("0x300010, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", table.RESET, "marginal signal"),
        ("0x800001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", table.IGNORE, "safe to ignore"),
        ("0x800001, 0x0, 0x4, 0x0, 0x0, 0x0, 0x0", table.RESET, "not known"),
        ("0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", table.RESET, "not known"),
        ("0x8000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", table.RESET, "not known"),
    ],
)
def test_registers_of_an_nvlink_error(words: str, action: str, look: str) -> None:
    text = f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14({words})"
    result = meaning(Event("xid", 74, "0000:d8:00.0", text))
    assert result.action == action
    assert look in result.text
    assert "NVLink 14" in result.text
    assert meaning(Event("xid", 74, "0000:d8:00.0", "no registers")).action == table.RESET


def test_only_a_bank_without_rows_is_a_case_for_return() -> None:
    full = "pid=7, All reserved rows for bank are remapped, failed to remap row 0x12"
    assert meaning(Event("xid", 64, "0000:1b:00.0", full)).action == table.REPLACE
    text = "pid=7, Row Remapper: Error recording the remapping"
    assert meaning(Event("xid", 64, "0000:1b:00.0", text)).action == table.RESET


SWITCH = "[ 9.{}] nvidia-nvswitch3: SXid (PCI:0000:08:00.0): {}"


@pytest.mark.parametrize(
    ("lines", "actions"),
    [
        # Whole, and with its first line lost.
        (
            [
                "20034, Fatal, Link 30 LTSSM Fault Up (First)",
                "20034, Severity 1 Engine instance 30 Sub-engine instance 00",
                "20034, Data {0x00000140, 0x00000000}",
            ],
            [table.RESET],
        ),
        (["20034, Severity 1 Engine instance 30", "20034, Data {0x00000140, 0x0}"], [table.RESET]),
        (["12028, Severity 0 Engine instance 30"], [table.IGNORE]),
        (["20034, Data {0x00000140, 0x0}"], [table.RESET]),
        (["11012, Data {0x00000140, 0x0}"], [table.IGNORE]),
        (["12020, Data {0x00000140, 0x0}"], [table.REBOOT]),
        (["29002, Data {0x00000140, 0x0}"], [None]),
        (["29002, Fatal, Link 30 Tagpool DBE"], [table.RESET]),
        # The driver prints no word.
        (["10003, unhandled interrupt"], [table.REBOOT]),
        (["10006, NVSWITCH Temperature 116C | OVERT Threshold 115C"], [table.REBOOT]),
        (["26006, SOE HALT data[0] = 0x0"], [table.REBOOT]),
        (["27002, CCI Init failed"], [table.CHECK]),
        (["28005, Heartbeat lost, shutting down"], [table.REBOOT]),
        (["99999, something new"], [None]),
        (["something of another form"], [None]),
        # A thermal event that has ended, the end alone, and one that goes on.
        (["10004, NVSWITCH Temperature 90C"], [table.CHECK]),
        (["10004, NVSWITCH Temperature 90C", "10005, NVSWITCH Temperature 80C"], [table.IGNORE]),
        (["10005, NVSWITCH Temperature 80C"], [table.IGNORE]),
        (["28002, warm no more", "28001, warm"], [table.IGNORE, table.CHECK]),
        (["28004, cool"], [table.IGNORE]),
    ],
)
def test_switch_errors_by_number(lines: list[str], actions: list[str | None]) -> None:
    log = "\n".join(SWITCH.format(place, line) for place, line in enumerate(lines))
    assert [meaning(event).action for event in open_events(parse_log(log))] == actions


def capture(captures: Path, name: str) -> list[Event]:
    # Some were put together from several logs, so that each line is read for itself.
    lines = (captures / "dmesg" / name).read_text(errors="replace").split("\n")
    return [event for line in lines if "Xid" in line for event in [parse_line(line)] if event]


def test_capture_of_fifth_generation_links(captures: Path) -> None:
    events = capture(captures, "xid-nvlink5-lines.txt")
    assert len(events) == 23
    assert [event.code for event in events].count(154) == 4
    actions = [meaning(event).action for event in events]
    # By eye: nine lines of one incident, all of them fatal or a request of the driver.
    assert actions[:9] == [table.RESET] * 9
    fatal = [event for event in events if " Fatal " in event.text]
    assert {meaning(event).action for event in fatal} == {table.RESET}
    others = [event for event in events if " Nonfatal " in event.text]
    assert len(others) == 9
    assert {meaning(event).action for event in others} == {table.IGNORE}


def test_capture_of_a_program_that_failed(captures: Path) -> None:
    events = capture(captures, "memory-oom.log")
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
def test_captures_without_an_xid(captures: Path, name: str) -> None:
    assert capture(captures, name) == []


def log(*lines: tuple[float, str, int, str]) -> list[Event]:
    return parse_log(
        "".join(
            f"[{at}] NVRM: Xid (PCI:0000:{bus}:00): {code}, {text}\n"
            for at, bus, code, text in lines
        )
    )


RESET_WANTED = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"


def test_a_recovery_action_replaces_its_own_kind_on_its_own_gpu_only() -> None:
    events = log(
        (1.0, "1b", 79, "GPU has fallen off the bus."),
        (2.0, "1b", 154, RESET_WANTED),
        (3.0, "43", 154, RESET_WANTED),
        (4.0, "1b", 154, RESET_WANTED),
    )
    assert [(one.uptime_s, one.code) for one in open_events(events)] == [
        (1.0, 79),
        (3.0, 154),
        (4.0, 154),
    ]


def test_an_action_that_is_done_settles_its_gpu_only() -> None:
    done = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    events = log((1.0, "1b", 95, "a"), (2.0, "43", 95, "b"), (3.0, "1b", 154, done))
    assert [one.pci for one in open_events(events)] == ["0000:43:00.0"]


def test_an_event_at_the_very_time_counts() -> None:
    events = log((10.0, "1b", 95, "a"))
    assert len(open_events(events, 10.0)) == 1
    assert open_events(events, 10.1) == []
