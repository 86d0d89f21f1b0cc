# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is not there: switches, nodes, transceivers, cables; and what is there but silent. Pure.

From the fabric's side a pulled cable, a dead transceiver and a dead adapter look alike: the port of
the switch is down. What they have in common tells more: all rails of a node, all ports of a switch,
both links of one cage.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Iterable, Iterator, Mapping

from .._core.record import FAIL, NOT_MEASURED
from .findings import (
    CAGE,
    COSTS,
    DARK,
    DUPLICATE_GUID,
    HCA_ABSENT,
    MISSING,
    NODE_ABSENT,
    PORTS,
    SILENT,
    SPLIT,
    SWITCH_ABSENT,
    Finding,
    several,
)
from .model import NODE_LEAF, Cable, End, rail_end
from .parse_discovery import resolve_path
from .thresholds import COLLECTED
from .wiring import Wiring

_DISABLED = "Disabled"
# So many ports side by side, or half of a switch, are dead: it is not their cables.
_BLOCK = 8
# A single leaf that lost several cables to one spine is more likely the cause itself.
_FEWEST_LEAVES = 4


@dataclass
class Absence:
    """What is not there, with the cables that it explains and the ends to leave in peace."""

    findings: list[Finding] = field(default_factory=list)
    explained: set[Cable] = field(default_factory=set)
    excused: set[End] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        """Take a finding, and its cables as explained."""
        self.findings.append(finding)
        self.explained.update(finding.cables)


def is_down(wiring: Wiring, end: End) -> bool:
    """Return whether the port itself says that it has no link."""
    port = wiring.port(end)
    return port is not None and (port.state == "Down" or port.physical_state == _DISABLED)


def is_silent(wiring: Wiring, end: End) -> bool:
    """Return whether the port has a link to something that does not answer."""
    port = wiring.port(end)
    if port is None or port.peer is not None or port.state is None:
        return False
    return not is_down(wiring, end)


def judge_absence(wiring: Wiring, absent_as: Mapping[str, str]) -> Absence:
    """Return what is absent or silent as a whole; single cables are left to judge_unlinked.

    `absent_as` is that of _fabric_places.Placed.
    """
    absence = Absence()
    silent = _silent_ends(wiring)
    _judge_duplicates(wiring, silent, absence)
    _judge_silent(wiring, silent, absence)
    _judge_switches(wiring, absence, absent_as)
    _judge_nodes(wiring, absence, absent_as)
    _judge_adapters(wiring, absence)
    return absence


def _silent_ends(wiring: Wiring) -> dict[End, str]:
    """Return each port behind which something is silent, with what shows it."""
    silent: dict[End, str] = {}
    for cable in wiring.plan.cables:
        for end in (cable.a, cable.b):
            if end not in wiring.far and is_silent(wiring, end):
                silent[end] = "the link is up"
    for path in wiring.sweep.silent:
        place = resolve_path(wiring.sweep, path)
        silent_end = wiring.matches.end(*place) if place else None
        route = ",".join(str(hop) for hop in (0, *path))
        if silent_end is None:
            wiring.sweep.complaints.append(f"something at the end of route {route} is silent")
        elif silent_end in wiring.far:
            wiring.sweep.complaints.append(f"an answer on route {route} was lost")
        else:
            silent[silent_end] = f"no answer on route {route}"
    return silent


def _judge_duplicates(wiring: Wiring, silent: dict[End, str], absence: Absence) -> None:
    guids = wiring.sweep.duplicate_guids
    if not guids:
        return
    for guid in guids:
        ends: set[End] = set()
        for device in wiring.sweep.devices.values():
            if guid != device.guid and all(port.guid != guid for port in device.ports.values()):
                continue
            for number, port in device.ports.items():
                own = wiring.matches.end(device.guid, number)
                far = wiring.matches.end(*port.peer) if port.peer else None
                ends.update(end for end in (own, far) if end is not None)
        # The tools keep one of the two: the other is a port that is up with nothing behind it.
        lost = [end for end, answer in silent.items() if answer == "the link is up"]
        ends.update(lost)
        for end in lost:
            del silent[end]
        cables = {wiring.planned[end] for end in ends if end in wiring.planned}
        places = sorted(wiring.at(end) for end in ends if end.is_switch)
        absence.add(
            Finding(
                DUPLICATE_GUID,
                f"guid:0x{guid}",
                f"more than one port has the GUID 0x{guid}; it shows at {several(places)}",
                "compare `ibstat` of these nodes with the labels of their adapters; give the "
                "adapter its own GUID again (mstflint -guid), or replace it",
                tuple(sorted(cables)),
            )
        )
        absence.excused.update(ends)


