# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module evidence: begin, add, and what it refuses."""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import PASS, Record
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading
from ansible_collections.baremetal.dgx.plugins.modules import evidence_add

RECORD = Record("gpu.ecc", "gpu:n/0", PASS).as_data()


@pytest.fixture
def keep(run_module, tmp_path):
    def run(check=False, **params):
        return run_module(
            evidence_add.main, {"folder": str(tmp_path / "evidence"), **params}, check
        )

    return run


def test_begin_and_add(keep, tmp_path):
    run = keep(state="begun", playbook="validate_nodes")["run"]
    file = tmp_path / "n.json"
    file.write_text(json.dumps({"records": [RECORD], "level": "quick"}))
    result = keep(
        run=run,
        scope="n",
        records=[RECORD],
        records_files=[str(file)],
        raw_files=[str(file), str(tmp_path / "gone.txt")],
        level="quick",
    )
    assert (result["records"], result["raw"]) == (2, ["n/n.json"])
    assert any("gone.txt" in line for line in result["warnings"])
    assert (tmp_path / "evidence/runs" / run / "raw/n/n.json").read_text() == file.read_text()


def test_readings_of_links_are_kept_beside_the_records(keep, tmp_path):
    run = keep(state="begun", playbook="validate_nodes")["run"]
    good, bad = LinkReading(at=int(time.time()) - 60, rail=3, serial="S1").as_line(), ["x"]
    file = tmp_path / "n.json"
    file.write_text(json.dumps({"records": [RECORD], "links": [good, bad]}))
    result = keep(run=run, scope="n", records_files=[str(file)])
    assert any("another number of values" in line for line in result["warnings"])
    keep(run=run, scope="n", records_files=[str(file)])
    folder = tmp_path / "evidence" / "links"
    assert [path.name for path in folder.iterdir()] == ["n.jsonl"]
    assert len((folder / "n.jsonl").read_text().splitlines()) == 1


def test_a_file_of_a_node_has_what_stands_beside_its_records_and_what_is_asked_no_more(
    keep, tmp_path
):
    """Of a layer without records, the batch of before has what stands."""
    run = keep(state="begun", playbook="validate_nodes")["run"]
    stands = [
        {**Record(check, "gpu:n/3", "fail", at="2026-03-01T00:00:00Z").as_data(),
         "asked_level": "burn_in"}
        for check in ("dcgm.targeted_stress", "burn.gemm")
    ]  # fmt: skip
    passed = Record("dcgm.memory", "gpu:n/3", PASS).as_data()
    file = tmp_path / "n.json"
    content = {"records": [RECORD, passed], "standing": stands, "ended": ["fio"]}
    file.write_text(json.dumps(content))
    assert keep(run=run, scope="n", records_files=[str(file)])["records"] == 3
    lines = (tmp_path / "evidence/runs" / run / "records.jsonl").read_text().splitlines()
    head, *records = [json.loads(line) for line in lines[:-1]]
    assert (head["layers"], head["ended"]) == (["dcgm", "gpu"], ["fio"])
    assert head["not_pass"] == [["dcgm.targeted_stress", "gpu:n/3", "fail"]]
    assert records[-1]["record"]["at"] == "2026-03-01T00:00:00Z"
    assert "asked_level" not in records[-1]["record"]


def test_records_of_many_nodes_are_a_batch_for_each(keep, tmp_path):
    """So that a run of one node does not hide what is known of the others."""
    run = keep(state="begun", playbook="validate_bmc")["run"]
    given = [Record("bmc.power", f"node:{name}", PASS).as_data() for name in ("a", "b", "a")]
    given.append(Record("fabric.cable", "cable:a/rail0--leaf/1", PASS).as_data())
    assert keep(run=run, by_node=True, records=given)["records"] == 4
    lines = (tmp_path / "evidence/runs" / run / "records.jsonl").read_text().splitlines()
    heads = [json.loads(line) for line in lines if '"scope"' in line]
    assert [head["scope"] for head in heads] == ["a", "b", "fabric"]


def group(check, subject, status, text=""):
    return Record(check, subject, status, text, at="2026-03-01T00:00:00Z").as_data()


