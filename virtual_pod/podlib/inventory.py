# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a pod's inventory: a copy of inventories/virtual_pod that fits the pod and this host."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from podlib import ceph, fabric, host, nodes
from podlib.layout import DEFAULT_SUBNET, MAX_DGX, Pod, PodError

TEMPLATE = host.CHECKOUT / "inventories" / "virtual_pod"
# What another layout has besides, or instead.
_LAYOUTS = host.CHECKOUT / "virtual_pod" / "inventories"
# Not in group_vars/all, where it would also hold for localhost.
_GENERATED = "group_vars/cluster/pod.yml"
_FABRIC = "group_vars/all/fabric.yml"
_NO_FABRIC = """\
---
# No InfiniBand here: more nodes than two switches take, or a Debian whose ibsim knows no NDR.
cluster_fabric:
  topology: none
"""
# What only a pod with a storage node has: molecule's pods stay small.
_LARGE = (
    "group_vars/all/storage.yml",
    "group_vars/all/exporters.yml",
    "group_vars/storage_nodes/",
    "group_vars/monitoring_nodes/",
)
# What the suites' own archives hold.
_SLURM = {"trixie": "24.11", "bookworm": "22.05"}
_PLATFORM = {"trixie": "debian-13", "bookworm": "debian-12"}
# Of several heads only the first: a second database or fabric adapter is not there.
_OF_FIRST = ("slurm_databases", "subnet_managers", "monitoring_nodes")
_GROUPS = {
    "head": ("slurm_controllers", *_OF_FIRST),
    "login": ("login_nodes",),
    "stor": ("storage_nodes",),
    "dgx": ("gpu_nodes",),
    "cpu": ("cpu_nodes",),
}
_STORAGE_GROUP = re.compile(r"    storage_nodes:\n      hosts:\n        stor-01:\n")
_RANGE = re.compile(r"dgx-\[01:\d+\]")


@dataclass(frozen=True)
class Changes:
    """What has to happen to the files of an inventory, by path inside it."""

    written: dict[str, str]
    removed: tuple[str, ...]
    kept: tuple[str, ...]


def digest(text: str) -> str:
    """Return what a file's text is recognised by."""
    return hashlib.sha256(text.encode()).hexdigest()


def plan_changes(
    wanted: Mapping[str, str],
    existing: Mapping[str, str],
    recorded: Mapping[str, str],
    forced: frozenset[str],
) -> Changes:
    """Compare what is wanted (path: text) with what exists (path: text).

    `recorded` has the digests of what was written the last time: a file that is different now was
    edited by its user, and stays as it is unless it is forced.
    """
    written, kept = {}, []
    for path, text in wanted.items():
        now = existing.get(path)
        edited = now is not None and digest(now) != recorded.get(path)
        if now == text:
            continue
        if edited and path not in forced:
            kept.append(path)
        else:
            written[path] = text
    removed = [
        path
        for path, text in existing.items()
        if path not in wanted and recorded.get(path) == digest(text)
    ]
    return Changes(written, tuple(sorted(removed)), tuple(sorted(kept)))


def remove_empty_folders(target: pathlib.Path) -> None:
    """Remove folders without a file: the plan refuses group_vars of a group that is gone."""
    for path in sorted(target.rglob("*"), reverse=True):
        hidden = any(part.startswith(".") for part in path.relative_to(target).parts)
        if path.is_dir() and not path.is_symlink() and not hidden and not any(path.iterdir()):
            path.rmdir()


def hosts_of_range(text: str, count: int) -> str:
    """Return hosts.yml with so many DGX nodes."""
    if not 1 <= count <= MAX_DGX:
        raise PodError(f"nodes {count}: write a number from 1 to {MAX_DGX}")
    changed, found = _RANGE.subn(f"dgx-[01:{count:02d}]", text)
    if found != 1:
        raise PodError(f"{TEMPLATE / 'hosts.yml'}: there must be one dgx-[01:NN], not {found}")
    return changed


def hosts_of_nodes(pod: Pod) -> str:
    """Return hosts.yml of nodes that --hosts named; the first word of a name gives its groups."""
    groups: dict[str, list[str]] = {}
    for node in pod.nodes:
        word = re.split(r"[-\d]", node.name)[0]
        for group in _GROUPS.get(word, ("other",)):
            if group in _OF_FIRST and group in groups:
                continue
            groups.setdefault(group, []).append(f"        {node.name}: {{ansible_host: {node.ip}}}")
    lines = ["---", f"# Nodes of the pod {pod.name}.", "cluster:", "  children:"]
    for group, entries in groups.items():
        if group != "other":
            lines += [f"    {group}:", "      hosts:", *entries]
    if "other" in groups:
        lines += ["  hosts:", *(entry[4:] for entry in groups["other"])]
    return "\n".join(lines) + "\n"


