# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Applies a node's roles on the node itself. The control machine starts it over SSH, by its source.

It reads a request (a line of JSON, and after it the parts that the line announces) and answers with
one line of JSON. Parts are kept under their digests, so that each is sent once: `runtime` is
ansible-core with this collection, `values` what the plan has for this host.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import sys
import zipfile
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Mapping

from .._core.files import NO_OTHER, Folder, open_folder
from .._core.lock import BusyError, host_lock
from .._core.run import ENDED, CommandResult, CommandRunner, run

FOLDER = "/var/lib/baremetal-dgx/apply"
# Beside FOLDER's other entries: what a path below the control machine's plan becomes on the node.
STATE = "state"
PLAYBOOK = "ansible_collections/baremetal/dgx/playbooks/here/apply.yml"
_MANIFEST = "manifest.json"
_INVENTORY, _VALUES = "inventory.yml", "values.json"
_LONGEST_LINE = 1 << 16


class TornError(Exception):
    """A request that did not arrive as a whole."""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _request(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the request and its parts."""
    try:
        request = json.loads(stream.readline(_LONGEST_LINE))
        parts = {name: stream.read(size) for name, size in request["sizes"].items()}
        if any(_digest(data) != request["digests"][name] for name, data in parts.items()):
            raise ValueError("a part is not what its digest says")
    except (ValueError, KeyError, TypeError) as error:
        raise TornError(f"the request arrived in part: {error}") from error
    return request, parts


def _open(place: str) -> Folder:
    return open_folder(place, make=0o700, deny=NO_OTHER)


def _runtime(digest: str) -> str:
    return f"runtime-{digest[:16]}"


def _keep_runtime(folder: Folder, name: str, data: bytes) -> None:
    """Unpack a runtime, and remove those before it."""
    new = f"{name}.new"
    for old in folder.names():
        if old.startswith("runtime-"):
            folder.remove_tree(old)
    folder.folder(new, make=0o700).close()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(os.path.join(folder.path, new))
    # Else a power failure may leave the name, and below it files without their text.
    _sync_disk(folder)
    folder.rename(new, name)


def _sync_disk(folder: Folder) -> None:
    """Have all that was written to the folder's file system on disk, and wait for no other one."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(folder.descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), folder.path)


def _manifest(folder: Folder, name: str) -> dict[str, Any] | None:
    """Return the manifest of a runtime; None if it is not here, or not whole."""
    try:
        with folder.folder(name) as runtime:
            found: dict[str, Any] = json.loads(runtime.read(_MANIFEST))
    except (OSError, ValueError):
        return None
    return found


def _lacking(folder: Folder, digests: Mapping[str, str]) -> list[str]:
    """Return the parts that are not here yet."""
    lacks = [] if _manifest(folder, _runtime(digests["runtime"])) else ["runtime"]
    try:
        same = _digest(folder.read(_VALUES)) == digests["values"]
    except FileNotFoundError:
        same = False
    return lacks if same else [*lacks, "values"]


def _unpack_values(folder: Folder) -> None:
    """Write the inventory of this one host, and the files that its values name."""
    values = json.loads(folder.read(_VALUES))
    folder.write(_INVENTORY, values["inventory"], mode=0o600, sync=False)
    folder.remove_tree(STATE)
    for path, text in sorted(values["files"].items()):
        parts = path.split("/")
        if ".." in parts:
            raise PermissionError(f"{path} is not a path below {STATE}")
        above = os.path.join(folder.path, STATE, *parts[:-1])
        with open_folder(above, make=0o700) as below:
            below.write(parts[-1], text, mode=0o600, sync=False)


def _environment(folder: str, runtime: str) -> dict[str, str]:
    return {
        # A node's own ansible.cfg is for other runs.
        "ANSIBLE_CONFIG": os.path.join(runtime, "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": runtime,
        "ANSIBLE_HOME": os.path.join(folder, "home"),
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
    }


def _play(folder: Folder, request: Mapping[str, Any], ask: CommandRunner) -> dict[str, Any]:
    """Run the roles and return how that ended."""
    name = _runtime(request["digests"]["runtime"])
    runtime, manifest = os.path.join(folder.path, name), _manifest(folder, name) or {}
    here = sys.version_info[:2]
    if here < tuple(manifest["python"]):
        needed = ".".join(str(part) for part in manifest["python"])
        return {
            "why": f"Python {here[0]}.{here[1]} is on the node, and ansible-core "
            f"{manifest['ansible_core']} needs {needed}; use engine ansible for it"
        }
    argv = [sys.executable, "-IS", runtime, "-i", os.path.join(folder.path, _INVENTORY)]
    argv += ["--check"] if request["check"] else []
    argv.append(os.path.join(runtime, PLAYBOOK))
    for variable in [word for word in os.environ if word.startswith("ANSIBLE_")]:
        del os.environ[variable]
    ended = ask(argv, request["limit_s"], _environment(folder.path, runtime))
    if ended.outcome != ENDED:
        return {"why": _how(ended), "unmeasured": True}
    try:
        reported: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
    except (IndexError, ValueError):
        # The next question asks for it again: it may have lost files.
        folder.remove_tree(name)
        return {"why": f"the roles gave no answer: {_how(ended)}"}
    if not ended.ok and not reported["failed"]:
        return {"why": _how(ended)}
    return {"ran": reported}


def _how(ended: CommandResult) -> str:
    """Return how ansible-playbook ended; its name is a long path."""
    return replace(ended, argv=("ansible-playbook",)).describe(3)


def answer(
    stream: BinaryIO, place: str = FOLDER, ask: CommandRunner | None = None
) -> dict[str, Any]:
    """Return what a request leads to.

    `lacks` are parts to send; `ran` is how the roles ended; `why` says what prevented them, with
    `unmeasured` if they did not end or never began; `busy` that another run is at work here.
    """
    try:
        request, parts = _request(stream)
        with host_lock("apply", request["wait_s"]) as lock, _open(place) as folder:
            if "runtime" in parts:
                _keep_runtime(folder, _runtime(request["digests"]["runtime"]), parts["runtime"])
            if "values" in parts:
                folder.write(_VALUES, parts["values"], mode=0o600)
            lacks = _lacking(folder, request["digests"])
            if lacks:
                return {"lacks": lacks}
            try:
                _unpack_values(folder)
                # The roles may outlive this program, which ends with its connection.
                return _play(folder, request, ask or partial(run, keeps=(lock,)))
            finally:
                # With what lookups of the roles have made there.
                folder.remove_tree(STATE)
                folder.remove(_INVENTORY)
    except BusyError as error:
        return {"busy": str(error)}
    except TornError as error:
        return {"why": str(error), "unmeasured": True}
    except (OSError, zipfile.BadZipFile) as error:
        return {"why": str(error)}


def main(_arguments: list[str]) -> int:
    """Answer the request on standard input."""
    sys.stdout.write(json.dumps(answer(sys.stdin.buffer)) + "\n")
    return 0
