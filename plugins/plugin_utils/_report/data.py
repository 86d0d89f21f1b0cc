# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""From records to what a report shows, as one mapping: that of report.json. Pure.

Records are taken one by one, since those of a thousand nodes do not fit into memory; what passes
leaves its figure, and what does not is kept whole.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._core.record import FAIL, NOT_MEASURED, PASS, Record, number_flaw
from ...module_utils._core.verdict import (
    BACKUP,
    FABRIC,
    MOST_SHARE,
    Fold,
    NodeVerdict,
    gate_data,
    judge_again,
    layer_of,
    place_of,
    questions,
    record_from_data,
)
from ...module_utils._evidence.batch import Batch, Changes, parse_time
from .._operations.outliers import Fleet, RepeatOffender, outlier_records

VERSION = 1
# What a threshold is known by.
_THRESHOLD = ("check", "op", "value", "unit", "source")
LOW, HIGH, NEITHER = "low", "high", ""

_HOTTEST = re.compile(r"(?P<value>\d+(?:\.\d+)?) C, most\b")
# Checks whose evidence says which release runs where.
_VERSIONS = ("gpu.versions", "gpu.firmware_equal", "gpu.driver_version", "ib.firmware")
_RATES = "burn.rate_"
_NAMES = {
    "burn.watch": ("Power under load, mean", NEITHER),
    "gpu.memory_temperature": ("Temperature of the memory, idle", HIGH),
    "gpu.temperature": ("Degrees below the hottest operating temperature, idle", LOW),
    "burn.hottest": ("Temperature under load, most", HIGH),
}
_QUANTITIES = {
    "hbm": "Memory of the GPU, copied",
    "peer": "NVLink, to and from the others",
    "down": "PCIe, host to GPU",
    "up": "PCIe, GPU to host",
    "bf16": "Matrix products, bf16",
    "fp8": "Matrix products, fp8",
    "fp16": "Matrix products, fp16",
    "tf32": "Matrix products, tf32",
    "fp64": "Matrix products, fp64",
}
_ORDER = {PASS: 0, FAIL: 1, NOT_MEASURED: 2}
_WORST = {FAIL: 0, NOT_MEASURED: 1, PASS: 2}
_SHOWN = 2000
_MOST_GPUS = 64


@dataclass
class Request:
    """What a report is made with; `thresholds` and `fleet_failing` are the site's own."""

    cluster: str = ""
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    whose: str = "the site"
    fleet_failing: frozenset[str] = frozenset()
    most_share: float = MOST_SHARE
    cables_fail_nodes: bool = False
    # Whether records of the fabric are expected; those that there are count in any case.
    fabric: bool = True
    # Days after which a validation shows nothing about the present; 0 is never.
    evidence_days: float = 0


@dataclass
class _Map:
    """A figure of each GPU: by node, as many as there are."""

    label: str
    unit: str
    bad: str
    values: dict[str, list[float | None]] = field(default_factory=dict)

    def put(self, name: str, value: float) -> None:
        node, _slash, number = name.partition("/")
        if number.isdigit() and int(number) < _MOST_GPUS:
            row = self.values.setdefault(node, [])
            row.extend([None] * (int(number) + 1 - len(row)))
            row[int(number)] = value


