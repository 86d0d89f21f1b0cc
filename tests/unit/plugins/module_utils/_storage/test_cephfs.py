# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CephFS: which client, which device string, which capabilities, which quotas."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._storage import cephfs as _cephfs
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.cephfs import Client, Folder

FSID = "0f2ad38e-6f3c-4d3f-9d65-b7cf4a2a9a10"
MODERN = Client(True, "", 18)
COMMON = {
    "ms_mode": "prefer-crc",
    "recover_session": "clean",
    "options": ["noatime"],
    "automount": False,
    "before": ["slurmd.service"],
    "limit_s": 90,
}
HOME = {"name": "home", "fs": "cephfs", "path": "/home", "mountpoint": "/home", "client": "node"}
MODULES = "kernel/fs/ceph/ceph.ko.zst: kernel/net/ceph/libceph.ko.zst\n"


def render(mount=None, driver="kernel", client=MODERN, **common):
    mon = ["10.0.0.1", "10.0.0.2"]
    return _cephfs.render(mount or HOME, driver, client, FSID, mon, {**COMMON, **common})


@pytest.mark.parametrize(
    ("filesystems", "modules", "builtin", "can_load", "found"),
    [
        ("nodev\tproc\nnodev\tceph\n", "", "", False, True),
        ("\text4\n", MODULES, "", True, True),
        ("\text4\n", MODULES, "", False, False),
        ("\text4\n", "kernel/net/ceph/libceph.ko:\n", "", True, False),
        ("\text4\n", "", "kernel/fs/ceph/ceph.ko\n", False, True),
        ("", "", "", True, False),
    ],
)
def test_a_kernel_client_is_found_where_there_is_one(
    filesystems, modules, builtin, can_load, found
):
    has, reason = _cephfs.kernel_client("6.8.0", filesystems, modules, builtin, can_load)
    assert has is found
    assert "6.8.0" in reason


@pytest.mark.parametrize(
    ("release", "knows"),
    [("6.8.0-40", True), ("5.11.0", True), ("5.4.0-100", False), ("4.18.0-553.el8.x86_64", True)],
)
def test_old_kernels_speak_version_1(release, knows):
    assert _cephfs.knows_ms_mode(release) is knows


def test_new_syntax_has_the_dot_and_slashes_between_monitors():
    result = render()
    assert result["what"] == f"node@{FSID}.cephfs=/home"
    assert result["options"] == [
        "mon_addr=10.0.0.1:3300/10.0.0.2:3300",
        "secretfile=/etc/ceph/ceph.client.node.secret",
        "ms_mode=prefer-crc",
        "recover_session=clean",
        "noatime",
    ]
    assert result["watch"] == ["/etc/ceph/ceph.client.node.secret"]


def test_an_old_mount_ceph_gets_the_old_syntax():
    result = render(client=Client(True, "", 16))
    assert result["what"] == "10.0.0.1:3300,10.0.0.2:3300:/home"
    assert result["options"][:2] == ["name=node", "mds_namespace=cephfs"]


def test_version_1_has_its_port_and_no_ms_mode():
    for message in (render(ms_mode="legacy"), render(client=Client(True, "", 18, ms_mode=False))):
        assert "mon_addr=10.0.0.1:6789/10.0.0.2:6789" in message["options"]
        assert not [word for word in message["options"] if word.startswith("ms_mode")]


def test_fuse_has_its_own_options_and_none_of_the_kernels():
    mount = {**HOME, "options": ["rasize=67108864", "nodev"], "read_only": True}
    result = render(mount, "fuse")
    assert (result["what"], result["fstype"]) == ("none", "fuse.ceph")
    assert result["options"] == [
        "ceph.id=node",
        "ceph.client_fs=cephfs",
        "ceph.client_mountpoint=/home",
        "noatime",
        "nodev",
        "ro",
    ]


def test_a_key_is_never_part_of_a_mount():
    assert "secret=" not in str(render())
    assert "key" not in str(render(driver="fuse")).replace("keyring", "")


def test_what_a_mount_says_itself_goes_before_what_all_have():
    result = render({**HOME, "ms_mode": "secure", "recover_session": "no", "limit_s": 5})
    assert "ms_mode=secure" in result["options"]
    assert not [word for word in result["options"] if word.startswith("recover")]
    assert result["limit_s"] == 5


