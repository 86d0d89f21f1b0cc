# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import load_roles
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Inventory
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan import networks as _plan_networks
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan, make_plan
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.report import (
    hosts_text,
    node_texts,
    report,
    summary,
)

HOSTS = "hosts.yml"
CLUSTER = "group_vars/all/cluster.yml"
GPU_NODES = "group_vars/gpu_nodes/node.yml"
CONTROLLER = "group_vars/slurm_controllers/slurm_controller.yml"
BASEPOD = "topology: basepod\n  leaf_switches: [leaf-01, leaf-02]"
CPU_PROFILE = """\
cluster_profiles:
  cpu_node:
    cpu: {sockets: 2, cores_per_socket: 32, threads_per_core: 2, numa_nodes: 2}
    real_memory_mb: 250000
"""


def healthy(plan: Plan) -> dict[str, Any]:
    assert plan.problems == ()
    assert plan.data is not None
    return plan.data


def superpod(files: dict[str, str], leaf: int, spine: int) -> None:
    switches = {"leaf": leaf, "spine": spine}
    lists = "".join(
        f"\n  {tier}_switches: [{', '.join(f'{tier}-{index}' for index in range(count))}]"
        for tier, count in switches.items()
    )
    files[CLUSTER] = files[CLUSTER].replace(BASEPOD, "topology: superpod" + lists)


def by_name(data: dict[str, Any]) -> dict[str, Any]:
    return {node["name"]: node for node in data["nodes"]}


