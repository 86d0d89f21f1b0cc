# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Devices that are where others belong, and devices that say that they are others. Pure.

Two nodes that have been exchanged look like eight pairs of exchanged cables. What all links of a
device say together is one finding, and the cables are then judged as if the device were in place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Iterable, Iterator, Mapping

from .._core.record import NOT_MEASURED
from .._ib.descriptions import device_key, host_and_device, host_key, switch_name, unnamed
from .findings import (
    DESCRIPTION,
    EXCHANGED,
    IDENTITY,
    MOVED,
    RENAMED,
    REPLACED,
    SWAPPED,
    Finding,
    several,
)
from .judge_adapters import Key
from .match import BY_GUID, BY_NAME, BY_NODE, BY_PLACE, Matches, guids_of
from .model import SWITCH, Cable, CablePlan, End, FoundDevice, Sweep, switch_end
from .wiring import Wiring

# So many links of a device, and this share of them, must say that it is elsewhere: fewer are
# cables that were exchanged one by one.
_FEWEST = 3
_SHARE = 0.75


@dataclass
class Placed:
    """Where devices really are: `matches` goes by place, `findings` by what was out of place."""

    matches: Matches
    findings: list[Finding] = field(default_factory=list)
    # Place that is empty since its own device is elsewhere -> the device that has no place.
    absent_as: dict[str, str] = field(default_factory=dict)


def place(plan: CablePlan, sweep: Sweep, matches: Matches) -> Placed:
    """Return the matches by place, and a finding for each set of exchanged devices."""
    placed = Placed(matches)
    partner = {}
    for cable in plan.cables:
        partner[cable.a], partner[cable.b] = cable.b, cable.a
    for kind in ("switch", "node"):
        moved = dict(_elsewhere(_votes(kind, sweep, placed.matches, partner)))
        for chain, closed in _chains(moved):
            belongs = dict(zip(chain, chain[1:]))
            if closed:
                belongs[chain[-1]] = chain[0]
            keys = _renamed_keys(plan, kind, belongs)
            below = _below(sweep, placed.matches, partner, keys) if kind == "switch" else {}
            relabelled = _relabel(placed.matches, {**keys, **below})
            if relabelled is None:
                continue
            sure = all(
                placed.matches.reasons[placed.matches.by_key[key]] in (BY_GUID, BY_NODE)
                for key in keys
                if key in placed.matches.by_key
            )
            placed.matches = relabelled
            found = _exchanged(plan, kind, belongs, closed, sure)
            if sweep.partial and not closed:
                # What has that name, too, may not have been read.
                found = replace(found, status=NOT_MEASURED)
            placed.findings.append(found)
            if not closed:
                placed.absent_as[chain[0]] = chain[-1]
    return placed


def _votes(
    kind: str, sweep: Sweep, matches: Matches, partner: Mapping[End, End]
) -> Iterator[tuple[str, list[str | None]]]:
    """Yield each switch or node with the one whose port each of its links takes."""
    votes: dict[str, list[str | None]] = {}
    for key, guid in sorted(matches.by_key.items()):
        if (key[1] < 0) != (kind == "switch"):
            continue
        for number, neighbor, far in matches.links(sweep.devices[guid]):
            if not far.is_switch and neighbor in matches.unproved:
                # It is taken for what this very switch makes of it.
                continue
            near = partner.get(far)
            # An adapter of the plan has one port, whatever its number.
            own = (key[1], number if kind == "switch" else 1)
            there = near.host if near is not None and (near.rail, near.port) == own else None
            votes.setdefault(key[0], []).append(there)
    yield from votes.items()


def _below(
    sweep: Sweep, matches: Matches, partner: Mapping[End, End], switches: Mapping[Key, Key]
) -> dict[Key, Key]:
    """Return adapters known by place alone, with those that belong where their switch really is."""
    keys = {}
    for name in switches:
        guid = matches.by_key.get(name)
        for number, neighbor, far in matches.links(sweep.devices[guid]) if guid else ():
            if far.is_switch or neighbor not in matches.unproved:
                continue
            there = partner.get(switch_end(switches[name][0], number))
            if there is not None and not there.is_switch:
                keys[far.host, far.rail] = (there.host, there.rail)
    return keys


