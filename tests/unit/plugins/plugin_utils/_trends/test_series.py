# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings become rates: counters that begin again, moved and twin cables, missing days."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.series import (
    Down,
    Histories,
    Place,
    bit_error_ratio,
    highest_bin,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.thresholds import (
    BER,
    BINS,
    HEAT,
    RX,
)

DAY = 86400
BITS = 1440 * 60 * 400e9
FIRST = LinkReading(
    at=20000 * DAY, rail=0, serial="A1", part="P", gbps=400.0, boot="b1", minutes=1440.0,
    raw_errors=1000, bins=(9, 4, 1), rx_dbm=(1.0, 0.5), celsius=50.0, hot_c=75.0, downs=3,
)  # fmt: skip


def after(days: float, **values: object) -> LinkReading:
    """The reading some days after the first, its counters going on."""
    return replace(FIRST, **{"at": FIRST.at + int(days * DAY), "minutes": 1440.0 + days * 1440,
                             **values})  # fmt: skip


def test_a_change_of_today_shows_although_the_tools_mean_hides_it() -> None:
    months = replace(FIRST, minutes=1e6, raw_errors=10**9, raw_ber=4e-11)
    today = replace(months, at=months.at + DAY, minutes=1e6 + 1440, raw_errors=10**9 + 35_000_000,
                    raw_ber=4e-11)  # fmt: skip
    assert bit_error_ratio(months, today) == pytest.approx(35e6 / BITS)


def test_no_error_at_all_is_a_ratio_and_a_short_time_is_none() -> None:
    assert bit_error_ratio(FIRST, after(1)) == 0.5 / BITS
    assert bit_error_ratio(FIRST, after(0.01)) is None
    assert bit_error_ratio(None, replace(FIRST, minutes=10.0)) is None


@pytest.mark.parametrize(
    "now",
    [
        after(1, raw_errors=400, minutes=700.0),
        after(1, raw_errors=400, minutes=1440.0),
        after(1, raw_errors=400),
    ],
)
def test_a_counter_that_began_again_gives_no_negative_rate(now: LinkReading) -> None:
    found = bit_error_ratio(FIRST, now)
    assert found == pytest.approx(400 / (now.minutes * 60 * 400e9))


def test_without_counters_the_tools_own_figure_is_taken() -> None:
    assert bit_error_ratio(FIRST, after(1, raw_errors=None, raw_ber=3e-9)) == 3e-9
    assert bit_error_ratio(None, after(1, raw_errors=None, raw_ber=None)) is None


def test_the_histogram_is_that_since_the_last_reading() -> None:
    assert highest_bin(None, FIRST) == 2
    assert highest_bin(FIRST, after(1, bins=(20, 9, 1))) == 1
    assert highest_bin(FIRST, after(1, bins=(3, 1))) == 1
    assert highest_bin(FIRST, after(1, bins=(20, 9, 0, 1))) == 3
    assert highest_bin(FIRST, after(1, bins=())) is None


def test_a_missing_day_is_a_gap_and_a_reading_of_before_is_left_out() -> None:
    found = Histories()
    for reading in (FIRST, after(1), after(4), after(2)):
        found.add("n1", [reading])
    (series,) = found.series
    assert list(series.days) == [20000, 20001, 20004]


def histories(found: Histories) -> list[tuple[str, list[str], int]]:
    """Serial number, places, and readings at the last of them."""
    return [
        (one.serial, [str(place) for _day, place in one.places], len(one.days))
        for one in found.where_they_are()
    ]


def test_a_cable_that_moves_keeps_its_history_and_begins_new_levels() -> None:
    found = Histories()
    found.add("n1", [FIRST])
    found.add("n1", [after(1)])
    found.add("n2", [after(2, rail=5, boot="c1", raw_errors=7)])
    (series,) = found.where_they_are()
    assert [(since, str(place)) for since, place in series.places] == [
        (20000, "n1/rail0"), (20002, "n2/rail5")]  # fmt: skip
    assert series.readings(99999) == 1
    assert [day for day, _value in series.values(RX, 0, 99999)] == [20002]
    assert series.downs == []


