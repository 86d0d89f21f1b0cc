# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which users and groups of a host the directory does not have."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Opaque, Unresolved
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Site
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.identity import (
    identity_inputs,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._templating.render import trusted


def inputs(**variables: Any) -> dict[str, Any]:
    node = {"name": "dgx-01", "state": "present", "profile": None, "groups": ["gpu_nodes"]}
    values = {name: Value(value, f"all.{name}") for name, value in variables.items()}
    plan = {"nodes": [node], "profiles": {}}
    return identity_inputs(Site(plan, Inventory({}, (), {"dgx-01": values}), {}).hosts["dgx-01"])


def test_users_and_groups_of_the_host_are_its_alone() -> None:
    users = [
        {"name": "ops", "uid": 1500, "sudo": "nopasswd"},
        {"name": "gone", "state": "absent"},
        {"name": "agent", "system": True, "state": "present"},
    ]
    groups = [{"name": "operators"}, {"name": "former", "state": "absent"}]
    known = {"node_base_users": users, "node_base_groups": groups}
    templar = Templar(loader=DataLoader(), variables=known)
    found = inputs(identity_domain="example.org", **known)
    assert {name: templar.template(trusted(text)) for name, text in found.items()} == {
        "identity_local_users": ["ops", "agent"],
        "identity_local_groups": ["operators"],
    }
    assert inputs(**known) == {}, "no directory"
    assert inputs(identity_domain="example.org") == {
        "identity_local_users": [],
        "identity_local_groups": [],
    }


@pytest.mark.parametrize(
    "users",
    [
        Unresolved("a fact of the host", later=True),
        Opaque(),
        [{"name": Unresolved("a fact of the host", later=True)}],
        [{"name": Opaque()}],
    ],
)
def test_names_that_only_the_host_knows_are_left_to_it(users: Any) -> None:
    found = inputs(identity_domain="example.org", node_base_users=users)
    assert "node_base_users" in found["identity_local_users"]
