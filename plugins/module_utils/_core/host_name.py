# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The name of this host, as Slurm and the inventory write it."""

from __future__ import annotations

import socket


def short_name() -> str:
    """Return the host name without its domain."""
    return socket.gethostname().split(".")[0]
