# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Structures, numbers and signatures of NVML that this collection uses. Pure.

Source of all of them: nvml.h of the CUDA toolkit (NVIDIA NVML API reference). NVML adds functions
and versions of structures and removes none, so that one set of declarations fits all drivers; what
a driver lacks is found out when it is called.
"""

from __future__ import annotations

import ctypes
from typing import Any

Handle = ctypes.c_void_p
_U32 = ctypes.c_uint
_U64 = ctypes.c_ulonglong
_INT = ctypes.c_int
_PU32 = ctypes.POINTER(_U32)
_PU64 = ctypes.POINTER(_U64)
_PINT = ctypes.POINTER(_INT)
_TEXT = ctypes.c_char_p

# nvmlReturn_t
SUCCESS = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
CORRUPTED_INFOROM = 14
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25

ERRORS = {
    1: "NVML is not initialized",
    INVALID_ARGUMENT: "invalid argument",
    NOT_SUPPORTED: "not supported by this GPU",
    NO_PERMISSION: "no permission",
    6: "not found",
    INSUFFICIENT_SIZE: "buffer too small",
    8: "external power is not connected",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    TIMEOUT: "timeout",
    11: "the kernel found an interrupt issue with this GPU",
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 was not found",
    FUNCTION_NOT_FOUND: "this driver does not have the function",
    CORRUPTED_INFOROM: "the infoROM is corrupted",
    GPU_IS_LOST: "the GPU has fallen off the bus",
    RESET_REQUIRED: "the GPU needs a reset",
    17: "the operating system blocked the request",
    LIB_RM_VERSION_MISMATCH: "library and kernel module are of different versions",
    19: "in use",
    20: "out of memory",
    21: "no data",
    ARGUMENT_VERSION_MISMATCH: "this driver does not have this version of the structure",
    26: "deprecated",
    27: "not ready",
    28: "no GPU was found",
    999: "an internal driver error",
}

# nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlMemoryLocation_t
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
DRAM, SRAM = 2, 7

# nvmlClockType_t, nvmlTemperatureThresholds_t
CLOCK_SM, CLOCK_MEMORY = 1, 2
LIMIT_SHUTDOWN, LIMIT_SLOWDOWN, LIMIT_MEMORY, LIMIT_GPU = 0, 1, 2, 3

# nvmlPerfPolicyType_t
POLICY_THERMAL = 1

# Field identifiers (NVML_FI_DEV_*).
FIELD_MEMORY_TEMPERATURE = 82
FIELD_LINK_COUNT = 91
FIELD_LINK_REPLAY = 161
FIELD_LINK_RECOVERY = 162
FIELD_LINK_CRC = 163
FIELD_LINK_SPEED_MBPS = 164
FIELD_TLIMIT_SHUTDOWN = 193
FIELD_TLIMIT_SLOWDOWN = 194
FIELD_TLIMIT_GPU = 196
FIELD_LINK_RECOVERY_FAILED = 214
FIELD_LINK_EFFECTIVE_BER = 220
FIELD_RECOVERY_ACTION = 230

# NVML_NVLINK_BER_*: an error ratio is mantissa x 10^-exponent; 15 and 255 are for no error at all.
_BER_MANTISSA_SHIFT, _BER_MANTISSA_WIDTH, _BER_EXPONENT_WIDTH = 8, 0xF, 0xFF


def bit_error_ratio(value: int) -> float:
    """Return the ratio that an NVLink field holds."""
    mantissa = value >> _BER_MANTISSA_SHIFT & _BER_MANTISSA_WIDTH
    return mantissa / 10.0 ** (value & _BER_EXPONENT_WIDTH)


# nvmlGpuFabricState_t
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
FABRIC_COMPLETED = 3

# The words of a field of nvmlGpuFabricInfo_v2_t.healthMask: what is a fault if it is true, and what
# is one if it is false.
_FAULT = {1: "bad", 2: "good"}
_NEED = {1: "good", 2: "bad"}
_CONFIGURATIONS = {
    1: "good",
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "GPU firmware that does not fit",
    7: "wrong location",
    8: "invalid state of the GPU",
}
# The first bit of each condition, its width and its words; 0 is one that is not reported. The last
# two are in drivers after 590 and 610 (NVML change log; the bits are those of the open driver's
# messages over NVLink).
FABRIC_HEALTH = {
    "bandwidth": (0, 0x3, _FAULT),
    "route_recovery": (2, 0x3, _FAULT),
    "route": (4, 0x3, _FAULT),
    "access": (6, 0x3, _FAULT),
    "configuration": (8, 0xF, _CONFIGURATIONS),
    "partition": (12, 0x3, _NEED),
    "connection": (14, 0x3, _NEED),
}

# Bits of nvmlClocksEventReasons.
THROTTLE_REASONS = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clocks",
}

COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}

EVENT_XID = 0x8

MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS is 18 up to Blackwell; newer headers leave room


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t, version 3."""

    _fields_ = (
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", _U32),
        ("bus", _U32),
        ("device", _U32),
        ("pciDeviceId", _U32),
        ("pciSubSystemId", _U32),
        ("busId", ctypes.c_char * 32),
    )


