# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm_node against a model of slurmctld."""

from __future__ import annotations

import re
import socket
import time
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.modules import slurm_node


class Slurmctld:
    """Nodes with their states and reasons; `jobs` maps a job to its nodes."""

    def __init__(self, **states):
        self.nodes = {name.replace("_", "-"): [text, ""] for name, text in states.items()}
        self.jobs = {}
        self.log = []
        # looks at the queue after which the jobs have ended
        self.ends_after = None
        # 22.05 and 24.11 resume a node that has never registered, and call it an error
        self.grumbles = False
        # what is shown of where slurmd listens; SlurmdPort
        self.places = {}
        self.port = 6818

    def __call__(self, argv, timeout_s=30, env=None):
        words = list(argv)
        if words[:3] == ["scontrol", "show", "hostnames"]:
            return self.expand(words[3])
        if words[0] == "squeue":
            if self.ends_after is not None:
                self.ends_after -= 1
                if self.ends_after < 0:
                    self.jobs = {}
            lines = [f"{job}|bob|acct|qos|RUNNING|{nodes}" for job, nodes in self.jobs.items()]
            return CommandResult(tuple(words), ENDED, 0, "\n".join(lines))
        if words == ["scontrol", "show", "config"]:
            port = f"SlurmctldPort = 1\nSlurmdPort              = {self.port}\n"
            return CommandResult(tuple(words), ENDED, 0, port)
        if words[:3] == ["scontrol", "show", "node"]:
            lines = [
                f"NodeName={name} Arch=x{self.places.get(name, '')} State={text} Threads=1"
                + (f" Reason={reason} [root@2026-01-02T03:04:05]" if reason else "")
                for name, (text, reason) in self.nodes.items()
            ]
            return CommandResult(tuple(words), ENDED, 0, "\n".join(lines))
        self.log.append(" ".join(words[2:]))
        return self.update(dict(word.split("=", 1) for word in words[2:]), words)

    @staticmethod
    def expand(text):
        if text.count("[") != text.count("]"):
            return CommandResult(("scontrol",), ENDED, 0, "", "Invalid hostlist")
        names = []
        for word in re.findall(r"[^,\[\]]+\[[^\]]+\]|[^,\[\]]+", text):
            found = re.match(r"(.+)\[(\d+)-(\d+)\]$", word)
            if not found:
                names.append(word)
                continue
            base, first, last = found.groups()
            width = len(first)
            names += [f"{base}{n:0{width}d}" for n in range(int(first), int(last) + 1)]
        return CommandResult(("scontrol",), ENDED, 0, "\n".join(names))

    def update(self, values, words):
        for name in values["NodeName"].split(","):
            states = self.nodes[name][0].split("+")
            if values.get("State") == "RESUME":
                left = [text for text in states if text not in ("DRAIN", "DOWN")]
                self.nodes[name] = ["+".join(left) or "IDLE", ""]
                continue
            if values.get("State") == "DRAIN":
                states = [*dict.fromkeys([*states, "DRAIN"])]
            elif values.get("State") == "DOWN":
                states = ["DOWN"]
            self.nodes[name] = ["+".join(states), values["Reason"]]
        if self.grumbles:
            return CommandResult(tuple(words), ENDED, 1, "", "Invalid node state specified")
        return CommandResult(tuple(words), ENDED, 0, "")


@pytest.fixture
def bring(run_module, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)

    def bring(slurm, check=False, **params):
        with patch.object(slurm_node, "ModuleRunner", lambda _module: slurm):
            return run_module(slurm_node.main, params, check)

    return bring


def test_out_and_back(bring):
    slurm = Slurmctld(dgx_01="IDLE", dgx_02="MIXED", dgx_03="IDLE")
    out = {"nodes": "dgx-[01-02]", "state": "drained", "reason": "firmware"}
    predicted = bring(slurm, check=True, **out)
    assert slurm.log == []
    done = bring(slurm, **out)
    assert predicted["changed"] is done["changed"] is True
    assert predicted["nodes"] == done["nodes"]
    assert predicted["diff"] == done["diff"]
    assert slurm.log == ["NodeName=dgx-01,dgx-02 State=DRAIN Reason=dgx: firmware"]
    assert done["nodes"]["dgx-02"] == {
        "before": {"state": "MIXED", "reason": ""},
        "after": {"state": "MIXED+DRAIN", "reason": "dgx: firmware"},
    }
    assert bring(slurm, **out)["changed"] is False
    assert bring(slurm, nodes=["dgx-[01-03]"], state="resumed")["changed_nodes"] == [
        "dgx-01", "dgx-02",
    ]  # fmt: skip
    assert bring(slurm, nodes=["dgx-[01-03]"], state="resumed")["changed"] is False


