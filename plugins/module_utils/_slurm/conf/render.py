# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The cluster as values → slurm.conf, cgroup.conf, gres.conf, the topology, plugstack.conf. Pure.

Sources of the recommended values: the man pages and the GRES, cgroup, accounting and
pam_slurm_adopt documentation of Slurm, NVIDIA's DeepOps (timeouts of a DGX), and trials with
22.05.8 and 24.11.5, which docs/slurm.md describes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from ..._core.files import open_folder
from ..._core.nodeset import expand, fold
from ..._core.run import ToolError
from ..releases import RESTART_KEYS, RESTART_KEYS_EVER, VERSIONS, has, is_since, spell
from .check import check
from .inputs import PARTITION_INPUTS, as_list, complete, expand_nodes, gpu_counts, node_sets

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

__all__ = ["FILES", "MARKER", "VERSIONS", "check", "remarks", "render", "restart_key"]

# All that render() may return.
FILES = (
    "slurm.conf",
    "cgroup.conf",
    "gres.conf",
    "topology.conf",
    "topology.yaml",
    "plugstack.conf",
)

# Another order of these is another value: GresTypes would restart slurmctld.
_ORDERED = ("AccountingStorageTRES", "GresTypes")
# What the site's own value is added to, because another part of the collection relies on ours.
_ADDED_TO = (
    *_ORDERED,
    "LaunchParameters",
    "PrologFlags",
    "SlurmctldParameters",
    "SlurmdParameters",
)

_DEFAULT_MEMORY = ("DefMemPerCPU", "DefMemPerGPU")
_SCRIPTS = ("Prolog", "Epilog")


def render(values: Mapping[str, Any]) -> dict[str, str]:
    """Return file name → text; call `check` first."""
    full = complete(values)
    return {
        "slurm.conf": _slurm_conf(full),
        "cgroup.conf": cgroup_conf(full),
        "gres.conf": gres_conf(full),
        **topology(full),
        "plugstack.conf": text(full["plugstack"]),
    }


def restart_key(slurm_conf: str, version: str) -> str:
    """Return a digest of what this release takes only by a restart of slurmctld; "" for nothing."""
    keys = RESTART_KEYS_EVER if has(version, "reconfigure takes all") else RESTART_KEYS
    lines = re.findall(rf"^(?:{'|'.join(keys)})=.*$", slurm_conf, re.MULTILINE | re.IGNORECASE)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


def remarks(values: Mapping[str, Any]) -> list[str]:
    """Return what is legal, but less than a cluster should have, in words for the operator."""
    full = complete(values)
    plugin = full["cgroup"].get("plugin")
    messages = []
    if full["pretended_hardware"]:
        messages.append("the nodes pretend to their hardware: cores and memory are not confined")
    if plugin == "disabled":
        messages.append("no cgroups: devices are not confined, and ssh logins outlive their job")
    if plugin == "cgroup/v1" and has(full["version"], "cgroup v1 deprecated"):
        messages.append("cgroup/v1 is deprecated since Slurm 25.05")
    for name, members in node_sets(full).items():
        if not members:
            messages.append(f"node set {name} is empty: no node has its feature")
    roots = {switch["switch"] for switch in full["topology"]} - {
        below for switch in full["topology"] for below in switch.get("switches") or ()
    }
    if full["topology_plugin"] == "tree" and len(roots) > 1:
        messages.append(
            f"{', '.join(sorted(roots))} have no switch in common: no job can span them"
        )
    return messages


# ------------------------------------------------------------------------------------- slurm.conf


