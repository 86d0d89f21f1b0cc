# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The port of slurmctld that the inventory has."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Opaque, Unresolved
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Site, UnknownError
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.slurm import slurmctld_port
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)

FACT = Unresolved("a fact of the host", later=True)


def port(options: Any) -> int:
    node = {"name": "head-01", "state": "present", "profile": None, "groups": []}
    values = {"slurm_controller_options": Value(options, "all.slurm_controller_options")}
    plan = {"nodes": [node], "profiles": {}}
    return slurmctld_port(Site(plan, Inventory({}, (), {"head-01": values}), {}).hosts["head-01"])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, 0),
        ({"slurmctldport": "7000-7003"}, 7000),
        # Slurm's own: slurmd would restart on all nodes for the same port in other words.
        ({"SlurmctldPort": 6817}, 0),
        ({"KillWait": FACT}, 0),
        # The role writes these, and nothing but the port is asked of them here.
        (FACT, 0),
        (Opaque(), 0),
    ],
)
def test_another_port_than_slurms_own(options: Any, found: int) -> None:
    assert port(options) == found


def test_a_port_that_only_the_host_knows_is_refused() -> None:
    with pytest.raises(UnknownError, match=r"all\.slurm_controller_options\.SlurmctldPort: a fact"):
        port({"SlurmctldPort": FACT})