def _elsewhere(votes: Iterable[tuple[str, list[str | None]]]) -> Iterator[tuple[str, str]]:
    """Yield (device, place) where nearly all links say that the device is at another's place."""
    for name, hosts in votes:
        counts: dict[str, int] = {}
        for host in hosts:
            if host is not None:
                counts[host] = counts.get(host, 0) + 1
        if not counts:
            continue
        best = max(counts, key=lambda host: counts[host])
        if best != name and counts[best] >= max(_FEWEST, _SHARE * len(hosts)):
            yield name, best


def _chains(moved: Mapping[str, str]) -> Iterator[tuple[list[str], bool]]:
    """Yield the devices that took each other's place in turn, and whether the last has the first's.

    A place that two devices claim belongs to neither; such devices are left as they are.
    """
    taken: dict[str, int] = {}
    for there in moved.values():
        taken[there] = taken.get(there, 0) + 1
    steps = {name: there for name, there in moved.items() if taken[there] == 1}
    starts = sorted(set(steps) - set(steps.values()))
    seen: set[str] = set()
    for start in starts:
        chain = [start]
        while chain[-1] in steps:
            chain.append(steps[chain[-1]])
        seen.update(chain)
        yield chain, False
    for start in sorted(steps):
        if start in seen:
            continue
        chain = [start]
        while steps[chain[-1]] != start:
            chain.append(steps[chain[-1]])
        seen.update(chain)
        yield chain, True


def _renamed_keys(plan: CablePlan, kind: str, names: Mapping[str, str]) -> dict[Key, Key]:
    if kind == "switch":
        return {(name, -1): (there, -1) for name, there in names.items()}
    return {(node, rail): (names[node], rail) for node, rail in plan.hcas if node in names}


def _relabel(matches: Matches, keys: Mapping[Key, Key]) -> Matches | None:
    """Return the matches with the devices under other keys; None where one is still in place."""
    fresh = replace(matches, by_key=dict(matches.by_key), by_guid=dict(matches.by_guid), ends={})
    moving = {key: matches.by_key[key] for key in keys if key in matches.by_key}
    for key in moving:
        del fresh.by_key[key]
    for key, guid in moving.items():
        if keys[key] in fresh.by_key:
            return None
        fresh.by_key[keys[key]] = guid
        fresh.by_guid[guid] = keys[key]
    return fresh


def _cables_of(plan: CablePlan, names: set[str]) -> tuple[Cable, ...]:
    return tuple(c for c in plan.cables if names & {c.a.host, c.b.host})


def _exchanged(
    plan: CablePlan, kind: str, belongs: Mapping[str, str], closed: bool, sure: bool
) -> Finding:
    first, second = next(iter(belongs.items()))
    text = ", ".join(f"{name} is where {there} belongs" for name, there in belongs.items())
    if closed and len(belongs) == 2:
        text = f"{first} and {second} are exchanged: each has all cables of the other"
    elif closed:
        several_of = "nodes" if kind == "node" else "switches"
        text = f"{len(belongs)} {several_of} are exchanged in turn: {text}"
    remedy = "compare the serial number of each with its rack place: "
    if sure:
        remedy = "their GUIDs are known, so the cables are wrong, or what was declared: "
    if kind == "node":
        remedy += (
            "if the machines are in place, give them their own host names; otherwise exchange the "
            "machines, or correct node_rack and node_rack_unit"
        )
    else:
        remedy += "if the switches are in place, give them their own names; otherwise exchange them"
    # Of those in the places, too: what hangs there is another device.
    cables = _cables_of(plan, {*belongs, *belongs.values()})
    return Finding(EXCHANGED, f"{kind}:{first}", text, remedy, cables)


def judge_names(plan: CablePlan, sweep: Sweep, matches: Matches) -> list[Finding]:
    """Return a finding for each device, or node, that does not say what it is."""
    findings = _judge_switch_names(plan, sweep, matches)
    hosts: dict[str, dict[int, str]] = {}
    renamed: dict[str, dict[int, str]] = {}
    lost: dict[str, list[int]] = {}
    found: dict[str, int] = {}
    for key, guid in sorted(matches.by_key.items()):
        if key[1] < 0:
            continue
        node, rail = key
        found[node] = found.get(node, 0) + 1
        if matches.reasons[guid] == BY_NAME:
            continue
        shown = host_and_device(sweep.devices[guid].description)
        if matches.reasons[guid] == BY_NODE and host_key(shown.host) == host_key(node):
            # The node itself says which rail it is: what it calls it is judged there (ib_health).
            continue
        if sweep.complaints and not sweep.devices[guid].description.strip():
            # The tool prints an adapter so when the answer with its description was lost.
            lost.setdefault(node, []).append(rail)
        elif unnamed(sweep.devices[guid].description):
            local = shown.host.lower() == "localhost"
            hosts.setdefault(node, {})[rail] = shown.host if local else ""
        elif host_key(shown.host) != host_key(node):
            hosts.setdefault(node, {})[rail] = shown.host
        elif node in matches.shifted:
            continue
        elif device_key(shown.device) not in plan.hcas[key].devices:
            renamed.setdefault(node, {})[rail] = shown.device
    findings += _wrong_hosts(sweep, matches, hosts, found)
    findings += _wrong_devices(plan, renamed, found)
    findings += [_lost(node, rails) for node, rails in lost.items()]
    for node, gone in sorted(matches.shifted.items()):
        if not gone:
            findings.append(_moved(node))
    return findings


