# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modes of the health program on a simulated node: what is found, and what Slurm gets."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import time

import pytest
from checkout import FIXTURES
from ib_tree import RAILS, dgx

from ansible_collections.baremetal.dgx.plugins.module_utils._core import files
from ansible_collections.baremetal.dgx.plugins.module_utils._core.child import (
    HUNG,
    Answer,
    Process,
    start_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.lock import host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import boot_id
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.load import loading
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import (
    questions as _health_ask,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import run as _health_run
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import (
    settings as _health_settings,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.run import (
    FAILED,
    FAULT,
    HELD,
    OK,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.state import (
    Hung,
    change_state,
    lock_name,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    ITSELF,
    write_reason,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts import plan as mounts
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts import (
    read as mount_notes,
)

pytestmark = pytest.mark.slow

MODES = ("health", "prolog", "epilog", "timer")
LOST = "[ 10.5] NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("mode", MODES)
def test_a_node_that_is_well_passes(node, mode):
    assert node.run(mode) == OK
    assert node.odd(mode) == {}
    checks = {one["check"].partition(".")[0] for one in node.records(mode)}
    local = {"gpu", "mount", "disk", "host"}
    assert checks == (local if mode in ("prolog", "epilog") else {*local, "clock", "service"})
    assert node.in_slurm == ("IDLE", "")


# What breaks the node, and what must fail for it.
def _gone(node):
    (node.folder / "mountinfo").write_text("")


def _other(node):
    node.config["mounts"][0]["source"] = "storage:/shared/home"


def _dimm(node):
    node.show_host(memory_kib=1900000000)


def _socket(node):
    node.show_host(cpus="0-111")


def _full(node):
    node.config["disks"][0]["free_mib"] = 1 << 40


def _scratch_gone(node):
    node.scratch.rmdir()


def _dead(node):
    node.tool("systemctl", "printf 'Id=munge.service\\nLoadState=loaded\\nActiveState=failed\\n'")


def _drift(node):
    node.tool("chronyc", "echo 'A,b,3,1.0,-1.5,0,0,0,0,0,0,0,64,Normal'")


def _nvlink(node):
    node.inject("nvlink_down")


def _ecc(node):
    node.inject("ecc")


FAULTS = {
    "mount.mounted": _gone,
    "host.memory": _dimm,
    "host.cpus": _socket,
    "disk.free": _full,
    "disk.present": _scratch_gone,
    "service.active": _dead,
    "clock.offset": _drift,
    "gpu.nvlink_active": _nvlink,
    "gpu.ecc_uncorrectable": _ecc,
}


def test_the_disk_of_a_mount_is_looked_up(node, monkeypatch):
    table = node.folder / "mountinfo"
    table.write_text(table.read_text().replace("nfs4", "xfs"))
    node.config["mounts"][0]["source"] = "/dev/disk/by-label/dgx-scratch"
    for number, found in (("98:0", OK), ("8:1", FAILED)):
        monkeypatch.setattr(_health_ask, "device_of", lambda _name, number=number: number)
        assert node.run("health") == found


def test_a_mount_is_compared_with_its_unit_which_a_change_reaches_first(node, monkeypatch):
    where = str(node.home)
    unit = node.folder / "units" / mounts.unit_of(where)
    unit.parent.mkdir()

    def declare(what, owner="cephfs"):
        text = f"{mounts.mark(owner)}\n" if owner else ""
        unit.write_text(f"{text}[Mount]\nWhat={what}\nWhere={where}\n")
        node.set_slurm()
        return node.run("health")

    node.config["mounts"][0]["source"] = "nas.example.org:/other"
    assert declare("storage:/home", owner="") == FAILED
    assert declare("storage:/home") == OK
    assert declare("storage:/other") == FAILED
    # While it is in use, a change waits for the next mount.
    monkeypatch.setattr(mount_notes, "NOTES", str(node.folder))
    mount_notes.note(where, "digest of what is mounted")
    os.utime(mount_notes.note_path(where), (1, 1))
    assert declare("storage:/other") == OK
    mount_notes.note(where, "digest of what is mounted now")
    os.utime(unit, (1, 1))
    assert node.run("health") == FAILED


@pytest.mark.parametrize(("check", "fault"), [*FAULTS.items(), ("mount.mounted", _other)])
def test_a_fault_drains_the_node_and_says_which(node, check, fault):
    fault(node)
    assert node.run("health") == FAILED
    assert check in {one for _subject, one in node.odd()}
    assert set(node.odd().values()) == {"fail"}
    state, reason = node.in_slurm
    assert state == "IDLE+DRAIN"
    owner, subject, named = reason.split()[:3]
    assert owner == "node-health:"
    assert (subject, named.rstrip(":")) in node.odd()


def test_a_lost_module_is_seen_beside_the_memory_of_gpus(node):
    # A GB200: two NUMA nodes with CPUs, and four of GPUs.
    sizes = [950000000] * 2 + [192937984] * 4
    for number, kib in enumerate(sizes):
        folder = node.folder / f"sys/devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{number}\n" if number < 2 else "\n")
        (folder / "meminfo").write_text(f"Node {number} MemTotal:       {kib} kB\n")
    node.show_host(memory_kib=sum(sizes))
    assert node.run("health") == FAILED
    assert node.odd() == {("node:dgx-01", "host.memory"): "fail"}


@pytest.fixture
def patient(monkeypatch):
    """What a busy machine makes of the limits is not the question."""
    for name, mode in _health_settings.MODES.items():
        given = {**vars(mode), "limit_s": 40.0, "one_s": 10.0}
        monkeypatch.setitem(_health_settings.MODES, name, _health_settings.Mode(**given))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("patient")
def test_each_mode_finds_a_broken_gpu_and_the_timer_only_tells(node, mode):
    node.inject("nvlink_down")
    assert node.run(mode) == FAILED
    assert ("gpu:dgx-01/6", "gpu.nvlink_active") in node.odd(mode)
    assert ("DRAIN" in node.in_slurm[0]) == (mode != "timer")
    if mode != "timer":
        assert node.in_slurm[1].startswith(
            "node-health: gpu:dgx-01/6 gpu.nvlink_active is 17 links"
        )


def _with_bmc(node, text):
    """A node whose kernel has the BMC's driver."""
    (node.folder / "sys/class/ipmi/ipmi0").mkdir(parents=True)
    node.tool("ipmitool", f"cat {FIXTURES / 'ipmitool_sdr' / text}")


def test_the_timer_alone_asks_the_bmc_and_drains_nothing(node):
    _with_bmc(node, "broken.txt")
    assert node.run("health") == OK
    assert node.run("timer") == FAILED
    assert node.odd("timer") == {("node:dgx-01", "host.sensors"): "fail"}
    assert node.in_slurm == ("IDLE", "")


def test_a_declared_bmc_that_the_kernel_has_not_found_is_not_measured(node):
    node.tool("ipmitool", "echo 'Could not open device at /dev/ipmi0' >&2; exit 1")
    assert node.run("timer") == OK
    assert node.odd("timer") == {}
    node.config["bmc"] = True
    assert node.run("timer") == OK
    assert node.odd("timer") == {("node:dgx-01", "host.sensors"): "not_measured"}
    assert node.run("health") == OK
    assert 'finding{check="host.sensors"' in node.metrics.read_text()


def test_the_timer_alone_asks_the_disks_and_drains_nothing(node):
    worn = FIXTURES / "smartctl" / "nvme-7.4-worn.json"
    node.tool("smartctl", f"test $3 = /dev/nvme0 && cat {worn} && exit 8; exit 2")
    for number in range(2):
        (node.folder / f"sys/class/nvme/nvme{number}").mkdir(parents=True)
    assert node.run("timer") == OK
    assert node.odd("timer") == {}
    node.config["nvme"] = {"count": 3, "wear_percent": 200}
    assert node.run("timer") == FAILED
    disk = "nvme:dgx-01/EX0704008"
    assert node.odd("timer") == {
        ("node:dgx-01", "nvme.present"): "fail",
        (disk, "nvme.critical_warning"): "fail",
        (disk, "nvme.spare"): "fail",
        ("nvme:dgx-01/nvme1", "nvme.read"): "not_measured",
    }
    assert node.in_slurm == ("IDLE", "")
    assert node.run("health") == OK
    finding = f'finding{{check="nvme.spare",subject="{disk}",status="fail"}} 1'
    assert finding in node.metrics.read_text()


def test_a_disk_that_hangs_hides_neither_the_others_nor_their_count(node):
    worn = FIXTURES / "smartctl" / "nvme-7.4-worn.json"
    node.tool("smartctl", f"cat {worn}")
    for number in range(2):
        (node.folder / f"sys/class/nvme/nvme{number}").mkdir(parents=True)
    node.config["nvme"] = {"count": 2}
    with subprocess.Popen(["sleep", "60"]) as before:
        with change_state(str(node.state), boot_id()) as state:
            state.hung["nvme:nvme0"] = Hung(0.0, Process(before.pid, start_of(before.pid)))
        assert node.run("timer") == FAILED
        before.kill()
    found = {one["check"]: one["status"] for one in node.records("timer")}
    assert found["nvme.present"] == "pass"
    assert found["nvme.spare"] == "fail"
    assert found["health.nvme"] == "not_measured"


def test_what_the_timer_found_before_a_boot_is_left_out(node, monkeypatch):
    _with_bmc(node, "broken.txt")
    node.run("timer")
    a_minute_ago = time.time() - 60
    os.utime(node.state / "timer.json", (a_minute_ago, a_minute_ago))
    monkeypatch.setattr(_health_run.time, "clock_gettime", lambda _clock: 30.0)
    node.run("health")
    assert 'check="host.sensors"' not in node.metrics.read_text()


def test_what_the_timer_found_stays_in_the_metrics(node):
    """Slurm's health check writes the same file three times between two runs of the timer."""
    _with_bmc(node, "broken.txt")
    node.run("timer")
    finding = 'finding{check="host.sensors",subject="node:dgx-01",status="fail"} 1'
    assert finding in node.metrics.read_text()
    node.run("health")
    assert finding in node.metrics.read_text()
    assert "host.sensors" not in {one["check"] for one in node.records("health")}
    late = time.time() - _health_settings.OF_TIMER_S
    os.utime(node.state / "timer.json", (late, late))
    node.run("health")
    assert finding not in node.metrics.read_text()
    stamp = "baremetal_dgx_health_timer_timestamp_seconds "
    # What is left out is not well: it was not asked since then.
    (line,) = [one for one in node.metrics.read_text().split("\n") if one.startswith(stamp)]
    assert float(line[len(stamp) :]) == pytest.approx(late, abs=0.001)
    (node.state / "timer.json").write_text("{")
    assert node.run("health") == OK


def test_a_boot_leaves_the_timer_time_to_run(node, monkeypatch):
    node.run("health")
    assert "health_timer_timestamp_seconds 1" not in node.metrics.read_text()
    node.run("timer")
    os.utime(node.state / "timer.json", (1e9, 1e9))
    monkeypatch.setattr(_health_run.time, "clock_gettime", lambda _clock: 30.0)
    node.run("health")
    stamp = "baremetal_dgx_health_timer_timestamp_seconds "
    (line,) = [one for one in node.metrics.read_text().split("\n") if one.startswith(stamp)]
    assert float(line[len(stamp) :]) == pytest.approx(time.time() - 30, abs=10)


@pytest.mark.parametrize("question", ["sensors", "nvme", "ib"])
def test_what_hangs_in_each_run_of_the_timer_stays_in_the_metrics(node, question):
    """NodeNotMeasured asks for two hours of it."""
    node.run("timer")
    path = node.state / "timer.json"
    left = json.loads(path.read_text())
    hangs = {**left["records"][0], "check": f"health.{question}", "status": "not_measured"}
    path.write_text(json.dumps({**left, "records": [hangs]}))
    assert node.run("health") == OK
    assert f'finding{{check="health.{question}"' in node.metrics.read_text()


def test_what_breaks_in_each_run_of_the_timer_stays_in_the_metrics(node):
    """CheckerBroken asks for five minutes of it."""
    node.run("timer")
    path = node.state / "timer.json"
    left = json.loads(path.read_text())
    broken = {**left["records"][0], "check": "health.checker", "status": "not_measured"}
    texts = ("the check sensors: KeyError", "the node's state in Slurm is not known")
    records = [{**broken, "text": text} for text in texts]
    path.write_text(json.dumps({**left, "records": records}))
    assert node.run("health") == OK
    assert "checker_ok 0" in node.metrics.read_text()
    path.write_text(json.dumps({**left, "records": records[1:]}))
    assert node.run("health") == OK
    assert "checker_ok 1" in node.metrics.read_text()


# A hang, a crash, a truncated answer: each costs only itself, and fails nothing.


def _hang(*_args):
    time.sleep(60)


SLOW = {"gpu": "sweep", "mount": "space_of", "host": "judge_host", "clock": "judge_clock",
        "services": "judge_services"}  # fmt: skip


@pytest.fixture
def short(monkeypatch):
    """Every mode gives its checks little time."""
    for name, mode in _health_settings.MODES.items():
        given = {**vars(mode), "one_s": 1.0 if name == "prolog" else 2.5}
        monkeypatch.setitem(_health_settings.MODES, name, _health_settings.Mode(**given))


@pytest.mark.parametrize("check", SLOW)
@pytest.mark.usefixtures("short")
def test_a_check_that_hangs_costs_only_itself(node, monkeypatch, check):
    if check == "mount":
        node.config["disks"] = []
    monkeypatch.setattr(_health_ask, SLOW[check], _hang)
    begun = time.monotonic()
    assert node.run("health") == OK
    assert time.monotonic() - begun < 10
    ((_subject, name),) = node.odd()
    assert name == ("mount.answers" if check == "mount" else f"health.{check}")
    assert set(node.odd().values()) == {"not_measured"}
    assert node.in_slurm == ("IDLE", "")


@pytest.mark.parametrize("check", SLOW)
def test_a_check_that_breaks_is_the_fault_of_the_program(node, monkeypatch, check):
    def broken(*_args):
        raise KeyError("no such thing")

    if check == "mount":
        node.config["disks"] = []
    monkeypatch.setattr(_health_ask, SLOW[check], broken)
    assert node.run("health") == FAULT
    assert node.odd() == {("node:dgx-01", "health.checker"): "not_measured"}
    (text,) = [one["text"] for one in node.records() if one["status"] != "pass"]
    assert text.startswith(f"the check {check}")
    assert "no such thing" in text
    assert "checker_ok 0" in node.metrics.read_text()
    assert node.in_slurm == ("IDLE", "")


def test_a_check_that_crashes_is_the_fault_of_the_program(node, monkeypatch):
    monkeypatch.setattr(_health_ask, "judge_host", lambda *_args: os.kill(os.getpid(), 9))
    assert node.run("health") == FAULT
    (text,) = [one["text"] for one in node.records() if one["status"] != "pass"]
    assert "ended by signal 9" in text


@pytest.mark.parametrize(
    ("tool", "script"),
    [
        ("chronyc", "echo '506 Cannot talk to daemon'; exit 1"),
        ("chronyc", "echo A,b,3,1.0,0.0"),
        ("chronyc", "echo 'A,b,0,1.0,0.0,0,0,0,0,0,0,0,64,Not synchronised'"),
        ("chronyc", "echo 'A,b,3,1.0,much,0,0,0,0,0,0,0,64,Normal'"),
        ("systemctl", "echo 'Failed to connect to bus'; exit 1"),
        ("systemctl", "echo Id=munge.service"),
        ("systemctl", ":"),
    ],
)
def test_a_tool_that_tells_nothing_measures_nothing(node, tool, script):
    node.tool(tool, script)
    assert node.run("health") == OK
    assert set(node.odd().values()) == {"not_measured"}
    assert len(node.odd()) == 1
    assert node.in_slurm == ("IDLE", "")


@pytest.mark.parametrize(("instances", "code"), [("7g.80gb", OK), ("", FAILED)])
def test_the_timer_alone_asks_for_mig_instances(node, monkeypatch, instances, code):
    node.hardware.state("gpu.3.mig = 1\n")
    node.show_host()
    profile = node.config["profile"]
    node.config["profile"] = {**profile, "gpus": {**profile["gpus"], "mig": {"3": ["7g.80gb"]}}}
    lines = "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-3)\\n"
    lines += f"  MIG {instances}     Device  0: (UUID: MIG-1)\\n" if instances else ""
    node.tool("nvidia-smi", f"printf '{lines}'")
    monkeypatch.setenv("PATH", f"{node.tools}:/usr/bin:/bin")
    assert node.run("timer") == code
    lacking = {("gpu:dgx-01/3", "gpu.mig_instances"): "fail"}
    assert node.odd("timer") == ({} if instances else lacking)
    # nvidia-smi is slower than a job may wait.
    node.tool("nvidia-smi", f"touch {node.state}/asked")
    for mode in ("prolog", "epilog", "health"):
        assert node.run(mode) == OK
        assert node.odd(mode) == {}
    assert not (node.state / "asked").exists()
    finding = 'finding{check="gpu.mig_instances",subject="gpu:dgx-01/3",status="fail"} 1'
    assert (finding in node.metrics.read_text()) == (not instances)


def test_a_tool_that_is_not_there_measures_nothing(node, monkeypatch):
    (node.tools / "chronyc").unlink()
    monkeypatch.setenv("PATH", str(node.tools))
    node.tool("systemctl", "echo Id=a; echo LoadState=loaded; echo ActiveState=activating")
    node.config["gpu"]["fabric_manager"] = "no-such-fabric-manager"
    assert node.run("prolog") == OK
    node.config["checks"] = ["clock", "services"]
    node.run("health")
    assert set(node.odd().values()) == {"not_measured"}


@pytest.mark.parametrize(
    ("number", "status"), [(errno.ESTALE, "fail"), (errno.EACCES, "not_measured")]
)
@pytest.mark.usefixtures("patient")
def test_a_stale_mount_fails_and_one_that_may_not_be_asked_does_not(
    node, monkeypatch, number, status
):
    def statvfs(_path):
        raise OSError(number, "")

    monkeypatch.setattr(os, "statvfs", statvfs)
    node.config["disks"] = []
    assert node.run("prolog") == (FAILED if status == "fail" else OK)
    assert list(node.odd("prolog").values()) == [status]


@pytest.mark.usefixtures("patient")
def test_a_disk_that_turned_read_only_fails(node, monkeypatch):
    real = os.statvfs

    def statvfs(path):
        found = list(real(path))
        found[8] |= os.ST_RDONLY
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert node.run("prolog") == FAILED
    assert node.odd("prolog") == {(f"path:dgx-01{node.scratch}", "disk.read_only"): "fail"}


@pytest.mark.usefixtures("patient")
def test_a_disk_that_is_not_mounted_fails(node):
    node.fstab.write_text(f"/dev/md1 {node.scratch} xfs nofail 0 2\n")
    assert node.run("prolog") == FAILED
    assert node.odd("prolog") == {(f"path:dgx-01{node.scratch}", "disk.present"): "fail"}


@pytest.mark.usefixtures("short")
def test_a_mount_fails_when_it_has_hung_for_longer_than_patience(node, monkeypatch):
    node.config["disks"] = []
    node.config["mounts"][0]["patience_s"] = 0.5
    node.config["checks"] = ["mounts"]
    with monkeypatch.context() as hung:
        hung.setattr(_health_ask, "space_of", _hang)
        assert node.run("health") == OK
        assert list(node.odd().values()) == ["not_measured"]
        time.sleep(0.6)
        assert node.run("health") == FAILED
    assert node.in_slurm[1].startswith(f"node-health: path:dgx-01{node.home} mount.answers")
    # It answers again: what was remembered is gone.
    node.set_slurm()
    assert node.run("health") == OK
    assert json.loads((node.state / "state.json").read_text())["hung"] == {}


def test_a_question_whose_process_is_still_there_is_not_asked_again(node, monkeypatch):
    left = {"pid": os.getpid(), "start": _health_run.ask_all.__globals__["start_of"](os.getpid())}
    node.config["checks"] = ["mounts"]
    node.run("health")
    state = json.loads((node.state / "state.json").read_text())
    name = f"mount:{node.home}"
    state["hung"] = {name: {"since_s": 1.0, "process": left}}
    (node.state / "state.json").write_text(json.dumps(state))
    monkeypatch.setattr(_health_ask, "space_of", lambda _path: pytest.fail("was asked"))
    assert node.run("health") == FAILED
    (record,) = node.records()
    assert record["measured"]["value"] > 300
    assert f"process {os.getpid()}" in record["evidence"][0]


@pytest.fixture
def at(node, monkeypatch):
    """`at(second, mode)` runs a mode at this second since boot, while the mount does not answer."""
    node.config.update(disks=[], checks=["mounts"])
    monkeypatch.setattr(_health_ask, "space_of", _hang)

    def run(second, mode):
        monkeypatch.setattr(_health_run.time, "clock_gettime", lambda _clock: float(second))
        return node.run(mode), *node.odd(mode).values()

    return run


@pytest.mark.usefixtures("short")
def test_a_mount_that_is_slow_twice_has_not_hung_in_between(node, at):
    """A job's start waits 1.2 s, and its end 4 s; either is what a busy file system may take."""
    assert at(1000, "prolog") == (OK, "not_measured")
    assert at(1360, "epilog") == (OK, "not_measured")
    assert node.in_slurm == ("IDLE", "")
    # What a run that waits longer has seen begin, a job's start may confirm.
    assert at(1400, "health") == (OK, "not_measured")
    assert at(1760, "prolog") == (FAILED, "fail")
    assert "mount.answers is 360 s" in node.in_slurm[1]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("ends", [False, True])
def test_a_hang_that_a_job_finds_lasts_as_long_as_its_process(node, at, monkeypatch, ends):
    with subprocess.Popen(["sleep", "60"]) as process:
        left = Process(process.pid, start_of(process.pid))
        hung = Answer(HUNG, None, "did not come back within 1.2 s", 1.2, left)
        with monkeypatch.context() as first:
            first.setattr(_health_run, "ask_all", lambda *_args: {f"mount:{node.home}": hung})
            assert at(1000, "prolog") == (OK, "not_measured")
        if ends:
            process.kill()
            process.wait()
        assert at(1360, "epilog") == ((OK, "not_measured") if ends else (FAILED, "fail"))
        process.kill()
    assert ("DRAIN" in node.in_slurm[0]) == (not ends)


# Slurm: whose drain it is.


def test_what_another_one_has_drained_keeps_its_reason(node):
    node.set_slurm("IDLE+DRAIN", "broken fan, ask Ann")
    node.inject("nvlink_down")
    assert node.run("health") == FAILED
    assert node.in_slurm == ("IDLE+DRAIN", "broken fan, ask Ann")
    assert not [call for call in node.calls if call.startswith("update")]


def test_a_node_that_is_down_keeps_its_reason(node):
    node.set_slurm("DOWN", "Not responding")
    node.inject("nvlink_down")
    assert node.run("health") == FAILED
    assert node.in_slurm == ("DOWN", "Not responding")


def test_the_first_reason_stays(node):
    node.inject("nvlink_down")
    node.run("health")
    first = node.in_slurm
    node.inject("ecc")
    node.run("health")
    assert node.in_slurm == first
    assert len([call for call in node.calls if "State=DRAIN" in call]) == 1


def test_a_node_with_a_job_is_drained_and_the_job_goes_on(node):
    node.set_slurm("MIXED")
    node.inject("nvlink_down")
    assert node.run("health") == FAILED
    assert node.in_slurm[0] == "MIXED+DRAIN"
    assert not [call for call in node.calls if "DOWN" in call or "cancel" in call]


def test_only_an_idle_node_is_asked_for_what_jobs_have_left(node):
    node.hardware.state("gpu.2.memory_used_mib = 700\n")
    node.set_slurm("ALLOCATED")
    assert node.run("health") == OK
    assert not [one for one in node.records() if one["check"] == "gpu.memory_used"]
    node.set_slurm("IDLE")
    node.run("health")
    assert [one for one in node.records() if one["check"] == "gpu.memory_used"]


PROCESS, MEMORY = "gpu.2.processes = 1\n", "gpu.2.memory_used_mib = 700\n"


@pytest.mark.parametrize(
    ("check", "fault", "after", "status"),
    [("gpu.processes", PROCESS, {"state": "ALLOCATED"}, OK),
     ("gpu.memory_used", MEMORY, {"state": "MIXED"}, OK),
     ("gpu.memory_used", MEMORY, {"down": {}}, FAULT),
     ("gpu.processes", PROCESS, {"state": "IDLE"}, FAILED)],
)  # fmt: skip
def test_a_job_that_starts_during_the_checks_has_left_nothing(
    node, monkeypatch, check, fault, after, status
):
    real = _health_ask.sweep

    def sweep(*words):
        node.set_slurm(**after)
        return real(*words)

    node.hardware.state(fault)
    node.show_host()
    monkeypatch.setattr(_health_ask, "sweep", sweep)
    assert node.run("health") == status
    found = [one["status"] for one in node.records() if one["check"] == check]
    assert sorted(found)[0] == ("fail" if status == FAILED else "not_measured")
    assert ("DRAIN" in node.in_slurm[0]) == (status == FAILED)


def _step(node):
    """Start a step, as root has it in its table of processes."""
    folder = node.folder / "proc/4711"
    folder.mkdir()
    (folder / "cmdline").write_text("slurmstepd: [812.batch]\0")
    (node.folder / "jobs").write_text("812\n")


@pytest.mark.parametrize("meanwhile", [False, True])
@pytest.mark.parametrize(
    "change", [_step, lambda node: node.set_slurm("IDLE+MAINTENANCE")], ids=["suspended", "window"]
)
def test_a_job_that_is_suspended_and_an_operator_have_left_nothing(
    node, monkeypatch, change, meanwhile
):
    """Slurm calls a node idle whose jobs are suspended."""
    node.hardware.state(PROCESS)
    node.show_host()
    real = _health_ask.sweep

    def sweep(*words):
        change(node)
        return real(*words)

    if meanwhile:
        monkeypatch.setattr(_health_ask, "sweep", sweep)
    else:
        change(node)
    assert node.run("health") == OK
    found = {one["status"] for one in node.records() if one["check"] == "gpu.processes"}
    assert found == ({"pass", "not_measured"} if meanwhile else set())
    assert "DRAIN" not in node.in_slurm[0]


@pytest.mark.parametrize(
    ("squeue", "status", "kept"),
    [("true", FAILED, "fail"), ("exit 1", OK, "not_measured")],
    ids=["over", "unknown"],
)
def test_the_step_of_a_job_that_is_over_hides_nothing(node, squeue, status, kept):
    """Its process cannot be ended, and holds the GPU."""
    node.hardware.state(PROCESS)
    node.show_host()
    _step(node)
    node.tool("squeue", squeue)
    assert node.run("health") == status
    assert node.odd()[("gpu:dgx-01/2", "gpu.processes")] == kept
    assert ("DRAIN" in node.in_slurm[0]) == (status == FAILED)


def test_without_a_step_the_jobs_of_the_cluster_are_not_asked_for(node):
    node.tool("squeue", f"touch {node.folder}/asked")
    assert node.run("health") == OK
    assert not (node.folder / "asked").exists()


@pytest.mark.parametrize("name", ["nv-hostengine", "slurmstepd"])
def test_a_process_whose_title_does_not_come_back_holds_up_nothing(node, monkeypatch, name):
    monkeypatch.setattr(_health_run, "_STEPS_S", 0.3)
    folder = node.folder / "proc/4711"
    folder.mkdir()
    os.mkfifo(folder / "cmdline")
    (folder / "status").write_text(f"Name:\t{name}\nUid:\t0\t0\t0\t0\n")
    node.hardware.state(PROCESS)
    node.show_host()
    node.tool("squeue", "exit 1")
    began = time.monotonic()
    found = OK if name == "slurmstepd" else FAILED
    assert node.run("health") == found
    assert time.monotonic() - began < 10
    kept = {OK: "not_measured", FAILED: "fail"}
    assert node.odd()[("gpu:dgx-01/2", "gpu.processes")] == kept[found]


@pytest.mark.parametrize("begins", ["before", "meanwhile", "never"])
def test_a_test_of_this_collection_is_no_job_that_left_something(node, monkeypatch, begins):
    """validate_nodes loads drained nodes, too, and over SSH some in service."""
    node.hardware.state(PROCESS)
    node.show_host()
    node.set_slurm("IDLE+DRAIN+RESERVED", "dgx-gate: new")
    with contextlib.ExitStack() as test:
        if begins == "before":
            test.enter_context(loading())
        if begins == "meanwhile":
            after = _health_run._after_checks

            def begun(*words):
                test.enter_context(loading())
                return after(*words)

            monkeypatch.setattr(_health_run, "_after_checks", begun)
        assert node.run("timer") == (FAILED if begins == "never" else OK)
    found = {one["status"] for one in node.records("timer") if one["check"] == "gpu.processes"}
    assert found == {
        "before": set(), "meanwhile": {"pass", "not_measured"}, "never": {"pass", "fail"}
    }[begins]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node: node.set_slurm(down={}), "Unable to contact slurm controller"),
        (lambda node: (node.tools / "scontrol").unlink(), "is not installed"),
        (lambda node: node.slurm.write_text('{"dgx-02": {"state": "IDLE"}}'), "not found"),
        (lambda node: node.tool("scontrol", "echo gibberish"), "does not know a node"),
    ],
)
def test_without_slurm_the_checks_still_run_and_the_program_says_so(node, change, message):
    node.inject("nvlink_down")
    change(node)
    # A node whose drain Slurm did not take stays in service: a failed prolog would drain it.
    assert node.run("health") == HELD
    assert node.odd()[("gpu:dgx-01/6", "gpu.nvlink_active")] == "fail"
    faults = [one["text"] for one in node.records() if one["check"] == "health.checker"]
    assert len(faults) == 2
    assert message in faults[0]
    assert faults[1].startswith("Slurm did not take the change: ")


def test_a_slurm_that_hangs_does_not_hold_up_a_prolog(node):
    node.inject("nvlink_down")
    node.tool("scontrol", "sleep 30")
    begun = time.monotonic()
    assert node.run("prolog") == HELD
    assert time.monotonic() - begun < 15
    assert "did not end within" in node.records("prolog")[-1]["text"]


def test_a_prolog_that_finds_nothing_does_not_ask_slurm(node):
    assert node.run("prolog") == OK
    assert node.calls == []


# Taking back.


@pytest.fixture
def drained(node):
    """A node that this program has drained, and whose fault has gone."""
    node.inject("nvlink_down")
    node.run("health")
    node.inject()
    assert node.in_slurm[0] == "IDLE+DRAIN"
    return node


def test_nothing_is_taken_back_unless_told_so(drained):
    assert drained.run("health") == OK
    assert drained.in_slurm[0] == "IDLE+DRAIN"


def test_its_own_drain_is_taken_back_by_a_pass_when_told_so(drained):
    drained.config["resume"] = True
    assert drained.run("timer") == OK
    assert drained.in_slurm[0] == "IDLE+DRAIN"
    assert drained.run("health") == OK
    assert drained.in_slurm == ("IDLE", "")


@pytest.mark.parametrize(
    "change",
    [
        lambda node: node.set_slurm("IDLE+DRAIN+MAINTENANCE", node.in_slurm[1]),
        lambda node: node.set_slurm("MIXED+DRAIN", node.in_slurm[1]),
        _step,
        lambda node: node.tool("squeue", "exit 1") or _step(node),
        None,
    ],
    ids=["window", "job", "suspended", "unknown", "test"],
)
def test_a_node_that_is_not_idle_takes_nothing_back(drained, change):
    """What jobs have left on its GPUs is not asked meanwhile."""
    drained.config["resume"] = True
    with contextlib.nullcontext() if change else loading():
        if change:
            change(drained)
        before = drained.in_slurm
        assert drained.run("health") == OK
    assert drained.in_slurm == before


def test_what_was_not_measured_takes_nothing_back(drained):
    drained.config["resume"] = True
    drained.tool("chronyc", "exit 1")
    assert drained.run("health") == OK
    assert drained.in_slurm[0] == "IDLE+DRAIN"


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN+DRAIN"])
@pytest.mark.parametrize("added", ["", " : Not responding"])
def test_its_own_drain_is_its_own_after_a_long_boot(drained, state, added):
    drained.config["resume"] = True
    reason = drained.in_slurm[1]
    for still in (f"{reason}{added}, ask Ann", f"{reason} : ask Ann"):
        drained.set_slurm(state, still)
        assert drained.run("health") == OK
        assert drained.in_slurm == (state, still)
    # RESUME would cancel an operator's reboot.
    for still in ("DOWN+NOT_RESPONDING+DRAIN", "DOWN", f"{state}+REBOOT_REQUESTED"):
        drained.set_slurm(still, reason + added)
        assert drained.run("health") == OK
        assert drained.in_slurm == (still, reason + added)
    drained.set_slurm(state, reason + added)
    assert drained.run("health") == OK
    assert drained.in_slurm == ("IDLE", "")


@pytest.mark.parametrize("reason", ["node-health: by hand", "kept for Ann"])
def test_another_reason_is_never_taken_back(drained, reason):
    drained.config["resume"] = True
    drained.set_slurm("IDLE+DRAIN", reason)
    assert drained.run("health") == OK
    assert drained.in_slurm == ("IDLE+DRAIN", reason)


@pytest.mark.parametrize(
    ("first", "state"),
    [("health", "IDLE"), ("prolog", "IDLE"), ("prolog", "ALLOCATED"), ("prolog", "MIXED"),
     ("epilog", "COMPLETING")],
)  # fmt: skip
@pytest.mark.usefixtures("patient")
def test_xids_are_settled_by_the_one_who_resumes_the_node(node, first, state):
    node.hardware.kernel_log.write_text(LOST)
    assert node.run("health") == FAILED
    assert "gpu.xid" in node.in_slurm[1]
    # Of the run that settles them, a job's start may be the first.
    node.set_slurm(state)
    asked = len(node.calls)
    assert node.run(first) == OK
    assert node.run("health") == OK
    assert node.in_slurm == (state, "")
    # Once is enough: the next job does not ask Slurm.
    assert node.run("prolog") == OK
    assert node.calls[asked:] == 2 * ["show node dgx-01"]
    node.hardware.kernel_log.write_text(LOST + LOST.replace("10.5", "99.5"))
    assert node.run("health") == FAILED


@pytest.mark.parametrize("first", ["health", "prolog"])
@pytest.mark.usefixtures("patient")
def test_a_drain_of_an_earlier_boot_settles_no_xid_of_this_one(node, first):
    """`scontrol reboot` with nextstate=RESUME takes a drain back, and no operator has looked."""
    node.hardware.kernel_log.write_text(LOST)
    assert node.run("health") == FAILED
    reason = node.in_slurm[1]
    path = node.state / "state.json"
    state = json.loads(path.read_text())
    assert state["drained_boot"] == state["boot"]
    path.write_text(json.dumps({**state, "boot": "earlier", "drained_boot": "earlier"}))
    # Before Slurm resumes it, the drain is known to be that of before.
    node.set_slurm("IDLE+DRAIN+REBOOT_ISSUED", reason)
    assert node.run("health") == FAILED
    assert json.loads(path.read_text())["drained_boot"] == "earlier"
    node.set_slurm("IDLE")
    assert node.run(first) == FAILED
    assert node.in_slurm == ("IDLE+DRAIN", reason)
    # Of this drain the operator knows.
    node.set_slurm("IDLE")
    assert node.run(first) == OK
    assert node.in_slurm == ("IDLE", "")


@pytest.mark.usefixtures("patient")
def test_after_a_boot_by_hand_the_operator_who_resumes_the_node_has_seen_its_xids(node):
    """Slurm takes no drain back by itself then, and a second drain would be for the same Xid."""
    node.hardware.kernel_log.write_text(LOST)
    assert node.run("health") == FAILED
    path = node.state / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "boot": "earlier", "drained_boot": "earlier"}))
    assert node.run("health") == FAILED
    assert node.in_slurm[0] == "IDLE+DRAIN"
    node.set_slurm("IDLE")
    assert node.run("health") == OK
    assert node.in_slurm == ("IDLE", "")


