# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What gpu_burn asks, the threshold of each question, and its source. Data, and one look-up.

A rate has no threshold for a model if none of its form is published and the project has measured
none: it is compared with the other GPUs of the node only. Products are measured without rest, so
that the power limit sets the clock. Public figures are of a few products on a cool GPU, and a
healthy H100 or H200 falls below them: Azure replaces below 715 TFLOP/s in bf16, and 645 is what the
power limit leaves. So those of products are the project's own (docs/gpu.md, "On real GPUs").
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from .._core.question import Question
from .._core.schema import Option, check_value, typed, words

_OWN = "measured on one {gpu} of 700 W: {measured:g}; less 10 % for the spread between good GPUs"
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

# model: its name, and what the project measured on one (docs/gpu.md)
_MEASURED = {
    "h100": (
        "H100 SXM",
        {"bf16": 645, "fp8": 1190, "fp16": 723, "tf32": 396, "fp64": 60.7, "hbm": 2965},
    ),
    "h200": (
        "H200 SXM",
        {"bf16": 638, "fp8": 1191, "fp16": 724, "tf32": 404, "fp64": 62.3, "hbm": 4180},
    ),
}
# The share of what was measured that a healthy GPU of the model reaches.
_REACHED = 0.9
# model: quantity: (least value, source)
_PUBLISHED: dict[str, dict[str, tuple[float, str]]] = {
    "h100": {"down": (48.0, _AZN), "up": (48.0, _AZN), "peer": (351.0, _LINK)},
    "h200": {"down": (48.0, _AZN), "up": (48.0, _AZN), "peer": (351.0, _LINK)},
    "b200": {"hbm": (2560.0, _DCG), "peer": (702.0, _LINK)},
    "a100": {
        "hbm": (1173.0, _DCG),
        "down": (21.0, _AZN),
        "up": (21.0, _AZN),
        "peer": (235.0, _AZN),
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


def _unit(quantity: str) -> str:
    return "GB/s" if is_transfer(quantity) else "TFLOP/s"


def _rate(quantity: str, whose: str, least: float, source: str) -> Question:
    what = f"{_RATES.get(quantity) or f'products in {quantity}'}, {whose}"
    remedy = _LINKS if quantity == "peer" else _SLOW
    return Question(f"burn.rate_{quantity}", what, ">=", least, _unit(quantity), source, remedy)


def _rates(model: str) -> dict[str, Question]:
    gpu, measured = _MEASURED.get(model, ("", {}))
    rates = {
        quantity: (round(_REACHED * value, 1), _OWN.format(gpu=gpu, measured=value))
        for quantity, value in measured.items()
    }
    rates.update(_PUBLISHED[model])
    return {quantity: _rate(quantity, model, *rate) for quantity, rate in rates.items()}


RATES: dict[str, dict[str, Question]] = {model: _rates(model) for model in _PUBLISHED}

# What has a rate.
QUANTITIES = (*_MEASURED["h100"][1], *(one for one in _RATES if one not in _MEASURED["h100"][1]))
# The site's own least rates, as the contract of the inventory has them, too.
OWN = Option(
    type="dict",
    key_pattern="|".join(QUANTITIES),
    key_words=words(QUANTITIES),
    each=Option(type="float", minimum=0, maximum=1000000, nullable=True),
)

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


def check_own(thresholds: Mapping[str, Any]) -> None:
    """Raise ValueError for the first invalid one of the site's own thresholds."""
    for problem in check_value("thresholds", typed(thresholds, OWN), OWN):
        raise ValueError(str(problem))


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
    return _rate(quantity, "by the site", float(own), "the inventory")
