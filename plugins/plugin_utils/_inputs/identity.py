# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Which hosts know the people of a directory, and who is theirs alone. Pure."""

from __future__ import annotations

from typing import Any

from .host import Host

_NAMES = (
    "{{ [{'state': 'present'}] | product(%s) | map('combine') "
    "| rejectattr('state', 'equalto', 'absent') | map(attribute='name') | list }}"
)


def asked_identity(host: Host) -> list[str]:
    """Return the role for people of a directory, if the inventory names one."""
    return ["identity"] if host.says("identity_domain") else []


def _declared(host: Host, name: str) -> str | list[str]:
    # The plan does not need the names, which may be of a fact or a vault.
    return _NAMES % name if host.says(name) else []


def identity_inputs(host: Host) -> dict[str, Any]:
    """Return the host's own users and groups, whose names the directory must not take."""
    if not asked_identity(host):
        return {}
    return {
        "identity_local_users": _declared(host, "node_base_users"),
        "identity_local_groups": _declared(host, "node_base_groups"),
    }
