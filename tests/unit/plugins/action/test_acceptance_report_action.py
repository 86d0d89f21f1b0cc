# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""acceptance_report on a store of a made-up cluster: what it makes, and as a play runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import report_world as world
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from wiring import ROOT, example, write

from ansible_collections.baremetal.dgx.plugins.action.acceptance_report import make_in_time
from ansible_collections.baremetal.dgx.plugins.module_utils._core import hang
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.links import LinkStore
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.link_reading import LinkReading
from ansible_collections.baremetal.dgx.plugins.modules.acceptance_report import ARGUMENTS


def made(options, write=True):
    """What the task returns with these options, and the others' defaults."""
    found = ArgumentSpecValidator(ARGUMENTS).validate(options)
    assert found.error_messages == []
    return make_in_time(found.validated_parameters, write)


@pytest.fixture
def report(tmp_path):
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
        return made(options, write=not check)

    run.folder = tmp_path / "report"
    return run


def test_a_secret_of_a_vault_is_taken_out(report):
    report(secret_values=["row 17 column 4711"])
    for path in report.folder.iterdir():
        assert "row 17 column 4711" not in path.read_text()


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


def test_links_that_will_fail_are_told_and_fail_nothing(report, tmp_path):
    before = report()
    assert before["trends"].startswith("trends: no link was ever read")
    now = int(time.time())
    store = LinkStore(str(tmp_path / "evidence"))
    for node in range(3):
        lines = [
            LinkReading(
                at=now - (14 - day) * 86400 - 60, rail=rail, serial=f"S{node}{rail}", part="DR4",
                rx_dbm=(2 - max(0, day - 4) * 0.9 * ((node, rail) == (1, 2)),), rx_low_dbm=-9.9,
            ).as_line()
            for day in range(15)
            for rail in range(4)
        ]  # fmt: skip
        assert store.add(f"dgx-0{node + 1}", lines, now) == []
    after = report()
    assert after["trends"] == "trends of 12 links: 1 will fail (cable:S12); 0 not measured"
    assert after["will_fail"] == ["cable:S12"]
    for name in ("verdict", "summary", "failing"):
        assert after[name] == before[name]
    assert "cable:S12" in (report.folder / "report.html").read_text()
    assert json.loads((report.folder / "report.json").read_text())["trends"]["judged"] == 12
    assert report(fabric=False)["trends"] == ""


def test_check_mode_writes_nothing(report):
    assert report(check=True)["verdict"] == "fail"
    assert not report.folder.exists()


def test_without_a_plan_the_nodes_are_those_with_records(report):
    assert len(report(plan=None)["gate"]) == 4


def test_thresholds_are_judged_again(report):
    again = report(thresholds={"burn.rate_bf16": 660})
    assert "gpu:dgx-04/2 burn.rate_bf16" in again["failing"]
    assert "cannot be compared" in report(thresholds={"burn.rate_bf16": "fast"})["msg"]


def test_a_check_that_no_record_has_is_a_warning(report, tmp_path):
    known = report(thresholds={"burn.rate_bf16": 660}, fleet_failing=["burn.rate_bf16"])
    assert known["warnings"] == []
    unknown = report(thresholds={"burn.rate_bf": 660}, fleet_failing=["burn.rate_bf16", "zzz.q"])
    assert unknown["warnings"] == [
        (
            "thresholds: no record has a threshold of burn.rate_bf, so nothing was judged by it; "
            "is it burn.rate_bf16?"
        ),
        "fleet_failing: no record has a threshold of zzz.q, so nothing was judged by it",
    ]
    nothing = report(evidence=str(tmp_path / "nothing"), thresholds={"burn.rate_bf": 660})
    assert nothing["warnings"] == []


def test_no_secret_is_in_any_file(report, tmp_path):
    report()
    assert "9000 products" not in (report.folder / "report.html").read_text()
    report(secrets=str(tmp_path / "secrets"), thresholds={"burn.gemm_bf16": -1})
    for path in report.folder.iterdir():
        assert "9000 products" not in path.read_text()
    assert "[hidden]" in (report.folder / "report.html").read_text()


def test_no_evidence_is_no_pass(report, tmp_path):
    result = report(evidence=str(tmp_path / "nothing"))
    assert result["verdict"] == "not_measured"
    assert result["summary"]["nodes"]["not_measured"] == 4


def test_a_store_on_a_mount_that_hangs_is_given_up(hung_mount, monkeypatch):
    real = hang.parts_of
    monkeypatch.setattr(hang, "parts_of", lambda work, _limit_s: real(work, 0.5))
    begun = time.monotonic()
    result = made({"evidence": f"{hung_mount}/evidence", "output": "/nonexistent/report"}, False)
    assert time.monotonic() - begun < 15
    assert (result["failed"], result["hung"]) == (True, True)
    assert f"{hung_mount} (fuse.hung, storage:/dead) does not answer" in result["msg"]


