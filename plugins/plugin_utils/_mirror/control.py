# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the control machine needs: ansible-core, the collections in use, and this one."""

from __future__ import annotations

import os
import sys
import tarfile

from ...module_utils._core.files import make_folder, open_folder, remove_tree, rename
from ...module_utils._core.run import CommandRunner, ToolError

_FETCH_S = 1800.0
_LIST = "FILES.json"


def fetch_wheels(run: CommandRunner, target: str, core: str) -> None:
    """Fetch ansible-core, and `ansible`, which has the other collections in it; ToolError.

    For the Python and the architecture of this machine. What is there is not fetched again.
    """
    make_folder(target)
    words = [sys.executable, "-m", "pip", "download", "-q", "--dest", target]
    answer = run([*words, f"ansible-core=={core}", "ansible"], _FETCH_S)
    if not answer.ok:
        raise ToolError(
            f"PyPI cannot be reached: {answer.describe(3)}; run this on a machine with Internet "
            "access, or with mirror_control: false"
        )


def build_collection(run: CommandRunner, root: str, target: str) -> str:
    """Put an artefact of this collection in place; returns its path."""
    partial = f"{target}/.partial"
    make_folder(target)
    remove_tree(partial)
    make_folder(partial)
    if os.path.exists(f"{root}/galaxy.yml"):
        program = os.path.join(os.path.dirname(sys.executable), "ansible-galaxy")
        program = program if os.path.exists(program) else "ansible-galaxy"
        path = os.path.realpath(root)
        words = [program, "collection", "build", path, "--output-path", partial]
        # Ansible refuses every other encoding.
        answer = run(words, 300, {"LC_ALL": "C.UTF-8"})
        if not answer.ok:
            raise ToolError(f"the collection cannot be built: {answer.describe(3)}")
    else:
        # An installed collection has the lists that an artefact has.
        with tarfile.open(f"{partial}/baremetal-dgx.tar.gz", "w:gz") as archive:
            for name in sorted(os.listdir(root)):
                archive.add(f"{root}/{name}", name)
    (name,) = os.listdir(partial)
    if not _same(f"{partial}/{name}", f"{target}/{name}"):
        rename(f"{partial}/{name}", f"{target}/{name}")
    remove_tree(partial)
    with open_folder(target) as kept:
        # A web server gives it out, whatever the umask of the control machine.
        kept.attributes(name, 0o644)
    return f"{target}/{name}"


def _same(fresh: str, old: str) -> bool:
    """Whether two artefacts have the same files; their own times always differ."""
    if not os.path.exists(old):
        return False
    return _listed(fresh) == _listed(old) != b""


def _listed(path: str) -> bytes:
    with tarfile.open(path) as archive:
        found = archive.extractfile(_LIST)
        return found.read() if found else b""
