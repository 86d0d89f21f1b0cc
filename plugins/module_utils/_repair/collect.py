# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""An archive of what a node reports, taken before a step of repair changes it."""

from __future__ import annotations

import io
import os
import tarfile
import time
from typing import Any, Mapping

from .._core.files import create, make_temporary, write_all
from .._core.run import MISSING, CommandRunner

# Name, seconds, and the command. NVIDIA wants its bug report with every return of a GPU
# (docs.nvidia.com/deploy/rma-process); it takes minutes where a GPU hangs.
PARTS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("kernel.log", 60, ("dmesg", "--time-format", "iso")),
    ("gpus.txt", 60, ("nvidia-smi", "-q")),
    ("pci.txt", 60, ("lspci", "-vv")),
    ("units.txt", 60, ("systemctl", "--failed", "--no-pager")),
    ("bug-report.txt", 300, ("nvidia-bug-report.sh", "--output-file", "-")),
)
# The end of a text says what happened last.
_MOST_BYTES = 16 * 1024 * 1024
_NAME = "collected.tar.gz"


def collect(run: CommandRunner, parent: str) -> dict[str, Any]:
    """Write the archive below `parent`; returns its path, and how each part ended. OSError."""
    texts: dict[str, str] = {}
    parts: dict[str, str] = {}
    for name, limit, argv in PARTS:
        result = run(argv, timeout_s=limit)
        parts[name] = "collected" if result.ok else result.describe(1)
        if result.outcome != MISSING:
            texts[name] = result.text if result.ok else f"{result.text}\n{parts[name]}\n"
    path = os.path.join(make_temporary("baremetal-dgx-evidence.", parent), _NAME)
    with create(path, 0o600) as handle:
        write_all(handle, _archive(texts))
    return {"path": path, "parts": parts}


def _archive(texts: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in texts.items():
            data = text.encode("utf-8", "replace")[-_MOST_BYTES:]
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o640
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
