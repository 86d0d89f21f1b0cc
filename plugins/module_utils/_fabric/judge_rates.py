# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Width and speed of the links, and the load that a leaf can pass on. Pure."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Iterable, Iterator, Mapping

from .findings import SPEED, UPLINKS, WIDTH, Finding, several
from .model import NODE_LEAF, Cable, End, rate_gbps
from .thresholds import LEAF_UPLINKS, OVERSUBSCRIPTION, RATE
from .wiring import Wiring, foreign

# Ethernet has no width.
_WIDTHS = ("4x", "")
# So many links of a device, and this share of them, are slow: it is the device.
_FEWEST = 4
_SHARE = 0.75


_rate = functools.lru_cache(maxsize=None)(rate_gbps)


def found_rate(wiring: Wiring, cable: Cable) -> float | None:
    """Return the rate of a cable in Gb/s; None where the tools did not say."""
    if cable not in wiring.rates:
        rate = None
        for end in (cable.a, cable.b):
            port = wiring.port(end)
            rate = _rate(port.width, port.speed) if port else None
            if rate is not None:
                break
        wiring.rates[cable] = rate
    return wiring.rates[cable]


def found_form(wiring: Wiring, cable: Cable) -> tuple[str, str]:
    """Return width and speed of a cable; both empty where the tools did not say."""
    for end in (cable.a, cable.b):
        port = wiring.port(end)
        if port and port.width is not None and port.speed:
            return port.width, port.speed
    return "", ""


def _words(form: tuple[str, str]) -> str:
    return " ".join(filter(None, form))


def judge_rates(wiring: Wiring, healthy: set[Cable]) -> Iterator[Finding]:
    """Yield a finding for each healthy cable that is slower than planned.

    Where nearly all links of a node or of a switch are slow in the same way, that device is the
    finding; where most links of all other devices are, too, it is the fabric, or the plan.
    """
    rates = {cable: found_rate(wiring, cable) for cable in healthy}
    slow = {c: rate for c, rate in rates.items() if rate is not None and rate < c.rate_gbps}
    if not slow:
        return
    of_device: dict[str, list[Cable]] = {}
    for cable, rate in rates.items():
        for end in (cable.a, cable.b):
            if rate is not None:
                of_device.setdefault(end.host, []).append(cable)
    # Of two devices the one of which more links are slow has the fault.
    alike = {host: _slow_alike(wiring, cables, slow) for host, cables in of_device.items()}
    most = max(alike, key=lambda host: (len(alike[host]), host))
    others = healthy.difference(of_device[most] if alike[most] else ())
    widespread = len(slow) >= _FEWEST and 2 * len(slow) > len(healthy)
    if widespread and 2 * len(others.intersection(slow)) >= len(others):
        first = min(slow)
        yield Finding(
            SPEED,
            "fabric",
            f"{len(slow)} of {len(healthy)} links are slower than planned; {wiring.at(first.a)} "
            f"runs at {_words(found_form(wiring, first))}, "
            f"{slow[first]:g} of {first.rate_gbps} Gb/s",
            "see whether rate_gbps of the plan is that of these switches and adapters",
            tuple(sorted(slow)),
            measured=slow[first],
            threshold=RATE.threshold(first.rate_gbps),
        )
        return
    for host in sorted(alike, key=lambda one: (-len(alike[one]) / len(of_device[one]), one)):
        same = _slow_alike(wiring, of_device[host], slow)
        if not same:
            continue
        (rate,) = {slow[cable] for cable in same}
        form = found_form(wiring, same[0])
        kind = "switch" if host in wiring.plan.switches else "node"
        count = len(of_device[host])
        many = f"all {count}" if len(same) == count else f"{len(same)} of {count}"
        yield Finding(
            WIDTH if _is_narrow(wiring, same[0], form[0]) else SPEED,
            f"{kind}:{host}",
            f"{many} links of {host} run at {_words(form)}, {rate:g} of {same[0].rate_gbps} Gb/s",
            f"compare firmware and enabled speeds of {host} with its peers: so many cables are not "
            "slow at once",
            tuple(same),
            measured=rate,
            threshold=RATE.threshold(same[0].rate_gbps),
        )
        for cable in same:
            del slow[cable]
    for cable, rate in sorted(slow.items()):
        width, speed = found_form(wiring, cable)
        narrow = _is_narrow(wiring, cable, width)
        remedy = RATE.remedy
        if narrow:
            remedy = "lanes are lost: clean and " + remedy
        elif (_rate(width, speed) or 0) < cable.rate_gbps:
            remedy = "look at the enabled speeds of both ports and the type of the cable; " + remedy
        yield Finding(
            WIDTH if narrow else SPEED,
            cable.subject,
            f"{wiring.at(cable.a)} -- {wiring.at(cable.b)} runs at {_words((width, speed))}, "
            f"{rate:g} of {cable.rate_gbps} Gb/s",
            remedy,
            (cable,),
            measured=rate,
            threshold=RATE.threshold(cable.rate_gbps),
        )


