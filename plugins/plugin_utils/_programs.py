# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Programs of nodes, each as one file, made on the controller."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping

from ..module_utils._backup import main as _backup_main
from ..module_utils._core import program as _program
from ..module_utils._exporters import fabric as _fabric_collector
from ..module_utils._exporters import slurm as _slurm_collector
from ..module_utils._local import apply as _apply_main
from ..module_utils._node_health import main as _health_main
from ..module_utils._node_validation import main as _validation_main
from ..module_utils._storage import home_quotas, user_folders

# Name -> the module with main.
PROGRAMS = {
    "cluster-backup": _backup_main,
    "fabric-metrics": _fabric_collector,
    "home-quotas": home_quotas,
    "node-apply": _apply_main,
    "node-health": _health_main,
    "slurm-metrics": _slurm_collector,
    "user-folders": user_folders,
}
# Programs that run so often that compiling them each time costs the node more than a folder does.
_UNPACKED = ("node-health",)
# Unpacked once, since Python keeps compiled what it finds in a folder and not what is in an
# archive. A folder that another user could write into is passed over.
_START = """\
import os, shutil, sys, zipfile
above = os.environ.get("NODE_HEALTH_CACHE", "/var/lib/baremetal-dgx/node-health")
folder = os.path.join(above, "program-%(digest)s")
try:
    if not os.path.isdir(folder):
        os.makedirs(above, mode=0o755, exist_ok=True)
        new = "%%s.%%d" %% (folder, os.getpid())
        with zipfile.ZipFile(sys.argv[0]) as archive:
            archive.extractall(new)
        try:
            os.rename(new, folder)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
        for name in os.listdir(above):
            if name.startswith("program-") and not name.startswith(os.path.basename(folder)):
                shutil.rmtree(os.path.join(above, name), ignore_errors=True)
    found = os.lstat(folder)
    if found.st_uid == os.getuid() and not found.st_mode & 0o022:
        sys.path.insert(0, folder)
except OSError:
    pass
try:
    from %(main)s import main
except Exception:
    # Another process or a full disk has damaged the folder; the archive is whole.
    shutil.rmtree(folder, ignore_errors=True)
    sys.path[:] = [one for one in sys.path if one != folder]
    for name in [one for one in sys.modules if one.startswith("ansible_collections")]:
        del sys.modules[name]
    from %(main)s import main
sys.exit(main(sys.argv[1:]))
"""


@functools.lru_cache(maxsize=16)
def program(name: str, python: str = "/usr/bin/python3") -> bytes:
    """Return a program: the same bytes for the same sources. KeyError for an unknown name.

    `python` is the path of the interpreter that runs it on the node.
    """
    main = PROGRAMS[name]
    texts = _program.sources(main)
    start = _program.start_of(main.__name__)
    if name in _UNPACKED:
        digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]
        start = _START % {"digest": digest, "main": main.__name__}
    return f"#!{python} -IS\n".encode("ascii") + _program.archive(texts, start)


def validation_program(work: Mapping[str, str]) -> bytes:
    """Return the program that asks the parts of validate_nodes, with the work of nodes in it.

    `work` is path -> text. It is run from memory, by a Python that the control machine names.
    """
    texts = _program.sources(_validation_main)
    return _program.archive({**texts, **work}, _program.start_of(_validation_main.__name__))
