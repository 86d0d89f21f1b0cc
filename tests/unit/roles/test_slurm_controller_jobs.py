# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard over what has jobs and would leave slurm.conf: a failing squeue is not "no jobs"."""

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
NODES = (
    "NodeName=dgx-[01-02] CPUs=4 Gres=gpu:h100:8 State=UNKNOWN\nNodeName=dgx-03 CPUs=4\n"
    "PartitionName=x Nodes=ALL\n"
)


@pytest.fixture
def ask(tmp_path):
    """Run the task's script with our own squeue."""

    def ask(squeue, conf=NODES, state=("job_state",), controllers="1", sinfo="exit 0"):
        argv = PREFLIGHT[1]["ansible.builtin.command"]["argv"]
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in {"squeue": squeue, "sinfo": sinfo}.items():
            if text is not None:
                (folder / name).write_text(f"#!/bin/sh\n{text}\n")
                (folder / name).chmod(0o755)
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
UNKNOWN = ["unknown dgx-[01-02]", "unknown dgx-03", "unused x", "gres dgx-[01-02] gpu:h100:8"]
# A job that is being cleaned up has its nodes still, and no partition that could end it.
SOME = "printf 'R x dgx-03\\nR x dgx-[01-02]\\nPD x,y \\nCG z dgx-04\\n'"
# A state of --states is compared with the whole of a job's: R is not RUNNING with STOPPED.
STOPPED = """case "$*" in *--states*) ;; *) echo 'ST x dgx-03' ;; esac"""
GRES = """test "$3" = '--format=gres %N %G' && echo 'gres dgx-[01-04] gpu:8(S:0-1)'"""
USED = ["busy dgx-03", "busy dgx-04", "busy dgx-[01-02]", "used x", "used x,y"]


