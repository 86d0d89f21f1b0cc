# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Running Slurm's commands, also as steps of a job, and reading their parsable output."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Sequence, TypeVar

from .._core.run import MISSING, CommandRunner, ToolError, last_lines

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

T = TypeVar("T")

# A change waits for slurmdbd, which waits for the database.
_SHOW_TIMEOUT_S = 60
_CHANGE_TIMEOUT_S = 120
# sacctmgr ends with 0 after some of its errors ("error: Invalid value for GraceTime")
_ERROR = re.compile(r"^\s*(sacctmgr: )?error: ", re.MULTILINE)
_GRANTED = re.compile(r"Granted job allocation (\d+)")


class NoAnswerError(ToolError):
    """The tool is missing, or what it asks does not answer: nothing is known."""


@dataclass(frozen=True)
class Job:
    """A job in the queue, in whatever state."""

    job_id: str
    user: str
    account: str
    qos: str
    state: str

    @property
    def is_nameless(self) -> bool:
        """Whether no directory knows the user: squeue prints the number, old releases `nobody`."""
        return self.user.isdigit() or self.user == "nobody"

    def describe(self) -> str:
        """`1234 (alice, RUNNING)`."""
        user = f"{self.user}, whose name is gone" if self.is_nameless else self.user
        return f"{self.job_id} ({user}, {self.state})"


def show(
    run: CommandRunner, entity: str, columns: Sequence[str], where: Sequence[str] = ()
) -> list[dict[str, str]]:
    """Rows of `sacctmgr show`, by column. Raises NoAnswerError or ToolError."""
    argv = ["sacctmgr", "-nP", "show", entity, *where, f"format={','.join(columns)}"]
    result = run(argv, timeout_s=_SHOW_TIMEOUT_S)
    if result.outcome == MISSING:
        raise NoAnswerError("sacctmgr is not installed; install Slurm's client commands")
    if not result.ok:
        reason = last_lines(result.text, 2) or result.describe()
        raise NoAnswerError(f"slurmdbd cannot be asked for {entity}: {reason}")
    return parse_table(result.out, columns)


def parse_table(text: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of `sacctmgr -nP` output. Raises ToolError when a row has another number of cells."""
    rows = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        cells = line.split("|")
        if len(cells) != len(columns):
            raise ToolError(f"sacctmgr printed {len(cells)} of {len(columns)} columns: {line!r}")
        rows.append(dict(zip(columns, cells)))
    return rows


def change(run: CommandRunner, words: Sequence[str]) -> None:
    """Run one changing sacctmgr command at once. Raises ToolError with its output."""
    result = run(["sacctmgr", "-i", *words], timeout_s=_CHANGE_TIMEOUT_S)
    if not result.ok or _ERROR.search(result.text):
        message = last_lines(result.text, 6)
        raise ToolError(f"`sacctmgr {' '.join(words)}` failed: {message or result.describe()}")


def queued_jobs(run: CommandRunner) -> list[Job]:
    """All jobs in the queue. Raises NoAnswerError when the controller does not tell."""
    result = run(["squeue", "-h", "-a", "-o", "%A|%u|%a|%q|%T"], timeout_s=_SHOW_TIMEOUT_S)
    if not result.ok:
        reason = last_lines(result.text, 2) or result.describe()
        raise NoAnswerError(f"the queue cannot be read: {reason}")
    return parse_queue(result.out)


def parse_queue(text: str) -> list[Job]:
    """Jobs of `squeue -h -o %A|%u|%a|%q|%T`; array tasks count as one job."""
    jobs: dict[str, Job] = {}
    for line in text.splitlines():
        cells = line.strip().split("|")
        if len(cells) == 5:
            jobs.setdefault(cells[0], Job(*cells))
    return list(jobs.values())


def name_jobs(jobs: Sequence[Job], limit: int = 5) -> str:
    """Jobs in words: the first few, and how many more there are."""
    shown = ", ".join(job.describe() for job in jobs[:limit])
    return shown + (f" and {len(jobs) - limit} more" if len(jobs) > limit else "")


def ask(run: CommandRunner, argv: Sequence[str]) -> str:
    """Output of a Slurm command. Raises NoAnswerError with its output."""
    result = run(argv, timeout_s=_SHOW_TIMEOUT_S)
    if result.outcome == MISSING:
        raise NoAnswerError(f"{argv[0]} is not installed; install Slurm's client commands")
    if not result.ok:
        reported = last_lines(result.text, 3) or result.describe()
        raise NoAnswerError(f"`{' '.join(argv)}` failed: {reported}")
    return result.out


def answer_or(instead: T, module: AnsibleModule, note: str, question: Callable[[], T]) -> T:
    """Return the answer; in check mode, before there is anything that answers, `instead`.

    Raises NoAnswerError outside of check mode; in it, `note` ends the warning.
    """
    try:
        return question()
    except NoAnswerError as error:
        if not module.check_mode:
            raise
        module.warn(f"{error}: {note}")
        return instead


def user_name() -> str:
    """Return the user that Slurm names for jobs and reasons of this process."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def allocate(
    run: CommandRunner,
    nodes: Sequence[str],
    limit_s: float,
    wait_s: int,
    gres: str = "",
    options: Sequence[str] = (),
) -> str:
    """Return the number of a job that has these nodes; ToolError if Slurm does not give them.

    The job ends by itself after limit_s, so that nothing is held when it is not given back.
    """
    minutes = max(1, -(-int(limit_s) // 60))
    words = ["salloc", "--no-shell", "--exclusive", "--mem=0", "--job-name=fabric_pairs"]
    words += [f"--nodes={len(nodes)}", "--nodelist=" + ",".join(nodes), f"--time={minutes}"]
    words += [f"--immediate={wait_s}"]
    if gres:
        words.append(f"--gres={gres}")
    result = run([*words, *options], timeout_s=wait_s + 30)
    granted = _GRANTED.search(result.text)
    if not result.ok or not granted:
        raise ToolError(f"Slurm does not give the {len(nodes)} nodes: {result.describe(2)}")
    return granted[1]


def release(run: CommandRunner, job: str) -> None:
    """Give the nodes back; the job's own time limit does it where this fails."""
    run(["scancel", job], timeout_s=30)
