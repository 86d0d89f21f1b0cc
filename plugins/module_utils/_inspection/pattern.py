# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The pattern that most machines of one sort follow, and those that break it. Pure.

A machine is a node with its rails, or a switch with its ports upward; both are slots that lead to a
port of a switch. Machines that hang on the same switches are a unit. In a regular fabric each slot
leads to one switch, and from one machine to the next all ports move on together: a machine has a
base, a slot has a shift, and the port is their sum. Without such a
majority there is no pattern, and no break.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Hashable, Iterator, Mapping, Tuple, TypeVar

# A switch, and the port there.
Place = Tuple[str, int]
Machines = Mapping[str, Mapping[int, Place]]

# A pattern is what so many follow, and this share of those that could.
FEWEST = 3
SHARE = Fraction(3, 4)
# A pattern that fewer follow makes a guess only.
SURE = 0.8
# A machine that lacks more of its slots is of another sort.
_LACK = Fraction(3, 8)
# So many slots are tried as the one that others are counted from.
_REFERENCES = 8

_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True)
class Support:
    """So many follow the pattern, of so many that could."""

    like: int
    of: int

    @property
    def confidence(self) -> float:
        """The share that follows."""
        return round(self.like / self.of, 3)


@dataclass(frozen=True)
class Break:
    """A slot that is not where the pattern has it."""

    machine: str
    slot: int
    place: Place
    support: Support


@dataclass(frozen=True)
class Hole:
    """A number that is missing between two others, and the places that it would have."""

    number: int
    places: tuple[Place, ...]
    support: Support


@dataclass
class Unit:
    """Machines that hang on the same switches, and what most of them have in common."""

    members: list[str]
    switch: dict[int, str] = field(default_factory=dict)
    shift: dict[int, int] = field(default_factory=dict)
    base: dict[str, int] = field(default_factory=dict)
    supports: dict[int, Support] = field(default_factory=dict)
    # base = first + step * number
    first: Fraction | None = None
    step: Fraction = Fraction(0)
    ordered: Support = Support(0, 1)

    def place(self, slot: int, base: int) -> Place:
        """Return where the slot of a machine with this base belongs."""
        return self.switch[slot], base + self.shift[slot]

    def places(self, base: int) -> tuple[Place, ...]:
        """Return all places of a machine with this base."""
        return tuple(self.place(slot, base) for slot in sorted(self.supports))

    def spans(self, base: int) -> bool:
        """Return whether a base is between those of the members."""
        return min(self.base.values()) <= base <= max(self.base.values())

    def base_of(self, number: int) -> int | None:
        """Return the base that the machine of this number has by the order."""
        if self.first is None:
            return None
        base = self.first + self.step * number
        return int(base) if base.denominator == 1 else None

    def number_of(self, base: int) -> int | None:
        """Return the number of the machine that the order has at this base."""
        if self.first is None:
            return None
        number = (base - self.first) / self.step
        return int(number) if number.denominator == 1 else None


@dataclass
class Pattern:
    """What the machines of one sort have in common."""

    units: list[Unit] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    # (machine, slot) that are where the pattern has them
    kept: set[tuple[str, int]] = field(default_factory=set)
    # Machine -> the one that belongs in its place; only exchanges that close.
    exchanged: dict[str, str] = field(default_factory=dict)
    # Machine -> the number, which no machine has, that belongs in its place.
    misplaced: dict[str, int] = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    exchange_support: Support = Support(0, 1)


def usual(items: Mapping[_Item, int], of: int) -> _Item | None:
    """Return the item that enough of so many have, None where there is none."""
    if not items:
        return None
    best = max(items, key=lambda item: items[item])
    return best if items[best] >= FEWEST and items[best] >= SHARE * of else None


def find_pattern(machines: Machines, numbers: Mapping[str, int]) -> Pattern:
    """Return what most of these machines have in common; `numbers` are those of their names."""
    pattern = Pattern()
    for members in _hung_together(machines):
        unit = _unit_of(members, machines)
        if not unit.shift:
            continue
        _find_bases(unit, machines)
        _find_order(unit, numbers)
        _settle_bases(unit, machines, numbers)
        if _support(unit, machines):
            pattern.units.append(unit)
    for unit in pattern.units:
        _compare(unit, machines, pattern)
    _find_exchanged(pattern, numbers)
    for unit in pattern.units:
        pattern.holes += _holes(unit, machines, numbers)
    return pattern


