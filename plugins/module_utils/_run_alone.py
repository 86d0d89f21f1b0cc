# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Running a command from a program of its own, where there is no AnsibleModule."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from typing import Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)

# slurmd and systemd give little or no PATH.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REAP_S = 0.05


def run(
    argv: Sequence[str], timeout_s: float = 30, env: Mapping[str, str] | None = None
) -> CommandResult:
    """Run a command without Ansible: a CommandRunner for programs of one file."""
    words = tuple(str(word) for word in argv)
    path = shutil.which(words[0], path=os.environ.get("PATH") or _PATH)
    if path is None:
        return CommandResult(words, MISSING)
    started = time.monotonic()
    full = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C", **(env or {})}
    try:
        with open(os.devnull, "rb") as nothing:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                [path, *words[1:]], stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=full, encoding="utf-8", errors="replace",
            )  # fmt: skip
    except OSError as error:
        return CommandResult(words, ENDED, 126, "", error.strerror or str(error))
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _give_up(process)
        return CommandResult(words, TIMED_OUT, -1, "", "", time.monotonic() - started)
    return CommandResult(words, ENDED, process.returncode, out, err, time.monotonic() - started)


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
