# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Settings in an adapter's firmware: what mlxconfig prints, and what would have to change.

A setting has three values: that of the factory, that of the running firmware, and that of the next
start. mlxconfig and mstconfig print all three with `-e`; old releases know only the next one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from .._core.names import full_pci
from .._core.run import MISSING, CommandRunner, ToolError

_TOOLS = ("mlxconfig", "mstconfig")
_HEADER = re.compile(r"\s*Configurations:(.*)\Z")
_FIELD = re.compile(r"(Device type|Name|Description|Device):\s+(.*\S)")
_PARAMETER = re.compile(r"(?=\S*_|[A-Z0-9]+\Z)[A-Z][A-Za-z0-9_]*(\[\d+(\.\.\d+)?\])?\Z")
_VALUE = re.compile(r"(.*)\((-?(?:0x[0-9A-Fa-f]+|\d+))\)\Z")
# Prefixes of a name: the value differs from the factory's, and the setting is read only.
_MARKS = ("*", "RO")

# Settings that adapters show only once this one is on (NVIDIA network operator, nic-configuration).
UNLOCK = "ADVANCED_PCI_SETTINGS"
_HIDDEN = ("MAX_ACC_OUT_READ", "PCI_WR_ORDERING", "PCIE_CREDIT_TOKEN_TIMEOUT")


@dataclass(frozen=True)
class Parameter:
    """A setting; `default` and `current` are None where the tool printed only the next value."""

    name: str
    default: str | None
    current: str | None
    next: str
    read_only: bool = False


@dataclass(frozen=True)
class Query:
    """The settings of one adapter."""

    fields: Mapping[str, str]
    parameters: Mapping[str, Parameter]

    @property
    def pending(self) -> list[Parameter] | None:
        """What the next start of the firmware changes; None where the tool does not tell."""
        if any(item.current is None for item in self.parameters.values()):
            return None
        return [item for item in self.parameters.values() if not same(item.current, item.next)]


