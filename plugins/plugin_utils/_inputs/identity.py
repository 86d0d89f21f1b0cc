# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which hosts know the people of a directory. Pure."""

from __future__ import annotations

from .host import Host


def asked_identity(host: Host) -> list[str]:
    """Return the role for people of a directory, if the inventory names one."""
    return ["identity"] if host.says("identity_domain") else []
