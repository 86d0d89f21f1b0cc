# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import fcntl
import json
import subprocess
from pathlib import Path

import pytest

from .conftest import podlib

daemons = podlib("daemons")
disk = podlib("disk")
image = podlib("image")
layout = podlib("layout")
machines = podlib("machines")
network = podlib("network")
nodes = podlib("nodes")

NET = "10.77.0.0/24"
NODE = layout.Node("vm-01", "10.77.0.201", "trixie", machine_mib=1536)
POD = layout.Pod("x", NET, (NODE,))


def resolved(known=None, **options):
    return layout.resolve(layout.Request("x", **options), known)


def test_a_machine_joins_the_pod_at_the_first_free_address_and_stays():
    pod = resolved(nodes=1, machine="vm-01,vm-02:bookworm:2048:2cpu")
    assert pod.nodes[-2:] == (
        NODE,
        layout.Node("vm-02", "10.77.0.202", "bookworm", machine_mib=2048, machine_cpus=2),
    )
    assert resolved(pod) == pod
    assert resolved(pod, machine="vm-02") == pod, "what is not given stays as it was"
    assert resolved(pod, nodes=2).nodes[-2:] == pod.nodes[-2:]
    assert resolved(pod, machine="vm-03=10.77.0.9").nodes[-1].ip == "10.77.0.9"
    assert layout.pod_from_record(layout.pod_to_record(pod)) == pod


def test_a_pod_may_have_machines_alone():
    pod = resolved(hosts="vm-01=10.77.0.5:machine")
    assert [n.is_machine for n in pod.nodes] == [True]
    assert len(resolved(pod, machine="vm-02").nodes) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machine": ""}, "write NAME"),
        ({"machine": "dgx-01"}, "dgx-01 is a container"),
        ({"machine": "vm-01=10.77.0.11"}, "10.77.0.11 stands twice"),
        ({"machine": "vm-01:sid"}, "write one of trixie, bookworm"),
        ({"machine": "vm-01:100"}, "memory of a machine; write one from 512 to 65536"),
        ({"hosts": "a=10.77.0.5:bare:machine"}, "never bare"),
        ({"hosts": "a=10.77.0.5:2048"}, "memory of a machine"),
        ({"hosts": "a=10.77.0.5:2cpu"}, "2cpu is for a machine"),
    ],
)
def test_what_is_no_machine_is_refused(options, message):
    with pytest.raises(layout.PodError, match=message):
        resolved(**options)


def test_a_record_of_before_there_were_machines_is_read():
    record = {"name": "x", "subnet": NET, "custom": False}
    node = {"name": "a", "ip": "10.77.0.5", "suite": "trixie", "bare": False}
    assert not layout.pod_from_record({**record, "nodes": [node]}).nodes[0].is_machine


def test_a_container_of_before_there_were_machines_is_kept():
    node = layout.Node("a", "10.77.0.5", "trixie")
    spec = json.dumps({"name": "a", "ip": "10.77.0.5", "suite": "trixie", "bare": False})
    found = nodes.Container("i", "a", "x-a", "running", spec, "", "/c")
    assert nodes.action_for(node, found) == "keep"


def test_cards_have_names_that_the_kernel_takes_and_addresses_of_their_own():
    cards = network.cards(NODE)
    assert next(iter(cards)) == network.port_name(NODE.ip)
    assert cards["pod0a4d00c9"] == network.mac_address(NODE.ip)
    assert len(cards) == len(set(cards.values())) == 2 + network.RAILS
    assert all(len(name) <= 15 for name in cards)


def test_qemu_emulates_the_processor_and_gives_disks_their_serial_numbers(tmp_path):
    argv = machines.qemu_argv(NODE, tmp_path)
    assert not any("kvm" in word for word in argv)
    assert argv[argv.index("-accel") + 1].startswith("tcg")
    assert argv[argv.index("-m") + 1] == "1536"
    assert argv[argv.index("-smp") + 1] == "1"
    two = machines.qemu_argv(dataclasses.replace(NODE, machine_cpus=2), tmp_path)
    assert two[two.index("-smp") + 1] == "2"
    serials = [word.partition("serial=")[2] for word in argv if word.startswith("nvme,")]
    assert serials == ["POD-vm-01-0", "POD-vm-01-1"]


