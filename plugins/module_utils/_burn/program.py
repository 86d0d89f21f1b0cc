# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The program of a burn-in: `run` or `start` in a folder, and what it starts of itself."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from typing import Sequence

from .parent import AlreadyRunningError, burn
from .plan import settings_from_data
from .watcher import look, watch
from .worker import main as worker

SETTINGS = "settings.json"
ENDED, NOT_ENDED, BUSY, USAGE = 0, 3, 4, 2


def unpack(folder: str) -> str:
    """Return where this program lies unpacked, so that Python compiles it once for all workers."""
    program = sys.argv[0]
    if not zipfile.is_zipfile(program):
        return program
    target = os.path.join(folder, "program")
    with zipfile.ZipFile(program) as archive:
        archive.extractall(target)
    return target


def main(words: Sequence[str]) -> int:
    """Do what the words say. Returns the exit status."""
    verb, rest = (words[0] if words else ""), list(words[1:])
    if verb == "start" and len(rest) == 1:
        # Apart from the caller: in its own session, and not its child.
        if os.fork():
            return ENDED
        os.setsid()
        verb = "run"
    if verb == "run" and len(rest) == 1:
        folder = rest[0]
        with open(os.path.join(folder, SETTINGS), encoding="ascii") as stream:
            settings = settings_from_data(json.load(stream))
        try:
            ended = burn(folder, [sys.executable, "-I", "-S", unpack(folder)], settings)
        except AlreadyRunningError:
            sys.stderr.write(f"a burn-in of {folder} runs already\n")
            return BUSY
        return NOT_ENDED if ended == "interrupted" else ENDED
    if verb == "worker" and rest:
        return worker(rest)
    if verb == "look" and len(rest) == 1:
        return look(rest[0])
    if verb == "watch" and len(rest) > 1:
        return watch(rest[0], rest[1:])
    sys.stderr.write(
        "run FOLDER | start FOLDER | worker ADDRESS... | look LIBRARY | watch LIBRARY ADDRESS...\n"
    )
    return USAGE