def judge_replaced(
    plan: CablePlan, sweep: Sweep, matches: Matches, by_place: Mapping[Key, str]
) -> Iterator[Finding]:
    """Yield a finding for each device that is known, and has another GUID than is declared.

    by_place has the GUID of the device in each place.
    """
    here = {guid: device for device in sweep.devices.values() for guid in guids_of(device)}
    for key, guid in sorted(matches.by_key.items()):
        planned = plan.switches[key[0]] if key[1] < 0 else plan.hcas[key]
        device = sweep.devices[guid]
        # A device that only the far end of a link names has not reported all of its GUIDs.
        if planned.guid in (None, *guids_of(device)) or not device.recorded:
            continue
        if matches.reasons[guid] == BY_PLACE:
            continue
        there = sweep.devices.get(by_place.get(key, guid))
        if there is not None and planned.guid in guids_of(there):
            # What is declared is in its place: its machine has the name of another, no new adapter.
            continue
        name, variable = f"{key[0]} rail {key[1]}", f"node_hca_guids of {key[0]}"
        subject = f"hca:{key[0]}/rail{key[1]}"
        if key[1] < 0:
            name, variable, subject = key[0], f"switch_guids: {key[0]}", f"switch:{key[0]}"
        text = f"{name} has the GUID 0x{guid}, and 0x{planned.guid} is declared: it was replaced"
        other = here.get(str(planned.guid))
        if other is not None:
            text += f", and what is declared shows as {other.description.strip()!r}"
        own = matches.identities.own.get(key)
        serial = own.serial if own is not None and planned.guid not in own.guids else None
        yield Finding(
            REPLACED,
            subject,
            text,
            f"if it was replaced on purpose, declare its GUID ({variable}); otherwise compare it "
            "with the label of the device",
            evidence=(f"serial {serial}, as its node reports",) if serial else (),
        )


def _moved(node: str) -> Finding:
    return Finding(
        RENAMED,
        f"node:{node}",
        f"the kernel's numbers of the adapters of {node} moved, and its rails are all there: "
        "an adapter that is not a rail is gone, or came",
        f"compare lspci on {node} with its profile; then run the role infiniband, which names the "
        "rails by address",
    )