@pytest.mark.parametrize("first", ["health", "prolog"])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.usefixtures("patient")
def test_an_xid_after_the_evidence_of_the_gate_is_not_settled_by_its_resume(node, first, again):
    """A repair has booted the node, and the gate resumes it by what it has measured since."""
    node.hardware.kernel_log.write_text(LOST)
    assert node.run("health") == FAILED
    path = node.state / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "boot": "earlier", "drained_boot": "earlier"}))
    node.hardware.kernel_log.write_text("")
    assert node.run("health") == OK
    state = json.loads(path.read_text())
    assert state["drained_boot"] == state["boot"]
    # It passes the validation; then its GPU falls off the bus.
    node.hardware.kernel_log.write_text(LOST)
    assert not again or node.run("health") == FAILED
    node.set_slurm("IDLE")
    assert node.run(first) == FAILED
    assert node.in_slurm[0] == "IDLE+DRAIN"
    assert "Xid 79" in node.in_slurm[1]
    # This drain is of the present boot.
    node.set_slurm("IDLE")
    assert node.run(first) == OK
    assert node.in_slurm == ("IDLE", "")


@pytest.mark.usefixtures("patient")
def test_a_job_that_ends_on_a_drained_node_settles_nothing(node):
    node.hardware.kernel_log.write_text(LOST)
    node.set_slurm("MIXED")
    assert node.run("health") == FAILED
    assert node.run("epilog") == FAILED
    assert node.odd("epilog") == {("gpu:dgx-01/4", "gpu.xid"): "fail"}
    assert node.in_slurm[0] == "MIXED+DRAIN"