class Collector:
    """Takes the records that have the last word, and makes the mapping when all are there."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], request: Request) -> None:
        self.nodes = [node for node in nodes if node.get("state", "present") == "present"]
        self.request = request
        self.profiles = {str(node["name"]): str(node.get("profile") or "") for node in self.nodes}
        self.fold = Fold(request.cables_fail_nodes)
        self.fleet = Fleet()
        self.counts = {PASS: 0, FAIL: 0, NOT_MEASURED: 0}
        self.maps: dict[str, _Map] = {}
        self.rails: dict[str, dict[int, str]] = {}
        self.gpus: dict[str, dict[int, str]] = {}
        self.thresholds: dict[tuple[str, str, int | str, str, str], list[int]] = {}
        self.versions: dict[str, set[str]] = {}
        self.simulated: dict[str, set[str]] = {}
        self.levels: dict[str, tuple[str, str]] = {}
        self.swept = ""
        self.of_simulated: set[tuple[str, str]] = set()
        self.subjects: dict[str, list[int]] = {}
        self.flows: dict[tuple[str, str], list[float]] = {}

    def batch(self, batch: Batch) -> None:
        """Take what is known of a batch as a whole."""
        head = batch.head
        if head["simulated"]:
            self.simulated.setdefault(head["simulated"], set()).add(batch.scope)
        # the newest is met last, by the order in which they were added
        if head["level"] or batch.scope not in self.levels:
            self.levels[batch.scope] = (head["at"], head["level"])
        if batch.scope == FABRIC and FABRIC in head["layers"]:
            self.swept = head["at"]

    def record(self, batch: Batch, data: Mapping[str, Any]) -> None:
        """Take a record of a batch. KeyError, TypeError if it is not one."""
        status, at = data["status"], data["at"] or batch.head["at"]
        if status == PASS and data["check"] not in self.request.thresholds:
            self.fold.add_pass(place_of(data["subject"]), data["evidence"], at)
            self._keep(data)
            return
        record = record_from_data(data)
        if record.check in self.request.thresholds:
            record = judge_again(record, self.request.thresholds, self.request.whose)
        if batch.head["simulated"] and record.status != PASS:
            self.of_simulated.add((record.check, record.subject))
        self._take(record, at)

    def _take(self, record: Record, at: str) -> None:
        self.fold.add(record, at)
        self._keep(record.as_data())

    def _keep(self, data: Mapping[str, Any]) -> None:
        """Keep the figures of a record; half a million of them come this way."""
        check, subject, status = data["check"], data["subject"], data["status"]
        threshold, found = data["threshold"], data["measured"]
        self.counts[status] += 1
        place = place_of(subject)
        kind, name = place.kind, place.name
        self.subjects.setdefault(kind, [0, 0, 0])[_ORDER[status]] += 1
        op = ""
        if threshold is not None:
            op = threshold["op"]
            value = threshold["value"]
            key = (check, op, value if _is_whole(value) else str(value), threshold["unit"],
                   threshold["source"])  # fmt: skip
            counted = self.thresholds.get(key)
            if counted is None:
                counted = self.thresholds[key] = [0, 0]
            counted[0] += 1
            counted[1] += status == FAIL
        if status == PASS:
            profiles = dict.fromkeys(self.profiles.get(node, "") for node in place.nodes)
            self.fleet.put(check, subject, kind, found, op, tuple(profiles))
        if kind == "gpu":
            if found is not None:
                self._figure(check, name, found, data["text"])
            self._state(self.gpus, name, "", status)
        elif kind == "hca":
            self._state(self.rails, name, "rail", status)
        elif kind in ("cable", "cables", "port"):
            # Those that are right have one record, which lists them.
            for cable in data["evidence"] if kind == "cables" else [name]:
                for end in cable.split("--"):
                    self._state(self.rails, end, "rail", status)
        if check in _VERSIONS:
            self._version(check, data["evidence"], found)

    def _version(
        self, check: str, evidence: Sequence[str], found: Mapping[str, Any] | None
    ) -> None:
        values = self.versions.setdefault(check, set())
        for line in evidence[:6]:
            values.add(line.partition(": ")[0] if check.endswith("equal") else line)
        if found is not None and isinstance(found["value"], str):
            values.add(found["value"])

    @staticmethod
    def _state(kept: dict[str, dict[int, str]], name: str, word: str, status: str) -> None:
        """Keep the worst state by node and number; other names, as of switches, are left out."""
        node, _slash, number = name.partition("/")
        if word and not number.startswith(word):
            return
        number = number[len(word) :]
        if number.isdigit() and int(number) < _MOST_GPUS:
            row = kept.setdefault(node, {})
            place = int(number)
            before = row.get(place)
            if before is None or _WORST[status] < _WORST[before]:
                row[place] = status

    def _figure(self, check: str, name: str, found: Mapping[str, Any], text: str) -> None:
        if check == "burn.watch":
            hottest = _HOTTEST.search(text)
            if hottest:
                self._put("burn.hottest", "C", name, float(hottest.group("value")))
        if check in _NAMES or check.startswith((_RATES, "nccl.", "dcgm.")):
            value = found["value"]
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._put(check, str(found["unit"]), name, float(value))

    def _put(self, check: str, unit: str, name: str, value: float) -> None:
        one = self.maps.get(check)
        if one is None:
            rate = check[len(_RATES) :] if check.startswith(_RATES) else check
            label, bad = _NAMES.get(check) or (_QUANTITIES.get(rate, rate), LOW)
            one = self.maps[check] = _Map(label, unit, bad)
        one.put(name, value)

    def flow(self, data: Mapping[str, Any]) -> None:
        """Take a line of pairs.jsonl; one that is not a measured flow of two nodes is left out."""
        rate = data.get("gbps")
        if data.get("kind") == "flow" and isinstance(rate, (int, float)) and not number_flaw(rate):
            source, target = str(data["from"][0]), str(data["to"][0])
            if source != target:
                self.flows.setdefault((source, target), []).append(float(data["gbps"]))

    # ---- when all are there

    def report(
        self,
        at: str,
        changes: Changes,
        repeat_offenders: Sequence[RepeatOffender],
        runs: Sequence[Mapping[str, Any]],
        problems: Sequence[str],
        versions: Mapping[str, str],
        states: Mapping[str, Mapping[str, str]],
        more: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return what the report shows. `more` are tables of others: title to rows of texts."""
        found = self.fleet.outliers()
        for record in outlier_records(found, self.request.fleet_failing):
            self._take(record, at)
        names = [str(node["name"]) for node in self.nodes]
        levels = {scope: level for scope, (_at, level) in self.levels.items()}
        # A look at the BMC and a pair test do not validate it.
        validated = {name: self.levels[name][0] for name in names if levels.get(name)}
        for name in names:
            self._confirm(f"node:{name}", name, validated.get(name, ""), at)
        of_fabric = self._count(FABRIC)
        counts = self.request.fabric or of_fabric > 0
        if self.request.fabric:
            self._confirm(FABRIC, FABRIC, self.swept, at)
        judged = [self.fold.verdict(name, levels.get(name, "")) for name in names]
        fabric, backup = self.fold.verdict(FABRIC), self.fold.verdict(BACKUP)
        unplanned = sorted(set(self.fold.newest) - set(names) - {FABRIC, BACKUP})
        verdicts = {one.node: one for one in judged}
        parts = [fabric] if counts else []
        parts += [backup] if self._count(BACKUP) else []
        every = [*judged, *map(self.fold.verdict, unplanned), fabric, backup]
        return {
            "version": VERSION,
            "cluster": self.request.cluster,
            "at": at,
            "oldest": min(filter(None, (*validated.values(), self.swept)), default=""),
            "verdict": _whole([*judged, *parts]),
            "simulated": [
                {"what": what, "scopes": sorted(scopes)}
                for what, scopes in sorted(self.simulated.items())
            ],
            "summary": {
                "nodes": _counted(judged),
                "fabric": fabric.verdict if counts else "",
                "fabric_records": of_fabric if counts else None,
                "backup": backup.verdict if self._count(BACKUP) else "",
                "records": dict(self.counts),
                "records_by_kind": dict(sorted(self.subjects.items())),
            },
            "nodes": [self._node(node, verdicts[str(node["name"])], states) for node in self.nodes],
            "unplanned": unplanned,
            "gate": gate_data(judged),
            "questions": [
                {"check": one.check, "nodes": list(one.nodes), "share": round(one.share, 3)}
                for one in questions(judged, self.request.most_share)
            ],
            "failed": [self._as_row(one) for one in _once(each.failing for each in every)],
            "not_measured": _grouped(_once(each.unmeasured for each in every)),
            "gpus": {node: _row(row) for node, row in sorted(self.gpus.items())},
            "maps": {check: vars(one) for check, one in sorted(self.maps.items(), key=_map_order)},
            "pairs": self._pairs(),
            "outliers": [{**vars(one), "text": one.text} for one in found[:_SHOWN]],
            "outliers_in_all": len(found),
            "repeat_offenders": [
                {**vars(one), "is_repeat_offender": one.is_repeat_offender}
                for one in sorted(repeat_offenders, key=lambda one: -one.score)
                if one.incidents
            ][:_SHOWN],
            "changes": {"new": changes.new, "gone": changes.gone, "since": changes.since},
            "thresholds": [
                {**dict(zip(_THRESHOLD, key, strict=True)), "records": some, "failed": bad}
                for key, (some, bad) in sorted(self.thresholds.items(), key=lambda one: str(one[0]))
            ],
            "versions": {
                **dict(versions),
                **{check: sorted(values)[:40] for check, values in sorted(self.versions.items())},
            },
            "runs": list(runs),
            "store_problems": list(problems),
            "more": dict(more),
        }

    def _confirm(self, subject: str, owner: str, validated: str, at: str) -> None:
        """Take a record that says that the others show nothing about the present, if so."""
        days, most = 0.0, self.request.evidence_days
        if validated:
            days = (parse_time(at) - parse_time(validated)).total_seconds() / 86400
        if self._count(owner) and (not validated or (most and days > most)):
            self._take(_missing(subject, days), at)

    def _count(self, owner: str) -> int:
        """Return how many records there are of a node, the fabric or the backup."""
        kept = (self.fold.failing, self.fold.unmeasured)
        return self.fold.passed.get(owner, 0) + sum(len(one.get(owner, ())) for one in kept)

    def _node(
        self, node: Mapping[str, Any], found: NodeVerdict, states: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Any]:
        name, first = found.node, found.first
        rails = self.rails.get(name, {})
        return {
            "name": name,
            "rack": node.get("rack") or "",
            "rack_unit": node.get("rack_unit"),
            "su": node.get("su") or "",
            "profile": node.get("profile") or "",
            "serial": node.get("serial") or "",
            "verdict": found.verdict,
            "level": found.level,
            "at": found.at,
            "passed": found.passed,
            "failing": len(found.failing),
            "not_measured": len(found.unmeasured),
            "shown": [f"{one.subject} {one.check}" for one in found.shown[:20]],
            "first": f"{first.subject} {first.check}" if first else "",
            "rails": _row(rails),
            "state": dict(states.get(name, {})),
            "serials": list(found.serials),
        }

    def _as_row(self, record: Record) -> dict[str, Any]:
        data = record.as_data()
        data["node"] = place_of(record.subject).owner
        data["simulated"] = (record.check, record.subject) in self.of_simulated
        return data

    def _pairs(self) -> list[list[Any]]:
        """Rows of source, target, the middle and the least of their flows, and how many."""
        return [
            [source, target, round(statistics.median(some), 1), round(min(some), 1), len(some)]
            for (source, target), some in sorted(self.flows.items())
        ]


