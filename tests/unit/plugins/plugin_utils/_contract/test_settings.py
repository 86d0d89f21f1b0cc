# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Option
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.settings import filled

SETTINGS = Option(
    type="dict",
    options={
        "level": Option(choices=("quick", "standard"), default="standard"),
        "seconds": Option(type="int", default=10),
        "tool": Option(default=""),
        "burn": Option(
            type="dict",
            default={},
            options={"environment": Option(type="dict", default={}), "n": Option(type="int")},
        ),
    },
)


def test_defaults_stand_in_the_contract_alone() -> None:
    assert filled(SETTINGS, {"seconds": 20}) == {
        "level": "standard",
        "seconds": 20,
        "tool": "",
        "burn": {"environment": {}},
    }
    assert filled(SETTINGS, {})["seconds"] == 10


def test_what_may_be_any_text_is_referred_to_where_it_is_said() -> None:
    given = {"level": "quick", "tool": "/opt/x", "burn": {"environment": {"TOKEN": "t"}, "n": 64}}
    assert filled(SETTINGS, given, lambda *keys: "->" + ".".join(keys)) == {
        "level": "quick",
        "seconds": 10,
        "tool": "->tool",
        "burn": {"environment": "->burn.environment", "n": 64},
    }


def test_what_is_in_lists_and_under_free_keys_is_filled_too() -> None:
    item = Option(type="dict", options={"kind": Option(default="ethernet"), "mtu": Option()})
    by_name = Option(type="dict", each=item)
    assert filled(by_name, {"a": {"mtu": 9000}, "b": None}) == {
        "a": {"kind": "ethernet", "mtu": 9000},
        "b": {"kind": "ethernet"},
    }
    listed = Option(type="list", each=item)
    assert filled(listed, [{}]) == [{"kind": "ethernet"}]
    assert (filled(listed, None), filled(by_name, None)) == (None, None)
    # A whole that is referred to shows nothing about what is in it.
    assert filled(by_name, {"a": {}}, lambda *keys: "->") == "->"
