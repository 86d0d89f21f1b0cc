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

from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils._core.schema import Problem
from ...module_utils._gpu.settings import PROFILE, layout_of
from .._contract.profiles import Profile
from .._inventory.values import Value, is_hidden

VARIABLE = "nvidia_driver_mig"
# What the unit baremetal-dgx-mig links to the capabilities of an instance, whose own numbers are
# known only when it is made.
LINKS = "/dev/baremetal-dgx/mig"
# Compute slices of a GPU (NVIDIA's MIG user guide, partitioning).
_SLICES = 7

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
        slices = sum(int(name.partition("g")[0]) for name in names)
        if slices > _SLICES:
            where = f"{value.path}[{index}].profiles"
            wrong = f"{slices} slices, and a GPU has {_SLICES}"
            yield Problem(where, wrong, "write fewer instances, or smaller ones")
    try:
        layout_of(value.value, profile.gpus.count)
    except ValueError as error:
        yield Problem(value.path, str(error), "write each GPU of the node's profile once")


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
