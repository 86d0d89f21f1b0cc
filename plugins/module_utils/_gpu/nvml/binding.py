# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A binding of NVML by ctypes: each call gives an Answer, a value or why there is none.

No call raises because of what a driver lacks or a GPU does; only loading the library does. Calls of
NVML may hang or crash where a GPU is broken: use _nvml_sweep, which reads in its own process.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .types import (
    ERRORS,
    EVENT_XID,
    FIELD_MEMBERS,
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    LIBRARY_NOT_FOUND,
    SIGNATURES,
    SUCCESS,
    EventData,
    FieldValue,
    Handle,
    PciInfo,
    Process,
    versioned,
)

SONAME = "libnvidia-ml.so.1"
_LONGEST_TEXT = 128


class NvmlError(Exception):
    """NVML cannot be used at all; `code` is an nvmlReturn_t."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or reason(code))
        self.code = code


class Answer(NamedTuple):
    """What one call gave: `value` is None unless `code` is 0."""

    value: Any
    code: int = SUCCESS

    @property
    def ok(self) -> bool:
        """True when there is a value."""
        return self.code == SUCCESS

    @property
    def reason(self) -> str:
        """Why there is no value, in words; empty where there is one."""
        return "" if self.code == SUCCESS else reason(self.code)


def reason(code: int) -> str:
    """Return an nvmlReturn_t in words."""
    return ERRORS.get(code, f"NVML error {code}")


class Nvml:
    """An initialized NVML.

    `library` is the path of libnvidia-ml.so.1, or empty for the one that the loader finds. `watch`
    gets the name of each function before it is called. Raises NvmlError.
    """

    def __init__(self, library: str = "", watch: Callable[[str], None] | None = None) -> None:
        try:
            # By its name, not by ctypes.util.find_library, which would run a compiler.
            self._library = ctypes.CDLL(library or SONAME)
        except OSError as error:
            raise NvmlError(LIBRARY_NOT_FOUND, f"{library or SONAME}: {error}") from None
        self._functions: dict[str, Any] = {}
        self._watch = watch
        code = self.call("nvmlInit_v2")
        if code != SUCCESS:
            raise NvmlError(code)

    def close(self) -> None:
        """Release the library's handles; the library stays loaded."""
        self.call("nvmlShutdown")

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            found = getattr(self._library, name, None)
            if found is not None:
                # Without these ctypes would cut handles to 32 bits.
                found.argtypes = SIGNATURES[name]
                found.restype = ctypes.c_int
            self._functions[name] = found
        return self._functions[name]

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of SIGNATURES and return its code; 13 where the library lacks it."""
        function = self._function(name)
        if function is None:
            return FUNCTION_NOT_FOUND
        if self._watch is not None:
            self._watch(name)
        return int(function(*arguments))

    def number(self, name: str, *arguments: Any) -> Answer:
        """Return the one number that a function writes behind its last pointer."""
        kind = SIGNATURES[name][-1]._type_
        value = kind()
        code = self.call(name, *arguments, ctypes.byref(value))
        return Answer(value.value if code == SUCCESS else None, code)

    def numbers(self, name: str, handle: Any, count: int) -> Answer:
        """Return the `count` numbers that a function writes behind pointers, as a tuple."""
        values = [kind._type_() for kind in SIGNATURES[name][-count:]]
        code = self.call(name, handle, *[ctypes.byref(value) for value in values])
        return Answer(tuple(v.value for v in values) if code == SUCCESS else None, code)

    def text(self, name: str, *arguments: Any) -> Answer:
        """Return the text that a function writes."""
        buffer = ctypes.create_string_buffer(_LONGEST_TEXT)
        code = self.call(name, *arguments, buffer, _LONGEST_TEXT)
        value = buffer.value.decode("utf-8", "replace")
        return Answer(value if code == SUCCESS else None, code)

    def structure(self, name: str, handle: Any) -> Answer:
        """Return the structure that a function fills, its version set."""
        made = versioned(SIGNATURES[name][-1]._type_)
        code = self.call(name, handle, ctypes.byref(made))
        return Answer(made if code == SUCCESS else None, code)

    def fields(self, handle: Any, wanted: Sequence[tuple[int, int]]) -> list[Answer]:
        """Return an answer for each (field, scope), in one call."""
        values = (FieldValue * len(wanted))()
        for value, (field, scope) in zip(values, wanted):
            value.fieldId, value.scopeId = field, scope
        code = self.call("nvmlDeviceGetFieldValues", handle, len(wanted), values)
        if code != SUCCESS:
            return [Answer(None, code) for _each in wanted]
        answers = []
        for value in values:
            member = FIELD_MEMBERS.get(value.valueType)
            good = value.nvmlReturn == SUCCESS and member is not None
            found = getattr(value.value, member) if good and member else None
            answers.append(Answer(found, SUCCESS if good else value.nvmlReturn or 999))
        return answers

    def count(self) -> Answer:
        """Return how many GPUs the driver knows, those that are lost included."""
        return self.number("nvmlDeviceGetCount_v2")

    def handle(self, index: int) -> Answer:
        """Return the handle of a GPU by its index."""
        found = Handle()
        code = self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(found))
        return Answer(found if code == SUCCESS else None, code)

    def handle_at(self, address: str) -> Answer:
        """Return the handle of a GPU by its PCI address (0000:1b:00.0)."""
        found = Handle()
        code = self.call("nvmlDeviceGetHandleByPciBusId_v2", address.encode(), ctypes.byref(found))
        return Answer(found if code == SUCCESS else None, code)

    def address(self, handle: Any) -> Answer:
        """Return the PCI address of a GPU as sysfs writes it."""
        answer = self.structure("nvmlDeviceGetPciInfo_v3", handle)
        return Answer(plain_address(answer.value), answer.code) if answer.ok else answer

    def processes(self, handle: Any) -> Answer:
        """Return (process, MiB) of each compute process; MiB is None where it is not reported."""
        room = 64
        while True:
            found, count = (Process * room)(), ctypes.c_uint(room)
            code = self.call(
                "nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found
            )
            if code != INSUFFICIENT_SIZE or room > 65536:
                break
            # Between two calls their number may grow.
            room = count.value + 64
        if code != SUCCESS:
            return Answer(None, code)
        unknown = ctypes.c_ulonglong(-1).value
        listed = found[: count.value]
        return Answer(
            [
                (one.pid, None if one.usedGpuMemory == unknown else one.usedGpuMemory >> 20)
                for one in listed
            ]
        )


def plain_address(info: PciInfo) -> str:
    """Return 0000:1b:00.0; NVML writes the domain with eight digits."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


