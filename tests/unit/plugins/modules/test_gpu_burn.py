# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_burn from the task to the records, its program unmodified, on simulated libraries.

Each GPU of a run has its own fault: one run asks whether each is found on the right GPU and
nothing on the others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._burn import control as _burn_app
from ansible_collections.baremetal.dgx.plugins.module_utils._burn import parent as _burn_parent
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.control import (
    archive,
    settings_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.plan import (
    NAMES,
    settings_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.state import load
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import run as run_command
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation import calls
from ansible_collections.baremetal.dgx.plugins.modules import gpu_burn
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.calls import completed

HARDWARE = ROOT / "virtual_pod" / "hardware"
BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
TWO = ["0000:1b:00.0", "0000:43:00.0"]
# The processes of a burn-in in which all is well.
STAND_IN = """
import json, sys, time
words = sys.argv[1:]
if words[0] == "look":
    gpus = [{"index": n, "address": a, "processes": []} for n, a in enumerate(%r)]
    print(json.dumps({"gpus": gpus}))
elif words[0] == "watch":
    print(json.dumps({"samples": {}}), flush=True)
    time.sleep(60)
else:
    for line in sys.stdin:
        phase = json.loads(line).get("name")
        print(json.dumps({"event": "done" if phase else "ready", "phase": phase}), flush=True)
""" % (TWO,)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("gcc"), reason="gcc builds the libraries"),
]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    out = tmp_path_factory.mktemp("burn_libraries")
    names = ("libnvidia-ml.so.1", "libcuda.so.1", "libcublasLt.so.12")
    made = [f"{out}/{name}" for name in names]
    subprocess.run(["make", "-s", "-C", str(HARDWARE), f"OUT={out}", *made], check=True)
    return out


class Node:
    def __init__(self, folder, run_module):
        self.folder, self._run = folder, run_module
        self.work = folder / "burn"
        self.state("")

    def state(self, text):
        (self.folder / "state").write_text("gpu.*.pace_ms = 2\n" + text)

    def burn(self, check=False, **params):
        options = {
            "node": "dgx-01",
            "folder": str(self.work),
            "duration_s": 1.0,
            "n": 64,
            "memory_mib": 2,
            "most_batch": 4,
            "silent_s": 30.0,
            "fail_on": [],
            **params,
        }
        self.answer = self._run(gpu_burn.main, options, check=check)
        assert "records" in self.answer, self.answer.get("msg")
        return self.answer

    def of(self, gpu, status):
        """{check: text} of the records of a GPU with a status."""
        return {
            one["check"]: one["text"]
            for one in self.answer["records"]
            if one["subject"] == f"gpu:dgx-01/{gpu}" and one["status"] == status
        }


