# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What Slurm gets about the nodes, and whether partitions name nodes that exist. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._core.nodeset import expand, fold
from ...module_utils._core.schema import Problem, closest, words
from ...module_utils._slurm.releases import is_since
from ...module_utils._slurm.saved_state import RELEASES, takes_over_from
from .._contract.contract import COMPUTE_GROUPS
from .._contract.profiles import Profile
from .._inventory.values import Value, is_hidden
from . import mig
from .fabric import Fabric
from .nodes import Node, has_place

# From this release on Slurm leaves drained nodes out by default (NONDRAINED_IDLE).
_NONDRAINED = "23.02"
# Whose daemons and commands ask the daemon of another group.
_REPORTS = (
    ("slurm_controllers", "slurm_databases", "slurmdbd"),
    *((group, "slurm_controllers", "slurmctld") for group in (*COMPUTE_GROUPS, "login_nodes")),
    ("login_nodes", "slurm_databases", "slurmdbd"),
)


def _gres(profile: Profile, layout: mig.Layout) -> list[dict[str, Any]]:
    gpus, nvlink = profile.gpus, profile.nvlink
    if gpus is None:
        return []
    links: list[str] = []
    whole = [gpu for gpu in range(gpus.count) if gpu not in layout]
    # A GPU that is divided has no link that a job could use, and all count in Links.
    if nvlink and nvlink.links_per_gpu and not layout:
        # gres.conf man page, Links: one number for each GPU, -1 for the GPU itself.
        links = [
            ",".join(
                "-1" if other == gpu else str(nvlink.links_per_gpu) for other in range(gpus.count)
            )
            for gpu in range(gpus.count)
        ]
    undivided = {
        "name": "gpu",
        "type": gpus.type,
        "count": len(whole),
        "files": [f"/dev/nvidia{index}" for index in whole],
        "cores": [gpus.cores[index] for index in whole if gpus.cores],
        "links": links,
    }
    return [*([undivided] if whole else []), *mig.gres(profile, layout)]


def slurm_nodes(nodes: Iterable[Node], profiles: Mapping[str, Profile]) -> list[dict[str, Any]]:
    """Return the nodes as slurm.conf and gres.conf describe them."""
    described: list[dict[str, Any]] = []
    for node in nodes:
        profile = profiles.get(node.profile or "")
        if not node.runs_jobs or profile is None or profile.cpu is None:
            continue
        described.append(
            {
                "name": node.name,
                "cpus": profile.cpu.logical,
                "sockets": profile.cpu.sockets,
                "cores_per_socket": profile.cpu.cores_per_socket,
                "threads_per_core": profile.cpu.threads_per_core,
                "real_memory_mb": profile.real_memory_mb,
                "gres": _gres(profile, node.mig),
                "features": list(node.features),
                "weight": node.slurm_weight,
            }
        )
    return described


def slurm_topology(
    nodes: Iterable[Node], fabric: Fabric, profiles: Mapping[str, Profile]
) -> list[dict[str, Any]]:
    """Return a pseudo-switch for each unit and island, and one above; none for a flat fabric.

    Not the leaf switches: on a rail-optimised fabric each node hangs on all of its unit's, and
    topology/tree wants a node below one. Nodes without a unit or without rails get their own
    pseudo-switch, since Slurm lets no job span nodes without a common parent.
    """
    if not fabric.grouped:
        return []
    below: dict[str, list[str]] = {}
    for node in nodes:
        if node.runs_jobs:
            in_unit = node.su and has_place(node, profiles)
            below.setdefault(f"su{node.su}" if in_unit else "others", []).append(node.name)
    names = sorted(below, key=lambda name: (name == "others", len(name), name))
    switches: list[dict[str, Any]] = [{"switch": name, "nodes": below[name]} for name in names]
    first = 1
    for number, island in enumerate(fabric.islands if len(fabric.islands) > 1 else (), 1):
        units = [f"su{unit}" for unit in range(first, first + island.groups)]
        own = [name for name in names if name in units]
        if own:
            switches.append({"switch": f"island{number}", "switches": own})
            start = names.index(own[0])
            names[start : start + len(own)] = [f"island{number}"]
        first += island.groups
    return [*switches, {"switch": "core", "switches": names}]


