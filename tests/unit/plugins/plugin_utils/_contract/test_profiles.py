# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import check_value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
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


@pytest.mark.parametrize(("name", "rate"), [("gb200_nvl72", 400), ("gb300_nvl72", 800)])
def test_a_tray_of_an_nvl72_has_four_gpus_and_four_rails(name: str, rate: int) -> None:
    profile = resolved({})[name]
    assert profile.gpus is not None
    assert profile.cpu is not None
    assert profile.nvlink is not None
    # What slurmd reports as memory depends on the settings of the driver.
    assert profile.open_figures() == ["real_memory_mb"]
    assert (profile.gpus.count, len(profile.gpus.pci), len(profile.rails)) == (4, 4, 4)
    assert (profile.link_rate_gbps, profile.rack_units) == (rate, 1)
    assert (profile.cpu.cores, profile.cpu.logical) == (144, 144)
    assert profile.gpus.cores == ("0-71", "0-71", "72-143", "72-143")
    assert [rail.hca_pci for rail in profile.rails] == [
        "0000:03:00.0",
        "0002:03:00.0",
        "0010:03:00.0",
        "0012:03:00.0",
    ]
    # Two GPUs and two adapters are beside each CPU; the NVSwitches are the rack's.
    assert [rail.numa for rail in profile.rails] == list(profile.gpus.numa) == [0, 0, 1, 1]
    assert profile.nvlink.nvswitches == 0
    assert profile.gpus.type == name.partition("_")[0]


def test_what_is_not_known_of_a_tray_is_left_open() -> None:
    profiles = resolved({})
    older, newer = profiles["gb200_nvl72"], profiles["gb300_nvl72"]
    assert older.rail_pcie is not None
    assert newer.rail_pcie is None
    assert older.gpus is not None
    assert newer.gpus is not None
    assert (older.gpus.memory_mib, newer.gpus.memory_mib) == (189471, 284208)
    for profile in (older, newer):
        # They depend on the ports that the BlueField-3 cards show.
        assert [rail.device for rail in profile.rails] == [None] * 4
        assert (profile.product_names, profile.storage_ports, profile.power_w) == ((), (), None)


@pytest.mark.parametrize(
    ("name", "mib", "wrong"),
    # Two Grace show 980,994 MiB, and with the memory of four GPUs 1,734,658 MiB.
    [("gb200_nvl72", 980000, False), ("gb300_nvl72", 1734000, True), ("dgx_h100", 1950000, False)],
)
def test_the_memory_of_a_tray_is_not_that_of_its_gpus(name: str, mib: int, wrong: bool) -> None:
    site = {"tray": {"inherit": name, "real_memory_mb": mib}}
    _profiles, problems, _broken = resolve_profiles(site, "all.cluster_profiles")
    paths = [one.path for one in problems]
    assert paths == (["all.cluster_profiles.tray.real_memory_mb"] if wrong else [])


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


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("dgx_h100", (0, 3, 4, 5, 6, 9, 10, 11)),
        ("dgx_h200", (0, 3, 4, 5, 6, 9, 10, 11)),
        ("dgx_b200", (4, 7, 8, 9, 10, 13, 14, 15)),
        ("dgx_a100", (0, 1, 2, 3, 6, 7, 8, 9)),
    ],
)
def test_a_rail_is_known_by_its_address_though_numbers_differ(
    name: str, numbers: tuple[int, ...]
) -> None:
    profile = resolved({})[name]
    assert [rail.device for rail in profile.rails] == [f"mlx5_{number}" for number in numbers]
    ports = profile.storage_ports
    assert len(ports) == 4
    every = [*(rail.hca_pci for rail in profile.rails), *(port.pci for port in ports)]
    assert len(every) == len(set(every)) == 12
    devices = [*(rail.device for rail in profile.rails), *(port.device for port in ports)]
    assert len(set(devices)) == 12
    assert {port.link_layer for port in ports} == {"infiniband", "ethernet"}


def test_h100_storage_ports() -> None:
    ports = resolved({})["dgx_h100"].storage_ports
    assert [(port.slot, port.port, port.pci, port.device, port.link_layer) for port in ports] == [
        (2, 1, "0000:29:00.0", "mlx5_1", "infiniband"),
        (2, 2, "0000:29:00.1", "mlx5_2", "ethernet"),
        (1, 1, "0000:aa:00.0", "mlx5_7", "infiniband"),
        (1, 2, "0000:aa:00.1", "mlx5_8", "ethernet"),
    ]


def test_b200_ports_that_belong_to_nvlink_are_no_rails() -> None:
    profiles = resolved({})
    (ignored,) = profiles["dgx_b200"].ignored_hcas
    assert (ignored.vpd, ignored.netdev, ignored.count) == ("SMDL=SW_MNG", "ibs14f*", 4)
    used = {rail.device for rail in profiles["dgx_b200"].rails}
    used |= {port.device for port in profiles["dgx_b200"].storage_ports}
    assert not used & {f"mlx5_{number}" for number in range(4)}
    assert all(profiles[name].ignored_hcas == () for name in profiles if name != "dgx_b200")


@pytest.mark.parametrize(
    ("name", "generation"),
    [("dgx_h100", 5), ("dgx_h200", 5), ("dgx_b200", 5), ("gb200_nvl72", 5), ("dgx_a100", 4)],
)
def test_pcie_carries_the_rate_of_a_port(name: str, generation: int) -> None:
    profile = resolved({})[name]
    assert profile.rail_pcie is not None
    assert (profile.rail_pcie.generation, profile.rail_pcie.width) == (generation, 16)
    # Gb/s of a lane: 8 in generation 3, doubled by each; 128 of 130 bits are data.
    carried = 8 * 2 ** (generation - 3) * 16 * 128 / 130
    assert carried > (profile.link_rate_gbps or 0) > carried / 2


@pytest.mark.parametrize(
    ("site", "line"),
    [
        (
            {"storage_ports": [{"pci": "18:00.0", "link_layer": "ethernet"}]},
            (
                "p.x.storage_ports: PCI address 0000:18:00.0 is written twice, once as a rail; "
                "write the address of each device"
            ),
        ),
        (
            {"storage_ports": [{"pci": "aa:00.0", "link_layer": "ib"}]},
            ("p.x.storage_ports[0].link_layer: 'ib' is not known; write infiniband or ethernet"),
        ),
        (
            {"ignored_hcas": [{"reason": "spare"}]},
            "p.x.ignored_hcas[0]: nothing to know the adapters by; write vpd or netdev",
        ),
        (
            {"ignored_hcas": [{"reason": "spare", "vpd": "SW_MNG"}]},
            (
                "p.x.ignored_hcas[0].vpd: 'SW_MNG' does not fit; write a field of the vital "
                "product data like SMDL=SW_MNG"
            ),
        ),
        (
            {"rail_pcie": {"generation": 5, "width": 12}},
            "p.x.rail_pcie.width: '12' is not known; write 1, 2, 4, 8 or 16",
        ),
        ({"rail_pcie": {"generation": 5}}, "p.x.rail_pcie.width: missing; write 1, 2, 4, 8 or 16"),
        (
            {"rails": [{"rail": 0, "device": "5"}]},
            "p.x.rails[0].device: '5' does not fit; write an RDMA device like mlx5_0",
        ),
    ],
)
def test_wrong_ports_of_a_site(site: dict[str, Any], line: str) -> None:
    profiles, problems, broken = resolve_profiles({"x": {"inherit": "dgx_h100", **site}}, "p")
    assert [str(problem) for problem in problems] == [line]
    assert broken == ["x"]
    assert "x" not in profiles
