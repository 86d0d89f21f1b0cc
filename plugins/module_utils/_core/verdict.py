# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Records folded into the verdict of each node, of the fabric and of each subject. Pure.

A failure wins, then what was not measured. Nothing at all is not measured. What lies between
nodes (a cable, a switch, a pair) is the fabric's: it is shown at the nodes it touches, and fails
none of them, since a node is not worse for the port of a leaf.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .record import FAIL, NOT_MEASURED, PASS, Record, Tally, Threshold, judge

FABRIC = "fabric"
# The copies of the cluster's data are neither a node's nor the fabric's.
BACKUP = "backup"

# Above this share of the nodes, and from so many on, one failure of all is asked of the checker.
MOST_SHARE = 0.2
LEAST_COMMON = 3

_NODE_KINDS = ("node", "gpu", "hca", "nvlink", "nvme", "disk", "mount", "path", "service")
# Kinds of subjects that are one part with its own name.
_NAMED = ("gpu", "hca", "cable")
_RAIL = re.compile(r"^(?P<node>[^/]+)/rail(?P<rail>\d+)$")
_UUID = re.compile(r"\b(?:UUID|uuid) (?P<name>GPU-[0-9A-Za-z-]+)")
_SERIAL = re.compile(r"\b(?:[Ss]erial) (?P<name>[0-9A-Za-z][0-9A-Za-z._-]*)")
_GUID = re.compile(r"\b(?:GUID|guid) (?P<name>(?:0x)?[0-9a-fA-F:]{16,23})\b")


@dataclass(frozen=True)
class Place:
    """Where a subject is: `owner` is the node, FABRIC or BACKUP; `nodes` are those it touches."""

    kind: str
    name: str
    owner: str
    nodes: tuple[str, ...] = ()

    @property
    def gate_fails(self) -> tuple[str, ...]:
        """Nodes that a failure takes out of service: its own, and those that a cable joins."""
        if self.owner != FABRIC:
            return self.nodes
        return self.nodes if self.kind in ("cable", "port") else ()


@functools.lru_cache(maxsize=65536)
def place_of(subject: str) -> Place:
    """Return where a subject is; one of an unknown kind belongs to the fabric, and touches no node.

    gpu:dgx-01/3 and hca:dgx-01/rail3 are their node's; cable:dgx-01/rail3--leaf-01/17 is the
    fabric's and touches dgx-01, as does cables:dgx-01; nodes:dgx-01,dgx-02 is a group that was
    measured together; backup:alpha/database belongs to BACKUP.
    """
    kind, _colon, name = subject.partition(":")
    if kind == BACKUP:
        return Place(kind, name, BACKUP)
    if kind in _NODE_KINDS and name:
        node = name.partition("/")[0]
        return Place(kind, name, node, (node,))
    if kind == "nodes":
        return Place(kind, name, FABRIC, tuple(part for part in name.split(",") if part))
    nodes = []
    for end in name.split("--"):
        found = _RAIL.match(end)
        if found:
            nodes.append(found.group("node"))
        elif kind in ("pair", "cables") and "/" not in end:
            nodes.append(end)
    return Place(kind, name, FABRIC, tuple(dict.fromkeys(nodes)))


def is_about_another(subject: str, node: str) -> bool:
    """True for a subject that is, or touches, another node, of which a node can say nothing."""
    place = place_of(subject)
    if place.nodes == (node,):
        return False
    return bool({*place.nodes, *({place.owner} - {FABRIC, BACKUP})} - {node})


def layer_of(check: str) -> str:
    """Return what a check belongs to: its first word, or fabric.pairs for what loads links.

    A run that asks one question of a layer asks all of them.
    """
    words = check.split(".")
    return ".".join(words[:2]) if check.startswith("fabric.pairs.") else words[0]


def record_from_data(data: Mapping[str, Any]) -> Record:
    """Return the record that as_data() wrote; KeyError, TypeError if it is not one."""
    threshold = data.get("threshold")
    if data["status"] not in (PASS, FAIL, NOT_MEASURED):
        raise TypeError(f"status {data['status']!r}")
    return Record(
        check=str(data["check"]),
        subject=str(data["subject"]),
        status=data["status"],
        text=data.get("text") or "",
        measured=data.get("measured"),
        threshold=None
        if threshold is None
        else Threshold(threshold["op"], threshold["value"], threshold["unit"], threshold["source"]),
        evidence=tuple(data.get("evidence") or ()),
        remedy=data.get("remedy") or "",
        at=data.get("at") or "",
        took_s=data.get("took_s"),
    )


