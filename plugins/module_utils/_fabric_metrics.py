# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Metrics of the fabric, of one judgement of it. Pure. docs/metrics.md lists them."""

from __future__ import annotations

from collections import Counter
from typing import Iterator, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_answers import FoundSms, Reading
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_counters import JUDGED, TOLD
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_findings import Finding
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_judge import Verdict
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import (
    SWITCH,
    CablePlan,
    End,
    Sweep,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._metrics import (
    COUNTER,
    Family,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
)

PREFIX = "baremetal_dgx_fabric"
_STATUSES = (PASS, FAIL, NOT_MEASURED)
_MANAGERS = {"master": "MASTER", "standby": "STANDBY"}


def plan_families(plan: CablePlan) -> Iterator[Family]:
    """Yield what is known of the plan alone: where each rail of a node goes to."""
    info = Family(f"{PREFIX}_cable_info", "1 for each planned cable of a node.")
    for cable in plan.cables:
        rail, leaf = (cable.b, cable.a) if cable.a.is_switch else (cable.a, cable.b)
        hca = plan.hcas.get((rail.host, rail.rail))
        if rail.is_switch or hca is None or not hca.devices:
            continue
        info.add(
            1,
            node=rail.host,
            device=hca.devices[0],
            rail=str(rail.rail),
            switch=leaf.host,
            port=str(leaf.port),
        )
    yield info


def verdict_families(
    plan: CablePlan, verdict: Verdict, records: Sequence[Record]
) -> Iterator[Family]:
    """Yield what was judged: records, findings, and cables by tier, rail and status."""
    counts = Counter(record.status for record in records)
    status = Family(f"{PREFIX}_records", "Records of the last run by status.")
    for name in _STATUSES:
        status.add(counts[name], status=name)
    yield status
    told = Family(f"{PREFIX}_finding", "1 for each thing that somebody has to do.")
    for finding in [*verdict.findings, *verdict.doubts]:
        node, switch, rail = _place(finding)
        told.add(
            1, kind=finding.kind, subject=finding.subject, status=finding.status,
            node=node, switch=switch, rail=rail,
        )  # fmt: skip
    yield told
    cables = Family(f"{PREFIX}_cables", "Planned cables by status.")
    number: Counter[tuple[str, str, str]] = Counter()
    groups = set()
    for cable, (found, _text) in verdict.cables.items():
        rails = {str(end.rail) for end in (cable.a, cable.b) if not end.is_switch}
        rail = rails.pop() if rails else ""
        groups.add((cable.kind, rail))
        number[cable.kind, rail, found] += 1
    for tier, rail in sorted(groups):
        for name in _STATUSES:
            cables.add(number[tier, rail, name], tier=tier, rail=rail, status=name)
    yield cables
    devices = Family(f"{PREFIX}_devices", "Nodes and switches, as planned and as found.")
    switches = [one for one in verdict.wiring.sweep.devices.values() if one.kind == SWITCH]
    devices.add(len({node for node, _rail in plan.hcas}), device="node", source="planned")
    seen = {key[0] for key in verdict.matches.by_key if key[1] >= 0}
    devices.add(len(seen), device="node", source="found")
    devices.add(len(plan.switches), device="switch", source="planned")
    devices.add(len(switches), device="switch", source="found")
    yield devices


def _place(finding: Finding) -> tuple[str, str, str]:
    """Return node, switch and rail of a finding; empty for what it has none of, or several."""
    ends: list[End] = [end for cable in finding.cables for end in (cable.a, cable.b)]
    kind, _colon, rest = finding.subject.partition(":")
    nodes = {end.host for end in ends if not end.is_switch}
    switches = {end.host for end in ends if end.is_switch}
    rails = {str(end.rail) for end in ends if not end.is_switch}
    if kind == "node":
        nodes = {rest}
        switches = set()
    elif kind == "switch":
        nodes, switches = set(), {rest}
    return _only(nodes), _only(switches), _only(rails)


def _only(values: set[str]) -> str:
    return next(iter(values)) if len(values) == 1 else ""


def manager_families(sms: FoundSms) -> Iterator[Family]:
    """Yield how many subnet managers there are; nothing where that is not known."""
    family = Family(f"{PREFIX}_subnet_managers", "Subnet managers by state.")
    if sms.asked and not sms.complaints:
        for name, state in _MANAGERS.items():
            family.add(sum(one.state == state for one in sms.sms), state=name)
    yield family


def port_families(verdict: Verdict, sweep: Sweep, reading: Reading | None) -> Iterator[Family]:
    """Yield the counters of ports that are not zero."""
    family = Family(
        f"{PREFIX}_port_errors_total", "Error counters of ports, where they are not 0.", COUNTER
    )
    wanted = {*JUDGED, *TOLD}
    for (guid, port), values in sorted(reading.ports.items() if reading else ()):
        end = verdict.matches.end(guid, port)
        device = sweep.devices.get(guid)
        if end is not None:
            name, rail = end.host, "" if end.is_switch else str(end.rail)
        elif device is not None:
            name, rail = device.description.strip() or guid, ""
        else:
            name, rail = guid, ""
        for counter, value in sorted(values.items()):
            if counter in wanted and value:
                family.add(value, device=name, port=str(port), rail=rail, counter=counter)
    yield family
