# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from .conftest import podlib

layout = podlib("layout")
inventory = podlib("inventory")
nodes = podlib("nodes")

POD = layout.Pod("demo", "10.77.0.0/24", layout.default_nodes("10.77.0.0/24", "trixie", 2))
FOLDER = Path("/x/.pod/demo")


def changes(wanted, existing, recorded, forced=()):
    digests = {path: inventory.digest(text) for path, text in recorded.items()}
    return inventory.plan_changes(wanted, existing, digests, frozenset(forced))


def test_first_time_everything_is_written():
    assert changes({"a": "1"}, {}, {}) == inventory.Changes({"a": "1"}, (), ())


def test_second_time_nothing_is():
    assert changes({"a": "1"}, {"a": "1"}, {"a": "1"}) == inventory.Changes({}, (), ())


def test_newer_template_replaces_what_was_not_edited():
    assert changes({"a": "2"}, {"a": "1"}, {"a": "1"}).written == {"a": "2"}


def test_what_the_user_edited_stays():
    assert changes({"a": "2"}, {"a": "mine"}, {"a": "1"}) == inventory.Changes({}, (), ("a",))
    assert changes({"a": "1"}, {"a": "mine"}, {"a": "1"}).kept == ("a",)


def test_edited_file_is_replaced_when_asked_for():
    assert changes({"a": "2"}, {"a": "mine"}, {"a": "1"}, ["a"]).written == {"a": "2"}


def test_file_of_the_template_that_is_gone_goes_unless_edited():
    assert changes({}, {"a": "1"}, {"a": "1"}).removed == ("a",)
    assert changes({}, {"a": "mine"}, {"a": "1"}).removed == ()
    assert changes({}, {"own": "mine"}, {}).removed == ()


def test_folders_that_another_layout_has_left_go(tmp_path):
    """check_inventory refuses group_vars of a group that is not there, with or without a file."""
    (tmp_path / "group_vars/mig_nodes/deep").mkdir(parents=True)
    (tmp_path / "group_vars/all").mkdir()
    (tmp_path / "group_vars/all/a.yml").touch()
    (tmp_path / ".dgx/nodes").mkdir(parents=True)
    inventory.remove_empty_folders(tmp_path)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == [".dgx", ".dgx/nodes", "group_vars", "group_vars/all", "group_vars/all/a.yml"]


def test_run_killed_before_its_record_is_made_up_for():
    assert changes({"a": "1", "b": "2"}, {"a": "1"}, {}) == inventory.Changes({"b": "2"}, (), ())


def test_range_has_the_number_of_nodes():
    template = (inventory.TEMPLATE / "hosts.yml").read_text()
    text = inventory.hosts_of_range(template, 8)
    groups = yaml.safe_load(text)["cluster"]["children"]
    assert list(groups["gpu_nodes"]["hosts"]) == ["dgx-[01:08]"]
    assert list(groups["slurm_controllers"]["hosts"]) == ["head-01"]


@pytest.mark.parametrize("text", ["gpu_nodes:", "dgx-[01:04]\ndgx-[01:04]"])
def test_template_must_have_one_range(text):
    with pytest.raises(layout.PodError, match="there must be one"):
        inventory.hosts_of_range(text, 4)


def test_named_hosts_are_grouped_by_their_names_with_their_addresses():
    pod = layout.resolve(
        layout.Request("x", hosts="head-01=10.77.0.5,dgx-01=10.77.0.6,mol-a=10.77.0.7"), None
    )
    cluster = yaml.safe_load(inventory.hosts_of_nodes(pod))["cluster"]
    assert cluster["hosts"] == {"mol-a": {"ansible_host": "10.77.0.7"}}
    assert cluster["children"]["gpu_nodes"]["hosts"] == {"dgx-01": {"ansible_host": "10.77.0.6"}}
    head = {"slurm_controllers", "slurm_databases", "subnet_managers", "monitoring_nodes"}
    assert set(cluster["children"]) == head | {"gpu_nodes"}


def test_only_the_first_head_has_the_database():
    request = layout.Request("x", hosts="head-01=10.77.0.5,head-02=10.77.0.6")
    groups = yaml.safe_load(inventory.hosts_of_nodes(layout.resolve(request, None)))["cluster"]
    hosts = {name: list(group["hosts"]) for name, group in groups["children"].items()}
    assert hosts["slurm_controllers"] == ["head-01", "head-02"]
    assert hosts["slurm_databases"] == hosts["subnet_managers"] == ["head-01"]


