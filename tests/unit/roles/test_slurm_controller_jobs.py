# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard over what has jobs and would leave slurm.conf: a failing squeue is not "no jobs"."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from jinja2.nativetypes import NativeEnvironment
from role_render import ROLES, render, render_many
from role_rules import read_yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.ask import (
    Probe,
    judge_probe,
)
from ansible_collections.baremetal.dgx.plugins.modules.path_status import status_of

_LOOK, MOUNT, ASK, JUDGE = read_yaml(ROLES / "slurm_controller/tasks/preflight.yml")
IS_MOUNTED = ROLES / "slurm_controller/files/slurm-state-mounted"
NODES = (
    "NodeName=dgx-[01-02] CPUs=4 Gres=gpu:h100:8 State=UNKNOWN\nNodeName=dgx-03 CPUs=4\n"
    "PartitionName=x Nodes=ALL\n"
)


@pytest.fixture
def ask(tmp_path):
    """Run the task's script with our own squeue."""

    def ask(squeue, conf=NODES, state=("job_state",), controllers="1", sinfo="exit 0"):
        argv = ASK["ansible.builtin.command"]["argv"]
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
        new = NativeEnvironment().from_string(ASK["vars"]["__slurm_controller_new"])
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
        **JUDGE["vars"],
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
            **JUDGE["vars"],
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
        **JUDGE["vars"],
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


def found_in(folder: str, *names: str) -> dict[str, object]:
    """Return what path_status reports of slurmctld's folder, with these names in it."""
    queue = f"{folder}/job_state"
    paths = {folder: {"exists": bool(names)}, queue: {"exists": "job_state" in names}}
    listed = {folder: list(names)} if names else {}
    return {"__slurm_controller_state": {"paths": paths, "names": listed}}


FOLDER = "/var/lib/slurm/slurmctld"
FORMER = {"slurm_controller_former_host": "head-01"}
NONE, JOBS = found_in(FOLDER), found_in(FOLDER, "clustername", "job_state")
ALLOWED = {"slurm_controller_queue_loss_allowed": True}


def test_another_primary_has_the_queue_of_the_former_one(tmp_path: Path) -> None:
    cases = {
        "head-02": guarded("head-02", [], **FORMER, **NONE),
        "copied": guarded("copied", [], **FORMER, **JOBS),
        "first_run": guarded("first_run", [], **NONE),
        "allowed": guarded("allowed", [], **FORMER, **NONE, **ALLOWED),
    }
    found = render_many(tmp_path, "slurm_controller", "Debian", cases, REFUSED)
    refusals = {host: values["refusals"] for host, values in found.items() if values["refusals"]}
    assert list(refusals) == ["head-02"]
    (say,) = refusals["head-02"]
    assert say.startswith(f"slurm_controller_hosts: head-02 has no jobs in {FOLDER}")
    assert "would end those of head-01; run `systemctl disable --now slurmctld` there" in say


def test_a_primary_that_was_noted_has_its_queue(tmp_path: Path) -> None:
    """It is noted once its slurmctld has answered, which has files in its folder then."""
    young = found_in(FOLDER, "clustername", "node_state")
    inputs = {
        # Its mount is missing, or its disk is new.
        "lost": {**FORMER, **NONE},
        "emptied": {**FORMER, **found_in(FOLDER, "lost+found")},
        "kept": {**FORMER, **JOBS},
        # slurmctld has been up for a minute, and had no job.
        "young": {**FORMER, **young},
        "given_up": {**FORMER, **NONE, **ALLOWED},
        # A first run that was killed has noted no primary.
        "killed": NONE,
    }
    cases = {
        host: guarded(host, [], **values, slurm_controller_hosts=["head-01", host])
        for host, values in inputs.items()
    }
    found = render_many(tmp_path, "slurm_controller", "Debian", cases, REFUSED)
    refusals = {host: values["refusals"] for host, values in found.items() if values["refusals"]}
    assert list(refusals) == ["lost", "emptied"]
    for (say,) in refusals.values():
        assert say.startswith(
            f"slurm_controller_state_save_location: {FOLDER} is missing or empty on head-01, whose"
        )


