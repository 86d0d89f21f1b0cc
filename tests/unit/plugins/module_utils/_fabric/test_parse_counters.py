# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from fabric_texts import (
    DISCOVERY,
    DUPLICATE,
    ERRORS,
    GREETING,
    SAQUERY,
    SILENT,
    SMINFO,
    STANDBY,
    UNREAD,
    fixture,
)

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import Sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_counters import (
    FoundSm,
    Reading,
    add_errors,
    gather_sms,
    read_counters,
    read_sm_lids,
    read_sminfo,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_discovery import (
    port_index,
    read_ibnetdiscover,
)

LEAF_1 = "fc6a1c0301000000"
DGX_2 = "046dae0300002000"


def reading(text: str, errors: str = "", *, saved: bool = True) -> Reading:
    sweep = read_ibnetdiscover(DISCOVERY)
    return read_counters(text, errors, 7.0, sweep, port_index(sweep), saved=saved)


def test_counters_are_read_by_port_and_never_from_the_row_of_all() -> None:
    found = reading(ERRORS, GREETING)
    assert found.complaints == []
    assert found.whole
    assert found.of((LEAF_1, 1), "SymbolErrorCounter") == 412
    # The row of all ports has 255.
    assert found.of((LEAF_1, 33), "PortXmitDiscards") == 65535
    # An adapter is named by its port's GUID, without the leading zero.
    assert found.of((DGX_2, 1), "PortRcvErrors") == 65535
    assert found.of((DGX_2, 1), "SymbolErrorCounter") == 0
    assert found.of((LEAF_1, 2), "SymbolErrorCounter") == 0


# A counter that each release's text has: place, name, value.
RELEASES = {
    "rdma-core-39": (("b8cef60300bb0000", 21), "VL15Dropped", 1),
    "rdma-core-44": ((LEAF_1, 1), "SymbolErrorCounter", 412),
    "rdma-core-56": ((DGX_2, 1), "PortXmitWait", 5000),
}


@pytest.mark.parametrize("name", RELEASES)
def test_the_form_of_every_supported_release(name: str) -> None:
    sweep = read_ibnetdiscover(fixture(f"ibnetdiscover/{name}.txt"))
    text = fixture(f"ibqueryerrors/{name}.txt")
    # One question of rdma-core-56's was not answered.
    found = read_counters(text, UNREAD, 7.0, sweep, port_index(sweep))
    place, counter, value = RELEASES[name]
    assert (found.complaints, found.whole) == ([], True)
    assert found.of(place, counter) == value
    assert all(number > 0 for _guid, number in found.ports)


def test_a_port_that_does_not_answer_is_not_zero() -> None:
    found = reading(ERRORS, UNREAD)
    assert found.complaints == []
    assert found.of(("946dae0300002010", 1), "SymbolErrorCounter") is None
    assert found.of(("946dae0300001010", 1), "SymbolErrorCounter") == 0


@pytest.mark.parametrize(
    "words",
    [
        "dump_perfcounters: query failed on leaf-01, Lid 2 port ALL",
        "print_errors: IB_GSI_PORT_COUNTERS query failed on leaf-01, Lid 2 port 255",
        "print_errors: IB_GSI_PORT_COUNTERS_EXT query failed on leaf-01, Lid 2 port 255",
    ],
)
def test_a_whole_device_that_does_not_answer(words: str) -> None:
    found = reading(ERRORS, f"ibwarn: [1] {words}\n")
    assert found.complaints == []
    assert found.of((LEAF_1, 44), "SymbolErrorCounter") is None
    assert found.of((DGX_2, 1), "SymbolErrorCounter") == 0


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("", 0),
        ("ibwarn: [1] print_errors: IB_GSI_PORT_COUNTERS query failed on leaf-9, Lid 99 port 1", 0),
        ("ibwarn: [1] print_errors: IB_GSI_PORT_COUNTERS query failed on leaf-01, Lid 2 port 1", 1),
    ],
)
def test_a_question_without_an_answer_that_no_line_names_leaves_all_in_doubt(
    line: str, named: int
) -> None:
    summary = "##          1 PMA query failures\n## Suppressed:"
    found = reading(ERRORS.replace("## Suppressed:", summary), line)
    assert len(found.complaints) == 1 - named
    value = found.of((DGX_2, 1), "SymbolErrorCounter")
    assert found.of((DGX_2, 1), "PortRcvErrors") == 65535
    assert found.whole == bool(named)
    assert value == 0
    assert found.of((LEAF_1, 44), "SymbolErrorCounter") == (0 if named else None)


def test_counters_below_a_threshold_are_not_known() -> None:
    text = ERRORS.replace("## Thresholds: ", "## Thresholds: [LinkDownedCounter = 10]")
    found = reading(text)
    assert len(found.complaints) == 1
    assert "(Thresholds: [LinkDownedCounter = 10])" in found.complaints[0]
    assert found.of((LEAF_1, 44), "LinkDownedCounter") is None
    # A port that has a row for another counter, too.
    assert found.of((LEAF_1, 1), "LinkDownedCounter") is None
    assert found.of((LEAF_1, 1), "SymbolErrorCounter") == 412


@pytest.mark.parametrize("names", ["LinkDownedCounter", "PortRcvSwitchRelayErrors PortRcvErrors"])
def test_counters_that_were_suppressed_are_not_known(names: str) -> None:
    found = reading(ERRORS.replace("## Suppressed:", f"## Suppressed: {names}"))
    assert len(found.complaints) == 1
    assert f"(Suppressed: {names})" in found.complaints[0]
    assert found.of((LEAF_1, 1), "LinkDownedCounter") is None
    assert found.of((LEAF_1, 44), "LinkDownedCounter") is None


