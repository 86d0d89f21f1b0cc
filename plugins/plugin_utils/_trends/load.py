# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The outlook of a cluster's links from its store of evidence and its plan, as plain data.

What was simulated is judged by itself, and labelled; it never mixes with what was measured.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from ...module_utils._evidence.batch import Problems
from ...module_utils._evidence.links import LinkStore
from ...module_utils._fabric.model import plan_from_data
from ...module_utils._ib.link_reading import LinkReading
from .flaps import by_cause, flaps_of
from .judge import Outlook, judge_links
from .series import DAY_S, Histories, Place
from .thresholds import PAST_DAYS

# Flaps of so many days are shown.
FLAP_DAYS = 30.0
_MOST_FLAPS = 400
# What the judgement looks back, and the days before that a history needs to have begun in.
_READ_DAYS = PAST_DAYS + 2


def far_ends(path: str) -> Callable[[Place], str]:
    """Return who tells the port of the switch that a rail leads to, "" without a plan.

    Raises OSError, ValueError for an invalid plan.
    """
    ports: dict[Place, str] = {}
    try:
        with open(path, encoding="utf-8") as handle:
            plan = plan_from_data(json.load(handle))
    except FileNotFoundError:
        return lambda place: ""
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: no plan of cables: {error}") from error
    for cable in plan.cables:
        for end, far in ((cable.a, cable.b), (cable.b, cable.a)):
            if not end.is_switch and far.is_switch:
                ports[Place(end.host, end.rail)] = f"{far.host}/{far.port}"
    return lambda place: ports.get(place, "")


def load_histories(evidence: str, now: float, simulated: bool, problems: Problems) -> Histories:
    """Return the histories of all links of a store up to `now`, Unix time. Raises OSError."""
    store, since = LinkStore(evidence), now - _READ_DAYS * DAY_S
    found = Histories()
    nodes = [node for node, pretended in store.nodes() if pretended == simulated]
    # In order of time over all nodes, since a cable may have been at another one before.
    every = heapq.merge(
        *(_links_of(store, node, problems, since, simulated) for node in nodes),
        key=lambda one: one[:2],
    )
    for (at, node), some in groupby(every, key=lambda one: one[:2]):
        if at <= now:
            found.add(node, [reading for _at, _node, reading in some])
    return found


def _links_of(
    store: LinkStore, node: str, problems: Problems, since: float, simulated: bool
) -> Iterator[tuple[int, str, LinkReading]]:
    for reading in store.read(node, problems, since, simulated):
        yield reading.at, node, reading


def load_outlook(evidence: str, cables: str, now: float) -> dict[str, Any]:
    """Return the outlook of all links, for reports: what was measured, or else what was simulated.

    Raises OSError, ValueError.
    """
    problems, far_end = Problems(), far_ends(cables)
    histories = load_histories(evidence, now, False, problems)
    simulated = not histories.series and not histories.nameless
    if simulated:
        histories = load_histories(evidence, now, True, problems)
    simulated = simulated and bool(histories.series or histories.nameless)
    day = now / DAY_S
    outlook = judge_links(histories, day, far_end)
    flaps = flaps_of(histories, day - FLAP_DAYS, day, far_end)
    return {
        "text": text_of(outlook, simulated),
        "simulated": simulated,
        "judged": outlook.judged,
        "will_fail": [_plain(vars(link)) for link in outlook.will_fail],
        "not_measured": [
            {"text": why, "subjects": list(some)} for why, some in outlook.not_measured.items()
        ],
        "flap_days": FLAP_DAYS,
        "flap_causes": by_cause(flaps),
        "flaps": [{**vars(one), "place": str(one.place)} for one in flaps[:_MOST_FLAPS]],
        "problems": problems.lines,
    }


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    trends = [{**vars(trend), "check": trend.check} for trend in data["trends"]]
    return {**data, "trends": trends}


def text_of(outlook: Outlook, simulated: bool) -> str:
    """Return the outlook as one line."""
    silent = sum(map(len, outlook.not_measured.values()))
    if not outlook.judged and not silent:
        return "trends: no link was ever read; validate_nodes collects readings"
    named = ", ".join(link.subject for link in outlook.will_fail[:6])
    more = len(outlook.will_fail) - 6
    named += f" and {more} more" if more > 0 else ""
    reported = f"{len(outlook.will_fail)} will fail ({named})" if named else "none will fail"
    text = f"trends of {outlook.judged} links: {reported}; {silent} not measured"
    return f"SIMULATED: {text}" if simulated else text
