# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What Slurm's commands print, read for metrics. Pure.

Formats of 22.05 to 25.05. What is not understood raises ParseError: a number that is wrong is
worse than none.
"""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import dataclass
from typing import Mapping

from .._slurm.nodes import Node, parse_nodes

# A size of 0, which stands for nothing here, leaves a field as long as it is.
JOB_FIELDS = (
    "JobArrayID", "UserName", "Account", "Partition", "State", "Reason", "SubmitTime", "tres-alloc",
    "NodeList", "NumNodes",
)  # fmt: skip
JOB_FORMAT = ",".join(f"{name}:|" for name in JOB_FIELDS)
# With Fair Tree, the default, NormShares and EffectvUsage are parts of the account above.
SHARE_FORMAT = "Account,User,RawShares,RawUsage"

_PING = re.compile(r"Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)")
_TIME = "%Y-%m-%dT%H:%M:%S"
_GRES = re.compile(r"gpu(?::[^:,(]+)?:(\d+)")
_TASKS = re.compile(r"_\[([^\]]*)\]$")
_SDIAG = re.compile(r"^\s*([A-Za-z][^:]*):\s+(\S+)")


class ParseError(ValueError):
    """The output is not in a form that is known."""


@dataclass(frozen=True)
class NodeUse:
    """A node and what of it is in use; None is what Slurm does not tell. Memory in MiB."""

    node: Node
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    memory_free_mib: int | None
    gpus: int | None
    gpus_used: int | None
    partitions: tuple[str, ...] = ()
    # Unix time of the reason.
    since_s: float | None = None
    reservation: str = ""


@dataclass(frozen=True)
class JobUse:
    """A row of the queue; `tasks` counts those of an array that wait together."""

    job: str
    user: str
    account: str
    partitions: tuple[str, ...]
    state: str
    reason: str
    submitted_s: float | None
    tasks: int
    cpus: int
    nodes: int
    gpus: int
    node_list: str


@dataclass(frozen=True)
class Share:
    """An account in the tree of fair share: shares and usage as parts of the whole cluster."""

    account: str
    shares: float | None
    usage_s: float | None
    usage: float | None


def parse_ping(text: str) -> list[tuple[str, str, bool]]:
    """Return (role, host, is up) of each controller, in their order."""
    found = [(role, host, state == "UP") for role, host, state in _PING.findall(text)]
    if not found:
        raise ParseError("scontrol ping names no controller")
    return found


def tres(text: str) -> dict[str, str]:
    """Return `cpu=8,mem=100M,gres/gpu=4` by name."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def gpus_of(counts: Mapping[str, str]) -> int | None:
    """Return the GPUs among trackable resources, None where none are counted."""
    if "gres/gpu" in counts:
        return _whole(counts["gres/gpu"])
    typed = [value for name, value in counts.items() if name.startswith("gres/gpu:")]
    return sum(_whole(value) for value in typed) if typed else None


def parse_node_uses(text: str) -> list[NodeUse]:
    """Return the nodes of `scontrol show node -o`."""
    known = parse_nodes(text)
    found = []
    for line in text.splitlines():
        name = re.match(r"NodeName=(\S+)", line)
        if name is None or name.group(1) not in known:
            if line.strip():
                raise ParseError(f"scontrol show node: {line[:80]!r}")
            continue
        found.append(_node_use(known[name.group(1)], line))
    if not found:
        raise ParseError("scontrol show node names no node")
    return found


def _node_use(node: Node, line: str) -> NodeUse:
    def get(key: str) -> str:
        value = re.search(rf" {key}=(\S*)", line)
        return value.group(1) if value else ""

    all_of, used = tres(get("CfgTRES")), tres(get("AllocTRES"))
    gpus, gpus_used = gpus_of(all_of), gpus_of(used)
    if gpus is None:
        # Slurm does not account for GPUs: what is configured is known, what is used is not.
        counts = _GRES.findall(get("Gres"))
        gpus = sum(int(count) for count in counts) if counts else None
    elif gpus_used is None:
        gpus_used = 0
    free = get("FreeMem")
    # The last of the line: a reason may have the word, too.
    reserved = re.search(r" ReservationName=(\S+)\s*$", line)
    return NodeUse(
        node=node,
        cpus=_whole(get("CPUTot")),
        cpus_used=_whole(get("CPUAlloc")),
        memory_mib=_whole(get("RealMemory")),
        memory_used_mib=_whole(get("AllocMem")),
        memory_free_mib=int(free) if free.isdigit() else None,
        gpus=gpus,
        gpus_used=gpus_used,
        partitions=tuple(part for part in get("Partitions").split(",") if part),
        since_s=_unix(node.reason_at),
        reservation=reserved.group(1) if reserved else "",
    )