@pytest.fixture
def node(tmp_path, libraries, monkeypatch, run_module):
    monkeypatch.setenv("SIMULATED_HARDWARE", str(tmp_path / "state"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # must not hide GPUs from the burn-in
    # A test must not start units on the machine it runs on.
    monkeypatch.setattr(_burn_app.shutil, "which", lambda _name: None)
    made = Node(tmp_path, run_module)
    yield made
    _burn_app.stop(str(made.work))


def test_eight_healthy_gpus_pass_everything(node):
    answer = node.burn()
    assert answer["verdict"] == "pass", (answer["findings"], answer["not_measured"])
    assert answer["action"] == "start"
    assert answer["changed"]
    assert answer["run"]["simulated"]
    for gpu in range(8):
        passed = node.of(gpu, "pass")
        wanted = {f"burn.{name}" for name in NAMES}
        wanted |= {"burn.run", "burn.rate_hbm", "burn.rate_bf16", "burn.like_fp64", "burn.watch"}
        assert wanted <= set(passed)
        assert passed["burn.peers"] == "14 pairs verified"
    first = answer["records"][0]
    assert first["evidence"][0] == "PCI 0000:1b:00.0"
    assert any("SIMULATED" in line for line in first["evidence"])

    # What is over is reported again, and not burned in again. It counts by the time of the burn.
    kept = json.loads((node.work / "state.json").read_text())
    kept["updated"] -= 3 * 86400
    (node.work / "state.json").write_text(json.dumps(kept))
    again = node.burn()
    assert not again["changed"]
    assert again["action"] == "report"
    assert again["verdict"] == "pass"
    burnt = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(kept["updated"]))
    assert {one["at"] for one in again["records"]} == {burnt}
    assert node.burn(check=True, again_after_days=4)["action"] == "report"
    assert node.burn(check=True, again_after_days=2)["action"] == "start"


def test_each_fault_on_its_gpu(node):
    """Those that the pod knows by name among them."""
    faults = [(HARDWARE / "faults" / f"{name}.state").read_text() for name in ("sdc", "slow_hbm")]
    node.state(
        "".join(faults)
        + """\
gpu.1.hang = burn_check_float
gpu.2.nan = 1 5 6
gpu.4.ret.cuMemAlloc_v2 = 2
gpu.6.processes = 1
gpu.6.process.0.pid = 4242
gpu.7.mig = 1
"""
    )
    # A machine that is busy with other things must not make healthy GPUs silent.
    node.burn(phases=["hbm_rate", "gemm_bf16"], silent_s=15.0)
    assert node.answer["verdict"] == "fail"
    assert not node.of(0, "fail")
    assert not node.of(0, "not_measured")
    flipped = node.of(3, "fail")
    assert list(flipped) == ["burn.gemm_bf16"]
    assert flipped["burn.gemm_bf16"].startswith("row 19 column 7 is ")
    assert "(bits 0x1), 1 wrong rows" in flipped["burn.gemm_bf16"]
    assert node.of(2, "fail")["burn.gemm_bf16"].startswith("row 5 column 6 is nan, must be ")
    assert not node.of(1, "fail")
    assert "printed nothing for" in node.of(1, "not_measured")["burn.run"]
    assert not node.of(4, "fail")
    assert "OUT_OF_MEMORY" in node.of(4, "not_measured")["burn.run"]
    assert set(node.of(5, "fail")) == {"burn.rate_hbm", "burn.like_hbm"}
    assert node.of(6, "not_measured") == {"burn.run": "processes use it: 4242"}
    assert node.of(7, "not_measured") == {"burn.run": "MIG is on: only a part could be loaded"}
    hung = next(one for one in node.answer["records"] if one["subject"].endswith("/1"))
    assert any(line.startswith("last sample: ") for line in hung["evidence"])


def test_a_gpu_that_was_busy_is_burned_once_it_is_free(node):
    """By the same task: who ends a process does not think of again=true."""
    given = {"phases": ["gemm_bf16"], "gpus": TWO}
    busy = "gpu.1.processes = 1\ngpu.1.process.0.pid = 4242\n"
    node.state(busy)
    node.burn(**given)
    assert node.of(1, "not_measured") == {"burn.run": "processes use it: 4242"}
    # The task that waits, in validate_nodes, would burn the others a second time.
    assert node.burn(again_if_unburned=False, **given)["action"] == "report"
    node.state(busy + busy.replace("gpu.1", "gpu.0"))
    assert node.burn(**given)["action"] == "start"
    assert node.answer["run"]["state"] == "failed"
    node.state("")
    assert node.burn(again_after_days=7, **given)["action"] == "start"
    assert node.answer["verdict"] == "pass"
    assert node.burn(again_after_days=7, **given)["action"] == "report"


@pytest.mark.parametrize(
    ("wanted", "subject", "text"),
    [
        ({"slots": [f"0000:{bus}:00.0" for bus in BUSES]}, "gpu:dgx-01/2", "no GPU was there"),
        ({"count": 8}, "node:dgx-01", "7 of 8 GPUs were there"),
    ],
)
def test_a_gpu_that_was_gone_is_burned_once_it_is_back(node, wanted, subject, text):
    """The others passed without it: back on the bus it must not count as burned."""
    given = {"phases": ["gemm_bf16"], "again_after_days": 7, **wanted}
    gone = "gpu.2.absent = 1\n"
    node.state(gone)
    assert node.burn(**given)["verdict"] == "not_measured"
    lacking = [one for one in node.answer["records"] if one["status"] == "not_measured"]
    text += " when this burn-in ran"
    assert [(one["check"], one["subject"], one["text"]) for one in lacking] == [
        ("burn.run", subject, text)
    ]
    # The others are not burned again as long as it is gone, nor by the task that waits.
    assert node.burn(**given)["action"] == "report"
    node.state("")
    assert node.burn(again_if_unburned=False, **given)["action"] == "report"
    assert node.burn(**given)["action"] == "start"
    assert node.answer["verdict"] == "pass"
    assert node.burn(**given)["action"] == "report"


def test_bits_that_go_wrong_every_time_memory_and_ways(node):
    node.state(
        """\
gpu.1.flip = * 40 9 30 bf16
gpu.2.memory_flip = 1000 17
gpu.3.h2d_flip = 1
gpu.4.peer_flip = 6
gpu.5.peer_gbps = 40
gpu.5.peer_gbps.0 = 40
"""
    )
    node.burn(phases=["hbm", "host", "entropy_bf16", "peers"])
    assert set(node.of(1, "fail")) == {"burn.entropy_bf16"}
    # Alone it agrees with itself; seven others say what is right, and their sums say where.
    text = node.of(1, "fail")["burn.entropy_bf16"]
    assert (
        "7 GPUs agree on data set 0, this one differs in 1 rows, the first row 40 column 9" in text
    )
    memory = node.of(2, "fail")
    assert memory["burn.hbm"].startswith("offset 0x1f40 of pattern zeros: bits 0x20000, 1 wrong")
    assert set(node.of(3, "fail")) == {"burn.host"}
    # One bad pair: either end may be the cause.
    for gpu in (4, 6):
        assert "0000:9d:00.0 to 0000:d1:00.0: word" in node.of(gpu, "fail")["burn.peers"]
    assert "at 0.10 of the median" in node.of(5, "fail")["burn.pairs"]
    for gpu in (0, 7):
        assert not node.of(gpu, "fail")


def test_an_error_that_all_have_alike_fails_none(node):
    node.state("gpu.*.flip = * 3 4 12 bf16\n")
    answer = node.burn(phases=["gemm_bf16"], gpus=TWO)
    assert answer["verdict"] == "not_measured"
    assert "all GPUs give the same" in node.of(0, "not_measured")["burn.gemm_bf16"]


@pytest.mark.parametrize(
    ("state", "params", "text", "remedy"),
    [
        ("ret.cuInit = 802\n", {}, "CUDA_ERROR_SYSTEM_NOT_READY (802)", "nvidia-fabricmanager"),
        ("", {"memory_mib": 1, "n": 1024}, "a bf16 product of size 1024 needs 8 MiB", "memory_mib"),
        ("", {"cublaslt": "/none/libcublasLt.so.12"}, "searched: /none/libcublasLt.so.12", "path"),
    ],
    ids=["802", "memory", "library"],
)
def test_what_cannot_run_is_not_measured(node, state, params, text, remedy):
    node.state(state)
    answer = node.burn(phases=["gemm_bf16"], gpus=TWO, **params)
    assert answer["verdict"] == "not_measured"
    assert not answer["findings"]
    for gpu in (0, 1):
        messages = [
            (one["text"], one["remedy"])
            for one in answer["records"]
            if one["subject"].endswith(f"/{gpu}") and one["status"] == "not_measured"
        ]
        assert any(text in one and remedy in fix for one, fix in messages), messages


@pytest.mark.parametrize(
    ("thresholds", "says"),
    [
        (
            {"bf_16": 700},
            "thresholds.bf_16: 'bf_16' does not fit; write bf16, fp8, fp16, tf32, fp64, ",
        ),
        ({"BF16": 700}, "thresholds.BF16: 'BF16' does not fit; write bf16"),
        ({"bf16": "fast"}, "thresholds.bf16: a number is wanted, this is the text 'fast'"),
        ({"bf16": {"min": 700}}, "thresholds.bf16: a number is wanted, this is a mapping"),
        ({"hbm": "nan"}, "thresholds.hbm: a number is wanted, this is the number nan"),
        ({"hbm": -1}, "thresholds.hbm: -1 is out of range; write a number from 0 to 1000000"),
    ],
)
def test_thresholds_that_are_none_are_refused_before_it_starts(
    run_module, tmp_path, thresholds, says
):
    """By the module and by the program of a node; what spells a number is one."""
    options = {"node": "dgx-01", "folder": str(tmp_path / "burn")}
    answer = run_module(gpu_burn.main, {**options, "thresholds": thresholds})
    assert answer["failed"]
    assert answer["msg"].startswith(says)
    given = completed("gpu_burn", {**options, "thresholds": thresholds})
    with pytest.raises(ValueError, match=re.escape(says)):
        calls.call(run_command, "gpu_burn", given, lambda: "")
    assert not (tmp_path / "burn").exists()
    settings_of({**given, "thresholds": {"bf16": "700", "peer": 0}})


def test_no_cuda_driver(node, libraries, tmp_path, monkeypatch):
    (tmp_path / "only_nvml").mkdir()
    shutil.copy(libraries / "libnvidia-ml.so.1", tmp_path / "only_nvml")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "only_nvml"))
    known = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, check=False).stdout
    if b"libcuda.so.1" in known:
        pytest.skip("this machine has its own CUDA driver")
    answer = node.burn(phases=["gemm_bf16"], gpus=TWO)
    assert answer["verdict"] == "not_measured"
    assert "libcuda.so.1 cannot be used" in node.of(0, "not_measured")["burn.run"]


