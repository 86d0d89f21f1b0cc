# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._contract_types import check_value
from ansible_collections.baremetal.dgx.plugins.module_utils._profiles import (
    BUILT_IN,
    PROFILE_OPTION,
    Profile,
    resolve_profiles,
)

MACHINES = ("dgx_h100", "dgx_h200", "dgx_b200", "dgx_a100")


def resolved(site: dict[str, Any]) -> dict[str, Profile]:
    profiles, problems, broken = resolve_profiles(site, "all.cluster_profiles")
    assert not problems
    assert not broken
    return profiles


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_built_in_profiles_obey_their_own_rules(name: str) -> None:
    assert list(check_value(name, BUILT_IN[name], PROFILE_OPTION)) == []
    assert name in resolved({})


@pytest.mark.parametrize("name", MACHINES)
def test_a_dgx_is_complete(name: str) -> None:
    profile = resolved({})[name]
    assert profile.open_figures() == []
    assert profile.gpus is not None
    assert profile.cpu is not None
    assert len(profile.gpus.pci) == len(set(profile.gpus.pci)) == profile.gpus.count == 8
    assert len(profile.gpus.cores) == len(profile.gpus.numa) == 8
    assert [rail.rail for rail in profile.rails] == list(range(8))
    addresses = [rail.hca_pci for rail in profile.rails]
    assert len(set(addresses)) == 8
    assert not set(addresses) & set(profile.gpus.pci)
    # Rail r is the adapter beside GPU r.
    assert [rail.numa for rail in profile.rails] == list(profile.gpus.numa)


def test_dgx_h100() -> None:
    profile = resolved({})["dgx_h100"]
    assert profile.cpu is not None
    assert (profile.cpu.cores, profile.cpu.logical) == (112, 224)
    # Below what a server of this kind reports to slurmd -C, since less than declared is INVALID.
    assert 1_900_000 < (profile.real_memory_mb or 0) < 2_063_205
    assert profile.rails[0].hca_pci == "0000:18:00.0"
    assert [(rail.cage, rail.port) for rail in profile.rails] == [
        ("OSFP4", 2),
        ("OSFP3", 2),
        ("OSFP3", 1),
        ("OSFP4", 1),
        ("OSFP1", 2),
        ("OSFP2", 2),
        ("OSFP2", 1),
        ("OSFP1", 1),
    ]


def test_other_machines_differ_where_they_differ() -> None:
    profiles = resolved({})
    assert profiles["dgx_h200"].gpus is not None
    assert profiles["dgx_h200"].gpus.type == "h200"
    assert profiles["dgx_h200"].rails == profiles["dgx_h100"].rails
    assert profiles["dgx_b200"].rack_units == 10
    assert profiles["dgx_a100"].link_rate_gbps == 200
    assert profiles["hgx_h100"].open_figures() == ["cpu", "real_memory_mb"]


def test_inheriting_merges_mappings_and_replaces_lists() -> None:
    site = {
        "my_node": {
            "inherit": "dgx_h100",
            "real_memory_mb": 1000000,
            "gpus": {"memory_mib": 1},
            "rails": [{"rail": 0, "hca_pci": "0001:AA:00.0"}],
        },
        "my_other": {"inherit": "my_node", "rack_units": 4},
    }
    profiles = resolved(site)
    node, other = profiles["my_node"], profiles["my_other"]
    assert node.gpus is not None
    assert (node.gpus.count, node.gpus.memory_mib) == (8, 1)
    assert [rail.hca_pci for rail in node.rails] == ["0001:aa:00.0"]
    assert (other.real_memory_mb, other.rack_units) == (1000000, 4)


def test_a_site_changes_a_built_in_profile_under_its_own_name() -> None:
    profiles = resolved({"dgx_h100": {"real_memory_mb": 1950000}})
    assert profiles["dgx_h100"].real_memory_mb == 1950000
    assert profiles["dgx_h100"].rack_units == 8
    assert profiles["dgx_h200"].real_memory_mb == 2000000


def test_a_machine_without_gpus() -> None:
    cpu = {"sockets": 2, "cores_per_socket": 32, "threads_per_core": 2, "numa_nodes": 2}
    profile = resolved({"cpu_node": {"cpu": cpu, "real_memory_mb": 256000}})["cpu_node"]
    assert profile.gpus is None
    assert profile.open_figures() == []


def test_heirs_of_a_broken_profile_are_not_reported_again() -> None:
    site = {"one": {"rack_units": 99}, "two": {"inherit": "one"}}
    profiles, problems, broken = resolve_profiles(site, "p")
    assert [problem.path for problem in problems] == ["p.one.rack_units"]
    assert sorted(broken) == ["one", "two"]
    assert not {"one", "two"} & profiles.keys()
