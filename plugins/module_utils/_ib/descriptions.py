# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the description of a device says: a host and its device, or the name of a switch. Pure.

Names are compared without case and domain. MLNX_OFED calls an adapter HOST HCA-1 that the kernel
calls mlx5_0: the two are one name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# What a device calls itself before it was given a name.
_UNNAMED = re.compile(
    r"^$|mellanox technologies|^mt\d{4,5}\b|quantum|switch-?ib|infiniscale|connectx|^hca-\d+$"
    r"|^localhost\b|^switch$|^\(none\)",
    re.IGNORECASE,
)
_MANAGED = re.compile(r"^MF0;(.*?)(?::[^:/]+)?(?:/.*)?$")
_KERNEL_DEVICE = re.compile(r"mlx5_(\d+)\Z")
_DEFAULT_DEVICE = re.compile(r"hca-([1-9]\d*)\Z")
_STORAGE_DEVICE = "mlx5_storage"


@dataclass(frozen=True)
class Named:
    """What the description of an adapter says: a host and its device."""

    host: str
    device: str

    @property
    def key(self) -> tuple[str, str]:
        """Host and device as they are compared with others."""
        return host_key(self.host), device_key(self.device)


def switch_name(description: str) -> str:
    """Return the name in a switch's description, also in that of a switch with an own system."""
    text = description.strip()
    managed = _MANAGED.match(text)
    return (managed.group(1) if managed else text).strip()


def short(host: str) -> str:
    """Return a host's name without its domain: descriptions may have it or not."""
    return host.split(".")[0]


def host_key(host: str) -> str:
    """Return a host's name as it is compared with others: without case and domain."""
    return short(host).lower()


def device_key(device: str) -> str:
    """Return the name of a device as it is compared with others, that of the kernel where known."""
    text = device.lower()
    default = _DEFAULT_DEVICE.match(text)
    return f"mlx5_{int(default.group(1)) - 1}" if default else text


def kernel_number(device: str) -> int | None:
    """Return the number that the kernel gave a device, None for a name of another kind."""
    found = _KERNEL_DEVICE.match(device_key(device))
    return int(found.group(1)) if found else None


def is_storage(device: str) -> bool:
    """Return whether the role infiniband has named this device as a port for storage."""
    return device_key(device).startswith(_STORAGE_DEVICE)


def host_and_device(description: str) -> Named:
    """Return host and device of an adapter's description, the host without its domain."""
    words = description.split()
    if not words:
        return Named("", "")
    return Named(short(words[0]), " ".join(words[1:]))


def has_default_name(description: str, host: str) -> bool:
    """Return whether a description is the one that MLNX_OFED gives an adapter of this host."""
    named = host_and_device(description)
    return host_key(named.host) == host_key(host) and bool(
        _DEFAULT_DEVICE.match(named.device.lower())
    )


def unnamed(description: str) -> bool:
    """Return whether a description is what the maker put there, or none."""
    return bool(_UNNAMED.search(description.strip()))
