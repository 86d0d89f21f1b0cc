# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import random
import re

import pytest
from ClusterShell.NodeSet import NodeSet

from ansible_collections.baremetal.dgx.plugins.module_utils._core.nodeset import expand, fold


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("head", ["head"]),
        ("dgx-[01-03]", ["dgx-01", "dgx-02", "dgx-03"]),
        ("dgx-[9-11]", ["dgx-9", "dgx-10", "dgx-11"]),
        ("dgx-[01,04],head", ["dgx-01", "dgx-04", "head"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("dgx-[01-02]-ib", ["dgx-01-ib", "dgx-02-ib"]),
        ("dgx-01,dgx-01", ["dgx-01"]),
        (" dgx-01 , dgx-02 ", ["dgx-01", "dgx-02"]),
        ("", []),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dgx-[01-02", "the brackets of 'dgx-[01-02' do not match"),
        ("dgx-01]", "the brackets of 'dgx-01]' do not match"),
        ("dgx-[a-b]", "'a-b' in 'dgx-[a-b]' is not a range like 01-12"),
        ("dgx-[]", "'' in 'dgx-[]' is not a range like 01-12"),
        ("dgx-[3-1]", "the range 3-1 in 'dgx-[3-1]' runs backwards"),
        ("dgx-[1-99999999]", "'dgx-[1-99999999]' means more than 65536 nodes"),
        ("a[1-9999]b[1-9999]", "'a[1-9999]b[1-9999]' means more than 65536 nodes"),
    ],
)
def test_expand_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        expand(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["head"], "head"),
        (["dgx-01"], "dgx-01"),
        (["dgx-02", "dgx-01", "dgx-03", "dgx-07"], "dgx-[01-03,07]"),
        (["dgx-8", "dgx-9", "dgx-10"], "dgx-[8-10]"),
        (["dgx-9", "dgx-010"], "dgx-[9,010]"),
        (["dgx-01-ib", "dgx-02-ib"], "dgx-[01-02]-ib"),
        (["b-1", "a-1", "a-2"], "a-[1-2],b-1"),
        (["r1n01", "r1n02", "r2n01"], "r1n[01-02],r2n01"),
    ],
)
def test_fold(names: list[str], text: str) -> None:
    assert fold(names) == text


def test_agrees_with_clustershell() -> None:
    """ClusterShell is an independent reader of the same syntax."""
    chance = random.Random(1)
    for _round in range(500):
        names = {
            chance.choice(["a", "b-", "c1-"])
            + str(chance.randint(0, 120)).zfill(chance.choice([1, 3]))
            for _name in range(chance.randint(1, 30))
        }
        folded = fold(names)
        assert set(expand(folded)) == names
        assert set(NodeSet(folded)) == names
