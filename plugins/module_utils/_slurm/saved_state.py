# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""From which releases a Slurm takes over, and of which release the saved state is.

A daemon that meets an older state refuses it after the old packages are gone, and with `-i` it
purges the jobs (measured: 22.05.8 to 24.11.5). So the question is asked before anything changes.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from typing import Any, Mapping, NamedTuple, Sequence

from .._core.files import make_folder
from .._core.run import CommandRunner, ToolError

# In the order in which they came out.
RELEASES = (
    "20.11",
    "21.08",
    "22.05",
    "23.02",
    "23.11",
    "24.05",
    "24.11",
    "25.05",
    "25.11",
    "26.05",
)
# Releases back that state and protocol are taken from (Slurm upgrade guide): two, from 24.11 on
# three. 24.11.5 names 9984, which is 23.02, as the oldest it takes (measured).
_BEFORE = 2
_LATER = 3
_LATER_SINCE = "24.11"
# SLURM_PROTOCOL_VERSION: 36 << 8 is 20.11, and each release adds 1 << 8. Measured: 22.05 is 9728,
# 23.02 is 9984, 24.11 is 10752.
_FIRST_PROTOCOL = 36
_WORD = b"PROTOCOL_VERSION\0"
_COPY_SCRIPT = 'rm -rf "$2.new" && cp -a "$1" "$2.new" && mv "$2.new" "$2"'
_JOBS = "job_state"
_ENOUGH = 64
_ASK_S = 20
_SETTING = re.compile(r"^[ \t]*(ClusterName|StateSaveLocation)[ \t]*=[ \t]*([^\s#]+)", re.I | re.M)
# Of `scontrol show config` alone, and of `scontrol ping`.
_HOST = re.compile(r"^SlurmctldHost\[\d+\][ \t]*=[ \t]*([^\s(]+)", re.M)
_UP = re.compile(r"\) at (\S+) is UP")


class Former(NamedTuple):
    """The Slurm that is there; empty for none."""

    folder: str = ""
    cluster: str = ""
    # Of a slurmctld that answers, the primary first.
    hosts: Sequence[str] = ()


def release_of(version: str) -> str:
    """Return 24.11 for 24.11.5 or 24.11; empty where the text is not a version."""
    words = version.split(".")
    if len(words) < 2 or not (words[0].isdigit() and words[1].isdigit()):
        return ""
    return f"{int(words[0])}.{int(words[1]):02d}"


def takes_over_from(release: str) -> tuple[str, ...]:
    """Return the releases whose state this one takes over, oldest first; none when not known."""
    if release not in RELEASES:
        return ()
    at = RELEASES.index(release)
    back = _LATER if at >= RELEASES.index(_LATER_SINCE) else _BEFORE
    return RELEASES[max(0, at - back) : at]


def refusal(found: str, declared: str) -> str:
    """Return why Slurm cannot go from one version to the other; empty where it can.

    found is what is there, empty where there is nothing; both may have a third number.
    """
    old, new = release_of(found), release_of(declared)
    if not old or old == new:
        return ""
    if new not in RELEASES:
        return f"Slurm {new or declared} is not known here"
    if old not in RELEASES:
        older = [int(word) for word in old.split(".")] < [
            int(word) for word in RELEASES[0].split(".")
        ]
        return f"Slurm {old} is {'older' if older else 'newer'} than all that {new} can take over"
    if RELEASES.index(old) > RELEASES.index(new):
        return f"Slurm goes from {old} back to {new} with none of its jobs; declare {old}"
    taken = takes_over_from(new)
    if old in taken:
        return ""
    return (
        f"Slurm {new} takes over only from {', '.join(taken)}, and not from {old}; upgrade in "
        f"steps, first to {steps(old, new)[0]}"
    )


def steps(old: str, new: str) -> list[str]:
    """Return the releases to go through, the last being new, with as few steps as there can be."""
    path = []
    while old != new:
        old = max(
            (later for later in RELEASES if old in takes_over_from(later)),
            key=lambda later: (RELEASES.index(later) <= RELEASES.index(new), RELEASES.index(later)),
        )
        path.append(old)
    return path


def state_release(data: bytes) -> str:
    """Return the release that wrote a file of StateSaveLocation; empty where it does not say.

    A file begins with the protocol's number, or with a counted text and then the number, all of it
    in network byte order.
    """
    at = 0
    if data[4 : 4 + len(_WORD)] == _WORD:
        at = 4 + len(_WORD)
    if len(data) < at + 2:
        return ""
    (number,) = struct.unpack_from("!H", data, at)
    place = (number >> 8) - _FIRST_PROTOCOL
    return RELEASES[place] if number % 256 == 0 and 0 <= place < len(RELEASES) else ""


def read_release(folder: str, names: Sequence[str]) -> tuple[str, str]:
    """Return the release that wrote the state, and the file that names it; empty for none."""
    for name in names:
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as handle:
                release = state_release(handle.read(_ENOUGH))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unseen(folder, error) from error
        if release:
            return release, path
    return "", ""


def _unseen(folder: str, error: OSError) -> ToolError:
    remedy = "write a folder that root can read"
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = f"export a share of NFS with no_root_squash, or {remedy}"
    return ToolError(
        f"root cannot look into {folder} ({error.strerror}), and whether jobs are there is not "
        f"known; {remedy}"
    )


