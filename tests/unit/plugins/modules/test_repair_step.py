# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""repair_step on a folder, as the playbook calls it, and what is left of a killed run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    FAILED,
    write_reason,
)
from ansible_collections.baremetal.dgx.plugins.modules import repair_step

REASON = write_reason("dgx-01", FAILED, "gpu3 xid: Xid 79")
SHOWN = (
    "NodeName=dgx-01 State=IDLE+DRAIN ThreadsPerCore=2 "
    f"Reason={REASON} [root@2026-11-24T03:00:00]\n"
    "NodeName=dgx-02 State=IDLE ThreadsPerCore=2\n"
)
FIRST = {"check": "gpu.xid", "subject": "gpu:dgx-01/3", "text": "Xid 79", "remedy": "reset it"}
VERDICTS = [
    {"node": "dgx-01", "verdict": "fail", "at": "2026-11-24T02:59:00Z", "level": "standard",
     "first_failing": FIRST},
    {"node": "dgx-02", "verdict": "pass", "at": "2026-11-24T02:59:00Z", "level": "standard"},
]  # fmt: skip


@pytest.fixture
def ask(run_module, tmp_path):
    def ask(check: bool = False, **given: Any) -> dict[str, Any]:
        params = {
            "folder": str(tmp_path / "incidents"), "nodes": SHOWN, "verdicts": VERDICTS,
            "targets": ["dgx-01", "dgx-02"], "steps": ["reset_gpu", "reboot"], **given,
        }  # fmt: skip
        return run_module(repair_step.main, params, check=check)

    return ask


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    text = (tmp_path / "incidents/incidents.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines() if line]


def test_check_mode_shows_and_writes_nothing(ask, tmp_path):
    answer = ask(check=True)
    assert [(due["node"], due["step"]) for due in answer["due"]] == [("dgx-01", "reset_gpu")]
    assert answer["changed"]
    assert not (tmp_path / "incidents").exists()


def test_the_validation_asks_what_a_node_fails(ask):
    verdicts = [{**VERDICTS[0], "asked_by": "standard"}, VERDICTS[1]]
    for level, asked in (("quick", "standard"), ("burn_in", "burn_in")):
        (due,) = ask(check=True, verdicts=verdicts, level=level)["due"]
        assert due["level"] == asked


def test_a_step_begins_and_ends(ask, tmp_path):
    answer = ask()
    (due,) = answer["due"]
    assert due["why"] == "gpu.xid: Xid 79"
    assert due["level"] == "quick"
    assert [line["what"] for line in lines(tmp_path)] == ["opened", "begun"]
    (open_,) = answer["open"]
    assert (open_["running"], open_["subject"]) == ("reset_gpu", "gpu:dgx-01/3")
    ended = ask(
        state="ended", node="dgx-01", incident=due["incident"], step="reset_gpu", outcome="done"
    )
    assert ended["events"][0]["text"] == lines(tmp_path)[-1]["text"] == "done"
    assert (tmp_path / "incidents/incidents.jsonl").stat().st_mode & 0o7 == 0
    # The evidence is older than the step, so new one is asked for.
    after = ask()
    assert [due["step"] for due in after["due"]] == ["validate"]
    assert [one["step"] for one in after["open"][0]["ends"]] == ["reset_gpu"]


def test_lines_have_the_time_of_the_cluster(ask, tmp_path):
    (due,) = ask(now=1_800_000_000.5)["due"]
    ask(state="ended", node="dgx-01", incident=due["incident"], step="reset_gpu", now=1_800_000_060)
    assert [line["at"] for line in lines(tmp_path)] == [1_800_000_000, 1_800_000_000, 1_800_000_060]
    assert due["incident"] == "dgx-01-20270115T080000Z"


def test_only_judged_begins_nothing(ask, tmp_path):
    assert ask(state="judged")["due"] == []
    assert [line["what"] for line in lines(tmp_path)] == ["opened"]


def test_a_cut_line_costs_itself_alone(ask, tmp_path):
    ask()
    book = tmp_path / "incidents/incidents.jsonl"
    book.write_text(book.read_text()[:-30])
    answer = ask()
    assert answer["unread"] == 1
    # The begin of the step was lost with the run that would have taken it.
    assert [due["step"] for due in answer["due"]] == ["reset_gpu"]
    assert ask()["unread"] == 1
    assert [due["step"] for due in ask()["due"]] == ["validate"]


def test_a_step_is_confirmed_right_before_it(ask):
    assert not ask(state="confirmed", node="dgx-01", step="reboot").get("failed")
    taken = SHOWN.replace("IDLE+DRAIN", "MIXED+DRAIN")
    answer = ask(state="confirmed", node="dgx-01", step="reboot", nodes=taken)
    assert answer["failed"]
    assert answer["msg"] == "dgx-01: reboot is not done: its jobs end first"
    assert "Slurm has no such node" in ask(state="confirmed", node="dgx-09", step="reboot")["msg"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": ""}, "nodes: holds no node; give what `scontrol show node -o` prints"),
        ({"verdicts": [{"node": "dgx-01", "verdict": "good"}]}, "dgx-01: the verdict is 'good'"),
        ({"steps": ["burn_it"]}, "value of steps must be one or more of"),
        ({"ladders": {"gpu.xid": ["resume"]}}, "nothing puts a node back before it was validated"),
        ({"state": "ended"}, "state is ended but all of the following are missing"),
    ],
)
def test_bad_input_is_one_line(ask, given, message):
    answer = ask(**given)
    assert answer["failed"]
    assert message in answer["msg"]


def test_the_evidence_of_an_incident_is_removed_in_the_end(ask, tmp_path):
    answer = ask()
    name = answer["open"][0]["name"]
    folder = tmp_path / "incidents" / name
    folder.mkdir()
    (folder / "reset_gpu.tar.gz").write_bytes(b"x")
    ask(state="judged", keep_days=1)
    assert folder.exists()
    book = tmp_path / "incidents/incidents.jsonl"
    closed = {"at": 1_700_000_000.0, "incident": name, "node": "dgx-01", "what": "closed",
              "version": 1, "text": "back"}  # fmt: skip
    book.write_text(book.read_text() + json.dumps(closed) + "\n")
    ask(state="judged", keep_days=100000)
    assert folder.exists()
    ask(state="judged", keep_days=1)
    assert not folder.exists()


def test_a_repeat_offender_is_kept_out_until_the_operator_consents(ask):
    parts = {"names": {"gpu:dgx-01/3": "GPU-7"}, "offenders": {"GPU-7": "failed 3 times, in a, b"}}
    answer = ask(parts=parts)
    assert answer["due"] == []
    assert [(one["what"], one["part"]) for one in answer["events"]] == [
        ("opened", "GPU-7"), ("kept", "GPU-7")
    ]  # fmt: skip
    why = "return the part: gpu:dgx-01/3 failed 3 times, in a, b; reset it"
    assert answer["waits"] == [{"node": "dgx-01", "why": why}]
    parts["kept"] = [{"node": "dgx-01", "part": "GPU-7", "why": why}]
    assert ask(parts=parts)["waits"] == answer["waits"]
    answer = ask(parts=parts, allowed=["dgx-01"])
    assert [one["what"] for one in answer["events"]] == ["allowed", "begun"]
    assert [one["step"] for one in answer["due"]] == ["reset_gpu"]
