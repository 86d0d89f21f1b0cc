# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Matrix products through libcublasLt, by ctypes, and where that library is found.

The library is NVIDIA's own, as user workloads load it: the same kernels, near the peak of each GPU.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import os
from dataclasses import dataclass
from typing import Any

from .._gpu.cuda import Gpu

_P = ctypes.c_void_p
_PP = ctypes.POINTER(_P)
_INT = ctypes.c_int
_SIZE = ctypes.c_size_t

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_PP,),
    "cublasLtDestroy": (_P,),
    "cublasLtMatmulDescCreate": (_PP, _INT, _INT),
    "cublasLtMatmulDescSetAttribute": (_P, _INT, _P, _SIZE),
    "cublasLtMatrixLayoutCreate": (
        _PP,
        _INT,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_int64,
    ),
    "cublasLtMatmulPreferenceCreate": (_PP,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, _INT, _P, _SIZE),
    "cublasLtMatmulAlgoGetHeuristic": (_P, _P, _P, _P, _P, _P, _P, _INT, _P, _P),
    # handle, description, alpha, A, its layout, B, its, beta, C, its, D, its, algorithm,
    # workspace, its size, stream
    "cublasLtMatmul": (*[_P] * 14, _SIZE, _P),
}

# cublasLtMatmulDescAttributes_t, cublasOperation_t, cublasLtMatmulPreferenceAttributes_t
_TRANSA, _TRANSB, _FAST_ACCUM = 3, 4, 25
_NO, _YES = 0, 1
_MAX_WORKSPACE = 1

# Where the toolkits put it, the role's own folder last.
FOLDERS = (
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/x86_64-linux/lib",
    "/usr/local/cuda*/targets/sbsa-linux/lib",
    "/opt/baremetal-dgx/lib",
)


@dataclass(frozen=True)
class Kind:
    """How one kind of product is asked for.

    `data`, `result`, `scale` are cudaDataType_t, `compute` is a cublasComputeType_t; `width` is the
    bytes of an operand, `code` the number the kernels know it by. Operands of exact products are
    integers up to `amplitude`, so small that any order of summation is exact at n <= 8192: 2^24 in
    fp32 (45 * 45 * 8192 < 2^24), 2^53 in fp64, and 2^13 for fp8, whose sums Hopper keeps in fewer
    bits (DeepSeek-V3 report, section 3.3; typical sums are below 2^12 with 3).
    """

    name: str
    code: int
    width: int
    data: int
    compute: int
    scale: int
    result: int
    amplitude: int

    @property
    def result_width(self) -> int:
        """Bytes of an element of the result."""
        return 8 if self.result == 1 else 4


KINDS = {
    kind.name: kind
    for kind in (
        Kind("bf16", 0, 2, 14, 68, 0, 0, 45),
        Kind("fp16", 1, 2, 2, 68, 0, 0, 45),
        Kind("tf32", 2, 4, 0, 77, 0, 0, 45),
        Kind("fp8", 3, 1, 28, 68, 0, 0, 3),
        Kind("fp64", 4, 8, 1, 70, 1, 1, 1 << 19),
    )
}


class LtError(Exception):
    """A call of libcublasLt failed; `call` is the function, `code` its cublasStatus_t."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} ({code})")
        self.call, self.code = call, code


class NoLibraryError(Exception):
    """No usable libcublasLt; `searched` says where it was looked for."""

    def __init__(self, searched: list[str]) -> None:
        super().__init__("no usable libcublasLt; searched: " + ", ".join(searched))
        self.searched = searched


class _Heuristic(ctypes.Structure):
    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", _SIZE),
        ("state", _INT),
        ("waves", ctypes.c_float),
        ("reserved", _INT * 4),
    ]


def places(path: str, driver_version: int) -> list[str]:
    """Return what to try to load, in order; a library newer than the driver is of no use.

    `path` is what the user named: then nothing else is tried. `driver_version` is as 12080.
    """
    if path:
        return [path]
    majors = [major for major in (13, 12) if major <= driver_version // 1000]
    names = [f"libcublasLt.so.{major}" for major in majors]
    found = list(names)
    for folder in FOLDERS:
        for name in names:
            found += sorted(glob.glob(os.path.join(folder, name)), reverse=True)
    return found


class Lt:
    """A loaded libcublasLt. Raises NoLibraryError, LtError."""

    def __init__(self, path: str, driver_version: int) -> None:
        searched = []
        self.path = ""
        for place in places(path, driver_version):
            try:
                self.library = ctypes.CDLL(place)
                for name, types in SIGNATURES.items():
                    function = getattr(self.library, name)
                    function.argtypes, function.restype = list(types), _INT
            except (OSError, AttributeError) as error:
                searched.append(f"{place} ({error})")
                continue
            self.path = place
            break
        if not self.path:
            raise NoLibraryError(searched + ([] if path else list(FOLDERS)))
        self.library.cublasLtGetVersion.restype = _SIZE
        self.library.cublasLtGetStatusString.restype = ctypes.c_char_p
        self.library.cublasLtGetStatusString.argtypes = [_INT]
        self.version = int(self.library.cublasLtGetVersion())
        self.handle = _P()
        self.call("cublasLtCreate", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; LtError when it does not give 0."""
        code = getattr(self.library, name)(*arguments)
        if code:
            text = self.library.cublasLtGetStatusString(code) or b"unknown status"
            raise LtError(name, code, text.decode("ascii", "replace"))