def test_the_common_counter_that_is_not_judged_may_be_suppressed() -> None:
    # ibqueryerrors -c
    found = reading(ERRORS.replace("## Suppressed:", "## Suppressed: PortRcvSwitchRelayErrors"))
    assert (found.complaints, found.whole) == ([], True)


def test_counters_of_data_say_nothing_of_errors() -> None:
    # ibqueryerrors --counters
    rows = "[PortXmitData == 288 (288.000)] [PortRcvData == 0 (0.000)]"
    text = (
        f'Data Counters for 0x{LEAF_1} "leaf-01"\n   GUID 0x{LEAF_1} port 1: {rows}\n'
        f"{ERRORS[ERRORS.index('## Summary') :]}"
    )
    found = reading(text + text)
    assert len(found.complaints) == 1
    assert "(Data Counters for" in found.complaints[0]
    assert found.of((LEAF_1, 1), "SymbolErrorCounter") is None
    assert found.of((LEAF_1, 44), "SymbolErrorCounter") is None


def test_devices_that_were_not_asked_are_not_zero() -> None:
    # ibqueryerrors --ca
    text = ERRORS.replace("Summary: 6 nodes", "Summary: 4 nodes")
    found = reading(text)
    assert found.complaints == ["ibqueryerrors asked 4 devices, and the discovery has 6"]
    # A sweep asks all: two are off since the discovery.
    assert reading(text, saved=False).whole
    assert found.of((LEAF_1, 44), "SymbolErrorCounter") is None
    assert found.of((LEAF_1, 1), "LinkDownedCounter") == 0


@pytest.mark.parametrize(
    "text",
    ["", ERRORS.partition("##")[0], ERRORS.replace("[SymbolErrorCounter", "GUID is half")[:90]],
)
def test_an_answer_without_its_end_proves_nothing(text: str) -> None:
    found = reading(text)
    assert found.of((LEAF_1, 2), "SymbolErrorCounter") is None
    assert "has no end" in found.complaints[-1]


@pytest.mark.parametrize(
    "end",
    [
        "## Thresholds: \n## Suppressed:\n",
        "## Thresholds: [LinkDownedCounter = 10]\n## Suppressed:\n",
        "## Thresholds: \n##          1 PMA query failures\n## Suppressed: LinkDownedCounter\n",
    ],
)
def test_an_answer_that_is_cut_off_anywhere_reads_as_what_it_is_or_not_at_all(end: str) -> None:
    sweep = read_ibnetdiscover(DISCOVERY)
    index = port_index(sweep)
    text = ERRORS.partition("## Thresholds")[0] + end
    last = text.index("## Suppressed:") + len("## Suppressed:")
    whole = read_counters(text, "", 7.0, sweep, index)
    counters = {name for values in whole.ports.values() for name in values}
    places = [*whole.ports, (LEAF_1, 44)]
    for length in range(last):
        found = read_counters(text[:length], "", 7.0, sweep, index)
        assert not found.whole
        assert "the answer of ibqueryerrors has no end" in found.complaints
        for place in places:
            for counter in {"LinkDownedCounter", *counters}:
                value = found.of(place, counter)
                assert value in (None, whole.of(place, counter)), (length, place, counter)
                assert value != 0
    # A shell takes the end of the last line off.
    assert not any("no end" in one for one in whole.complaints)
    found = read_counters(text.rstrip(), "", 7.0, sweep, index)
    assert (found.ports, found.whole) == (whole.ports, whole.whole)


def test_a_line_that_cannot_be_read_leaves_all_in_doubt() -> None:
    found = reading(ERRORS.replace("port 33:", "port thirty-three:"))
    assert len(found.complaints) == 1
    assert found.of((LEAF_1, 2), "SymbolErrorCounter") is None


def test_nothing_on_standard_error_is_passed_over() -> None:
    sweep = Sweep()
    add_errors(sweep, "ibnetdiscover", GREETING + DUPLICATE + SILENT + SILENT)
    assert sweep.complaints == []
    assert sweep.duplicate_guids == ["946dae0300001011"]
    assert sweep.silent == [(1, 33, 7)]
    # Not NodeInfo: the device has answered before.
    add_errors(sweep, "ibnetdiscover", SILENT.replace("1,33,7 Attr 0x11:0", "1,33 Attr 0x15:7"))
    assert sweep.silent == [(1, 33, 7)]
    assert len(sweep.complaints) == 1
    assert "Attr 0x15:7" in sweep.complaints.pop()
    add_errors(sweep, "iblinkinfo", "ibwarn: something new\nand more\n")
    assert sweep.complaints == ["iblinkinfo says: 'ibwarn: something new' and 1 lines more"]
    assert reading(ERRORS, "what is this?").complaints == ["ibqueryerrors says: 'what is this?'"]


def test_managers_are_gathered() -> None:
    assert read_sminfo("sminfo: iberror: failed: query\n") is None
    assert read_sm_lids(SAQUERY) == [1, 4]
    found = gather_sms(SMINFO, SAQUERY, [(1, SMINFO), (4, STANDBY)])
    assert found.asked
    assert found.sms == [
        FoundSm(1, "946dae0300001001", 0, "MASTER"),
        FoundSm(4, "046dae0300002001", 1, "STANDBY"),
    ]
    assert [sm.lid for sm in found.masters] == [1]
    # One that did not answer is there, in a state that is not known.
    assert gather_sms(SMINFO, SAQUERY, []).sms[1] == FoundSm(4, None, None, None)
    assert gather_sms("", "", []).sms == []
