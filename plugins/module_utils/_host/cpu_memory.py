# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Processors and memory as the kernel shows them, against the profile of the node. Pure but load().

Sources: Documentation/ABI of the kernel for sysfs-devices-system-cpu and sysfs-devices-edac.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping

from .._core.record import FAIL, NOT_MEASURED, Record
from .memory import Memory, count_cpus, load_memory
from .thresholds import (
    BALANCE,
    CORES,
    CORRECTED,
    CPUS,
    KNOWN_ANSWERS,
    NUMA_NODES,
    PATTERNS,
    SIZE,
    SOCKETS,
    UNCORRECTED,
)

_DAY_S = 86400
_NUMBER = re.compile(r"^\d+$")


@dataclass(frozen=True)
class Host:
    """What the kernel shows; None is what could not be read.

    `corrected` and `uncorrected` are counts since the boot by place (mc0/dimm3), None where no EDAC
    driver is loaded.
    """

    cpus: int | None = None
    sockets: int | None = None
    cores: int | None = None
    memory: Memory = field(default_factory=Memory)
    corrected: Mapping[str, int] | None = None
    uncorrected: Mapping[str, int] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    uptime_s: float | None = None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None


def _whole(path: str) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if _NUMBER.match(text) else None


def load(sysfs: str, proc: str) -> Host:
    """Read the trees; what is missing or unreadable is None."""
    cpu = os.path.join(sysfs, "devices/system/cpu")
    packages: set[int] = set()
    cores: set[tuple[int, int]] = set()
    for folder in glob.glob(os.path.join(cpu, "cpu[0-9]*/topology")):
        package = _whole(os.path.join(folder, "physical_package_id"))
        core = _whole(os.path.join(folder, "core_id"))
        # Its own die numbers its cores again.
        die = _whole(os.path.join(folder, "die_id")) or 0
        if package is not None and core is not None:
            packages.add(package)
            cores.add((package * 1000 + die, core))
    corrected, uncorrected, labels = _edac(os.path.join(sysfs, "devices/system/edac/mc"))
    uptime = (_read(os.path.join(proc, "uptime")) or "").split()
    return Host(
        cpus=count_cpus(_read(os.path.join(cpu, "online"))),
        sockets=len(packages) or None,
        cores=len(cores) or None,
        memory=load_memory(sysfs, proc),
        corrected=corrected,
        uncorrected=uncorrected,
        labels=labels,
        uptime_s=float(uptime[0]) if uptime and re.match(r"^\d+(\.\d+)?$", uptime[0]) else None,
    )


def _edac(root: str) -> tuple[dict[str, int] | None, dict[str, int] | None, dict[str, str]]:
    """Counts by place: those of each DIMM, and those of a controller that no DIMM is blamed for."""
    corrected: dict[str, int] = {}
    uncorrected: dict[str, int] = {}
    labels: dict[str, str] = {}
    for folder in sorted(glob.glob(os.path.join(root, "mc[0-9]*"))):
        name = os.path.basename(folder)
        places = {name: ("ce_noinfo_count", "ue_noinfo_count", folder)}
        dimms = glob.glob(os.path.join(folder, "dimm[0-9]*")) or glob.glob(
            os.path.join(folder, "rank[0-9]*")
        )
        for dimm in sorted(dimms):
            place = f"{name}/{os.path.basename(dimm)}"
            places[place] = ("dimm_ce_count", "dimm_ue_count", dimm)
            labels[place] = (_read(os.path.join(dimm, "dimm_label")) or "").strip()
        if not dimms:
            places[name] = ("ce_count", "ue_count", folder)
        for place, (ce_name, ue_name, where) in places.items():
            ce, ue = _whole(os.path.join(where, ce_name)), _whole(os.path.join(where, ue_name))
            if ce is not None:
                corrected[place] = ce
            if ue is not None:
                uncorrected[place] = ue
    return corrected or None, uncorrected or None, labels


def judge_host(
    node: str, host: Host, profile: Mapping[str, Any], edac: bool = True
) -> Iterator[Record]:
    """Yield the records of what the kernel shows; `profile` as the plan writes profile_data."""
    yield from _processors(node, host, profile.get("cpu") or {})
    yield from _sizes(node, host, profile.get("real_memory_mb"))
    if edac:
        yield from _errors(node, host)


def _processors(node: str, host: Host, want: Mapping[str, Any]) -> Iterator[Record]:
    subject = f"node:{node}"
    if not want:
        remedy = "settings: write cpu into the profile of the node"
        yield Record("cpu.count", subject, NOT_MEASURED, "the profile does not say", remedy=remedy)
        return
    cores = int(want["sockets"]) * int(want["cores_per_socket"])
    found = (
        (CPUS, host.cpus, cores * int(want["threads_per_core"])),
        (SOCKETS, host.sockets, int(want["sockets"])),
        (CORES, host.cores, cores),
        (NUMA_NODES, len(host.memory.nodes_kib) or None, int(want["numa_nodes"])),
    )
    for question, value, wanted in found:
        yield question.judge(subject, value, wanted)


