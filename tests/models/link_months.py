# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Months of a made-up fabric's links, as mlxlink would have shown them day by day.

Simulated: levels, noise and the ways to fail are of our making, from what is published of optics:
pre-FEC ratios of 1e-10 to 1e-7 on healthy links, receivers whose errors grow fast with lost light,
module temperatures that follow the room. What a judge sees are readings alone: counters that grow
since they were cleared, a figure of one digit, a histogram, light in 0.001 dB, whole degrees.

Ways to fail, each with a share: light that goes (linear, or faster and faster), errors that grow
without it, heat that creeps up to the module's alarm, jumps that fail after 1 to 20 days, and
failures without any sign. The last cannot be named, and are counted apart. Healthy links
have steps too: of the room, of a switch whose fan is slow, of cables that were reseated, days of
many errors, slow ageing that levels off far from the limit, and single wild readings.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.judge import judge_links
from ansible_collections.baremetal.dgx.plugins.plugin_utils._trends.series import Histories, Place

FIRST_DAY = 20500
FEC = "Interleaved_Standard_RS-FEC - (544,514)"
LIMIT = -3.62
GBPS = 400.0
HOT_C, LOW_DBM = 75.0, -10.0
NODE_LINKS = 8
LEAF_PORTS = 32
LIGHT, ERRORS, HEAT, JUMP, NONE = "light", "errors", "heat", "jump", "no sign"
WAYS = (LIGHT, LIGHT, ERRORS, ERRORS, HEAT, JUMP, JUMP)


@dataclass
class LinkWorld:
    """A link as it really is; `fails` is its way, with the day on which it fails."""

    place: Place
    serial: str
    base: float
    noise: float
    dbm: float
    warm: float
    by_heat: float
    way: str = ""
    begins: float = math.inf
    pace: float = 0.0
    bend: float = 1.0
    height: float = 0.0
    fails: int | None = None
    # Healthy changes: (first day, last day, decades, dB)
    healthy: list[tuple[int, int, float, float]] = field(default_factory=list)
    ageing: float = 0.0
    minutes: float = 0.0
    errors: int = 0
    bins: list[int] = field(default_factory=lambda: [0] * 16)
    downs: int = 0
    boot: int = 0

    def true(self, day: int, room: float) -> tuple[float, float, float]:
        """Return log10 of the ratio, dBm and degrees of a day, without the noise of reading."""
        heat, dbm, ratio = self.warm + room, self.dbm, self.base
        since = day - self.begins
        if since >= 0 and self.way:
            grown = self.pace * since**self.bend
            if self.way == LIGHT:
                dbm -= grown
                # A receiver loses decades faster the less light it has left.
                ratio += 0.25 * grown + 0.045 * grown**2
            elif self.way == ERRORS:
                ratio += grown
            elif self.way == HEAT:
                heat += grown
            elif self.way == JUMP:
                ratio += self.height + grown
                dbm -= 0.8 * self.height
        for first, last, decades, db in self.healthy:
            if first <= day <= last:
                ratio += decades
                dbm -= db
        ratio += self.ageing * (1 - math.exp(-(day - FIRST_DAY) / 80))
        ratio += self.by_heat * (heat - self.warm)
        return ratio, dbm, heat

    def is_broken(self, day: int, room: float) -> bool:
        """Return whether the link no longer works on a day."""
        if self.way == NONE:
            return day >= self.begins
        ratio, dbm, heat = self.true(day, room)
        return bool(self.way) and (ratio >= LIMIT or dbm <= LOW_DBM or heat >= HOT_C)


