# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a group is run where the nodes of a plan differ: by the adapters, rates and GPUs of it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.halving import ALL, KINDS, UNIT
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.session import (
    make_groups,
    measure_all,
    plan_of,
    problem_with,
)

# Nodes, rails, Gb/s: each unit has other leaves.
UNITS = ((("big-01", "big-02"), 8, 400), (("a-small-01", "a-small-02"), 4, 200))


def options(**more: Any) -> dict[str, Any]:
    hcas, cables, switches = [], [], []
    # The small ones come first in the plan, as in the order of names.
    for unit, (nodes, rails, rate) in enumerate(reversed(UNITS)):
        for rail in range(rails):
            switches.append({"name": f"leaf-{unit}-{rail}"})
            for place, node in enumerate(nodes):
                devices = [f"mlx5_rail{rail}", f"mlx5_{rail}"]
                hcas.append({"node": node, "rail": rail, "devices": devices, "rate_gbps": rate})
                cables.append({"a": [node, rail, 1], "b": [f"leaf-{unit}-{rail}", -1, place + 1]})
    return {
        "plan": {"hcas": hcas, "cables": cables, "switches": switches},
        "kinds": list(KINDS), "exclude": [], "divided": [], "environment": {}, "gpus_per_node": 8,
        "gpus": {"a-small-01": 4, "a-small-02": 4}, "threshold_share": 0.75,
        "threshold_source": "", "size_bytes": 2**33, "iterations": 20, "tool": "",
        "container_image": "", "container_mounts": "", "slurm_mpi": "pmix", "slurm_wait_s": 60,
        "slurm_options": [], "timeout_s": 300, "most_runs": 200, **more,
    }  # fmt: skip


def asked(kind: str, node: str) -> tuple[int, int, float | None]:
    """Adapters, GPUs a node and threshold of the group of this kind that has this node."""
    (group,) = (one for one in make_groups(options(), {}) if one.kind == kind and node in one.nodes)
    plan = plan_of(options(), group, "1")
    assert plan.given is not None
    names = plan.environment["NCCL_IB_HCA"].lstrip("=").split(",")
    assert names == [f"mlx5_rail{rail}" for rail in group.rails]
    return len(names), plan.gpus_per_node, plan.given.value


def test_a_group_has_the_adapters_the_rate_and_the_gpus_of_its_nodes() -> None:
    assert asked(UNIT, "big-01") == (8, 8, 300.0)
    assert asked(UNIT, "a-small-01") == (4, 4, 75.0)
    # Of nodes that differ: the rails that all have, at the lowest rate, with the fewest GPUs.
    assert asked(ALL, "big-01") == (4, 4, 75.0)


def test_rates_of_rails_that_take_no_part_do_not_count() -> None:
    given = options()
    for hca in given["plan"]["hcas"]:
        if hca["rail"] == 7:
            hca["rate_gbps"] = 100
    values = {
        group.name: plan_of(given, group, "1").given.value  # type: ignore[union-attr]
        for group in make_groups(given, {})
    }
    assert values["leaf-1-6"] == 37.5
    assert values["leaf-1-7"] == 9.4


def test_nodes_without_a_common_rail_are_no_group() -> None:
    given = options(kinds=[ALL])
    for hca in given["plan"]["hcas"]:
        if hca["node"] == "a-small-01":
            hca["rail"] += 8
    assert make_groups(given, {}) == []


def test_the_job_asks_for_what_each_of_its_nodes_has() -> None:
    given, calls = options(), []

    def run(argv: Any, *_more: Any, **_options: Any) -> CommandResult:
        calls.append(list(argv))
        return CommandResult(tuple(argv), ENDED, 0, "", "salloc: Granted job allocation 5\n", 1.0)

    measure_all(given, run, make_groups(given, {}))
    assert "--gres=gpu:4" in calls[0]
    steps = {word for argv in calls[1:] for word in argv if word.startswith("--gres")}
    assert steps == {"--gres=gpu:4", "--gres=gpu:8"}


@pytest.mark.parametrize("count", [0, "x", -1])
def test_a_wrong_number_of_gpus_is_named(count: Any) -> None:
    given = options(gpus={"big-01": count})
    assert problem_with(given, make_groups(given, {})) == (
        f"gpus.big-01: {count}; write how many GPUs it has"
    )
    assert problem_with(options(gpus={"big-01": "6"}), make_groups(given, {})) == ""
