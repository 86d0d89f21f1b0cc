# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What a burn-in does and in which order: settings in, a list of timed steps out. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, Sequence

from .._core.names import full_pci

# One round of all phases; a longer burn-in repeats it, so that each phase meets every temperature.
ROUND_S = 1800.0
SHORTEST_S = 0.2
SIZES = (64, 256, 1024, 4096, 8192)
MOST_PULSE_S = 10.0


@dataclass(frozen=True)
class Phase:
    """A program, its part of the time, and what it is given."""

    name: str
    program: str
    share: float
    kind: str = ""
    data: int = 0
    pulsed: bool = False


# Most of the time goes to bf16, which draws the most power and is what the GPUs are bought for.
PHASES = (
    Phase("hbm", "hbm", 0.10),
    Phase("hbm_rate", "hbm_rate", 0.03),
    Phase("host", "host", 0.03),
    Phase("gemm_bf16", "gemm", 0.18, "bf16"),
    Phase("entropy_bf16", "gemm", 0.22, "bf16", 1),
    Phase("gemm_fp8", "gemm", 0.08, "fp8"),
    Phase("entropy_fp8", "gemm", 0.06, "fp8", 1),
    Phase("gemm_fp16", "gemm", 0.05, "fp16"),
    Phase("gemm_tf32", "gemm", 0.05, "tf32"),
    Phase("gemm_fp64", "gemm", 0.07, "fp64"),
    Phase("pulse", "gemm", 0.06, "bf16", 0, True),
    Phase("peers", "peers", 0.07),
)
NAMES = tuple(phase.name for phase in PHASES)