@pytest.mark.parametrize("mode", ["health", "prolog"])
@pytest.mark.usefixtures("patient")
def test_a_node_that_may_have_been_resumed_is_not_drained_for_the_same(node, mode):
    node.hardware.kernel_log.write_text(LOST)
    assert node.run("health") == FAILED
    node.set_slurm("IDLE")
    real = (node.tools / "scontrol").read_text().split("\n", 1)[1]
    # Slurm is slow once, when the run asks for the node; to drain it asks for all.
    node.tool("scontrol", f'[ "$4" != dgx-01 ] || exit 1\n{real}')
    assert node.run(mode) == HELD
    assert node.in_slurm == ("IDLE", "")
    node.tool("scontrol", real)
    assert node.run(mode) == OK


@pytest.mark.usefixtures("patient")
def test_a_job_is_not_held_to_what_an_idle_node_must_be(drained):
    drained.hardware.state("gpu.2.memory_used_mib = 700\n")
    drained.show_host()
    drained.set_slurm("IDLE")
    assert drained.run("prolog") == OK
    assert drained.in_slurm == ("IDLE", "")


# The program itself.


@pytest.mark.parametrize(
    "text",
    ["", '{"version": 1, "node": "dgx-0', "[]", '{"version": 2, "node": "a"}', '{"version": 1}',
     '{"version": 1, "node": "a", "checks": ["gpus"]}', '{"version": 1, "node": "a", "gpuu": {}}',
     '{"version": 1, "node": "a", "cpus": "8"}', '{"version": 1, "node": "a", "cpus": true}',
     '{"version": 1, "node": "a", "mounts": [{"path": "home"}]}',
     '{"version": 1, "node": "a", "services": [1]}'],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["prolog", "event", "check-config"])
