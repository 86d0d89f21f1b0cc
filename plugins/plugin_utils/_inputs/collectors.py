# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which host writes which file of metrics: Prometheus cannot tell one that is gone. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .backup import asked_backup
from .host import Host
from .monitoring import asks_slurm, sweeps


def _collectors(host: Host) -> Iterator[str]:
    if asks_slurm(host):
        yield "slurm"
    if sweeps(host):
        yield "fabric"
    yield from asked_backup(host)


def collector_inputs(host: Host) -> dict[str, Any]:
    """Return the collectors of all hosts, for one that collects their metrics."""
    if "monitoring_nodes" not in host.groups:
        return {}
    return {
        "prometheus_collectors": [
            {"instance": one.name, "collector": name}
            for one in host.site.present
            for name in _collectors(one)
        ]
    }
