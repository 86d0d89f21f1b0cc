# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is asked of pairs of adapters, the threshold, its source, and what to do. Data only."""

from __future__ import annotations

from .._core.question import Question

# The median of all flows that no finding explains. What is wrong everywhere shows nowhere else.
FLEET = Question(
    "fabric.pairs.fleet", "median of the flows, by the site", ">=", None, "Gb/s",
    "threshold_source of fabric_pairs",
    "all are slow: look for what they have in common, a setting (PCIe, MTU, firmware, GPUDirect "
    "path) rather than a part",
)  # fmt: skip
_AZURE = "Azure azurehpc-health-checks, ib_write_bw with GPUDirect, 8 MiB: {} Gb/s of {}"
_SICHEK = "scitix/sichek, ib_write_bw one way: {} Gb/s of {}"
_IMBUE = "imbue-ai/cluster-health, ib_write_bw -b: {} Gb/s of 2 x 400{}"
_PUBLISHED = {
    (False, True, 400): (380.0, _AZURE.format(380, 400)),
    (False, True, 200): (180.0, _AZURE.format(180, 200)),
    (False, False, 400): (360.0, _SICHEK.format(360, 400)),
    (False, False, 200): (175.0, _SICHEK.format(175, 200)),
    (True, True, 400): (720.0, _IMBUE.format(720, " with GPUDirect")),
    (True, False, 400): (300.0, _IMBUE.format(300, " from host memory")),
}
_WAYS = {False: "one way", True: "both ways at once"}
_MEMORY = {False: "host memory", True: "memory of the GPUs"}
# For one adapter, by ways (both?), memory (of the GPUs?) and rate in Gb/s.
PUBLISHED: dict[tuple[bool, bool, int], Question] = {
    (both, gpus, rate): FLEET._replace(
        what=f"median of the flows, {rate} Gb/s {_WAYS[both]}, {_MEMORY[gpus]}",
        value=value,
        source=source,
    )
    for (both, gpus, rate), (value, source) in _PUBLISHED.items()
}
# For other rates nothing is published; the strictest threshold of the same kind is this share.
SHARE = 0.9
UNPUBLISHED = FLEET._replace(
    what="median of the flows, at other rates",
    source=f"none published for {{rate:g}} Gb/s: {SHARE:.0%} of the rate, as for 400 Gb/s",
)
OTHERS = Question(
    "fabric.pairs.part", "flows over a part against the others of this run", ">=", None, "Gb/s",
    "median of {flows} flows of this run, less 3 standard deviations",
    "look at the part that is named, then replace it",
)  # fmt: skip
