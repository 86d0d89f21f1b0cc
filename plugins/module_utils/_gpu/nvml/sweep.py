# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Reads all GPUs in its own process, which may hang or crash without harm.

A call into a broken GPU may never return, and then nothing in the same process can go on. The child
sends what it has read GPU by GPU and leaves the name of each call in shared memory before it makes
it, so that the parent knows what the last one was. A new child reads the GPUs that come after.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import replace
from typing import Any

from ..._core.child import BROKEN, DONE, Send, parts_of
from ..read import Sweep, gpu_from_data, read_gpu, read_system
from .binding import Nvml, NvmlError

_PAGE = 256
HUNG = "did not come back within"
CRASHED = "ended the process that called it"


class _Reading:
    """What runs in the child."""

    def __init__(self, library: str, skip: frozenset[int], note: mmap.mmap) -> None:
        self.library, self.skip, self.note = library, skip, note
        self.index = -1

    def watch(self, name: str) -> None:
        text = f"{self.index} {name}".encode()
        self.note[: len(text) + 1] = text + b"\0"

    def run(self, send: Send) -> bool:
        try:
            nvml = Nvml(self.library, self.watch)
        except NvmlError as error:
            send({"error": str(error), "error_code": error.code})
            return True
        system = read_system(nvml)
        send({"system": system})
        for index in range(system["count"] or 0):
            if index not in self.skip:
                self.index = index
                send({"gpu": read_gpu(nvml, index)})
        return True


def _note_text(note: mmap.mmap) -> tuple[int, str]:
    """Return the index of the GPU and the last function that the child called."""
    text = note[:_PAGE].split(b"\0", 1)[0].decode("ascii", "replace")
    index, _space, name = text.partition(" ")
    return (int(index) if index.lstrip("-").isdigit() else -1), name or "the loader"


def sweep(library: str = "", timeout_s: float = 10.0) -> Sweep:
    """Read all GPUs; `timeout_s` is for each GPU that does not answer, at most three of them.

    Never raises because of NVML: what it did not do is in `error` and `stuck`.
    """
    started = time.monotonic()
    found = Sweep()
    gpus: dict[int, Any] = {}
    stuck: dict[int, str] = {}
    # A library that fails at every GPU is not asked eight times.
    for _attempt in range(4):
        note = mmap.mmap(-1, _PAGE)
        answer = parts_of(_Reading(library, frozenset([*gpus, *stuck]), note).run, timeout_s)
        for line in answer.parts:
            if "error" in line:
                found = replace(found, error=line["error"], error_code=line["error_code"])
            elif "system" in line:
                found = replace(found, **line["system"])
            else:
                gpus[line["gpu"]["index"]] = gpu_from_data(line["gpu"])
        if answer.how == DONE:
            break
        index, function = _note_text(note)
        text = f"{function} {CRASHED if answer.how == BROKEN else f'{HUNG} {timeout_s:g} s'}"
        if index < 0:
            found = replace(found, error=text, error_code=999)
            break
        stuck[index] = text
    else:
        rest = set(range(found.count or 0)) - set(gpus) - set(stuck)
        stuck.update(dict.fromkeys(sorted(rest), "not asked: too many others hung"))
    return replace(
        found,
        gpus=tuple(gpus[index] for index in sorted(gpus)),
        stuck=stuck,
        took_s=round(time.monotonic() - started, 4),
    )
