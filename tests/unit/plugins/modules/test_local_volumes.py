# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""local_volumes with lsblk and mkfs played; nvme_health with a smartctl that answers or hangs."""

from __future__ import annotations

import json

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._storage import (
    volumes_host as _volumes_host,
)
from ansible_collections.baremetal.dgx.plugins.modules import local_volumes, nvme_health

pytestmark = pytest.mark.slow
NAME = "/dev/disk/by-id/nvme-a"


@pytest.fixture
def disks(run_module, tmp_path, monkeypatch):
    """`disks(**options)`: one disk, whose lsblk answer is `disks.data`."""
    data = {"name": "/dev/nvme0n1", "type": "disk", "size": 1, "ro": False, "mountpoints": [None]}
    calls = []

    def command(argv, timeout_s=30, env=None):
        calls.append(argv[0])
        run.words.append(argv)
        # udev knows of nothing that lies on the disk.
        listed = {**data, "fstype": None, "label": None, "uuid": None}
        out = json.dumps({"blockdevices": [listed]}) if argv[0] == "lsblk" else ""
        out = run.answers.get(argv[0], out)
        out = run.answers.get(argv[0], out)
        if argv[:2] == ["wipefs", "--no-act"] and data.get("fstype"):
            found = {"type": data["fstype"], "uuid": data["uuid"], "label": data.get("label")}
            out = json.dumps({"signatures": [found]})
        if argv[0] == "mkfs.xfs" and not run.broken:
            data.update(fstype="xfs", label=argv[argv.index("-L") + 1], uuid="new")
        rc = 1 if run.broken and argv[0] == run.broken else 0
        return CommandResult(tuple(argv), ENDED, rc, out, "cannot" if rc else "")

    def run(check=False, **more):
        calls.clear()
        run.words.clear()
        volume = {"name": "s", "kind": "plain", "disks": [NAME], "mountpoint": "/s", "label": "s"}
        options = {
            "volumes": [{**volume, **more.pop("volume", {})}],
            "notes": str(tmp_path / "notes.json"),
            **more,
        }
        return run_module(local_volumes.main, options, check)

    run.data, run.calls, run.broken, run.notes = data, calls, "", tmp_path / "notes.json"
    run.words, run.answers = [], {}
    run.words, run.answers = [], {}
    monkeypatch.setattr(local_volumes, "ModuleRunner", lambda _module: command)
    monkeypatch.setattr(
        _volumes_host, "resolve", lambda names: dict.fromkeys(names, "/dev/nvme0n1")
    )
    return run


def test_a_blank_disk_is_formatted_once_and_noted(disks):
    assert disks(check=True)["changed"]
    assert "mkfs.xfs" not in disks.calls
    result = disks()
    assert result["steps"] == ["mkfs.xfs -L s /dev/nvme0n1  # xfs labelled s"]
    assert result["devices"] == {"s": "/dev/nvme0n1"}
    assert json.loads(disks.notes.read_text())["uuids"] == ["new"]
    assert not disks()["changed"]


def test_another_label_on_our_disk_needs_consent(disks):
    disks()
    assert "local_storage_wipe: true" in disks(volume={"label": "t"})["msg"]
    result = disks(volume={"label": "t"}, wipe=True)
    assert result["changed"]
    assert disks.data["label"] == "t"


def test_a_group_without_a_volume_is_asked_for_where_a_disk_is_in_one(disks):
    lvm = {"kind": "lvm"}
    disks(volume=lvm, check=True)
    assert "pvs" not in disks.calls
    disks.data.update(fstype="LVM2_member", uuid="pv")
    row = {"pv_name": "/dev/nvme0n1", "vg_name": "dgx-s", "lv_count": "0"}
    disks.answers["pvs"] = json.dumps({"report": [{"pv": [row]}]})
    steps = disks(volume=lvm, check=True)["steps"]
    assert [step.split()[0] for step in steps] == ["lvcreate", "mkfs.xfs"]
    for wrong in ("{", json.dumps({"report": [{"pv": [{}]}]})):
        disks.answers["pvs"] = wrong
        assert "left alone" in disks(volume=lvm, check=True)["msg"]
    disks.broken = "pvs"
    assert "left alone" in disks(volume=lvm, check=True)["msg"]


def test_an_array_that_lacks_a_member_is_asked_nothing(disks):
    """mdadm and wipefs know nothing of what has no size; it counts as an array all the same."""
    empty = {"name": "/dev/md127", "type": "raid0", "size": 0, "ro": False, "mountpoints": [None]}
    disks.data.update(fstype="linux_raid_member", uuid="md", children=[empty])
    disks.notes.write_text('{"uuids": ["md"]}')
    assert "local_storage_wipe: true" in disks()["msg"]
    steps = disks(check=True, wipe=True)["steps"]
    assert steps[0].startswith("mdadm --stop /dev/md127 ")
    assert "mdadm" not in disks.calls
    assert not [one for one in disks.words if one[:2] == ["wipefs", "--no-act"] and "md" in one[-1]]


