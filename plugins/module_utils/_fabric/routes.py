# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which cables a packet takes from one rail to another. Pure.

A directed link is named by the end that sends into it, so a route is a tuple of ends: the rail
itself, then the port by which each switch sends on. Routes come from the forwarding tables that the
subnet manager has programmed (dump_fts, ibroute), or are computed from the plan where there is not
a dump; the latter is what a subnet manager may do, not what it did.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Callable, Iterator

from .._ib.descriptions import host_and_device, switch_name
from .model import NODE_LEAF, Cable, CablePlan, End, rail_end, switch_end

DUMPED = "forwarding tables"
COMPUTED = "computed from the plan"
# Nothing to be wrong about: a switch delivers to its own ports directly.
WITHIN_SWITCHES = "within each leaf switch"

# Switch and destination -> the port that the switch sends by, None where it knows none.
NextPort = Callable[[str, End], "int | None"]

_HEADER = re.compile(
    r"^Unicast lids \[(?P<first>\w+)-(?P<last>\w+)\] of switch .*?"
    r"guid 0x(?P<guid>[0-9a-fA-F]{16}) \((?P<name>.*)\):\s*$"
)
_ROW = re.compile(
    r"^0x(?P<lid>[0-9a-fA-F]{4}) (?P<port>\d{3})\s*(?::\s*\((?P<kind>[A-Za-z ]+?) portguid "
    r"0x(?P<guid>[0-9a-fA-F]{16}): '(?P<name>.*)'\))?\s*$"
)
_TRAILER = re.compile(r"^(?P<count>\d+) (?:valid )?lids dumped\s*$")
_TITLES = re.compile(r"^\s+(Lid\s+Out\s+Destination|Port\s+Info)\s*$")
# What a table holds for a LID that leads nowhere.
_NO_PORT = 255


class NoRouteError(Exception):
    """A packet from one rail to another does not arrive; the text says where it ends."""