def _check_expression(
    path: str, text: str, known: set[str], absent: set[str], sets: set[str]
) -> Iterator[Problem]:
    if text == "ALL" or text in sets:
        return
    try:
        names = expand(text)
    except ValueError as exc:
        yield Problem(path, str(exc), "write a node set like dgx-[01-04]")
        return
    gone = [name for name in names if name in absent]
    if gone:
        remedy = f"leave out {fold(gone)}"
        yield Problem(path, f"{_are(gone)} declared absent by node_state", remedy)
    strange = [name for name in names if name not in known and name not in absent]
    if strange:
        near = closest(strange[0], sets)
        wrong = f"no compute node or node set is called {fold(strange)}"
        yield Problem(path, wrong, f"write {near or 'nodes out of ' + fold(known)}")


def _are(names: list[str]) -> str:
    return "{} {}".format(fold(names), "is" if len(names) == 1 else "are")


def _check_unique(path: str, items: list[Mapping[str, Any]]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        first = index
        if isinstance(item["name"], str):
            first = seen.setdefault(item["name"].lower(), index)
        if first != index:
            where = f"{path}[{index}].name"
            wrong = "'{}' is also the name of [{}]".format(item["name"], first)
            yield Problem(where, wrong, "write another name")


def check_partitions(
    nodes: list[Node], partitions: Value, node_sets: Value
) -> tuple[list[Problem], list[str]]:
    """Return what is wrong with partitions and node sets, and what is doubtful."""
    known = {node.name for node in nodes if node.runs_jobs}
    absent = {node.name for node in nodes if not node.present}
    sets = {str(item["name"]) for item in node_sets.value}
    problems: list[Problem] = []
    warnings: list[str] = []
    for value, among in ((partitions, sets), (node_sets, set())):
        problems.extend(_check_unique(value.path, value.value))
        for index, item in enumerate(value.value):
            expressions = item.get("nodes")
            for position, text in enumerate(expressions if isinstance(expressions, list) else ()):
                where = f"{value.path}[{index}].nodes[{position}]"
                # One that comes from a fact is not known here.
                if isinstance(text, str):
                    problems.extend(_check_expression(where, text, known, absent, among))
    defaults = [index for index, item in enumerate(partitions.value) if item.get("default")]
    for index in defaults[1:]:
        where = f"{partitions.path}[{index}].default"
        wrong = f"partition [{defaults[0]}] is the default already"
        problems.append(Problem(where, wrong, "leave one default"))
    features = {feature for node in nodes if node.runs_jobs for feature in node.features}
    for index, item in enumerate(node_sets.value):
        if item.get("feature") and item["feature"] not in features:
            where = f"{node_sets.path}[{index}].feature"
            warnings.append("{}: no node has the feature '{}'".format(where, item["feature"]))
    return problems, warnings


def check_absent(
    nodes: Iterable[Node], variables: Mapping[str, Mapping[str, Value]]
) -> Iterator[Problem]:
    """Yield hosts with Slurm's daemons that are declared absent: only compute nodes leave by that.

    The other hosts' files name the first of each group, and it has what is copied.
    """
    for node in nodes:
        groups = [one for one in ("slurm_controllers", "slurm_databases") if one in node.groups]
        if groups and not node.present:
            where = words(groups, "and")
            yield Problem(
                variables[node.name]["node_state"].path,
                f"absent, but {node.name} is in {where}, whose hosts Slurm goes on to ask",
                f"delete its line, or take it out of {where}",
            )


def check_releases(
    nodes: Iterable[Node], variables: Mapping[str, Mapping[str, Value]]
) -> Iterator[Problem]:
    """Yield releases of Slurm that do not talk to the daemon that they report to, one a variable.

    That daemon is as new at least, and knows the protocol of few releases back.
    """
    name = "slurm_base_version"
    found: dict[str, dict[str, tuple[str, Value]]] = {}
    for node in nodes:
        version = variables[node.name].get(name)
        if node.present and version is not None and version.value in RELEASES:
            for group in node.groups:
                found.setdefault(group, {}).setdefault(version.value, (node.name, version))
    reported: set[str] = set()
    for group, above, daemon in _REPORTS:
        for release, (_name, version) in found.get(group, {}).items():
            for newer, (host, _version) in found.get(above, {}).items():
                if RELEASES.index(release) > RELEASES.index(newer):
                    wrong = f"{release}, and {daemon} on {host} is of {newer}, which is older"
                    remedy = f"write {newer}, or {release} for {above}"
                elif release != newer and release not in takes_over_from(newer):
                    known = words([*takes_over_from(newer), newer])
                    wrong = f"{release}, and {daemon} on {host} is of {newer}"
                    remedy = f"write {known}, which that daemon talks to"
                else:
                    continue
                if version.path not in reported:
                    yield Problem(version.path, wrong, remedy)
                reported.add(version.path)


def check_accounting(
    variables: Mapping[str, Value], databases: tuple[str, ...]
) -> Iterator[Problem]:
    """Yield that accounts, limits or slurmrestd are declared, but no host keeps accounts.

    Hosts of slurm_controller_databases would not: it is the group that the playbooks hand on.
    """
    given = variables.get("slurm_controller_databases")
    if given is not None and given.value and list(given.value) != list(databases):
        wrong = "not used, and a slurmdbd that others run is not supported"
        yield Problem(given.path, wrong, "remove it, and put the host into slurm_databases")
        return
    wanting = [
        variables[name].path
        for name in ("slurm_controller_accounts", "slurm_controller_qos", "slurm_rest_enabled")
        if name in variables and variables[name].value
    ]
    if wanting and not databases:
        yield Problem(
            "slurm_databases",
            f"no host in it, but {wanting[0]} needs slurmdbd",
            "put a host into this group",
        )


def controller_warnings(variables: Mapping[str, Value], controllers: tuple[str, ...]) -> list[str]:
    """Return that a stand-by needs the primary's state, which is local by default."""
    name = "slurm_controller_state_save_location"
    if len(controllers) < 2 or name in variables:
        return []
    shared = f"{len(controllers)} controllers must share a folder for their state"
    return [f"slurm_controllers.{name}: missing; {shared}"]


def resume_warnings(
    variables: Mapping[str, Value], nodes: Iterable[Mapping[str, Value]]
) -> Iterator[str]:
    """Yield that Slurm does not ask drained nodes, which are to take back their own drain.

    nodes are the variables of each present one.
    """
    name, resume = "slurm_controller_health_check", "node_health_resume"
    given = variables.get(name)
    asking = sorted({one[resume].path for one in nodes if resume in one and one[resume].value})
    if given is None or is_hidden(given.value) or not given.value or not asking:
        return
    states = [str(state).upper() for state in given.value.get("node_state") or ()]
    version = variables.get("slurm_base_version")
    if not states and version is not None and not is_since(str(version.value), _NONDRAINED):
        return
    if not {"IDLE", "ANY"} & set(states):
        yield (
            f"{given.path}.node_state: without IDLE Slurm does not ask drained nodes, and none "
            f"takes back its drain ({asking[0]}: true); write [IDLE, CYCLE]"
        )


def check_engine(validation: Value, controllers: Sequence[str]) -> Iterator[Problem]:
    """Yield why Slurm cannot start validate_nodes, where it is asked to."""
    asked = validation.value if isinstance(validation.value, Mapping) else {}
    if asked.get("engine") != "slurm":
        return
    path = f"{validation.path}.engine"
    if not controllers:
        yield Problem(
            path, "slurm: no host is in slurm_controllers", "write clustershell or ansible"
        )
    elif asked.get("transport") == "ssh":
        yield Problem(
            path,
            "slurm: it starts nothing without a job, which transport: ssh forbids",
            "write transport: auto, or engine: clustershell",
        )


def check_databases(
    variables: Mapping[str, Mapping[str, Value]], databases: tuple[str, ...]
) -> Iterator[Problem]:
    """Yield that two slurmdbd keep their records on localhost: each has its own database.

    variables are those of each host.
    """
    if len(databases) != 2:
        return
    name = "slurm_database_storage"
    for host in databases:
        value = variables.get(host, {}).get(name)
        server = value.value.get("host", "localhost") if value else "localhost"
        if server in ("localhost", "127.0.0.1", "::1"):
            where = f"{value.path if value else 'slurm_databases.' + name}.host"
            yield Problem(
                where,
                f"'{server}', and {words(databases, 'and')} would each keep their own accounting",
                "write the database server that both use, or leave one host in slurm_databases",
            )
            return


def check_spares(gate: Value | None, nodes: Iterable[Node]) -> Iterator[Problem]:
    """Yield spares that the gate cannot hold: it lets in nodes with GPUs."""
    known = [node.name for node in nodes if node.present and node.type == "gpu_nodes"]
    for index, name in enumerate((gate.value.get("spares") or ()) if gate else ()):
        if gate and name not in known:
            near = closest(str(name), known)
            where = f"{gate.path}.spares[{index}]"
            wrong = f"no node of gpu_nodes is called '{name}'"
            yield Problem(where, wrong, f"write {near or 'nodes out of ' + fold(known)}")
