# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""fabric_inspect on what the tools would print of a fabric that has no plan."""

from __future__ import annotations

import json

import pytest
from fabric_netlist import discovery_text, states_text
from library import build, fresh

from ansible_collections.baremetal.dgx.plugins.modules import fabric_inspect


@pytest.fixture
def inspected(run_module, tmp_path):
    """`inspected(world, share, check, change=(name, how), **options)`: judge what was saved."""

    def run(world, share=1.0, check=False, change=None, **params):
        seen, errors = world.reached()
        text = discovery_text(seen)
        texts = {
            "ibnetdiscover": text[: int(share * len(text))],
            "ibnetdiscover.stderr": "\n".join(errors),
            "iblinkinfo": states_text(seen),
            "ibqueryerrors": world.counters(world.before, seen),
            "ibqueryerrors-2": world.counters(world.after, seen),
            "sminfo": "sminfo: sm lid 1 sm guid 0x1, activity count 7 priority 0 state 3 "
            "SMINFO_MASTER\n",
        }
        files = {}
        if change:
            texts[change[0]] = change[1](texts.get(change[0], ""))
        for name, message in texts.items():
            (tmp_path / name).write_text(message)
            files[name] = str(tmp_path / name)
        options = {"sweep_files": files, "interval_s": 720, "fail_on": [], **params}
        return run_module(fabric_inspect.main, options, check)

    return run


@pytest.fixture
def healthy():
    world = fresh("basepod-12")
    world.start = world.key_of["dgx-0001", 0]
    return world


def test_a_healthy_fabric_passes_with_no_plan_given(inspected, healthy, tmp_path):
    answer = inspected(healthy, output=str(tmp_path / "out"), cluster_name="found")
    assert (answer["verdict"], answer["causes"], answer["doubts"]) == ("pass", [], [])
    what = "12 hosts, 2 switches, 112 cables without a plan"
    line = f"{what}: 0 findings; 0 not measured or guessed"
    assert answer["summary"]["text"] == line
    data = json.loads((tmp_path / "out/records.json").read_text())
    assert data["summary"]["text"] == line
    assert data["summary"]["cables"]["pass"] == 112
    assert (tmp_path / "out/findings.txt").read_text().splitlines()[0] == line
    svg = (tmp_path / "out/fabric.svg").read_text()
    assert "Fabric found without a plan<" in svg
    assert ">as most of it is cabled<" in svg
    assert (tmp_path / "out/raw/ibnetdiscover.txt").exists()


def test_a_finding_has_the_work_and_what_it_rests_on(inspected):
    case = build("basepod-12", ("rails_of_a_node_swapped",), 0)
    answer = inspected(case.world)
    (cause,) = answer["causes"]
    assert (cause["kind"], cause["subject"]) in case.expected
    assert cause["remedy"].startswith("exchange the two plugs at ")
    assert cause["evidence"][-1].startswith("11 of 12 alike are so: confidence 0.9")
    assert "seen:  11 of 12 alike" in answer["text"]
    assert answer["verdict"] == "fail"
    assert inspected(case.world, fail_on=["fail"])["failed"]


def test_a_guess_is_not_measured_and_fails_nothing(inspected):
    case = build("basepod-12", ("node_absent",), 0)
    answer = inspected(case.world, fail_on=["fail"])
    assert answer.get("failed") is None
    assert answer["causes"] == []
    assert [one["status"] for one in answer["doubts"]] == ["not_measured"]
    assert answer["verdict"] == "not_measured"


def test_errors_of_links_are_found_without_a_plan(inspected):
    case = build("basepod-12", ("symbol_errors_at_a_rail",), 0)
    answer = inspected(case.world)
    assert {(one["kind"], one["subject"]) for one in answer["causes"]} == case.expected


UNANSWERED = (
    "ibwarn: [7] dump_perfcounters: query failed on dgx-0001 mlx5_rail0, DR path 0,1 port 1\n"
)
SECOND_MANAGER = "IsSM ports\n\t\tEndPortLid..............7\nIsSMdisabled ports\n"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("ibqueryerrors-2", lambda text: text[:-40], "the answer of ibqueryerrors has no end"),
        ("ibqueryerrors.stderr", lambda _text: UNANSWERED, "the port did not answer"),
        ("saquery", lambda _text: SECOND_MANAGER, "does not say whether it is master"),
    ],
)
def test_what_was_not_read_is_a_complaint(inspected, healthy, name, change, words):
    answer = inspected(healthy, change=(name, change))
    assert (answer["causes"], answer["verdict"]) == ([], "not_measured")
    assert words in " ".join(answer["complaints"])
    assert words in " ".join(answer["text"].split())
    assert "; 0 not measured" not in answer["summary"]["text"]


def test_a_saved_sweep_with_one_reading_is_whole(inspected, healthy, tmp_path):
    seen, _errors = healthy.reached()
    saved = {"ibnetdiscover": discovery_text(seen), "ibqueryerrors": healthy.counters({}, seen)}
    for name, text in saved.items():
        (tmp_path / name).write_text(text)
    files = {name: str(tmp_path / name) for name in saved}
    answer = inspected(healthy, sweep_files=files, interval_s=0)
    assert (answer["complaints"], answer["verdict"]) == ([], "pass")


def test_a_guess_is_no_complaint(inspected):
    assert inspected(build("basepod-12", ("node_absent",), 0).world)["complaints"] == []


def test_check_mode_writes_nothing(inspected, healthy, tmp_path):
    answer = inspected(healthy, check=True, output=str(tmp_path / "out"))
    assert answer["files"] == []
    assert not (tmp_path / "out").exists()


def test_a_saved_answer_that_was_cut_off_is_refused(inspected, healthy):
    answer = inspected(healthy, share=0.5, fail_on=["fail", "not_measured"])
    assert answer["failed"]
    assert "save it again" in answer["msg"]


def test_a_file_that_holds_no_fabric_is_refused(inspected, healthy, tmp_path):
    answer = inspected(healthy, share=0.0)
    assert answer["failed"]
    assert "holds no device of a fabric" in answer["msg"]


def test_a_host_without_a_fabric_has_a_line_that_names_the_tool(run_module, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    answer = run_module(fabric_inspect.main, {"interval_s": 0}, False)
    assert answer["failed"]
    assert answer["msg"].startswith("no fabric was seen (ibnetdiscover: ")
    assert "with infiniband-diags" in answer["msg"]
