# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles cephfs and local_storage would write, and what they refuse."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from role_render import by_path, played, render_many

KEY = "AQBx0000000000000000000000000000000000=="
FSID = "0f2ad38e-6f3c-4d3f-9d65-b7cf4a2a9a10"
HOME = {"name": "home", "fs": "cephfs", "path": "/home", "mountpoint": "/a b", "client": "node"}
DATA = {"name": "data", "fs": "cephfs", "mountpoint": "/data", "client": "node", "read_only": True}
CEPHFS = {
    "files": "__cephfs_files",
    "keyless": "__cephfs_keyless",
    "refusals": "__cephfs_refusals | selectattr('when') | map(attribute='say') | list",
    "packages": "__cephfs_needed_packages",
    "canaries": "__cephfs_canaries",
    "keeper": "__cephfs_keeper_files",
    "leftovers": "__cephfs_leftovers | map(attribute='path') | list",
}
SOUND = {
    "cephfs_mounts": [HOME, DATA],
    "cephfs_fsid": FSID,
    "cephfs_monitors": ["10.0.0.1"],
    "cephfs_given_keys": {"node": KEY, "other": KEY},
    "cephfs_canary_peers": {"home": ["dgx-02"], "data": ["dgx-02"]},
    "__cephfs_client": {
        "drivers": {"home": "kernel", "data": "fuse"},
        "conf_monitors": "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]",
        "keyed": [],
        "stale": ["/etc/ceph/ceph.client.old.keyring"],
    },
}


def test_cephfs(tmp_path: Path) -> None:
    nothing: dict[str, Any] = {"cephfs_mounts": []}
    # The last mount is gone, and the key of its client is not needed any more.
    emptied = {**nothing, "__cephfs_client": {"stale": ["/etc/ceph/ceph.client.node.keyring"]}}
    bad = {
        **SOUND,
        "cephfs_fsid": "x",
        "cephfs_monitors": [],
        "cephfs_given_keys": {"node": "no key"},
        "cephfs_mounts": [{**HOME, "client": "a b", "path": "home"}],
    }
    late = {**SOUND, "cephfs_given_keys": {}}
    keyed = {**late, "__cephfs_client": {**SOUND["__cephfs_client"], "keyed": ["node"]}}
    hosts = {
        "healthy": SOUND,
        "nothing": nothing,
        "emptied": emptied,
        "bad": bad,
        "late": late,
        "keyed": keyed,
        "admin": {**SOUND, "cephfs_admin": True, "cephfs_keys": {"node": KEY[:-3] + "1=="}},
    }
    found = render_many(tmp_path, "cephfs", "Debian", hosts, CEPHFS)

    files = by_path(found["healthy"]["files"])
    keyring = files["/etc/ceph/ceph.client.node.keyring"]
    assert keyring["mode"] == "0600"
    assert "content" not in keyring
    assert keyring["secret_content"].endswith(f"[client.node]\n\tkey = {KEY}\n")
    assert files["/etc/ceph/ceph.client.node.secret"]["secret_content"] == KEY + "\n"
    # No mount uses it, so that this node has no business with it.
    assert not [path for path in files if "other" in path]
    conf = files["/etc/ceph/ceph.conf"]["content"]
    assert f"fsid = {FSID}\nmon_host = [v2:10.0.0.1:3300,v1:10.0.0.1:6789]\n" in conf
    assert "client_reconnect_stale = true" in conf
    assert found["healthy"]["refusals"] == []
    assert found["healthy"]["packages"] == ["ceph-common", "attr", "ceph-fuse"]
    assert found["healthy"]["leftovers"] == ["/etc/ceph/ceph.client.old.keyring"]
    canaries = {one["name"]: one for one in found["healthy"]["canaries"]}
    assert (canaries["home"]["fstype"], canaries["home"]["peers"]) == ("ceph", ["dgx-02"])
    assert (canaries["data"]["fstype"], canaries["data"]["peers"]) == ("fuse.ceph-fuse", [])
    assert (canaries["home"]["write"], canaries["data"]["write"]) == (True, False)
    assert canaries["home"]["what"] == f"node@{FSID}.cephfs=/home"
    assert canaries["data"]["what"] == f"node@{FSID}.cephfs=/"
    script = by_path(found["healthy"]["keeper"])["/usr/local/libexec/baremetal-dgx/cephfs-keeper"]
    subprocess.run(["sh", "-n"], input=script["content"], text=True, check=True)
    assert "for where in '/a b' /data; do" in script["content"]

    assert found["nothing"]["refusals"] == []
    assert len(found["nothing"]["leftovers"]) == 3
    assert found["emptied"]["leftovers"][0] == "/etc/ceph/ceph.client.node.keyring"
    assert len(found["emptied"]["leftovers"]) == 4
    message = "\n".join(found["bad"]["refusals"])
    for part in (
        "is not an id of a cluster",
        "addresses of the monitors",
        "is not a key",
        "a b is not a name of a client",
    ):
        assert part in message
    assert "write paths that begin with /" in message
    assert "is not a key" in message
    assert KEY not in message
    assert found["late"]["keyless"] == ["node"]
    assert found["keyed"]["keyless"] == []
    admin = by_path(found["admin"]["files"])
    assert "/etc/ceph/ceph.conf" not in admin
    # What the inventory says goes before what the cluster gave.
    assert admin["/etc/ceph/ceph.client.node.secret"]["secret_content"] == KEY[:-3] + "1==\n"