def _sizes(node: str, host: Host, least_mib: Any) -> Iterator[Record]:
    subject = f"node:{node}"
    nodes, without_cpus = host.memory.nodes_kib, host.memory.without_cpus
    lines = {
        number: f"NUMA node {number}: {nodes[number] // 1024} MiB"
        + (" without CPUs" if number in without_cpus else "")
        for number in sorted(nodes)
    }
    if least_mib is None:
        remedy = "settings: write real_memory_mb into the profile of the node"
        text = "the profile does not say"
        yield Record("memory.size", subject, NOT_MEASURED, text, remedy=remedy)
    else:
        yield SIZE.judge(subject, host.memory.mib, int(least_mib), evidence=lines.values())
    # A GB200 has 34 nodes: two with CPUs, the memory of the GPUs, and empty ones.
    equal = [number for number in lines if number not in without_cpus]
    if len(equal) > 1:
        sizes = [nodes[number] for number in equal]
        share = round(1 - min(sizes) / max(sizes), 4)
        yield BALANCE.judge(subject, share, evidence=[lines[number] for number in equal])


def _errors(node: str, host: Host) -> Iterator[Record]:
    subject = f"node:{node}"
    if host.corrected is None or host.uncorrected is None:
        text = "no EDAC driver counts memory errors"
        remedy = "settings: load the EDAC driver of the platform, or switch this off with edac"
        for check in ("memory.uncorrected", "memory.corrected"):
            yield Record(check, subject, NOT_MEASURED, text, remedy=remedy)
        return
    counts = {place: count for place, count in host.uncorrected.items() if count}
    evidence = _places(counts, host)
    yield UNCORRECTED.judge(subject, sum(counts.values()), evidence=evidence)
    most = max(host.corrected.values())
    counts = {place: count for place, count in host.corrected.items() if count}
    value = None
    if host.uptime_s is not None:
        # The first day counts as a whole one: two errors in a minute are not 2880 a day.
        value = round(most / max(1.0, host.uptime_s / _DAY_S), 2)
    yield CORRECTED.judge(subject, value, evidence=_places(counts, host))


def _places(counts: Mapping[str, int], host: Host) -> list[str]:
    worst = sorted(counts, key=lambda place: (-counts[place], place))[:8]
    return [
        f"{place} {host.labels.get(place, '')}".strip() + f": {counts[place]}" for place in worst
    ]


@dataclass(frozen=True)
class Load:
    """The answer of the worker of one CPU; `wrong` are lines, `problem` why it has no answer."""

    cpu: int
    rounds: int = 0
    mib: int = 0
    wrong: tuple[str, ...] = ()
    wrong_memory: tuple[str, ...] = ()
    problem: str = ""


def judge_load(
    node: str, reported: list[Load], seconds: float, asked_mib: int | None
) -> Iterator[Record]:
    """Yield what the known answers say.

    `asked_mib` is the memory of all workers together, None where none shall be written.
    """
    subject = f"node:{node}"
    lost = [f"CPU {one.cpu}: {one.problem}" for one in reported if one.problem]
    for question, of, done in (
        (KNOWN_ANSWERS, "wrong", "rounds"),
        (PATTERNS, "wrong_memory", "mib"),
    ):
        if question is PATTERNS and not asked_mib:
            if asked_mib is not None:
                text = f"less than 1 MiB for each of {len(reported)} CPUs"
                remedy = "settings: raise memory_mib or memory_share (of MemAvailable)"
                yield Record(question.check, subject, NOT_MEASURED, text, remedy=remedy)
            continue
        lines = [line for one in reported for line in getattr(one, of)]
        amount = sum(getattr(one, done) for one in reported)
        idle = [one.cpu for one in reported if not one.problem and not getattr(one, done)]
        unit = "rounds" if done == "rounds" else f"MiB of {asked_mib} MiB written and read"
        text = f"{amount} {unit} on {len(reported)} CPUs in {seconds:.0f} s"
        value = len(lines) if lines or (reported and not lost and not idle) else None
        evidence = [*lines[:8], *lost[:4]]
        if idle:
            evidence.append(
                f"nothing was done in this time on {len(idle)} CPUs, CPU {idle[0]} first"
            )
        remedy = (
            question.remedy if lines else "look: dmesg (out of memory?), or give it more seconds"
        )
        record = question.judge(subject, value, text=text, remedy=remedy, evidence=evidence)
        if record.status == FAIL or value is not None:
            yield record
        else:
            text += "; not all of them have answered"
            yield Record(
                question.check, subject, NOT_MEASURED, text, evidence=tuple(evidence), remedy=remedy
            )