def test_a_configuration_that_is_none_is_the_fault_of_the_program(node, text, mode, monkeypatch):
    path = node.folder / "bad.json"
    path.write_text(text)
    run = _health_run_main(path, node)
    assert run(mode) == FAULT
    name = {"check-config": "config"}.get(mode, mode)
    (record,) = json.loads((node.state / f"{name}.json").read_text())["records"]
    assert record["check"] == "health.checker"
    assert record["status"] == "not_measured"
    assert node.calls == []


def test_metrics_say_that_there_is_no_configuration(node):
    from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.main import main

    words = ["--config", str(node.folder / "none.json"), "--state-dir", str(node.state)]
    words += ["--metrics-file", str(node.metrics)]
    node.run("timer")
    assert "baremetal_dgx_health_checker_ok 1" in node.metrics.read_text()
    # A job that starts shows nothing about the node's own checks.
    assert main(["--prolog", *words]) == FAULT
    assert "baremetal_dgx_health_checker_ok 1" in node.metrics.read_text()
    assert main(["--timer", *words]) == FAULT
    assert "baremetal_dgx_health_checker_ok 0" in node.metrics.read_text()


def _health_run_main(path, node):
    from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.main import main

    return lambda mode: main([f"--{mode}", "--config", str(path), "--state-dir", str(node.state)])


