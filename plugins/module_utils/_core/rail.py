# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The name of a rail's adapter."""

from __future__ import annotations

# What a port is called once the role infiniband has named it. The prefix matters: NVSHMEM takes
# only names that begin with mlx5 (NVSHMEM_HCA_PREFIX).
RAIL_DEVICE = "mlx5_rail{rail}"
