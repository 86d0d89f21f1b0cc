# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every bit, sub-code and number that a line of Xids and SXids may hold, one at a time."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu import xid_table as table
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.sxid_data import SXIDS
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.xid import (
    Event,
    Meaning,
    meaning,
    open_events,
    parse_line,
    parse_log,
    rank,
)

PCI = "0000:1b:00.0"


def meaning_of(code: int, text: str) -> Meaning:
    return meaning(Event("xid", code, PCI, text))


def link_line(unit: str, severity: str, first: int, status: int) -> str:
    return f"{unit} {severity} XC0 i0 Link 02 (0x{first:08x} 0x{status:08x} 0x0)"


# Bits of the error status in NVIDIA's sheet of Xids 144 to 150: those that ask for a reset, and the
# others that it has. Bit 31 is "another unit of this group".
STATUS: dict[str, tuple[int, set[int], set[int]]] = {
    "SAW_MVB": (144, {1, 4}, {0, 2, 3, 5}),
    "RLW_CTRL": (145, set(), {31}),
    "RLW_REMAP": (145, {6, 7}, {0, 1, 2, 3, 4, 5, 8, 9, 31}),
    "RLW_RSPCOL": (145, {1}, {0, 31}),
    "RLW_RXPIPE": (145, set(), {0, 1, 2, 3, 31}),
    "RLW_SRC_TRACK": (145, {0, 4, 5}, {1, 2, 3, 31}),
    "RLW_TAGSTATE": (145, {1, 17, 20}, {0, 16, 31}),
    "TLW_CTRL": (146, {2}, {0, 1, 31}),
    "TLW_RX": (146, {2}, {0, 1, 31}),
    "TLW_TX": (146, {2}, {0, 1, 31}),
    "TREX": (147, set(), {0, 31}),
    "NVLPW": (148, set(), {31}),
}


@pytest.mark.parametrize("unit", STATUS)
def test_every_status_bit_of_a_unit(unit: str) -> None:
    code, reset, known = STATUS[unit]
    for name in (unit, f"{unit}_PIPE1"):
        for bit in range(32):
            fatal = meaning_of(code, link_line(name, "Fatal", 0, 1 << bit)).action
            printed = meaning_of(code, link_line(name, "Nonfatal", 0, 1 << bit)).action
            if bit in reset:
                assert (fatal, printed) == (table.RESET, table.RESET), bit
            elif bit in known:
                assert (fatal, printed) == (table.IGNORE, table.IGNORE), bit
            else:
                # The sheet does not have it: the word of the driver decides.
                assert (fatal, printed) == (table.RESET, table.IGNORE), bit
    # The sheet is of sub-code 0; without any bit nothing is known either.
    for first, status in ((1 << 20, 1), (1 << 25, 1), (0, 0)):
        assert meaning_of(code, link_line(unit, "Fatal", first, status)).action == table.RESET
        assert meaning_of(code, link_line(unit, "Nonfatal", first, status)).action == table.IGNORE
    # Bits beside the sub-code say nothing of it.
    for first in (1 << 19, 1 << 26):
        for bit in reset:
            assert (
                meaning_of(code, link_line(unit, "Nonfatal", first, 1 << bit)).action == table.RESET
            )


DOWN = {
    "signal integrity of this link": {2, 4, 10, 16, 18},
    "software or a user took the link down": {15, 16, 17, 18, 22, 38},
    "the device at the other end": {21, 32, 33, 34, 35, 36, 37},
    "signal integrity and cables": {42, 43},
    "reported alone": {0},
    "more than once a day": {1},
    "the host took the link down": {40},
}


@pytest.mark.parametrize("unit", ["NETIR_LINK_EVT", "NETIR_LINK_DOWN"])
def test_every_sub_code_of_a_link_that_went_down(unit: str) -> None:
    listed = set().union(*DOWN.values())
    for sub_code in range(64):
        for severity in ("Fatal", "Nonfatal"):
            reported = meaning_of(149, link_line(unit, severity, sub_code << 20 | 0xC6, 0))
            if sub_code in (38, 40):
                wanted = table.IGNORE
            elif sub_code in listed:
                wanted = table.RESET
            else:
                wanted = table.RESET if severity == "Fatal" else table.IGNORE
            assert reported.action == wanted, sub_code
            assert f"sub-code {sub_code}," in reported.text
            assert "link 2," in reported.text
            looks = {look for look, codes in DOWN.items() if sub_code in codes}
            assert {look for look in DOWN if look in reported.text} == looks, sub_code


