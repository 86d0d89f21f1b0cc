# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each check has its ladder, or a person."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._repair import ladders

ROOT = Path(__file__).resolve().parents[5]
PAGES = "".join(
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("troubleshooting.md", "thresholds.md", "fault_matrix.md")
)


def test_a_ladder_climbs_and_names_its_source() -> None:
    for check in ladders.CHECKS:
        ladder = ladders.ladder_of(check)
        places = [ladders.STEPS.index(step) for step in ladder.steps]
        assert places == sorted(set(places))
        assert ladder.end in (ladders.RETURN, ladders.PERSON)
        assert len(ladder.source) > 30


@pytest.mark.parametrize("check", sorted(ladders.CHECKS))
def test_no_ladder_is_of_a_check_that_is_not_there(check: str) -> None:
    """The thresholds' page and the guide have each, in full or after the layer."""
    layer, _dot, name = check.partition(".")
    assert re.search(rf"`({layer}\.|\.)?{name}`|`{layer}\.\*`|\b{layer}\.{name}\b", PAGES), check


def test_a_fabric_that_no_gpu_has_joined_returns_no_part() -> None:
    """It is that of the fabric manager; one GPU alone that it does not register is a part."""
    node = ladders.ladder_of("gpu.fabric", subject="node:dgx-01")
    assert (node.steps, node.end) == ((ladders.RESTART_DRIVER, ladders.REBOOT), ladders.PERSON)
    assert node == ladders.ladder_of("gpu.fabric_manager", subject="node:dgx-01")
    one = ladders.ladder_of("gpu.fabric", subject="gpu:dgx-01/3")
    assert one == ladders.ladder_of("gpu.fabric") == ladders.ladder_of("gpu.xid")
    own = ladders.own_ladder(["reboot", "return"])
    assert ladders.ladder_of("gpu.fabric", {"gpu.fabric": own}, "node:dgx-01") == own


def test_a_check_is_on_one_ladder() -> None:
    listed = [check for _ladder, checks in ladders._LADDERS for check in checks]
    assert len(listed) == len(set(listed))


def test_what_the_fault_matrix_breaks_is_on_a_ladder_or_left_to_a_person() -> None:
    """Each row has a decision; what is not listed would be left to a person without one."""
    rows = [
        row
        for group in yaml.safe_load((ROOT / "tests/faults/faults.yml").read_text())
        for row in group["faults"]
    ]
    checks = {line.split()[0] for row in rows for line in row.get("fail", [])}
    assert len(checks) > 120
    assert checks <= ladders.CHECKS
