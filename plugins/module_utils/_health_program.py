# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The health program of a node as one file, made on the controller."""

from __future__ import annotations

import functools
import hashlib
import json

from ansible_collections.baremetal.dgx.plugins.module_utils import (
    _fabric_model,
    _gate_reason,
    _gpu_health,
    _gpu_health_device,
    _gpu_health_events,
    _gpu_host,
    _gpu_marks,
    _gpu_read,
    _health_ask,
    _health_children,
    _health_events,
    _health_local,
    _health_log,
    _health_main,
    _health_report,
    _health_run,
    _health_settings,
    _health_slurm,
    _health_state,
    _ib_counters,
    _ib_health,
    _ib_health_ports,
    _ib_host,
    _ib_mlxlink,
    _ib_sysfs,
    _kernel_log,
    _lock,
    _nvml,
    _nvml_sweep,
    _nvml_types,
    _pci_config,
    _pci_path,
    _program,
    _records,
    _run,
    _run_alone,
    _slurm_state,
    _slurm_tools,
    _xid,
    _xid_table,
)

MODULES = (
    _fabric_model, _gate_reason, _gpu_health, _gpu_health_device, _gpu_health_events, _gpu_host,
    _gpu_marks, _gpu_read, _health_ask, _health_children, _health_events, _health_local,
    _health_log, _health_main, _health_report, _health_run, _health_settings, _health_slurm,
    _health_state, _ib_counters, _ib_health, _ib_health_ports, _ib_host, _ib_mlxlink, _ib_sysfs,
    _kernel_log, _lock, _nvml, _nvml_sweep, _nvml_types, _pci_config, _pci_path, _records, _run,
    _run_alone, _slurm_state, _slurm_tools, _xid, _xid_table,
)  # fmt: skip
_SHEBANG = "#!{python} -IS\n"
# Unpacked once, since Python keeps compiled what it finds in a folder and not what is in an
# archive. A folder that anybody else could write into is passed over.
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
    # Somebody, or a full disk, has spoilt the folder; the archive is whole.
    shutil.rmtree(folder, ignore_errors=True)
    sys.path[:] = [one for one in sys.path if one != folder]
    for name in [one for one in sys.modules if one.startswith("ansible_collections")]:
        del sys.modules[name]
    from %(main)s import main
sys.exit(main(sys.argv[1:]))
"""


@functools.lru_cache(maxsize=4)
def program(python: str = "/usr/bin/python3") -> bytes:
    """Return the program: the same bytes for the same sources. `python` runs it on the node."""
    texts = _program.sources(MODULES)
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]
    start = _START % {"digest": digest, "main": _health_main.__name__}
    shebang = _SHEBANG.format(python=python)
    return shebang.encode("ascii") + _program.archive(texts, start)
