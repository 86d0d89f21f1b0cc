# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts, monitors, the state of slurmctld and users: one line for each that cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Unresolved
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.mounts import (
    check_home_quotas,
    check_monitors,
    check_mounts,
    check_state_folder,
    health_warnings,
    login_warnings,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.networks import parse_networks
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.users import check_users

NETWORKS, _problems = parse_networks(
    {"storage": {"cidr": "10.1.2.0/24"}, "six": {"cidr": "fd00:1::/64"}}, "all.cluster_networks"
)


def values(**given: Any) -> dict[str, Value]:
    return {name: Value(value, f"all.{name}") for name, value in given.items()}


def mount(place: Any, **more: Any) -> dict[str, Any]:
    return {"name": "x", "mountpoint": place, **more}


def test_two_mounts_on_one_place() -> None:
    found = values(
        cephfs_mounts=[mount("/scratch"), mount("/data")],
        local_storage_volumes=[mount("/scratch/")],
    )
    assert [str(one) for one in check_mounts(found)] == [
        (
            "all.local_storage_volumes[0].mountpoint: '/scratch' is also the place of "
            "all.cephfs_mounts[0]; write another place"
        )
    ]
    later = Unresolved("a fact", later=True)
    valid = [mount("/a"), mount("/a/b"), mount("/a", state="absent"), mount(later), mount(later)]
    assert not list(check_mounts(values(cephfs_mounts=valid)))
    assert not list(check_mounts({}))


@pytest.mark.parametrize(
    ("login", "more", "hidden"),
    [
        ("admin", {}, "/home/admin"),
        ("root", {}, ""),
        ("admin", {"cephfs_mounts": [mount("/home")]}, ""),
        ("admin", {"cephfs_mounts": [mount("/homes", over=True)]}, ""),
        ("admin", {"cephfs_mounts": [mount("/home", over=True, state="absent")]}, ""),
        ("admin", {"cephfs_mounts": [mount("/home/admin/", over=True)]}, "/home/admin"),
        ("admin", {"node_base_users": [{"name": "admin", "home": "/srv/admin"}]}, ""),
        ("admin", {"node_base_users": [{"name": "admin", "ssh_keys": ["a"]}]}, "/home/admin"),
        ("ops", {"node_base_users": [{"name": "ops", "home": "/home/x/ops"}]}, "/home/x/ops"),
        # Home and keys of a person of a directory may be elsewhere.
        ("jane", {"identity_domain": "example.org"}, ""),
        ("jane", {"cluster_user_directory": True}, ""),
        # They come from a fact.
        ("admin", {"node_base_users": [Unresolved("a fact", later=True)]}, ""),
        ("ops", {"identity_domain": "a", "node_base_users": [{"name": "ops"}]}, "/home/ops"),
    ],
)
def test_the_key_by_which_ansible_logs_in_is_not_hidden(
    login: str, more: dict[str, Any], hidden: str
) -> None:
    found = values(**{"cephfs_mounts": [mount("/home", over=True)], **more})
    warned = list(login_warnings(found, Value(login, "cluster.ansible_user")))
    line = (
        f"cluster.ansible_user: all.cephfs_mounts[0] hides the home of '{login}', {hidden}, and a "
        f"host on which that hides each key of '{login}' refuses the mount; write root, or another "
        f"user with a home elsewhere in node_base_users, and bootstrap_user: {login}"
    )
    assert warned == ([line] if hidden else [])
    assert not list(login_warnings(found, None))


def test_mounts_that_health_asks_for_and_nothing_mounts() -> None:
    asked = [{"path": path} for path in ("/home/", "/data", "/nfs", "/raid", "/scratch")]
    here: dict[str, Any] = {
        "node_health_enabled": True,
        "node_health_mounts": [*asked, {"path": "/lustre", "fstype": "lustre"}],
        "cephfs_mounts": [mount("/home"), mount("/data", state="absent")],
        # What the operating system mounts has folders of the inventory.
        "node_health_disks": [{"path": "/raid"}],
        "local_storage_folders": [{"path": "/scratch/jobs"}],
    }
    assert list(health_warnings(values(**here), ["/nfs"])) == [
        (
            "all.node_health_mounts[1].path: nothing of the inventory mounts '/data', and a node "
            "without it drains itself; remove it, or, where the site mounts it, write its fstype "
            "as `findmnt -no FSTYPE /data` shows it, or its path in "
            "cluster_validation.canary.mounts"
        )
    ]
    assert not list(health_warnings(values(**{**here, "node_health_enabled": False})))
    assert not list(health_warnings(values(node_health_enabled=True)))


@pytest.mark.parametrize(
    "monitor",
    ["10.1.2.31", "10.1.2.31:3300", "[fd00:1::5]:6789", "fd00:1::5", "mon-1.example.org"],
)
def test_monitors_that_can_be_reached(monitor: str) -> None:
    assert not list(check_monitors(values(cephfs_monitors=[monitor]), NETWORKS, True))


@pytest.mark.parametrize(
    ("monitor", "line"),
    [
        (
            "10.1.20.31",
            (
                "all.cephfs_monitors[0]: 10.1.20.31 is in no network of cluster_networks; write an "
                "address in storage or six, or add the network that it is in"
            ),
        ),
        (
            "10.1.2.331:3300",
            (
                "all.cephfs_monitors[0]: '10.1.2.331:3300' is not an IP address; write one like "
                "10.1.2.31"
            ),
        ),
    ],
)
def test_monitors_that_cannot(monitor: str, line: str) -> None:
    found = check_monitors(values(cephfs_monitors=[monitor]), NETWORKS, True)
    assert [str(one) for one in found] == [line]


def test_a_network_that_is_wrong_itself_makes_no_monitor_wrong() -> None:
    assert not list(check_monitors(values(cephfs_monitors=["10.9.9.9"]), NETWORKS, False))


def test_the_state_that_a_stand_by_must_find() -> None:
    both, name = ("head-01", "head-02"), "slurm_controller_state_save_location"
    mounts = {"cephfs_mounts": [mount("/shared")], "local_storage_volumes": [mount("/raid")]}
    assert not list(check_state_folder(values(**mounts, **{name: "/shared/slurm"}), both))
    (problem,) = check_state_folder(values(**mounts, **{name: "/raid/slurm"}), both)
    assert str(problem) == (
        f"all.{name}: '/raid/slurm' is on /raid, a disk of each controller's own; write a folder "
        "that head-01 and head-02 share"
    )
    (problem,) = check_state_folder(values(**mounts, **{name: "/sharedx"}), both)
    assert "is on no mount of the inventory, and head-01 and head-02 must" in problem.wrong
    # What the site mounts itself, as it says for the canary.
    mounted = check_state_folder(values(**mounts, **{name: "/nfs/slurm"}), both, ["/nfs/"])
    assert not list(mounted)
    assert not list(check_state_folder(values(**{name: "/raid"}), ("head-01",)))


def test_two_users_with_one_number() -> None:
    users = [
        {"name": "alice", "uid": 2001},
        {"name": "bob", "uid": 2001},
        {"name": "alice", "uid": 2002},
        {"name": "carol", "uid": 2001, "state": "absent"},
        {"name": "dave"},
        {"name": "erin", "uid": None},
    ]
    groups = [{"name": "a", "gid": 5}, {"name": "b", "gid": 5}]
    assert [str(one) for one in check_users(values(node_base_users=users))] == [
        "all.node_base_users[1].uid: '2001' is also the uid of [0]; write another one",
        "all.node_base_users[2].name: 'alice' is also the name of [0]; write another one",
    ]
    (problem,) = check_users(values(node_base_groups=groups))
    assert str(problem).startswith("all.node_base_groups[1].gid: '5' is also the gid of [0]")


@pytest.mark.parametrize("monitor", ["fd00:9::1", "[fd00:9::1]:3300", "[fd00:9::1]", "10.9.0.1:1"])
def test_a_monitor_in_no_network_however_it_is_written(monitor: str) -> None:
    (problem,) = check_monitors(values(cephfs_monitors=[monitor]), NETWORKS, True)
    assert problem.wrong.endswith("is in no network of cluster_networks")


def test_each_monitor_is_an_item() -> None:
    given = values(cephfs_monitors=["10.1.2.31,10.1.2.32", "10.1.2.31 10.1.2.32", "10.9.9.9"])
    more = "is more than one monitor; write each as an item of the list"
    found = [str(one) for one in check_monitors(given, NETWORKS, True)]
    assert found[:2] == [
        f"all.cephfs_monitors[0]: '10.1.2.31,10.1.2.32' {more}",
        f"all.cephfs_monitors[1]: '10.1.2.31 10.1.2.32' {more}",
    ]
    assert found[2].startswith("all.cephfs_monitors[2]: 10.9.9.9 is in no network")


def test_what_is_no_address_hides_no_monitor() -> None:
    fact = Unresolved("a fact", later=True)
    given = values(cephfs_monitors=["mon-1", fact, "10.1.2.331", "10.9.0.1", " 10.1.2.31 "])
    found = check_monitors(given, NETWORKS, True)
    assert [problem.path for problem in found] == [
        "all.cephfs_monitors[2]",
        "all.cephfs_monitors[3]",
    ]
    # Which are in no network cannot be known while one is wrong; what is not an address can.
    found = check_monitors(given, NETWORKS, False)
    assert [problem.path for problem in found] == ["all.cephfs_monitors[2]"]
    assert not list(check_monitors({}, NETWORKS, True))


def test_the_mount_that_holds_the_state() -> None:
    both, name = ("head-01", "head-02"), "slurm_controller_state_save_location"

    def found(folder: Any, shared: str, own: str) -> str:
        given = values(cephfs_mounts=[mount(shared)], local_storage_volumes=[mount(own)])
        problems = list(check_state_folder({**given, **values(**{name: folder})}, both))
        assert len(problems) < 2
        if problems:
            return problems[0].wrong.split(" is on ")[1].split(",")[0]
        return "shared"

    assert found("/shared", "/shared", "/raid") == "shared"
    assert found("/raid/", "/shared", "/raid") == "/raid"
    # The longest path that the folder is below.
    assert found("/a/b/c", "/a/b", "/a") == "shared"
    assert found("/a/b/c", "/a", "/a/b") == "/a/b"
    assert found("/x/y", "/", "/raid") == "shared"
    assert found("/x/y", "/shared", "/") == "/"
    assert found("/raid2", "/shared", "/raid") == "no mount of the inventory"
    # What cannot be known yet is not judged.
    assert found(Unresolved("a fact", later=True), "/shared", "/raid") == "shared"
    assert not list(check_state_folder({}, both))


def test_users_that_are_unfinished_hide_no_other() -> None:
    later = Unresolved("a fact", later=True)
    users = [
        {"name": "gone", "uid": 5, "state": "absent"},
        {"name": later, "uid": 5},
        {"name": later, "uid": 5},
    ]
    found = check_users(values(node_base_users=users, node_base_groups=[]))
    assert [str(problem) for problem in found] == [
        "all.node_base_users[2].uid: '5' is also the uid of [1]; write another one"
    ]


def quota_lines(
    quotas: Any, mounts: Any, setting: tuple[str, ...] = ("store",), admin: Any = True
) -> list[str]:
    """The problems of quotas on the host `store`, where `login` has the mounts."""
    hosts = {
        "store": values(cephfs_home_quotas=quotas, cephfs_admin=admin),
        "login": values(cephfs_mounts=mounts),
        "other": {},
    }
    return [str(one) for one in check_home_quotas(hosts, setting)]


QUOTA = {"fs": "cephfs", "path": "/cluster/home", "group": "hpc"}


@pytest.mark.parametrize("path", ["/cluster/home", "/cluster/home/", "/cluster", "/", None])
def test_homes_are_at_or_below_a_mount(path: str | None) -> None:
    assert quota_lines([QUOTA], [mount("/home", fs="cephfs", path=path)]) == []
    relative = {**QUOTA, "path": "cluster/home"}
    assert quota_lines([relative], [mount("/home", fs="cephfs", path="/")]) == []


@pytest.mark.parametrize(
    "given",
    [
        {"fs": "other", "path": "/cluster/home"},
        {"fs": "cephfs", "path": "/cluster/home/hpc"},
        {"fs": "cephfs", "path": "/cluster/homes"},
        {"fs": "cephfs", "path": "/scratch"},
        {"fs": "cephfs", "path": Unresolved("a fact", later=True)},
        {"fs": Unresolved("a fact", later=True)},
    ],
)
def test_quotas_of_a_folder_without_homes(given: dict[str, Any]) -> None:
    right, away = {**QUOTA, "path": "/data"}, [mount("/data", fs="cephfs", path="/data")]
    (line,) = quota_lines([right, QUOTA], [mount("/home", **given), *away])
    assert line.startswith(
        "all.cephfs_home_quotas[1].path: no host mounts '/cluster/home' of CephFS cephfs, so that"
    )


@pytest.mark.parametrize("key", ["fs", "path"])
def test_a_quota_whose_folder_comes_from_a_fact_waits_for_the_host(key: str) -> None:
    fact, elsewhere = {**QUOTA, key: Unresolved("a fact", later=True)}, [mount("/x", fs="other")]
    (line,) = quota_lines([fact, QUOTA], elsewhere)
    assert line.startswith("all.cephfs_home_quotas[1].path: no host mounts")


def test_quotas_that_no_host_sets() -> None:
    mounts = [mount("/home", fs="cephfs")]
    nobody = "all.cephfs_home_quotas: only a host of storage_nodes with cephfs_admin: true sets"
    for setting, admin in (((), True), (("login",), True), (("store",), False), (("gone",), True)):
        (line,) = quota_lines([QUOTA], mounts, setting, admin)
        assert line.startswith(nobody)
    assert quota_lines([QUOTA], mounts, ("gone", "login", "store")) == []
    assert quota_lines([], mounts, ()) == []
