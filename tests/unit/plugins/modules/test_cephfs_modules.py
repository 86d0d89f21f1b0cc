# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules of the role cephfs against a kernel and a cluster that are played."""

from __future__ import annotations

import json
import os
import sys
import types

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import (
    cephfs_folders as _cephfs_folders,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage import (
    cephfs_host as _cephfs_host,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.mounts import (
    read as mounts_read,
)
from ansible_collections.baremetal.dgx.plugins.modules import (
    cephfs_authorize,
    cephfs_client,
    cephfs_folders,
)

pytestmark = pytest.mark.slow
KEY = "AQBx0000000000000000000000000000000000=="

CEPH = """\
#!/usr/bin/env python
import json, os, sys
words = sys.argv[1:]
with open(os.environ["WORLD"] + "/calls", "a") as log:
    log.write(" ".join(words) + "\\n")
words = words[4:]
path = os.environ["WORLD"] + "/clients.json"
clients = json.load(open(path))
if os.path.exists(os.environ["WORLD"] + "/silent"):
    sys.exit("error connecting to the cluster")
if words[:2] == ["auth", "get"]:
    if words[2] not in clients:
        sys.exit(2)
    print(json.dumps([{"entity": words[2], "key": KEY, "caps": clients[words[2]]}]))
elif words[:2] == ["fs", "authorize"]:
    fs, name, place, perms = words[2:6]
    other = os.environ["WORLD"] + "/other.json"
    if os.path.exists(other):
        os.rename(other, path)
        sys.exit(f"{name} already has fs capabilities that differ from those supplied.")
    where = "" if place == "/" else " path=" + place
    clients[name] = {
        "mds": f"allow {perms} fsname={fs}{where}",
        "mon": f"allow r fsname={fs}",
        "osd": f"allow {'rw' if 'w' in perms else 'r'} tag cephfs data={fs}",
    }
elif words[:2] == ["auth", "caps"]:
    clients[words[2]] = dict(zip(words[3::2], words[4::2]))
json.dump(clients, open(path, "w"))
""".replace("KEY", repr(KEY))


@pytest.fixture
def cluster(run_module, tmp_path, monkeypatch):
    """`cluster(*clients)`: a cluster whose clients are in a file."""
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "ceph"
    tool.write_text(CEPH.replace("#!/usr/bin/env python", f"#!{sys.executable}"))
    tool.chmod(0o755)
    (tmp_path / "clients.json").write_text("{}")
    monkeypatch.setenv("WORLD", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    def run(*grants, check=False):
        client = {"name": "node", "grants": [{"fs": "cephfs", **one} for one in grants]}
        return run_module(cephfs_authorize.main, {"clients": [client]}, check)

    run.folder = tmp_path
    run.calls = (tmp_path / "calls").read_text
    return run


def test_a_client_is_made_once(cluster):
    assert cluster({"path": "/home"}, check=True)["steps"] == ["make client.node"]
    assert "authorize" not in cluster.calls()
    result = cluster({"path": "/home"})
    assert (result["changed"], result["client_keys"]) == (True, {"node": KEY})
    assert "fs authorize cephfs client.node /home rw" in cluster.calls()
    assert not cluster({"path": "/home"})["changed"]
    assert KEY not in cluster.calls()


def test_a_client_that_another_host_makes_at_the_same_moment(cluster):
    """Every host of storage_nodes with cephfs_admin makes the clients."""
    grants = {"path": "/home"}, {"path": "/images", "perms": "r"}
    cluster(*grants)
    (cluster.folder / "clients.json").rename(cluster.folder / "other.json")
    (cluster.folder / "clients.json").write_text("{}")
    result = cluster(*grants)
    assert result.get("msg") is None
    assert result["client_keys"] == {"node": KEY}


def test_more_grants_change_the_capabilities_and_keep_the_key(cluster):
    cluster({"path": "/home"})
    result = cluster({"path": "/home"}, {"path": "/images", "perms": "r"})
    assert result["steps"] == ["change client.node"]
    assert "auth caps client.node" in cluster.calls()
    assert KEY not in json.dumps(result["diff"])
    assert not cluster({"path": "/home"}, {"path": "/images", "perms": "r"})["changed"]


def test_a_cluster_that_does_not_answer_is_told_without_its_output(cluster):
    (cluster.folder / "silent").write_text("")
    result = cluster({})
    assert result["failed"]
    assert "error connecting" in result["msg"]


def test_letters_in_the_wrong_order_are_refused_before_anything_is_asked(cluster):
    assert "their order counts" in cluster({"perms": "rwsp"})["msg"]
    assert not (cluster.folder / "calls").exists()


class FaultError(Exception):
    """cephfs.Error."""


class MissingError(FaultError):
    """cephfs.ObjectNotFound and cephfs.NoData."""


class ThereError(FaultError):
    """cephfs.ObjectExists."""


class Tree:
    """libcephfs: folders with attributes, kept in a file since a child asks."""

    missing, unset, there, error = MissingError, MissingError, ThereError, FaultError

    def __init__(self, path):
        self.path = path
        self.data = json.loads(path.read_text())

    def stat(self, path):
        if path not in self.data:
            raise MissingError
        one = self.data[path]
        return types.SimpleNamespace(st_mode=one["mode"] | 0o40000, st_uid=one["uid"], st_gid=0)

    def getxattr(self, path, name):
        if name not in self.data[path]["attributes"]:
            raise MissingError
        return self.data[path]["attributes"][name].encode()

    def mkdirs(self, path, mode):
        if self.path.with_name("other").exists():
            self.data[path] = {"mode": 0o755, "uid": 0, "attributes": {}}
            raise ThereError("error in mkdirs: File exists")
        self.data[path] = {"mode": mode & ~0o22, "uid": 0, "attributes": {}}

    def chmod(self, path, mode):
        self.data[path]["mode"] = mode

    def chown(self, path, uid, gid):
        self.data[path]["uid"] = uid

    def setxattr(self, path, name, value, flags):
        if value == b"refused":
            raise MissingError("error in setxattr")
        self.data[path]["attributes"][name] = value.decode()

    def shutdown(self):
        self.path.write_text(json.dumps(self.data))


@pytest.fixture
def folders(run_module, tmp_path, monkeypatch):
    """`folders(*folders)`: a file system in a file."""
    path = tmp_path / "tree.json"
    path.write_text("{}")
    monkeypatch.setattr(_cephfs_folders, "connect", lambda _client, _name: Tree(path))

    def run(*asked, check=False):
        options = {"fs": "cephfs", "folders": list(asked), "timeout_s": 20}
        return run_module(cephfs_folders.main, options, check)

    run.found = lambda: json.loads(path.read_text())
    return run


def test_folders_are_made_with_all_that_is_declared_once(folders):
    asked = {"path": "/scratch", "mode": "1777", "max_bytes": 5, "owner": "0"}
    assert folders(asked, check=True)["changed"]
    assert folders.found() == {}
    folders(asked)
    assert folders.found()["/scratch"] == {
        "mode": 0o1777,
        "uid": 0,
        "attributes": {"ceph.quota.max_bytes": "5"},
    }
    assert not folders(asked)["changed"]
    assert folders({**asked, "max_bytes": 7})["steps"] == ["/scratch: ceph.quota.max_bytes=7"]


def test_a_folder_that_another_host_makes_at_the_same_moment(folders, tmp_path):
    (tmp_path / "other").touch()
    result = folders({"path": "/scratch", "mode": "1777", "max_bytes": 5})
    assert result.get("msg") is None
    assert folders.found()["/scratch"] == {
        "mode": 0o1777,
        "uid": 0,
        "attributes": {"ceph.quota.max_bytes": "5"},
    }


def test_an_unknown_owner_and_a_refused_attribute_are_told(folders):
    assert folders({"path": "/a", "owner": "nobody-of-this-name"})["failed"]
    result = folders({"path": "/b", "layout": {"pool": "refused"}})
    assert "error in setxattr" in result["msg"]


def test_a_cluster_that_hangs_ends_the_task_in_time(run_module, monkeypatch):
    def hang(_client, _name):
        import time

        time.sleep(60)

    monkeypatch.setattr(_cephfs_folders, "connect", hang)
    options = {"fs": "cephfs", "folders": [], "timeout_s": 0.5}
    assert "did not come back" in run_module(cephfs_folders.main, options)["msg"]


def test_a_missing_binding_is_named(run_module, monkeypatch):
    monkeypatch.setitem(sys.modules, "cephfs", None)
    options = {"fs": "cephfs", "folders": []}
    assert "python3-cephfs" in run_module(cephfs_folders.main, options)["msg"]


@pytest.fixture
def client(run_module, monkeypatch):
    """`client(filesystems, *mounts)`: a node whose kernel has these file systems."""

    def run(filesystems, *mounts, driver="auto", answer_s=0):
        texts = {"/proc/filesystems": filesystems, "/proc/self/status": "CapBnd:\t0\n"}
        really = mounts_read.read
        monkeypatch.setattr(
            _cephfs_host,
            "read",
            lambda path: really(path) if "ceph.client" in path else texts.get(path, ""),
        )
        base = {"name": "home", "fs": "cephfs", "mountpoint": "/home", "client": "node"}
        common = {
            "ms_mode": "crc",
            "recover_session": "no",
            "options": [],
            "automount": False,
            "before": [],
            "limit_s": 5,
        }
        options = {
            "mounts": [{**base, **one} for one in mounts],
            "driver": driver,
            "fsid": "f",
            "monitors": ["10.0.0.1"],
            "common": common,
            "answer_s": answer_s,
        }
        return run_module(cephfs_client.main, options)

    return run


def test_a_kernel_without_ceph_uses_fuse_and_says_why(client):
    result = client("\text4\n", {})
    assert result["drivers"] == {"home": "fuse"}
    assert "home on /home: ceph-fuse (kernel" in result["lines"][0]
    assert "has no module ceph" in result["lines"][0]


def test_a_kernel_with_ceph_uses_it(client):
    result = client("nodev\tceph\n", {}, {"name": "x", "mountpoint": "/x", "driver": "fuse"})
    assert result["drivers"] == {"home": "kernel", "x": "fuse"}
    assert result["lines"][1].endswith("ceph-fuse (declared)")


def test_who_insists_on_the_kernel_is_told_that_there_is_none(client):
    assert "write driver: fuse, or auto" in client("", {}, driver="kernel")["msg"]


def test_a_node_that_has_lost_all_mounts_names_the_keys_of_the_role(client, tmp_path, monkeypatch):
    marker = "# Managed by Ansible: baremetal.dgx"
    for name, text in (("node", f"{marker}\n[client.node]\n"), ("admin", "[client.admin]\n")):
        (tmp_path / f"ceph.client.{name}.keyring").write_text(text)
        (tmp_path / f"ceph.client.{name}.secret").write_text("x\n")
    for kind in ("keyring", "secret"):
        path = f"{tmp_path}/ceph.client.{{}}.{kind}".format
        monkeypatch.setattr(_cephfs_host, f"{kind}_path", path)
    assert client("", {})["stale"] == []
    assert client("")["stale"] == [
        f"{tmp_path}/ceph.client.node.keyring", f"{tmp_path}/ceph.client.node.secret",
    ]  # fmt: skip


def test_modules_can_be_loaded_where_the_capability_is_there():
    assert _cephfs_host.can_load("CapBnd:\t000001ffffffffff\n")
    assert not _cephfs_host.can_load("CapBnd:\t0000000000000000\n")


def test_monitors_are_asked_on_the_ports_of_the_mounts(client, monkeypatch):
    """The old protocol has another port; a mount goes on with one monitor, so it is a warning."""
    asked = []

    def unanswered(addresses, limit_s):
        asked.append((list(addresses), limit_s))
        return {"10.0.0.1:6789": "no answer"}

    monkeypatch.setattr(_cephfs_host, "unanswered", unanswered)
    client("nodev\tceph\n", {})
    assert asked == [], "only who asks for it waits"
    result = client(
        "nodev\tceph\n",
        {"driver": "fuse"},
        {"name": "x", "mountpoint": "/x", "driver": "fuse", "ms_mode": "legacy"},
        answer_s=7,
    )
    assert asked == [(["10.0.0.1:3300", "10.0.0.1:6789"], 7)]
    assert result["lines"][2].startswith("1 of 2 monitors take no connection: 10.0.0.1:6789 (no")
    assert result["warnings"] == result["lines"][2:]
