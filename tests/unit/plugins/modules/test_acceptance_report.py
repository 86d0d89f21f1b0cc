# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module acceptance_report on a store of a made-up cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence_store import Store
from ansible_collections.baremetal.dgx.plugins.modules import acceptance_report

sys.path.insert(0, str(Path(__file__).parents[1] / "module_utils"))

import report_world as world


@pytest.fixture
def report(run_module, tmp_path):
    world.fill(Store(str(tmp_path / "evidence")), 4, True)
    login = {"name": "login-01", "groups": ["login_nodes"], "state": "present"}
    (tmp_path / "plan.json").write_text(json.dumps({"nodes": [*world.plan(4), login]}))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("9000 products\n")

    def run(check=False, **params):
        options = {
            "evidence": str(tmp_path / "evidence"),
            "plan": str(tmp_path / "plan.json"),
            "output": str(tmp_path / "report"),
            "cluster": "demo",
            **params,
        }
        return run_module(acceptance_report.main, options, check)

    run.folder = tmp_path / "report"
    return run


def test_three_files_that_agree(report):
    result = report()
    assert result["verdict"] == "fail"
    # What fails is the cluster, not the task.
    assert "failed" not in result
    assert result["summary"]["nodes"] == {"pass": 2, "fail": 1, "not_measured": 1}
    assert result["failing"] == [
        "gpu:dgx-03/4 burn.gemm_bf16",
        "cable:dgx-02/rail1--leaf-0-1/2 fabric.cable",
    ]
    assert sorted(path.name for path in report.folder.iterdir()) == [
        "junit.xml", "report.html", "report.json",
    ]  # fmt: skip
    data = json.loads((report.folder / "report.json").read_text())
    assert data["gate"] == result["gate"]
    assert [one["node"] for one in result["gate"]] == world.names(4)
    assert "row 17 column 4711" in (report.folder / "report.html").read_text()


def test_check_mode_writes_nothing(report):
    assert report(check=True)["verdict"] == "fail"
    assert not report.folder.exists()


def test_without_a_plan_the_nodes_are_those_with_records(report):
    assert len(report(plan=None)["gate"]) == 4


def test_marks_are_judged_again(report):
    again = report(marks={"burn.rate_bf16": 660})
    assert "gpu:dgx-04/2 burn.rate_bf16" in again["failing"]
    assert "cannot be compared" in report(marks={"burn.rate_bf16": "fast"})["msg"]


def test_no_secret_is_in_any_file(report, tmp_path):
    report()
    assert "9000 products" not in (report.folder / "report.html").read_text()
    report(secrets=str(tmp_path / "secrets"), marks={"burn.gemm_bf16": -1})
    for path in report.folder.iterdir():
        assert "9000 products" not in path.read_text()
    assert "[hidden]" in (report.folder / "report.html").read_text()


def test_no_evidence_is_no_pass(report, tmp_path):
    result = report(evidence=str(tmp_path / "nothing"))
    assert result["verdict"] == "not_measured"
    assert result["summary"]["nodes"]["not_measured"] == 4
