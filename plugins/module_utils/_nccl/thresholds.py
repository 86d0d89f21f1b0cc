# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is asked of an all_reduce, the threshold, its source, and what to do. Data only."""

from __future__ import annotations

from .._core.question import Question

_LOOK_SLOW = (
    "look: run gpu_health (NVLink, clocks) and fabric_pairs; then this with NCCL_ALGO=Ring, which "
    "does not hide a slow link"
)
# If neither the site nor a published source has a threshold.
GIVE_ONE = "settings: give busbw_threshold_gbps, for example from equal nodes that are well"

ONE_NODE, PAIR, MORE = "one node", "two nodes", "more nodes"
# Bytes of a message. The published thresholds are for this size on: above it the bus bandwidth no
# longer grows (469.84 at 8 GiB and 470.75 at 16 GiB on a pair of OCI's), below it does, and healthy
# nodes are slower there (a pair of AWS p5 has 437.79 at 2 GiB and 480 at 8 GiB).
PUBLISHED_FROM = 8 << 30
_AZN = "Azure azurehpc-health-checks, NCCL all_reduce of one node"
_PUBLISHED = {
    ("a100", ONE_NODE): (228.0, _AZN),
    ("h100", ONE_NODE): (460.0, _AZN),
    ("h200", ONE_NODE): (431.0, _AZN),
    ("b200", ONE_NODE): (600.0, "AWS gpu-cluster-healthcheck, NCCL over NVLink of B200"),
    ("h100", PAIR): (440.0, "OCI ncclscout, pairs of nodes with 8 H100"),
    ("h100", MORE): (400.0, "Azure ai-infrastructure-on-azure, 8 x 400 Gb/s, 16 GiB: warns below"),
}

BUSBW = Question(
    "nccl.busbw", "bus bandwidth of all_reduce, by the site", ">=", None, "GB/s",
    "threshold_source of nccl_all_reduce", _LOOK_SLOW,
)  # fmt: skip
# By GPU type and number of nodes; 8 GPUs a node. Published floors only: a run that was measured
# once is not a floor.
PUBLISHED: dict[tuple[str, str], Question] = {
    (gpu, many): BUSBW._replace(
        what=f"bus bandwidth of all_reduce, {gpu}, {many}", value=value, source=source
    )
    for (gpu, many), (value, source) in _PUBLISHED.items()
}
BUSBW_OF_GROUP = BUSBW._replace(
    what="bus bandwidth of all_reduce of a group, a share of the rate of its rails",
    source="Azure azurehpc replaces below 300 GB/s of 8 x 400 Gb/s (three quarters); the same "
    "share of the rails in use",
)
CORRECT = Question(
    "nccl.correct", "wrong values of the sum, by nccl-tests", "==", 0, "wrong values",
    "the sums are exact, nccl-tests README",
    "replace: wrong sums mean a broken GPU, NVLink or NIC; drain the nodes, run gpu_burn and "
    "fabric_pairs, which name the part",
)  # fmt: skip
CORRECT_ROWS = Question(
    "nccl.correct", "wrong rows of the sum, without MPI", "==", 0, "wrong rows",
    "sums of small integers are exact in any order",
    "replace: wrong sums mean a broken GPU or NVLink, here or at a neighbour; drain the node and "
    "run gpu_burn, which names the GPU",
)  # fmt: skip
