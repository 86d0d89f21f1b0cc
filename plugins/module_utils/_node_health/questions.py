# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the health program asks of the node: the checks of gpu_health and ib_health, and local ones.

Each function returns the records of one question, and is called in its own process.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from typing import Callable, Iterable, Iterator

from .._core.child import Call
from .._core.files import text_if_readable
from .._core.names import BOOT, full_pci
from .._core.record import Record
from .._core.run import run
from .._gpu.host import fabric_manager, load_host, with_instances
from .._gpu.judge_device import Wanted
from .._gpu.judge_node import judge_node as judge_gpus
from .._gpu.judge_node import own_link, wanted_from_profile
from .._gpu.nvml.sweep import sweep
from .._host.hardware_log import parse_faults
from .._host.kernel_log import KernelLog
from .._host.memory import load_memory
from .._host.pci import Tree
from .._ib.counters import baseline
from .._ib.ethtool import ask_ethernet
from .._ib.judge import Request, find_rail, wanted_from_data
from .._ib.judge import judge_node as judge_rails
from .._ib.link_log import beside, keep_readings
from .._ib.read import ask_links, load_sample, sample_now, store_sample
from .._ib.sysfs import load_hcas
from .._storage.mounts.plan import unit_of
from .._storage.mounts.read import device_of, is_pending
from .._storage.nvme import ask_disk, controllers, judge_count
from . import settings as s
from .judge_local import (
    Space,
    judge_answer,
    judge_clock,
    judge_disk,
    judge_hardware_log,
    judge_host,
    judge_mounted,
    judge_services,
    source_of,
    unmounted,
)
from .sensors import judge_sensors
from .settings import Mode, Settings

_GPU_OPTIONS = ("driver_version", "mig", "ecc", "thresholds")
_IB_OPTIONS = ("firmware", "psid", "names", "max_read_request", "acs_off", "window_s")
# Of the time that a question has, what a tool inside it may take.
_SHARE = 0.8


def gpu_wanted(settings: Settings, idle: bool, since_s: float = 0.0) -> Wanted:
    """Return what the GPUs must be; ValueError for an invalid configuration."""
    options = {name: settings.gpu[name] for name in _GPU_OPTIONS if name in settings.gpu}
    identities = {
        full_pci(one["pci"]): (one["uuid"], one["serial"])
        for one in settings.gpu.get("identities", ())
    }
    return wanted_from_profile(
        settings.profile, identities=identities, idle=idle, since_s=since_s, **options
    )


