# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    node_address,
    trailing_number,
)

FIRST = {"management": "10.1.0.11", "bmc": "10.2.0.250", "six": "fd00::11"}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("dgx-07", 7),
        ("dgx-127", 127),
        ("a-8.example.org", 8),
        ("head", None),
        ("h100-a", None),
    ],
)
def test_trailing_number(name: str, number: int | None) -> None:
    assert trailing_number(name) == number


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        (("dgx-01", FIRST), "10.1.0.11"),
        (("dgx-07", FIRST), "10.1.0.17"),
        (("dgx-10", FIRST, {}, "bmc"), "10.2.1.3"),
        (("dgx-07", FIRST, {"management": "10.1.0.99"}), "10.1.0.99"),
        (("dgx-07", FIRST, {"bmc": "10.2.9.9"}), "10.1.0.17"),
        (("dgx-07", FIRST, None, "management", 1), "10.1.0.11"),
        (("head", FIRST, None, "management", "3"), "10.1.0.13"),
        (("dgx-02", FIRST, None, "six"), "fd00::12"),
        (("head", None, {"management": "10.1.0.5"}), "10.1.0.5"),
    ],
)
def test_node_address(arguments: tuple[object, ...], address: str) -> None:
    assert node_address(*arguments) == address  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dgx-01", {}), "node_first_address.management"),
        (("dgx-01", FIRST, {}, "storage"), "dgx-01 has no address on network 'storage'"),
        (("head", FIRST), "write node_number or node_address.management"),
        (("dgx-00", FIRST), "numbers begin with 1"),
        (("dgx-01", {"management": "10.1.0"}), "'10.1.0' is not an IP address"),
        (("dgx-01", {"management": 10}), "10 is not an IP address"),
        (("dgx-02", {"management": "255.255.255.255"}), "beyond the last address"),
        (("dgx-02", ["10.1.0.1"]), "node_first_address of dgx-02 is ['10.1.0.1']; write an"),
        (("dgx-02", FIRST, "10.1.0.1"), "node_address of dgx-02 is '10.1.0.1'; write an address"),
    ],
)
def test_node_address_says_what_lacks(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        node_address(*arguments)  # type: ignore[arg-type]
