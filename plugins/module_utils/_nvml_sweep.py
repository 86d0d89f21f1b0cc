# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Reads all GPUs in a process of its own, which may hang or crash without harm.

A call into a broken GPU may never return, and then nothing in the same process can go on. The child
sends what it has read GPU by GPU and leaves the name of each call in shared memory before it makes
it, so that the parent knows what the last one was. A new child reads the GPUs that come after.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import time
from dataclasses import replace
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_read import (
    Sweep,
    gpu_from_data,
    read_gpu,
    read_system,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nvml import Nvml, NvmlError

_PAGE = 256
# A process that waits inside the driver cannot be killed; it is left behind after this time.
_REAP_S = 0.5
HUNG = "did not come back within"
CRASHED = "ended the process that called it"


class _Child:
    """What runs on the other side of the pipe."""

    def __init__(self, library: str, skip: frozenset[int], pipe: int, note: mmap.mmap) -> None:
        self.library, self.skip, self.pipe, self.note = library, skip, pipe, note
        self.index = -1

    def watch(self, name: str) -> None:
        text = f"{self.index} {name}".encode()
        self.note[: len(text) + 1] = text + b"\0"

    def send(self, data: dict[str, Any]) -> None:
        rest = json.dumps(data).encode() + b"\n"
        while rest:
            rest = rest[os.write(self.pipe, rest) :]

    def run(self) -> None:
        try:
            nvml = Nvml(self.library, self.watch)
        except NvmlError as error:
            self.send({"error": str(error), "error_code": error.code})
            return
        system = read_system(nvml)
        self.send({"system": system})
        for index in range(system["count"] or 0):
            if index not in self.skip:
                self.index = index
                self.send({"gpu": read_gpu(nvml, index)})
        self.send({"end": True})


def _run_child(library: str, skip: frozenset[int], note: mmap.mmap) -> tuple[int, int]:
    """Start a child and return its process id and the end of the pipe to read from."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    status = 1
    try:
        os.close(reader)
        quiet = os.open(os.devnull, os.O_RDWR)
        # What the library prints must not end up in the module's answer.
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        _Child(library, skip, writer, note).run()
        status = 0
    finally:
        # Nothing of the parent's may run here: no buffers flushed, no handlers called.
        os._exit(status)  # pylint: disable=protected-access
    raise SystemExit(status)  # not reached; for readers of types


def _collect(reader: int, deadline: float) -> tuple[list[dict[str, Any]], bool]:
    """Return the lines that came until the end or the deadline, and whether the end came."""
    raw = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            ended = False
            break
        part = os.read(reader, 1 << 16)
        if not part:
            ended = True
            break
        raw += part
    lines = raw.split(b"\n")
    # What comes after the last line end was cut short.
    return [json.loads(line) for line in lines[:-1]], ended


def _reap(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    until = time.monotonic() + _REAP_S
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.005)


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
        pid, reader = _run_child(library, frozenset([*gpus, *stuck]), note)
        try:
            lines, ended = _collect(reader, time.monotonic() + timeout_s)
        finally:
            os.close(reader)
            _reap(pid)
        complete = False
        for line in lines:
            if "error" in line:
                found = replace(found, error=line["error"], error_code=line["error_code"])
                complete = True
            elif "system" in line:
                found = replace(found, **line["system"])
            elif "gpu" in line:
                gpus[line["gpu"]["index"]] = gpu_from_data(line["gpu"])
            else:
                complete = True
        if complete:
            break
        index, function = _note_text(note)
        text = f"{function} {CRASHED if ended else f'{HUNG} {timeout_s:g} s'}"
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
