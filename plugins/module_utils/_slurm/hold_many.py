# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Many nodes held at once: what `hold` decides about one, with few jobs and commands for all.

Slurm is asked once for all nodes. The nodes that get a job share jobs of up to `most` nodes of the
same partitions and with as many GPUs; a job that Slurm gives in none of them is tried again in
parts, so that one node which was just taken costs itself. Nodes that are out of service share one
reservation, and are asked for in parts as well where Slurm refuses it.
"""

from __future__ import annotations

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Collection, Iterable, Mapping, Sequence, Tuple

from .._core.nodeset import expand, fold
from .._core.run import ENDED, MISSING, CommandResult, CommandRunner, ToolError, last_lines
from .conf.inputs import seconds as seconds_of
from .hold import (
    ADOPT,
    FREE,
    HOLD,
    MANY,
    PARTITIONS,
    REFUSE,
    RESERVATION,
    RESERVE,
    SSH,
    Decision,
    Request,
    Reservation,
    Running,
    Seen,
    answer_of,
    ask_jobs,
    decide,
    extend,
    hold,
    leave,
    others_on,
    release,
    request_of,
    reserve_command,
    unreserve,
)  # fmt: skip
from .nodes import parse_nodes

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

_ASK_S = 120
# Jobs that are asked for at a time, and in how many parts one that is not given is asked for again.
_AT_ONCE, _PARTS = 16, 4
_NAME = re.compile(r"NodeName=(\S+)")
_GRES = re.compile(r"(?<!\S)Gres=(\S+)")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")
_PARTITION = re.compile(r"^PartitionName=(?P<name>\S+) .*?(?<!\S)MaxTime=(?P<most>\S+)", re.M)
_GIVEN_PARTITION = re.compile(r"^(?:-p|--partition=)(.+)$")
# Nodes that share a job, the partitions that it is asked for in, and their GPUs.
_Asked = Tuple[Sequence[str], Tuple[str, ...], int]


@dataclass(frozen=True)
class Cluster:
    """What Slurm reports of all nodes; `absent` says that there is no Slurm."""

    seen: Mapping[str, Seen]
    # The seconds that a job may last, by partition.
    longest: Mapping[str, float]
    absent: str = ""
    # How many GPUs a node has, by name.
    gpus: Mapping[str, int] = field(default_factory=dict)

    def of(self, node: str) -> Seen:
        """Return what is known of a node."""
        return self.seen.get(node, Seen(absent=self.absent or "Slurm has no such node"))


def _expanded(nodes: str) -> list[str]:
    try:
        return expand(nodes)
    except ValueError:
        return []


def ask_cluster(run: CommandRunner) -> Cluster:
    """Ask Slurm for all nodes, jobs, reservations and partitions. ToolError."""
    if run(["scontrol", "--version"], timeout_s=_ASK_S).outcome == MISSING:
        return Cluster({}, {}, "there is no Slurm")
    shown = answer_of(run, ["scontrol", "show", "node", "-o"], _ASK_S)
    queue = ask_jobs(run, _ASK_S)
    listed = answer_of(run, ["scontrol", "show", "reservation", "-o"], _ASK_S)
    partitions = answer_of(run, ["scontrol", "show", "partition", "-o"], _ASK_S)
    jobs: dict[str, list[Running]] = {}
    for job in queue:
        for name in _expanded(job.nodes):
            jobs.setdefault(name, []).append(job)
    reserved: dict[str, list[Reservation]] = {}
    for found in RESERVATION.finditer(listed):
        for name in _expanded(found["nodes"]):
            reserved.setdefault(name, []).append(Reservation(found["name"], found["since"]))
    of_node: dict[str, tuple[str, ...]] = {}
    gpus: dict[str, int] = {}
    for line in shown.splitlines():
        named, some, gres = _NAME.match(line), PARTITIONS.search(line), _GRES.search(line)
        if named:
            words = (some[1] if some else "").split(",")
            of_node[named[1]] = tuple(word for word in words if word not in ("", "(null)"))
            gpus[named[1]] = sum(map(int, _GPUS.findall(gres[1]))) if gres else 0
    seen = {
        name: Seen(
            node,
            tuple(jobs.get(name, ())),
            of_node.get(name, ()),
            reservations=tuple(reserved.get(name, ())),
        )
        for name, node in parse_nodes(shown).items()
    }
    longest = {
        found["name"]: seconds_of(found["most"]) or 0.0 for found in _PARTITION.finditer(partitions)
    }
    return Cluster(seen, longest, gpus=gpus)


def unknown_nodes(cluster: Cluster, known: Iterable[str]) -> list[str]:
    """Return the nodes that Slurm has and the inventory has not."""
    return sorted(set(cluster.seen) - set(known)) if known else []


def partitions_of(cluster: Cluster, node: str, request: Request) -> tuple[tuple[str, ...], str]:
    """Return the partitions for a job on the node and "", or none and why none admits it.

    Empty and "" where the options name a partition or a reservation: salloc decides.
    """
    given = [found[1] for one in request.options if (found := _GIVEN_PARTITION.match(one))]
    if not given and any(one.startswith("--reservation") for one in request.options):
        return (), ""
    names = given or cluster.of(node).partitions
    fits = tuple(name for name in names if cluster.longest.get(name, 0.0) >= request.seconds)
    if fits or not names:
        return () if given else fits, ""
    most = max(names, key=lambda name: cluster.longest.get(name, 0.0))
    return (), (
        f"partition {most} ends jobs after {cluster.longest.get(most, 0.0) / 60:.0f} minutes, and "
        f"this takes {request.minutes}: write another partition in cluster_validation."
        "slurm_options, a smaller hold_s, or engine: ansible"
    )


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    """Return in what parts nodes that Slurm does not give together are asked for again."""
    size = -(-len(names) // _PARTS)
    return [names[at : at + size] for at in range(0, len(names), size)]


class Holder:
    """Holds the nodes of one run."""

    def __init__(self, run: CommandRunner, request: Request, transport: str, most: int) -> None:
        self._run, self._request, self._transport, self._most = run, request, transport, most

    def decide(self, cluster: Cluster, nodes: Iterable[str]) -> dict[str, Decision]:
        """Return what must be done for each node."""
        return {
            name: decide(cluster.of(name), self._transport, self._request.mine) for name in nodes
        }

    def too_short(self, cluster: Cluster, decided: Mapping[str, Decision]) -> str:
        """Return why jobs cannot last as long as they must, one line; "" if they can."""
        reasons: dict[str, list[str]] = {}
        for name, one in decided.items():
            why = partitions_of(cluster, name, self._request)[1] if one.action == HOLD else ""
            if why:
                reasons.setdefault(why, []).append(name)
        return "; ".join(f"{fold(names)}: {why}" for why, names in reasons.items())

    def take(
        self, cluster: Cluster, decided: Mapping[str, Decision], starts: bool
    ) -> dict[str, Decision]:
        """Hold the nodes as was decided; return what came of it."""
        after = dict(decided)
        after.update(self._adopted({n: d for n, d in decided.items() if d.action == ADOPT}))
        acts = {name for name, one in decided.items() if one.action in (HOLD, RESERVE)}
        for left in self._left(cluster, acts):
            # Of a run that was killed: its time may be nearly over, and it would keep jobs away.
            leave(self._run, left.name, acts)
        groups: dict[tuple[tuple[str, ...], int], list[str]] = {}
        for name, one in decided.items():
            if one.action == HOLD:
                partitions = partitions_of(cluster, name, self._request)[0]
                groups.setdefault((partitions, cluster.gpus.get(name, 0)), []).append(name)
        after.update(
            self._held(
                [
                    (names[at : at + self._most], partitions, gpus)
                    for (partitions, gpus), names in groups.items()
                    for at in range(0, len(names), self._most)
                ]
            )
        )
        out = [name for name, one in decided.items() if one.action == RESERVE]
        if out and not starts:
            rest = set(cluster.seen).difference(acts)
            taken = {one.name for name in rest for one in cluster.of(name).reservations}
            after.update(self._reserved(out, decided, taken))
        return self._checked(after)

    def _left(self, cluster: Cluster, nodes: Iterable[str]) -> list[Reservation]:
        """Return the reservations of these nodes that are this run's, or left for it."""
        found = {
            one.name: one
            for node in nodes
            for one in cluster.of(node).reservations
            if self._request.mine.reserves(one.name, node)
        }
        return [found[name] for name in sorted(found)]

    def _adopted(self, decided: Mapping[str, Decision]) -> dict[str, Decision]:
        jobs = {one.job: extend(self._run, one.job, self._request) for one in decided.values()}
        message = "the job of an earlier run cannot be given more time"
        return {
            name: Decision(REFUSE, f"{message}: {jobs[one.job]}") if jobs[one.job] else one
            for name, one in decided.items()
        }

    def _held(self, asked: list[_Asked]) -> dict[str, Decision]:
        """Hold nodes of the same partitions, and with as many GPUs, by a job each, all at once.

        A job that Slurm does not give is asked for again in parts: a node that was just taken, or
        is dead and not known to be, costs itself and the time of a few tries.
        """
        found: dict[str, Decision] = {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while asked:
                again: list[_Asked] = []
                for (names, partitions, gpus), (job, why) in zip(asked, pool.map(self._job, asked)):
                    if job:
                        found.update(
                            (name, Decision(HOLD, f"held by job {job}", job)) for name in names
                        )
                    elif len(names) == 1:
                        why = f"Slurm does not give it: {why}"
                        found[names[0]] = Decision(REFUSE, why)
                    else:
                        again += [(part, partitions, gpus) for part in _parts(names)]
                asked = again
        return found

    def _job(self, asked: _Asked) -> tuple[str, str]:
        """Return the number of a job that holds these nodes and "", or "" and why there is none.

        An exclusive job has all GPUs of its nodes, but its steps only those that it has asked for
        (srun(1), --gres).
        """
        names, partitions, gpus = asked
        options = (*((f"--gres=gpu:{gpus}",) if gpus else ()), *self._request.options)
        request = replace(self._request, node=fold(names), options=options)
        return hold(self._run, request, partitions, len(names))

    def _reserved(
        self, names: Sequence[str], decided: Mapping[str, Decision], taken: Collection[str]
    ) -> dict[str, Decision]:
        """Reserve the nodes at once; what Slurm refuses is asked for again in parts, like jobs.

        A reservation of this name that a killed run has left over other nodes keeps it.
        """
        found: dict[str, Decision] = {}
        kinds = (
            kind
            for kind in itertools.chain([MANY], (f"{MANY}-{at}" for at in itertools.count(1)))
            if self._request.mine.reservation(kind) not in taken
        )
        asked = [(names, next(kinds))]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while asked:
                again: list[tuple[Sequence[str], str]] = []
                for (part, _kind), result in zip(asked, pool.map(self._reserve, asked)):
                    if not result.ok and result.outcome == ENDED and len(part) > 1:
                        again += [
                            (one, next(kinds) if len(one) > 1 else "") for one in _parts(part)
                        ]
                        continue
                    why = last_lines(result.text, 1) or result.describe(1)
                    for name in part:
                        found[name] = decided[name]
                        if not result.ok:
                            free = found[name].why.replace("reserved", "could not be reserved")
                            found[name] = Decision(FREE, f"{free}: {why}")
                asked = again
        return found

    def _reserve(self, asked: tuple[Sequence[str], str]) -> CommandResult:
        names, kind = asked
        request = replace(self._request, node=fold(names))
        return self._run(reserve_command(request, kind), timeout_s=_ASK_S)

    def _checked(self, after: Mapping[str, Decision]) -> dict[str, Decision]:
        """Look again: with OverSubscribe=FORCE Slurm gives a held node to others all the same."""
        cluster, found = ask_cluster(self._run), {}
        for name, one in after.items():
            seen = cluster.of(name)
            taken = one.may_load and others_on(seen, self._request.mine)
            found[name] = Decision(REFUSE, "it is not ours alone: jobs have started on it")
            found[name] = found[name] if taken else one
        lost = {one.job for name, one in after.items() if one.job and not found[name].may_load}
        for job in lost - {one.job for one in found.values() if one.may_load}:
            release(self._run, job)
        return found

    def give_back(
        self, cluster: Cluster, nodes: Sequence[str], reserved: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """End this run's jobs and reservations of these nodes; return them, and what failed.

        Those of `reserved` lose their reservation of one node alone. What a run that is over has
        reserved of many stays over others than `nodes`.
        """
        mine = self._request.mine
        own = replace(mine, former=())
        jobs = {
            job.job_id for name in nodes for job in cluster.of(name).jobs if mine.has(job)
        }  # fmt: skip
        left = self._left(cluster, nodes)
        alone = {one.name for one in self._left(cluster, reserved) if not mine.reserves(one.name)}
        messages = [release(self._run, job) for job in sorted(jobs)]
        # What this run holds it gives back, nodes that are no longer asked among them.
        messages += [
            unreserve(self._run, one.name) if own.reserves(one.name)
            else leave(self._run, one.name, nodes)
            for one in left
        ]  # fmt: skip
        rest = sorted(alone.difference(one.name for one in left))
        messages += [unreserve(self._run, name) for name in rest]
        return sorted(jobs) + [one.name for one in left] + rest, list(filter(None, messages))


def bring_about(module: AnsibleModule, run: CommandRunner) -> dict[str, Any]:
    """Ask, decide, hold, look again; return what the module returns. ToolError."""
    params = module.params
    request = request_of({**params, "node": ""})
    holder = Holder(run, request, params["transport"], params["most"])
    cluster = ask_cluster(run)
    if params["state"] == "released":
        if module.check_mode:
            return {"changed": False, "nodes": {}, "jobs": {}}
        ended, failed = holder.give_back(cluster, params["nodes"], params["reserved"])
        for why in failed:
            module.warn(f"a hold lasts until its time limit: {why}")
        return {"changed": bool(ended), "nodes": {}, "jobs": {}}
    if params["starts"] and cluster.absent:
        raise ToolError(f"engine slurm: {cluster.absent} on this host; write engine: ansible")
    strange = unknown_nodes(cluster, params["known"])
    if strange:
        raise ToolError(
            f"Slurm has {fold(strange)}, which {'is' if len(strange) == 1 else 'are'} in no group "
            "of the inventory: add to gpu_nodes or cpu_nodes, or remove from Slurm (remove_nodes)"
        )
    decided = holder.decide(cluster, params["nodes"])
    short = "" if params["transport"] == SSH else holder.too_short(cluster, decided)
    if short:
        raise ToolError(short)
    acts = any(one.action in (HOLD, ADOPT, RESERVE) for one in decided.values())
    if not module.check_mode:
        decided = holder.take(cluster, decided, params["starts"])
    jobs: dict[str, list[str]] = {}
    for name, one in decided.items():
        if one.job and one.may_load:
            jobs.setdefault(one.job, []).append(name)
    return {
        "changed": acts,
        "nodes": {
            name: {
                "action": one.action,
                "may_load": one.may_load,
                "why": one.why,
                "busy": others_on(cluster.of(name), request.mine),
            }
            for name, one in decided.items()
        },
        "jobs": jobs,
    }
