# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""fabric_verify with tools that print what a broken fabric would say, hang, crash or are gone."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from ansible.module_utils import basic

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "tests" / "fabric"))

from library import build, fresh

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import plan_to_data
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_netlist import (
    discovery_text,
    states_text,
)
from ansible_collections.baremetal.dgx.plugins.modules import fabric_verify

TOOLS = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "saquery")
# Counts its calls, so that the second reading may differ from the first.
TOOL = """\
#!/bin/sh
folder={folder}/answers
count=$(cat "$folder/{name}.calls" 2>/dev/null || echo 0)
echo $((count + 1)) > "$folder/{name}.calls"
echo "$LD_PRELOAD$POD_FABRIC" > "$folder/{name}.environment"
for file in "$folder/{name}-$((count + 1))" "$folder/{name}"; do
  if [ -e "$file" ]; then cat "$file"; break; fi
done
[ ! -e "$folder/{name}.err" ] || cat "$folder/{name}.err" >&2
{ending}
"""


def answers_of(world) -> dict[str, str]:
    seen, errors = world.reached()
    observed = world.observe()
    masters = [sm for sm in observed.sms.sms if sm.state == "MASTER"]
    sm = masters[0] if masters else None
    lids = "".join(
        f"PortInfoRecord dump:\n\t\tEndPortLid..............{sm.lid}\n" for sm in masters
    )
    return {
        "ibnetdiscover": discovery_text(seen),
        "ibnetdiscover.err": "\n".join(errors),
        "iblinkinfo": states_text(seen),
        "ibqueryerrors-1": world.counters(world.before, seen),
        "ibqueryerrors-2": world.counters(world.after, seen),
        "sminfo": f"sminfo: sm lid {sm.lid} sm guid 0x{sm.guid}, activity count 7 priority 0 "
        "state 3 SMINFO_MASTER\n"
        if sm
        else "sminfo: iberror: failed: query\n",
        "saquery": f"IsSM ports\n{lids}\nIsSMdisabled ports\n",
    }


