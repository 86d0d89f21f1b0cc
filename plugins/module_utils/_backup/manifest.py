# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is in a copy: the digest of each file, the rows of each table, release and numbers.

It is made of the copied files themselves before they go into the repository, and is next to them.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Iterator, Mapping

from .._core.files import read_json, write_atomic
from .._core.run import ToolError

NAME = "manifest.json"
_VERSION = 1
_PART = 1 << 20


def paths(folder: str) -> Iterator[str]:
    """Yield all files below a folder but the manifest, relative to it."""
    for above, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(above, name), folder)
            if path != NAME:
                yield path


def digests(folder: str) -> dict[str, str]:
    """Return path -> SHA-256 of all files below a folder but the manifest. OSError."""
    return {path: digest(os.path.join(folder, path)) for path in sorted(paths(folder))}


def digest(path: str) -> str:
    """Return the SHA-256 of a file, which is read in parts. OSError."""
    found = hashlib.sha256()
    with open(path, "rb") as handle:
        for part in iter(lambda: handle.read(_PART), b""):
            found.update(part)
    return found.hexdigest()


def make(
    folder: str, at: str, facts: Mapping[str, Any], files: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Write the manifest of a folder into it and return it; `files` are known digests. OSError."""
    data = {"version": _VERSION, "at": at, **facts}
    data["files"] = digests(folder) if files is None else files
    write_atomic(os.path.join(folder, NAME), json.dumps(data, indent=1) + "\n", 0o600)
    return data


def read(folder: str) -> dict[str, Any]:
    """Return the manifest of a folder; ToolError for none, and for one that is not understood."""
    path = os.path.join(folder, NAME)
    try:
        data = read_json(path, "what is in the copy")
    except (OSError, ValueError) as error:
        raise ToolError(f"{path}: {error}") from error
    if not isinstance(data, dict) or data.get("version") != _VERSION or "files" not in data:
        raise ToolError(f"{path}: of another version, or none")
    return data


def differing(data: Mapping[str, Any], folder: str) -> list[str]:
    """Return each file that is missing, added, or not what it was. OSError."""
    wanted, found = data["files"], digests(folder)
    return sorted(path for path in {*wanted, *found} if wanted.get(path) != found.get(path))
