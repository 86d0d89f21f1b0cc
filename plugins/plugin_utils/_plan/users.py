# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Local users and groups of one host compared with each other and with a directory's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...module_utils._core.schema import Option, Problem
from .._inventory.values import Value

# What says that a host has the people of a directory, and which numbers they have.
DIRECTORY = ("identity_domain", "identity_id_min", "identity_id_max")


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


def check_directory(
    variables: Mapping[str, Value], options: Mapping[str, Option]
) -> Iterator[Problem]:
    """Yield local users and groups whose numbers may be those of people of the directory.

    options are the inputs of the role identity, which have the range's defaults.
    """
    if "identity_domain" not in variables or not options:
        return
    lowest, highest = (
        variables[name].value if name in variables else options[name].default
        for name in DIRECTORY[1:]
    )
    if not isinstance(lowest, int) or not isinstance(highest, int):
        return
    for name, number in (("node_base_users", "uid"), ("node_base_groups", "gid")):
        value = variables.get(name)
        for index, item in enumerate(value.value if value else ()):
            found = item.get(number)
            absent = item.get("state", "present") == "absent"
            if not absent and isinstance(found, int) and lowest <= found <= highest:
                wrong = (
                    f"{found} of '{item['name']}' is one of the directory's numbers, from "
                    f"identity_id_min: {lowest} to identity_id_max: {highest}"
                )
                place = f"{value.path}[{index}].{number}" if value else number
                yield Problem(place, wrong, "write another one, or another range")
