# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Metrics of Slurm, from the output of its commands. Pure.

Names that begin with slurm_ are those of Slurm's own OpenMetrics (25.11), so that dashboards and
alerts need not know which of the two is there. docs/metrics.md lists them all.
"""

from __future__ import annotations

from collections import Counter
from typing import Iterable, Iterator, Sequence

from .._bmc.outing import FIRMWARE
from .._bmc.outing import OWNER as POWER
from .._core.nodeset import expand
from .._core.prometheus_text import Family, counted
from .._slurm.gate.reason import (
    NODE_HEALTH,
    REPLACED,
    SPARE,
    UNPROVEN,
    is_by_slurm,
    read_reason,
)
from .._slurm.gate.reason import OWNER as GATE
from .._slurm.nodes import Node
from .._slurm.upgrade import OWNER as UPGRADE
from .slurm_parse import JobUse, NodeUse, Share

PREFIX = "baremetal_dgx_slurm"
_MIB = 1024 * 1024
_REASON = 120

# Suffix of the metric -> state or flag, as scontrol names them.
_BASE = {"alloc": "ALLOCATED", "idle": "IDLE", "mixed": "MIXED", "down": "DOWN"}
_FLAGS = {
    "drain": "DRAIN", "fail": "FAIL", "maint": "MAINTENANCE", "noresp": "NOT_RESPONDING",
    "planned": "PLANNED", "resv": "RESERVED", "completing": "COMPLETING", "unknown": "UNKNOWN",
    "invalid_reg": "INVALID_REG",
}  # fmt: skip
_DRAINING = ("ALLOCATED", "MIXED", "COMPLETING", "ERROR")
# Native metrics count these in a base state, with the flag beside it.
_JOBS = {
    "running": "RUNNING", "pending": "PENDING", "suspended": "SUSPENDED",
    "completing": "COMPLETING", "configuring": "CONFIGURING", "completed": "COMPLETED",
    "failed": "FAILED", "cancelled": "CANCELLED", "timeout": "TIMEOUT", "node_failed": "NODE_FAIL",
    "outofmemory": "OUT_OF_MEMORY", "preempted": "PREEMPTED",
}  # fmt: skip
_HAS_NODES = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED")
# Who waits for these waits for the cluster, and not for himself.
_WAITS = ("Resources", "Priority")
# Owners of nodes that the gate holds with nothing against them: no fault, and none of any share.
_HELD = {SPARE: "gate-spare", UNPROVEN: "gate-new", REPLACED: "gate-new"}
# Who writes `OWNER: text`: the gate, the node itself, and runs that return what they took out.
_OWNERS = (GATE, NODE_HEALTH, UPGRADE, POWER, FIRMWARE)

# Reservations of runs, by the default of slurm_node_hold's job_name.
_RUNS = "dgx-validate_"


def node_families(uses: Sequence[NodeUse]) -> Iterator[Family]:
    """Yield Slurm's own metrics of nodes."""
    yield _alone("slurm_nodes", "Nodes.", len(uses))
    yield from counted("slurm_nodes", "Nodes that are {}.", _node_counts(uses))
    rows: list[tuple[str, str, list[float | None]]] = [
        ("slurm_node_cpus", "CPUs.", [one.cpus for one in uses]),
        ("slurm_node_cpus_alloc", "CPUs of jobs.", [one.cpus_used for one in uses]),
        ("slurm_node_cpus_idle", "CPUs without a job.", [one.cpus - one.cpus_used for one in uses]),
        ("slurm_node_memory_bytes", "Memory.", [one.memory_mib * _MIB for one in uses]),
        ("slurm_node_memory_alloc_bytes", "Memory of jobs.",
         [one.memory_used_mib * _MIB for one in uses]),
        ("slurm_node_memory_free_bytes", "Memory that is free.",
         [None if one.memory_free_mib is None else one.memory_free_mib * _MIB for one in uses]),
    ]  # fmt: skip
    for name, what, values in rows:
        family = Family(name, what)
        for use, value in zip(uses, values):
            family.add(value, node=use.node.name)
        yield family


def _node_counts(uses: Iterable[NodeUse]) -> dict[str, int]:
    nodes = [use.node for use in uses]
    counts = {key: sum(node.has(state) for node in nodes)
              for key, state in {**_BASE, **_FLAGS}.items()}  # fmt: skip
    counts["draining"] = sum(_is_draining(node) for node in nodes)
    counts["drained"] = counts["drain"] - counts["draining"]
    return counts


