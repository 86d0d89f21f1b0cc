# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links that will fail: by hand, and on days of a made-up fabric; tests/soak has the months."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from link_months import Months, judged_months

from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.judge import (
    WILL_FAIL,
    Outlook,
    judge_links,
    slope_of,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.series import Histories, Place
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.thresholds import (
    BER,
    BINS,
    CODES,
    HEAT,
    RX,
)

FIRST = 20000
Change = Callable[[int, int, int, LinkReading], LinkReading]


def healthy(node: int, rail: int, day: int) -> LinkReading:
    chance = random.Random(node * 7919 + rail * 104729 + day)
    own = random.Random(node * 100 + rail)
    ratio = 10 ** (own.uniform(-9, -7.5) + chance.gauss(0, 0.05))
    return LinkReading(
        at=(FIRST + day) * 86400 + 3600, rail=rail, serial=f"S{node:02d}{rail}", part="DR4",
        fec="Standard_RS-FEC - (544,514)", gbps=400.0, boot="b", minutes=None, raw_errors=None,
        raw_ber=ratio, rx_dbm=(own.uniform(1, 2) + chance.gauss(0, 0.05),), rx_low_dbm=-9.9,
        celsius=own.uniform(48, 54) + chance.gauss(0, 0.4), hot_c=75.0, downs=0, bins=(9, 3, 1),
    )  # fmt: skip


def far_end(place: Place) -> str:
    return f"leaf-{place.rail}/{place.node[1:]}"


def outlook(change: Change, days: int = 25, missing: tuple[int, ...] = ()) -> Outlook:
    """The outlook of 12 nodes of 4 rails; `change` gives what a reading is instead."""
    histories = Histories()
    for day in range(days):
        for node in range(12):
            if day not in missing:
                histories.add(f"n{node}", [
                    replace(change(node, rail, day, healthy(node, rail, day)), minutes=1000.0)
                    for rail in range(4)
                ])  # fmt: skip
    return judge_links(histories, FIRST + days - 0.5, far_end)


def of_one(**values: Callable[[int], object]) -> Change:
    """Change values of n3/rail2, each by the number of the day."""

    def change(node: int, rail: int, day: int, reading: LinkReading) -> LinkReading:
        if (node, rail) != (3, 2):
            return reading
        return replace(reading, **{name: value(day) for name, value in values.items()})

    return change


def same(_node: int, _rail: int, _day: int, reading: LinkReading) -> LinkReading:
    return reading


def test_healthy_links_have_no_finding() -> None:
    found = outlook(same)
    assert (found.will_fail, found.judged, found.not_measured) == ((), 48, {})


@pytest.mark.parametrize(
    ("values", "quantity", "check"),
    [
        ({"raw_ber": lambda day: 10 ** (-8 + max(0, day - 10) * 0.2)}, BER, "links.ber"),
        ({"rx_dbm": lambda day: (2 - max(0, day - 10) * 0.5,)}, RX, "links.rx_power"),
        ({"celsius": lambda day: 50 + max(0, day - 10) * 1.0}, HEAT, "links.temperature"),
        ({"raw_ber": lambda day: 1e-8 if day < 23 else 3e-5}, BER, "links.ber"),
        ({"bins": lambda day: (1,) * (2 if day < 20 else 14)}, BINS, "links.fec_histogram"),
    ],
)
def test_what_gets_worse_is_named_with_its_evidence(values, quantity, check) -> None:
    found = outlook(of_one(**values))
    (link,) = found.will_fail
    assert (link.word, link.subject, link.part) == (WILL_FAIL, "cable:S032", "DR4")
    assert (link.places, link.ports) == (("n3/rail2",), ("leaf-2/3",))
    assert [(trend.quantity, trend.check) for trend in link.trends] == [(quantity, check)]
    assert link.evidence[-1] == "at n3/rail2 since 2024-10-04"
    assert quantity == BINS or "worse than 47 of 48 links" in link.evidence[0]
    assert link.remedy
    assert len(link.points) == 25


def test_the_days_that_are_left_are_those_of_the_slope() -> None:
    (link,) = outlook(of_one(rx_dbm=lambda day: (2 - max(0, day - 4) * 0.5,))).will_fail
    # 2 dBm less 10 dB on day 24; the median of three is a day behind.
    assert link.trends[0].days_left == pytest.approx((-9.9 + 7.5) / -0.5, abs=0.3)
    assert link.trends[0].text.startswith("receive power falls 0.5 dB a day since 30 days"[:28])


def test_a_step_to_a_harmless_level_and_an_old_one_are_none() -> None:
    assert outlook(of_one(raw_ber=lambda day: 1e-9 if day < 20 else 5e-8)).will_fail == ()
    assert outlook(of_one(rx_dbm=lambda day: (1.5 if day < 20 else -1.5,))).will_fail == ()


def test_one_wild_reading_is_none() -> None:
    assert outlook(of_one(raw_ber=lambda day: 3e-5 if day == 24 else 1e-8)).will_fail == ()


def test_a_warm_room_is_no_finding_about_its_cables() -> None:
    def warm(_node: int, _rail: int, day: int, reading: LinkReading) -> LinkReading:
        return replace(reading, celsius=(reading.celsius or 0) + max(0, day - 12) * 1.0)

    assert outlook(warm).will_fail == ()


def test_a_leaf_is_one_cause() -> None:
    def leaf(_node: int, rail: int, day: int, reading: LinkReading) -> LinkReading:
        slow = 10 ** (max(0, day - 10) * 0.25) if rail == 2 else 1.0
        return replace(reading, raw_ber=(reading.raw_ber or 0) * slow)

    found = outlook(leaf).will_fail
    assert all(one.subject == "switch:leaf-2" for one in found)


def test_readings_that_are_missing_are_no_pass() -> None:
    few = outlook(same, days=4)
    assert few.judged == 0
    assert list(few.not_measured) == ["there are fewer than 7 readings at its place"]
    old = outlook(same, missing=tuple(range(15, 25)))
    assert list(old.not_measured) == ["it was not read for more than 4 days"]
    nameless = outlook(of_one(serial=lambda day: ""))
    assert nameless.not_measured == {"its cable gives no serial number": ("hca:n3/rail2",)}
    assert nameless.judged == 47


def test_gaps_do_not_hide_a_slope() -> None:
    change = of_one(raw_ber=lambda day: 10 ** (-8 + max(0, day - 8) * 0.2))
    assert len(outlook(change, missing=(12, 13, 17, 20)).will_fail) == 1


def test_slope_and_tau() -> None:
    line = [(float(day), 2.0 * day) for day in range(6)]
    assert slope_of(line) == (2.0, 1.0)
    line[3] = (3.0, 99.0)
    assert slope_of(line)[0] == 2.0


def share_of_words(code: str, ratio: float, least: int) -> float:
    """Return the share of code words with so many wrong symbols of 10 bits, or more."""
    symbols = int(code.split(",")[0])
    wrong = 1 - (1 - ratio) ** 10
    return sum(
        math.comb(symbols, number) * wrong**number * (1 - wrong) ** (symbols - number)
        for number in range(least, least + 30)
    )


@pytest.mark.parametrize("name", CODES)
def test_limits_are_where_each_code_no_longer_corrects(name: str) -> None:
    """Code words with more errors than are corrected: about 1e-13."""
    code = CODES[name]
    assert 1e-15 < share_of_words(name, 10**code.limit, code.corrected + 1) < 1e-10


@pytest.mark.parametrize("name", CODES)
def test_a_link_far_from_its_limit_has_no_code_word_that_names_it(name: str) -> None:
    """At a tenth of the limit, by 400 Gb/s, there is none in a day; near the limit there are."""
    code = CODES[name]
    words = 400e9 * 86400 / (10 * int(name.split(",")[0]))
    least = code.corrected - code.left
    assert words * share_of_words(name, 10**code.limit / 10, least) < 1
    assert words * share_of_words(name, 10**code.limit / 2, least) > 1


@pytest.mark.parametrize(
    ("fec", "most", "is_named"),
    [
        ("Ethernet_Consortium_LL_50G_RS_FEC_PLR -(272,257+1)", 5, False),
        ("Ethernet_Consortium_LL_50G_RS_FEC_PLR -(272,257+1)", 6, True),
        ("Interleaved Quad RS-FEC + PLR - (546,516)", 11, False),
        ("Interleaved Quad RS-FEC + PLR - (546,516)", 12, True),
        ("Firecode FEC", 15, False),
    ],
)
def test_code_words_near_to_what_each_code_corrects(fec: str, most: int, is_named: bool) -> None:
    def words(day: int) -> tuple[int, ...]:
        return (9,) * most + (day + 1,)

    found = outlook(of_one(fec=lambda day: fec, bins=words)).will_fail
    assert [[trend.quantity for trend in one.trends] for one in found] == [
        ["FEC histogram"]
    ] * is_named


def test_a_sample_of_the_months() -> None:
    """Two seeds that the thresholds were not chosen on; the soak judges whole fabrics."""
    scores = [judged_months(Months(seed, links=96, days=60, failing=12)) for seed in (911, 912)]
    failed = sum(score.failed for score in scores)
    assert failed >= 12
    assert sum(score.a_day_before for score in scores) >= 0.85 * failed
    assert sum(score.false for score in scores) <= 1
    assert sum(score.named_without_sign for score in scores) == 0