def _judge_silent(wiring: Wiring, silent: Mapping[End, str], absence: Absence) -> None:
    by_device: dict[str, list[tuple[End, Cable]]] = {}
    for end, answer in silent.items():
        cable = wiring.planned.get(end)
        if cable is None:
            absence.add(
                Finding(
                    SILENT,
                    f"port:{end}",
                    f"what is linked to {wiring.at(end)} does not answer ({answer})",
                    "the plan has nothing in this port: take the cable out",
                    ends=(end,),
                )
            )
        elif cable not in absence.explained:
            by_device.setdefault(cable.other(end).host, []).append((cable.other(end), cable))
    for host, links in sorted(by_device.items()):
        cables = tuple(sorted({cable for _end, cable in links}))
        first = links[0][0]
        evidence = tuple(
            f"{wiring.at(cable.other(end))}: {silent[cable.other(end)]}" for end, cable in links[:4]
        )
        if first.is_switch:
            absence.add(
                Finding(
                    SILENT,
                    f"switch:{host}",
                    f"{host} does not answer, though {len(links)} of its links are up",
                    "look at its console and restart it; until then its cables cannot be judged",
                    cables,
                    evidence,
                )
            )
            continue
        rails = [rail for node, rail in wiring.plan.hcas if node == host]
        unfound = [rail for rail in rails if not wiring.found(rail_end(host, rail))]
        if 1 < len(links) == len(unfound) == len(rails):
            absence.add(
                Finding(
                    SILENT,
                    f"node:{host}",
                    f"{host} does not answer, though the links of its {len(links)} rails are up",
                    "look at its console: a hung machine keeps its links; restart it",
                    cables,
                    evidence,
                )
            )
            continue
        for end, cable in links:
            absence.add(
                Finding(
                    SILENT,
                    f"hca:{end}",
                    f"{wiring.at(end)} does not answer, though its link at "
                    f"{wiring.at(cable.other(end))} is up",
                    f"on {host}: look for mlx5 errors in dmesg, then reset the adapter "
                    "(mstfwreset) or the node",
                    (cable,),
                    evidence,
                )
            )


def _status(wiring: Wiring, cables: Iterable[Cable]) -> str:
    """Return FAIL where the absence is proved: by a whole sweep, or by ports that are down."""
    if not wiring.sweep.complaints:
        return FAIL
    seen = [end for cable in cables for end in (cable.a, cable.b) if wiring.found(end)]
    return FAIL if seen and all(is_down(wiring, end) for end in seen) else NOT_MEASURED


def _judge_switches(wiring: Wiring, absence: Absence, absent_as: Mapping[str, str]) -> None:
    plan = wiring.plan
    silent = {finding.subject[7:] for finding in absence.findings if finding.kind == SILENT}
    lost = [name for name in plan.switches if (name, -1) not in wiring.matches.by_key]
    of_lost: dict[str, list[Cable]] = {name: [] for name in lost}
    beside: set[str] = set()
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            if end.host in of_lost:
                of_lost[end.host].append(cable)
                if wiring.found(cable.other(end)):
                    beside.add(end.host)
    lost = [name for name in lost if of_lost[name]]
    if 2 * len(lost) > len(plan.switches):
        cables = {cable for name in lost for cable in of_lost[name]}
        edge = [name for name in lost if name in beside]
        absence.add(
            Finding(
                SPLIT,
                "fabric",
                f"{len(lost)} of {len(plan.switches)} switches are out of reach; next to what was "
                f"reached: {several(sorted(edge) or lost)}",
                "see that these switches have power, and that the host of the sweep is where the "
                "plan has it; then look again",
                tuple(sorted(cables)),
                status=_status(wiring, cables),
            )
        )
        return
    for name in lost:
        if name in silent or name not in beside:
            # Its findings explain all its cables; and where everything around it is out of
            # reach, nothing is known of it.
            absence.explained.update(of_lost[name])
            continue
        real = absent_as.get(name, name)
        tier = plan.switches[name].tier
        absence.add(
            Finding(
                SWITCH_ABSENT,
                f"switch:{real}",
                f"{tier} {real} is not in the fabric; its {len(of_lost[name])} cables cannot be "
                "judged",
                f"see that {real} has power and boots",
                tuple(of_lost[name]),
                status=_status(wiring, of_lost[name]),
            )
        )


