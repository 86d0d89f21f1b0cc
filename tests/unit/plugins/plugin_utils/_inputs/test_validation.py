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


def test_what_the_heads_mount_is_not_asked_of_nodes() -> None:
    """The state of slurmctld, which check_inventory wants to be named."""
    state = {"name": "state", "path": "/nfs/slurm", "fstype": "nfs4"}

    def asked(*entries: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
        found = validation_inputs(host(canary={"mounts": list(entries)}))
        level = found["__validation_levels"]["quick"]
        return level["canary"]["mounts"], found["__validation_nothing"]["canary"]

    assert asked({**state, "groups": ["slurm_controllers"]}) == ([], "no mounts are declared")
    entry = "{{ cluster_validation['canary']['mounts'][%d]['%s'] }}"
    whole = {key: entry % (0, key) for key in state} | {"write": True}
    short = {key: entry % (1, key) for key in ("name", "path")} | {"write": False}
    software = {"name": "software", "path": "/nfs/software", "write": False}
    assert asked(state, {**software, "groups": ["gpu_nodes", "slurm_controllers"]}) == (
        [whole, short],
        "",
    )


@pytest.mark.parametrize(("count", "why"), [(1, "it has one GPU"), (2, ""), (8, "")])
def test_a_sum_needs_several_gpus(monkeypatch: pytest.MonkeyPatch, count: int, why: str) -> None:
    monkeypatch.setitem(PROFILE, "gpus", {"count": count, "type": "l40s"})
    settings = {"nccl": {"busbw_thresholds_by_type": {"l40s": 20}}}
    nothing = validation_inputs(host(**settings))["__validation_nothing"]
    assert (nothing["nccl"], nothing["burn"]) == (why, "")


def test_what_the_site_sets_holds() -> None:
    limits = {"gpu.clock_sm": 2100}
    found = validation_inputs(host(hold_s=600, health_thresholds=limits))["__validation_levels"]
    assert {found[level]["hold_s"] for level in LEVELS} == {600}
    assert [found[level]["health_thresholds"] for level in LEVELS] == [limits] * len(LEVELS)
