# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The cluster as values → slurm.conf, gres.conf, cgroup.conf, topology.conf, plugstack.conf. Pure.

Keys and defaults follow the man pages of the release; what differs between releases stands in the
tables below. Sources of the recommended values: Slurm's GRES, cgroup, accounting and
pam_slurm_adopt documentation, and NVIDIA's DeepOps (timeouts of a DGX).
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Iterable, Mapping

from ansible_collections.baremetal.dgx.plugins.module_utils._nodeset import expand, fold

VERSIONS = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
MARKER = "# Managed by Ansible: baremetal.dgx. Local changes will be overwritten."

# From this release on `scontrol reconfigure` starts every daemon anew in place, so that a change of
# anything is taken without a restart of the unit (release notes of 23.11; tried with 24.11.5).
RECONFIGURE_TAKES_ALL = "23.11"

# What the role decides, because another part of the collection relies on it, and the input for it.
_OWNED = {
    "clustername": "slurm_controller_cluster_name",
    "slurmctldhost": "slurm_controller_hosts",
    "nodename": "slurm_controller_nodes",
    "partitionname": "slurm_controller_partitions",
    "nodeset": "slurm_controller_node_sets",
    "authtype": "slurm_base_auth",
    "credtype": "slurm_base_auth",
    "accountingstoragehost": "slurm_controller_databases",
    "accountingstoragebackuphost": "slurm_controller_databases",
    "statesavelocation": "slurm_controller_state_save_location",
    "prolog": "slurm_controller_prolog",
    "epilog": "slurm_controller_epilog",
    "topologyplugin": "slurm_controller_topology_plugin",
}

# Options in slurm.conf by the release that brought them.
_SINCE = {
    "topologyparam": "22.05",
    "namespacetype": "25.11",
    "hashplugin": "22.05",
    "certmgrtype": "25.05",
    "tlstype": "25.05",
    "metricstype": "25.11",
}

# Before RECONFIGURE_TAKES_ALL these are read only when slurmctld starts (scontrol man page,
# reconfigure; slurm.conf man page of 22.05).
_RESTART_KEYS = (
    "AuthType|CredType|SlurmctldHost|SlurmUser|StateSaveLocation|SelectType|AccountingStorageType|"
    "ProctrackType|TaskPlugin|JobAcctGatherType|PriorityType|GresTypes|TopologyPlugin|"
    "SlurmctldParameters|PluginDir|SchedulerType|JobCompType|NodeName|ClusterName|SlurmctldPort"
)

_TIME = re.compile(r"(?:\d+-)?\d+(?::\d+){0,2}|INFINITE|UNLIMITED|NONE", re.IGNORECASE)
_PARTITION_KEYS = (
    ("state", "State"),
    ("default_time", "DefaultTime"),
    ("max_time", "MaxTime"),
    ("max_nodes", "MaxNodes"),
    ("qos", "QOS"),
    ("allow_accounts", "AllowAccounts"),
    ("allow_groups", "AllowGroups"),
    ("allow_qos", "AllowQos"),
    ("priority_tier", "PriorityTier"),
    ("preempt_mode", "PreemptMode"),
    ("oversubscribe", "OverSubscribe"),
)