@pytest.mark.parametrize(
    ("squeue", "more", "lines"),
    [
        pytest.param(SOME, {}, USED, id="jobs"),
        pytest.param(STOPPED, {}, ["busy dgx-03", "used x"], id="a job that its user has stopped"),
        pytest.param("exit 0", {}, [], id="no jobs"),
        pytest.param(SOME, {"sinfo": GRES}, [*USED, "gres dgx-[01-04] gpu:8(S:0-1)"], id="gres"),
        pytest.param(SOME, {"sinfo": DOWN}, UNKNOWN, id="slurmctld ends between two answers"),
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
    task = PREFLIGHT[2]
    shown = {
        "refusals": "__slurm_controller_refusals | selectattr('when') | map(attribute='say') | list"
    }
    answer = {
        "stdout_lines": UNKNOWN[:3],
        "stderr_lines": ["slurm_load_jobs error: Unable to contact slurm controller"],
    }
    inputs = {
        "slurm_controller_nodes": [{"name": "dgx-01"}, {"name": "dgx-03"}],
        "slurm_controller_hosts": ["ctl"],
        "__slurm_controller_busy": answer,
        "slurm_base_jwt": False,
        "slurm_controller_partitions": [{"name": "x"}],
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


def test_partitions_with_jobs_may_not_leave(tmp_path: Path) -> None:
    """Slurm ends a job whose partition is gone: tried with 24.11."""
    shown = {
        "refusals": "__slurm_controller_refusals | selectattr('when') | map(attribute='say') | list"
    }
    lines = {
        "kept": ["busy dgx-01", "used batch"],
        "gone": ["busy dgx-01", "used batch,main", "used old"],
        "unknown": ["unused DEFAULT", "unused batch", "unused main"],
    }
    cases = {
        host: {
            "slurm_controller_nodes": [{"name": "dgx-01"}],
            "slurm_controller_hosts": [host],
            "slurm_controller_partition_loss_allowed": host == "allowed",
            "__slurm_controller_busy": {"stdout_lines": lines.get(host, lines["gone"])},
            "slurm_base_jwt": False,
            **PREFLIGHT[2]["vars"],
        }
        for host in (*lines, "allowed")
    }
    found = render_many(tmp_path, "slurm_controller", "Debian", cases, shown)
    refusals = {host: values["refusals"] for host, values in found.items()}
    assert refusals["kept"] == refusals["allowed"] == []
    begin = "slurm_controller_partitions: {} would leave the configuration"
    assert [line.partition(" with jobs")[0] for line in refusals["gone"]] == [
        begin.format("main, old")
    ]
    assert [line.partition(", and")[0] for line in refusals["unknown"]] == [begin.format("main")]


REFUSED = {
    "refusals": "__slurm_controller_refusals | selectattr('when') | map(attribute='say') | list"
}


def guarded(host: str, lines: list[str], **inputs: object) -> dict[str, object]:
    """Return what the refusals of a host read."""
    return {
        "slurm_controller_nodes": [{"name": "dgx-[01-02]", "gres": gpus(8)}],
        "slurm_controller_hosts": [host],
        "__slurm_controller_busy": {"stdout_lines": lines, "stderr_lines": ["no controller"]},
        "slurm_base_jwt": False,
        **PREFLIGHT[2]["vars"],
        **inputs,
    }


def gpus(count: int) -> list[dict[str, object]]:
    return [{"name": "gpu", "type": "h100", "count": count}]


def test_nodes_with_jobs_keep_their_gpus(tmp_path: Path) -> None:
    """Slurm ends the jobs of a node with fewer: gres/gpu count mismatch on node dgx-01 (8 != 4)."""
    four = [{"name": "dgx-01", "gres": gpus(4)}, {"name": "dgx-02", "gres": gpus(8)}]
    here = "gres dgx-[01-02] gpu:h100:8(S:0-1)"
    busy, down = ["busy dgx-01", here], ["unknown dgx-[01-02]", "gres dgx-[01-02] gpu:h100:8"]
    cases = {
        "fewer": guarded("fewer", busy, slurm_controller_nodes=four),
        "not_known": guarded("not_known", down, slurm_controller_nodes=four),
        "idle": guarded("idle", ["busy dgx-02", here], slurm_controller_nodes=four),
        "equal": guarded("equal", busy),
        "more": guarded("more", ["busy dgx-01", "gres dgx-01 gpu:4"]),
        "allowed": guarded("allowed", busy, slurm_controller_nodes=four,
                           slurm_controller_node_loss_allowed=True),
    }  # fmt: skip
    found = render_many(tmp_path, "slurm_controller", "Debian", cases, REFUSED)
    refusals = {host: values["refusals"] for host, values in found.items() if values["refusals"]}
    begin = "slurm_controller_nodes: dgx-01 would go from 8 to 4 gpu"
    end = "or set slurm_controller_node_loss_allowed"
    doubt = "and squeue does not say whether jobs run there (no controller); start slurmctld first"
    assert refusals == {
        "fewer": [f"{begin} while running jobs, which Slurm then ends; drain it first, {end}"],
        "not_known": [f"{begin}, {doubt}, {end}"],
    }


def test_another_primary_has_the_queue_of_the_former_one(tmp_path: Path) -> None:
    queue = "/var/lib/slurm/slurmctld/job_state"
    former = {"slurm_controller_former_host": "head-01"}
    states = {
        name: {"__slurm_controller_state": {"paths": {queue: {"exists": there}}}}
        for name, there in {"none": False, "copied": True}.items()
    }
    cases = {
        "head-02": guarded("head-02", [], **former, **states["none"]),
        "copied": guarded("copied", [], **former, **states["copied"]),
        "head-01": guarded("head-01", [], **former, **states["none"]),
        "first_run": guarded("first_run", [], **states["none"]),
        "allowed": guarded("allowed", [], **former, **states["none"],
                           slurm_controller_queue_loss_allowed=True),
    }  # fmt: skip
    found = render_many(tmp_path, "slurm_controller", "Debian", cases, REFUSED)
    refusals = {host: values["refusals"] for host, values in found.items() if values["refusals"]}
    assert list(refusals) == ["head-02"]
    (say,) = refusals["head-02"]
    assert say.startswith("slurm_controller_hosts: head-02 has no jobs in /var/lib/slurm/slurmctld")
    assert "would end those of head-01; stop slurmctld there" in say
