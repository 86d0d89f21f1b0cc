# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The judgement of a fabric: a sweep against the plan, from causes to consequences. Pure.

What explains most is judged first: devices that are exchanged, absent or silent; then chains of
misrouted cables; then single cables; and only cables that are in place are judged by rate
and errors. So each thing that is wrong is reported once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Iterator, Mapping, Sequence

from .._core.record import FAIL, NOT_MEASURED, PASS, Record, Threshold
from .findings import (
    DUPLICATE_GUID,
    HCA_ABSENT,
    NODE_ABSENT,
    SILENT,
    SPLIT,
    SWITCH_ABSENT,
    Finding,
    by_cost,
)
from .judge_absent import judge_absence, judge_unlinked
from .judge_adapters import OwnHca, identities
from .judge_counters import counter_lines, judge_counters
from .judge_places import Placed, as_a_whole, judge_identity, judge_names, judge_replaced, place
from .judge_rates import (
    Bandwidth,
    bandwidth_lines,
    bandwidths,
    found_rate,
    judge_rates,
    judge_uplinks,
    load_lines,
    loads,
)
from .judge_subnet_managers import Managers, judge_sms, sm_line
from .match import BY_ELIMINATION, BY_PLACE, BY_REMAINDER, Matches, is_aggregation, match
from .model import Cable, CablePlan, End, Sweep
from .parse_counters import FoundSms, Reading
from .thresholds import RATE
from .wiring import Wiring, find_misrouted, judge_unknown, spare_links, unread_links, wiring_of

# Of what was found, so much must be of the plan: else it is another cluster's fabric or plan.
LEAST_SHARE = 0.25

# The cables of these were not seen at all: they are not to blame, and not proved either.
_UNSEEN = {NODE_ABSENT, SWITCH_ABSENT, SPLIT, SILENT, DUPLICATE_GUID, HCA_ABSENT}


@dataclass
class Observation:
    """Everything that was looked at, at one time."""

    sweep: Sweep
    before: Reading | None = None
    after: Reading | None = None
    sms: FoundSms = field(default_factory=FoundSms)


@dataclass(frozen=True)
class Expectation:
    """What is wanted beside the cables."""

    subnet_managers: Managers = field(default_factory=Managers)
    other_hosts: Sequence[str] = ()
    oversubscription_max: float | None = None
    node_names: Mapping[str, str] = field(default_factory=dict)
    # By node: the adapters that it reports itself, of the nodes that answered.
    adapters: Mapping[str, Sequence[OwnHca]] = field(default_factory=dict)
    least_share: float = LEAST_SHARE


