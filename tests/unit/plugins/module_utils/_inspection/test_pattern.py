# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pattern that most machines follow, on machines that can be counted."""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.pattern import (
    Break,
    Support,
    find_pattern,
)

NUMBERS = {f"n{number}": number for number in range(1, 9)}


def machines():
    """Eight machines with four slots: slot s leads to switch ls, all at the port of the number."""
    return {name: {slot: (f"l{slot}", at) for slot in range(4)} for name, at in NUMBERS.items()}


def test_machines_that_are_alike_have_a_pattern_and_no_break():
    found = find_pattern(machines(), NUMBERS)
    assert [unit.supports for unit in found.units] == [dict.fromkeys(range(4), Support(8, 8))]
    assert (found.breaks, found.exchanged, found.holes) == ([], {}, [])
    assert len(found.kept) == 32


def test_a_slot_elsewhere_breaks_the_pattern_with_what_it_rests_on():
    there = machines()
    there["n3"][2] = ("l2", 40)
    found = find_pattern(there, NUMBERS)
    assert found.breaks == [Break("n3", 2, ("l2", 3), Support(7, 8))]
    assert Support(7, 8).confidence == 0.875


def test_two_slots_that_are_exchanged_keep_the_base_of_their_machine():
    there = machines()
    there["n3"][1], there["n3"][2] = there["n3"][2], there["n3"][1]
    found = find_pattern(there, NUMBERS)
    assert [(one.slot, one.place) for one in found.breaks] == [(1, ("l1", 3)), (2, ("l2", 3))]
    assert {one.support for one in found.breaks} == {Support(7, 8)}


def test_plugs_of_one_slot_in_turn_are_out_of_the_order_that_all_slots_show():
    there = machines()
    for name, port in (("n3", 4), ("n4", 3)):
        there[name][2] = ("l2", port)
    found = find_pattern(there, NUMBERS)
    # Of the slot itself six of eight: of all slots 30 of 32.
    assert [(one.machine, one.support) for one in found.breaks] == [
        ("n3", Support(30, 32)),
        ("n4", Support(30, 32)),
    ]


def test_two_plugs_of_one_slot_that_lack_a_place_rest_on_that_slot_alone():
    for port in (None, 9):
        there = machines()
        del there["n3"][2]
        # The place of n3, and one that nothing has: no exchange.
        there["n4"][2] = ("l2", port or 3)
        found = find_pattern(there, NUMBERS)
        assert {one.support for one in found.breaks} == {Support(6, 8)}


def test_all_slots_in_turn_keep_the_base_of_their_machine():
    # Both switches have two slots of each machine, so that ports alone say nothing of slots.
    def place(slot, at):
        return f"l{slot // 2}", 2 * at + slot % 2

    there = {n: {slot: place(slot, at) for slot in range(4)} for n, at in NUMBERS.items()}
    there["n3"] = {slot: place((slot + 1) % 4, 3) for slot in range(4)}
    found = find_pattern(there, NUMBERS)
    assert [(one.machine, one.place) for one in found.breaks] == [
        ("n3", place(slot, 3)) for slot in range(4)
    ]


def test_a_missing_slot_is_a_break_and_a_machine_with_few_is_another_sort():
    there = machines()
    del there["n3"][0]
    there["n4"] = {0: ("l0", 4), 1: ("l1", 4)}
    found = find_pattern(there, NUMBERS)
    assert found.breaks == [Break("n3", 0, ("l0", 3), Support(6, 7))]


def test_what_less_than_three_quarters_follow_is_no_pattern():
    there = machines()
    for name in ("n1", "n2", "n3"):
        there[name][0] = ("l0", there[name][0][1] + 20)
    found = find_pattern(there, NUMBERS)
    assert found.breaks == []
    assert sorted(found.units[0].supports) == [1, 2, 3]


def test_two_machines_that_have_each_others_place_are_exchanged():
    there = machines()
    there["n3"], there["n6"] = there["n6"], there["n3"]
    found = find_pattern(there, NUMBERS)
    assert found.exchanged == {"n3": "n6", "n6": "n3"}
    assert found.exchange_support == Support(6, 8)
    assert found.breaks == []


def test_numbers_that_say_nothing_of_places_exchange_none():
    order = [3, 7, 1, 8, 5, 2, 6, 4]
    found = find_pattern(machines(), dict(zip(NUMBERS, order, strict=True)))
    assert (found.exchanged, found.misplaced, found.holes) == ({}, {}, [])


def test_a_machine_in_the_place_of_a_number_that_no_node_has_is_misplaced():
    there = machines()
    there["n3"] = there.pop("n5")
    numbers = {name: number for name, number in NUMBERS.items() if name in there}
    found = find_pattern(there, numbers)
    assert found.misplaced == {"n3": 5}
    assert found.holes == []


def test_one_number_that_is_missing_is_a_hole_and_three_are_a_rack_that_was_not_built():
    there = machines()
    del there["n5"]
    numbers = {name: number for name, number in NUMBERS.items() if name in there}
    found = find_pattern(there, numbers)
    assert [(hole.number, hole.places[0]) for hole in found.holes] == [(5, ("l0", 5))]
    for name in ("n4", "n6"):
        del there[name]
    numbers = {name: number for name, number in NUMBERS.items() if name in there}
    assert find_pattern(there, numbers).holes == []


def test_a_hole_whose_place_something_else_has_is_none():
    there = machines()
    del there["n5"]
    there["n8"][3] = ("l3", 5)
    numbers = {name: number for name, number in NUMBERS.items() if name in there}
    assert find_pattern(there, numbers).holes == []


def test_a_series_that_begins_with_two_has_lost_its_first():
    there = machines()
    del there["n1"]
    numbers = {name: number for name, number in NUMBERS.items() if name in there}
    assert [hole.number for hole in find_pattern(there, numbers).holes] == [1]
