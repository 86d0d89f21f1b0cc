# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Makes a report: loads the records, takes the secrets out, writes the files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...module_utils._core.files import make_folder, write_atomic
from ...module_utils._core.redact import Redactor
from ...module_utils._core.schema import closest
from ...module_utils._evidence.store import now_utc
from .._trends.load import load_outlook
from .data import Request
from .html import report_html
from .junit import junit
from .load import load_report, planned_nodes, read_secrets, read_text


def make_report(options: Mapping[str, Any], write: bool) -> dict[str, Any]:
    """Return what acceptance_report returns, from its options; `write` is false in check mode.

    Raises OSError; ValueError for a store, a plan or a threshold that cannot be used.
    """
    known = [each for text in options["secret_values"] for each in (text, *text.splitlines())]
    known = [text.strip() for text in known]
    try:
        return _made(options, known, write)
    except (KeyError, TypeError) as error:
        why = f"the store holds what is not a record: {error}"
        raise ValueError(Redactor(known).text(why)) from error
    except ValueError as error:
        raise ValueError(Redactor(known).text(str(error))) from error


def _made(options: Mapping[str, Any], known: list[str], write: bool) -> dict[str, Any]:
    request = Request(
        cluster=options["cluster"],
        thresholds=options["thresholds"],
        whose=options["threshold_source"],
        fleet_failing=frozenset(options["fleet_failing"]),
        most_share=options["most_share"],
        cables_fail_nodes=options["cables_fail_nodes"],
        fabric=options["fabric"],
        evidence_days=options["evidence_days"],
    )
    nodes = planned_nodes(options["plan"], options["groups"]) if options["plan"] else None
    found = load_report(
        options["evidence"],
        nodes,
        request,
        now_utc(),
        pairs=options["pairs"] or "",
        states=options["states"],
        versions=options["versions"],
        more=options["tables"],
        failures=options["failures"] or "",
    )
    found["trends"] = (
        load_outlook(options["evidence"], options["cables"] or "", time.time())
        if options["fabric"]
        else None
    )
    known += read_secrets(options["secrets"]) if options["secrets"] else []
    redactor = Redactor(known)
    report = redactor.data(found)
    svg = redactor.text(read_text(options["fabric_svg"])) if options["fabric_svg"] else ""
    files = {
        "report.html": report_html(report, svg),
        "report.json": json.dumps(report, separators=(",", ":")) + "\n",
        "junit.xml": junit(report),
    }
    if write:
        make_folder(options["output"])
        for name, text in files.items():
            content = text.encode("utf-8", "replace")
            write_atomic(os.path.join(options["output"], name), content, 0o640)
    return {
        "verdict": report["verdict"],
        "summary": report["summary"],
        "gate": report["gate"],
        "questions": report["questions"],
        "trends": report["trends"]["text"] if report["trends"] else "",
        "will_fail": [one["subject"] for one in (report["trends"] or {}).get("will_fail", ())],
        # Not `failed`, which to Ansible says that the task did.
        "failing": [f"{one['subject']} {one['check']}" for one in report["failed"]],
        "files": [os.path.join(options["output"], name) for name in files],
        "problems": report["store_problems"],
        "warnings": list(_unmet(request, {row["check"] for row in report["thresholds"]})),
    }


def _unmet(request: Request, checks: Collection[str]) -> Iterator[str]:
    """Yield the site's options for checks of which no record has a threshold."""
    given = {"thresholds": request.thresholds, "fleet_failing": request.fleet_failing}
    for option, names in given.items():
        for name in sorted(set(names) - set(checks)) if checks else ():
            near = closest(name, checks)
            yield (
                f"{option}: no record has a threshold of {name}, so nothing was judged by it"
                + (f"; is it {near}?" if near else "")
            )
