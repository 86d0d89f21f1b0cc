# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""validation_run with an srun that plays its nodes, and where a tool is missing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import validation_nodes as model

from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation import engine, launch
from ansible_collections.baremetal.dgx.plugins.modules import validation_run
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.save import (
    read_spool,
    why_missing,
)

NAMES = ["dgx-01", "dgx-02", "dgx-03"]
COLLECTIONS = Path(model.__file__).resolve().parents[2] / ".cache" / "collections"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> model.World:
    made = model.World(tmp_path)
    made.make(NAMES, {"dgx-02": model.TORN}, 0.01)
    scontrol = tmp_path / "bin" / "scontrol"
    # The job may have nodes that are not asked.
    scontrol.write_text('#!/bin/sh\necho "JobId=7 NodeList=dgx-[00-04] NumNodes=5"\n')
    scontrol.chmod(0o755)
    (tmp_path / "asked.json").write_text(json.dumps(dict.fromkeys(NAMES, model.PARTS)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(COLLECTIONS))
    return made


@pytest.fixture
def run(run_module: Any, world: model.World) -> Any:
    def call(check: bool = False, **params: Any) -> dict[str, Any]:
        given = {
            "engine": "slurm",
            "run": model.RUN,
            "program": str(world.folder / "program"),
            "asked": str(world.folder / "asked.json"),
            "folder": str(world.spool),
            "groups": {"7": NAMES},
            "silent_s": 5,
            **params,
        }
        return run_module(validation_run.main, given, check=check)

    return call


def test_answers_come_back_by_node_and_part(run: Any, world: model.World) -> None:
    answer = run()
    assert answer["missing"] == ["dgx-02"]
    spool = read_spool(model.RUN, answer["files"], NAMES)
    for name in ("dgx-01", "dgx-03"):
        for part in model.PARTS:
            assert spool.answer(name, part) == model.answer_of(name, part)
    assert spool.count("dgx-02") == 0
    assert not spool.foreign
    # What has been answered under load is not asked again.
    run()
    assert world.asked("dgx-01") == [*model.PARTS, *model.QUICK]


def test_labels_that_count_otherwise_give_no_node_the_answers_of_another(
    run: Any, world: model.World
) -> None:
    scontrol = world.folder / "bin" / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "JobId=7 NodeList=dgx-[03,01-02] NumNodes=3"\n')
    assert run()["missing"] == NAMES


ANSWERS = "echo JobId=$3 NodeList=dgx-[00-04] NumNodes=5"
GONE = "slurm_load_jobs error: Invalid job id specified"
SILENT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(
    ("eight", "why"),
    [
        (f"echo {GONE} >&2; exit 1", f"job 8 is gone: {GONE}"),
        (f"echo '{SILENT}' >&2; exit 1", f"Slurm does not show job 8: {SILENT}"),
        ("echo 'JobId=8 NodeList=(null)'", "job 8 has none of these nodes any more"),
    ],
)
def test_a_job_of_which_slurm_shows_nothing_costs_its_nodes(
    run: Any, world: model.World, monkeypatch: pytest.MonkeyPatch, eight: str, why: str
) -> None:
    monkeypatch.setattr(launch, "_PAUSE_S", 0.01)
    (world.folder / "fates.json").write_text("{}")
    script = f"#!/bin/sh\nif [ $3 = 8 ]; then {eight}; else {ANSWERS}; fi\n"
    (world.folder / "bin" / "scontrol").write_text(script)
    answer = run(groups={"7": ["dgx-01", "dgx-03"], "8": ["dgx-02"]})
    assert answer["missing"] == ["dgx-02"]
    spool = read_spool(model.RUN, answer["files"], NAMES)
    assert why_missing(spool, "dgx-02", "nccl") == why


def test_a_scontrol_that_does_not_answer_is_asked_again(
    run: Any, world: model.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_PAUSE_S", 0.01)
    (world.folder / "fates.json").write_text("{}")
    once = f"[ -e {world.folder}/asked ] || {{ touch {world.folder}/asked; exec sleep 9; }}"
    (world.folder / "bin" / "scontrol").write_text(f"#!/bin/sh\n{once}\n{ANSWERS}\n")
    monkeypatch.setattr(engine, "_ASK_S", 0.5)
    assert run()["missing"] == []


def test_nodes_of_a_tree_must_become_root_alike(run: Any, world: model.World) -> None:
    (world.folder / "bin" / "clush").write_text("#!/bin/sh\n")
    (world.folder / "bin" / "clush").chmod(0o755)
    words = ["", "sudo -n --"]
    answer = run(engine="clustershell", topology="/etc/tree.conf", become_words=words)
    assert answer["failed"]
    assert answer["msg"].startswith("clustershell.topology: its gateways start the same command")


@pytest.mark.parametrize("state", ["ready", "finished"])
@pytest.mark.parametrize(("engine", "tool"), [("slurm", "srun"), ("clustershell", "clush")])
def test_an_engine_without_its_tool_starts_nothing(
    run: Any, monkeypatch: pytest.MonkeyPatch, state: str, engine: str, tool: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    answer = run(engine=engine, state=state)
    assert answer["failed"]
    assert answer["msg"].startswith(f"engine {engine}: {tool} is not installed on ")


def test_an_engine_beside_another_is_not_required(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(state="ready")["ready"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(engine="clustershell", state="ready", required=False)["ready"] is False


def test_ready_and_check_mode_start_nothing(run: Any, world: model.World) -> None:
    for answer in (run(state="ready"), run(check=True)):
        assert (answer["files"], answer["missing"], answer["changed"]) == ([], [], False)
    assert not any(world.asked(name) for name in NAMES)
