# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The program of a node for validate_nodes: `node-validation RUN`, with its work in the archive.

It writes lines of answers (`spool`), and ends with 0 when each part has been answered, by what it
could measure or by why it could not. Its work is `work/NODE.json` in the archive, where what many
nodes are asked alike is a reference to `common/NAME.json`.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import zipfile
from typing import Any, Callable, Mapping, Sequence

from .._burn.control import BurnError
from .._core.failures import message_of
from .._core.lock import host_lock
from .._core.names import short_name
from .._core.run import ToolError, full_path, run
from .._slurm.commands import user_name
from .._slurm.hold import SSH, Mine, Request, ask, still
from . import calls
from .kept import kept_by
from .parts import Node, parts_from_data
from .spool import beat_of, lines_of

LOCK = "node_validation"
BEAT_S = 30.0
_FAULT = 3
_STEP = ("SLURM_", "PMI_", "PMIX_", "OMPI_", "SRUN_")


def work_of(path: str, names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the node, by the first of these names that the archive has work for, and its work.

    OSError; ValueError where there is none.
    """
    with zipfile.ZipFile(path) as archive:
        there = set(archive.namelist())
        for name in names:
            if f"work/{name}.json" in there:
                return name, whole(json.loads(archive.read(f"work/{name}.json")), archive.read)
    raise ValueError(f"this host is {' or '.join(names)}, and the run knows none of that name")


def whole(value: Any, read: Callable[[str], bytes]) -> Any:
    """Return a value in which each reference {"=": NAME} is what common/NAME.json holds."""
    if isinstance(value, Mapping):
        if set(value) == {"="}:
            return json.loads(read(f"common/{value['=']}.json"))
        return {key: whole(item, read) for key, item in value.items()}
    return [whole(item, read) for item in value] if isinstance(value, list) else value


class Say:
    """Writes lines; without a reader the work continues and is kept."""

    def __init__(self, run_name: str, node: str) -> None:
        self._run, self._node, self._read = run_name, node, True

    def __call__(self, part: str, answer: Mapping[str, Any]) -> None:
        """Write the lines of an answer."""
        for line in lines_of(self._run, self._node, part, answer):
            self.text(line)

    def beat(self, _number: int, _frame: Any) -> None:
        """Say that this node is at work; called by a timer, between two lines at most."""
        self.text(beat_of(self._run, self._node))

    def text(self, line: str) -> None:
        """Write a line, in one piece."""
        if self._read:
            try:
                os.write(1, f"{line}\n".encode("ascii"))
            except OSError:
                self._read = False


def refusal(
    node: str, hold: Mapping[str, Any] | None, transport: str = "", lasting: bool = False
) -> str:
    """Return why the node must not be loaded, as Slurm says here; empty if it may be.

    With SSH as the `transport` a node that nothing holds may be loaded, too. A `lasting` load goes
    on while Slurm does not answer: it starts no job then.
    """
    if not hold:
        return ""
    mine = Mine(hold["job_name"], user_name(), hold["owner"], tuple(hold["former"]))
    seen = ask(run, node)
    if lasting and seen.problem:
        return ""
    decided = still(seen, Request(node, mine, 0, 0), transport or hold["transport"])
    return "" if decided.may_load else decided.why


def _stop_burn(options: Mapping[str, Any]) -> None:
    try:
        calls.stop_burn(options)
    except (BurnError, OSError) as error:
        sys.stderr.write(f"the burn-in cannot be stopped: {message_of(error)}\n")


def _end(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)


def _forget_step() -> None:
    """Drop what Slurm tells a step: tools that can use MPI would take this one for their own."""
    for name in list(os.environ):
        if name.startswith(_STEP) and name != "SLURM_CONF":
            del os.environ[name]


def main(words: Sequence[str]) -> int:
    """Answer all parts. Returns the exit status."""
    os.environ["PATH"] = full_path()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    name = words[0]
    names = [os.environ.get("SLURMD_NODENAME", ""), short_name(), os.uname().nodename]
    _forget_step()
    try:
        node, work = work_of(sys.argv[0], [one for one in dict.fromkeys(names) if one])
        say = Say(name, node)
        lost = functools.partial(refusal, node, work["hold"], lasting=True)
        signal.signal(signal.SIGALRM, say.beat)
        signal.setitimer(signal.ITIMER_REAL, BEAT_S, BEAT_S)
        # A run that was killed may still be at work here: its answers are waited for.
        with host_lock(LOCK, work["seconds"]), kept_by(name, work["folder"]) as kept:
            own = Node(
                kept,
                lambda module, options: calls.call(run, module, options, lost),
                lambda: work["refused"] or refusal(node, work["hold"]),
                lambda: refusal(node, work["hold"], SSH),
                _stop_burn,
            )
            own.ask(parts_from_data(work["parts"]), say)
    except (OSError, ValueError, KeyError, ToolError, zipfile.BadZipFile) as error:
        sys.stdout.write(f"{type(error).__name__}: {message_of(error)}\n")
        return _FAULT
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0
