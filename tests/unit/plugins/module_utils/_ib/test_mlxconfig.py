# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._ib.mlxconfig import (
    Change,
    parse_query,
    plan,
    same,
)

THREE = """\

Device #1:
----------

Device type:        ConnectX7
Name:               MCX75310AAS-NEA_Ax
Description:        NVIDIA ConnectX-7 adapter; 400GbE / NDR IB (default mode)
Device:             0000:18:00.0

Configurations:                                      Default             Current             Next Boot
        MEMIC_BAR_SIZE                              0                   0                   0
RO      PCI_SWITCH_EMULATION                        False(0)            False(0)            False(0)
*       NUM_OF_VFS                                  0                   0                   8
*       SRIOV_EN                                    False(0)            False(0)            True(1)
        LINK_TYPE_P1                                IB(1)               IB(1)               IB(1)
        HOST_CHAINING_DESCRIPTORS                   Array[0..7]         Array[0..7]         Array[0..7]
        ADVANCED_PCI_SETTINGS                       False(0)            False(0)            False(0)
The '*' shows parameters with next value different from default/current value.
"""  # noqa: E501
ONE = """\
Configurations:                                          Next Boot
        SRIOV_EN                                    False(0)
        LINK_TYPE_P1                                IB(1)
"""


def test_three_columns():
    query = parse_query(THREE)
    assert query.fields["Device type"] == "ConnectX7"
    assert len(query.parameters) == 7
    assert query.parameters["SRIOV_EN"].next == "True(1)"
    assert query.parameters["PCI_SWITCH_EMULATION"].read_only
    assert [item.name for item in query.pending] == ["NUM_OF_VFS", "SRIOV_EN"]


def test_one_column_does_not_tell_what_waits():
    query = parse_query(ONE)
    assert query.parameters["SRIOV_EN"].next == "False(0)"
    assert query.pending is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-E- Failed to open the device\n",
        THREE[: THREE.index("        MEMIC")],
        THREE[: THREE.index("0                   8")],
    ],
)
def test_what_is_cut_short(text):
    with pytest.raises(ValueError, match=r"."):
        parse_query(text)


@pytest.mark.parametrize(
    ("one", "two", "equal"),
    [
        ("True(1)", True, True),
        ("True(1)", "true", True),
        ("True(1)", 1, True),
        ("False(0)", True, False),
        ("IB(1)", "IB", True),
        ("IB(1)", "ETH", False),
        ("IB(1)", 2, False),
        ("IB(1)", "ETH(2)", False),
        ("16", "0x10", True),
        ("_256KB(1)", "_256KB", True),
        ("-1", "-1", True),
    ],
)
def test_values(one, two, equal):
    assert same(one, two) is equal


def test_plan_is_what_differs_as_numbers():
    query = parse_query(THREE)
    wanted = {"SRIOV_EN": False, "NUM_OF_VFS": "0", "LINK_TYPE_P1": "IB", "MEMIC_BAR_SIZE": 0}
    assert plan(query, wanted).changes == (
        Change("SRIOV_EN", "True(1)", "0"),
        Change("NUM_OF_VFS", "8", "0"),
    )
    assert plan(query, {"LINK_TYPE_P1": "ETH"}).changes[0].after == "ETH"
    assert plan(query, {}).changes == ()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"LINK_TYPE_P2": 1}, "LINK_TYPE_P2: not among the 7 settings.*it has LINK_TYPE_P1"),
        ({"NO_SUCH": 1, "NOR_THIS": 1}, "NO_SUCH.*NOR_THIS"),
        ({"MAX_ACC_OUT_READ": 0}, "set ADVANCED_PCI_SETTINGS"),
        ({"HOST_CHAINING_DESCRIPTORS": 1}, "is an array"),
        ({"PCI_SWITCH_EMULATION": True}, "read only"),
    ],
)
def test_what_the_adapter_cannot_take(wanted, message):
    with pytest.raises(ValueError, match=message):
        plan(parse_query(THREE), wanted)


def test_a_hidden_setting_waits_for_the_one_that_shows_it():
    found = plan(parse_query(THREE), {"ADVANCED_PCI_SETTINGS": 1, "MAX_ACC_OUT_READ": 0})
    assert found.deferred == ("MAX_ACC_OUT_READ",)
    assert [change.name for change in found.changes] == ["ADVANCED_PCI_SETTINGS"]


def test_capture(capture):
    query = parse_query(capture("mlxconfig/connectx5-edr-query.txt").read_text())
    assert len(query.parameters) == 143
    assert query.parameters["CNP_DSCP_P1"].next == "48"
    assert plan(query, {"LINK_TYPE_P1": "IB", "SRIOV_EN": False}).changes == ()