def _slurm_conf(values: Mapping[str, Any]) -> str:
    sections = [
        ("The cluster, and who speaks for it", _identity(values)),
        ("How jobs are confined", _confinement(values)),
        ("How jobs are placed", _scheduling(values)),
        ("What is recorded", _accounting(values)),
        ("When something does not answer", _failure(values)),
    ]
    options = {spell(str(key)): _value(value) for key, value in values["options"].items()}
    lines = [f"# Slurm {values['version']}"]
    for title, pairs in sections:
        written = [f"{key}={_chosen(key, value, options)}" for key, value in pairs]
        if written:
            lines += ["", f"# {title}", *written]
    ours = {key for _title, pairs in sections for key, _value_of_ours in pairs}
    others = [f"{key}={value}" for key, value in options.items() if key not in ours]
    if others or values["extra_lines"]:
        lines += ["", "# What the site adds", *others, *values["extra_lines"]]
    lines += ["", "# Nodes"]
    if values["pretended_hardware"]:
        lines.append("# PRETENDED: this hardware does not exist. Only for the virtual pod.")
    lines += [*_node_lines(values["nodes"]), *_node_set_lines(values)]
    lines += ["", "# Partitions", *_partition_lines(values)]
    return text(lines)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return ",".join(map(_value, value)) if isinstance(value, (list, tuple)) else str(value)


def _chosen(key: str, ours: Any, options: Mapping[str, str]) -> str:
    """Return the site's value when it has one; of flags, ours and the site's."""
    if key not in options:
        return _value(ours)
    if key not in _ADDED_TO:
        return options[key]
    needed, given = as_list(_value(ours)), as_list(options[key])
    if key in _ORDERED and {one.lower() for one in needed} <= {one.lower() for one in given}:
        return options[key]
    flags: dict[str, str] = {}
    for flag in [*needed, *given]:
        flags.setdefault(flag.lower(), flag)
    return ",".join(flags.values())


