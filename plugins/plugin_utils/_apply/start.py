# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What starts the program of a node that applies its own roles. Pure."""

from __future__ import annotations

from .._inventory.way import Way

# The program comes on standard input, and is kept in memory: what is on a disk could be another's.
_START = """\
import os, sys
read = sys.stdin.buffer
left = memoryview(read.read(int(read.readline())))
memory = os.memfd_create("program")
while left:
    left = left[os.write(memory, left):]
sys.path.insert(0, "/proc/self/fd/%d" % memory)
from ansible_collections.baremetal.dgx.plugins.module_utils._local.apply import main
sys.exit(main([]))
"""
# A question carries no secret, so that the cheaper of the good key exchanges will do: what OpenSSH
# 9 does before any other costs the control machine 70 ms more. Values go by the site's own choice.
# Taken away and not named: in FIPS mode ssh refuses the one that would be named (curve25519).
_QUESTION = ("-o", "KexAlgorithms=-sntrup761*")


def start(way: Way, question: bool = False) -> list[str]:
    """Return the command that starts the program; `question` says that nothing secret is sent."""
    return way.command([way.python, "-IS", "-c", _START], _QUESTION if question else ())