def test_addresses_move_to_the_pods_subnet():
    files = inventory.wanted_files(
        layout.Pod("x", "10.78.40.0/24", layout.default_nodes("10.78.40.0/24", "trixie", 2)),
        None,
        "g",
    )
    assert not [path for path, text in files.items() if "10.77.0." in text]
    assert "10.78.40.101" in files["group_vars/gpu_nodes/node.yml"]
    assert "dgx-[01:02]" in files["hosts.yml"]


def generated(pod=POD, hybrid=True, v1=True):
    return yaml.safe_load(
        inventory.generated_variables(pod, FOLDER, "ssh-ed25519 KEY demo", hybrid, v1)
    )


def test_hybrid_host_forces_the_nodes_own_v1_folders():
    assert generated()["slurm_controller_cgroup"] == {
        "plugin": "cgroup/v1",
        "mountpoint": "/cgv1",
        "constrain_cores": False,
        "constrain_ram": False,
        "constrain_swap": False,
        "constrain_devices": True,
    }


def test_pure_host_runs_cgroup_v2():
    cgroup = generated(hybrid=False, v1=False)["slurm_controller_cgroup"]
    assert cgroup["plugin"] == "cgroup/v2"
    assert "mountpoint" not in cgroup


def test_connection_is_the_pods_own():
    variables = generated()
    assert variables["ansible_ssh_private_key_file"] == "/x/.pod/demo/id"
    assert "StrictHostKeyChecking=no" in variables["ansible_ssh_common_args"]
    assert variables["virtual_pod_public_key"] == "ssh-ed25519 KEY demo"


@pytest.mark.parametrize(("suite", "version"), [("trixie", "24.11"), ("bookworm", "22.05")])
def test_slurm_release_is_that_of_the_suite(suite, version):
    pod = layout.Pod("x", "10.77.0.0/24", layout.default_nodes("10.77.0.0/24", suite, 1))
    assert generated(pod)["slurm_base_version"] == version


def test_mixed_suites_leave_the_release_to_the_user():
    pod = layout.resolve(layout.Request("x", hosts="a=10.77.0.5:trixie,b=10.77.0.6:bookworm"), None)
    assert "slurm_base_version" not in generated(pod)


def write(tmp_path, monkeypatch, count=None):
    monkeypatch.setattr(nodes, "STATE", tmp_path)
    (tmp_path / "demo").mkdir(exist_ok=True)
    (tmp_path / "demo" / "id.pub").write_text("ssh-ed25519 KEY demo\n")
    inventory.write(POD, count)
    return tmp_path / "demo" / "inventory"


def test_fifth_node_in_hosts_yml_survives_until_a_number_is_given(tmp_path, monkeypatch):
    folder = write(tmp_path, monkeypatch)
    edited = (folder / "hosts.yml").read_text().replace("dgx-[01:02]", "dgx-[01:05]")
    (folder / "hosts.yml").write_text(edited)
    (folder / ".dgx").mkdir()
    (folder / ".dgx" / "kept").write_text("state")
    write(tmp_path, monkeypatch)
    assert (folder / "hosts.yml").read_text() == edited
    write(tmp_path, monkeypatch, count=3)
    assert "dgx-[01:03]" in (folder / "hosts.yml").read_text()
    assert (folder / ".dgx" / "kept").read_text() == "state"


def test_a_pod_with_storage_mounts_it_and_one_without_says_nothing_of_it():
    ceph = podlib("ceph")
    stored = layout.resolve(layout.Request("demo", storage=True), None)
    files = inventory.wanted_files(stored, None, "x")
    groups = yaml.safe_load(files["hosts.yml"])["cluster"]["children"]
    assert list(groups["storage_nodes"]["hosts"]) == [layout.STORAGE]
    mounts = yaml.safe_load(files["group_vars/all/storage.yml"])["cephfs_mounts"]
    assert {mount["mountpoint"] for mount in mounts} == {"/cluster/home", "/cluster/scratch"}
    text = inventory.generated_variables(stored, FOLDER, "key", False, False)
    assert yaml.safe_load(text)["cephfs_monitors"] == ["10.77.0.31"]
    assert yaml.safe_load(text)["cephfs_fsid"] == ceph.fsid(stored)

    files = inventory.wanted_files(POD, None, "x")
    assert "storage_nodes" not in files["hosts.yml"]
    assert not [path for path in files if "storage" in path]
    assert "cephfs" not in inventory.generated_variables(POD, FOLDER, "key", False, False)


def test_each_pod_has_a_cluster_of_its_own():
    ceph = podlib("ceph")
    pods = [layout.resolve(layout.Request(name, storage=True), None) for name in ("a", "b")]
    assert ceph.fsid(pods[0]) == ceph.fsid(pods[0]) != ceph.fsid(pods[1])
    with pytest.raises(layout.PodError, match="pod up --storage"):
        ceph.start(podlib("progress").Progress("t"), POD)
