# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many stand-in nodes, some dead, hanging or torn, and a control side that is killed.

tests/soak/validation_kills does the same with more of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import validation_nodes as model
import validation_walk
from validation_walk import walk

from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import UnsafeError
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError
from ansible_collections.baremetal.dgx.plugins.module_utils._core.wait import attempts
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation import (
    launch as _launch,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.start import (
    Start,
    clush_start,
    srun_start,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.save import (
    read_spool,
    why_missing,
)


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


def test_what_came_is_handed_on_and_a_second_run_asks_all_that_is_not_kept(
    world: model.World,
) -> None:
    model.control(world)
    spool = world.answers()
    assert spool.count("dgx-01") == len(model.PARTS)
    assert spool.count("dgx-02") == 1
    assert missing(world) == ["dgx-02"]
    (world.folder / "fates.json").write_text("{}")
    model.control(world)
    assert missing(world) == []
    assert world.asked("dgx-01") == [*model.PARTS, *model.QUICK]


def test_what_an_earlier_run_has_brought_is_no_answer(world: model.World) -> None:
    """The node may have been repaired since, or have booted: it alone knows what still counts."""
    model.control(world)
    (world.folder / "fates.json").write_text(json.dumps({"dgx-01": model.HANG}))
    model.control(world)
    assert missing(world) == ["dgx-01"]
    assert world.answers().answer("dgx-01", "nccl") is None


def missing(world: model.World) -> list[str]:
    """The nodes that the last control side has not heard to the end."""
    return json.loads((world.folder / "missing.json").read_text())


@pytest.mark.parametrize("fails", [1, 99])
def test_a_group_that_cannot_be_started_costs_itself(
    world: model.World, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """A job that is gone, or a scontrol that does not answer."""
    monkeypatch.setattr(_launch, "_PAUSE_S", 0.1)
    monkeypatch.setattr(_launch, "_TRIES", 3)
    monkeypatch.setenv("PATH", f"{world.folder / 'bin'}:{os.environ['PATH']}")
    (world.folder / "fates.json").write_text("{}")
    tries: list[str] = []

    def begin(name: str, job: str, nodes: Sequence[str]) -> Start:
        if job == "8" and len(tries) < fails:
            tries.append(name)
            raise ToolError("Slurm does not show job 8: it did not end within 60 s")
        return srun_start(name, job, nodes, ["python3", model.RUN])

    launch = world.launch()
    groups = {"7": ["dgx-01"], "8": ["dgx-02"], "9": ["dgx-03"]}
    launch.run(groups, begin, str(world.folder / "program"), 600)
    assert len(tries) == min(fails, 3)
    assert launch.missing(world.names()) == ([] if fails == 1 else ["dgx-02"])
    whole = ["dgx-01", "dgx-03"] + ["dgx-02"] * (fails == 1)
    assert [launch.spool.count(name) for name in whole] == [len(model.PARTS)] * len(whole)
    spool = read_spool(model.RUN, launch.pack(), world.names())
    if fails > 1:
        assert why_missing(spool, "dgx-02", "nccl") == (
            "Slurm does not show job 8: it did not end within 60 s"
        )


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
    assert missing(world) == ["dgx-05"]
    assert [world.asked(name) for name in names if name != "dgx-05"] == [[*model.PARTS]] * 10


def test_only_root_looks_into_the_spool(world: model.World) -> None:
    model.control(world)
    for path in (world.spool, *world.spool.iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    world.spool.chmod(0o750)
    with pytest.raises(UnsafeError, match="has mode 0750"):
        world.launch()


FanOut = Callable[..., "dict[str, list[str]]"]


@pytest.fixture
def fan_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FanOut:
    """The real clush over a stand-in for ssh; returns which nodes each start had, by its name."""
    monkeypatch.setenv("PYTHONPATH", str(validation_walk._COLLECTIONS))
    monkeypatch.setattr(_launch, "_PAUSE_S", 0.1)
    monkeypatch.setattr(_launch, "_TRIES", 3)

    def run(
        fates: dict[str, str],
        part_s: float = 0.01,
        fanout: int = 9,
        silent_s: float = model.SILENT_S,
        first: str = "",
    ) -> dict[str, list[str]]:
        world, begun = model.World(tmp_path), dict[str, list[str]]()
        world.make(["dgx-01", "dgx-02", "dgx-03"], fates, part_s)

        def begin(name: str, _group: str, nodes: Sequence[str]) -> Start:
            begun[name] = list(nodes)
            script = str(tmp_path / "bin" / "ssh")
            start = clush_start(name, nodes, ["python3", model.RUN], script, fanout, "", "")
            if first and len(begun) == 1:
                return replace(start, argv=("/bin/sh", "-c", first))
            return start

        launch = world.launch(silent_s)
        launch.run({"all": world.names()}, begin, str(tmp_path / "program"), 600)
        begun["missing"] = launch.missing(world.names())
        return begun

    return run


def test_nodes_whose_turn_has_not_come_are_not_silent(fan_out: FanOut, tmp_path: Path) -> None:
    """One after the other, and the first two take longer than a node may be silent."""
    begun = fan_out({}, part_s=1.5, fanout=1, silent_s=3.0)
    assert begun == {"all-1": ["dgx-01", "dgx-02", "dgx-03"], "missing": []}
    assert model.World(tmp_path).asked("dgx-03") == [*model.PARTS]


def test_a_node_that_hangs_in_its_turn_is_given_up(fan_out: FanOut, tmp_path: Path) -> None:
    begun = fan_out({"dgx-01": model.HANG}, fanout=2, silent_s=3.0)
    assert begun == {"all-1": ["dgx-01", "dgx-02", "dgx-03"], "missing": ["dgx-01"]}
    # clush leaves its connection behind, and the node keeps that open.
    ends_all_of(tmp_path)


def ends_all_of(folder: Path) -> None:
    for _left in attempts(5, 0.05):
        if not (found := commands_with(str(folder))):
            break
    assert not found


def commands_with(word: str) -> list[str]:
    """The command lines of the processes whose line has this word."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().decode(errors="replace"))
    return [line for line in lines if word in line]


def test_a_node_whose_connection_breaks_is_started_again(fan_out: FanOut, tmp_path: Path) -> None:
    begun = fan_out({"dgx-02": model.BREAKS}, part_s=1.0)
    assert begun == {
        "all-1": ["dgx-01", "dgx-02", "dgx-03"], "all-2": ["dgx-02"], "missing": []
    }  # fmt: skip
    # It has kept what it has done before.
    assert model.World(tmp_path).asked("dgx-02") == [
        *model.QUICK, model.LOADS[0], *model.QUICK, model.LOADS[1]
    ]  # fmt: skip


def test_a_node_that_is_never_reached_is_tried_a_few_times(fan_out: FanOut) -> None:
    begun = fan_out({"dgx-02": model.LOST})
    assert begun.pop("all-1") == ["dgx-01", "dgx-02", "dgx-03"]
    assert begun == {"all-2": ["dgx-02"], "all-3": ["dgx-02"], "missing": ["dgx-02"]}


def test_a_program_that_ends_by_itself_is_not_started_again(fan_out: FanOut) -> None:
    begun = fan_out({"dgx-02": model.FAULT})
    assert begun == {"all-1": ["dgx-01", "dgx-02", "dgx-03"], "missing": ["dgx-02"]}


def test_a_start_that_is_killed_is_begun_again(fan_out: FanOut) -> None:
    begun = fan_out({}, first="kill -9 $$")
    all_nodes = ["dgx-01", "dgx-02", "dgx-03"]
    assert begun == {"all-1": all_nodes, "all-2": all_nodes, "missing": []}


def test_a_start_that_has_to_be_killed_leaves_no_connection(
    fan_out: FanOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_launch, "_GRACE_S", 0.5)
    first = f"trap : TERM; tail -f {tmp_path}/program & while :; do sleep 1; done"
    begun = fan_out({}, silent_s=0.5, first=first)
    all_nodes = ["dgx-01", "dgx-02", "dgx-03"]
    assert begun == {"all-1": all_nodes, "missing": all_nodes}
    ends_all_of(tmp_path)


def test_a_connection_of_another_user_ends_no_run(
    fan_out: FanOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_group: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    assert fan_out({})["missing"] == []