def _missing(subject: str, days: float) -> Record:
    """Return the record of what was validated so long ago, or, with 0 days, never."""
    of_fabric = subject == FABRIC
    check = "fabric.records" if of_fabric else "node.records"
    playbook = "validate_fabric" if of_fabric else "validate_nodes"
    why = f"there are records, and none of {playbook}"
    if days:
        why = f"the last {playbook} is {days:.0f} days old"
    return Record(check, subject, NOT_MEASURED, why, remedy=f"run {playbook}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _row(states: Mapping[int, str]) -> list[str]:
    return [states.get(place, "") for place in range(max(states, default=-1) + 1)]


def _map_order(item: tuple[str, _Map]) -> tuple[int, str]:
    """Rates of computing first, then of transfers, power, heat."""
    check, one = item
    order = {"TFLOP/s": 0, "GB/s": 1, "W": 2, "C": 3}
    return order.get(one.unit, 4), check


def _whole(found: Sequence[NodeVerdict]) -> str:
    reported = {one.verdict for one in found}
    return FAIL if FAIL in reported else PASS if reported == {PASS} else NOT_MEASURED


def _counted(found: Sequence[NodeVerdict]) -> dict[str, int]:
    return {
        status: sum(1 for one in found if one.verdict == status)
        for status in (PASS, FAIL, NOT_MEASURED)
    }


def _once(found: Iterable[Sequence[Record]]) -> list[Record]:
    """Return each record once, though two nodes may answer for one cable."""
    return list({id(record): record for records in found for record in records}.values())


def _grouped(records: Iterable[Record]) -> list[dict[str, Any]]:
    """What measured nothing, by check, text and remedy: a tool may be missing on all nodes."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.check, record.text, record.remedy), []).append(record)
    return [
        {
            "check": check,
            "layer": layer_of(check),
            "text": text,
            "remedy": remedy,
            "subjects": [one.subject for one in some],
            "evidence": list(some[0].evidence),
        }
        for (check, text, remedy), some in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
