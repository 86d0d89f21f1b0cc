# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Tickets about incidents, each once, and the text about a part for its maker. Pure.

A ticket is made of the lines up to its own alone. So it is the same whenever it is sent again, and
its key is, too: a receiver that knows the key has the ticket already.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice
from typing import Any, Iterable, Mapping, Sequence

from .._core.record import utc_text
from .._core.verdict import place_of
from .incident import (
    CLOSED,
    KEPT,
    OPENED,
    PERSON,
    RETURN,
    VALIDATE,
    Event,
    Incident,
    after_event,
)

VERSION = 1
# Of a part that fails for years its latest incidents, so that a text has an end.
MOST_EARLIER = 20
# What each line is to others. Steps have none: most end without a person.
_TOLD = {OPENED: "opened", PERSON: "person", RETURN: "return", KEPT: "return", CLOSED: "closed"}
_CATEGORIES = {
    "gpu": "GPU", "hca": "network adapter", "nvme": "disk", "disk": "disk", "cable": "cable",
    "port": "cable", "nvlink": "NVLink", "node": "node", "mount": "storage", "service": "service",
}  # fmt: skip


@dataclass(frozen=True)
class Ticket:
    """One message: `key` is stable, `incident` as it was then, `earlier` those of its part."""

    key: str
    state: str
    at: float
    incident: Incident
    earlier: tuple[Incident, ...] = ()


def tickets_of(events: Iterable[Event]) -> list[Ticket]:
    """Return all tickets in their order."""
    known: dict[str, Incident] = {}
    # In the order of their first line; of a mapping the keys alone count.
    of_part: dict[str, dict[str, None]] = {}
    counts: dict[str, int] = {}
    found = []
    for event in events:
        after = after_event(known.get(event.incident), event)
        if after is None:
            continue
        known[after.name] = after
        names = of_part.setdefault(after.part, {})
        if after.part:
            names[after.name] = None
        state = _TOLD.get(event.what)
        if state is None:
            continue
        key = f"{after.name}/{state}"
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > 1:
            key = f"{key}-{counts[key]}"
        last = islice(reversed(names), MOST_EARLIER + 1)
        earlier = [known[name] for name in last if name != after.name][:MOST_EARLIER]
        found.append(Ticket(key, state, event.at, after, tuple(reversed(earlier))))
    return found


class Histories:
    """The incidents of each part, by the time when they began."""

    def __init__(self, incidents: Iterable[Incident]) -> None:
        self._of_part: dict[str, list[Incident]] = {}
        for one in sorted(incidents, key=lambda one: one.opened):
            self._of_part.setdefault(one.part, []).append(one)
        self._times = {part: [one.opened for one in some] for part, some in self._of_part.items()}

    def before(self, one: Incident) -> list[Incident]:
        """Return the latest incidents of the part that began before this one."""
        if not one.part:
            return []
        end = bisect_left(self._times.get(one.part, []), one.opened)
        return self._of_part.get(one.part, [])[max(0, end - MOST_EARLIER) : end]


def category_of(subject: str) -> str:
    """Return what kind of part a subject is."""
    return _CATEGORIES.get(subject.partition(":")[0], "unknown")


def slot_of(subject: str) -> str:
    """Return where in its node a part is."""
    return place_of(subject).name.partition("/")[2]


def tried(incident: Incident) -> list[dict[str, str]]:
    """Return the steps with when they began and how they ended."""
    ends: dict[str, list[tuple[float, str]]] = {}
    for step, at, how in incident.ends:
        ends.setdefault(step, []).append((at, how))
    found = []
    for step, at in incident.steps:
        if step != VALIDATE:
            how = next((how for when, how in ends.get(step, ()) if when >= at), "not_measured")
            found.append({"step": step, "at": utc_text(at), "outcome": how})
    return found


def history(incidents: Sequence[Incident]) -> list[dict[str, str]]:
    """Return the incidents of a part over all hosts that it was in."""
    return [
        {
            "incident": one.name,
            "node": one.node,
            "at": utc_text(one.opened),
            "check": one.check,
            "text": one.text,
            "end": one.how or one.waits or "open",
        }
        for one in incidents
    ]


def ticket_data(ticket: Ticket, cluster: str) -> dict[str, Any]:
    """Return the ticket for programs."""
    one = ticket.incident
    return {
        "version": VERSION,
        "key": ticket.key,
        "ticket": one.name,
        "state": ticket.state,
        "at": utc_text(ticket.at),
        "opened": utc_text(one.opened),
        "closed": utc_text(one.closed) if one.closed else "",
        "cluster": cluster,
        "node": one.node,
        "check": one.check,
        "subject": one.subject,
        "category": category_of(one.subject),
        "slot": slot_of(one.subject),
        "serial": one.serial,
        "part": one.part,
        "text": one.text,
        "waits": one.how if one.closed else one.waits,
        "tried": tried(one),
        "history": history(ticket.earlier),
        "rma": rma_text(one, ticket.earlier) if ticket.state == "return" else "",
    }


def rma_text(one: Incident, earlier: Sequence[Incident]) -> str:
    """Return what the maker of a part asks for when it is returned, for people."""
    slot = slot_of(one.subject)
    lines = [
        f"Return of a part: {category_of(one.subject)}" + (f" in slot {slot}" if slot else ""),
        f"Node: {one.node}",
        f"Serial number: {one.serial or 'not measured'}",
        f"Name: {one.part or 'not measured'}",
        f"Fault: {one.check} {one.subject}: {one.text}",
        f"Since: {utc_text(one.opened)}",
        f"Why: {one.waits}",
        "Tried:",
    ]
    steps = tried(one)
    lines += [f"  {each['at']} {each['step']}: {each['outcome']}" for each in steps]
    lines += [] if steps else ["  no step helps"]
    lines.append("Earlier incidents of this part:")
    lines += [
        f"  {each['at']} {each['node']}: {each['check']}: {each['text']}: {each['end']}"
        for each in history(earlier)
    ]
    lines += [] if earlier else ["  none"]
    lines.append(f"Evidence: incidents/{one.name}/")
    return "\n".join(lines) + "\n"


def ticket_text(data: Mapping[str, Any]) -> str:
    """Return a ticket for people, from its data."""
    head = f"{data['node']}: {data['check']} {data['subject']}: {data['text']}"
    reported = [head, f"State: {data['state']} ({data['at']})", f"Waits: {data['waits'] or 'no'}"]
    reported += [f"Tried: {one['at']} {one['step']}: {one['outcome']}" for one in data["tried"]]
    reported.append(f"Ticket: {data['ticket']}")
    return "\n".join([*reported, "", data["rma"]]).rstrip("\n") + "\n"


def unsent(
    tickets: Sequence[Ticket], sent: Iterable[str], begun: float, after: Mapping[str, Incident]
) -> list[Ticket]:
    """Return the tickets that a hook still has to get; of what ended before it `begun`, none."""
    done = set(sent)
    return [
        one
        for one in tickets
        if one.key not in done and not 0 < after[one.incident.name].closed < begun
    ]
