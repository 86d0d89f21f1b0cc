# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The cable plan as CSV: our own form, written and read, and how every row is judged. Pure.

A row is one cable. Read are the columns that say which end is where; rack, cage and label are for
people, and a list may have its own columns.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from typing import Any, Callable, Iterable, Iterator, Mapping

from .._core.schema import Problem, closest, words
from .model import (
    LEAF_LEAF,
    LEAF_SPINE,
    NODE_LEAF,
    SPINE_CORE,
    Cable,
    CablePlan,
    End,
    Place,
    cage_of,
    near_text,
    rail_end,
    switch_end,
)

# The kind of a row that keeps a port for something outside the inventory.
RESERVED = "reserved"

COLUMNS = (
    "kind",
    "from",
    "from_rail",
    "from_port",
    "from_pci",
    "from_cage",
    "from_rack",
    "from_unit",
    "from_guid",
    "to",
    "to_port",
    "to_cage",
    "to_rack",
    "to_unit",
    "to_guid",
    "rate_gbps",
    "from_label",
    "to_label",
)
_NEEDED = ("from", "to", "to_port")

_TIERS = ("leaf", "spine", "core")
_KINDS = {
    ("leaf", "leaf"): LEAF_LEAF,
    ("leaf", "spine"): LEAF_SPINE,
    ("spine", "core"): SPINE_CORE,
}
# What cluster_fabric.rate_gbps may be.
_RATES = (100, 200, 400, 800)
_GUID = re.compile(r"(0x)?[0-9A-Fa-f]{16}|([0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4}")

_NO_PLACE = Place()

# More would not be read, and a list in the wrong form is wrong in each row.
_MOST_PROBLEMS = 20


def cables_csv(plan: CablePlan, places: Mapping[str, Place]) -> str:
    """Return the cable list. read_cables makes the same plan of it."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cable in plan.cables:
        near, far = near_text(plan, cable.a), near_text(plan, cable.b)
        lower, upper = (_end_columns(plan, end, places) for end in (cable.a, cable.b))
        labels = (f"{near} > {far}", f"{far} > {near}")
        writer.writerow((cable.kind, *lower, *_of_switch(upper), cable.rate_gbps, *labels))
    for end in plan.reserved:
        upper = _end_columns(plan, end, places)
        writer.writerow((RESERVED, *_NO_END, *_of_switch(upper), None, None, None))
    return stream.getvalue()


_NO_END = (None,) * 8


def _end_columns(plan: CablePlan, end: End, places: Mapping[str, Place]) -> tuple[Any, ...]:
    """Return host, rail, port, PCI address, cage, rack, rack unit and GUID; None for empty."""
    place = places.get(end.host, _NO_PLACE)
    where = (cage_of(plan, end), place.rack, place.rack_unit)
    if end.is_switch:
        return (end.host, None, end.port, None, *where, plan.switches[end.host].guid)
    hca = plan.hcas[end.host, end.rail]
    return (end.host, end.rail, None, hca.pci, *where, hca.guid)


def _of_switch(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the columns without those that only a node has."""
    host, _rail, port, _pci, *others = columns
    return (host, port, *others)


