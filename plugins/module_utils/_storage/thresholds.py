# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is asked of mounts and disks, the threshold, its source, and what to do. Data only."""

from __future__ import annotations

from .._core.question import Question

_DECLARED = "declared in the inventory"

# fio_check. What is slower than one old drive is broken, or no NVMe.
_ONE_DRIVE = (
    "derived: an NVMe drive for data centres on PCIe 3.0 x4 alone gives more; no floor is "
    "published for a machine's array, so write your own into the profile"
)
_LOOK_SLOW = (
    "look: cat /proc/mdstat (a rebuild, a drive missing?), nvme smart-log (wear, temperature), "
    "PCIe width of each drive; what else used it?"
)
# By key of the profile's nvme.
RATES = {
    "write_mb_s": Question(
        "fio.write", "sequential writes of 1 MiB", ">=", 1000, "MB/s", _ONE_DRIVE, _LOOK_SLOW,
    ),
    "read_mb_s": Question(
        "fio.read", "sequential reads of 1 MiB", ">=", 2000, "MB/s", _ONE_DRIVE, _LOOK_SLOW,
    ),
    "read_iops": Question(
        "fio.random_read", "random reads of 4 KiB", ">=", 100000, "IOPS", _ONE_DRIVE, _LOOK_SLOW,
    ),
    "write_iops": Question(
        "fio.random_write", "random writes of 4 KiB", ">=", 30000, "IOPS", _ONE_DRIVE, _LOOK_SLOW,
    ),
}  # fmt: skip
WRONG_BLOCKS = Question(
    "fio.data", "blocks that are not what was written", "==", 0, "wrong blocks",
    "what is written must be read", "look: it was not verified to the end; run it by hand",
)  # fmt: skip
DISK_ERRORS = Question(
    "fio.{step}", "errors of the disk", "==", 0, "errors", "a disk that is well has none",
    "replace: see dmesg, nvme smart-log and nvme error-log for the drive that has errors",
)  # fmt: skip

# mount_check
MOUNTED = Question(
    "storage.mounted", "file system of a mount", "==", None, "", _DECLARED,
    "look: findmnt {path}; journalctl -b -u of its mount unit; then run mount_storage",
)  # fmt: skip
READ_BACK = Question(
    "storage.write", "what is read back", "==", "the same", "", "what was written",
    "look at once: what is read is not what was written; `ceph health detail`, dmesg, and keep "
    "jobs away",
)  # fmt: skip
SERVED = Question(
    "storage.{step}", "a file can be written, or a folder be read", "==", None, "", _DECLARED,
    "look: the error that is named, df, dmesg and `ceph health detail`",
)  # fmt: skip
LATENCY = Question(
    "storage.latency", "time of a small file written and synced, or of a folder read", "<=", None,
    "s", _DECLARED,
    "look: `ceph health detail` for slow requests; is the storage network at its rate?",
)  # fmt: skip
SHARED = Question(
    "storage.shared", "what {peer} has written", "==", "seen", "", "one file system for all",
    "look: do both mount the same path of the same file system? findmnt {path} on {peer} and here",
)  # fmt: skip
ANSWERS = Question(
    "storage.{step}", "time until a mount answers", "<=", None, "s without an answer", _DECLARED,
    "look: its servers and the storage network; nothing was done to the mount",
)  # fmt: skip

# nvme_health
_SPEC = "NVMe base specification, SMART log"
_MANUAL = "smartctl(8), exit status"
PRESENT = Question(
    "nvme.present", "NVMe disks that are seen", ">=", None, "disks", "profile of the node",
    "look: a disk is not seen; nvme list, dmesg, then reseat it",
)  # fmt: skip
CRITICAL_WARNING = Question(
    "nvme.critical_warning", "warnings of the disk itself", "==", 0, "bits", _SPEC,
    "replace: the disk itself calls itself unfit; `smartctl -a` says more",
)  # fmt: skip
WEAR = Question(
    "nvme.wear", "what it was made to write and has written", "<=", 90, "% of its life", _DECLARED,
    "order a disk: this one has nearly written what it was made for",
)  # fmt: skip
SPARE = Question(
    "nvme.spare", "spare blocks that are left", ">=", None, "%", "the disk's own threshold",
    "replace: spare blocks run out, then it turns read only",
)  # fmt: skip
MEDIA_ERRORS = Question(
    "nvme.media_errors", "errors of the medium", "<=", 0, "errors", _DECLARED,
    "look: data was lost on this disk; replace it when the number grows",
)  # fmt: skip
SMART_STATUS = Question(
    "nvme.smart_status", "the disk's own verdict", "==", "passed", "", _MANUAL,
    "replace: the disk calls itself failing",
)  # fmt: skip
SELF_TEST = Question(
    "nvme.self_test", "log of self-tests", "==", "no errors", "", _MANUAL,
    "replace: `smartctl -l selftest` says what failed",
)  # fmt: skip
