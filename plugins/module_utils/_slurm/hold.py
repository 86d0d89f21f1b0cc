# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Whether a node may be loaded, and a job that keeps it free meanwhile.

A node on which a user's job runs is never loaded. One that Slurm could give to a job is held by a
job of ours that does nothing, has the node to itself, and ends by its own time limit when it
is not given back. One that is out of service gets no job, so a reservation keeps jobs away should
it be resumed meanwhile. Job and reservation carry the name of the run that holds: two runs, on
whatever machines, never load the same node. decide() is pure; the rest asks Slurm.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Collection, Mapping, Sequence

from .._core.lock import host_lock
from .._core.nodeset import expand, fold
from .._core.run import MISSING, CommandRunner, ToolError, last_lines
from .commands import user_name
from .nodes import UNSETTLED, Node, parse_nodes

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

AUTO, SSH, SLURM = "auto", "ssh", "slurm"
# What becomes of the node: nothing is needed, it gets a job, it has ours, or it is left alone.
FREE, HOLD, ADOPT, RESERVE, REFUSE = "free", "hold", "adopt", "reserve", "refuse"

_ASK_S = 30
# How long others may take nodes out of reservations, one after the other.
_LOCK_S = 120.0
_MOST_PARTITIONS = 3
_GRANTED = re.compile(r"Granted job allocation (\d+)")
PARTITIONS = re.compile(r"(?:^|\s)Partitions=(\S+)")
RESERVATION = re.compile(
    r"^ReservationName=(?P<name>\S+) StartTime=(?P<since>\S+) .*?(?<!\S)Nodes=(?P<nodes>\S+)", re.M
)
# Between the name of the jobs and that of the run.
_OWNER = ":"
# In the place of the node in the name of a reservation of many. One of several has a number, too.
MANY = "many"
_NUMBER = re.compile(rf"(?<=_{MANY})-[0-9]+$")
_NOT_FOUND = re.compile(r"[Nn]ode \S+ not found|Invalid node name")
# Out of service: no job starts there.
_OUT = ("DRAIN", "DOWN", "FAIL", "FUTURE", "INVALID_REG", "INVAL")


@dataclass(frozen=True)
class Running:
    """A job on the node."""

    job_id: str
    # Of jobs of other users it is not asked for.
    name: str
    user: str
    state: str
    since: str = ""
    nodes: str = ""

    def describe(self) -> str:
        """`1234 (alice, RUNNING)`."""
        return f"{self.job_id} ({self.user}, {self.state})"


@dataclass(frozen=True)
class Mine:
    """By what a run knows its own jobs; without an owner, all runs of the user are one."""

    name: str
    user: str
    owner: str = ""
    # Runs that are over, and what they have left is this run's.
    former: tuple[str, ...] = ()

    @property
    def job_name(self) -> str:
        """Name of its jobs."""
        return f"{self.name}{_OWNER}{self.owner}" if self.owner else self.name

    def reservation(self, node: str) -> str:
        """Name of its reservation of the node."""
        return "_".join(filter(None, (self.name, self.owner, node)))

    def reserves(self, name: str, node: str = MANY) -> bool:
        """Whether a reservation is its own, or left for it: of the node, or of many."""
        left = ("_".join((self.name, one, kind)) for one in self.former for kind in (node, MANY))
        return _NUMBER.sub("", name) in (self.reservation(node), self.reservation(MANY), *left)

    def has(self, job: Running) -> bool:
        """Whether the job is this run's."""
        names = (self.job_name, *(f"{self.name}{_OWNER}{one}" for one in self.former))
        return job.name in names and job.user == self.user

    def rivals(self, jobs: Sequence[Running]) -> list[Running]:
        """Return the jobs of other runs like this."""
        return [
            job
            for job in jobs
            if job.user == self.user
            and job.name.partition(_OWNER)[0] == self.name
            and not self.has(job)
        ]


@dataclass(frozen=True)
class Reservation:
    """A reservation that has the node."""

    name: str
    since: str