def _judge_nodes(wiring: Wiring, absence: Absence, absent_as: Mapping[str, str]) -> None:
    """Find nodes of which no rail shows, of those rails that could."""
    of_node: dict[str, list[Cable]] = {}
    # A rail that is silent is a node that is there.
    present = {
        finding.cables[0].a.host
        for finding in absence.findings
        if finding.subject.startswith("hca:")
    }
    # Of these a switch explains a part.
    partly = {cable.a.host for cable in absence.explained}
    for node, rail in wiring.plan.hcas:
        end = rail_end(node, rail)
        if wiring.found(end):
            present.add(node)
            continue
        cable = wiring.planned.get(end)
        if cable is None or cable in absence.explained:
            continue
        of_node.setdefault(node, []).append(cable)
    for node, cables in of_node.items():
        if node in present or len(cables) < 2:
            continue
        cages = {wiring.plan.hcas[node, cable.a.rail].cage for cable in cables}
        if node in partly and len(cages) == 1 and None not in cages:
            # What is left is one transceiver, which is as likely.
            continue
        real = absent_as.get(node, node)
        text = f"{real} is not in the fabric: none of its {len(cables)} rails has a link"
        text += _by_place_alone(wiring)
        remedy = f"see that {real} has power, has booted and has its mlx5 driver loaded (ib_info)"
        known = wiring.matches.identities
        if known.counts.get(real) == 0 or all(
            (real, cable.a.rail) in known.absent for cable in cables
        ):
            text += "; the node itself answers and sees none of their adapters"
            remedy = f"on {real}: look for the adapters with lspci, and for mlx5_core in dmesg"
        elif all((real, cable.a.rail) in known.own for cable in cables):
            text += "; the node itself answers and reports all of these adapters"
            remedy = f"on {real}: ibstat; see that the ports are InfiniBand and enabled"
        absence.add(
            Finding(
                NODE_ABSENT,
                f"node:{real}",
                text,
                remedy,
                tuple(cables),
                status=_status(wiring, cables),
            )
        )


def _by_place_alone(wiring: Wiring) -> str:
    """Return that what is lost may be in the place of another, if that would not show."""
    matches = wiring.matches
    count = sum(1 for guid in matches.unproved if matches.by_guid[guid][1] >= 0)
    return f", unless it is one of {count} adapters that are known by place alone" if count else ""


def _judge_adapters(wiring: Wiring, absence: Absence) -> None:
    """Find adapters that are gone from their own node: then no cable is to blame.

    The node reports so itself; or the kernel's numbers of its later adapters moved down, as they
    do when an adapter is gone, and not when a cable is.
    """
    known = wiring.matches.identities
    for (node, rail), hca in wiring.plan.hcas.items():
        end = rail_end(node, rail)
        cable = wiring.planned.get(end)
        if wiring.found(end) or cable is None or cable in absence.explained:
            continue
        status = FAIL
        if (node, rail) in known.absent or known.counts.get(node) == 0:
            text = f"{node} itself does not see the adapter of rail {rail}"
        elif rail in wiring.matches.shifted.get(node, ()):
            text = (
                f"the adapter of {node} rail {rail} is gone: no link at {wiring.at(cable.b)}, and "
                f"the kernel's numbers of the later adapters of {node} moved down"
            )
            status = _status(wiring, (cable,))
        else:
            continue
        absence.add(
            Finding(
                HCA_ABSENT,
                f"hca:{end}",
                text + (f" (PCI {hca.pci})" if hca.pci else ""),
                f"on {node}: look for it with lspci; absent there: reseat or replace the adapter; "
                "present there: read dmesg for mlx5_core",
                (cable,),
                status=status,
            )
        )