class Rows:
    """Takes in cables row by row and keeps what is wrong with them; both forms of CSV use it."""

    def __init__(self, devices: CablePlan, file: str) -> None:
        self.devices = devices
        self.file = file
        self.problems: list[Problem] = []
        self.cables: list[Cable] = []
        self.reserved: list[End] = list(devices.reserved)
        self.guids: dict[tuple[str, int], str] = {}
        self._lines: dict[End, int] = {}
        self._pairs: dict[frozenset[End], int] = {}
        self._owners: dict[str, tuple[str, int]] = {}
        for key, guid in _known_guids(devices):
            self._owners[guid] = key
        self._order = {name: index for index, name in enumerate(devices.switches)}
        self._nodes = {node for node, _rail in devices.hcas}
        self._exact: dict[str, str] = {
            name.lower(): name for name in [*devices.switches, *sorted(self._nodes)]
        }

    def wrong(self, line: int, column: str, wrong: str, remedy: str) -> None:
        """Note what is wrong in a column of a line."""
        self.problems.append(Problem(f"{self.file}:{line}:{column}", wrong, remedy))

    def host(self, line: int, column: str, text: str, switch_only: bool = False) -> str | None:
        """Return the name as the plan writes it, or note that nothing bears it."""
        name = self._exact.get(text.lower())
        if name is not None and (name in self.devices.switches or not switch_only):
            return name
        if not text:
            self.wrong(line, column, "empty", "write the name of a switch or node")
        elif name is not None:
            self.wrong(line, column, f"'{text}' is a node", "write the switch here")
        else:
            known = [*self.devices.switches, *(() if switch_only else self._nodes)]
            what = "switch" if switch_only else "node or switch"
            near = closest(text, known)
            remedy = f"write {near}" if near else f"write a {what} of the inventory"
            self.wrong(line, column, f"no {what} is called '{text}'", remedy)
        return None

    def port(self, line: int, column: str, switch: str, text: str) -> End | None:
        """Return the end at a switch, or note that it has no such port."""
        radix = self.devices.switches[switch].radix
        if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= radix:
            wrong = f"'{text}' is not a port of {switch}" if text else "empty"
            self.wrong(line, column, wrong, f"write a number from 1 to {radix}")
            return None
        return switch_end(switch, int(text))

    def rail(self, line: int, column: str, node: str, text: str) -> End | None:
        """Return the end at a node, or note that it has no such rail."""
        if re.fullmatch("[0-9]{1,2}", text) and (node, int(text)) in self.devices.hcas:
            return rail_end(node, int(text))
        rails = [rail for name, rail in self.devices.hcas if name == node]
        wrong = f"'{text}' is not a rail of {node}" if text else "empty"
        self.wrong(line, column, wrong, f"write a number from {min(rails)} to {max(rails)}")
        return None

    def reserve(self, line: int, end: End) -> None:
        """Keep a port free of the plan's cables."""
        # One that the inventory reserves is in the list, too.
        if end not in self.devices.reserved and self._free(line, "to_port", end):
            self.reserved.append(end)

    def add(self, line: int, one: End, two: End, columns: tuple[str, str], rate: int | None) -> str:
        """Take in a cable and return its kind, "" when it cannot be; the lower end goes first."""
        pair = frozenset((one, two))
        if pair in self._pairs:
            wrong = f"the cable of line {self._pairs[pair]} once more"
            self.wrong(line, columns[0], wrong, "leave one of the two lines")
            return ""
        lower, upper = sorted((one, two), key=self._height)
        kind = self._kind(lower, upper)
        if not kind:
            wrong = f"a cable from {self._what(one)} to {self._what(two)}"
            known = words(["node to leaf", *(" to ".join(pair) for pair in _KINDS)])
            self.wrong(line, columns[1], wrong, f"write one from {known}")
            return ""
        if not all(self._free(line, column, end) for column, end in zip(columns, (one, two))):
            return ""
        self._pairs[pair] = line
        self.cables.append(Cable(lower, upper, kind, rate or self._rate(lower)))
        return kind

    def _height(self, end: End) -> tuple[int, int]:
        if not end.is_switch:
            return (-1, 0)
        tier = self.devices.switches[end.host].tier
        return (_TIERS.index(tier), self._order[end.host])

    def _kind(self, lower: End, upper: End) -> str:
        if lower.host == upper.host:
            return ""
        if not lower.is_switch:
            leaf = upper.is_switch and self.devices.switches[upper.host].tier == "leaf"
            return NODE_LEAF if leaf else ""
        tiers = (self.devices.switches[lower.host].tier, self.devices.switches[upper.host].tier)
        return _KINDS.get(tiers, "")

    def _what(self, end: End) -> str:
        if not end.is_switch:
            return f"the node {end.host}"
        return f"the {self.devices.switches[end.host].tier} {end.host}"

    def _rate(self, lower: End) -> int:
        if not lower.is_switch:
            return self.devices.hcas[lower.host, lower.rail].rate_gbps
        return max((hca.rate_gbps for hca in self.devices.hcas.values()), default=_RATES[-1])

    def _free(self, line: int, column: str, end: End) -> bool:
        first = self._lines.setdefault(end, line)
        if first != line:
            wrong = f"{end} has the cable of line {first} already"
            self.wrong(line, column, wrong, "write where this cable ends")
        elif end in self.devices.reserved:
            wrong = f"{end} is one of reserved_ports in the inventory"
            self.wrong(line, column, wrong, "write another port here, or there")
            return False
        return first == line

    def guid(self, line: int, column: str, key: tuple[str, int], text: str) -> None:
        """Take in a device's GUID, which must not contradict the inventory or another line."""
        if not text:
            return
        if not _GUID.fullmatch(text):
            wrong = f"'{text}' is not a GUID"
            self.wrong(line, column, wrong, "write 16 hexadecimal digits, or leave it empty")
            return
        guid = text.lower().replace(":", "").replace("0x", "", 1).zfill(16)
        device = self.devices.hcas.get(key) or self.devices.switches.get(key[0])
        known = self.guids.setdefault(key, (device.guid if device else None) or guid)
        owner = self._owners.setdefault(guid, key)
        if known != guid:
            self.wrong(line, column, f"{guid}, but it was {known} before", f"write {known}")
        elif owner != key:
            wrong = f"{guid} is the GUID of {_name(owner)}"
            self.wrong(line, column, wrong, "write the one of this device")

    def plan(self) -> CablePlan | None:
        """Return the plan of all rows, None when something is wrong with them."""
        if not self.problems:
            self.problems.extend(self._bare())
        if not self.problems and not self.cables:
            remedy = "write a line for each cable"
            self.problems.append(Problem(self.file, "no cable in it", remedy))
        if len(self.problems) > _MOST_PROBLEMS:
            more = len(self.problems) - _MOST_PROBLEMS
            del self.problems[_MOST_PROBLEMS:]
            self.problems.append(Problem(self.file, f"{more} more mistakes", "correct these first"))
        if self.problems:
            return None
        return with_guids(
            dataclasses.replace(
                self.devices, cables=tuple(self.cables), reserved=tuple(sorted(self.reserved))
            ),
            self.guids,
        )

    def _bare(self) -> Iterator[Problem]:
        bare: dict[str, list[int]] = {}
        for node, rail in self.devices.hcas:
            if rail_end(node, rail) not in self._lines:
                bare.setdefault(node, []).append(rail)
        for node, rails in bare.items():
            which = f"rail {rails[0]}" if len(rails) == 1 else f"rails {words(rails, 'and')}"
            wrong = f"{which} of {node} {'has' if len(rails) == 1 else 'have'} no cable"
            yield Problem(self.file, wrong, "write a line for each")


