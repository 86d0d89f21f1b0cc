# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What pair tests say of each part, as records: fail, pass, or not measured. Pure."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Iterable, Iterator, Mapping

from .._core.record import FAIL, NOT_MEASURED, PASS, Record, Threshold
from .._fabric.model import CablePlan, End
from .._fabric.routes import COMPUTED
from .follow_up import FollowUp
from .localise import Finding, Fleet, Measurement, Verdict, kind_of, significant
from .suspects import (
    CABLE,
    CAGE,
    HCA,
    IN_PART,
    NODE,
    PAIR,
    SWITCH,
    Suspect,
    Suspects,
    elements,
    parts,
)
from .thresholds import FLEET, OTHERS

PART = "fabric.pairs.part"
INTERACTION = "fabric.pairs.interaction"
COLLISION = "fabric.pairs.collision"
REPEAT = "fabric.pairs.repeat"
_UNIT = "Gb/s"
_MOST_EVIDENCE = 6

_REMEDY = {
    CABLE: "clean and reseat both plugs of it; where that does not help replace the cable, then "
    "try another port at either end",
    HCA: "look at its PCIe link and GPU first (ib_health, lspci: width and speed, ACS), then "
    "replace the adapter",
    CAGE: "reseat the transceiver of this cage, then replace it: it carries both links",
    NODE: "look at the node as a whole: PCIe (ACS, IOMMU, maximum read request), drivers, power",
    SWITCH: "look at the switch as a whole: temperature, power, firmware; then at its ports",
    PAIR: "replace nothing: run this pair again, then look for what only meets here: routes that "
    "share a link, settings that differ between the two",
}


def make_records(
    plan: CablePlan,
    suspects: Suspects,
    verdict: Verdict,
    further: FollowUp,
    thresholds: Mapping[float, Threshold],
) -> list[Record]:
    """Return the record of the fleet, of each finding, and of every part of the plan."""
    records = [_of_fleet(verdict, thresholds)]
    found = [_of_finding(each, verdict, further, suspects, thresholds) for each in verdict.findings]
    records += found
    for each, record in zip(verdict.findings, found):
        named = {one.subject for one in records}
        records += [
            one for one in _of_cage(plan, suspects, each, record) if one.subject not in named
        ]
    records += _of_lone_values(suspects, verdict)
    records += _of_collisions(plan, verdict)
    named = {record.subject for record in records}
    alike = {
        subject: each.subjects[0] for each in verdict.findings for subject in each.subjects[1:]
    }
    inside = {
        part: each.subjects[0]
        for each in verdict.findings
        for part in _parts_of(plan, each.suspects[0], each.affected)
    }
    records += _of_parts(plan, suspects, verdict, named, alike, inside)
    records += _of_nodes(plan, records)
    return records


def _of_fleet(verdict: Verdict, thresholds: Mapping[float, Threshold]) -> Record:
    """The middle of all flows that no finding explains against the threshold.

    What is wrong everywhere shows nowhere else. Of several rates the one that is nearest to its
    threshold, or farthest below it, is judged.
    """
    explained = {id(flow) for finding in verdict.findings for flow in finding.flows}
    every = {rate: flows for (loopback, rate), flows in verdict.alike.items() if not loopback}
    rest = {
        rate: [flow for flow in flows if id(flow) not in explained] for rate, flows in every.items()
    }
    values = {
        rate: [flow.gbps or 0.0 for flow in flows]
        for rate, flows in (rest if any(rest.values()) else every).items()
        if flows
    }
    middles = {rate: significant(statistics.median(values[rate])) for rate in sorted(values)}
    rate = min(
        middles, key=lambda one: middles[one] - thresholds[one].value, default=min(thresholds)
    )
    text = f"the median of {len(values[rate])} flows" if values else "no flow was measured"
    evidence = []
    for one, middle in middles.items():
        fleet = verdict.fleets[False, one]
        if len(middles) > 1:
            evidence.append(f"median of {len(values[one])} flows of {one:g} Gb/s: {middle:g} Gb/s")
        if fleet.values:
            evidence.append(f"spread of good flows {significant(fleet.spread, 2):g} Gb/s")
    return FLEET.judge(
        "fabric",
        middles.get(rate),
        thresholds[rate].value,
        source=thresholds[rate].source,
        text=text + (f" of {rate:g} Gb/s" if len(middles) > 1 else ""),
        evidence=evidence,
    )


def _of_finding(
    finding: Finding,
    verdict: Verdict,
    further: FollowUp,
    suspects: Suspects,
    thresholds: Mapping[float, Threshold],
) -> Record:
    first = finding.suspects[0]
    threshold = thresholds[finding.kind[1]]
    if finding.legal:
        threshold = _others(verdict.fleets[finding.kind])
    return Record(
        check=INTERACTION if finding.interaction else PART,
        subject=first.subject,
        status=FAIL,
        text=" ".join(_sentences(finding, further, suspects)),
        measured={"value": significant(finding.median_gbps), "unit": _UNIT},
        threshold=threshold,
        evidence=_evidence(finding.flows),
        remedy=_REMEDY[first.kind],
    )


