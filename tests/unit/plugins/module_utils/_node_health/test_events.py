# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event service: a serious Xid drains at once, each only once, nothing is lost by a restart."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from itertools import islice

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.hardware_log import parse_faults
from ansible_collections.baremetal.dgx.plugins.module_utils._host.kernel_log import KernelLog
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import (
    events as _health_events,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import (
    state as _health_state,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.events import (
    FileSource,
    KernelSource,
    follower_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.judge_local import (
    judge_hardware_log,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.settings import (
    settings_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.state import (
    known_log,
    load_state,
    remembered,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    ITSELF,
    write_reason,
)

LOST = "[{}] NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus.\n"
RESET_DONE = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
APPLICATION = "[{}] NVRM: Xid (PCI:0000:9d:00): 31, pid=1, name=a, MMU Fault\n"


@pytest.fixture
def service(node, monkeypatch):
    """`service()` starts the service again, and returns (one step, its output)."""
    monkeypatch.setattr(_health_events, "BEAT_S", 0.3)
    monkeypatch.setattr(_health_events, "_SETTLE_S", 0.05)

    def start():
        messages = []
        follower = follower_of(settings_from_data(node.config), messages.append)
        steps = follower.steps()
        return lambda: next(steps), messages, follower

    return start


def append(node, text):
    with node.hardware.kernel_log.open("a") as log:
        log.write(text)


def test_a_serious_xid_drains_at_once(node, service):
    step, output, _follower = service()
    step()
    assert node.calls == []
    append(node, "[1.0] usb 1-1: new device\n" + LOST.format("20.5"))
    begun = time.monotonic()
    step()
    assert time.monotonic() - begun < 15
    state, reason = node.in_slurm
    assert state == "IDLE+DRAIN"
    assert reason.startswith("node-health: gpu:dgx-01/4 gpu.xid is 1 Xids (must be == 0): Xid 79")
    assert output == [f"dgx-01 drained: {reason}"]
    (record,) = node.records("event")
    assert record["subject"] == "gpu:dgx-01/4"


def test_an_xid_of_an_application_drains_nothing(node, service):
    step, output, _follower = service()
    append(node, APPLICATION.format("20.5"))
    step()
    assert node.in_slurm == ("IDLE", "")
    assert output == []


def test_one_half_of_a_line_is_waited_for(node, service):
    step, _messages, _follower = service()
    half = LOST.format("20.5")
    append(node, half[:30])
    step()
    assert node.in_slurm == ("IDLE", "")
    append(node, half[30:])
    step()
    assert node.in_slurm[0] == "IDLE+DRAIN"


def test_a_gpu_that_the_profile_does_not_know_is_told_of_the_node(node, service):
    append(node, LOST.format("20.5").replace("9d", "0a"))
    service()[0]()
    assert node.in_slurm[1].startswith("node-health: node:dgx-01 gpu.xid")


def test_a_fatal_switch_error_drains(node, service):
    append(node, "[9.1] nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM\n")
    service()[0]()
    assert "gpu.sxid" in node.in_slurm[1]


def test_what_was_acted_on_is_not_acted_on_again(node, service):
    append(node, LOST.format("20.5"))
    service()[0]()
    # It is repaired and resumed; the service is restarted, and an application fails.
    node.set_slurm("IDLE")
    step, _messages, _follower = service()
    step()
    append(node, APPLICATION.format("90.0"))
    step()
    assert node.in_slurm == ("IDLE", "")
    append(node, LOST.format("95.0"))
    step()
    assert node.in_slurm[0] == "IDLE+DRAIN"


def test_what_came_while_the_service_was_down_is_acted_on(node, service):
    service()[0]()
    append(node, LOST.format("20.5"))
    service()[0]()
    assert node.in_slurm[0] == "IDLE+DRAIN"


def test_a_drain_that_another_one_made_stays(node, service):
    node.set_slurm("IDLE+DRAIN", "fan, Ann")
    append(node, LOST.format("20.5"))
    _step, output, follower = service()
    follower.take(follower.source.read(0.1))
    assert node.in_slurm == ("IDLE+DRAIN", "fan, Ann")
    assert output == ["dgx-01 is IDLE+DRAIN, for another reason: fan, Ann"]


def test_an_xid_on_a_node_that_slurm_is_about_to_resume_drains_it_then(node, service, monkeypatch):
    """`scontrol reboot` with nextstate=RESUME takes back the drain of before the boot."""
    monkeypatch.setattr(_health_events.s, "HELD_S", 0.2)
    reason = write_reason("dgx-01", ITSELF, "gpu.ecc_uncorrectable is 1")
    node.set_slurm("IDLE+DRAIN", reason)
    state = {"boot": "earlier", "drained": reason, "drained_boot": "earlier"}
    (node.state / "state.json").write_text(json.dumps(state))
    append(node, LOST.format("20.5"))
    step, output, follower = service()
    step()
    assert (node.in_slurm[1], output) == (reason, [])
    node.set_slurm("IDLE")
    time.sleep(0.3)
    step()
    assert node.in_slurm[0] == "IDLE+DRAIN"
    assert "Xid 79" in node.in_slurm[1]
    assert load_state(str(node.state), follower.boot).drained_before is False
    # This drain is of the present boot: the operator who resumes the node has seen the Xid.
    node.set_slurm("IDLE")
    step()
    assert node.in_slurm == ("IDLE", "")


def test_an_xid_on_a_node_that_the_gate_is_about_to_resume_drains_it_then(
    node, service, monkeypatch
):
    """Those that were there when the drain was found after the boot drain it no more."""
    monkeypatch.setattr(_health_events.s, "HELD_S", 0.2)
    reason = write_reason("dgx-01", ITSELF, "gpu.ecc_uncorrectable is 1")
    node.set_slurm("IDLE+DRAIN", reason)
    append(node, LOST.format("20.5"))
    step, output, follower = service()
    state = {"boot": follower.boot, "drained": reason, "drained_boot": follower.boot}
    state.update(hung={}, settled_s=0.0, acted_s=0.0, drained_s=21.0)
    (node.state / "state.json").write_text(json.dumps(state))
    step()
    assert not follower.pending
    append(node, LOST.format("30.5"))
    step()
    assert (node.in_slurm[1], len(output)) == (reason, 1)
    node.set_slurm("IDLE")
    time.sleep(0.3)
    step()
    assert node.in_slurm[0] == "IDLE+DRAIN"
    assert "Xid 79" in node.in_slurm[1]
    assert load_state(str(node.state), follower.boot).drained_s is None


def test_slurm_that_does_not_answer_is_told_later(node, service, monkeypatch):
    monkeypatch.setattr(_health_events, "_RETRY_S", 0.2)
    node.set_slurm(down={})
    append(node, LOST.format("20.5"))
    step, output, _follower = service()
    step()
    assert output[0].startswith("checker: Slurm did not take the change, again in 0.2 s")
    node.set_slurm()
    time.sleep(0.3)
    step()
    assert node.in_slurm[0] == "IDLE+DRAIN"


FORGED = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus."


def test_the_name_of_a_program_drains_nothing(node, service):
    step, output, follower = service()
    append(
        node,
        f"6,421,971276226,-;NVRM: Xid (PCI:[6404]: segfault at 0 ip 00005642e9c86132 sp "
        f"00007ffda2e49bd0 error 6 in {FORGED}[1132,5642e9c86000+1000] likely on CPU 0\n",
    )
    step()
    assert node.in_slurm == ("IDLE", "")
    assert (output, follower.lines) == ([], [])


def test_what_programs_throw_does_not_push_out_what_the_hardware_says(node, service):
    step, _messages, follower = service()
    append(node, "".join(APPLICATION.format(f"{20 + n / 1000:.3f}") for n in range(2000)))
    step()
    append(node, LOST.format("90.0"))
    step()
    assert node.in_slurm[0] == "IDLE+DRAIN"
    assert len(follower.lines) == 101


def test_the_status_of_a_pcie_error_is_remembered_with_it(node, service):
    """Without its status, an error that was no fault of the hardware would be one."""
    step, _messages, _follower = service()
    step()
    card = "mlx5_core 0000:18:00.0: "
    error = f"{card}PCIe Bus Error: severity={{}}, type=Transaction Layer, (Requester ID)\n"
    status = f"{card}  device [15b3:1021] error status/mask={{}}/00000000\n"
    refused = error.format("Uncorrected (Non-Fatal)") + status.format("00100000")
    append(node, "".join(f"[9.{at}] {line}\n" for at, line in enumerate(refused.split("\n")[:2])))
    # A storm of corrected errors does not push it out.
    storm = error.format("Corrected") + status.format("00000001")
    append(
        node,
        "".join(
            f"[{10 + at}.{half}] {line}\n"
            for at in range(200)
            for half, line in enumerate(storm.split("\n")[:2])
        ),
    )
    step()
    kept = "\n".join(json.loads((node.state / "events.json").read_text())["lines"])
    assert [fault.refused for fault in parse_faults(kept) if not fault.corrected] == [True]


def test_a_storm_of_corrected_errors_pushes_out_none_that_the_firmware_read(node, service):
    """Bit 12 is a replay that timed out, which was corrected, and a poisoned TLP, which was not."""
    step, _messages, _follower = service()
    step()
    card = "mlx5_core 0000:18:00.0: AER: aer_"
    first = f"{card}status: 0x00001000, aer_mask: 0x00000000"
    append(node, f"[9.0] {first}\n[9.1] {card}uncor_severity: 0x00062030\n")
    append(node, "".join(f"[{10 + at}.0] {first}\n" for at in range(200)))
    step()
    kept = json.loads((node.state / "events.json").read_text())["lines"]
    assert len(kept) == 101
    assert [fault.hard for fault in parse_faults("\n".join(kept))].count(True) == 1


def test_a_storm_of_xids_is_bounded(node, service):
    append(node, "".join(LOST.format(f"{20 + n / 1000:.3f}") for n in range(5000)))
    begun = time.monotonic()
    _step, _messages, follower = service()
    follower.take(follower.source.read(0.1))
    assert time.monotonic() - begun < 15
    assert len(follower.lines) == 100
    assert len([call for call in node.calls if "State=DRAIN" in call]) == 1


def test_a_file_that_was_begun_again_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log"
    source = FileSource(str(path))
    assert source.read(0) == []
    path.write_text("one\ntwo\n")
    assert source.read(0) == ["one", "two"]
    path.write_text("new\n")
    assert source.read(0) == ["new"]


def test_records_of_the_kernel_lose_their_tags(tmp_path):
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    source = KernelSource(str(fifo))
    writer = os.open(fifo, os.O_WRONLY)
    assert source.read(0.05) == []
    os.write(writer, b"4,1,2000000,-;NVRM: Xid (PCI:0000:9d:00): 79, x\n SUBSYSTEM=pci\n")
    assert source.read(1) == ["4,1,2000000,-;NVRM: Xid (PCI:0000:9d:00): 79, x"]
    os.close(writer)
    os.close(source.handle)


class Records:
    """Records of the kernel as a source gives them."""

    lost = False

    def __init__(self, *lines):
        self.lines = list(lines)

    def read(self, _wait_s):
        return [self.lines.pop(0)] if self.lines else []


def test_a_message_counts_once_by_whichever_way_it_comes(node, service, monkeypatch):
    """Five corrected errors in a minute pass; twice of them would fail."""
    _step, _messages, follower = service()
    text = "pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer"
    numbers = [20_000_001 + 999_999 * second for second in range(5)]
    journal = "".join(f"[{us / 1e6:12.6f}] dgx-01 kernel: {text}\n" for us in numbers)
    records = [f"4,{900 + us % 7},{us},-;{text}" for us in numbers]
    follower.begin(KernelLog(journal))
    follower.source = Records(*records)
    for _step in islice(follower.steps(), len(records)):
        pass
    assert len(follower.lines) == 5
    node.config["roots"]["kernel_log"] = ""
    gap = KernelLog("\n".join(records[2:]), "the first 7 messages have been overwritten")
    monkeypatch.setattr(_health_state, "read_ring", lambda: gap)
    log = known_log(settings_from_data(node.config), follower.boot, None)()
    faults = parse_faults(log.text)
    assert len(faults) == 5
    statuses = {one.check: one.status for one in judge_hardware_log("dgx-01", faults, (), log)}
    assert statuses["host.pcie_corrected"] == "pass"
    # A service of before has kept both.
    events = json.loads((node.state / "events.json").read_text())
    events["lines"] += records
    (node.state / "events.json").write_text(json.dumps(events))
    assert len(service()[2].lines) == 5


@pytest.mark.parametrize("gap", ["", "journalctl is not installed"])
def test_what_was_overwritten_unread_is_in_the_journal_or_a_gap(
    node, service, monkeypatch, tmp_path, gap
):
    """The kernel answers EPIPE once, and goes on with what is left."""
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    _step, _messages, follower = service()
    follower.source = source = KernelSource(str(fifo))
    writer, real, answers = os.open(fifo, os.O_WRONLY), os.read, [OSError(errno.EPIPE, "")]

    def read(handle, size):
        if handle == source.handle and answers:
            raise answers.pop()
        return real(handle, size)

    monkeypatch.setattr(os, "read", read)
    found = KernelLog("" if gap else LOST.format("   20.500000"), gap)
    monkeypatch.setattr(_health_events, "read_log", lambda *_words: found)
    os.write(writer, b"6,9,30000000,-;usb 1-1: new device\n")
    next(follower.steps())
    os.close(writer)
    os.close(source.handle)
    assert (remembered(str(node.state), follower.boot) is None) == bool(gap)
    assert ("DRAIN" in node.in_slurm[0]) == (not gap)


def test_a_ring_that_lost_its_beginning_is_completed_by_the_service(node, service, monkeypatch):
    append(node, LOST.format("20.5"))
    step, _messages, follower = service()
    step()
    node.config["roots"]["kernel_log"] = ""
    settings = settings_from_data(node.config)
    gap = KernelLog("[99.0] later\n", "the first 7 messages since boot have been overwritten")
    monkeypatch.setattr(_health_state, "read_ring", lambda: gap)
    log = known_log(settings, follower.boot, None)()
    assert log.gap == ""
    assert log.text.splitlines() == [LOST.format("20.5").strip(), "[99.0] later"]
    # Of another boot, or of a service that is no more, nothing is known.
    assert known_log(settings, "other", None)() == gap
    events = json.loads((node.state / "events.json").read_text())
    events["beat_s"] -= 1000
    (node.state / "events.json").write_text(json.dumps(events))
    assert known_log(settings, follower.boot, None)() == gap


def test_the_program_follows_and_drains(node, program_file):
    """The one file, as systemd runs it."""
    given = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [str(program_file), "--event", "--config", str(node.config_file)],
        env=given, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 20
            while not (node.state / "events.json").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            append(node, LOST.format("20.5"))
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            process.terminate()
    assert line.startswith("dgx-01 drained: node-health: gpu:dgx-01/4 gpu.xid")


def test_above_the_share_an_xid_is_held_and_said_once(node, service):
    other = {"state": "IDLE+DRAIN", "reason": write_reason("dgx-02", ITSELF, "ib.link_downed")}
    node.slurm.write_text(json.dumps({"dgx-01": {"state": "IDLE", "reason": ""}, "dgx-02": other}))
    step, output, follower = service()
    append(node, LOST.format("20.5"))
    step()
    step()
    assert node.in_slurm == ("IDLE", "")
    assert len([line for line in output if "brake" in line]) == 1
    assert follower.retry > time.monotonic() + 200
    # What a job throws in the meantime does not look at the whole fleet again.
    asked = len(node.calls)
    for second in range(5):
        append(node, APPLICATION.format(f"3{second}.5").replace(": 31,", ": 13,"))
        step()
    assert len(node.calls) == asked
    follower.retry = 0.0
    follower.act()
    assert len([line for line in output if "brake" in line]) == 1
    node.set_slurm()
    follower.retry = 0.0
    follower.act()
    assert node.in_slurm[0] == "IDLE+DRAIN"
    assert load_state(str(node.state), follower.boot).held == ""


def test_a_held_xid_that_the_driver_has_settled_drains_nothing(node, service):
    other = {"state": "IDLE+DRAIN", "reason": write_reason("dgx-02", ITSELF, "ib.link_downed")}
    node.slurm.write_text(json.dumps({"dgx-01": {"state": "IDLE", "reason": ""}, "dgx-02": other}))
    step, _output, follower = service()
    append(node, LOST.format("20.5").replace(": 79,", ": 48,"))
    step()
    assert follower.pending
    append(node, LOST.format("30.5").replace(": 79,", ": 154,").replace("GPU has", RESET_DONE))
    step()
    # There is room again.
    node.set_slurm()
    follower.retry = 0.0
    follower.act()
    assert node.in_slurm == ("IDLE", "")
    assert follower.pending == ""
    # The next one does not wait for the time of the one before.
    append(node, LOST.format("40.5"))
    step()
    assert node.in_slurm[0] == "IDLE+DRAIN"