@dataclass
class Verdict:
    """What was found: findings to act on, what could not be judged, and a record for each cable."""

    findings: list[Finding]
    # Findings that are not measured, and the reasons for it.
    doubts: list[Finding]
    complaints: list[str]
    cables: dict[Cable, tuple[str, str]]
    rates: dict[Cable, float | None]
    information: list[str]
    wiring: Wiring
    matches: Matches
    bandwidths: list[Bandwidth] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return how many cables there are of each status."""
        counts = {PASS: 0, FAIL: 0, NOT_MEASURED: 0}
        for status, _text in self.cables.values():
            counts[status] += 1
        return counts


class OtherClusterError(ValueError):
    """Nearly nothing of what was found is in the plan."""


@dataclass(frozen=True)
class FirstLook:
    """Who is who and what hangs where, before anything is judged."""

    matches: Matches
    wiring: Wiring


def first_look(plan: CablePlan, sweep: Sweep, wanted: Expectation | None = None) -> FirstLook:
    """Match the devices and the links of a sweep with the plan."""
    wanted = wanted or Expectation()
    matches = match(plan, sweep, wanted.node_names, identities(plan, wanted.adapters))
    return FirstLook(matches, wiring_of(plan, sweep, matches))


class EmptyPlanError(ValueError):
    """The plan has nothing to compare with."""


def judge_fabric(
    plan: CablePlan,
    seen: Observation,
    wanted: Expectation | None = None,
    look: FirstLook | None = None,
) -> Verdict:
    """Return the verdict on a fabric; `look` is that at the same sweep, where there was one.

    EmptyPlanError for a plan without cables; OtherClusterError where the sweep, though it found
    devices, shares less than a quarter of them (wanted.least_share) with the plan.
    """
    wanted = wanted or Expectation()
    if not plan.cables:
        raise EmptyPlanError("the plan has no cables: nothing can be compared with it")
    sweep = seen.sweep
    look = look or first_look(plan, sweep, wanted)
    matches, wiring = look.matches, look.wiring
    _see_that_it_is_ours(plan, sweep, matches, wanted.least_share)
    placed = Placed(matches) if wiring.whole else place(plan, sweep, matches)
    if placed.findings:
        wiring = wiring_of(plan, sweep, placed.matches)
    absence = judge_absence(wiring, placed.absent_as)
    # What has no own record was not read: its cables are neither right nor wrong.
    unread = unread_links(wiring)
    misrouted = find_misrouted(
        wiring, absence.explained | unread.cables, absence.excused | unread.ends
    )
    doubled = set(sweep.duplicate_guids)
    findings = [
        *placed.findings,
        *judge_names(plan, sweep, _without(sweep, matches, doubled)),
        *judge_replaced(plan, sweep, _without(sweep, matches, doubled), placed.matches.by_key),
        *absence.findings,
        *_as_sure_as_the_sweep(
            wiring, _with_reasons(wiring, as_a_whole(wiring, misrouted.findings))
        ),
        *judge_unlinked(wiring, misrouted.unlinked),
        *_as_sure_as_the_sweep(
            wiring,
            judge_unknown(
                wiring,
                list(misrouted.unknown),
                set(wanted.other_hosts),
                sum(not wiring.found(cable.a) for cable in misrouted.unlinked),
            ),
        ),
    ]
    healthy = wiring.good - absence.explained - unread.cables
    spare = {cable for cable in spare_links(wiring) if cable.a not in unread.ends}
    findings += judge_rates(wiring, healthy | spare)
    findings += judge_counters(wiring, healthy | spare, seen.before, seen.after)
    hurt = {cable for finding in findings for cable in finding.cables} | absence.explained
    load = loads(wiring)
    findings += judge_uplinks(load, hurt | unread.cables, wanted.oversubscription_max)
    findings += judge_identity(plan, placed.matches, healthy)
    nodes = {node for node, _rail in plan.hcas}
    findings += judge_sms(sweep, placed.matches, seen.sms, wanted.subnet_managers, nodes)
    verdict = Verdict(
        findings=by_cost(finding for finding in findings if finding.status == FAIL),
        doubts=by_cost(finding for finding in findings if finding.status != FAIL),
        complaints=list(dict.fromkeys(sweep.complaints)),
        cables={},
        rates={cable: found_rate(wiring, cable) for cable in healthy},
        information=[],
        wiring=wiring,
        matches=matches,
        bandwidths=list(bandwidths(wiring, load)),
    )
    _judge_cables(plan, verdict, findings, unread.cables)
    verdict.information = [
        sm_line(sweep, placed.matches, seen.sms, wanted.subnet_managers),
        *bandwidth_lines(verdict.bandwidths),
        *load_lines(wiring, load),
        *counter_lines(wiring, seen.before, seen.after),
    ]
    return verdict


def _see_that_it_is_ours(plan: CablePlan, sweep: Sweep, matches: Matches, least: float) -> None:
    found = [
        device
        for device in sweep.devices.values()
        if device.recorded and not is_aggregation(device)
    ]
    # What an incomplete sweep lacks is not known.
    if not found or sweep.partial:
        return
    share = sum(device.guid in matches.by_guid for device in found) / len(found)
    # A fabric that is there, and to which another one is joined, is the plan's.
    whole = 2 * len(matches.by_key) > len(plan.hcas) + len(plan.switches)
    if share < least and not whole:
        raise OtherClusterError(
            f"of {len(found)} devices that were found {share * len(found):.0f} are in the plan of "
            f"{len(plan.hcas)} adapters and {len(plan.switches)} switches: this is another fabric, "
            "or the plan of another cluster"
        )


def _as_sure_as_the_sweep(wiring: Wiring, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings about links; of a sweep that is not whole, only known devices fail."""
    for finding in findings:
        ends = {end for cable in finding.cables for end in (cable.a, cable.b)} | {*finding.ends}
        ends |= {wiring.far[end] for end in ends if end in wiring.far}
        if wiring.sweep.partial and any(not _is_sure(wiring, end) for end in ends):
            yield replace(finding, status=NOT_MEASURED)
        else:
            yield finding


