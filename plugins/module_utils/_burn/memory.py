# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Memory and transfers of GPUs, every byte verified: HBM, host to device and back, peer to peer."""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Any, Sequence

from .._gpu.cuda import PEER_ACCESS_ALREADY_ENABLED, CudaError, Gpu
from .gemm import MOST_TOLD, NotEnoughMemoryError, Report
from .known_results import ADDRESS, MASK, RANDOM, WORD, pattern_at

_NONE = (1 << 64) - 1
_FRESH = struct.pack("<2Q", 0, _NONE)
_CHUNK = 1 << 30
_SPARE = 64 << 10
_COPY = 512 << 20
_TRANSFER = 64 << 20
_PEER = 256 << 20
_COPIES = 8
_BEAT_S = 1.0

# What is written in turn; the seed of a random pattern is the number of the round.
PATTERNS = (
    ("zeros", WORD, 0),
    ("ones", WORD, MASK),
    ("5555", WORD, 0x5555555555555555),
    ("aaaa", WORD, 0xAAAAAAAAAAAAAAAA),
    ("address", ADDRESS, 0),
    ("not address", ADDRESS, MASK),
    ("random", RANDOM, 1),
)


def _verify(
    gpu: Gpu, at: int, count: int, mode: int, seed: int, result: int
) -> dict[str, Any] | None:
    """Check `count` words against a pattern; None when all are right, else what is wrong."""
    gpu.write(result, _FRESH)
    gpu.launch_over(count, "burn_pattern_check", at, count, seed, mode, result)
    wrong, first = struct.unpack("<2Q", gpu.read(result, 16))
    if not wrong:
        return None
    got = struct.unpack("<Q", gpu.read(at + 8 * first, 8))[0]
    wanted = pattern_at(mode, seed, first)
    return {
        "wrong_words": wrong,
        "word": first,
        "got": f"{got:#018x}",
        "wanted": f"{wanted:#018x}",
        "bits": f"{got ^ wanted:#x}",
    }


