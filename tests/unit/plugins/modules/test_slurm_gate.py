# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm_gate against the model of slurmctld."""

from __future__ import annotations

import json
import time
from unittest.mock import patch

import pytest
from slurmctld_model import NO_CONTACT, Slurmctld

from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock as _lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate import apply as _apply
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate import states as _states
from ansible_collections.baremetal.dgx.plugins.modules import slurm_gate


def stamp(slurm, ago=0.0):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(slurm.now - ago))


def verdict(slurm, node, message, level="standard", ago=60.0):
    first = {
        "check": "gpu.ecc",
        "subject": f"gpu:{node}/3",
        "text": "12 errors",
        "remedy": "swap it",
    }
    return {
        "node": node,
        "verdict": message,
        "at": stamp(slurm, ago),
        "level": level,
        "first_failing": first if message == "fail" else None,
        "fleet_share": None,
    }


@pytest.fixture
def slurm():
    return Slurmctld([f"dgx-{number:02d}" for number in range(1, 9)], now=time.time())


@pytest.fixture
def gate(run_module, monkeypatch, tmp_path):
    monkeypatch.setattr(_lock, "_folder", lambda: str(tmp_path))
    monkeypatch.setattr(_states, "user_name", lambda: "root")
    monkeypatch.setattr(_states.time, "sleep", lambda _seconds: None)

    def gate(run, check=False, **params):
        params = {
            "journal": str(tmp_path / "log" / "gate.jsonl"),
            "known_file": str(tmp_path / "gate" / "known.json"),
            "state_save_location": str(tmp_path / "state"),
            "wait_s": 0,
            **params,
        }
        with patch.object(slurm_gate, "ModuleRunner", lambda _module: run):
            return run_module(slurm_gate.main, params, check)

    return gate


def taken(answer):
    return [(step["node"], step["action"]) for step in answer["actions"]]


def test_out_on_a_failure_and_back_on_a_pass(gate, slurm, tmp_path):
    job = slurm.start_job(["dgx-03"])
    params = {"verdicts": [verdict(slurm, "dgx-03", "fail"), verdict(slurm, "dgx-04", "pass")]}
    predicted = gate(slurm, check=True, **params)
    assert slurm.changes == []
    done = gate(slurm, **params)
    assert taken(predicted) == taken(done) == [("dgx-03", "drain")]
    assert predicted["changed"] is done["changed"] is True
    assert predicted["actions"] == done["actions"]
    assert predicted["diff"] == done["diff"]
    assert predicted["out"] == done["out"] == {"before": 0, "after": 1, "most": 1}
    node = slurm.nodes["dgx-03"]
    assert node.reason.startswith("dgx-gate: gpu3 ecc: 12 errors; swap it #f")
    assert node.jobs == {job}
    assert gate(slurm, **params)["changed"] is False
    slurm.now += 120
    again = {"verdicts": [verdict(slurm, "dgx-03", "pass", ago=60)]}
    with patch.object(_states.time, "time", lambda: slurm.now):
        assert taken(gate(slurm, **again)) == [("dgx-03", "resume")]
        assert gate(slurm, **again)["changed"] is False
    assert node.usable
    assert node.jobs == {job}
    lines = (tmp_path / "log" / "gate.jsonl").read_text().splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["drain", "resume"]
    assert json.loads(lines[0])["before"] == {"state": "ALLOCATED", "reason": ""}


def test_the_diff_shows_states_and_reasons(gate, slurm):
    answer = gate(slurm, verdicts=[verdict(slurm, "dgx-03", "fail")])
    assert answer["diff"][0]["before"] == "state: IDLE\nreason: -\n"
    assert answer["diff"][0]["after"].startswith("state: IDLE+DRAIN\nreason: dgx-gate: gpu3 ecc")


