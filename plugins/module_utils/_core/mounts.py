# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the kernel has mounted, by /proc/self/mountinfo (proc(5)): to read it never hangs."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from typing import Iterator

from .files import text_if_readable

_CODE = re.compile(r"\\([0-7]{3})")
# By what the kernel names an automount: what mounts, not what is there.
_AUTOMOUNT = "autofs"
# What says that a mount, or what it leads to, is gone or broken; any other error proves nothing.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN,
        errno.EHOSTDOWN, errno.ENODEV, errno.EUCLEAN)  # fmt: skip


@dataclass(frozen=True)
class Live:
    """A line of the kernel's table of mounts; `number` is the device's, major:minor.

    `root` is the folder of the file system that is there, `options` are the file system's.
    """

    where: str
    fstype: str
    source: str
    number: str = ""
    root: str = "/"
    options: str = ""

    def __str__(self) -> str:
        """Return it as it is named to people."""
        return f"{self.where} ({self.fstype}, {self.source})"

    def other_than(self, what: str) -> str:
        """Return the source, and by what it differs where its text is that of the declared one."""
        more = f" (folder {self.root}, device {self.number})" if self.source == what else ""
        return self.source + more


def unescape(text: str) -> str:
    """Return a word of mountinfo or fstab as it is meant."""
    return _CODE.sub(lambda code: chr(int(code.group(1), 8)), text)


def _parse(mountinfo: str) -> Iterator[Live]:
    """Yield every mount; of several on one place, the last is on top.

    A line feed and a blank are what the kernel parts it by and writes as a code in names. Users
    name what they mount, and names may hold every other space and end of a line.
    """
    for line in mountinfo.split("\n"):
        left, dash, right = line.partition(" - ")
        fields, ends = left.split(" "), right.split(" ")
        if dash and len(fields) > 4 and len(ends) > 1:
            where, root = unescape(fields[4]), unescape(fields[3])
            options = unescape("".join(ends[2:3]))
            yield Live(where, ends[0], unescape(ends[1]), fields[2], root, options)


def on_top(mountinfo: str) -> dict[str, Live]:
    """Return mount point -> what is on top there, an automount that waits as well."""
    return {one.where: one for one in _parse(mountinfo)}


def table(mountinfo: str) -> dict[str, Live]:
    """Return mount point -> the file system on top there, without automounts."""
    return {one.where: one for one in _parse(mountinfo) if one.fstype != _AUTOMOUNT}


def waiting(mountinfo: str) -> frozenset[str]:
    """Return the mount points at which an automount waits."""
    return frozenset(one.where for one in _parse(mountinfo) if one.fstype == _AUTOMOUNT)


def all_mounts() -> dict[str, Live]:
    """Return mount point -> what is on top there, of this host."""
    return on_top(text_if_readable("/proc/self/mountinfo", "surrogateescape") or "")


def errno_of(where: str) -> int:
    """Return how a mount point answers: 0, or the number of its error. It may hang."""
    try:
        os.statvfs(where)
        os.stat(where)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
