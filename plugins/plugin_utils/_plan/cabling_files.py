# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The cable plan from where the inventory says: the reference design, or a list on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._core.schema import Problem
from ...module_utils._fabric.model import CablePlan
from .._cables.files import read_cables
from .cables import plan_cables, plan_devices

_WHERE = "all.cluster_fabric.cabling.file"


@dataclass(frozen=True)
class Cabling:
    """The cables, or None and what is wrong with the list of them."""

    plan: CablePlan | None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def find_cables(plan_data: Mapping[str, Any], directory: str | None) -> Cabling:
    """Return the cables of a valid plan; a relative list is in the inventory's directory."""
    cabling = plan_data["cluster"]["fabric"]["cabling"]
    if cabling["source"] == "computed":
        try:
            return Cabling(plan_cables(plan_data))
        except ValueError as exc:
            # All else that can keep the design from being cabled has been checked before.
            where, remedy = "all.cluster_fabric.reserved_ports", "write another port"
            return Cabling(None, (str(Problem(where, str(exc), remedy)),))
    devices = plan_devices(plan_data)
    name = cabling["file"]
    path = os.path.join(directory or "", os.path.expanduser(name))
    try:
        with open(path, "rb") as stream:
            content = stream.read()
    except FileNotFoundError:
        if cabling["source"] == "learned":
            note = "is not there yet; until learn_fabric has made it, no cable is known"
            return Cabling(devices, warnings=(f"{_WHERE}: '{name}' {note}",))
        remedy = "write the path of the list, from the inventory's directory on"
        return Cabling(None, (str(Problem(_WHERE, f"there is no file '{name}'", remedy)),))
    except OSError as exc:
        wrong = f"'{name}' cannot be read ({exc.strerror})"
        return Cabling(None, (str(Problem(_WHERE, wrong, "write the path of a readable file")),))
    plan, problems = read_cables(devices, content, os.path.basename(name))
    return Cabling(plan, tuple(str(problem) for problem in problems))
