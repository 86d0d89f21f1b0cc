# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Local users and groups of one host compared with each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...module_utils._core.schema import Problem
from .._inventory.values import Value


def names_of(users: Value) -> list[str]:
    """Return the names of the users that are not declared absent."""
    return [str(item["name"]) for item in users.value if item.get("state") != "absent"]


def check_users(variables: Mapping[str, Value]) -> Iterator[Problem]:
    """Yield names and numbers that two users, or two groups, have in common."""
    for name, number in (("node_base_users", "uid"), ("node_base_groups", "gid")):
        if name not in variables:
            continue
        value = variables[name]
        seen: dict[tuple[str, str], int] = {}
        for index, item in enumerate(value.value):
            if item.get("state", "present") == "absent":
                continue
            for key in ("name", number):
                if not isinstance(item.get(key), (str, int)):
                    continue
                first = seen.setdefault((key, str(item[key])), index)
                if first != index:
                    wrong = f"'{item[key]}' is also the {key} of [{first}]"
                    yield Problem(f"{value.path}[{index}].{key}", wrong, "write another one")