@dataclass(frozen=True)
class Seen:
    """What Slurm reports about a node.

    `problem` is why nothing is known; `absent` is that there is no Slurm, or not this node in it.
    """

    node: Node | None = None
    jobs: tuple[Running, ...] = ()
    partitions: tuple[str, ...] = ()
    problem: str = ""
    absent: str = ""
    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What to do, why, and for ADOPT the number of our job."""

    action: str
    why: str
    job: str = ""

    @property
    def may_load(self) -> bool:
        """Whether the node may be loaded once this is done."""
        return self.action != REFUSE


def _rival(mine: Mine, seen: Seen, node: str) -> str:
    """Return who else holds the node, one line; empty if none does."""
    for job in mine.rivals(seen.jobs):
        who = job.name.partition(_OWNER)[2] or "another run"
        return (
            f"{who} holds it since {job.since or 'an unknown time'}: wait for it, or scancel "
            f"{job.job_id} if that run is over"
        )
    for one in seen.reservations:
        if one.name.startswith(f"{mine.name}_") and not mine.reserves(one.name, node):
            name = _NUMBER.sub("", one.name)
            kind = MANY if name.endswith(f"_{MANY}") else node
            who = name[len(mine.name) + 1 : -len(kind) - 1] or "another run"
            return (
                f"{who} holds it since {one.since}: wait for it, or scontrol delete "
                f"ReservationName={one.name} if that run is over"
            )
    return ""


def decide(seen: Seen, transport: str, mine: Mine) -> Decision:
    """Return what must be done before the node may be loaded.

    With SSH nothing is held, and only a node with a
    job is refused. With SLURM one that Slurm does not know is refused, too.
    """
    if seen.problem:
        return Decision(REFUSE, f"whether jobs run on it is not known: {seen.problem}")
    if seen.node is None:
        return Decision(
            REFUSE if transport == SLURM else FREE, seen.absent or "Slurm has no such node"
        )
    own = [job for job in seen.jobs if mine.has(job)]
    others = [job for job in seen.jobs if job not in own]
    state = seen.node.state
    rival = _rival(mine, seen, seen.node.name)
    if rival:
        return Decision(REFUSE, rival)
    if others:
        shown = ", ".join(job.describe() for job in others[:3])
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return Decision(REFUSE, f"it has jobs: {shown}{more}")
    if own:
        return Decision(ADOPT, "an earlier run holds it", own[-1].job_id)
    if seen.node.busy:
        return Decision(REFUSE, f"it is {state}, and squeue names no job: one is ending")
    if seen.node.has(*UNSETTLED):
        return Decision(REFUSE, f"it is {state}")
    if seen.node.has(*_OUT):
        if transport == SSH:
            return Decision(FREE, f"it is {state}: no job starts there until it is resumed")
        return Decision(RESERVE, f"it is {state}, and reserved")
    if transport == SSH:
        return Decision(FREE, f"it is {state}; nothing keeps a job from starting meanwhile")
    return Decision(HOLD, f"it is {state}")


def ask(run: CommandRunner, node: str) -> Seen:
    """Ask Slurm for a node and its jobs; never raises because of what Slurm says."""
    shown = run(["scontrol", "show", "node", node, "-o"], timeout_s=_ASK_S)
    if shown.outcome == MISSING:
        return Seen(absent="there is no Slurm")
    if not shown.ok:
        if _NOT_FOUND.search(shown.text):
            return Seen(absent="Slurm has no such node")
        return Seen(problem=last_lines(shown.text, 1) or shown.describe(1))
    found = parse_nodes(shown.out).get(node)
    if found is None:
        return Seen(problem=f"scontrol says {last_lines(shown.text, 1)!r}")
    try:
        jobs = ask_jobs(run, _ASK_S, "-w", node)
    except ToolError as error:
        return Seen(problem=str(error))
    named = PARTITIONS.search(shown.out)
    partitions = tuple(word for word in (named[1] if named else "").split(",") if word != "(null)")
    listed = run(["scontrol", "show", "reservation", "-o"], timeout_s=_ASK_S)
    if not listed.ok:
        return Seen(problem=last_lines(listed.text, 1) or listed.describe(1))
    return Seen(
        found,
        jobs,
        tuple(filter(None, partitions)),
        reservations=parse_reservations(listed.out, node),
    )


def ask_jobs(run: CommandRunner, timeout_s: float, *which: str) -> tuple[Running, ...]:
    """Return the jobs that Slurm has, by what squeue is given to choose them. ToolError.

    Names only of this user's own: that of another may have the end of a line, and what follows
    would be a job in this answer.
    """
    squeue = ["squeue", "-h", "-a"]
    jobs = parse_jobs(answer_of(run, [*squeue, *which, "-o", "%A|%u|%T|%S|%N"], timeout_s))
    user = user_name()
    if all(job.user != user for job in jobs):
        return jobs
    named = answer_of(run, [*squeue, "-u", user, "-o", "%A|%j"], timeout_s)
    names = dict(line.strip().split("|", 1) for line in named.split("\n") if "|" in line)
    return tuple(
        replace(job, name=names.get(job.job_id, "")) if job.user == user else job for job in jobs
    )


def answer_of(run: CommandRunner, argv: Sequence[str], timeout_s: float) -> str:
    """Return what a command prints. ToolError with its last line if it fails."""
    result = run(argv, timeout_s=timeout_s)
    if not result.ok:
        raise ToolError(last_lines(result.text, 1) or result.describe(1))
    return result.out


def parse_jobs(text: str) -> tuple[Running, ...]:
    """Return the jobs of `squeue -h -o %A|%u|%T|%S|%N`. ToolError. Pure."""
    jobs = []
    for line in filter(str.strip, text.split("\n")):
        cells = line.strip().split("|")
        if len(cells) != 5 or not cells[0].isdigit():
            raise ToolError(f"squeue printed {line!r}")
        jobs.append(Running(cells[0], "", cells[1], cells[2], cells[3], cells[4]))
    return tuple(jobs)


def parse_reservations(text: str, node: str) -> tuple[Reservation, ...]:
    """Return the reservations of `scontrol show reservation -o` that have the node."""
    found = []
    for one in RESERVATION.finditer(text):
        with contextlib.suppress(ValueError):
            if node in expand(one["nodes"]):
                found.append(Reservation(one["name"], one["since"]))
    return tuple(found)


@dataclass(frozen=True)
class Request:
    """What holds a node: whose, seconds until it ends, and how long Slurm may take."""

    node: str
    mine: Mine
    seconds: float
    wait_s: int
    options: tuple[str, ...] = field(default_factory=tuple)

    @property
    def minutes(self) -> int:
        """The time limit."""
        return max(1, -(-int(self.seconds) // 60))


def hold_commands(request: Request, partitions: Sequence[str], nodes: int = 1) -> list[list[str]]:
    """Return the commands to try, one for each partition of the node where none is asked for.

    A job of many `nodes` stays when one of them fails.
    """
    words = ["salloc", "--no-shell", "--exclusive", "--mem=0", f"--nodes={nodes}"]
    words += ["--no-kill"] if nodes > 1 else []
    words += [
        f"--job-name={request.mine.job_name}",
        f"--nodelist={request.node}",
        f"--time={request.minutes}",
    ]
    words += [f"--immediate={request.wait_s}", *request.options]
    given = any(re.match(r"^(-p|--partition|--reservation)", one) for one in request.options)
    if given or not partitions:
        return [words]
    return [[*words, f"--partition={name}"] for name in partitions[:_MOST_PARTITIONS]]


def hold(
    run: CommandRunner, request: Request, partitions: Sequence[str], nodes: int = 1
) -> tuple[str, str]:
    """Return the number of the job that holds the node, or `nodes`, and "", or "" and why not."""
    messages = []
    for words in hold_commands(request, partitions, nodes):
        job, why = run_hold(run, words, request)
        if job:
            return job, ""
        messages.append(why)
    return "", "; ".join(dict.fromkeys(messages))


def run_hold(run: CommandRunner, words: Sequence[str], request: Request) -> tuple[str, str]:
    """Run one of hold_commands(); return the number of the job and "", or "" and why not."""
    result = run(words, timeout_s=request.wait_s + 30)
    granted = _GRANTED.search(result.text)
    if granted and result.ok:
        return granted[1], ""
    if granted:
        release(run, granted[1])
    return "", last_lines(result.text, 1) or result.describe(1)


def reserve_command(request: Request, kind: str = "") -> list[str]:
    """Return what reserves the node for this user alone, until the time is over.

    Many nodes have a `kind`, which is in the place of the node in the name.
    """
    return [
        "scontrol", "create", "reservation",
        f"ReservationName={request.mine.reservation(kind or request.node)}",
        f"Nodes={request.node}", f"Users={request.mine.user}", "StartTime=now",
        f"Duration={request.minutes}", "Flags=IGNORE_JOBS",
    ]  # fmt: skip


def reserve(run: CommandRunner, request: Request) -> str:
    """Reserve the node; returns why not, empty when done."""
    result = run(reserve_command(request), timeout_s=_ASK_S)
    return "" if result.ok else last_lines(result.text, 1) or result.describe(1)


def unreserve(run: CommandRunner, name: str) -> str:
    """Delete the reservation; returns why not. Its own end does it then."""
    words = ["scontrol", "delete", f"ReservationName={name}"]
    result = run(words, timeout_s=_ASK_S)
    return "" if result.ok else last_lines(result.text, 1) or result.describe(1)


def leave(run: CommandRunner, name: str, nodes: Collection[str]) -> str:
    """Take nodes out of a reservation, and delete one that has no others; returns why not.

    On the others may still be what a killed run has begun. A run does this for many nodes at once,
    each in a process of this host, and by a list of before the nodes of others would come back.
    """
    try:
        with host_lock("slurm_reservations", _LOCK_S):
            listed = answer_of(run, ["scontrol", "show", "reservation", "-o"], _ASK_S)
            has = {one["name"]: one["nodes"] for one in RESERVATION.finditer(listed)}
            if name not in has:
                return ""
            others = [one for one in expand(has[name]) if one not in nodes]
            if not others:
                return unreserve(run, name)
            words = ["scontrol", "update", f"ReservationName={name}", f"Nodes={fold(others)}"]
            answer_of(run, words, _ASK_S)
    except (ToolError, OSError, ValueError) as error:
        return str(error)
    return ""


def extend(run: CommandRunner, job: str, request: Request) -> str:
    """Give our job as much time again as is asked for; returns why not, empty when done."""
    words = ["scontrol", "update", f"JobId={job}", f"TimeLimit+={request.minutes}"]
    result = run(words, timeout_s=_ASK_S)
    return "" if result.ok else last_lines(result.text, 1) or result.describe(1)


def release(run: CommandRunner, job: str) -> str:
    """Give the node back; returns why not. The job's own limit does it then."""
    result = run(["scancel", job], timeout_s=_ASK_S)
    return "" if result.ok else last_lines(result.text, 1) or result.describe(1)


