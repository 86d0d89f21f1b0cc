# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What NVML reports about each GPU of a node, as typed values.

A value that could not be had is None, and `absent` says why; nothing is ever taken as zero.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, fields
from typing import Any, Mapping

from .nvml import types as t
from .nvml.binding import Answer, Nvml, plain_address, reason


@dataclass(frozen=True)
class Link:
    """One NVLink of a GPU; counters are totals since the driver was loaded or the GPU reset."""

    number: int
    active: bool | None = None
    speed_mbps: int | None = None
    replays: int | None = None
    recoveries: int | None = None
    crc_errors: int | None = None
    recoveries_failed: int | None = None
    effective_ber: float | None = None


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds a GPU."""

    pid: int
    memory_mib: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU, as read at one moment; units are in the names, modes are NVML's numbers.

    `index` is NVML's. `lost` says why there is no access to it, empty where there is.
    """

    index: int
    lost: str = ""
    lost_code: int = 0
    pci: str | None = None
    uuid: str | None = None
    serial: str | None = None
    name: str | None = None
    part_number: str | None = None
    vbios: str | None = None
    inforom: str | None = None
    minor: int | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    ecc_mode: int | None = None
    ecc_mode_pending: int | None = None
    ecc_volatile_uncorrected: int | None = None
    ecc_aggregate_uncorrected: int | None = None
    ecc_dram_corrected: int | None = None
    ecc_sram_corrected: int | None = None
    sram_aggregate_uncorrected: int | None = None
    sram_threshold_exceeded: int | None = None
    remap_corrected: int | None = None
    remap_uncorrected: int | None = None
    remap_pending: int | None = None
    remap_failed: int | None = None
    # Banks of memory that have no spare row left.
    remap_full_banks: int | None = None
    retired_single: int | None = None
    retired_double: int | None = None
    retired_pending: int | None = None
    links: tuple[Link, ...] = ()
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    clock_sm_max_mhz: int | None = None
    clock_memory_max_mhz: int | None = None
    throttle: int | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    margin_c: int | None = None
    tlimit_slowdown_c: int | None = None
    limit_slowdown_c: int | None = None
    limit_memory_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    persistence: int | None = None
    compute_mode: int | None = None
    mig: int | None = None
    mig_pending: int | None = None
    pstate: int | None = None
    fabric_state: int | None = None
    fabric_status: int | None = None
    fabric_health: int | None = None
    inforom_valid: bool | None = None
    unrepairable: int | None = None
    repair_channel: int | None = None
    repair_tpc: int | None = None
    thermal_violation_s: float | None = None
    recovery_action: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def active_links(self) -> int | None:
        """How many NVLinks are up; None where one of them could not be read."""
        states = [link.active for link in self.links]
        return None if None in states or not states else sum(bool(state) for state in states)


@dataclass(frozen=True)
class Sweep:
    """All GPUs of a node in one reading.

    `error` says why NVML as a whole gave nothing (`error_code` is its code); `stuck` maps the index
    of a GPU to what was being asked when the library did not come back.
    """

    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: int | None = None
    count: int | None = None
    gpus: tuple[Gpu, ...] = ()
    error: str = ""
    error_code: int = 0
    stuck: Mapping[int, str] = field(default_factory=dict)
    took_s: float = 0.0

    @property
    def library_version(self) -> str | None:
        """The driver release that the library belongs to: NVML puts its own number first."""
        if self.nvml_version is None:
            return None
        return self.nvml_version.split(".", 1)[-1]


