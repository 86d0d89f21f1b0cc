# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks that machines boot from: one per suite, over which each machine has its layer."""

from __future__ import annotations

import json
import pathlib
import struct
import time

from podlib import host, image
from podlib.layout import PodError
from podlib.progress import Progress

FOLDER = host.CACHE / "machines"
_SIZE = 10 << 30
# The only partition begins here, so that GRUB has its place before it.
_START = 1 << 20
_SECTOR = 512


def ensure_disk(progress: Progress, suite: str, cache_port: int) -> pathlib.Path:
    """Return a disk of the suite; make it when there is none, or only an old one."""
    wanted = image.recipe(suite, bare=False, machine=True)
    FOLDER.mkdir(exist_ok=True)
    lock = host.CACHE / "run" / f"image-{wanted.variant}.lock"
    with host.locked(progress, lock, f"the image {wanted.variant}"):
        return _youngest(wanted) or _build(progress, wanted, cache_port)


def _youngest(wanted: image.Recipe) -> pathlib.Path | None:
    oldest = time.time() - image.MAX_AGE_DAYS * 86400
    found = [path for path in FOLDER.glob(f"{wanted.tag}-*.img") if path.stat().st_mtime > oldest]
    return max(found, default=None)


def _build(progress: Progress, wanted: image.Recipe, cache_port: int) -> pathlib.Path:
    # Each one has its own name: layers of machines refer to the one before.
    target = FOLDER / f"{wanted.tag}-{time.time():.0f}.img"
    fresh = FOLDER / f"{wanted.variant}.new"
    fresh.unlink(missing_ok=True)
    with image.root_of(progress, wanted, cache_port, "root") as root:
        loader = (root / "usr/lib/grub/i386-pc/boot.img").read_bytes()
        core = (root / "boot/grub/core.img").read_bytes()
        argv = ["mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-d", str(root)]
        argv += ["-E", f"offset={_START}", str(fresh), f"{(_SIZE - _START) >> 10}k"]
        with progress.during(lambda: f"image {wanted.variant}: writing the disk"):
            done = host.ask(argv)
    if done.returncode:
        raise PodError(f"image {wanted.variant}: mke2fs: {done.stderr.strip()[-500:]}")
    with fresh.open("r+b") as disk:
        disk.truncate(_SIZE)
        disk.write(boot_sector(loader))
        disk.write(core)
    _remove_unused(wanted.variant)
    fresh.rename(target)
    progress.say(f"image {wanted.variant}: ready ({target.name})")
    return target


def boot_sector(loader: bytes) -> bytes:
    """Return a PC's first sector: GRUB's loader, and one partition to the end of the disk."""
    partition = struct.pack("<B3xB3xII", 0x80, 0x83, _START // _SECTOR, (_SIZE - _START) // _SECTOR)
    return loader[:446].ljust(446, b"\0") + partition.ljust(64, b"\0") + b"\x55\xaa"


def _remove_unused(variant: str) -> None:
    """Remove the disks of which no machine has a layer."""
    used = {json.loads(path.read_text())["disk"] for path in FOLDER.glob("*/*/machine.json")}
    for old in FOLDER.glob(f"{variant}-*.img"):
        if old.name not in used:
            old.unlink()
