# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What was done to the firmware of each node, as lines that are only added, and what is next. Pure.

A line is written before what it names begins, so that a run that was killed anywhere is continued
by the next one: what may have reached the BMC is looked for there, and not sent again.
"""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from typing import Any, Callable, Collection, Iterable, Mapping, Sequence

VERSION = 1
# A package is about to be sent; it was accepted, and no task is named; it was accepted as a task;
# the task ended well; the machine is about to be cycled; the declared versions were read back.
# FAILED waits for a person. UNSENT is a package that the BMC has no way to take.
PUSHING, TAKEN, PUSHED, FLASHED = "pushing", "taken", "pushed", "flashed"
ACTIVATING, DONE, FAILED, UNSENT = "activating", "done", "failed", "unsent"
EVENTS = (PUSHING, TAKEN, PUSHED, FLASHED, ACTIVATING, DONE, FAILED, UNSENT)

# What comes next, beside DONE.
PUSH, WAIT, FOLLOW, ACTIVATE, STOP = "push", "wait", "follow", "activate", "stop"
# A BMC that unpacks an image shows its task late.
SETTLE_S = 600.0
# What the BMC had before where it has no list: no later list holds it.
NO_LIST = "?"
AGAIN = "look at the BMC, then write -e firmware_again=true"


@dataclass(frozen=True)
class Event:
    """One line: when (epoch seconds), of which node and package (its sha256), and what."""

    at: float
    node: str
    package: str
    what: str
    # With PUSHED its own task; with PUSHING and TAKEN those that the BMC had before, separated by
    # spaces.
    tasks: str = ""
    # With FAILED why; with TAKEN what keeps the answer from being the end.
    text: str = ""
    # The machine's, as its BMC says it; older lines have none.
    serial: str = ""


@dataclass(frozen=True)
class Step:
    """What is next, with the task to follow, or why nothing is."""

    what: str
    task: str = ""
    why: str = ""


def line_of(event: Event) -> str:
    """Return the event as a line without its end."""
    return json.dumps({"version": VERSION, **vars(event)}, sort_keys=True)


def read_line(line: str) -> Event | None:
    """Return the event of a line; None for one that was cut, or is of another release."""
    try:
        data = json.loads(line)
        if data.pop("version") != VERSION or data["what"] not in EVENTS:
            return None
        return Event(at=float(data.pop("at")), **data)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def events_of(events: Iterable[Event]) -> dict[tuple[str, str], list[Event]]:
    """Return the events of each node and package, in their order."""
    found: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        found.setdefault((event.node, event.package), []).append(event)
    return found


def last_of(events: Sequence[Event], serial: str) -> Event | None:
    """Return the last event that is not of a machine with another serial number."""
    mine = (one for one in reversed(events) if not (serial and one.serial not in ("", serial)))
    return next(mine, None)


def next_step(
    known: Event | None,
    is_declared: bool | None,
    tasks: Collection[str] | None,
    now: float,
    again: bool = False,
    goes_on: Callable[[str], bool] = lambda _task: False,
) -> Step:
    """Return what is next for a package on a node; `tasks` are the BMC's now, None if it has none.

    `is_declared` as of declared(). `again` is a person's consent to send what failed, what may
    have arrived, what has no end, or what no version shows; a task that `goes_on` is followed all
    the same, one that may still show is waited for, and what is written is activated.
    """
    if is_declared:
        return Step(DONE)
    if is_unmeasured(known, is_declared, again):
        return Step(STOP, why=AGAIN)
    what = known.what if known else DONE
    if known is None or what in (DONE, UNSENT) or (again and what == FAILED):
        return Step(PUSH)
    if what == FAILED:
        return Step(STOP, why=f"failed before ({known.text}); {AGAIN}")
    if what not in (PUSHING, TAKEN, PUSHED):
        return Step(ACTIVATE)
    step = Step(FOLLOW, known.tasks) if what == PUSHED else _after_push(known, tasks, now)
    if again and (AGAIN in step.why or (step.what == FOLLOW and not goes_on(step.task))):
        return Step(PUSH)
    return step


def is_unmeasured(known: Event | None, is_declared: bool | None, again: bool) -> bool:
    """Return whether only a person can decide: versions are not named, and no task is under way.

    Neither a flash nor a cycle follows from a GPU that its BMC does not reach at the moment.
    """
    is_idle = known is None or known.what in (DONE, UNSENT, ACTIVATING)
    return is_declared is None and is_idle and not again


def is_settling(known: Event | None, now: float) -> bool:
    """Return whether the BMC took a package a moment ago: it may start again, or show no task."""
    return known is not None and known.what == TAKEN and now - known.at < SETTLE_S


def _after_push(known: Event, tasks: Collection[str] | None, now: float) -> Step:
    """Look for the task of a package whose answer named none, or which a run was sending."""
    sent = "a run ended while it sent the package"
    if known.what == TAKEN:
        sent = "the BMC took the package and named no task"
    before = set(known.tasks.split())
    if tasks is None and known.what == TAKEN and known.tasks == NO_LIST and not known.text:
        # It never had a list, and claims that all is done.
        return Step(WAIT if is_settling(known, now) else ACTIVATE)
    if tasks is None or not before <= set(tasks):
        lost = "has no list of tasks" if tasks is None else "has forgotten its tasks"
        return Step(STOP, why=f"{sent}, and the BMC {lost}; {AGAIN}")
    fresh = sorted(set(tasks) - before)
    if len(fresh) > 1:
        return Step(STOP, why=f"{sent}, and {len(fresh)} tasks are new; {AGAIN}")
    if fresh:
        return Step(FOLLOW, fresh[0])
    if known.what == TAKEN:
        if is_settling(known, now):
            return Step(WAIT)
        # Without a task 202 says that it goes on, and nothing says when it ends.
        return Step(STOP, why=f"{sent} ({known.text}); {AGAIN}") if known.text else Step(ACTIVATE)
    if now - known.at < SETTLE_S:
        return Step(STOP, why=f"{sent} a moment ago, and the BMC has no task yet; write the same "
                              "command in ten minutes")  # fmt: skip
    return Step(PUSH)


def groups_of(packages: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return packages that share a cycle, in their order: those before one with its own."""
    groups: list[list[Mapping[str, Any]]] = [[]]
    for package in packages:
        groups[-1].append(package)
        if package.get("cycle", "own") == "own":
            groups.append([])
    return [group for group in groups if group]


def declared(components: Mapping[str, str], versions: Mapping[str, str]) -> tuple[bool | None, str]:
    """Return whether all components have the declared versions, and which do not, one line.

    None if those that do not have no version at all. ValueError names a component that the BMC
    does not have.
    """
    wrong: dict[str, str] = {}
    for pattern, version in components.items():
        matching = fnmatch.filter(sorted(versions), pattern)
        if not matching:
            raise ValueError(f"the BMC has no component {pattern}")
        wrong.update({one: versions[one] for one in matching if versions[one] != version})
    named = [f"{one} {version or 'without a version'}" for one, version in wrong.items()]
    more = f" and {len(named) - 4} more" if len(named) > 4 else ""
    is_known = not wrong or any(wrong.values())
    return (not wrong if is_known else None), ", ".join(named[:4]) + more


def package_of(data: Mapping[str, Any]) -> str:
    """Return the name of a package in lines and words."""
    return str(data["file"]).rsplit("/", 1)[-1]