def _is_draining(node: Node) -> bool:
    return node.has("DRAIN") and node.has(*_DRAINING)


def partition_families(uses: Sequence[NodeUse], jobs: Sequence[JobUse]) -> Iterator[Family]:
    """Yield Slurm's own metrics of partitions."""
    names = _partitions(uses)
    yield _alone("slurm_partitions", "Partitions that have nodes.", len(names))
    of_nodes: dict[str, dict[str, int]] = {}
    families = {
        "jobs": Family("slurm_partition_jobs", "Jobs."),
        "jobs_running": Family("slurm_partition_jobs_running", "Jobs that run."),
        "jobs_pending": Family("slurm_partition_jobs_pending", "Jobs that wait."),
        "nodes": Family("slurm_partition_nodes", "Nodes."),
        "cpus": Family("slurm_partition_cpus", "CPUs."),
    }
    for name in names:
        members = [use for use in uses if name in use.partitions]
        mine = [job for job in jobs if name in job.partitions]
        of_nodes[name] = _node_counts(members)
        families["jobs"].add(_tasks(mine), partition=name)
        for key, state in (("jobs_running", "RUNNING"), ("jobs_pending", "PENDING")):
            families[key].add(_tasks(job for job in mine if job.state == state), partition=name)
        families["nodes"].add(len(members), partition=name)
        families["cpus"].add(sum(use.cpus for use in members), partition=name)
    yield from families.values()
    for key in ("alloc", "idle", "mixed", "down", "drain"):
        family = Family(f"slurm_partition_nodes_{key}", f"Nodes that are {key}.")
        for name in names:
            family.add(of_nodes[name][key], partition=name)
        yield family


def _partitions(uses: Iterable[NodeUse]) -> list[str]:
    return sorted({name for use in uses for name in use.partitions})


def job_families(jobs: Sequence[JobUse]) -> Iterator[Family]:
    """Yield Slurm's own metrics of jobs."""
    yield _alone("slurm_jobs", "Jobs that slurmctld holds.", _tasks(jobs))
    counts: dict[str, float | None] = {
        key: _tasks(job for job in jobs if job.state == state) for key, state in _JOBS.items()
    }
    counts["hold"] = _tasks(job for job in jobs if job.state == "PENDING" and "Held" in job.reason)
    yield from counted("slurm_jobs", "Jobs that are {}.", counts)
    busy = [job for job in jobs if job.state in _HAS_NODES]
    yield _alone("slurm_jobs_cpus_alloc", "CPUs of jobs.", sum(job.cpus for job in busy))
    yield _alone("slurm_jobs_nodes_alloc", "Nodes of jobs.", sum(job.nodes for job in busy))


def _tasks(jobs: Iterable[JobUse]) -> int:
    return sum(job.tasks for job in jobs)


def own_node_families(uses: Sequence[NodeUse], slurm_user: str = "slurm") -> Iterator[Family]:
    """Yield what Slurm's own metrics do not have of nodes: each state, and why one is out."""
    state = Family(f"{PREFIX}_node_state", "1 for each state and flag of the node; held by a run.")
    unfit = Family(f"{PREFIX}_node_unfit", "1 for a node that takes no jobs, with the reason.")
    since = Family(f"{PREFIX}_node_unfit_since_seconds", "When that reason was written.")
    gpus = Family(f"{PREFIX}_node_gpus", "GPUs.")
    used = Family(f"{PREFIX}_node_gpus_allocated", "GPUs of jobs.")
    for use in uses:
        name = use.node.name
        for one in use.node.states:
            state.add(1, node=name, state=one.lower())
        if use.reservation.startswith(_RUNS):
            state.add(1, node=name, state="held")
        gpus.add(use.gpus, node=name)
        used.add(use.gpus_used, node=name)
        if use.node.unfit:
            reason = " ".join(use.node.reason.split())[:_REASON]
            owner = owner_of(use.node, slurm_user)
            unfit.add(1, node=name, state=unfit_state(use.node), owner=owner, reason=reason)
            since.add(use.since_s, node=name)
    yield from (state, unfit, since, gpus, used)
    # IDLE is a base state, which a drained node has, too.
    free = [use for use in uses if _is_free(use.node)]
    yield _alone(f"{PREFIX}_nodes_free", "Nodes without a job that could take one now.", len(free))
    family = Family(f"{PREFIX}_partition_nodes_free", "Those of a partition.")
    for name in _partitions(uses):
        family.add(sum(name in use.partitions for use in free), partition=name)
    yield family


