# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard over nodes that leave slurm.conf: a failing squeue is not "no jobs"."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from jinja2.nativetypes import NativeEnvironment
from role_render import ROLES, render_many
from role_rules import read_yaml

from ansible_collections.baremetal.dgx.plugins.modules.path_status import status_of

PREFLIGHT = read_yaml(ROLES / "slurm_controller/tasks/preflight.yml")
NODES = "NodeName=dgx-[01-02] CPUs=4\nNodeName=dgx-03 CPUs=4\nPartitionName=x Nodes=ALL\n"


@pytest.fixture
def ask(tmp_path):
    """Run the task's script with our own squeue."""

    def ask(squeue, conf=NODES, state=("job_state",), controllers="1"):
        argv = PREFLIGHT[1]["ansible.builtin.command"]["argv"]
        folder = tmp_path / "bin"
        folder.mkdir()
        if squeue is not None:
            (folder / "squeue").write_text(f"#!/bin/sh\n{squeue}\n")
            (folder / "squeue").chmod(0o755)
        if conf is not None:
            (tmp_path / "slurm.conf").write_text(conf)
        if state is not None:
            (tmp_path / "state").mkdir()
            for name in state:
                (tmp_path / "state" / name).touch()
        place = str(tmp_path / "state")
        paths = (place, f"{place}/job_state", f"{place}/job_state.old")
        new = NativeEnvironment().from_string(PREFLIGHT[1]["vars"]["__slurm_controller_new"])
        is_new = new.render(
            slurm_controller_hosts=["ctl"] * int(controllers),
            slurm_controller_state_save_location=place,
            __slurm_controller_state={"paths": {path: status_of(path, set()) for path in paths}},
        )
        done = subprocess.run(
            [*argv[:4], tmp_path / "slurm.conf", "new" if is_new else "has run"],
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    return ask


DOWN = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
UNKNOWN = ["unknown dgx-[01-02]", "unknown dgx-03"]


@pytest.mark.parametrize(
    ("squeue", "more", "lines"),
    [
        pytest.param("echo dgx-03; echo 'dgx-[01-02]'", {}, ["busy dgx-03", "busy dgx-[01-02]"]),
        pytest.param("exit 0", {}, [], id="no jobs"),
        pytest.param(DOWN, {}, UNKNOWN, id="slurmctld is down"),
        pytest.param(None, {}, UNKNOWN, id="squeue is gone"),
        pytest.param(DOWN, {"state": ["job_state.old"]}, UNKNOWN, id="its state is half written"),
        pytest.param(DOWN, {"state": []}, [], id="configured, never started"),
        pytest.param(DOWN, {"state": None}, UNKNOWN, id="its state is not mounted"),
        pytest.param(DOWN, {"state": [], "controllers": "2"}, UNKNOWN, id="nor is a shared one"),
        pytest.param(None, {"conf": None, "state": None}, [], id="virgin"),
    ],
)
def test_what_is_known_of_jobs(ask, squeue, more, lines):
    assert ask(squeue, **more) == lines


def test_nodes_of_unknown_jobs_may_not_leave(tmp_path: Path) -> None:
    task = PREFLIGHT[3]
    shown = {
        "refusals": "__slurm_controller_refusals | selectattr('when') | map(attribute='say') | list"
    }
    answer = {
        "stdout_lines": UNKNOWN,
        "stderr_lines": ["slurm_load_jobs error: Unable to contact slurm controller"],
    }
    inputs = {
        "slurm_controller_nodes": [{"name": "dgx-01"}, {"name": "dgx-03"}],
        "slurm_controller_hosts": ["ctl"],
        "__slurm_controller_busy": answer,
        "__slurm_controller_former": {"stdout_lines": []},
        "slurm_controller_cluster_name": "demo",
        "slurm_base_jwt": False,
        **task["vars"],
    }
    cases = {
        "ctl": inputs,
        "kept": {**inputs, "slurm_controller_hosts": ["kept"], "slurm_controller_nodes": [
            {"name": f"dgx-0{number}"} for number in (1, 2, 3)]},
        "allowed": {**inputs, "slurm_controller_hosts": ["allowed"],
                    "slurm_controller_node_loss_allowed": True},
    }  # fmt: skip
    rendered = render_many(tmp_path, "slurm_controller", "Debian", cases, shown)
    (refusal,) = rendered["ctl"]["refusals"]
    assert refusal == (
        "slurm_controller_nodes: dgx-02 would leave the configuration, and squeue does not say"
        " whether they run jobs (slurm_load_jobs error: Unable to contact slurm controller); start"
        " slurmctld first, or set slurm_controller_node_loss_allowed"
    )
    assert rendered["kept"]["refusals"] == rendered["allowed"]["refusals"] == []


def test_a_standby_leaves_the_shared_state_folder_to_the_primary(tmp_path: Path) -> None:
    """It must not create another one below a mount that is missing."""
    (task,) = (
        one
        for one in read_yaml(ROLES / "slurm_controller/tasks/configure.yml")
        if one["name"] == "configure | Write Slurm's configuration"
    )
    inputs = {**task["vars"], "slurm_controller_hosts": ["head-01", "head-02"]}
    shown = {"folders": "__slurm_controller_directories | map(attribute='path') | list"}
    cases = {"head-01": inputs, "head-02": inputs}
    rendered = render_many(tmp_path, "slurm_controller", "Debian", cases, shown)
    assert rendered["head-01"]["folders"] == ["/var/lib/slurm/slurmctld"]
    assert rendered["head-02"]["folders"] == []


FORMER = "StateSaveLocation={now} # of the site\nClusterName = Old\n"


@pytest.mark.parametrize(
    ("there", "declared", "lines"),
    [
        pytest.param({"now/job_state": 5}, "new", ["cluster Old", "state NOW"], id="elsewhere"),
        pytest.param({"now/job_state": 5}, "now", ["cluster Old"], id="the same"),
        pytest.param({"now/job_state": 5}, "link", ["cluster Old"], id="the same by a link"),
        pytest.param({"now/job_state": 5, "new/job_state": 5}, "new", ["cluster Old"], id="copied"),
        pytest.param(
            {"now/job_state": 9, "new/job_state": 5},
            "new",
            ["cluster Old", "state NOW"],
            id="copied, and running on",
        ),
        pytest.param({}, "new", [], id="never started"),
        pytest.param(None, "new", [], id="virgin"),
    ],
)
@pytest.mark.parametrize("answers", [True, False])
def test_where_slurmctld_keeps_its_jobs_is_read(
    tmp_path: Path, there: dict[str, int] | None, declared: str, lines: list[str], answers: bool
) -> None:
    now = tmp_path / "now"
    now.mkdir()
    (tmp_path / "link").symlink_to(now)
    for name, at in (there or {}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    folder = tmp_path / "bin"
    folder.mkdir()
    text = "" if there is None else FORMER.format(now=now)
    # What slurmctld says counts, and its file where it does not answer.
    says = f"cat <<'EOF'\n{text}EOF\n" if answers and text else "exit 1\n"
    (folder / "scontrol").write_text(f"#!/bin/sh\n{says}")
    (folder / "scontrol").chmod(0o755)
    conf = tmp_path / "slurm.conf"
    if there is not None:
        conf.write_text("StateSaveLocation=/nowhere\n" if answers else text)
    argv = PREFLIGHT[2]["ansible.builtin.command"]["argv"]
    done = subprocess.run(
        [*argv[:4], conf, tmp_path / declared],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [line.replace("NOW", str(now)) for line in lines]
    assert done.stderr == ""


def test_no_slurmctld_begins_with_an_empty_state(tmp_path: Path) -> None:
    shown = {
        "refusals": "__slurm_controller_refusals | selectattr('when') | map(attribute='say') | list"
    }
    cases = {
        host: {
            "slurm_controller_nodes": [{"name": "dgx-01"}],
            "slurm_controller_hosts": [host],
            "__slurm_controller_busy": {"stdout_lines": []},
            "__slurm_controller_former": {"stdout_lines": lines},
            "slurm_controller_cluster_name": "demo",
            "slurm_base_jwt": False,
            **PREFLIGHT[3]["vars"],
        }
        for host, lines in {
            "same": ["cluster Demo"],
            "nameless": ["cluster "],
            "other": ["cluster old", "state /var/spool/slurmctld"],
        }.items()
    }
    found = render_many(tmp_path, "slurm_controller", "Debian", cases, shown)
    assert found["same"]["refusals"] == found["nameless"]["refusals"] == []
    state, name = found["other"]["refusals"]
    assert state.startswith("slurm_controller_state_save_location: /var/lib/slurm/slurmctld is ")
    assert "keeps its jobs in /var/spool/slurmctld, and would lose them" in state
    assert name.startswith("cluster_name: demo is declared, but the jobs and the accounting here")