def test_a_healthy_inventory_has_no_warnings(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    plan = planned(small_files)
    data = healthy(plan)
    assert plan.warnings == ()
    assert plan.state_dir is not None
    assert plan.state_dir.endswith("/.dgx")
    assert data["version"] == 1
    assert list(data["profiles"]) == ["dgx_h100"]
    assert by_name(data)["dgx-03"] == {
        "name": "dgx-03",
        "mig": {},
        "number": 3,
        "groups": ["gpu_nodes"],
        "state": "present",
        "profile": "dgx_h100",
        "addresses": {"management": "10.1.0.103", "storage": "10.2.0.103"},
        "rack": "r02",
        "rack_unit": 1,
        "su": None,
        "leaf_place": 3,
        "features": ["h100"],
        "serial": None,
        "hca_guids": {},
    }
    assert by_name(data)["head-01"]["groups"] == [
        "slurm_controllers",
        "slurm_databases",
        "subnet_managers",
    ]
    assert data["cluster"]["groups"]["slurm_controllers"] == ["head-01"]


def test_the_same_inventory_gives_the_same_text(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    first, second = planned(small_files), planned(small_files)
    assert first.plan_text() == second.plan_text()
    assert json.loads(first.plan_text()) == first.data
    # Nothing of this machine, so that two controllers with one inventory have one plan.
    assert "/" not in first.plan_text().replace("/dev/nvidia", "").replace("/24", "")


def test_slurm_is_told_cores_files_and_links(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    nodes = healthy(planned(small_files))["slurm"]["nodes"]
    assert [node["name"] for node in nodes] == ["dgx-01", "dgx-02", "dgx-03", "dgx-04"]
    node = nodes[0]
    assert (node["cpus"], node["sockets"], node["cores_per_socket"], node["threads_per_core"]) == (
        224,
        2,
        56,
        2,
    )
    (gpu,) = node["gres"]
    assert (gpu["name"], gpu["type"], gpu["count"]) == ("gpu", "h100", 8)
    assert gpu["files"] == [f"/dev/nvidia{index}" for index in range(8)]
    assert gpu["cores"] == ["0-55"] * 4 + ["56-111"] * 4
    assert gpu["links"][0] == "-1,18,18,18,18,18,18,18"
    assert gpu["links"][7] == "18,18,18,18,18,18,18,-1"


def test_a_flat_fabric_has_no_topology(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    assert healthy(planned(small_files))["slurm"]["topology"] == []


def test_a_superpod_has_a_switch_for_each_unit(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    superpod(small_files, 16, 8)
    small_files[HOSTS] = small_files[HOSTS].replace(
        "dgx-04: {", "dgx-04: {node_su: 2, node_number: 40, "
    )
    small_files[HOSTS] += (
        "    cpu_nodes:\n      hosts:\n        cpu-01: {node_address: {management: 10.1.0.61}}\n"
    )
    small_files[CLUSTER] += CPU_PROFILE
    small_files["group_vars/cpu_nodes/node.yml"] = "node_profile: cpu_node\n"
    data = healthy(planned(small_files))
    assert data["slurm"]["topology"] == [
        {"switch": "su1", "nodes": ["dgx-01", "dgx-02", "dgx-03"]},
        {"switch": "su2", "nodes": ["dgx-04"]},
        {"switch": "others", "nodes": ["cpu-01"]},
        {"switch": "core", "switches": ["su1", "su2", "others"]},
    ]
    assert by_name(data)["dgx-04"]["addresses"]["management"] == "10.1.0.140"
    assert [node["gres"] for node in data["slurm"]["nodes"] if node["name"] == "cpu-01"] == [[]]


def test_an_absent_node_leaves_slurm_and_the_hosts_file(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[HOSTS] = small_files[HOSTS].replace("dgx-03: {", "dgx-03: {node_state: absent, ")
    data = healthy(planned(small_files))
    assert by_name(data)["dgx-03"]["state"] == "absent"
    assert "dgx-03" not in [node["name"] for node in data["slurm"]["nodes"]]
    assert "dgx-03" not in hosts_text(data)
    assert summary(data)["absent"] == 1
    assert summary(data)["gpus"] == 24
    assert "1 declared absent" in report(data)[0]


def test_a_nodes_own_part_holds_what_its_tasks_read(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[HOSTS] = small_files[HOSTS].replace("dgx-03: {", "dgx-03: {node_state: absent, ")
    data = healthy(planned(small_files))
    parts = {name: json.loads(text) for name, text in node_texts(data).items()}
    assert set(parts) == {node["name"] for node in data["nodes"]}
    assert parts["dgx-01"]["addresses"] == by_name(data)["dgx-01"]["addresses"]
    assert parts["dgx-01"]["profile_data"] == data["profiles"]["dgx_h100"]
    assert parts["dgx-01"]["slurm"]["name"] == "dgx-01"
    assert parts["dgx-03"]["slurm"] is None


def test_what_an_absent_host_would_do_counts_for_nothing(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """The second Prometheus is the one that is copied."""
    edited(
        small_files,
        HOSTS,
        "    login_nodes:",
        "    monitoring_nodes:\n      hosts:\n        mon-01: {node_state: absent}\n"
        "        mon-02: {node_address: {management: 10.1.0.31}, backup_prometheus: true}\n"
        "    login_nodes:",
    )
    small_files["group_vars/monitoring_nodes/own.yml"] = (
        "prometheus_enabled: true\nprometheus_alertmanagers: {targets: ['am:9093']}\n"
        "backup_repository: /mnt/copies\n"
    )
    healthy(planned_by_roles(small_files))


def test_subnet_managers_that_are_all_absent_are_none(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    rail = "cluster_networks:\n  rail0: {cidr: 10.3.0.0/24, kind: infiniband}"
    edited(small_files, CLUSTER, "cluster_networks:", rail)
    managers = "    subnet_managers:\n      hosts:\n        "
    edited(small_files, HOSTS, managers + "head-01:", managers + "sm-01: {node_state: absent}")
    (line,) = planned_by_roles(small_files).problems
    assert line.startswith("subnet_managers: its hosts are all absent, and an InfiniBand fabric")
    # UFM is read by the first that is there.
    ufm = "subnet_manager_ufm_url: https://ufm.example.org"
    both = f"sm-01: {{node_state: absent, {ufm}}}\n        head-01:"
    edited(small_files, HOSTS, "sm-01: {node_state: absent}", both)
    edited(small_files, CLUSTER, BASEPOD, f"{BASEPOD}\n  read_from: ufm")
    assert any(
        "read_from: ufm, but the host" in line for line in planned_by_roles(small_files).problems
    )


def test_an_absent_node_gives_up_its_place(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[HOSTS] = small_files[HOSTS].replace(
        "        dgx-03: {",
        "        dgx-05: {node_number: 3, node_rack: r02, node_rack_unit: 1}\n"
        "        dgx-03: {node_state: absent, ",
    )
    data = healthy(planned(small_files))
    assert by_name(data)["dgx-05"]["addresses"] == by_name(data)["dgx-03"]["addresses"]


def test_guids_are_written_one_way(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    guids = "node_hca_guids: {1: '946D:AE03:00A1:B2C3', 0: 946dae0300a1b2c4}"
    small_files[HOSTS] = small_files[HOSTS].replace("dgx-03: {", f"dgx-03: {{{guids}, ")
    data = healthy(planned(small_files))
    assert list(by_name(data)["dgx-03"]["hca_guids"].items()) == [
        ("0", "0x946dae0300a1b2c4"),
        ("1", "0x946dae0300a1b2c3"),
    ]


def test_hosts_file(planned: Callable[..., Plan], small_files: dict[str, str]) -> None:
    small_files[CLUSTER] = small_files[CLUSTER].replace(
        "cluster_fabric:", "  rail0: {cidr: 10.3.0.0/24, kind: infiniband}\ncluster_fabric:"
    )
    small_files[GPU_NODES] = small_files[GPU_NODES].replace(
        "  storage:", "  rail0: 10.3.0.1\n  storage:"
    )
    text = hosts_text(healthy(planned(small_files)))
    lines = text.splitlines()
    assert lines[0] == ("# Managed by Ansible: baremetal.dgx. Local changes will be overwritten.")
    assert lines[1] == "127.0.0.1 localhost"
    assert "10.1.0.103 dgx-03.small.example.org dgx-03" in lines
    assert "10.2.0.103 dgx-03-storage.small.example.org dgx-03-storage" in lines
    assert "10.3.0.3" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    # A name for 127.0.1.1 would make Slurm's daemons announce that address.
    assert "127.0.1.1" not in text


def test_hosts_file_without_a_domain(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[CLUSTER] = small_files[CLUSTER].replace("cluster_domain: small.example.org\n", "")
    assert "\n10.1.0.103 dgx-03\n" in hosts_text(healthy(planned(small_files)))


def test_report(planned: Callable[..., Plan], small_files: dict[str, str]) -> None:
    assert report(healthy(planned(small_files))) == [
        "cluster small: 7 nodes, 32 GPUs, 2 racks",
        "gpu_nodes: 4 (dgx_h100): dgx-[01-04]",
        "slurm_controllers: 1: head-01",
        "slurm_databases: 1: head-01",
        "login_nodes: 2: login-[01-02]",
        "subnet_managers: 1: head-01",
        "network management: 10.1.0.0/24",
        "network storage: 10.2.0.0/24",
        "fabric basepod: 2 leaf switches, 8 rails",
    ]


def test_warnings(planned: Callable[..., Plan], small_files: dict[str, str]) -> None:
    small_files[HOSTS] = "others:\n  hosts:\n    backup-[01:02]:\n" + small_files[HOSTS].replace(
        "head-01:\n    slurm_databases", "head-[01:02]:\n    slurm_databases"
    ).replace("        dgx-01:", "        dgx-[05:09]:\n        dgx-01:")
    small_files[CLUSTER] = small_files[CLUSTER].replace(
        "cluster_fabric:\n",
        "  bmc: {cidr: 10.9.0.0/24}\ncluster_fabric:\n  rate_gbps: 200\n",
    )
    small_files[CONTROLLER] += "  - {name: big, nodes: [ALL]}\nslurm_controller_hosts: [head-01]\n"
    small_files[CONTROLLER] = small_files[CONTROLLER].replace(
        'nodes: ["dgx-[01-02]"]', 'nodes: ["dgx-[01-02]"]\n  - {name: fat, feature: fat}'
    )
    small_files["host_vars/dgx-03.yml"] = "ansible_host: 10.1.0.113\n"
    plan = planned(small_files)
    assert plan.problems == ()
    assert plan.warnings == (
        "all.cluster_fabric.rate_gbps: 200, but profile dgx_h100 runs at 400",
        (
            "all.cluster_fabric: 9 nodes in a BasePOD, which is specified for 8; 28 ports of each "
            "switch are left to join the two, 36 would not block"
        ),
        "all.cluster_networks.bmc: no node has an address on it",
        (
            "gpu_nodes.dgx-03.ansible_host: 10.1.0.113, and "
            "gpu_nodes.node_first_address.management makes its address 10.1.0.103; unless it "
            "moves, write the same in both"
        ),
        "others: backup-[01-02] are not part of the cluster and will be left alone",
        (
            "slurm_controllers.slurm_controller_hosts: not used, the playbooks set "
            "slurm_controller_hosts themselves"
        ),
        "slurm_controllers.slurm_controller_node_sets[1].feature: no node has the feature 'fat'",
        (
            "slurm_controllers.slurm_controller_state_save_location: missing; 2 controllers must "
            "share a folder for their state"
        ),
    )


def test_alerts_that_no_one_gets(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """One line for one place, whatever the number of hosts; what is written elsewhere counts."""
    small_files[HOSTS] += (
        "    monitoring_nodes:\n      hosts:\n        head-01:\n        login-01:\n"
    )

    def warned(text: str) -> tuple[str, ...]:
        small_files["group_vars/monitoring_nodes/monitoring.yml"] = text
        plan = planned_by_roles(small_files)
        assert plan.problems == ()
        return plan.warnings

    on = "alertmanager_enabled: true\n"
    (line,) = warned("prometheus_enabled: true\n" + on)
    assert line == (
        "monitoring_nodes.alertmanager_enabled: true, but alertmanager_receivers is empty, so that "
        "no one is notified; write [{name: team, email_configs: [{to: ops@example.org}]}] for "
        "instance, or [{name: shown}] if alerts are only looked at"
    )
    assert warned(on + "alertmanager_receivers: []\n") == (line,)
    assert warned(on + "alertmanager_receivers: [{name: shown}]\n") == ()
    assert warned("alertmanager_enabled: false\n") == ()
    (line,) = warned("prometheus_enabled: true\n")
    assert line == (
        "monitoring_nodes.prometheus_enabled: true, but no Alertmanager gets its alerts; write "
        "alertmanager_enabled: true in group_vars/monitoring_nodes, or prometheus_alertmanagers: "
        "{targets: ['HOST:9093']} for one of the site's own"
    )
    elsewhere = "prometheus_alertmanagers: {targets: ['alerts.example.org:9093']}\n"
    assert warned("prometheus_enabled: true\n" + elsewhere) == ()


def test_drains_that_no_node_takes_back(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files["group_vars/gpu_nodes/health.yml"] = "node_health_resume: true\n"
    assert planned_by_roles(small_files).warnings == ()
    small_files["group_vars/slurm_controllers/health.yml"] = (
        "slurm_controller_health_check: {program: /usr/local/bin/check}\n"
    )
    (line,) = planned_by_roles(small_files).warnings
    assert line == (
        "slurm_controllers.slurm_controller_health_check.node_state: without IDLE Slurm does not "
        "ask drained nodes, and none takes back its drain (gpu_nodes.node_health_resume: true); "
        "write [IDLE, CYCLE]"
    )


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ("ansible_user: \"{{ 'ad' ~ 'min' }}\"", "ansible_user"),
        ("ansible_user: root\nansible_ssh_user: admin", "ansible_ssh_user"),
        ("ansible_user: admin\nansible_ssh_user: root", ""),
        ("ansible_user: admin\nansible_connection: local", ""),
        ("ansible_user: admin\nnode_base_users: '{{ ansible_local.users }}'", ""),
    ],
)
def test_a_mount_over_the_home_of_the_login(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str], variables: str, name: str
) -> None:
    small_files["group_vars/all/own.yml"] = (
        "cephfs_fsid: 3f1d8a52-8c4e-4b7a-9f46-0d5f6c2b7e19\n"
        "cephfs_monitors: [10.2.0.31]\n"
        "cephfs_mounts: [{name: home, fs: cephfs, path: /home, mountpoint: /home, client: node,"
        " over: true}]\n"
    )
    small_files["group_vars/cluster/own.yml"] = f"{variables}\n"
    plan = planned_by_roles(small_files)
    assert plan.problems == ()
    found = [line for line in plan.warnings if "hides the home" in line]
    assert [line.partition(":")[0] for line in found] == ([f"cluster.{name}"] if name else [])


def test_only_ipv4_has_a_broadcast_address() -> None:
    def why(address: str, network: str) -> str | None:
        return _plan_networks._not_for_a_host(
            ipaddress.ip_address(address), ipaddress.ip_network(network)
        )

    assert why("fd00::ffff", "fd00::/112") is None
    assert why("fd00::", "fd00::/112") == "the address of the network itself"
    assert why("10.0.0.255", "10.0.0.0/24") == "the broadcast address of 10.0.0.0/24"
    assert why("10.0.0.0", "10.0.0.0/24") == "the address of the network itself"
    assert (why("10.0.0.1", "10.0.0.0/31"), why("10.0.0.0", "10.0.0.0/31")) == (None, None)
    assert why("10.0.1.1", "10.0.0.0/24") == "outside 10.0.0.0/24"
    assert why("fd00::1", "10.0.0.0/24") == "outside 10.0.0.0/24"


def edited(files: dict[str, str], place: str, old: str, new: str) -> None:
    assert old in files[place]
    files[place] = files[place].replace(old, new)


# A cluster in which much follows from its networks, profile, switches, QOS and mounts.
_ETHERNET = range(8)
_FOLLOWED = {
    CLUSTER: (
        "cluster_name: small\ncluster_domain: small.example.org\ncluster_networks:\n"
        "  management: {cidr: 10.1.0.0/24}\n  storage: {cidr: 10.2.0.0/24}\n"
        + "".join(f"  rail{rail}: {{cidr: 10.3.{rail}.0/24}}\n" for rail in _ETHERNET)
        + "cluster_fabric: {topology: basepod, leaf_switches: [leaf-01, leaf-02]}\n"
        "cluster_profiles: {mine: {inherit: dgx_h100, real_memory_mb: 1900000}}\n"
        "cluster_validation: {canary: {mounts: [{name: a, path: /site}]}}\n"
    ),
    GPU_NODES: (
        "node_profile: mine\nnode_features: [h100]\nnode_first_address:\n"
        "  management: 10.1.0.101\n  storage: 10.2.0.101\n"
        + "".join(f"  rail{rail}: 10.3.{rail}.101\n" for rail in _ETHERNET)
        + "node_health_enabled: true\n"
        "node_health_mounts: [{path: /shared}, {path: /raid/a}, {path: /site}]\n"
        "cephfs_mounts: [{name: a, fs: a, mountpoint: /shared, client: a}]\n"
        "local_storage_folders: [{path: /raid/a}]\n"
    ),
    "group_vars/all/own.yml": (
        "cephfs_fsid: 0f2ad38e-6f3c-4d3f-9d65-b7cf4a2a9a10\ncephfs_monitors: [10.2.0.31]\n"
    ),
    "group_vars/slurm_controllers/own.yml": (
        "slurm_controller_qos: [{name: high}, {name: low}]\n"
        "slurm_controller_accounts: [{name: a, qos: [high, low], default_qos: low}]\n"
    ),
}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", "", ""),
        ("cidr: 10.2.0.0/24}", "cidr: 10.2.0.0/24, gatway: 10.2.0.1}", "all.cluster_networks"),
        ("topology: basepod", "topolgy: basepod", "all.cluster_fabric.topolgy: unknown"),
        ("1900000", "much", "all.cluster_profiles.mine.real_memory_mb"),
        ("[{name: a, path: /site}]", "{name: a, path: /site}", "all.cluster_validation.canary"),
        ("node_first_address:\n", "node_first_address:\n  x: {}\n", "gpu_nodes.node_first_address"),
        ("client: a}", "client: a, moutpoint: x}", "gpu_nodes.cephfs_mounts[0].moutpoint"),
        ("[{path: /raid/a}]", "{path: /raid/a}", "gpu_nodes.local_storage_folders"),
        ("{name: high}", "{name: high, x: 1}", "slurm_controllers.slurm_controller_qos[0].x"),
    ],
)
def test_what_follows_from_one_mistake_is_not_said(
    planned_by_roles: Callable[..., Plan],
    small_files: dict[str, str],
    old: str,
    new: str,
    says: str,
) -> None:
    small_files.update(_FOLLOWED)
    edited(small_files, HOSTS, "    subnet_managers:\n      hosts:\n        head-01:\n", "")
    for name, text in small_files.items():
        small_files[name] = text.replace(old, new) if old else text
    plan = planned_by_roles(small_files)
    assert len(plan.problems) == (1 if says else 0)
    assert "".join(plan.problems).startswith(says)
    assert plan.warnings == ()


def test_a_node_whose_profile_is_wrong_has_no_wrong_place(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """Its profile may have no rails, as that of a workstation whose number is past the ports."""
    profile = "cluster_profiles: {bench: {inherit: dgx_h100, rails: []}}\n"
    small_files[CLUSTER] += profile
    edited(small_files, HOSTS, "dgx-04: {", "dgx-04: {node_number: 41, node_profile: bench, ")
    assert planned(small_files).problems == ()
    for old, new in (("rails: []", "rails: none"), ("bench: {", "bank: {"), (profile, "")):
        text = small_files[CLUSTER].replace(old, new)
        (line,) = planned({**small_files, CLUSTER: text}).problems
        assert "profile" in line
    edited(small_files, HOSTS, "node_profile: bench", "node_profile: []")
    (line,) = planned(small_files).problems
    assert line.startswith("gpu_nodes.dgx-04.node_profile: text is wanted")


def test_ports_may_be_the_sites(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """Neither a fabric nor a port by the name is then asked for."""
    edited(small_files, CLUSTER, f"cluster_fabric:\n  {BASEPOD}\n", "")
    small_files[CLUSTER] += "  ib0: {cidr: 10.3.0.0/24, kind: infiniband}\n"
    edited(small_files, GPU_NODES, "  storage:", "  ib0: 10.3.0.101\n  storage:")
    (line,) = planned_by_roles(small_files).problems
    assert line.startswith("all.cluster_fabric.topology: none, but GPU nodes have addresses on ib0")
    manual = {"group_vars/gpu_nodes/own.yml": "infiniband_network_manager: none\n"}
    plan = planned_by_roles(small_files | manual)
    assert plan.problems == ()
    # Managers alone do not stop: a pod without a fabric has the group, too.
    (line,) = plan.warnings
    assert line == (
        "all.cluster_fabric.topology: none, with which head-01 of subnet_managers manages no "
        "subnet; write basepod, superpod or leaf_spine, or leave the group empty"
    )
    small_files[CLUSTER] += "cluster_profiles: {bench: {inherit: dgx_h100, rails: []}}\n"
    edited(small_files, GPU_NODES, "dgx_h100", "bench")
    assert planned_by_roles(small_files).problems == ()
    # Of a profile that is wrong, rails are not known.
    edited(small_files, CLUSTER, "rails: []", "rails: none")
    (line,) = planned_by_roles(small_files).problems
    assert line.startswith("all.cluster_profiles.bench")


def test_storage_of_infiniband_has_a_port(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """Of each node that has an address on it."""
    edited(small_files, CLUSTER, "    mtu: 9000\n    vlan: 20\n", "    kind: infiniband\n")
    small_files[CLUSTER] += (
        "cluster_profiles:\n"
        "  bare: {inherit: dgx_h100, storage_ports: []}\n"
        '  lan: {inherit: dgx_h100, storage_ports: [{pci: "29:00.0", link_layer: ethernet}]}\n'
    )
    assert planned_by_roles(small_files).problems == ()
    edited(small_files, HOSTS, "dgx-03: {", "dgx-03: {node_profile: bare, ")
    edited(small_files, HOSTS, "dgx-04: {", "dgx-04: {node_profile: lan, ")
    (line,) = planned_by_roles(small_files).problems
    assert line == (
        "all.cluster_networks.storage.kind: infiniband, but the profile of dgx-[03-04] has no such "
        "storage port; write kind: ethernet, or the profile's storage_ports, or, where the site "
        "configures the rails, write infiniband_network_manager: none"
    )


def test_an_absent_node_needs_no_address_and_shares_none(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    edited(
        small_files,
        HOSTS,
        "        login-[01:02]:\n",
        "        login-[01:02]:\n        front: {node_state: absent}\n"
        "        old: {node_state: absent, node_address: {management: 10.1.0.21}}\n",
    )
    small_files["group_vars/login_nodes/node.yml"] = ""
    edited(
        small_files, HOSTS, "login-[01:02]:", "login-01: {node_address: {management: 10.1.0.21}}"
    )
    data = healthy(planned(small_files))
    assert by_name(data)["front"]["addresses"] == {}
    assert by_name(data)["old"]["addresses"] == {"management": "10.1.0.21"}


def test_what_is_written_but_wrong_is_not_missing(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """One mistake, one line: in an address, in the mapping of them, in the access network."""
    place = "group_vars/login_nodes/node.yml"
    small_files[place] = "node_first_address: {management: 10.1.0.x}\n"
    (line,) = planned(small_files).problems
    assert line.startswith("login_nodes.node_first_address.management: '10.1.0.x' is not")
    small_files[place] = "node_first_address: 10.1.0.21\n"
    (line,) = planned(small_files).problems
    assert line.startswith("login_nodes.node_first_address: a mapping is wanted")
    small_files[place] = "node_first_address: {storage: 10.2.0.21}\n"
    small_files[CLUSTER] += "cluster_access_network: [storage]\n"
    (line,) = planned(small_files).problems
    assert line.startswith("all.cluster_access_network: text is wanted")
    edited(small_files, CLUSTER, "cluster_access_network: [storage]", "")
    (line,) = planned(small_files).problems
    assert line.startswith("login_nodes.node_first_address.management: missing for login-[01-02]")
    small_files[CLUSTER] += "cluster_access_network: storage\n"
    assert healthy(planned(small_files))["cluster"]["access_network"] == "storage"


def test_absent_nodes_measure_nothing_and_need_no_switches(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    edited(small_files, CLUSTER, BASEPOD, f"pair_tests: {{transport: ssh}}\n  {BASEPOD}")
    for name in ("dgx-02", "dgx-03", "dgx-04"):
        edited(small_files, HOSTS, f"{name}: {{", f"{name}: {{node_state: absent, ")
    small_files[CONTROLLER] = "slurm_controller_partitions: [{name: batch, nodes: [ALL]}]\n"
    assert planned(small_files).problems == (
        (
            "all.cluster_fabric.pair_tests.transport: 1 node is in gpu_nodes, and two are "
            "needed to "
            "measure between nodes; write none"
        ),
    )
    edited(small_files, CLUSTER, "pair_tests: {transport: ssh}", "radix: 24")
    absent = "".join(f"        dgx-{number}: {{node_state: absent}}\n" for number in range(10, 19))
    edited(small_files, HOSTS, "        dgx-01: {", absent + "        dgx-01: {")
    assert planned(small_files).warnings == ()
    assert summary(healthy(planned(small_files)))["absent"] == 12


def test_users_of_each_host_are_compared(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    def twice(number: int) -> str:
        return f"[{{name: a, uid: {number}}}, {{name: b, uid: {number}}}]"

    edited(small_files, HOSTS, "dgx-03: {", f"dgx-03: {{node_base_users: {twice(3)}, ")
    edited(
        small_files,
        HOSTS,
        "dgx-04: {",
        f"dgx-04: {{node_base_users: {twice(4)}, node_state: absent, ",
    )
    edited(small_files, CONTROLLER, ", dgx-04]", "]")
    small_files["group_vars/login_nodes/users.yml"] = f"node_base_users: {twice(7)}\n"
    assert planned(small_files).problems == (
        "gpu_nodes.dgx-03.node_base_users[1].uid: '3' is also the uid of [0]; write another one",
        "login_nodes.node_base_users[1].uid: '7' is also the uid of [0]; write another one",
    )


def test_where_the_state_is_kept(
    collected: Callable[..., Inventory],
    planned: Callable[..., Plan],
    small_files: dict[str, str],
    small_collection: Path,
) -> None:
    roles = load_roles(str(small_collection))
    nowhere = dataclasses.replace(collected(small_files), directory=None)
    assert make_plan(nowhere, roles).state_dir is None
    somewhere = dataclasses.replace(nowhere, directory="/srv/inventory")
    assert make_plan(somewhere, roles).state_dir == "/srv/inventory/.dgx"
    small_files[CLUSTER] += "cluster_state_dir: /var/lib/state\n"
    assert planned(small_files).state_dir == "/var/lib/state"


def test_a_cluster_without_networks_is_not_asked_for_addresses(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    text = small_files[CLUSTER]
    start, end = text.index("cluster_networks:"), text.index("cluster_fabric:")
    small_files[CLUSTER] = text[:start] + text[end:]
    small_files["group_vars/login_nodes/node.yml"] = ""
    (line,) = planned(small_files).problems
    assert line.startswith("all.cluster_networks: missing;")


def test_names_of_hosts_on_an_infiniband_network_that_ssh_uses() -> None:
    def node(name: str, **more: Any) -> dict[str, Any]:
        addresses = {"ib": f"10.0.0.{name[-1]}", "mgmt": f"10.1.0.{name[-1]}"}
        return {"name": name, "state": "present", "addresses": addresses, **more}

    nodes = [
        node("a-1"),
        node("a-2", addresses={"ib": "10.0.0.2"}),
        node("a-3", addresses={}),
        node("a-4", state="absent"),
        node("a-5"),
    ]
    networks = {"ib": "infiniband", "rail0": "infiniband", "mgmt": "ethernet", "none": "ethernet"}
    cluster = {
        "domain": None,
        "access_network": "ib",
        "networks": {name: {"kind": kind} for name, kind in networks.items()},
    }
    text = hosts_text({"cluster": cluster, "nodes": nodes})
    assert text.split("\n\n")[1:] == [
        "# ib\n10.0.0.1 a-1\n10.0.0.2 a-2\n10.0.0.5 a-5",
        "# mgmt\n10.1.0.1 a-1-mgmt\n10.1.0.5 a-5-mgmt\n",
    ]


def test_report_of_a_superpod(planned: Callable[..., Plan], small_files: dict[str, str]) -> None:
    superpod(small_files, 8, 4)
    small_files[HOSTS] = re.sub(r" \{node_rack: .*\}", "", small_files[HOSTS])
    edited(small_files, HOSTS, "dgx-04:", "dgx-04: {node_state: absent}")
    edited(small_files, CONTROLLER, ", dgx-04]", "]")
    lines = report(healthy(planned(small_files)))
    assert lines[0] == "cluster small: 6 nodes, 24 GPUs, 1 declared absent"
    assert lines[1] == "gpu_nodes: 3 (dgx_h100): dgx-[01-03]"
    assert lines[-1] == "fabric superpod: 8 leaf and 4 spine switches, 8 rails"
    edited(small_files, CLUSTER, "topology: superpod", "topology: none")
    small_files[CLUSTER] = re.sub(r"  (leaf|spine)_switches:.*\n?", "", small_files[CLUSTER])
    assert report(healthy(planned(small_files)))[-1] == "network storage: 10.2.0.0/24"


def test_texts_of_the_plan_keep_their_letters(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    edited(small_files, HOSTS, "dgx-03: {", "dgx-03: {node_serial: Zürich-3, ")
    plan = planned(small_files)
    assert '"serial": "Zürich-3"' in node_texts(healthy(plan))["dgx-03"]
    assert '"serial": "Zürich-3"' in plan.plan_text()


def test_each_node_has_an_address_on_the_network_that_is_written(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[CLUSTER] += "cluster_access_network: storage\n"
    (line,) = planned(small_files).problems
    assert line.startswith("login_nodes.node_first_address.storage: missing for login-[01-02]")
    place = "group_vars/login_nodes/node.yml"
    small_files[place] = "node_first_address: {storage: 10.2.0.21}\n"
    small_files["host_vars/dgx-03.yml"] = "ansible_host: 10.2.0.113\n"
    (warning,) = planned(small_files).warnings
    assert warning.startswith("gpu_nodes.dgx-03.ansible_host: 10.2.0.113, and")


@pytest.mark.parametrize(
    ("third", "second", "refused"),
    [
        ("ansible_host: fd00:0::1", "ansible_host: fd00::1", True),
        ("ansible_host: 127.0.0.1\nansible_port: 22", "ansible_host: 127.0.0.1", False),
        ("ansible_host: 10.9.0.1\nansible_user: gpu", "ansible_host: 10.9.0.1", False),
        (
            "ansible_host: 10.9.0.1\nansible_ssh_common_args: -J rack2",
            "ansible_host: 10.9.0.1\nansible_ssh_common_args: -J rack1",
            False,
        ),
        (
            "ansible_host: 10.9.0.1\nansible_ssh_private_key_file: /keys/3",
            "ansible_host: 10.9.0.1\nansible_ssh_private_key_file: /keys/2",
            False,
        ),
        ("ansible_host: dgx-02\nansible_connection: local", "", False),
        ("ansible_host: '{{ not_there }}'", "ansible_host: '{{ not_there }}'", False),
        ("ansible_host: dgx-02\nnode_state: absent", "", False),
        # It has its line already.
        (
            "ansible_host: 10.1.0.113\nnode_address: {management: 10.1.0.113}",
            "ansible_host: 10.1.0.113\nnode_address: {management: 10.1.0.113}",
            False,
        ),
    ],
    ids=["one", "port", "login", "proxy", "key", "local", "not known", "absent", "in the plan"],
)
def test_one_address_of_ssh_is_that_of_one_host(
    third: str,
    second: str,
    refused: bool,
    planned: Callable[..., Plan],
    small_files: dict[str, str],
) -> None:
    """Else the roles of both would change one machine, and none the other."""
    small_files["host_vars/dgx-03.yml"] = third + "\n"
    small_files["host_vars/dgx-02.yml"] = second + "\n"
    says = "is also where SSH finds gpu_nodes.dgx-02"
    assert any(says in line for line in planned(small_files).problems) is refused


def test_a_directory_may_have_users_that_no_node_declares(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[CONTROLLER] += "slurm_controller_accounts: [{name: a, users: [zoe]}]\n"
    assert planned(small_files).problems == ()
    users = "group_vars/all/users.yml"
    small_files[users] = "node_base_users: [{name: alice}]\n"
    (line,) = planned(small_files).problems
    assert "no user of node_base_users is called 'zoe'" in line
    small_files[CLUSTER] += "cluster_user_directory: true\n"
    assert planned(small_files).problems == ()


def test_users_of_the_directory_that_the_controller_knows(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[CONTROLLER] += "slurm_controller_accounts: [{name: a, users: [zoe]}]\n"
    small_files["group_vars/all/users.yml"] = (
        "node_base_users: [{name: alice, uid: 2001}]\nidentity_domain: example.org\n"
        'identity_uris: ["ldaps://ldap-1.example.org"]\n'
        "identity_search_base: dc=example,dc=org\n"
    )
    assert planned_by_roles(small_files).problems == ()


def test_a_mount_that_only_node_health_names_is_a_warning(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files["group_vars/all/own.yml"] = (
        "node_health_enabled: true\nnode_health_mounts: [{path: /home}, {path: /nfs}]\n"
        "cluster_validation: {canary: {mounts: [{name: nfs, path: /nfs}]}}\n"
    )
    (warning,) = planned_by_roles(small_files).warnings
    assert warning.startswith("all.node_health_mounts[0].path: nothing of the inventory mounts")


@pytest.mark.parametrize("mounts", ['"{{ ansible_facts.x }}"', '["{{ ansible_facts.x }}"]'])
def test_mounts_that_are_not_known_hide_nothing_and_accuse_nothing(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str], mounts: str
) -> None:
    """What lies on them is judged by the host, or refused with their path where it is needed."""
    small_files["hosts.yml"] = small_files["hosts.yml"].replace(
        "      hosts:\n        head-01:\n    slurm_databases", "      hosts:\n        head-01:\n"
        "        head-02:\n    storage_nodes: {hosts: {head-01: }}\n    slurm_databases",
    )  # fmt: skip
    small_files["group_vars/all/own.yml"] = (
        f"cephfs_mounts: {mounts}\nslurm_controller_state_save_location: /shared/slurm\n"
        "cephfs_home_quotas: [{fs: cephfs, path: /home, group: hpc}]\ncephfs_admin: true\n"
    )
    assert planned_by_roles(small_files).problems == ()
    small_files["group_vars/all/own.yml"] += "node_base_users: [{name: a, uid: 1}, {name: a}]\n"
    (line,) = planned_by_roles(small_files).problems
    assert line.startswith("all.node_base_users[1].name: 'a' is also the name of")


def test_rails_of_ethernet_need_no_address_where_the_site_writes_them(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    cluster = small_files["group_vars/all/cluster.yml"]
    rail = "cluster_networks:\n  rail0: {cidr: 10.3.0.0/24}"
    small_files["group_vars/all/cluster.yml"] = cluster.replace("cluster_networks:", rail)
    assert len(planned_by_roles(small_files).problems) == 2
    small_files["group_vars/gpu_nodes/own.yml"] = "infiniband_network_manager: none\n"
    assert planned_by_roles(small_files).problems == ()