def test_every_number_of_a_firmware_event() -> None:
    for status in range(10):
        fatal = meaning_of(149, link_line("NETIR_MFDE_EVENT", "Fatal", 0, status)).action
        printed = meaning_of(149, link_line("NETIR_MFDE_EVENT", "Nonfatal", 0, status)).action
        if status == 3:
            assert (fatal, printed) == (table.IGNORE, table.IGNORE)
        elif status in (1, 4, 5, 7):
            assert (fatal, printed) == (table.RESET, table.RESET), status
        else:
            assert (fatal, printed) == (table.RESET, table.IGNORE), status


@pytest.mark.parametrize("unit", ["NETIR", "NETIR_INT", "MSE_WATCHDOG"])
def test_units_that_always_ask_for_a_reset(unit: str) -> None:
    assert meaning_of(149, link_line(unit, "Nonfatal", 0, 0)).action == table.RESET
    assert meaning_of(149, link_line("NETIR_BER_EVENT", "Fatal", 0, 1)).action == table.IGNORE
    assert meaning_of(149, link_line("NEW_UNIT", "Fatal", 0, 1)).action == table.RESET
    assert meaning_of(149, link_line("NEW_UNIT", "Nonfatal", 0, 1)).action == table.IGNORE


@pytest.mark.parametrize("words", ["", "0x1", "zz 0x1", "0x1 zz"])
@pytest.mark.parametrize(("word", "action"), [("Fatal", table.RESET), ("Nonfatal", table.IGNORE)])
def test_a_line_without_a_status_has_the_drivers_word_only(
    words: str, word: str, action: str
) -> None:
    reported = meaning_of(145, f"RLW_REMAP {word} XC0 i0 Link 02 ({words})")
    assert reported.action == action
    assert reported.text == f"NVLink RLW_REMAP {word.lower()}, link 2"
    # Two words are enough.
    reported = meaning_of(145, f"RLW_REMAP {word} XC0 i0 Link 02 (0x0 0x40)")
    assert reported.action == table.RESET
    assert reported.text == f"NVLink RLW_REMAP {word.lower()}, link 2, sub-code 0, status 0x40"


NAMES = {
    144: "SAW", 145: "RLW", 146: "TLW", 147: "TREX", 148: "NVLPW", 149: "NETIR", 150: "MSE",
}  # fmt: skip


@pytest.mark.parametrize("code", range(140, 158))
def test_which_xids_are_decoded_from_the_line(code: int) -> None:
    reported = meaning_of(code, "nothing to decode")
    if code in NAMES:
        assert reported.action is None
        assert reported.text.startswith(f"NVLink {NAMES[code]}: ")
    elif code == 154:
        assert reported.action is None
        assert "recovery action" in reported.text
    else:
        assert reported.action is not None
    # Named as a cause whose line is gone, these would have shown more.
    cause = meaning_of(45, f"pid=7, Ch 00000008, caused by previous Xid {code}")
    decoded = code in NAMES or code == 154
    assert cause.text.endswith("would say more") == decoded
    assert cause.action == (table.CHECK if decoded else reported.action)
    assert f"Xid {code}" in cause.text


CHANGED = "GPU recovery action changed from 0x0 (None) to {:#x} ({})"
BY_NUMBER = {
    0: table.IGNORE, 1: table.RESET, 2: table.REBOOT, 3: table.RESET, 4: table.RESET,
    5: table.CHECK, 6: table.RESET, 7: table.REBOOT, 8: None, 63: None,
}  # fmt: skip
BY_WORD = {
    "None": table.IGNORE, "GPU Reset Required": table.RESET,
    "Node Reboot Required": table.REBOOT, "Drain P2P": table.RESET,
    "Drain and Reset": table.RESET, "Recover IMEX Domain": table.CHECK,
}  # fmt: skip


