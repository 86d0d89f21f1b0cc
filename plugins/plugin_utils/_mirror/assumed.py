# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What a role learns on the node before it installs, and what is assumed here. Pure.

A mirror is made where no node can be asked, so each row says what is generous: rather a package too
many in the folder than one too few on the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...module_utils._driver.packages import branch_of, select
from ...module_utils._driver.plan import cuda_of
from ...module_utils._driver.states import request_of
from .platforms import Platform

Ask = Callable[[str], Any]

# In place of the kernel's release, where the roles ask `uname -r`: the newest that the source has.
KERNELS = {"Debian": "amd64", "Ubuntu": "generic"}


def _kernel(_ask: Ask, platform: Platform) -> dict[str, Any]:
    return {"__infiniband_kernel": {"stdout": KERNELS.get(platform.facts["distribution"], "")}}


def _cephfs(_ask: Ask, _platform: Platform) -> dict[str, Any]:
    # Which of both a mount takes depends on the kernel of the node.
    return {"__cephfs_client": {"drivers": {"one": "kernel", "other": "fuse"}}}


def _driver(ask: Ask, platform: Platform) -> dict[str, Any]:
    asked = ask("__nvidia_driver_request")
    if asked["source"] in ("preinstalled", "none"):
        return {}
    request = request_of(asked)
    name, version = platform.release
    kernel = KERNELS.get(platform.facts["distribution"], "")
    found = select(
        f"{name}{version.split('.')[0] if name != 'ubuntu' else version}", request, kernel
    )
    if found.errors:
        raise ValueError("; ".join(found.errors))
    headers = [f"linux-headers-{kernel}"] if found.dkms and kernel else []
    return {
        "__nvidia_driver_plan": {
            "present": [*found.locked, *found.nvlink, *asked["extra"], *headers],
            "held": [],
            "removals": [],
            "missing": [],
            "stream": found.stream,
            "pin": f"{request.version}-*" if request.version else f"{branch_of(request)}.*",
            "findings": [],
        }
    }


def _dcgm(ask: Ask, _platform: Platform) -> dict[str, Any]:
    version = ask("nvidia_driver_version") or ask("nvidia_driver_branch")
    known = cuda_of(version) if version else None
    # Without a declared driver any of both may be on the node.
    return {} if ask("dcgm_cuda") else {"__dcgm_cuda": [str(known)] if known else ["12", "13"]}


ROWS: dict[str, Callable[[Ask, Platform], dict[str, Any]]] = {
    "cephfs": _cephfs,
    "dcgm": _dcgm,
    "infiniband": _kernel,
    "nvidia_driver": _driver,
}
