# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the store of evidence holds: lines, batches, names, and what is old. Pure.

    runs/RUN/records.jsonl    a line of JSON each, only ever added to; .gz when it is old
    runs/RUN/raw/…            output of the tools
    history/SERIAL.jsonl      a line for each batch that is about the part
    parts/NODE.json           which part was last seen where

RUN is its start and the playbook: 20261121T090105Z-validate_nodes. A batch is what one check of one
node, or of the fabric, handed over: a line that says what comes, a line for each record, a line
that says how many came. Each line ends with the checksum of its text, so a line that was truncated
is known as such and reported; without the last line a batch counts as truncated.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Container, Iterable, Iterator, Mapping, Sequence

from .._core.record import FAIL, NOT_MEASURED, PASS, Record, Tally, flaw
from .._core.verdict import FABRIC, as_record, is_about_another, layer_of, place_of, serials_of

VERSION = 1
BATCH, RECORD, END = "batch", "record", "end"
RECORDS_FILE = "records.jsonl"

_TIME = "%Y%m%dT%H%M%SZ"
_ISO = "%Y-%m-%dT%H:%M:%SZ"
_SUM_BEGINS = ',"sum":"'
_SUM_LENGTH = len(_SUM_BEGINS) + 8 + 2
_RUN = re.compile(r"^(?P<at>\d{8}T\d{6}Z)-(?P<name>[a-z][a-z0-9_]*)(?:-(?P<again>\d+))?$")
_UNSAFE = re.compile(r"[^0-9A-Za-z._-]+")
# The newest runs of a playbook stay, however old they are.
LEAST_KEPT = 2
# Clocks that are kept by NTP differ by less.
_CLOCK_SLACK = timedelta(minutes=10)
_LONG_GAP, _LIVED_THROUGH = timedelta(days=90), timedelta(days=7)


def pack(data: Mapping[str, Any]) -> str:
    """Return a line without its end: JSON, with the checksum of its text as the last key."""
    body = json.dumps(data, ensure_ascii=True, separators=(",", ":"))[:-1]
    return f'{body},"sum":"{zlib.crc32(body.encode("ascii")):08x}"}}'


def unpack(line: str) -> dict[str, Any]:
    """Return what a line holds; ValueError where it is not whole."""
    end = line[-_SUM_LENGTH:]
    if not (line.startswith("{") and end.startswith(_SUM_BEGINS) and end.endswith('"}')):
        raise ValueError("truncated" if line.startswith("{") else "no line of the store")
    found = line[:-_SUM_LENGTH].encode("utf-8", "replace")
    if b"%08x" % zlib.crc32(found) != end[len(_SUM_BEGINS) : -2].encode("utf-8", "replace"):
        raise ValueError("its checksum is wrong")
    data = json.loads(line)
    del data["sum"]
    return data


def run_name(at: str, playbook: str, taken: Iterable[str] = ()) -> str:
    """Return the name of a run that starts at `at`, ISO 8601 UTC, and is not taken; ValueError."""
    stamp = datetime.strptime(at, _ISO).strftime(_TIME)
    base = f"{stamp}-{playbook}"
    if not _RUN.match(base):
        raise ValueError(f"{playbook!r}: small letters, digits and underscores, a letter first")
    there, number, name = set(taken), 1, base
    while name in there:
        number += 1
        name = f"{base}-{number}"
    return name


def parse_time(at: str) -> datetime:
    """Return a time, ISO 8601 UTC; ValueError."""
    return datetime.strptime(at, _ISO).replace(tzinfo=timezone.utc)


def run_time(run: str) -> datetime:
    """Return when a run began; ValueError where it is not a name of a run."""
    found = _RUN.match(run)
    if found is None:
        raise ValueError(f"{run!r} is not a name of a run")
    return datetime.strptime(found.group("at"), _TIME).replace(tzinfo=timezone.utc)


def run_playbook(run: str) -> str:
    """Return the playbook of a run; ValueError."""
    run_time(run)
    return run.split("-")[1]


