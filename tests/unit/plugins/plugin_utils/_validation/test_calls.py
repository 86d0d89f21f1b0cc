# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of a node is asked what the tasks of validate_nodes ask, by the same options."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.calls import CALLS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.calls import (
    Reader,
    completed,
    module_tasks,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import PARTS

TASKS = ROOT / "playbooks" / "tasks"
VARIABLES: dict[str, Any] = {
    "inventory_hostname": "dgx-07",
    "node_health_profile": {
        "name": "dgx_h100",
        "gpus": {"count": 8, "type": "h100", "pci": ["1b:00.0"]},
        "nvme": {"read_mb_s": 20000},
    },
    "node_health_rails": [{"rail": 1, "rate_gbps": 400}],
    "again": True,
    "__validation_identities": {
        "gpu:dgx-07/1": {"pci": "1b:00.0", "uuid": "GPU-1", "serial": "4711"}
    },
    "__validate_seen": {"busy": False},
    "__validation": {
        "hardware_root": "",
        "health_thresholds": {},
        "ecc": True,
        "idle": True,
        "canary": {"mounts": [{"name": "home", "path": "/home"}]},
        "cpu_memory": {"seconds": 30, "memory_share": 0.25, "edac": True},
        "dcgm": {"level": 2, "parameters": {}, "skips_ok": ["eud"]},
        "burn": {
            "duration_s": 600,
            "n": 8192,
            "memory_mib": 0,
            "most_batch": 32,
            "thresholds": {},
            "again_after_days": 7,
        },
        "nccl": {"tool": "", "environment": {}, "time_limit_s": 300},
        "fio": {"folder": "", "size_mib": 8192, "seconds": 10, "root_ok": False},
    },
}
OMIT = "__omit_place_holder__1"


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(DataLoader(), str(ROOT))


def options(reader: Reader, part: str, **changes: Any) -> list[dict[str, Any]]:
    variables = {**VARIABLES, "omit": OMIT, **changes}
    (found,) = reader.parts([part], variables, OMIT)
    return [call["options"] for call in found["calls"]]


def test_each_part_has_a_task_whose_module_the_program_knows(reader: Reader) -> None:
    found = reader.parts(list(PARTS), {**VARIABLES, "omit": OMIT}, OMIT)
    assert [one["name"] for one in found] == list(PARTS)
    assert {one["name"] for one in found if one["loads"]} == {
        name for name, part in PARTS.items() if part.loads
    }
    asked = {call["module"] for one in found for call in one["calls"]}
    assert asked == set(CALLS)


def test_the_tasks_are_the_place_of_the_options(reader: Reader) -> None:
    """Each option that a task gives is there, whatever its value."""
    for part in PARTS:
        tasks = yaml.safe_load((TASKS / f"validate_{part}.yml").read_text())
        for (_module, given), found in zip(module_tasks(tasks), options(reader, part), strict=True):
            assert set(given) <= set(found), part


def test_values_of_the_node_and_defaults_of_the_module(reader: Reader) -> None:
    (gpu,) = options(reader, "gpu_health")
    assert (gpu["node"], gpu["sysfs"], gpu["timeout_s"], gpu["idle"]) == (
        "dgx-07",
        "/sys",
        10,
        True,
    )
    assert gpu["identities"] == [{"pci": "1b:00.0", "uuid": "GPU-1", "serial": "4711"}]
    (busy,) = options(reader, "gpu_health", __validate_seen={"busy": True})
    assert busy["idle"] is False
    (rails,) = options(reader, "ib_health")
    assert rails["rails"][0]["link_layer"] == "InfiniBand"
    assert rails["state_file"] == "/var/lib/baremetal-dgx/validate_ib_health.json"
    (fio,) = options(reader, "fio")
    assert (fio["folder"], fio["thresholds"]) == ("/raid", {"read_mb_s": 20000})


def test_the_burn_in_is_begun_and_then_waited_for(reader: Reader) -> None:
    begun, waited = options(reader, "burn")
    assert (begun["state"], begun["again"], begun["again_after_days"]) == ("started", True, 7)
    assert (waited["state"], waited["again"], waited["again_after_days"]) == ("finished", False, 0)
    # Else the second would burn once more what the first has left.
    assert (begun["again_if_unburned"], waited["again_if_unburned"]) == (True, False)
    assert begun["duration_s"] == waited["duration_s"] == 600
    # A profile may count its GPUs without their addresses.
    hgx = {"name": "hgx_h100", "gpus": {"count": 8, "type": "h100"}}
    for one in options(reader, "burn", node_health_profile=hgx):
        assert (one["slots"], one["count"]) == ([], 8)


def test_what_is_left_out_has_the_default_of_the_module(reader: Reader) -> None:
    (dcgm,) = options(reader, "dcgm")
    assert dcgm["timeout_s"] is None
    (nccl,) = options(reader, "nccl")
    assert nccl["busbw_threshold_gbps"] is None
    assert nccl["threshold_source"] == "set in the inventory"


def test_time_limits_outlast_what_the_parts_may_take(reader: Reader) -> None:
    found = reader.parts(list(PARTS), {**VARIABLES, "omit": OMIT}, OMIT)
    limits = {one["name"]: one["limit_s"] for one in found}
    assert limits["burn"] >= 2 * 600 + 600
    assert limits["dcgm"] >= 1800
    assert limits["nccl"] > 300
    assert limits["fio"] > 4 * 10
    assert min(limits.values()) >= 300


def test_a_value_that_the_module_refuses_is_an_error(reader: Reader) -> None:
    with pytest.raises(ValueError, match="dcgm_diag: value of level must be one of"):
        completed("dcgm_diag", {"level": 9})
    with pytest.raises(ValueError, match="gpu_health: argument 'profile' is of type"):
        options(reader, "gpu_health", node_health_profile="dgx_h100")