def _of_cage(
    plan: CablePlan, suspects: Suspects, finding: Finding, record: Record
) -> Iterator[Record]:
    """Yield a failure for each cable that is slow by its cage: a cable fails nodes, a cage none.

    A flow over two cables of the cage tells neither from the other. Where a switch may be the cause
    instead, none fails.
    """
    kinds = {one.kind for one in finding.suspects}
    if finding.suspects[0].kind != CAGE or SWITCH in kinds:
        return
    cages = " or ".join(one.subject for one in finding.suspects if one.kind == CAGE)
    by_end = plan.by_end()
    inside = _parts_of(plan, finding.suspects[0], ())
    over: dict[str, list[Measurement]] = {}
    alone: set[str] = set()
    for flow in finding.flows:
        links = suspects.links(flow.source, flow.target)
        crossed = {by_end[link].subject for link in links} & inside
        for cable in crossed:
            over.setdefault(cable, []).append(flow)
        if len(crossed) == 1:
            alone |= crossed
    for cable in sorted(alone or over):
        middle = significant(statistics.median(flow.gbps or 0.0 for flow in over[cable]))
        yield replace(
            record,
            subject=cable,
            text=f"part of {cages}, whose transceiver is slow: {len(over[cable])} flows",
            measured={"value": middle, "unit": _UNIT},
            evidence=_evidence(over[cable]),
        )


def _sentences(finding: Finding, further: FollowUp, suspects: Suspects) -> Iterator[str]:
    first, slow = finding.suspects[0], len(finding.flows)
    of = slow + finding.good
    if finding.interaction:
        yield (
            f"{slow} of {of} flows between these two are slow, but every part on the way passes "
            "with others: an interaction, not a part."
        )
    elif first.mode == IN_PART:
        yield f"{len(finding.affected)} of its parts are slow together: {_some(finding.affected)}."
    else:
        way = f" {first.mode}" if first.mode.startswith("from") else ""
        way = f" in what it {first.mode}" if first.mode in ("sends", "receives") else way
        yield f"{slow} of {of} flows over it{way} are slow, and it is what they have in common."
    if finding.legal:
        yield "They reach the threshold, but not what the others do."
    rest = finding.subjects[1:]
    if rest:
        yield f"These measurements cannot tell it from {_some(rest)}."
        units = [unit for one, two, some in further.apart if {one, two} <= set(finding.subjects)
                 for unit in some]  # fmt: skip
        if units:
            pairs = dict.fromkeys(
                f"{unit.a} with itself" if unit.loopback else f"{unit.a} with {unit.b}"
                for unit in units
            )
            yield f"Extra pairs that would: {_some(list(pairs))}."
        for one, two in further.inseparable:
            if {one, two} <= set(finding.subjects):
                yield f"No pair tells {one} from {two}: exchange one of them."
    if suspects.routes.source == COMPUTED and first.kind in (CABLE, CAGE, SWITCH):
        yield f"The routes are {suspects.routes.source}, not those that are programmed."


def _others(fleet: Fleet) -> Threshold:
    """What the others reach, less three spreads."""
    low = significant(fleet.median - 3 * fleet.spread)
    return OTHERS.filled(flows=fleet.values).threshold(low)


def _evidence(flows: Iterable[Measurement]) -> tuple[str, ...]:
    flows = sorted(flows, key=lambda flow: flow.gbps or 0.0)
    lines = [
        f"round {flow.round + 1}: {flow}" + (f" ({flow.reason})" if flow.reason else "")
        for flow in flows[:_MOST_EVIDENCE]
    ]
    more = len(flows) - len(lines)
    return (*lines, f"and {more} more") if more else tuple(lines)


def _of_lone_values(suspects: Suspects, verdict: Verdict) -> Iterator[Record]:
    for flow in verdict.unexplained:
        yield Record(
            check=REPEAT,
            subject=f"pair:{flow.source}--{flow.target}",
            status=NOT_MEASURED,
            text="one low value, and nothing else that was measured says why",
            measured={"value": significant(flow.gbps or 0.0), "unit": _UNIT},
            threshold=_others(verdict.fleets[kind_of(suspects, flow)]),
            evidence=_evidence([flow]),
            remedy="run the follow-up: this pair again, and both ends with others",
        )


