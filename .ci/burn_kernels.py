# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn plugins/module_utils/_gpu/kernels.cu into the PTX text of _gpu/kernels.py.

    .venv/bin/pip install --target DIR nvidia-cuda-nvrtc-cu12==12.0.140
    NVRTC=DIR .venv/bin/python .ci/burn_kernels.py [--check]

The compiler is pinned because its version decides the PTX version: 12.0 writes PTX 8.0, which every
driver from 525 on takes; a later one writes text that older drivers refuse. Needs no GPU.
Ends with 0, 1 (--check: the text is not what the source gives), 77 (no such NVRTC here).
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import os
import re
import runpy
import sys
import textwrap
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "plugins" / "module_utils" / "_gpu" / "kernels.cu"
TARGET = SOURCE.with_suffix(".py")
TEXT = SOURCE.with_suffix(".ptx")
WHEEL = "nvidia-cuda-nvrtc-cu12==12.0.140"
VERSION = (12, 0)
OPTIONS = ("--gpu-architecture=compute_80", "--std=c++17")

HEADER = '''# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The kernels of gpu_burn as PTX text: made by .ci/burn_kernels.py out of kernels.cu.

Ansible carries nothing but Python to a node. kernels.ptx is the same text to read.
"""

from __future__ import annotations

import base64
import zlib

SOURCE_SHA256 = "{digest}"

_PACKED = """
{packed}
"""

PTX = zlib.decompress(base64.b64decode(_PACKED)).decode("ascii")
'''


class NoCompilerError(Exception):
    """There is no NVRTC of the pinned version."""


def find_nvrtc() -> ctypes.CDLL:
    """Load the pinned NVRTC; NoCompilerError says what is missing."""
    places = [Path(os.environ["NVRTC"])] if os.environ.get("NVRTC") else []
    places += [ROOT / ".cache" / "nvrtc", *map(Path, sys.path)]
    for place in places:
        path = place / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12"
        if path.is_file():
            # The compiler opens its built-ins by name alone: they must be there already.
            for helper in path.parent.glob("libnvrtc-builtins.so*"):
                ctypes.CDLL(str(helper), mode=ctypes.RTLD_GLOBAL)
            nvrtc = ctypes.CDLL(str(path))
            major, minor = ctypes.c_int(), ctypes.c_int()
            nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
            if (major.value, minor.value) == VERSION:
                return nvrtc
    raise NoCompilerError(f"{WHEEL} is not installed (set NVRTC to where pip --target put it)")


def compile_ptx(source: bytes) -> str:
    """Return the PTX text of the source; RuntimeError carries the compiler's log."""
    nvrtc = find_nvrtc()
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    options = (ctypes.c_char_p * len(OPTIONS))(*(option.encode() for option in OPTIONS))
    code = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    size = ctypes.c_size_t()
    if code:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    return text.value.decode()


def tidy(ptx: str) -> str:
    """Drop comments, empty lines and the compiler's own constants, which nothing here reads."""
    ptx = re.sub(r"_ZZN\w+block_sum\w+warps", "block_sum_warps", ptx)
    lines = [re.sub(r"\s*//.*", "", line).rstrip() for line in ptx.splitlines()]
    lines = [line for line in lines if not re.match(r"\.global .*nv6target", line)]
    return "\n".join(line for line in lines if line) + "\n"


def module_text(source: bytes, ptx: str) -> str:
    """Return the text of _gpu/kernels.py."""
    packed = base64.b64encode(zlib.compress(ptx.encode("ascii"), 9)).decode("ascii")
    return HEADER.format(
        digest=hashlib.sha256(source).hexdigest(), packed="\n".join(textwrap.wrap(packed, 96))
    )


def main() -> int:
    """Write or compare."""
    source = SOURCE.read_bytes()
    try:
        ptx = tidy(compile_ptx(source))
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 77
    if "--check" in sys.argv[1:]:
        # The packed form is compared unpacked: another zlib packs the same text into other bytes.
        shipped = runpy.run_path(str(TARGET))
        digest = hashlib.sha256(source).hexdigest()
        if (shipped["PTX"], shipped["SOURCE_SHA256"], TEXT.read_text()) != (ptx, digest, ptx):
            print(f"{TARGET.name} is not what {SOURCE.name} gives; run this without --check")
            return 1
        return 0
    TEXT.write_text(ptx, encoding="ascii")
    TARGET.write_text(module_text(source, ptx), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
