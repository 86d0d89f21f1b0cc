# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Refuses monitoring that is switched on for no host that could run it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...module_utils._core.schema import Problem
from .._inventory.values import Inventory, Value

_GROUP = "monitoring_nodes"
_SWITCHES = ("prometheus_enabled", "alertmanager_enabled", "grafana_enabled")


def check_monitoring(
    inventory: Inventory, sound: Mapping[str, Mapping[str, Value]]
) -> Iterator[Problem]:
    """Yield the first switch that is on although no host of the group has it.

    A group without hosts gives its variables to none: what is written for it is looked at as well.
    """
    members = inventory.groups.get(_GROUP, ())
    for name in _SWITCHES:
        if any(_is_on(sound.get(host, {}).get(name)) for host in members):
            continue
        values = [variables.get(name) for variables in sound.values()]
        paths = sorted({value.path for value in values if value is not None and _is_on(value)})
        if inventory.unread.get(_GROUP, {}).get(name) is True:
            paths.append(f"{_GROUP}.{name}")
        if not paths:
            continue
        if members:
            wrong = f"true, and no host of {_GROUP} has it"
            remedy = f"write it in group_vars/{_GROUP}, or write false"
        else:
            wrong = f"true, and no host is in {_GROUP}"
            remedy = f"write {_GROUP}: {{hosts: {{NAME: }}}} below cluster, or write false"
        yield Problem(paths[0], wrong, remedy)
        # The others are there for the same reason.
        return


def _is_on(value: Value | None) -> bool:
    return value is not None and value.value is True