def _hung_together(machines: Machines) -> Iterator[list[str]]:
    """Yield the machines that hang on the same switches, as most of their links say."""
    hung = {name: {switch for switch, _port in machines[name].values()} for name in machines}
    vectors = Counter(
        tuple(sorted((slot, place[0]) for slot, place in machines[name].items()))
        for name in sorted(machines)
    )
    centers: list[set[str]] = []
    for vector, _count in sorted(vectors.items(), key=lambda item: (-item[1], item[0])):
        switches = {switch for _slot, switch in vector}
        if all(2 * len(switches & center) <= len(switches) for center in centers):
            centers.append(switches)
    groups: dict[int, list[str]] = {}
    for name in sorted(machines):
        fits = [len(hung[name] & center) for center in centers]
        best = max(fits)
        if 2 * best >= len(hung[name]) and fits.count(best) == 1:
            groups.setdefault(fits.index(best), []).append(name)
    yield from (groups[index] for index in sorted(groups))


def _unit_of(members: list[str], machines: Machines) -> Unit:
    """Return the unit with the switch and the shift of each slot that has them."""
    unit = Unit(members)
    at: dict[int, Counter[str]] = {}
    for name in members:
        for slot, (switch, _port) in machines[name].items():
            at.setdefault(slot, Counter())[switch] += 1
    likes: dict[int, int] = {}
    for slot, counts in sorted(at.items()):
        most = usual(counts, len(members))
        if most is not None:
            unit.switch[slot], likes[slot] = most, counts[most]
    # A slot that has no order itself shows none of the others.
    for reference in sorted(likes, key=lambda slot: (-likes[slot], slot))[:_REFERENCES]:
        shift = _shifts(unit, machines, reference)
        if len(shift) > len(unit.shift):
            unit.shift = shift
        if len(unit.shift) == len(likes):
            break
    return unit


def _shifts(unit: Unit, machines: Machines, reference: int) -> dict[int, int]:
    """Return by how much the port of each slot is usually beyond that of one."""
    found = {}
    for slot in unit.switch:
        shifts: Counter[int] = Counter()
        for name in unit.members:
            here, there = machines[name].get(slot), machines[name].get(reference)
            if here is not None and there is not None:
                if here[0] == unit.switch[slot] and there[0] == unit.switch[reference]:
                    shifts[here[1] - there[1]] += 1
        shift = usual(shifts, sum(shifts.values()))
        if shift is not None:
            found[slot] = shift
    return found


def _odd(unit: Unit, places: Mapping[int, Place]) -> bool:
    """Return whether a machine has too few of the slots to be of this sort."""
    lacks = sum(1 for slot in unit.shift if slot not in places)
    return lacks > _LACK * len(unit.shift)


def _scores(unit: Unit, places: Mapping[int, Place]) -> dict[int, int]:
    """Return each base that a machine may have, with what speaks for it.

    Where its plugs are, in whatever order, counts more than which slot each is of: plugs that are
    exchanged among themselves leave the places.
    """
    slots_at: dict[str, list[int]] = {}
    for slot in unit.shift:
        slots_at.setdefault(unit.switch[slot], []).append(slot)
    bases = {
        port - unit.shift[slot]
        for switch, port in places.values()
        for slot in slots_at.get(switch, ())
    }
    taken = set(places.values())
    scores = {}
    for base in bases:
        wanted = {slot: unit.place(slot, base) for slot in unit.shift}
        held = sum(1 for place in wanted.values() if place in taken)
        own = sum(1 for slot, place in wanted.items() if places.get(slot) == place)
        if 2 * held >= len(wanted):
            scores[base] = (len(wanted) + 1) * held + own
    return scores


def _best(scores: Mapping[int, int]) -> list[int]:
    most = max(scores.values(), default=0)
    return sorted(base for base in scores if scores[base] == most)


def _find_bases(unit: Unit, machines: Machines) -> None:
    for name in unit.members:
        if not _odd(unit, machines[name]):
            best = _best(_scores(unit, machines[name]))
            if len(best) == 1:
                unit.base[name] = best[0]


def _find_order(unit: Unit, numbers: Mapping[str, int]) -> None:
    """Find how the bases follow the numbers, if they do."""
    known = sorted((numbers[name], unit.base[name]) for name in unit.base if name in numbers)
    steps = Counter(
        Fraction(two[1] - one[1], two[0] - one[0])
        for one, two in zip(known, known[1:])
        if two[0] != one[0]
    )
    if not steps:
        return
    step = max(steps, key=lambda item: (steps[item], item))
    firsts = Counter(base - step * number for number, base in known)
    first = usual(firsts, len(known))
    if first is not None and step:
        unit.first, unit.step = first, step
        unit.ordered = Support(firsts[first], len(known))


