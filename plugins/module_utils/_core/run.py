# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Running a command on a target: the only seam between planners and the world.

A command ends in one of three ways that must not be mixed up: it ended (with a return code), it
was still running when its time was up, or its tool is not installed. The last two say nothing
about the thing that was asked about, so they are separate outcomes, not return codes.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Mapping, Protocol, Sequence

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

ENDED = "ended"
TIMED_OUT = "timed_out"
MISSING = "missing"

# `timeout` from coreutils: 124 after TERM, 137 when only KILL helped
_TIMEOUT_CODES = (124, 137)
_KILL_AFTER_S = 5
# slurmd, systemd, cron and su give little or no PATH.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REAP_S = 0.05


def full_path() -> str:
    """Return where programs are looked for: the caller's PATH first, then the system's folders."""
    folders = [*os.environ.get("PATH", "").split(":"), *PATH.split(":")]
    # An empty word would be the current folder.
    return ":".join(dict.fromkeys(filter(None, folders)))


def find(tool: str) -> str | None:
    """Return the path of a program, None where it is not installed."""
    return shutil.which(tool, path=full_path())


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: `outcome` is ENDED, TIMED_OUT or MISSING; `rc` is -1 unless ENDED."""

    argv: tuple[str, ...]
    outcome: str
    rc: int = -1
    out: str = ""
    err: str = ""
    took_s: float = 0.0

    @property
    def ok(self) -> bool:
        """True when the command ended with return code 0."""
        return self.outcome == ENDED and self.rc == 0

    @property
    def text(self) -> str:
        """Both streams, standard output first."""
        return "\n".join(part for part in (self.out.strip("\n"), self.err.strip("\n")) if part)

    def describe(self, lines: int = 5) -> str:
        """One phrase on how it ended, with the last lines of its output."""
        name = " ".join(self.argv)
        if self.outcome == MISSING:
            return f"{self.argv[0]} is not installed"
        if self.outcome == TIMED_OUT:
            return f"`{name}` did not end within {self.took_s:.0f} s"
        tail = last_lines(self.text, lines)
        return f"`{name}` ended with {self.rc}" + (f": {tail}" if tail else "")


class CommandRunner(Protocol):
    """Runs one command; never raises because of what the command did."""

    def __call__(
        self,
        argv: Sequence[str],
        timeout_s: float = 30,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run argv without a shell and return how it ended."""


class ToolError(Exception):
    """Something the module cannot get past; `details` are added to what it returns."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True)
class ModuleRunner:
    """The CommandRunner that modules use: run_command with a time limit and the C locale."""

    module: AnsibleModule

    def __call__(
        self,
        argv: Sequence[str],
        timeout_s: float = 30,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run argv without a shell, at most timeout_s seconds (then TERM, then KILL)."""
        words = tuple(str(word) for word in argv)
        path = self.module.get_bin_path(words[0]) if words else None
        if path is None:
            return CommandResult(words, MISSING)
        limiter = self.module.get_bin_path("timeout")
        limited = [limiter, "-k", str(_KILL_AFTER_S), f"{timeout_s:g}"] if limiter else []
        started = time.monotonic()
        # A command stuck in the kernel (dead NFS, dead GPU) cannot be killed, and `timeout` would
        # wait for it forever: then `timeout` itself goes, and the stuck process is left behind.
        watchdog: list[threading.Timer] = []

        def watch(process: Any) -> None:
            timer = threading.Timer(timeout_s + _KILL_AFTER_S + 2, process.kill)
            timer.daemon = True
            timer.start()
            watchdog.append(timer)

        try:
            rc, out, err = self.module.run_command(
                [*limited, path, *words[1:]],
                environ_update={**_environment(), **(env or {})},
                errors="surrogate_then_replace",
                expand_user_and_vars=False,
                before_communicate_callback=watch,
            )
        finally:
            for timer in watchdog:
                timer.cancel()
        took = time.monotonic() - started
        if took >= timeout_s and (rc in _TIMEOUT_CODES or rc < 0):
            return CommandResult(words, TIMED_OUT, -1, out, err, took)
        return CommandResult(words, ENDED, rc, out, err, took)


def run(
    argv: Sequence[str],
    timeout_s: float = 30,
    env: Mapping[str, str] | None = None,
    given: Sequence[bytes] = (),
    keeps: Sequence[int] = (),
) -> CommandResult:
    """Run a command where there is no AnsibleModule: the CommandRunner of the node programs.

    `given` is what it reads on standard input, one piece after the other; `keeps` are open
    descriptors that it has as well, such as a lock's.
    """
    words = tuple(str(word) for word in argv)
    path = find(words[0])
    if path is None:
        return CommandResult(words, MISSING)
    started = time.monotonic()
    full = {**os.environ, **_environment(), **(env or {})}
    try:
        with _source(given) as source:
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                [path, *words[1:]], stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=full, encoding="utf-8", errors="replace", pass_fds=keeps,
            )  # fmt: skip
    except OSError as error:
        return CommandResult(words, ENDED, 126, "", error.strerror or str(error))
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _give_up(process)
        return CommandResult(words, TIMED_OUT, -1, "", "", time.monotonic() - started)
    return CommandResult(words, ENDED, process.returncode, out, err, time.monotonic() - started)


def _environment() -> dict[str, str]:
    return {"LC_ALL": "C", "LANGUAGE": "C", "PATH": full_path()}


def _source(given: Sequence[bytes]) -> BinaryIO:
    """Return what a command reads: memory, since a pipe would have to be filled meanwhile."""
    if not given:
        return open(os.devnull, "rb")
    handle = os.fdopen(os.memfd_create("given"), "w+b")
    for piece in given:
        handle.write(piece)
    handle.seek(0)
    return handle


def _give_up(process: subprocess.Popen[str]) -> None:
    """End a process, or leave it behind: one that waits inside the kernel never comes."""
    process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(_REAP_S)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the commands that it has run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def last_lines(text: str, count: int = 5) -> str:
    """The last `count` non-empty lines of a text, joined with ' | ', each cut at 300."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(line[:300] for line in lines[-count:])
