# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's table of mounts, whatever its users name."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core import mounts
from ansible_collections.baremetal.dgx.plugins.module_utils._core.mounts import (
    Live,
    on_top,
    table,
    waiting,
)

MOUNTINFO = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 22 0:40 / /home rw,noatime shared:9 - ceph 10.0.0.1:6789,10.0.0.2:6789:/ rw,name=dgx
91 22 0:41 / /with\040space rw - autofs systemd-1 rw,fd=50
92 22 0:42 / /lazy rw - autofs systemd-1 rw,fd=51
93 92 0:43 / /lazy rw - ceph 10.0.0.1:3300:/ rw
94 22 0:44 /old /home rw - fuse.ceph-fuse ceph-fuse rw,user_id=0
short line
"""
# All are spaces to str.split, and most are ends of lines to str.splitlines.
SPACES = ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r", "\xa0", "\u3000"]


def test_the_one_on_top_counts():
    found = on_top(MOUNTINFO)
    assert found["/"] == Live("/", "ext4", "/dev/vda", "254:0", "/", "rw")
    home = Live("/home", "fuse.ceph-fuse", "ceph-fuse", "0:44", "/old", "rw,user_id=0")
    assert found["/home"] == home
    assert str(home) == "/home (fuse.ceph-fuse, ceph-fuse)"
    assert [*found] == ["/", "/home", "/with space", "/lazy"]


def test_an_automount_that_waits_is_no_file_system():
    found = table(MOUNTINFO)
    assert (found["/home"].fstype, found["/lazy"].fstype) == ("fuse.ceph-fuse", "ceph")
    assert "/with space" not in found
    assert waiting(MOUNTINFO) == {"/with space", "/lazy"}


@pytest.mark.parametrize("space", SPACES)
def test_a_user_hides_no_mount_by_its_name(space):
    """The kernel parts its table by line feeds and blanks alone."""
    line = f"39 22 0:35 / /home/eve/a{space}b rw - {{}} eve{space}@x:/ rw\n"
    where = f"/home/eve/a{space}b"
    live = Live(where, "fuse.sshfs", f"eve{space}@x:/", "0:35", "/", "rw")
    assert on_top(line.format("fuse.sshfs")) == table(line.format("fuse.sshfs")) == {where: live}
    assert waiting(line.format("autofs")) == {where}


def test_codes_are_read_in_every_word():
    """The kernel writes a blank, a tab, a line feed, a backslash and a hash as codes."""
    line = r"95 22 0:45 /of\040a /b\134040c\043 rw - nfs4 host:/x\011y rw,name=a\040b"
    live = Live("/b\\040c#", "nfs4", "host:/x\ty", "0:45", "/of a", "rw,name=a b")
    assert table(line) == {live.where: live}


@pytest.mark.parametrize("text", [None, MOUNTINFO])
def test_the_mounts_of_this_host_are_read(monkeypatch, text):
    asked = []
    monkeypatch.setattr(mounts, "text_if_readable", lambda *words: asked.append(words) or text)
    assert mounts.all_mounts() == on_top(text or "")
    # Names need not be UTF-8.
    assert asked == [("/proc/self/mountinfo", "surrogateescape")]