def test_no_nvml(node, monkeypatch):
    answer = node.burn(nvml="/none/libnvidia-ml.so.1")
    assert answer["verdict"] == "not_measured"
    assert answer["records"][0]["subject"] == "node:dgx-01"


def test_too_hot_ends_all_load(node):
    node.state("gpu.1.temperature = 91\n")
    node.burn(phases=["gemm_bf16"], gpus=TWO, duration_s=20.0)
    assert node.answer["run"]["burnt_s"] < 15
    assert node.of(1, "fail")["burn.run"] == "stopped: 91 C, the limit is 89 C"
    assert "burn.run" in node.of(0, "not_measured")
    assert not node.of(0, "fail")


def wait_for(what, seconds=20):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def test_nvml_that_hangs_in_the_middle(node):
    params = {"phases": ["gemm_bf16"], "gpus": TWO, "duration_s": 15.0, "silent_s": 6.0}
    node.burn(state="started", **params)
    wait_for((node.work / "samples.jsonl").exists)
    node.state("gpu.1.hang = nvmlDeviceGetTemperature\n")
    node.burn(**params)
    for gpu in (0, 1):
        missed = node.of(gpu, "not_measured")
        assert set(missed) == {"burn.watch", "burn.throttle", "burn.xid", "burn.ecc"}
        assert set(missed.values()) == {"NVML hangs: it reported nothing for 6 s"}
        assert {"burn.run", "burn.gemm_bf16"} <= set(node.of(gpu, "pass"))