@pytest.fixture
def verify(run_module, tmp_path, monkeypatch):
    """`verify(world, endings={tool: shell text}, without=[tool], **options)`."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    # Tools of the machine that runs the tests do not count, if it has them.
    find = basic.AnsibleModule.get_bin_path

    def only_ours(self, name, *args, **kwargs):
        ours = tmp_path / "bin" / name
        if name in TOOLS:
            return str(ours) if ours.exists() else None
        return find(self, name, *args, **kwargs)

    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", only_ours)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)

    def run(world, endings=None, without=(), check=False, **params):
        for folder in ("bin", "answers"):
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
            (tmp_path / folder).mkdir()
        for name, text in answers_of(world).items():
            (tmp_path / "answers" / name).write_text(text)
        for name in TOOLS:
            ending = (endings or {}).get(name, "")
            path = tmp_path / "bin" / name
            path.write_text(TOOL.format(folder=tmp_path, name=name, ending=ending))
            path.chmod(0o755)
        for name in without:
            (tmp_path / "bin" / name).unlink()
        if "plan_file" not in params and "plan" not in params:
            params["plan"] = plan_to_data(world.plan)
        params.setdefault("interval_s", 0.01)
        return run_module(fabric_verify.main, {"timeout_s": 5, **params}, check)

    return run


@pytest.fixture
def healthy():
    world = fresh("basepod-12")
    world.start = world.key_of["dgx-0001", 0]
    world.sms = {"dgx-0001": "MASTER"}
    return world


def test_a_healthy_fabric_passes(verify, healthy, tmp_path):
    answer = verify(healthy, output=str(tmp_path / "out"), subnet_managers=["dgx-0001"])
    assert answer.get("failed") is None, answer["msg"]
    assert answer["changed"] is False
    assert answer["verdict"] == "pass"
    assert (answer["findings"], answer["not_measured"], answer["complaints"]) == ([], [], [])
    assert answer["summary"]["cables"] == {"pass": 112, "fail": 0, "not_measured": 0}
    names = {os.path.relpath(path, tmp_path / "out") for path in answer["files"]}
    assert {"records.json", "findings.txt", "fabric.svg", "raw/ibnetdiscover.txt"} <= names
    data = json.loads((tmp_path / "out" / "records.json").read_text())
    assert len([rec for rec in data["records"] if rec["check"] == "fabric.cable"]) == 112
    # the gate lets no node in on records without a time
    assert len({rec["at"] for rec in data["records"]}) == 1
    assert data["records"][0]["at"].endswith("Z")
    assert not [path for path in (tmp_path / "out").rglob("*") if ".new-" in path.name]


def test_a_fault_fails_the_task_with_the_whole_text(verify, tmp_path):
    case = build("basepod-12", ("rails_of_a_node_swapped", "node_mute"), 1)
    places = {"dgx-0007": {"rack": "r03", "rack_unit": 4}}
    answer = verify(case.world, places=places, output=str(tmp_path / "out"))
    assert answer["failed"]
    assert {(found["kind"], found["subject"]) for found in answer["findings"]} == case.expected
    assert answer["msg"] == (tmp_path / "out" / "findings.txt").read_text()
    assert "exchange the two plugs" in " ".join(answer["msg"].split())
    assert answer["verdict"] == "fail"
    green = verify(case.world, findings_ok=True, not_measured_ok=True)
    assert green.get("failed") is None
    assert len(green["findings"]) == 2


def test_check_mode_judges_and_writes_nothing(verify, tmp_path):
    case = build("basepod-12", ("rail_missing",), 1)
    answer = verify(case.world, check=True, output=str(tmp_path / "out"))
    assert answer.get("failed") is None
    assert len(answer["findings"]) == 1
    assert not (tmp_path / "out").exists()


def test_counters_are_judged_by_their_growth(verify):
    case = build("basepod-12", ("link_went_down",), 1)
    answer = verify(case.world)
    assert {(found["kind"], found["subject"]) for found in answer["findings"]} == case.expected
    once = verify(case.world, interval_s=0)
    assert once.get("failed") is None, once["msg"]
    assert once["verdict"] == "pass"
    interval = [rec for rec in once["records"] if rec["check"] == "fabric.interval"]
    assert interval[0]["status"] == "not_measured"


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("ibnetdiscover", {"without": ["ibnetdiscover"]}),
        ("ibnetdiscover", {"endings": {"ibnetdiscover": "sleep 60"}, "timeout_s": 0.4}),
        ("ibnetdiscover", {"endings": {"ibnetdiscover": "kill -SEGV $$"}}),
        ("ibqueryerrors", {"endings": {"ibqueryerrors": "kill -SEGV $$"}}),
        ("sminfo", {"without": ["sminfo"]}),
    ],
)
def test_a_tool_that_fails_is_not_the_fabric_s_fault(verify, healthy, name, broken):
    answer = verify(healthy, **broken)
    assert answer["failed"]
    assert answer["verdict"] == "not_measured"
    assert answer["findings"] == []
    tools = {rec["subject"] for rec in answer["records"] if rec["check"] == "fabric.tool"}
    assert f"tool:{name}" in tools
    assert "Traceback" not in json.dumps(answer)
    assert verify(healthy, **broken, not_measured_ok=True).get("failed") is None


def test_without_the_states_of_ports_no_cable_is_condemned(verify):
    case = build("basepod-12", ("uplink_dark",), 1)
    answer = verify(case.world, without=["iblinkinfo"])
    assert answer["failed"]
    assert answer["findings"] == []
    assert {(item["kind"], item["subject"]) for item in answer["not_measured"]} == case.expected
    assert answer["complaints"][0].startswith("states of ports are not known")


def test_states_are_asked_for_only_where_a_cable_is_missing(verify, healthy, tmp_path):
    verify(healthy)
    assert not (tmp_path / "answers" / "iblinkinfo.calls").exists()
    verify(build("basepod-12", ("rail_missing",), 1).world)
    assert (tmp_path / "answers" / "iblinkinfo.calls").read_text() == "1\n"


def test_the_environment_is_that_of_the_tools(verify, healthy, tmp_path):
    verify(healthy, tool_environment={"POD_FABRIC": "pretended"})
    said = (tmp_path / "answers" / "ibnetdiscover.environment").read_text()
    assert said == "pretended\n"


def test_saved_answers_are_judged(verify, tmp_path):
    case = build("basepod-12", ("uplink_at_two_lanes", "symbol_errors_at_a_rail"), 1)
    saved = verify(case.world, output=str(tmp_path / "out"))
    files = {
        name: str(tmp_path / "out" / "raw" / f"{name}.txt")
        for name in ("ibnetdiscover", "ibqueryerrors", "ibqueryerrors-2")
    }
    again = verify(case.world, sweep_files=files, interval_s=720, without=TOOLS)
    found = {(item["kind"], item["subject"]) for item in again["findings"]}
    assert found == {(item["kind"], item["subject"]) for item in saved["findings"]} == case.expected


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: text.index("vendid", len(text) // 3)], "cut off"),
        (lambda text: text[: len(text) // 3], "cannot be read"),
        (lambda text: "", "holds no device"),
        (lambda text: text.replace("dgx-", "gpu-").replace("leaf", "edge"), "another fabric"),
    ],
)
def test_bad_sweeps_are_one_clear_error_and_nothing_is_written(
    verify, healthy, tmp_path, spoil, said
):
    path = tmp_path / "sweep.txt"
    path.write_text(spoil(answers_of(healthy)["ibnetdiscover"]))
    out = tmp_path / "out"
    answer = verify(healthy, sweep_files={"ibnetdiscover": str(path)}, output=str(out))
    assert answer["failed"]
    assert said in answer["msg"]
    assert "\n" not in answer["msg"]
    assert not out.exists()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({}, "is no cable plan (KeyError: 'hcas'); give cables.json"),
        ({"hcas": [1], "switches": [], "cables": []}, "is no cable plan (TypeError"),
        ({"hcas": [], "switches": [], "cables": [], "reserved": []}, "has no cables"),
    ],
)
def test_bad_plans_are_one_clear_error(verify, healthy, plan, said):
    answer = verify(healthy, plan=plan)
    assert answer["failed"]
    assert said in answer["msg"]


def test_bad_files_are_one_clear_error(verify, healthy, tmp_path):
    (tmp_path / "plan.json").write_text("{")
    for params, said in (
        ({"plan_file": str(tmp_path / "plan.json")}, "is no JSON"),
        ({"plan_file": str(tmp_path / "none.json")}, "cannot be read: No such file"),
        ({"sweep_files": {}}, "ibnetdiscover is missing"),
        ({"sweep_files": {"ibnetdiscover": "/none"}}, "sweep_files.ibnetdiscover: /none cannot"),
        ({"places": {"dgx-0001": "r01"}}, "places.dgx-0001: is 'r01'; write rack and rack_unit"),
        ({"output": str(tmp_path / "plan.json")}, "cannot be written"),
    ):
        answer = verify(healthy, **params)
        assert answer["failed"], params
        assert said in answer["msg"]


def test_a_reference_is_learned_and_then_holds(verify, healthy, tmp_path):
    path = tmp_path / "learned" / "cables.csv"
    answer = verify(healthy, learn=str(path), interval_s=0)
    assert answer.get("failed") is None, answer["msg"]
    assert answer["information"][0] == "112 cables were learned"
    lines = path.read_text().splitlines()
    assert len([line for line in lines if line and line[0] != "#"]) == 112 + 1
    case = build("basepod-12", ("rail_mute",), 1)
    refused = verify(case.world, learn=str(tmp_path / "other.csv"), interval_s=0)
    assert refused["failed"]
    assert not (tmp_path / "other.csv").exists()