def test_a_missing_mount_of_the_state_is_looked_for_on_each_controller(tmp_path: Path) -> None:
    """Though a queue is below it: that of a slurmctld that began there once."""
    (probe,) = MOUNT["baremetal.dgx.service_check"]["probes"]
    assert "run_once" not in MOUNT
    asked = {"asked": probe["command"], "slurm_controller_state_save_location": "/cephfs/ctl"}
    found = render(tmp_path, "slurm_controller", "Debian", asked, {"asked": "asked"})["asked"]
    assert found == [
        "sh",
        "-c",
        IS_MOUNTED.read_text().strip(),
        IS_MOUNTED.name,
        "/cephfs/ctl",
    ]
    says = "/cephfs is not mounted (systemctl status 'cephfs.mount')"
    record = judge_probe(Probe(**probe), CommandResult(tuple(found), ENDED, 1, err=says))
    assert (record.status, record.text) == ("fail", f"says {says!r}")


@pytest.mark.parametrize(
    ("folder", "units", "missing"),
    [
        pytest.param("/cephfs/slurm/ctl", {"cephfs-slurm.mount": "failed"}, "/cephfs/slurm",
                     id="it failed at the boot"),
        pytest.param("/cephfs/slurm/ctl", {"cephfs-slurm.mount": "inactive"}, "/cephfs/slurm",
                     id="not mounted"),
        pytest.param("/cephfs/slurm/ctl", {"cephfs-slurm.mount": "active"}, "", id="mounted"),
        pytest.param("/cephfs", {"cephfs.mount": "inactive"}, "/cephfs", id="the folder itself"),
        pytest.param("/cephfs/slurm/ctl", {"cephfs.mount": "activating",
                                           "cephfs-slurm.mount": "active"}, "/cephfs",
                     id="one above another"),
        pytest.param("/nfs/ctl", {"nfs.mount": "inactive", "nfs.automount": "active"}, "",
                     id="mounted when it is used"),
        pytest.param("/var/lib/slurm/ctl", {"var.mount": "active"}, "", id="a disk of the system"),
        pytest.param("/var/lib/slurm/ctl", {}, "", id="no mount"),
        pytest.param("LINK", {"cephfs-slurm.mount": "inactive"}, "/cephfs/slurm", id="a link"),
        pytest.param("LINK", {"cephfs-slurm.mount": "active"}, "", id="a link to a mount"),
    ],
)  # fmt: skip
def test_slurmctld_does_not_start_below_a_missing_mount(tmp_path, folder, units, missing):
    (tmp_path / "link").symlink_to("/cephfs/slurm/ctl")
    programs = {
        "systemctl": """case $1 in
show) test -e "$UNITS/$5" && echo loaded || echo not-found;;
--quiet) shift 2; for unit; do test "$(cat "$UNITS/$unit" 2>&1)" != active || exit 0; done; exit 3
esac""",
        "systemd-escape": "echo \"$3\" | sed 's,^/,,; s,/,-,g'",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "units").mkdir()
    for name, state in units.items():
        (tmp_path / "units" / name).write_text(state)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "UNITS": str(tmp_path / "units")}
    words = [str(IS_MOUNTED), folder.replace("LINK", str(tmp_path / "link"))]
    done = subprocess.run(["sh", *words], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if missing else 0), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == (1 if missing else 0)
    assert all(line.startswith(f"{missing} is not mounted") for line in lines)