@pytest.fixture
def burn_here():
    """Make a burn-in whose parent is this process."""
    made = []
    handler = signal.getsignal(signal.SIGTERM)

    def make(folder, command, **settings):
        burn = _burn_parent.Burn(str(folder), command, settings_from_data(settings))
        made.append(burn)
        return burn

    yield make
    signal.signal(signal.SIGTERM, handler)
    for burn in made:
        for child in (*burn.workers.values(), burn.watcher):
            child.process.stdin.close()
            child.process.stdout.close()


def test_nvml_that_hangs_at_the_end(node, monkeypatch, burn_here):
    """`silent_s` is longer than what is left of the burn-in."""
    monkeypatch.setattr(_burn_parent, "_SILENT_AT_END_S", 2.0)
    given = {"phases": ["gemm_bf16"], "gpus": TWO, "duration_s": 8.0, "n": 64, "memory_mib": 2}
    _burn_app.prepare(str(node.work), settings_from_data(given), True)
    program = [sys.executable, "-I", "-S", str(node.work / "burn.pyz")]

    def hang():
        wait_for((node.work / "samples.jsonl").exists)
        node.state("gpu.1.hang = nvmlDeviceGetTemperature\n")

    thread = threading.Thread(target=hang)
    thread.start()
    assert burn_here(node.work, program, **given).run() == "done"
    thread.join()
    error = load(str(node.work)).watch_error
    assert re.fullmatch(r"NVML hangs: it reported nothing for the last \d+ s", error)


