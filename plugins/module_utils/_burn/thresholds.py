# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The marks of a burn-in for each GPU model, with where they come from. Data, and one look-up.

There is no mark where nobody has published one and none was measured by the project: such a figure
is compared with the other GPUs of the node only. fp8 has none, since the exact form of it (sums
kept in fp32) is slower than the one that public figures are of.
"""

from __future__ import annotations

import re
from typing import Mapping

from .._core.record import Threshold

_AZI = "Azure AI infrastructure acceptance, H100: typical 769, warn 742, replace 715"
_SB = "SuperBench, 729 nodes: typical 261; less 6 % for the spread between good GPUs"
_SB64 = "SuperBench: typical 18.95; less 6 % for the spread between good GPUs"
_DCG = "DCGM, memory_bandwidth of this SKU"
_AZN = "Azure AzNHC"
_LINK = "0.78 of the links' rate, the share that AzNHC asks of an A100 (235 of 300 GB/s)"

# model: quantity: (least value, unit, source)
MARKS: dict[str, dict[str, tuple[float, str, str]]] = {
    "h100": {
        "bf16": (715.0, "TFLOP/s", _AZI),
        "fp16": (715.0, "TFLOP/s", _AZI),
        "hbm": (1905.0, "GB/s", _DCG),
        "down": (48.0, "GB/s", _AZN),
        "up": (48.0, "GB/s", _AZN),
        "peer": (351.0, "GB/s", _LINK),
    },
    "h200": {
        "bf16": (715.0, "TFLOP/s", _AZI + "; the same chip with other memory"),
        "fp16": (715.0, "TFLOP/s", _AZI + "; the same chip with other memory"),
        "hbm": (2212.5, "GB/s", _DCG),
        "down": (48.0, "GB/s", _AZN),
        "up": (48.0, "GB/s", _AZN),
        "peer": (351.0, "GB/s", _LINK),
    },
    "b200": {
        "hbm": (2560.0, "GB/s", _DCG),
        "peer": (702.0, "GB/s", _LINK),
    },
    "a100": {
        "bf16": (245.0, "TFLOP/s", _SB),
        "fp64": (17.8, "TFLOP/s", _SB64),
        "hbm": (1173.0, "GB/s", _DCG),
        "down": (21.0, "GB/s", _AZN),
        "up": (21.0, "GB/s", _AZN),
        "peer": (235.0, "GB/s", _AZN),
    },
}
# The SXM parts; PCIe cards of the same name are slower, and have no marks here.
_MODELS = (
    ("h200", re.compile(r"\bH200\b(?!.*NVL)")),
    ("h100", re.compile(r"\bH100 80GB HBM3\b")),
    ("b200", re.compile(r"\bB200\b")),
    ("a100", re.compile(r"\bA100-SXM4-80GB\b")),
)

# The least share of the node's median that is no finding; good GPUs of one node differ by 5 % and
# more in products (Stas Bekman, Machine Learning Engineering), by little in transfers.
COMPARE = {"product": 0.90, "transfer": 0.95}
COMPARE_SOURCE = "median of the node's GPUs, and 5 median deviations below it"
LEAST_TO_COMPARE = 4
MANY_DEVIATIONS = 5.0

# The slowest twentieth of a phase's seconds against their median.
STEADY = Threshold(">=", 0.85, "of the median", "a GPU that throttles now and then loses more")
LEAST_TO_BE_STEADY = 10
THROTTLED = Threshold("<=", 0.05, "of the seconds", "thermal and power-brake slowdowns of H100: "
                      "none in a node that is cooled and fed as specified")  # fmt: skip
NO_ERRORS = Threshold("==", 0, "errors", "the product of integers is exact; memory keeps its bits")
NO_SLOW_PAIRS = Threshold("==", 0, "pairs", "0.95 of the median of the node's pairs")
NO_XID = Threshold("==", 0, "Xids", "a known load raises none")
NO_ECC = Threshold("==", 0, "errors", "Meta GCM, Azure AzNHC, IBM autopilot: any fails")
# Of products smaller than this the starts take longer than the work.
LEAST_N = 4096


def model_of(name: str) -> str:
    """Return the model that a product name is of, empty for one without marks."""
    return next((model for model, pattern in _MODELS if pattern.search(name)), "")


def threshold(
    model: str, quantity: str, overrides: Mapping[str, float] | None = None
) -> Threshold | None:
    """Return the mark of a quantity, the site's own first; None where there is none."""
    found = MARKS.get(model, {}).get(quantity)
    own = (overrides or {}).get(quantity)
    if own is not None:
        unit = "GB/s" if quantity in ("hbm", "down", "up", "peer") else "TFLOP/s"
        return Threshold(">=", float(own), unit, "the inventory")
    return None if found is None else Threshold(">=", *found)