def _identity(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = [("ClusterName", values["cluster_name"])]
    for host in values["controllers"]:
        address = host.get("address")
        pairs.append(("SlurmctldHost", f"{host['name']}({address})" if address else host["name"]))
    pairs += [
        ("SlurmUser", "slurm"),
        ("AuthType", f"auth/{values['auth']}"),
        # With auth/slurm and the default here, the first job ends every slurmd (24.11.5).
        ("CredType", f"cred/{values['auth']}"),
        ("StateSaveLocation", values["state_save_location"]),
        ("SlurmdSpoolDir", values["spool_dir"]),
        ("SlurmctldLogFile", f"{values['log_dir']}/slurmctld.log"),
        ("SlurmdLogFile", f"{values['log_dir']}/slurmd.log"),
    ]
    parameters = ["enable_configless"] if values["configless"] else []
    if is_since(values["version"], "25.11"):
        # Nodes that fetch their configuration learn of a new one also when slurmctld restarts.
        parameters.append("reconfig_on_restart")
    if parameters:
        pairs.append(("SlurmctldParameters", parameters))
    if values["pretended_hardware"]:
        pairs.append(("SlurmdParameters", "config_overrides"))
    return pairs


def _confinement(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    kinds = ("proctrack/cgroup", "task/cgroup,task/affinity", "jobacct_gather/cgroup")
    if values["cgroup"].get("plugin") == "disabled":
        kinds = ("proctrack/linuxproc", "task/none", "jobacct_gather/linux")
    elif values["pretended_hardware"]:
        # task/affinity refuses to bind tasks to cores that do not exist (22.05.8, 24.11.5).
        kinds = ("proctrack/cgroup", "task/cgroup", "jobacct_gather/cgroup")
    launch = ["use_interactive_step"]
    if is_since(values["version"], "23.11"):
        # Gives the login that pam_slurm_adopt lets in the memory limit of its job.
        launch.append("ulimit_pam_adopt")
    pairs: list[tuple[str, Any]] = [
        ("ProctrackType", kinds[0]),
        ("TaskPlugin", kinds[1]),
        ("JobAcctGatherType", kinds[2]),
        # Gives every job the step that pam_slurm_adopt moves a login into (its documentation).
        ("PrologFlags", "Contain"),
        # RDMA pins memory: the limit of the login node must not follow the job (DeepOps).
        ("PropagateResourceLimitsExcept", "MEMLOCK"),
        ("LaunchParameters", launch),
    ]
    if values["mpi_default"] != "none":
        pairs.append(("MpiDefault", values["mpi_default"]))
    for key in _SCRIPTS:
        pairs += [(key, path) for path in values[key.lower()]]
    return pairs


def _scheduling(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = [
        # The only one that knows GPUs (GRES documentation); memory counts as cores do.
        ("SelectType", "select/cons_tres"),
        ("SelectTypeParameters", "CR_Core_Memory"),
    ]
    kinds = sorted({gres["name"] for node in values["nodes"] for gres in node.get("gres") or ()})
    if kinds:
        pairs.append(("GresTypes", kinds))
    pairs += _shares(values["nodes"], values).items()
    if has_topology(values):
        pairs.append(("TopologyPlugin", f"topology/{values['topology_plugin']}"))
    if values["databases"]:
        # Fair shares are computed from what slurmdbd has recorded.
        pairs += [
            ("PriorityType", "priority/multifactor"),
            ("PriorityWeightQOS", 100000),
            ("PriorityWeightFairshare", 50000),
            ("PriorityWeightAge", 1000),
        ]
    return pairs


def _shares(nodes: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> dict[str, int]:
    """Return what a job gets that asks for GPUs or CPUs only: its share of the smallest node.

    Without DefMem* such a job would get the memory of the whole node, and the next one would wait.
    The man page calls them mutually exclusive, but Slurm takes the one a job asks by (22.05.8,
    24.11.5): memory by GPU for jobs with GPUs, by CPU for the others.
    """
    options = {spell(str(key)) for key in values["options"]}
    counts = gpu_counts(nodes)
    shares: dict[str, int] = {}
    if nodes:
        shares["DefMemPerCPU"] = min(node["real_memory_mb"] // node["cpus"] for node in nodes)
    if counts:
        shares["DefMemPerGPU"] = min(node["real_memory_mb"] // gpus for node, gpus in counts)
        shares["DefCpuPerGPU"] = min(node["cpus"] // gpus for node, gpus in counts)
    for key, name in (
        ("DefMemPerCPU", "default_mem_per_cpu_mb"),
        ("DefMemPerGPU", "default_mem_per_gpu_mb"),
        ("DefCpuPerGPU", "default_cpus_per_gpu"),
    ):
        if values[name]:
            shares[key] = values[name]
    if "DefMemPerNode" in options:
        shares = {key: share for key, share in shares.items() if key not in _DEFAULT_MEMORY}
    return shares


def _accounting(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    databases = values["databases"]
    if not databases:
        return []
    pairs: list[tuple[str, Any]] = [
        ("AccountingStorageType", "accounting_storage/slurmdbd"),
        ("AccountingStorageHost", databases[0]),
    ]
    if len(databases) > 1:
        pairs.append(("AccountingStorageBackupHost", databases[1]))
    tracked: dict[str, None] = {}
    for node in values["nodes"]:
        for gres in node.get("gres") or ():
            # The untyped one always, or a request without a type is not counted (GRES doc).
            tracked[f"gres/{gres['name']}"] = None
            if gres.get("type"):
                tracked[f"gres/{gres['name']}:{gres['type']}"] = None
    if tracked:
        pairs.append(("AccountingStorageTRES", sorted(tracked)))
    if values["accounting_enforce"]:
        pairs.append(("AccountingStorageEnforce", list(values["accounting_enforce"])))
    return pairs


def _failure(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    service = values["return_to_service"]
    if service is None:
        # 2 revives a node that was set DOWN for any reason: only where nothing is at stake.
        service = 2 if values["pretended_hardware"] else 1
    pairs: list[tuple[str, Any]] = [
        ("ReturnToService", service),
        ("SlurmctldTimeout", 120),
        ("SlurmdTimeout", 300),
        # GPU teardown and a hung file system take their time, and expiry drains the node.
        ("UnkillableStepTimeout", 180),
        ("RebootProgram", values["reboot_program"]),
        # POST and memory training of a DGX take 6 to 10 minutes; a node that is late is DOWN.
        ("ResumeTimeout", values["resume_timeout_s"]),
    ]
    health = values["health_check"]
    if health:
        idle = "NONDRAINED_IDLE" if is_since(values["version"], "23.02") else "IDLE"
        pairs += [
            ("HealthCheckProgram", health["program"]),
            ("HealthCheckInterval", health.get("interval_s") or 300),
            # CYCLE spreads the nodes over the interval.
            ("HealthCheckNodeState", health.get("node_state") or [idle, "CYCLE"]),
        ]
        if health.get("timeout_s"):
            pairs.append(("HealthCheckTimeout", health["timeout_s"]))
    return pairs


def _node_lines(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        parts = [
            f"CPUs={node['cpus']} Boards=1 SocketsPerBoard={node['sockets']}",
            f"CoresPerSocket={node['cores_per_socket']} ThreadsPerCore={node['threads_per_core']}",
            f"RealMemory={node['real_memory_mb']}",
        ]
        gres = [
            ":".join(filter(None, (item["name"], item.get("type") or "", str(item["count"]))))
            for item in node.get("gres") or ()
        ]
        if gres:
            parts.append(f"Gres={','.join(gres)}")
        if node.get("features"):
            parts.append(f"Features={','.join(node['features'])}")
        if (node.get("weight") or 1) != 1:
            parts.append(f"Weight={node['weight']}")
        groups.setdefault(" ".join(parts), []).append(node["name"])
    return sorted(f"NodeName={fold(names)} {text} State=UNKNOWN" for text, names in groups.items())


def _node_set_lines(values: Mapping[str, Any]) -> list[str]:
    lines = []
    for entry in values["node_sets"]:
        if entry.get("feature"):
            lines.append(f"NodeSet={entry['name']} Feature={entry['feature']}")
        else:
            names = [name for item in entry["nodes"] for name in expand(item)]
            lines.append(f"NodeSet={entry['name']} Nodes={fold(names)}")
    return lines


def _partition_lines(values: Mapping[str, Any]) -> list[str]:
    sets = node_sets(values)
    names = [node["name"] for node in values["nodes"]]
    by_name = {node["name"]: node for node in values["nodes"]}
    common = _shares(values["nodes"], values)
    lines = []
    for entry in values["partitions"]:
        options = {
            spell(str(key), partition=True): _value(value)
            for key, value in (entry.get("options") or {}).items()
        }
        members = [by_name[name] for name in expand_nodes(entry["nodes"], names, sets)]
        # Nodes unlike the smallest of the cluster are shared out by what they have.
        shares = {
            key: share
            for key, share in _shares(members, values).items()
            if share != common.get(key) and key not in options
        }
        if "DefMemPerNode" in options:
            shares = {key: share for key, share in shares.items() if key not in _DEFAULT_MEMORY}
        asked = entry.get("topology")
        own = {**entry, "topology": asked if asked in own_topologies(values) else None}
        lines.append(_partition_line(own, sets, {**shares, **options}))
    return lines


def _partition_line(
    entry: Mapping[str, Any], sets: Mapping[str, Sequence[str]], options: Mapping[str, Any]
) -> str:
    kept = [item for item in entry["nodes"] if item == "ALL" or item in sets]
    plain = fold(name for item in entry["nodes"] if item not in kept for name in expand(item))
    given = {**entry, "nodes": [*kept, plain] if plain else kept, "default": entry.get("default")}
    given.setdefault("state", "UP")
    given["state"] = given["state"] or "UP"
    parts = [f"PartitionName={entry['name']}"]
    for key, name in PARTITION_INPUTS.items():
        value = given.get(name)
        if value is not None and value is not False and value != []:
            parts.append(f"{key}={_value(value)}")
    return " ".join([*parts, *(f"{key}={value}" for key, value in options.items())])


def load(directory: str) -> dict[str, str]:
    """Return the files that are in the directory now."""
    found = {}
    for name in FILES:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                found[name] = handle.read()
    return found


def apply(directory: str, before: dict[str, str], after: dict[str, str]) -> None:
    """Write what differs, and remove what is no longer rendered or was left by a killed run."""
    with open_folder(directory, 0o755) as folder:
        folder.sweep()
        for name, text in after.items():
            if before.get(name) != text:
                folder.write(name, text)
        for name in folder.names():
            if name in before and name not in after:
                folder.remove(name)


def bring_about(module: AnsibleModule) -> dict[str, Any]:
    """Render the files and write what differs; return what the module returns. ToolError."""
    values = dict(module.params)
    directory = values.pop("dest")
    errors = check(values)
    if errors:
        raise ToolError("\n".join(errors), errors=errors)
    files = render(values)
    before = load(directory) if directory else files
    diff = [
        {
            "before_header": name,
            "after_header": name,
            "before": before.get(name, ""),
            "after": files.get(name, ""),
        }
        for name in FILES
        if before.get(name) != files.get(name)
    ]
    if diff and not module.check_mode:
        apply(directory, before, files)
    messages = remarks(values)
    for remark in messages:
        module.warn(f"Slurm: {remark}")
    return {
        "changed": bool(diff),
        "diff": diff,
        "files": files,
        "remarks": messages,
        "restart_key": restart_key(files["slurm.conf"], values["version"]),
    }


MARKER = "# Managed by Ansible: baremetal.dgx. Local changes will be overwritten."


def text(lines: Iterable[str]) -> str:
    """Return a file of these lines, with the marker first."""
    return "\n".join([MARKER, *lines]) + "\n"


def has_topology(values: Mapping[str, Any]) -> bool:
    """Return whether Slurm gets a topology at all."""
    return values["topology_plugin"] != "none" and bool(values["topology"])


def own_topologies(values: Mapping[str, Any]) -> list[str]:
    """Return what partitions ask for instead of the cluster's plug-in, each once."""
    asked = {entry.get("topology") or "" for entry in values["partitions"]}
    return sorted(asked - {"", values["topology_plugin"]}) if has_topology(values) else []


def topology(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the one file of the topology; {} for none."""
    if not has_topology(values):
        return {}
    if values["topology_format"] == "yaml" or own_topologies(values):
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
    several: list[str] = []
    for index, path in enumerate(files):
        tail = f" Cores={cores[index]}" if cores else ""
        tail += f" Links={links[index]}" if links else ""
        if "," in path:
            several.append(f"{head} MultipleFiles={path}{tail}")
        else:
            lines.setdefault(tail, []).append(path)
    return [*(f"{head} File={fold(paths)}{tail}" for tail, paths in lines.items()), *several]


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
    """Return the topologies in the newer form (topology.yaml man page): the cluster's first."""
    lines = ["- topology: default", "  cluster_default: true"]
    lines += _described(values, values["topology_plugin"])
    for name in own_topologies(values):
        lines += [f"- topology: {name}", "  cluster_default: false", *_described(values, name)]
    return text(lines)


def _described(values: Mapping[str, Any], plugin: str) -> list[str]:
    if plugin == "flat":
        return ["  flat: true"]
    lines = [f"  {plugin}:"]
    if plugin == "tree":
        lines.append("    switches:")
        for switch in values["topology"]:
            below = "nodes" if switch.get("nodes") else "children"
            names = switch.get("nodes") or switch["switches"]
            lines += [f"    - switch: {_scalar(switch['switch'])}", f"      {below}: {fold(names)}"]
        return lines
    if values["block_sizes"]:
        lines += ["    block_sizes:", *(f"    - {size}" for size in values["block_sizes"])]
    lines.append("    blocks:")
    for block in _blocks(values):
        lines.append(f"    - block: {_scalar(block['switch'])}")
        lines.append(f"      nodes: {fold(block['nodes'])}")
    return lines


def _scalar(name: str) -> str:
    """Return the name so that YAML takes it for text: quoted when it looks like something else."""
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", name)
    special = re.fullmatch(r"(?i)y|n|yes|no|on|off|true|false|null", name)
    return name if plain and not special else json.dumps(name)
