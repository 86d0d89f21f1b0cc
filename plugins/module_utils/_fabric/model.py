# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The InfiniBand fabric twice: as it is planned, with racks and cages, and as a sweep found it.

The plan speaks of hosts, rails and ports; a sweep speaks of GUIDs and descriptions. What joins the
two is in _fabric/match.py; nothing else may guess which device is which.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping

from .._core.files import text_of_option
from .._core.run import ToolError

NODE_LEAF = "node-leaf"
LEAF_SPINE = "leaf-spine"
SPINE_CORE = "spine-core"
# Between the two switches of a BasePOD.
LEAF_LEAF = "leaf-leaf"
VERSION = 1
# From this many ports on, a switch has two of them in a cage: 64 in 32 cages (QM9700), 144 in 72.
_TWIN_PORTS = 64
# Gb/s and ports of the QM9700 with NDR200: each port of its 32 cages is divided once more.
NDR200 = (200, 128)


@dataclass(frozen=True, order=True)
class End:
    """One end of a planned cable: a rail of a node, or a port of a switch.

    `port` is the number the fabric knows it by: 1 for every rail, since each is its own HCA.
    """

    host: str
    rail: int
    port: int

    # Ends and cables are keys of most of what is worked out about a fabric, millions of times for a
    # large one: each works out its hash once. A hash of text is good in its own process only, so
    # copies for others begin again.
    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.host, self.rail, self.port)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[Any, ...]:
        return End, (self.host, self.rail, self.port)

    @property
    def is_switch(self) -> bool:
        """Switches have no rail."""
        return self.rail < 0

    def __str__(self) -> str:
        return f"{self.host}/{self.port}" if self.is_switch else f"{self.host}/rail{self.rail}"


def switch_end(name: str, port: int) -> End:
    """Return the end of a cable at a switch."""
    return End(name, -1, port)


def rail_end(node: str, rail: int) -> End:
    """Return the end of a cable at a node."""
    return End(node, rail, 1)


@dataclass(frozen=True, order=True)
class Cable:
    """A planned cable. For node-leaf cables `a` is the node; otherwise `a` is the lower switch."""

    a: End
    b: End
    kind: str
    rate_gbps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.a, self.b)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[Any, ...]:
        return Cable, (self.a, self.b, self.kind, self.rate_gbps)

    @property
    def subject(self) -> str:
        """The name by which records speak of it."""
        return f"cable:{self.a}--{self.b}"

    def other(self, end: End) -> End:
        """Return the far end; ValueError if `end` is not an end of this cable."""
        if end == self.a:
            return self.b
        if end == self.b:
            return self.a
        raise ValueError(f"{end} is not an end of {self.subject}")


@dataclass(frozen=True)
class PlannedHca:
    """One rail of one node; what is None is not known before the first sweep."""

    node: str
    rail: int
    guid: str | None  # 16 hexadecimal digits without 0x, of the port or of the node
    pci: str | None
    cage: str | None
    cage_port: int | None
    # Names the RDMA device may have: the role's own first, then that of an unnamed device.
    devices: tuple[str, ...]
    rate_gbps: int


@dataclass(frozen=True)
class PlannedSwitch:
    """One switch of the plan."""

    name: str
    tier: str  # leaf, spine or core
    unit: int | None  # scalable unit of a leaf
    rail: int | None  # rail of a leaf, None where it serves several
    radix: int
    guid: str | None
    # 0: as its number of ports says, as in plans of earlier releases.
    ports_per_cage: int = 0

    @property
    def per_cage(self) -> int:
        """Return how many of its ports are in a cage."""
        return self.ports_per_cage or ports_per_cage(self.radix)

    def cage(self, port: int) -> int:
        """Return the number of the cage that a port is in."""
        return (port - 1) // self.per_cage + 1

    def label(self, port: int) -> str:
        """Return what is next to a port."""
        return cage_label(port, self.per_cage)


@dataclass(frozen=True)
class CablePlan:
    """Every device and every cable that must be there."""

    hcas: Mapping[tuple[str, int], PlannedHca]
    switches: Mapping[str, PlannedSwitch]
    cables: tuple[Cable, ...]
    # Ports of switches that something outside the inventory hangs on: UFM. The plan does not say
    # what is there, and so nothing there is unexpected.
    reserved: tuple[End, ...] = ()
    # Cables between reserved ports that may be there or not; one that is there has its rate.
    spare: tuple[Cable, ...] = ()

    def by_end(self) -> dict[End, Cable]:
        """Return the cable at each end."""
        return {end: cable for cable in self.cables for end in (cable.a, cable.b)}


