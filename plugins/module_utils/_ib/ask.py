# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks the fabric adapters of a node, and judges them by its rails and an earlier reading."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, Sequence

from .._core.record import Record
from .._core.run import CommandRunner
from .._host.pci import Tree
from .counters import Sample, baseline
from .ethtool import ask_ethernet
from .judge import Request, WantedRail, find_rail, judge_node
from .read import ask_links, load_sample, sample_now
from .sysfs import load_hcas

_BOOT = "/proc/sys/kernel/random/boot_id"


def ask_rails(
    run: CommandRunner, node: str, wanted: Sequence[WantedRail], options: Mapping[str, Any]
) -> tuple[list[Record], Sample]:
    """Return the records of a node's rails, and the reading to keep for the next run.

    `options` are those of ib_health.
    """
    hcas = load_hcas(Tree(options["sysfs"]))
    found = [(rail, find_rail(rail, [hca for hca in hcas if not hca.ignored])) for rail in wanted]
    rails = [hca for _rail, hca in found if hca is not None]
    keys = {hca.device: f"hca:{node}/rail{rail.rail}" for rail, hca in found if hca}
    ethernet = ask_ethernet(run, rails, options["timeout_s"])
    before = load_sample(options["state_file"])
    now = sample_now(rails, keys, _BOOT, ethernet)
    request = Request(**{name: options[name] for name in Request.__dataclass_fields__})
    asked = ask_links(run, rails, options["timeout_s"]) if options["optics"] else {}
    records = judge_node(node, hcas, wanted, request, asked, before, now, ethernet)
    # By its GUID an adapter is followed when it is moved.
    guids = {keys[hca.device]: (f"GUID {hca.node_guid}",) for hca in rails if hca.node_guid}
    records = [
        replace(record, evidence=(*record.evidence, *guids.get(record.subject, ())))
        for record in records
    ]
    return records, baseline(before, now, options["window_s"])
