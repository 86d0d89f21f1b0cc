# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives to the roles of configure_fabric, from an example inventory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment
from role_render import ROLES
from role_rules import read_yaml
from wiring import Wiring, example, write


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`given(inventory, host, edit)` -> the values by name; `edit` may change cluster.yml."""

    def compute(
        name: str,
        host: str,
        edit: Callable[[dict[str, Any]], None] = lambda _data: None,
        managers: tuple[str, ...] = ("head-02", "head-01"),
    ) -> dict[str, Any]:
        inventory = example(tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}", name)
        data = yaml.safe_load((inventory / "group_vars/all/cluster.yml").read_text())
        edit(data)
        write(inventory, "group_vars/all/cluster.yml", data)
        hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
        hosts["cluster"]["children"]["subnet_managers"] = {"hosts": dict.fromkeys(managers)}
        (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
        return Wiring(inventory).of(host)

    return compute


def test_the_most_load_of_a_leaf(given: Callable[..., dict[str, Any]]) -> None:
    """By the inventory; without it nothing is handed to fabric_verify."""
    values = given(
        "core_12", "head-01", lambda data: data["cluster_fabric"].update(oversubscription_max=2.5)
    )
    assert values["__fabric"]["oversubscription_max"] == 2.5
    assert "oversubscription_max" not in given("core_12", "head-01")["__fabric"]


def test_basepod(given: Callable[..., dict[str, Any]]) -> None:
    values = given("core_12", "dgx-07")
    assert values["__fabric_kind"] == "infiniband"
    assert values["infiniband_link_layer"] == "InfiniBand"
    assert len(values["infiniband_rails"]) == 8
    assert values["infiniband_rails"][7] == {
        "rail": 7, "rate_gbps": 400, "pci": "0000:dc:00.0", "pcie_generation": 5, "pcie_width": 16,
    }  # fmt: skip
    assert values["infiniband_ports"] == [
        {"name": "storage0", "pci": "0000:29:00.0"},
        {"name": "storage1", "pci": "0000:aa:00.0"},
    ]
    assert values["infiniband_gpus"][0] == "0000:1b:00.0"
    assert values["infiniband_addresses"][1] == {
        "port": "rail1", "address": "10.1.17.107/24", "mtu": 4092,
    }  # fmt: skip
    assert values["infiniband_health_required"] is False  # its health checks keep it out of service
    values = given("core_12", "head-01")
    assert values["infiniband_health_required"] is True
    assert values["subnet_manager_hosts"] == ["head-01", "head-02"]
    assert values["subnet_manager_root_guids"] == []
    assert values["subnet_manager_node_names_file"].endswith("/plan/fabric/node-name-map")


def test_ethernet_rails_are_told_by_their_networks(given: Callable[..., dict[str, Any]]) -> None:
    def edit(data: dict[str, Any]) -> None:
        for rail in range(8):
            data["cluster_networks"][f"rail{rail}"].update(kind="ethernet", mtu=9000)
        data["cluster_fabric"]["rails"] = 8
        data["cluster_fabric"]["rate_gbps"] = 200

    values = given("core_12", "dgx-01", edit)
    assert values["__fabric_kind"] == "ethernet"
    assert "roce" in values["__cluster_roles"]
    assert values["infiniband_link_layer"] == "Ethernet"
    assert values["roce_rails"] == list(range(8))
    assert values["roce_hardware"] is True
    # the slower of switch and adapter
    assert {rail["rate_gbps"] for rail in values["infiniband_rails"]} == {200}


def test_what_a_rail_with_a_router_sends_leaves_by_it(given: Callable[..., dict[str, Any]]) -> None:
    def edit(data: dict[str, Any]) -> None:
        for rail in range(8):
            data["cluster_networks"][f"rail{rail}"].update(kind="ethernet", mtu=9000)
        data["cluster_networks"]["rail0"]["gateway"] = "10.1.16.1"
        data["cluster_networks"]["rail7"]["point_to_point"] = True

    values = given("core_12", "dgx-02", edit)
    first, second, *_others, last = values["infiniband_addresses"]
    assert first == {
        "port": "rail0", "address": "10.1.16.102/24", "mtu": 9000,
        "source": "10.1.16.102", "gateway": "10.1.16.1", "table": 1000,
        "routes": [
            {"to": "10.1.16.0/24", "table": 1000},
            {"to": "0.0.0.0/0", "via": "10.1.16.1", "table": 1000},
        ],
    }  # fmt: skip
    # One subnet for all and no router: nothing but the address.
    assert second == {"port": "rail1", "address": "10.1.17.102/24", "mtu": 9000}
    # The first node has 10.1.23.101, its leaf .100; the second one 103 and 102.
    assert last == {
        "port": "rail7", "address": "10.1.23.103/31", "mtu": 9000,
        "source": "10.1.23.103", "gateway": "10.1.23.102", "table": 1007,
        "routes": [
            {"to": "10.1.23.0/24", "via": "10.1.23.102"},
            {"to": "0.0.0.0/0", "via": "10.1.23.102", "table": 1007},
        ],
    }  # fmt: skip


def test_superpod_roots_are_all_spines_or_none(given: Callable[..., dict[str, Any]]) -> None:
    guids = {f"spine-{at:02d}": f"0xfc6a1c03010000{at:02x}" for at in range(1, 17)}

    def edit(data: dict[str, Any]) -> None:
        data["cluster_fabric"]["switch_guids"] = {**guids, "su1-leaf-0": "0xfc6a1c0302000001"}

    values = given("superpod_127", "head-01", edit)
    assert sorted(values["subnet_manager_root_guids"]) == sorted(guids.values())
    values = given("superpod_127", "dgx-001", edit)
    # the network called storage is that of the first storage port
    assert {item["port"] for item in values["infiniband_addresses"]} == {
        "storage0", *(f"rail{rail}" for rail in range(8)),
    }  # fmt: skip
    del guids["spine-16"]
    values = given("superpod_127", "head-01", edit)
    assert values["subnet_manager_root_guids"] == []
    # no profile, no rails
    assert values["infiniband_rails"] == values["infiniband_addresses"] == []


def test_without_a_fabric_there_is_nothing(given: Callable[..., dict[str, Any]]) -> None:
    values = given("minimal", "dgx-01", lambda data: data.update(cluster_fabric={}), ())
    assert values["__fabric_kind"] == "none"
    assert values["infiniband_rails"] == []


def test_the_links_of_ufm_have_the_time_at_which_ufm_was_asked() -> None:
    """Without it the gate would not know how old they are, and neither admit nor drain by them."""
    tasks = {
        task["name"].split(";")[0]: task
        for play in read_yaml(ROLES.parent / "playbooks/validate_fabric.yml")
        for task in play.get("tasks", [])
    }
    register = tasks["Read the links that UFM knows"]["register"]
    options = tasks["Compare the fabric with the plan"]["baremetal.dgx.fabric_verify"]
    environment = NativeEnvironment()
    for by_ufm, at in ((True, "2026-11-21T08:00:00Z"), (False, "left out")):
        variables = {
            "__validate_fabric_by_ufm": by_ufm,
            register: {"at": "2026-11-21T08:00:00Z"} if by_ufm else {"skipped": True},
            "omit": "left out",
        }
        assert environment.from_string(options["sweep_at"]).render(variables) == at