def file_name(word: str) -> str:
    """Return a word as the name of a file that leads nowhere else; ValueError for an empty one."""
    safe = _UNSAFE.sub("_", word).strip(".")[:150]
    if not safe:
        raise ValueError(f"{word!r} is not a name")
    return safe


def batch_lines(
    run: str,
    number: int,
    scope: str,
    source: str,
    records: Sequence[Mapping[str, Any]],
    at: str,
    level: str = "",
    simulated: str = "",
    raw: Sequence[str] = (),
    sequence: int = 0,
    ended: Sequence[str] = (),
) -> list[str]:
    """Return the lines of a batch; KeyError, TypeError where something is not a record.

    A record that cannot be used is kept as one that has measured nothing, and says why; so is one
    that passes at a time after `at`. A failure has the time `at` then.
    `number` is unique in the run, `sequence` grows with each batch of the store; `scope` is the
    node that was asked, or FABRIC, and `source` who asked; `simulated` says in words what was not
    real, and is empty where all was; `raw` names files below raw/. `ended` are the layers that the
    inventory asks no more.
    """
    latest = (datetime.strptime(at, _ISO) + _CLOCK_SLACK).strftime(_ISO)
    kept = [_in_time(accepted(record, scope), at, latest) for record in records]
    tally = Tally.of(kept)
    head = {
        "kind": BATCH,
        "v": VERSION,
        "run": run,
        "batch": number,
        "scope": scope,
        "source": source,
        "level": level,
        "simulated": simulated,
        "at": at,
        "sequence": sequence,
        "layers": sorted({layer_of(record.check) for record in kept}),
        "ended": sorted(ended),
        "counts": tally.counts,
        "not_pass": [[one.check, one.subject, one.status] for one in kept if one.status != PASS],
        "raw": list(raw),
    }
    lines = [pack(head)]
    for record in kept:
        data = record.as_data()
        data["at"] = data["at"] or at
        lines.append(pack({"kind": RECORD, "batch": number, "record": data}))
    lines.append(pack({"kind": END, "batch": number, "records": len(kept)}))
    return lines


def with_standing(file: Mapping[str, Any]) -> list[Any]:
    """Return the records of the file of a node, and the failures of their layers that stand.

    Else a batch in which a test was not asked would take the place of the one where it failed.
    KeyError, TypeError for what is not a record.
    """
    records, standing = list(file["records"]), file.get("standing") or ()
    layers = {layer_of(one["check"]) for one in records} if standing else set()
    return records + [one for one in standing if layer_of(one["check"]) in layers]


def accepted(record: Record | Mapping[str, Any], scope: str) -> Record:
    """Return a record that may be counted; one that may not becomes one that measured nothing.

    A node may speak of itself only: what its records say of another node is refused. KeyError,
    TypeError if it is not one.
    """
    data = record.as_data() if isinstance(record, Record) else record
    check, subject = str(data["check"]), str(data["subject"])
    own = FABRIC if scope == FABRIC else f"node:{scope}"
    if scope != FABRIC and is_about_another(subject, scope):
        why = f"{scope} has handed over a record about another node: {subject}"
        return Record(check, own, NOT_MEASURED, why, remedy=f"look at what runs on {scope}")
    why = flaw(data)
    if why:
        text = f"the record cannot be used: {why}"
        return Record(check, subject, NOT_MEASURED, text, remedy="look at the tool; ask again")
    return as_record(record)


def _in_time(record: Record, at: str, latest: str) -> Record:
    """Return a record that was measured before it is added; either clock may show any time.

    What passes would count as newer than all that is found out about the node until then.
    """
    if record.at <= latest:
        return record
    if record.status == FAIL:
        return replace(record, at=at)
    why = (
        f"it is dated {record.at} and was added at {at}: the clock of the node or of the control "
        "machine was wrong"
    )
    return Record(
        record.check, record.subject, NOT_MEASURED, why,
        remedy="look: chronyc tracking on both; then correct that clock, and ask again", at=at,
    )  # fmt: skip


