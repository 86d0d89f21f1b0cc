# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A report as JUnit: a suite for each node, a failure or an error for each check. Pure.

What was not measured is an error: readers of JUnit take a skipped test for green.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from ...module_utils._core.verdict import FABRIC, place_of

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SILENT = "there are no records"


def clean(text: object) -> str:
    """Return a text without what XML cannot hold, such as the escapes of a terminal."""
    return _NOT_XML.sub("\ufffd", str(text))


def junit(report: Mapping[str, Any]) -> str:
    """Return the XML of a report."""
    found: dict[str, list[ET.Element]] = {}
    for one in report["failed"]:
        case = _case(one["subject"], one["check"], "failure", one["text"], _details(one))
        found.setdefault(one["node"], []).append(case)
    for group in report["not_measured"]:
        reported = [*group["evidence"], f"do: {group['remedy']}"]
        for subject in group["subjects"]:
            case = _case(subject, group["check"], "error", group["text"], reported)
            found.setdefault(place_of(subject).owner, []).append(case)
    root = ET.Element("testsuites")
    for node in report["nodes"]:
        name, cases = node["name"], []
        if node["verdict"] == "pass":
            cases = [_case(name, f"{node['passed']} records, all pass")]
        elif not node["failing"] and not node["not_measured"]:
            cases = [_case(name, "evidence", "error", _SILENT)]
        root.append(_suite(name, [*cases, *found.pop(name, [])]))
    expected = [FABRIC] if report["summary"]["fabric"] else []
    for name in [*expected, *sorted(set(found) - {FABRIC})]:
        cases = found.get(name, [])
        if name == FABRIC and report["summary"]["fabric"] == "pass":
            cases = [_case(FABRIC, "all records pass"), *cases]
        elif not cases:
            cases = [_case(FABRIC, "evidence", "error", _SILENT)]
        root.append(_suite(name, cases))
    ET.indent(root, " ")
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _suite(name: str, cases: list[ET.Element]) -> ET.Element:
    """Return a suite with its cases, and how many there are of each kind."""
    kinds = [[one.tag for one in case] for case in cases]
    counts = {
        "tests": str(len(cases)),
        "failures": str(kinds.count(["failure"])),
        "errors": str(kinds.count(["error"])),
    }
    suite = ET.Element("testsuite", {"name": clean(name), **counts})
    suite.extend(cases)
    return suite


def _case(
    subject: str, check: str, kind: str = "", text: str = "", reported: list[str] | None = None
) -> ET.Element:
    case = ET.Element("testcase", {"classname": clean(subject), "name": clean(check)})
    if kind:
        ET.SubElement(case, kind, {"message": clean(text)}).text = clean("\n".join(reported or []))
    return case


def _details(one: Mapping[str, Any]) -> list[str]:
    reported = []
    if one["measured"] and one["threshold"]:
        found, threshold = one["measured"], one["threshold"]
        reported.append(
            f"{found['value']} {found['unit']}, must be {threshold['op']} {threshold['value']} "
            f"({threshold['source']})"
        )
    if one["simulated"]:
        reported.append("SIMULATED hardware")
    return [*reported, *one["evidence"], f"do: {one['remedy']}"]
