# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Runs `dcgmi diag -j` of DCGM 3 and 4, and tells what its answer means for each GPU.

Nothing is run while a process holds a GPU. Every entity of every test is judged: peers that read
the first result only have lost failures of GPU 1 to 7. A failure that is only of settings
(persistence mode off) is a record of the node, never of a GPU. What was skipped, truncated or not
asked is not measured.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Iterable, Iterator, Mapping, Sequence

from .._core.record import FAIL, NOT_MEASURED, PASS, Record
from .._core.run import ENDED, MISSING, TIMED_OUT, CommandResult, CommandRunner
from .dcgm_severity import (
    BENIGN,
    BROKEN,
    HARDWARE,
    SETTINGS,
    SOFTWARE_TESTS,
    UNCLEAR,
    UNTESTED,
    Complaint,
    false_alarm,
    kind_of,
    remedy_of,
)
from .idle import Gpus, busy_record, evidence_of, look
from .load import loading

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")

# Seconds. DCGM says seconds, 2 and 15 minutes; AWS saw 10.5 minutes at level 2 and 2 h 15 min at 4.
TIME_LIMITS = {1: 120.0, 2: 1800.0, 3: 3600.0, 4: 10800.0}

# What each level adds and every data-center GPU can run (DCGM 3.3 and 4.6; eud is its own package,
# nvbandwidth and nccl_tests came with 4.5).
TESTS = {
    1: (),
    2: ("memory", "pcie"),
    3: ("diagnostic", "memory_bandwidth", "targeted_power", "targeted_stress"),
    4: ("memtest", "pulse_test"),
}
# What a run at level 2 asks, too, and records that are of no test.
_ASKED_AT_2 = {
    *SOFTWARE_TESTS, "software", "page_retirement_row_remap", "inforom", *TESTS[2],
    "settings", "run", "gpus", "idle",
}  # fmt: skip
_ALIASES = {"gpu_memory": "memory", "integration": "pcie", "hardware": "memory"}
# Lines that dcgmi or its plug-ins print beside the JSON, and that say nothing about a GPU.
_CHATTER = re.compile(
    r"^\s*(Successfully ran diagnostic for group\.?|Running iteration \d+ of \d+\.*"
    r"|Warning: (nv-hostengine|dcgmi) .*)?\s*$"
)
_NO_LINES: tuple[str, ...] = ()
_RANK = {FAIL: 2, NOT_MEASURED: 1, PASS: 0}

RESTART = (
    "look: restart nvidia-dcgm and run it again; when it hangs again, drain the node and reboot it"
)
START = "settings: start the host engine (systemctl start nvidia-dcgm) or set its address"
INSTALL = "settings: run the role dcgm on this node"
NOT_TESTED = "look: see why the test could not look (processes, memory in use), then run it again"
AGAIN = "look: run dcgmi diag by hand on this node and read what it prints"


@dataclass(frozen=True)
class Result:
    """The result of one test for one entity. `kind` is gpu, cpu, nvswitch, or node for none."""

    test: str
    kind: str
    number: int
    status: str
    complaints: tuple[Complaint, ...] = ()
    info: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """One reading of the JSON. `errors` say why it is not complete; `serials` are by GPU."""

    version: str = ""
    driver: str = ""
    results: tuple[Result, ...] = ()
    gpus: tuple[int, ...] = ()
    serials: tuple[tuple[int, str], ...] = ()
    errors: tuple[str, ...] = ()


def command(
    tool: str,
    level: int,
    parameters: Mapping[str, Any],
    host_engine: str = "",
    gpus: Sequence[int] = (),
    extra: Sequence[str] = (),
) -> list[str]:
    """Return the command line; `parameters` are by test.name, `gpus` DCGM's numbers."""
    argv = [tool, "diag", "-r", str(level), "-j"]
    if parameters:
        argv += ["-p", ";".join(f"{name}={parameters[name]}" for name in sorted(parameters))]
    if gpus:
        argv += ["-i", ",".join(str(gpu) for gpu in gpus)]
    if host_engine:
        argv += ["--host", host_engine]
    return [*argv, *extra]


