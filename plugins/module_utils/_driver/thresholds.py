# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is asked of the parts of a driver, the threshold, its source, and what to do. Data only."""

from __future__ import annotations

from .._core.question import Question

# A CUDA call ends with error 803 where libraries and module differ, with 802 where the fabric
# manager is not up. NVIDIA: fabric manager has exactly the driver's version (user guide, 2.1).
_ONE_VERSION = "NVIDIA Fabric Manager user guide: one version for all parts of a driver"
_INVENTORY = "the inventory"
_CUDA = "CUDA compatibility guide"
_LATER = "install one for the driver's major, or a newer driver"

DRIVER = Question(
    "stack.driver", "version of the loaded module", "==", None, "version", _ONE_VERSION, "reboot",
)  # fmt: skip
DECLARED = Question(
    "stack.declared", "version of the driver", "==", None, "version", _INVENTORY,
    "run install_gpu_stack with the consent that it asks for, or declare what is there",
)  # fmt: skip
MODULES = Question(
    "stack.modules", "flavour of the kernel modules", "==", None, "flavour", _INVENTORY,
    "install the {needed} modules",
)  # fmt: skip
ON_DISK = Question(
    "stack.on_disk", "version that the next boot loads", "==", None, "version", _ONE_VERSION,
    "drain this node, then reload the driver or reboot",
)  # fmt: skip
PARAMETER = Question(
    "stack.parameter", "{parameter} of the loaded module", "==", None, "", _INVENTORY,
    "drain this node, then reload the driver or reboot",
)  # fmt: skip
LIBRARY = Question(
    "stack.{library}", "version of {library}", "==", None, "version", _ONE_VERSION,
    "install both in one version, then reload the driver or reboot",
)  # fmt: skip
FABRIC_MANAGER = Question(
    "stack.fabric_manager", "fabric manager", "==", None, "version", _ONE_VERSION,
    "install fabric manager {driver}; no other version works with this driver",
)  # fmt: skip
NSCQ = Question(
    "stack.nscq", "NSCQ", "==", None, "version", _ONE_VERSION,
    "install NSCQ {driver}; no other version works with this driver",
)  # fmt: skip
CUDA = Question(
    "stack.cuda", "CUDA that libraries and tools are for", "<=", None, "CUDA major", _CUDA, _LATER,
)  # fmt: skip
NCCL = Question(
    "stack.nccl", "CUDA that NCCL is for", "<=", None, "CUDA major", _CUDA, _LATER,
)  # fmt: skip