def test_too_many_at_once(gate, slurm):
    bad = [verdict(slurm, f"dgx-{number:02d}", "fail") for number in (1, 2, 3)]
    answer = gate(slurm, verdicts=bad, share=0.25)
    assert answer["failed"]
    assert answer["msg"] == answer["refusal"]
    assert "2 of 8 may be (share 0.25)" in answer["msg"]
    assert answer["actions"] == []
    assert len(answer["withheld"]) == 3
    assert slurm.changes == []
    assert gate(slurm, check=True, verdicts=bad, share=0.25)["failed"]
    for check in (True, False):
        answer = gate(slurm, check=check, verdicts=bad, share=0.25, fail=False)
        assert "failed" not in answer
        assert "2 of 8 may be (share 0.25)" in answer["refusal"]
    assert len(gate(slurm, verdicts=bad, share=0.5)["actions"]) == 3


def test_an_operator_in_between_wins(gate, slurm):
    class Watched:
        """The operator drains the node between the gate's plan and its step."""

        looks = 0

        def __call__(self, argv, timeout_s=30, env=None):
            self.looks += argv[1] == "show"
            if self.looks == 2:
                values = {"NodeName": "dgx-03", "State": "DRAIN", "Reason": "ticket 7"}
                slurm.update(values, "alice")
            return slurm(argv, timeout_s, env)

    answer = gate(Watched(), verdicts=[verdict(slurm, "dgx-03", "fail")])
    assert answer["changed"] is False
    assert [step["node"] for step in answer["passed_over"]] == ["dgx-03"]
    assert slurm.nodes["dgx-03"].reason == "ticket 7"


def test_many_nodes_are_let_in_together(gate):
    slurm = Slurmctld([f"dgx-{number:04d}" for number in range(200)], now=time.time())
    names = list(slurm.nodes)
    gate(slurm, state="remembered", state_save_location="/nowhere")
    for node in slurm.nodes.values():
        node.base = "UNKNOWN"
    answer = gate(slurm, state="introduced", nodes=names, renewed=names)
    assert len(answer["actions"]) == 200
    for name in names:
        slurm.register(name)
    calls = []

    def counted(argv, timeout_s=30, env=None):
        calls.append(argv)
        return slurm(argv, timeout_s, env)

    good = [verdict(slurm, name, "pass", ago=-1) for name in names]
    answer = gate(counted, verdicts=good)
    assert len(answer["actions"]) == 200
    assert all(node.usable for node in slurm.nodes.values())
    assert len(calls) <= 30


def test_a_complaint_is_reported_with_the_node(gate, slurm):
    def grumbling(argv, timeout_s=30, env=None):
        if argv[1] == "update":
            return CommandResult(tuple(argv), ENDED, 1, "", "slurm_update error: Access denied")
        return slurm(argv, timeout_s, env)

    answer = gate(grumbling, verdicts=[verdict(slurm, "dgx-03", "fail")])
    assert answer["failed"]
    assert answer["msg"] == ("scontrol refused: dgx-03: drain: slurm_update error: Access denied")
    assert answer["actions"] == []


def test_a_complaint_about_what_was_done_is_none(gate, slurm):
    def grumbling(argv, timeout_s=30, env=None):
        result = slurm(argv, timeout_s, env)
        if argv[1] == "update":
            return CommandResult(tuple(argv), ENDED, 1, "", "Invalid node state specified")
        return result

    answer = gate(grumbling, verdicts=[verdict(slurm, "dgx-03", "fail")])
    assert taken(answer) == [("dgx-03", "drain")]


def test_slurm_that_stops_in_the_middle(gate, slurm):
    def stopping(argv, timeout_s=30, env=None):
        result = slurm(argv, timeout_s, env)
        slurm.running = slurm.running and argv[1] != "update"
        return result

    bad = [verdict(slurm, "dgx-01", "fail"), verdict(slurm, "dgx-02", "fail")]
    answer = gate(stopping, verdicts=bad, share=0.5)
    assert answer["failed"]
    assert NO_CONTACT in answer["msg"]
    assert "run it again to go on" in answer["msg"]
    assert taken(answer) == [("dgx-01", "drain")]
    slurm.running = True
    assert taken(gate(slurm, verdicts=bad, share=0.5)) == [("dgx-02", "drain")]