@dataclass
class Batch:
    """What one line of kind batch says; `whole` where its last line is there, too."""

    head: Mapping[str, Any]
    records: int = 0
    whole: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Run and number."""
        return self.head["run"], self.head["batch"]

    @property
    def order(self) -> tuple[int, str, str, int]:
        """What sorts batches as they were added: the clock only where there is no number yet."""
        return self.head.get("sequence", 0), self.head["at"], *self.key

    @property
    def scope(self) -> str:
        """The node, or FABRIC."""
        return self.head["scope"]


@dataclass
class Problems:
    """What is wrong with a file of the store, for people, and how often."""

    lines: list[str] = field(default_factory=list)

    def add(self, file: str, number: int, text: str) -> None:
        """Keep what is wrong with a line."""
        self.lines.append(f"{file} line {number}: {text}")


def parse(
    lines: Iterable[str], file: str, problems: Problems
) -> Iterator[tuple[Batch, dict[str, Any] | None]]:
    """Yield each batch when it begins, with None, and then with each of its records.

    Records carry the run's own time. A line that is not whole is reported in `problems`; so is a
    batch that has not ended, since its process was killed: its records are true, but not all.
    """
    batches: dict[int, Batch] = {}
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        if not line:
            continue
        try:
            data = unpack(line)
            kind = data["kind"]
            if kind == BATCH:
                if data["v"] > VERSION:
                    raise ValueError(f"version {data['v']} of a newer release")
                batches[data["batch"]] = batch = Batch(data)
                yield batch, None
            elif kind == RECORD:
                batch = batches[data["batch"]]
                batch.records += 1
                yield batch, data["record"]
            elif kind == END:
                batch = batches[data["batch"]]
                batch.whole = batch.records == data["records"]
        except ValueError as error:
            problems.add(file, number, str(error))
        except (KeyError, TypeError) as error:
            problems.add(file, number, f"lacks {error}")
    for batch in batches.values():
        if not batch.whole:
            had = f"{batch.records} of {sum(batch.head['counts'].values())} records"
            problems.lines.append(f"{file}: the batch of {batch.scope} was truncated: {had}")


def current(batches: Iterable[Batch]) -> dict[tuple[str, str], Batch]:
    """Return for each scope and layer the batch that has the last word, by (scope, layer).

    A quick run that asks the GPUs shows nothing about the burn-in of last week, so each layer is
    kept by itself. A batch that was truncated takes the place of none. What was added later has
    the last word, whatever the clock showed. Of layers that a batch has ended there is none.
    """
    last: dict[tuple[str, str], Batch] = {}
    for batch in sorted(batches, key=lambda one: one.order):
        if batch.whole:
            for layer in batch.head.get("ended", ()):
                last.pop((batch.scope, layer), None)
            for layer in batch.head["layers"]:
                last[batch.scope, layer] = batch
    return last


def not_pass(last: Mapping[tuple[str, str], Batch]) -> dict[tuple[str, str], str]:
    """Return status by (check, subject) of what did not pass in the batches with the last word."""
    found = {}
    for (_scope, layer), batch in last.items():
        for check, subject, status in batch.head["not_pass"]:
            if layer_of(check) == layer:
                found[check, subject] = status
    return found


@dataclass(frozen=True)
class Changes:
    """What differs between two states: (check, subject, before, after); "" without a finding."""

    new: tuple[tuple[str, str, str, str], ...] = ()
    gone: tuple[tuple[str, str, str, str], ...] = ()
    since: str = ""

    def with_passed(self, passed: Container[tuple[str, str]]) -> Changes:
        """Return them where the last records of these (check, subject) passed."""
        gone = [(*row[:3], PASS if row[:2] in passed else "") for row in self.gone]
        return replace(self, gone=tuple(gone))


def changes(batches: Sequence[Batch]) -> Changes:
    """Return what the newest run of each playbook has changed against those before it.

    Batches do not list what passed: what is gone has no finding until with_passed().
    """
    newest: dict[str, str] = {}
    for batch in sorted(batches, key=lambda one: one.order):
        newest[run_playbook(batch.head["run"])] = batch.head["run"]
    older = [one for one in batches if one.head["run"] not in newest.values()]
    if not older:
        return Changes()
    before, after = not_pass(current(older)), not_pass(current(batches))
    new = [
        (*key, before.get(key, ""), status)
        for key, status in after.items()
        if before.get(key) != status
    ]
    gone = [(*key, status, "") for key, status in before.items() if key not in after]
    since = str(max(older, key=lambda one: one.order).head["at"])
    return Changes(tuple(sorted(new)), tuple(sorted(gone)), since)


def parts_of(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return by subject what names the part: its UUID or GUID if there is one, else its serial."""
    found: dict[str, str] = {}
    for data in records:
        record = as_record(data)
        for serial in serials_of(record)[:1]:
            found.setdefault(record.subject, serial)
    return found


