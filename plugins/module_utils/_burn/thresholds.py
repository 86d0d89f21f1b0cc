# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What gpu_burn asks, the threshold of each question, and its source. Data, and one look-up.

A rate has no threshold for a model if none is published and the project has measured none: it is
compared with the other GPUs of the node only. fp8 has none, since the exact form of it (sums kept
in fp32) is slower than the one that public figures are of.
"""

from __future__ import annotations

import re
from typing import Mapping

from .._core.question import Question

_AZI = "Azure AI infrastructure acceptance, H100: typical 769, warn 742, replace 715"
_SB = "SuperBench, 729 nodes: typical 261; less 6 % for the spread between good GPUs"
_SB64 = "SuperBench: typical 18.95; less 6 % for the spread between good GPUs"
_DCG = "DCGM, memory_bandwidth of this SKU"
_AZN = "Azure AzNHC"
_LINK = "0.78 of the links' rate, the share that AzNHC asks of an A100 (235 of 300 GB/s)"

_RMA = "drain the node, burn this GPU again; where the error returns, return the GPU"
_COOL = "check fans, air flow and the heat sink; nvidia-smi -q -d TEMPERATURE,PERFORMANCE"
_SLOW = "burn again after a reboot; if it is still slower than other GPUs of its model, return it"
_LINKS = "nvidia-smi nvlink -e; reseat or return the GPU whose pairs are bad"
_XIDS = "look for Xids in the kernel log; reset the GPU, and burn it again"

# What the rates of transfers are of; the others are products of a kind of number.
_RATES = {
    "hbm": "copies in its own memory",
    "down": "copies from the host",
    "up": "copies to the host",
    "peer": "copies with the other GPUs, median of its pairs",
}

# model: quantity: (least value, unit, source)
_PUBLISHED: dict[str, dict[str, tuple[float, str, str]]] = {
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
# The SXM parts; PCIe cards of the same name are slower, and have no thresholds here.
_MODELS = (
    ("h200", re.compile(r"\bH200\b(?!.*NVL)")),
    ("h100", re.compile(r"\bH100 80GB HBM3\b")),
    ("b200", re.compile(r"\bB200\b")),
    ("a100", re.compile(r"\bA100-SXM4-80GB\b")),
)


def is_transfer(quantity: str) -> bool:
    """Return whether a rate is in GB/s of transfers, not in TFLOP/s of products."""
    return quantity in _RATES


def _rate(quantity: str, whose: str, least: float | None, unit: str, source: str) -> Question:
    what = f"{_RATES.get(quantity) or f'products in {quantity}'}, {whose}"
    remedy = _LINKS if quantity == "peer" else _SLOW
    return Question(f"burn.rate_{quantity}", what, ">=", least, unit, source, remedy)


RATES: dict[str, dict[str, Question]] = {
    model: {
        quantity: _rate(quantity, model, least, unit, source)
        for quantity, (least, unit, source) in published.items()
    }
    for model, published in _PUBLISHED.items()
}

_COMPARE_SOURCE = "median of the node's GPUs, and 5 median deviations below it"
# The least share of the node's median that is not a finding; good GPUs of one node differ by 5 %
# and more in products (Stas Bekman, Machine Learning Engineering), by little in transfers.
_LIKE = "{quantity} against the median of the node's GPUs"
LIKE_PRODUCT = Question(
    "burn.like_{quantity}", "products of " + _LIKE, ">=", 0.90, "of the median", _COMPARE_SOURCE,
    _SLOW,
)  # fmt: skip
LIKE_TRANSFER = LIKE_PRODUCT._replace(what="transfers of " + _LIKE, value=0.95)
LIKE_PEER = LIKE_TRANSFER._replace(check="burn.like_peer", remedy=_LINKS)
LEAST_TO_COMPARE = 4
MANY_DEVIATIONS = 5.0

STEADY = Question(
    "burn.steady", "slowest twentieth of a phase's seconds against their median", ">=", 0.85,
    "of the median", "a GPU that throttles now and then loses more", _COOL,
)  # fmt: skip
LEAST_TO_BE_STEADY = 10
THROTTLE = Question(
    "burn.throttle", "seconds in which heat or power slowed it down", "<=", 0.05, "of the seconds",
    "thermal and power-brake slowdowns of H100: none in a node that is cooled and fed as specified",
    _COOL,
)  # fmt: skip
_EXACT = "the product of integers is exact; memory keeps its bits"
WRONG = Question(
    "burn.{phase}", "wrong results or bytes of a phase", "==", 0, "errors", _EXACT, _RMA,
)  # fmt: skip
WRONG_PEERS = Question(
    "burn.peers", "pairs with other GPUs that transfer wrong bytes", "==", 0, "errors", _EXACT,
    _LINKS,
)  # fmt: skip
UNCORRECTABLE = Question(
    "burn.run", "uncorrectable memory errors that ended it", "==", 0, "errors", _EXACT, _RMA,
)  # fmt: skip
STOPS = Question(
    "burn.run", "stops for heat", "==", 0, "stops",
    "the GPU's own slowdown temperature, or `stop_c`", _COOL,
)  # fmt: skip
SLOW_PAIRS = Question(
    "burn.pairs", "pairs with other GPUs that are slow", "==", 0, "pairs",
    "0.95 of the median of the node's pairs", _LINKS,
)  # fmt: skip
XID = Question(
    "burn.xid", "Xids in the kernel log", "==", 0, "Xids", "a known load raises none", _XIDS,
)  # fmt: skip
ECC = Question(
    "burn.ecc", "new uncorrected ECC errors", "==", 0, "errors",
    "Meta GCM, Azure AzNHC, IBM autopilot: any fails", _RMA,
)  # fmt: skip
# Of products smaller than this the starts take longer than the work.
LEAST_N = 4096


def model_of(name: str) -> str:
    """Return the model that a product name is of, empty for one without thresholds."""
    return next((model for model, pattern in _MODELS if pattern.search(name)), "")


def like_question(quantity: str) -> Question:
    """Return the question of a rate against those of the node's other GPUs."""
    if quantity == "peer":
        return LIKE_PEER.filled(quantity=quantity)
    like = LIKE_TRANSFER if is_transfer(quantity) else LIKE_PRODUCT
    return like.filled(quantity=quantity)


def rate_question(
    model: str, quantity: str, overrides: Mapping[str, float] | None = None
) -> Question | None:
    """Return the question of a rate, with the site's own threshold if there is one; else None."""
    own = (overrides or {}).get(quantity)
    if own is None:
        return RATES.get(model, {}).get(quantity)
    unit = "GB/s" if is_transfer(quantity) else "TFLOP/s"
    return _rate(quantity, "by the site", float(own), unit, "the inventory")
