# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.flaps import (
    COMMAND,
    FAR_END,
    HEAT,
    NODE,
    POWER,
    SIGNAL,
    SWITCH,
    UNKNOWN,
    UNPLUGGED,
    by_cause,
    cause_of,
    flaps_of,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.series import Histories, Place


@pytest.mark.parametrize(
    ("reasons", "cause"),
    [
        (("Local_phy", "Alignment_loss"), SIGNAL),
        (("Remote_phy", "Alignment_loss"), FAR_END),
        (("Local_phy", "Received_Remote_Fault"), FAR_END),
        (("Peer_side_down_due_to_reset_event",), FAR_END),
        (("Local_phy", "Cable_was_unplugged"), UNPLUGGED),
        (("Cable unplugged",), UNPLUGGED),
        (("Thermal_shutdown",), HEAT),
        (("Cable error, Power budget exceeded",), POWER),
        (("Down_by_management_command",), COMMAND),
        (("Unknown", "No_link_down_indication"), UNKNOWN),
        (("something of a later release",), UNKNOWN),
        ((), UNKNOWN),
    ],
)
def test_the_cause_of_reasons(reasons: tuple[str, ...], cause: str) -> None:
    assert cause_of(reasons) == cause


def leaf(place: Place) -> str:
    return f"leaf-{place.rail}/{place.node[1:]}"


def fleet(down: set[tuple[int, int]], why: tuple[str, ...] = ()) -> Histories:
    """Eight nodes of eight rails; those in `down` went down once between two readings."""
    found = Histories()
    for day in (0, 1):
        for node in range(8):
            found.add(f"n{node}", [
                LinkReading(at=(20000 + day) * 86400, rail=rail, serial=f"S{node}{rail}", boot="b",
                            downs=day if (node, rail) in down else 0, why=why if day else ())
                for rail in range(8)
            ])  # fmt: skip
    return found


def test_one_link_has_its_own_cause() -> None:
    (one,) = flaps_of(fleet({(2, 3)}, ("Hi_BER",)), 0, 99999, leaf)
    assert (one.serial, str(one.place), one.port) == ("S23", "n2/rail3", "leaf-3/2")
    assert (one.count, one.cause, one.since, one.until) == (1, SIGNAL, 20000, 20001)


def test_a_switch_and_a_node_are_one_cause_each() -> None:
    of_leaf = {(node, 3) for node in range(8)}
    assert by_cause(flaps_of(fleet(of_leaf), 0, 99999, leaf)) == {f"{SWITCH} (leaf-3)": 8}
    of_node = {(2, rail) for rail in range(8)}
    assert by_cause(flaps_of(fleet(of_node), 0, 99999, leaf)) == {f"{NODE} (n2)": 8}


def test_without_a_plan_a_switch_is_not_known() -> None:
    of_leaf = {(node, 3) for node in range(8)}
    assert by_cause(flaps_of(fleet(of_leaf), 0, 99999, lambda place: "")) == {UNKNOWN: 8}


def test_flaps_stay_where_they_were_when_the_cable_moves() -> None:
    found = Histories()
    at = 20000 * 86400
    for day, (bad, good) in enumerate([(1, 5), (1, 5), (5, 1)]):
        for node, serial, downs in ((bad, "BAD", min(day, 1) * 4), (good, "GOOD", 0)):
            reading = LinkReading(at=at + day * 86400, rail=0, serial=serial, boot=f"{node}",
                                  downs=downs)  # fmt: skip
            found.add(f"n{node}", [reading])
    (one,) = flaps_of(found, 0, 99999, leaf)
    assert (one.serial, str(one.place), one.port, one.count) == ("BAD", "n1/rail0", "leaf-0/1", 4)


def test_links_that_moved_away_since_are_counted_where_they_were() -> None:
    found = fleet({(node, rail) for node in range(8) for rail in range(3)})
    # 24 of the 64 links of a switch are few, also when 32 of the others are elsewhere since.
    for node in range(8):
        moved = [
            LinkReading(at=20003 * 86400, rail=rail, serial=f"S{node}{rail}", boot="b")
            for rail in (4, 5, 6, 7)
        ]
        found.add(f"m{node}", moved)
    causes = by_cause(flaps_of(found, 0, 99999, lambda place: f"leaf-{place.node[0]}/1"))
    assert causes == {UNKNOWN: 24}


def test_only_the_days_that_are_asked_for() -> None:
    assert flaps_of(fleet({(2, 3)}), 20001.5, 99999, leaf) == []
