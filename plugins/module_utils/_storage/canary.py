# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Judgement of what a canary met on a mount: written, synced, read back, seen by others. Pure."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass
from typing import Any, Iterator, Mapping

from .._core.child import BROKEN, DONE, Answer
from .._core.mounts import Live
from .._core.record import FAIL, NOT_MEASURED, PASS, Record
from .mounts.plan import same_source
from .thresholds import ANSWERS, LATENCY, MOUNTED, READ_BACK, SERVED, SHARED

FOLDER = ".baremetal-dgx-canary"
# What an error of a file system means, and what to do. All others say only that nothing was asked.
_REMEDIES = {
    errno.ENOSPC: ("full", "look: `df`, `ceph df`; remove data or add space, then check again"),
    errno.EDQUOT: (
        "over its quota",
        "look: getfattr -n ceph.quota.max_bytes; remove data, or raise the quota",
    ),
    errno.EACCES: (
        "refused",
        (
            "look: mode of the folder, and `ceph auth get client.NAME`: may it write here? Where "
            "the mount is meant to be read only, write canary: read"
        ),
    ),
    errno.EROFS: (
        "read only",
        (
            "look: dmesg; a file system turns read only after an error. Where it is meant to be, "
            "write canary: read"
        ),
    ),
    errno.EIO: ("broken", "look: dmesg and `ceph health detail`; a blocklisted client says this"),
    errno.ESTALE: ("stale", "mount it again: its server does not know this mount any more"),
    errno.ENOTCONN: ("without its client", "run mount_storage: ceph-fuse is gone, and is started"),
    errno.ESHUTDOWN: (
        "cut off",
        "the cluster has blocklisted this client; `ceph osd blocklist ls`, then mount it again",
    ),
    errno.ENOENT: ("not there", "look: has the folder been removed, is the right path mounted?"),
    errno.ENOTDIR: ("no folder", "look: a file lies where the canary's folder should be"),
}
_REMEDIES[errno.EPERM] = _REMEDIES[errno.EACCES]


@dataclass(frozen=True)
class Canary:
    """What is asked of one mount; `most_s` is how long it may take, `limit_s` when it hangs.

    `what` and `fstype` are as mount(8) takes them, empty where any will do.
    """

    name: str
    path: str
    what: str = ""
    fstype: str = ""
    write: bool = True
    peers: tuple[str, ...] = ()
    most_s: float = 10
    limit_s: float = 30


def subject_of(node: str, canary: Canary) -> str:
    """Return the subject of a mount on a node."""
    return f"mount:{node}{canary.path}"


def token_text(node: str, run: str) -> str:
    """Return what a node writes: a line with host and time, and that cannot be half."""
    line = f"{node} {run}"
    return f"{line} {hashlib.sha256(line.encode()).hexdigest()}\n" * 64


def token_of(text: str) -> tuple[str, str] | None:
    """Return node and run of what was read; None for what is not whole."""
    words = text.partition("\n")[0].split(" ")
    if len(words) != 3 or text != token_text(words[0], words[1]):
        return None
    return words[0], words[1]


def judge_mounted(node: str, canary: Canary, live: Live | None, device: str = "") -> Record:
    """Return whether it is mounted, by a table that can be read while the mount hangs.

    `device` is the number of the declared device, empty where none is there.
    """
    want = canary.fstype or "mounted"
    found = "not mounted" if live is None else live.fstype
    if live is not None and (not canary.fstype or found in canary.fstype.split(",")):
        found = want
        if canary.what and not same_source(canary.what, live, device):
            found, want = live.other_than(canary.what), canary.what
    mounted = MOUNTED.filled(path=canary.path)
    return mounted.judge(subject_of(node, canary), found, want, text=canary.path)


def judge_written(node: str, canary: Canary, outcome: Answer) -> Iterator[Record]:
    """Yield what came of writing (or of looking, where nothing is to be written), and how fast."""
    check = "storage.write" if canary.write else "storage.read"
    subject = subject_of(node, canary)
    if outcome.how != DONE:
        yield _unknown(check, subject, canary, outcome)
        return
    value: Mapping[str, Any] = outcome.value
    if value.get("error"):
        yield _refused(check, subject, canary, value)
        return
    if canary.write:
        same = bool(value.get("same"))
        yield READ_BACK.judge(
            subject,
            "the same" if same else "something else",
            text=f"{canary.path}: written, synced and read back",
        )
    else:
        yield Record(check, subject, PASS, f"{canary.path}: its folder can be read")
    took = round(float(value["took_s"]), 3)
    what = "a small file written and synced" if canary.write else "folder read"
    yield LATENCY.judge(subject, took, canary.most_s, text=f"{canary.path}: {what}")


def judge_peers(node: str, canary: Canary, run: str, outcome: Answer) -> Iterator[Record]:
    """Yield for each peer whether this node sees what it wrote in this run."""
    subject = subject_of(node, canary)
    if outcome.how != DONE:
        yield _unknown("storage.shared", subject, canary, outcome)
        return
    for peer in canary.peers:
        seen = outcome.value.get(peer, {})
        code = seen.get("error", 0)
        text = f"{canary.path}: what {peer} has written"
        if code and code != errno.ENOENT:
            yield _refused("storage.shared", subject, canary, {**seen, "what": text})
            continue
        token = token_of(seen.get("text", ""))
        if code == errno.ENOENT:
            found = "missing"
        elif token is None:
            found = "not whole"
        elif token[0] != peer:
            found = f"of {token[0]}"
        else:
            found = "seen" if token[1] == run else "an old one"
        shared = SHARED.filled(peer=peer, path=canary.path)
        yield shared.judge(subject, found, text=text)


def _unknown(check: str, subject: str, canary: Canary, outcome: Answer) -> Record:
    why = "the canary broke" if outcome.how == BROKEN else "it hangs"
    return Record(
        check, subject, NOT_MEASURED, f"{canary.path}: {why}: {outcome.message}",
        threshold=ANSWERS.threshold(canary.limit_s), remedy=ANSWERS.remedy,
    )  # fmt: skip


def _refused(check: str, subject: str, canary: Canary, value: Mapping[str, Any]) -> Record:
    if value.get("unsafe"):
        return Record(
            check, subject, NOT_MEASURED, str(value["unsafe"]),
            remedy=f"look: who owns {FOLDER}? Nothing was written; once it is removed, the next "
            "run makes it for root alone",
        )  # fmt: skip
    code = int(value["error"])
    name = errno.errorcode.get(code, str(code))
    text = f"{value.get('what') or canary.path}: {value.get('step', 'open')}: {os.strerror(code)}"
    if code not in _REMEDIES:
        return Record(
            check, subject, NOT_MEASURED, text, evidence=(name,),
            remedy=f"look: dmesg, and what {name} means here",
        )  # fmt: skip
    message, remedy = _REMEDIES[code]
    return Record(
        check, subject, FAIL, f"{text} ({message})", {"value": name, "unit": ""},
        SERVED.threshold("written" if canary.write else "read"), (name,), remedy,
    )  # fmt: skip
