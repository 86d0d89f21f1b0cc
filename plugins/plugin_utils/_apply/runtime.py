# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""ansible-core and this collection as one archive, which a node's own Python runs.

It is made of what the control machine itself runs: so nodes need no package, no mirror and no way
to the outside, and never have another release than the control machine. Libraries in C are left
out; each of them has a form in Python, or is not needed to play roles.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible.release import __version__ as core_version

from ...module_utils._core.files import Folder, open_folder
from ...module_utils._core.program import archive

# Distribution -> its package.
_LIBRARIES = {
    "ansible-core": "ansible",
    "jinja2": "jinja2",
    "markupsafe": "markupsafe",
    "packaging": "packaging",
    "pyyaml": "yaml",
}
_COLLECTION = "ansible_collections/baremetal/dgx"
_PARTS = ("meta", "playbooks", "plugins", "roles", "galaxy.yml", "MANIFEST.json")
_LEFT_OUT = (".pyc", ".so", ".md")
_START = "import sys\nfrom ansible.cli.playbook import main\nsys.exit(main())\n"
_SETTINGS = """\
[defaults]
stdout_callback = baremetal.dgx.node_answer
retry_files_enabled = false
host_key_checking = true
nocows = true
nocolor = true
[connection]
pipelining = true
"""


@dataclass(frozen=True)
class Runtime:
    """The archive and its digest."""

    digest: str
    data: bytes


def _python() -> list[int]:
    """Return the oldest Python that this ansible-core runs on."""
    required = str(importlib.metadata.metadata("ansible-core")["Requires-Python"])
    found = re.search(r">=\s*(\d+)\.(\d+)", required)
    return [int(part) for part in found.groups()] if found else [3, 10]


def _walk(folder: str) -> Iterator[str]:
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {"__pycache__", "tests"})
        for name in sorted(names):
            if not name.endswith(_LEFT_OUT) and not name.startswith("."):
                yield os.path.join(above, name)


def _paths(root: str) -> dict[str, str]:
    """Return where each file lies, by its path in the archive."""
    found: dict[str, str] = {}
    for package in _LIBRARIES.values():
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.origin:
            raise OSError(f"{package}: is not installed on the control machine")
        folder = os.path.dirname(os.path.abspath(spec.origin))
        for path in _walk(folder):
            found[os.path.relpath(path, os.path.dirname(folder))] = path
    for part in _PARTS:
        whole = os.path.join(root, part)
        for path in _walk(whole) if os.path.isdir(whole) else [whole]:
            if os.path.isfile(path):
                found[f"{_COLLECTION}/{os.path.relpath(path, root)}"] = path
    return found


def _state(paths: dict[str, str]) -> str:
    """Return a digest that differs when one of the files does, without reading them."""
    made = hashlib.sha256()
    for name, path in sorted(paths.items()):
        status = os.stat(path)
        made.update(f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n".encode())
    return made.hexdigest()[:16]


def _make(paths: dict[str, str]) -> bytes:
    texts: dict[str, str] = {}
    for name, path in paths.items():
        try:
            with open(path, encoding="utf-8", newline="") as stream:
                texts[name] = stream.read()
        except UnicodeDecodeError:
            # A picture or a library in C.
            continue
    texts["ansible.cfg"] = _SETTINGS
    for name in _LIBRARIES:
        # ansible-core asks for the release of a library there.
        release = importlib.metadata.version(name)
        folder = f"{name.replace('-', '_')}-{release}.dist-info"
        texts[f"{folder}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n"
    about = {"ansible_core": core_version, "python": _python()}
    texts["manifest.json"] = json.dumps(about) + "\n"
    return archive(texts, _START)


def runtime(root: str, state_dir: str) -> Runtime:
    """Return the archive; it is kept below state_dir until one of its files is another. OSError."""
    paths = _paths(root)
    name = f"runtime-{_state(paths)}.zip"
    with open_folder(os.path.join(state_dir, "apply"), make=0o755) as folder:
        try:
            data = folder.read(name)
        except FileNotFoundError:
            data = _make(paths)
            _replace(folder, name, data)
    return Runtime(hashlib.sha256(data).hexdigest(), data)


def _replace(folder: Folder, name: str, data: bytes) -> None:
    """Keep this archive and none of those before it."""
    folder.write(name, data, sync=False)
    for old in folder.names():
        if old.startswith("runtime-") and old != name:
            folder.remove(old)
