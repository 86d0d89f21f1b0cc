# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of four healthy H100 after a burn-in, as its state file has it."""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._burn.plan import (
    Settings,
    Sum,
    add,
    key,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.state import State
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.watcher import Seen

GPUS = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61")]
H100 = "NVIDIA H100 80GB HBM3"


def burnt(**given):
    """A node of four healthy H100 after a burn-in of bf16 products and HBM."""
    settings = Settings(phases=("gemm_bf16", "hbm_rate"), **given.pop("settings", {}))
    state = State(settings, state="done", burnt_s=60, **given)
    for number, address in enumerate(GPUS):
        state.gpus[address] = {"index": number, "name": H100, "uuid": f"GPU-{number}"}
        product(state, address, 645)
        hbm(state, address, 2900)
        state.seen[address] = Seen(
            samples=60, throttle_samples=60, busy_samples=60, power_sum=60 * 690,
            power_max=701, temperature_max=66, ecc_first=[0, 3], ecc_last=[0, 3],
        )  # fmt: skip
    return state


def product(state, address, tflops):
    total = Sum()
    line = {
        "event": "beat",
        "products": 10,
        "flop": tflops * 1e9,
        "product_ms": 1,
        "check_ms": 0.05,
    }
    add(total, line)
    add(total, {"event": "done"})
    state.sums[key(address, "gemm_bf16")] = total


def hbm(state, address, gbps):
    total = Sum()
    add(total, {"event": "beat", "copied": gbps * 1e6, "copy_ms": 1})
    state.sums[key(address, "hbm_rate")] = total