class XidEvents:
    """Xid errors as the driver reports them; open one set for the GPUs to be watched."""

    def __init__(self, nvml: Nvml, handles: Mapping[str, Any]) -> None:
        """Register each GPU by its address; `answers` tells which of them cannot be watched."""
        self._nvml, self._set = nvml, Handle()
        # A GPU that fell off the bus, which is an Xid, no longer tells its address.
        self._addresses = {handle.value: address for address, handle in handles.items()}
        code = nvml.call("nvmlEventSetCreate", ctypes.byref(self._set))
        self.answers = {
            address: Answer(
                None, code or nvml.call("nvmlDeviceRegisterEvents", handle, EVENT_XID, self._set)
            )
            for address, handle in handles.items()
        }

    def wait(self, timeout_ms: int) -> Answer:
        """Return (address, Xid) of the next event; code 10 where none came in time.

        The address is empty where neither the registered GPUs nor NVML tell it.
        """
        data = EventData()
        code = self._nvml.call(
            "nvmlEventSetWait_v2", self._set, ctypes.byref(data), ctypes.c_uint(timeout_ms)
        )
        if code != SUCCESS:
            return Answer(None, code)
        where = self._addresses.get(data.device)
        if where is None:
            where = self._nvml.address(Handle(data.device)).value or ""
        return Answer((where, data.eventData))

    def close(self) -> None:
        """Free the set."""
        self._nvml.call("nvmlEventSetFree", self._set)
