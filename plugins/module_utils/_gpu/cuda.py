# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""One GPU through the CUDA driver API, by ctypes on libcuda.so.1. Nothing but the driver is needed.

Every call is checked: CudaError carries the driver's own name of what went wrong. Names with _v2
are what the library exports; the headers of CUDA hide them behind macros.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .kernels import PTX

SONAME = "libcuda.so.1"

OUT_OF_MEMORY = 2
NO_DEVICE = 100
INVALID_DEVICE = 101
PEER_ACCESS_ALREADY_ENABLED = 704
SYSTEM_NOT_READY = 802

_P = ctypes.c_void_p
_PP = ctypes.POINTER(_P)
_INT = ctypes.c_int
_PINT = ctypes.POINTER(_INT)
_SIZE = ctypes.c_size_t
_PSIZE = ctypes.POINTER(_SIZE)
_U32 = ctypes.c_uint

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U32,),
    "cuDriverGetVersion": (_PINT,),
    "cuGetErrorName": (_INT, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGetCount": (_PINT,),
    "cuDeviceGetByPCIBusId": (_PINT, ctypes.c_char_p),
    "cuDeviceGetPCIBusId": (ctypes.c_char_p, _INT, _INT),
    "cuDeviceGetName": (ctypes.c_char_p, _INT, _INT),
    "cuDeviceGetAttribute": (_PINT, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_PP, _INT),
    "cuDevicePrimaryCtxRelease_v2": (_INT,),
    "cuCtxSetCurrent": (_P,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_PSIZE, _PSIZE),
    "cuMemAlloc_v2": (_PP, _SIZE),
    "cuMemFree_v2": (_P,),
    "cuMemHostAlloc": (_PP, _SIZE, _U32),
    "cuMemFreeHost": (_P,),
    "cuMemcpyHtoD_v2": (_P, _P, _SIZE),
    "cuMemcpyDtoH_v2": (_P, _P, _SIZE),
    "cuMemcpyHtoDAsync_v2": (_P, _P, _SIZE, _P),
    "cuMemcpyDtoHAsync_v2": (_P, _P, _SIZE, _P),
    "cuMemcpyDtoDAsync_v2": (_P, _P, _SIZE, _P),
    "cuMemcpyPeerAsync": (_P, _P, _P, _P, _SIZE, _P),
    "cuMemsetD32_v2": (_P, _U32, _SIZE),
    "cuEventCreate": (_PP, _U32),
    "cuEventRecord": (_P, _P),
    "cuEventSynchronize": (_P,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _P, _P),
    "cuEventDestroy_v2": (_P,),
    "cuModuleLoadData": (_PP, ctypes.c_char_p),
    "cuModuleGetFunction": (_PP, _P, ctypes.c_char_p),
    "cuLaunchKernel": (_P, *[_U32] * 7, _P, _PP, _PP),
    "cuDeviceCanAccessPeer": (_PINT, _INT, _INT),
    "cuCtxEnablePeerAccess": (_P, _U32),
}

# What each kernel takes: p a pointer, Q 64 bits, I 32 bits. The source is kernels.cu.
KERNELS = {
    "burn_fill": "pQQIII",
    "burn_weights": "pQ",
    "burn_fold": "pIIQI",
    "burn_expect": "ppIQI",
    "burn_expect_row": "pIIQQI",
    "burn_check_float": "pppppI",
    "burn_check_double": "pppppI",
    "burn_hash_rows": "pppppI",
    "burn_hash_columns": "pppII",
    "burn_pattern_write": "pQQI",
    "burn_pattern_check": "pQQIp",
    "burn_read": "pQp",
}
_TYPES = {"p": _P, "Q": ctypes.c_ulonglong, "I": _U32}
# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_CAPABILITY = (75, 76)
_BLOCK = 256
# Enough blocks to fill any GPU; the kernels step over what is more.
_GRID = 4096


class CudaError(Exception):
    """A driver call failed: `code` and `name` are the driver's, `call` is the function."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class NoDriverError(Exception):
    """libcuda.so.1 is not there, or lacks a function that is needed."""


class Driver:
    """The loaded and initialized driver library. Raises NoDriverError, CudaError."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(SONAME)
            for name, types in SIGNATURES.items():
                function = getattr(self.library, name)
                function.argtypes, function.restype = list(types), _INT
        except (OSError, AttributeError) as error:
            raise NoDriverError(str(error)) from None
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; CudaError when it does not give 0."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise CudaError(name, code, self.error_name(code))

    def error_name(self, code: int) -> str:
        """Return the driver's name of a code."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"unknown error").decode("ascii", "replace")

    def version(self) -> int:
        """Return the newest CUDA version the driver serves, as 12080 for 12.8."""
        value = _INT()
        self.call("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    def device_at(self, address: str) -> int:
        """Return the number that CUDA gives the GPU at a PCI address; its order is not NVML's."""
        value = _INT()
        self.call("cuDeviceGetByPCIBusId", ctypes.byref(value), address.encode("ascii"))
        return value.value


