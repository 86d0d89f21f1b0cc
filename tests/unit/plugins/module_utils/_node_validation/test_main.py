# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm says on a node about its load, to the program that asks it there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation import main
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.commands import user_name
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.hold import SSH

HOLD = {"job_name": "dgx-validate", "owner": "c-1", "former": [], "transport": "auto"}
LOST = "it is IDLE, and nothing holds it any more"


class Slurm:
    """One node, its jobs as (number, user, name), and whether anything answers."""

    def __init__(self) -> None:
        self.state, self.silent = "IDLE", False
        self.jobs: list[tuple[str, str, str]] = []

    def __call__(self, argv: Sequence[str], timeout_s: float = 30) -> CommandResult:
        if self.silent:
            text = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
            return CommandResult(tuple(argv), ENDED, 1, err=text)
        if argv[0] == "squeue":
            names = "%A|%j" in argv
            rest = "|RUNNING|2026-11-25T09:00:00|dgx-01"
            lines = [f"{n}|{name if names else user + rest}" for n, user, name in self.jobs]
            return CommandResult(tuple(argv), ENDED, 0, "\n".join(lines))
        if argv[2] == "node":
            line = f"NodeName=dgx-01 CPUTot=224 State={self.state} ThreadsPerCore=2"
            return CommandResult(tuple(argv), ENDED, 0, line)
        return CommandResult(tuple(argv), ENDED, 0, "No reservations in the system")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm()
    monkeypatch.setattr(main, "run", made)
    return made


def asked() -> tuple[str, str, str]:
    """Return why it must not be loaded, why a job may be on it, and why a load must end."""
    return (
        main.refusal("dgx-01", HOLD),
        main.refusal("dgx-01", HOLD, SSH),
        main.refusal("dgx-01", HOLD, lasting=True),
    )


def test_a_node_is_loaded_as_long_as_it_is_held(slurm: Slurm) -> None:
    slurm.state, slurm.jobs = "ALLOCATED", [("7", user_name(), "dgx-validate:c-1")]
    assert asked() == ("", "", "")


def test_a_node_that_nothing_holds_has_no_job_and_must_not_be_loaded(slurm: Slurm) -> None:
    assert asked() == (LOST, "", LOST)


def test_a_job_of_a_user(slurm: Slurm) -> None:
    slurm.state, slurm.jobs = "ALLOCATED", [("9", "alice", "train")]
    assert asked() == ("it has jobs: 9 (alice, RUNNING)",) * 3


def test_a_slurm_that_does_not_answer_begins_no_load_and_ends_none(slurm: Slurm) -> None:
    slurm.silent = True
    begins, job, ends = asked()
    assert begins == job
    assert begins.startswith("whether jobs run on it is not known: slurm_load_node error")
    assert ends == ""


def test_without_slurm_all_is_allowed(slurm: Slurm) -> None:
    slurm.silent = True
    assert main.refusal("dgx-01", None) == ""
