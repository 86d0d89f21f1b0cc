# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The settings of the node's own health program, and what of it each mode asks. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any, Mapping

VERSION = 1
GPU, IB, MOUNTS, DISKS, HOST, SENSORS, NVME, CLOCK, SERVICES = CHECKS = (
    "gpu", "ib", "mounts", "disks", "host", "sensors", "nvme", "clock", "services",
)  # fmt: skip

HEALTH, PROLOG, EPILOG, TIMER, EVENT = "health", "prolog", "epilog", "timer", "event"


@dataclass(frozen=True)
class Mode:
    """What a mode asks and how long it may take.

    `limit_s` is for everything, Slurm included. `optics` asks adapters through firmware, which
    takes seconds. `drains` tells whether a measured failure takes the node out.
    """

    checks: tuple[str, ...]
    limit_s: float
    one_s: float
    optics: bool = False
    drains: bool = True


# A node that the brake has kept in service asks again after so long.
HELD_S = 300.0

# Slurm kills HealthCheckProgram after 60 s (slurm.conf man page). A prolog holds up every job, and
# asks no daemon that may be busy.
_LOCAL = (GPU, IB, MOUNTS, DISKS, HOST)
MODES = {
    HEALTH: Mode((*_LOCAL, CLOCK, SERVICES), 45.0, 10.0),
    PROLOG: Mode(_LOCAL, 2.8, 1.2),
    EPILOG: Mode(_LOCAL, 10.0, 4.0),
    TIMER: Mode(CHECKS, 80.0, 20.0, optics=True, drains=False),
}

# Seconds for the sensors: a BMC answers one after the other, over a slow interface.
SENSORS_S = 30.0
# Checks that the timer alone asks, by how they begin, and that they hang. Its findings stay in the
# metrics for as long as three of its periods.
OF_TIMER = (
    "ib.optics", "ib.effective_ber", "ib.module_faults", f"health.{IB}",
    "host.sensors", f"health.{SENSORS}", "nvme.", f"health.{NVME}", "gpu.mig_instances",
)  # fmt: skip
OF_TIMER_S = 2700.0


@dataclass(frozen=True)
class Mount:
    """A mount point that must answer; `patience_s` is for how long it may hang before it fails.

    `source` is what mount(8) gets to mount there, empty where any will do.
    """

    path: str
    patience_s: float = 300.0
    fstype: str = ""
    source: str = ""


@dataclass(frozen=True)
class Disk:
    """A folder that jobs write into, and what must be free there."""

    path: str
    free_mib: int = 1024
    free_inodes_percent: float = 1.0


@dataclass(frozen=True)
class Roots:
    """Where the kernel shows itself. An empty `kernel_log` is the kernel's own buffer."""

    sysfs: str = "/sys"
    proc: str = "/proc"
    kernel_log: str = ""
    mountinfo: str = "/proc/self/mountinfo"
    fstab: str = "/etc/fstab"
    units: str = "/etc/systemd/system"


@dataclass(frozen=True)
class Settings:
    """The configuration of a node. `gpu`, `ib` and `nvme` are options of the modules *_health.

    `bmc` tells whether it has one; without, its sensors are asked where the kernel has found it.
    `share` of the fleet (0 to 1) may drain itself.
    """

    node: str
    checks: tuple[str, ...] = CHECKS
    profile: Mapping[str, Any] = field(default_factory=dict)
    gpu: Mapping[str, Any] = field(default_factory=dict)
    ib: Mapping[str, Any] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    disks: tuple[Disk, ...] = ()
    nvme: Mapping[str, int] = field(default_factory=dict)
    bmc: bool = False
    services: tuple[str, ...] = ()
    clock_offset_s: float = 0.1
    memory_mib: int = 0
    cpus: int = 0
    roots: Roots = Roots()
    state_dir: str = "/var/lib/baremetal-dgx/node-health"
    metrics_file: str = ""
    scontrol: str = "scontrol"
    resume: bool = False
    share: float = 0.1
    environment: Mapping[str, str] = field(default_factory=dict)


