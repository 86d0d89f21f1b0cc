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
import re
import time
from typing import Any, Callable, Mapping, Sequence

from .._core.child import DONE, Send, parts_of
from .._core.files import write_atomic
from .._core.names import RAIL_DEVICE, full_pci
from .._core.run import MISSING, TIMED_OUT, CommandRunner
from .._host.pci import Tree
from .counters import Sample, sample_from_data, sample_to_data
from .ethtool import Answer
from .mlxlink import LinkReport, parse_mlxlink
from .sysfs import Hca, serial_number

# NVIDIA's MFT, and the same tool of the distributions' package mstflint.
_LINK_TOOLS = ("mlxlink", "mstlink")
_ASK = ("--show_module", "--show_counters", "--json")
# With the histogram of FEC first: releases and links without it refuse the whole question.
_QUESTIONS = ((*_ASK, "--rx_fec_histogram", "--show_histogram"), _ASK)
# What the tools' own reader of options says (mstflint, cmdparser).
_UNKNOWN = re.compile(r"(unrecognized|unknown|invalid) option|bad input parameter", re.IGNORECASE)

# For all adapters of a node: a ConnectX-7 takes some milliseconds.
_VITAL_S = 10.0


def ask_link(
    run: CommandRunner, hca: Hca, timeout_s: float, questions: list[tuple[str, ...]] | None = None
) -> LinkReport | str:
    """Return what the first installed tool reports about a device, or why it shows nothing.

    Of `questions` the first that is answered counts. One that the tool does not know is taken out,
    so that the next device is not asked in vain; another device may answer what this one does not.
    """
    if hca.pci is None:
        return f"{hca.device} has no PCI address that mlxlink could be asked for"
    asked = list(_QUESTIONS) if questions is None else questions
    for tool in _LINK_TOOLS:
        message = ""
        for question in list(asked):
            answer = run([tool, "-d", hca.pci, *question], timeout_s=timeout_s)
            if answer.outcome == MISSING:
                break
            message = answer.describe(2)
            if answer.outcome == TIMED_OUT:
                return message
            if answer.ok:
                try:
                    report = parse_mlxlink(answer.out)
                except ValueError as error:
                    message = f"{tool} -d {hca.pci}: {error}"
                else:
                    return report
            elif len(asked) > 1 and _UNKNOWN.search(answer.text):
                asked.remove(question)
        if message:
            return message
    return f"neither {' nor '.join(_LINK_TOOLS)} is installed"


def ask_links(
    run: CommandRunner, hcas: Sequence[Hca], timeout_s: float
) -> dict[str, LinkReport | str]:
    """Return the answers for all devices by name; after a hang the others are not asked.

    A tool that hangs on one adapter hangs on the next, and a check that runs before a job must end.
    """
    reports: dict[str, LinkReport | str] = {}
    hung = ""
    questions = list(_QUESTIONS)
    for hca in hcas:
        found = hung or ask_link(run, hca, timeout_s, questions)
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


def sample_now(
    hcas: Sequence[Hca],
    names: dict[str, str],
    boot_file: str,
    ethernet: Mapping[str, Answer] | None = None,
) -> Sample:
    """Return the counters of all ports; `names` has the key of a port without a GUID, by device.

    `ethernet` holds what ethtool says, by device.
    """
    more = {name: found for name, found in (ethernet or {}).items() if not isinstance(found, str)}
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
            port.guid or names.get(hca.device, hca.device): {
                **port.counters,
                **more.get(hca.device, {}),
            }
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
    write_atomic(path, json.dumps(sample_to_data(sample)), sync=False)


def ask_serials(
    tree: Tree, hcas: Sequence[Hca], limit_s: float = _VITAL_S
) -> tuple[dict[str, str], str]:
    """Return the serial numbers by device, and why some are missing, empty if none is.

    The vital product data comes word by word from the card, and one that is broken may not answer:
    so a child reads, and what it has read within the limit counts.
    """

    def read(send: Send) -> None:
        for hca in hcas:
            vital = tree.data("class", "infiniband", hca.device, "device", "vpd")
            send([hca.device, serial_number(vital)])

    answer = parts_of(read, limit_s)
    why = "" if answer.how == DONE else f"vital product data of the adapters: {answer.message}"
    return {device: serial for device, serial in answer.parts if serial}, why


def adapter_data(hca: Hca, serial: str | None = None) -> dict[str, Any]:
    """Return what tells which device of the fabric is which rail of the node."""
    guids = [hca.node_guid, *(port.guid for port in hca.ports)]
    return {
        "device": hca.device,
        "pci": hca.pci,
        "guids": list(dict.fromkeys(guid for guid in guids if guid)),
        "serial": serial,
    }


def hca_data(hca: Hca, serial: str | None = None) -> dict[str, Any]:
    """Return a device as mappings, lists and scalars, for the answer of a module."""
    return {
        "device": hca.device,
        "pci": hca.pci,
        "vendor": hca.vendor,
        "model": hca.model,
        "psid": hca.psid,
        "firmware": hca.firmware,
        "node_guid": hca.node_guid,
        "serial": serial,
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


def misnamed(hcas: Sequence[Hca], rails: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rails whose device has another name than the role gives it."""
    by_pci = {hca.pci: hca for hca in hcas}
    wanted = [
        (rail["rail"], by_pci.get(full_pci(rail["pci"])), RAIL_DEVICE.format(rail=rail["rail"]))
        for rail in rails
    ]
    return [
        {"rail": rail, "device": hca.device, "name": name, "netdevs": list(hca.netdevs)}
        for rail, hca, name in wanted
        if hca is not None and hca.device != name
    ]


def grouped(hcas: Sequence[Hca], key: Callable[[Hca], str | None]) -> dict[str, list[str]]:
    """Return the names of the devices that count by one of their values."""
    groups: dict[str, list[str]] = {}
    for hca in hcas:
        if not hca.ignored:
            groups.setdefault(key(hca) or "not readable", []).append(hca.device)
    return groups
