# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The files that are made of a cable plan, and the plan out of a list of cables. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import places_of
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.render import topology

from ...module_utils._core.schema import Problem
from ...module_utils._fabric.cable_lists import Rows, cables_csv, is_ufm, take_own
from ...module_utils._fabric.model import CablePlan, plan_to_data
from ...module_utils._fabric.text import json_text
from .netlist import netlist, node_name_map
from .page import cables_html
from .ufm import take_ufm, ufm_csv

# What may be in the folder of the fabric; what a plan does not have is taken away.
FILES = (
    "cables.json",
    "cables.csv",
    "cables.html",
    "places.json",
    "ufm.csv",
    "node-name-map",
    "ibsim.net",
    "topology.conf",
    "topology.yaml",
)


def fabric_files(plan: CablePlan, plan_data: Mapping[str, Any]) -> dict[str, str]:
    """Return file name → text; {} for a cluster without a fabric."""
    if not plan.switches:
        return {}
    places = places_of(plan_data)
    slurm = {
        "topology": plan_data["slurm"]["topology"],
        "topology_plugin": "tree",
        "block_sizes": (),
        "partitions": (),
    }
    return {
        "cables.json": json_text(plan_to_data(plan)),
        "cables.csv": cables_csv(plan, places),
        "cables.html": cables_html(plan, places, plan_data["cluster"]["name"]),
        "places.json": _places_text(plan_data),
        "ufm.csv": ufm_csv(plan),
        "node-name-map": node_name_map(plan),
        "ibsim.net": netlist(plan),
        **topology({**slurm, "topology_format": "conf"}),
        **topology({**slurm, "topology_format": "yaml"}),
    }


def _places_text(plan_data: Mapping[str, Any]) -> str:
    """Return racks and units of all machines that have one, for the technician's instructions."""
    places = {
        node["name"]: {"rack": node["rack"], "rack_unit": node["rack_unit"]}
        for node in plan_data["nodes"]
        if node["rack"]
    }
    places.update(plan_data["cluster"]["fabric"].get("switch_places", {}))
    return json.dumps(places, indent=1) + "\n"


def read_cables(
    devices: CablePlan, content: bytes, file: str
) -> tuple[CablePlan | None, list[Problem]]:
    """Return the plan that a list of cables describes, in our form or UFM's, or what is wrong.

    `devices` is who must be there (plan_devices); `file` is what errors call the list.
    """
    rows = Rows(devices, file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = content[: exc.start].count(b"\n") + 1
        return None, [Problem(f"{file}:{line}", "is not UTF-8 text", "save the list as UTF-8")]
    (take_ufm if is_ufm(text) else take_own)(rows, text)
    plan = rows.plan()
    return plan, rows.problems


def cable_counts(plan: CablePlan) -> dict[str, int]:
    """Return how many cables there are of each kind."""
    return dict(Counter(cable.kind for cable in plan.cables))


def cable_line(plan: CablePlan) -> str:
    """Return the cables as a line for the operator."""
    counts = cable_counts(plan)
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    count = len(plan.reserved)
    reserved = f"; {count} port{'s are' if count > 1 else ' is'} reserved" if count else ""
    return f"cables: {kinds or 'none known yet'}{reserved}"
