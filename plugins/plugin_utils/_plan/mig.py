# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which GPUs of a node MIG divides, by the one variable that declares it. Pure.

nvidia_driver_mig is an input of the role that makes the instances. Slurm's GPUs, health checks and
validation follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._core.schema import Problem
from ...module_utils._gpu.settings import PROFILE, layout_of
from .._contract.profiles import Profile
from .._inventory.values import Value, is_hidden

VARIABLE = "nvidia_driver_mig"
# What the unit baremetal-dgx-mig links to the capabilities of an instance, whose own numbers are
# known only when it is made.
LINKS = "/dev/baremetal-dgx/mig"
# Slices of a GPU (NVIDIA's MIG user guide, partitioning).
_COMPUTE, _MEMORY = 7, 8

Layout = Mapping[int, tuple[str, ...]]


def layout_for(variables: Mapping[str, Value], profile: Profile | None) -> Layout:
    """Return the instances of each GPU that has any; nothing where check_mig finds a problem."""
    value = variables.get(VARIABLE)
    if value is None or profile is None or profile.gpus is None or is_hidden(value.value):
        return {}
    try:
        layout = layout_of(value.value, profile.gpus.count)
    except ValueError:
        return {}
    return {gpu: profiles for gpu, profiles in sorted(layout.items()) if profiles}


def check_mig(variables: Mapping[str, Value], profile: Profile | None) -> Iterator[Problem]:
    """Yield layouts that the node's GPUs cannot have."""
    value = variables.get(VARIABLE)
    if value is None or profile is None or profile.gpus is None:
        return
    if is_hidden(value.value):
        yield Problem(value.path, "not known before hosts are asked", "write the value itself")
        return
    for index, entry in enumerate(value.value):
        names = entry.get("profiles") or ()
        if not all(PROFILE.match(str(name)) for name in names):
            # The role says which.
            return
        where, remedy = f"{value.path}[{index}].profiles", "write fewer instances, or smaller ones"
        compute, memory = _slices(names, profile.gpus.memory_mib)
        if compute > _COMPUTE:
            yield Problem(where, f"{compute} slices, and a GPU has {_COMPUTE}", remedy)
        if memory > _MEMORY:
            yield Problem(where, f"{memory} slices of memory, and a GPU has {_MEMORY}", remedy)
    try:
        layout_of(value.value, profile.gpus.count)
    except ValueError as error:
        yield Problem(value.path, str(error), "write each GPU of the node's profile once")


def _slices(names: Sequence[str], memory_mib: int | None) -> tuple[int, int]:
    """Return the slices that instances take, compute and memory.

    A name has the compute slices and the GB, rounded: 1g.35gb of an H200 are two slices of memory,
    3g.71gb four. Where the GPU's memory is not declared, the compute slices give the least that a
    profile takes: one for 1g, two for 2g, four for 3g and 4g, eight for 7g.
    """
    compute = memory = 0
    for name in names:
        slices, gb = (int(number) for number in re.findall(r"\d+", name)[:2])
        compute += slices
        least = 1 << (slices - 1).bit_length()
        memory += max(least, round(gb * 1024 * _MEMORY / memory_mib) if memory_mib else 0)
    return compute, memory


def gres(profile: Profile, layout: Layout) -> list[dict[str, Any]]:
    """Return the instances as Slurm's GPUs: a type for each kind, a device for each instance.

    A device is the GPU's file and the two capabilities, with commas between (gres.conf man page,
    MultipleFiles).
    """
    gpus = profile.gpus
    if gpus is None:
        return []
    found: dict[str, dict[str, Any]] = {}
    for gpu, profiles in layout.items():
        for position, name in enumerate(profiles):
            number = profiles[:position].count(name)
            link = f"{LINKS}/gpu{gpu}-{name}-{number}"
            entry = found.setdefault(
                name,
                {"name": "gpu", "type": name, "count": 0, "files": [], "cores": [], "links": []},
            )
            entry["count"] += 1
            entry["files"].append(f"/dev/nvidia{gpu},{link}-gi,{link}-ci")
            entry["cores"] += gpus.cores[gpu : gpu + 1]
    return [found[name] for name in sorted(found)]
