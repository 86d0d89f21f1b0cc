# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""NCCL by ctypes on libnccl.so.2: as much as one sum over all GPUs takes. No MPI, no compiler.

The names, the numbers and the 128 bytes of an id that go by value are those of the header nccl.h,
the same since 2.4. The context of CUDA that is current decides which GPU a rank has.
"""

from __future__ import annotations

import ctypes
from typing import Any

SONAME = "libnccl.so.2"
ID_BYTES = 128
FLOAT32 = 7
SUM = 0

_P = ctypes.c_void_p
_INT = ctypes.c_int


class UniqueId(ctypes.Structure):
    """What all ranks of a group must know."""

    _fields_ = [("internal", ctypes.c_byte * ID_BYTES)]


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(_INT),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(_P), _INT, UniqueId, _INT),
    "ncclAllReduce": (_P, _P, ctypes.c_size_t, _INT, _INT, _P, _P),
    "ncclCommGetAsyncError": (_P, ctypes.POINTER(_INT)),
    "ncclCommAbort": (_P,),
    "ncclCommDestroy": (_P,),
}


class NcclError(Exception):
    """A call failed: `call` is the function, `code` NCCL's."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} ({code})")
        self.call, self.code = call, code


class NoNcclError(Exception):
    """libnccl.so.2 is not there, or lacks a function that is needed."""


class Nccl:
    """The loaded library. Raises NoNcclError, NcclError."""

    def __init__(self, path: str = "") -> None:
        try:
            self.library = ctypes.CDLL(path or SONAME)
            for name, types in _SIGNATURES.items():
                function = getattr(self.library, name)
                function.argtypes, function.restype = list(types), _INT
            self.library.ncclGetErrorString.argtypes = [_INT]
            self.library.ncclGetErrorString.restype = ctypes.c_char_p
            # Since 2.13
            self._last = getattr(self.library, "ncclGetLastError", None)
        except (OSError, AttributeError) as error:
            raise NoNcclError(str(error)) from None
        if self._last is not None:
            self._last.argtypes, self._last.restype = [_P], ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; NcclError when it does not give 0."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise NcclError(name, code, self.text(code))

    def text(self, code: int) -> str:
        """Return what a code means, with what NCCL remembers of the last failure."""
        words = [self.library.ncclGetErrorString(code)]
        if self._last is not None:
            words.append(self._last(None))
        return "; ".join(word.decode("utf-8", "replace").strip() for word in words if word)

    def version(self) -> str:
        """Return the release, as 2.27.3."""
        value = _INT()
        self.call("ncclGetVersion", ctypes.byref(value))
        code = value.value
        # Before 2.9 a release had three digits less.
        if code < 10000:
            return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"

    def unique_id(self) -> bytes:
        """Return a new id, 128 bytes."""
        made = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(made))
        return bytes(made)

    def join(self, ranks: int, unique_id: bytes, rank: int) -> Any:
        """Join a group; returns when all have. ValueError for an id of another length."""
        if len(unique_id) != ID_BYTES:
            raise ValueError(f"an id has {ID_BYTES} bytes, this one has {len(unique_id)}")
        comm = _P()
        made = UniqueId.from_buffer_copy(unique_id)
        self.call("ncclCommInitRank", ctypes.byref(comm), ranks, made, rank)
        return comm

    def all_reduce(self, send: int, recv: int, count: int, comm: Any) -> None:
        """Start the sum of `count` floats over all ranks, in the default stream."""
        self.call("ncclAllReduce", send, recv, count, FLOAT32, SUM, comm, None)

    def async_error(self, comm: Any) -> str:
        """Return what went wrong in the background, empty when nothing did."""
        code = _INT()
        self.call("ncclCommGetAsyncError", comm, ctypes.byref(code))
        # 7 is "in progress".
        return self.text(code.value) if code.value not in (0, 7) else ""

    def abort(self, comm: Any) -> None:
        """End a group whose ranks wait for one that does not come; from any thread."""
        self.library.ncclCommAbort(comm)

    def leave(self, comm: Any) -> None:
        """Leave a group that is well."""
        self.call("ncclCommDestroy", comm)