def test_what_another_one_drained_stays_drained(bring):
    slurm = Slurmctld(dgx_01="IDLE+DRAIN")
    slurm.nodes["dgx-01"][1] = "broken fan"
    answer = bring(slurm, nodes="dgx-01", state="resumed", wait=True)
    assert answer["changed"] is False
    assert answer["refused"] == [
        {"node": "dgx-01", "state": "IDLE+DRAIN", "reason": "broken fan", "by": "root"}
    ]
    assert bring(slurm, nodes="dgx-01", state="resumed", force=True)["changed"] is True
    assert slurm.nodes["dgx-01"] == ["IDLE", ""]


def test_waiting_for_jobs(bring):
    slurm = Slurmctld(dgx_01="IDLE", dgx_02="IDLE")
    slurm.jobs = {"7": "dgx-[01-02]"}
    params = {"nodes": "dgx-01", "state": "drained", "reason": "x", "wait": True}
    answer = bring(slurm, wait_timeout_s=0, **params)
    assert answer["failed"]
    assert answer["waiting"] == ["dgx-01 still has jobs: 7 (bob, RUNNING)"]
    assert answer["changed_nodes"] == ["dgx-01"]
    slurm.ends_after = 3
    assert "failed" not in bring(slurm, wait_timeout_s=60, **params)
    assert slurm.ends_after < 0


def test_a_node_that_is_resumed_during_the_wait_fails_at_once(bring, monkeypatch):
    slurm = Slurmctld(dgx_01="IDLE", dgx_02="IDLE")
    slurm.jobs = {"7": "dgx-02"}

    def resume(_seconds):
        assert slurm.nodes["dgx-01"][0] == "IDLE+DRAIN", "it goes on waiting"
        slurm.nodes["dgx-01"] = ["IDLE", ""]

    monkeypatch.setattr(time, "sleep", resume)
    params = {"nodes": "dgx-[01-02]", "state": "drained", "reason": "x", "wait": True}
    answer = bring(slurm, wait_timeout_s=86400, **params)
    assert answer["failed"]
    assert answer["waiting"][0] == "dgx-01 is IDLE: it was resumed"
    assert "dgx-01 is IDLE: it was resumed" in answer["msg"]


def test_a_node_that_is_down_is_out(bring):
    slurm = Slurmctld(dgx_01="DOWN")
    slurm.nodes["dgx-01"][1] = "Not responding"
    answer = bring(slurm, nodes="dgx-01", state="drained", reason="x", wait=True)
    assert "failed" not in answer
    assert answer["nodes"]["dgx-01"]["after"]["state"] == "DOWN"


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_who_does_not_answer_stays_out(bring, listening):
    slurm = Slurmctld(**{f"dgx_0{number}": "IDLE+DRAIN" for number in range(1, 6)})
    reasons = ["dgx: x", "dgx: x", "up: x", "broken fan", "up: x"]
    for number, reason in enumerate(reasons, start=1):
        slurm.nodes[f"dgx-0{number}"][1] = reason
    with socket.create_server(("127.0.0.2", 0)) as gone:
        closed = gone.getsockname()[1]
    slurm.port = closed
    # Port=0 was shown by old releases.
    slurm.places = {
        "dgx-01": f" NodeAddr=127.0.0.1 NodeHostName=a Port={listening} Version=24.11",
        "dgx-02": " NodeAddr=127.0.0.2 NodeHostName=b Port=0 Version=20.02",
        "dgx-03": " NodeAddr=127.0.0.3 NodeHostName=c Version=24.11",
        "dgx-05": f" NodeAddr=127.0.0.1 Port={listening}",
    }
    params = {"nodes": "dgx-[01-05]", "state": "resumed", "answering": ["dgx", "up"]}
    assert bring(slurm, check=True, **params)["silent"] == []
    answer = bring(slurm, wait_timeout_s=0, **params)
    assert answer["changed_nodes"] == ["dgx-01"]
    why = "Connection refused"
    assert [(one["node"], why in one["why"]) for one in answer["silent"]] == [
        ("dgx-02", True), ("dgx-03", True),
    ]  # fmt: skip
    assert answer["silent"][0]["why"].startswith(
        f"dgx-02 stays out: its slurmd at 127.0.0.2 port {closed} does not answer within 0 s ("
    )
    # Other owners' nodes, and those in service, are not asked; nor is any without it.
    assert [one["node"] for one in answer["refused"]] == ["dgx-04", "dgx-05"]
    assert slurm.nodes["dgx-02"] == ["IDLE+DRAIN", "dgx: x"]
    assert bring(slurm, nodes="dgx-02", state="resumed")["changed_nodes"] == ["dgx-02"]