def test_a_foreign_disk_is_refused_with_consent_and_with_lost_notes(disks):
    disks()
    disks.notes.unlink()
    result = disks(volume={"label": "t"}, wipe=True)
    assert "has not written" in result["msg"]
    assert "mkfs.xfs" not in disks.calls


def test_what_cannot_be_probed_is_left_alone(disks):
    disks.broken = "wipefs"
    assert "cannot be probed" in disks()["msg"]
    assert "mkfs.xfs" not in disks.calls


def test_notes_that_cannot_be_read_stop_everything(disks):
    disks.notes.write_text("{")
    assert "nothing is written" in disks()["msg"]
    assert "mkfs.xfs" not in disks.calls


def test_what_does_not_answer_stops_everything(disks):
    disks.broken = "lsblk"
    assert "left alone" in disks()["msg"]


def test_a_step_that_fails_is_named(disks):
    disks.broken = "mkfs.xfs"
    assert "s: xfs labelled s:" in disks()["msg"]


def test_a_disk_that_changed_since_the_plan_is_left_alone(disks, monkeypatch):
    real, times = _volumes_host.outcome_of, []

    def changing(*words):
        times.append(1)
        if len(times) == 2:
            disks.data.update(fstype="ext4", uuid="foreign")
        return real(*words)

    monkeypatch.setattr(_volumes_host, "outcome_of", changing)
    assert "have changed since" in disks()["msg"]
    assert "mkfs.xfs" not in disks.calls


@pytest.fixture
def health(run_module, tmp_path, monkeypatch):
    """`health(tool, **options)`: three controllers, one of the network."""
    for name, transport in (("nvme0", "pcie"), ("nvme10", "pcie"), ("nvme1", "tcp")):
        folder = tmp_path / "sys" / "class" / "nvme" / name
        folder.mkdir(parents=True)
        (folder / "transport").write_text(transport + "\n")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def run(tool, **options):
        path = tmp_path / "bin" / "smartctl"
        if tool:
            path.write_text(f"#!/bin/sh\n{tool}\n")
            path.chmod(0o755)
        base = {"node": "n", "sysfs": str(tmp_path / "sys"), "timeout_s": 1.0}
        return run_module(nvme_health.main, {**base, **options})

    return run


def answer(wear):
    log = {"critical_warning": 0, "percentage_used": wear, "media_errors": 0}
    data = {"serial_number": "S1", "nvme_smart_health_information_log": log}
    return f"echo '{json.dumps(data)}'"


def test_disks_of_the_node_are_judged_and_counted(health):
    result = health(answer(5), count=2)
    assert result["verdict"] == "pass"
    assert len([one for one in result["records"] if one["check"] == "nvme.wear"]) == 2
    assert "nvme.present" in health(answer(5), count=3)["msg"]


def test_a_worn_disk_fails(health):
    assert "nvme.wear" in health(answer(95))["msg"]


@pytest.mark.parametrize("tool", ["sleep 30", "echo '{'", ""])
def test_a_tool_that_hangs_breaks_or_is_missing_is_no_failure(health, tool):
    assert health(tool)["failed"]
    # as the role local_storage asks
    result = health(tool, fail_on=["fail"])
    assert not result.get("failed")
    assert result["verdict"] == "not_measured"
    assert result["warnings"]


def test_a_disk_with_two_ports_is_found_by_its_address(tmp_path, monkeypatch):
    """udev gives it no name by its place: with multipath it belongs to no PCI device."""
    nodes = "bus/pci/devices/0000:ab:00.0/nvme/nvme1"
    for path, number in ((f"{nodes}/nvme3c1n1", "1"), (f"{nodes}/nvme3c1n2", "7")):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "nsid").write_text(f"{number}\n")
    single = tmp_path / "bus/pci/devices/0000:ac:00.0/nvme/nvme4/nvme4n1"
    single.mkdir(parents=True)
    (single / "nsid").write_text("1\n")
    place = "/dev/disk/by-path/pci-0000:{}-nvme-{}"
    for name, disk in {
        place.format("ab:00.0", 1): "/dev/nvme3n1",
        place.format("ab:00.0", 7): "/dev/nvme3n2",
        place.format("ac:00.0", 1): "/dev/nvme4n1",
        place.format("ad:00.0", 1): "",
        place.format("ac:00.0", 2): "",
        NAME: "",
    }.items():
        assert _volumes_host.disk_at(name, str(tmp_path)) == disk
    monkeypatch.setattr(_volumes_host, "disk_at", lambda name: "/dev/null" if name == "a" else "")
    monkeypatch.setattr(_volumes_host.stat, "S_ISBLK", lambda mode: True)
    assert _volumes_host.resolve(["a", "b", "/dev/zero"]) == {
        "a": "/dev/null",
        "/dev/zero": "/dev/zero",
    }
