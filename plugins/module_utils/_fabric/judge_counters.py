# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Error counters of the links, judged by how fast they grow. Pure.

A total shows nothing: it may be of last year. Two readings give a rate, unless a counter is at
its largest value, where it stops, or was cleared in between. The receiving end counts the errors.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Iterator

from .._core.record import FAIL, NOT_MEASURED, Threshold
from .._ib.counters import Growth, growth, symbol_errors_allowed
from .findings import ERRORS, Finding, several
from .judge_rates import found_form, found_rate
from .model import Cable, End
from .parse_counters import Reading
from .thresholds import (
    BUFFER_OVERRUNS,
    INTEGRITY_ERRORS,
    LINK_DOWNED,
    RECEIVE_ERRORS,
    RECOVERIES,
    SYMBOL_ERRORS,
)
from .wiring import Wiring

SYMBOLS = "SymbolErrorCounter"
# How much a counter may grow in the interval, what says most of a link first.
_QUESTIONS = {
    LINK_DOWNED.what: LINK_DOWNED,
    SYMBOLS: SYMBOL_ERRORS,
    RECOVERIES.what: RECOVERIES,
    RECEIVE_ERRORS.what: RECEIVE_ERRORS,
    INTEGRITY_ERRORS.what: INTEGRITY_ERRORS,
    BUFFER_OVERRUNS.what: BUFFER_OVERRUNS,
}
JUDGED = tuple(_QUESTIONS)

# They show load, routing or partitions, and not the link: they are reported, not judged.
TOLD = (
    "PortXmitDiscards",
    "PortXmitWait",
    "PortRcvRemotePhysicalErrors",
    "PortRcvSwitchRelayErrors",
    "PortXmitConstraintErrors",
    "PortRcvConstraintErrors",
    "VL15Dropped",
)
# The ports with most of a counter are named.
_TOLD_PORTS = 4

_SILENT = "the port did not answer"
# A node that was off, for example.
_NEW = "the reading before does not have this port"
# More cables without an answer have one cause.
_UNREAD_ONE_BY_ONE = 10

_NOT_CLEAR = "clear the counters (ibqueryerrors -k) and measure again"


def grown_between(before: int | None, now: int | None, counter: str, new: bool = False) -> Growth:
    """Return how much a counter grew from one reading to the next, if both have it.

    Of a device that is `new`, which was not asked before, only a counter of 0 is known not to have
    grown.
    """
    if new and now is not None:
        return Growth(None, reason=_NEW) if now else Growth(0)
    if now is None or before is None:
        return Growth(None, reason=_SILENT)
    return growth(before, now, counter)


def _growth_at(place: tuple[str, int], counter: str, before: Reading, now: Reading) -> Growth:
    values = before.of(place, counter), now.of(place, counter)
    return grown_between(*values, counter, new=not before.has_asked(place[0]))


@functools.lru_cache(maxsize=256)
def growth_threshold(counter: str, rate_gbps: float, speed: str, seconds: float) -> Threshold:
    """Return how much a counter may grow; symbol errors by bit error ratio, rate and time."""
    question = _QUESTIONS[counter].filled(seconds=seconds)
    if counter == SYMBOLS:
        return question.threshold(*symbol_errors_allowed(rate_gbps, seconds, speed))
    return question.threshold()


@dataclass(frozen=True)
class _Sick:
    counter: str
    end: End
    grown: Growth
    threshold: Threshold