def test_what_nvml_reports_last_is_counted(tmp_path, burn_here):
    """What is in the queue when the last step ends."""
    command = [sys.executable, "-c", STAND_IN]
    made = burn_here(tmp_path, command, phases=["host"], gpus=TWO, duration_s=0.2)
    taken = made._step

    def step(one):
        taken(one)
        made.lines.put((made.watcher, {"xid": 79, "address": TWO[1]}))

    made._step = step
    assert made.run() == "done"
    assert made.state.seen[TWO[1]].xids == [79]
    assert not made.state.watch_error


@pytest.mark.parametrize(
    ("state", "why", "both"),
    [
        ("gpu.1.ret.nvmlDeviceRegisterEvents = 3\n", "not supported by this GPU", False),
        ("ret.nvmlEventSetWait_v2 = 15\n", "the GPU has fallen off the bus", True),
    ],
)
def test_xids_that_cannot_be_watched(node, state, why, both):
    node.state(state)
    node.burn(phases=["gemm_bf16"], gpus=TWO, duration_s=3.0)
    missed = {"burn.xid": f"Xids cannot be watched: {why}"}
    assert node.of(1, "not_measured") == missed
    assert node.of(0, "not_measured") == (missed if both else {})


def test_lost_in_the_middle_killed_and_resumed(node):
    """GPU 1 goes; the parent is killed; the next task resumes at the step it was in."""
    params = {"phases": ["host", "gemm_bf16"], "gpus": TWO, "duration_s": 4.0}
    folder = str(node.work)
    started = node.burn(state="started", **params)
    assert started["action"] == "start"
    wait_for(lambda: load(folder).step == 1)
    node.state("gpu.1.lost = 1\n")
    wait_for(lambda: TWO[1] not in running(folder))
    os.kill(load(folder).pid, signal.SIGKILL)
    wait_for(lambda: not _burn_parent.is_running(folder))
    wait_for(lambda: not running(folder))

    planned = node.burn(check=True, **params)
    assert planned["action"] == "resume"
    assert planned["text"] == "goes on at step 2 of 2, gemm_bf16"
    node.burn(**params)
    assert node.answer["run"]["resumed"] == 1
    assert node.answer["run"]["state"] == "done"
    passed = node.of(0, "pass")
    assert {"burn.run", "burn.host", "burn.gemm_bf16"} <= set(passed)
    lost = node.of(1, "not_measured")
    assert "fallen off the bus" in lost["burn.run"] or "CUDA_ERROR_UNKNOWN" in lost["burn.run"]
    assert not node.answer["findings"]


def test_gone_when_it_is_resumed(node):
    params = {"phases": ["host", "gemm_bf16"], "memory_mib": 2, "duration_s": 6.0}
    node.burn(state="started", **params)
    wait_for(lambda: load(str(node.work)).step == 1)
    assert node.burn(state="stopped", **params)["run"]["state"] == "interrupted"
    node.state("gpu.1.absent = 1\n")
    node.burn(**params)
    assert node.answer["run"]["state"] == "done"
    assert node.of(1, "not_measured")["burn.run"] == "NVML no longer knows it"
    runs = [one for one in node.answer["records"] if one["check"] == "burn.run"]
    assert [one["subject"] for one in runs] == [f"gpu:dgx-01/{gpu}" for gpu in range(8)]
    assert [one["evidence"][0] for one in runs] == [f"PCI 0000:{bus}:00.0" for bus in BUSES]
    assert [one["status"] for one in runs].count("pass") == 7


def test_exchanged_when_it_is_resumed(node):
    """What was found of the GPU before is neither a fault nor a pass of the one that is there.

    What was found of the others stands.
    """
    params = {"phases": ["hbm", "host", "gemm_bf16"], "gpus": TWO, "duration_s": 4.0}
    node.state("gpu.0.memory_flip = 1000 17\ngpu.1.h2d_flip = 1\n")
    node.burn(state="started", **params)
    wait_for(lambda: load(str(node.work)).step == 2)
    node.burn(state="stopped", **params)
    faults = {"burn.hbm", "burn.host"}
    assert (set(node.of(0, "fail")), set(node.of(1, "fail"))) == (faults, {"burn.host"})
    node.state("gpu.1.uuid = GPU-new\ngpu.1.serial = 1650999\n")
    node.burn(**params)
    assert (node.answer["run"]["state"], node.answer["run"]["resumed"]) == ("done", 0)
    assert (set(node.of(0, "fail")), set(node.of(1, "fail"))) == (faults, set())
    assert {"burn.run", "burn.hbm", "burn.host", "burn.gemm_bf16"} <= set(node.of(1, "pass"))
    run = next(one for one in node.answer["records"] if one["subject"].endswith("/1"))
    assert "serial 1650999" in run["evidence"]
    # Each step was run once by the GPU that is there.
    done = {name: one.done for name, one in load(str(node.work)).sums.items() if TWO[1] in name}
    assert set(done.values()) == {1}