def judge_unlinked(wiring: Wiring, cables: Iterable[Cable]) -> Iterator[Finding]:
    """Yield findings for cables without a link: by cage where it is the cage, else one by one."""
    left = set(cables)
    yield from _blocks(wiring, left)
    yield from _collectors(wiring, left)
    yield from _node_cages(wiring, left)
    yield from _switch_cages(wiring, left)
    for cable in sorted(left):
        yield _unlinked(wiring, cable)


def _blocks(wiring: Wiring, left: set[Cable]) -> Iterator[Finding]:
    """Yield a finding for each switch of which a block of ports, or half of them, has no link."""
    ports: dict[str, list[tuple[int, Cable]]] = {}
    for cable in wiring.plan.cables:
        for end in (cable.a, cable.b):
            if end.is_switch and wiring.found(end):
                ports.setdefault(end.host, []).append((end.port, cable))
    lost = {name: sum(cable in left for _port, cable in of) for name, of in ports.items()}
    for name in sorted(lost, key=lambda one: (-lost[one], one)):
        block = _block_of(sorted(ports[name]), left)
        if not block:
            continue
        cables = tuple(sorted(cable for _port, cable in block))
        left.difference_update(cables)
        numbers = [port for port, _cable in block]
        yield Finding(
            PORTS,
            f"switch:{name}",
            f"{len(cables)} of {len(ports[name])} cables of {name} have no link, those of ports "
            f"{min(numbers)} to {max(numbers)}; its other cables are in use",
            f"look at the log and the temperature of {name}: so many cables are not lost at once; "
            "restart it, then replace it, or its line card",
            cables,
            status=_status(wiring, cables),
        )


def _block_of(ports: list[tuple[int, Cable]], left: set[Cable]) -> list[tuple[int, Cable]]:
    """Return the ports that are dead together: a run of them, or all where they are half."""
    runs: list[list[tuple[int, Cable]]] = [[]]
    for port, cable in ports:
        if cable in left:
            runs[-1].append((port, cable))
        elif runs[-1]:
            runs.append([])
    dead = [one for run in runs for one in run]
    if len(dead) >= _BLOCK and 2 * len(dead) >= len(ports):
        return dead
    longest = max(runs, key=len)
    return longest if len(longest) >= _BLOCK else []


def _collectors(wiring: Wiring, left: set[Cable]) -> Iterator[Finding]:
    """Yield a finding for each upper switch that has more of the lost cables than chance gives it.

    Several may, and then hide each other: as many are taken as have too many of the losses that the
    others leave.
    """
    for tier in ("spine", "core"):
        losses = _losses(wiring, tier, left)
        names = sorted(losses.cables, key=lambda one: (-len(losses.cables[one]), one))
        names = [name for name in names if losses.leaves(name) >= _FEWEST_LEAVES]
        for count in range(len(names), 0, -1):
            found = [losses.shares(name, {*names[:count]} - {name}) for name in names[:count]]
            if any(COLLECTED.threshold().holds(one.chance) for one in found):
                continue
            for one in found:
                left.difference_update(losses.cables[one.name])
                yield _collector(wiring, one, losses.cables[one.name])
            break


@dataclass(frozen=True)
class _Share:
    """So many of the losses are at one switch, and how likely any has so many."""

    chance: float
    here: int
    of: int
    name: str