def hbm(gpu: Gpu, seconds: float, memory_bytes: int, report: Report) -> None:
    """Write, read and verify all memory that may be used, in every pattern at least once."""
    room = min(memory_bytes, gpu.memory()[0]) - _SPARE
    if room < _SPARE:
        raise NotEnoughMemoryError(f"{max(0, room) >> 20} MiB of memory are free")
    result = gpu.allocate(16)
    chunks = []
    while room >= _SPARE:
        size = min(_CHUNK, room) // 4096 * 4096
        chunks.append((gpu.allocate(size), size))
        room -= size
    started = beat = time.monotonic()
    errors, number, done = 0, 0, 0
    while number < len(PATTERNS) or time.monotonic() - started < seconds:
        name, mode, seed = PATTERNS[number % len(PATTERNS)]
        if mode == RANDOM:
            seed = number
        for at, size in chunks:
            gpu.launch_over(size // 8, "burn_pattern_write", at, size // 8, seed, mode)
        offset = 0
        for at, size in chunks:
            found = _verify(gpu, at, size // 8, mode, seed, result)
            if found:
                errors += 1
                found["offset"] = offset + 8 * found["word"]
                reported = found if errors <= MOST_TOLD else {"wrong_words": found["wrong_words"]}
                report("error", what="memory", pattern=name, **reported)
            offset += size
            done += size
            if time.monotonic() - beat >= _BEAT_S:
                report("beat", verified=done, bytes_in_use=offset)
                beat, done = time.monotonic(), 0
        number += 1
    report("beat", verified=done, bytes_in_use=sum(size for _at, size in chunks), patterns=number)


def _size(gpu: Gpu, memory_bytes: int, most: int) -> int:
    """Return how large a buffer may be of which there are two; NotEnoughMemoryError."""
    room = min(memory_bytes, gpu.memory()[0]) - _SPARE
    size = min(most, room // 2) // 4096 * 4096
    if size < 4096:
        raise NotEnoughMemoryError(f"{max(0, room) >> 20} MiB of memory are free")
    return size


def hbm_rate(gpu: Gpu, seconds: float, memory_bytes: int, report: Report) -> None:
    """Measure copies inside HBM (bytes read and written) and reads; what was copied is verified."""
    size = _size(gpu, memory_bytes, _COPY)
    one, other, result = gpu.allocate(size), gpu.allocate(size), gpu.allocate(16)
    count, seed = size // 8, 0x5555555555555555
    start, end = gpu.event(), gpu.event()
    started = time.monotonic()
    number = 0
    while number < 3 or time.monotonic() - started < seconds:
        number += 1
        gpu.launch_over(count, "burn_pattern_write", one, count, number, RANDOM)
        gpu.zero(other, size)
        gpu.record(start)
        for _copy in range(_COPIES):
            gpu.driver.call("cuMemcpyDtoDAsync_v2", other, one, size, None)
        gpu.record(end)
        gpu.wait(end)
        copy_ms = gpu.elapsed_ms(start, end)
        found = _verify(gpu, other, count, RANDOM, number, result)
        if found:
            report("error", what="copy", **found)
        gpu.launch_over(count, "burn_pattern_write", one, count, seed, WORD)
        gpu.zero(result, 16)
        gpu.record(start)
        for _read in range(_COPIES):
            gpu.launch_over(count // 2, "burn_read", one, count // 2, result)
        gpu.record(end)
        gpu.wait(end)
        total = struct.unpack("<Q", gpu.read(result, 8))[0]
        if total != (_COPIES * count * seed) & MASK:
            report("error", what="read", got=f"{total:#x}")
        # The first round warms up: clocks, and the translation of the kernels.
        if number > 1:
            report(
                "beat",
                copied=2 * _COPIES * size,
                copy_ms=copy_ms,
                read=_COPIES * size,
                read_ms=gpu.elapsed_ms(start, end),
            )


def host(gpu: Gpu, seconds: float, memory_bytes: int, report: Report) -> None:
    """Measure transfers through pinned memory both ways; a pattern goes down and up again."""
    size = _size(gpu, memory_bytes, _TRANSFER)
    one, other, result = gpu.allocate(size), gpu.allocate(size), gpu.allocate(16)
    pinned = ctypes.c_void_p()
    gpu.driver.call("cuMemHostAlloc", ctypes.byref(pinned), size, 0)
    start, middle, end = gpu.event(), gpu.event(), gpu.event()
    started = time.monotonic()
    number = 0
    try:
        while number < 3 or time.monotonic() - started < seconds:
            number += 1
            gpu.launch_over(size // 8, "burn_pattern_write", one, size // 8, number, RANDOM)
            gpu.zero(other, size)
            gpu.record(start)
            for _copy in range(_COPIES):
                gpu.driver.call("cuMemcpyDtoHAsync_v2", pinned, one, size, None)
            gpu.record(middle)
            for _copy in range(_COPIES):
                gpu.driver.call("cuMemcpyHtoDAsync_v2", other, pinned, size, None)
            gpu.record(end)
            gpu.wait(end)
            found = _verify(gpu, other, size // 8, RANDOM, number, result)
            if found:
                report("error", what="transfer", **found)
            if number > 1:
                report(
                    "beat",
                    down=_COPIES * size,
                    down_ms=gpu.elapsed_ms(start, middle),
                    up=_COPIES * size,
                    up_ms=gpu.elapsed_ms(middle, end),
                )
    finally:
        gpu.driver.call("cuMemFreeHost", pinned)


def peers(gpus: Sequence[Gpu], seconds: float, memory_bytes: int, report: Report) -> None:
    """Copy a pattern from every GPU to every other; each pair is timed and verified."""
    size = min([_PEER, *[min(memory_bytes, gpu.memory()[0]) // 4 for gpu in gpus]]) // 4096 * 4096
    if size < 4096:
        raise NotEnoughMemoryError("no memory is free")
    buffers, events = [], []
    for gpu in gpus:
        gpu.make_current()
        buffers.append((gpu.allocate(size), gpu.allocate(size), gpu.allocate(16)))
        events.append((gpu.event(), gpu.event()))
    closed = set()
    for gpu in gpus:
        gpu.make_current()
        for peer in gpus:
            if peer is not gpu and not _enable(gpu, peer):
                closed.add((gpu.address, peer.address))
                report("closed", source=gpu.address, target=peer.address)
    started = time.monotonic()
    number = 0
    while number < 1 or time.monotonic() - started < seconds:
        number += 1
        for i, source in enumerate(gpus):
            for j, target in enumerate(gpus):
                if i != j and (source.address, target.address) not in closed:
                    seed = 1000 * number + 100 * i + j
                    _copy(source, target, buffers[i], buffers[j], events[i], size, seed, report)


def _enable(gpu: Gpu, peer: Gpu) -> bool:
    can = ctypes.c_int()
    gpu.driver.call("cuDeviceCanAccessPeer", ctypes.byref(can), gpu.number, peer.number)
    if can.value:
        try:
            gpu.driver.call("cuCtxEnablePeerAccess", peer.context, 0)
        except CudaError as error:
            if error.code != PEER_ACCESS_ALREADY_ENABLED:
                raise
    return bool(can.value)


def _copy(
    source: Gpu,
    target: Gpu,
    here: tuple[int, int, int],
    there: tuple[int, int, int],
    events: tuple[Any, Any],
    size: int,
    seed: int,
    report: Report,
) -> None:
    target.make_current()
    target.zero(there[1], size)
    target.synchronize()
    source.make_current()
    source.launch_over(size // 8, "burn_pattern_write", here[0], size // 8, seed, RANDOM)
    start, end = events

    def copy() -> None:
        source.driver.call(
            "cuMemcpyPeerAsync", there[1], target.context, here[0], source.context, size, None
        )

    copy()
    source.record(start)
    for _each in range(_COPIES):
        copy()
    source.record(end)
    source.wait(end)
    took_ms = source.elapsed_ms(start, end)
    target.make_current()
    found = _verify(target, there[1], size // 8, RANDOM, seed, there[2])
    pair = {"source": source.address, "target": target.address}
    if found:
        report("error", what="peer", **pair, **found)
    report("beat", **pair, copied=_COPIES * size, copy_ms=took_ms)