# Attribute, function and the arguments between the handle and the pointer.
_NUMBERS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("minor", "nvmlDeviceGetMinorNumber", ()),
    ("ecc_volatile_uncorrected", "nvmlDeviceGetTotalEccErrors", (t.UNCORRECTED, t.VOLATILE)),
    ("ecc_aggregate_uncorrected", "nvmlDeviceGetTotalEccErrors", (t.UNCORRECTED, t.AGGREGATE)),
    (
        "ecc_dram_corrected",
        "nvmlDeviceGetMemoryErrorCounter",
        (t.CORRECTED, t.AGGREGATE, t.DRAM),
    ),
    (
        "ecc_sram_corrected",
        "nvmlDeviceGetMemoryErrorCounter",
        (t.CORRECTED, t.AGGREGATE, t.SRAM),
    ),
    ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", ()),
    ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", ()),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", ()),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", ()),
    ("pcie_replays", "nvmlDeviceGetPcieReplayCounter", ()),
    ("clock_sm_mhz", "nvmlDeviceGetClockInfo", (t.CLOCK_SM,)),
    ("clock_memory_mhz", "nvmlDeviceGetClockInfo", (t.CLOCK_MEMORY,)),
    ("clock_sm_max_mhz", "nvmlDeviceGetMaxClockInfo", (t.CLOCK_SM,)),
    ("clock_memory_max_mhz", "nvmlDeviceGetMaxClockInfo", (t.CLOCK_MEMORY,)),
    ("temperature_c", "nvmlDeviceGetTemperature", (0,)),
    ("limit_slowdown_c", "nvmlDeviceGetTemperatureThreshold", (t.LIMIT_SLOWDOWN,)),
    ("limit_memory_c", "nvmlDeviceGetTemperatureThreshold", (t.LIMIT_MEMORY,)),
    ("persistence", "nvmlDeviceGetPersistenceMode", ()),
    ("compute_mode", "nvmlDeviceGetComputeMode", ()),
    ("pstate", "nvmlDeviceGetPerformanceState", ()),
)
_MILLIWATTS = (
    ("power_w", "nvmlDeviceGetPowerUsage"),
    ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit"),
    ("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit"),
)
_TEXTS = (
    ("uuid", "nvmlDeviceGetUUID"),
    ("serial", "nvmlDeviceGetSerial"),
    ("name", "nvmlDeviceGetName"),
    ("part_number", "nvmlDeviceGetBoardPartNumber"),
    ("vbios", "nvmlDeviceGetVbiosVersion"),
    ("inforom", "nvmlDeviceGetInforomImageVersion"),
)
_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nvmlDeviceGetEccMode", ("ecc_mode", "ecc_mode_pending")),
    (
        "nvmlDeviceGetRemappedRows",
        ("remap_corrected", "remap_uncorrected", "remap_pending", "remap_failed"),
    ),
    ("nvmlDeviceGetMigMode", ("mig", "mig_pending")),
)
_FIELDS = (
    ("memory_temperature_c", t.FIELD_MEMORY_TEMPERATURE),
    ("tlimit_slowdown_c", t.FIELD_TLIMIT_SLOWDOWN),
    ("recovery_action", t.FIELD_RECOVERY_ACTION),
    ("link_count", t.FIELD_LINK_COUNT),
)
_LINK_FIELDS = (
    ("speed_mbps", t.FIELD_LINK_SPEED_MBPS),
    ("replays", t.FIELD_LINK_REPLAY),
    ("recoveries", t.FIELD_LINK_RECOVERY),
    ("crc_errors", t.FIELD_LINK_CRC),
    ("recoveries_failed", t.FIELD_LINK_RECOVERY_FAILED),
    ("effective_ber", t.FIELD_LINK_EFFECTIVE_BER),
)