@dataclass(frozen=True)
class Look:
    """One run: its settings and mode, whether the node is idle, and what the kernel has logged."""

    settings: Settings
    mode: Mode
    idle: bool
    log: Callable[[], KernelLog]
    since_s: float = 0.0

    def gpus(self) -> list[Record]:
        """Ask the GPUs."""
        settings, limit = self.settings, self.mode.one_s * _SHARE
        wanted = gpu_wanted(settings, self.idle, self.since_s)
        if not self.mode.optics:
            # nvidia-smi is slower than a job may wait: the timer alone asks it.
            wanted = replace(wanted, instances={})
        # First, since it forks. A second GPU that hangs is left to the limit of the question.
        share = 0.5 if wanted.instances else 0.75
        found = sweep(settings.gpu.get("library", ""), limit * share)
        host = load_host(settings.roots.sysfs, settings.roots.proc)
        if wanted.nvswitches:
            command = settings.gpu.get("fabric_manager") or "nv-fabricmanager"
            release, absent = fabric_manager(run, command, limit / 4)
            host = replace(host, fabric_manager=release, fabric_manager_absent=absent)
        if wanted.instances:
            host = with_instances(host, run, limit / 4)
        return list(judge_gpus(settings.node, wanted, found, host, self.log()))

    def rails(self) -> list[Record]:
        """Ask the adapters of the fabric."""
        settings = self.settings
        wanted = wanted_from_data(settings.ib.get("rails", ()))
        hcas = load_hcas(Tree(settings.roots.sysfs))
        healthy = [hca for hca in hcas if not hca.ignored]
        found = [(rail, find_rail(rail, healthy)) for rail in wanted]
        there = [hca for _rail, hca in found if hca is not None]
        keys = {hca.device: f"hca:{settings.node}/rail{rail.rail}" for rail, hca in found if hca}
        options = {name: settings.ib[name] for name in _IB_OPTIONS if name in settings.ib}
        request = Request(optics=self.mode.optics, **options)
        kept = os.path.join(settings.state_dir, "ib.json")
        allowed_s = self.mode.one_s * _SHARE
        ethernet = ask_ethernet(run, there, allowed_s / 2)
        before, now = load_sample(kept), sample_now(there, keys, BOOT, ethernet)
        asked = (
            ask_links(run, there, allowed_s / 2 if ethernet else allowed_s)
            if request.optics
            else {}
        )
        records = judge_rails(settings.node, hcas, wanted, request, asked, before, now, ethernet)
        # The run itself names a folder that takes nothing; what the rails show now stands.
        with contextlib.suppress(OSError):
            store_sample(kept, baseline(before, now, request.window_s))
        if request.optics:
            log = self.log().text
            path = beside(settings.state_dir)
            keep_readings(run, path, wanted, hcas, asked, now, allowed_s / 4, log)
        return records

    def mount(self, mount: s.Mount) -> list[Record]:
        """Ask a mount."""
        node = self.settings.node
        live = text_if_readable(self.settings.roots.mountinfo)
        unit = os.path.join(self.settings.roots.units, unit_of(mount.path))
        source = source_of(mount, text_if_readable(unit) or "")
        # What is in use stays as it was mounted.
        mount = replace(mount, source="" if is_pending(mount.path, unit) else source)
        there = judge_mounted(node, mount, live, device_of(mount.source))
        if there.status == "fail":
            # What would answer is the folder below.
            return [there]
        started = time.monotonic()
        space = space_of(mount.path)
        return [there, judge_answer(node, mount, space, time.monotonic() - started)]

    def disk(self, disk: s.Disk) -> list[Record]:
        """Ask a folder that jobs write into."""
        roots = self.settings.roots
        fstab, live = text_if_readable(roots.fstab), text_if_readable(roots.mountinfo)
        missing = unmounted(disk.path, fstab or "", live) if live is not None else ""
        return list(judge_disk(self.settings.node, disk, space_of(disk.path), missing))

    def host(self) -> list[Record]:
        """Ask memory and CPUs."""
        want, roots = self.settings, self.settings.roots
        memory = load_memory(roots.sysfs, roots.proc).mib
        online = text_if_readable(os.path.join(roots.sysfs, "devices/system/cpu/online"))
        log = self.log()
        faults = parse_faults(log.text, self.since_s)
        # Those of the GPUs and of what is above them are asked with the GPUs.
        above = {gpu.pci: gpu for gpu in load_host(roots.sysfs, roots.proc).gpus}
        gpus = {end for address in above for end in own_link(address, above)}
        return [
            *judge_host(want.node, want.memory_mib, want.cpus, memory, online),
            *judge_hardware_log(want.node, faults, gpus, log),
        ]

    def sensors(self) -> list[Record]:
        """Ask the node's own BMC."""
        shown = run(["ipmitool", "sdr", "elist"], s.SENSORS_S * _SHARE)
        return [judge_sensors(self.settings.node, shown)]

    def nvme(self) -> list[Record]:
        """Count the NVMe disks."""
        settings = self.settings
        return list(judge_count(settings.node, settings.roots.sysfs, settings.nvme.get("count", 0)))

    def nvme_disk(self, name: str) -> list[Record]:
        """Ask an NVMe disk for its log, which costs it nothing."""
        most = {key: value for key, value in self.settings.nvme.items() if key != "count"}
        limit_s = self.mode.one_s * _SHARE
        return list(ask_disk(run, self.settings.node, name, limit_s, **most))

    def clock(self) -> list[Record]:
        """Ask chrony."""
        tracking = run(["chronyc", "-c", "tracking"], self.mode.one_s * _SHARE)
        most_s = self.settings.clock_offset_s
        return list(judge_clock(self.settings.node, most_s, tracking, time.time()))

    def services(self) -> list[Record]:
        """Ask systemd."""
        units = self.settings.services
        command = ["systemctl", "show", "-p", "Id", "-p", "LoadState", "-p", "ActiveState", *units]
        shown = run(command, self.mode.one_s * _SHARE)
        return list(judge_services(self.settings.node, units, shown))

    def questions(self) -> Iterator[Call]:
        """Yield what is asked in this mode on this node."""
        settings, limit = self.settings, self.mode.one_s
        asked = [check for check in self.mode.checks if check in settings.checks]
        if s.GPU in asked and settings.profile.get("gpus"):
            yield _question("gpu", self.gpus, limit)
        if s.IB in asked and settings.ib.get("rails"):
            yield _question("ib", self.rails, limit)
        for mount in settings.mounts if s.MOUNTS in asked else ():
            yield _question(f"mount:{mount.path}", _bound(self.mount, mount), limit)
        for disk in settings.disks if s.DISKS in asked else ():
            yield _question(f"disk:{disk.path}", _bound(self.disk, disk), limit)
        if s.HOST in asked and (settings.memory_mib or settings.cpus):
            yield _question("host", self.host, limit)
        # A BMC that is dead at the boot is not found by the kernel.
        bmc = os.path.join(settings.roots.sysfs, "class/ipmi/ipmi0")
        if s.SENSORS in asked and (settings.bmc or os.path.exists(bmc)):
            yield _question("sensors", self.sensors, s.SENSORS_S)
        if s.NVME in asked and settings.nvme:
            yield _question("nvme", self.nvme, limit)
            for name in controllers(settings.roots.sysfs):
                yield _question(f"nvme:{name}", _bound(self.nvme_disk, name), limit)
        if s.CLOCK in asked:
            yield _question("clock", self.clock, limit)
        if s.SERVICES in asked and settings.services:
            yield _question("services", self.services, limit)


def _question(name: str, ask: Callable[[], Iterable[Record]], limit_s: float) -> Call:
    """A question whose answer is records as data."""
    return Call(name, lambda: [one.as_data() for one in ask()], limit_s)


def _bound(ask: Callable[..., list[Record]], about: object) -> Callable[[], list[Record]]:
    return lambda: ask(about)


def space_of(path: str) -> Space:
    """Ask a file system; one that hangs does not come back."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Space(error=error.errno or 5)
    return Space(
        free_mib=found.f_bavail * found.f_frsize >> 20,
        inodes=found.f_files,
        free_inodes=found.f_favail,
        read_only=bool(found.f_flag & os.ST_RDONLY),
    )