def _name(key: tuple[str, int]) -> str:
    return key[0] if key[1] < 0 else f"{key[0]}/rail{key[1]}"


def _known_guids(plan: CablePlan) -> Iterator[tuple[tuple[str, int], str]]:
    for key, hca in plan.hcas.items():
        if hca.guid:
            yield key, hca.guid
    for name, switch in plan.switches.items():
        if switch.guid:
            yield (name, -1), switch.guid


def with_guids(plan: CablePlan, guids: Mapping[tuple[str, int], str]) -> CablePlan:
    """Return the plan with GUIDs by host and rail, -1 for switches; others stay as they are."""
    return dataclasses.replace(
        plan,
        hcas={
            key: dataclasses.replace(hca, guid=guids.get(key, hca.guid))
            for key, hca in plan.hcas.items()
        },
        switches={
            name: dataclasses.replace(switch, guid=guids.get((name, -1), switch.guid))
            for name, switch in plan.switches.items()
        },
    )


Take = Callable[[Rows, int, Mapping[str, str]], None]


def take_table(
    rows: Rows, text: str, needed: Iterable[str], column_of: Callable[[str], str], take: Take
) -> None:
    """Read the table and give each of its lines to `take`, with the columns by name.

    column_of makes a column's name of what is in the header.
    """
    header: list[str] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            line = reader.line_num
            blank = not any(cell.strip() for cell in cells)
            if blank or (cells[0].startswith("#") and not is_ufm(",".join(cells))):
                continue
            if not header:
                header = [column_of(cell.strip()) for cell in cells]
                if not _valid_header(rows, line, header, list(needed)):
                    return
            elif len(cells) != len(header):
                wrong = f"{len(cells)} values for {len(header)} columns"
                rows.problems.append(
                    Problem(f"{rows.file}:{line}", wrong, "write one for each, empty ones too")
                )
            else:
                take(rows, line, {name: cell.strip() for name, cell in zip(header, cells)})
    except csv.Error as exc:
        where = f"{rows.file}:{reader.line_num}"
        rows.problems.append(
            Problem(where, f"is not CSV ({exc})", "correct the quotes of this line")
        )
    if not header and not rows.problems:
        remedy = "write a line with the names of the columns, and one for each cable"
        rows.problems.append(Problem(rows.file, "empty", remedy))