def test_the_word_of_a_recovery_action_decides_then_its_number() -> None:
    for number, action in BY_NUMBER.items():
        assert meaning_of(154, CHANGED.format(number, "a new word")).action == action, number
        for word, by_word in BY_WORD.items():
            assert meaning_of(154, CHANGED.format(number, word)).action == by_word, (number, word)
    meant = [meaning_of(154, CHANGED.format(99, word)).text for word in BY_WORD]
    assert len(set(meant)) == len(BY_WORD)
    assert meaning_of(154, CHANGED.format(99, "Drain P2P")).text.endswith("drain peer-to-peer")
    assert meaning_of(154, CHANGED.format(99, "Drain and Reset")).text.endswith("drain and reset")


REGISTER = {
    "marginal signal": {21, 22},
    "ECC or parity": {4, 5},
    "perhaps the hardware": {8, 9, 12, 16, 17, 24, 28},
    "follows from another error": {1, 20},
}


def test_every_bit_of_the_first_register_of_an_nvlink_error() -> None:
    for bit in range(32):
        reported = meaning_of(
            74, f"NVLink: fatal error detected on link 14({1 << bit:#x}, 0x0, 0x0)"
        )
        looks = {look for look in REGISTER if look in reported.text}
        assert looks == {look for look, bits in REGISTER.items() if bit in bits}, bit
        assert reported.action == (table.IGNORE if bit in (0, 23, 30) else table.RESET), bit
        assert reported.text.startswith("NVLink 14: ")
        assert f"({1 << bit:#x})" in reported.text
        # A harmless bit does not hide another.
        both = meaning_of(
            74, f"NVLink: fatal error detected on link 14({1 << bit | 1:#x}, 0x0, 0x0)"
        )
        assert both.action == reported.action
        # In another register it is not known.
        rest = meaning_of(74, f"NVLink: fatal error detected on link 14(0x1, {1 << bit:#x}, 0x0)")
        assert rest.action == table.RESET


def switch(code: int, text: str) -> str | None:
    return meaning(Event("sxid", code, "0000:08:00.0", text)).action


def test_every_sxid_by_the_drivers_word_its_severity_and_its_number() -> None:
    for code, kind, *_rest in SXIDS:
        alone = {"always": table.REBOOT, "fatal": table.RESET, "nonfatal": table.IGNORE}
        word = "an unknown text"
        assert switch(code, word) == alone.get(kind, kind), code
        fatal = table.REBOOT if kind == "always" else table.RESET
        harmless = table.REBOOT if kind == "always" else table.IGNORE
        assert switch(code, "Fatal, Link 30 x") == fatal, code
        assert switch(code, "Fatal, x") == fatal, code
        assert switch(code, "Non-fatal, Link 30 x") == harmless, code
        assert switch(code, "Severity 1 Engine instance 30") == fatal, code
        for number in (0, 2):
            assert switch(code, f"Severity {number} Engine instance 30") == harmless, code
        assert switch(code, "Data {0x1, 0x0}") == alone.get(kind, kind), code
    assert switch(1, "Fatal, x") == table.RESET
    assert switch(1, "Non-fatal, x") == table.IGNORE
    assert switch(1, "x") is None


def test_an_event_in_words() -> None:
    assert str(Event("xid", 79, PCI, "x" * 200)) == f"Xid 79: {'x' * 160}"
    assert str(Event("sxid", 20034, PCI, "Fatal")) == "SXid 20034: Fatal"
    odd = parse_line("nvidia-nvswitch3: SXid of another form")
    assert odd == Event("sxid", 0, "", "nvidia-nvswitch3: SXid of another form")
    bare = parse_line("NVRM: Xid (PCI:0000:1b:00): 79")
    assert bare == Event("xid", 79, PCI, "")


def test_more_lines_of_one_switch_error_are_one_event() -> None:
    head = "[ {}] nvidia-nvswitch{}: SXid (PCI:0000:0{}:00.0): {}, {}\n"
    whole = [(20034, "Fatal, Link 30 x"), (20034, "Severity 1 Engine"), (20034, "Data {0x1}")]
    log = "".join(head.format(9.1, 3, 8, code, text) for code, text in whole)
    assert [event.text for event in parse_log(log)] == ["Fatal, Link 30 x"]
    # Of another switch, of another number, and a second error of the same kind.
    other = head.format(9.2, 4, 9, 20034, "Severity 1 Engine")
    number = head.format(9.2, 3, 8, 12028, "Severity 0 Engine")
    again = head.format(9.3, 3, 8, 20034, "Fatal, Link 31 x")
    found = parse_log(log + other + number + again)
    assert [(event.pci[5:7], event.code) for event in found] == [
        ("08", 20034), ("09", 20034), ("08", 12028), ("08", 20034),
    ]  # fmt: skip
    # An Xid of such a text is its own event.
    xid = "NVRM: Xid (PCI:0000:1b:00): 62, Data {0x1}\n"
    assert len(parse_log(xid * 2)) == 2


