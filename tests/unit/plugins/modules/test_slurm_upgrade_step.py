# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_upgrade_step on what scontrol shows: the next batch, and what is refused."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.modules import slurm_upgrade_step

NODES = [f"dgx-0{number}" for number in range(1, 5)]


@pytest.fixture
def step(run_module, monkeypatch):
    def run(shown=None, **params):
        lines = [f"NodeName={name} Arch=x State=IDLE Threads=1" for name in NODES]
        text = "\n".join(lines) if shown is None else shown

        def scontrol(argv, timeout_s=30, env=None):
            assert list(argv) == ["scontrol", "show", "node", "-o"]
            return CommandResult(tuple(argv), ENDED, 0, text)

        monkeypatch.setattr(slurm_upgrade_step, "ModuleRunner", lambda _module: scontrol)
        given = {"name": "driver", "what": ["install_gpu_stack"], "targets": NODES, **params}
        return run_module(slurm_upgrade_step.main, {"in_service": "50%", **given}, check=True)

    return run


def test_what_comes_next_and_after_it(step):
    answer = step(batch=2, skip=["dgx-02"])
    assert (answer["changed"], answer["batch"], answer["fresh"]) == (False, ["dgx-01"], ["dgx-01"])
    assert answer["left"] == [{"node": "dgx-02", "why": "skipped by the operator"}]
    assert answer["batches"] == [["dgx-01"], ["dgx-03", "dgx-04"]]
    assert (answer["refusal"], answer["remaining"], answer["done"]) == ("", 2, [])
    progress = {"version": 1, "name": "driver", "what": ["install_gpu_stack"], "done": ["dgx-01"]}
    answer = step(batch=2, progress=progress)
    assert (answer["batch"], answer["done"]) == (["dgx-02", "dgx-03"], ["dgx-01"])
    assert "none may leave" in step(in_service="4")["refusal"]


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"shown": ""}, "scontrol shows no node"),
        ({"in_service": "most"}, "upgrade_in_service: 'most'; write 24, or 75%"),
        ({"in_service": "5"}, "of 4 nodes cannot be"),
        ({"batch": 0}, "must be 1 or more"),
        ({"progress": {"version": 9, "what": [], "done": []}}, "is of version 9"),
    ],
)
def test_what_is_wrong_is_named(step, params, why):
    answer = step(**params)
    assert answer["failed"]
    assert why in answer["msg"]
