# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Building a SPANK plug-in from its sources with the headers of the Slurm that runs here."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from typing import Any, Mapping, Sequence

from ..._core.files import (
    NO_OTHER_WRITER,
    copy_tree,
    open_folder,
    read_bytes,
    require_own_tree,
    temporary_folder,
    text_if_readable,
)
from ..._core.run import CommandRunner, ToolError
from .plugstack import fingerprint, header_version, is_source, same_release, slurm_version

_ELF = b"\x7fELF"
_TIME_TO_ANSWER_S = 20


def digests(folder: str) -> dict[str, str]:
    """Return SHA-256 by relative path of all source files; ToolError where there is no Makefile."""
    if not os.path.isfile(os.path.join(folder, "Makefile")):
        raise ToolError(f"source: {folder} has no Makefile; name the directory of the sources")
    found = {}
    for place, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            relative = os.path.relpath(path, folder)
            if is_source(relative) and os.path.isfile(path):
                with open(path, "rb") as handle:
                    found[relative] = hashlib.sha256(handle.read()).hexdigest()
    return found


def installed_version(run: CommandRunner) -> str:
    """Return the version of the Slurm that runs here; ToolError where none answers."""
    answer = run(["srun", "--version"], timeout_s=_TIME_TO_ANSWER_S)
    version = slurm_version(answer.text)
    if not version:
        raise ToolError(f"Slurm's version is not known: {answer.describe()}")
    return version


def check_headers(paths: Sequence[str], version: str) -> None:
    """Raise ToolError unless the headers are those of this version."""
    for path in paths:
        found = header_version(text_if_readable(path) or "")
        if found and not same_release(found, version):
            raise ToolError(
                f"{path} is of Slurm {found}, and {version} runs here; a plug-in built with it "
                "would not load: install the headers of the same version"
            )
        if found:
            return
    raise ToolError(f"Slurm's headers are not there ({', '.join(paths)}); install them")


def load(run: CommandRunner, params: Mapping[str, Any]) -> dict[str, str]:
    """Return slurm, fingerprint and path of the build that is wanted."""
    version = installed_version(run)
    mark = fingerprint(version, platform.machine(), digests(params["source"]))
    stem = params["plugin"].rsplit(".so", 1)[0]
    path = os.path.join(params["destination"], f"{stem}-{mark}.so")
    return {"slurm": version, "fingerprint": mark, "path": path}


def build(run: CommandRunner, params: Mapping[str, Any], target: str) -> None:
    """Run make in a copy of the sources and keep what it made; ToolError when it made nothing."""
    require_own_tree(params["source"])
    with temporary_folder("spank-build-") as folder:
        copy = os.path.join(folder, "source")
        copy_tree(
            params["source"], copy, ignore=shutil.ignore_patterns("*.o", "*.so", "*.lo", ".git")
        )
        answer = run(["make", "-C", copy, *params["make_arguments"]], timeout_s=params["timeout_s"])
        made = os.path.join(copy, params["plugin"])
        if not answer.ok:
            raise ToolError(f"the plug-in cannot be built: {answer.describe()}")
        if not os.path.isfile(made):
            raise ToolError(f"make ended well, and made no {params['plugin']}")
        with open(made, "rb") as handle:
            if handle.read(4) != _ELF:
                raise ToolError(f"make made a {params['plugin']} that is not a library")
        # Slurm's daemons load it as root.
        with open_folder(params["destination"], 0o755, NO_OTHER_WRITER) as kept:
            kept.write(os.path.basename(target), read_bytes(made))
