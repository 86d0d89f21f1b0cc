# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What records of pair tests say: rates keep their digits, however small they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pair_plans import small_plan

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import FAIL, Threshold
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import rail_end
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import computed_routes
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs import records as records_module
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.localise import Measurement
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.records import PART
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.schedule import make_schedule
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.session import (
    Localiser,
    Session,
    judge,
    make_records,
)

PLAN = small_plan(nodes=3, rails=1, units=1, spines=0)


@pytest.mark.parametrize(
    ("rate", "good", "slow", "flow"),
    [(400.0, 391.9, 97.97, "98 Gb/s"), (0.02, 0.01959, 0.004898, "0.0049 Gb/s")],
)
def test_rates_keep_four_digits(
    monkeypatch: pytest.MonkeyPatch, rate: float, good: float, slow: float, flow: str
) -> None:
    hcas = {key: replace(hca, rate_gbps=rate) for key, hca in PLAN.hcas.items()}
    plan = replace(PLAN, hcas=hcas)
    routes = computed_routes(plan)
    schedule = make_schedule(plan, routes)
    bad = rail_end("dgx-02", 0)
    values = [
        Measurement(n, half, a, b, rate * 0.97968 / (4 if a != b and bad in (a, b) else 1))
        for n, half, _unit, a, b in schedule.flows()
    ]
    thresholds = {rate: Threshold(">=", rate / 2, "Gb/s", "t")}
    session = Session(plan, routes, schedule, thresholds, False)
    found = Localiser(plan, routes)
    verdict, further = judge(session, found, values)
    # The kind of each flow is known since it was judged.
    monkeypatch.setattr(records_module, "kind_of", lambda *_of: pytest.fail("asked again"))
    records = make_records(plan, found.suspects, verdict, further, thresholds)
    assert records[0].measured == {"value": good, "unit": "Gb/s"}
    (failed,) = (record for record in records if record.status == FAIL)
    assert (failed.check, failed.subject) == (PART, "cable:dgx-02/rail0--leaf-10/2")
    assert failed.measured == {"value": slow, "unit": "Gb/s"}
    assert failed.evidence[0].endswith(flow)


@pytest.mark.parametrize(
    ("gbps", "cleared"),
    [
        (392.0, ["dgx-01", "dgx-02", "dgx-03", "dgx-04"]),
        (98.0, ["dgx-01", "dgx-03", "dgx-04"]),
        (None, ["dgx-01", "dgx-03", "dgx-04"]),
    ],
)
def test_a_node_passes_as_a_whole_when_all_of_its_parts_do(
    gbps: float | None, cleared: list[str]
) -> None:
    """It may have failed as a whole before."""
    plan = small_plan(nodes=4, rails=2, units=1, spines=0)
    routes = computed_routes(plan)
    bad = rail_end("dgx-02", 1)
    schedule = make_schedule(plan, routes)
    values = [
        Measurement(n, half, a, b, gbps if bad in (a, b) else 392.0)
        for n, half, _unit, a, b in schedule.flows()
    ]
    thresholds = {400.0: Threshold(">=", 360.0, "Gb/s", "t")}
    found = Localiser(plan, routes)
    verdict, further = judge(Session(plan, routes, schedule, thresholds, False), found, values)
    records = make_records(plan, found.suspects, verdict, further, thresholds)
    passed = [record.subject for record in records if record.status == "pass"]
    nodes = [subject for subject in passed if subject.startswith("node:")]
    assert nodes == [f"node:{name}" for name in cleared]