def as_record(record: Record | Mapping[str, Any]) -> Record:
    """Return a record, whichever form it has."""
    return record if isinstance(record, Record) else record_from_data(record)


@functools.lru_cache(maxsize=65536)
def names_in(line: str) -> tuple[str, ...]:
    """Return what a line of evidence says that a part is called: UUID, GUID, serial."""
    return tuple(
        one.group("name").lower().rstrip(".")
        for pattern in (_UUID, _GUID, _SERIAL)
        for one in pattern.finditer(line)
    )


def serials_of(record: Record) -> tuple[str, ...]:
    """Return what names the part itself wherever it is plugged in: UUID or GUID, and serial.

    Checks write them into their evidence. Those of a whole node's record are not its own.
    """
    if place_of(record.subject).kind not in _NAMED:
        return ()
    found = [name for line in record.evidence for name in names_in(line)]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class NodeVerdict:
    """What is known of a node, or of the fabric (`node` is FABRIC).

    `at` is the time of the newest record, ISO 8601 UTC, "" without one. `failing` and `unmeasured`
    are its own records, failures first by their subject; `shown` are those of the fabric that touch
    it and did not pass.
    """

    node: str
    verdict: str
    at: str = ""
    serials: tuple[str, ...] = ()
    failing: tuple[Record, ...] = ()
    level: str = ""
    unmeasured: tuple[Record, ...] = ()
    shown: tuple[Record, ...] = ()
    passed: int = 0

    @property
    def first(self) -> Record | None:
        """The record to name in a reason: the first failure, else the first that is missing."""
        for records in (self.failing, self.unmeasured):
            if records:
                return records[0]
        return None


@dataclass
class Fold:
    """Takes records one by one, and keeps only what did not pass."""

    cables_fail_nodes: bool = False
    passed: dict[str, int] = field(default_factory=dict)
    newest: dict[str, str] = field(default_factory=dict)
    failing: dict[str, list[Record]] = field(default_factory=dict)
    unmeasured: dict[str, list[Record]] = field(default_factory=dict)
    shown: dict[str, list[Record]] = field(default_factory=dict)
    serials: dict[str, dict[str, None]] = field(default_factory=dict)

    def add_pass(self, place: Place, evidence: Sequence[str], at: str) -> None:
        """Take a record that passes, at a place; the same as add(), and quick."""
        owner = place.owner
        self.passed[owner] = self.passed.get(owner, 0) + 1
        if at > self.newest.get(owner, ""):
            self.newest[owner] = at
        if owner != FABRIC and place.kind in _NAMED:
            names = self.serials.setdefault(owner, {})
            for line in evidence:
                for name in names_in(line):
                    names[name] = None

    def add(self, record: Record, at: str = "") -> None:
        """Take a record; `at` is when it was made, where it does not say so itself."""
        place = place_of(record.subject)
        if record.status == PASS:
            self.add_pass(place, record.evidence, record.at or at)
            return
        owners = [place.owner]
        if self.cables_fail_nodes and place.owner == FABRIC and record.status == FAIL:
            owners += place.gate_fails
        stamp = record.at or at
        for owner in owners:
            self.newest[owner] = max(self.newest.get(owner, ""), stamp)
            kept = self.failing if record.status == FAIL else self.unmeasured
            kept.setdefault(owner, []).append(record)
        if place.owner == FABRIC:
            for node in place.nodes:
                if node not in owners:
                    self.shown.setdefault(node, []).append(record)
        else:
            for serial in serials_of(record):
                self.serials.setdefault(place.owner, {})[serial] = None

    def verdict(self, node: str, level: str = "") -> NodeVerdict:
        """Return the verdict of a node; of one without any record it is not measured."""
        failing = tuple(sorted(self.failing.get(node, ()), key=_order))
        unmeasured = tuple(sorted(self.unmeasured.get(node, ()), key=_order))
        passed = self.passed.get(node, 0)
        tally = Tally({PASS: passed, FAIL: len(failing), NOT_MEASURED: len(unmeasured)})
        return NodeVerdict(
            node=node,
            verdict=tally.verdict,
            at=self.newest.get(node, ""),
            serials=tuple(self.serials.get(node, ())),
            failing=failing,
            level=level,
            unmeasured=unmeasured,
            shown=tuple(sorted(self.shown.get(node, ()), key=_order)),
            passed=passed,
        )