def documents(text: str) -> tuple[list[dict[str, Any]], str, bool]:
    """Return (the JSON objects of a text, the text around them, whether one was truncated)."""
    found: list[dict[str, Any]] = []
    around, place = [], 0
    decoder = json.JSONDecoder()
    while True:
        # An object is at the begin of a line; a brace inside a message does not.
        start = re.compile(r"^[ \t]*\{", re.MULTILINE).search(text, place)
        if start is None:
            around.append(text[place:])
            return found, "".join(around), False
        around.append(text[place : start.start()])
        try:
            value, place = decoder.raw_decode(text, start.end() - 1)
        except ValueError:
            return found, "".join(around), True
        found.append(value)


def parse(text: str) -> Report:
    """Read standard output; never raises: what could not be read is in `errors`."""
    found, around, cut = documents(text)
    report = Report()
    errors = ["the JSON is truncated or damaged"] if cut else []
    for document in found:
        for part in _iterations(document):
            report = _joined(report, _read(part))
    if not found and not cut:
        errors.append("there is no JSON in what it printed")
    errors += [f"unexpected text: {line.strip()[:200]}" for line in unexpected(around)]
    return replace(report, errors=(*report.errors, *errors))


def unexpected(text: str) -> list[str]:
    """Return the lines that are not known to be harmless."""
    return [line for line in text.splitlines() if not _CHATTER.match(line)][:5]


def _iterations(document: Mapping[str, Any]) -> list[Any]:
    parts = document.get("iterations")
    return parts if isinstance(parts, list) and parts else [document]


def _joined(one: Report, two: Report) -> Report:
    return Report(
        version=two.version or one.version,
        driver=two.driver or one.driver,
        results=one.results + two.results,
        gpus=tuple(sorted({*one.gpus, *two.gpus})),
        serials=tuple(sorted({**dict(one.serials), **dict(two.serials)}.items())),
        errors=one.errors + two.errors,
    )


def _list(value: Any) -> list[Any]:
    # DCGM 3 leaves nulls in its lists.
    return [one for one in value if one is not None] if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else _list(value)
    return tuple(" ".join(str(one).split()) for one in values)


def _read(document: Any) -> Report:
    if not isinstance(document, dict):
        return Report(errors=("a part of the JSON is not an object",))
    name = next((root for root in ROOTS if isinstance(document.get(root), dict)), None)
    if name is None:
        return Report(errors=(f"none of {', '.join(ROOTS)} is in the JSON",))
    root = document[name]
    about = document.get("metadata")
    about = about if isinstance(about, dict) else root
    errors = [str(root[key]) for key in ("runtime_error", "Warning") if root.get(key)]
    results: list[Result] = []
    for category in _list(root.get("test_categories")):
        for test in _list(category.get("tests")) if isinstance(category, dict) else ():
            if isinstance(test, dict):
                results += _test(test)
            else:
                errors.append("a test of the JSON is not an object")
    if not results and not errors:
        errors.append("the JSON holds no test")
    serials = dict(_entities(document))
    numbers = {one.number for one in results if one.kind == "gpu"}
    return Report(
        version=str(about.get("version") or ""),
        driver=str(about.get("Driver Version Detected") or ""),
        results=tuple(results),
        gpus=tuple(sorted({*numbers, *serials})),
        serials=tuple(sorted((gpu, serial) for gpu, serial in serials.items() if serial)),
        errors=tuple(errors),
    )


