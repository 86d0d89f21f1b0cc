# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a node is held for what validate_nodes asks of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Host, Site
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.validation import (
    validation_inputs,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.calls import Reader
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import LEVELS, PARTS

OMIT = "__omit_place_holder__1"
PROFILE = {"name": "dgx_h100", "gpus": {"count": 8, "type": "h100"}}


def host(**settings: Any) -> Host:
    """A host of a site with these settings of cluster_validation."""
    node = {"name": "dgx-01", "groups": ["gpu_nodes"], "profile": "dgx_h100", "mig": []}
    plan = {"cluster": {"fabric_kind": "none"}, "nodes": [node], "profiles": {"dgx_h100": PROFILE}}
    values = {"cluster_validation": Value(settings, "all.cluster_validation")}
    return Site(plan, Inventory({}, (), {"dgx-01": values}), {}).hosts["dgx-01"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "dcgm", [{}, *({"level": number} for number in (1, 2, 3, 4)), {"time_limit_s": 86400}]
)
def test_a_node_is_held_longer_than_all_parts_may_take(level: str, dcgm: dict[str, Any]) -> None:
    found = validation_inputs(host(dcgm=dcgm))["__validation_levels"][level]
    known = {
        "inventory_hostname": "dgx-01", "omit": OMIT, "node_health_profile": PROFILE,
        "node_health_rails": [{"rail": number, "rate_gbps": 400} for number in range(1, 9)],
        "__validation": found, "__validation_identities": {},
    }  # fmt: skip
    parts = Reader(DataLoader(), str(ROOT)).parts(list(PARTS), known, OMIT)
    assert found["hold_s"] >= sum(part["limit_s"] for part in parts)


def test_what_the_site_sets_holds() -> None:
    limits = {"gpu.clock_sm": 2100}
    found = validation_inputs(host(hold_s=600, health_thresholds=limits))["__validation_levels"]
    assert {found[level]["hold_s"] for level in LEVELS} == {600}
    assert [found[level]["health_thresholds"] for level in LEVELS] == [limits] * len(LEVELS)
