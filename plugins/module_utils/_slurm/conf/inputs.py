# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The description of a Slurm cluster: its defaults, and how its words are read. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, Sequence

from ..._core.nodeset import expand

# Inputs that may be left out. slurm_config's argument spec has the same.
DEFAULTS: Mapping[str, Any] = {
    "databases": (),
    "auth": "munge",
    "configless": True,
    "node_sets": (),
    "topology": (),
    "topology_plugin": "tree",
    "topology_format": "conf",
    "block_sizes": (),
    "gres_autodetect": "off",
    "cgroup": {},
    "pretended_hardware": False,
    "state_save_location": "/var/lib/slurm/slurmctld",
    "spool_dir": "/var/lib/slurm/slurmd",
    "log_dir": "/var/log/slurm",
    "prolog": (),
    "epilog": (),
    "health_check": {},
    "return_to_service": None,
    "mpi_default": "none",
    "accounting_enforce": ("associations", "limits", "qos", "safe"),
    "default_cpus_per_gpu": 0,
    "default_mem_per_gpu_mb": 0,
    "default_mem_per_cpu_mb": 0,
    "reboot_program": "/sbin/reboot",
    "resume_timeout_s": 1800,
    "plugstack": (),
    "options": {},
    "extra_lines": (),
}

# Partition's inputs by the key they become.
PARTITION_INPUTS: Mapping[str, str] = {
    "Nodes": "nodes",
    "Default": "default",
    "State": "state",
    "DefaultTime": "default_time",
    "MaxTime": "max_time",
    "MaxNodes": "max_nodes",
    "QOS": "qos",
    "AllowAccounts": "allow_accounts",
    "AllowGroups": "allow_groups",
    "AllowQos": "allow_qos",
    "PriorityTier": "priority_tier",
    "PreemptMode": "preempt_mode",
    "OverSubscribe": "oversubscribe",
    "Topology": "topology",
}

_UNLIMITED = ("infinite", "unlimited")
# Seconds from the fields of D-H:M:S, D-H:M, D-H, H:M:S, M:S and M (slurm.conf man page, MaxTime).
_TIMES = (
    (re.compile(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?"), (86400, 3600, 60, 1)),
    (re.compile(r"(\d+):(\d+):(\d+)"), (3600, 60, 1)),
    (re.compile(r"(\d+):(\d+)"), (60, 1)),
    (re.compile(r"(\d+)"), (60,)),
)


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the defaults of what is missing; of controllers, names as mappings.

    An entry of nodes that are alike becomes one for each; ValueError for names that mean none.
    """
    filled = {**DEFAULTS, **{key: value for key, value in values.items() if value is not None}}
    filled["controllers"] = [
        {"name": host} if isinstance(host, str) else dict(host) for host in filled["controllers"]
    ]
    filled["nodes"] = [
        {**node, "name": name} for node in filled["nodes"] for name in expand(node["name"])
    ]
    return filled


def seconds(text: str) -> float | None:
    """Return the length of a time in Slurm's words, infinity included; None when it is none."""
    if text.lower() in _UNLIMITED:
        return float("inf")
    for pattern, factors in _TIMES:
        found = pattern.fullmatch(text)
        if found:
            return sum(int(part) * factor for part, factor in zip(found.groups("0"), factors))
    return None


def expand_nodes(
    items: Iterable[str], names: Sequence[str], sets: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the nodes that ALL, names of sets and expressions mean, those unknown included."""
    found: dict[str, None] = {}
    for item in items:
        if item == "ALL":
            found.update(dict.fromkeys(names))
        elif item in sets:
            found.update(dict.fromkeys(sets[item]))
        else:
            found.update(dict.fromkeys(expand(item)))
    return list(found)


def node_sets(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return name → nodes of each node set."""
    found = {}
    for entry in values["node_sets"]:
        if entry.get("feature"):
            members = [
                node["name"]
                for node in values["nodes"]
                if entry["feature"] in (node.get("features") or ())
            ]
        else:
            members = expand_nodes(entry.get("nodes") or (), (), {})
        found[entry["name"]] = members
    return found


def gpu_counts(nodes: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """Return the nodes that have GPUs, and how many."""
    counts = [
        (node, sum(gres["count"] for gres in node.get("gres") or () if gres["name"] == "gpu"))
        for node in nodes
    ]
    return [(node, gpus) for node, gpus in counts if gpus > 0]


def as_list(value: Any) -> list[str]:
    """Return the members of a value that Slurm separates by commas."""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return [str(item).strip() for item in items if str(item).strip()]
