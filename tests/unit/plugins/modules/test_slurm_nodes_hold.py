# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_nodes_hold against a small model of Slurm with many nodes, jobs and partitions."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.nodeset import expand, fold
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import hold as _hold
from ansible_collections.baremetal.dgx.plugins.modules import slurm_node_hold, slurm_nodes_hold

REFUSED = "Invalid account or account/partition combination specified"
NAMES = [f"dgx-{number:02}" for number in range(1, 9)]


class Slurm:
    """Nodes with their state and partitions, jobs as (number, user, state, nodes, name)."""

    def __init__(self) -> None:
        self.states = dict.fromkeys(NAMES, "IDLE")
        self.partitions = dict.fromkeys(NAMES, "batch,debug")
        self.gres = dict.fromkeys(NAMES, "gpu:h100:8(S:0-1,3)")
        self.longest = {"batch": "7-00:00:00", "debug": "00:30:00"}
        self.jobs: list[tuple[str, str, str, str, str]] = []
        self.reservations: dict[str, str] = {}
        self.calls: list[list[str]] = []
        # Nodes that Slurm shows as idle and does not give, and what starts beside a job of ours.
        self.stingy: set[str] = set()
        # Partitions that refuse root: allow_accounts, DOWN, INACTIVE.
        self.closed: set[str] = set()
        self.intruders: list[tuple[str, str, str, str, str]] = []
        self.missing = self.silent = self.slow = False

    def __call__(self, argv: Any, timeout_s: float = 30, env: Any = None) -> CommandResult:
        words = [str(word) for word in argv]
        self.calls.append(words)
        if self.missing:
            return CommandResult(tuple(words), MISSING)
        if self.slow and words[1] == "create":
            return CommandResult(tuple(words), TIMED_OUT, took_s=120.0)
        if self.silent and words[1:] != ["--version"]:
            return CommandResult(tuple(words), ENDED, 1, "", "Unable to contact slurm controller")
        rc, out, err = getattr(self, words[0])(words[1:])
        return CommandResult(tuple(words), ENDED, rc, out, err)

    def scontrol(self, words: list[str]) -> tuple[int, str, str]:
        if words[:2] == ["show", "node"]:
            chosen = self.states if words[2] == "-o" else [words[2]]
            return 0, "".join(self._node(name) for name in chosen), ""
        if words[:2] == ["show", "partition"]:
            text = "".join(
                f"PartitionName={name} AllowGroups=ALL DefaultTime=NONE MaxTime={most} Nodes=x\n"
                for name, most in self.longest.items()
            )
            return 0, text, ""
        if words[:2] == ["show", "reservation"]:
            text = "".join(
                f"ReservationName={name} StartTime=2026-11-22T10:00:00 Duration=01:00:00 "
                f"Nodes={nodes} NodeCnt=1 Users=root State=ACTIVE\n"
                for name, nodes in self.reservations.items()
            )
            return 0, text or "No reservations in the system\n", ""
        if words[:2] == ["create", "reservation"]:
            given = dict(word.split("=", 1) for word in words[2:])
            if given["ReservationName"] in self.reservations:
                return 1, "", "Error creating the reservation: Reservation name duplicate"
            if any(
                set(expand(given["Nodes"])) & set(expand(n)) for n in self.reservations.values()
            ):
                return 1, "", "Error creating the reservation: Requested nodes are busy"
            self.reservations[given["ReservationName"]] = given["Nodes"]
        if words[0] == "update" and words[1].startswith("ReservationName="):
            name, nodes = (word.split("=")[1] for word in words[1:3])
            others = [held for one, held in self.reservations.items() if one != name]
            if any(set(expand(nodes)) & set(expand(held)) for held in others):
                return 1, "", "Error updating the reservation: Requested nodes are busy"
            self.reservations[name] = nodes
        if words[0] == "delete":
            del self.reservations[words[1].split("=")[1]]
        return 0, "slurm-wlm 24.11\n", ""

    def _node(self, name: str) -> str:
        held = any(name in expand(job[3]) for job in self.jobs if job[3])
        state = "ALLOCATED" if held else self.states[name]
        return (
            f"NodeName={name} CPUAlloc=0 State={state} Weight=1 Partitions={self.partitions[name]} "
            f"BootTime=None Gres={self.gres[name]}\n"
        )

    def squeue(self, words: list[str]) -> tuple[int, str, str]:
        """As %A, %u, %T, %S, %N and %j print them, a name as its user wrote it."""
        node = words[words.index("-w") + 1] if "-w" in words else ""
        user = words[words.index("-u") + 1] if "-u" in words else ""
        rows = [
            dict(zip("AuTSNj", (*job[:3], "2026-11-22T10:00:00", *job[3:]), strict=True))
            for job in self.jobs
            if (not node or node in expand(job[3])) and user in ("", job[1])
        ]
        form = [word[1:] for word in words[words.index("-o") + 1].split("|")]
        return 0, "".join("|".join(row[one] for one in form) + "\n" for row in rows), ""

    def salloc(self, words: list[str]) -> tuple[int, str, str]:
        given = dict(word[2:].split("=", 1) for word in words if "=" in word)
        nodes = expand(given["nodelist"])
        assert len(nodes) == int(given["nodes"])
        if given.get("partition") in self.closed:
            return 1, "", f"salloc: error: Job submit/allocate failed: {REFUSED}\n"
        if self.stingy & set(nodes):
            return 1, "", "salloc: error: Unable to allocate resources: Requested nodes are busy"
        number = str(100 + len(self.jobs))
        self.jobs.append((number, "root", "RUNNING", fold(nodes), given["job-name"]))
        self.jobs += self.intruders
        return 0, "", f"salloc: Granted job allocation {number}\n"

    def scancel(self, words: list[str]) -> tuple[int, str, str]:
        self.jobs = [job for job in self.jobs if job[0] not in words]
        return 0, "", ""

    def held_together(self) -> list[list[str]]:
        return [expand(job[3]) for job in self.jobs if job[4].startswith("dgx-validate")]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    model = Slurm()
    for module in (slurm_node_hold, slurm_nodes_hold):
        monkeypatch.setattr(module, "ModuleRunner", lambda _module: model)
    monkeypatch.setattr(_hold, "user_name", lambda: "root")
    return model