def test_who_answers_waits_for_no_other(bring, listening, monkeypatch):
    """One dead node would keep all the others out for half an hour."""
    slurm = Slurmctld(dgx_01="IDLE+DRAIN", dgx_02="IDLE+DRAIN", dgx_03="IDLE+DRAIN")
    for node in slurm.nodes.values():
        node[1] = "dgx: x"
    slurm.port = listening
    slurm.places = dict.fromkeys(slurm.nodes, " NodeAddr=127.0.0.1 NodeHostName=a")
    slurm.places["dgx-02"] = " NodeAddr=dead NodeHostName=b"
    clock, resumed_at = [0.0], {}
    real = socket.create_connection

    def connect(place, timeout_s):
        if place[0] == "dead":
            raise ConnectionRefusedError(111, "Connection refused")
        return real(place, timeout_s)

    def sleep(seconds):
        clock[0] += seconds
        for name, (state, _reason) in slurm.nodes.items():
            if state == "IDLE":
                resumed_at.setdefault(name, clock[0])

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(
        slurm_node.slurm, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0])
    )
    answer = bring(slurm, nodes="dgx-[01-03]", state="resumed", answering=["dgx"],
                   wait_timeout_s=1800, wait=True)  # fmt: skip
    assert answer["changed_nodes"] == ["dgx-01", "dgx-03"]
    assert max(resumed_at.values()) <= 15
    assert [one["node"] for one in answer["silent"]] == ["dgx-02"]
    assert clock[0] >= 1800
    assert slurm.nodes["dgx-02"] == ["IDLE+DRAIN", "dgx: x"]


def test_a_node_that_is_taken_over_while_it_starts_stays_out(bring, monkeypatch):
    slurm = Slurmctld(dgx_01="IDLE+DRAIN")
    slurm.nodes["dgx-01"][1] = "dgx: x"
    looks = []

    def connect(place, _timeout_s):
        assert place == ("dgx-01", 6818)
        looks.append(place)
        if len(looks) in (1, 3):
            raise ConnectionRefusedError(111, "Connection refused")
        slurm.nodes["dgx-01"][1] = "broken fan"
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    answer = bring(slurm, nodes="dgx-01", state="resumed", answering=["dgx"])
    # It has answered twice, one after the other.
    assert len(looks) == 5
    assert (answer["changed"], answer["silent"]) == (False, [])
    assert [one["reason"] for one in answer["refused"]] == ["broken fan"]


def test_check_mode_does_not_wait(bring):
    slurm = Slurmctld(dgx_01="IDLE")
    slurm.jobs = {"7": "dgx-01"}
    params = {"nodes": "dgx-01", "state": "drained", "reason": "x", "wait": True}
    assert bring(slurm, check=True, wait_timeout_s=0, **params)["changed"] is True


def test_an_error_that_took_effect_is_none(bring):
    slurm = Slurmctld(dgx_01="UNKNOWN")
    slurm.grumbles = True
    answer = bring(slurm, nodes="dgx-01", state="drained", reason="x")
    assert "failed" not in answer
    assert answer["nodes"]["dgx-01"]["after"]["state"] == "UNKNOWN+DRAIN"


def test_an_update_that_did_not_take_effect(bring):
    slurm = Slurmctld(dgx_01="IDLE")
    refused = CommandResult(("scontrol",), ENDED, 1, "", "slurm_update error: Access denied")
    with patch.object(Slurmctld, "update", lambda *_args: refused):
        answer = bring(slurm, nodes="dgx-01", state="drained", reason="x")
    assert answer["failed"]
    assert "Access denied; not changed: dgx-01" in answer["msg"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"nodes": "dgx-[01-"}, "nodes: dgx-[01- is not a node set"),
        ({"nodes": ["dgx-01", 3]}, "nodes: must be a node set or a list of them"),
        ({"nodes": "dgx-09"}, "Slurm does not know dgx-09"),
        ({"nodes": "ALL"}, "Slurm does not know ALL"),
        ({"nodes": "dgx-01", "reason": " "}, "reason: is required, and must not be empty"),
        ({"nodes": "dgx-01", "reason": "a [b]"}, "reason: must not contain quotes, brackets"),
        ({"nodes": "dgx-01", "owner": "a b"}, "owner: 'a b' must be one word"),
    ],
)
def test_parameters_that_are_refused(bring, params, message):
    slurm = Slurmctld(dgx_01="IDLE")
    answer = bring(slurm, **{"state": "drained", "reason": "x", **params})
    assert answer["failed"]
    assert answer["msg"].startswith(message)
    assert slurm.log == []


def test_nodes_that_slurm_does_not_know_may_be_passed_over(bring):
    slurm = Slurmctld(dgx_01="IDLE")
    answer = bring(slurm, nodes="dgx-[01-02]", state="resumed", absent_ok=True)
    assert answer["unknown"] == ["dgx-02"]
    assert list(answer["nodes"]) == ["dgx-01"]


def test_no_nodes_at_all(bring):
    assert bring(Slurmctld(), nodes=[], state="resumed")["changed"] is False


def test_a_virgin_host(bring):
    def missing(argv, timeout_s=30, env=None):
        return CommandResult(tuple(argv), MISSING)

    params = {"nodes": "dgx-[01-02]", "state": "drained", "reason": "x"}
    answer = bring(missing, check=True, **params)
    assert answer["changed"] is False
    assert "scontrol is not installed" in str(answer["warnings"])
    assert bring(missing, **params)["failed"]