def test_new_nodes_start_drained(gate, slurm, tmp_path):
    known = tmp_path / "gate" / "known.json"
    assert gate(slurm, check=True, state="remembered")["changed"] is True
    assert not known.exists()
    assert gate(slurm, state="remembered")["known"] == sorted(slurm.nodes)
    slurm.add("dgx-09")
    slurm.add("dgx-10")
    # killed and run again: the list is what it was before the new nodes
    assert gate(slurm, state="remembered")["changed"] is False
    names = list(slurm.nodes)
    expected = gate(slurm, check=True, state="introduced", nodes=names)
    done = gate(slurm, state="introduced", nodes=names)
    assert taken(expected) == taken(done) == [("dgx-09", "drain"), ("dgx-10", "drain")]
    assert done["known"] == names
    assert slurm.nodes["dgx-09"].reason.startswith("dgx-gate: unproven, run validate_nodes #n")
    slurm.register("dgx-09")
    assert slurm.nodes["dgx-09"].drained
    assert gate(slurm, state="introduced", nodes=names)["changed"] is False
    # let in, then a run of the role: not new any more
    gate(slurm, verdicts=[verdict(slurm, "dgx-09", "pass")])
    assert slurm.nodes["dgx-09"].usable
    assert gate(slurm, state="introduced", nodes=names)["changed"] is False
    # its board was replaced
    renewed = gate(slurm, state="introduced", nodes=names, renewed=["dgx-09"])
    assert taken(renewed) == [("dgx-09", "drain")]
    assert slurm.nodes["dgx-09"].reason.startswith("dgx-gate: replaced node, run validate_nodes #r")
    # What was measured before shows nothing about the new one.
    former = gate(slurm, verdicts=[verdict(slurm, "dgx-09", "pass")])
    assert (former["actions"], slurm.nodes["dgx-09"].usable) == ([], False)
    gate(slurm, verdicts=[verdict(slurm, "dgx-09", "pass", ago=-1)])
    assert slurm.nodes["dgx-09"].usable


def test_a_node_that_leaves_and_comes_back_is_new(gate, slurm):
    gate(slurm, state="remembered")
    names = list(slurm.nodes)
    left = slurm.nodes.pop("dgx-08")
    assert gate(slurm, state="introduced", nodes=names[:-1])["known"] == names[:-1]
    slurm.nodes["dgx-08"] = left
    assert taken(gate(slurm, state="introduced", nodes=names)) == [("dgx-08", "drain")]


def test_a_node_that_slurm_does_not_have_yet_stays_known(gate, slurm):
    gate(slurm, state="remembered")
    names = list(slurm.nodes)
    late = slurm.nodes.pop("dgx-08")
    assert gate(slurm, state="introduced", nodes=names)["known"] == names
    slurm.nodes["dgx-08"] = late
    assert taken(gate(slurm, state="introduced", nodes=names)) == []


def test_slurm_is_asked_until_it_has_all_nodes(monkeypatch):
    monkeypatch.setattr(_states.time, "sleep", lambda _seconds: None)

    class Late:
        asked = 0

        def nodes(self):
            self.asked += 1
            return dict.fromkeys(["dgx-01", "dgx-02"][: self.asked])

    late = Late()
    assert list(_states.wait_for(late, ["dgx-01", "dgx-02"], 60)) == ["dgx-01", "dgx-02"]
    assert late.asked == 2
    assert list(_states.wait_for(late, ["dgx-01"], 60)) == ["dgx-01", "dgx-02"]
    assert late.asked == 3


def test_a_first_controller_has_only_new_nodes(gate, slurm):
    slurm.running = False
    assert gate(slurm, state="remembered")["known"] == []
    slurm.running = True
    answer = gate(slurm, state="introduced", nodes=list(slurm.nodes))
    assert len(answer["actions"]) == 8


def test_a_controller_that_is_down_is_not_taken_for_a_first_one(gate, slurm, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "node_state").write_text("x")
    slurm.running = False
    answer = gate(slurm, state="remembered")
    assert answer["failed"]
    assert "slurmctld has run here before: start it" in answer["msg"]
    assert not (tmp_path / "gate" / "known.json").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"nodes": 3}'])