CA = "ca"
SWITCH = "switch"


@dataclass
class FoundPort:
    """A port as a sweep found it; None is what the tool did not say."""

    number: int
    guid: str | None = None
    lid: int | None = None
    # (GUID of the device, port number) of the other end
    peer: tuple[str, int] | None = None
    width: str | None = None  # "4x"
    speed: str | None = None  # "NDR"
    state: str | None = None  # "Active"
    physical_state: str | None = None  # "LinkUp"


@dataclass
class FoundDevice:
    """A switch or a channel adapter as a sweep found it."""

    guid: str  # node GUID: 16 hexadecimal digits, lower case
    kind: str  # CA or SWITCH
    description: str
    port_count: int
    ports: dict[int, FoundPort] = field(default_factory=dict)
    device_id: str | None = None
    system_guid: str | None = None
    lid: int | None = None

    @property
    def recorded(self) -> bool:
        """Return whether the sweep has a record of the device itself, not only of its links."""
        return self.port_count > 0


@dataclass
class Sweep:
    """What one discovery of the subnet found.

    `complaints` are things that make it doubtful whether this is all: each is a sentence. A sweep
    with complaints cannot prove that something is absent.
    """

    devices: dict[str, FoundDevice] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    # GUID of the device that the sweep began at
    start: str | None = None
    # Directed routes, as the ports after the leading 0, at whose end something does not answer.
    silent: list[tuple[int, ...]] = field(default_factory=list)
    # GUIDs that more than one port claims; only one of them is among the devices.
    duplicate_guids: list[str] = field(default_factory=list)
    # The answer is not whole: truncated, or its tool was killed or ran into its limit.
    partial: bool = False

    def links(self) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        """Return each link once, the smaller end first."""
        found = set()
        for device in self.devices.values():
            for port in device.ports.values():
                if port.peer is not None:
                    one, two = (device.guid, port.number), port.peer
                    found.add((min(one, two), max(one, two)))
        return sorted(found)


# Gb/s of a 4x link by the name of its speed (IBTA; XDR from InfiniBand release 1.7).
RATE_4X_GBPS = {
    "SDR": 10,
    "DDR": 20,
    "QDR": 40,
    "FDR10": 40,
    "FDR": 56,
    "EDR": 100,
    "HDR": 200,
    "NDR": 400,
    "XDR": 800,
}


def rate_gbps(width: str | None, speed: str | None) -> float | None:
    """Return the rate of a link in Gb/s, or None where either part is not known.

    A link of Ethernet has "" as its width, and a speed such as 400GbE.
    """
    if width == "" and speed is not None and speed.endswith("GbE"):
        return float(speed[:-3])
    if width is None or speed is None or speed not in RATE_4X_GBPS:
        return None
    lanes = width.rstrip("xX")
    return RATE_4X_GBPS[speed] * int(lanes) / 4 if lanes.isdigit() else None


def plan_from_data(data: Mapping[str, Any]) -> CablePlan:
    """Return the plan that `plan_to_data` wrote; ValueError, KeyError or TypeError for another."""
    hcas = [PlannedHca(**{**item, "devices": tuple(item["devices"])}) for item in data["hcas"]]
    switches = [PlannedSwitch(**item) for item in data["switches"]]
    plan = CablePlan(
        hcas={(hca.node, hca.rail): hca for hca in hcas},
        switches={switch.name: switch for switch in switches},
        cables=_cables_from(data["cables"]),
        reserved=tuple(End(*item) for item in data["reserved"]),
        # Plans of earlier releases have none.
        spare=_cables_from(data.get("spare", ())),
    )
    if data["version"] != VERSION:
        raise ValueError(f"version is {data['version']!r}, and {VERSION} can be read")
    devices = {*plan.switches, *plan.hcas}
    places = [(f"cables[{number}]", cable) for number, cable in enumerate(plan.cables)]
    places += [(f"spare[{number}]", cable) for number, cable in enumerate(plan.spare)]
    for where, cable in places:
        if isinstance(cable.rate_gbps, bool) or not isinstance(cable.rate_gbps, (int, float)):
            raise ValueError(f"{where}.rate_gbps: {cable.rate_gbps!r} is not a number")
        for side, end in (("a", cable.a), ("b", cable.b)):
            if (end.host if end.is_switch else (end.host, end.rail)) not in devices:
                raise ValueError(f"{where}.{side}: {end} is not among the devices")
    return plan


