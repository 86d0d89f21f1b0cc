# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The burn-in on a real GPU, beside PyTorch on the same GPU: the rows of docs/gpu.md.

    python tests/bench/burn_reference.py [--seconds 20] [--n 8192] [--memory-mib 0]

Needs an idle GPU. PyTorch is only the yardstick: without it the burn-in's own figures
are printed, and the ratios are not measured. On simulated libraries the output names them.
Ends with 1 where a figure misses its threshold, 77 where there is no GPU.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import conftest  # noqa: E402, F401 - makes the collection importable

from ansible_collections.baremetal.dgx.plugins.module_utils._burn.control import (  # noqa: E402
    archive,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.plan import (  # noqa: E402
    key,
    settings_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.state import load  # noqa: E402

PHASES = (
    "hbm_rate",
    "gemm_bf16",
    "entropy_bf16",
    "gemm_fp8",
    "gemm_fp16",
    "gemm_tf32",
    "gemm_fp64",
)
LEAST_SHARE = 0.95
MOST_CHECKING = 0.07


def find_cublaslt() -> str:
    """Return the libcublasLt that PyTorch's wheels bring, empty for the system's."""
    for folder in sys.path:
        for pattern in ("nvidia/cu13/lib", "nvidia/cublas/lib"):
            found = glob.glob(os.path.join(folder, pattern, "libcublasLt.so.*"))
            if found:
                return found[0]
    return ""


def torch_figures(n: int, seconds: float) -> dict[str, float]:
    """Return TFLOP/s of a bf16 product and GB/s of a copy; empty without PyTorch or a GPU."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _each in range(2))
    x = torch.empty(1 << 28, device="cuda", dtype=torch.float32)
    y = torch.empty_like(x)

    def rate(work: Any, amount: float) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _each in range(2))
        until, total_ms, runs = time.monotonic() + seconds / 2, 0.0, 0
        while time.monotonic() < until:
            start.record()
            for _each in range(20):
                work()
            end.record()
            end.synchronize()
            total_ms += start.elapsed_time(end)
            runs += 20
        return amount * runs / total_ms

    return {
        "tflops": rate(lambda: torch.matmul(a, b), 2 * n**3 / 1e9),
        "gbps": rate(lambda: y.copy_(x), 2 * x.numel() * 4 / 1e6),
    }


def burn(folder: str, phases: tuple[str, ...], n: int, seconds: float, mib: int) -> Any:
    """Run the program on all GPUs and return its state."""
    settings = {"phases": phases, "n": n, "duration_s": seconds, "cublaslt": find_cublaslt()}
    settings["busy_ok"] = True  # this process still holds a context
    settings["memory_mib"] = mib
    checked = settings_from_data(settings)
    Path(folder, "settings.json").write_text(json.dumps(checked.as_data()))
    Path(folder, "burn.pyz").write_bytes(archive())
    subprocess.run([sys.executable, f"{folder}/burn.pyz", "run", folder], check=False)
    return load(folder)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--n", type=int, default=8192)
    parser.add_argument("--memory-mib", type=int, default=0)
    args = parser.parse_args()
    yardstick = torch_figures(args.n, args.seconds)
    missed = 0
    watts: dict[str, float] = {}
    for phase in PHASES:
        with tempfile.TemporaryDirectory() as folder:
            state = burn(folder, (phase,), args.n, args.seconds, args.memory_mib)
        if state is None or not state.gpus or state.state == "failed":
            print(f"no GPU was burned in: {state.text if state else 'no state'}")
            return 77
        if state.simulated:
            print("SIMULATED libraries: nothing below is a measurement")
        address = sorted(state.gpus)[0]
        total, seen = state.sums.get(key(address, phase)), state.seen.get(address)
        if total is None or address in state.ended or total.not_run:
            print(f"{phase}: not measured: {state.ended.get(address) or (total and total.not_run)}")
            continue
        amounts = total.totals
        messages = [f"{total.errors} errors"]
        if seen and seen.busy_samples:
            watts[phase] = seen.power_sum / seen.busy_samples
            messages.append(f"{watts[phase]:.0f} W")
        share = None
        if amounts.get("product_ms"):
            tflops = amounts["flop"] / amounts["product_ms"] / 1e9
            checking = amounts["check_ms"] / (amounts["product_ms"] + amounts["check_ms"])
            messages += [f"{tflops:.1f} TFLOP/s", f"checking {100 * checking:.1f} % of the time"]
            if phase.endswith("bf16"):
                missed += checking > MOST_CHECKING
                share = tflops / yardstick["tflops"] if yardstick else None
        elif amounts.get("copy_ms"):
            gbps = amounts["copied"] / amounts["copy_ms"] / 1e6
            read = amounts["read"] / amounts["read_ms"] / 1e6
            messages += [f"copy {gbps:.0f} GB/s", f"read {read:.0f} GB/s"]
            share = gbps / yardstick["gbps"] if yardstick else None
        if share is not None:
            messages.append(f"{share:.3f} of PyTorch")
            # Integers toggle fewer bits, so that the exact form may be the faster one.
            missed += share < LEAST_SHARE
        missed += bool(total.errors)
        print(f"{phase}: {', '.join(messages)}")
    print(f"PyTorch: {yardstick or 'not there'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