@pytest.mark.parametrize(
    ("declared", "default", "kernel", "driver"),
    [
        (None, "auto", True, "kernel"),
        (None, "auto", False, "fuse"),
        ("fuse", "kernel", True, "fuse"),
        ("kernel", "auto", False, "kernel"),
    ],
)
def test_driver_is_declared_or_found(declared, default, kernel, driver):
    found = _cephfs.driver_of({**HOME, "driver": declared}, default, Client(kernel, ""))
    assert found == driver


def test_ceph_conf_has_both_protocols_unless_a_port_says_one():
    text = _cephfs.conf_monitors(["10.0.0.1", "10.0.0.2:3300", "10.0.0.3:6789", "[fd00::1]"])
    assert text == (
        "[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:10.0.0.2:3300],[v1:10.0.0.3:6789],"
        "[v2:[fd00::1]:3300,v1:[fd00::1]:6789]"
    )


@pytest.mark.parametrize("text", ["", "10.0.0.1,10.0.0.2", "a b", "10.0.0.1:99999", "fd00::1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="monitor"):
        _cephfs.split_address(text)


def test_release_is_read_from_ceph_conf():
    assert _cephfs.release_of("ceph version 18.2.7 (abc) reef (stable)") == 18
    assert _cephfs.release_of("") == 0


def test_capabilities_are_those_of_fs_authorize():
    caps = _cephfs.wanted_caps(
        [
            {"fs": "cephfs", "path": "/home", "perms": "rwp"},
            {"fs": "cephfs", "path": "/images", "perms": "r"},
            {"fs": "other", "perms": "r", "root_squash": True},
        ]
    )
    assert caps["mds"] == (
        "allow rwp fsname=cephfs path=/home, allow r fsname=cephfs path=/images, "
        "allow r fsname=other root_squash"
    )
    assert caps["mon"] == "allow r fsname=cephfs, allow r fsname=other"
    assert caps["osd"] == "allow rw tag cephfs data=cephfs, allow r tag cephfs data=other"


def test_capabilities_are_compared_without_order_and_spaces():
    found = {"mds": "allow r fsname=b,allow rw  fsname=a", "mon": "allow r", "osd": ""}
    wanted = {"mds": "allow rw fsname=a, allow r fsname=b", "mon": "allow r"}
    assert _cephfs.same_caps(found, wanted)
    assert not _cephfs.same_caps({**found, "osd": "allow *"}, wanted)


@pytest.mark.parametrize(("perms", "good"), [("rw", True), ("rwps", True), ("rwsp", False)])
def test_letters_of_permissions_have_an_order(perms, good):
    assert (_cephfs.perms_problem(perms) == "") is good


FOLDER = {
    "path": "/scratch",
    "mode": "1777",
    "max_bytes": 100,
    "max_files": 0,
    "layout": {"stripe_count": 4, "pool": "fast"},
}


def test_a_missing_folder_gets_everything():
    todo = _cephfs.changes(FOLDER, Folder(False), 0, -1)
    assert todo == {
        "make": True,
        "mode": 0o1777,
        "owner": [0, -1],
        "attributes": {
            "ceph.quota.max_bytes": "100",
            "ceph.dir.layout.pool": "fast",
            "ceph.dir.layout.stripe_count": "4",
        },
    }
    assert _cephfs.describe("/scratch", todo).startswith("/scratch: made, mode 1777, owner 0:-1")


def test_a_folder_as_declared_gets_nothing():
    attributes = {
        "ceph.quota.max_bytes": "100",
        "ceph.quota.max_files": "0",
        "ceph.dir.layout.pool": "fast",
        "ceph.dir.layout.stripe_count": "4",
    }
    assert not _cephfs.changes(FOLDER, Folder(True, 0o1777, 5, 6, attributes), 5, -1)
    todo = _cephfs.changes(FOLDER, Folder(True, 0o1777, 5, 6, attributes), 7, -1)
    assert todo == {"owner": [7, -1]}


def test_what_is_not_declared_is_left_alone():
    assert not _cephfs.changes({"path": "/x"}, Folder(True, 0o700, 1, 1, {}), -1, -1)
