# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Inputs of login_environment: what shells say to NCCL and UCX. Pure.

The rails have the same names on all nodes, since the role infiniband gives them, so that what a
login host says holds for the jobs that are submitted there.
"""

from __future__ import annotations

from typing import Any

from .fabric import HARDWARE, rails_of
from .host import Host

_ENVIRONMENT = "login_environment_environment"


def _environment(host: Host) -> dict[str, str]:
    # A shell on a node without rails, for a program that would look for them there.
    if host.runs_jobs and not rails_of(host):
        return {}
    devices = [f"mlx5_rail{rail}:1" for rail in range(host.site.common_rails)]
    # Where there are no adapters, a list of them would leave jobs without any network.
    if not devices or not host.value(HARDWARE):
        return {}
    names = {"NCCL_IB_HCA": "=" + ",".join(devices), "NCCL_CROSS_NIC": "0"}
    # Jobs without GPUs ask UCX, too, which fails where it finds none of the devices.
    if not host.site.present_groups["cpu_nodes"]:
        names["UCX_NET_DEVICES"] = ",".join(devices)
    return names


def login_inputs(host: Host) -> dict[str, Any]:
    """Return the settings of a host's shells. The inventory's own values win."""
    given = host.outline(_ENVIRONMENT) or {}
    return {
        _ENVIRONMENT: {
            **_environment(host),
            **{name: host.refer(_ENVIRONMENT, name) for name in given},
        },
        "login_environment_banner": "login_nodes" in host.groups,
        "login_environment_banner_title": "Cluster " + host.site.plan["cluster"]["name"],
    }
