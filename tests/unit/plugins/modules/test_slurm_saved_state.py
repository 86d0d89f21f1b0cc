# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""State that a release cannot take over is refused; none, or one that shows nothing, is not."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import (
    saved_state as _saved_state,
)
from ansible_collections.baremetal.dgx.plugins.modules import slurm_saved_state

TEXT = b"PROTOCOL_VERSION\0"


@pytest.fixture
def ask(tmp_path, run_module):
    """`ask(version)` runs the module over the files that the test has written."""

    def run(version: str):
        return run_module(slurm_saved_state.main, {"path": str(tmp_path), "version": version})

    return run


def write(folder, name: str, number: int) -> None:
    data = struct.pack("!I", len(TEXT)) + TEXT + struct.pack("!H", number)
    (folder / name).write_bytes(data)


def test_unsupported_jump(ask, tmp_path):
    write(tmp_path, "job_state", 9728)
    result = ask("24.11")
    assert result["failed"]
    assert result["release"] == "22.05"
    assert "is of Slurm 22.05: Slurm 24.11 takes over only from" in result["msg"]
    assert "\n" not in result["msg"]


def test_supported_jump(ask, tmp_path):
    write(tmp_path, "job_state", 10752)
    result = ask("26.05")
    assert not result.get("failed")
    assert result["release"] == "24.11"


def test_another_file_tells_where_the_first_does_not(ask, tmp_path):
    (tmp_path / "job_state").write_bytes(b"")
    write(tmp_path, "node_state", 9728)
    assert ask("26.05")["failed"]


def test_no_state_is_no_obstacle(ask):
    result = ask("26.05")
    assert not result.get("failed")
    assert (result["release"], result["file"]) == ("", "")


@pytest.fixture
def keep(tmp_path, run_module):
    """`keep(version)` has copies made beside the state."""
    (tmp_path / "state").mkdir()

    def run(version: str, check: bool = False):
        options = {
            "path": str(tmp_path / "state"),
            "version": version,
            "copies": str(tmp_path / "kept"),
        }
        return run_module(slurm_saved_state.main, options, check)

    return run


