# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Local users of a host and the people of a directory."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Option, Unresolved
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.users import (
    check_directory,
    names_of,
)

LATER = Unresolved("a fact", later=True)
OPTIONS = {
    "identity_id_min": Option("int", default=10000),
    "identity_id_max": Option("int", default=20000),
}


def lines(options: Any = None, **given: Any) -> list[str]:
    variables = {name: Value(value, f"all.{name}") for name, value in given.items()}
    found = check_directory(variables, OPTIONS if options is None else options)
    return [str(problem) for problem in found]


def users(*numbers: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"u{at}", "uid": number, **more} for at, number in enumerate(numbers)]


def test_numbers_of_the_directory() -> None:
    numbers = users(9999, 10000, 20000, 20001, None, LATER, "12000")
    line = (
        "is one of the directory's numbers, from identity_id_min: 10000 to identity_id_max: 20000"
    )
    assert lines(identity_domain="x", node_base_users=[{"name": "v"}, *numbers]) == [
        f"all.node_base_users[2].uid: 10000 of 'u1' {line}; write another one, or another range",
        f"all.node_base_users[3].uid: 20000 of 'u2' {line}; write another one, or another range",
    ]
    (line,) = lines(identity_domain="x", node_base_groups=[{"name": "g", "gid": 12000}])
    assert line.startswith("all.node_base_groups[0].gid: 12000 of 'g' is one of")
    gone = users(12000, state="absent")
    assert lines(identity_domain="x", node_base_users=gone) == []
    assert len(lines(identity_domain="x", node_base_users=users(12000, state="present"))) == 1


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({"identity_id_min": 12001}, 0),
        ({"identity_id_max": 11999}, 0),
        ({"identity_id_min": 12000, "identity_id_max": 12000}, 1),
        # What comes from a fact is not known here.
        ({"identity_id_min": LATER}, 0),
        ({"identity_id_max": LATER}, 0),
    ],
)
def test_the_range_of_the_directory(given: dict[str, Any], count: int) -> None:
    assert len(lines(identity_domain="x", node_base_users=users(12000), **given)) == count


def test_a_host_without_a_directory_has_all_numbers() -> None:
    assert lines(node_base_users=users(12000)) == []
    # Without the role identity there is no range.
    assert lines({}, identity_domain="x", node_base_users=users(12000)) == []


def test_users_that_are_there() -> None:
    given = [{"name": "a"}, {"name": "b", "state": "absent"}, {"name": "c", "state": "present"}]
    assert names_of(Value(given, "")) == ["a", "c"]
