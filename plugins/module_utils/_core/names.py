# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What hosts, adapters and PCI devices are called here, whatever a tool calls them."""

from __future__ import annotations

import re
import socket

from .files import text_if_readable

# The number of this boot, as the kernel shows it.
BOOT = "/proc/sys/kernel/random/boot_id"
# What a port is called once the role infiniband has named it. The prefix matters: NVSHMEM takes
# only names that begin with mlx5 (NVSHMEM_HCA_PREFIX).
RAIL_DEVICE = "mlx5_rail{rail}"
# The network of rail 3 is rail3.
RAIL_NETWORK = re.compile(r"rail[0-9]+")
_ADDRESS = re.compile(r"(?:([0-9a-f]+):)?([0-9a-f]{2}:[0-9a-f]{2})(\.[0-7])?\Z")


def short_name() -> str:
    """Return the host name without its domain."""
    return socket.gethostname().split(".")[0]


def boot_id() -> str:
    """Return the number of this boot."""
    return (text_if_readable(BOOT) or "unknown").strip()


def full_pci(address: str) -> str:
    """Return a PCI address as sysfs writes it: 0000:1b:00.0 for 1b:00.0, 00000000:1B:00.0 or 1b:00.

    Every tool has its own spelling. What is not an address is returned in lower case.
    """
    text = address.strip().lower()
    found = _ADDRESS.match(text)
    return f"{int(found[1] or '0', 16):04x}:{found[2]}{found[3] or '.0'}" if found else text