def test_the_first_boot_is_a_shell_script_with_the_machines_identity():
    text = machines.boot_text(POD, NODE, "http://10.77.0.1:3142", "ssh-ed25519 KEY pod")
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    first = text.splitlines()[0]
    assert first == (
        "set -- vm-01 10.77.0.201 http://10.77.0.1:3142 'ssh-ed25519 KEY pod' 0 10.77.0.201"
    )


def test_the_first_sector_boots_one_partition_to_the_end_of_the_disk():
    sector = disk.boot_sector(b"\xeb" * 512)
    assert len(sector) == 512
    assert sector[:446] == b"\xeb" * 446
    assert sector[-2:] == b"\x55\xaa"
    start, size = (int.from_bytes(sector[at : at + 4], "little") for at in (454, 458))
    assert (start, (start + size) * 512) == (2048, 10 << 30)


def test_another_recipe_is_another_disk_and_not_the_containers_image():
    recipe = image.Recipe("trixie", False, (), (), "hook", machine=True)
    assert recipe.tag.startswith("trixie-machine-")
    assert "linux-image" in recipe.packages
    argv = image.mmdebstrap_argv(recipe, 1, Path("/x/root"))
    hooks = [Path(word).name for word in argv if word.endswith(".sh")]
    assert hooks == ["machine-initrd.sh", "image-hook.sh", "machine-hook.sh"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "FOLDER", tmp_path)
    path = tmp_path / "x" / "vm-01"
    path.mkdir(parents=True)
    return path


def states(pod_name="x"):
    return [(m.node, m.state) for m in machines.found(pod_name)]


# A daemon outlives what has started it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_machine_lives_for_as_long_as_its_process_holds_the_lock(folder):
    assert states() == [("vm-01", "created")], "what a killed run left half made"
    (folder / "machine.json").write_text(json.dumps({"spec": nodes.node_spec(NODE)}))
    assert states() == [("vm-01", "exited")]
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        daemons.spawn(["sleep", "60"], lock, folder / "out")
    assert states() == states(None) == [("vm-01", "running")]
    assert states("y") == []
    assert daemons.stop(folder / "lock")
    assert states() == [("vm-01", "exited")]
    assert not daemons.stop(folder / "lock")


def test_a_machine_is_a_node_like_any_other(folder, monkeypatch):
    monkeypatch.setattr(nodes.host, "podman_json", lambda *_: [])
    record = {"spec": nodes.node_spec(NODE), "checkout": "/c", "disk": "d.img"}
    (folder / "machine.json").write_text(json.dumps(record))
    (found,) = nodes.containers("x")
    assert (found.container, found.state, found.checkout) == ("x-vm-01", "exited", "/c")
    assert nodes.action_for(NODE, found) == "start"
    other = layout.Node("vm-01", "10.77.0.201", "trixie", machine_mib=2048)
    with pytest.raises(layout.PodError, match="remove it first: pod down vm-01"):
        nodes.action_for(other, found)


def test_a_disk_of_which_a_machine_has_its_layer_stays(folder):
    for name in ("trixie-machine-a-1.img", "trixie-machine-b-2.img", "bookworm-machine-a-1.img"):
        (disk.FOLDER / name).touch()
    (folder / "machine.json").write_text(json.dumps({"disk": "trixie-machine-a-1.img"}))
    disk._remove_unused("trixie-machine")
    left = sorted(path.name for path in disk.FOLDER.glob("*.img"))
    assert left == ["bookworm-machine-a-1.img", "trixie-machine-a-1.img"]


def test_the_console_says_how_far_the_boot_is(folder):
    assert machines.console("x", "vm-01") == "nothing on its console yet"
    (folder / "console").write_text("[ 1.0] one\r\n\x1b[32m[ 2.0] two\r\n\r\n")
    assert machines.console("x", "vm-01").endswith("[ 2.0] two")
    (folder / "qemu.out").write_text("qemu: no such device\n")
    assert machines.console("x", "vm-01") == "qemu: no such device"