@pytest.fixture
def hold(run_module: Any, slurm: Slurm) -> Any:
    def run(check: bool = False, **params: Any) -> dict[str, Any]:
        given = {"nodes": NAMES, "owner": "ctl-1", **params}
        return run_module(slurm_nodes_hold.main, given, check=check)

    return run


ALICE = ("7", "alice", "RUNNING", "dgx-03", "train|fast")


def test_few_jobs_hold_many_nodes_and_are_given_back(hold: Any, slurm: Slurm) -> None:
    answer = hold(most=5, seconds=3600)
    assert slurm.held_together() == [NAMES[:5], NAMES[5:]]
    assert answer["jobs"] == {"100": NAMES[:5], "101": NAMES[5:]}
    assert {one["may_load"] for one in answer["nodes"].values()} == {True}
    first = next(call for call in slurm.calls if call[0] == "salloc")
    assert {"--exclusive", "--no-kill", "--time=60", "--partition=batch", "--nodes=5"} <= set(first)
    hold(state="released")
    assert not slurm.jobs
    # Asking does not grow with the nodes.
    assert len(slurm.calls) < 25


def test_steps_have_all_gpus_of_each_node(hold: Any, slurm: Slurm) -> None:
    """A step of an exclusive job has only the GPUs that the job has asked for, on each node."""
    slurm.gres.update({"dgx-02": "gpu:4", "dgx-03": "(null)", "dgx-04": "gpu:a:3,gpu:b:1,nic:8"})
    hold(slurm_options=["--account=ops"])
    asked = {
        next(word[11:] for word in call if word.startswith("--nodelist=")): [
            word for word in call if word.startswith("--gres=")
        ]
        for call in slurm.calls
        if call[0] == "salloc"
    }
    assert asked == {
        "dgx-[01,05-08]": ["--gres=gpu:8"],
        "dgx-[02,04]": ["--gres=gpu:4"],
        "dgx-03": [],
    }
    # What the site asks for comes last, and wins.
    hold(state="released")
    hold(nodes=["dgx-01"], slurm_options=["--gres=gpu:h100:8"])
    last = [call for call in slurm.calls if call[0] == "salloc"][-1]
    assert last.index("--gres=gpu:8") < last.index("--gres=gpu:h100:8")


