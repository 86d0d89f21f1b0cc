# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of what NVIDIA publishes: literals only, a source for each row, and how many there are."""

from __future__ import annotations

import ast

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu import dcgm_data as _dcgm_data
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu import sxid_data as _sxid_data
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu import xid_data as _xid_data
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.xid_table import ACTIONS, LINE

FOLDER = ROOT / "plugins" / "module_utils" / "_gpu"
KNOWLEDGE = ("xid_data", "sxid_data", "models_data", "dcgm_data")


@pytest.mark.parametrize("name", KNOWLEDGE)
def test_a_table_holds_literals_only(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    for number, node in enumerate(tree.body):
        if number == 0 or isinstance(node, ast.ImportFrom):
            assert not isinstance(node, ast.ImportFrom) or node.module == "__future__"
            continue
        assert isinstance(node, ast.AnnAssign), ast.dump(node)
        assert node.value is not None
        # Raises for anything but constants in tuples, lists, sets and mappings.
        value = node.value
        # A frozenset of constants is one as well.
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "frozenset":
            (value,) = value.args
        ast.literal_eval(value)


@pytest.mark.parametrize(
    ("rows", "sources"),
    [
        (_xid_data.XIDS, _xid_data.SOURCES),
        (_sxid_data.SXIDS, _sxid_data.SOURCES),
        (_dcgm_data.DCGM_ERRORS, _dcgm_data.SOURCES),
    ],
)
def test_every_row_has_a_source_and_no_number_is_there_twice(rows, sources) -> None:
    numbers = [row[0] for row in rows]
    assert numbers == sorted(set(numbers))
    assert {row[-1] for row in rows} == set(sources)
    assert all(row[1] and row[2] for row in rows)


def test_the_catalogue_of_xids_is_whole() -> None:
    published = [row for row in _xid_data.XIDS if row[-1] != "driver"]
    # 172 rows in October 2025, of which eight are decoded from the line.
    assert [row[0] for row in published] == list(range(1, 173))
    assert {row[0] for row in published if row[1] == LINE} == {*range(144, 151), 154}
    assert {row[1] for row in _xid_data.XIDS} <= {*ACTIONS, LINE}
    assert len([row for row in published if row[-1] == "support"]) == 62
    assert [row[0] for row in _xid_data.XIDS if row[-1] == "driver"] == [173, 174, 175, 176]


def test_the_guide_of_sxids_is_whole() -> None:
    documented = [row for row in _sxid_data.SXIDS if row[-1] != "driver" or row[0] == 20009]
    assert len(documented) == 93
    assert len(_sxid_data.SXIDS) == 93 + 25
    assert {row[1] for row in _sxid_data.SXIDS} <= {*ACTIONS, "always", "fatal", "nonfatal"}
    numbers = {row[0] for row in _sxid_data.SXIDS}
    assert {*_sxid_data.ENDS, *_sxid_data.ENDS.values(), *_sxid_data.LINK_FAULTS} <= numbers


def test_how_many_errors_of_dcgm_there_are() -> None:
    numbers = {row[0] for row in _dcgm_data.DCGM_ERRORS}
    # DCGM 4.6 has 133; of eight (118, 119, 121, 124, 129 to 132) no public text was found, and
    # category and severity decide there.
    assert numbers == {*range(118), 120, 122, 123, 125, 126, 127, 128}
    assert len(numbers) == 125
    assert {number for _text, number in _dcgm_data.TEXTS} <= numbers
