# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The queue of a saved state, read by the real slurmctld in a rehearsal.

The format of job_state is Slurm's own and changes with each release. So slurmctld itself reads a
copy, alone in its network, where it reaches neither nodes nor slurmdbd, and is asked by squeue.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from .._core.files import copy_tree, read_text, temporary_folder
from .._core.run import CommandRunner, ToolError, last_lines
from .conf import rehearsal

_BEGIN, _END = "--- the queue ---", "--- its end ---"
# They would act on the host, and jobs must not begin.
_ACTS = re.compile(r"\s*((Epi|Pro)logSlurmctld|JobSubmitPlugins|SchedulerType)\s*=", re.IGNORECASE)
# It answers a moment after its log has that it runs.
_ASKS = f"""
export SLURM_CONF="$folder/conf/slurm.conf"
tries=50
until squeue --noheader --all --states=all --array --format='%A|%T' > "$folder/queue" 2>&1; do
  tries=$((tries - 1))
  if [ "$tries" = 0 ]; then break; fi
  sleep 0.2
done
echo "{_BEGIN}"
cat "$folder/queue"
echo "{_END}"
"""


@dataclass(frozen=True)
class Queued:
    """A job of the queue."""

    number: int
    state: str


def queue_of(run: CommandRunner, state: str, installed: str, timeout_s: int) -> list[Queued]:
    """Return the jobs of a state folder, with the configuration that is installed. ToolError."""
    with temporary_folder("slurm-rehearsal-", mode=0o755) as folder:
        text = read_text(os.path.join(installed, "slurm.conf"))
        text = "\n".join(line for line in text.splitlines() if not _ACTS.match(line)) + "\n"
        rehearsal.lay(os.path.join(folder, "conf"), {"slurm.conf": text}, installed)
        copy_tree(state, os.path.join(folder, "state"))
        log = rehearsal.play(run, folder, text, timeout_s, _ASKS)
        if rehearsal.ACCEPTED not in log:
            message = "; ".join(rehearsal.judge(log).findings[:3])
            raise ToolError(f"slurmctld does not take the state: {message}")
        return parse(log)


def parse(log: str) -> list[Queued]:
    """Return the jobs that were printed; ToolError if squeue did not answer. Pure."""
    _before, begun, rest = log.partition(_BEGIN + "\n")
    rows, ended, _after = rest.partition(_END)
    if not begun or not ended:
        raise ToolError(f"squeue did not answer in the rehearsal: {last_lines(log, 3)}")
    found = []
    for line in rows.splitlines():
        number, sign, what = line.partition("|")
        if not sign or not number.isdigit():
            raise ToolError(f"squeue printed {line!r} in the rehearsal")
        found.append(Queued(int(number), what))
    return found
