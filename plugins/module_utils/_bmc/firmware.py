# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Updates the firmware of machines: the module bmc_firmware."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from .._core.files import append_lines, text_if_there
from .._core.record import Record, stamped, utc_text
from .._core.run import ToolError
from .._slurm.nodes import parse_nodes
from . import updates
from .access import ask_bmcs, by_node, change_bmcs, loaded, opener
from .machine import AC_CYCLE, Machine, Opener
from .outing import left_out, obstacle, plan_outing
from .redfish import BmcError, LackError, RefusedError
from .switch import CYCLE, Limits, Line, switch
from .thresholds import UPDATED
from .updates import Event

DONE = "done"
FAILED = "failed"
_CYCLES = {"dc": CYCLE, "ac": AC_CYCLE}
# What an activation brings beside itself comes before it.
_KINDS = ("none", "dc", "ac")
_BLOCK = 1 << 20


class Book:
    """The lines of all nodes; threads of one run share it, and a lock keeps other runs away."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "updates.jsonl")
        self._lock = threading.Lock()
        lines = (text_if_there(self._path) or "").splitlines()
        self._events = updates.events_of(one for one in map(updates.read_line, lines) if one)

    def last(self, node: str, package: str, serial: str) -> Event | None:
        """Return the last event of a package on a node, as long as it is this machine."""
        return updates.last_of(self._events.get((node, package), ()), serial)

    def add(self, event: Event) -> None:
        """Add a line, which is on disk on return. Raises OSError."""
        with self._lock:
            append_lines(self._path, [updates.line_of(event)])
            self._events.setdefault((event.node, event.package), []).append(event)


@dataclass(frozen=True)
class Outcome:
    """DONE, FAILED, or what it is pending for; None is not known. `acted` if anything was sent."""

    value: str | None
    text: str
    acted: bool = False


@dataclass(frozen=True)
class Rules:
    """Whether machines are cycled, whether what failed may be sent again, and seconds."""

    activate: bool = True
    again: bool = False
    flash_s: float = 3600.0
    limits: Limits = field(default_factory=Limits)


def verify_packages(bmcs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ToolError for a file whose checksum is not the declared one; each is read once."""
    wanted = {
        (one["file"], one["sha256"].lower()) for bmc in bmcs.values() for one in bmc["packages"]
    }
    for path, sha256 in sorted(wanted):
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as handle:
                for block in iter(lambda: handle.read(_BLOCK), b""):
                    digest.update(block)
        except OSError as error:
            raise ToolError(f"{path}: {error.strerror}") from error
        if digest.hexdigest() != sha256:
            raise ToolError(f"{path}: its sha256 is {digest.hexdigest()}, declared is {sha256}")


