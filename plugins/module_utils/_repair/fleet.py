# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The fleet and its repairs for other programs, by the fields that NVIDIA asks of operators. Pure.

BFX02 (break/fix requirements) asks past and present repairs with tickets, stable identifiers, part
categories and hand-over dates; CAP01 (capacity and fleet management) what of each node is
delivered, healthy, reserved and in use. None of it is handed over by phone or mail.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from .._core.prometheus_text import COUNTER, Family, exposition
from .._core.record import FAIL, PASS, utc_text
from .._slurm.gate.policy import Verdict, hands_off
from .._slurm.nodes import Node
from .incident import BY_OPERATOR, Incident
from .tickets import Histories, category_of, history, rma_text, slot_of, tried

VERSION = 1
_RESERVED = ("RESERVED", "MAINT", "MAINTENANCE", "PLANNED")
_STEP, _PERSON, _RETURN, _KEPT = "step", "person", "return", "kept"
_PREFIX = "baremetal_dgx_incident"
# The mean time to repair is that of what came back within so many seconds.
_RECENT_S = 30 * 86400.0
BACK, OPERATOR, GONE = "back", "operator", "gone"


def state_of(incident: Incident) -> str:
    """Return what an open incident waits for; `closed` for one that is over."""
    if incident.closed:
        return "closed"
    if incident.kept:
        return _KEPT
    if incident.waits:
        return _RETURN if incident.returns else _PERSON
    return _STEP


def owner_of(incident: Incident) -> str:
    """Return who has to act next."""
    names = {
        _STEP: "repair_nodes",
        _PERSON: "the operator",
        _RETURN: "the operator: return the part",
        _KEPT: "the operator: return the part, or consent",
        "closed": "nobody",
    }
    return names[state_of(incident)]


def incidents_data(
    incidents: Mapping[str, Incident], now: float, keep_s: float, cluster: str
) -> dict[str, Any]:
    """Return what incidents.json holds: what is open, and what ended within `keep_s`."""
    histories = Histories(incidents.values())
    shown = []
    for incident in incidents.values():
        if incident.closed and now - incident.closed > keep_s:
            continue
        shown.append(_incident_data(incident, histories.before(incident)))
    return {"version": VERSION, "at": utc_text(now), "cluster": cluster, "incidents": shown}


def _incident_data(one: Incident, earlier: list[Incident]) -> dict[str, Any]:
    last = one.closed or max([one.since, one.waits_since, *(at for _step, at in one.steps)])
    return {
        "ticket_id": one.name,
        "ticket_opened": utc_text(one.opened),
        "ticket_updated": utc_text(last),
        "ticket_closed": utc_text(one.closed) if one.closed else None,
        "state": state_of(one),
        "waits_for": owner_of(one),
        "node": one.node,
        "hardware_id": one.serial or one.part or None,
        "part_category": category_of(one.subject),
        "part_name": one.part or None,
        "slot": slot_of(one.subject) or None,
        "check": one.check,
        "subject": one.subject,
        "description": one.text,
        "action": one.how or one.waits or (f"{one.running} runs" if one.running else ""),
        "actions": tried(one),
        "hand_over_date": utc_text(one.closed) if one.closed else None,
        "history": history(earlier),
    }


def fleet_data(
    planned: Iterable[Mapping[str, Any]],
    nodes: Mapping[str, Node],
    verdicts: Mapping[str, Verdict],
    incidents: Mapping[str, Incident],
    parts: Mapping[str, list[dict[str, Any]]],
    now: float,
    cluster: str,
) -> dict[str, Any]:
    """Return what fleet.json holds. `incidents` are the open ones by node; True, False or None.

    Healthy is None for a node that was not measured: neither yes nor no.
    """
    reports = []
    for one in planned:
        name = str(one["name"])
        node, verdict, incident = nodes.get(name), verdicts.get(name), incidents.get(name)
        reported = verdict.verdict if verdict else ""
        healthy = {PASS: True, FAIL: False}.get(reported)
        if incident is not None or (node is not None and hands_off(node)):
            healthy = False
        reports.append(
            {
                "node": name,
                "hardware_id": one.get("serial") or None,
                "rack": one.get("rack") or None,
                "delivered": node is not None,
                "healthy": healthy if node is not None else None,
                "reserved": bool(node and node.has(*_RESERVED)),
                "in_use": bool(node and node.busy),
                "out": bool(node and (node.has("DRAIN") or hands_off(node))),
                "state": node.state if node else "",
                "measured": utc_text(verdict.at) if verdict and verdict.at else None,
                "ticket_id": incident.name if incident else None,
                "parts": parts.get(name, []),
            }
        )
    keys = ("delivered", "healthy", "reserved", "in_use", "out")
    counts = {key: sum(one[key] is True for one in reports) for key in keys}
    return {
        "version": VERSION,
        "at": utc_text(now),
        "cluster": cluster,
        "summary": {"nodes": len(reports), **counts},
        "nodes": reports,
    }