class Months:
    """The fabric: `links` links for `days` days; about `failing` of them fail in that time."""

    def __init__(self, seed: int, links: int = 2000, days: int = 180, failing: int = 40) -> None:
        self.chance = chance = random.Random(seed)
        self.days = range(FIRST_DAY, FIRST_DAY + days)
        self.links = [self._healthy_link(index) for index in range(links)]
        self.rooms = self._rooms()
        self.leaf_warm: dict[int, tuple[int, int, float]] = {}
        for _event in range(max(1, links * days // 90000)):
            leaf, first = chance.randrange(max(1, links // LEAF_PORTS)), chance.choice(self.days)
            self.leaf_warm[leaf] = (first, first + chance.randint(3, 40), chance.uniform(5, 10))
        self.down_nodes: dict[str, list[tuple[int, int]]] = {}
        for _event in range(links * days // (NODE_LINKS * 120)):
            node = self._node(chance.randrange(links))
            first = chance.choice(self.days)
            self.down_nodes.setdefault(node, []).append((first, first + chance.randint(0, 4)))
        some = chance.sample(self.links, min(links, failing + failing // 7))
        for number, link in enumerate(some):
            self._fail(link, NONE if number >= failing else chance.choice(WAYS))
        for link in self.links:
            link.fails = self._day_of_failure(link)

    def _node(self, index: int) -> str:
        return f"dgx-{index // NODE_LINKS + 1:04d}"

    def far_end(self, place: Place) -> str:
        """Return leaf and port of a rail: rail r of 32 nodes side by side is one leaf."""
        node = int(place.node[4:]) - 1
        return f"leaf-{node // LEAF_PORTS:02d}-{place.rail}/{node % LEAF_PORTS + 1}"

    def _leaf(self, place: Place) -> int:
        return (int(place.node[4:]) - 1) // LEAF_PORTS * NODE_LINKS + place.rail

    def _healthy_link(self, index: int) -> LinkWorld:
        chance = self.chance
        link = LinkWorld(
            place=Place(self._node(index), index % NODE_LINKS),
            serial=f"SN{index:06d}",
            base=min(-6.5, max(-10.5, chance.gauss(-8.5, 0.8))),
            noise=chance.choice((0.05, 0.08, 0.08, 0.12, 0.25)),
            dbm=chance.gauss(1.5, 1.0),
            warm=chance.gauss(52, 3.0),
            by_heat=chance.uniform(0.0, 0.04),
        )
        if chance.random() < 0.05:
            link.ageing = chance.uniform(0.2, 1.5)
        first, last = self.days[0], self.days[-1]
        for _event in range(3):
            if chance.random() < 0.10:
                # Reseated or cleaned: another level for good, better or a bit worse.
                link.healthy.append((chance.randint(first, last), last + 999,
                                   chance.uniform(-0.8, 0.8), chance.uniform(-1, 1)))  # fmt: skip
            if chance.random() < 0.06:
                begin = chance.randint(first, last)
                link.healthy.append((begin, begin + chance.randint(0, 4),
                                   chance.uniform(0.3, 1.5), 0.0))  # fmt: skip
        return link

    def _rooms(self) -> dict[int, float]:
        """Return by day how warm the room is against its middle: weather, and cooling changed."""
        chance, level, found = self.chance, 0.0, {}
        steps = [(chance.choice(self.days), chance.uniform(-6, 6)) for _step in range(3)]
        for day in self.days:
            level = 0.9 * level + chance.gauss(0, 0.5)
            found[day] = level + sum(by for first, by in steps if first <= day <= first + 50)
        return found

    def _fail(self, link: LinkWorld, way: str) -> None:
        chance = self.chance
        link.way, link.begins = way, chance.randint(self.days[0] + 12, self.days[-1])
        link.ageing = 0.0
        if way == LIGHT:
            link.bend = chance.choice((1.0, 1.0, 1.6, 2.2))
            link.pace = chance.uniform(0.08, 0.8) ** link.bend
        elif way == ERRORS:
            link.bend = chance.choice((1.0, 1.0, 1.6, 2.2))
            link.pace = chance.uniform(0.05, 0.5) ** link.bend
        elif way == HEAT:
            link.pace = chance.uniform(0.3, 2.5)
        elif way == JUMP:
            # To a level that still works, from which it gets worse until it fails.
            left = LIMIT - link.base
            link.height = left - chance.uniform(0.2, 1.5)
            link.pace = (left - link.height) / chance.uniform(1, 20)

    def room(self, link: LinkWorld, day: int) -> float:
        """Return how much warmer than usual the link's place is on a day."""
        warm = self.rooms.get(day, 0.0)
        first, last, by = self.leaf_warm.get(self._leaf(link.place), (0, -1, 0.0))
        return warm + (by if first <= day <= last else 0.0)

    def _day_of_failure(self, link: LinkWorld) -> int | None:
        if not link.way:
            return None
        days = range(self.days[0], self.days[-1] + 400)
        return next((day for day in days if link.is_broken(day, self.room(link, day))), None)

    def read(self, day: int) -> Iterator[tuple[str, list[LinkReading]]]:
        """Yield what is read of each node on a day; broken links are read no more."""
        nodes: dict[str, list[LinkReading]] = {}
        chance = self.chance
        boots: dict[str, bool] = {}
        for link in self.links:
            node = link.place.node
            rebooted = boots.setdefault(node, chance.random() < 0.01)
            self._count(link, day, rebooted)
            down = any(a <= day <= b for a, b in self.down_nodes.get(node, ()))
            broken = link.fails is not None and day >= link.fails
            if not down and not broken and chance.random() > 0.01:
                nodes.setdefault(node, []).append(self._reading(link, day))
        yield from nodes.items()

    def _count(self, link: LinkWorld, day: int, rebooted: bool) -> None:
        """Let a day pass on the counters of a link."""
        chance = self.chance
        if rebooted:
            link.boot += 1
            link.downs = 0
        if rebooted or chance.random() < 0.004:
            link.minutes, link.errors, link.bins = 0.0, 0, [0] * 16
        if chance.random() < 0.0005:
            link.downs += 1
        ratio, _dbm, _heat = link.true(day, self.room(link, day))
        wild = chance.gauss(0, link.noise) * (4 if chance.random() < 0.01 else 1)
        ratio = min(ratio + wild, -1.0)
        bits = 86400 * GBPS * 1e9
        link.minutes += 1440
        expected = 10**ratio * bits
        link.errors += max(0, round(chance.gauss(expected, math.sqrt(expected))))
        mean, words = 10**ratio * 5440, bits / 5440
        share = math.exp(-mean)
        for symbols in range(16):
            number = words * share
            link.bins[symbols] += int(number) + (chance.random() < number % 1)
            share *= mean / (symbols + 1)
        # Bursts, which healthy links have, too.
        if chance.random() < 0.3:
            link.bins[min(15, 2 + int(chance.expovariate(0.7)))] += chance.randint(1, 4)

    def _reading(self, link: LinkWorld, day: int) -> LinkReading:
        chance = self.chance
        _ratio, dbm, heat = link.true(day, self.room(link, day))
        mean = link.errors / (link.minutes * 60 * GBPS * 1e9) if link.minutes else 0.0
        last = max((symbols for symbols in range(16) if link.bins[symbols]), default=-1)
        hour = chance.uniform(-0.3, 0.3)
        return LinkReading(
            at=int((day + 0.5) * 86400 + hour * 3600),
            rail=link.place.rail,
            serial=link.serial,
            part="OSFP-400G-DR4",
            fec=FEC,
            gbps=GBPS,
            boot=f"{link.boot:08x}",
            minutes=round(link.minutes, 1),
            raw_errors=link.errors,
            raw_ber=float(f"{mean:.0e}"),
            effective_errors=0,
            bins=tuple(link.bins[: last + 1]),
            rx_dbm=tuple(
                round(dbm + lane + chance.gauss(0, 0.08), 3) for lane in (0, 0.3, 0.5, 0.8)
            ),
            rx_low_dbm=LOW_DBM,
            celsius=float(round(heat + chance.gauss(0, 0.8) + 2 * hour)),
            hot_c=HOT_C,
            downs=link.downs,
        )


@dataclass
class Score:
    """What a judge named in the months of a fabric, and what came of it."""

    links: int
    days: int
    failed: int = 0
    a_day_before: int = 0
    later: int = 0
    missed: int = 0
    without_sign: int = 0
    named_without_sign: int = 0
    false: int = 0
    early_days: list[int] = field(default_factory=list)
    by_way: Counter[tuple[str, bool]] = field(default_factory=Counter)
    reported: list[str] = field(default_factory=list)

    @property
    def false_a_month(self) -> float:
        """Links that were named and do not fail, in 30 days."""
        return self.false / self.days * 30


def judged_months(months: Months) -> Score:
    """Judge each day with what was read up to it, and compare with what came."""
    histories = Histories()
    first: dict[str, int] = {}
    texts: dict[str, str] = {}
    named_last: dict[str, int] = {}
    false: list[str] = []
    truth = {link.serial: link for link in months.links}
    at = {str(link.place): link.serial for link in months.links}
    for day in months.days:
        for node, readings in months.read(day):
            histories.add(node, readings)
        outlook = judge_links(histories, day + 0.9, months.far_end)
        for link in outlook.will_fail:
            serials = [at[place] for place in link.places]
            failing = [one for one in serials if truth[one].fails is not None]
            if not failing and day - named_last.get(link.subject, -99) > 30:
                false.append(f"{link.subject} day {day - FIRST_DAY}: {link.trends[0].text}")
            named_last[link.subject] = day
            for serial in failing:
                if day >= truth[serial].begins:
                    first.setdefault(serial, day)
                    texts.setdefault(serial, link.trends[0].text)
                elif day - named_last.get(serial, -99) > 30:
                    named_last[serial] = day
                    false.append(f"{serial} before it began: {link.trends[0].text}")
    score = Score(len(months.links), len(months.days), false=len(false), reported=false)
    for link in months.links:
        if link.fails is None or link.fails > months.days[-1]:
            continue
        named = first.get(link.serial)
        early = named is not None and named <= link.fails - 1
        if link.way == NONE:
            score.without_sign += 1
            score.named_without_sign += early
            continue
        score.failed += 1
        score.a_day_before += early
        score.missed += named is None
        score.later += named is not None and not early
        score.by_way[link.way, early] += 1
        if early and named is not None:
            score.early_days.append(link.fails - named)
        else:
            score.reported.append(
                f"missed {link.serial} {link.way} began {link.begins - FIRST_DAY} "
                f"failed {link.fails - FIRST_DAY} pace {link.pace:.2g} bend {link.bend}"
            )
    return score