def running(folder):
    """The GPUs that workers of this folder burn."""
    program = os.path.join(folder, "program")
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path("/proc", name, "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[3:5] == [program, "worker"]:
                found |= {word for word in words[5:] if word}
    return found


def test_another_burn_in_is_not_disturbed_and_can_be_stopped(node):
    params = {"phases": ["gemm_bf16"], "gpus": TWO[:1]}
    node.burn(state="started", duration_s=60.0, **params)
    followed = node.burn(state="started", duration_s=60.0, **params)
    assert (followed["action"], followed["changed"]) == ("follow", False)
    other = node._run(
        gpu_burn.main,
        {"folder": str(node.work), "duration_s": 50.0, "n": 64, "state": "started", **params},
    )
    assert other["failed"]
    assert "another" not in other["msg"]
    assert "with other settings is running" in other["msg"]
    stopped = node.burn(state="stopped", **params)
    assert stopped["changed"]
    assert not _burn_parent.is_running(str(node.work))
    assert stopped["run"]["state"] == "interrupted"
    assert node.of(0, "not_measured")["burn.run"] == "ended early: interrupted"
    assert not node.burn(state="stopped", **params)["changed"]


def test_as_a_unit_of_systemd(node, tmp_path, monkeypatch):
    """A stand-in for systemd-run that keeps its words and starts the command apart."""
    tools = tmp_path / "tools"
    tools.mkdir()
    reported = tmp_path / "words"
    (tools / "systemd-run").write_text(
        f"""#!/bin/sh
printf "%s\\n" "$@" >{reported}
while [ "${{1#--}}" != "$1" ]; do shift; done
python=$1 program=$2 folder=$4
exec "$python" "$program" start "$folder" >/dev/null 2>&1
"""
    )
    (tools / "systemd-run").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    settings = settings_from_data({"n": 64, "gpus": TWO[:1], "phases": ["host"], "memory_mib": 2})
    _burn_app.prepare(str(node.work), settings, True)
    assert _burn_app.start(str(node.work), systemd=True) == "unit baremetal-dgx-burn"
    words = reported.read_text().splitlines()
    assert words[:2] == ["--unit=baremetal-dgx-burn", "--collect"]
    assert f"--setenv=SIMULATED_HARDWARE={tmp_path}/state" in words
    assert words[-2:] == ["run", str(node.work)]

    (tools / "systemd-run").write_text("#!/bin/sh\necho Unit exists; exit 1\n")
    with pytest.raises(_burn_app.BurnError, match="systemd-run ended with 1: Unit exists"):
        _burn_app.start(str(node.work), systemd=True)


def test_check_mode_touches_nothing(node):
    answer = node.burn(check=True)
    assert answer["changed"]
    assert answer["action"] == "start"
    assert answer["text"].startswith("burns ")
    assert not node.work.exists()


def test_the_program_needs_nothing_but_python(tmp_path):
    """In an empty environment, without site packages, from the archive alone."""
    path = tmp_path / "burn.pyz"
    path.write_bytes(archive())
    assert archive() == path.read_bytes()
    made = subprocess.run(
        [shutil.which("python3") or "python3", "-I", "-S", str(path), "look", "/none"],
        stdout=subprocess.PIPE,
        env={},
        cwd="/",
        check=True,
    )
    assert "/none" in json.loads(made.stdout)["error"]


def test_documentation_lists_the_phases():
    listed = re.search(
        r"  phases:\n.*?choices:\n((?:      - \w+\n)+)", gpu_burn.DOCUMENTATION, re.S
    )
    assert listed
    assert tuple(re.findall(r"- (\w+)", listed.group(1))) == NAMES
