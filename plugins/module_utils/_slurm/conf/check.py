# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is wrong with the description of a Slurm cluster, before anything is rendered. Pure.

Slurm swallows much of it: two default partitions, a node below no switch, a GPU count that differs
from the device files, a `#` that cuts a value short (tried with 22.05.8 and 24.11.5).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Iterable, Iterator, Mapping, Sequence

from ..._core.nodeset import expand, fold
from ..._core.schema import leaves
from ..releases import VERSIONS, has, is_since, judge_key, judge_values, spell
from .inputs import PARTITION_INPUTS, as_list, complete, gpu_counts, seconds

_DATABASES = "the group slurm_databases, since a slurmdbd that others run is not supported"

# Keys that other parts of the collection rely on, and what sets them.
OWNED: Mapping[str, str] = {
    "AccountingStorageBackupHost": _DATABASES,
    "AccountingStorageEnforce": "slurm_controller_accounting_enforce",
    "AccountingStorageHost": _DATABASES,
    "AccountingStorageType": _DATABASES,
    "AuthType": "slurm_base_auth",
    "ClusterName": "slurm_controller_cluster_name",
    "CredType": "slurm_base_auth",
    "DefCpuPerGPU": "slurm_controller_default_cpus_per_gpu",
    "DefMemPerCPU": "slurm_controller_default_mem_per_cpu_mb",
    "DefMemPerGPU": "slurm_controller_default_mem_per_gpu_mb",
    "Epilog": "slurm_controller_epilog",
    "MpiDefault": "slurm_controller_mpi_default",
    "NodeName": "node_profile, node_features and node_slurm_weight",
    "NodeSet": "slurm_controller_node_sets",
    "PartitionName": "slurm_controller_partitions",
    "ProctrackType": "slurm_controller_cgroup",
    "Prolog": "slurm_controller_prolog",
    "RebootProgram": "slurm_controller_reboot_program",
    "ResumeTimeout": "slurm_controller_resume_timeout_s",
    "SelectType": "nothing, GPUs need select/cons_tres",
    "SlurmUser": "nothing, the roles create the user slurm",
    "SlurmctldAddr": "slurm_controller_hosts",
    "SlurmctldHost": "slurm_controller_hosts",
    "StateSaveLocation": "slurm_controller_state_save_location",
    "TaskPlugin": "slurm_controller_cgroup",
    "TopologyPlugin": "slurm_controller_topology_plugin",
}

# Of flags that exclude each other (slurm.conf man page, PrologFlags); Contain is always set.
_CLASHES = (("contain", "nohold"), ("x11", "nohold"), ("serial", "runinjob"))

# Times, of which YAML reads an unquoted 1:00:00 as the number 3600; Slurm takes that for minutes.
_TIMES = ("PreemptExemptTime", "PriorityCalcPeriod", "PriorityDecayHalfLife", "PriorityMaxAge")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED = {
    "node": ("all", "default"),
    "node set": ("all", "default"),
    "partition": ("default",),
}


