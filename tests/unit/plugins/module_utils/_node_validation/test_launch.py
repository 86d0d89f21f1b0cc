# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many stand-in nodes, some dead, hanging or torn, and a control side that is killed.

tests/soak/validation_kills does the same with more of them.
"""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

import pytest
import validation_nodes as model
import validation_walk
from validation_walk import walk

from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import UnsafeError
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.spool import Spool


def test_others_finish_and_exactly_the_broken_ones_are_missing(tmp_path: Path) -> None:
    reported = walk(tmp_path, nodes=80, kills=0, seed=1)
    assert reported.missing == 3
    # A dead node ends the step of the others once, which then go on where they were.
    assert reported.interrupted <= 80


@pytest.mark.parametrize("seed", [1, 2])
def test_a_control_side_that_is_killed_goes_on(tmp_path: Path, seed: int) -> None:
    reported = walk(tmp_path, nodes=40, kills=4, seed=seed)
    assert reported.missing == 3


def test_a_walk_that_loses_an_answer_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "answer_of", lambda node, part: {"verdict": "fail", "records": []})
    with pytest.raises(validation_walk.WalkError, match="has no or another answer"):
        walk(tmp_path, nodes=5, kills=0, seed=1, part_s=0.01)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> model.World:
    """Three nodes, the second of which hangs; steps are played by this machine."""
    made = model.World(tmp_path)
    made.make(["dgx-01", "dgx-02", "dgx-03"], {"dgx-02": model.HANG}, 0.01)
    monkeypatch.setenv("PYTHONPATH", str(validation_walk._COLLECTIONS))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    return made


def test_what_came_is_handed_on_and_a_second_run_starts_only_what_is_missing(
    world: model.World,
) -> None:
    model.control(world)
    launch = world.launch()
    assert launch.missing(world.names()) == ["dgx-02"]
    paths = launch.pack()
    spool = Spool(model.RUN)
    for path in paths:
        with gzip.open(path, "rt") as lines:
            for line in lines:
                node, _colon, text = line.partition(": ")
                spool.feed(node, text)
    assert spool.count("dgx-01") == len(model.PARTS)
    assert spool.count("dgx-02") == 1
    (world.folder / "fates.json").write_text("{}")
    before = [world.asked(name) for name in ("dgx-01", "dgx-03")]
    model.control(world)
    assert world.launch().missing(world.names()) == []
    assert [world.asked(name) for name in ("dgx-01", "dgx-03")] == before
    starts = sorted(path.name for path in world.spool.glob("*.labels.json"))
    assert starts == ["0-1.labels.json", "0-2.labels.json"]
    assert '"dgx-02"' in (world.spool / starts[1]).read_text()
    assert "dgx-01" not in (world.spool / starts[1]).read_text()


def test_a_node_with_which_no_step_is_created_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm does not say which node of the job went down meanwhile."""
    monkeypatch.setenv("PYTHONPATH", str(validation_walk._COLLECTIONS))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    names = [f"dgx-{number:02}" for number in range(1, 12)]
    world = model.World(tmp_path)
    world.make(names, {"dgx-05": model.DOWN}, 0.01)
    model.control(world)
    launch = world.launch()
    assert launch.missing(names) == ["dgx-05"]
    assert [world.asked(name) for name in names if name != "dgx-05"] == [[*model.PARTS]] * 10


def test_only_root_looks_into_the_spool(world: model.World) -> None:
    model.control(world)
    for path in (world.spool, *world.spool.iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    world.spool.chmod(0o750)
    with pytest.raises(UnsafeError, match="has mode 0750"):
        world.launch()