def _settle_bases(unit: Unit, machines: Machines, numbers: Mapping[str, int]) -> None:
    """Let the order decide where the plugs of a machine speak for two bases alike."""
    for name in unit.members:
        if name in unit.base or name not in numbers or _odd(unit, machines[name]):
            continue
        base = unit.base_of(numbers[name])
        if base is not None and base in _best(_scores(unit, machines[name])):
            unit.base[name] = base


def _support(unit: Unit, machines: Machines) -> bool:
    """Count who follows; a slot that too few do has no pattern. True where any has one."""
    for slot in unit.shift:
        like = sum(
            1
            for name, base in unit.base.items()
            if machines[name].get(slot) == unit.place(slot, base)
        )
        if like >= FEWEST and like >= SHARE * len(unit.base):
            unit.supports[slot] = Support(like, len(unit.base))
    return bool(unit.supports)


def _compare(unit: Unit, machines: Machines, pattern: Pattern) -> None:
    breaks: list[Break] = []
    for name, base in sorted(unit.base.items()):
        for slot, support in sorted(unit.supports.items()):
            place = unit.place(slot, base)
            if machines[name].get(slot) == place:
                pattern.kept.add((name, slot))
            else:
                breaks.append(Break(name, slot, place, support))
    # Plugs that are exchanged among themselves lack no place: only their order is in doubt. Where
    # too few show it in their slot, all slots of these machines do.
    everywhere = Support(
        sum(one.like for one in unit.supports.values()),
        sum(one.of for one in unit.supports.values()),
    )
    closed = _closed(breaks, machines)
    pattern.breaks += [
        replace(one, support=everywhere) if one in closed and one.support.confidence < SURE else one
        for one in breaks
    ]


def _closed(breaks: list[Break], machines: Machines) -> set[Break]:
    """Return the breaks whose plugs are in each other's places."""
    left = set(breaks)
    while True:
        held = {machines[one.machine].get(one.slot) for one in left}
        wanted = {one.place for one in left}
        kept = {
            one
            for one in left
            if one.place in held and machines[one.machine].get(one.slot) in wanted
        }
        if kept == left:
            return kept
        left = kept


def _find_exchanged(pattern: Pattern, numbers: Mapping[str, int]) -> None:
    """Find machines that have each other's place, by the order of all others."""
    misplaced: dict[tuple[int, int], str] = {}
    for index, unit in enumerate(pattern.units):
        for name, base in unit.base.items():
            if name in numbers and unit.first is not None and unit.base_of(numbers[name]) != base:
                misplaced[index, base] = name
    steps: dict[str, str] = {}
    for name in misplaced.values():
        there = [
            misplaced[index, base]
            for index, unit in enumerate(pattern.units)
            for base in [unit.base_of(numbers[name])]
            if base is not None and (index, base) in misplaced
        ]
        if len(there) == 1:
            steps[name] = there[0]
    for start in sorted(steps):
        chain = [start]
        while steps.get(chain[-1]) not in (None, *chain):
            chain.append(steps[chain[-1]])
        if steps.get(chain[-1]) == start:
            pattern.exchanged.update({steps[name]: name for name in chain})
    known = {numbers[name] for unit in pattern.units for name in unit.base if name in numbers}
    for (index, base), name in sorted(misplaced.items()):
        number = pattern.units[index].number_of(base)
        if name not in pattern.exchanged and number is not None and number not in known:
            if min(known) < number < max(known):
                pattern.misplaced[name] = number
    ordered = [unit.ordered for unit in pattern.units if unit.first is not None]
    if ordered:
        pattern.exchange_support = Support(
            sum(one.like for one in ordered), sum(one.of for one in ordered)
        )


def _holes(unit: Unit, machines: Machines, numbers: Mapping[str, int]) -> Iterator[Hole]:
    """Yield each number that is missing alone, and whose places are empty.

    More than one in a row is a rack that was not built.
    """
    if unit.first is None:
        return
    kept = sorted(
        numbers[name]
        for name, base in unit.base.items()
        if name in numbers and unit.base_of(numbers[name]) == base
    )
    gaps = Counter(two - one for one, two in zip(kept, kept[1:]))
    if not gaps:
        return
    step = max(gaps, key=lambda gap: (gaps[gap], -gap))
    taken = {place for places in machines.values() for place in places.values()}
    known = {numbers[name] for name in machines if name in numbers}
    single = [one + step for one, two in zip(kept, kept[1:]) if two - one == 2 * step]
    # A series that begins with 2 has lost its first.
    single += [1] if kept[0] == 1 + step and kept[0] == min(known) else []
    for number in single:
        base = unit.base_of(number)
        if number not in known and base is not None:
            places = unit.places(base)
            if not set(places) & taken and all(port > 0 for _switch, port in places):
                yield Hole(number, places, unit.ordered)
