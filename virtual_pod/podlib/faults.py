# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults for the pod's simulated fabric: what a wrong hand or a bad part would do to it.

A fault of cables is a change of the netlist, from which the simulator starts again; one that grows
or lives is a service on the head node for as long as the fault lasts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from podlib import fabric
from podlib.layout import Pod, PodError
from podlib.progress import Progress

_LINK = re.compile(r'^\[(\d+)\](\(\w+\))?\t"([^"]+)"\[(\d+)\](\(\w+\))?(\s+#.*)$')
_DEVICE = re.compile(r'^(?:Switch|Ca) \d+ "([^"]+)"\s+# "([^"]*)"')
_SERVICE = "pod-fabric-fault"

Place = tuple[str, int]


class Cables:
    """A netlist whose cables can be pulled and plugged. A place is a device's name and a port."""

    def __init__(self, netlist: str) -> None:
        self.lines = netlist.splitlines()
        self.ids: dict[str, str] = {}
        self.at: dict[Place, int] = {}
        self._pulled: set[int] = set()
        names: dict[str, str] = {}
        name = ""
        for number, line in enumerate(self.lines):
            device, link = _DEVICE.match(line), _LINK.match(line)
            if device:
                name = device[2]
                self.ids[name], names[device[1]] = device[1], name
            elif link:
                self.at[name, int(link[1])] = number
        self._names = names

    def far(self, place: Place) -> Place:
        """Return the other end of the cable at this place."""
        link = self._link(place)
        return self._names[link[3]], int(link[4])

    def _link(self, place: Place) -> re.Match[str]:
        number = self.at.get(place)
        link = _LINK.match(self.lines[number]) if number is not None else None
        if link is None:
            raise PodError(f"the netlist has no cable at {place[0]} port {place[1]}")
        return link

    def pull(self, place: Place) -> None:
        """Remove the cable at this place."""
        for end in (self.far(place), place):
            self._pulled.add(self.at.pop(end))

    def exchange(self, one: Place, two: Place) -> None:
        """Exchange the far ends of two cables."""
        first, second = self.far(one), self.far(two)
        at_one, at_two = (self._link(place).groups()[2:] for place in (one, two))
        at_first, at_second = (self._link(place).groups()[2:] for place in (first, second))
        for place, peer in ((one, at_two), (two, at_one), (first, at_second), (second, at_first)):
            link = self._link(place)
            identity, port, guid, description = peer
            own = f"[{link[1]}]{link[2] or ''}"
            self.lines[self.at[place]] = f'{own}\t"{identity}"[{port}]{guid or ""}{description}'

    def narrow(self, place: Place, width: str) -> None:
        """Let the cable at this place come up with fewer lanes."""
        for end in (place, self.far(place)):
            number = self.at[end]
            self.lines[number] = re.sub(r" 4x(\w+)$", rf" {width}\1", self.lines[number])

    def ports(self, name: str) -> list[int]:
        """Return the ports of a device that have a cable."""
        return sorted(port for device, port in self.at if device == name)

    def text(self) -> str:
        """Return the netlist."""
        # An empty line would end the device.
        lines = [line for number, line in enumerate(self.lines) if number not in self._pulled]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Fault:
    """One fault: what it is, what it does to the cables, what runs on the head node meanwhile.

    `finding` is the kind of the one finding that must come of it, `subjects` are what it must name.
    `out` are the nodes that the gate must take out for it. A part that many nodes share takes out
    none: their cables were not measured, and what is broken is not theirs.
    """

    title: str
    finding: str
    subjects: tuple[str, ...]
    cables: Callable[[Cables], None] = lambda _cables: None
    service: Callable[[Pod, Cables], str] | None = None
    out: tuple[str, ...] = ("dgx-01",)


def _rail(node: str, rail: int) -> Place:
    return f"{node} mlx5_rail{rail}", 1


def _dead_leaf(cables: Cables) -> None:
    for port in cables.ports("ib-leaf-02"):
        cables.pull(("ib-leaf-02", port))


def _wrong_node(cables: Cables) -> None:
    for rail in range(8):
        cables.exchange(_rail("dgx-01", rail), _rail("dgx-02", rail))


def _symbol_errors(_pod: Pod, cables: Cables) -> str:
    leaf, port = cables.far(_rail("dgx-01", 3))
    counter = f'PerformanceSet "{cables.ids[leaf]}"[{port}] PortCounters.SymbolErrorCounter'
    return (
        "n=0; while sleep 0.5; do n=$((n + 2)); "
        f"echo '{counter}='$n > /run/pod-fabric/console; done"
    )


def _second_master(pod: Pod, _cables: Cables) -> str:
    # A subnet manager that shows another SM_Key is ignored by the first, and ignores it.
    given = fabric.environment(pod, "dgx-01 mlx5_rail0")
    environment = " ".join(f"{name}='{value}'" for name, value in given.items())
    return (
        "cd $(mktemp -d) && printf 'sm_key 0x0000000000000002\\n' > options && "
        f"exec env OSM_CACHE_DIR=$PWD OSM_TMP_DIR=$PWD {environment} "
        "/usr/sbin/opensm -F $PWD/options -p 1 -f $PWD/log"
    )


FAULTS: dict[str, Fault] = {
    "rail_swap": Fault(
        "the plugs of dgx-01's rails 1 and 6 are exchanged at the leaf switches",
        "swapped",
        ("dgx-01 rail 1", "dgx-01 rail 6"),
        lambda cables: cables.exchange(_rail("dgx-01", 1), _rail("dgx-01", 6)),
    ),
    "dead_cable": Fault(
        "the cable of dgx-01's rail 2 is dead",
        "missing",
        ("dgx-01/rail2",),
        lambda cables: cables.pull(_rail("dgx-01", 2)),
    ),
    "half_width": Fault(
        "the cable of dgx-01's rail 5 comes up with two of four lanes",
        "width",
        ("dgx-01/rail5",),
        lambda cables: cables.narrow(_rail("dgx-01", 5), "2x"),
    ),
    "symbol_errors": Fault(
        "the cable of dgx-01's rail 3 makes symbol errors",
        "errors",
        ("dgx-01/rail3",),
        service=_symbol_errors,
    ),
    "dead_leaf": Fault(
        "the switch ib-leaf-02 is dead",
        "switch_absent",
        ("ib-leaf-02",),
        _dead_leaf,
        out=(),
    ),
    "two_masters": Fault(
        "a second subnet manager on dgx-01 takes itself for the master",
        "two_masters",
        ("dgx-01",),
        service=_second_master,
        out=(),
    ),
    "wrong_node": Fault(
        "dgx-01 and dgx-02 are in each other's place",
        "exchanged",
        ("dgx-01", "dgx-02"),
        _wrong_node,
        out=("dgx-01", "dgx-02"),
    ),
}


def pretend(progress: Progress, pod: Pod, name: str | None) -> None:
    """Pretend the planned fabric, with the fault of this name in it or with none."""
    cables = Cables(fabric.planned_netlist(pod))
    fault = FAULTS[name] if name else None
    fabric.in_head(pod, f"systemctl stop {_SERVICE} 2>/dev/null || true")
    if fault:
        fault.cables(cables)
        progress.say(f"fault {name}: {fault.title}")
    fabric.start(progress, pod, cables.text())
    if fault and fault.service:
        script = fault.service(pod, cables)
        run = f"systemd-run --quiet --collect --unit={_SERVICE} sh -c"
        fabric.in_head(pod, f'{run} "$(cat)"', script)
