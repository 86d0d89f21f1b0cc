# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ib_info and ib_health on a tree of a DGX, with a mlxlink that answers, hangs or breaks."""

from __future__ import annotations

import itertools
import json
import os
import time
from types import SimpleNamespace

import pytest
from checkout import FIXTURES
from ib_tree import RAILS, add_hca, dgx

from ansible_collections.baremetal.dgx.plugins.module_utils._ib import link_log
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.read import users_of_verbs
from ansible_collections.baremetal.dgx.plugins.modules import ib_health, ib_info

ANSWER = (FIXTURES / "mlxlink" / "ndr-optical.json").read_text()
WANTED = [{"rail": rail, "pci": f"{bus}:00.0", "rate_gbps": 400} for rail, bus in enumerate(RAILS)]


@pytest.fixture
def health(run_module, tmp_path, monkeypatch):
    """`health(tool, **options)`: `tool` is the shell text of mlxlink, None for no mlxlink."""
    (tmp_path / "answer").write_text(ANSWER)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    dgx(tmp_path / "sys")

    def run(tool=f"cat {tmp_path}/answer", check=False, **params):
        path = tmp_path / "bin" / "mlxlink"
        if tool is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(f"#!/bin/sh\n{tool}\n")
            path.chmod(0o755)
        options = {
            "node": "dgx-01",
            "rails": WANTED,
            "sysfs": str(tmp_path / "sys"),
            "state_file": str(tmp_path / "state" / "ib.json"),
            "link_log": str(tmp_path / "state" / "links.jsonl"),
            "window_s": 0.0,
            **params,
        }
        return run_module(ib_health.main, options, check)

    run.folder = tmp_path
    return run


def test_the_second_run_of_a_healthy_node_passes_everything(health):
    first = health()
    assert first["verdict"] == "not_measured"
    assert len(first["not_measured"]) == 16
    second = health()
    assert second["verdict"] == "pass"
    assert second["findings"] == second["not_measured"] == []
    assert second["changed"] is False
    assert all(record["at"].endswith("Z") for record in second["records"])


def test_a_flap_between_two_runs(health):
    health()
    counter = health.folder / "sys/class/infiniband/mlx5_rail5/ports/1/counters/link_downed"
    counter.write_text("1\n")
    answer = health()
    assert answer["failed"]
    assert len(answer["findings"]) == 1
    assert answer["msg"].startswith("hca:dgx-01/rail5 ib.link_downed is 1 times down")
    assert health(fail_on=[]).get("failed") is None


def test_check_mode_keeps_no_reading(health):
    assert len(health(check=True)["links"]) == 8
    assert not (health.folder / "state").exists()


def test_a_reading_of_each_link_is_kept_and_returned(health, monkeypatch):
    clock = itertools.count(time.time(), 10)
    monkeypatch.setattr(link_log, "time", SimpleNamespace(time=lambda: next(clock)))
    first = health()["links"]
    assert [line[1] for line in first] == list(range(8))
    assert {line[2] for line in first} == {"FB2404000017"}
    # No second one on the same day.
    assert health()["links"] == first
    counter = health.folder / "sys/class/infiniband/mlx5_rail5/ports/1/counters/link_downed"
    counter.write_text("1\n")
    after = health(fail_on=[])["links"]
    assert len(after) == 9
    assert after[-1][1] == 5
    assert health(optics=False, fail_on=[])["links"] == after


def test_a_release_without_the_histogram_is_asked_once_more_and_then_no_more(health):
    log = health.folder / "asked"
    tool = (
        f'echo "$*" >> {log}; case "$*" in *histogram*) echo "$0: unrecognized option"; exit 1;; '
        f"esac; cat {health.folder}/answer"
    )
    health(tool)
    assert health(tool)["verdict"] == "pass"
    asked = log.read_text().splitlines()
    assert sum("histogram" in line for line in asked) == 2
    assert len(asked) == 2 * (8 + 1)


def test_a_broken_state_file_is_as_none(health):
    health()
    (health.folder / "state/ib.json").write_text('{"version": 1, "por')
    assert health()["verdict"] == "not_measured"
    assert health()["verdict"] == "pass"


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (None, "neither mlxlink nor mstlink is installed"),
        ("sleep 30", "did not end within"),
        ("echo '-E- no such device'; exit 1", "no such device"),
        ("echo '{\"result\"'", "mlxlink -d 0000:18:00.0"),
    ],
)
def test_a_tool_that_tells_nothing_measures_nothing(health, tool, message):
    health()
    answer = health(tool, timeout_s=0.3)
    assert answer["verdict"] == "not_measured"
    assert answer["findings"] == []
    assert message in answer["not_measured"][0]
    assert len(answer["not_measured"]) == 16


def test_options_that_contradict(health):
    answer = health(rails=[WANTED[0], WANTED[0]])
    assert answer["msg"] == "rails: rail 0 is given twice; write each once"


def test_info(run_module, tmp_path):
    add_hca(tmp_path, "mlx5_0", "18")
    add_hca(tmp_path, "mlx5_rail1", "40", number=1)
    add_hca(tmp_path, "irdma0", "29", vendor="0x8086")
    answer = run_module(
        ib_info.main,
        {
            "sysfs": str(tmp_path),
            "rails": [{"rail": r, "pci": p["pci"]} for r, p in enumerate(WANTED)],
        },
    )
    assert [hca["device"] for hca in answer["hcas"]] == ["mlx5_0", "irdma0", "mlx5_rail1"]
    assert answer["firmwares"] == {"28.39.1002": ["mlx5_0", "mlx5_rail1"]}
    assert answer["misnamed"] == [
        {"rail": 0, "device": "mlx5_0", "name": "mlx5_rail0", "netdevs": ["ibmlx5_0"]}
    ]
    assert answer["hcas"][0]["ports"][0]["pkeys"] == ["0xffff"]
    assert answer["hcas"][0]["pcie"][0]["upper"] == "0000:12:00.0"
    json.dumps(answer)


def test_who_uses_the_adapters(tmp_path):
    for pid, target in (("10", "/dev/infiniband/uverbs3"), ("11", "/dev/null")):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "comm").write_text("all_reduce_perf\n")
        os.symlink(target, tmp_path / pid / "fd" / "5")
    assert users_of_verbs(str(tmp_path)) == ["10 (all_reduce_perf)"]