class Product:
    """Square products of one kind on one GPU: C[r][c] = sum over k of P[r][k] * Q[c][k].

    The library writes by columns. With its A = Q and B = P and the first transposed (the only form
    that fp8 has) each row of C is contiguous. Takes the first algorithm that the library's own
    heuristic gives, so that equal GPUs run equal kernels; `algorithm` names it.
    """

    WORKSPACE = 32 << 20

    def __init__(self, lt: Lt, gpu: Gpu, kind: Kind, n: int, workspace_limit: int) -> None:
        self._lt, self.kind, self.n = lt, kind, n
        self._description = _P()
        lt.call(
            "cublasLtMatmulDescCreate", ctypes.byref(self._description), kind.compute, kind.scale
        )
        self._set(_TRANSA, _INT(_YES))
        self._set(_TRANSB, _INT(_NO))
        if kind.name == "fp8":
            # Exact sums need the slower accumulation in fp32.
            self._set(_FAST_ACCUM, ctypes.c_int8(0))
        self._operand, self._result = _P(), _P()
        for layout, data in ((self._operand, kind.data), (self._result, kind.result)):
            lt.call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), data, n, n, n)
        preference = _P()
        lt.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        limit = ctypes.c_uint64(workspace_limit)
        lt.call(
            "cublasLtMatmulPreferenceSetAttribute",
            preference,
            _MAX_WORKSPACE,
            ctypes.byref(limit),
            8,
        )
        self._heuristic, found = _Heuristic(), _INT()
        ab, cd = self._operand, self._result
        lt.call(
            "cublasLtMatmulAlgoGetHeuristic",
            lt.handle,
            self._description,
            ab,
            ab,
            cd,
            cd,
            preference,
            1,
            ctypes.byref(self._heuristic),
            ctypes.byref(found),
        )
        if not found.value or self._heuristic.state:
            raise LtError("cublasLtMatmulAlgoGetHeuristic", 15, "no algorithm for this product")
        self.workspace_size = int(self._heuristic.workspace)
        self._workspace = gpu.allocate(self.workspace_size) if self.workspace_size else None
        raw = bytes(self._heuristic.algorithm)
        self.algorithm = hashlib.sha256(raw + b"%d" % lt.version).hexdigest()[:16]
        number = ctypes.c_double if kind.scale == 1 else ctypes.c_float
        self._one, self._none = number(1), number(0)

    def _set(self, attribute: int, value: Any) -> None:
        size = ctypes.sizeof(value)
        self._lt.call(
            "cublasLtMatmulDescSetAttribute",
            self._description,
            attribute,
            ctypes.byref(value),
            size,
        )

    def start(self, p: int, q: int, c: int) -> None:
        """Start one product into C; P, Q and C are addresses on the GPU. Raises LtError."""
        ab, cd = self._operand, self._result
        self._lt.call(
            "cublasLtMatmul",
            self._lt.handle,
            self._description,
            ctypes.byref(self._one),
            q,
            ab,
            p,
            ab,
            ctypes.byref(self._none),
            c,
            cd,
            c,
            cd,
            ctypes.byref(self._heuristic),
            self._workspace,
            self.workspace_size,
            None,
        )