@pytest.mark.parametrize("hours", [1, 13, 40])
@pytest.mark.parametrize("first", ["n1", "n2"])
def test_cables_that_are_exchanged_keep_their_histories_however_soon(
    hours: int, first: str
) -> None:
    found = Histories()
    for day in (0, 1):
        found.add("n1", [after(day, rail=3, serial="X")])
        found.add("n2", [after(day, rail=5, serial="Y")])
    new = {"n1": {"rail": 3, "serial": "Y"}, "n2": {"rail": 5, "serial": "X"}}
    for number, node in enumerate([first, *({*new} - {first})]):
        # The other node is read in the next timer's turn only, twice after the first.
        found.add(node, [after(1 + (hours + number) / 24, downs=3, **new[node])])
        found.add(first, [after(1 + (hours + number + 0.5) / 24, downs=4, **new[first])])
    found.add("n1", [after(5, downs=5, **new["n1"])])
    found.add("n2", [after(5, downs=5, **new["n2"])])
    assert {one[0]: one[1] for one in histories(found)} == {
        "X": ["n1/rail3", "n2/rail5"], "Y": ["n2/rail5", "n1/rail3"]}  # fmt: skip
    assert len(found.series) == 4
    assert {str(one.place) for one in found.series if one.downs} == {"n1/rail3", "n2/rail5"}
    assert all(one.downs for one in found.where_they_are())


def test_two_cables_of_a_node_that_are_exchanged_at_once() -> None:
    found = Histories()
    found.add("n1", [replace(FIRST, rail=0, serial="X"), replace(FIRST, rail=1, serial="Y")])
    found.add("n1", [after(0.1, rail=0, serial="Y"), after(0.1, rail=1, serial="X")])
    assert sorted(histories(found)) == [
        ("X", ["n1/rail0", "n1/rail1"], 1), ("Y", ["n1/rail1", "n1/rail0"], 1)]  # fmt: skip


@pytest.mark.parametrize("hours", [1, 12])
def test_an_exchange_that_was_undone_does_not_take_the_history(hours: int) -> None:
    found = Histories()
    for day in range(41):
        found.add("n2", [after(day, rail=5, serial="Y")])
        if day == 9:
            found.add("n1", [after(9.1, rail=3, serial="Y")])
    found.add("n3", [after(40 + hours / 24, rail=1, serial="Y")])
    assert histories(found) == [
        ("Y", ["n1/rail3"], 1), ("Y", ["n2/rail5", "n3/rail1"], 1)]  # fmt: skip


def test_a_cable_that_comes_back_begins_new_levels() -> None:
    found = Histories()
    for day, serial in enumerate(["A1", "A1", "B2", "A1"]):
        found.add("n1", [after(day, serial=serial)])
        if serial == "B2":
            found.add("n2", [after(day)])
    found.add("n3", [after(3, serial="B2")])
    assert histories(found) == [
        ("A1", ["n1/rail0", "n2/rail0", "n1/rail0"], 1),
        ("B2", ["n1/rail0", "n3/rail0"], 1),
    ]


def test_a_cable_that_leaves_a_port_empty_keeps_its_history() -> None:
    found = Histories()
    found.add("n1", [FIRST])
    found.add("n1", [after(0.1, rail=4), after(0.1, serial="")])
    assert histories(found) == [("A1", ["n1/rail0", "n1/rail4"], 1)]


def test_a_name_that_is_not_read_once_does_not_mix_the_ends_of_a_splitter() -> None:
    found = Histories()
    for day in (0, 1, 2):
        found.add("n1", [after(day, serial="" if day == 1 else "A1")])
        found.add("n2", [after(day + 0.5, rail=2)])
    assert histories(found) == [("A1", ["n1/rail0"], 2), ("A1", ["n2/rail2"], 3)]


