# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Containers that part of Slurm would not have, and images that no host would import. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...module_utils._core.nodeset import fold
from ...module_utils._core.schema import Problem
from .._contract.profiles import Profile
from .._inventory.values import Value, is_hidden
from .nodes import Node

Values = Mapping[str, Value]
_NAMES = ("source", "state", "builder", "images", "importer")


def _given(values: Values, name: str, default: Any = None) -> Any:
    return values[name].value if name in values else default


def _wants(values: Values, role: str) -> bool:
    return (
        _given(values, f"{role}_source", "none") != "none"
        and _given(values, f"{role}_state", "present") == "present"
    )


def check_containers(
    nodes: Sequence[Node],
    valid: Mapping[str, Values],
    written: Mapping[str, Values],
    profiles: Mapping[str, Profile],
) -> Iterator[Problem]:
    """Yield what is wrong with pyxis and with images; of what is not known yet, nothing."""
    here = {node.name: valid[node.name] for node in nodes if node.present}
    shells = {node.name for node in nodes if node.runs_jobs or "login_nodes" in node.groups}
    # In the order in which enroot_importer looks for one (_inputs/containers.py).
    importers = [
        node.name
        for group in ("login_nodes", "gpu_nodes", "cpu_nodes")
        for node in nodes
        if node.present and group in node.groups
    ]
    arm = {
        node.name
        for node in nodes
        if node.name in importers
        and (profile := profiles.get(node.profile or ""))
        and profile.is_grace
    }
    slurm = shells | {node.name for node in nodes if "slurm_controllers" in node.groups}
    for role, check, members in (
        ("pyxis", _check_pyxis, slurm),
        ("enroot", _check_images, shells),
        ("enroot", partial(_check_architecture, importers=importers), arm),
    ):
        names = [f"{role}_{name}" for name in _NAMES]
        unknown = (
            name in written[host] and (name not in here[host] or is_hidden(here[host][name].value))
            for host in here
            for name in names
        )
        if not any(unknown):
            yield from check(here, [name for name in here if name in members])


def _check_pyxis(here: Mapping[str, Values], members: Sequence[str]) -> Iterator[Problem]:
    """Yield who would lack the plug-in, and a builder that would not build it."""
    wanting = [name for name in members if _wants(here[name], "pyxis")]
    if not wanting:
        return
    lacking = [name for name in members if name not in wanting]
    if lacking:
        values = here[lacking[0]]
        state = "pyxis_state" if _given(values, "pyxis_source", "none") != "none" else ""
        place = values.get(state or "pyxis_source") or here[wanting[0]]["pyxis_source"]
        wrong = (
            f"{fold(sorted(lacking))} would lack the plug-in, whose line is for all of Slurm: for "
            "controllers, login hosts and all that run jobs"
        )
        yield Problem(place.path, wrong, "write the same for all of them, in group_vars/all")
    builders = {here[name]["pyxis_builder"] for name in wanting if "pyxis_builder" in here[name]}
    for builder in sorted(builders, key=lambda one: one.path):
        if builder.value not in wanting:
            wrong = f"'{builder.value}' gets no plug-in, and none would be built"
            yield Problem(builder.path, wrong, f"write one of {fold(sorted(wanting))}")


def _check_images(here: Mapping[str, Values], members: Sequence[str]) -> Iterator[Problem]:
    """Yield lists of images that no host with enroot has."""
    having = {
        name: _given(here[name], "enroot_images")
        for name in members
        if _wants(here[name], "enroot") and _given(here[name], "enroot_images")
    }
    found: dict[Problem, None] = {}
    for values in here.values():
        images, importer = values.get("enroot_images"), values.get("enroot_importer")
        if images is None or not images.value or _given(values, "enroot_state") == "absent":
            continue
        if importer is not None and importer.value not in having:
            wrong = f"'{importer.value}' has no enroot or no enroot_images, and would import none"
            found[Problem(importer.path, wrong, "leave it out, or write a host with both")] = None
        elif importer is None and images.value not in having.values():
            wrong = "no host with enroot has this list, and none would import it"
            remedy = "write it for hosts with enroot_source, or leave it out"
            found[Problem(images.path, wrong, remedy)] = None
    yield from found


def _check_architecture(
    here: Mapping[str, Values], members: Sequence[str], importers: Sequence[str]
) -> Iterator[Problem]:
    """Yield images for these nodes, with ARM processors, that a host of another kind imports."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in members:
        values = here[name]
        images = _given(values, "enroot_images")
        if not images or not _wants(values, "enroot"):
            continue
        first = (
            one
            for one in importers
            if _wants(here[one], "enroot") and _given(here[one], "enroot_images") == images
        )
        importer = _given(values, "enroot_importer") or next(first, "")
        if importer in members or importer not in importers:
            continue
        for index, image in enumerate(images):
            if not image.get("arch"):
                place = f"{values['enroot_images'].path}[{index}].arch"
                found.setdefault((place, importer), []).append(name)
    for (place, importer), having in found.items():
        wrong = f"missing, and {fold(having)} would get the image of {importer}'s processor"
        remedy = (
            "write aarch64, or x86_64 for an image of other nodes, and remove an image that was "
            "imported without it"
        )
        yield Problem(place, wrong, remedy)
