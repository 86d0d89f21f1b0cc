# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_hold against a small model of Slurm: nodes, jobs, and what its commands print."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_hold import (
    Seen,
    Wish,
    decide,
    hold_commands,
    parse_jobs,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm_state import Node
from ansible_collections.baremetal.dgx.plugins.modules import slurm_hold

OUTPUT = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=56 CPUAlloc=0 State={state} ThreadsPerCore=2 "
    "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions={partitions} BootTime=None "
    "Reason=x [root@2026-01-01T00:00:00]\n"
)


class Slurm:
    """One node, its jobs as (number, user, state, name), and what is broken."""

    def __init__(self):
        self.state, self.partitions, self.jobs = "IDLE", "batch,debug", []
        self.silent, self.missing, self.known = False, False, True
        self.closed, self.intruder, self.stubborn = (), None, False
        self.calls = []

    def __call__(self, argv, timeout_s=30, env=None):
        self.calls.append(list(argv))
        if self.missing:
            return CommandResult(tuple(argv), MISSING)
        if self.silent:
            text = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
            return CommandResult(tuple(argv), ENDED, 1, err=text)
        rc, out, err = getattr(self, argv[0])(argv[1:])
        return CommandResult(tuple(argv), ENDED, rc, out, err)

    def scontrol(self, words):
        if words[0] == "update":
            return (1, "", "Access/permission denied") if self.stubborn else (0, "", "")
        if not self.known:
            return 1, "Node dgx-01 not found\n", ""
        return 0, OUTPUT.format(name=words[2], state=self.state, partitions=self.partitions), ""

    def squeue(self, _words):
        return 0, "".join("|".join(job) + "\n" for job in self.jobs), ""

    def salloc(self, words):
        given = dict(word[2:].split("=", 1) for word in words if "=" in word)
        if given.get("partition") in self.closed:
            return (
                1,
                "",
                "salloc: error: Job submit/allocate failed: Requested time limit is invalid",
            )
        self.jobs.append(("77", "root", "RUNNING", given["job-name"]))
        self.state = "ALLOCATED"
        if self.intruder:
            self.jobs.append(self.intruder)
        return 0, "", "salloc: Granted job allocation 77\n"

    def scancel(self, words):
        self.jobs = [job for job in self.jobs if job[0] not in words]
        return 0, "", ""

    @property
    def changes(self):
        return [one for one in self.calls if one[0] in ("salloc", "scancel") or "update" in one]


@pytest.fixture
def slurm(monkeypatch):
    model = Slurm()
    monkeypatch.setattr(slurm_hold, "ModuleRunner", lambda module: model)
    monkeypatch.setattr(slurm_hold, "user_name", lambda: "root")
    return model


@pytest.fixture
def hold(run_module, slurm):
    def run(check=False, **params):
        return run_module(slurm_hold.main, {"node": "dgx-01", **params}, check=check)

    return run


ALICE = ("1234", "alice", "RUNNING", "train|fast")


def test_an_idle_node_is_held_by_a_job_that_ends_by_itself_and_given_back(hold, slurm):
    answer = hold(seconds=1801, slurm_options=["--account=ops"])
    assert (answer["action"], answer["may_load"], answer["job"]) == ("hold", True, "77")
    assert answer["changed"]
    (salloc,) = slurm.changes
    assert {"--exclusive", "--nodelist=dgx-01", "--time=31", "--account=ops"} <= set(salloc)
    assert salloc[-1] == "--partition=batch"
    answer = hold(state="released")
    assert (answer["action"], answer["changed"], answer["job"]) == ("release", True, "77")
    assert not slurm.jobs
    answer = hold(state="released")
    assert (answer["action"], answer["changed"]) == ("none", False)


@pytest.mark.parametrize("transport", ["auto", "ssh", "slurm"])
@pytest.mark.parametrize("state", ["MIXED", "ALLOCATED", "MIXED+DRAIN", "ALLOCATED+MAINTENANCE"])
def test_a_node_with_a_job_is_never_loaded(hold, slurm, transport, state):
    slurm.state, slurm.jobs = state, [ALICE]
    answer = hold(transport=transport)
    assert (answer["action"], answer["may_load"], answer["busy"]) == ("refuse", False, True)
    assert answer["why"] == "it has jobs: 1234 (train|fast of alice, RUNNING)"
    assert not slurm.changes
    assert not answer["changed"]


def test_a_job_that_is_ending_counts(hold, slurm):
    slurm.state = "IDLE+COMPLETING"
    assert not hold()["may_load"]


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN*+DRAIN", "DOWN"])
def test_what_is_out_of_service_needs_no_job(hold, slurm, state):
    slurm.state = state
    answer = hold(transport="slurm")
    assert (answer["action"], answer["may_load"], answer["changed"]) == ("free", True, False)
    assert not slurm.changes