@dataclass
class _Losses:
    """What is lost below a tier of switches.

    What is lost together is counted once: the cables of one cage of the lower switch.
    """

    # By cage of a lower switch: the upper switches that its cables lead to, and those it lost.
    leads: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    lost: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    cables: dict[str, list[Cable]] = field(default_factory=dict)

    def leaves(self, name: str) -> int:
        """Return at how many lower switches a switch has losses."""
        return len({cable.a.host for cable in self.cables[name]})

    def shares(self, name: str, others: set[str]) -> _Share:
        """Return what a switch has of the losses that the others leave.

        A cage that is lost whole may have another cause, its transceiver: either all are counted,
        or those that lost a part.
        """
        parts = {cage for cage, lost in self.lost.items() if len(lost) < len(self.leads[cage])}
        ways = [self._share(name, others, {*self.leads})]
        if len(parts) < len(self.lost):
            ways.append(self._share(name, others, {*self.leads} - {*self.lost} | parts))
        best = min(ways, key=lambda one: one.chance)
        return replace(best, chance=min(1.0, len(ways) * best.chance))

    def _share(self, name: str, others: set[str], cages: set[tuple[str, int]]) -> _Share:
        leads = [{*self.leads[cage]} - others for cage in cages]
        leads = [uppers for uppers in leads if uppers]
        lost = [{*self.lost[cage]} - others for cage in cages if cage in self.lost]
        here, of = sum(name in uppers for uppers in lost), sum(bool(uppers) for uppers in lost)
        share = sum(name in uppers for uppers in leads) / max(1, len(leads))
        return _Share(len(set().union(*leads)) * _at_least(here, of, share), here, of, name)


def _losses(wiring: Wiring, tier: str, left: set[Cable]) -> _Losses:
    losses = _Losses()
    for cable in wiring.plan.cables:
        upper = wiring.plan.switches.get(cable.b.host)
        if not cable.a.is_switch or upper is None or upper.tier != tier:
            continue
        cage = (cable.a.host, wiring.plan.switches[cable.a.host].cage(cable.a.port))
        losses.leads.setdefault(cage, []).append(cable.b.host)
        if cable in left:
            losses.lost.setdefault(cage, []).append(cable.b.host)
            losses.cables.setdefault(cable.b.host, []).append(cable)
    return losses


def _at_least(count: int, of: int, share: float) -> float:
    """Return how likely so many of these are, each with this probability (binomial)."""
    return math.fsum(
        math.comb(of, number) * share**number * (1 - share) ** (of - number)
        for number in range(count, of + 1)
    )


def _collector(wiring: Wiring, share: _Share, cables: list[Cable]) -> Finding:
    return Finding(
        PORTS,
        f"switch:{share.name}",
        f"{len(cables)} cables of {share.name} have no link: of {share.of} losses below its tier, "
        f"those of one cage counted once, it has {share.here}, as by chance one of "
        f"{1 / share.chance:.0f} fabrics would",
        COLLECTED.filled(switch=share.name).remedy,
        tuple(sorted(cables)),
        status=_status(wiring, cables),
        measured=share.chance,
        threshold=COLLECTED.threshold(),
        graded=COSTS[DARK],
    )


def _node_cages(wiring: Wiring, left: set[Cable]) -> Iterator[Finding]:
    cages: dict[tuple[str, str], list[Cable]] = {}
    for (node, rail), hca in wiring.plan.hcas.items():
        cable = wiring.planned.get(rail_end(node, rail))
        if hca.cage is not None and cable is not None:
            cages.setdefault((node, hca.cage), []).append(cable)
    for (node, cage), of_cage in cages.items():
        if len(of_cage) < 2 or not left.issuperset(of_cage):
            continue
        left.difference_update(of_cage)
        rails = " and ".join(str(cable.a.rail) for cable in of_cage)
        yield Finding(
            CAGE,
            f"cage:{node}/{cage}",
            f"both links of cage {cage} of {node} are gone: rails {rails}, which should be at "
            + " and ".join(wiring.at(cable.b) for cable in of_cage),
            f"reseat the transceiver in cage {cage} of {node}, then replace it; if {node} does not "
            "see these adapters (ib_info), it is not the transceiver",
            tuple(of_cage),
            status=_status(wiring, of_cage),
        )


