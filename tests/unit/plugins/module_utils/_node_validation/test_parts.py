# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts on one node: their order, what keeps them from the load, what is kept of them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.child import limited
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import UnsafeError
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation import kept
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.kept import kept_by
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.parts import (
    Node,
    Part,
    left_out,
)

RUN = "0123456789abcdef"
PASS: dict[str, Any] = {"verdict": "pass", "records": [], "changed": False}


def part(name: str, loads: bool = True, limit_s: float = 5.0, calls: int = 1) -> Part:
    asked = [{"module": name, "options": {"call": number}} for number in range(calls)]
    return Part(name, loads, limit_s, asked)


PARTS = [part("gpu_health", False), part("canary", False), part("burn", calls=2), part("nccl")]


class World:
    """One node: what its checks answer, and what was asked of it."""

    def __init__(self, place: Path) -> None:
        self.place = str(place / "validation")
        self.answers: dict[str, Any] = {}
        self.refused = self.job = ""
        self.asked = place / "asked"
        self.stopped: list[Any] = []

    def call(self, module: str, options: Any) -> dict[str, Any]:
        # In a child: a list of this process would not see it.
        with self.asked.open("a", encoding="utf-8") as stream:
            stream.write(f"{module}{options['call']}\n")
        answer = self.answers.get(module, PASS)
        answer = answer(options) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        if answer == "hang":
            while True:
                os.read(os.pipe()[0], 1)
        return dict(answer)

    def ask(self, parts: list[Part] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = {}
        with kept_by(RUN, self.place) as own:
            says = (lambda: self.refused, lambda: self.job)
            node = Node(own, self.call, *says, self.stopped.append, limited)
            node.ask(PARTS if parts is None else parts, result.__setitem__)
        return result

    def calls(self) -> list[str]:
        return self.asked.read_text().split() if self.asked.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_all_parts_in_their_order(world: World) -> None:
    result = world.ask()
    assert list(result) == [one.name for one in PARTS]
    assert world.calls() == ["gpu_health0", "canary0", "burn0", "burn1", "nccl0"]
    assert not world.stopped
    assert result["nccl"] == {"verdict": "pass", "records": []}


def test_a_node_with_findings_of_its_gpus_is_not_loaded(world: World) -> None:
    world.answers["gpu_health"] = {**PASS, "verdict": "fail"}
    result = world.ask()
    assert result["burn"] == result["nccl"] == {"skipped": True, "why": "gpu_health has findings"}
    assert world.calls() == ["gpu_health0", "canary0"]


def test_a_node_that_must_not_be_loaded_is_asked_without_load(world: World) -> None:
    world.refused = "it has jobs: 7 (alice, RUNNING)"
    result = world.ask()
    assert result["canary"]["verdict"] == "pass"
    assert result["burn"]["why"] == result["nccl"]["why"] == world.refused
    assert world.calls() == ["gpu_health0", "canary0"]
    world.refused = ""
    assert world.ask()["nccl"]["verdict"] == "pass", "a refusal is not kept"


@pytest.mark.parametrize(
    ("job", "idle", "asked", "verdict"),
    [
        ("it has jobs: 9 (alice, RUNNING)", True, 2, "pass"),
        ("", True, 1, "fail"),
        ("it has jobs: 9 (alice, RUNNING)", False, 1, "fail"),
    ],
)
def test_a_job_that_began_meanwhile_has_left_nothing_behind(
    world: World, job: str, idle: bool, asked: int, verdict: str
) -> None:
    """Slurm was asked before the run, and nothing holds the node yet."""
    world.job = job
    broken = {} if idle else {"verdict": "fail"}
    world.answers["gpu_health"] = lambda options: {
        **PASS, **({"verdict": "fail"} if options["idle"] else broken)
    }  # fmt: skip
    calls = [{"module": "gpu_health", "options": {"call": 0, "idle": idle}}]
    result = world.ask([Part("gpu_health", False, 5.0, calls), *PARTS[1:]])
    assert result["gpu_health"]["verdict"] == verdict
    assert world.calls().count("gpu_health0") == asked


def test_no_load_is_put_on_the_node_twice_in_one_run(world: World) -> None:
    world.ask(PARTS[:3])
    before = world.calls()
    assert world.ask() == {one.name: {"verdict": "pass", "records": []} for one in PARTS}
    assert world.calls() == [*before, "gpu_health0", "canary0", "nccl0"]


@pytest.mark.parametrize(("before", "now"), [("fail", "pass"), ("pass", "fail")])
def test_what_only_asks_is_asked_again_after_a_kill(world: World, before: str, now: str) -> None:
    """A repair may have come between: what it has left is what counts."""
    world.answers["gpu_health"] = {**PASS, "verdict": before}
    world.ask(PARTS[:1])
    world.answers["gpu_health"] = {**PASS, "verdict": now}
    result = world.ask()
    assert result["gpu_health"]["verdict"] == now
    assert result["nccl"].get("why") == ("gpu_health has findings" if now == "fail" else None)
    # The killed run may have left a burn-in.
    assert len(world.stopped) == (now == "fail")


def test_a_burn_in_of_a_run_that_holds_the_node_is_not_stopped(world: World) -> None:
    """Another control machine's, which is still at work."""
    world.answers["gpu_health"] = {**PASS, "verdict": "fail"}
    world.refused = "ctl-2 holds it since 2026-11-22T10:00:00: wait for it"
    world.ask()
    assert not world.stopped
    world.refused = ""
    world.ask()
    assert world.stopped == [{"call": 1}]


def test_what_is_kept_is_of_this_boot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ask()
    before = world.calls()
    assert world.ask()["nccl"]["verdict"] == "pass"
    assert "nccl0" not in world.calls()[len(before) :]
    monkeypatch.setattr(kept, "boot_id", lambda: "another")
    world.answers["nccl"] = {**PASS, "verdict": "fail"}
    assert world.ask()["nccl"]["verdict"] == "fail"


@pytest.mark.parametrize("text", ['{"verdict": "pass", "records": []}', "[]", '{"boot": 1}', "{"])
def test_a_file_of_another_form_is_no_answer(world: World, text: str) -> None:
    world.ask()
    Path(world.place, RUN, "nccl.json").write_text(text)
    world.answers["nccl"] = {**PASS, "verdict": "fail"}
    assert world.ask()["nccl"]["verdict"] == "fail"


def test_a_part_that_breaks_or_hangs_costs_itself_and_is_asked_again(world: World) -> None:
    world.answers = {"canary": OSError(5, "Input/output error"), "gpu_health": "hang"}
    result = world.ask([part("gpu_health", False, 0.3), *PARTS[1:]])
    assert result["gpu_health"] == {"failed": True, "msg": "did not come back within 0.3 s"}
    assert result["canary"]["failed"]
    assert "Input/output error" in result["canary"]["msg"]
    assert result["nccl"]["verdict"] == "pass"
    world.answers = {}
    assert world.ask()["canary"]["verdict"] == "pass"


def test_a_burn_in_that_is_not_over_is_stopped(world: World) -> None:
    world.answers["burn"] = {**PASS, "run": {"state": "running"}}
    world.ask()
    assert world.stopped == [{"call": 1}]


def test_a_burn_in_of_which_nothing_came_is_stopped(world: World) -> None:
    world.answers["burn"] = OSError(28, "No space left on device")
    world.ask()
    assert world.stopped == [{"call": 1}]


def test_a_burn_in_whose_hold_went_is_resumed_by_the_next_run(world: World) -> None:
    why = "it is IDLE, and nothing holds it any more"
    world.answers["burn"] = left_out(why)
    assert world.ask()["burn"] == {"skipped": True, "why": why}
    world.answers = {}
    assert world.ask()["burn"]["verdict"] == "pass"


def test_a_burn_in_that_was_not_begun_is_nobodys_to_stop(world: World) -> None:
    world.refused = "it has jobs: 7"
    world.ask()
    assert not world.stopped


def test_only_root_looks_into_what_is_kept_and_other_runs_leave_nothing(world: World) -> None:
    with kept_by("f" * 16, world.place) as own:
        own.keep("nccl", PASS)
    world.ask()
    assert os.listdir(world.place) == [RUN]
    for path in (world.place, os.path.join(world.place, RUN)):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    os.chmod(world.place, 0o755)
    with pytest.raises(UnsafeError, match="has mode 0755"):
        world.ask()


def test_a_torn_file_is_no_answer(world: World) -> None:
    world.ask()
    torn = Path(world.place, RUN, "nccl.json")
    torn.write_text(torn.read_text()[:-5])
    assert world.ask()["nccl"]["verdict"] == "pass"
    assert world.calls().count("nccl0") == 2
