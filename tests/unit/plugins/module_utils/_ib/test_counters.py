# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters of a port: a node and a sweep of the fabric give the same answer."""

from __future__ import annotations

import pytest
from library import fresh
from world import choose_start

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import FAIL
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import first_look
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_counters import (
    judge_counters as judge_fabric_counters,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import rate_gbps
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_counters import Reading
from ansible_collections.baremetal.dgx.plugins.module_utils._ib import counters as _ib_counters
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.counters import (
    BITS,
    Sample,
    growth,
    growth_of_port,
    largest,
    symbol_errors_allowed,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.judge import (
    judge_counters as judge_node_counters,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.sysfs import Port

WINDOWS = (60, 720, 3600, 7499, 7500, 86400)
FORMS = (
    ("4x", "QDR"), ("4x", "FDR"), ("4x", "EDR"), ("4x", "HDR"), ("4x", "NDR"), ("4x", "XDR"),
    # As fast as EDR, by lanes that correct errors.
    ("2x", "HDR"),
)  # fmt: skip


def node_fails(width: str, speed: str, seconds: float, errors: int) -> bool:
    rate = rate_gbps(width, speed)
    port = Port(1, guid="1", rate_gbps=rate, width=width, speed=speed)
    before, now = (
        Sample("b", at, {"1": {"symbol_error": count, "link_downed": 0}})
        for at, count in ((0.0, 0), (float(seconds), errors))
    )
    found = {
        record.check: record
        for record in judge_node_counters(port, "hca:n/rail0", 400, before, now, 720)
    }
    return found["ib.symbol_errors"].status == FAIL


def fabric_fails(width: str, speed: str, seconds: float, errors: int) -> bool:
    world = fresh("basepod-12")
    choose_start(world, set())
    cable = world.plan.cables[0]
    for end in (cable.a, cable.b):
        port = world.port(world.place(end))
        port.width, port.speed = width, speed
    wiring = first_look(world.plan, world.fabric).wiring
    place = world.place(cable.a)
    before = Reading(0.0, ports={place: {"SymbolErrorCounter": 0}})
    now = Reading(float(seconds), ports={place: {"SymbolErrorCounter": errors}})
    return any(
        finding.status == FAIL
        for finding in judge_fabric_counters(wiring, wiring.good, before, now)
    )


@pytest.mark.parametrize("seconds", WINDOWS)
@pytest.mark.parametrize(("width", "speed"), FORMS)
def test_node_and_fabric_answer_alike(width: str, speed: str, seconds: int) -> None:
    allowed, _source = symbol_errors_allowed(rate_gbps(width, speed) or 0, seconds, speed)
    for errors in {int(allowed), int(allowed) + 1} - {0}:
        if errors >= largest("symbol_error"):
            continue
        wanted = errors > allowed
        case = (width, speed, seconds, errors)
        assert node_fails(*case) is wanted, case
        assert fabric_fails(*case) is wanted, case


@pytest.mark.parametrize(
    ("rate", "speed", "seconds", "allowed", "source"),
    [
        (400, "NDR", 720, 2.88, "UFM PDR plug-in: BER 1e-14 over 12 min"),
        (400, "NDR", 86400, 34.56, "UFM PDR plug-in: BER 1e-15 over 125 min"),
        (200, "HDR", 7500, 2, "UFM PDR plug-in: BER 1e-15 over 125 min"),
        (100, "HDR", 720, 2, "UFM PDR plug-in: BER 1e-14 over 12 min"),
        (100, "EDR", 720, 72, "IBTA volume 2: BER 1e-12 of a link"),
        (300, "EDR", 720, 216, "IBTA volume 2: BER 1e-12 of a link"),
        # Without a speed, or with one of Ethernet, the rate decides.
        (100, None, 720, 72, "IBTA volume 2: BER 1e-12 of a link"),
        (200, None, 7500, 2, "UFM PDR plug-in: BER 1e-15 over 125 min"),
        (400, "400GbE", 720, 2.88, "UFM PDR plug-in: BER 1e-14 over 12 min"),
    ],
)
def test_the_limit_and_its_source(rate, speed, seconds, allowed, source):
    assert symbol_errors_allowed(rate, seconds, speed) == (allowed, source)


# IBTA volume 1, 16.1.3.5, written out again: a wrong width would pass a counter that does not move.
WIDTHS = {
    4: ("LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors"),
    8: (
        "LinkErrorRecoveryCounter", "LinkDownedCounter", "PortXmitConstraintErrors",
        "PortRcvConstraintErrors",
    ),
    16: (
        "SymbolErrorCounter", "PortRcvErrors", "PortRcvRemotePhysicalErrors",
        "PortRcvSwitchRelayErrors", "PortXmitDiscards", "VL15Dropped",
    ),
    32: ("PortXmitWait",),
}  # fmt: skip
KERNEL = {
    4: ("local_link_integrity_errors", "excessive_buffer_overrun_errors"),
    8: (
        "link_error_recovery", "link_downed", "port_xmit_constraint_errors",
        "port_rcv_constraint_errors",
    ),
    16: (
        "symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors",
        "port_rcv_switch_relay_errors", "port_xmit_discards", "VL15_dropped",
    ),
    32: ("port_xmit_wait",),
}  # fmt: skip
EACH = [(name, bits) for table in (WIDTHS, KERNEL) for bits in table for name in table[bits]]


def test_every_counter_has_a_width():
    assert set(BITS) == {name for names in WIDTHS.values() for name in names}


@pytest.mark.parametrize(("counter", "bits"), EACH)
def test_a_full_counter_is_not_measured(counter: str, bits: int) -> None:
    top = (1 << bits) - 1
    full = growth(top, top, counter)
    assert full.count is None
    assert f"is at {top}, its largest value" in full.reason
    # One below its end it still counts, and on the way there it did.
    assert growth(top - 1, top - 1, counter).count == 0
    assert growth(top - 1, top, counter).at_least
    assert growth(top - 1, top, counter).count == 1
    first = growth_of_port(None, Sample("b", 1, {"1": {counter: top}}), "1", counter)
    assert "its largest value" in first.reason


# IBTA volume 1, 16.1.3.5; of both names.
@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (4, ("LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors",
             "local_link_integrity_errors", "excessive_buffer_overrun_errors")),
        (8, ("LinkErrorRecoveryCounter", "LinkDownedCounter", "PortXmitConstraintErrors",
             "PortRcvConstraintErrors", "link_error_recovery", "link_downed",
             "port_xmit_constraint_errors", "port_rcv_constraint_errors")),
        (16, ("SymbolErrorCounter", "PortRcvErrors", "PortRcvRemotePhysicalErrors",
              "PortRcvSwitchRelayErrors", "PortXmitDiscards", "VL15Dropped", "symbol_error",
              "port_rcv_errors", "port_rcv_remote_physical_errors",
              "port_rcv_switch_relay_errors", "port_xmit_discards", "VL15_dropped")),
        (32, ("PortXmitWait", "port_xmit_wait")),
    ],
)  # fmt: skip
def test_a_counter_at_its_end_says_nothing(bits, names):
    for name in names:
        assert _ib_counters.largest(name) == 2**bits - 1
        top = _ib_counters.largest(name)
        assert _ib_counters.growth(top, top, name).count is None
        assert _ib_counters.growth(top - 1, top, name).at_least
        assert _ib_counters.growth(top - 1, top - 1, name).count == 0
