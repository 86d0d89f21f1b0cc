# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks all BMCs once, and returns the records of what they say."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from .._core.files import write_atomic
from .._core.record import Record, stamped, utc_text
from .access import ask_bmcs, by_node, loaded, refuse_factory
from .judge import judge_fleet
from .read import read, read_ipmi


def look(params: Mapping[str, Any], write: bool) -> list[Record]:
    """Return the records of the module's BMCs, and leave them in `output`.

    ToolError if the client library is not installed, OSError of the output.
    """
    bmcs = by_node(params["bmcs"])
    loaded(bmcs)

    def ask(_name: str, bmc: Mapping[str, Any]) -> dict[str, Any]:
        refuse_factory(bmc)
        return (read_ipmi if bmc["protocol"] == "ipmi" else read)(bmc, params["timeout_s"])

    records = stamped(judge_fleet(bmcs, *ask_bmcs(bmcs, ask, params)), utc_text())
    if write and params["output"]:
        path = os.path.join(params["output"], "records.json")
        write_atomic(path, json.dumps([one.as_data() for one in records]) + "\n")
    return records
