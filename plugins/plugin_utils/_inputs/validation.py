# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the gate, validate_nodes and the report get: the contract's settings. Pure."""

from __future__ import annotations

from typing import Any

from ...module_utils._slurm.gate.policy import LEVELS
from .._contract.contract import COMPUTE_GROUPS
from .._validation.levels import BURN_IN, QUICK, STANDARD, dcgm_limit
from .gpu import hardware_inputs
from .host import Host, folded
from .storage import mounts, volumes

# Seconds that each level loads the GPUs, and the processors.
_BURN_S = {QUICK: 0, STANDARD: 600, BURN_IN: 86400}
_CPU_S = {QUICK: 30, STANDARD: 30, BURN_IN: 600}
_DCGM_LEVEL = {QUICK: 2, STANDARD: 2, BURN_IN: 3}
# What holding a node takes beside its parts, with and without DCGM's usual time: more than needed
# would keep nodes of partitions with a short MaxTime from being held.
_SPARE_S, _LEAST_S = 7200, 3600


def _level(settings: dict[str, Any], level: str) -> dict[str, Any]:
    """Return the settings with what the level says where the site does not."""
    burn = {"duration_s": _BURN_S[level], **settings["burn"]}
    cpu_memory = {"seconds": _CPU_S[level], **settings["cpu_memory"]}
    dcgm = {"level": _DCGM_LEVEL[level], **settings["dcgm"]}
    # More than the parts take together, each with its time limit: what holds the node must
    # outlast them.
    hold_s = (
        2 * burn["duration_s"]
        + 2 * cpu_memory["seconds"]
        + settings["nccl"]["time_limit_s"]
        + 12 * settings["fio"]["seconds"]
        + max(_SPARE_S, dcgm_limit(dcgm["level"], dcgm.get("time_limit_s")) + _LEAST_S)
    )
    return {
        "hold_s": hold_s,
        **settings,
        "burn": burn,
        "cpu_memory": cpu_memory,
        "dcgm": dcgm,
    }


def validation_inputs(host: Host) -> dict[str, Any]:
    """Return what validate_nodes asks of a host, by level, since a run may name another one."""
    site, name = host.site, "cluster_validation"
    settings, given = dict(site.settings(name)), site.cluster(name)
    scratch = volumes(host)
    entries = enumerate(given["canary"]["mounts"])
    found = [
        *mounts(host),
        *scratch,
        *(
            {
                **{
                    key: host.refer(name, "canary", "mounts", index, key)
                    for key in ("name", "path", "fstype")
                    if item[key]
                },
                "write": item["write"],
            }
            for index, item in entries
            if not host.groups.isdisjoint(item["groups"])
        ),
    ]
    # The options of node_health for this kind of node hold for validation, too.
    gpu = host.value("node_health_gpu") or {}
    own = gpu.get("thresholds") or {}
    settings["health_thresholds"] = {**given["health_thresholds"], **own}
    settings["ecc"] = gpu.get("ecc", True)
    kind = (host.profile.get("gpus") or {}).get("type")
    least = given["nccl"]["busbw_thresholds_by_type"].get(kind)
    if least is not None:
        settings["nccl"] = {**settings["nccl"], "busbw_threshold_gbps": least}
    settings["canary"] = {"mounts": found}
    settings["fio"] = {"folder": scratch[0]["path"] if scratch else "", **settings["fio"]}
    # Parts that have nothing to ask of this node.
    instances = ""
    if host.node["mig"]:
        instances = "MIG divides GPUs of it, and only whole ones are loaded"
    lone = "it has one GPU" if (host.profile.get("gpus") or {}).get("count") == 1 else ""
    nothing = {
        "ib_health": "" if hardware_inputs(host)["node_health_rails"] else "no rails are declared",
        "canary": "" if found else "no mounts are declared",
        "dcgm": "dcgm_source is none" if host.value("dcgm_source") == "none" else instances,
        "burn": instances,
        "nccl": instances or lone,
        "fio": "" if given["fio"].get("folder", scratch) else "no scratch is declared",
    }
    return {
        "__validation_levels": {level: _level(settings, level) for level in LEVELS},
        "__validation_nothing": nothing,
    }


def gate_inputs(host: Host) -> dict[str, Any]:
    """Return the settings of the gate, the same on each host."""
    return {
        "__gate": host.site.settings("cluster_gate"),
        "__repair": host.site.settings("cluster_repair"),
        "__gate_nodes": host.site.gate_names,
        "__gate_without_rails": host.site.unwired_names,
        "__repair_powered": host.site.powered_names,
        "__serving_nodes": host.site.serving_names,
    }


def report_inputs(host: Host) -> dict[str, Any]:
    """Return how the report judges, and the hosts whose secrets must not appear in it.

    Nodes of one group have the same secrets, so the first of each is enough.
    """
    groups = host.site.groups
    few = {
        name
        for group, hosts in groups.items()
        for name in (hosts[:1] if group in COMPUTE_GROUPS else hosts)
    }
    return {
        "__report": host.site.settings("cluster_report"),
        "__report_secrets_of": folded(sorted(few)),
    }