@pytest.mark.parametrize("dies", [True, False])
def test_a_mount_that_hangs_costs_no_process_at_each_look(tmp_path: Path, dies: bool) -> None:
    """Its monitors are away for a night, and the timer looks twice a minute."""
    role = tmp_path / "role"
    role.mkdir()
    found = render_many(role, "cephfs", "Debian", {"node": SOUND}, CEPHFS)["node"]
    keeper = by_path(found["keeper"])["/usr/local/libexec/baremetal-dgx/cephfs-keeper"]["content"]
    sleep = shutil.which("sleep")
    # What waits in the kernel, and no kill ends, is a child here.
    left = "" if dies else f'{sleep} 90 & echo "$!" >> "{tmp_path}/left"; '
    tools = {
        "systemctl": '[ "$1" != is-active ] || echo active',
        "systemd-escape": 'for last in "$@"; do :; done; echo "${last##*/}.mount"',
        "sleep": f"exec {sleep} 0.01",
        "stat": f'echo "$3" >> "{tmp_path}/asked"; {left}exec {sleep} 300.{os.getpid()}',
    }
    for name, line in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RUNTIME_DIRECTORY": str(tmp_path)}
    for _look in range(2):
        subprocess.run(
            ["sh"], input=keeper, text=True, check=True, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    waiting = subprocess.run(
        ["pgrep", "-fx", f"{sleep} 300.{os.getpid()}"], capture_output=True, check=False
    )
    for pid in (tmp_path / "left").read_text().split() if left else ():
        os.kill(int(pid), signal.SIGKILL)
    assert waiting.stdout == b""
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert asked == ["/a b", "/data"] * (2 if dies else 1)


def test_a_node_without_mounts_is_asked_for_the_keys_of_those_that_it_had(tmp_path: Path) -> None:
    """In check mode, too, and where nothing of Ceph is installed."""
    role = {"name": "baremetal.dgx.cephfs", "tasks_from": "configure"}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_role": role},
            {"ansible.builtin.assert": {"that": "__cephfs_client.stale is defined"}},
        ],
    }
    done = played(tmp_path, {"node": {"cephfs_mounts": []}}, play, "--check")
    assert done.returncode == 0, done.stdout