def _is_narrow(wiring: Wiring, cable: Cable, width: str) -> bool:
    """Return whether lanes are lost; a port of a cage with four of them has two."""
    switches = (wiring.plan.switches.get(end.host) for end in (cable.a, cable.b))
    halved = any(switch is not None and switch.per_cage == 4 for switch in switches)
    return width not in (*_WIDTHS, "2x") if halved else width not in _WIDTHS


def _slow_alike(wiring: Wiring, cables: list[Cable], slow: Mapping[Cable, float]) -> list[Cable]:
    """Return the links of a device that are slow in the same way, none where they are not most."""
    of_form: dict[tuple[str, str], list[Cable]] = {}
    for cable in sorted(slow.keys() & cables):
        form = found_form(wiring, cable)
        if form != ("", ""):
            of_form.setdefault(form, []).append(cable)
    same = max(of_form.values(), key=len, default=[])
    return same if len(same) >= max(_FEWEST, _SHARE * len(cables)) else []


@dataclass
class Load:
    """What hangs on a switch and what leads on from it: links, planned and found, and rates."""

    up_planned: int = 0
    up_found: int = 0
    down_gbps: float = 0
    up_gbps: float = 0
    down_planned_gbps: float = 0
    up_planned_gbps: float = 0

    @property
    def oversubscription(self) -> float:
        """Rate from below over the rate upward; 0 without uplinks."""
        return self.down_gbps / self.up_gbps if self.up_gbps else 0.0


@dataclass(frozen=True)
class Bandwidth:
    """What a part of the fabric can carry: its bisection, or a rail."""

    of: str
    planned_gbps: float
    found_gbps: float


def bandwidths(wiring: Wiring, found: Mapping[str, Load]) -> Iterator[Bandwidth]:
    """Yield what the fabric can carry, as planned and as found; nothing of a doubtful sweep.

    The bisection is half of what all leaves together can pass on: of each the smaller of what comes
    from below and what leads upward. A rail counts that is at a leaf of its rail, in any port.
    """
    if wiring.sweep.partial or wiring.sweep.complaints:
        return
    planned = sum(min(load.down_planned_gbps, load.up_planned_gbps) for load in found.values())
    if planned:
        left = sum(min(load.down_gbps, load.up_gbps) for load in found.values())
        yield Bandwidth("bisection", planned / 2, left / 2)
    wanted: dict[int, float] = {}
    carried: dict[int, float] = {}
    leaves = {(cable.a.rail, cable.b.host) for cable in wiring.plan.cables}
    for cable in wiring.plan.cables:
        if cable.kind == NODE_LEAF:
            rail, far = cable.a.rail, wiring.far.get(cable.a)
            wanted[rail] = wanted.get(rail, 0) + cable.rate_gbps
            there = far is not None and (rail, far.host) in leaves
            carried[rail] = carried.get(rail, 0) + (_link_rate(wiring, cable.a) if there else 0)
    for rail in sorted(wanted):
        yield Bandwidth(f"rail {rail}", wanted[rail], carried[rail])


def bandwidth_lines(found: Iterable[Bandwidth]) -> Iterator[str]:
    """Yield a line on each part that carries less than planned."""
    for one in found:
        lost = 1 - one.found_gbps / one.planned_gbps
        if lost > 0:
            yield (
                f"{one.of}: {one.found_gbps:g} of {one.planned_gbps:g} Gb/s are left, "
                f"{100 * lost:.2g} % are lost"
            )


