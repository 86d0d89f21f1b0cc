# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mount that never answers: FUSE that takes every request after the first, and keeps it.

Who asks it for anything waits in the kernel, where no signal arrives, until the process that holds
it goes. Only root can mount it, on a host that has /dev/fuse. As a program, it holds one until it
is ended: hung_mount.py PATH.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
import time

FSTYPE = "fuse.hung"
_INIT = 26
_MNT_DETACH = 2


class NoFuseError(Exception):
    """This host has no FUSE, or does not let us mount it."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(path: str) -> int:
    """Mount it; returns the descriptor that it hangs on."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NoFuseError(f"/dev/fuse: {error.strerror}") from None
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if _libc().mount(b"storage:/dead", path.encode(), FSTYPE.encode(), 0, options):
        os.close(device)
        raise NoFuseError(f"mount: {os.strerror(ctypes.get_errno())}")
    return device


def _serve(device: int) -> None:
    """Answer the greeting, and nothing else."""
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return
        _length, opcode, unique = struct.unpack_from("<IIQ", request)
        if opcode == _INIT:
            major, minor = struct.unpack_from("<II", request, 40)
            sizes = (0, 0, 8, 8, 4096, 1, 0, 0, 0)
            body = struct.pack("<IIIIHHIIHHI28x", major, min(minor, 31), *sizes)
            os.write(device, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)


def hold(path: str) -> int:
    """Mount it at `path` in its own process; returns that process. NoFuseError."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            os.setsid()
            device = _mount(path)
            os.write(writer, b"mounted")
            os.close(writer)
            _serve(device)
            code = 0
        except NoFuseError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        message = stream.read().decode()
    if message != "mounted":
        os.waitpid(child, 0)
        raise NoFuseError(message)
    return child


def release(path: str, holder: int) -> None:
    """End the process, upon which all who wait get an error, and take the mount away."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
    _libc().umount2(path.encode(), _MNT_DETACH)


if __name__ == "__main__":
    HOLDER = hold(sys.argv[1])
    with open("/run/hung_mount.pid", "w", encoding="ascii") as NOTE:
        NOTE.write(str(HOLDER))
    while True:
        time.sleep(3600)