def test_a_list_of_known_nodes_that_is_none(gate, slurm, tmp_path, text):
    known = tmp_path / "gate" / "known.json"
    answer = gate(slurm, state="introduced", nodes=list(slurm.nodes))
    assert "known.json is missing" in answer["msg"]
    known.parent.mkdir()
    known.write_text(text)
    answer = gate(slurm, state="introduced", nodes=list(slurm.nodes))
    assert "known.json cannot be read" in answer["msg"]
    assert slurm.changes == []


def test_two_gates_at_once(gate, slurm):
    with _lock.host_lock("slurm_gate", 0):
        answer = gate(slurm, verdicts=[verdict(slurm, "dgx-03", "fail")])
    assert "holds the lock slurm_gate" in answer["msg"]
    assert slurm.changes == []


def test_spares_come_in_and_go_back(gate, slurm):
    spares = {"spares": ["dgx-08"], "spares_in_service": 1}
    gate(slurm, state="remembered")
    gate(slurm, state="introduced", nodes=list(slurm.nodes), renewed=["dgx-08"])
    good = verdict(slurm, "dgx-08", "pass", ago=-1)
    assert taken(gate(slurm, verdicts=[good], **spares)) == [("dgx-08", "reword")]
    answer = gate(slurm, verdicts=[good, verdict(slurm, "dgx-02", "fail")], **spares)
    assert taken(answer) == [("dgx-02", "drain"), ("dgx-08", "swap_in")]
    assert slurm.nodes["dgx-08"].usable
    answer = gate(slurm, verdicts=[good], return_spares=["dgx-08"], **spares)
    assert taken(answer) == [("dgx-08", "drain")]
    wrong = gate(slurm, verdicts=[good], return_spares=["dgx-01"], **spares)
    assert "return_spares: dgx-01 is not among the spares" in wrong["msg"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"share": 1.5}, "share: is 1.5; write a number from 0 to 1"),
        ({"evidence_days": 0}, "evidence_days: is 0; write more than 0"),
        ({"verdicts": [{"node": "", "verdict": "pass"}]}, "a verdict has no node"),
        ({"kept": [{"node": "dgx-01"}]}, "missing required arguments: why found in kept"),
        ({"kept": [{"why": "firmware"}]}, "missing required arguments: node found in kept"),
    ],
)
def test_parameters_that_are_refused(gate, slurm, params, message):
    answer = gate(slurm, **params)
    assert answer["failed"]
    assert answer["msg"] == message


def test_no_node_at_all_may_be_out(gate, slurm):
    answer = gate(slurm, share=0, verdicts=[verdict(slurm, "dgx-03", "fail")])
    assert "0 of 8 may be (share 0)" in answer["refusal"]


def test_a_virgin_host(gate):
    def missing(argv, timeout_s=30, env=None):
        return CommandResult(tuple(argv), MISSING)

    answer = gate(missing, check=True)
    assert answer["changed"] is False
    assert "scontrol is not installed" in str(answer["warnings"])
    assert gate(missing)["failed"]


def test_a_full_journal_is_set_aside(gate, slurm, tmp_path, monkeypatch):
    """Each step is in the file or in the one before it, whatever the size."""
    monkeypatch.setattr(_apply, "_JOURNAL_BYTES", 1)
    path = tmp_path / "log" / "gate.jsonl"
    for node in ("dgx-03", "dgx-04", "dgx-05"):
        gate(slurm, share=1.0, verdicts=[verdict(slurm, node, "fail")])
    written = [path.with_suffix(".jsonl.1"), path]
    found = [[json.loads(line)["node"] for line in one.read_text().splitlines()] for one in written]
    assert found == [["dgx-04"], ["dgx-05"]]
    assert sorted(one.name for one in path.parent.iterdir()) == ["gate.jsonl", "gate.jsonl.1"]
    assert path.stat().st_mode == written[0].stat().st_mode


def test_a_journal_that_cannot_be_written_is_a_warning(gate, slurm, tmp_path):
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "gate.jsonl")
    answer = gate(slurm, journal=path, verdicts=[verdict(slurm, "dgx-03", "fail")])
    assert answer["changed"] is True
    assert "journal: " in str(answer["warnings"])
