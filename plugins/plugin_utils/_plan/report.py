# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Texts made from a plan: the hosts file, and what the operator reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...module_utils._core.nodeset import fold
from ...module_utils._core.schema import words
from .._contract.contract import GROUPS
from .fabric import parse_fabric
from .leaf_spine import describe

_MANAGED = "# Managed by Ansible: baremetal.dgx. Local changes will be overwritten.\n"

_LOOPBACK = """\
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
ff02::1 ip6-allnodes
ff02::2 ip6-allrouters
"""


def hosts_text(plan: Mapping[str, Any]) -> str:
    """Return /etc/hosts: access network by plain names, other Ethernet networks as NAME-NETWORK.

    InfiniBand networks are left out: IPoIB of eight rails would be eight lines a node, which each
    look-up on each node reads through.
    """
    cluster = plan["cluster"]
    present = [node for node in plan["nodes"] if node["state"] == "present"]
    sections = [_MANAGED + _LOOPBACK]
    for network, details in cluster["networks"].items():
        access = network == cluster["access_network"]
        if details["kind"] == "infiniband" and not access:
            continue
        lines = []
        for node in present:
            address = node["addresses"].get(network)
            if address is None:
                continue
            name = node["name"] if access else "{}-{}".format(node["name"], network)
            full = "{}.{} ".format(name, cluster["domain"]) if cluster["domain"] else ""
            lines.append(f"{address} {full}{name}\n")
        if lines:
            sections.append("# {}\n{}".format(network, "".join(lines)))
    return "\n".join(sections)


def node_texts(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of nodes/NAME.json by name: what the plan has about one node.

    Each node's tasks read only this. Were it the whole plan, the work of a run would grow with the
    square of the cluster: 0.17 CPU seconds a node and look-up at 1,024 nodes.
    """
    hardware = {node["name"]: node for node in plan["slurm"]["nodes"]}
    return {
        node["name"]: json.dumps(
            {
                **node,
                "cluster": plan["cluster"]["name"],
                "profile_data": plan["profiles"].get(node["profile"]),
                "slurm": hardware.get(node["name"]),
            },
            ensure_ascii=False,
        )
        + "\n"
        for node in plan["nodes"]
    }


def summary(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan's counts, for the operator's eye."""
    present = [node for node in plan["nodes"] if node["state"] == "present"]
    gpus = sum(
        gres["count"]
        for node in plan["slurm"]["nodes"]
        for gres in node["gres"]
        if gres["name"] == "gpu"
    )
    return {
        "cluster": plan["cluster"]["name"],
        "nodes": len(present),
        "absent": len(plan["nodes"]) - len(present),
        "groups": {
            group: sum(1 for node in present if group in node["groups"])
            for group in GROUPS
            if any(group in node["groups"] for node in present)
        },
        "gpus": gpus,
        "networks": {
            name: details["cidr"] for name, details in plan["cluster"]["networks"].items()
        },
        "racks": len({node["rack"] for node in present if node["rack"]}),
    }


def report(plan: Mapping[str, Any]) -> list[str]:
    """Return the summary as lines for the operator."""
    counts = summary(plan)
    racks = f", {counts['racks']} racks" if counts["racks"] else ""
    absent = f", {counts['absent']} declared absent" if counts["absent"] else ""
    size = f"{counts['nodes']} nodes, {counts['gpus']} GPUs{racks}{absent}"
    lines = [f"cluster {counts['cluster']}: {size}"]
    present = [node for node in plan["nodes"] if node["state"] == "present"]
    for group in counts["groups"]:
        names = [node["name"] for node in present if group in node["groups"]]
        profiles = sorted(
            {node["profile"] for node in present if group in node["groups"] and node["profile"]}
        )
        of_profiles = f" ({words(profiles, 'and')})" if profiles else ""
        lines.append(f"{group}: {len(names)}{of_profiles}: {fold(names)}")
    for network, cidr in counts["networks"].items():
        lines.append(f"network {network}: {cidr}")
    fabric = plan["cluster"]["fabric"]
    if fabric["topology"] != "none":
        tiers = [
            f"{len(fabric[tier + '_switches'])} {tier}"
            for tier in ("leaf", "spine", "core")
            if fabric[tier + "_switches"]
        ]
        lines.append(
            f"fabric {fabric['topology']}: {words(tiers, 'and')} switches, {fabric['rails']} rails"
        )
        lines += describe(parse_fabric(fabric))
    return lines