def _valid_header(rows: Rows, line: int, header: list[str], needed: list[str]) -> bool:
    where = f"{rows.file}:{line}"
    if len(header) == 1 and re.search(r"[;\t]", header[0]):
        rows.problems.append(Problem(where, "columns are not separated by commas", "write commas"))
        return False
    for name in sorted({name for name in header if name and header.count(name) > 1}):
        wrong = f"the column '{name}' stands here twice"
        rows.problems.append(Problem(where, wrong, "leave one of the two"))
    for name in needed:
        if name not in header:
            near = closest(name, [item for item in header if item], 0.8)
            remedy = f"write it instead of '{near}'" if near else "write " + ",".join(needed)
            rows.problems.append(Problem(where, f"the column '{name}' is missing", remedy))
    return not rows.problems


def is_ufm(text: str) -> bool:
    """Return whether the text has the header of UFM's form, a line that begins with #."""
    return re.search(r"(?im)^[^\n]*startdevice\s*,", text) is not None


def take_own(rows: Rows, text: str) -> None:
    """Take in our own list form."""
    take_table(rows, text, _NEEDED, str.lower, _take_row)


def _take_row(rows: Rows, line: int, cells: Mapping[str, str]) -> None:
    to = rows.host(line, "to", cells["to"], switch_only=True)
    upper = to and rows.port(line, "to_port", to, cells["to_port"])
    kind = cells.get("kind", "")
    if kind == RESERVED:
        if upper:
            rows.reserve(line, upper)
        return
    lower, column = _lower(rows, line, cells)
    rate = cells.get("rate_gbps", "")
    if rate and rate not in map(str, _RATES):
        rows.wrong(line, "rate_gbps", f"'{rate}' is not a rate", f"write {words(_RATES)}")
        return
    if lower is None or not upper:
        return
    found = rows.add(line, lower, upper, (column, "to_port"), int(rate) if rate else None)
    if kind and found and kind != found:
        rows.wrong(line, "kind", f"'{kind}', but this is {found}", f"write {found}")
    rows.guid(line, "from_guid", (lower.host, lower.rail), cells.get("from_guid", ""))
    rows.guid(line, "to_guid", (upper.host, -1), cells.get("to_guid", ""))


def _lower(rows: Rows, line: int, cells: Mapping[str, str]) -> tuple[End | None, str]:
    """Return the end that the row begins with, and the column that says where on its host."""
    host = rows.host(line, "from", cells["from"])
    if host is None:
        return None, "from"
    if host in rows.devices.switches:
        return rows.port(line, "from_port", host, cells.get("from_port", "")), "from_port"
    end = rows.rail(line, "from_rail", host, cells.get("from_rail", ""))
    pci = cells.get("from_pci", "").lower()
    known = rows.devices.hcas[host, end.rail].pci if end else None
    if pci and known and pci not in (known, known.split(":", 1)[1]):
        wrong = f"{pci}, but the profile has rail {cells['from_rail']} at {known}"
        rows.wrong(line, "from_pci", wrong, "correct the rail or the address")
    return end, "from_rail"
