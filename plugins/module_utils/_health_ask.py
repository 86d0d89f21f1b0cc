# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the health program asks of the node: the checks of gpu_health and ib_health, and local ones.

Each function returns the records of one question, and is called in a process of its own.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Callable, Iterator

from ansible_collections.baremetal.dgx.plugins.module_utils import _health_settings as s
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_health import (
    full_pci,
    wanted_from_profile,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_health import (
    judge_node as judge_gpus,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_health_device import Wanted
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_host import (
    fabric_manager,
    load_host,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_children import Question
from ansible_collections.baremetal.dgx.plugins.module_utils._health_local import (
    Space,
    judge_answer,
    judge_clock,
    judge_disk,
    judge_host,
    judge_mounted,
    judge_services,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._health_settings import Mode, Settings
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_counters import baseline
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_health import (
    Marks,
    find_rail,
    wanted_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_health import (
    judge_node as judge_rails,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_host import (
    ask_links,
    load_sample,
    sample_now,
    store_sample,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_sysfs import load_hcas
from ansible_collections.baremetal.dgx.plugins.module_utils._kernel_log import KernelLog
from ansible_collections.baremetal.dgx.plugins.module_utils._nvml_sweep import sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._pci_path import Tree
from ansible_collections.baremetal.dgx.plugins.module_utils._records import Record
from ansible_collections.baremetal.dgx.plugins.module_utils._run_alone import run

_BOOT = "/proc/sys/kernel/random/boot_id"
_GPU_OPTIONS = ("driver_version", "mig", "ecc", "marks")
_IB_OPTIONS = ("firmware", "psid", "names", "max_read_request", "acs_off", "window_s")
# Of the time that a question has, what a tool inside it may take.
_SHARE = 0.8


def read_text(path: str) -> str | None:
    """Return the text of a file of the kernel, None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return None


def boot_id() -> str:
    """Return the number of this boot."""
    return (read_text(_BOOT) or "unknown").strip()


def gpu_wanted(settings: Settings, idle: bool, since_s: float = 0.0) -> Wanted:
    """Return what the GPUs must be; ValueError for a configuration that is none."""
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
    """One run: its settings and mode, whether the node is idle, and what the kernel has said."""

    settings: Settings
    mode: Mode
    idle: bool
    log: Callable[[], KernelLog]
    since_s: float = 0.0

    def gpus(self) -> list[Record]:
        """Ask the GPUs."""
        settings, limit = self.settings, self.mode.one_s * _SHARE
        wanted = gpu_wanted(settings, self.idle, self.since_s)
        # First, since it forks. A second GPU that hangs is left to the limit of the question.
        found = sweep(settings.gpu.get("library", ""), limit * 0.75)
        host = load_host(settings.roots.sysfs, settings.roots.proc)
        if wanted.nvswitches:
            command = settings.gpu.get("fabric_manager") or "nv-fabricmanager"
            release, absent = fabric_manager(run, command, limit / 4)
            host = replace(host, fabric_manager=release, fabric_manager_absent=absent)
        return list(judge_gpus(settings.node, wanted, found, host, self.log()))

    def rails(self) -> list[Record]:
        """Ask the adapters of the fabric."""
        settings = self.settings
        wanted = wanted_from_data(settings.ib.get("rails", ()))
        hcas = load_hcas(Tree(settings.roots.sysfs))
        sound = [hca for hca in hcas if not hca.ignored]
        found = [(rail, find_rail(rail, sound)) for rail in wanted]
        there = [hca for _rail, hca in found if hca is not None]
        keys = {hca.device: f"hca:{settings.node}/rail{rail.rail}" for rail, hca in found if hca}
        options = {name: settings.ib[name] for name in _IB_OPTIONS if name in settings.ib}
        marks = Marks(optics=self.mode.optics, **options)
        kept = os.path.join(settings.state_dir, "ib.json")
        before, now = load_sample(kept), sample_now(there, keys, _BOOT)
        asked = ask_links(run, there, self.mode.one_s * _SHARE) if marks.optics else {}
        records = judge_rails(settings.node, hcas, wanted, marks, asked, before, now)
        store_sample(kept, baseline(before, now, marks.window_s))
        return records

    def mount(self, mount: s.Mount) -> list[Record]:
        """Ask a mount."""
        node = self.settings.node
        there = judge_mounted(node, mount, read_text(self.settings.roots.mountinfo))
        if there.status == "fail":
            # What would answer is the folder below.
            return [there]
        started = time.monotonic()
        space = space_of(mount.path)
        return [there, judge_answer(node, mount, space, time.monotonic() - started)]

    def disk(self, disk: s.Disk) -> list[Record]:
        """Ask a folder that jobs write into."""
        return list(judge_disk(self.settings.node, disk, space_of(disk.path)))

    def host(self) -> list[Record]:
        """Ask memory and CPUs."""
        want, roots = self.settings, self.settings.roots
        meminfo = read_text(os.path.join(roots.proc, "meminfo"))
        online = read_text(os.path.join(roots.sysfs, "devices/system/cpu/online"))
        return list(judge_host(want.node, want.memory_mib, want.cpus, meminfo, online))

    def clock(self) -> list[Record]:
        """Ask chrony."""
        tracking = run(["chronyc", "-c", "tracking"], self.mode.one_s * _SHARE)
        return list(judge_clock(self.settings.node, self.settings.clock_offset_s, tracking))

    def services(self) -> list[Record]:
        """Ask systemd."""
        units = self.settings.services
        command = ["systemctl", "show", "-p", "Id", "-p", "LoadState", "-p", "ActiveState", *units]
        shown = run(command, self.mode.one_s * _SHARE)
        return list(judge_services(self.settings.node, units, shown))

    def questions(self) -> Iterator[Question]:
        """Yield what is asked in this mode on this node."""
        settings, limit = self.settings, self.mode.one_s
        asked = [check for check in self.mode.checks if check in settings.checks]
        if s.GPU in asked and settings.profile.get("gpus"):
            yield Question("gpu", self.gpus, limit)
        if s.IB in asked and settings.ib.get("rails"):
            yield Question("ib", self.rails, limit)
        for mount in settings.mounts if s.MOUNTS in asked else ():
            yield Question(f"mount:{mount.path}", _bound(self.mount, mount), limit)
        for disk in settings.disks if s.DISKS in asked else ():
            yield Question(f"disk:{disk.path}", _bound(self.disk, disk), limit)
        if s.HOST in asked and (settings.memory_mib or settings.cpus):
            yield Question("host", self.host, limit)
        if s.CLOCK in asked:
            yield Question("clock", self.clock, limit)
        if s.SERVICES in asked and settings.services:
            yield Question("services", self.services, limit)


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
