# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module from end to end: this host pretends to be all nodes, a stand-in to be ib_write_bw."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import plan_to_data
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs import run as _pairs_run
from ansible_collections.baremetal.dgx.plugins.modules.fabric_pairs import main

UNIT = ROOT / "tests" / "unit"

from pair_plans import small_plan  # noqa: E402

pytestmark = pytest.mark.slow

PLAN = small_plan(nodes=4, rails=1, units=1, spines=0)


@pytest.fixture(autouse=True)
def ports_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run side by side, and all their nodes are this host."""
    monkeypatch.setattr(_pairs_run, "_FIRST_PORT", 20000 + os.getpid() % 100 * 100)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of a run on four nodes with one rail."""
    for node, rail in PLAN.hcas:
        (tmp_path / "sys" / node / f"class/infiniband/mlx5_rail{rail}").mkdir(parents=True)
    state(tmp_path, {})
    monkeypatch.setenv("FABRIC_PAIRS_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("PATH", f"{UNIT / 'fixtures' / 'pairs'}:{os.environ['PATH']}")
    return {
        "plan": plan_to_data(PLAN),
        "output": str(tmp_path / "out"),
        "routes": "computed",
        "transport": "local",
        "addresses": {node: "127.0.0.1" for node, _rail in PLAN.hcas},
        "sysfs_root": f"{tmp_path}/sys/{{node}}",
        "duration_s": 3,
        "pairs_per_link": 2,
    }


def state(tmp_path: Path, values: dict[str, Any]) -> None:
    (tmp_path / "state.json").write_text(json.dumps(values))


def slow(node: str) -> dict[str, float]:
    """All ways from and to a node at half the rate, but not that inside its adapter."""
    nodes = sorted({name for name, _rail in PLAN.hcas} - {node})
    ways = [(node, other) for other in nodes] + [(other, node) for other in nodes]
    return {f"{a}/mlx5_rail0>{b}/mlx5_rail0": 195.0 for a, b in ways}


def test_check_mode_shows_the_schedule(run_module, site, tmp_path) -> None:
    answer = run_module(main, site, check=True)
    assert not answer.get("failed")
    assert answer["schedule"]["rounds"] == len(answer["rounds"]) == 3
    assert sorted(answer["rounds"][0]) == [f"dgx-0{number} alone" for number in (1, 2, 3, 4)]
    assert answer["verdict"] == "not_measured"
    assert not (tmp_path / "out").exists()


def test_a_good_fabric_passes_and_a_bad_cable_is_found(run_module, site, tmp_path) -> None:
    site["loopback"] = False
    answer = run_module(main, site)
    assert not answer.get("failed"), answer
    assert answer["verdict"] == "pass"
    assert not answer["findings"]
    assert answer["follow_ups"] == 0
    # The complete run is kept when the next one begins.
    state(tmp_path, {"figures": slow("dgx-03")})
    answer = run_module(main, site)
    # Adapter and cable were alike until the adapter had sent to itself.
    assert answer["follow_ups"] == 1
    assert len((tmp_path / "out" / "pairs.follow-up-1.jsonl").read_text().splitlines()) == 5
    assert (tmp_path / "out" / "pairs.jsonl.1").exists()
    assert answer["failed"]
    assert answer["counts"]["fail"] == 1
    assert answer["msg"].startswith(
        "cable:dgx-03/rail0--leaf-10/3 fabric.pairs.part is 195.0 Gb/s "
    )
    again = run_module(main, {**site, "judge_only": True, "fail_on": ["not_measured"]})
    assert not again.get("failed")
    assert again["findings"] == answer["findings"]
    records = json.loads((tmp_path / "out" / "pairs-records.json").read_text())
    assert {record["status"] for record in records} == {"pass", "fail"}
    # A threshold of the site judges the same values otherwise, and keeps its source.
    lower = {"threshold_gbps": 100.0, "threshold_source": "contract", "fail_on": ["not_measured"]}
    other = run_module(main, {**site, **lower, "judge_only": True})
    assert "They reach the threshold, but not what the others do." in other["findings"][0]


def test_on_ethernet_each_leaf_is_measured_for_itself(run_module, site, tmp_path) -> None:
    """Two leaves and a spine: no flow crosses it, and a slow cable has its name all the same."""
    plan = small_plan(nodes=8, rails=1, units=2, spines=1)
    for node, rail in plan.hcas:
        device = tmp_path / "sys" / node / f"class/infiniband/mlx5_rail{rail}"
        device.mkdir(parents=True, exist_ok=True)
    site |= {
        "plan": plan_to_data(plan),
        "routes": "one_switch",
        "cross_rail": False,
        "addresses": {node: "127.0.0.1" for node, _rail in plan.hcas},
        "extra_arguments": ["-x", "3"],
    }
    ways = [("dgx-06", other) for other in ("dgx-05", "dgx-07", "dgx-08")]
    ways += [(two, one) for one, two in ways]
    state(tmp_path, {"figures": {f"{a}/mlx5_rail0>{b}/mlx5_rail0": 195.0 for a, b in ways}})
    answer = run_module(main, site)
    assert answer["routes"]["source"] == "within each leaf switch"
    failed = [one["subject"] for one in answer["records"] if one["status"] == "fail"]
    assert failed == ["cable:dgx-06/rail0--leaf-20/2"]
    (line,) = answer["findings"]
    assert "The routes are" not in line
    # Cables between switches have no record: they neither pass nor fail.
    assert not [one for one in answer["records"] if "spine" in one["subject"]]


def test_what_was_not_measured_is_red_unless_allowed(run_module, site, tmp_path) -> None:
    state(tmp_path, {"port_down": ["dgx-03/mlx5_rail0"]})
    answer = run_module(main, {**site, "loopback": False})
    assert answer["failed"]
    assert answer["verdict"] == "not_measured"
    assert answer["counts"]["fail"] == 0
    unmeasured = {record["subject"] for record in answer["records"]}
    assert unmeasured == {"hca:dgx-03/rail0", "cable:dgx-03/rail0--leaf-10/3"}
    allowed = run_module(main, {**site, "judge_only": True, "fail_on": ["fail"]})
    assert not allowed.get("failed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        # An adapter that turns its own data round shows nothing about a cable.
        (
            {"exclude": ["dgx-02", "dgx-03", "dgx-04"]},
            "pairs: of the plan's nodes dgx-01 is left, and a pair needs two; write fewer nodes",
        ),
        (
            {"plan": {"hcas": []}},
            "plan is not a cable plan (KeyError: 'switches'); give cables.json",
        ),
        (
            {"plan": plan_to_data(small_plan(0))},
            "plan: has no cable to a node; there is nothing to test",
        ),
        ({"duration_s": 2}, "duration_s: 2 is too short; write 3 or more"),
        ({"pairs_per_link": 0}, "pairs_per_link: 0; write 1 or more"),
        (
            {"exclude": ["dgx-99"]},
            "exclude: dgx-99 is neither a node of the plan nor a rail such as",
        ),
        ({"gpus": {"x": 1}}, "gpus.x: 1; write a rail and the number of its GPU"),
        ({"judge_only": True}, "/out/schedule.json is not a schedule of a run: "),
        ({"routes": "auto", "tables_file": "/nowhere"}, "tables_file: /nowhere cannot be read: No"),
    ],
)
def test_wrong_options_are_told(run_module, site, tmp_path, options, message) -> None:
    answer = run_module(main, {**site, **options})
    assert answer["failed"]
    assert message in answer["msg"]
    assert "\n" not in answer["msg"]
    assert not (tmp_path / "out").exists()


