# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One kernel log in every form in which it can be read: the same events come of each.

Each file also holds the same events as others have written them: a program of that name that
crashed, a line in /dev/kmsg of another facility, what `logger` has put into syslog. In
kmsg-continued.kmsg the driver's lines have the flags that its release 580.159.04 gives them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.xid import meaning, parse_log
from ansible_collections.baremetal.dgx.plugins.module_utils._host.hardware_log import parse_faults

FORMS = sorted((FIXTURES / "dmesg").iterdir(), key=lambda path: path.name)
# Driver releases 470 to 590 and switches up to the third generation.
EVENTS = [
    ("xid", 48, "0000:1b:00.0", "reset"),
    ("xid", 94, "0000:43:00.0", "restart job"),
    ("xid", 31, "0000:9d:00.0", "restart job"),
    ("xid", 119, "0000:61:00.0", "reset"),
    ("xid", 149, "0000:c3:00.0", "reset"),
    ("xid", 154, "0000:c3:00.0", "reset"),
    ("xid", 45, "0000:d1:00.0", "check"),
    ("xid", 74, "0000:df:00.0", "reset"),
    ("sxid", 20034, "0000:05:00.0", "reset"),
    ("sxid", 10006, "0000:06:00.0", "reboot"),
    ("xid", 13, "0000:1b:00.0", "restart job"),
]
FAULTS = [
    ("0000:1b:00.0", True),
    ("0000:18:00.0", False),
    ("MC3 CPU_SrcID#0_MC#3_Chan#1_DIMM#0", False),
    ("CPU 3 bank 6", False),
]
WITHOUT_UPTIME = ("ctime", "iso")
# What release 580.159.04 wrote on an H100 for a trap, a bad PC and an address outside of memory.
PROGRAMS = FIXTURES / "dmesg_programs" / "580.kmsg"


def test_there_are_all_forms() -> None:
    assert len(FORMS) == 12


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    events = parse_log(text)
    found = [(event.kind, event.code, event.pci, meaning(event).action) for event in events]
    assert found == EVENTS
    assert [(fault.where, fault.corrected) for fault in parse_faults(text)] == FAULTS
    times = {event.uptime_s for event in events}
    if any(word in path.name for word in WITHOUT_UPTIME):
        assert times == {None}
    else:
        assert events[0].uptime_s == pytest.approx(88.1002)
        assert events[-1].uptime_s == 150.0


def test_what_programs_do_wrong_costs_no_gpu() -> None:
    events = parse_log(PROGRAMS.read_text(encoding="utf-8"))
    assert [event.code for event in events] == [43, 13, 13, 13, 31]
    assert {event.pci for event in events} == {"0000:1b:00.0"}
    assert {meaning(event).action for event in events} == {"ignore", "restart job"}
