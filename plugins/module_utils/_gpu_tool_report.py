# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How the modules that run tools on GPUs end: records, lines to act on, red or green."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Tally,
)

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule


def line_of(record: Record) -> str:
    """Return a record as a line that a technician can act on."""
    parts = [f"{record.subject} {record.check} {record.status.replace('_', ' ')}: {record.text}"]
    if record.measured is not None and record.threshold is not None:
        mark = record.threshold
        parts.append(
            f"{record.measured['value']} {record.measured['unit']}, must be "
            f"{mark.op} {mark.value} ({mark.source})"
        )
    return "; ".join([*parts, record.remedy] if record.remedy else parts)


def now_text(seconds: float | None = None) -> str:
    """Return seconds since the epoch, by default now, as records write it: ISO 8601 UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def stamped(records: Sequence[Record], at: str) -> list[Record]:
    """Return the records with the time `at`, where they have none of their own."""
    return [record if record.at else replace(record, at=at) for record in records]


def add_result(result: dict[str, Any], records: Sequence[Record]) -> None:
    """Add verdict, counts, records and findings to what a module returns.

    Records without a time get the present one: the gate wants to know how old each of them is.
    """
    tally = Tally.of(records)
    result.update(
        verdict=tally.verdict,
        counts=tally.counts,
        records=[record.as_data() for record in stamped(records, now_text())],
        findings=[line_of(record) for record in records if record.status != PASS],
    )


def end(module: AnsibleModule, result: dict[str, Any], records: Sequence[Record]) -> None:
    """End the module: red where there are findings, or something was not measured."""
    tally = Tally.of(records)
    red = tally.verdict == FAIL and not module.params["findings_ok"]
    # A failure that is allowed must not hide what was not measured.
    unknown = tally.counts[NOT_MEASURED] or tally.verdict == NOT_MEASURED
    if red or (unknown and not module.params["not_measured_ok"]):
        module.fail_json(msg="\n".join(result["findings"]) or "nothing was measured", **result)
    module.exit_json(**result)