def _cables_from(data: Iterable[Mapping[str, Any]]) -> tuple[Cable, ...]:
    return tuple(
        Cable(End(*item["a"]), End(*item["b"]), item["kind"], item["rate_gbps"]) for item in data
    )


def _cables_to(cables: Iterable[Cable]) -> list[dict[str, Any]]:
    return [
        {
            "a": [cable.a.host, cable.a.rail, cable.a.port],
            "b": [cable.b.host, cable.b.rail, cable.b.port],
            "kind": cable.kind,
            "rate_gbps": cable.rate_gbps,
        }
        for cable in cables
    ]


def plan_to_data(plan: CablePlan) -> dict[str, Any]:
    """Return mappings, lists and scalars, for JSON."""

    def plain(items: Iterable[Any]) -> list[dict[str, Any]]:
        return [dict(vars(item)) for item in items]

    return {
        "version": VERSION,
        "hcas": [{**item, "devices": list(item["devices"])} for item in plain(plan.hcas.values())],
        "switches": plain(plan.switches.values()),
        "cables": _cables_to(plan.cables),
        "reserved": [[end.host, end.rail, end.port] for end in plan.reserved],
        "spare": _cables_to(plan.spare),
    }


def load_plan(params: Mapping[str, Any]) -> CablePlan:
    """Return the plan of the options plan and plan_file; ToolError for anything else."""
    where, data = "plan", params["plan"]
    if params["plan_file"]:
        where = f"plan_file: {params['plan_file']}"
        try:
            data = json.loads(text_of_option(params["plan_file"], "plan_file"))
        except ValueError as error:
            raise ToolError(
                f"{where} is not JSON: {error}; give cables.json of the plan"
            ) from error
    try:
        return plan_from_data(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ToolError(
            f"{where} is not a cable plan ({type(error).__name__}: {error}); give cables.json, "
            "which "
            "check_inventory writes"
        ) from error


@dataclass(frozen=True)
class Place:
    """Where a machine stands; None is what the inventory leaves open."""

    rack: str | None = None
    rack_unit: int | None = None


def places_of(plan_data: Mapping[str, Any]) -> dict[str, Place]:
    """Return the places of nodes and switches by name, from the data of the plan."""
    places = {node["name"]: Place(node["rack"], node["rack_unit"]) for node in plan_data["nodes"]}
    for name, place in plan_data["cluster"]["fabric"].get("switch_places", {}).items():
        places[name] = Place(place["rack"], place["rack_unit"])
    return places


def ports_per_cage(radix: int, rate_gbps: float = 0) -> int:
    """Return how many ports of a switch are in a cage; the rate is that of InfiniBand, or 0."""
    if (rate_gbps, radix) == NDR200:
        return 4
    return 2 if radix >= _TWIN_PORTS else 1


# A fabric has a few hundred ports, named for each of tens of thousands of ends.
@functools.lru_cache(maxsize=None)
def cage_label(port: int, per_cage: int) -> str:
    """Return what is next to a switch's port: `1/CAGE/PORT` with two a cage, else `1/PORT`.

    Port 17 of 64 is 1/9/1, port 18 is 1/9/2: ASIC, cage and port in the words of ibdiagnet. Of four
    a cage, where each port is divided, port 17 is 1/5/1/1, and port 18 is 1/5/1/2.
    """
    if per_cage == 1:
        return f"1/{port}"
    cage, place = divmod(port - 1, per_cage)
    if per_cage == 2:
        return f"1/{cage + 1}/{place + 1}"
    return f"1/{cage + 1}/{place // 2 + 1}/{place % 2 + 1}"


def cage_of(plan: CablePlan, end: End) -> str:
    """Return the cage that an end is plugged into, as it is printed there; "" where unknown."""
    if end.is_switch:
        return plan.switches[end.host].label(end.port)
    hca = plan.hcas[end.host, end.rail]
    if hca.cage is None:
        return ""
    return hca.cage if hca.cage_port is None else f"{hca.cage} P{hca.cage_port}"


def near_text(plan: CablePlan, end: End) -> str:
    """Return the words for one end: machine, cage, and the number the fabric knows the port by."""
    cage = cage_of(plan, end)
    port = f"port {end.port}" if end.is_switch else f"rail {end.rail}"
    return f"{end.host} {cage} {port}" if cage else f"{end.host} {port}"
