# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_node_hold against a small model of Slurm: nodes, jobs, and what its commands print."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import hold as _hold
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.hold import (
    Mine,
    Request,
    Seen,
    decide,
    hold_commands,
    parse_jobs,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import Node
from ansible_collections.baremetal.dgx.plugins.modules import slurm_node_hold

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
        self.calls, self.reservations, self.unreservable = [], {}, ""

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
        if words[:2] == ["create", "reservation"]:
            given = dict(word.split("=", 1) for word in words[2:])
            if self.unreservable or self.reservations:
                return 1, "", self.unreservable or "Requested nodes are reserved"
            self.reservations[given["ReservationName"]] = given["Nodes"]
            return 0, f"Reservation created: {given['ReservationName']}\n", ""
        if words[0] == "delete":
            del self.reservations[words[1].split("=")[1]]
            return 0, "", ""
        if words[:2] == ["show", "reservation"]:
            return (
                0,
                "".join(
                    f"ReservationName={name} StartTime=2026-11-22T10:00:00 "
                    f"EndTime=2026-11-22T11:00:00 Duration=01:00:00 Nodes={nodes} NodeCnt=1 "
                    "CoreCnt=2 Users=root State=ACTIVE\n"
                    for name, nodes in self.reservations.items()
                ),
                "",
            )
        if words[0] == "update":
            return (1, "", "Access/permission denied") if self.stubborn else (0, "", "")
        if not self.known:
            return 1, "Node dgx-01 not found\n", ""
        return 0, OUTPUT.format(name=words[2], state=self.state, partitions=self.partitions), ""

    def squeue(self, words):
        """As %A, %u, %T, %S, %N and %j print them, a name as its user wrote it."""
        only = words[words.index("-u") + 1] if "-u" in words else ""
        letters = "AuTSNj"
        rows = [
            dict(zip(letters, (*job[:3], "2026-11-22T10:00:00", "dgx-01", job[3]), strict=True))
            for job in self.jobs
            if only in ("", job[1])
        ]
        form = [word[1:] for word in words[words.index("-o") + 1].split("|")]
        return 0, "".join("|".join(row[one] for one in form) + "\n" for row in rows), ""

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
        return [
            one
            for one in self.calls
            if one[0] in ("salloc", "scancel") or {"update", "create", "delete"} & {*one}
        ]


@pytest.fixture
def slurm(monkeypatch):
    model = Slurm()
    monkeypatch.setattr(slurm_node_hold, "ModuleRunner", lambda module: model)
    monkeypatch.setattr(_hold, "user_name", lambda: "root")
    return model


@pytest.fixture
def hold(run_module, slurm):
    def run(check=False, **params):
        return run_module(slurm_node_hold.main, {"node": "dgx-01", **params}, check=check)

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


def test_a_name_with_the_end_of_a_line_is_no_job_of_ours(hold, slurm):
    """Its user would have root cancel any job, or give it more time, and load a node not held."""
    name = "x\n77|root|RUNNING|N/A|dgx-01|dgx-validate:ctl-1\n77|dgx-validate:ctl-1"
    slurm.state, slurm.jobs = "MIXED", [("1234", "alice", "RUNNING", name)]
    answer = hold(owner="ctl-1")
    assert (answer["action"], answer["may_load"]) == ("refuse", False)
    assert answer["why"] == "it has jobs: 1234 (alice, RUNNING)"
    hold(owner="ctl-1", state="released")
    assert not slurm.changes


def test_a_queue_that_cannot_be_read_is_not_known():
    """What is not understood may be a job."""
    with pytest.raises(ToolError, match="squeue printed"):
        parse_jobs("9|bob|RUNNING|N/A\n")
    with pytest.raises(ToolError, match="squeue printed"):
        parse_jobs("slurm_load_jobs|error|x|y|z\n")
    assert parse_jobs("\n") == ()


@pytest.mark.parametrize("transport", ["auto", "ssh", "slurm"])
@pytest.mark.parametrize("state", ["MIXED", "ALLOCATED", "MIXED+DRAIN", "ALLOCATED+MAINTENANCE"])
def test_a_node_with_a_job_is_never_loaded(hold, slurm, transport, state):
    slurm.state, slurm.jobs = state, [ALICE]
    answer = hold(transport=transport)
    assert (answer["action"], answer["may_load"], answer["busy"]) == ("refuse", False, True)
    assert answer["why"] == "it has jobs: 1234 (alice, RUNNING)"
    assert not slurm.changes
    assert not answer["changed"]


def test_a_job_that_is_ending_counts(hold, slurm):
    slurm.state = "IDLE+COMPLETING"
    assert not hold()["may_load"]


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN*+DRAIN", "DOWN"])
def test_what_is_out_of_service_is_reserved_so_that_no_job_starts_when_it_is_resumed(
    hold, slurm, state
):
    slurm.state = state
    answer = hold(transport="slurm", owner="ctl-1", seconds=600)
    assert (answer["action"], answer["may_load"], answer["changed"]) == ("reserve", True, True)
    assert answer["reservation"] == "dgx-validate_ctl-1_dgx-01"
    (words,) = slurm.changes
    assert {"Nodes=dgx-01", "Users=root", "Duration=10", "Flags=IGNORE_JOBS"} <= set(words)
    assert hold(owner="ctl-1", state="checked")["may_load"]
    # Resumed by hand meanwhile: no other job can start, and the load may go on.
    slurm.state = "IDLE+RESERVED"
    assert hold(owner="ctl-1", state="checked")["may_load"]
    answer = hold(owner="ctl-1", state="released")
    assert (answer["action"], answer["changed"]) == ("release", True)
    assert not slurm.reservations


def test_what_a_killed_run_has_left_on_a_drained_node_is_taken_over(hold, slurm):
    slurm.state = "IDLE+DRAIN"
    hold(transport="slurm", owner="ctl-1")
    assert not hold(transport="slurm", owner="ctl-2", former=["ctl-9"])["may_load"]
    answer = hold(transport="slurm", owner="ctl-2", former=["ctl-9", "ctl-1"])
    assert (answer["action"], answer["may_load"]) == ("reserve", True)
    assert list(slurm.reservations) == ["dgx-validate_ctl-2_dgx-01"]
    assert not hold(transport="slurm", owner="ctl-1")["may_load"]
    hold(owner="ctl-2", former=["ctl-1"], state="released")
    assert not slurm.reservations


def test_the_job_of_a_killed_run_is_taken_over(hold, slurm):
    slurm.jobs = [("77", "root", "RUNNING", "dgx-validate:ctl-1")]
    assert not hold(owner="ctl-2")["may_load"]
    answer = hold(owner="ctl-2", former=["ctl-1"])
    assert (answer["action"], answer["job"]) == ("adopt", "77")


def test_a_node_that_cannot_be_reserved_is_loaded_only_while_it_has_no_job(hold, slurm):
    slurm.state, slurm.unreservable = "IDLE+DRAIN", "Access/permission denied"
    answer = hold(owner="ctl-1")
    assert (answer["action"], answer["may_load"], answer["changed"]) == ("free", True, False)
    assert "could not be reserved: Access/permission denied" in answer["why"]
    slurm.state, slurm.jobs = "MIXED", [ALICE]
    answer = hold(owner="ctl-1", state="checked")
    assert not answer["may_load"]
    assert "it has jobs: 1234" in answer["why"]


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


def test_two_runs_never_load_the_same_node(hold, slurm):
    """From two control machines: neither takes the other's job over, nor cancels it."""
    assert hold(owner="ctl-1")["action"] == "hold"
    second = hold(owner="ctl-2")
    assert (second["action"], second["may_load"], second["changed"]) == ("refuse", False, False)
    assert second["why"] == (
        "ctl-1 holds it since 2026-11-22T10:00:00: wait for it, or scancel 77 if that run is over"
    )
    assert not hold(owner="ctl-2", state="checked")["may_load"]
    assert hold(owner="ctl-2", state="released")["action"] == "none"
    assert slurm.jobs
    # The one that was killed comes back and goes on.
    assert hold(owner="ctl-1")["action"] == "adopt"
    assert hold(owner="ctl-1", state="checked")["may_load"]
    assert hold(owner="ctl-1", state="released")["action"] == "release"
    assert not slurm.jobs


def test_two_runs_never_load_the_same_drained_node(hold, slurm):
    slurm.state = "IDLE+DRAIN"
    assert hold(owner="ctl-1")["action"] == "reserve"
    second = hold(owner="ctl-2")
    assert (second["action"], second["may_load"]) == ("refuse", False)
    assert second["why"].startswith("ctl-1 holds it since 2026-11-22T10:00:00: wait for it, or")
    assert hold(owner="ctl-2", state="released")["action"] == "none"
    assert slurm.reservations
    assert hold(owner="ctl-1")["action"] == "reserve"
    # In service again, the run that holds it takes a job instead.
    slurm.state = "IDLE+RESERVED"
    assert hold(owner="ctl-1")["action"] == "hold"
    assert not slurm.reservations


def test_a_run_that_does_not_say_who_it_is_is_another_one(hold, slurm):
    slurm.jobs, slurm.state = [("70", "root", "RUNNING", "dgx-validate")], "ALLOCATED"
    answer = hold(owner="ctl-1")
    assert not answer["may_load"]
    assert answer["why"].startswith("another run holds it since")


def test_a_job_that_held_the_node_and_is_gone_ends_the_load(hold, slurm):
    assert hold(owner="ctl-1")["may_load"]
    slurm.jobs, slurm.state = [], "IDLE"
    answer = hold(owner="ctl-1", state="checked")
    assert not answer["may_load"]
    assert answer["why"] == "it is IDLE, and nothing holds it any more"


def test_a_job_that_only_bears_our_name_is_another_owners(hold, slurm):
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
    request = Request("n", Mine("dgx-validate", "root"), 30, 60, ("--reservation=repair",))
    (words,) = hold_commands(request, ["a", "b"])
    assert "--time=1" in words
    assert not [word for word in words if word.startswith("--partition")]


def test_every_state_with_a_job_of_others_is_refused():
    """Whatever the flags: load and a user's job never meet."""
    flags = ("DRAIN", "DOWN", "FAIL", "PLANNED", "RESERVED", "MAINTENANCE", "NOT_RESPONDING")
    job = parse_jobs("9|bob|RUNNING|N/A|n")
    for base in ("IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN"):
        for number in range(2 ** len(flags)):
            states = [base, *(flag for place, flag in enumerate(flags) if number >> place & 1)]
            node = Node("n", tuple(dict.fromkeys(states)))
            for transport in ("auto", "ssh", "slurm"):
                assert not decide(Seen(node, job), transport, Mine("dgx-validate", "root")).may_load
                alone = decide(Seen(node), transport, Mine("dgx-validate", "root"))
                assert alone.may_load is not (node.busy or node.has("UNKNOWN"))