def _link_rate(wiring: Wiring, end: End) -> float:
    """Return the rate of the link at an end: where the tools did not say, that of the plan."""
    for one in (end, wiring.far[end]):
        port = wiring.port(one) if (one.host, one.rail) in wiring.matches.by_key else None
        rate = _rate(port.width, port.speed) if port else None
        if rate is not None:
            return rate
    cable = wiring.planned.get(end) or wiring.planned.get(wiring.far[end])
    return cable.rate_gbps if cable else 0


def loads(wiring: Wiring) -> dict[str, Load]:
    """Return the load of each leaf that has uplinks in the plan.

    What counts is where a cable leads, not its port: crossed cables carry as much.
    """
    found = {name: Load() for name, one in wiring.plan.switches.items() if one.tier == "leaf"}
    uppers: set[str] = set()
    for cable in wiring.plan.cables:
        for end in (cable.a, cable.b):
            load = found.get(end.host)
            if load is None or not end.is_switch:
                continue
            if cable.kind == NODE_LEAF:
                load.down_planned_gbps += cable.rate_gbps
            else:
                load.up_planned += 1
                load.up_planned_gbps += cable.rate_gbps
                uppers.add(cable.other(end).host)
    for end, far in wiring.far.items():
        load = found.get(end.host) if end.is_switch else None
        if load is None or foreign(far):
            continue
        if not far.is_switch:
            load.down_gbps += _link_rate(wiring, end)
        elif far.host in uppers:
            load.up_found += 1
            load.up_gbps += _link_rate(wiring, end)
    return {name: load for name, load in found.items() if load.up_planned}


def judge_uplinks(
    found: Mapping[str, Load], explained: set[Cable], most: float | None
) -> Iterator[Finding]:
    """Yield a finding for each leaf that the plan itself leaves short of uplinks.

    Uplinks that are lost have separate findings. What is left is a plan that was learned from
    a sweep, or read from a list: leaves with fewer uplinks than their peers, and leaves whose load
    is above `most`, where that is given.
    """
    counts = sorted(load.up_planned for load in found.values())
    usual = max(set(counts), key=lambda count: (counts.count(count), count)) if counts else 0
    hurt = {end.host for cable in explained for end in (cable.a, cable.b)}
    for name, load in sorted(found.items()):
        if name in hurt:
            continue
        if load.up_planned < usual and 2 * counts.count(usual) > len(counts):
            yield Finding(
                UPLINKS,
                f"switch:{name}",
                f"{name} has {load.up_found} uplinks, most leaves have {usual}",
                LEAF_UPLINKS.remedy,
                measured=load.up_found,
                threshold=LEAF_UPLINKS.threshold(usual),
            )
        elif most is not None and load.oversubscription > most:
            yield Finding(
                UPLINKS,
                f"switch:{name}",
                f"{name} passes {load.down_gbps:g} Gb/s from below to {load.up_gbps:g} Gb/s upward",
                OVERSUBSCRIPTION.remedy,
                measured=round(load.oversubscription, 2),
                threshold=OVERSUBSCRIPTION.threshold(most),
            )


def load_lines(wiring: Wiring, found: Mapping[str, Load]) -> Iterator[str]:
    """Yield a line on each leaf that lost uplinks, and how unevenly it reaches the tier above."""
    for name, load in sorted(found.items()):
        if load.up_found == load.up_planned or (name, -1) not in wiring.matches.by_key:
            continue
        by_upper: dict[str, list[int]] = {}
        for cable in wiring.plan.cables:
            for end in (cable.a, cable.b):
                if end.host == name and cable.kind != NODE_LEAF:
                    by_upper.setdefault(cable.other(end).host, [0, 0])[1] += 1
        for end, far in wiring.far.items():
            if end.host == name and far.host in by_upper:
                by_upper[far.host][0] += 1
        short = [
            f"{upper} {now} of {all_}"
            for upper, (now, all_) in sorted(by_upper.items())
            if now < all_
        ]
        ratio = load.oversubscription
        over = f", {ratio:.2f} to 1 of what hangs on it" if ratio else ""
        yield (
            f"{name} has {load.up_found} of {load.up_planned} uplinks{over}; short: "
            f"{several(short)}"
        )