def test_a_profile_that_cannot_be_is_the_fault_of_the_program(node):
    node.config["gpu"]["thresholds"] = {"gpu.no_such_check": 1}
    assert node.run("health") == FAULT
    assert node.in_slurm == ("IDLE", "")


def test_two_runs_at_once_are_one(node):
    with host_lock(lock_name(str(node.state), "run"), 1):
        assert node.run("timer") == OK
        assert not (node.state / "timer.json").exists()
        # Jobs that start do not wait for it.
        assert node.run("prolog") == OK
        assert (node.state / "prolog.json").exists()


@pytest.mark.parametrize("text", ["", "{", '{"boot": "x"}', '{"boot": 1, "drained": []}', "[1]"])
def test_a_torn_memory_is_begun_again(node, text):
    (node.state / "state.json").write_text(text)
    assert node.run("health") == OK


def test_what_cannot_be_written_is_a_fault_and_no_verdict(node):
    node.metrics.parent.write_text("a file where a folder should be")
    assert node.run("timer") == FAULT
    assert node.odd("timer") == {}
    assert node.in_slurm == ("IDLE", "")


def test_a_full_state_folder_hides_no_broken_adapter(node, monkeypatch, capsys):
    """What cannot be kept is a fault of the program; what the node shows is judged all the same."""
    dgx(node.folder / "sys", mlx5_rail0={"state": "1: DOWN", "physical": "2: Polling"})
    rails = [{"rail": n, "pci": f"{bus}:00.0", "rate_gbps": 400} for n, bus in enumerate(RAILS)]
    node.config["ib"] = {"rails": rails}

    def full(*_words):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    monkeypatch.setattr(os, "pwrite", full)
    assert node.run("health") == FAILED
    assert node.in_slurm[0] == "IDLE+DRAIN"
    assert list(node.state.iterdir()) == []
    lines = capsys.readouterr().out.splitlines()
    assert f"checker: {node.metrics} cannot be written: No space left on device" in lines
    assert not any("Error" in line for line in lines)