def _written_at(folder: str) -> float | None:
    """Return when slurmctld has written the jobs in the folder, None for none there. ToolError."""
    try:
        return os.stat(os.path.join(folder, _JOBS)).st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unseen(folder, error) from error


def read_former(run: CommandRunner, configuration: str) -> Former:
    """Return what slurmctld says, or its file where it does not answer. OSError."""
    asked = run(["scontrol", "show", "config"], _ASK_S)
    text = asked.out
    if not asked.ok:
        try:
            with open(configuration, encoding="utf-8", errors="replace") as handle:
                text = handle.read()
        except FileNotFoundError:
            return Former()
    found = {name.lower(): value for name, value in _SETTING.findall(text)}
    return Former(
        found.get("statesavelocation", ""), found.get("clustername", ""), _hosts(_HOST, text)
    )


def _hosts(pattern: re.Pattern[str], text: str) -> list[str]:
    return [host.partition(".")[0].lower() for host in pattern.findall(text)]


def refuse_move(run: CommandRunner, former: Former, params: Mapping[str, Any]) -> str:
    """Return why the controllers cannot be those that are declared; empty where they can.

    Another slurmctld that begins with its empty folder ends all jobs, and one that is left out
    schedules on beside it, or as soon as the primary is away.
    """
    declared = [host.partition(".")[0].lower() for host in params["controllers"]]
    if not declared or not former.hosts:
        return ""
    first = former.hosts[0]
    left = [host for host in former.hosts if host not in declared]
    answers = _hosts(_UP, run(["scontrol", "ping"], _ASK_S).out) if left else []
    alive = [host for host in left if host in answers]
    if alive or not set(declared) & set(former.hosts):
        whose = " and ".join(alive or left)
        verb, daemon = (
            ("is", "its slurmctld") if len(alive or left) == 1 else ("are", "slurmctld there")
        )
        waits = declared[0] == first and first in answers
        fate = "would take control" if waits else "has the jobs"
        copy = (
            f", and copy its {former.folder} (cp -a) to {params['path']} of {declared[0]} unless "
            f"they share it, or run restore_cluster"
        )
        return (
            f"slurm_controllers: {whose} {verb} left out, but {daemon} {fate}; run `systemctl "
            f"disable --now slurmctld` there{'' if declared[0] == first else copy}"
        )
    if declared[0] == first or _written_at(params["path"]) is not None:
        return ""
    return (
        f"slurm_controllers: {declared[0]} is first, but slurmctld has the jobs on {first}, and "
        f"{params['path']} has none of them here; write {first} first, or stop slurmctld and copy "
        f"its {former.folder} (cp -a)"
    )


def refuse_loss(run: CommandRunner, params: Mapping[str, Any]) -> None:
    """Raise ToolError where slurmctld would begin without the jobs that are there, or not at all.

    With an empty state slurmctld starts all the same, and each slurmd ends the jobs that slurmctld
    does not know. So it is with a Slurm that others have set up, or when folder or host is changed.
    """
    former = read_former(run, params["configuration"])
    written = _written_at(former.folder) if former.folder else None
    lost = list(filter(None, [refuse_move(run, former, params)]))
    if written is not None and (_written_at(params["path"]) or 0) < written:
        lost.append(
            f"slurm_controller_state_save_location: {params['path']} is declared, but slurmctld "
            f"keeps its jobs in {former.folder}, and would lose them; write that path, or stop "
            f"slurmctld and copy the folder (cp -a)"
        )
    name = params["cluster_name"]
    if written is not None and former.cluster and name.lower() != former.cluster.lower():
        lost.append(
            f"cluster_name: {name} is declared, but the jobs and the accounting here are of "
            f"{former.cluster}, and slurmctld would not start; write that name"
        )
    if lost:
        raise ToolError("\n".join(lost))


def make_copy(run: CommandRunner, source: str, copy: str, limit_s: float) -> None:
    """Copy the state as a whole, or raise ToolError, OSError."""
    make_folder(os.path.dirname(copy), mode=0o700)
    argv = ["sh", "-c", _COPY_SCRIPT, "copy", source, copy]
    # The child that waits for it is given up before.
    made = run(argv, limit_s + 60)
    if not made.ok:
        raise ToolError(f"{source} was not copied: {made.describe()}")


def bring_about(run: CommandRunner, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Read, compare, copy; return what the module returns. Raises ToolError, OSError."""
    release, path = read_release(params["path"], params["files"])
    answer: dict[str, Any] = {"changed": False, "release": release, "file": path}
    why = refusal(release, params["version"])
    if why:
        raise ToolError(f"{path} is of Slurm {release}: {why}", **answer)
    if params["cluster_name"]:
        refuse_loss(run, params)
    if params["copies"] and release and release != release_of(params["version"]):
        answer["copied_to"] = os.path.join(params["copies"], f"slurmctld-{release}")
        answer["changed"] = not os.path.exists(answer["copied_to"])
    if answer["changed"] and not check_mode:
        make_copy(run, params["path"], answer["copied_to"], params["copy_limit_s"])
    return answer