def test_the_end_of_a_thermal_event_settles_that_of_its_own_switch() -> None:
    line = "[ {}] nvidia-nvswitch{}: SXid (PCI:0000:0{}:00.0): {}, NVSWITCH Temperature\n"
    begun = line.format(1.0, 0, 5, 10004) + line.format(1.1, 1, 6, 10004)
    left = open_events(parse_log(begun + line.format(2.0, 0, 5, 10005)))
    assert [(event.pci, event.code) for event in left] == [
        ("0000:06:00.0", 10004),
        ("0000:05:00.0", 10005),
    ]
    again = open_events(parse_log(begun + line.format(0.5, 0, 5, 10005)), 1.05)
    assert [event.pci for event in again] == ["0000:06:00.0"]


def test_an_action_that_is_done_settles_neither_later_events_nor_switches() -> None:
    done = CHANGED.format(0, "None")
    log = (
        "[1.0] nvidia-nvswitch0: SXid (PCI:0000:1b:00.0): 20034, Fatal, Link 30 x\n"
        "[2.0] NVRM: Xid (PCI:0000:43:00): 95, a\n"
        f"[3.0] NVRM: Xid (PCI:0000:1b:00): 154, {done}\n"
        "[4.0] NVRM: Xid (PCI:0000:1b:00): 95, b\n"
    )
    assert [event.uptime_s for event in open_events(parse_log(log)) if event.kind == "xid"] == [
        2.0,
        4.0,
    ]
    # A number of a switch that is that of the driver's request is none.
    sxid = [Event("sxid", 154, PCI, done), Event("xid", 95, PCI, "a")]
    assert open_events([sxid[1], sxid[0]]) == [sxid[1], sxid[0]]


def test_only_a_recovery_action_replaces_the_one_of_its_kind_before_it() -> None:
    events = [Event("xid", 63, PCI, "row a", 1.0), Event("xid", 63, PCI, "row b", 2.0)]
    assert open_events(events) == events


def test_without_a_time_the_events_of_the_first_second_count() -> None:
    events = [Event("xid", 79, PCI, "gone", 0.5)]
    assert open_events(events) == events


def test_a_switch_error_has_the_word_of_its_severity() -> None:
    for text, word in (("Fatal, Link 30 x", "fatal"), ("Non-fatal, Link 30 x", "non-fatal")):
        assert meaning(Event("sxid", 1, PCI, text)).text == f"not in the guide, {word}"


def test_of_an_unknown_recovery_action_80_characters_are_repeated() -> None:
    text = meaning_of(154, "x" * 100).text
    assert text == "a recovery action that is not known: " + "x" * 80


def test_a_cause_is_explained_only_by_an_xid_of_the_same_gpu() -> None:
    cleanup = Event("xid", 45, PCI, "caused by previous Xid 79")
    lost = Event("xid", 79, PCI, "gone")
    for other in (
        Event("sxid", 79, PCI, "x"),
        Event("xid", 78, PCI, "x"),
        Event("xid", 79, "0000:43:00.0", "x"),
    ):
        assert open_events([other, cleanup]) == [other, cleanup]
    assert open_events([lost, cleanup]) == [lost]
    assert open_events([cleanup, lost]) == [lost]
    # Only a clean-up names what it follows from.
    named = Event("xid", 31, PCI, "due to previous Xid 79")
    assert open_events([lost, named]) == [lost, named]
    assert meaning_of(31, "due to previous Xid 79").action == table.RESTART_JOB
    assert meaning_of(45, "due to previous Xid 79").action == table.REBOOT
    assert meaning_of(45, "pid=7, All reserved rows for bank are remapped").action == table.IGNORE


def test_actions_by_what_they_ask_for() -> None:
    order = [table.IGNORE, table.RESTART_JOB, table.CHECK, table.RESET, table.REBOOT, table.REPLACE]
    assert [rank(action) for action in order] == sorted({rank(action) for action in order})
    assert rank(None) == rank(table.CHECK)