def test_a_full_state_folder_drains_no_node(node, monkeypatch):
    def full(*_words):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    for mode in MODES:
        assert node.run(mode) == FAULT
    assert node.in_slurm == ("IDLE", "")


# The brake over the fleet.


def _others_out(node, *names, all_of=8):
    """Put the node among others, of which these have drained themselves."""
    world = {
        f"dgx-{number:02d}": {"state": "IDLE", "reason": ""} for number in range(1, all_of + 1)
    }
    for name in names:
        reason = write_reason(name, ITSELF, "ib.link_downed")
        world[name] = {"state": "IDLE+DRAIN", "reason": reason}
    node.slurm.write_text(json.dumps(world))


@pytest.mark.parametrize("mode", ["health", "prolog", "epilog"])
def test_above_the_share_a_node_stays_in_service_and_says_so_once(node, mode, capsys, monkeypatch):
    given = {**vars(_health_settings.MODES[mode]), "limit_s": 40.0, "one_s": 10.0}
    monkeypatch.setitem(_health_settings.MODES, mode, _health_settings.Mode(**given))
    node.inject("nvlink_down")
    _others_out(node, "dgx-04")
    # Not 10: with that prolog and epilog would fail, and Slurm would drain the node itself.
    assert node.run(mode) == HELD
    assert node.in_slurm == ("IDLE", "")
    assert "brake: 1 of 8 nodes are out by themselves, 1 may be" in capsys.readouterr().out
    comment = json.loads(node.slurm.read_text())["dgx-01"]["comment"]
    assert comment.startswith("{node-health left in service: gpu:dgx-01/6 gpu.nvlink_active")
    assert node.run(mode) == HELD
    assert "brake" not in capsys.readouterr().out
    assert len([call for call in node.calls if call.startswith("update")]) == 1
    # There is room again: the health check drains, whatever a prolog has found.
    _others_out(node)
    assert node.run("health") == FAILED
    assert node.in_slurm[0] == "IDLE+DRAIN"


