# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Watches a burn-in: NVML read in its own process, since a call of it may hang or crash.

`look` tells once what there is; `watch` tells once a second how each GPU is, until its parent goes.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._gpu.nvml.binding import Answer, Nvml, NvmlError, XidEvents
from .._gpu.nvml.types import FIELD_MEMORY_TEMPERATURE, THROTTLE_REASONS, TIMEOUT

_PR_SET_PDEATHSIG = 1
_GPU_SENSOR = 0
_SLOWDOWN, _SM_CLOCK = 1, 1
_UNCORRECTED, _CORRECTED, _VOLATILE = 1, 0, 0
# What is not a problem: nothing to do, and the power cap that every full load meets.
_ACCEPTED = ("idle", "application clocks", "software power cap", "display clocks")


def _say(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def look(library: str) -> int:
    """Print one object: the GPUs, or why NVML cannot tell. Returns the exit status."""
    try:
        nvml = Nvml(library)
    except NvmlError as error:
        _say({"error": str(error), "code": error.code, "gpus": []})
        return 0
    driver = nvml.text("nvmlSystemGetDriverVersion").value
    gpus = [_identity(nvml, index) for index in range(int(nvml.count().value or 0))]
    _say({"driver": driver, "gpus": gpus})
    return 0


def _identity(nvml: Nvml, index: int) -> dict[str, Any]:
    handle = nvml.handle(index)
    if not handle.ok:
        return {"index": index, "address": f"index {index}", "error": handle.reason}
    one = handle.value
    address = nvml.address(one)
    name = nvml.text("nvmlDeviceGetName", one)
    processes = nvml.processes(one)
    mig = nvml.numbers("nvmlDeviceGetMigMode", one, 2)
    slowdown = nvml.number("nvmlDeviceGetTemperatureThreshold", one, _SLOWDOWN)
    return {
        "index": index,
        "address": address.value or f"index {index}",
        "error": address.reason or name.reason,
        "name": name.value,
        "uuid": nvml.text("nvmlDeviceGetUUID", one).value,
        "serial": nvml.text("nvmlDeviceGetSerial", one).value,
        "mig": bool(mig.value and mig.value[0]),
        "processes": [pid for pid, _mib in processes.value] if processes.ok else None,
        "slowdown_c": slowdown.value,
        "power_limit_w": _scaled(nvml.number("nvmlDeviceGetEnforcedPowerLimit", one), 1000),
    }


def _scaled(answer: Answer, by: float) -> float | None:
    return None if answer.value is None else answer.value / by


def sample(nvml: Nvml, handle: Any) -> dict[str, Any]:
    """Return how a GPU is: W, C, MHz, reasons for slow clocks, ECC; None if not reported."""
    reasons = nvml.number("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if not reasons.ok:
        reasons = nvml.number("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    temperature = nvml.number("nvmlDeviceGetTemperature", handle, _GPU_SENSOR)
    memory = nvml.fields(handle, [(FIELD_MEMORY_TEMPERATURE, 0)])[0]
    return {
        "power_w": _scaled(nvml.number("nvmlDeviceGetPowerUsage", handle), 1000),
        "temperature_c": temperature.value,
        "memory_c": memory.value,
        "clock_mhz": nvml.number("nvmlDeviceGetClockInfo", handle, _SM_CLOCK).value,
        "throttle": None
        if reasons.value is None
        else [word for bit, word in THROTTLE_REASONS.items() if reasons.value & bit],
        "ecc_uncorrected": nvml.number(
            "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE
        ).value,
        "ecc_corrected": nvml.number(
            "nvmlDeviceGetTotalEccErrors", handle, _CORRECTED, _VOLATILE
        ).value,
        "error": temperature.reason,
    }


def watch(library: str, addresses: Sequence[str], interval_s: float = 1.0) -> int:
    """Print a line of samples an interval, and each Xid, until the parent goes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        nvml = Nvml(library)
    except NvmlError as error:
        _say({"error": str(error)})
        return 1
    handles = {address: nvml.handle_at(address) for address in addresses}
    good = {address: answer.value for address, answer in handles.items() if answer.ok}
    events = XidEvents(nvml, good)
    unwatched = {
        address: answer.reason for address, answer in events.answers.items() if not answer.ok
    }
    while True:
        began = time.monotonic()
        samples = {
            address: {**sample(nvml, handle), "unwatched": unwatched.get(address, "")}
            for address, handle in good.items()
        }
        for address, answer in handles.items():
            if not answer.ok:
                samples[address] = {"error": answer.reason}
        _say({"at": time.time(), "samples": samples})
        while True:
            left = interval_s - (time.monotonic() - began)
            if left <= 0.001:
                break
            event = events.wait(int(1000 * left))
            if event.ok:
                _say({"xid": event.value[1], "address": event.value[0], "at": time.time()})
            else:
                if event.code != TIMEOUT:
                    unwatched = {**dict.fromkeys(good, event.reason), **unwatched}
                time.sleep(max(0.0, min(left, interval_s - (time.monotonic() - began))))


@dataclass
class Seen:
    """What the samples of one GPU add up to; `throttle_samples` are those with reasons or none.

    `ecc_last` less `ecc_first` are the uncorrected errors since the first sample; `ecc_silent` is
    whether the last sample had none of it. `unwatched` says why Xids would not have been seen.
    """

    samples: int = 0
    throttle_samples: int = 0
    busy_samples: int = 0
    power_sum: float = 0.0
    power_max: float | None = None
    temperature_max: float | None = None
    memory_max: float | None = None
    clock_sum: float = 0.0
    clock_min: float | None = None
    throttled: dict[str, int] = field(default_factory=dict)
    ecc_first: list[int | None] = field(default_factory=list)
    ecc_last: list[int | None] = field(default_factory=list)
    xids: list[int] = field(default_factory=list)
    error: str = ""
    ecc_silent: bool = False
    unwatched: str = ""


def add_sample(seen: Seen, one: Mapping[str, Any], busy: bool) -> None:
    """Add a sample; `busy` while a load runs, which is when power and clocks count."""
    seen.unwatched = seen.unwatched or str(one.get("unwatched") or "")
    if one.get("error"):
        seen.error = str(one["error"])
        return
    seen.samples += 1
    seen.temperature_max = _most(seen.temperature_max, one.get("temperature_c"))
    seen.memory_max = _most(seen.memory_max, one.get("memory_c"))
    seen.power_max = _most(seen.power_max, one.get("power_w"))
    _add_ecc(seen, one.get("ecc_uncorrected"))
    seen.throttle_samples += one.get("throttle") is not None
    for word in one.get("throttle") or ():
        if word not in _ACCEPTED:
            seen.throttled[word] = seen.throttled.get(word, 0) + 1
    if busy and one.get("clock_mhz") is not None:
        seen.busy_samples += 1
        seen.power_sum += one.get("power_w") or 0.0
        seen.clock_sum += one["clock_mhz"]
        least = seen.clock_min
        seen.clock_min = one["clock_mhz"] if least is None else min(least, one["clock_mhz"])


def _add_ecc(seen: Seen, now: int | None) -> None:
    seen.ecc_silent = now is None
    if now is None:
        return
    first = next((count for count in seen.ecc_first[:1] if count is not None), now)
    last = next((count for count in seen.ecc_last[:1] if count is not None), first)
    # A reboot, after which a burn-in is resumed, sets the counter to 0.
    seen.ecc_first = [first - last if now < last else first]
    seen.ecc_last = [now]


def _most(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None


def too_hot(one: Mapping[str, Any], stop_c: float, slowdown_c: float | None) -> str:
    """Say why the load must stop, empty when it may go on.

    At its slowdown temperature a GPU halves its own clocks, and past it comes the emergency stop.
    """
    limit = stop_c or slowdown_c
    temperature = one.get("temperature_c")
    if limit and temperature is not None and temperature >= limit:
        return f"{temperature:g} C, the limit is {limit:g} C"
    if "hardware thermal slowdown" in (one.get("throttle") or ()):
        return "hardware thermal slowdown"
    return ""