_GPU = {"thresholds": dict, "driver_version": str, "mig": bool, "ecc": bool, "library": str,
        "fabric_manager": str, "identities": list}  # fmt: skip
_IB = {"rails": list, "firmware": str, "psid": str, "names": bool, "max_read_request": int,
       "acs_off": bool, "window_s": (int, float)}  # fmt: skip
_NVME = {"count": int, "wear_percent": int, "media_errors": int}
_KINDS: dict[str, Any] = {
    "version": int, "node": str, "checks": list, "profile": dict, "gpu": dict, "ib": dict,
    "mounts": list, "disks": list, "nvme": dict, "bmc": bool, "services": list,
    "clock_offset_s": (int, float), "memory_mib": int, "cpus": int, "roots": dict,
    "state_dir": str, "metrics_file": str, "scontrol": str, "resume": bool, "share": (int, float),
    "environment": dict,
}  # fmt: skip
_MOUNT = {"path": str, "patience_s": (int, float), "fstype": str, "source": str}
_DISK = {"path": str, "free_mib": int, "free_inodes_percent": (int, float)}
_ROOTS = {
    "sysfs": str, "proc": str, "kernel_log": str, "mountinfo": str, "fstab": str, "units": str,
}  # fmt: skip


def _known(where: str, data: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where}: not a mapping")
    for key, value in data.items():
        if key not in kinds:
            raise ValueError(f"{where}{key}: is not known; write {', '.join(kinds)}")
        wrong = isinstance(value, bool) and kinds[key] is not bool
        if wrong or not isinstance(value, kinds[key]):
            raise ValueError(f"{where}{key}: {value!r} is of the wrong type")
    return dict(data)


def _placed(where: str, data: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return it with its path in the form that mountinfo has: `/data` for `/data/` and `//data`."""
    given = _known(where, data, kinds)
    path = given.get("path", "")
    if not path.startswith("/"):
        raise ValueError(f"{where}path: must be absolute")
    return {**given, "path": "/" + posixpath.normpath(path).lstrip("/")}


def settings_from_data(data: Any) -> Settings:
    """Return the configuration; ValueError names what is wrong in it."""
    given = _known("", data, _KINDS)
    if given.pop("version", None) != VERSION:
        raise ValueError(f"version: must be {VERSION}")
    if not given.get("node"):
        raise ValueError("node: missing")
    unknown = [str(one) for one in given.get("checks", ()) if one not in CHECKS]
    if unknown:
        raise ValueError(f"checks: there is no {', '.join(unknown)}; write {', '.join(CHECKS)}")
    given["gpu"] = _known("gpu.", given.get("gpu", {}), _GPU)
    given["ib"] = _known("ib.", given.get("ib", {}), _IB)
    given["nvme"] = _known("nvme.", given.get("nvme", {}), _NVME)
    if not 0 <= given.get("share", 0) <= 1:
        raise ValueError(f"share: {given['share']} is not a share; write 0 to 1")
    mounts = [_placed("mounts.", one, _MOUNT) for one in given.get("mounts", ())]
    disks = [_placed("disks.", one, _DISK) for one in given.get("disks", ())]
    if not all(isinstance(one, str) for one in given.get("services", ())):
        raise ValueError("services: must be names")
    environment = given.get("environment", {})
    if not all(isinstance(one, str) for pair in environment.items() for one in pair):
        raise ValueError("environment: must be texts")
    return Settings(
        **{
            **given,
            "checks": tuple(given.get("checks", CHECKS)),
            "services": tuple(given.get("services", ())),
            "mounts": tuple(Mount(**one) for one in mounts),
            "disks": tuple(Disk(**one) for one in disks),
            "roots": Roots(**_known("roots.", given.get("roots", {}), _ROOTS)),
        }
    )
