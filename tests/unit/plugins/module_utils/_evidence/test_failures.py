# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which failures of pairs and groups stand after a run that did not measure all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.failures import (
    note_failures,
    standing,
)

PART = "fabric.pairs.part"


def one(check: str, subject: str, status: str = "fail", text: str = "") -> dict[str, str]:
    return {"check": check, "subject": subject, "status": status, "text": text}


def test_a_failure_stands_until_its_check_passes_or_fails_for_the_same_subject() -> None:
    before = {(PART, "hca:a/rail0"): one(PART, "hca:a/rail0")}
    for other in (
        one(PART, "hca:a/rail0", "not_measured"),
        one(PART, "hca:b/rail0", "pass"),
        one("fabric.pairs.repeat", "hca:a/rail0", "pass"),
    ):
        after, left = standing(before, [other])
        assert after == before
        assert left == list(before.values())
    assert standing(before, [one(PART, "hca:a/rail0", "pass")]) == ({}, [])
    again = one(PART, "hca:a/rail0", text="slower still")
    assert standing(before, [again]) == ({(PART, "hca:a/rail0"): again}, [])


@pytest.mark.parametrize(
    ("check", "subject", "stands"),
    [
        (PART, "hca:a/rail0", True),
        (PART, "node:a", True),
        (PART, "cable:a/rail0--leaf/1", True),
        (PART, "cable:leaf/50--spine/1", False),
        (PART, "switch:leaf", False),
        ("groups.interaction", "nodes:a,b", False),
        ("fabric.pairs.fleet", "fabric", False),
    ],
)
def test_what_fails_a_node_stands(check: str, subject: str, stands: bool) -> None:
    assert bool(standing({}, [one(check, subject)])[0]) is stands


def test_a_run_takes_along_what_belongs_to_its_layers() -> None:
    before = {("groups.culprit", "node:a"): one("groups.culprit", "node:a")}
    after, left = standing(before, [one(PART, "hca:a/rail0", "pass")])
    assert (after, left) == (before, [])
    assert standing(before, [one("groups.run", "fabric", "not_measured")])[1]


OLD, NEW = "cable:a/rail0--leaf/1", "cable:a/rail0--leaf/2"


@pytest.mark.parametrize(
    ("failed", "plan", "stands"),
    [
        ((PART, OLD), [(PART, "hca:a/rail0"), (PART, NEW)], False),
        ((PART, OLD), [(PART, "hca:a/rail0"), (PART, OLD)], True),
        # What flows met on has that record alone.
        ((PART, OLD), [(PART, "hca:a/rail0"), ("fabric.pairs.collision", OLD)], True),
        ((PART, "hca:a/rail1"), [(PART, "hca:a/rail0"), (PART, NEW)], False),
        # A whole node has a record where it fails or passes, and not in between.
        ((PART, "node:a"), [(PART, "hca:a/rail0"), (PART, NEW)], True),
        # A plan without the node, and another question.
        ((PART, OLD), [(PART, "hca:b/rail0"), (PART, "cable:b/rail0--leaf/3")], True),
        ((PART, OLD), [("groups.node", "node:a")], True),
        (("fabric.cable", OLD), [(PART, "hca:a/rail0"), (PART, NEW)], True),
    ],
)
def test_a_cable_that_left_the_plan_fails_no_node(
    failed: tuple[str, str], plan: list[tuple[str, str]], stands: bool
) -> None:
    before = {failed: one(*failed)}
    after, left = standing(before, [one(*key, status="not_measured") for key in plan])
    assert bool(after) is stands
    assert stands or not left


def test_each_node_has_a_file_below_the_folder(tmp_path: Path) -> None:
    given = [one(PART, "hca:a/rail0"), one("groups.culprit", "node:.. x")]
    assert note_failures(str(tmp_path / "failures"), given) == []
    files = {path.name: json.loads(path.read_text()) for path in (tmp_path / "failures").iterdir()}
    assert files == {
        "a.json": {"hca:a/rail0": [given[0]]},
        "_x.json": {"node:.. x": [given[1]]},
    }
