# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Incidents: what happened to a node from the fault to its way back, folded from its lines. Pure.

A line is one event as JSON, and lines are only ever added. What is known of an incident is what its
lines say, in their order, so that a run that was killed anywhere is continued by the next one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Iterable, Mapping, NamedTuple

from .._core.record import NOT_MEASURED
from .._slurm.gate.policy import Repaired
from .ladders import RESTARTS

VERSION = 1

# slurmd registers this long after a boot at the most. No operator takes a machine over, opens it
# and boots it in that time.
_BOOT_S = 600

# The node is out, and an incident begins.
OPENED = "opened"
# A step begins; from here on it counts as taken, whatever becomes of the run.
BEGUN = "begun"
# A step is over: done, failed, or not_measured where it was not taken after all.
ENDED = "ended"
# Evidence from after a step says that the node still fails.
JUDGED = "judged"
# A person decides, or the part goes back; only evidence, or the operator, ends that.
PERSON = "person"
RETURN = "return"
# The part fails again and again: its node is not let in without consent, which comes with ALLOWED.
KEPT = "kept"
ALLOWED = "allowed"
CLOSED = "closed"
EVENTS = (OPENED, BEGUN, ENDED, JUDGED, PERSON, RETURN, KEPT, ALLOWED, CLOSED)
# How an incident ends that the operator has ended: consent, too.
BY_OPERATOR = "let in by the operator"
# How one ends whose part is there no more; what fails in its slot since then is another incident.
REPLACED = "replaced"

# Beside the steps of a ladder: new evidence is asked for.
VALIDATE = "validate"


@dataclass(frozen=True)
class Event:
    """One line: when (epoch seconds), of which incident and node, what, and its details.

    `part` is the name of the part for life (its UUID or GUID, else its serial number), wherever it
    is, and `serial` what its maker asks for. `kind` is that of the drain when a step begins.
    """

    at: float
    incident: str
    node: str
    what: str
    step: str = ""
    check: str = ""
    subject: str = ""
    text: str = ""
    part: str = ""
    serial: str = ""
    kind: str = ""


class Begun(NamedTuple):
    """A step, when it began, and because of what: an incident may come to be about another part."""

    step: str
    at: float
    subject: str
    part: str
    serial: str


@dataclass(frozen=True)
class Incident:
    """What the lines of an incident come to.

    `begun` has the steps in their order, with those that ask for evidence; `since` is when
    the last of them began or ended, and `waits` why a person is needed, empty while a step is due.
    `running` is a step that has begun and not ended, and `ends` has (step, ended at, outcome).
    `kept` says why the node is not let in without consent, and `waits_since` when that began.
    """

    name: str
    node: str
    opened: float
    check: str = ""
    subject: str = ""
    text: str = ""
    begun: tuple[Begun, ...] = ()
    since: float = 0.0
    running: str = ""
    waits: str = ""
    returns: bool = False
    closed: float = 0.0
    how: str = ""
    part: str = ""
    serial: str = ""
    ends: tuple[tuple[str, float, str], ...] = ()
    kept: str = ""
    allowed: bool = False
    waits_since: float = 0.0
    kind: str = ""

    @property
    def steps(self) -> tuple[tuple[str, float], ...]:
        """Return (step, begun at) in their order."""
        return tuple((one.step, one.at) for one in self.begun)


def line_of(event: Event) -> str:
    """Return the event as a line without its end."""
    return json.dumps({"version": VERSION, **vars(event)}, sort_keys=True)


