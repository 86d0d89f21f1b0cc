# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, sorts and tiers, by nothing but a sweep."""

from __future__ import annotations

import pytest
from small_fabric import L0, L1, NO_NAME, NO_SWITCH_NAME, A, B, Small

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import rail_end
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.census import (
    census,
    numbers_of,
    sort_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.infer import name_of


def test_tiers_and_names_are_those_of_the_fabric():
    found = census(Small().sweep)
    assert {name: tier for name, tier in found.tier.items() if tier != "leaf"} == {
        "s1": "spine",
        "s2": "spine",
    }
    assert found.tier["l3"] == "leaf"
    assert found.far[rail_end("n1", 3)].host == "l3"


def test_devices_without_a_name_go_by_their_guid():
    small = Small()
    small.call(NO_NAME, A)
    small.call(NO_SWITCH_NAME, L0, L1)
    found = census(small.sweep)
    assert f"0x{small.guid[L0]}" in found.switches
    assert (f"0x{small.guid[A]}", 0) in found.adapters
    assert not {f"0x{small.guid[L0]}", f"0x{small.guid[A]}"} & found.named


def test_two_adapters_of_one_name_are_neither():
    small = Small()
    small.call("n1 mlx5_rail0", B)
    found = census(small.sweep)
    assert list(found.doubled) == ["n1 mlx5_rail0"]
    assert [str(end) for end in found.doubled["n1 mlx5_rail0"]] == ["l0/1", "l0/2"]
    assert ("n1", 0) not in found.adapters


def test_the_name_of_one_adapter_does_not_renumber_those_of_others():
    small = Small()
    small.call("n1 ibp0s1", A)
    found = census(small.sweep)
    assert found.device["n2", 0] == "mlx5_rail0"
    assert found.device["n1", 4] == "ibp0s1"


def test_default_names_are_those_of_the_kernel():
    small = Small()
    for rail in range(4):
        small.call(f"n1 HCA-{rail + 1}", ("n1", rail))
        small.call(f"n2 mlx5_{rail}", ("n2", rail))
    found = census(small.sweep)
    assert [key for key, device in found.device.items() if device in ("HCA-2", "mlx5_1")] == [
        ("n1", 1),
        ("n2", 1),
    ]


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ({"dgx-007", "dgx-012"}, {"dgx-007": 7, "dgx-012": 12}),
        ({"r1-n3", "r1-n4", "r2-n3"}, {"r1-n3": 0, "r1-n4": 1, "r2-n3": 2}),
        ({"login"}, {}),
    ],
)
def test_the_number_of_a_name_is_what_varies(names, numbers):
    assert numbers_of(names) == numbers
    assert sort_of("DGX-007.example") == "dgx-#.example"


def test_a_name_that_is_missing_is_written_as_its_neighbours_are():
    assert name_of({"dgx-007": 7, "dgx-012": 12}, 10) == "dgx-010"
    assert name_of({"pod2-leaf9": 9}, 10) == "pod2-leaf10"
    assert name_of({"r2-n3": 17}, 18) == "number 18 after r2-n3"
