# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup bmc_access."""

from __future__ import annotations

DOCUMENTATION = r"""
name: bmc_access
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: How the BMCs of some nodes are reached, and what they must say
description:
  - Returns for each node with C(node_bmc) what M(baremetal.dgx.bmc_info) and
    M(baremetal.dgx.bmc_power) take, of the plan and of
    the node's variables. Absent nodes are left out.
options:
  _terms:
    description: Names of the nodes.
    type: list
    elements: str
    required: true
  plan:
    description: The folder of the plan.
    type: path
    required: true
seealso:
  - plugin: baremetal.dgx.host_values
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Count the BMCs
  ansible.builtin.debug:
    msg: "{{ query('baremetal.dgx.bmc_access', groups['gpu_nodes'], plan=plan_folder) | length }}"
"""

RETURN = r"""
_raw:
  description: The BMCs, in the order of the nodes.
  type: list
  elements: dict
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    """Puts plan and variables together."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[Any]:
        """Return the BMCs; OSError of the plan."""
        self.set_options(var_options=variables, direct=kwargs)
        with open(os.path.join(self.get_option("plan"), "plan.json"), encoding="utf-8") as handle:
            plan = json.load(handle)
        nodes = {node["name"]: node for node in plan["nodes"] if node["state"] == "present"}
        known = (variables or {})["hostvars"]
        found = []
        for name in self._flatten(terms):
            access = known[name].get("node_bmc") if name in nodes else None
            if access:
                found.append(_bmc(nodes[name], access, plan["profiles"]))
        return found


def _bmc(
    node: Mapping[str, Any], access: Mapping[str, Any], profiles: Mapping[str, Any]
) -> dict[str, Any]:
    protocol = access.get("protocol", "redfish")
    wanted = (profiles.get(node["profile"] or "") or {}).get("bmc") or {}
    return {
        "node": node["name"],
        "address": node["addresses"][access.get("network", "bmc")],
        "protocol": protocol,
        "port": access.get("port") or (623 if protocol == "ipmi" else 443),
        "cipher": access.get("cipher", 17),
        "user": access["user"],
        "password": access["password"],
        "certificate": access.get("certificate") or "",
        "profile": node["profile"] or "",
        "system": wanted.get("system") or "",
        "serial": node["serial"] or "",
        "firmware": wanted.get("firmware") or {},
        "packages": wanted.get("packages") or [],
        "former_password": access.get("former_password") or "",
        "accounts": access.get("accounts") or [],
        "time_servers": access.get("time_servers") or [],
        "log_server": access.get("log_server") or "",
        "bios": wanted.get("bios") or {},
        "boot_order": wanted.get("boot_order") or [],
    }