def _order(record: Record) -> tuple[bool, str, str]:
    # The part first: "gpu:dgx-01/3" tells a technician more than its node.
    return record.subject.startswith("node:"), record.subject, record.check


def gate_data(found: Sequence[NodeVerdict]) -> list[dict[str, Any]]:
    """Return verdicts of nodes as the gate takes them, without that of the fabric.

    `fleet_share` is how many of the nodes fail the check that is named first, 0 to 1.
    """
    nodes = [one for one in found if one.node != FABRIC]
    shares = {one.check: one.share for one in failing_checks(nodes)}
    reported = []
    for one in nodes:
        first = one.first
        data: dict[str, Any] = {
            "node": one.node,
            "verdict": one.verdict,
            "at": one.at,
            "level": one.level,
            "first_failing": None,
            "fleet_share": 0.0,
        }
        if first is not None:
            data["first_failing"] = {
                "check": first.check,
                "subject": first.subject,
                "text": first.text,
                "remedy": first.remedy,
            }
            data["fleet_share"] = shares.get(first.check, 0.0) if one.failing else 0.0
        reported.append(data)
    return reported


@dataclass(frozen=True)
class CommonFinding:
    """A check that `nodes` of `of` nodes fail."""

    check: str
    nodes: tuple[str, ...]
    of: int

    @property
    def share(self) -> float:
        """0 to 1."""
        return len(self.nodes) / self.of if self.of else 0.0


def failing_checks(found: Sequence[NodeVerdict]) -> list[CommonFinding]:
    """Return how many nodes fail each check, the most first."""
    nodes: dict[str, list[str]] = {}
    for one in found:
        for check in dict.fromkeys(record.check for record in one.failing):
            nodes.setdefault(check, []).append(one.node)
    common = [CommonFinding(check, tuple(some), len(found)) for check, some in nodes.items()]
    return sorted(common, key=lambda one: (-len(one.nodes), one.check))


def questions(found: Sequence[NodeVerdict], most_share: float = MOST_SHARE) -> list[CommonFinding]:
    """Return what so many nodes fail that checker and threshold are to be looked at first."""
    nodes = [one for one in found if one.node != FABRIC]
    return [
        one
        for one in failing_checks(nodes)
        if len(one.nodes) >= LEAST_COMMON and one.share > most_share
    ]


def judge_again(record: Record, thresholds: Mapping[str, Any], whose: str) -> Record:
    """Return the record judged by the new threshold of its check; without one the same record.

    Operator and unit stay. `whose` goes into the source. What was not measured stays so, although a
    value may be next to it, and so does what passed or failed for another reason than its value.
    ValueError where value and threshold cannot be compared.
    """
    old, found = record.threshold, record.measured
    if (
        record.check not in thresholds
        or record.status == NOT_MEASURED
        or old is None
        or found is None
    ):
        return record
    value = thresholds[record.check]
    numbers = [isinstance(one, (int, float)) and not isinstance(one, bool)
               for one in (value, found["value"])]  # fmt: skip
    if numbers[0] != numbers[1] or (not numbers[0] and type(value) is not type(found["value"])):
        raise ValueError(
            f"{record.check}: {found['value']!r} {found['unit']} was measured, which cannot be "
            f"compared with {value!r}"
        )
    if old.holds(found["value"]) != (record.status == PASS):
        return record
    source = f"{whose} (was {old.op} {old.value}: {old.source})"
    again = judge(
        record.check,
        record.subject,
        found["value"],
        Threshold(old.op, value, old.unit, source),
        record.text,
        record.remedy
        or "look at the evidence: it passed with the threshold it was measured against",
        record.evidence,
    )
    return Record(**{**vars(again), "at": record.at, "took_s": record.took_s})