def judge_counters(
    wiring: Wiring, healthy: set[Cable], before: Reading | None, now: Reading | None
) -> Iterator[Finding]:
    """Yield a finding for each healthy cable with too many errors, or that cannot be judged.

    Several counters of a cable, at both its ends, are one finding. With one reading nothing is
    found, since nothing is known of the time that its totals are of.
    """
    if before is None or now is None:
        return
    seconds = now.at_s - before.at_s
    if seconds <= 0:
        return
    unread: list[Finding] = []
    for cable in sorted(_of_interest(wiring, healthy, before, now)):
        sick: list[_Sick] = []
        doubts: list[str] = []
        rate = found_rate(wiring, cable) or cable.rate_gbps
        _width, speed = found_form(wiring, cable)
        for end in (cable.a, cable.b):
            place = _place(wiring, end)
            if place is None:
                continue
            for counter in JUDGED:
                grown = _growth_at(place, counter, before, now)
                threshold = growth_threshold(counter, rate, speed, seconds)
                if grown.count is None:
                    doubts.append(f"{wiring.at(end)}: {grown.reason}")
                elif not threshold.holds(grown.count):
                    sick.append(_Sick(counter, end, grown, threshold))
                elif grown.at_least:
                    doubts.append(f"{wiring.at(end)}: {counter} came to its largest value")
        if sick:
            yield _errors(wiring, cable, sick, rate, seconds)
        elif doubts:
            text = several(list(dict.fromkeys(doubts)))
            doubt = Finding(ERRORS, cable.subject, text, _NOT_CLEAR, (cable,), status=NOT_MEASURED)
            if _SILENT in text:
                unread.append(doubt)
            else:
                yield doubt
    if len(unread) > _UNREAD_ONE_BY_ONE:
        cables = tuple(cable for doubt in unread for cable in doubt.cables)
        yield Finding(
            ERRORS,
            "fabric",
            f"the counters of {len(cables)} cables were not read: no answer from a port",
            "counters are asked for by address: see that a subnet manager runs, and that routes "
            "do not lead through a device that does not answer",
            cables,
            status=NOT_MEASURED,
        )
    else:
        yield from unread


def _of_interest(wiring: Wiring, healthy: set[Cable], before: Reading, now: Reading) -> set[Cable]:
    """Return the cables of which a port has a counter that is not zero, or did not answer."""
    if not (before.whole and now.whole):
        return set(healthy)
    touched = set()
    for guid, number in {*before.ports, *now.ports, *before.unread, *now.unread}:
        device = wiring.sweep.devices.get(guid)
        if device is None:
            # Saved answers may be of two moments, and name what the discovery lacks.
            continue
        numbers = [number] if number else list(device.ports)
        for one in numbers:
            end = wiring.matches.end(guid, one)
            touched.add(end)
    return {cable for cable in healthy if cable.a in touched or cable.b in touched}


def _place(wiring: Wiring, end: End) -> tuple[str, int] | None:
    port = wiring.port(end)
    return None if port is None else (wiring.matches.by_key[end.host, end.rail], port.number)


def _errors(
    wiring: Wiring, cable: Cable, sick: list[_Sick], rate: float, seconds: float
) -> Finding:
    messages = []
    for item in sick:
        more = " or more" if item.grown.at_least else ""
        ratio = ""
        if item.counter == SYMBOLS:
            ratio = f" (bit error ratio {(item.grown.count or 0) / (rate * 1e9 * seconds):.1e})"
        messages.append(
            f"{item.counter} grew by {item.grown.count}{more} at {wiring.at(item.end)}{ratio}"
        )
    first = min(sick, key=lambda item: JUDGED.index(item.counter))
    return Finding(
        ERRORS,
        cable.subject,
        f"{wiring.at(cable.a)} -- {wiring.at(cable.b)} in {seconds:.0f} s: " + "; ".join(messages),
        _QUESTIONS[first.counter].remedy,
        (cable,),
        status=FAIL,
        measured=first.grown.count,
        threshold=first.threshold,
    )


def counter_lines(wiring: Wiring, before: Reading | None, now: Reading | None) -> Iterator[str]:
    """Yield lines on counters that are not a fault of a link, or have only a known total."""
    last = now or before
    if last is None:
        return
    both = before is not None and now is not None
    of_counter: dict[str, list[tuple[int, str]]] = {}
    for place in sorted(last.ports):
        end = wiring.matches.end(*place)
        if end is None:
            continue
        for counter in TOLD if both else (*JUDGED, *TOLD):
            value = last.of(place, counter)
            how = "is {} since it was cleared"
            if before is not None and now is not None:
                value, how = _growth_at(place, counter, before, now).count, "grew by {}"
            if value:
                line = f"{counter} {how.format(value)} at {wiring.at(end)}"
                of_counter.setdefault(counter, []).append((value, line))
    for counter in sorted(of_counter):
        lines = sorted(of_counter[counter], key=lambda line: (-line[0], line[1]))
        yield from (line for _value, line in lines[:_TOLD_PORTS])
        if len(lines) > _TOLD_PORTS:
            yield f"{counter} at {len(lines) - _TOLD_PORTS} more ports"