@pytest.mark.parametrize("state", ["IDLE+REBOOT_ISSUED", "IDLE+POWERED_DOWN", "UNKNOWN"])
def test_what_comes_and_goes_is_left_alone(hold, slurm, state):
    slurm.state = state
    assert not hold()["may_load"]


@pytest.mark.parametrize(("transport", "may"), [("auto", True), ("ssh", True), ("slurm", False)])
@pytest.mark.parametrize("how", ["missing", "unknown"])
def test_before_slurm_is_there(hold, slurm, transport, may, how):
    slurm.missing, slurm.known = how == "missing", how != "unknown"
    answer = hold(transport=transport)
    assert answer["may_load"] is may
    assert "Slurm" in answer["why"]


@pytest.mark.parametrize("transport", ["auto", "ssh", "slurm"])
def test_a_slurm_that_does_not_answer_is_no_consent(hold, slurm, transport):
    slurm.silent = True
    answer = hold(transport=transport)
    assert not answer["may_load"]
    assert "Unable to contact" in answer["why"]
    assert hold(state="released")["warnings"]


def test_ssh_holds_nothing_and_says_so(hold, slurm):
    answer = hold(transport="ssh")
    assert (answer["action"], answer["may_load"]) == ("free", True)
    assert "nothing keeps a job from starting" in answer["why"]
    assert not slurm.changes


def test_the_job_of_a_run_that_was_killed_is_taken_over(hold, slurm):
    slurm.jobs, slurm.state = [("70", "root", "RUNNING", "dgx-validate")], "ALLOCATED"
    answer = hold(seconds=600)
    assert (answer["action"], answer["may_load"], answer["job"]) == ("adopt", True, "70")
    assert slurm.changes == [["scontrol", "update", "JobId=70", "TimeLimit+=10"]]
    slurm.stubborn = True
    answer = hold()
    assert not answer["may_load"]
    assert "more time" in answer["why"]


def test_a_job_that_only_bears_our_name_is_somebody_elses(hold, slurm):
    slurm.jobs, slurm.state = [("70", "mallory", "RUNNING", "dgx-validate")], "MIXED"
    assert not hold()["may_load"]
    assert not hold(state="released")["changed"]
    assert slurm.jobs


def test_each_partition_of_the_node_is_tried(hold, slurm):
    slurm.closed = ("batch",)
    assert hold()["may_load"]
    assert [one[-1] for one in slurm.changes] == ["--partition=batch", "--partition=debug"]
    slurm.__init__()
    slurm.closed = ("batch", "debug")
    answer = hold()
    assert not answer["may_load"]
    assert answer["why"].startswith("Slurm does not give it: salloc: error: Job submit")
    assert not answer["changed"]


def test_a_node_that_is_shared_all_the_same_is_given_back(hold, slurm):
    slurm.intruder = ALICE
    answer = hold()
    assert not answer["may_load"]
    assert slurm.jobs == [ALICE]


def test_check_mode_tells_and_does_nothing(hold, slurm):
    answer = hold(check=True)
    assert (answer["action"], answer["changed"]) == ("hold", True)
    assert answer["command"][0] == "salloc"
    slurm.jobs, slurm.state = [("70", "root", "RUNNING", "dgx-validate")], "ALLOCATED"
    assert hold(check=True, state="released")["changed"]
    assert not slurm.changes


def test_a_partition_of_the_sites_own_is_the_only_one():
    wish = Wish("n", "dgx-validate", 30, 60, ("--reservation=repair",))
    (words,) = hold_commands(wish, ["a", "b"])
    assert "--time=1" in words
    assert not [word for word in words if word.startswith("--partition")]


def test_every_state_with_a_job_of_others_is_refused():
    """Whatever the flags: load and somebody's job never meet."""
    flags = ("DRAIN", "DOWN", "FAIL", "PLANNED", "RESERVED", "MAINTENANCE", "NOT_RESPONDING")
    job = parse_jobs("9|bob|RUNNING|x")
    for base in ("IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN"):
        for number in range(2 ** len(flags)):
            states = [base, *(flag for place, flag in enumerate(flags) if number >> place & 1)]
            node = Node("n", tuple(dict.fromkeys(states)))
            for transport in ("auto", "ssh", "slurm"):
                assert not decide(Seen(node, job), transport, "dgx-validate", "root").may_load
                alone = decide(Seen(node), transport, "dgx-validate", "root")
                assert alone.may_load is not (node.busy or node.has("UNKNOWN"))
