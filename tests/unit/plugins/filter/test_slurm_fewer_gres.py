# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that would have less of something is found, whatever it is called and counted in."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter import slurm_fewer_gres

fewer = slurm_fewer_gres.FilterModule().filters()["slurm_fewer_gres"]
NODES = ["dgx-01", "dgx-02", "dgx-03"]


def declared(*counts: tuple[str, int]) -> list[dict[str, object]]:
    gres = [{"name": name, "type": "h100", "count": count} for name, count in counts]
    return [{"name": "dgx-[01-03]", "gres": gres}]


@pytest.mark.parametrize(
    ("line", "counts", "losses"),
    [
        ("dgx-01 gpu:h100:8(S:0-1)", [("gpu", 4)], ["dgx-01 would go from 8 to 4 gpu"]),
        ("dgx-01 gpu:h100:8(S:0-1)", [("gpu", 8)], []),
        ("dgx-01 gpu:h100:8(S:0-1)", [("gpu", 16)], []),
        ("dgx-01 gpu:8", [], ["dgx-01 would go from 8 to 0 gpu"]),
        # What is divided counts by its parts.
        ("dgx-01 gpu:h100:8", [("gpu", 7), ("gpu", 7)], []),
        ("dgx-01 gpu:a:4(S:0,2),gpu:b:4(S:1)", [("gpu", 7)], ["dgx-01 would go from 8 to 7 gpu"]),
        ("dgx-01 gpu:8,shard:1K", [("gpu", 8), ("shard", 1023)],
         ["dgx-01 would go from 1024 to 1023 shard"]),
        ("dgx-01 gpu", [("gpu", 1)], []),
        ("dgx-01 (null)", [], []),
        ("dgx-[01-02,04] gpu:8", [("gpu", 4)], ["dgx-[01-02] would go from 8 to 4 gpu"]),
    ],
)  # fmt: skip
def test_what_a_node_would_lose(
    line: str, counts: list[tuple[str, int]], losses: list[str]
) -> None:
    assert fewer([line], declared(*counts), NODES) == losses


def test_a_node_that_is_not_asked_about_may_lose_all() -> None:
    assert fewer(["dgx-[01-03] gpu:8"], declared(), ["dgx-03", "dgx-04"]) == [
        "dgx-03 would go from 8 to 0 gpu"
    ]


def test_a_broken_hostlist_is_a_filter_error() -> None:
    with pytest.raises(AnsibleFilterError, match="slurm_fewer_gres: the brackets of"):
        fewer(["dgx-[01 gpu:8"], declared(), NODES)
