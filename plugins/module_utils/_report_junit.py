# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A report as JUnit: a suite for each node, a failure or an error for each check. Pure.

What was not measured is an error: whoever reads JUnit takes a skipped test for green.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

from ansible_collections.baremetal.dgx.plugins.module_utils._verdict import FABRIC, place_of

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: object) -> str:
    """Return a text without what XML cannot hold, such as the escapes of a terminal."""
    return _NOT_XML.sub("\ufffd", str(text))


def junit(report: Mapping[str, Any]) -> str:
    """Return the XML of a report."""
    failed: dict[str, list[str]] = {}
    errors: dict[str, list[str]] = {}
    for one in report["failed"]:
        failed.setdefault(one["node"], []).append(
            _case(one["subject"], one["check"], "failure", one["text"], _told(one))
        )
    for group in report["not_measured"]:
        told = [*group["evidence"], f"do: {group['remedy']}"]
        for subject in group["subjects"]:
            errors.setdefault(place_of(subject).owner, []).append(
                _case(subject, group["check"], "error", group["text"], told)
            )
    suites = []
    for node in report["nodes"]:
        name, cases = node["name"], [f"  <testcase classname={_quote(node['name'])} name="]
        if node["verdict"] == "pass":
            cases[0] += f"{_quote(str(node['passed']) + ' records, all pass')}/>\n"
        elif not node["failing"] and not node["not_measured"]:
            cases[0] += '"evidence"><error message="there are no records"/></testcase>\n'
        else:
            cases = []
        suites.append(_suite(name, cases, failed.pop(name, []), errors.pop(name, [])))
    rest = [FABRIC] if report["summary"]["fabric"] else []
    rest += sorted((set(failed) | set(errors)) - {FABRIC})
    for name in rest:
        cases = []
        if name == FABRIC and report["summary"]["fabric"] == "pass":
            cases = ['  <testcase classname="fabric" name="all records pass"/>\n']
        elif name == FABRIC and name not in failed and name not in errors:
            none = '<error message="there are no records"/>'
            cases = [f'  <testcase classname="fabric" name="evidence">{none}</testcase>\n']
        suites.append(_suite(name, cases, failed.get(name, []), errors.get(name, [])))
    body = "".join(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n{body}</testsuites>\n'


def _suite(name: str, cases: list[str], failed: list[str], errors: list[str]) -> str:
    lone = sum("<error" in case for case in cases)
    total = len(cases) + len(failed) + len(errors)
    return (
        f' <testsuite name={_quote(name)} tests="{total}" failures="{len(failed)}" '
        f'errors="{len(errors) + lone}">\n{"".join([*cases, *failed, *errors])} </testsuite>\n'
    )


def _case(subject: str, check: str, kind: str, text: str, told: Iterable[str]) -> str:
    return (
        f"  <testcase classname={_quote(subject)} name={_quote(check)}><{kind} message="
        f"{_quote(text)}>{escape(clean(chr(10).join(told)))}</{kind}></testcase>\n"
    )


def _told(one: Mapping[str, Any]) -> list[str]:
    told = []
    if one["measured"] and one["threshold"]:
        found, mark = one["measured"], one["threshold"]
        told.append(
            f"{found['value']} {found['unit']}, must be {mark['op']} {mark['value']} "
            f"({mark['source']})"
        )
    if one["simulated"]:
        told.append("SIMULATED hardware")
    return [*told, *one["evidence"], f"do: {one['remedy']}"]


def _quote(text: str) -> str:
    return quoteattr(clean(text))
