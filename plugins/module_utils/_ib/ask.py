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
from .counters import baseline
from .ethtool import ask_ethernet
from .judge import Request, WantedRail, find_rail, judge_node
from .link_log import keep_readings, links_of
from .read import ask_links, load_sample, sample_now, store_sample
from .sysfs import load_hcas

# Of the log of links: more than passes between two weekly validations.
_DAYS = 10.0
_BOOT = "/proc/sys/kernel/random/boot_id"


def ask_rails(
    run: CommandRunner,
    node: str,
    wanted: Sequence[WantedRail],
    options: Mapping[str, Any],
    write: bool = True,
) -> tuple[list[Record], list[list[Any]], str]:
    """Return the records of a node's rails, the readings of its links, and a warning or "".

    `options` are those of ib_health. With `write` the counters are kept for the next run, and the
    log of links gets what is due; one that cannot be written keeps what it has, and the present
    readings are returned all the same.
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
    log = options["link_log"]
    due = keep_readings(run, log, wanted, hcas, asked, now, options["timeout_s"], write=write)
    warning = ""
    try:
        if write:
            store_sample(options["state_file"], baseline(before, now, options["window_s"]))
    except OSError as error:
        warning = f"the reading cannot be kept: {error}; the next run has no window"
    return records, links_of(log, _DAYS, due), warning
