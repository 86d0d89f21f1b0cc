# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Passwords that BMCs are delivered with. Data."""

from __future__ import annotations

# NVIDIA DGX H100 user guide (admin), AMI MegaRAC, Supermicro, Dell iDRAC, Lenovo XCC, OpenBMC.
_DELIVERED = frozenset(
    {"", "0penbmc", "admin", "calvin", "changeme", "passw0rd", "password", "root", "superuser"}
)


def is_factory(user: str, password: str) -> bool:
    """Return whether the password is in a public manual, in any case of its letters."""
    return password.lower() in _DELIVERED or password.lower() == user.lower()