class _Reading:
    """Collects the values of one GPU, and why others are absent."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle
        self.values: dict[str, Any] = {}
        self.absent: dict[str, str] = {}
        self.lost_code = 0

    def keep(self, name: str, answer: Answer, value: Any = None) -> None:
        """Take an answer under a name; `value` replaces what it holds."""
        if answer.ok:
            self.values[name] = answer.value if value is None else value
            return
        self.absent[name] = answer.reason
        if answer.code == t.GPU_IS_LOST:
            self.lost_code = answer.code


def _memory(reading: _Reading) -> None:
    answer = reading.nvml.structure("nvmlDeviceGetMemoryInfo_v2", reading.handle)
    if answer.ok:
        reading.values["memory_total_mib"] = answer.value.total >> 20
        reading.values["memory_used_mib"] = answer.value.used >> 20
        return
    # The older structure counts as used what the driver reserves.
    reading.keep("memory_used_mib", answer)
    plain = reading.nvml.structure("nvmlDeviceGetMemoryInfo", reading.handle)
    reading.keep("memory_total_mib", plain, plain.value.total >> 20 if plain.ok else None)


def _sram(reading: _Reading) -> None:
    answer = reading.nvml.structure("nvmlDeviceGetSramEccErrorStatus", reading.handle)
    if answer.ok:
        status = answer.value
        total = status.aggregateUncParity + status.aggregateUncSecDed
        reading.values["sram_aggregate_uncorrected"] = total
        reading.values["sram_threshold_exceeded"] = status.bThresholdExceeded
        return
    reading.keep("sram_threshold_exceeded", answer)
    older = (t.UNCORRECTED, t.AGGREGATE, t.SRAM)
    reading.keep(
        "sram_aggregate_uncorrected",
        reading.nvml.number("nvmlDeviceGetMemoryErrorCounter", reading.handle, *older),
    )


def _retired(reading: _Reading) -> None:
    # What remaps rows has no retired pages.
    if "remap_pending" in reading.values:
        return
    for name, cause in (("retired_single", 0), ("retired_double", 1)):
        room = 256
        addresses, count = (ctypes.c_ulonglong * room)(), ctypes.c_uint(room)
        code = reading.nvml.call(
            "nvmlDeviceGetRetiredPages",
            reading.handle,
            cause,
            ctypes.byref(count),
            addresses,
        )
        many = code in (t.SUCCESS, t.INSUFFICIENT_SIZE)
        reading.keep(name, Answer(count.value) if many else Answer(None, code))
    reading.keep(
        "retired_pending",
        reading.nvml.number("nvmlDeviceGetRetiredPagesPendingStatus", reading.handle),
    )


def _fabric(reading: _Reading) -> None:
    answer = newer = reading.nvml.structure("nvmlDeviceGetGpuFabricInfoV", reading.handle)
    if not answer.ok:
        answer = reading.nvml.structure("nvmlDeviceGetGpuFabricInfo", reading.handle)
    if answer.ok:
        reading.values["fabric_state"] = answer.value.state
        reading.values["fabric_status"] = answer.value.status
        if newer.ok:
            reading.values["fabric_health"] = newer.value.healthMask
        else:
            reading.keep("fabric_health", newer)
    else:
        reading.keep("fabric_state", answer)


def _throttle(reading: _Reading) -> None:
    answer = reading.nvml.number("nvmlDeviceGetCurrentClocksEventReasons", reading.handle)
    if not answer.ok:
        answer = reading.nvml.number("nvmlDeviceGetCurrentClocksThrottleReasons", reading.handle)
    reading.keep("throttle", answer)


def _integrity(reading: _Reading) -> None:
    """Ask for the infoROM, for repairs that wait or cannot be, and how long it was too hot."""
    code = reading.nvml.call("nvmlDeviceValidateInforom", reading.handle)
    judged = code in (t.SUCCESS, t.CORRUPTED_INFOROM)
    reading.keep("inforom_valid", Answer(code == t.SUCCESS) if judged else Answer(None, code))
    flag = reading.nvml.structure("nvmlDeviceGetUnrepairableMemoryFlag_v1", reading.handle)
    reading.keep("unrepairable", flag, flag.value.flag if flag.ok else None)
    repair = reading.nvml.structure("nvmlDeviceGetRepairStatus", reading.handle)
    reading.keep("repair_channel", repair, repair.value.channelPending if repair.ok else None)
    reading.keep("repair_tpc", repair, repair.value.tpcPending if repair.ok else None)
    banks = reading.nvml.structure("nvmlDeviceGetRowRemapperHistogram", reading.handle)
    reading.keep("remap_full_banks", banks, banks.value.none if banks.ok else None)
    hot = t.Violation()
    code = reading.nvml.call(
        "nvmlDeviceGetViolationStatus", reading.handle, t.POLICY_THERMAL, ctypes.byref(hot)
    )
    held = Answer(hot.violationTime / 1e9) if code == t.SUCCESS else Answer(None, code)
    reading.keep("thermal_violation_s", held)


def _links(reading: _Reading, count: int | None) -> None:
    """Read the NVLinks: one call for the states of each, one for all counters."""
    found: list[dict[str, Any]] = []
    for number in range(t.MOST_LINKS if count is None else count):
        state = reading.nvml.number("nvmlDeviceGetNvLinkState", reading.handle, number)
        # How many there are is only known by trying where the count is not reported.
        if count is None and state.code in (t.INVALID_ARGUMENT, t.NOT_SUPPORTED):
            break
        if not state.ok:
            reading.keep("links", state)
        found.append({"number": number, "active": bool(state.value) if state.ok else None})
    wanted = [(number, place) for place in range(len(found)) for _name, number in _LINK_FIELDS]
    answers = reading.nvml.fields(reading.handle, wanted) if wanted else []
    for place, answer in enumerate(answers):
        link, column = divmod(place, len(_LINK_FIELDS))
        name = _LINK_FIELDS[column][0]
        value = answer.value
        if name == "effective_ber" and answer.ok:
            value = t.bit_error_ratio(int(value))
        found[link][name] = value
        if not answer.ok:
            reading.absent["link_" + name] = answer.reason
    reading.values["links"] = found


def read_gpu(nvml: Nvml, index: int) -> dict[str, Any]:
    """Return what NVML reports about one GPU, as scalars, lists and mappings."""
    handle = nvml.handle(index)
    if not handle.ok:
        return {"index": index, "lost": handle.reason, "lost_code": handle.code}
    reading = _Reading(nvml, handle.value)
    pci = nvml.structure("nvmlDeviceGetPciInfo_v3", handle.value)
    reading.keep("pci", pci, plain_address(pci.value) if pci.ok else None)
    for name, function in _TEXTS:
        reading.keep(name, nvml.text(function, handle.value))
    for name, function, extra in _NUMBERS:
        reading.keep(name, nvml.number(function, handle.value, *extra))
    for name, function in _MILLIWATTS:
        answer = nvml.number(function, handle.value)
        reading.keep(name, answer, answer.value / 1000 if answer.ok else None)
    for function, names in _GROUPS:
        answer = nvml.numbers(function, handle.value, len(names))
        for place, name in enumerate(names):
            reading.keep(name, answer, answer.value[place] if answer.ok else None)
    answers = nvml.fields(handle.value, [(number, 0) for _name, number in _FIELDS])
    for (name, _number), answer in zip(_FIELDS, answers):
        reading.keep(name, answer)
    margin = nvml.structure("nvmlDeviceGetMarginTemperature", handle.value)
    reading.keep("margin_c", margin, margin.value.marginTemperature if margin.ok else None)
    _memory(reading)
    _sram(reading)
    _retired(reading)
    _fabric(reading)
    _throttle(reading)
    _integrity(reading)
    _links(reading, reading.values.pop("link_count", None))
    processes = nvml.processes(handle.value)
    reading.keep("processes", processes)
    return {
        "index": index,
        "lost": reason(reading.lost_code) if reading.lost_code else "",
        "lost_code": reading.lost_code,
        **reading.values,
        "absent": reading.absent,
    }


def gpu_from_data(data: Mapping[str, Any]) -> Gpu:
    """Return what read_gpu gave as a Gpu."""
    known = {one.name for one in fields(Gpu)}
    values = {key: value for key, value in data.items() if key in known}
    values["links"] = tuple(Link(**link) for link in data.get("links") or ())
    processes = data.get("processes")
    if processes is not None:
        values["processes"] = tuple(GpuProcess(pid, memory) for pid, memory in processes)
    return Gpu(**values)


def read_system(nvml: Nvml) -> dict[str, Any]:
    """Return what NVML reports about the driver, and how many GPUs it knows."""
    return {
        "driver_version": nvml.text("nvmlSystemGetDriverVersion").value,
        "nvml_version": nvml.text("nvmlSystemGetNVMLVersion").value,
        "cuda_version": nvml.number("nvmlSystemGetCudaDriverVersion_v2").value,
        "count": nvml.count().value,
    }