def test_a_name_with_the_end_of_a_line_is_no_job_of_ours(hold: Any, slurm: Slurm) -> None:
    """Its user would have root cancel any job, and load a node that is not held."""
    name = "x\n77|root|RUNNING|N/A|dgx-01|dgx-validate:ctl-1\n77|dgx-validate:ctl-1"
    slurm.jobs = [("7", "alice", "PENDING", "", name)]
    answer = hold(nodes=["dgx-01"])
    assert answer["nodes"]["dgx-01"]["action"] == "hold", "alice's job waits"
    hold(nodes=["dgx-01"], state="released")
    changes = [call for call in slurm.calls if call[0] in ("salloc", "scancel")]
    assert [call[0] for call in changes] == ["salloc", "scancel"]
    assert changes[1] == ["scancel", "101"]


def test_a_node_with_a_job_is_refused_and_the_others_are_held(hold: Any, slurm: Slurm) -> None:
    slurm.jobs = [ALICE]
    answer = hold()
    refused = answer["nodes"].pop("dgx-03")
    assert refused["why"] == "it has jobs: 7 (alice, RUNNING)"
    assert refused["busy"]
    assert not refused["may_load"]
    assert {one["may_load"] for one in answer["nodes"].values()} == {True}
    assert not any("dgx-03" in nodes for nodes in slurm.held_together())
    hold(state="released")
    assert slurm.jobs == [ALICE]


def test_a_node_that_was_just_taken_costs_itself_only(hold: Any, slurm: Slurm) -> None:
    slurm.stingy = {"dgx-06"}
    answer = hold()
    assert sorted(one for nodes in slurm.held_together() for one in nodes) == [
        one for one in NAMES if one != "dgx-06"
    ]
    assert "Slurm does not give it" in answer["nodes"]["dgx-06"]["why"]
    assert len([call for call in slurm.calls if call[0] == "salloc"]) == 7


def test_a_partition_that_refuses_is_followed_by_the_next(hold: Any, slurm: Slurm) -> None:
    slurm.longest["debug"] = "UNLIMITED"
    slurm.closed = {"batch"}
    answer = hold()
    assert slurm.held_together() == [NAMES], "no part was halved"
    assert {one["may_load"] for one in answer["nodes"].values()} == {True}
    tried = [word for call in slurm.calls for word in call if word.startswith("--partition=")]
    assert tried == ["--partition=batch", "--partition=debug"]


def test_a_node_that_no_partition_gives_has_all_reasons(hold: Any, slurm: Slurm) -> None:
    slurm.longest["debug"] = "UNLIMITED"
    slurm.closed, slurm.stingy = {"batch"}, {"dgx-06"}
    answer = hold()
    assert sorted(one for nodes in slurm.held_together() for one in nodes) == [
        one for one in NAMES if one != "dgx-06"
    ]
    why = answer["nodes"]["dgx-06"]["why"]
    assert REFUSED in why
    assert "Requested nodes are busy" in why


def test_nodes_out_of_service_share_one_reservation(hold: Any, slurm: Slurm) -> None:
    slurm.states.update({"dgx-01": "IDLE+DRAIN", "dgx-02": "DOWN"})
    answer = hold()
    assert slurm.reservations == {"dgx-validate_ctl-1_many": "dgx-[01-02]"}
    assert answer["nodes"]["dgx-01"]["action"] == "reserve"
    hold(state="released")
    assert not slurm.reservations