def test_a_node_that_is_fit_again_clears_its_comment_and_its_metric(node):
    node.inject("nvlink_down")
    _others_out(node, "dgx-04")
    assert node.run("health") == HELD
    assert "baremetal_dgx_health_brake_held 1" in node.metrics.read_text()
    assert node.run("timer") == FAILED
    assert "baremetal_dgx_health_brake_held 1" in node.metrics.read_text()
    node.inject()
    assert node.run("health") == OK
    assert json.loads(node.slurm.read_text())["dgx-01"]["comment"] == ""
    assert "baremetal_dgx_health_brake_held 0" in node.metrics.read_text()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("how", ["breaks", "hangs", "is not asked"])
def test_a_held_node_is_not_fit_again_by_what_was_not_measured(node, monkeypatch, how):
    def broken(*_args):
        raise OSError(errno.EAGAIN, "no process")

    node.inject("nvlink_down")
    _others_out(node, "dgx-04")
    assert node.run("health") == HELD
    comment = json.loads(node.slurm.read_text())["dgx-01"]["comment"]
    with monkeypatch.context() as without:
        if how == "is not asked":
            without.setattr(_health_run, "ask_all", broken)
        else:
            without.setattr(_health_ask, "sweep", broken if how == "breaks" else _hang)
        assert node.run("health") == (OK if how == "hangs" else FAULT)
    assert json.loads(node.slurm.read_text())["dgx-01"]["comment"] == comment
    assert "left in service" in comment
    assert "baremetal_dgx_health_brake_held 1" in node.metrics.read_text()


