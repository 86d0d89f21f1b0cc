# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three sites of administrators, from inventory to Slurm's files and cables, counted by hand.

Each is an example with what differs: debug machines of another kind, one scalable unit under UFM
without access to the outside, and Ethernet rails with older nodes beside them.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import yaml
from role_rules import read_yaml
from test_example_files import slurm_files
from wiring import Wiring, example, write

from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import cable_counts
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cabling_files import find_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.report import summary


class Site:
    """An example whose files are edited, and what comes of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.root = example(folder, name)

    def hosts(self, group: str, hosts: dict[str, Any], *, anew: bool = False) -> None:
        """Add hosts to a group, or give it others."""
        path = self.root / "hosts.yml"
        data = yaml.safe_load(path.read_text())
        entry = data["cluster"]["children"].setdefault(group, {"hosts": {}})
        entry["hosts"] = hosts if anew else {**entry["hosts"], **hosts}
        path.write_text(yaml.safe_dump(data, sort_keys=False))

    def change(self, name: str, *changes: tuple[str, str]) -> None:
        """Replace texts of a file."""
        path = self.root / name
        text = path.read_text()
        for before, after in changes:
            assert before in text, before
            text = text.replace(before, after)
        path.write_text(text)

    def make(self) -> None:
        """Make plan and files."""
        self.wired = Wiring(self.root)
        assert not self.wired.problems
        files = slurm_files(self.wired)
        self.conf = files["slurm.conf"]
        self.nodes = dict(
            line[len("NodeName=") :].split(" ", 1)
            for line in self.conf.splitlines()
            if line.startswith("NodeName=")
        )
        self.partitions = dict(re.findall(r"^PartitionName=(\S+) Nodes=(\S+)", self.conf, re.M))
        lines = files["gres.conf"].splitlines()
        self.gres = [line for line in lines if line.startswith("NodeName=")]
        self.topology = files.get("topology.conf", "")
        cables = find_cables(self.wired.plan, None).plan
        assert cables is not None
        self.cables = {kind: count for kind, count in cable_counts(cables).items() if count}
        self.ends = [(cable.a, cable.b) for cable in cables.cables]

    @property
    def gpus(self) -> int:
        """All GPUs of the plan."""
        return int(summary(self.wired.plan)["gpus"])


WORKSTATION = {
    "cpu": {"sockets": 1, "cores_per_socket": 32, "threads_per_core": 2, "numa_nodes": 1},
    "real_memory_mb": 250000,
    "gpus": {"count": 4, "type": "a6000", "memory_mib": 49140},
    "rails": [],
}


def test_a_core_cluster_with_debug_nodes_of_another_kind(tmp_path: Path) -> None:
    """Twelve DGX H100 on two QM9700, two workstations on the management network alone."""
    site = Site(tmp_path, "core_12")
    health = {"ecc": False, "thresholds": {"gpu.clock_sm": 2100}}
    others = {
        "node_profile": "workstation", "node_features": ["a6000"], "node_health_gpu": health,
        "node_slurm_weight": 5,
    }  # fmt: skip
    nccl = {"busbw_thresholds_by_type": {"a6000": 10}}
    write(site.root, "group_vars/all/validation.yml", {"cluster_validation": {"nccl": nccl}})
    site.hosts("gpu_nodes", {f"debug-0{n}": {**others, "node_number": 20 + n} for n in (1, 2)})
    write(
        site.root, "group_vars/all/profiles.yml", {"cluster_profiles": {"workstation": WORKSTATION}}
    )
    site.change(
        "group_vars/slurm_controllers/slurm_controller.yml",
        ("  - name: batch\n    nodes: [ALL]\n", "  - name: batch\n    nodes: ['dgx-[01-12]']\n"),
        ("  - name: debug\n    nodes: [ALL]\n", "  - name: debug\n    nodes: ['debug-[01-02]']\n"),
    )
    site.make()
    assert set(site.nodes) == {"dgx-[01-12]", "debug-[01-02]"}
    assert "Gres=gpu:h100:8 " in site.nodes["dgx-[01-12]"]
    assert "Gres=gpu:a6000:4 Features=a6000 Weight=5 " in site.nodes["debug-[01-02]"]
    assert "Weight=" not in site.nodes["dgx-[01-12]"]
    assert site.partitions == {"batch": "dgx-[01-12]", "debug": "debug-[01-02]"}
    assert site.gpus == 12 * 8 + 2 * 4
    # One line for each H100, whose links name the others; four A6000 are alike.
    assert len(site.gres) == 8 + 1
    assert site.gres[0] == "NodeName=debug-[01-02] Name=gpu Type=a6000 File=/dev/nvidia[0-3]"
    # 48 ports of each switch are the nodes', one is a controller's.
    assert site.cables == {"node-leaf": 96, "leaf-leaf": 15}
    debug = site.wired.of("debug-01")
    levels = debug["__validation_levels"]["quick"]
    assert levels["nccl"]["busbw_threshold_gbps"] == 10
    assert (levels["ecc"], levels["health_thresholds"]) == (False, {"gpu.clock_sm": 2100})
    other = site.wired.of("dgx-01")["__validation_levels"]["quick"]
    assert "busbw_threshold_gbps" not in other["nccl"]
    assert (other["ecc"], other["health_thresholds"]) == (True, {})
    assert {"nvidia_driver", "dcgm", "slurm_compute"} <= set(debug["__cluster_roles"])
    assert "infiniband" not in debug["__cluster_roles"]
    assert debug["__gate_without_rails"] == ["debug-01", "debug-02"]


def test_a_unit_under_ufm_without_access_to_the_outside(tmp_path: Path) -> None:
    """31 DGX H200 in one scalable unit; two controllers, a directory, mirrors of everything."""
    site = Site(tmp_path, "superpod_127")
    site.hosts("gpu_nodes", {"dgx-[001:031]": None}, anew=True)
    path = site.root / "group_vars/all/cluster.yml"
    cluster = yaml.safe_load(path.read_text())
    cluster["cluster_user_directory"] = True
    cluster["cluster_fabric"] |= {
        "ufm_unit": 1,
        "leaf_switches": [f"leaf-{n}" for n in range(8)],
        "spine_switches": [f"spine-{n}" for n in range(4)],
    }
    path.write_text(yaml.safe_dump(cluster))
    site.change("group_vars/gpu_nodes/node.yml", ("dgx_h100", "dgx_h200"), ("[h100,", "[h200,"))
    site.change(
        "group_vars/slurm_controllers/slurm_controller.yml",
        ("dgx-[125-127]", "dgx-[029-031]"),
        ("dgx-[001-124]", "dgx-[001-028]"),
    )
    mirror = {
        "name": "ubuntu", "uris": ["https://mirror.example.org/ubuntu"], "suites": ["noble"],
        "components": ["main"], "signed_by": "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
    }  # fmt: skip
    own = {"node_base_distribution_sources": False, "node_base_repositories": [mirror]}
    write(site.root, "group_vars/cluster/node_base.yml", own)
    site.make()
    assert set(site.nodes) == {"dgx-[001-031]"}
    assert "Gres=gpu:h200:8 " in site.nodes["dgx-[001-031]"]
    assert "Features=h200,ndr " in site.nodes["dgx-[001-031]"]
    assert site.gpus == 248
    assert len(site.gres) == 8
    assert site.partitions == {
        "batch": "dgx-[001-028]", "large": "dgx-[001-028]", "debug": "test",
    }  # fmt: skip
    # The 32 uplinks of each of eight leaves go to four spines, eight to each.
    assert site.cables["node-leaf"] == 248
    assert site.cables["leaf-spine"] == 256
    switches = [line for line in site.topology.splitlines() if line.startswith("SwitchName=")]
    assert switches == ["SwitchName=su1 Nodes=dgx-[001-031]", "SwitchName=core Switches=su1"]
    assert len(re.findall(r"^SlurmctldHost=head-0[12]\b", site.conf, re.M)) == 2
    # No host has opensm, and one node looks at the fabric.
    for host in site.wired.texts:
        assert "subnet_manager" not in site.wired.of(host)["__cluster_roles"]
    assert site.wired.of("dgx-001")["fabric_exporter_enabled"] is True
    assert site.wired.of("dgx-002")["fabric_exporter_enabled"] is False


def test_ethernet_rails_with_older_nodes_beside_them(tmp_path: Path) -> None:
    """Sixteen HGX H100 on two SN5600, four A100 nodes with four rails, two login hosts."""
    site = Site(tmp_path, "roce_16")
    site.hosts("login_nodes", {"login-[01:02]": None}, anew=True)
    older = {"node_profile": "own_a100", "node_features": ["a100"]}
    site.hosts("gpu_nodes", {f"old-0{n}": {**older, "node_number": 16 + n} for n in range(1, 5)})
    path = site.root / "group_vars/all/profiles.yml"
    profiles = read_yaml(path)
    profiles["cluster_profiles"]["own_a100"] = {
        "cpu": {"sockets": 2, "cores_per_socket": 64, "threads_per_core": 2, "numa_nodes": 2},
        "real_memory_mb": 1000000,
        "gpus": {
            "count": 8, "type": "a100", "memory_mib": 81920,
            "cores": ["0-63"] * 4 + ["64-127"] * 4,
        },
        "link_rate_gbps": 200,
        "rails": [{"rail": n, "hca_pci": f"{0x40 + n:02x}:00.0"} for n in range(4)],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(profiles))
    write(
        site.root,
        "group_vars/login_nodes/node.yml",
        {"node_first_address": {"management": "10.5.0.21"}},
    )
    write(
        site.root,
        "group_vars/slurm_controllers/partitions.yml",
        {
            "slurm_controller_partitions": [
                {"name": "batch", "nodes": ["hgx-[01-16]"], "default": True},
                {"name": "a100", "nodes": ["old-[01-04]"]},
            ]
        },
    )
    site.make()
    assert set(site.nodes) == {"hgx-[01-16]", "old-[01-04]"}
    assert "Gres=gpu:h100:8 " in site.nodes["hgx-[01-16]"]
    assert "Gres=gpu:a100:8 " in site.nodes["old-[01-04]"]
    assert site.partitions == {"batch": "hgx-[01-16]", "a100": "old-[01-04]"}
    assert site.gpus == 160
    # The A100 have no NVLink in this profile, so that a line has those of a socket.
    assert len(site.gres) == 8 + 2
    # Four rails are on one switch: 16 x 4 and 4 x 4 of its ports are nodes', 48 are left.
    assert site.cables == {"node-leaf": 16 * 8 + 4 * 4, "leaf-leaf": 48}
    old = sorted((b.host, b.port) for a, b in site.ends if a.host == "old-04")
    assert old == [("leaf-01", port) for port in range(77, 81)]
    node = site.wired.of("old-01")
    assert node["roce_rails"] == [0, 1, 2, 3]
    assert [rail["rate_gbps"] for rail in node["infiniband_rails"]] == [200] * 4
    assert {"infiniband", "roce"} <= set(node["__cluster_roles"])
    assert site.wired.of("login-01")["__cluster_roles"]


def test_a_cluster_of_processors_alone(tmp_path: Path) -> None:
    """A head and two servers, without any GPU."""
    site = Site(tmp_path, "mixed")
    path = site.root / "hosts.yml"
    data = yaml.safe_load(path.read_text())
    for group in ("gpu_nodes", "subnet_managers"):
        del data["cluster"]["children"][group]
    path.write_text(yaml.safe_dump(data))
    for group in ("gpu_nodes", "dgx_a100", "debug_nodes"):
        shutil.rmtree(site.root / "group_vars" / group)
    cluster = site.root / "group_vars/all/cluster.yml"
    known = yaml.safe_load(cluster.read_text())
    known["cluster_fabric"] = {"topology": "none"}
    cluster.write_text(yaml.safe_dump(known))
    partitions = {"slurm_controller_partitions": [{"name": "cpu", "nodes": ["ALL"]}]}
    write(site.root, "group_vars/slurm_controllers/slurm_controller.yml", partitions)
    site.make()
    assert set(site.nodes) == {"cpu-[01-02]"}
    assert (site.gpus, site.gres, site.cables) == (0, [], {})
    assert "GresTypes" not in site.conf
    assert "slurm_compute" in site.wired.of("cpu-01")["__cluster_roles"]
