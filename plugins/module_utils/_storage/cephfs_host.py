# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What a node has of CephFS: the kernel's client, mount.ceph, keys; and how it mounts with that.

Monitors are asked whether they take connections, before something waits for them.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import socket
import time
from functools import partial
from typing import Any, Iterable, Mapping

from .._core.child import DONE, Call, ask_all
from .._core.run import CommandRunner, ToolError
from .cephfs import (
    KERNEL,
    Client,
    conf_monitors,
    driver_of,
    kernel_client,
    keyring_path,
    knows_ms_mode,
    mon_addresses,
    ms_mode_of,
    release_of,
    render,
    secret_path,
)
from .mounts.read import read

# CAP_SYS_MODULE in /proc/self/status
_SYS_MODULE = 1 << 16


def can_load(status: str) -> bool:
    """Tell from /proc/self/status whether this node may load modules at all."""
    found = re.search(r"(?m)^CapBnd:\s*([0-9a-f]+)$", status)
    return found is None or bool(int(found.group(1), 16) & _SYS_MODULE)


def stale_files(used: set[str], marker: str) -> list[str]:
    """Return the files of clients that no mount uses any more."""
    found = []
    for path in sorted(glob.glob(keyring_path("*"))):
        name = os.path.basename(path)[len("ceph.client.") : -len(".keyring")]
        if name not in used and read(path).startswith(marker):
            found.append(path)
            if os.path.exists(secret_path(name)):
                found.append(secret_path(name))
    return found


def client_of(run: CommandRunner) -> Client:
    """Return what this node can mount with."""
    release = platform.release()
    folder = f"/lib/modules/{release}"
    has_kernel, reason = kernel_client(
        release,
        read("/proc/filesystems"),
        read(f"{folder}/modules.dep"),
        read(f"{folder}/modules.builtin"),
        can_load(read("/proc/self/status")),
    )
    # ceph-conf comes with mount.ceph, which does not tell its own release.
    version = run(["ceph-conf", "--version"], timeout_s=20)
    return Client(has_kernel, reason, release_of(version.out), knows_ms_mode(release))


def write_down(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mounts as the module returns them. Raises ToolError, ValueError."""
    mounts, drivers, states, wrong = [], {}, [], []
    addresses: dict[str, None] = {}
    for one in params["mounts"]:
        driver = driver_of(one, params["driver"], client)
        drivers[one["name"]] = driver
        chosen = one.get("driver") or params["driver"]
        if driver == KERNEL and not client.kernel:
            wrong.append(f"{one['name']}: {client.reason}; write driver: fuse, or auto")
        why = client.reason if chosen == "auto" else "declared"
        word = "the kernel's client" if driver == KERNEL else "ceph-fuse"
        states.append(f"{one['name']} on {one['mountpoint']}: {word} ({why})")
        ms_mode = ms_mode_of(one, driver, client, params["common"]["ms_mode"])
        addresses.update(dict.fromkeys(mon_addresses(params["monitors"], ms_mode)))
        mounts.append(
            render(one, driver, client, params["fsid"], params["monitors"], params["common"])
        )
    monitors = conf_monitors(params["monitors"])
    if wrong:
        raise ToolError("\n".join(wrong))
    answer_s = params["answer_s"]
    refusals = unanswered(addresses, answer_s) if answer_s else {}
    warnings = [refusals_line(refusals, len(addresses))] if refusals else []
    used = {one["client"] for one in params["mounts"]}
    return {
        "keyed": sorted(name for name in used if os.path.exists(keyring_path(name))),
        "mounts": mounts,
        "drivers": drivers,
        "lines": [*states, *warnings],
        "kernel": client.kernel,
        "stale": stale_files(used, params["marker"]),
        "conf_monitors": monitors,
        "warnings": warnings,
    }


def _refusal(address: str, limit_s: float) -> str:
    """Return why the monitor takes no connection; empty if it does."""
    host, _colon, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s):
            return ""
    except OSError as error:
        # A timeout has no number.
        return os.strerror(error.errno) if error.errno else "no answer"


def unanswered(addresses: Iterable[str], limit_s: float) -> dict[str, str]:
    """Return, by address, why monitors take no connection. It takes limit_s and a moment at most.

    Each is asked by its own process, since a name may be looked up for longer.
    """
    calls = [Call(one, partial(_refusal, one, limit_s), limit_s + 1) for one in addresses]
    answers = ask_all(calls, time.monotonic() + limit_s + 1)
    reported = {
        name: one.value if one.how == DONE else one.message for name, one in answers.items()
    }
    return {name: why for name, why in reported.items() if why}


def refusals_line(refusals: dict[str, str], asked: int) -> str:
    """Return what to report of monitors that take no connection."""
    names = ", ".join(f"{name} ({why})" for name, why in sorted(refusals.items()))
    many = f"{len(refusals)} of {asked} monitors take" if asked > 1 else "the one monitor takes"
    return (
        f"{many} no connection: {names}; see that they run and that route and firewall let these "
        "ports pass, and compare the addresses with `ceph mon dump`"
    )