def parse_job_uses(text: str) -> list[JobUse]:
    """Return the jobs of `squeue -h -a -t all -O JOB_FORMAT`."""
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        # Each field ends with the sign, the last one too.
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != len(JOB_FIELDS) + 1 or cells[-1]:
            raise ParseError(f"squeue printed {len(cells) - 1} of {len(JOB_FIELDS)}: {line[:80]!r}")
        job, user, account, partitions, state, reason, submitted, counts, nodes, number = cells[:-1]
        used = tres(counts)
        tasks = _TASKS.search(job)
        found.append(
            JobUse(
                job=job.split("_[", 1)[0],
                user=user,
                account="" if account == "(null)" else account,
                partitions=tuple(partitions.split(",")),
                state=state.upper(),
                reason=plain_reason(reason),
                submitted_s=_unix(submitted),
                tasks=count_tasks(tasks.group(1)) if tasks else 1,
                cpus=_whole(used.get("cpu", "0")),
                nodes=_whole(number.split("-", 1)[0] or "0"),
                gpus=gpus_of(used) or 0,
                node_list=nodes,
            )
        )
    return found


def count_tasks(text: str) -> int:
    """Return how many tasks `0-9,20-30:5%2` means; what Slurm has truncated counts as one."""
    total = 0
    for part in text.split("%", 1)[0].split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if found is None:
            total += 1
            continue
        first, last, step = (int(one) if one else 0 for one in found.groups())
        total += (max(last, first) - first) // (step or 1) + 1
    return total


def plain_reason(text: str) -> str:
    """Return a reason as one word, so that there are only few.

    `ReqNodeNotAvail, UnavailableNodes:dgx-03` names nodes; some are sentences.
    """
    word = text.split(",", 1)[0].split("(", 1)[0].split(":", 1)[0].strip()
    if " " in word:
        return "NodesUnavailable" if word.startswith("Nodes required") else "Other"
    return word or "None"


def parse_sdiag(text: str) -> dict[str, int]:
    """Return the numbers of `sdiag` by the names that Slurm's own metrics have."""
    names = {
        "": {
            "Server thread count": "slurm_server_thread_cnt",
            "Agent queue size": "slurm_agent_queue_size",
            "DBD Agent queue size": "slurm_slurmdbd_queue_size",
            "Jobs submitted": "slurm_sdiag_jobs_submitted",
            "Jobs started": "slurm_sdiag_jobs_started",
            "Jobs completed": "slurm_sdiag_jobs_completed",
            "Jobs canceled": "slurm_sdiag_jobs_canceled",
            "Jobs failed": "slurm_sdiag_jobs_failed",
        },
        "main": {
            "Last cycle": "slurm_schedule_cycle_last",
            "Mean cycle": "slurm_sched_mean_cycle",
            "Last queue length": "slurm_schedule_queue_len",
        },
        "backfill": {
            "Total backfilled jobs (since last stats cycle start)": "slurm_backfilled_jobs",
            "Last cycle": "slurm_bf_cycle_last",
            "Mean cycle": "slurm_bf_mean_cycle",
            "Last queue length": "slurm_bf_queue_len",
        },
    }
    section, found = "", {}
    for line in text.splitlines():
        if line.startswith("Main schedule statistics"):
            section = "main"
        elif line.startswith("Backfilling stats"):
            section = "backfill"
        elif line.startswith(("Latency for", "Remote Procedure", "Pending RPC")):
            section = "rest"
        pair = _SDIAG.match(line)
        name = names.get(section, {}).get(pair.group(1)) if pair else None
        if pair and name and pair.group(2).isdigit():
            found[name] = int(pair.group(2))
    if "slurm_server_thread_cnt" not in found:
        raise ParseError("sdiag does not show its threads")
    return found


def parse_shares(text: str) -> list[Share]:
    """Return the accounts of `sshare -nP -a -o SHARE_FORMAT`; rows of users are left out.

    The first row is the root, and the first column is indented as the tree is. Who has no number of
    shares, as the root or with `parent`, divides none: those below do, beside those above.
    """
    rows: list[tuple[str, float | None, float | None, int]] = []
    # Row -> the sum of the shares that divide it; -1 is the whole cluster.
    sums: dict[int, float] = {}
    path: list[int] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = line.split("|")
        if len(cells) != 4:
            raise ParseError(f"sshare printed {len(cells)} of 4 columns: {line[:80]!r}")
        account, user, raw, used = (cell.strip() for cell in cells)
        del path[len(cells[0]) - len(cells[0].lstrip()) :]
        above = path[-1] if path else -1
        shares = _real(raw)
        path.append(above if shares is None else len(rows))
        sums[above] = sums.get(above, 0.0) + (shares or 0.0)
        rows.append(("" if user else account, shares, _real(used), above))
    found = []
    parts = {-1: 1.0}
    for number, (account, shares, usage_s, above) in enumerate(rows):
        if shares is not None:
            parts[number] = parts[above] * shares / (sums[above] or 1.0)
        if account:
            usage = None if usage_s is None else usage_s / (rows[0][2] or 1.0)
            found.append(Share(account, parts.get(number), usage_s, usage))
    if not found:
        raise ParseError("sshare names no account")
    return found


def _whole(text: str) -> int:
    """Return a number of Slurm's, which may be 1.50K."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text.strip())
    if found is None:
        raise ParseError(f"{text!r} is not a number")
    return round(float(found.group(1)) * 1000 ** " KMGT".index(found.group(2) or " "))


def _real(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _unix(text: str) -> float | None:
    """Return Unix time of a time as Slurm prints it with TZ=UTC: no hour is there twice."""
    try:
        return float(calendar.timegm(time.strptime(text, _TIME)))
    except (ValueError, OverflowError):
        return None
