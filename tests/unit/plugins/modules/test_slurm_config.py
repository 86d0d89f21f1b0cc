# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import stat

import pytest
import yaml
from slurm_clusters import CASES, FOLDER, dgx_h100, names

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.inputs import DEFAULTS
from ansible_collections.baremetal.dgx.plugins.modules import slurm_config


def plain(value):
    """Tuples as the lists that come out of JSON."""
    return list(value) if isinstance(value, tuple) else value


@pytest.fixture
def render(run_module, tmp_path):
    def render(case="pod_2411_configless", check=False, dest="new/slurm", **other):
        values = {**CASES[case], **other}
        if dest:
            values["dest"] = str(tmp_path / dest)
        return run_module(slurm_config.main, values, check)

    return render


@pytest.mark.parametrize("case", CASES)
def test_files_are_written_as_reviewed(render, tmp_path, case):
    mask = os.umask(0o077)
    try:
        answer = render(case)
    finally:
        os.umask(mask)
    assert answer["changed"] is True
    folder = tmp_path / "new" / "slurm"
    expected = {path.name: path.read_text("utf-8") for path in (FOLDER / case).iterdir()}
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == expected
    assert answer["files"] == expected
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_the_second_run_touches_nothing(render, tmp_path):
    render()
    folder = tmp_path / "new" / "slurm"
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    answer = render()
    assert answer["changed"] is False
    assert answer["diff"] == []
    assert {path.name: path.stat().st_ino for path in folder.iterdir()} == before


def test_check_mode_says_it_and_writes_nothing(render, tmp_path):
    answer = render(check=True)
    assert answer["changed"] is True
    assert set(answer["files"]) >= {"slurm.conf", "gres.conf", "cgroup.conf"}
    assert not (tmp_path / "new").exists()


def test_only_what_differs_is_written_and_shown(render, tmp_path):
    render()
    folder = tmp_path / "new" / "slurm"
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    answer = render(options={"KillWait": 60})
    after = {path.name: path.stat().st_ino for path in folder.iterdir()}
    assert [name for name in after if after[name] != before[name]] == ["slurm.conf"]
    (difference,) = answer["diff"]
    assert difference["after_header"] == "slurm.conf"
    assert "KillWait=60\n" not in difference["before"]
    assert "KillWait=60\n" in difference["after"]


def test_a_topology_that_is_gone_leaves_no_file(render, tmp_path):
    render("superpod_2505")
    folder = tmp_path / "new" / "slurm"
    (folder / "of-somebody-else").write_text("kept")
    answer = render("superpod_2505", topology_format="conf")
    assert {entry["after_header"] for entry in answer["diff"]} == {"topology.conf", "topology.yaml"}
    assert (folder / "topology.conf").exists()
    assert not (folder / "topology.yaml").exists()
    assert (folder / "of-somebody-else").exists()


def test_without_a_folder_nothing_is_written(render):
    answer = render(dest=None)
    assert answer["changed"] is False
    assert "slurm.conf" in answer["files"]


def test_every_error_is_listed_and_nothing_is_written(render, tmp_path):
    answer = render(
        version="22.05",
        auth="slurm",
        partitions=[{"name": "a", "nodes": ["dgx-99"]}],
    )
    assert answer["failed"] is True
    assert answer["errors"] == [
        "partitions[0].nodes[0]: dgx-99 is not a node of the cluster; write one that is",
        "auth: slurm needs 24.11 or later, version is 22.05; write munge",
    ]
    assert answer["msg"] == "\n".join(answer["errors"])
    assert not (tmp_path / "new").exists()


def test_a_killed_run_leaves_whole_files(render, tmp_path, monkeypatch):
    render()
    folder = tmp_path / "new" / "slurm"
    before = (folder / "slurm.conf").read_text("utf-8")

    def killed(*_paths, **_folders):
        raise SystemExit(9)

    monkeypatch.setattr(os, "rename", killed)
    assert render(options={"KillWait": 60})["failed"] is True
    monkeypatch.undo()
    assert (folder / "slurm.conf").read_text("utf-8") == before
    render(options={"KillWait": 60})
    assert (folder / "slurm.conf").read_text("utf-8") != before
    assert sorted(os.listdir(folder)) == [
        "cgroup.conf",
        "gres.conf",
        "plugstack.conf",
        "slurm.conf",
    ]


def test_what_the_cluster_lacks_is_said_aloud(render):
    answer = render()
    assert answer["remarks"] == [
        "the nodes pretend to their hardware: cores and memory are not confined"
    ]
    assert answer["warnings"] == [f"Slurm: {remark}" for remark in answer["remarks"]]


def test_the_restart_key_is_for_old_releases(render):
    old = render("pod_2205_distributed")["restart_key"]
    more = [dgx_h100(name, features=[]) for name in names(5)]
    assert old != ""
    assert render("pod_2205_distributed", nodes=more)["restart_key"] != old
    assert render("pod_2205_distributed", options={"KillWait": 60})["restart_key"] == old
    assert render("pod_2411_configless")["restart_key"] == ""


def test_defaults_stand_in_three_places_alike():
    spec = slurm_config.ARGUMENT_SPEC
    documented = yaml.safe_load(slurm_config.DOCUMENTATION)["options"]
    assert set(spec) == set(documented)
    for name, default in DEFAULTS.items():
        assert spec[name].get("default") == plain(default), name
        assert documented[name].get("default") == plain(default), name
