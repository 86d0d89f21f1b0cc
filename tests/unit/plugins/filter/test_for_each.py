# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter for_each: forms and items in, filled forms out."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter.for_each import FilterModule

for_each = FilterModule().filters()["for_each"]
FABRIC = {"name": "compute", "guids": ["0x1"], "rate": 400}


@pytest.mark.parametrize(
    ("items", "form", "filled"),
    [
        ([], "{}", []),
        (["a", "b"], "/etc/{}.conf", ["/etc/a.conf", "/etc/b.conf"]),
        (["a"], {"path": "{}", "state": "absent"}, [{"path": "a", "state": "absent"}]),
        ([7], "{}", [7]),
        ([7], "rail{}", ["rail7"]),
        ([FABRIC], "{name} at {rate}", ["compute at 400"]),
        ([FABRIC], {"vars": {"guids": "{guids}"}}, [{"vars": {"guids": ["0x1"]}}]),
        ([FABRIC], ["opensm", "{name}", True, None], [["opensm", "compute", True, None]]),
        ([FABRIC], {"{name}": "{}"}, [{"compute": FABRIC}]),
        # What is not a place stays: a shell's variable, a pattern, the stage of a validation.
        (["a"], "${HOME} x{2,3} {3} {A} %(stage)s/{}", ["${HOME} x{2,3} {3} {A} %(stage)s/a"]),
        # A value is not filled again.
        ([{"name": "{rate}", "rate": 1}], "{name}!", ["{rate}!"]),
    ],
)
def test_the_form_is_filled_for_each_item(items: list[Any], form: Any, filled: list[Any]) -> None:
    assert for_each(items, form) == filled


def test_each_item_gets_a_form_of_its_own() -> None:
    first, second = for_each(["a", "b"], {"list": ["{}"]})
    first["list"].append("c")
    assert second == {"list": ["b"]}


@pytest.mark.parametrize(
    ("items", "form", "message"),
    [
        ([FABRIC], "{nmae}", r"'\{nmae\}': an item has no nmae"),
        (["a"], "{name}", r"an item is not a mapping: 'a'; write \{\}"),
    ],
)
def test_a_place_without_a_value_is_refused(items: list[Any], form: str, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        for_each(items, form)