@dataclass
class Tables:
    """Forwarding tables as a tool printed them, by GUID and LID.

    `complaints` are sentences; with one of them the tables may not be whole.
    """

    names: dict[str, str] = field(default_factory=dict)
    ports: dict[str, dict[int, int]] = field(default_factory=dict)
    # LID -> (GUID of the port, description)
    lids: dict[int, tuple[str, str]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def read_tables(text: str) -> Tables:
    """Return the tables in the output of dump_fts, or of ibroute for one or several switches."""
    tables = Tables()
    table: dict[int, int] | None = None
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        row = _ROW.match(line)
        trailer = _TRAILER.match(line)
        if header:
            if table is not None:
                tables.complaints.append(f"the table of {name} has no end")
            name, guid = header["name"], header["guid"].lower()
            table = tables.ports.setdefault(guid, {})
            tables.names[guid] = name
        elif row and table is not None:
            lid, port = int(row["lid"], 16), int(row["port"])
            if port != _NO_PORT:
                table[lid] = port
            if row["guid"]:
                tables.lids[lid] = (row["guid"].lower(), row["name"])
        elif trailer and table is not None:
            if int(trailer["count"]) != len(table):
                tables.complaints.append(
                    f"the table of {name} has {len(table)} rows, but says {trailer['count']}"
                )
            table = None
        elif line.strip() and not _TITLES.match(line):
            tables.complaints.append(f"line {number} is not a row of a table: {line.strip()[:80]}")
    if table is not None:
        tables.complaints.append(f"the table of {name} has no end")
    if not tables.ports:
        tables.complaints.append("there is no forwarding table in it")
    return tables


class Routes:
    """Routes between the rails of a plan; `source` says where they come from."""

    def __init__(self, plan: CablePlan, next_port: NextPort, source: str) -> None:
        self.plan = plan
        self.source = source
        self.by_end: dict[End, Cable] = plan.by_end()
        self._next_port = next_port
        self._tails: dict[tuple[str, End], tuple[End, ...] | NoRouteError] = {}

    def leaf_port(self, rail: End) -> End:
        """Return the switch port that a rail is plugged into."""
        cable = self.by_end.get(rail)
        if cable is None:
            raise NoRouteError(f"{rail} has no cable")
        return cable.other(rail)

    def route(self, source: End, target: End) -> tuple[End, ...]:
        """Return the directed links in their order, nothing from a rail to itself.

        NoRouteError where a packet would not arrive.
        """
        if source == target:
            return ()
        return (source, *self.tail(self.leaf_port(source).host, target))

    def tail(self, switch: str, target: End) -> tuple[End, ...]:
        """Return the directed links from a switch on."""
        known = self._tails.get((switch, target))
        if known is None:
            try:
                known = self._walk(switch, target)
            except NoRouteError as error:
                known = error
            self._tails[switch, target] = known
        if isinstance(known, NoRouteError):
            raise known
        return known

    def next_end(self, switch: str, target: End) -> End | None:
        """Return the port by which a switch sends to a rail; None without one that has a cable."""
        port = self._next_port(switch, target)
        end = None if port is None else switch_end(switch, port)
        return end if end in self.by_end else None

    def _walk(self, switch: str, target: End) -> tuple[End, ...]:
        path: list[End] = []
        seen = [switch]
        while True:
            port = self._next_port(switch, target)
            if port is None:
                raise NoRouteError(f"{switch} has no route to {target}")
            end = switch_end(switch, port)
            path.append(end)
            cable = self.by_end.get(end)
            if cable is None:
                raise NoRouteError(f"{switch} sends to {target} by port {port}, which has no cable")
            far = cable.other(end)
            if far == target:
                return tuple(path)
            if not far.is_switch:
                raise NoRouteError(f"{switch} sends to {target} by port {port}, where {far} is")
            switch = far.host
            if switch in seen:
                raise NoRouteError(f"a loop: {' - '.join([*seen, switch])} on the way to {target}")
            seen.append(switch)

    def problems(self) -> Iterator[str]:
        """Yield each rail that cannot be reached, once, from which leaf switches and why."""
        rails = [rail_end(*key) for key in sorted(self.plan.hcas)]
        leaves = sorted({self.leaf_port(rail).host for rail in rails if rail in self.by_end})
        for rail in rails:
            wrong = []
            for leaf in leaves:
                try:
                    self.tail(leaf, rail)
                except NoRouteError as error:
                    wrong.append(str(error))
            if wrong:
                yield f"{rail} is not reached from {len(wrong)} of {len(leaves)} leaves: {wrong[0]}"


def dumped_routes(plan: CablePlan, tables: Tables) -> Routes:
    """Return the routes that are programmed.

    GUIDs of the plan and descriptions tell which device is which.
    """
    keys = _Keys(plan)
    lid_of: dict[End, int] = {}
    for lid in sorted(tables.lids, reverse=True):
        # With LMC a port has several LIDs; perftest uses the first.
        key = keys.find(*tables.lids[lid])
        if key is not None and key[1] >= 0:
            lid_of[rail_end(*key)] = lid
    by_switch: dict[str, dict[int, int]] = {}
    for guid, ports in tables.ports.items():
        key = keys.find(guid, tables.names[guid])
        if key is not None and key[1] < 0:
            by_switch[key[0]] = ports

    def next_port(switch: str, target: End) -> int | None:
        lid = lid_of.get(target)
        return None if lid is None else by_switch.get(switch, {}).get(lid)

    return Routes(plan, next_port, DUMPED)


class _Keys:
    def __init__(self, plan: CablePlan) -> None:
        self.by_guid: dict[str, tuple[str, int]] = {}
        self.by_name: dict[str, tuple[str, int]] = {}
        for key, hca in plan.hcas.items():
            if hca.guid:
                self.by_guid[hca.guid] = key
            for device in hca.devices:
                self.by_name[f"{hca.node} {device}"] = key
        for name, switch in plan.switches.items():
            if switch.guid:
                self.by_guid[switch.guid] = (name, -1)
            self.by_name[name] = (name, -1)

    def find(self, guid: str, description: str) -> tuple[str, int] | None:
        """Return the planned key of a device by the GUID of its port, or by its description."""
        if guid in self.by_guid:
            return self.by_guid[guid]
        named = host_and_device(description)
        for name in (f"{named.host} {named.device}", switch_name(description)):
            if name in self.by_name:
                return self.by_name[name]
        # Of some adapters the port has the next GUID after the adapter's own.
        found = self.by_guid.get(f"{max(1, int(guid, 16)) - 1:016x}")
        return found if found and found[1] >= 0 else None


def routes_within_switches(plan: CablePlan) -> Routes:
    """Return the routes between adapters of one switch; to all others there is none.

    Ethernet switches choose among equal ways by a hash of addresses and ports, which cannot be
    predicted. Of what stays inside a switch, the way is certain: its plan has no other cables.
    """
    cables = tuple(cable for cable in plan.cables if cable.kind == NODE_LEAF)
    leaves = {end.host for cable in cables for end in (cable.a, cable.b) if end.is_switch}
    switches = {name: switch for name, switch in plan.switches.items() if name in leaves}
    own = replace(plan, cables=cables, switches=switches)
    return Routes(own, _DModK(own).next_port, WITHIN_SWITCHES)


def computed_routes(plan: CablePlan) -> Routes:
    """Return shortest routes by destination, spread as a fat tree's are (d-mod-k).

    A destination has one way down, so that all traffic to it takes the same cables there, and a
    leaf's uplinks are shared out among the destinations by their place on their own leaf.
    """
    return Routes(plan, _DModK(plan).next_port, COMPUTED)


class _DModK:
    def __init__(self, plan: CablePlan) -> None:
        self.by_end = plan.by_end()
        self.links: dict[str, list[tuple[int, str]]] = {name: [] for name in plan.switches}
        for cable in plan.cables:
            for end, far in ((cable.a, cable.b), (cable.b, cable.a)):
                if end.is_switch and far.is_switch:
                    self.links[end.host].append((end.port, far.host))
        for links in self.links.values():
            links.sort()
        self.tier = {name: switch.tier for name, switch in plan.switches.items()}
        # Above the leaves a destination counts by its leaf, those of a rail one after the other.
        ordered = sorted(
            plan.switches.values(), key=lambda one: (one.rail or 0, one.unit or 0, one.name)
        )
        leaves = [switch.name for switch in ordered if switch.tier == "leaf"]
        self.ordinal = {name: index for index, name in enumerate(leaves)}
        self._targets: dict[End, tuple[End, int, int, End] | None] = {}
        self._distances: dict[str, dict[str, int]] = {}
        self._options: dict[tuple[str, str], list[int]] = {}

    def next_port(self, switch: str, target: End) -> int | None:
        """Return the port by which a switch sends to a rail."""
        if target not in self._targets:
            self._targets[target] = self._describe(target)
        known = self._targets[target]
        if known is None:
            return None
        last, place, above, down = known
        if switch == last.host:
            return last.port
        if down.host == switch and self.tier[switch] != "leaf":
            return down.port
        options = self._shortest(switch, last.host)
        if not options:
            return None
        return options[(place if self.tier[switch] == "leaf" else above) % len(options)]

    def _describe(self, target: End) -> tuple[End, int, int, End] | None:
        """Return a rail's port, its place there and above, and the port above that leads to it."""
        cable = self.by_end.get(target)
        if cable is None:
            return None
        last = cable.other(target)
        place = last.port - 1
        uplinks = self.links[last.host]
        if not uplinks:
            return last, place, 0, last
        port, far = uplinks[place % len(uplinks)]
        uplink = switch_end(last.host, port)
        # A destination for each cable from this leaf to this switch, then those of the next leaf.
        parallel = [one for one, other in uplinks if other == far]
        above = self.ordinal.get(last.host, 0) * len(parallel) + parallel.index(port)
        return last, place, above, self.by_end[uplink].other(uplink)

    def _shortest(self, switch: str, leaf: str) -> list[int]:
        known = self._options.get((switch, leaf))
        if known is None:
            away = self._away(leaf)
            nearer = away.get(switch, 0) - 1
            known = [port for port, far in self.links[switch] if away.get(far) == nearer]
            self._options[switch, leaf] = known
        return known

    def _away(self, leaf: str) -> dict[str, int]:
        """Return how many hops each switch is away from a leaf."""
        known = self._distances.get(leaf)
        if known is None:
            known = {leaf: 0}
            queue = deque([leaf])
            while queue:
                switch = queue.popleft()
                for _port, far in self.links[switch]:
                    if far not in known:
                        known[far] = known[switch] + 1
                        queue.append(far)
            self._distances[leaf] = known
        return known