@dataclass(frozen=True)
class Change:
    """A setting that is to be another one at the next start."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Plan:
    """What would be set, and what cannot be judged before the adapter was reset."""

    changes: tuple[Change, ...]
    deferred: tuple[str, ...] = ()


def parse_query(text: str) -> Query:
    """Return what `mlxconfig -d DEVICE [-e] query` printed; ValueError where it is truncated."""
    fields: dict[str, str] = {}
    parameters: dict[str, Parameter] = {}
    columns = 0
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            columns = 3 if "Default" in header.group(1) else 1
            continue
        words = line.split()
        marks = [word for word in words[:2] if word in _MARKS]
        words = words[len(marks) :]
        if not columns:
            found = _FIELD.match(line.strip())
            if found:
                fields[found.group(1)] = found.group(2)
        elif words and _PARAMETER.match(words[0]) and len(words) > 1:
            if len(words) != columns + 1:
                raise ValueError(
                    f"`{line.strip()}` has {len(words) - 1} values where the head of the table "
                    f"names {columns}"
                )
            values = words[1:]
            parameters[words[0]] = Parameter(
                name=words[0],
                default=values[0] if columns == 3 else None,
                current=values[1] if columns == 3 else None,
                next=values[-1],
                read_only="RO" in marks,
            )
    if not parameters:
        raise ValueError("the answer has no table of settings")
    return Query(fields, parameters)


def _forms(value: Any) -> tuple[str, int | None]:
    """Return a value as its name and its number: True(1), IB(1), 0x10, 8."""
    if isinstance(value, bool):
        return str(value).lower(), int(value)
    text = str(value).strip()
    found = _VALUE.match(text)
    name, digits = (found.group(1), found.group(2)) if found else (text, text)
    try:
        number: int | None = int(digits, 0)
    except ValueError:
        number = {"true": 1, "false": 0}.get(name.lower())
    return name.lower(), number


def same(one: Any, two: Any) -> bool:
    """Return whether two values are the same, written as names, numbers or both."""
    name_one, number_one = _forms(one)
    name_two, number_two = _forms(two)
    if number_one is not None and number_two is not None:
        return number_one == number_two
    return name_one == name_two


def plan(query: Query, wanted: Mapping[str, Any]) -> Plan:
    """Return what is to be set; ValueError names every setting that the adapter cannot take."""
    problems: list[str] = []
    changes: list[Change] = []
    deferred: list[str] = []
    unlocks = UNLOCK in wanted and same(wanted[UNLOCK], True)
    for name, value in wanted.items():
        found = query.parameters.get(name)
        if found is None:
            if name in _HIDDEN and unlocks:
                deferred.append(name)
            elif name in _HIDDEN and UNLOCK in query.parameters:
                problems.append(f"{name}: hidden; set {UNLOCK}: true as well")
            else:
                problems.append(
                    f"{name}: not among the {len(query.parameters)} settings of this adapter; "
                    f"compare with `mlxconfig query`{_alike(name, query)}"
                )
        elif found.next.startswith("Array["):
            problems.append(f"{name}: is an array; write {name}[0] and so on")
        elif not same(found.next, value):
            if found.read_only:
                problems.append(f"{name}: read only, and {found.next}")
            changes.append(Change(name, found.next, _written(value, found)))
    if problems:
        raise ValueError("; ".join(problems))
    return Plan(tuple(changes), tuple(deferred))


def _alike(name: str, query: Query) -> str:
    close = [other for other in query.parameters if other.startswith(name.rstrip("0123456789"))]
    return f" (it has {', '.join(close[:3])})" if close else ""


def _written(value: Any, found: Parameter) -> str:
    """Return the value for the command line: the number, wherever one of the columns tells it."""
    name, number = _forms(value)
    for known in (found.default, found.current, found.next):
        if known is not None and number is None and _forms(known)[0] == name:
            number = _forms(known)[1]
    return str(value) if number is None else str(number)


def load(run: CommandRunner, device: str, timeout_s: float) -> tuple[str, Query]:
    """Return the tool that answered and the settings of an adapter."""
    for tool in _TOOLS:
        for verbose in (["-e"], []):
            answer = run([tool, "-d", device, *verbose, "query"], timeout_s=timeout_s)
            if answer.outcome == MISSING:
                break
            if answer.ok:
                try:
                    return tool, parse_query(answer.out)
                except ValueError as error:
                    raise ToolError(f"{device}: {tool}: {error}") from error
            # A release without -e prints an error; any other error would come again.
            if not verbose or "-e" not in answer.text:
                raise ToolError(f"{device}: {answer.describe(2)}")
    raise ToolError(f"neither {' nor '.join(_TOOLS)} is installed; install mstflint", absent=True)


def plans(queries: Mapping[str, Query], settings: Mapping[str, Any]) -> dict[str, Plan]:
    """Return what is to be set on each adapter; ToolError names everything that cannot be."""
    found: dict[str, Plan] = {}
    problems: list[str] = []
    for device, query in queries.items():
        try:
            found[device] = plan(query, settings)
        except ValueError as error:
            problems.append(f"{device}: {error}")
    if problems:
        raise ToolError("\n".join(problems))
    return found


def apply(run: CommandRunner, tool: str, device: str, wanted: Plan, timeout_s: float) -> Query:
    """Set, and read back what is stored; ToolError where the adapter did not take it."""
    words = [f"{change.name}={change.after}" for change in wanted.changes]
    answer = run([tool, "-d", device, "--yes", "set", *words], timeout_s=timeout_s)
    if not answer.ok:
        raise ToolError(f"{device}: {answer.describe(3)}")
    _tool, query = load(run, device, timeout_s)
    left = plan(query, {change.name: change.after for change in wanted.changes})
    if left.changes:
        names = ", ".join(f"{change.name} is {change.before}" for change in left.changes)
        raise ToolError(f"{device}: {tool} reports success, but {names}")
    return query


def _row(device: str, setting: str, before: Any, after: Any) -> dict[str, Any]:
    return {"device": device, "setting": setting, "before": before, "after": after}


def _text(rows: Sequence[Mapping[str, Any]], side: str) -> str:
    return "".join(f"{row['device']} {row['setting']} = {row[side]}\n" for row in rows)


def bring_about(run: CommandRunner, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Load, plan, apply; return what the module returns. Raises ToolError."""
    timeout_s = params["timeout_s"]
    loaded = {
        device: load(run, device, timeout_s)
        for device in dict.fromkeys(full_pci(device) for device in params["devices"])
    }
    queries = {device: query for device, (_tool, query) in loaded.items()}
    found = plans(queries, params["settings"])
    if params["set_allowed"] and not check_mode:
        for device, wanted in found.items():
            if wanted.changes:
                queries[device] = apply(run, loaded[device][0], device, wanted, timeout_s)
    differences = [
        _row(device, change.name, change.before, change.after)
        for device, wanted in found.items()
        for change in wanted.changes
    ]
    waiting: dict[str, list[Parameter] | None] = {
        device: query.pending for device, query in queries.items()
    }
    result: dict[str, Any] = {
        "changed": bool(differences) and params["set_allowed"],
        "differences": differences,
        "allowed": params["set_allowed"],
        "reset_pending": [
            _row(device, item.name, item.current, item.next)
            for device, items in waiting.items()
            for item in items or []
        ],
        "reset_unknown": [device for device, items in waiting.items() if items is None],
        "deferred": [
            f"{device} {name}" for device, wanted in found.items() for name in wanted.deferred
        ],
    }
    if differences and not params["set_allowed"]:
        result["msg"] = f"{len(differences)} settings differ and are not set without set_allowed"
    return result


def diff_of(differences: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings before and after, in Ansible's form."""
    return {side: _text(differences, side) for side in ("before", "after")}