def check(values: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong, one line each: `path: what; what to write instead`."""
    version = values["version"]
    if version not in VERSIONS:
        return [f"version: {version} is not supported; write one of {', '.join(VERSIONS)}"]
    broken = list(_check_shape(values))
    if broken:
        return broken
    full = complete(values)
    names = [node["name"] for node in full["nodes"]]
    return [
        *_check_texts(full),
        *_check_hosts(full),
        *_check_nodes(full["nodes"], names),
        *_check_sets(full["node_sets"], names),
        *_check_partitions(full, names),
        *_check_topology(full, names),
        *_check_release(full),
        *_check_jobs(full),
        *_check_scripts(full),
        *_check_options(full),
    ]


# -------------------------------------------------------------------------------------- the parts

# What each entry of a list must have; the rest of the checks relies on it.
_ENTRIES: Mapping[str, Mapping[str, type]] = {
    "nodes": {
        "name": str,
        "cpus": int,
        "sockets": int,
        "cores_per_socket": int,
        "threads_per_core": int,
        "real_memory_mb": int,
    },
    "gres": {"name": str, "count": int},
    "node_sets": {"name": str},
    "partitions": {"name": str, "nodes": list},
    "topology": {"switch": str},
    "controllers": {"name": str},
}
_KINDS = {str: "a text", int: "a whole number", list: "a list"}

# All that may be in an entry; a typo would be as good as nothing written.
_KEYS: Mapping[str, Sequence[str]] = {
    "node_sets": ("name", "nodes", "feature"),
    "partitions": ("name", "options", *PARTITION_INPUTS.values()),
    "topology": ("switch", "nodes", "switches"),
    "controllers": ("name", "address"),
    "cgroup": (
        "plugin",
        "mountpoint",
        "constrain_cores",
        "constrain_ram",
        "constrain_swap",
        "constrain_devices",
    ),
    "health_check": ("program", "interval_s", "node_state", "timeout_s"),
}
# slurm.conf man pages, MpiDefault and AccountingStorageEnforce.
_MPI = re.compile(r"none|pmi2|cray_shasta|pmix(_v[2-9])?")
_ENFORCED = ("all", "associations", "limits", "nojobs", "nosteps", "qos", "safe", "wckeys")
# Slurm reads ResumeTimeout as 16 bits, of which the two greatest numbers have their own meaning.
_LONGEST_RESUME_S = 65533
_CGROUP_PLUGINS = ("autodetect", "cgroup/v2", "cgroup/v1", "disabled")


def _check_shape(values: Mapping[str, Any]) -> Iterator[str]:
    for name, wanted in _ENTRIES.items():
        for index, entry in enumerate(values.get(name) or ()):
            path = f"{name}[{index}]"
            if name == "controllers" and isinstance(entry, str):
                continue
            yield from _check_entry(path, entry, wanted)
            if name == "nodes" and isinstance(entry, Mapping):
                for position, gres in enumerate(entry.get("gres") or ()):
                    yield from _check_entry(f"{path}.gres[{position}]", gres, _ENTRIES["gres"])
                try:
                    expand(str(entry.get("name")))
                except ValueError as error:
                    yield f"{path}.name: {error}; write names as Slurm does, dgx-[01-12]"
    for name, known in _KEYS.items():
        given = values.get(name) or ()
        entries = [given] if isinstance(given, Mapping) else given
        for index, entry in enumerate(entries):
            path = name if isinstance(given, Mapping) else f"{name}[{index}]"
            for key in entry if isinstance(entry, Mapping) else ():
                if key not in known:
                    yield f"{path}.{key}: is not an input; write one of {', '.join(known)}"
    plugin = (values.get("cgroup") or {}).get("plugin")
    if plugin is not None and plugin not in _CGROUP_PLUGINS:
        yield f"cgroup.plugin: {plugin} is not known; write one of {', '.join(_CGROUP_PLUGINS)}"


def _check_entry(path: str, entry: Any, wanted: Mapping[str, type]) -> Iterator[str]:
    if not isinstance(entry, Mapping):
        yield f"{path}: is not a mapping; write {', '.join(wanted)}"
        return
    for key, kind in wanted.items():
        if entry.get(key) is None:
            yield f"{path}.{key}: missing; write {_KINDS[kind]}"
        elif not isinstance(entry[key], kind) or isinstance(entry[key], bool):
            yield f"{path}.{key}: {entry[key]!r} is not {_KINDS[kind]}; write one"


def _check_texts(values: Mapping[str, Any]) -> Iterator[str]:
    """Whatever ends up in a line must not begin another one, nor a comment."""
    for path, text in leaves("", values):
        if not isinstance(text, str):
            continue
        if "\n" in text or "\r" in text:
            yield f"{path}: has a line break; write one line"
        elif "#" in text and not re.match(r"(plugstack|extra_lines)\[", path):
            yield f"{path}: has a '#', which begins a comment and cuts the value; leave it out"
        elif path.startswith("partitions[") and re.search(r"\s", text):
            yield f"{path}: has a space, which ends the value; leave it out"


def _check_name(path: str, name: str, what: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f"{path}: {name!r} is not a name of a {what}; write letters, digits, dots and dashes"
    elif name.lower() in _RESERVED.get(what, ()):
        yield f"{path}: {name} has its own meaning to Slurm; choose another name"


def _repeated(path: str, names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{path}: {name} is declared {count} times; declare it once"


def _check_hosts(values: Mapping[str, Any]) -> Iterator[str]:
    yield from _check_name("cluster_name", values["cluster_name"], "cluster")
    if not values["controllers"]:
        yield "controllers: empty; name the hosts that run slurmctld"
    yield from _repeated("controllers", [host["name"] for host in values["controllers"]])
    yield from _repeated("databases", values["databases"])
    if len(values["databases"]) > 2:
        yield "databases: Slurm knows one stand-by of slurmdbd; name two hosts at most"


def _check_nodes(nodes: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[str]:
    if not nodes:
        yield "nodes: empty; add hosts to the group gpu_nodes"
    yield from _repeated("nodes", names)
    for node in nodes:
        path = f"nodes.{node['name']}"
        yield from _check_name(path, node["name"], "node")
        threads = node["sockets"] * node["cores_per_socket"] * node["threads_per_core"]
        if node["cpus"] != threads:
            yield (
                f"{path}.cpus: {node['cpus']}, but sockets x cores_per_socket x threads_per_core "
                f"is {threads}; correct the profile"
            )
        for key in ("cpus", "real_memory_mb"):
            if node[key] < 1:
                yield f"{path}.{key}: {node[key]}; write what the node has"
        for gres in node.get("gres") or ():
            yield from _check_gres(f"{path}.gres.{gres['name']}", gres)


def _check_gres(path: str, gres: Mapping[str, Any]) -> Iterator[str]:
    count = gres["count"]
    if count < 1:
        yield f"{path}.count: {count}; leave the resource out"
    for key in ("files", "cores", "links"):
        given = len(gres.get(key) or ())
        if given not in (0, count):
            yield f"{path}.{key}: {given} of them, but count is {count}; give one for each, or none"
    if (gres.get("cores") or gres.get("links")) and not gres.get("files"):
        yield f"{path}.files: missing, but cores or links are given; name the device files"
    yield from _repeated(f"{path}.files", gres.get("files") or ())


def _unknown(path: str, item: str, names: Sequence[str], sets: Iterable[str]) -> Iterator[str]:
    if item == "ALL" or item in sets:
        return
    try:
        missing = sorted(set(expand(item)) - set(names))
    except ValueError as problem:
        yield f"{path}: {problem}; write a node set like dgx-[01-04]"
        return
    if missing:
        yield f"{path}: {fold(missing)} is not a node of the cluster; write one that is"


def _check_sets(sets: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[str]:
    yield from _repeated("node_sets", [entry["name"] for entry in sets])
    for index, entry in enumerate(sets):
        path = f"node_sets[{index}]"
        yield from _check_name(f"{path}.name", entry["name"], "node set")
        if entry["name"] in names:
            yield f"{path}.name: {entry['name']} is a node; choose another name"
        if bool(entry.get("nodes")) == bool(entry.get("feature")):
            yield f"{path}: has neither nodes nor feature, or both; write one of them"
        for position, item in enumerate(entry.get("nodes") or ()):
            yield from _unknown(f"{path}.nodes[{position}]", item, names, ())


def _check_partitions(values: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    partitions = values["partitions"]
    sets = [entry["name"] for entry in values["node_sets"]]
    if not partitions:
        yield "partitions: empty; declare at least one"
    yield from _repeated("partitions", [entry["name"] for entry in partitions])
    defaults = [entry["name"] for entry in partitions if entry.get("default")]
    if len(defaults) > 1:
        yield f"partitions: {', '.join(defaults)} are all the default; leave one"
    for index, entry in enumerate(partitions):
        path = f"partitions[{index}]"
        yield from _check_name(f"{path}.name", entry["name"], "partition")
        for position, item in enumerate(entry["nodes"]):
            yield from _unknown(f"{path}.nodes[{position}]", item, names, sets)
        yield from _check_times(path, entry)
        yield from _check_partition_options(path, entry.get("options") or {}, values["version"])


def _check_times(path: str, entry: Mapping[str, Any]) -> Iterator[str]:
    lengths = {}
    for key in ("max_time", "default_time"):
        text = str(entry.get(key) if entry.get(key) is not None else "")
        if not text or (key == "default_time" and text.lower() == "none"):
            continue
        lengths[key] = seconds(text)
        if lengths[key] is None:
            yield f"{path}.{key}: {text} is not a time; write minutes, HH:MM:SS or D-HH:MM:SS"
    longest, default = lengths.get("max_time"), lengths.get("default_time")
    if longest is not None and default is not None and default > longest:
        yield f"{path}.default_time: is longer than max_time; shorten it"


def _check_partition_options(path: str, options: Mapping[str, Any], version: str) -> Iterator[str]:
    for key in options:
        wrong = judge_key(version, key, partition=True)
        owner = PARTITION_INPUTS.get(spell(key, partition=True))
        if wrong:
            yield f"{path}.options.{key}: {wrong}"
        elif owner:
            yield f"{path}.options.{key}: has its own input; write {owner}"


def _check_topology(values: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    switches, plugin = values["topology"], values["topology_plugin"]
    asked = {plugin, *(one.get("topology") for one in values["partitions"])}
    if values["block_sizes"] and not switches:
        yield "block_sizes: the fabric has no units that could be blocks; leave it out"
    elif values["block_sizes"] and "block" not in asked:
        yield f"block_sizes: {plugin} has no blocks; leave it out, or write block as the plugin"
    if not switches or plugin == "none":
        return
    known = [switch["switch"] for switch in switches]
    yield from _repeated("topology", known)
    above: Counter[str] = Counter()
    for switch in switches:
        path = f"topology.{switch['switch']}"
        yield from _check_name(path, switch["switch"], "switch")
        if bool(switch.get("nodes")) == bool(switch.get("switches")):
            yield f"{path}: has neither nodes nor switches, or both; write one of them"
        strange = sorted(set(switch.get("nodes") or ()) - set(names))
        if strange:
            yield f"{path}.nodes: {fold(strange)} is not a node of the cluster; write one that is"
        lost = sorted(set(switch.get("switches") or ()) - set(known))
        if lost:
            yield f"{path}.switches: {', '.join(lost)} is not a switch of the topology; name one"
        above.update(switch.get("nodes") or ())
    twice = sorted(name for name, count in above.items() if count > 1)
    if twice:
        yield f"topology: {fold(twice)} is below more than one switch; leave one"
    missing = sorted(set(names) - set(above))
    if missing:
        yield f"topology: {fold(missing)} is below no switch, and jobs could not use it; add it"
    if "block" in asked:
        yield from _check_blocks(values)


def _check_blocks(values: Mapping[str, Any]) -> Iterator[str]:
    blocks = [len(block["nodes"]) for block in values["topology"] if block.get("nodes")]
    smallest, largest = min(blocks, default=0), max(blocks, default=0)
    version, sizes = values["version"], values["block_sizes"]
    if smallest != largest and not has(version, "unequal blocks"):
        yield (
            f"topology: has blocks of {smallest} and of {largest} nodes, but Slurm {version} wants "
            "them alike; write tree"
        )
    elif not has(version, "incomplete blocks") and (sizes or blocks or (0,))[0] > smallest:
        # Without sizes the first block is the measure.
        yield (
            f"block_sizes: the smallest block has {smallest} nodes, and Slurm {version} takes none "
            "below the first size; begin with that or less"
        )
        return
    if not sizes:
        return
    # From "incomplete blocks" on slurmctld compares no block with the sizes, the largest neither.
    if sizes[0] < 1:
        yield f"block_sizes: {sizes[0]} is out of range; begin with 1 or more"
        return
    powers = [size / sizes[0] for size in sizes]
    if list(sizes) != sorted(set(sizes)) or any(power not in _POWERS for power in powers):
        yield "block_sizes: must rise by powers of two of the first; write for example 18, 36, 72"


_POWERS = frozenset(float(2**exponent) for exponent in range(16))


def _check_release(values: Mapping[str, Any]) -> Iterator[str]:
    version = values["version"]

    def needs(path: str, feature: str, remedy: str) -> Iterator[str]:
        if not has(version, feature):
            first = min(item for item in VERSIONS if has(item, feature))
            yield f"{path} needs {first} or later, version is {version}; {remedy}"

    if values["auth"] == "slurm":
        yield from needs("auth: slurm", "auth/slurm", "write munge")
    if values["topology_plugin"] == "block":
        yield from needs("topology_plugin: block", "topology block", "write tree")
    if values["topology_format"] == "yaml":
        yield from needs("topology_format: yaml", "topology.yaml", "write conf")
    for index, entry in enumerate(values["partitions"]):
        path = f"partitions[{index}].topology"
        if entry.get("topology") and (
            not values["topology"] or values["topology_plugin"] == "none"
        ):
            yield f"{path}: there is no topology to depart from; leave it out"
        elif entry.get("topology"):
            yield from needs(path, "topology.yaml", "leave it out")
    if values["gres_autodetect"] == "nvidia":
        yield from needs("gres_autodetect: nvidia", "autodetect nvidia", "write nvml or off")
    for key in ("prolog", "epilog"):
        if len(values[key]) > 1:
            remedy = f"write a pattern like /etc/slurm/{key}.d/*"
            yield from needs(f"{key}: more than one path", "several prolog lines", remedy)


def _check_jobs(values: Mapping[str, Any]) -> Iterator[str]:
    """What a job gets that does not say, and what happens to its node."""
    mpi = values["mpi_default"]
    if not _MPI.fullmatch(mpi):
        yield f"mpi_default: {mpi} is not known; write none, pmi2 or pmix"
    for word in values["accounting_enforce"]:
        if word.lower() not in _ENFORCED:
            yield f"accounting_enforce: {word} is not known; write one of {', '.join(_ENFORCED)}"
    if not 1 <= values["resume_timeout_s"] <= _LONGEST_RESUME_S:
        given = values["resume_timeout_s"]
        yield f"resume_timeout_s: {given} is out of range; write 1 to {_LONGEST_RESUME_S}"
    if not values["reboot_program"].startswith("/"):
        yield f"reboot_program: {values['reboot_program']} is not an absolute path; write one"
    for name, most in _most_defaults(values["nodes"]).items():
        given = values[name]
        if given and not 1 <= given <= most:
            yield f"{name}: {given}, but no node has more than {most} for each; write 1 to {most}"


def _most_defaults(nodes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the greatest default with which a job can still have a whole node."""
    counts = gpu_counts(nodes)
    memory = [node["real_memory_mb"] // node["cpus"] for node in nodes if node["cpus"] > 0]
    return {
        "default_cpus_per_gpu": max((node["cpus"] // gpus for node, gpus in counts), default=0),
        "default_mem_per_gpu_mb": max(
            (node["real_memory_mb"] // gpus for node, gpus in counts), default=0
        ),
        "default_mem_per_cpu_mb": max(memory, default=0),
    }


def _check_scripts(values: Mapping[str, Any]) -> Iterator[str]:
    for index, line in enumerate(values["plugstack"]):
        # Configless slurmctld skips what it cannot lay beside slurm.conf (seen with 26.05.5).
        if values["configless"] and re.match(r"\s*include\s+\S*[/*?[]", line):
            yield (
                f"plugstack[{index}]: slurmctld serves no include with a path or a pattern; "
                "write the plug-in's own line"
            )
    health = values["health_check"]
    if not health:
        return
    if not health.get("program"):
        yield "health_check.program: missing; name the program, or leave health_check out"
    # The program is killed after 60 s (slurm.conf man page, HealthCheckProgram).
    limit = health.get("timeout_s") or 60
    interval = health.get("interval_s")
    if interval is not None and interval <= limit:
        yield f"health_check.interval_s: {interval}, but one run may take {limit}; write more"
    version = values["version"]
    if health.get("timeout_s") and not is_since(version, "26.05"):
        yield f"health_check.timeout_s: exists from 26.05 on, version is {version}; leave it out"
    states = list(health.get("node_state") or ())
    for wrong in judge_values(version, "HealthCheckNodeState", states):
        yield f"health_check.node_state: {wrong}"


def _check_options(values: Mapping[str, Any]) -> Iterator[str]:
    seen: Counter[str] = Counter(str(key).lower() for key in values["options"])
    for key, value in values["options"].items():
        path = f"options.{key}"
        name = spell(str(key))
        wrong = judge_key(values["version"], str(key))
        if seen[str(key).lower()] > 1:
            yield f"{path}: is given more than once, since Slurm ignores case; leave one"
        if wrong:
            yield f"{path}: {wrong}"
        elif name in OWNED:
            yield f"{path}: is written by the role; use {OWNED[name]}"
        elif name == "TLSType" and values["databases"]:
            yield f"{path}: needs a certificate of slurmdbd, which no role makes; leave it out"
        if isinstance(value, Mapping) or value is None:
            yield f"{path}: is not a value; write a text, a number or a list"
            continue
        if name in _TIMES and not isinstance(value, str):
            wrong = f"{path}: {value!r} is not a text"
            yield f'{wrong}; write times in quotes, such as "2-00:00:00" or "90"'
        for problem in judge_values(values["version"], name, as_list(value)):
            yield f"{path}: {problem}"
    flags = ["contain", *(flag.lower() for flag in as_list(_option(values, "PrologFlags")))]
    for first, second in _CLASHES:
        if first in flags and second in flags:
            yield f"options.PrologFlags: {second} excludes {first}; leave it out"


def _option(values: Mapping[str, Any], name: str) -> Any:
    for key, value in values["options"].items():
        if str(key).lower() == name.lower():
            return value
    return ()