def history_lines(
    head: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
    parts: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """Return by serial the line of each part that a batch is about; `parts` as parts_of() does.

    A part that is lost names itself no more: `parts` then has to know it from before. A failure has
    the time when it was measured; one that stands may name another part than the one there now.
    """
    found: dict[str, dict[str, Any]] = {}
    failed_at: dict[str, list[str]] = {}
    for data in records:
        check, subject, status = data["check"], data["subject"], data["status"]
        serial = parts.get(subject)
        names = serials_of(as_record(data)) if status == FAIL else ()
        if names and serial not in names:
            serial = names[0]
        if serial is None:
            continue
        line = found.setdefault(
            serial,
            {
                "v": VERSION,
                "run": head["run"],
                "batch": head["batch"],
                "at": head["at"],
                "node": place_of(subject).owner,
                "subject": subject,
                "status": PASS,
                "layers": [],
                "checks": [],
            },
        )
        layer = layer_of(check)
        if layer not in line["layers"]:
            line["layers"].append(layer)
        line["status"] = min(line["status"], status, key=_worst)
        if status == FAIL:
            line["checks"].append(check)
            # A burn-in that is reported again failed when it ran, and not once more.
            failed_at.setdefault(serial, []).append(data.get("at") or head["at"])
    for serial, times in failed_at.items():
        found[serial]["at"] = max(times)
    return found


def _worst(status: str) -> int:
    return (FAIL, NOT_MEASURED, PASS).index(status)


def is_from_the_future(run: str, now: datetime) -> bool:
    """True for a run that began after now: the controller's clock was wrong, then or is now."""
    return run_time(run) > now + _CLOCK_SLACK


def proven_now(runs: Iterable[str], now: datetime) -> datetime:
    """Return the latest time that the runs themselves bear out.

    A clock that is years ahead for a day must not make everything old. So a time after a long gap
    counts only once there have been runs for a week after the gap.
    """
    times = sorted({run_time(run) for run in runs if not is_from_the_future(run, now)})
    newest = now
    for earlier, later in zip(reversed(times[:-1]), reversed(times)):
        if later - earlier > _LONG_GAP and newest - later < _LIVED_THROUGH:
            newest = earlier
    if times and now - times[-1] > _LONG_GAP:
        newest = min(newest, times[-1])
    return newest


@dataclass(frozen=True)
class Housekeeping:
    """Runs to compress, and runs to remove."""

    compress: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def housekeeping(
    runs: Iterable[str], now: datetime, compress_days: float, keep_days: float
) -> Housekeeping:
    """Return what is old; 0 days is never. The newest runs of each playbook are kept.

    Runs from the future are left alone, and none is old because of them.
    """
    of: dict[str, list[str]] = {}
    runs = sorted(runs, reverse=True)
    for run in runs:
        if not is_from_the_future(run, now):
            of.setdefault(run_playbook(run), []).append(run)
    now = proven_now(runs, now)
    compress: list[str] = []
    remove: list[str] = []
    for names in of.values():
        for number, run in enumerate(names):
            age = now - run_time(run)
            if keep_days and age > timedelta(days=keep_days) and number >= LEAST_KEPT:
                remove.append(run)
            elif compress_days and age > timedelta(days=compress_days):
                compress.append(run)
    return Housekeeping(tuple(sorted(compress)), tuple(sorted(remove)))