class Gpu:
    """A GPU with its primary context, the kernels and what was allocated on it.

    Addresses are plain integers. All work goes to the default stream of the context.
    """

    def __init__(self, driver: Driver, address: str) -> None:
        self.driver, self.address = driver, address
        self.number = driver.device_at(address)
        context = _P()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.number)
        self.context = context
        self._functions: dict[str, Any] = {}
        self._allocated: list[int] = []
        self._events: list[Any] = []
        self.make_current()
        self._module = _P()
        driver.call("cuModuleLoadData", ctypes.byref(self._module), PTX.encode("ascii"))

    def make_current(self) -> None:
        """Direct the calls of this thread to this GPU."""
        self.driver.call("cuCtxSetCurrent", self.context)

    def name(self) -> str:
        """Return the product name."""
        text = ctypes.create_string_buffer(128)
        self.driver.call("cuDeviceGetName", text, 128, self.number)
        return text.value.decode("utf-8", "replace")

    def capability(self) -> tuple[int, int]:
        """Return the compute capability, (9, 0) for Hopper."""
        values = []
        for attribute in _CAPABILITY:
            value = _INT()
            self.driver.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self.number)
            values.append(value.value)
        return values[0], values[1]

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes."""
        free, total = _SIZE(), _SIZE()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        """Return the address of `size` bytes on the GPU; CudaError with code 2 when it is full."""
        at = _P()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(at), size)
        self._allocated.append(at.value or 0)
        return at.value or 0

    def free_all(self) -> None:
        """Give back all that was allocated here."""
        while self._allocated:
            self.driver.call("cuMemFree_v2", self._allocated.pop())

    def launch(self, name: str, grid: tuple[int, int], *arguments: int) -> None:
        """Start a kernel with blocks of 256 threads. Raises CudaError."""
        if name not in self._functions:
            function = _P()
            self.driver.call(
                "cuModuleGetFunction", ctypes.byref(function), self._module, name.encode("ascii")
            )
            self._functions[name] = function
        kinds = KERNELS[name]
        if len(kinds) != len(arguments):
            raise TypeError(f"{name} takes {len(kinds)} arguments, not {len(arguments)}")
        values = [_TYPES[kind](value) for kind, value in zip(kinds, arguments)]
        pointers = (_P * len(values))(*[ctypes.addressof(value) for value in values])
        function, (across, down) = self._functions[name], grid
        self.driver.call(
            "cuLaunchKernel", function, across, down, 1, _BLOCK, 1, 1, 0, None, pointers, None
        )

    def launch_over(self, count: int, name: str, *arguments: int) -> None:
        """Start a kernel that steps over `count` things."""
        self.launch(name, (max(1, min(_GRID, -(-count // _BLOCK))), 1), *arguments)

    def blocks(self, count: int) -> int:
        """Return how many blocks have a thread for each of `count` things."""
        return -(-count // _BLOCK)

    def zero(self, at: int, size: int) -> None:
        """Clear `size` bytes, a multiple of 4."""
        self.driver.call("cuMemsetD32_v2", at, 0, size // 4)

    def read(self, at: int, size: int) -> bytes:
        """Return `size` bytes of the GPU's memory, when all work before is done."""
        buffer = ctypes.create_string_buffer(size)
        self.driver.call("cuMemcpyDtoH_v2", buffer, at, size)
        return buffer.raw

    def write(self, at: int, data: bytes) -> None:
        """Write bytes into the GPU's memory."""
        self.driver.call("cuMemcpyHtoD_v2", at, data, len(data))

    def synchronize(self) -> None:
        """Wait for all work of the GPU."""
        self.driver.call("cuCtxSynchronize")

    def event(self) -> Any:
        """Return a new event in the stream's time."""
        event = _P()
        self.driver.call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def record(self, event: Any) -> None:
        """Record an event behind the work started so far."""
        self.driver.call("cuEventRecord", event, None)

    def wait(self, event: Any) -> None:
        """Wait until the stream has passed an event."""
        self.driver.call("cuEventSynchronize", event)

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the time between two events in milliseconds, at a resolution of 0.5 us."""
        value = ctypes.c_float()
        self.driver.call("cuEventElapsedTime", ctypes.byref(value), start, end)
        return value.value