def test_a_twin_module_moves_with_both_histories() -> None:
    found = Histories()
    found.add("n1", [FIRST, replace(FIRST, rail=3)])
    found.add("n2", [after(0.1, rail=1), after(0.1, rail=2)])
    found.add("n1", [after(0.2, serial="B2"), after(0.2, rail=3, serial="B2")])
    found.add("n2", [after(1, rail=1), after(1, rail=2)])
    assert histories(found) == [
        ("A1", ["n1/rail0", "n2/rail1"], 2), ("A1", ["n1/rail3", "n2/rail2"], 2),
        ("B2", ["n1/rail0"], 1), ("B2", ["n1/rail3"], 1)]  # fmt: skip


def test_a_port_of_a_twin_module_that_stays_is_not_the_one_that_moved() -> None:
    found = Histories()
    found.add("n1", [FIRST, replace(FIRST, rail=3)])
    # Rail 0 was not due, and shows its port still.
    found.add("n1", [after(0.6, rail=3, serial="B2"), after(0.6, rail=4)])
    found.add("n1", [after(1), after(1, rail=4)])
    assert histories(found)[:2] == [("A1", ["n1/rail0"], 2), ("A1", ["n1/rail3", "n1/rail4"], 2)]


def test_a_replaced_cable_is_another_one() -> None:
    found = Histories()
    found.add("n1", [FIRST])
    found.add("n1", [after(1, serial="B2")])
    assert [one.serial for one in found.series] == ["A1", "B2"]


def test_both_ports_of_a_twin_module_have_their_own_history() -> None:
    found = Histories()
    found.add("n1", [FIRST, replace(FIRST, rail=3)])
    # Where it stays is found first, in any order.
    found.add("n1", [after(1, rail=4), after(1), after(1, rail=3)])
    assert histories(found) == [
        ("A1", ["n1/rail0"], 2), ("A1", ["n1/rail3"], 2), ("A1", ["n1/rail4"], 1)]  # fmt: skip


def test_a_cable_without_a_serial_number_has_no_history() -> None:
    found = Histories()
    found.add("n1", [replace(FIRST, serial="")])
    assert found.series == []
    assert list(found.nameless) == [Place("n1", 0)]
    found.add("n1", [after(1)])
    assert found.nameless == {}


def test_flaps_are_counted_within_one_boot() -> None:
    found = Histories()
    for reading in (FIRST, after(1, downs=5, why=("Hi_BER",)), after(2, downs=6, boot="b2"),
                    after(3, downs=2, boot="b2")):  # fmt: skip
        found.add("n1", [reading])
    assert found.series[0].downs == [Down(20000, 20001, 2, ("Hi_BER",))]


def test_values_are_those_of_the_worst_lane_in_the_days_asked_for() -> None:
    found = Histories()
    for reading in (FIRST, after(1), after(2)):
        found.add("n1", [reading])
    (series,) = found.series
    assert series.values(RX, 20001, 20001) == [(20001, 0.5)]
    assert series.values(BER, 0, 99999)[0][1] == pytest.approx(math.log10(1000 / BITS))
    assert [value for _day, value in series.values(BINS, 0, 99999)] == [2, 0, 0]


def test_zeroes_of_copper_in_an_old_store_are_neither_values_nor_limits() -> None:
    zeroes = {"celsius": 0.0, "hot_c": 0.0, "rx_dbm": (0.0, 0.0), "rx_low_dbm": 0.0}
    none = {"celsius": None, "hot_c": None, "rx_dbm": (), "rx_low_dbm": None}
    found = Histories()
    for day in range(25):
        found.add("n1", [after(day, **(zeroes if day < 15 else none))])
    (series,) = found.series
    assert (series.hot_c, series.rx_low_dbm) == (None, None)
    assert [series.values(quantity, 0, 1e9) for quantity in (HEAT, RX)] == [[], []]


def test_a_limit_that_is_once_not_read_stays() -> None:
    found = Histories()
    for reading in (after(0, rx_low_dbm=-9.9), after(1, celsius=None, hot_c=None)):
        found.add("n1", [reading])
    (series,) = found.series
    assert (series.hot_c, series.rx_low_dbm) == (75.0, -9.9)
    assert len(series.values(HEAT, 0, 1e9)) == 1