@pytest.mark.parametrize("foreign", ["maintenance", "dgx-validate_ctl-2_many-12"])
def test_a_node_that_cannot_be_reserved_costs_itself_only(
    hold: Any, slurm: Slurm, foreign: str
) -> None:
    slurm.states = dict.fromkeys(NAMES, "IDLE+DRAIN")
    slurm.reservations[foreign] = "dgx-06"
    answer = hold()
    mine = {name: nodes for name, nodes in slurm.reservations.items() if name != foreign}
    theirs = [] if foreign == "maintenance" else ["dgx-06"]
    assert sorted(one for nodes in mine.values() for one in expand(nodes)) == [
        one for one in NAMES if one != "dgx-06"
    ]
    assert [name for name, one in answer["nodes"].items() if not one["may_load"]] == theirs
    if theirs:
        assert answer["nodes"]["dgx-06"]["why"].startswith("ctl-2 holds it since 2026-11-22")
        return
    assert [name for name, one in answer["nodes"].items() if one["action"] == "free"] == ["dgx-06"]
    assert answer["nodes"]["dgx-06"]["why"] == (
        "it is IDLE+DRAIN, and could not be reserved: Error creating the reservation: Requested "
        "nodes are busy"
    )
    # Each name is known to be this run's, by this module and by that of one node.
    assert set(mine) == {
        "dgx-validate_ctl-1_many-1", "dgx-validate_ctl-1_many-2", "dgx-validate_ctl-1_many-4",
        "dgx-validate_ctl-1_dgx-05",
    }  # fmt: skip
    assert {one["may_load"] for one in hold(owner="ctl-3")["nodes"].values()} == {False, True}
    hold(state="released")
    assert slurm.reservations == {foreign: "dgx-06"}


def test_a_slurm_that_does_not_answer_is_not_asked_for_each_node(hold: Any, slurm: Slurm) -> None:
    slurm.states, slurm.slow = dict.fromkeys(NAMES, "IDLE+DRAIN"), True
    answer = hold()
    assert len([call for call in slurm.calls if call[1] == "create"]) == 1
    assert "did not end within 120 s" in answer["nodes"]["dgx-01"]["why"]


@pytest.mark.parametrize(
    ("left", "taken"), [("many", "many-1"), ("many-1", "many"), ("many-2", "many")]
)
@pytest.mark.parametrize("owner", ["ctl-1", "old"])
def test_what_a_killed_run_has_reserved_of_other_nodes_keeps_them(
    hold: Any, slurm: Slurm, owner: str, left: str, taken: str
) -> None:
    """What it has begun there may still load them. Of the nodes of this run it keeps none."""
    slurm.states.update({"dgx-01": "IDLE+DRAIN", "dgx-02": "IDLE+DRAIN"})
    slurm.reservations[f"dgx-validate_{owner}_{left}"] = "dgx-[01,03,08]"
    answer = hold(nodes=NAMES[:2], former=["old"])
    assert {one["action"] for one in answer["nodes"].values()} == {"reserve"}
    mine = f"dgx-validate_ctl-1_{taken if owner == 'ctl-1' else 'many'}"
    kept = {f"dgx-validate_{owner}_{left}": "dgx-[03,08]"}
    assert slurm.reservations == {mine: "dgx-[01-02]", **kept}
    hold(nodes=NAMES[:2], former=["old"], state="released")
    assert slurm.reservations == kept


def test_a_run_of_one_node_leaves_the_others_what_a_killed_run_has_reserved(
    run_module: Any, slurm: Slurm
) -> None:
    slurm.states["dgx-01"] = "IDLE+DRAIN"
    slurm.reservations["dgx-validate_old_many"] = "dgx-[01,08]"
    given = {"node": "dgx-01", "owner": "ctl-1", "former": ["old"]}
    assert run_module(slurm_node_hold.main, given)["action"] == "reserve"
    kept = {"dgx-validate_old_many": "dgx-08"}
    assert slurm.reservations == {"dgx-validate_ctl-1_dgx-01": "dgx-01", **kept}
    slurm.reservations = {"dgx-validate_old_many": "dgx-[01,08]"}
    assert run_module(slurm_node_hold.main, {**given, "state": "released"})["changed"]
    assert slurm.reservations == kept