def release(version: str) -> tuple[int, int]:
    """Return MAJOR.MINOR as numbers that compare."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _is_since(version: str, first: str) -> bool:
    return release(version) >= release(first)


# --------------------------------------------------------------------------------------- checking


def check(values: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong, one line each: `path: what; what to write instead`."""
    version = values["version"]
    if version not in VERSIONS:
        return [f"version: {version} is not supported; write one of {', '.join(VERSIONS)}"]
    names = [node["name"] for node in values["nodes"]]
    errors = [
        f"nodes: {name} stands there more than once; name each node once"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if not values["controllers"]:
        errors.append("controllers: empty; name the hosts that run slurmctld")
    for node in values["nodes"]:
        errors.extend(_check_node(node))
    sets, set_errors = _node_sets(values["node_sets"], set(names))
    errors.extend(set_errors)
    errors.extend(_check_partitions(values["partitions"], set(names), sets))
    errors.extend(_check_topology(values["topology"], set(names), values["topology_plugin"]))
    errors.extend(_check_options(values["options"], version))
    if values["auth"] == "slurm" and not _is_since(version, "24.11"):
        errors.append(f"auth: slurm needs 24.11 or later, version is {version}; write munge")
    if values["topology_plugin"] == "block" and not _is_since(version, "23.11"):
        errors.append(f"topology_plugin: block needs 23.11 or later, version is {version}")
    if values["gres_autodetect"] == "nvidia" and not _is_since(version, "24.11"):
        errors.append(f"gres_autodetect: nvidia needs 24.11 or later, version is {version}")
    cgroup = values["cgroup"]
    if cgroup.get("plugin") == "cgroup/v1" and not cgroup.get("mountpoint"):
        errors.append("cgroup.mountpoint: missing; cgroup/v1 needs to know where it is mounted")
    for key in ("prolog", "epilog"):
        if len(values[key]) > 1 and not _is_since(version, "24.05"):
            errors.append(f"{key}: Slurm {version} takes one path; write a pattern like /x/*")
    return errors


def _check_node(node: Mapping[str, Any]) -> list[str]:
    path = f"nodes.{node['name']}"
    threads = node["sockets"] * node["cores_per_socket"] * node["threads_per_core"]
    errors = []
    if node["cpus"] != threads:
        errors.append(f"{path}.cpus: {node['cpus']}, but sockets x cores x threads is {threads}")
    for gres in node.get("gres") or []:
        for key in ("files", "cores", "links"):
            given = len(gres.get(key) or [])
            if given not in (0, gres["count"]):
                errors.append(
                    f"{path}.gres.{gres['name']}.{key}: {given} of them, but count is "
                    f"{gres['count']}; give one for each, or none"
                )
    return errors


def _node_sets(sets: Iterable[Mapping[str, Any]], names: set[str]) -> tuple[set[str], list[str]]:
    known: set[str] = set()
    errors = []
    for entry in sets:
        path = f"node_sets.{entry['name']}"
        if entry["name"] in known:
            errors.append(f"{path}: declared twice")
        known.add(entry["name"])
        if bool(entry.get("nodes")) == bool(entry.get("feature")):
            errors.append(f"{path}: needs nodes or feature, and not both")
        errors.extend(_unknown(f"{path}.nodes", entry.get("nodes") or [], names, set()))
    return known, errors


def _unknown(path: str, given: Iterable[str], names: set[str], sets: set[str]) -> list[str]:
    errors = []
    for item in given:
        if item == "ALL" or item in sets:
            continue
        try:
            missing = [name for name in expand(item) if name not in names]
        except ValueError as problem:
            errors.append(f"{path}: {problem}")
            continue
        if missing:
            errors.append(f"{path}: {fold(missing)} is no node of the cluster; mend the name")
    return errors


def _check_partitions(
    partitions: Iterable[Mapping[str, Any]], names: set[str], sets: set[str]
) -> list[str]:
    errors, seen, defaults = [], set(), []
    for index, entry in enumerate(partitions):
        path = f"partitions[{index}]"
        if entry["name"] in seen:
            errors.append(f"{path}.name: {entry['name']} is declared twice; give each its own")
        seen.add(entry["name"])
        if entry.get("default"):
            defaults.append(entry["name"])
        errors.extend(_unknown(f"{path}.nodes", entry["nodes"], names, sets))
        for key in ("max_time", "default_time"):
            value = entry.get(key)
            if value is not None and not _TIME.fullmatch(str(value)):
                errors.append(f"{path}.{key}: {value} is no time; write minutes or D-HH:MM:SS")
    if len(defaults) > 1:
        errors.append(f"partitions: {', '.join(defaults)} are all the default; keep one")
    if not seen:
        errors.append("partitions: empty; declare at least one")
    return errors


def _check_topology(
    topology: Iterable[Mapping[str, Any]], names: set[str], plugin: str
) -> list[str]:
    switches = list(topology)
    if not switches or plugin == "none":
        return []
    placed = [name for switch in switches for name in switch.get("nodes") or []]
    errors = [f"topology: {name} is no node of the cluster" for name in placed if name not in names]
    missing = sorted(names - set(placed))
    if missing:
        errors.append(f"topology: {fold(missing)} is below no switch; jobs could not use it")
    return errors


def _check_options(options: Mapping[str, Any], version: str) -> list[str]:
    errors = []
    for key, value in options.items():
        owner = _OWNED.get(key.lower())
        if owner:
            errors.append(f"options.{key}: is written by the role; use {owner}")
        if key.lower() == "prologflags" and "contain" not in str(value).lower():
            errors.append(f"options.{key}: without Contain nobody could ssh into a job; add it")
        first = _SINCE.get(key.lower())
        if first and not _is_since(version, first):
            errors.append(f"options.{key}: exists from {first} on, version is {version}")
    return errors


# -------------------------------------------------------------------------------------- rendering


def render(values: Mapping[str, Any]) -> dict[str, str]:
    """Return file name → text; call `check` first."""
    files = {
        "slurm.conf": _slurm_conf(values),
        "cgroup.conf": _cgroup_conf(values),
        "gres.conf": _gres_conf(values),
        "plugstack.conf": "\n".join([MARKER, *values["plugstack"]]) + "\n",
    }
    if _has_topology(values):
        files["topology.conf"] = _topology_conf(values)
    return files


def restart_key(slurm_conf: str, version: str) -> str:
    """Return a digest of what this release takes only by a restart of slurmctld; empty for none."""
    if _is_since(version, RECONFIGURE_TAKES_ALL):
        return ""
    lines = re.findall(rf"^(?:{_RESTART_KEYS})=.*$", slurm_conf, re.MULTILINE)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _has_topology(values: Mapping[str, Any]) -> bool:
    return values["topology_plugin"] != "none" and bool(values["topology"])


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _no_cgroups(values: Mapping[str, Any]) -> bool:
    return bool(values["cgroup"].get("plugin") == "disabled")


def _slurm_conf(values: Mapping[str, Any]) -> str:
    sections = [
        ("The cluster and who speaks for it", _identity(values)),
        ("How jobs are confined", _confinement(values)),
        ("How jobs are placed", _scheduling(values)),
        ("What is recorded", _accounting(values)),
        ("When something does not answer", _failure(values)),
    ]
    options = {key.lower(): (key, value) for key, value in values["options"].items()}
    lines = [MARKER, f"# Slurm {values['version']}"]
    for title, pairs in sections:
        written = []
        for key, value in pairs:
            chosen = options.pop(key.lower(), (key, value))
            written.append(f"{chosen[0]}={chosen[1]}")
        if written:
            lines += ["", f"# {title}", *written]
    if options:
        lines += ["", "# slurm_controller_options"]
        lines += [f"{key}={value}" for key, value in options.values()]
    lines += ["", "# Nodes and partitions", *_node_lines(values["nodes"])]
    lines += [_node_set_line(entry) for entry in values["node_sets"]]
    lines += [_partition_line(entry) for entry in values["partitions"]]
    return "\n".join(lines) + "\n"


def _identity(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    pairs = [("ClusterName", values["cluster_name"])]
    for host in values["controllers"]:
        address = host.get("address")
        pairs.append(("SlurmctldHost", f"{host['name']}({address})" if address else host["name"]))
    auth = values["auth"]
    pairs += [
        ("SlurmUser", "slurm"),
        ("AuthType", f"auth/{auth}"),
        ("CredType", "auth/slurm" if auth == "slurm" else "cred/munge"),
        ("StateSaveLocation", values["state_save_location"]),
        ("SlurmdSpoolDir", "/var/lib/slurm/slurmd"),
        ("SlurmctldLogFile", "/var/log/slurm/slurmctld.log"),
        ("SlurmdLogFile", "/var/log/slurm/slurmd.log"),
    ]
    parameters = ["enable_configless"] if values["configless"] else []
    if _is_since(values["version"], "25.11"):
        parameters.append("reconfig_on_restart")
    if parameters:
        pairs.append(("SlurmctldParameters", ",".join(parameters)))
    if values["pretended_hardware"]:
        # Only the virtual pod: the nodes claim CPUs and memory that they do not have.
        pairs.append(("SlurmdParameters", "config_overrides"))
    return pairs


def _confinement(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if _no_cgroups(values):
        kinds = ("proctrack/linuxproc", "task/none", "jobacct_gather/linux")
    elif values["pretended_hardware"]:
        # Cores that do not exist cannot be bound.
        kinds = ("proctrack/cgroup", "task/cgroup", "jobacct_gather/cgroup")
    else:
        kinds = ("proctrack/cgroup", "task/cgroup,task/affinity", "jobacct_gather/cgroup")
    pairs = [
        ("ProctrackType", kinds[0]),
        ("TaskPlugin", kinds[1]),
        ("JobAcctGatherType", kinds[2]),
        # Gives every job the step that an ssh login is moved into.
        ("PrologFlags", "Contain"),
        # RDMA pins memory: the limit of the login node must not follow the job.
        ("PropagateResourceLimitsExcept", "MEMLOCK"),
        ("LaunchParameters", "use_interactive_step"),
    ]
    pairs += [("Prolog", path) for path in values["prolog"]]
    pairs += [("Epilog", path) for path in values["epilog"]]
    return pairs


def _scheduling(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = [
        ("SelectType", "select/cons_tres"),
        ("SelectTypeParameters", "CR_Core_Memory"),
        ("PriorityType", "priority/multifactor"),
        ("PriorityWeightQOS", 100000),
        ("PriorityWeightFairshare", 50000),
        ("PriorityWeightAge", 1000),
    ]
    kinds = sorted({gres["name"] for node in values["nodes"] for gres in node.get("gres") or []})
    if kinds:
        pairs.append(("GresTypes", ",".join(kinds)))
    # A job that does not say how much memory it needs would get the whole node.
    pairs.append(
        ("DefMemPerCPU", min(node["real_memory_mb"] // node["cpus"] for node in values["nodes"]))
    )
    share = [node["cpus"] // gpus for node, gpus in _gpu_counts(values["nodes"]) if gpus]
    if share:
        pairs.append(("DefCpuPerGPU", min(share)))
    if _has_topology(values):
        pairs.append(("TopologyPlugin", f"topology/{values['topology_plugin']}"))
    return pairs


def _gpu_counts(nodes: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    return [
        (node, sum(g["count"] for g in node.get("gres") or [] if g["name"] == "gpu"))
        for node in nodes
    ]


def _accounting(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    databases = values["databases"]
    if not databases:
        return []
    pairs = [
        ("AccountingStorageType", "accounting_storage/slurmdbd"),
        ("AccountingStorageHost", databases[0]),
    ]
    if len(databases) > 1:
        pairs.append(("AccountingStorageBackupHost", databases[1]))
    tracked: dict[str, None] = {}
    for node in values["nodes"]:
        for gres in node.get("gres") or []:
            # The untyped one always, or a request without a type is not counted.
            tracked[f"gres/{gres['name']}"] = None
            if gres.get("type"):
                tracked[f"gres/{gres['name']}:{gres['type']}"] = None
    if tracked:
        pairs.append(("AccountingStorageTRES", ",".join(tracked)))
    pairs.append(("AccountingStorageEnforce", "associations,limits,qos,safe"))
    return pairs


def _failure(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        # 2 revives a node that was set DOWN for any reason: only where nothing is at stake.
        ("ReturnToService", 2 if values["pretended_hardware"] else 1),
        ("SlurmctldTimeout", 120),
        ("SlurmdTimeout", 300),
        # GPU teardown and a hung file system take their time; expiry drains the node.
        ("UnkillableStepTimeout", 180),
        ("RebootProgram", "/sbin/reboot"),
        # POST and memory training of a DGX take 6 to 10 minutes.
        ("ResumeTimeout", 1800),
    ]


def _node_lines(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        text = (
            f"CPUs={node['cpus']} Boards=1 SocketsPerBoard={node['sockets']} "
            f"CoresPerSocket={node['cores_per_socket']} ThreadsPerCore={node['threads_per_core']} "
            f"RealMemory={node['real_memory_mb']}"
        )
        gres = ",".join(
            ":".join(filter(None, (g["name"], g.get("type") or "", str(g["count"]))))
            for g in node.get("gres") or []
        )
        text += f" Gres={gres}" if gres else ""
        if node.get("features"):
            text += f" Features={','.join(node['features'])}"
        groups.setdefault(text, []).append(node["name"])
    return [f"NodeName={fold(names)} {text} State=UNKNOWN" for text, names in groups.items()]


def _node_set_line(entry: Mapping[str, Any]) -> str:
    if entry.get("feature"):
        return f"NodeSet={entry['name']} Feature={entry['feature']}"
    names = [name for item in entry["nodes"] for name in expand(item)]
    return f"NodeSet={entry['name']} Nodes={fold(names)}"


def _partition_line(entry: Mapping[str, Any]) -> str:
    parts = [f"PartitionName={entry['name']}", f"Nodes={','.join(entry['nodes'])}"]
    if entry.get("default"):
        parts.append("Default=YES")
    for key, name in _PARTITION_KEYS:
        value = entry.get(key)
        if value not in (None, []):
            parts.append(f"{name}={','.join(value) if isinstance(value, list) else value}")
    if entry.get("state") is None:
        parts.append("State=UP")
    parts += [f"{key}={value}" for key, value in (entry.get("options") or {}).items()]
    return " ".join(parts)


def _cgroup_conf(values: Mapping[str, Any]) -> str:
    cgroup = values["cgroup"]
    lines = [MARKER]
    if _no_cgroups(values):
        lines.append("# Jobs are not confined: the kernel of these hosts does not allow it.")
        # Before 24.05 there is no way to say "none"; v1 is what does not end slurmd (tried: 22.05).
        disabled = "disabled" if _is_since(values["version"], "24.05") else "cgroup/v1"
        return "\n".join([*lines, f"CgroupPlugin={disabled}"]) + "\n"
    lines.append(f"CgroupPlugin={cgroup.get('plugin') or 'autodetect'}")
    if cgroup.get("mountpoint"):
        lines.append(f"CgroupMountpoint={cgroup['mountpoint']}")
    for key, name in (
        ("constrain_cores", "ConstrainCores"),
        ("constrain_ram", "ConstrainRAMSpace"),
        ("constrain_swap", "ConstrainSwapSpace"),
        ("constrain_devices", "ConstrainDevices"),
    ):
        lines.append(f"{name}={_yes(cgroup.get(key) is not False)}")
    return "\n".join(lines) + "\n"


def _gres_conf(values: Mapping[str, Any]) -> str:
    lines = [MARKER, f"AutoDetect={values['gres_autodetect']}"]
    if values["gres_autodetect"] != "off":
        # slurmd finds files, cores and links itself.
        return "\n".join(lines) + "\n"
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in values["nodes"]:
        text = tuple(line for gres in node.get("gres") or [] for line in _gres_lines(gres))
        groups.setdefault(text, []).append(node["name"])
    for texts, names in groups.items():
        lines += [f"NodeName={fold(names)} {text}" for text in texts]
    return "\n".join(lines) + "\n"


def _gres_lines(gres: Mapping[str, Any]) -> list[str]:
    head = f"Name={gres['name']}" + (f" Type={gres['type']}" if gres.get("type") else "")
    files, cores, links = (gres.get(key) or [] for key in ("files", "cores", "links"))
    if not files:
        return [f"{head} Count={gres['count']}"]
    lines: dict[str, list[str]] = {}
    for index, path in enumerate(files):
        tail = f" Cores={cores[index]}" if cores else ""
        tail += f" Links={links[index]}" if links else ""
        lines.setdefault(tail, []).append(path)
    return [f"{head} File={fold(paths)}{tail}" for tail, paths in lines.items()]


def _topology_conf(values: Mapping[str, Any]) -> str:
    lines = [MARKER]
    for switch in values["topology"]:
        kind = "BlockName" if values["topology_plugin"] == "block" else "SwitchName"
        below = (
            f"Nodes={fold(switch['nodes'])}"
            if switch.get("nodes")
            else f"Switches={fold(switch['switches'])}"
        )
        if kind == "BlockName" and not switch.get("nodes"):
            continue
        lines.append(f"{kind}={switch['switch']} {below}")
    return "\n".join(lines) + "\n"