class Memory(ctypes.Structure):
    """nvmlMemory_t: used includes what the driver reserves."""

    _fields_ = (("total", _U64), ("free", _U64), ("used", _U64))


class MemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t: used without what the driver reserves."""

    _fields_ = (
        ("version", _U32),
        ("total", _U64),
        ("reserved", _U64),
        ("free", _U64),
        ("used", _U64),
    )


class SramEcc(ctypes.Structure):
    """nvmlEccSramErrorStatus_v1_t."""

    _fields_ = (
        ("version", _U32),
        ("aggregateUncParity", _U64),
        ("aggregateUncSecDed", _U64),
        ("aggregateCor", _U64),
        ("volatileUncParity", _U64),
        ("volatileUncSecDed", _U64),
        ("volatileCor", _U64),
        ("aggregateUncBucketL2", _U64),
        ("aggregateUncBucketSm", _U64),
        ("aggregateUncBucketPcie", _U64),
        ("aggregateUncBucketMcu", _U64),
        ("aggregateUncBucketOther", _U64),
        ("bThresholdExceeded", _U32),
    )


class _FieldUnion(ctypes.Union):
    _fields_ = (
        ("dVal", ctypes.c_double),
        ("uiVal", _U32),
        ("ulVal", ctypes.c_ulong),
        ("ullVal", _U64),
        ("sllVal", ctypes.c_longlong),
        ("siVal", _INT),
        ("usVal", ctypes.c_ushort),
    )


# By nvmlValueType_t: the member of the union that holds the value.
FIELD_MEMBERS = {
    0: "dVal",
    1: "uiVal",
    2: "ulVal",
    3: "ullVal",
    4: "sllVal",
    5: "siVal",
    6: "usVal",
}


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("fieldId", _U32),
        ("scopeId", _U32),
        ("timestamp", ctypes.c_longlong),
        ("latencyUsec", ctypes.c_longlong),
        ("valueType", _U32),
        ("nvmlReturn", _INT),
        ("value", _FieldUnion),
    )


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, percent of the last sample period."""

    _fields_ = (("gpu", _U32), ("memory", _U32))


class Process(ctypes.Structure):
    """nvmlProcessInfo_t as the functions with _v3 return it."""

    _fields_ = (
        ("pid", _U32),
        ("usedGpuMemory", _U64),
        ("gpuInstanceId", _U32),
        ("computeInstanceId", _U32),
    )


class Margin(ctypes.Structure):
    """nvmlMarginTemperature_v1_t: degrees to the largest operating temperature."""

    _fields_ = (("version", _U32), ("marginTemperature", _INT))


class Fabric(ctypes.Structure):
    """nvmlGpuFabricInfo_t."""

    _fields_ = (
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", _INT),
        ("cliqueId", _U32),
        ("state", _U32),
    )


