# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_nodes_due on what scontrol shows."""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.modules import slurm_nodes_due

SHOWN = "NodeName=a State=IDLE ThreadsPerCore=1\nNodeName=b State=ALLOCATED ThreadsPerCore=1\n"
VERDICTS = [{"node": "a"}, {"node": "b"}]


def test_it_asks_slurm_itself(run_module, monkeypatch):
    def scontrol(argv, timeout_s=30, env=None):
        return CommandResult(tuple(argv), ENDED, 0, SHOWN)

    monkeypatch.setattr(slurm_nodes_due, "ModuleRunner", lambda _module: scontrol)
    answer = run_module(slurm_nodes_due.main, {"verdicts": VERDICTS}, check=True)
    assert (answer["changed"], answer["nodes"]) == (False, ["a"])
    answer = run_module(slurm_nodes_due.main, {"verdicts": VERDICTS, "level": "deep"})
    assert "value of level must be one of" in answer["msg"]


def test_without_slurm_nothing_is_due_and_it_says_so(run_module, monkeypatch):
    def scontrol(argv, timeout_s=30, env=None):
        return CommandResult(tuple(argv), MISSING)

    monkeypatch.setattr(slurm_nodes_due, "ModuleRunner", lambda _module: scontrol)
    assert run_module(slurm_nodes_due.main, {"verdicts": VERDICTS})["failed"]