def test_what_cannot_be_read_or_written_is_said(report, tmp_path):
    assert "No such file" in report(plan=str(tmp_path / "no.json"))["msg"]
    (tmp_path / "report").write_text("a file")
    assert report()["failed"] is True
    (tmp_path / "plan.json").write_text("no plan, but hunter2-of-a-vault")
    result = report(
        secret_values=["hunter2-of-a-vault"], thresholds={"burn.rate_bf16": "hunter2-of-a-vault"}
    )
    assert result["failed"] is True
    assert "hunter2" not in result["msg"]


PLAY = """
- hosts: all
  gather_facts: false
  vars:
    words: [row 17, column 4711]
    empty:
  tasks:
    - name: Make the report
      baremetal.dgx.acceptance_report:
        evidence: "{{ inventory_dir }}/evidence"
        plan: "{{ empty or omit }}"
        output: "{{ folder }}"
        cluster: "{{ 'de' ~ 'mo' }}"
        fabric: "{{ words | length > 1 }}"
        thresholds: "{{ {'burn.rate_bf16': 660} }}"
        most_share: "{{ 1 / 4 }}"
        states: "{{ {'dgx-01': {'state': 'DRAIN', 'reason': words | first}} }}"
        tables: "{{ {'Expected': [['links', 3.5], words]} }}"
        versions: {ansible-core: "{{ ansible_version.full }}"}
        secret_values: "{{ [words | join(' ')] }}"
      register: made
      run_once: true
    - name: Show it
      ansible.builtin.copy:
        content: "{{ made | to_json }}"
        dest: "{{ inventory_dir }}/made.json"
        mode: "0600"
      delegate_to: localhost
      run_once: true
      check_mode: false
"""


@pytest.mark.slow
@pytest.mark.parametrize("check", [False, True])
def test_as_a_play_runs_it(tmp_path, check):
    """No connection is opened: the host of the play cannot be reached."""
    world.fill(Store(str(tmp_path / "evidence")), 4, True)
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "hosts").write_text("far.invalid ansible_connection=ssh\n")
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            f"--inventory={tmp_path}/hosts",
            f"--extra-vars=folder={tmp_path}/report",
            *(["--check"] if check else []),
            str(tmp_path / "play.yml"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), "ANSIBLE_NOCOLOR": "1"},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "made.json").read_text())
    assert (result["changed"], result["verdict"], result["problems"]) == (True, "fail", [])
    assert "gpu:dgx-04/2 burn.rate_bf16" in result["failing"]
    assert (tmp_path / "report").exists() is not check
    if not check:
        page = (tmp_path / "report/report.html").read_text()
        assert "row 17 column 4711" not in page
        for word in ("Acceptance of demo", "Slurm: DRAIN row 17", "<td>3.5</td>", "ansible-core"):
            assert word in page, word
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "report").iterdir()}
        assert modes == {0o640}


@pytest.mark.slow
def test_the_playbook_takes_its_settings_from_the_plan(tmp_path):
    """The report's folder, thresholds and secrets are those of the inventory; no node is asked."""
    inventory = example(tmp_path, "core_12")
    secret = "hunter2-of-a-vault-that-is-long-enough"
    write(
        inventory,
        "group_vars/all/zz.yml",
        {"cluster_report": {"thresholds": {"burn.rate_bf16": 700}}, "slurm_base_key": secret},
    )
    world.fill(Store(str(inventory / ".dgx/evidence")), 4, True)
    (inventory / ".dgx/failures").mkdir()
    (inventory / ".dgx/failures/dgx-01.json").write_text("[")
    states = {"report_states": {"dgx-01": {"state": "DRAIN", "reason": f"key {secret}"}}}
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            f"--inventory={inventory}",
            f"--extra-vars={json.dumps(states)}",
            "--limit=dgx-03",
            str(ROOT / "playbooks/report.yml"),
        ],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache/collections"),
            "ANSIBLE_HOME": str(tmp_path / "home"),
            "ANSIBLE_NOCOLOR": "1",
        },
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = (inventory / ".dgx/report/report.json").read_text()
    report = json.loads(text)
    assert (secret in text, "DRAIN" in text) == (False, True)
    assert len(report["nodes"]) == 12
    assert report["summary"]["fabric"] == "fail"
    assert "the last validate_nodes is " in text
    assert "which failures of pairs and groups stand is not known" in text
    assert ("What to expect" in text, "set in the inventory" in text) == (True, True)