def as_a_whole(wiring: Wiring, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings of cables: those of a trunk, and of a node that is elsewhere, are one."""
    left: list[Finding] = []
    trunks: dict[frozenset[tuple[str, str]], list[Finding]] = {}
    nodes: dict[tuple[str, int], list[Finding]] = {}
    for finding in findings:
        pairs = frozenset((cable.a.host, cable.b.host) for cable in finding.cables)
        switches = all(cable.a.is_switch for cable in finding.cables)
        if finding.kind == SWAPPED and len(finding.cables) == len(pairs) == 2 and switches:
            trunks.setdefault(pairs, []).append(finding)
        elif finding.kind == MOVED and len(finding.cables) == 1 and not switches:
            cable = finding.cables[0]
            far = wiring.far.get(cable.a, cable.b)
            by = far.port - cable.b.port if far.host == cable.b.host else 0
            (nodes.setdefault((cable.a.host, by), []) if by else left).append(finding)
        else:
            left.append(finding)
    sizes: dict[tuple[str, str], int] = {}
    rails: dict[str, int] = {}
    for cable in wiring.plan.cables:
        sizes[cable.a.host, cable.b.host] = sizes.get((cable.a.host, cable.b.host), 0) + 1
        rails[cable.a.host] = rails.get(cable.a.host, 0) + 1
    for pairs, some in trunks.items():
        one, two = sorted(pairs)
        whole = 1 < len(some) == sizes[one] == sizes[two]
        left += [_trunk(one, two, some)] if whole else some
    for (node, by), some in nodes.items():
        whole = len(some) >= max(_FEWEST, _SHARE * rails[node])
        left += [_elsewhere_node(node, by, some)] if whole else some
    return left


def _trunk(one: tuple[str, str], two: tuple[str, str], some: list[Finding]) -> Finding:
    text = (
        f"the {len(some)} cables of {one[0]} to {one[1]} are exchanged as a whole with those of "
        f"{two[0]} to {two[1]}"
    )
    return _joined(some, some[0].subject, text, "; ".join(finding.remedy for finding in some))


def _elsewhere_node(node: str, by: int, some: list[Finding]) -> Finding:
    text = (
        f"{node} is at another place: {len(some)} of its cables are {abs(by)} ports "
        f"{'higher' if by > 0 else 'lower'} on their leaves than planned"
    )
    remedy = f"if {node} belongs there, correct its node_leaf_place; otherwise " + "; ".join(
        finding.remedy for finding in some
    )
    return _joined(some, f"node:{node}", text, remedy)


def _joined(some: list[Finding], subject: str, text: str, remedy: str) -> Finding:
    cables = tuple(sorted(cable for finding in some for cable in finding.cables))
    return replace(some[0], subject=subject, text=text, remedy=remedy, cables=cables)


_NAME_THEM = (
    "run validate_fabric with the node reachable, so that it reports the GUIDs of its adapters, or "
    "declare them (node_hca_guids); the role infiniband names the rails"
)


def judge_identity(plan: CablePlan, matches: Matches, good: Iterable[Cable]) -> Iterator[Finding]:
    """Yield what is not measured since nothing but its place says what a device is.

    A device that is taken for the one whose place it is in would make every cable right.
    """
    keys = {matches.by_guid[guid] for guid in matches.unproved}
    of_node: dict[str, list[Cable]] = {}
    of_switch: dict[str, list[Cable]] = {}
    for cable in sorted(good) if keys else ():
        for end in (cable.a, cable.b):
            if (end.host, end.rail) in keys:
                (of_switch if end.is_switch else of_node).setdefault(end.host, []).append(cable)
    nodes = {node for node, _rail in plan.hcas}
    if len(of_node) >= _FEWEST and 2 * len(of_node) > len(nodes):
        cables = tuple(cable for some in of_node.values() for cable in some)
        yield _unproved(
            "fabric", f"the adapters of {len(of_node)} of {len(nodes)} nodes", cables, _NAME_THEM
        )
        of_node = {}
    for node, some in of_node.items():
        rails = sum(1 for host, _rail in matches.by_key if host == node)
        if 1 < len(some) == rails:
            named = all((node, cable.a.rail) in matches.contested for cable in some)
            what = f"the adapters of {node}"
            yield _unproved(f"node:{node}", what, tuple(some), _NAME_THEM, named)
            continue
        for cable in some:
            named = (node, cable.a.rail) in matches.contested
            what = f"the adapter in the place of {node} rail {cable.a.rail}"
            yield _unproved(f"hca:{cable.a}", what, (cable,), _NAME_THEM, named)
    for name, some in of_switch.items():
        remedy = f"name the switch, or declare its GUID (switch_guids: {name})"
        yield _unproved(f"switch:{name}", f"the switch in the place of {name}", tuple(some), remedy)


def _unproved(
    subject: str, what: str, cables: tuple[Cable, ...], remedy: str, named: bool = False
) -> Finding:
    known = "by a name that another device has, too" if named else "by place alone"
    return Finding(
        IDENTITY,
        subject,
        f"{what}: known {known}, so an exchanged cable would not show",
        remedy,
        cables,
        status=NOT_MEASURED,
    )


def _judge_switch_names(plan: CablePlan, sweep: Sweep, matches: Matches) -> list[Finding]:
    wrong: dict[str, str] = {}
    machines = Counter(_machine(one) for one in sweep.devices.values() if one.kind == SWITCH)
    for key, guid in sorted(matches.by_key.items()):
        if key[1] >= 0 or matches.reasons[guid] == BY_NAME:
            continue
        reported = sweep.devices[guid].description
        alike = machines[_machine(sweep.devices[guid])]
        if switch_name(reported) not in plan.switches and alike > 1:
            # All chips of a director have its name: each is known by its neighbours.
            continue
        # A switch without its own system cannot be given a name.
        if key[0] not in (reported.strip(), switch_name(reported)) and not unnamed(reported):
            wrong[key[0]] = switch_name(reported)
    return list(_misnamed("switch", wrong, len(plan.switches), "on the switch itself"))


def _machine(switch: FoundDevice) -> tuple[str, str | None]:
    """Return name and system GUID: all chips of a director have the same, two switches have not."""
    return switch_name(switch.description), switch.system_guid


def _misnamed(kind: str, wrong: Mapping[str, str], of_all: int, where: str) -> Iterator[Finding]:
    """Yield a finding for each misnamed device; one for two that have each other's name."""
    if len(wrong) >= _FEWEST and 2 * len(wrong) > of_all:
        plural = "nodes" if kind == "node" else "switches"
        names = [f"{name} shows {shown or 'nothing'}" for name, shown in sorted(wrong.items())]
        yield Finding(
            DESCRIPTION,
            "fabric",
            f"{len(wrong)} of {of_all} {plural} are not named as planned: {several(names)}",
            f"correct the names in the inventory, or {where}",
        )
        return
    done: set[str] = set()
    for name, shown in sorted(wrong.items()):
        if name in done:
            continue
        if wrong.get(shown) == name:
            done.add(shown)
            text = f"{name} says that it is {shown}, and {shown} that it is {name}"
            remedy = f"exchange their names {where}: GUIDs and cables are right"
        else:
            text = f"{name} says that it is {shown}" if shown else f"{name} does not say its name"
            remedy = f"set its name to {name} {where}"
            if not shown:
                remedy += ", and see that rdma-ndd.service runs"
        yield Finding(DESCRIPTION, f"{kind}:{name}", text, remedy)


def _wrong_hosts(
    sweep: Sweep,
    matches: Matches,
    hosts: Mapping[str, Mapping[int, str]],
    found: Mapping[str, int],
) -> Iterator[Finding]:
    whole: dict[str, str] = {}
    for node, shown in hosts.items():
        names = set(shown.values())
        if len(names) == 1 and len(shown) == found[node] and len(shown) > 1:
            whole[node] = names.pop()
            continue
        for rail, name in shown.items():
            here = sweep.devices[matches.by_key[node, rail]].description.strip()
            yield Finding(
                DESCRIPTION,
                f"hca:{node}/rail{rail}",
                f"the adapter in the place of {node} rail {rail} says that it is {here!r}",
                f"compare its GUID with ibstat on {node}"
                + (
                    f"; it may belong to {name}"
                    if name.lower() not in ("", "localhost")
                    else "; see that rdma-ndd.service runs"
                ),
            )
    yield from _misnamed("node", whole, len(found), "with hostnamectl")


def _lost(node: str, rails: list[int]) -> Finding:
    return Finding(
        DESCRIPTION,
        f"node:{node}" if len(rails) > 1 else f"hca:{node}/rail{rails[0]}",
        f"{node}: no name was read of {several([f'rail {rail}' for rail in rails])}, in a sweep "
        "that is not whole",
        "look again; if it stays so, see that rdma-ndd.service runs there",
        status=NOT_MEASURED,
    )


def _wrong_devices(
    plan: CablePlan, renamed: Mapping[str, Mapping[int, str]], found: Mapping[str, int]
) -> Iterator[Finding]:
    remedy = "run the role infiniband, which names the rails; then reload the node description"
    whole = sorted(node for node, shown in renamed.items() if 1 < len(shown) == found[node])
    if len(whole) >= _FEWEST and 2 * len(whole) > len(found):
        yield Finding(
            RENAMED,
            "fabric",
            f"on {len(whole)} of {len(found)} nodes no rail has a name of the plan: "
            f"{several(whole)}",
            remedy + "; or correct the names in the profile",
        )
        return
    for node, shown in sorted(renamed.items()):
        names = [f"rail {rail} is {name!r}" for rail, name in sorted(shown.items())]
        if node in whole:
            text = f"no rail of {node} has its name: {several(names)}"
            yield Finding(RENAMED, f"node:{node}", text, remedy)
            continue
        for rail, name in sorted(shown.items()):
            known = " or ".join(plan.hcas[node, rail].devices)
            yield Finding(
                RENAMED,
                f"hca:{node}/rail{rail}",
                f"{node} rail {rail} is in its place, but is called {name!r} and not {known}",
                remedy,
            )