class Update:
    """The packages of one node, in their order."""

    def __init__(
        self,
        node: str,
        opener_: Opener,
        book: Book,
        rules: Rules,
        sleep: Callable[[float], Any] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._node, self._opener, self._book, self._rules = node, opener_, book, rules
        self._sleep, self._now = sleep, now
        self._line = Line(opener_)
        self._serial = ""
        self._acted = False

    def run(self, packages: list[Mapping[str, Any]]) -> Outcome:
        """Bring all packages to their versions; the first that does not get there ends it."""
        try:
            for group in updates.groups_of(packages):
                outcome = self._group(group)
                if outcome.value != DONE:
                    return outcome
        finally:
            self._line.close()
        return Outcome(DONE, f"{len(packages)} packages as declared", self._acted)

    def _group(self, group: list[Mapping[str, Any]]) -> Outcome:
        """Write all packages of a group, then cycle the machine once for all that wait for it."""
        waiting = []
        for package in group[:-1]:
            outcome = self._package(package, waits=True)
            if outcome is None:
                waiting.append(package)
            elif outcome.value != DONE:
                return outcome
        # With the last one, if that needs a cycle, else with the first that does.
        for number, package in enumerate([group[-1], *waiting]):
            outcome = self._package(package, waiting[number:])
            if outcome is not None and outcome.value != DONE:
                return outcome
        return Outcome(DONE, "as declared")

    def _package(
        self,
        package: Mapping[str, Any],
        along: Sequence[Mapping[str, Any]] = (),
        waits: bool = False,
    ) -> Outcome | None:
        """Bring a package to its versions; None if it `waits` for the cycle of another one.

        Packages `along` are written, and have the cycle in common.
        """
        again = self._rules.again
        while True:
            known, is_there, wrong, tasks = self._look(package)
            goes_on = functools.partial(self._goes_on, known)
            step = updates.next_step(known, is_there, tasks, self._now(), again, goes_on)
            # Consent is to one more try.
            again = again and step.what == updates.WAIT
            if step.what == updates.DONE:
                if known and known.what != updates.DONE:
                    self._note(package, updates.DONE)
                return Outcome(DONE, "as declared", self._acted)
            if step.what == updates.STOP:
                why = f"{wrong}; {step.why}" if is_there is None else step.why
                return self._end(None, package, why)
            if step.what == updates.ACTIVATE and known and known.what == updates.TAKEN:
                self._note(package, updates.FLASHED)
            if waits and step.what == updates.ACTIVATE and package["activation"] != "none":
                return None
            ended = self._do(step, package, wrong, along)
            if ended:
                return ended

    def _look(
        self, package: Mapping[str, Any]
    ) -> tuple[Event | None, bool | None, str, list[str] | None]:
        """Return the last event, if the versions are there, which not, the tasks after a push."""
        while True:
            known = self._book.last(self._node, package["sha256"], self._serial)
            try:
                is_there, wrong = self._read(package)
                self._serial = self._serial or self._line.ask(_serial)
                known = self._book.last(self._node, package["sha256"], self._serial)
                is_sent = known and known.what in (updates.PUSHING, updates.TAKEN)
                return known, is_there, wrong, self._line.ask(_tasks) if is_sent else None
            except RefusedError:
                raise
            except BmcError:
                # A BMC that updates itself starts again meanwhile.
                if not updates.is_settling(known, self._now()):
                    raise
            self._sleep(self._rules.limits.poll_s)

    def _goes_on(self, known: Event | None, task: str) -> bool:
        """Return whether a task ended well, is at work, or may be. One without an end does not."""
        is_young = known is not None and self._now() - known.at < self._rules.flash_s
        try:
            state = self._line.ask(lambda machine: machine.task(task))[0]
        except RefusedError:
            return False
        except BmcError:
            return is_young
        return state == "ended" or (state == "running" and is_young)

    def _do(
        self,
        step: updates.Step,
        package: Mapping[str, Any],
        wrong: str,
        along: Sequence[Mapping[str, Any]],
    ) -> Outcome | None:
        if step.what == updates.PUSH:
            return self._push(package)
        if step.what == updates.FOLLOW:
            return self._follow(package, step.task)
        if step.what == updates.WAIT:
            self._sleep(self._rules.limits.poll_s)
            return None
        return self._activate(package, wrong, along)

    def _push(self, package: Mapping[str, Any]) -> Outcome | None:
        tasks = self._line.ask(_tasks)
        before = " ".join(sorted([updates.NO_LIST] if tasks is None else tasks))
        self._note(package, updates.PUSHING, before)
        try:
            taken = self._line.ask(lambda machine: machine.push(package))
            self._acted = True
        except LackError as error:
            self._note(package, updates.UNSENT)
            return self._end(None, package, str(error))
        except RefusedError as error:
            return self._failed(package, f"refused: {error}")
        except BmcError as error:
            # It may have arrived; the next run looks.
            self._acted = True
            return self._end(None, package, f"sending it: {error}; write the same command again")
        if taken.task:
            self._note(package, updates.PUSHED, taken.task)
        else:
            self._note(package, updates.TAKEN, before, "" if taken.is_over else "HTTP 202")
        return None

    def _follow(self, package: Mapping[str, Any], task: str) -> Outcome | None:
        end, why = self._now() + self._rules.flash_s, ""
        lost_end = 0.0
        while True:
            try:
                state, text = self._line.ask(lambda machine: machine.task(task))
                if state == "ended":
                    self._note(package, updates.FLASHED)
                    return None
                if state == "failed":
                    return self._failed(package, f"{task}: {text}")
                why = f"{task} is not over: {text}"
            except RefusedError as error:
                # A BMC that started again with its new version has no old tasks, or not at once.
                if self._reads_back(package):
                    return None
                lost_end = lost_end or self._now() + self._rules.limits.change_s
                why = f"the BMC has no task {task} any more ({error})"
                if self._now() >= lost_end:
                    return self._lost(package, why)
            except BmcError as error:
                # A BMC that updates itself starts again meanwhile.
                why = f"{task}: {error}"
            if self._now() >= end:
                return self._end(None, package, f"{why}; {updates.AGAIN}")
            self._sleep(self._rules.limits.poll_s)

    def _lost(self, package: Mapping[str, Any], why: str) -> Outcome:
        """Return what came of a task that is gone: before its cycle a package shows no version."""
        is_there, wrong = self._read(package)
        if is_there is None or package["activation"] != "none":
            return self._end(None, package, f"{why}; {updates.AGAIN}")
        return self._failed(package, f"{why}; reads back {wrong}")

    def _activate(
        self, package: Mapping[str, Any], wrong: str, along: Sequence[Mapping[str, Any]]
    ) -> Outcome | None:
        kind = max((one["activation"] for one in (package, *along)), key=_KINDS.index)
        pending = f"pending until {kind.upper()} cycle"
        if kind != "none":
            if not self._rules.activate:
                return self._end(pending, package, wrong)
            for one in (*along, package):
                self._note(one, updates.ACTIVATING)
            self._acted = True
            self._line.close()
            try:
                done = switch(
                    self._opener, _CYCLES[kind], self._rules.limits, self._sleep, self._now
                )
            except BmcError as error:
                return self._end(None, package, f"activating it: {error}")
            if not done.acted:
                return self._end(pending, package, f"{wrong}; {done.text}")
            if done.power != "On":
                return self._end(None, package, f"activating it: {done.text}")
        end = self._now() + self._rules.limits.change_s
        left = [package, *along]
        while left := [one for one in left if not self._reads_back(one)]:
            if self._now() >= end:
                ends = [self._differs(one) for one in left]
                return next((one for one in ends if one.value), ends[0])
            self._sleep(self._rules.limits.poll_s)
        return None

    def _differs(self, package: Mapping[str, Any]) -> Outcome:
        is_there, wrong = self._read(package)
        text = f"reads back {wrong}"
        return self._end(None, package, text) if is_there is None else self._failed(package, text)

    def _reads_back(self, package: Mapping[str, Any]) -> bool:
        try:
            return bool(self._read(package)[0])
        except BmcError:
            return False

    def _read(self, package: Mapping[str, Any]) -> tuple[bool | None, str]:
        return _declared(package, self._line.ask(lambda machine: machine.firmware()))

    def _note(self, package: Mapping[str, Any], what: str, tasks: str = "", text: str = "") -> None:
        self._book.add(
            Event(self._now(), self._node, package["sha256"], what, tasks, text, self._serial)
        )

    def _failed(self, package: Mapping[str, Any], text: str) -> Outcome:
        self._note(package, updates.FAILED, text=text)
        return self._end(FAILED, package, text)

    def _end(self, value: str | None, package: Mapping[str, Any], text: str) -> Outcome:
        return Outcome(value, f"{updates.package_of(package)}: {text}", self._acted)


def _serial(machine: Machine) -> str:
    try:
        return machine.serial() or ""
    except BmcError:
        return ""


def _tasks(machine: Machine) -> list[str] | None:
    try:
        return machine.tasks()
    except LackError:
        return None


def _declared(package: Mapping[str, Any], versions: Mapping[str, str]) -> tuple[bool | None, str]:
    try:
        return updates.declared(package["components"], versions)
    except ValueError as error:
        raise LackError(str(error)) from error


def bring_about(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return what the module returns, the records as `records`. ToolError, OSError of the book."""
    bmcs = {name: one for name, one in by_node(params["bmcs"]).items() if one["packages"]}
    loaded(bmcs)
    nodes = parse_nodes(params["nodes"])
    if bmcs and not nodes:
        raise ToolError("nodes: holds no node; give what `scontrol show node -o` prints")
    verify_packages(bmcs)
    if params["state"] == "planned" or check_mode:
        return _planned(params, bmcs, nodes, check_mode)
    held, serving = set(params["held"]), set(params["serving"])
    refused = {
        name: why
        for name in bmcs
        if (why := obstacle(nodes.get(name), name in held, name in serving))
    }
    due = {name: one for name, one in bmcs.items() if name not in refused}
    book = Book(params["folder"])
    limits = Limits(params["soft_s"], params["change_s"], params["poll_s"])
    rules = Rules(params["activate"], params["again"], params["flash_s"], limits)

    def ask(name: str, bmc: Mapping[str, Any]) -> Outcome:
        return Update(name, opener(bmc, params["timeout_s"]), book, rules).run(bmc["packages"])

    return _result(sorted(due), refused, *change_bmcs(due, ask, params))


def _planned(
    params: Mapping[str, Any], bmcs: Mapping[str, Any], nodes: Mapping[str, Any], check_mode: bool
) -> dict[str, Any]:
    """Read the versions of those that may be worked on; who has them is done.

    What a run has begun and a person, or a process of that run, has ended, gets its last line.
    """

    book = Book(params["folder"])

    def ask(name: str, bmc: Mapping[str, Any]) -> tuple[str, str]:
        with opener(bmc, params["timeout_s"])() as machine:
            versions, serial = machine.firmware(), _serial(machine)
        found = [
            (is_there, wrong, book.last(name, one["sha256"], serial))
            for one in bmc["packages"]
            for is_there, wrong in [_declared(one, versions)]
            if not is_there
        ]
        text = "; ".join(wrong for _is_there, wrong, _known in found)
        # The first package decides, and no node leaves service for one that would not be sent.
        if found and updates.is_unmeasured(found[0][2], found[0][0], params["again"]):
            raise BmcError(f"{text}; {updates.AGAIN}")
        return text, serial

    # Reading disturbs no job.
    answers, lacking = ask_bmcs(bmcs, ask, params)
    found = {name: wrong for name, (wrong, _serial) in answers.items()}
    there = {name: Outcome(DONE, "as declared") for name, wrong in found.items() if not wrong}
    for name in () if check_mode else there:
        serial = answers[name][1]
        for one in bmcs[name]["packages"]:
            known = book.last(name, one["sha256"], serial)
            if known and known.what != updates.DONE:
                done = Event(time.time(), name, one["sha256"], updates.DONE, serial=serial)
                book.add(done)
    # Who needs nothing takes no part of the share.
    needy = [name for name in bmcs if found.get(name)]
    outing = plan_outing(nodes, needy, params["share"], params["serving"])
    due = list(outing.names)
    return {
        **_result(due, outing.refused, there, lacking),
        "fresh": [name for name in due if name in outing.fresh],
        "left": left_out(nodes, list(there)),
        "versions": {name: found[name] for name in due},
        "changed": bool(due) and params["state"] != "planned",
    }


def _result(
    due: list[str],
    refused: Mapping[str, str],
    done: Mapping[str, Outcome],
    lacking: Mapping[str, str],
) -> dict[str, Any]:
    records: list[Record] = [
        UPDATED.judge(f"node:{name}", one.value, text=one.text) for name, one in done.items()
    ]
    records += [
        UPDATED.judge(f"node:{name}", None, text=f"{what}: {why}")
        for what, some in (("not updated", refused), ("not reached", lacking))
        for name, why in some.items()
    ]
    return {
        "changed": any(one.acted for one in done.values()),
        "due": due,
        "done": sorted(name for name, one in done.items() if one.value == DONE),
        "refused": [{"node": name, "why": why} for name, why in refused.items()],
        "fresh": [],
        "left": [],
        "versions": {},
        "records": stamped(records, utc_text()),
    }