def test_a_copy_is_made_once_before_it_is_converted(keep, tmp_path):
    write(tmp_path / "state", "job_state", 10752)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "slurmctld-24.11.new").mkdir()
    assert keep("26.05", True)["changed"] is True
    copy = tmp_path / "kept" / "slurmctld-24.11"
    assert not copy.exists()
    assert keep("26.05")["changed"] is True
    assert (copy / "job_state").read_bytes() == (tmp_path / "state" / "job_state").read_bytes()
    (tmp_path / "state" / "later").touch()
    assert keep("26.05")["changed"] is False
    assert [path.name for path in copy.iterdir()] == ["job_state"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["slurmctld-24.11"]


def test_no_copy_of_the_same_release_or_of_nothing(keep, tmp_path):
    assert keep("26.05")["changed"] is False
    write(tmp_path / "state", "job_state", 10752)
    assert keep("24.11.5")["changed"] is False
    assert not (tmp_path / "kept").exists()


def test_a_copy_that_fails_is_a_failure(keep, tmp_path, monkeypatch):
    write(tmp_path / "state", "job_state", 10752)
    monkeypatch.setattr(_saved_state, "_COPY_SCRIPT", "echo no space left >&2; exit 1")
    result = keep("26.05")
    assert result["failed"]
    assert "was not copied" in result["msg"]
    assert "no space left" in result["msg"]


def test_a_copy_that_hangs_names_the_mount(keep, tmp_path, hung_mount, monkeypatch, run_module):
    write(tmp_path / "state", "job_state", 10752)
    monkeypatch.setattr(_saved_state, "_COPY_SCRIPT", f"ls {hung_mount}")
    options = {
        "path": str(tmp_path / "state"),
        "version": "26.05",
        "copies": str(tmp_path / "kept"),
        "copy_limit_s": 1,
    }
    result = run_module(slurm_saved_state.main, options)
    assert f"{hung_mount} (fuse.hung, storage:/dead) does not answer" in result["msg"]


FORMER = "StateSaveLocation={now} # of the site\nClusterName = Old\n"
STATE = "slurm_controller_state_save_location"
ELSEWHERE = f"{STATE}: DECLARED is declared, but slurmctld keeps its jobs in NOW"
RENAMED = "cluster_name: demo is declared, but the jobs and the accounting here are of Old"


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(
    ("there", "declared", "name", "refusals"),
    [
        pytest.param({"now": 5}, "new", "old", [ELSEWHERE], id="elsewhere"),
        pytest.param({"now": 5}, "now", "demo", [RENAMED], id="renamed"),
        pytest.param({"now": 5}, "new", "demo", [ELSEWHERE, RENAMED], id="both"),
        pytest.param({"now": 5}, "now", "OLD", [], id="the same"),
        pytest.param({"now": 5}, "now", "", [], id="not asked"),
        pytest.param({"now": 5}, "link", "old", [], id="the same by a link"),
        pytest.param({"now": 5, "new": 5}, "new", "old", [], id="copied"),
        pytest.param({"now": 9, "new": 5}, "new", "old", [ELSEWHERE], id="copied, and running on"),
        pytest.param({}, "new", "demo", [], id="never started"),
        pytest.param(None, "new", "demo", [], id="virgin"),
    ],
)
def test_no_slurmctld_begins_without_the_jobs_that_are_there(
    tmp_path, monkeypatch, run_module, there, declared, name, refusals, answers
):
    now = tmp_path / "now"
    now.mkdir()
    (tmp_path / "link").symlink_to(now)
    for folder, at in (there or {}).items():
        (tmp_path / folder).mkdir(exist_ok=True)
        write(tmp_path / folder, "job_state", 10752)
        os.utime(tmp_path / folder / "job_state", (at, at))
    text = "" if there is None else FORMER.format(now=now)
    conf = tmp_path / "slurm.conf"
    if there is not None:
        # What slurmctld says counts, and its file where it does not answer.
        conf.write_text("StateSaveLocation=/nowhere\n" if answers else text)
    tools = tmp_path / "bin"
    tools.mkdir()
    says = f"cat <<'EOF'\n{text}EOF\n" if answers and text else "echo no answer; exit 1\n"
    (tools / "scontrol").write_text(f"#!/bin/sh\n{says}")
    (tools / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    options = {
        "path": str(tmp_path / declared),
        "version": "24.11",
        "cluster_name": name,
        "configuration": str(conf),
    }
    result = run_module(slurm_saved_state.main, options)
    assert result.get("failed", False) is bool(refusals)
    lines = result["msg"].splitlines() if refusals else []
    begins = [line.partition(",")[0] + "," + line.split(",")[1] for line in lines]
    words = [
        line.replace("DECLARED", options["path"]).replace("NOW", str(now)) for line in refusals
    ]
    assert begins == words


@pytest.mark.parametrize("declared", ["new", "loop"])
def test_a_folder_that_root_cannot_look_into_is_not_empty(
    tmp_path, monkeypatch, run_module, declared
):
    """As with root_squash, but for the reason: the superuser of this test may look everywhere."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "slurm.conf").write_text(FORMER.format(now=loop))
    options = {
        "path": str(tmp_path / declared),
        "version": "24.11",
        "cluster_name": "old",
        "configuration": str(tmp_path / "slurm.conf"),
    }
    result = run_module(slurm_saved_state.main, options)
    assert result["failed"]
    assert result["msg"] == (
        f"root cannot look into {loop} (Too many levels of symbolic links), and whether jobs are "
        "there is not known; write a folder that root can read"
    )


@pytest.mark.parametrize(
    ("number", "squashed"), [(errno.EACCES, True), (errno.EPERM, True), (errno.EIO, False)]
)
def test_only_a_refusal_can_come_from_the_export(number: int, squashed: bool):
    error = _saved_state._unseen("/srv/slurm", OSError(number, os.strerror(number)))
    assert ("export a share of NFS with no_root_squash, or" in str(error)) is squashed
    assert str(error).endswith("write a folder that root can read")


LEFT = (
    "slurm_controllers: head-01 is left out, but its slurmctld has the jobs; run "
    "`systemctl disable --now slurmctld` there, and copy its "
)
BOTH = (
    "slurm_controllers: head-01 and head-02 are left out, but slurmctld there has the jobs; run "
    "`systemctl disable --now slurmctld` there, and copy its "
)
BESIDE = (
    "slurm_controllers: head-02 is left out, but its slurmctld would take control; run "
    "`systemctl disable --now slurmctld` there"
)
TAKEN = BESIDE.replace("would take control", "has the jobs")
LATER = "slurm_controllers: head-02 is first, but slurmctld has the jobs on head-01"


@pytest.mark.parametrize("jobs", [True, False])
@pytest.mark.parametrize(
    ("there", "up", "declared", "with_jobs", "without"),
    [
        pytest.param(["head-01"], 1, ["head-02"], LEFT, LEFT, id="another host"),
        pytest.param(["head-01"], 1, ["head-02", "head-01"], "", LATER, id="one before it"),
        pytest.param(["head-01"], 1, ["head-01", "head-02"], "", "", id="one behind it"),
        pytest.param(["head-01", "head-02"], 1, ["head-02"], LEFT, LEFT, id="without the first"),
        pytest.param(["head-01", "head-02"], 0, ["head-02"], "", LATER, id="the first is dead"),
        pytest.param(["head-01", "head-02"], 1, ["head-01"], BESIDE, BESIDE, id="the second"),
        pytest.param(["head-01", "head-02"], 0, ["head-01"], TAKEN, TAKEN, id="the second rules"),
        pytest.param(["head-01", "head-02"], 1, ["head-01", "head-03"], BESIDE, BESIDE,
                     id="another second"),
        pytest.param(["head-01", "head-02"], 2, ["head-01"], "", "", id="the second is off"),
        pytest.param(["head-01", "head-02"], 1, ["head-03"], BOTH, BOTH, id="others than both"),
        pytest.param(["HEAD-02.example"], 1, ["head-02"], "", "", id="another spelling"),
        pytest.param([], 0, ["head-02"], "", "", id="none answers"),
        pytest.param(["head-01"], 1, [], "", "", id="not asked"),
    ],
)  # fmt: skip
def test_no_slurmctld_begins_while_another_has_the_jobs(
    tmp_path, monkeypatch, run_module, there, up, declared, with_jobs, without, jobs
):
    """Each slurmd would end the jobs that the new one does not know."""
    state = tmp_path / "state"
    state.mkdir()
    if jobs:
        write(state, "job_state", 10752)
    shown = [f"SlurmctldHost[{n}]        = {host}(10.0.0.{n})" for n, host in enumerate(there)]
    config = "\n".join([*shown, f"StateSaveLocation       = {state}", "ClusterName = demo"])
    pings = [
        f"Slurmctld(x) at {host} is {'UP' if up == 1 or n == (up == 0) else 'DOWN'}"
        for n, host in enumerate(there)
    ]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text(
        "#!/bin/sh\n" + ("" if there else "exit 1\n") +
        f"if [ $1 = ping ]; then cat <<'EOF'\n{chr(10).join(pings)}\nEOF\n"
        f"else cat <<'EOF'\n{config}\nEOF\nfi\n"
    )  # fmt: skip
    (tools / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    options = {
        "path": str(state),
        "version": "24.11",
        "cluster_name": "demo",
        "controllers": declared,
        "configuration": str(tmp_path / "slurm.conf"),
    }
    result = run_module(slurm_saved_state.main, options)
    refusal = with_jobs if jobs else without
    assert result.get("failed", False) is bool(refusal), result
    if refusal:
        assert result["msg"].startswith(refusal)
        assert "\n" not in result["msg"]