LOCAL = {
    "volumes": "__local_storage_volumes",
    "canaries": "__local_storage_canaries",
    "mounts": "__local_storage_mounts",
    "packages": "__local_storage_packages",
    "files": "__local_storage_files",
    "folders": "__local_storage_folder_files",
    "refusals": "__local_storage_refusals | selectattr('when') | map(attribute='say') | list",
}


def test_local_storage(tmp_path: Path) -> None:
    volume = {"name": "scratch", "mountpoint": "/raid", "pci": ["ab:00.0", "0001:ac:00.0"]}
    folder = {"path": "/raid/scratch", "mode": "1777", "age": "30d"}
    # As an inventory has them whose values were left empty.
    empty = {"path": "/raid/kept", "mode": None, "owner": None, "group": None, "age": None}
    hosts: dict[str, dict[str, Any]] = {
        "healthy": {"local_storage_volumes": [volume], "local_storage_folders": [folder]},
        "nothing": {},
        "bad": {
            "local_storage_volumes": [
                {**volume, "pci": ["AB:00.0"]},
                {"name": "x", "mountpoint": "/x"},
            ],
            "local_storage_folders": [{"path": "raid"}],
        },
        "many": {"local_storage_volumes": [volume], "local_storage_disks": 1},
        "ageless": {
            "local_storage_volumes": [volume, {**volume, "name": "y", "fstype": "ext4"}],
            "local_storage_folders": [{"path": "/raid/scratch", "age": "-"}, empty],
        },
        "unread": {
            "local_storage_volumes": [
                {**volume, "mountpoint": "/ra", "options": ["noatime"]},
                {**volume, "options": ["noatime", "discard"]},
            ],
            "local_storage_folders": [folder],
        },
        # The folder is the mount point itself.
        "whole": {
            "local_storage_volumes": [{**volume, "options": ["noatime"]}],
            "local_storage_folders": [{**folder, "path": "/raid"}],
        },
    }
    found = render_many(tmp_path, "local_storage", "Debian", hosts, LOCAL)
    (made,) = found["healthy"]["volumes"]
    assert made["disks"] == [
        "/dev/disk/by-path/pci-0000:ab:00.0-nvme-1",
        "/dev/disk/by-path/pci-0001:ac:00.0-nvme-1",
    ]
    assert (made["kind"], made["fstype"], made["label"]) == ("md", "xfs", "dgx-scratch")
    (mount,) = found["healthy"]["mounts"]
    assert mount["what"] == "/dev/disk/by-label/dgx-scratch"
    (canary,) = found["healthy"]["canaries"]
    assert (canary["path"], canary["what"]) == ("/raid", mount["what"])
    # What is only read would be as old as the day on which it was written.
    assert (mount["network"], mount["options"]) == (False, ["relatime", "logbsize=256k"])
    kept = [one["options"] for one in found["ageless"]["mounts"]]
    assert kept == [["noatime", "logbsize=256k"], ["noatime"]]
    assert found["healthy"]["packages"] == ["mdadm", "xfsprogs", "smartmontools"]
    assert "d /raid/scratch 1777 root root 30d" in found["healthy"]["files"][0]["content"]
    assert found["healthy"]["folders"][0]["mode"] == "1777"
    assert found["healthy"]["refusals"] == []
    assert found["nothing"]["packages"] == ["smartmontools"]
    assert found["nothing"]["files"][0]["state"] == "absent"
    message = "\n".join(found["bad"]["refusals"])
    for part in ("in lower case", "x has no disks", "write absolute paths"):
        assert part in message
    assert "2 disks are declared" in found["many"]["refusals"][0]
    assert found["ageless"]["refusals"] == []
    assert "d /raid/kept 0755 root root -\n" in found["ageless"]["files"][0]["content"]
    (message,) = found["unread"]["refusals"]
    assert "options has noatime, with which the age of /raid/scratch removes" in message
    (message,) = found["whole"]["refusals"]
    assert "options has noatime, with which the age of /raid removes" in message