def test_tables_that_are_cut_off_are_an_error(run_module, site, tmp_path) -> None:
    path = tmp_path / "tables.txt"
    path.write_text(
        "Unicast lids [0x0-0x2] of switch Lid 1 guid 0x02d6da47522b0e12 (leaf-10):\n"
        "  Lid  Out   Destination\n       Port     Info \n"
        "0x0002 001 : (Channel Adapter portguid 0x02d6cd654dde5589: 'dgx-01 mlx5_rail0')\n"
    )
    answer = run_module(main, {**site, "routes": "tables", "tables_file": str(path)})
    assert answer["msg"] == "forwarding tables: the table of leaf-10 has no end; dump them again"


def test_no_tables_to_be_had(run_module, site, tmp_path, monkeypatch) -> None:
    tool = tmp_path / "bin" / "dump_fts"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "can\'t open MAD port ((null):0)" >&2\nexit 255\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    why = "`dump_fts` ended with 255: can't open MAD port ((null):0)"
    answer = run_module(main, {**site, "routes": "tables"})
    assert answer["msg"] == (
        f"routes: no forwarding tables: {why}; give tables_file, or routes: auto"
    )
    answer = run_module(main, {**site, "routes": "auto"}, check=True)
    assert answer["routes"] == {"source": "computed from the plan", "why": why, "problems": []}
