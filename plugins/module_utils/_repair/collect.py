# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""An archive of what a node reports, taken before a step of repair changes it."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pwd
import socket
import tarfile
import time
import zlib
from typing import Any, Callable, Iterable, Mapping

from .._core.files import (
    create,
    make_temporary,
    read_bytes,
    remove_tree,
    temporary_folder,
    write_all,
)
from .._core.redact import Redactor
from .._core.run import MISSING, CommandRunner

# Stands for the file that a program writes.
_FILE = "FILE"
_BUG_REPORT = "bug-report.txt"
# Name, seconds, and the command. NVIDIA wants its bug report with every return of a GPU
# (docs.nvidia.com/deploy/rma-process); it takes minutes where a GPU hangs.
PARTS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("kernel.log", 60, ("dmesg", "--time-format", "iso")),
    ("gpus.txt", 60, ("nvidia-smi", "-q")),
    ("pci.txt", 60, ("lspci", "-vv")),
    ("units.txt", 60, ("systemctl", "--failed", "--no-pager")),
    (_BUG_REPORT, 300, ("nvidia-bug-report.sh", "--output-file", _FILE)),
)
# All parts together: a node that hangs must not hold up the repair of others.
TOTAL_S = 420.0
# The end of a text says what happened last. The total is that of the texts, before compression.
_MOST_BYTES = 16 * 1024 * 1024
_MOST_TOTAL = 40 * 1024 * 1024
_NAME = "collected.tar.gz"
_FIRST_PERSON = 1000


def collect(
    run: CommandRunner,
    parent: str,
    names: Iterable[str] = (),
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Write the archive below `parent`; returns its path, and how each part ended. OSError.

    Secrets, and the names of hosts and people, are taken out: `names` and those the node knows.
    """
    redactor = Redactor(names=[*names, *_own_names()])
    texts: dict[str, bytes] = {}
    parts: dict[str, str] = {}
    until, room = clock() + TOTAL_S, _MOST_TOTAL
    for name, limit, argv in PARTS:
        left = until - clock()
        if left < 1:
            parts[name] = f"not collected: all parts together have {TOTAL_S:g} s"
            continue
        text, parts[name] = _ask(run, argv, min(limit, left), parent, redactor)
        if text is not None:
            most = min(_MOST_BYTES, room)
            data = redactor.text(text[-_MOST_BYTES:]).encode("utf-8", "replace")
            if len(data) > most:
                parts[name] += f", the last {most} bytes"
            texts[name] = data[len(data) - min(most, len(data)) :]
            room -= len(texts[name])
    folder = make_temporary("baremetal-dgx-evidence.", parent)
    path = os.path.join(folder, _NAME)
    try:
        with create(path, 0o600) as handle:
            write_all(handle, _archive(texts))
    except BaseException:
        # What is whole is removed by the playbook that fetches it.
        remove_tree(folder)
        raise
    return {"path": path, "parts": parts}


def _own_names() -> list[str]:
    """The names of this host, and of the people on it."""
    host = socket.gethostname()
    people = [one.pw_name for one in pwd.getpwall() if one.pw_uid >= _FIRST_PERSON]
    with contextlib.suppress(OSError):
        # Not all people of a directory are listed; those who worked here have a home.
        people += os.listdir("/home")
    return [host, host.partition(".")[0], *(name for name in people if name != "nobody")]


def _ask(
    run: CommandRunner, argv: tuple[str, ...], limit: float, parent: str, redactor: Redactor
) -> tuple[str | None, str]:
    """Return what a command reports, None where there is no such command, and how it ended."""
    with temporary_folder("baremetal-dgx-report.", parent) as folder:
        file = os.path.join(folder, "report.log")
        result = run([file if word == _FILE else word for word in argv], timeout_s=limit)
        how = "collected" if result.ok else redactor.text(result.describe(1)).replace(file, _FILE)
        if result.outcome == MISSING:
            return None, how
        text = _written(file) if _FILE in argv else result.text
    return (text if result.ok else f"{text}\n{how}\n"), how


def _written(file: str) -> str:
    """Return the text of a file that a program has written, by its name or with .gz. OSError."""
    try:
        return read_bytes(file, _MOST_TOTAL).decode("utf-8", "replace")
    except FileNotFoundError:
        pass
    try:
        packed = read_bytes(f"{file}.gz", _MOST_TOTAL)
    except FileNotFoundError:
        return ""
    try:
        with gzip.open(io.BytesIO(packed)) as handle:
            return handle.read(_MOST_TOTAL).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        return f"report.log.gz cannot be read: {error}\n"


def _archive(texts: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o640
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