def test_a_job_on_a_held_node_does_not_ask_slurm_again(node):
    node.inject("nvlink_down")
    _others_out(node, "dgx-04")
    assert node.run("health") == HELD
    before = len(node.calls)
    assert node.run("epilog") == HELD
    assert len(node.calls) == before


@pytest.mark.parametrize(
    ("message", "may_arrive"),
    [
        ("slurm_update error: Socket timed out on send/recv operation", True),
        ("slurm_update error: Invalid node state specified", False),
    ],
)
def test_an_update_without_an_answer_keeps_the_node_from_trying_again(node, message, may_arrive):
    node.inject("nvlink_down")
    real = (node.tools / "scontrol").read_text().split("\n", 1)[1]
    node.tool("scontrol", f'case "$1" in update) echo "{message}" >&2; exit 1;; esac\n{real}')
    assert node.run("health") == HELD
    sent = node.state / "brake-sent.json"
    assert sent.exists() == may_arrive
    node.tool("scontrol", real)
    if may_arrive:
        assert node.run("health") == HELD
        assert "an earlier update was not answered" in node.records()[-1]["text"]
        sent.write_text(json.dumps({"at": time.time() - 1000}))
    assert node.run("health") == FAILED
    assert not sent.exists()


def test_the_timer_keeps_a_reading_a_day_of_each_link(node):
    """What a slot of Slurm has no time for: adapters are asked through their firmware."""
    dgx(node.folder / "sys")
    node.tool("mlxlink", f"cat {FIXTURES}/mlxlink/ndr-fec-histogram.json")
    rails = [{"rail": n, "pci": f"{bus}:00.0", "rate_gbps": 400} for n, bus in enumerate(RAILS)]
    node.config["ib"] = {"rails": rails}
    node.run("health")
    log = node.state / "links.jsonl"
    assert not log.exists()
    node.run("timer")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line[1] for line in lines] == list(range(8))
    assert {line[2] for line in lines} == {"FB2404000017"}
    node.run("timer")
    assert len(log.read_text().splitlines()) == 8