def read_line(line: str) -> Event | None:
    """Return the event of a line; None for one that was cut, or is of another release."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.pop("version", None) != VERSION:
        return None
    at = data.pop("at", None)
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        return None
    texts = {key: value for key, value in data.items() if isinstance(value, str)}
    if texts != data or not _NEEDED <= set(data) <= _TEXTS or data["what"] not in EVENTS:
        return None
    return Event(at=float(at), **texts)


_TEXTS = set(Event.__dataclass_fields__) - {"at"}
_NEEDED = {"incident", "node", "what"}


def fold(events: Iterable[Event]) -> dict[str, Incident]:
    """Return the incidents by name. Lines about others, or ended ones, do not count."""
    return with_events({}, events)


def with_events(incidents: Mapping[str, Incident], events: Iterable[Event]) -> dict[str, Incident]:
    """Return these incidents after more lines."""
    found = dict(incidents)
    for event in events:
        after = after_event(found.get(event.incident), event)
        if after is not None:
            found[event.incident] = after
    return found


def after_event(known: Incident | None, event: Event) -> Incident | None:
    """Return what an incident is after a line; None for a line that does not count."""
    if event.what == OPENED:
        if known is not None:
            return None
        return Incident(
            event.incident,
            event.node,
            event.at,
            event.check,
            event.subject,
            event.text,
            since=event.at,
            part=event.part,
            serial=event.serial,
        )
    # The part of an incident that is over may come back, and consent with it.
    if known is None or (known.closed and event.what != ALLOWED):
        return None
    return _after(known, event)


def _after(known: Incident, event: Event) -> Incident:
    if event.what == BEGUN:
        step = Begun(event.step, event.at, known.subject, known.part, known.serial)
        return replace(
            known,
            begun=(*known.begun, step),
            since=event.at,
            running=event.step,
            waits="",
            kind=event.kind,
        )
    if event.what == ENDED:
        ends = (*known.ends, (event.step, event.at, event.text))
        # One that was not taken, since a job or another run had the node, is still to come.
        begun = known.begun[:-1] if event.text == NOT_MEASURED else known.begun
        since = max(known.since, event.at)
        return replace(known, since=since, running="", ends=ends, begun=begun)
    if event.what == JUDGED:
        # A part that is lost names itself no more.
        same = known if event.subject == known.subject and not event.part else None
        return replace(
            known,
            check=event.check,
            subject=event.subject,
            text=event.text,
            running="",
            part=same.part if same else event.part,
            serial=same.serial if same else event.serial,
        )
    if event.what in (PERSON, RETURN, KEPT):
        return replace(
            known,
            waits=event.text,
            returns=event.what != PERSON,
            running="",
            kept=event.text if event.what == KEPT else known.kept,
            waits_since=event.at,
        )
    if event.what == ALLOWED:
        return replace(known, kept="", allowed=True, waits="", returns=False)
    return replace(known, closed=event.at, how=event.text, running="")


def open_of(incidents: Mapping[str, Incident]) -> dict[str, Incident]:
    """Return the incidents that are not over, by node; of two of a node the later."""
    found: dict[str, Incident] = {}
    for incident in incidents.values():
        if not incident.closed:
            found[incident.node] = incident
    return found


def repaired_of(incidents: Mapping[str, Incident]) -> dict[str, Repaired]:
    """Return by node what its open incident was about, and when a step has booted it."""
    return {
        node: Repaired(incident.kind, incident.text, boots)
        for node, incident in open_of(incidents).items()
        if incident.kind and (boots := _boots(incident))
    }


def _boots(incident: Incident) -> tuple[tuple[float, float], ...]:
    """Return from when until when the node came up from each step that restarts it.

    A step of a run that was killed has no end, and how long it took is not known.
    """
    nexts = [*(one.at for one in incident.begun[1:]), math.inf]
    boots = []
    for begun, after in zip(incident.begun, nexts):
        if begun.step in RESTARTS:
            ends = [at for step, at, _how in incident.ends if step == begun.step]
            end = max((at for at in ends if begun.at <= at <= after), default=begun.at)
            boots.append((begun.at, end + _BOOT_S))
    return tuple(boots)


def kept_parts(incidents: Mapping[str, Incident]) -> dict[str, Incident]:
    """Return by part the incident because of which no node with it is let in without consent.

    That outlives the incident: the part may come back from repair, into another host.
    """
    found: dict[str, Incident] = {}
    for incident in sorted(incidents.values(), key=lambda one: one.opened):
        if incident.part and incident.kept and incident.how != BY_OPERATOR:
            found[incident.part] = incident
        elif incident.part and (incident.allowed or incident.how == BY_OPERATOR):
            found.pop(incident.part, None)
    return found


def as_data(incident: Incident) -> dict[str, Any]:
    """Return the incident as mappings, lists and scalars, for people and programs."""
    data = dict(vars(incident))
    del data["begun"]
    data["steps"] = [{"step": step, "at": at} for step, at in incident.steps]
    data["ends"] = [{"step": step, "at": at, "outcome": how} for step, at, how in incident.ends]
    return data
