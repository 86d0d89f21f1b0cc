# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks this node about its adapters: the tools, the processes that use them, the last reading."""

from __future__ import annotations

import glob
import json
import os
import time
from typing import Any, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._ib_counters import (
    Sample,
    sample_from_data,
    sample_to_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_mlxlink import (
    LinkReport,
    parse_mlxlink,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_sysfs import Hca
from ansible_collections.baremetal.dgx.plugins.module_utils._run import MISSING, CommandRunner

# NVIDIA's MFT, and the same tool of the distributions' package mstflint.
_LINK_TOOLS = ("mlxlink", "mstlink")
_ASK = ("--show_module", "--show_counters", "--json")


def ask_link(run: CommandRunner, hca: Hca, timeout_s: float) -> LinkReport | str:
    """Return what the first tool that is installed says of a device, or why it says nothing."""
    if hca.pci is None:
        return f"{hca.device} has no PCI address that mlxlink could be asked for"
    for tool in _LINK_TOOLS:
        answer = run([tool, "-d", hca.pci, *_ASK], timeout_s=timeout_s)
        if answer.outcome == MISSING:
            continue
        if not answer.ok:
            return answer.describe(2)
        try:
            return parse_mlxlink(answer.out)
        except ValueError as error:
            return f"{tool} -d {hca.pci}: {error}"
    return f"neither {' nor '.join(_LINK_TOOLS)} is installed"


def ask_links(
    run: CommandRunner, hcas: Sequence[Hca], timeout_s: float
) -> dict[str, LinkReport | str]:
    """Return the answers for all devices by name; after a hang the others are not asked.

    A tool that hangs on one adapter hangs on the next, and a check that runs before a job must end.
    """
    reports: dict[str, LinkReport | str] = {}
    hung = ""
    for hca in hcas:
        found = hung or ask_link(run, hca, timeout_s)
        reports[hca.device] = found
        if isinstance(found, str) and "did not end within" in found and not hung:
            hung = f"not asked, since for {hca.device} {found}"
    return reports


def users_of_verbs(proc: str = "/proc") -> list[str]:
    """Return `pid (name)` of the processes that hold an RDMA device open."""
    found = []
    for folder in glob.glob(os.path.join(proc, "[0-9]*")):
        links = glob.glob(os.path.join(folder, "fd", "*"))
        if any(_target(link).startswith("/dev/infiniband/uverbs") for link in links):
            found.append(f"{os.path.basename(folder)} ({_name(folder)})")
    return sorted(found)


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _name(folder: str) -> str:
    try:
        with open(os.path.join(folder, "comm"), encoding="utf-8", errors="replace") as handle:
            return handle.read().strip()
    except OSError:
        return "?"


def sample_now(hcas: Sequence[Hca], names: dict[str, str], boot_file: str) -> Sample:
    """Return the counters of all ports; `names` has the key of a port without a GUID, by device."""
    try:
        with open(boot_file, encoding="ascii") as handle:
            boot = handle.read().strip()
    except OSError:
        boot = "unknown"
    return Sample(
        boot=boot,
        # counts on while the node sleeps, and no step of the clock moves it
        uptime_s=time.clock_gettime(time.CLOCK_BOOTTIME),
        ports={
            port.guid or names.get(hca.device, hca.device): dict(port.counters)
            for hca in hcas
            for port in hca.ports[:1]
        },
    )


def load_sample(path: str) -> Sample | None:
    """Return the last reading, None where there is none or it is not readable."""
    try:
        with open(path, encoding="utf-8") as handle:
            return sample_from_data(json.load(handle))
    except (OSError, ValueError):
        return None


def store_sample(path: str, sample: Sample) -> None:
    """Keep a reading; a run that is killed leaves the old one."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as handle:
        json.dump(sample_to_data(sample), handle)
    os.replace(temporary, path)


def hca_data(hca: Hca) -> dict[str, Any]:
    """Return a device as mappings, lists and scalars, for the answer of a module."""
    return {
        "device": hca.device,
        "pci": hca.pci,
        "vendor": hca.vendor,
        "model": hca.model,
        "psid": hca.psid,
        "firmware": hca.firmware,
        "node_guid": hca.node_guid,
        "description": hca.description,
        "numa": hca.numa,
        "netdevs": list(hca.netdevs),
        "max_read_request": hca.max_read_request,
        "acs_redirecting": None if hca.redirecting is None else list(hca.redirecting),
        "ignored": hca.ignored,
        "pcie": [
            {
                "lower": link.lower,
                "upper": link.upper,
                "speed_gts": link.speed_gts,
                "width": link.width,
                "able_speed_gts": link.able_speed_gts,
                "able_width": link.able_width,
            }
            for link in hca.links
        ],
        "ports": [
            {
                **{key: value for key, value in vars(port).items() if key != "counters"},
                "pkeys": None if port.pkeys is None else list(port.pkeys),
                "counters": dict(port.counters),
            }
            for port in hca.ports
        ],
    }
