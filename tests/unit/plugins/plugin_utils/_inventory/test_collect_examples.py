# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventories that people copy are valid, against the collection's own roles."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import load_roles
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan, make_plan
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.report import summary


def planned(root: Path, name: str, extra: dict[str, Any] | None = None) -> Plan:
    roles = load_roles(str(root))
    loader = DataLoader()
    loader.set_basedir(str(root / "playbooks"))
    inventory = InventoryManager(loader=loader, sources=[str(root / "inventories" / name)])
    manager = VariableManager(loader=loader, inventory=inventory)
    manager._extra_vars = extra or {}
    return make_plan(collect(loader, inventory, manager, roles, str(root)), roles)


def healthy(plan: Plan) -> dict[str, Any]:
    assert plan.problems == ()
    assert plan.data is not None
    return plan.data


def test_core_12(root: Path) -> None:
    plan = planned(root, "core_12")
    counts = summary(healthy(plan))
    assert (counts["gpus"], counts["racks"]) == (96, 3)
    assert counts["groups"] == {
        "gpu_nodes": 12,
        "slurm_controllers": 2,
        "slurm_databases": 1,
        "login_nodes": 2,
        "monitoring_nodes": 1,
        "subnet_managers": 2,
    }
    # Twelve nodes on two switches block: worth saying, no mistake.
    blocks, alerts = plan.warnings
    assert "48 would not block" in blocks
    # Whom a site notifies no example can know.
    assert "alertmanager_receivers is empty" in alerts


def test_minimal(root: Path) -> None:
    """What a first cluster needs, and nothing else: eleven variables."""
    plan = planned(root, "minimal")
    counts = summary(healthy(plan))
    assert plan.warnings == ()
    assert (counts["nodes"], counts["gpus"]) == (5, 32)
    written = {
        line.split(":")[0]
        for path in sorted((root / "inventories/minimal/group_vars").rglob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line and line[0].islower()
    }
    assert len(written) == 11


def test_superpod_127(root: Path) -> None:
    plan = planned(root, "superpod_127")
    data = healthy(plan)
    (alerts,) = plan.warnings
    assert "alertmanager_receivers is empty" in alerts
    assert summary(data)["gpus"] == 1016
    nodes = {node["name"]: node for node in data["nodes"]}
    assert (nodes["dgx-127"]["rack"], nodes["dgx-127"]["rack_unit"]) == ("r32", 23)
    assert Counter(node["su"] for node in data["nodes"] if node["profile"]) == {
        1: 32,
        2: 32,
        3: 32,
        4: 31,
    }
    switches = {item["switch"]: item for item in data["slurm"]["topology"]}
    assert switches["core"]["switches"] == ["su1", "su2", "su3", "su4"]
    assert switches["su4"]["nodes"][0] == "dgx-097"


def test_ufm_takes_the_ports_of_one_node(root: Path) -> None:
    """A full unit has none to spare; this is why there is no 128th node."""
    plan = planned(root, "superpod_127", {"cluster_fabric": _with_ufm_on(root, unit=3)})
    assert [line.split(":")[0] for line in plan.problems] == ["--extra-vars.cluster_fabric"]
    assert "ports for 31" in plan.problems[0]


def _with_ufm_on(root: Path, unit: int) -> dict[str, Any]:
    """The fabric of superpod_127 with UFM on a unit that is full already."""
    fabric = dict(healthy(planned(root, "superpod_127"))["cluster"]["fabric"])
    return {**fabric, "ufm_unit": unit}


@pytest.mark.parametrize("key", [None, "ssh-ed25519 AAAA pod"])
def test_virtual_pod(root: Path, key: str | None) -> None:
    """`pod inventory` gives the key; without it, that is all that lacks."""
    plan = planned(root, "virtual_pod", {"virtual_pod_public_key": key} if key else {})
    if key:
        assert summary(healthy(plan))["gpus"] == 32
    else:
        assert all("virtual_pod_public_key" in line for line in plan.problems)
