# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that was killed is gone on with if the same is asked, and else forgotten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.child import Process, start_of
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.runs import (
    Holder,
    Run,
    forget,
    run_for,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.work import question_of

DEAD = Holder("ctl-01", Process(2**22 + 1, "1"))
MINE = Holder("ctl-01", Process(os.getpid(), start_of(os.getpid())))


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "validation")


def run(
    place: str, asked: str = "a", holder: Holder = DEAD, now: float = 1000.0, **nodes: str
) -> Run:
    return run_for(place, asked, nodes or {"dgx_01": "q"}, 3600, holder, now)


def test_the_same_question_goes_on_until_it_is_answered(place: str) -> None:
    first = run(place)
    Path(first.folder, "program").write_text("x")
    again = run(place, holder=MINE, now=2000)
    assert (again.name, again.goes_on) == (first.name, True)
    assert Path(again.folder, "program").exists()
    forget(place)
    assert os.listdir(place) == []
    assert run(place, holder=MINE).name != first.name


@pytest.mark.parametrize(
    "change", [{"asked": "b"}, {"dgx_01": "other"}, {"now": 1000.0 + 3601}, {"now": 10.0}]
)
def test_another_question_is_a_new_run(place: str, change: dict[str, object]) -> None:
    first = run(place)
    again = run(place, **change)  # type: ignore[arg-type]
    assert (again.name != first.name, again.goes_on) == (True, False)
    assert not os.path.exists(first.folder)


def test_a_node_that_comes_or_goes_changes_no_question(place: str) -> None:
    first = run(place, dgx_01="q", dgx_02="r")
    assert run(place, dgx_02="r", dgx_03="s").name == first.name
    assert run(place, dgx_01="q").name == first.name
    assert run(place, dgx_01="x").name != first.name


def test_a_run_that_is_at_work_is_not_taken_over(place: str) -> None:
    run(place, holder=MINE)
    with pytest.raises(ValueError, match=f"^process {os.getpid()} on ctl-01 validates nodes by an"):
        run(place, holder=DEAD)
    assert run(place, holder=MINE).goes_on


def test_that_of_another_control_machine_counts_until_its_time_is_over(place: str) -> None:
    run(place, holder=Holder("ctl-02", Process(1, "1")))
    with pytest.raises(ValueError, match="process 1 on ctl-02"):
        run(place, now=2000)
    assert not run(place, now=5000).goes_on


def test_only_the_operator_looks_into_it(place: str) -> None:
    for path in (place, run(place).folder):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"run": "../../etc"}', '{"begun": "x", "pid": 1}']
)
def test_a_broken_file_is_a_new_run(place: str, text: str) -> None:
    os.mkdir(place, 0o700)
    Path(place, "current.json").write_text(text)
    assert not run(place).goes_on


def test_a_question_is_what_is_asked_and_not_what_slurm_says_now() -> None:
    def parts(**options: object) -> list[dict[str, object]]:
        return [{"name": "gpu_health", "calls": [{"module": "gpu_health", "options": options}]}]

    assert question_of(parts(idle=True, ecc=True)) == question_of(parts(ecc=True, idle=False))
    assert question_of(parts(ecc=True)) != question_of(parts(ecc=False))
