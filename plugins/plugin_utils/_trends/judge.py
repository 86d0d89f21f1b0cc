# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which links get worse and will fail: by slopes, jumps, and what all others did. Pure.

Only what was read up to a day is used for that day. What all links of a kind, or most links of a
switch or of a node, did together is taken out of each of them first: a room that gets warm is one
thing, and not a finding about each cable in it. What is left is compared with the cable's past.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from .series import Histories, Place, Series
from .thresholds import (
    BER,
    BINS,
    CODES,
    FEW,
    GAUGES,
    HEAT,
    HORIZON_DAYS,
    LEAST_IN_COMMON,
    LEAST_IN_WINDOW,
    LEAST_READINGS,
    LEAST_TAU,
    LEAST_TAU_OF_FEW,
    LEAST_TOGETHER,
    LIMIT_OF_OTHERS,
    LIMIT_WITHOUT,
    PAST_DAYS,
    QUESTIONS,
    REACH,
    RECENT,
    RUSH_DAYS,
    RX,
    SPREADS,
    STALE_DAYS,
    TOGETHER_SHARE,
    WINDOWS_DAYS,
    Code,
    Gauge,
)

WILL_FAIL = "will_fail"
# The standard deviation of a normal distribution is so many median absolute deviations.
_OF_MAD = 1.4826
_SHOWN_POINTS = 60
_BY_NAME = {gauge.name: gauge for gauge in GAUGES}


@dataclass(frozen=True)
class Trend:
    """Why a link will fail: the quantity, in words, and days until it does; None if unknown."""

    quantity: str
    text: str
    days_left: float | None

    @property
    def check(self) -> str:
        """The question that named it, of docs/thresholds.md."""
        return QUESTIONS[self.quantity].check


@dataclass(frozen=True)
class Link:
    """A link that will fail, or several with one cause.

    `subject` is cable:SERIAL, switch:NAME or node:NAME. `places` are the ends that are nodes' and
    `ports` the far ones, "" where no plan tells them.
    """

    subject: str
    part: str
    places: tuple[str, ...]
    ports: tuple[str, ...]
    trends: tuple[Trend, ...]
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    points: tuple[tuple[float, float], ...] = ()
    word: str = WILL_FAIL


@dataclass(frozen=True)
class Outlook:
    """What was seen of all links: who will fail, and which ones cannot be judged, and why."""

    will_fail: tuple[Link, ...]
    judged: int
    not_measured: Mapping[str, tuple[str, ...]]


def limit_of(series: Series, quantity: str) -> float | None:
    """Return the value at which a quantity of a link is too bad; None if it is unknown."""
    if quantity == RX:
        return series.rx_low_dbm
    if quantity == HEAT:
        return series.hot_c
    if series.fec.startswith("No FEC"):
        return LIMIT_WITHOUT
    code = _code_of(series)
    return LIMIT_OF_OTHERS if code is None else code.limit


def _code_of(series: Series) -> Code | None:
    text = series.fec.replace(" ", "")
    return next((code for name, code in CODES.items() if name in text), None)


Values = list[tuple[float, float]]


class _Seen:
    """The readings of a link in one quantity: all of the past that counts, fleet taken out."""

    def __init__(self, series: Series, gauge: Gauge, values: Values) -> None:
        self.series, self.gauge, self.values = series, gauge, values
        self.days = [int(day) for day, _value in values]
        self.middle = _middle(values)
        # What was taken out of the last value.
        self.shift = 0.0

    def take_out(self, common: Mapping[int, float]) -> None:
        """Take out what others had in common with it, by day."""
        given = [common.get(day, 0.0) for day in self.days]
        self.values = [
            (day, value - by) for (day, value), by in zip(self.values, given, strict=True)
        ]
        self.shift += given[-1]
        self.middle = _middle(self.values)


def _middle(values: Values) -> float:
    return statistics.median([value for _day, value in values])


def _values(series: Series, quantity: str, day: float) -> Values:
    return series.values(quantity, day - PAST_DAYS, day)


def _common(seen: Sequence[_Seen], least: int) -> dict[int, float]:
    """Return by day how far these links together were from their own middle."""
    apart: dict[int, list[float]] = defaultdict(list)
    for one in seen:
        middle = one.middle
        for day, (_day, value) in zip(one.days, one.values, strict=True):
            apart[day].append(value - middle)
    return {day: statistics.median(values) for day, values in apart.items() if len(values) >= least}