def others_on(seen: Seen, mine: Mine) -> bool:
    """Return whether another user's job is on the node, or may be: Slurm gave no answer."""
    return bool(seen.problem) or any(not mine.has(job) for job in seen.jobs)


def own_reservations(seen: Seen, request: Request) -> list[Reservation]:
    """Return this run's reservations of the node."""
    reserves = request.mine.reserves
    return [one for one in seen.reservations if reserves(one.name, request.node)]


def take(run: CommandRunner, request: Request, seen: Seen, decided: Decision) -> Decision:
    """Hold the node as was decided, and look again; returns what came of it."""
    if decided.action == ADOPT:
        why = extend(run, decided.job, request)
        if why:
            return Decision(REFUSE, f"the job of an earlier run cannot be given more time: {why}")
        return decided
    for left in own_reservations(seen, request):
        # Of a run that was killed: its time may be nearly over, and it would keep our job away.
        leave(run, left.name, (request.node,))
    if decided.action == RESERVE:
        return _reserved(run, request, decided)
    job, why = hold(run, request, seen.partitions)
    if not job:
        return Decision(REFUSE, f"Slurm does not give it: {why}")
    # A partition with OverSubscribe=FORCE gives a node to others all the same.
    after = ask(run, request.node)
    if after.problem or others_on(after, request.mine):
        release(run, job)
        return Decision(
            REFUSE, f"it is not ours alone: {after.problem or 'jobs have started on it'}"
        )
    return Decision(HOLD, decided.why, job)


