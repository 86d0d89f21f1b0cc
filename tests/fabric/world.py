# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fabric that can be broken, and what the InfiniBand tools would say of it.

What is physically there is a Sweep that knows everything; the tools' answers are printed from what
can be reached in it, and read back by the parsers that read real answers.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT),
    str(ROOT / "tests" / "models"),
    str(ROOT / "tests" / "unit" / "plugins" / "module_utils"),
]

import tests.conftest  # noqa: E402, F401, I001  (makes the collection importable)
from cable_plans import plan_data  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.netlist import (  # noqa: E402
    netlist,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (  # noqa: E402
    plan_cables,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import (  # noqa: E402
    Expectation,
    Observation,
    Verdict,
    judge_fabric,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (  # noqa: E402
    load_plan,
    CA,
    Cable,
    CablePlan,
    End,
    FoundDevice,
    FoundPort,
    SWITCH,
    Sweep,
    plan_to_data,
    rail_end,
    switch_end,
)
from fabric_netlist import (  # noqa: E402
    discovery_text,
    states_text,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_discovery import (  # noqa: E402
    read_ibnetdiscover,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import (  # noqa: E402
    expectation,
    read_files,
)
from ansible_collections.baremetal.dgx.plugins.modules import fabric_verify  # noqa: E402

INTERVAL_S = 720.0
# Numbers of the nodes, and how many switches of each tier. The fabric of one full unit has no port
# free; that of two half full ones has.
SIZES: dict[str, tuple[list[int], tuple[int, ...]]] = {
    "basepod-12": ([*range(1, 13)], ()),
    "superpod-32": ([*range(1, 33)], (8, 4)),
    "superpod-32-of-64": ([*range(1, 17), *range(33, 49)], (16, 8)),
    "superpod-127": ([*range(1, 128)], (32, 16)),
}


def plan_of(size: str) -> CablePlan:
    nodes, tiers = SIZES[size]
    reserved = {"ufm_unit": 4} if size == "superpod-127" else {}
    # No GUID is declared: names and places must do, as on the day of the first sweep.
    data = plan_data(nodes, tiers, **reserved)
    plan = plan_cables(data)
    hcas = {key: replace(hca, guid=None) for key, hca in plan.hcas.items()}
    return replace(plan, hcas=hcas)


class NoRoomError(Exception):
    """A fabric has no place for a fault, or none that the other one leaves."""


@dataclass
class World:
    """What is there; `silent` devices have links and do not answer."""

    plan: CablePlan
    fabric: Sweep
    key_of: dict[tuple[str, int], str]
    start: str = ""
    silent: set[str] = field(default_factory=set)
    disabled: set[tuple[str, int]] = field(default_factory=set)
    # counters of both readings by (guid, port)
    before: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    after: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    # pairs of devices of which the second takes the GUID of the first
    doubled: list[tuple[str, str]] = field(default_factory=list)
    # host -> state of its subnet manager
    sms: dict[str, str] = field(default_factory=dict)
    # Options of the module, beside the plan.
    options: dict[str, Any] = field(default_factory=dict)
    # node -> what ib_info reports there, of the nodes that were asked
    adapters: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # Adapters that are dead, or not there: their nodes do not see them.
    gone: set[tuple[str, int]] = field(default_factory=set)
    # All devices as they were; not touched by any fault.
    whole: dict[str, FoundDevice] = field(default_factory=dict)
    # node -> the name that its machine has, where that is another's
    called: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    # switches with something in a free port
    busy: set[str] = field(default_factory=set)
    # How much of ibnetdiscover's answer arrives.
    share: float = 1
    # What the plan's cables have to do with each other; not touched by any fault.
    by_end: dict[End, Cable] = field(default_factory=dict)
    near: dict[Cable, set[Cable]] = field(default_factory=dict)
    of_device: dict[str, set[Cable]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: CablePlan) -> World:
        fabric = read_ibnetdiscover(netlist(plan, managed=True))
        key_of = {}
        for key in plan.hcas:
            key_of[key] = next_guid(fabric, f"{key[0]} mlx5_rail{key[1]}")
        for name in plan.switches:
            key_of[name, -1] = next_guid(fabric, f"MF0;{name}:MQM9700/U1")
        for lid, device in enumerate(fabric.devices.values(), 1):
            device.lid = lid
            for port in device.ports.values():
                port.lid = lid
        nodes = sorted({node for node, _rail in plan.hcas})
        expected = (nodes[0], nodes[-1])
        by_end = plan.by_end()
        of_device: dict[str, set[Cable]] = {}
        for cable in plan.cables:
            for end in (cable.a, cable.b):
                of_device.setdefault(end.host, set()).add(cable)
        return cls(
            plan,
            fabric,
            key_of,
            by_end=by_end,
            whole={guid: copied(device) for guid, device in fabric.devices.items()},
            of_device=of_device,
            near={cable: sharing_cages(plan, by_end, of_device, cable) for cable in plan.cables},
            sms={expected[0]: "MASTER", expected[1]: "STANDBY"},
            options={"subnet_managers": list(expected)},
        )

    def device(self, end: End) -> FoundDevice:
        return self.fabric.devices[self.key_of[end.host, end.rail]]

    def place(self, end: End) -> tuple[str, int]:
        return (self.key_of[end.host, end.rail], end.port)

    def port(self, place: tuple[str, int]) -> FoundPort:
        device = self.fabric.devices[place[0]]
        return device.ports.setdefault(place[1], FoundPort(place[1]))

    def unlink(self, place: tuple[str, int]) -> None:
        port = self.port(place)
        if port.peer is None:
            return
        other = self.port(port.peer)
        port.peer = other.peer = None

    def link(self, one: tuple[str, int], two: tuple[str, int], speed: str = "NDR") -> None:
        for near, far in ((one, two), (two, one)):
            assert self.port(near).peer is None, near
            port = self.port(near)
            port.peer, port.width, port.speed = far, "4x", speed
            device = self.fabric.devices[near[0]]
            device.port_count = max(device.port_count, near[1])

    def unplug(self, cable: Cable) -> None:
        self.unlink(self.place(cable.a))

    def plug(self, one: End, two: End) -> None:
        self.link(self.place(one), self.place(two))

    def remove(self, guid: str) -> None:
        for number in list(self.fabric.devices[guid].ports):
            self.unlink((guid, number))
        del self.fabric.devices[guid]

    def in_place(self, cable: Cable) -> bool:
        """Return whether the cable really is where it belongs."""
        if any(
            self.key_of[end.host, end.rail] not in self.fabric.devices for end in (cable.a, cable.b)
        ):
            return False
        one, two = self.place(cable.a), self.place(cable.b)
        return self.port(one).peer == two

    def add(self, guid: str, kind: str, description: str, ports: int = 1) -> FoundDevice:
        lid = len(self.fabric.devices) + 5000
        device = FoundDevice(guid, kind, description, ports, system_guid=guid, lid=lid)
        if kind == CA:
            device.ports[1] = FoundPort(1, guid=guid)
        self.fabric.devices[guid] = device
        return device

    def free_ports(self, name: str) -> list[End]:
        """Ports of a switch that nothing is planned for, and nothing is in."""
        device = self.fabric.devices[self.key_of[name, -1]]
        return [
            switch_end(name, number)
            for number in range(1, self.plan.switches[name].radix + 1)
            if switch_end(name, number) not in self.by_end
            and switch_end(name, number) not in self.plan.reserved
            and (number not in device.ports or device.ports[number].peer is None)
        ]

    def reached(self) -> tuple[Sweep, list[str]]:
        """What a discovery from `start` sees, and what it complains of."""
        seen = Sweep(start=self.start)
        errors: list[str] = []
        paths: dict[str, tuple[int, ...]] = {self.start: ()}
        queue = deque([self.start])
        twins = {second: first for first, second in self.doubled}
        while queue:
            guid = queue.popleft()
            device = copied(self.fabric.devices[guid])
            seen.devices[guid] = device
            for number in sorted(device.ports):
                port = device.ports[number]
                if port.peer is None:
                    if (guid, number) in self.disabled:
                        port.state, port.physical_state = "Down", "Disabled"
                    continue
                far = port.peer[0]
                if far in self.silent or far in twins:
                    port.peer, port.state, port.physical_state = None, "Active", "LinkUp"
                    route = ",".join(["0", *map(str, (*paths[guid], number))])
                    if far in twins:
                        first = twins[far]
                        errors.append(
                            f"./libibnetdisc/ibnetdisc.c:667; Duplicate Port: Port with guid "
                            f"0x{first} already exists in ports DB"
                        )
                    else:
                        errors.append(
                            "./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; "
                            f"{route} Attr 0x11:0) bad status 110; Connection timed out"
                        )
                elif far not in paths:
                    paths[far] = (*paths[guid], number)
                    queue.append(far)
        return seen, errors + self.errors

    def counters(self, readings: dict[tuple[str, int], dict[str, int]], seen: Sweep) -> str:
        lines = []
        for (guid, number), values in sorted(readings.items()):
            device = seen.devices.get(guid)
            if device is None or not any(values.values()):
                continue
            own = device.ports[number].guid if device.kind == CA else guid
            own = own or guid
            own = f"{int(own, 16):x}"  # the tool does not print leading zeros
            whose = f"0x{guid} " if device.kind == SWITCH else ""
            message = " ".join(f"[{name} == {value}]" for name, value in values.items() if value)
            lines.append(f'Errors for {whose}"{device.description}"\n')
            if device.kind == SWITCH:
                lines.append(f"   GUID 0x{own} port ALL: [PortXmitDiscards == 255] {message}\n")
            lines.append(f"   GUID 0x{own} port {number}: {message}\n")
        lines.append(f"\n## Summary: {len(seen.devices)} nodes checked, 0 bad nodes found\n")
        lines.append("##          5 ports checked, 0 ports have errors beyond threshold\n")
        lines.append("## Thresholds: \n## Suppressed:\n")
        return "".join(lines)

    def saved(self) -> dict[str, str]:
        """What the tools print, by the names under which the module saves it."""
        seen, errors = self.reached()
        text = discovery_text(seen)
        texts = {
            "ibnetdiscover": text[: int(len(text) * self.share)],
            "ibnetdiscover.stderr": "\n".join(errors),
            "ibqueryerrors": self.counters(self.before, seen),
            "ibqueryerrors-2": self.counters(self.after, seen),
            **self._answers_of_sms(),
        }
        if self.share == 1:
            texts["iblinkinfo"] = states_text(seen)
        return texts

    def observe(self) -> Observation:
        """Everything that the tools would say, as the module reads it."""
        return read_files(self.saved(), INTERVAL_S).observation

    def ask_nodes(self, *nodes: str) -> None:
        """Let these nodes report their adapters, as ib_info does; all of them without a name."""
        for node in nodes or sorted({node for node, _rail in self.plan.hcas}):
            self.adapters[self.called.get(node, node)] = [
                {
                    "device": "mlx5_7",
                    "pci": hca.pci,
                    "guids": [
                        self.key_of[key],
                        self.whole[self.key_of[key]].ports[1].guid,
                    ],
                }
                for key, hca in self.plan.hcas.items()
                if key[0] == node and key not in self.gone
            ]

    def _answers_of_sms(self) -> dict[str, str]:
        lines, texts, master = [], {}, ""
        for host, state in self.sms.items():
            key = (host, 0) if (host, 0) in self.plan.hcas else (host, -1)
            device = self.fabric.devices.get(self.key_of[key])
            if device is None:
                continue
            lid = device.lid
            number = {"MASTER": 3, "STANDBY": 2}[state]
            answer = (
                f"sminfo: sm lid {lid} sm guid 0x{device.guid}, activity count 7 priority 0 "
                f"state {number} SMINFO_{state}\n"
            )
            lines.append(f"PortInfoRecord dump:\n\t\tEndPortLid..............{lid}\n")
            texts[f"sminfo-{lid}"] = answer
            if state == "MASTER":
                master = master or answer
        if not master:
            # Without one nothing can be asked for the others.
            return {"sminfo": "sminfo: iberror: failed: query\n", "saquery": ""}
        lids = "IsSM ports\n" + "".join(lines) + "\nIsSMdisabled ports\n"
        return {"sminfo": master, "saquery": lids, **texts}

    @property
    def wanted(self) -> Expectation:
        """What the module makes of its options."""
        options = {"adapters": self.adapters, **self.options}
        valid = ArgumentSpecValidator(fabric_verify.ARGUMENT_SPEC).validate(options)
        assert not valid.error_messages, valid.error_messages
        return expectation(valid.validated_parameters)

    def judge(self) -> Verdict:
        return self.judge_seen(self.observe())

    def judge_seen(self, seen: Observation) -> Verdict:
        """Judge as the module does: by a plan from data, and by its options."""
        plan = load_plan({"plan_file": None, "plan": plan_to_data(self.plan)})
        return judge_fabric(plan, seen, self.wanted)


def sharing_cages(
    plan: CablePlan, by_end: dict[End, Cable], of_device: dict[str, set[Cable]], cable: Cable
) -> set[Cable]:
    """The cable and those that share a cage with it: together they would be another fault."""
    near = {cable}
    for end in (cable.a, cable.b):
        if end.is_switch:
            other = by_end.get(switch_end(end.host, end.port + 1 if end.port % 2 else end.port - 1))
            near |= {other} if other else set()
        else:
            cage = plan.hcas[end.host, end.rail].cage
            near |= {c for c in of_device[end.host] if plan.hcas[c.a.host, c.a.rail].cage == cage}
    return near


def copied(device: FoundDevice) -> FoundDevice:
    ports = {number: FoundPort(**vars(port)) for number, port in device.ports.items()}
    return FoundDevice(**{**vars(device), "ports": ports})


def next_guid(fabric: Sweep, description: str) -> str:
    if not hasattr(fabric, "by_description"):
        fabric.by_description = {item.description: item.guid for item in fabric.devices.values()}
    return fabric.by_description[description]


def choose_start(world: World, touched: set[Cable]) -> None:
    """Let the sweep begin at a rail that no fault touches."""
    hurt = {end.host for cable in touched for end in (cable.a, cable.b)}
    cables = [cable for cable in world.plan.cables if not cable.a.is_switch]
    clean = [cable for cable in cables if cable not in touched]
    best = [cable for cable in clean if not hurt & {cable.a.host, cable.b.host}] or clean
    if not best:
        raise NoRoomError
    world.start = world.key_of[best[0].a.host, best[0].a.rail]


__all__ = [
    "CA", "INTERVAL_S", "SIZES", "SWITCH", "Cable", "CablePlan", "End", "NoRoomError", "World",
    "choose_start", "copied", "plan_of", "rail_end", "switch_end",
]  # fmt: skip
