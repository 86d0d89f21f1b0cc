# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.gres import totals


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", {}),
        ("gpu", {"gpu": 1}),
        ("gpu:h100", {"gpu": 1}),
        ("gpu:8", {"gpu": 8}),
        ("gpu:h100:6(S:0-1),gpu:1g.10gb:9(S:1)", {"gpu": 15}),
        ("gpu:h100:8,shard:64", {"gpu": 8, "shard": 64}),
        ("bandwidth:2K", {"bandwidth": 2048}),
        ("bandwidth:lustre:3m", {"bandwidth": 3 * 1024**2}),
        ("bandwidth:1p", {"bandwidth": 1024**5}),
    ],
)
def test_counts_are_those_of_all_types(text: str, counts: dict[str, int]) -> None:
    assert totals(text) == counts