@pytest.mark.parametrize("state", ["held", "released"])
@pytest.mark.parametrize("drained", [True, False])
def test_nodes_at_once_take_each_itself_out_of_what_a_killed_run_has_reserved(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch, state: str, drained: bool
) -> None:
    """Ansible runs the module for several nodes at once, all on the controller."""
    slurm.states.update(dict.fromkeys(NAMES, "IDLE+DRAIN" if drained else "IDLE"))
    slurm.reservations["dgx-validate_old_many"] = "dgx-[01-04]"
    real = slurm.scontrol

    def slow(words: list[str]) -> tuple[int, str, str]:
        answer = real(words)
        time.sleep(0.1 if words[:2] == ["show", "reservation"] else 0)
        return answer

    monkeypatch.setattr(slurm, "scontrol", slow)
    mine = _hold.Mine("dgx-validate", "root", "ctl-1", ("old",))
    requests = [_hold.Request(name, mine, 3600, 5) for name in NAMES[:3]]
    seen = [_hold.ask(slurm, one.node) for one in requests]

    warned: list[str] = []
    module: Any = SimpleNamespace(check_mode=False, warn=warned.append)

    def act(request: _hold.Request, known: _hold.Seen) -> str:
        if state == "released":
            return str(_hold.give_back(module, slurm, request)["action"])
        return _hold.take(slurm, request, known, _hold.decide(known, "auto", mine)).action

    action = "release" if state == "released" else "reserve" if drained else "hold"
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(act, requests, seen)) == [action] * 3
    assert not warned
    alone = NAMES[:3] if drained and state == "held" else []
    assert slurm.reservations == {
        "dgx-validate_old_many": "dgx-04", **{f"dgx-validate_ctl-1_{one}": one for one in alone}
    }  # fmt: skip


def test_of_reserved_nodes_only_reservations_of_one_node_are_deleted(
    hold: Any, slurm: Slurm
) -> None:
    """A job that a killed validation has left still keeps users' jobs off what it loads."""
    left = ("7", "root", "RUNNING", "dgx-01", "dgx-validate:old")
    slurm.jobs = [left]
    others = {"dgx-validate_old_many": "dgx-[03-04]", "dgx-validate_ctl-2_dgx-05": "dgx-05"}
    slurm.reservations = {"dgx-validate_old_dgx-01": "dgx-01", "dgx-validate_old_dgx-02": "dgx-02"}
    slurm.reservations.update(others)
    given = {"nodes": [], "state": "released", "former": ["old"]}
    assert hold(reserved=NAMES, **given)["changed"]
    assert (slurm.jobs, slurm.reservations) == ([left], others)
    assert not hold(reserved=NAMES, **given)["changed"]


@pytest.mark.parametrize(("owner", "goes"), [("old", False), ("ctl-1", True)])
def test_what_a_killed_run_has_reserved_of_other_nodes_too_stays(
    hold: Any, slurm: Slurm, owner: str, goes: bool
) -> None:
    slurm.reservations = {f"dgx-validate_{owner}_many": "dgx-[03-04]"}
    given = {"state": "released", "former": ["old"]}
    hold(nodes=["dgx-03"], **given)
    assert slurm.reservations == ({} if goes else {f"dgx-validate_{owner}_many": "dgx-04"})
    hold(nodes=["dgx-03", "dgx-04"], **given)
    assert not slurm.reservations


def test_where_slurm_starts_the_load_nodes_out_of_service_are_left(hold: Any, slurm: Slurm) -> None:
    slurm.states["dgx-01"] = "IDLE+DRAIN"
    answer = hold(starts=True)
    assert not slurm.reservations
    assert not any("dgx-01" in nodes for nodes in answer["jobs"].values())
    assert answer["nodes"]["dgx-01"]["why"].startswith("it is IDLE+DRAIN")


def test_a_run_that_was_killed_is_taken_over(hold: Any, slurm: Slurm) -> None:
    hold(owner="old")
    before = list(slurm.jobs)
    answer = hold(former=["old"])
    assert slurm.jobs == before
    assert answer["jobs"] == {"100": NAMES}
    assert any(call[:2] == ["scontrol", "update"] for call in slurm.calls), "it gets its time again"