def _reserved(run: CommandRunner, request: Request, decided: Decision) -> Decision:
    """Reserve a node that is out of service, and look again: it may have been resumed."""
    why = reserve(run, request)
    after = ask(run, request.node)
    again = decide(after, SSH, request.mine)
    if not again.may_load:
        if not why:
            unreserve(run, request.mine.reservation(request.node))
        return again
    if why:
        return Decision(FREE, f"{again.why}; it could not be reserved: {why}")
    return decided


def still(seen: Seen, request: Request, transport: str) -> Decision:
    """Return whether the node may be loaded further: held as before, and without jobs of others."""
    decided = decide(seen, transport, request.mine)
    if decided.action == HOLD and not own_reservations(seen, request):
        return Decision(REFUSE, f"{decided.why}, and nothing holds it any more")
    return decided


def give_back(module: AnsibleModule, run: CommandRunner, request: Request) -> dict[str, Any]:
    """End this run's jobs and reservation of the node; return what the module returns."""
    seen = ask(run, request.node)
    jobs = [job.job_id for job in seen.jobs if request.mine.has(job)]
    left = own_reservations(seen, request)
    messages = []
    if not module.check_mode:
        messages = [release(run, job) for job in jobs]
        messages += [leave(run, one.name, (request.node,)) for one in left]
    why = "; ".join(filter(None, messages))
    if seen.problem or why:
        module.warn(f"{request.node} is held until its time limit: {seen.problem or why}")
    acts = bool(jobs or left)
    return {
        "changed": acts, "action": "release" if acts else "none", "may_load": False,
        "why": seen.problem or why, "busy": others_on(seen, request.mine),
        "job": " ".join(jobs), "reservation": " ".join(one.name for one in left), "command": [],
    }  # fmt: skip


