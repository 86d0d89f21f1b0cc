# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How BMCs are reached, compared with the networks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...module_utils._bmc.factory import is_factory
from ...module_utils._core.schema import Problem, missing_remedy
from .._contract.contract import NODE_VARIABLES
from .._contract.settings import filled
from .._inventory.values import Value
from .networks import Placed, unknown_network
from .nodes import Node, missing_addresses


def check_bmcs(
    nodes: list[Node],
    valid: Mapping[str, Mapping[str, Value]],
    networks: Value,
    access: str,
    placed: Collection[Placed],
) -> Iterator[Problem]:
    """Yield networks that are not declared or carry SSH, missing addresses, factory passwords.

    What the protocol needs and does not know is among them.
    """
    having = {(item.host, item.network) for item in placed}
    found: dict[Problem, None] = {}
    lacking: dict[str, list[Node]] = {}
    for node in nodes:
        value = valid.get(node.name, {}).get("node_bmc")
        if value is None or not value.value or not node.present:
            continue
        bmc = filled(NODE_VARIABLES["node_bmc"], value.value)
        network = bmc["network"]
        if network not in networks.value:
            where = f"{value.path}.network"
            found[unknown_network(where, network, networks.value)] = None
        elif network == access:
            wrong = f"{network} has the addresses of the hosts themselves"
            found[Problem(f"{value.path}.network", wrong, "write the network of the BMCs")] = None
        elif (node.name, network) not in having:
            lacking.setdefault(network, []).append(node)
        for problem in _protocol(value, bmc):
            found[problem] = None
        for problem in _passwords(value.path, bmc):
            found[problem] = None
    yield from found
    for network, without in lacking.items():
        yield from missing_addresses(without, network, "node_bmc needs it")


def _passwords(path: str, bmc: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield passwords that BMCs are delivered with, and accounts that are wrong or there twice."""
    accounts = [(f"{path}.accounts[{n}]", one) for n, one in enumerate(bmc.get("accounts") or ())]
    for where, one in [(path, bmc), *accounts]:
        password = one.get("password")
        if isinstance(password, str) and is_factory(str(one["user"]), password):
            wrong = "is a password that BMCs are delivered with"
            remedy = "give the BMC another one, and write that with ansible-vault"
            yield Problem(f"{where}.password", wrong, remedy)
    former = bmc.get("former_password")
    if isinstance(former, str) and former == bmc["password"]:
        yield Problem(f"{path}.former_password", "is the password itself", "leave it out")
    known = {str(bmc["user"]): f"{path}.user"}
    for where, one in accounts:
        user = str(one["user"])
        if user in known:
            remedy = "write each account once"
            yield Problem(f"{where}.user", f"'{user}' is also {known[user]}", remedy)
        known.setdefault(user, f"{where}.user")
        if one.get("state", "present") == "present" and not one.get("password"):
            yield Problem(f"{where}.password", "missing", "write it with ansible-vault")


def _protocol(value: Value, bmc: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a certificate that is missing, and keys that the protocol does not know."""
    is_ipmi = bmc["protocol"] == "ipmi"
    if is_ipmi and "certificate" in value.value:
        wrong = "IPMI has no certificates, so that nothing would be verified"
        yield Problem(
            f"{value.path}.certificate", wrong, "leave it out, or write protocol: redfish"
        )
    if not is_ipmi and "certificate" not in bmc:
        wanted = NODE_VARIABLES["node_bmc"].options or {}
        remedy = f"write {missing_remedy(wanted['certificate'])}"
        yield Problem(f"{value.path}.certificate", "missing", remedy)
    for key in ("former_password", "accounts", "time_servers", "log_server"):
        if is_ipmi and value.value.get(key):
            wrong = "over IPMI nothing sets it without a password in arguments"
            if key in ("time_servers", "log_server"):
                wrong = "IPMI has no command for it"
            yield Problem(f"{value.path}.{key}", wrong, "leave it out, or write protocol: redfish")
    if not is_ipmi and "cipher" in value.value:
        remedy = "leave it out, or write protocol: ipmi"
        yield Problem(f"{value.path}.cipher", "only IPMI has cipher suites", remedy)