@dataclass(frozen=True)
class Settings:
    """The settings of a burn-in. Times in seconds, `memory_mib` 0 for `memory_share` of what
    is free; `gpus` are PCI addresses, none for all; `stop_c` stops a GPU's node at this
    temperature, 0 for the GPU's own slowdown temperature."""

    duration_s: float = 600.0
    phases: tuple[str, ...] = NAMES
    gpus: tuple[str, ...] = ()
    n: int = 8192
    memory_share: float = 0.9
    memory_mib: int = 0
    most_batch: int = 32
    pulse_s: float = 0.1
    cublaslt: str = ""
    busy_ok: bool = False
    stop_c: float = 0.0
    start_timeout_s: float = 120.0
    silent_s: float = 120.0
    nvml: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return mappings, lists and scalars."""
        data = asdict(self)
        data["phases"], data["gpus"] = list(self.phases), list(self.gpus)
        return data


def settings_from_data(data: Mapping[str, Any]) -> Settings:
    """Return settings; ValueError says in words what cannot be."""
    values = dict(data)
    for name in ("phases", "gpus"):
        if name in values:
            values[name] = tuple(values[name])
    values["gpus"] = tuple(map(full_pci, values.get("gpus", ())))
    settings = Settings(**values)
    unknown = [name for name in settings.phases if name not in NAMES]
    if unknown:
        raise ValueError(f"unknown phases: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if not settings.phases:
        raise ValueError("no phases")
    if settings.n not in SIZES:
        raise ValueError(f"n is {settings.n}; it may be one of {', '.join(map(str, SIZES))}")
    if settings.duration_s <= 0:
        raise ValueError("duration_s must be more than 0")
    if not 0 < settings.memory_share <= 0.97:
        raise ValueError("memory_share must be above 0 and at most 0.97")
    if not 0 < settings.pulse_s <= MOST_PULSE_S:
        raise ValueError(f"pulse_s must be above 0 and at most {MOST_PULSE_S:g}")
    if settings.silent_s <= 0 or settings.start_timeout_s <= 0:
        raise ValueError("time limits must be more than 0")
    return settings


@dataclass(frozen=True)
class Step:
    """One phase for some seconds."""

    phase: str
    seconds: float


def plan(settings: Settings) -> list[Step]:
    """Return the steps; their seconds add up to the duration, or a little more for short ones."""
    chosen = [phase for phase in PHASES if phase.name in settings.phases]
    rounds = max(1, round(settings.duration_s / ROUND_S))
    whole = sum(phase.share for phase in chosen)
    a_round = settings.duration_s / rounds
    steps = [
        Step(phase.name, max(SHORTEST_S, round(a_round * phase.share / whole, 3)))
        for phase in chosen
    ]
    return steps * rounds


def request(step: Step, settings: Settings, seconds: float) -> dict[str, Any]:
    """Return what a worker gets for a step of which `seconds` are left."""
    phase = next(phase for phase in PHASES if phase.name == step.phase)
    return {
        "name": phase.name,
        "program": phase.program,
        "kind": phase.kind,
        "data": phase.data,
        "pulse_s": settings.pulse_s if phase.pulsed else 0.0,
        "seconds": seconds,
    }


@dataclass
class Sum:
    """What beats and errors of one phase on one GPU (or one pair) add up to."""

    totals: dict[str, float] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    stride: int = 1
    pending: list[float] = field(default_factory=list)
    errors: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)
    digests: dict[str, dict[str, Any]] = field(default_factory=dict)
    known_answer: bool | None = None
    not_run: dict[str, str] | None = None
    library: str = ""
    done: int = 0


# What is added up, and which quotient is the rate whose steadiness is judged.
_ADDED = (
    "products", "flop", "product_ms", "check_ms", "verified", "copied", "copy_ms",
    "read", "read_ms", "down", "down_ms", "up", "up_ms",
)  # fmt: skip
_RATES = (("flop", "product_ms", 1e9), ("copied", "copy_ms", 1e6), ("down", "down_ms", 1e6))
_MOST_RATES = 256
_MOST_FIRST = 20


def add(total: Sum, line: Mapping[str, Any]) -> None:
    """Add one line of a worker to a sum."""
    event = line["event"]
    if event == "beat":
        for name in _ADDED:
            if name in line:
                total.totals[name] = total.totals.get(name, 0) + line[name]
        if "bytes_in_use" in line:
            total.totals["bytes_in_use"] = line["bytes_in_use"]
        for above, below, unit in _RATES:
            if line.get(below):
                _add_rate(total, line[above] / line[below] / unit)
    elif event == "error":
        total.errors += 1
        if len(total.first) < _MOST_FIRST:
            total.first.append({k: v for k, v in line.items() if k not in ("event", "phase")})
    elif event == "digest":
        total.digests[str(line["data_set"])] = {
            name: line[name] for name in ("digest", "algorithm", "file", "n")
        }
    elif event == "known_answer":
        total.known_answer = bool(line["there"])
    elif event == "not_run":
        total.not_run = {"reason": line["reason"], "text": line["text"]}
    elif event == "library":
        total.library = f"{line['path']} ({line['version']})"
    elif event == "done":
        total.done += 1


def _add_rate(total: Sum, rate: float) -> None:
    """Keep rates of equal stretches, few enough for days: each time they are full, pairs merge."""
    total.pending.append(rate)
    if len(total.pending) < total.stride:
        return
    total.rates.append(sum(total.pending) / len(total.pending))
    total.pending = []
    if len(total.rates) >= _MOST_RATES:
        pairs = zip(total.rates[::2], total.rates[1::2])
        total.rates = [(one + other) / 2 for one, other in pairs]
        total.stride *= 2


def sum_from_data(data: Mapping[str, Any]) -> Sum:
    """Return a sum as it was kept."""
    return Sum(**data)


def key(address: str, phase: str) -> str:
    """Return the name of a sum: of a GPU's phase, or of a pair's."""
    return f"{address} {phase}"


def pair_key(source: str, target: str) -> str:
    """Return the name of the sum of a pair."""
    return f"{source}>{target} peers"


def chosen_gpus(
    found: Sequence[Mapping[str, Any]], settings: Settings
) -> tuple[list[str], dict[str, dict[str, str]]]:
    """Return the addresses to burn, and why others are not: {address: {reason, text}}."""
    there = {str(gpu["address"]): gpu for gpu in found}
    burn: list[str] = []
    left: dict[str, dict[str, str]] = {}
    for address in settings.gpus or sorted(there):
        gpu = there.get(address)
        if gpu is None:
            left[address] = {"reason": "no_gpu", "text": f"no GPU answers at {address}"}
        elif gpu.get("error"):
            left[address] = {"reason": "lost", "text": str(gpu["error"])}
        elif gpu.get("mig"):
            left[address] = {"reason": "mig", "text": "MIG is on: only a part could be loaded"}
        elif gpu.get("processes") and not settings.busy_ok:
            listed = ", ".join(str(pid) for pid in gpu["processes"])
            left[address] = {"reason": "busy", "text": f"processes use it: {listed}"}
        elif gpu.get("processes") is None and not settings.busy_ok:
            left[address] = {"reason": "busy", "text": "NVML does not say whether it is in use"}
        else:
            burn.append(address)
    return burn, left