def test_slurmctld_is_tried_again_for_its_mount_and_for_nothing_else(tmp_path: Path) -> None:
    """One that waits in its start would keep multi-user.target waiting, too."""
    (task,) = (
        one
        for one in read_yaml(ROLES / "slurm_controller/tasks/configure.yml")
        if one["name"].startswith("configure | Write the drop-in of slurmctld")
    )
    inputs = {**task["vars"], "slurm_controller_state_save_location": "/cephfs/50%/slurmctld",
              "files": task["baremetal.dgx.managed_files"]["files"]}  # fmt: skip
    found = render(tmp_path, "slurm_controller", "Debian", inputs, {"files": "files"})
    files = {one["path"]: one.get("content") for one in found["files"]}
    lines = files["/etc/systemd/system/slurmctld.service.d/50-baremetal-dgx.conf"].splitlines()
    program = "/usr/local/libexec/baremetal-dgx/slurm-state-mounted"
    head, *settings = [line for line in lines if not line.startswith("#") and line]
    *others, codes, signals = settings
    assert head == "[Service]"
    assert others == [
        f'ExecStartPre=+{program} "/cephfs/50%%/slurmctld"',
        "Restart=on-failure",
        "RestartSec=30",
    ]
    # A primary that crashes would take control from its stand-by again and again.
    prevented = "RestartPreventExitStatus="
    assert codes.removeprefix(prevented).split() == [str(code) for code in range(256)]
    # All that systemd does not take for a clean end, and a start that takes too long.
    assert {"SIGSEGV", "SIGABRT", "SIGBUS", "SIGKILL", "SIGTERM"} <= {
        *signals.removeprefix(prevented).split()
    }
    assert files[program] == IS_MOUNTED.read_text()


def test_a_token_is_of_this_run_alone(tmp_path: Path) -> None:
    """That of an earlier run lies on the storage that the primary does not see any more."""
    compare = read_yaml(ROLES / "slurm_controller/tasks/service.yml")[0]
    tasks = {one["name"].partition(" | ")[2]: one for one in compare["block"]}
    write = tasks["Write a token into the primary's state folder"]
    check = tasks["Check that every standby sees the primary's state folder"]
    named = tasks["Set the name of this run"]
    assert named["run_once"]
    assert "now(utc=true)" in named["ansible.builtin.set_fact"]["__slurm_controller_run"]
    (file,), (probe,) = (
        write["baremetal.dgx.managed_files"]["files"],
        check["baremetal.dgx.service_check"]["probes"],
    )
    # A second run changes nothing, and no controller starts when one sees another folder.
    assert (write["changed_when"], check["any_errors_fatal"]) == (False, True)
    inputs = {
        "slurm_controller_cluster_name": "demo",
        "written": file["content"],
        "expected": probe["expect"],
        **compare["vars"],
        **check["vars"],
    }
    former = {"__slurm_controller_run": "20261121T090000.000000"}
    this = {"__slurm_controller_run": "20261122T090000.000000"}
    cases = {
        "head-01": {**inputs, **former, "slurm_controller_hosts": ["head-01", "head-02"]},
        "head-02": {**inputs, **this, "slurm_controller_hosts": ["head-01", "head-02"]},
        # --limit leaves out its primary.
        "alone": {**inputs, **this, "slurm_controller_hosts": ["head-00", "head-02"]},
        "other": {**inputs, **former, "slurm_controller_hosts": ["head-00", "head-02"]},
    }
    shown = {"written": "written", "expected": "expected"}
    found = render_many(tmp_path, "slurm_controller", "Debian", cases, shown)
    stale, expected = found["head-01"]["written"], found["head-02"]["expected"]
    assert re.search(found["head-01"]["expected"], stale)
    assert re.search(expected, found["head-02"]["written"])
    assert not re.search(expected, stale)
    assert re.search(found["alone"]["expected"], found["other"]["written"])
    assert re.search(found["alone"]["expected"], "demo head-00 head-02\n")
    assert not re.search(found["alone"]["expected"], stale)
    # In check mode none is written, and a healthy pair has that of the former run.
    is_here = NativeEnvironment().from_string(check["vars"]["__slurm_controller_is_here"])
    hosts = {"slurm_controller_hosts": ["head-01"], "ansible_play_hosts_all": ["head-01"]}
    assert is_here.render(**hosts, ansible_check_mode=False) is True
    assert is_here.render(**hosts, ansible_check_mode=True) is False