@pytest.mark.parametrize("drained", [False, True])
def test_two_control_machines_never_hold_the_same_node(
    hold: Any, slurm: Slurm, run_module: Any, drained: bool
) -> None:
    if drained:
        slurm.states = dict.fromkeys(NAMES, "IDLE+DRAIN")
    hold(owner="ctl-1")
    answer = hold(owner="ctl-2")
    assert {one["may_load"] for one in answer["nodes"].values()} == {False}
    assert answer["nodes"]["dgx-01"]["why"].startswith("ctl-1 holds it since 2026-11-22T10:00:00")
    alone = run_module(slurm_node_hold.main, {"node": "dgx-01", "owner": "ctl-2"})
    assert alone["why"].startswith("ctl-1 holds it since")
    own = run_module(slurm_node_hold.main, {"node": "dgx-01", "owner": "ctl-1", "state": "checked"})
    assert own["may_load"]


def test_a_node_in_slurm_and_in_no_group_is_named_before_anything_is_held(
    hold: Any, slurm: Slurm
) -> None:
    answer = hold(known=NAMES[:6])
    assert answer["failed"]
    assert answer["msg"] == (
        "Slurm has dgx-[07-08], which are in no group of the inventory: add to gpu_nodes or "
        "cpu_nodes, or remove from Slurm (remove_nodes)"
    )
    assert not slurm.jobs


def test_a_partition_that_ends_too_soon_is_named_before_anything_is_held(
    hold: Any, slurm: Slurm
) -> None:
    slurm.partitions["dgx-02"] = "debug"
    answer = hold(seconds=7200)
    assert answer["failed"]
    assert answer["msg"] == (
        "dgx-02: partition debug ends jobs after 30 minutes, and this takes 120: write another "
        "partition in cluster_validation.slurm_options, a smaller hold_s, or engine: ansible"
    )
    assert not slurm.jobs
    assert hold(seconds=1800)["jobs"]


def test_the_partition_that_is_named_must_last(hold: Any, slurm: Slurm) -> None:
    assert "partition debug" in hold(seconds=7200, slurm_options=["--partition=debug"])["msg"]
    slurm.longest["debug"] = "UNLIMITED"
    hold(seconds=7200, slurm_options=["--partition=debug"])
    words = next(call for call in slurm.calls if call[0] == "salloc")
    assert [word for word in words if re.match("--partition", word)] == ["--partition=debug"]


def test_jobs_that_start_beside_ours_end_it(hold: Any, slurm: Slurm) -> None:
    slurm.intruders = [("9", "bob", "RUNNING", "dgx-04", "x")]
    answer = hold()
    assert answer["nodes"]["dgx-04"]["why"] == "it is not ours alone: jobs have started on it"
    assert "dgx-04" not in answer["jobs"]["100"]


def test_over_ssh_nothing_is_held(hold: Any, slurm: Slurm) -> None:
    slurm.jobs = [ALICE]
    answer = hold(transport="ssh")
    assert slurm.jobs == [ALICE]
    assert [name for name, one in answer["nodes"].items() if not one["may_load"]] == ["dgx-03"]


def test_without_slurm_nothing_can_be_started_by_it(hold: Any, slurm: Slurm) -> None:
    slurm.missing = True
    answer = hold(starts=True)
    assert "engine slurm: there is no Slurm on this host" in answer["msg"]
    assert {one["may_load"] for one in hold()["nodes"].values()} == {True}


def test_a_slurm_that_does_not_answer_is_no_consent(hold: Any, slurm: Slurm) -> None:
    slurm.silent = True
    assert hold()["msg"] == "Unable to contact slurm controller"


def test_check_mode_holds_nothing(hold: Any, slurm: Slurm) -> None:
    answer = hold(check=True)
    assert answer["changed"]
    assert answer["nodes"]["dgx-01"]["action"] == "hold"
    assert not slurm.jobs