def test_what_a_held_node_failed_stands_until_it_is_measured(keep, tmp_path):
    run, folder = keep(state="begun", playbook="validate_fabric")["run"], tmp_path / "failures"

    def add(*records):
        keep(run=run, records=list(records), failures=str(folder))
        lines = (tmp_path / "evidence/runs" / run / "records.jsonl").read_text().splitlines()
        head = [json.loads(line) for line in lines if '"kind":"batch"' in line][-1]
        return [tuple(one) for one in head["not_pass"]]

    culprit = ("groups.culprit", "node:a")
    assert add(group(*culprit, "fail")) == [(*culprit, "fail")]
    # Held, it takes no part; the report shows both.
    left_out = ("groups.node", "node:a", "not_measured")
    for _week in range(2):
        assert add(group(*left_out)) == [left_out, (*culprit, "fail")]
    # Pairs show nothing about groups, and have their own.
    cable = ("fabric.pairs.part", "cable:a/rail0--leaf/1")
    assert add(group(*cable, "fail")) == [(*cable, "fail")]
    known = json.loads((folder / "a.json").read_text())
    assert {subject: [one["check"] for one in some] for subject, some in known.items()} == {
        "node:a": ["groups.culprit"], cable[1]: ["fabric.pairs.part"],
    }  # fmt: skip
    assert add(group(*culprit, "pass")) == []
    assert add(group(*cable, "pass")) == []
    assert json.loads((folder / "a.json").read_text()) == {}


def test_a_failed_file_of_failures_is_named(keep, tmp_path):
    run, path = keep(state="begun", playbook="validate_fabric")["run"], tmp_path / "failures/a.json"
    path.parent.mkdir()
    for text, why in (("{", "not JSON"), ('{"node:a": [3]}', "is not a list of failures")):
        path.write_text(text)
        result = keep(run=run, records=[RECORD], failures=str(path.parent))
        assert f"{path}" in result["msg"]
        assert why in result["msg"]


def test_what_was_replaced_is_not_measured_once(keep, tmp_path):
    options = {"state": "replaced", "playbook": "replace_node", "scope": "n", "replaced": ["gpu:0"]}
    assert not keep(**options)["changed"]
    run = keep(state="begun", playbook="validate_nodes")["run"]
    others = [Record("bmc.power", "node:n", PASS).as_data()]
    keep(run=run, scope="n", level="quick", records=[RECORD, *others])
    assert keep(check=True, **options)["records"] == 2
    result = keep(**options)
    assert result["changed"]
    lines = (tmp_path / "evidence/runs" / result["run"] / "records.jsonl").read_text().splitlines()
    found = [json.loads(line)["record"] for line in lines if '"kind":"record"' in line]
    assert [(one["check"], one["status"], one["remedy"]) for one in found] == [
        ("bmc.replaced", "not_measured", "run validate_bmc"),
        ("gpu.replaced", "not_measured", "run validate_nodes"),
    ]
    assert "gpu:0" in found[0]["text"]
    assert not keep(**options)["changed"]


def test_check_mode_writes_nothing(keep, tmp_path):
    run = keep(check=True, state="begun", playbook="validate_nodes")["run"]
    assert keep(check=True, run=run, records=[RECORD])["records"] == 1
    assert not (tmp_path / "evidence").exists()


def test_a_second_run_tells_what_the_first_left_cut_short(keep, tmp_path):
    run = keep(state="begun", playbook="validate_nodes")["run"]
    keep(run=run, records=[RECORD])
    path = tmp_path / "evidence/runs" / run / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    problems = keep(state="begun", playbook="validate_nodes")["problems"]
    assert any("truncated" in line for line in problems)


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"state": "begun"}, "playbook"),
        ({"state": "begun", "playbook": "../x"}, "letters"),
        ({"records": [RECORD]}, "run"),
        ({"run": "../../etc", "records": [RECORD]}, "not a name of a run"),
        ({"run": "20260301T000000Z-x", "records": [RECORD]}, "no such run"),
    ],
)
def test_what_is_refused(keep, params, word):
    result = keep(**params)
    assert result["failed"]
    assert word in result["msg"]


def test_what_is_no_record_is_refused(keep):
    run = keep(state="begun", playbook="validate_nodes")["run"]
    for check in (False, True):
        assert "not a record" in keep(check, run=run, records=[{"check": "a"}])["msg"]
    bad = {**RECORD, "status": "fine"}
    assert "not a record" in keep(run=run, records=[bad])["msg"]
