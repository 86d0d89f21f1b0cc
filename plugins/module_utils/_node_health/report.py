# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the node's health program says: the reason for Slurm, metrics, lines for the log. Pure."""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping, Sequence

from .._core.record import FAIL, NOT_MEASURED, PASS, VERSION, Record, brief_of
from .._core.verdict import record_from_data
from .._gpu.thresholds import KINDS, kind_of

CHECKER = "health.checker"
_PREFIX = "baremetal_dgx_health"


def checker_fault(node: str, text: str) -> Record:
    """Return the record of a fault of the program itself: it shows nothing about the node."""
    return Record(
        CHECKER, f"node:{node}", NOT_MEASURED, text,
        remedy="settings: the health program is at fault, not the node; run the role node_health",
    )  # fmt: skip


def verdict_of(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the records folded into one, as Tally does for those that are not data yet."""
    found = {record["status"] for record in records}
    if FAIL in found:
        return FAIL
    return PASS if found == {PASS} else NOT_MEASURED


def reason_of(records: Iterable[Mapping[str, Any]]) -> str:
    """Return what a drained node is reported to be drained for; empty where nothing has failed.

    The first is what asks for the most.
    """
    failed = [record for record in records if record["status"] == FAIL]
    if not failed:
        return ""
    worst = max(failed, key=lambda record: KINDS.index(kind_of(record["remedy"])))
    more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
    return brief_of(record_from_data(worst))[: 160 - len(more)] + more


def answer_of(
    node: str, mode: str, at: str, took_s: float, records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the answer of a run as data, for JSON; `at` is ISO 8601 in UTC."""
    stamped = [{**record, "at": at, "took_s": round(took_s, 3)} for record in records]
    verdict = verdict_of(records)
    return {"version": VERSION, "node": node, "mode": mode, "at": at, "verdict": verdict,
            "records": stamped}  # fmt: skip


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _labels(record: Mapping[str, Any]) -> str:
    return f'check="{_label(record["check"])}",subject="{_label(record["subject"])}"'


def metrics_of(
    answer: Mapping[str, Any],
    at_s: float,
    took_s: float,
    cpu_s: float,
    held: bool = False,
    timer_s: float | None = None,
) -> str:
    """Return a run in the text format of Prometheus, for the textfile collector of node_exporter.

    `at_s` and `timer_s`, when the timer last ran, are Unix time. `held` tells whether the brake
    keeps an unfit node in service. What has passed is counted only; numbers are listed for all.
    """
    records = answer["records"]
    healthy = not any(record["check"] == CHECKER for record in records)
    rows: list[tuple[str, str, list[tuple[str, Any]]]] = [
        ("records", "Records of the last run by status.",
         [(f'status="{status}"', sum(one["status"] == status for one in records))
          for status in (PASS, FAIL, NOT_MEASURED)]),
        ("finding", "1 for each record that did not pass.",
         [(f'{_labels(one)},status="{one["status"]}"', 1)
          for one in records if one["status"] != PASS]),
        ("measured", "What was measured, in the unit of the label.",
         [(f'{_labels(one)},unit="{_label(one["measured"]["unit"])}"', one["measured"]["value"])
          for one in records if one["measured"] and _is_number(one["measured"]["value"])]),
        ("checker_ok", "0 when the health program itself was at fault.", [("", int(healthy))]),
        ("brake_held", "1 while the node is unfit and in service: the share of the fleet is out.",
         [("", int(held))]),
        ("run_timestamp_seconds", "When the last run ended.", [("", round(at_s, 3))]),
        ("timer_timestamp_seconds", "When the timer's last run ended, or the boot if it is later.",
         [] if timer_s is None else [("", round(timer_s, 3))]),
        ("run_duration_seconds", "How long it took.", [("", round(took_s, 3))]),
        ("run_cpu_seconds", "Processor time it took.", [("", round(cpu_s, 3))]),
    ]  # fmt: skip
    lines = []
    for name, what, samples in rows:
        if not samples:
            continue
        lines += [f"# HELP {_PREFIX}_{name} {what}", f"# TYPE {_PREFIX}_{name} gauge"]
        reported = dict(reversed(samples))
        lines += [
            f"{_PREFIX}_{name}{{{labels}}} {value}" if labels else f"{_PREFIX}_{name} {value}"
            for labels, value in reversed(reported.items())
        ]
    return "\n".join(lines) + "\n"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
