# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules that judge a fabric document alike; module_utils/_fabric/ask.py."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that judge a fabric."""

    DOCUMENTATION = r"""
options:
  cluster_name:
    description: What the picture is called.
    type: str
    default: ""
  output:
    description:
      - Folder for C(records.json), C(findings.txt), C(fabric.svg) and the answers themselves in
        C(raw/). It is made where it does not exist. Nothing is written when not given.
    type: path
attributes:
  check_mode:
    details: In check mode the fabric is judged, findings do not fail the task, and nothing is
      written.
"""

    PLAN = r"""
options:
  plan:
    description: The cable plan, as C(cluster_plan) writes it to C(.dgx/plan/fabric/cables.json).
    type: dict
  plan_file:
    description: Path of such a file on the host that runs the module.
    type: path
"""

    KNOWN = r"""
options:
  other_hosts:
    description: Hosts outside the plan that may be attached to the fabric, such as login nodes.
    type: list
    elements: str
    default: []
  places:
    description: Where machines stand, by name, each with C(rack) and C(rack_unit); for the text.
    type: dict
    default: {}
  least_share:
    description: Share of the devices found that must be in the plan. Below it they are of another
      cluster, which is an error, unless more than half of the plan was found.
    type: float
    default: 0.25
"""

    SWEEP = r"""
options:
  interval_s:
    description:
      - Seconds between the two readings of the error counters. V(0) reads them once, and then no
        counter is judged.
      - Twelve minutes (V(720)) suffice for the limit of a 400 Gb/s link.
      - With O(sweep_files) it is the time between the two saved readings.
    type: float
    default: 60
  sweep_files:
    description:
      - Judge saved answers instead of asking the fabric. Paths by name of the answer,
        C(ibnetdiscover) (needed), C(ibnetdiscover.stderr), C(iblinkinfo), C(ibqueryerrors),
        C(ibqueryerrors-2), C(sminfo), C(saquery) and C(sminfo-LID), as the module saves them in
        C(raw/).
    type: dict
  sweep_at:
    description:
      - When the answers of O(sweep_files) were taken, as V(2026-01-31T23:59:59Z) in UTC, for C(at)
        of the records. When not given their records have no time, and the gate goes by none.
    type: str
    default: ""
  timeout_s:
    description: Seconds that one command may take.
    default: 120
  outstanding:
    description:
      - Packets of the discovery that are under way at once. V(0) leaves it to the tool.
      - More is faster, but on a real fabric switches drop packets when there are too many.
    type: int
    default: 0
  tool_options:
    description: Options for every command, for example C(-C) and the device to look from.
    type: list
    elements: str
    default: []
  tool_environment:
    description: Environment variables for the commands, and for nothing else.
    type: dict
    default: {}
"""
