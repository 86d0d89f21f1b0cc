# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""BMCs: what of their settings, alone and with the networks, cannot work."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Opaque
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.bmc import check_bmcs
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import parse_fabric
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.networks import Placed
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.nodes import make_node

NETWORKS = Value({"management": {}, "bmc": {}, "other": {}}, "all.cluster_networks")
PATH = "gpu_nodes.node_bmc"
REDFISH = {"user": "dgx", "password": "long-enough-1", "certificate": "/etc/bmc-ca.pem"}
IPMI = {"user": "dgx", "password": "long-enough-1", "protocol": "ipmi"}
LEAVE_OUT = "leave it out, or write protocol"


def lines(bmc: dict[str, Any] | None, addressed: int = 2, **given: Any) -> list[str]:
    """The problems of two nodes with this BMC, so many of them with its address."""
    names = ("dgx-01", "dgx-02")
    values = {f"node_{key}": Value(value, "") for key, value in given.items()}
    fabric = parse_fabric({})
    nodes = [make_node("head-01", "login_nodes", ("login_nodes",), {}, fabric, {})]
    nodes += [make_node(name, "gpu_nodes", ("gpu_nodes",), values, fabric, {}) for name in names]
    valid = {} if bmc is None else {name: {"node_bmc": Value(bmc, PATH)} for name in names}
    placed = [
        Placed(name, f"gpu_nodes.{name}", "bmc", ipaddress.ip_address("10.9.0.1"), "", True)
        for name in names[:addressed]
    ]
    found = check_bmcs(nodes, valid, NETWORKS, "management", placed)
    return [str(problem) for problem in found]


@pytest.mark.parametrize(
    "bmc",
    [
        REDFISH,
        IPMI,
        {**IPMI, "cipher": 3},
        {**IPMI, "former_password": None, "accounts": [], "time_servers": []},
        {**REDFISH, "former_password": "another-one-2", "time_servers": ["10.1.0.1"]},
        {**REDFISH, "former_password": Opaque(), "password": Opaque()},
        {**REDFISH, "accounts": [{"user": "ops", "password": "long-enough-2"}]},
        {**REDFISH, "accounts": [{"user": "old", "state": "absent"}]},
    ],
)
def test_what_each_protocol_knows(bmc: dict[str, Any]) -> None:
    assert lines(bmc) == []


def test_what_a_protocol_does_not_know() -> None:
    assert lines({**REDFISH, "cipher": 17}) == [
        f"{PATH}.cipher: only IPMI has cipher suites; {LEAVE_OUT}: ipmi"
    ]
    given = {"certificate": "/ca.pem", "log_server": "udp://10.1.0.1:514", "accounts": [REDFISH]}
    found = lines({**IPMI, **given, "time_servers": ["10.1.0.1"], "former_password": "old"})
    assert [line.split(": ")[0] for line in found] == [
        f"{PATH}.{key}"
        for key in ("certificate", "former_password", "accounts", "time_servers", "log_server")
    ] + [f"{PATH}.accounts[0].user"]
    assert found[0].split(": ", 1)[1] == (
        f"IPMI has no certificates, so that nothing would be verified; {LEAVE_OUT}: redfish"
    )
    assert "over IPMI nothing sets it" in found[2]
    assert "IPMI has no command for it" in found[3]
    (line,) = lines({key: REDFISH[key] for key in ("user", "password")})
    assert line.startswith(f"{PATH}.certificate: missing; write ")


def test_the_network_of_bmcs() -> None:
    """One line for one setting, whatever the number of nodes."""
    assert lines(REDFISH, addressed=1) == [
        (
            "gpu_nodes.dgx-02.node_address.bmc: missing, and node_bmc needs it; write the address, "
            "or node_first_address.bmc for gpu_nodes"
        )
    ]
    assert lines({**REDFISH, "network": "other"}, addressed=0) == [
        (
            "gpu_nodes.node_first_address.other: missing for dgx-[01-02], and node_bmc needs it; "
            "write the address of node number 1"
        )
    ]
    assert lines({**REDFISH, "network": "management"}) == [
        (
            f"{PATH}.network: management has the addresses of the hosts themselves; write the "
            "network of the BMCs"
        )
    ]
    assert lines({**REDFISH, "network": "bmcs"}) == [
        f"{PATH}.network: no network is called 'bmcs'; write bmc"
    ]


def test_hosts_without_a_bmc_need_nothing() -> None:
    assert lines(None, addressed=0) == []
    assert lines({}, addressed=0) == []
    assert lines(REDFISH, addressed=0, state="absent") == []


def test_accounts_of_a_bmc() -> None:
    accounts = [
        {"user": "ops"},
        {"user": "dgx", "password": "long-enough-3"},
        {"user": "gone", "state": "absent"},
        {"user": "ops", "password": "long-enough-4"},
    ]
    assert lines({**REDFISH, "accounts": accounts, "former_password": "long-enough-1"}) == [
        f"{PATH}.former_password: is the password itself; leave it out",
        f"{PATH}.accounts[0].password: missing; write it with ansible-vault",
        f"{PATH}.accounts[1].user: 'dgx' is also {PATH}.user; write each account once",
        f"{PATH}.accounts[3].user: 'ops' is also {PATH}.accounts[0].user; write each account once",
    ]