def request_of(params: Mapping[str, Any]) -> Request:
    """Return what the module's options ask for."""
    mine = Mine(params["job_name"], user_name(), params["owner"], tuple(params["former"]))
    options = tuple(params["slurm_options"])
    return Request(params["node"], mine, params["seconds"], params["wait_s"], options)


def bring_about(module: AnsibleModule, run: CommandRunner) -> dict[str, Any]:
    """Ask, decide, hold, look again; return what the module returns."""
    params, request = module.params, request_of(module.params)
    if params["state"] == "released":
        return give_back(module, run, request)
    seen = ask(run, request.node)
    if params["state"] == "checked":
        decided, acts, command = still(seen, request, params["transport"]), False, []
    else:
        decided = decide(seen, params["transport"], request.mine)
        acts = decided.action in (HOLD, ADOPT, RESERVE)
        command = hold_commands(request, seen.partitions)[0] if decided.action == HOLD else []
        command = reserve_command(request) if decided.action == RESERVE else command
        if acts and not module.check_mode:
            decided = take(run, request, seen, decided)
            acts = decided.may_load and decided.action != FREE
    return {
        "changed": acts,
        "action": decided.action,
        "may_load": decided.may_load,
        "why": decided.why,
        "busy": others_on(seen, request.mine),
        "job": decided.job,
        "reservation": request.mine.reservation(request.node) if decided.action == RESERVE else "",
        "command": command,
    }