def _with_reasons(wiring: Wiring, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings about links, with how adapters without a name are known."""
    reasons = wiring.matches.reasons
    for finding in findings:
        ends = [cable.a for cable in finding.cables if wiring.found(cable.a)]
        known = {end: reasons[wiring.matches.by_key[end.host, end.rail]] for end in ends}
        lines = [
            f"{wiring.at(end)} is known by elimination: {why}"
            for end, why in sorted(known.items())
            if why in (BY_ELIMINATION, BY_REMAINDER)
        ]
        yield replace(finding, evidence=(*finding.evidence, *lines)) if lines else finding


def _is_sure(wiring: Wiring, end: End) -> bool:
    guid = wiring.matches.by_key.get((end.host, end.rail))
    return guid is not None and wiring.matches.reasons[guid] != BY_PLACE


def _without(sweep: Sweep, matches: Matches, guids: set[str]) -> Matches:
    """Return the matches without devices of which more than one has the GUID."""
    if not guids:
        return matches
    left = {
        key: guid
        for key, guid in matches.by_key.items()
        if guid not in guids
        and all(port.guid not in guids for port in sweep.devices[guid].ports.values())
    }
    return replace(matches, by_key=left, ends={})


def _judge_cables(
    plan: CablePlan,
    verdict: Verdict,
    findings: list[Finding],
    unread: set[Cable],
) -> None:
    """Give each planned cable its status, and the finding that says why."""
    why: dict[Cable, Finding] = {}
    for finding in findings:
        for cable in finding.cables:
            known = why.get(cable)
            if known is None or (known.status != FAIL and finding.status == FAIL):
                why[cable] = finding
    for cable in plan.cables:
        cause = why.get(cable)
        if cause is not None:
            unseen = cause.kind in _UNSEEN or cause.status != FAIL
            status = NOT_MEASURED if unseen else FAIL
            verdict.cables[cable] = (status, f"{cause.kind} {cause.subject}: {cause.text}")
        elif cable in unread:
            text = "the sweep has no record of a device at its end: look again"
            verdict.cables[cable] = (NOT_MEASURED, text)
        elif not verdict.wiring.right(cable):
            verdict.cables[cable] = (NOT_MEASURED, "what is around it could not be reached")
        elif verdict.rates.get(cable) is None:
            verdict.cables[cable] = (NOT_MEASURED, "in place; its rate was not reported")
        else:
            verdict.cables[cable] = (PASS, "")


def records_of(verdict: Verdict, evidence: Sequence[str] = ()) -> list[Record]:
    """Return the records of cables, findings, doubts and complaints.

    Each cable that is not right has its own; those that are right have one for each node, and one
    for each switch and the switches above it.
    """
    wanted_rates: dict[int, Threshold] = {}
    right: dict[tuple[str, int], list[Cable]] = {}
    records = []
    for cable, (status, text) in verdict.cables.items():
        rate = verdict.rates.get(cable)
        if status == PASS:
            right.setdefault((cable.a.host, cable.rate_gbps), []).append(cable)
            continue
        wanted = wanted_rates.setdefault(cable.rate_gbps, RATE.threshold(cable.rate_gbps))
        records.append(
            Record(
                check="fabric.cable",
                subject=cable.subject,
                status=status,
                text=text,
                measured=None if rate is None else {"value": rate, "unit": wanted.unit},
                threshold=wanted,
            )
        )
    for (host, planned), cables in right.items():
        wanted = wanted_rates.setdefault(planned, RATE.threshold(planned))
        slowest = min(rate for rate in map(verdict.rates.get, cables) if rate is not None)
        records.append(
            Record(
                check="fabric.cable",
                subject=f"cables:{host}",
                status=PASS,
                text=f"{len(cables)} cables are right" if len(cables) > 1 else "a cable is right",
                measured={"value": slowest, "unit": wanted.unit},
                threshold=wanted,
                evidence=tuple(f"{cable.a}--{cable.b}" for cable in cables),
            )
        )
    for finding in verdict.findings + verdict.doubts:
        threshold = finding.threshold
        measured: dict[str, Any] | None = None
        if finding.measured is not None and threshold is not None:
            measured = {"value": finding.measured, "unit": threshold.unit}
        records.append(
            Record(
                check=f"fabric.{finding.kind}",
                subject=finding.subject,
                status=finding.status,
                text=finding.text,
                measured=measured,
                threshold=threshold,
                evidence=(*finding.evidence, *evidence),
                remedy=finding.remedy,
            )
        )
    records += [
        Record("fabric.sweep", "fabric", NOT_MEASURED, complaint, evidence=tuple(evidence))
        for complaint in verdict.complaints
    ]
    return records