def _switch_cages(wiring: Wiring, left: set[Cable]) -> Iterator[Finding]:
    cages: dict[tuple[str, int], list[Cable]] = {}
    for cable in sorted(left):
        for place in _cages_of(wiring, cable):
            cages.setdefault(place, []).append(cable)
    planned = Counter(
        place for cable in wiring.plan.cables if left for place in _cages_of(wiring, cable)
    )
    lower = {cable.a.host for cable in left}
    for name, cage in sorted(cages, key=lambda one: (one[0] not in lower, one)):
        of_cage = cages[name, cage]
        if not 2 <= planned[name, cage] == len(of_cage) or not left.issuperset(of_cage):
            continue
        left.difference_update(of_cage)
        near = [cable.a if cable.a.host == name else cable.b for cable in of_cage]
        far = [cable.other(end) for cable, end in zip(of_cage, near)]
        *ports, last = sorted(end.port for end in near)
        number = "both" if len(of_cage) == 2 else f"all {len(of_cage)}"
        others = {end.host for end in far if end.is_switch}
        either = f", or the cage at {several(sorted(others))}" if len(others) == 1 else ""
        yield Finding(
            CAGE,
            f"cage:{name}/{cage}",
            f"{number} links of cage {cage} of {name} (ports {', '.join(map(str, ports))} and "
            f"{last}) are gone: they should be at " + " and ".join(wiring.at(end) for end in far),
            f"reseat the transceiver in cage {cage} of {name}{either}, then replace it",
            tuple(of_cage),
            status=_status(wiring, of_cage),
        )


def _cages_of(wiring: Wiring, cable: Cable) -> Iterator[tuple[str, int]]:
    """Yield the cages of switches that a cable shares with others, the lower switch first."""
    for end in (cable.a, cable.b):
        switch = wiring.plan.switches[end.host] if end.is_switch else None
        if switch is not None and switch.per_cage > 1:
            yield end.host, switch.cage(end.port)


def _unlinked(wiring: Wiring, cable: Cable) -> Finding:
    ends = (cable.a, cable.b)
    disabled = [
        end for end in ends if getattr(wiring.port(end), "physical_state", None) == _DISABLED
    ]
    # Without its own link an adapter does not show at all.
    kind = MISSING if cable.kind == NODE_LEAF and not wiring.found(cable.a) else DARK
    where = f"{wiring.at(cable.a)} and {wiring.at(cable.b)}"
    taken = [end for end in ends if end in wiring.far]
    if disabled:
        text = f"no link between {where}: the port {wiring.at(disabled[0])} is disabled"
        remedy = (
            "unless it was disabled on purpose, enable it: on a switch with its own system "
            "there, otherwise with ibportstate"
        )
    elif taken:
        other = wiring.far[taken[0]]
        text = f"no link between {where}: {wiring.at(taken[0])} is taken by {wiring.at(other)}"
        remedy = f"first put right what is in {wiring.at(taken[0])}, then plug this cable in"
    elif kind == MISSING and (cable.a.host, cable.a.rail) in wiring.matches.identities.own:
        own = wiring.matches.identities.own[cable.a.host, cable.a.rail]
        text = f"no link at {wiring.at(cable.b)}, where {wiring.at(cable.a)} belongs; the node "
        text += f"itself sees this adapter ({own.device})"
        remedy = "plug in, reseat or replace the cable and its transceivers"
    elif kind == MISSING:
        text = f"no link at {wiring.at(cable.b)}, where {wiring.at(cable.a)} belongs; it shows "
        text += "nowhere else" + _by_place_alone(wiring)
        remedy = (
            f"on {cable.a.host}: does ib_info show the adapter? Then plug in, reseat or replace "
            "the cable and its transceivers; otherwise reseat the adapter"
        )
    else:
        text = f"no link between {where}, though both devices are in the fabric"
        remedy = "plug in or reseat the cable at both ends, then replace it and its transceivers"
    return Finding(kind, cable.subject, text, remedy, (cable,), status=_status(wiring, (cable,)))