def table_of(incidents: Mapping[str, Incident]) -> list[list[str]]:
    """Return the rows of the report about open incidents, the oldest first; none without any."""
    rows = [
        [utc_text(one.opened), one.node, one.check, one.serial or one.part, owner_of(one),
         ", ".join(step["step"] for step in tried(one)), one.waits or one.text]
        for one in sorted(incidents.values(), key=lambda one: (one.opened, one.name))
        if not one.closed
    ]  # fmt: skip
    head = ["since", "node", "check", "part", "waits for", "tried", "text"]
    return [head, *rows] if rows else []


def rma_of(incidents: Mapping[str, Incident]) -> dict[str, str]:
    """Return by incident the text for the maker, of open ones whose part is to be returned."""
    histories = Histories(incidents.values())
    return {
        one.name: rma_text(one, histories.before(one))
        for one in incidents.values()
        if one.returns and not one.closed
    }


def how_ended(incident: Incident) -> str:
    """Return how an incident ended: back, by the operator, or gone with its node, part or cause."""
    if incident.how == "back":
        return BACK
    return OPERATOR if incident.how == BY_OPERATOR else GONE


def metrics(incidents: Mapping[str, Incident], waiting: Mapping[str, int], now: float) -> str:
    """Return the incidents as metrics; `waiting` has by hook how many tickets were not taken."""
    opened = Family(f"{_PREFIX}_open", "Incidents that are open, by what they wait for.")
    since = Family(
        f"{_PREFIX}_waits_since_timestamp_seconds", "Since when an incident waits for a person."
    )
    ended = Family(f"{_PREFIX}_closed_total", "Incidents that ended, by how.", COUNTER)
    steps = Family(f"{_PREFIX}_steps_total", "Steps of repair, by outcome.", COUNTER)
    counts: dict[str, int] = dict.fromkeys((_STEP, _PERSON, _RETURN, _KEPT), 0)
    ends = dict.fromkeys((BACK, OPERATOR, GONE), 0)
    done: dict[tuple[str, str], int] = {}
    whole, recent = 0.0, []
    for one in incidents.values():
        for step in tried(one):
            key = step["step"], step["outcome"]
            done[key] = done.get(key, 0) + 1
        if not one.closed:
            state = state_of(one)
            counts[state] += 1
            if state != _STEP:
                since.add(one.waits_since, incident=one.name, node=one.node, check=one.check)
            continue
        how = how_ended(one)
        ends[how] += 1
        if how == BACK:
            whole += one.closed - one.opened
            recent += [one.closed - one.opened] if now - one.closed < _RECENT_S else []
    for name, count in counts.items():
        opened.add(count, state=name)
    for name, count in ends.items():
        ended.add(count, how=name)
    for (name, outcome), count in sorted(done.items()):
        steps.add(count, step=name, outcome=outcome)
    took = Family(
        f"{_PREFIX}_repair_seconds_total",
        "Time from fault to service of all incidents whose node came back.",
        COUNTER,
    )
    took.add(whole)
    mean = Family(
        f"{_PREFIX}_mean_time_to_repair_seconds",
        "Mean time from fault to service of what came back within 30 days.",
    )
    mean.add(sum(recent) / len(recent) if recent else None)
    late = Family(f"{_PREFIX}_tickets_waiting", "Tickets that a hook has not taken.")
    for hook, count in waiting.items():
        late.add(count, hook=hook)
    ran = Family(f"{_PREFIX}_run_timestamp_seconds", "When repair_nodes last wrote this.")
    ran.add(now)
    return exposition([opened, since, ended, steps, took, mean, late, ran])
