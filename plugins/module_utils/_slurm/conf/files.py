# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The files beside slurm.conf: cgroup.conf, gres.conf and the topology. Pure.

All functions take values that `complete` has filled and `check` has passed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, Mapping

from ..._core.nodeset import fold
from ..releases import has

MARKER = "# Managed by Ansible: baremetal.dgx. Local changes will be overwritten."


def text(lines: Iterable[str]) -> str:
    """Return a file of these lines, with the marker first."""
    return "\n".join([MARKER, *lines]) + "\n"


def has_topology(values: Mapping[str, Any]) -> bool:
    """Tell whether Slurm is told of a topology at all."""
    return values["topology_plugin"] != "none" and bool(values["topology"])


def topology(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the one file of the topology; {} for none."""
    if not has_topology(values):
        return {}
    if values["topology_format"] == "yaml":
        return {"topology.yaml": _topology_yaml(values)}
    return {"topology.conf": _topology_conf(values)}


def cgroup_conf(values: Mapping[str, Any]) -> str:
    """Return how jobs are confined."""
    cgroup = values["cgroup"]
    if cgroup.get("plugin") == "disabled":
        # Before 24.05 there is no way to say "none", and autodetect ends slurmd on a hybrid host.
        plugin = "disabled" if has(values["version"], "cgroup disabled") else "cgroup/v1"
        reason = "# Jobs are not confined: the kernel of these hosts does not allow it."
        return text([reason, f"CgroupPlugin={plugin}"])
    lines = [f"CgroupPlugin={cgroup.get('plugin') or 'autodetect'}"]
    if cgroup.get("mountpoint"):
        lines.append(f"CgroupMountpoint={cgroup['mountpoint']}")
    if values["pretended_hardware"]:
        lines.append("# PRETENDED hardware: what does not exist cannot be given to a job.")
    for name, key, needs_hardware in (
        ("constrain_cores", "ConstrainCores", True),
        ("constrain_ram", "ConstrainRAMSpace", True),
        ("constrain_swap", "ConstrainSwapSpace", True),
        ("constrain_devices", "ConstrainDevices", False),
    ):
        wanted = cgroup.get(name) is not False
        possible = not (needs_hardware and values["pretended_hardware"])
        lines.append(f"{key}={'yes' if wanted and possible else 'no'}")
    return text(lines)


def gres_conf(values: Mapping[str, Any]) -> str:
    """Return the devices of each node."""
    lines = [f"AutoDetect={values['gres_autodetect']}"]
    if values["gres_autodetect"] != "off":
        # slurmd finds device files, cores and links itself.
        return text(lines)
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in values["nodes"]:
        texts = tuple(line for gres in node.get("gres") or () for line in _gres_lines(gres))
        groups.setdefault(texts, []).append(node["name"])
    for texts, names in sorted(groups.items(), key=lambda group: fold(group[1])):
        lines += [f"NodeName={fold(names)} {line}" for line in texts]
    return text(lines)


def _gres_lines(gres: Mapping[str, Any]) -> list[str]:
    head = f"Name={gres['name']}" + (f" Type={gres['type']}" if gres.get("type") else "")
    files, cores, links = (gres.get(key) or () for key in ("files", "cores", "links"))
    if not files:
        return [f"{head} Count={gres['count']}"]
    lines: dict[str, list[str]] = {}
    for index, path in enumerate(files):
        tail = f" Cores={cores[index]}" if cores else ""
        tail += f" Links={links[index]}" if links else ""
        lines.setdefault(tail, []).append(path)
    return [f"{head} File={fold(paths)}{tail}" for tail, paths in lines.items()]


def _topology_conf(values: Mapping[str, Any]) -> str:
    sizes = values["block_sizes"]
    if values["topology_plugin"] == "tree":
        return text(
            f"SwitchName={switch['switch']} Nodes={fold(switch['nodes'])}"
            if switch.get("nodes")
            else f"SwitchName={switch['switch']} Switches={fold(switch['switches'])}"
            for switch in values["topology"]
        )
    lines = [
        f"BlockName={block['switch']} Nodes={fold(block['nodes'])}" for block in _blocks(values)
    ]
    if sizes and has(values["version"], "block sizes"):
        lines.append(f"BlockSizes={','.join(map(str, sizes))}")
    elif sizes:
        # Level n is 2^n blocks of the first size.
        levels = [(size // sizes[0]).bit_length() - 1 for size in sizes]
        lines.append(f"BlockLevels={','.join(map(str, levels))}")
    return text(lines)


def _blocks(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [switch for switch in values["topology"] if switch.get("nodes")]


def _topology_yaml(values: Mapping[str, Any]) -> str:
    """Return the one topology of the cluster in the newer form (topology.yaml man page)."""
    lines = ["- topology: default", "  cluster_default: true", f"  {values['topology_plugin']}:"]
    if values["topology_plugin"] == "tree":
        lines.append("    switches:")
        for switch in values["topology"]:
            below = "nodes" if switch.get("nodes") else "children"
            names = switch.get("nodes") or switch["switches"]
            lines += [f"    - switch: {_scalar(switch['switch'])}", f"      {below}: {fold(names)}"]
        return text(lines)
    if values["block_sizes"]:
        lines += ["    block_sizes:", *(f"    - {size}" for size in values["block_sizes"])]
    lines.append("    blocks:")
    for block in _blocks(values):
        lines.append(f"    - block: {_scalar(block['switch'])}")
        lines.append(f"      nodes: {fold(block['nodes'])}")
    return text(lines)


def _scalar(name: str) -> str:
    """Return the name so that YAML takes it for text: quoted when it looks like something else."""
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", name)
    special = re.fullmatch(r"(?i)y|n|yes|no|on|off|true|false|null", name)
    return name if plain and not special else json.dumps(name)
