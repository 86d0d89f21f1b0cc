# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import (
    LinkReading,
    reading_from_line,
    reading_from_own_line,
    reading_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.mlxlink import parse_mlxlink

REPORT = parse_mlxlink((FIXTURES / "mlxlink/ndr-fec-histogram.json").read_text())


def test_a_report_becomes_a_reading_and_a_line_and_back():
    reading = reading_of(REPORT, 1789000000, 3, 400.0, "0123456789ab", None)
    assert (reading.serial, reading.part, reading.boot) == (
        "FB2404000017", "FAB-OSFP-DR4", "01234567")  # fmt: skip
    assert (reading.celsius, reading.hot_c, reading.downs) == (55.0, 80.0, 0)
    assert reading.bins[-1] == 2
    assert reading.rx_low_dbm == -9.0
    line = json.loads(json.dumps(reading.as_line()))
    assert reading_from_line(line) == reading_from_own_line(line) == reading
    assert len(json.dumps(line)) < 300


def test_the_kernels_counter_comes_before_the_tools_own():
    assert reading_of(REPORT, 1, 3, 400.0, "b", 7).downs == 7


def test_copper_has_no_light():
    copper = parse_mlxlink((FIXTURES / "mlxlink/ndr-copper.json").read_text())
    reading = reading_of(copper, 1, 0, None, "b", None)
    assert (reading.rx_dbm, reading.celsius) == ((), None)


def test_zeroes_of_copper_are_no_light():
    copper = parse_mlxlink((FIXTURES / "mlxlink/ndr-passive-copper.txt").read_text())
    reading = reading_of(copper, 1, 0, 400.0, "b", None)
    assert (reading.rx_dbm, reading.rx_low_dbm) == ((), None)
    assert (reading.celsius, reading.hot_c) == (None, None)
    assert reading.serial == "FB2604000042"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("at", -1),
        ("at", 1.5),
        ("at", True),
        ("rail", "3"),
        ("serial", "a\nb"),
        ("serial", "x" * 81),
        ("serial", None),
        ("raw_ber", float("nan")),
        ("raw_errors", 1e30),
        ("minutes", "7"),
        ("gbps", 0),
        ("gbps", -400.0),
        ("gbps", 1e-300),
        ("bins", [1] * 65),
        ("bins", ["1"]),
        ("rx_dbm", 3.0),
        ("why", [1]),
        ("why", ["<script>"]),
    ],
)
def test_what_a_node_may_not_hand_over(name, value):
    values = {**vars(LinkReading(at=1, rail=0)), name: value}
    with pytest.raises(ValueError, match=f"{name} of a reading"):
        reading_from_line(list(values.values()))


@pytest.mark.parametrize("line", [None, {}, [], "text", [1, 2]])
def test_what_is_no_line(line):
    with pytest.raises(ValueError, match="another number of values"):
        reading_from_line(line)