def _is_free(node: Node) -> bool:
    return node.usable and node.has("IDLE") and not node.has("COMPLETING", "PLANNED", "RESERVED")


def unfit_state(node: Node) -> str:
    """Return in one word how a node is out."""
    if node.has("DOWN"):
        return "down"
    if node.has("DRAIN"):
        return "draining" if _is_draining(node) else "drained"
    for word in ("FAIL", "NOT_RESPONDING", "INVALID_REG", "INVAL", "FUTURE"):
        if node.has(word):
            return word.lower()
    return "unknown"


def owner_of(node: Node, slurm_user: str = "slurm") -> str:
    """Return who took a node out: the gate, the node itself, a run, Slurm, or a person."""
    written = read_reason(node.name, node.reason)
    if written is not None and written.kind in _HELD:
        return _HELD[written.kind]
    for owner in _OWNERS:
        if node.reason.startswith(f"{owner}: "):
            return owner
    if not node.reason or node.reason_by == slurm_user or is_by_slurm(node.reason):
        return "slurm"
    return "operator"


def own_job_families(jobs: Sequence[JobUse], now_s: float) -> Iterator[Family]:
    """Yield what Slurm's own metrics do not have of jobs: GPUs, accounts, why they wait."""
    where = Family(f"{PREFIX}_node_job_gpus", "GPUs that a running job has on a node.")
    for job in jobs:
        if job.state != "RUNNING" or not job.gpus:
            continue
        nodes = expand(job.node_list)
        for name in nodes:
            where.add(
                _each(job.gpus, len(nodes)),
                node=name,
                slurm_job=job.job,
                user=job.user,
                account=job.account,
                partition=job.partitions[0],
            )
    yield where
    yield from _of_accounts(jobs)
    waiting: Counter[tuple[str, str]] = Counter()
    oldest: dict[str, float] = {}
    for job in jobs:
        if job.state != "PENDING":
            continue
        for partition in job.partitions:
            waiting[partition, job.reason] += job.tasks
            if job.reason in _WAITS and job.submitted_s is not None:
                waits = max(0.0, now_s - job.submitted_s)
                oldest[partition] = max(waits, oldest.get(partition, 0.0))
    pending = Family(f"{PREFIX}_pending_jobs", "Jobs that wait, by the reason.")
    for (partition, reason), count in sorted(waiting.items()):
        pending.add(count, partition=partition, reason=reason)
    yield pending
    longest = Family(f"{PREFIX}_pending_oldest_seconds", "How long the first in the queue waits.")
    for partition in sorted(oldest):
        longest.add(oldest[partition], partition=partition)
    yield longest


def _each(gpus: int, nodes: int) -> float:
    return gpus // nodes if gpus % nodes == 0 else gpus / nodes


def _of_accounts(jobs: Iterable[JobUse]) -> Iterator[Family]:
    number: Counter[tuple[str, str]] = Counter()
    gpus: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        if job.state in ("RUNNING", "PENDING"):
            key = (job.account, job.state.lower())
            number[key] += job.tasks
            gpus[key] += job.gpus * job.tasks
    rows = (("account_jobs", "Jobs of an account.", number),
            ("account_gpus", "GPUs that its jobs have, or wait for.", gpus))  # fmt: skip
    for name, what, counts in rows:
        family = Family(f"{PREFIX}_{name}", what)
        # An account that has jobs has both states, so that its lines do not break off.
        for account in sorted({account for account, _state in counts}):
            for state in ("running", "pending"):
                family.add(counts[account, state], account=account, state=state)
        yield family


def share_families(shares: Sequence[Share]) -> Iterator[Family]:
    """Yield what each account may use, and has used."""
    rows = (
        ("account_shares_ratio", "Share of the cluster that the account has.",
         [one.shares for one in shares]),
        ("account_usage_ratio", "Share of all usage that was the account's.",
         [one.usage for one in shares]),
        ("account_usage_seconds", "Usage in weighted seconds, which decays.",
         [one.usage_s for one in shares]),
    )  # fmt: skip
    for name, what, values in rows:
        family = Family(f"{PREFIX}_{name}", what)
        for share, value in zip(shares, values):
            family.add(value, account=share.account)
        yield family


def scheduler_families(numbers: dict[str, int]) -> Iterator[Family]:
    """Yield Slurm's own metrics of the scheduler, of what sdiag says."""
    for name, value in numbers.items():
        yield _alone(name, "As sdiag has it.", value)


def _alone(name: str, what: str, value: float | None) -> Family:
    family = Family(name, what)
    family.add(value)
    return family
