# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ansible.parsing.dataloader import DataLoader

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Option
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.contract import (
    GROUPS,
    VARIABLES,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
    load_defaults,
    load_roles,
)

KINDS = {"str", "path", "int", "float", "bool", "list", "dict", "raw"}


def inner(option: Option) -> Iterator[Option]:
    yield option
    below = [*(option.options or {}).values(), *([option.each] if option.each else [])]
    for item in below:
        yield from inner(item)


def test_the_collection_finds_itself(root: Path) -> None:
    assert Path(collection_root()).resolve() == root


def test_small_collection(small_collection: Path) -> None:
    roles = load_roles(str(small_collection))
    assert roles["slurm_base"].groups == ("slurm_controllers", "gpu_nodes", "cpu_nodes")
    assert roles["slurm_controller"].groups == ("slurm_controllers",)
    assert roles["slurm_controller"].wired == {"slurm_controller_hosts"}
    assert roles["node_base"].groups == ()


def test_defaults_without_secrets(small_collection: Path) -> None:
    roles = load_roles(str(small_collection))
    defaults = load_defaults(str(small_collection), roles, DataLoader())
    assert defaults == {"slurm_base_uid": 64030}


def test_own_roles_can_be_checked(root: Path) -> None:
    """Each role of the collection: known kinds, its prefix, and groups of the contract."""
    roles = load_roles(str(root))
    assert "slurm_controller" in roles
    for name, role in roles.items():
        assert role.options, name
        assert set(role.groups) <= {*GROUPS, "cluster"}
        for option, spec in role.options.items():
            assert option.startswith(name + "_")
            assert {item.type for item in inner(spec)} <= KINDS
            assert option not in VARIABLES


def test_playbooks_give_the_controller_its_hosts(root: Path) -> None:
    """What the playbooks compute must not be asked of the inventory."""
    controller = load_roles(str(root))["slurm_controller"]
    assert controller.groups == ("slurm_controllers",)
    assert {"slurm_controller_cluster_name", "slurm_controller_nodes"} <= controller.wired