class FabricV2(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_ = (
        ("version", _U32),
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", _INT),
        ("cliqueId", _U32),
        ("state", _U32),
        ("healthMask", _U32),
    )


class Unrepairable(ctypes.Structure):
    """nvmlUnrepairableMemoryStatus_v1_t, with room for what a later driver may add."""

    _fields_ = (("flag", _U32), ("room", _U32 * 15))


class RepairStatus(ctypes.Structure):
    """nvmlRepairStatus_v1_t: repairs that wait for the next reset."""

    _fields_ = (("version", _U32), ("channelPending", _U32), ("tpcPending", _U32))


class RemapperHistogram(ctypes.Structure):
    """nvmlRowRemapperHistogramValues_t: banks of memory by how many spare rows they have."""

    _fields_ = (("max", _U32), ("high", _U32), ("partial", _U32), ("low", _U32), ("none", _U32))


class Violation(ctypes.Structure):
    """nvmlViolationTime_t, in nanoseconds."""

    _fields_ = (("referenceTime", _U64), ("violationTime", _U64))


class EventData(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", Handle),
        ("eventType", _U64),
        ("eventData", _U64),
        ("gpuInstanceId", _U32),
        ("computeInstanceId", _U32),
    )


# The version of each structure that has one in its first member.
VERSIONS = {MemoryV2: 2, SramEcc: 1, Margin: 1, FabricV2: 2, RepairStatus: 1}


def versioned(kind: Any) -> Any:
    """Return an empty structure; where it has a version, its size and version are filled in."""
    made = kind()
    if kind in VERSIONS:
        made.version = ctypes.sizeof(kind) | VERSIONS[kind] << 24
    return made


def _pointer(kind: Any) -> Any:
    return ctypes.POINTER(kind)


_NUMBER = (Handle, _PU32)
_STRING = (Handle, _TEXT, _U32)

# Arguments of each function; all return nvmlReturn_t.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nvmlInit_v2": (),
    "nvmlShutdown": (),
    "nvmlSystemGetDriverVersion": (_TEXT, _U32),
    "nvmlSystemGetNVMLVersion": (_TEXT, _U32),
    "nvmlSystemGetCudaDriverVersion_v2": (_PINT,),
    "nvmlDeviceGetCount_v2": (_PU32,),
    "nvmlDeviceGetHandleByIndex_v2": (_U32, _pointer(Handle)),
    "nvmlDeviceGetHandleByPciBusId_v2": (_TEXT, _pointer(Handle)),
    "nvmlDeviceGetName": _STRING,
    "nvmlDeviceGetUUID": _STRING,
    "nvmlDeviceGetSerial": _STRING,
    "nvmlDeviceGetBoardPartNumber": _STRING,
    "nvmlDeviceGetVbiosVersion": _STRING,
    "nvmlDeviceGetInforomImageVersion": _STRING,
    "nvmlDeviceGetMinorNumber": _NUMBER,
    "nvmlDeviceGetPciInfo_v3": (Handle, _pointer(PciInfo)),
    "nvmlDeviceGetMemoryInfo": (Handle, _pointer(Memory)),
    "nvmlDeviceGetMemoryInfo_v2": (Handle, _pointer(MemoryV2)),
    "nvmlDeviceGetEccMode": (Handle, _PU32, _PU32),
    "nvmlDeviceGetTotalEccErrors": (Handle, _U32, _U32, _PU64),
    "nvmlDeviceGetMemoryErrorCounter": (Handle, _U32, _U32, _U32, _PU64),
    "nvmlDeviceGetSramEccErrorStatus": (Handle, _pointer(SramEcc)),
    "nvmlDeviceGetRemappedRows": (Handle, _PU32, _PU32, _PU32, _PU32),
    "nvmlDeviceGetRowRemapperHistogram": (Handle, _pointer(RemapperHistogram)),
    "nvmlDeviceGetRepairStatus": (Handle, _pointer(RepairStatus)),
    "nvmlDeviceGetRetiredPages": (Handle, _U32, _PU32, _PU64),
    "nvmlDeviceGetRetiredPagesPendingStatus": _NUMBER,
    "nvmlDeviceGetNvLinkState": (Handle, _U32, _PU32),
    "nvmlDeviceGetFieldValues": (Handle, _INT, _pointer(FieldValue)),
    "nvmlDeviceGetCurrPcieLinkGeneration": _NUMBER,
    "nvmlDeviceGetCurrPcieLinkWidth": _NUMBER,
    "nvmlDeviceGetMaxPcieLinkGeneration": _NUMBER,
    "nvmlDeviceGetMaxPcieLinkWidth": _NUMBER,
    "nvmlDeviceGetPcieReplayCounter": _NUMBER,
    "nvmlDeviceGetClockInfo": (Handle, _U32, _PU32),
    "nvmlDeviceGetMaxClockInfo": (Handle, _U32, _PU32),
    "nvmlDeviceGetCurrentClocksEventReasons": (Handle, _PU64),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (Handle, _PU64),
    "nvmlDeviceGetTemperature": (Handle, _U32, _PU32),
    "nvmlDeviceGetTemperatureThreshold": (Handle, _U32, _PU32),
    "nvmlDeviceGetMarginTemperature": (Handle, _pointer(Margin)),
    "nvmlDeviceGetPowerUsage": _NUMBER,
    "nvmlDeviceGetEnforcedPowerLimit": _NUMBER,
    "nvmlDeviceGetPowerManagementDefaultLimit": _NUMBER,
    "nvmlDeviceGetTotalEnergyConsumption": (Handle, _PU64),
    "nvmlDeviceGetUtilizationRates": (Handle, _pointer(Utilization)),
    "nvmlDeviceGetPersistenceMode": _NUMBER,
    "nvmlDeviceGetComputeMode": _NUMBER,
    "nvmlDeviceGetMigMode": (Handle, _PU32, _PU32),
    "nvmlDeviceGetPerformanceState": _NUMBER,
    "nvmlDeviceGetGpuFabricInfo": (Handle, _pointer(Fabric)),
    "nvmlDeviceGetGpuFabricInfoV": (Handle, _pointer(FabricV2)),
    "nvmlDeviceGetComputeRunningProcesses_v3": (Handle, _PU32, _pointer(Process)),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": (Handle, _pointer(Unrepairable)),
    "nvmlDeviceGetViolationStatus": (Handle, _U32, _pointer(Violation)),
    "nvmlDeviceValidateInforom": (Handle,),
    "nvmlEventSetCreate": (_pointer(Handle),),
    "nvmlDeviceRegisterEvents": (Handle, _U64, Handle),
    "nvmlEventSetWait_v2": (Handle, _pointer(EventData), _U32),
    "nvmlEventSetFree": (Handle,),
}
