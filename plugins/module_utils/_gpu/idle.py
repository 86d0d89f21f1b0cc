# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which GPUs a node has, by NVML, and whether they are in use, for tools that load them.

A GPU's place is that of its address in the profile, so that a GPU that is gone does not rename
those behind it; without a profile it is NVML's index, which goes by PCI address too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence

from .._core.names import full_pci
from .._core.record import NOT_MEASURED, Record
from .nvml.sweep import sweep
from .read import Gpu, Sweep

_ASK = "job: drain the node and wait for its jobs; a process that stays is to be ended by its owner"
_UNKNOWN = (
    "look: run gpu_health, which tells why NVML does not answer; busy_ok runs without knowing"
)


@dataclass(frozen=True)
class Gpus:
    """The GPUs by place, why some could not be read, and (place, process) of who uses them."""

    found: Mapping[int, Gpu]
    problems: tuple[str, ...]
    users: tuple[tuple[int, int], ...]

    def names(
        self, serials: Mapping[int, str], numbers: Iterable[int]
    ) -> dict[int, tuple[int, Gpu]]:
        """Return (place, GPU) by DCGM's number: by serial number, else by NVML's index."""
        by_serial: dict[str, int] = {
            gpu.serial: place for place, gpu in self.found.items() if gpu.serial
        }
        by_index = {gpu.index: place for place, gpu in self.found.items()}
        names: dict[int, tuple[int, Gpu]] = {}
        for number in numbers:
            place = by_serial.get(serials.get(number, ""))
            place = by_index.get(number) if place is None else place
            if place is not None:
                names[number] = (place, self.found[place])
        return names


def evidence_of(gpu: Gpu) -> tuple[str, ...]:
    """Return the lines by which a technician finds a GPU."""
    known = (("PCI", gpu.pci), ("UUID", gpu.uuid), ("serial", gpu.serial))
    return (", ".join(f"{name} {value}" for name, value in known if value),)


def look(library: str = "", pci: Sequence[str] = ()) -> Gpus:
    """Ask NVML; `pci` are the addresses of the profile. Never raises because of NVML."""
    return gpus_of(sweep(library), pci)


def gpus_of(found: Sweep, pci: Sequence[str] = ()) -> Gpus:
    """Return what a sweep means for one who wants to load the GPUs."""
    problems = [found.error] if found.error else []
    problems += [f"GPU {index}: {why}" for index, why in sorted(found.stuck.items())]
    slots = {full_pci(address): place for place, address in enumerate(pci)}
    gpus: dict[int, Gpu] = {}
    users: list[tuple[int, int]] = []
    for gpu in found.gpus:
        place = slots.get(full_pci(gpu.pci or ""), gpu.index)
        gpus[place] = gpu
        if gpu.lost:
            problems.append(f"GPU {place}: {gpu.lost}")
        elif gpu.processes is None:
            problems.append(f"GPU {place}: its processes cannot be read")
        else:
            users += [(place, process.pid) for process in gpu.processes]
    if not gpus and not problems:
        problems.append("NVML knows no GPU")
    return Gpus(gpus, tuple(problems), tuple(users))


def busy_record(check: str, node: str, gpus: Gpus) -> Record | None:
    """Return why the GPUs must not be loaded, None where they may."""
    subject = f"node:{node}"
    if gpus.users:
        who = ", ".join(f"GPU {place}: process {pid}" for place, pid in gpus.users[:16])
        return Record(check, subject, NOT_MEASURED, f"not run, GPUs are in use: {who}", remedy=_ASK)
    if gpus.problems:
        text = f"not run, whether GPUs are in use is not known: {'; '.join(gpus.problems[:8])}"
        return Record(check, subject, NOT_MEASURED, text, remedy=_UNKNOWN)
    return None