def _of_collisions(plan: CablePlan, verdict: Verdict) -> Iterator[Record]:
    by_end = plan.by_end()
    for link, flows in sorted(verdict.collisions.items()):
        yield Record(
            check=COLLISION,
            subject=by_end[link].subject,
            status=NOT_MEASURED,
            text=f"{len(flows)} flows met on the link from {link}, each got a share of it: this is "
            "the routing, not a fault, and was not counted",
            evidence=_evidence(flows),
            remedy="make the schedule from the forwarding tables of this subnet manager",
        )


def _parts_of(plan: CablePlan, suspect: Suspect, affected: tuple[str, ...]) -> set[str]:
    """Return the parts that a finding about a whole speaks for."""
    if suspect.kind not in (NODE, SWITCH, CAGE):
        return set()
    name = suspect.subject.split(":", 1)[1]
    found = set()
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            if end.host == name and (not affected or cable.subject in affected):
                found.add(cable.subject)
                if not end.is_switch:
                    found.add(f"hca:{end}")
            elif suspect.kind == CAGE and end.is_switch:
                if f"{end.host}/{plan.switches[end.host].cage(end.port)}" == name:
                    found.add(cable.subject)
            elif suspect.kind == CAGE:
                if f"{end.host}/{plan.hcas[end.host, end.rail].cage}" == name:
                    found.add(cable.subject)
    return found


def _of_parts(
    plan: CablePlan,
    suspects: Suspects,
    verdict: Verdict,
    named: set[str],
    alike: dict[str, str],
    inside: dict[str, str],
) -> Iterator[Record]:
    """Yield a record for each part that no other record is about."""
    sent: dict[End, list[Measurement]] = {}
    turned: dict[End, list[Measurement]] = {}
    for flow in verdict.counted:
        links = suspects.links(flow.source, flow.target)
        if verdict.both_ways:
            links += suspects.links(flow.target, flow.source)
        for link in links:
            sent.setdefault(link, []).append(flow)
        if flow.loopback:
            turned.setdefault(flow.source, []).append(flow)
    # A slow flow proves no part on its way good, whichever of them is found to slow it.
    slow = {id(flow): "nothing" for flow in verdict.unexplained}
    slow.update((id(flow), one.subjects[0]) for one in verdict.findings for flow in one.flows)
    by_end = plan.by_end()
    for subject, kind, ends in parts(plan):
        if subject in named:
            continue
        ways = list(ends)
        if kind == HCA:
            ways = [ends[0], by_end[ends[0]].other(ends[0])] if ends[0] in by_end else []
        flows = [sent.get(end, []) for end in ways]
        every = {id(flow): flow for some in flows for flow in some}
        # What turns round in an adapter takes no cable: it tells the two apart.
        inner = [one for one in turned.get(ends[0], ()) if kind == HCA and id(one) not in slow]
        good = [flow for flow in every.values() if id(flow) not in slow] or inner
        status, text = PASS, f"{len(good)} flows over it are as good as those of the fleet"
        if subject in alike:
            status, text = (
                NOT_MEASURED,
                f"cannot be distinguished from {alike[subject]}, which is slow",
            )
        elif subject in inside:
            status, text = NOT_MEASURED, f"part of {inside[subject]}, which is slow as a whole"
        elif kind == SWITCH and good:
            pass
        elif not ways or not all(
            some and (inner or any(id(flow) not in slow for flow in some)) for some in flows
        ):
            status, text = NOT_MEASURED, _why_not(ways, flows, slow)
        middle = statistics.median(flow.gbps or 0.0 for flow in good) if good else None
        yield Record(
            check=PART,
            subject=subject,
            status=status,
            text=text,
            measured=None if middle is None else {"value": significant(middle), "unit": _UNIT},
            remedy="" if status == PASS else "run the pairs that are missing",
        )


def _of_nodes(plan: CablePlan, records: Iterable[Record]) -> Iterator[Record]:
    """Yield a pass for each node whose parts all pass: it may have failed as a whole before."""
    passed = {record.subject for record in records if record.status == PASS}
    for subject, rails in elements(plan).items():
        # One with a single rail is the same as its adapter.
        if subject.startswith(f"{NODE}:") and len(rails) > 1 and passed.issuperset(sum(rails, ())):
            yield Record(PART, subject, PASS, f"its {len(rails)} rails pass")


def _why_not(ways: list[End], flows: list[list[Measurement]], slow: Mapping[int, str]) -> str:
    if not ways:
        return "it has no cable in the plan"
    missing = [str(end) for end, some in zip(ways, flows) if not some]
    if missing:
        return f"no measured flow is sent from {_some(missing)}"
    causes = {
        str(end): slow[id(some[0])]
        for end, some in zip(ways, flows)
        if all(id(flow) in slow for flow in some)
    }
    why = _some(dict.fromkeys(causes.values()))
    return f"all flows from {_some(causes)} are slow, and {why} says why"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - 4
    return ", ".join(names[:4]) + (f" and {more} more" if more > 0 else "")