def _grouped(seen: Iterable[_Seen], key: Callable[[_Seen], str]) -> list[list[_Seen]]:
    groups: dict[str, list[_Seen]] = defaultdict(list)
    for one in seen:
        name = key(one)
        if name:
            groups[name].append(one)
    return [group for group in groups.values() if len(group) >= LEAST_IN_COMMON]


def slope_of(values: Values) -> tuple[float, float]:
    """Return the Theil-Sen slope in units a day, and Kendall's tau, -1 to 1."""
    slopes: list[float] = []
    agree = 0
    for index, (day, value) in enumerate(values):
        for later, other in values[index + 1 :]:
            slopes.append((other - value) / (later - day))
            agree += (other > value) - (other < value)
    return statistics.median(slopes), agree / len(slopes)


def _spread(values: Iterable[float], middle: float, least: float) -> float:
    return max(least, _OF_MAD * statistics.median([abs(value - middle) for value in values]))


def judge_slope(values: Values, shift: float, gauge: Gauge, limit: float) -> Trend | None:
    """Return the slope that reaches the limit first within the horizon, None if none does.

    `shift` is what was taken out of the values, and belongs to the distance from the limit.
    """
    level = statistics.median([value for _day, value in values[-3:]]) + shift
    left = (limit - level) * gauge.worse
    today = values[-1][0]
    for window in WINDOWS_DAYS:
        some = [one for one in values if one[0] > today - window - 0.5]
        if len(some) < LEAST_IN_WINDOW:
            continue
        span = some[-1][0] - some[0][0]
        # First what costs little: most links do not move.
        third = max(2, len(some) // 3)
        head = statistics.median([value for _day, value in some[:third]])
        tail = statistics.median([value for _day, value in some[-third:]])
        if (tail - head) * gauge.worse < gauge.rise * 0.5:
            continue
        slope, tau = slope_of(some)
        rise = slope * span * gauge.worse
        agree = LEAST_TAU_OF_FEW if len(some) < FEW else LEAST_TAU
        if rise < gauge.rise or tau * gauge.worse < agree:
            continue
        origin = statistics.median([value - slope * day for day, value in some])
        rest = [value - slope * day - origin for day, value in some]
        if rise < SPREADS * _spread(rest, 0.0, gauge.noise):
            continue
        pace = slope * gauge.worse
        if left <= gauge.near:
            # What goes faster and faster is as fast as its last readings.
            pace = max(pace, _last_pace(some) * gauge.worse)
        days = max(0.0, left / pace)
        if days <= min(HORIZON_DAYS, REACH * span):
            text = (
                f"{gauge.name} {'rises' if gauge.worse > 0 else 'falls'} {pace:.2g} "
                f"{gauge.unit} a day since {span:.0f} days, now {_level(gauge, level)}, "
                f"reaches {_level(gauge, limit)} in {days:.0f} days"
            )
            return Trend(gauge.name, text, round(days, 1))
    return None


def _last_pace(values: Values) -> float:
    (first, before), _between, (last, now) = values[-3:]
    return (now - before) / (last - first)


def judge_step(values: Values, shift: float, gauge: Gauge, limit: float) -> Trend | None:
    """Return the jump of the last readings against all before them, None if there is none."""
    past = [value for _day, value in values[:-RECENT]]
    if len(past) < LEAST_READINGS:
        return None
    middle = statistics.median(past)
    if (values[-1][1] - middle) * gauge.worse < gauge.step:
        return None
    far = max(gauge.step, SPREADS * _spread(past, middle, gauge.noise))
    recent = [value for _day, value in values[-RECENT:]]
    if any((value - middle) * gauge.worse < far for value in recent):
        return None
    level = statistics.median(recent) + shift
    if (limit - level) * gauge.worse > gauge.near:
        return None
    moved = abs(statistics.median(recent) - middle)
    text = (
        f"{gauge.name} jumped by {moved:.1f} {gauge.unit} to {_level(gauge, level)}; "
        f"the limit is {_level(gauge, limit)}"
    )
    return Trend(gauge.name, text, None)


def judge_rush(values: Values, shift: float, gauge: Gauge, limit: float) -> Trend | None:
    """Return that the last two readings go for the limit in days, None if they do not.

    What fails within days of its first sign has no slope yet that differs from chance.
    """
    past = [value for _day, value in values[:-RECENT]]
    (day, before), (today, now) = values[-2:]
    if len(past) < LEAST_READINGS or (now - before) * gauge.worse <= 0:
        return None
    middle = statistics.median(past)
    spread = SPREADS * _spread(past, middle, gauge.noise)
    first, last = (before - middle) * gauge.worse, (now - middle) * gauge.worse
    if first < max(gauge.rise, 0.6 * spread) or last < max(gauge.step, spread):
        return None
    pace = (last - first) / (today - day)
    days = max(0.0, (limit - now - shift) * gauge.worse / pace)
    if days > RUSH_DAYS:
        return None
    text = (
        f"{gauge.name} went from {_level(gauge, middle + shift)} to {_level(gauge, now + shift)} "
        f"in two readings, reaches {_level(gauge, limit)} in {days:.0f} days"
    )
    return Trend(gauge.name, text, round(days, 1))


def judge_edge(values: Values, shift: float, gauge: Gauge, limit: float) -> Trend | None:
    """Return that the level is next to its limit, None if it is not."""
    own = statistics.median([value for _day, value in values[-3:]])
    level = own + shift
    # Not if it is the room that brought it there.
    if max((limit - level) * gauge.worse, (limit - own) * gauge.worse) > gauge.edge:
        return None
    text = f"{gauge.name} is {_level(gauge, level)}, next to its limit {_level(gauge, limit)}"
    return Trend(gauge.name, text, 0.0)


def _level(gauge: Gauge, value: float) -> str:
    return f"{10**value:.1e}" if gauge.name == BER else f"{value:.1f} {gauge.unit}"


def judge_bins(series: Series, day: float) -> Trend | None:
    """Return that code words came near to what the code corrects, in two readings of three."""
    code = _code_of(series)
    found = [value for _day, value in _values(series, BINS, day)[-3:]]
    if code is None or len(found) < 3:
        return None
    if sum(value >= code.corrected - code.left for value in found) < RECENT:
        return None
    text = (
        f"{max(found):.0f} symbols were corrected in a code word, of {code.corrected} that can be"
    )
    return Trend(BINS, text, None)


@dataclass
class _Named:
    series: Series
    trends: list[Trend] = field(default_factory=list)


def judge_links(
    histories: Histories, day: float, far_end: Callable[[Place], str] = lambda place: ""
) -> Outlook:
    """Return the outlook of all links on a day, Unix time in days.

    `far_end` gives the port of the switch that a rail leads to, "" if it is not known.
    """
    live, silent = _sorted_out(histories, day)
    named: dict[int, _Named] = {}
    places: dict[str, int] = defaultdict(int)
    of_fleet: dict[int, list[str]] = defaultdict(list)
    for one in live:
        for device in _devices(one, far_end):
            places[device] += 1
    for gauge in GAUGES:
        found = _judge_gauge(live, gauge, day, far_end)
        fleet = sorted(seen.values[-1][1] + seen.shift for seen, _trend in found)
        for seen, trend in found:
            if trend is not None:
                named.setdefault(id(seen.series), _Named(seen.series)).trends.append(trend)
                level = seen.values[-1][1] + seen.shift
                of_fleet[id(seen.series)].append(_compared(gauge, level, fleet))
    for series in live:
        trend = judge_bins(series, day)
        if trend is not None:
            named.setdefault(id(series), _Named(series)).trends.append(trend)
    links = [
        _link(one.series, one.trends, of_fleet[id(one.series)], day, far_end)
        for one in named.values()
    ]
    return Outlook(tuple(_together(links, places)), len(live), silent)


def _judge_gauge(
    live: Sequence[Series], gauge: Gauge, day: float, far_end: Callable[[Place], str]
) -> list[tuple[_Seen, Trend | None]]:
    seen = []
    for series in live:
        values = _values(series, gauge.name, day)
        if len(values) >= LEAST_READINGS and limit_of(series, gauge.name) is not None:
            seen.append(_Seen(series, gauge, values))
    for group in _grouped(seen, lambda one: one.series.part or "?"):
        common = _common(group, LEAST_IN_COMMON)
        for one in group:
            one.take_out(common)
    # Of one switch, or of one node, after what all did: a fan that failed warms one of them.
    for device in (
        lambda one: far_end(one.series.place).rpartition("/")[0],
        lambda one: one.series.place.node,
    ):
        for group in _grouped(seen, device):
            common = _common(group, LEAST_IN_COMMON)
            far = {at: by for at, by in common.items() if by * gauge.worse > 3 * gauge.noise}
            for one in group if far else ():
                one.take_out(far)
    return [(one, _trend_of(one)) for one in seen]


def _trend_of(seen: _Seen) -> Trend | None:
    limit = limit_of(seen.series, seen.gauge.name)
    if limit is None:
        return None
    for judge in (judge_edge, judge_slope, judge_rush, judge_step):
        trend = judge(seen.values, seen.shift, seen.gauge, limit)
        if trend is not None:
            return trend
    return None


def _sorted_out(
    histories: Histories, day: float
) -> tuple[list[Series], dict[str, tuple[str, ...]]]:
    """Return the links that can be judged, and by reason those that cannot."""
    live: list[Series] = []
    silent: dict[str, list[str]] = defaultdict(list)
    for place in histories.nameless:
        silent["its cable gives no serial number"].append(f"hca:{place}")
    for series in histories.where_they_are():
        number = bisect_right(series.days, day)
        if not number:
            continue
        subject, last = f"cable:{series.serial} at {series.place}", series.days[number - 1]
        if day - last > PAST_DAYS:
            # It was replaced.
            continue
        if day - last > STALE_DAYS:
            silent[f"it was not read for more than {STALE_DAYS:.0f} days"].append(subject)
        elif series.readings(day) < LEAST_READINGS:
            silent[f"there are fewer than {LEAST_READINGS} readings at its place"].append(subject)
        else:
            live.append(series)
    return live, {why: tuple(sorted(some)) for why, some in sorted(silent.items())}


def _devices(series: Series, far_end: Callable[[Place], str]) -> list[str]:
    switch = far_end(series.place).rpartition("/")[0]
    return [f"node:{series.place.node}", *([f"switch:{switch}"] if switch else [])]


def _compared(gauge: Gauge, level: float, fleet: Sequence[float]) -> str:
    worse = sum((level - value) * gauge.worse > 0 for value in fleet)
    middle = statistics.median(fleet)
    return (
        f"{gauge.name}: {_level(gauge, level)}, worse than {worse} of {len(fleet)} links, whose "
        f"middle is {_level(gauge, middle)}"
    )


def _link(
    series: Series,
    trends: Sequence[Trend],
    evidence: Sequence[str],
    day: float,
    far_end: Callable[[Place], str],
) -> Link:
    # Light that goes explains the errors it makes.
    trends = sorted(trends, key=lambda one: one.quantity != RX)
    first = trends[0]
    places = [f"at {place} since {_date(since)}" for since, place in series.places]
    return Link(
        subject=f"cable:{series.serial}",
        part=series.part,
        places=(str(series.place),),
        ports=(far_end(series.place),),
        trends=tuple(trends),
        evidence=(*evidence, *places),
        remedy=QUESTIONS[first.quantity].remedy,
        points=tuple(
            (round(at, 2), round(value, 3))
            for at, value in _values(series, first.quantity, day)[-_SHOWN_POINTS:]
        ),
    )


def _date(day: float) -> str:
    return datetime.fromtimestamp(day * 86400, timezone.utc).strftime("%Y-%m-%d")


def _together(links: Sequence[Link], places: Mapping[str, int]) -> list[Link]:
    """Return the links, those of one switch or node with one quantity as one."""
    rest = list(links)
    found: list[Link] = []
    for kind in ("switch", "node"):
        groups: dict[tuple[str, str], list[Link]] = defaultdict(list)
        for one in rest:
            device = one.ports[0].rpartition("/")[0] if kind == "switch" else _node(one)
            if device:
                groups[f"{kind}:{device}", one.trends[0].quantity].append(one)
        for (subject, quantity), some in groups.items():
            if len(some) < max(LEAST_TOGETHER, TOGETHER_SHARE * places[subject]):
                continue
            found.append(_one_cause(subject, quantity, some))
            rest = [one for one in rest if one not in some]
    every = [*found, *rest]
    return sorted(every, key=lambda one: (min(_left(one)), one.subject))


def _node(link: Link) -> str:
    return link.places[0].rpartition("/")[0]


def _left(link: Link) -> list[float]:
    return [HORIZON_DAYS if one.days_left is None else one.days_left for one in link.trends]


def _one_cause(subject: str, quantity: str, links: Sequence[Link]) -> Link:
    worst = min(links, key=lambda one: min(_left(one)))
    names = ", ".join(sorted(one.subject for one in links))
    gauge = _BY_NAME.get(quantity)
    text = f"{len(links)} links together: {worst.trends[0].text}"
    return replace(
        worst,
        subject=subject,
        places=tuple(one.places[0] for one in links),
        ports=tuple(one.ports[0] for one in links),
        trends=(Trend(quantity, text, worst.trends[0].days_left),),
        evidence=(names, *worst.evidence),
        remedy=f"look at {subject.replace(':', ' ')} before its cables: "
        + (
            "fans, air flow, room" if gauge and gauge.name == HEAT else "power, firmware, its ports"
        ),
    )