def generated_variables(
    pod: Pod, folder: pathlib.Path, public_key: str, hybrid: bool, v1: bool
) -> str:
    """Return pod.yml: how to reach the nodes, and what this host's kernel forces."""
    options = nodes.ssh_option_values(folder)
    options.pop("ConnectTimeout")
    common = " ".join(f"-o {name}={value}" for name, value in options.items())
    lines = [
        "---",
        "# Written by virtual_pod/pod, each time again: do not edit.",
        "ansible_user: root",
        f"ansible_ssh_private_key_file: {json.dumps(str(folder / 'id'))}",
        f"ansible_ssh_common_args: {json.dumps(common)}",
        'ansible_ssh_args: "-o ControlMaster=auto -o ControlPersist=120s"',
        "ansible_pipelining: true",
        "ansible_python_interpreter: /usr/bin/python3",
        f"virtual_pod_public_key: {json.dumps(public_key)}",
        "",
    ]
    suites = sorted({node.suite for node in pod.nodes})
    if len(suites) == 1:
        lines += [
            f"# What Debian {suites[0]} has.",
            f'slurm_base_version: "{_SLURM[suites[0]]}"',
            f"node_platform: {_PLATFORM[suites[0]]}",
            "",
        ]
    if fabric.has_fabric(pod):
        simulated = json.dumps(fabric.environment(pod))
        lines += [
            f"# Below libibumad InfiniBand is simulated, on {fabric.HOST}.",
            f"subnet_manager_environment: {simulated}",
            "",
        ]
    if ceph.has_storage(pod):
        lines += [
            f"# A real Ceph on {ceph.monitor(pod)}, made by virtual_pod/pod ceph.",
            f"cephfs_fsid: {ceph.fsid(pod)}",
            f"cephfs_monitors: [{ceph.monitor(pod)}]",
            "",
        ]
    constraints = [
        "  # The nodes have fewer cores and less memory than they pretend to.",
        "  constrain_cores: false",
        "  constrain_ram: false",
        "  constrain_swap: false",
        "  constrain_devices: true",
    ]
    if hybrid and v1:
        lines += [
            "# This host mixes cgroup v1 and v2, where slurmd refuses cgroup/v2 (fatal: Hybrid",
            "# mode is not supported). Each node has its own v1 folders in /cgv1.",
            "slurm_controller_cgroup:",
            "  plugin: cgroup/v1",
            "  mountpoint: /cgv1",
            *constraints,
        ]
    else:
        lines += [
            "# This host has cgroup v2 alone, as real nodes do.",
            "slurm_controller_cgroup:",
            "  plugin: cgroup/v2",
            *constraints,
        ]
    return "\n".join(lines) + "\n"


def in_subnet(text: str, subnet: str) -> str:
    """Return the text with the default network's addresses moved to the subnet."""
    return text.replace(DEFAULT_SUBNET[: -len("0/24")], subnet[: -len("0/24")])


def wanted_files(pod: Pod, count: int | None, generated: str) -> dict[str, str]:
    """Return the whole inventory as {path: text}."""
    files = {}
    folders = (TEMPLATE, _LAYOUTS / pod.inventory) if pod.inventory else (TEMPLATE,)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") for part in inside.parts):
                files[str(inside)] = in_subnet(path.read_text(), pod.subnet)
    if "hosts.yml" not in files:
        raise PodError(f"there is no {TEMPLATE / 'hosts.yml'}")
    if pod.custom and count is None:
        files["hosts.yml"] = hosts_of_nodes(pod)
    elif not pod.inventory:
        number = count or sum(1 for n in pod.nodes if n.is_gpu)
        files["hosts.yml"] = hosts_of_range(files["hosts.yml"], number)
    if not ceph.has_storage(pod):
        files["hosts.yml"] = _STORAGE_GROUP.sub("", files["hosts.yml"])
        files = {path: text for path, text in files.items() if not path.startswith(_LARGE)}
    files[_GENERATED] = generated
    if not fabric.has_fabric(pod):
        files[_FABRIC] = _NO_FABRIC
    return files


def write(pod: Pod, count: int | None) -> list[str]:
    """Write the pod's inventory; return what to tell the user."""
    folder = nodes.state_folder(pod.name)
    target = host.make_folder(folder / "inventory")
    public_key = (folder / "id.pub").read_text().strip()
    generated = generated_variables(
        pod, folder, public_key, host.is_hybrid(), bool(host.v1_groups())
    )
    existing = {
        str(path.relative_to(target)): path.read_text()
        for path in sorted(target.rglob("*"))
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(target).parts)
    }
    record = folder / "inventory.json"
    recorded = json.loads(record.read_text()) if record.exists() else {}
    wanted = wanted_files(pod, count, generated)
    forced = frozenset([_GENERATED] + (["hosts.yml"] if count is not None else []))
    changes = plan_changes(wanted, existing, recorded, forced)
    digests = {path: digest(text) for path, text in wanted.items() if path not in changes.kept}
    digests |= {path: recorded[path] for path in changes.kept if path in recorded}
    # Files before their record: what a killed run wrote looks edited only until it is wanted again.
    for path in changes.removed:
        (target / path).unlink()
    remove_empty_folders(target)
    for path, text in changes.written.items():
        host.make_folder((target / path).parent)
        host.write(target / path, text)
    host.write(record, json.dumps(digests, indent=2) + "\n")
    reported = [f"edited by you and kept: {target / path}" for path in changes.kept]
    return [*reported, f"{target}: {len(changes.written)} files written"]