def _entities(document: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for group in _list(document.get("entity_groups")):
        if isinstance(group, dict) and group.get("entity_group") == "GPU":
            for entity in _list(group.get("entities")):
                number = _number(entity.get("entity_id")) if isinstance(entity, dict) else None
                if number is not None:
                    # "<<<NOT_SUPPORTED>>>" is not a serial number.
                    serial = str(entity.get("serial_num") or "")
                    yield number, "" if serial.startswith("<") else serial


def test_name(name: str) -> str:
    """Return the name of a test as DCGM 4 writes it."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return _ALIASES.get(plain, plain)


def is_deep(check: str) -> bool:
    """Return whether a check is of a test that DCGM asks above its level 2 alone, or may be."""
    layer, _dot, name = check.partition(".")
    return layer == "dcgm" and name not in _ASKED_AT_2


def _test(test: Mapping[str, Any]) -> list[Result]:
    name = test_name(str(test.get("name") or "unnamed"))
    found: list[Result] = []
    for entry in _list(test.get("results")):
        if not isinstance(entry, dict):
            found.append(Result(name, "node", 0, "unreadable"))
            continue
        complaints = tuple(_complaints(entry.get("warnings")))
        status, info = str(entry.get("status") or ""), _texts(entry.get("info"))
        for kind, number in _subjects(entry):
            found.append(Result(name, kind, number, status, complaints, info))
    summary = test.get("test_summary")
    if not isinstance(summary, dict):
        return found or [Result(name, "node", 0, "no results")]
    # The summary repeats the results of the entities; alone it speaks of the node.
    if not found:
        whole = tuple(_complaints(summary.get("warnings")))
        status = str(summary.get("status") or "")
        found.append(Result(name, "node", 0, status, whole, _texts(summary.get("info"))))
    elif word(str(summary.get("status") or "")) == "fail" and not any(
        word(one.status) == "fail" for one in found
    ):
        found.append(Result(name, "node", 0, "Fail", tuple(_complaints(summary.get("warnings")))))
    return found


def _subjects(entry: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    if "entity_id" in entry:
        kind, number = str(entry.get("entity_group") or "gpu").lower(), _number(entry["entity_id"])
        yield ("node", 0) if kind == "none" or number is None else (kind, number)
        return
    if _number(entry.get("cpu_id")) is not None:
        yield "cpu", int(entry["cpu_id"])
        return
    numbers = str(entry.get("gpu_ids", entry.get("gpu_id", "")))
    found = re.findall(r"\d+", numbers)
    for number in found:
        yield "gpu", int(number)
    if not found:
        yield "node", 0


def _complaints(value: Any) -> Iterator[Complaint]:
    for one in [value] if isinstance(value, (str, dict)) else _list(value):
        if isinstance(one, dict):
            text = one.get("warning") or one.get("message") or "no text"
            yield Complaint(
                " ".join(str(text).split()),
                _number(one.get("error_id")),
                _number(one.get("error_severity")),
                _number(one.get("error_category")),
            )
        else:
            yield Complaint(" ".join(str(one).split()))


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) if re.match(r"^-?\d+$", text) else None


def word(status: str) -> str:
    """Return pass, fail, warn or skip; any other word is none of them and comes back as it is."""
    plain = status.strip().lower()
    for known in ("pass", "fail", "warn", "skip"):
        if plain in (known, known + "ed", known + "ing", known + " - all"):
            return known
    return plain or "empty"


def judge_result(
    result: Result, subject: str, node: str, evidence: Sequence[str], version: str = ""
) -> list[Record]:
    """Return the record of the entity, and one of the node where settings are wrong.

    A test may pass and complain. What it did not look at, and what is of the hardware, counts all
    the same; the rest is a note.
    """
    status = word(result.status)
    lines = (*evidence, *(one.line() for one in result.complaints), *result.info)
    record = Record(f"dcgm.{result.test}", subject, PASS, evidence=lines)
    about = {one: kind_of(one, result.test, version) for one in result.complaints}
    if status == "pass":
        reported = {kind for kind in about.values() if kind in (HARDWARE, UNTESTED)}
        if not reported:
            return [record]
        status = "warn"
        result = replace(
            result, complaints=tuple(one for one in result.complaints if about[one] in reported)
        )
    text = "; ".join(one.text for one in result.complaints) or "; ".join(result.info)
    if status not in ("fail", "warn"):
        what = "was skipped" if status == "skip" else f"says {result.status or 'nothing'!r}"
        remedy = f"look: find out why {result.test} did not run (GPU not supported, MIG, package)"
        why = f"{what}: {text or 'no reason is given'}"
        return [replace(record, status=NOT_MEASURED, text=why, remedy=remedy)]
    kinds = {about[one] for one in result.complaints}
    if not kinds:
        kinds = {SETTINGS if result.test in SOFTWARE_TESTS else UNCLEAR}
    # What DCGM calls failed is not a mere note, whatever its severity.
    rest = kinds - ({SETTINGS} if status == "fail" else {SETTINGS, BENIGN})
    records: list[Record] = []
    if SETTINGS in kinds:
        wrong = [one.text for one in result.complaints if about[one] == SETTINGS]
        records.append(
            Record(
                f"dcgm.{'settings_under_load' if is_deep(record.check) else 'settings'}",
                f"node:{node}",
                FAIL,
                "; ".join(wrong) or f"{result.test} failed and gives no reason",
                evidence=lines,
                remedy="settings: correct what DCGM names; no GPU is at fault",
            )
        )
    if not rest:
        note = "only settings are wrong" if SETTINGS in kinds else f"warns: {text}"
        return [replace(record, text=note), *records]
    remedy = remedy_of(result.complaints)
    text = text or "it gives no reason"
    alarms = {false_alarm(one, result.test, version) for one in result.complaints} - {""}
    if rest == {BROKEN}:
        judged = replace(record, status=NOT_MEASURED, text=f"DCGM broke: {text}", remedy=AGAIN)
    elif not rest - {BROKEN, UNTESTED}:
        why = f"not tested: {text}" + "".join(f" (known: {alarm})" for alarm in sorted(alarms))
        judged = replace(record, status=NOT_MEASURED, text=why, remedy=NOT_TESTED)
    elif status == "warn" and not rest - {UNCLEAR, BROKEN, UNTESTED}:
        judged = replace(record, status=NOT_MEASURED, text=f"warns: {text}", remedy=remedy)
    else:
        judged = replace(record, status=FAIL, text=text, remedy=remedy)
    return [judged, *records]


def judge(
    report: Report,
    node: str,
    level: int,
    names: Mapping[int, tuple[str, Sequence[str]]],
    expected: int | None = None,
    chosen: Sequence[int] = (),
) -> list[Record]:
    """Return the records of a reading.

    `names` gives (subject, evidence) by DCGM's GPU number; others are `gpu:NODE/NUMBER`. `expected`
    is how many GPUs the node has; `chosen` are the ones that were asked for.
    """
    records: list[Record] = []
    for result in report.results:
        subject, evidence = f"{result.kind}:{node}/{result.number}", _NO_LINES
        if result.kind == "node":
            subject = f"node:{node}"
        elif result.kind == "gpu" and result.number in names:
            subject, evidence = names[result.number][0], tuple(names[result.number][1])
        records += judge_result(result, subject, node, evidence, report.version)
    records += _gaps(report, node, level, names, chosen)
    wanted = len(chosen) or expected
    if wanted is not None and report.results and len(report.gpus) != wanted:
        text = f"DCGM tested {len(report.gpus)} GPUs of {wanted}"
        remedy = "look: run gpu_health, which tells which GPU is missing"
        records.append(Record("dcgm.gpus", f"node:{node}", NOT_MEASURED, text, remedy=remedy))
    records += [
        Record("dcgm.run", f"node:{node}", NOT_MEASURED, error, remedy=AGAIN)
        for error in report.errors
    ]
    return worst(records)


def _gaps(
    report: Report,
    node: str,
    level: int,
    names: Mapping[int, tuple[str, Sequence[str]]],
    chosen: Sequence[int],
) -> Iterator[Record]:
    """What the level should have tested and the answer does not hold."""
    remedy = "look: the test has no result; is the package of its plug-in installed?"
    tested: dict[str, set[int]] = {}
    for result in report.results:
        if result.kind in ("gpu", "node"):
            tested.setdefault(result.test, set())
        if result.kind == "gpu":
            tested[result.test].add(result.number)
    if not tested:
        return
    for step in range(1, level + 1):
        for test in TESTS[step]:
            if test not in tested:
                text = f"level {level} has no result of it"
                yield Record(f"dcgm.{test}", f"node:{node}", NOT_MEASURED, text, remedy=remedy)
    for test, numbers in tested.items():
        # A test without any GPU speaks of the node (or of the CPUs).
        for gpu in sorted({*report.gpus, *chosen} - numbers) if numbers else ():
            subject = names[gpu][0] if gpu in names else f"gpu:{node}/{gpu}"
            yield Record(f"dcgm.{test}", subject, NOT_MEASURED, "no result of it", remedy=remedy)


def worst(records: Iterable[Record]) -> list[Record]:
    """Return one record for each check and subject, the worst of them, in the order they came."""
    found: dict[tuple[str, str], Record] = {}
    for record in records:
        known = found.get((record.check, record.subject))
        if known is None or _RANK[record.status] > _RANK[known.status]:
            found[record.check, record.subject] = record
        elif record.status == known.status != PASS and record.text not in known.text:
            text = f"{known.text}; {record.text}" if known.text else record.text
            found[record.check, record.subject] = replace(known, text=text)
    return list(found.values())


def judge_run(result: CommandResult, report: Report | None, node: str) -> list[Record]:
    """Return what the command itself did wrong; nothing where it ended as it should."""
    subject, tail = f"node:{node}", (result.describe(),)

    def record(text: str, remedy: str) -> list[Record]:
        return [Record("dcgm.run", subject, NOT_MEASURED, text, evidence=tail, remedy=remedy)]

    if result.outcome == MISSING:
        return record(result.describe(), INSTALL)
    if result.outcome == TIMED_OUT:
        return record(f"{result.describe()}: it hangs, or needs a longer limit", RESTART)
    if "connect" in result.text and "host engine" in result.text:
        return record("the host engine does not answer", START)
    errors = [f"on stderr: {line.strip()[:200]}" for line in unexpected(result.err)]
    found = [] if report is None else [word(one.status) for one in report.results]
    # What stopped the diagnostics is reported by the answer itself.
    explained = report is not None and bool(report.errors)
    if result.rc and not explained and "fail" not in found and "warn" not in found:
        errors.append(f"it ended with {result.rc} but names no failure")
    return record("; ".join(errors), AGAIN) if errors else []


def command_of(options: Mapping[str, Any]) -> list[str]:
    """Return the command line for the options of dcgm_diag."""
    return command(
        options["tool"],
        options["level"],
        options["parameters"],
        options["host_engine"],
        options["gpus"],
        options["extra_arguments"],
    )


def diagnose(
    run: CommandRunner, node: str, options: Mapping[str, Any]
) -> tuple[list[Record], Report]:
    """Return the records of the diagnostics, and what they answered."""
    gpus = look(options["nvml_library"], options["pci"])
    # Level 1 looks at software only; NVIDIA made it for prologs of jobs.
    busy = busy_record("dcgm.idle", node, gpus) if options["level"] > 1 else None
    if busy is not None and not options["busy_ok"]:
        return [busy], Report()
    with loading():
        return _measure(run, node, options, gpus)


def _measure(
    run: CommandRunner, node: str, options: Mapping[str, Any], gpus: Gpus
) -> tuple[list[Record], Report]:
    level = options["level"]
    result = run(command_of(options), options["timeout_s"] or TIME_LIMITS[level])
    if result.outcome != ENDED:
        return judge_run(result, None, node), Report()
    report = parse(result.out)
    about_run = judge_run(result, report, node)
    # An answer that is not there needs no second record that reports it.
    if about_run and not report.version:
        return about_run, report
    known = gpus.names(dict(report.serials), [*report.gpus, *options["gpus"]])
    names = {
        number: (f"gpu:{node}/{place}", evidence_of(gpu)) for number, (place, gpu) in known.items()
    }
    records = judge(report, node, level, names, options["expected_gpus"], options["gpus"])
    return worst([*records, *about_run]), report


def without_skips(
    records: Sequence[Record], skips_ok: Sequence[str]
) -> tuple[list[Record], list[Record]]:
    """Return the records less those of tests that may be skipped and were, and these."""
    allowed = {f"dcgm.{name}" for name in skips_ok}
    left = [one for one in records if one.check in allowed and one.status == NOT_MEASURED]
    return [one for one in records if one not in left], left
