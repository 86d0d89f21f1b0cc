# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the examples to Slurm's files and the cable plan, with numbers that are counted by hand."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from role_rules import read_yaml
from wiring import ROOT, Wiring, example, write

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.render import render
from ansible_collections.baremetal.dgx.plugins.modules.slurm_config import ARGUMENT_SPEC
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import cable_counts
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cabling_files import find_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.slurm_values import SETTINGS


@dataclass(frozen=True)
class Example:
    """What a person counts in the README of an example."""

    name: str
    nodes: str
    partitions: tuple[str, ...]
    cables: dict[str, int]
    switches: int


EXAMPLES = (
    Example("minimal", "dgx-[01-04]", ("batch",), {"node-leaf": 32, "leaf-leaf": 16}, 0),
    Example("core_12", "dgx-[01-12]", ("batch", "debug"), {"node-leaf": 96, "leaf-leaf": 15}, 0),
    Example(
        "superpod_127",
        "dgx-[001-127]",
        ("batch", "large", "debug"),
        {"node-leaf": 1016, "leaf-spine": 1024},
        5,
    ),
)


# Inputs of slurm_config that role slurm_controller does not pass, and why.
NOT_PASSED = {
    "spool_dir": "slurm_base makes the folders, and the units and rotation of packages name them",
    "log_dir": "as spool_dir",
    "return_to_service": "slurm_controller_options takes each key of slurm.conf",
    "extra_lines": "as return_to_service",
}
# What the plan makes, and the folder of the files.
GIVEN_BY_PLAN = ("cluster_name", "controllers", "databases", "nodes", "topology", "dest")


def test_the_role_passes_what_slurm_config_takes() -> None:
    tasks = read_yaml(ROOT / "roles/slurm_controller/tasks/configure.yml")
    (passed,) = [
        task["baremetal.dgx.slurm_config"] for task in tasks if "baremetal.dgx.slurm_config" in task
    ]
    assert set(ARGUMENT_SPEC) - set(passed) == set(NOT_PASSED)
    specs = read_yaml(ROOT / "roles/slurm_controller/meta/argument_specs.yml")
    options = specs["argument_specs"]["main"]["options"]
    for name, text in passed.items():
        found = re.findall(r"\bslurm_controller_[a-z_]+", text)
        assert set(found) <= set(options), name
        # What the inventory may say of it is judged before any host is touched.
        if name not in GIVEN_BY_PLAN and found:
            assert set(found) & set(SETTINGS.values()), f"{name}: check_inventory does not ask it"


def slurm_files(wired: Wiring) -> dict[str, str]:
    """Slurm's files as the role would render them on the primary."""
    values = wired.of("head-01")
    known = wired._manager.get_vars(host=wired._inventory.get_host("head-01"))
    defaults = read_yaml(ROOT / "roles/slurm_controller/defaults/main.yml")
    given: dict[str, Any] = {"version": known["slurm_base_version"]}
    given["auth"] = known.get("slurm_base_auth", "munge")
    names = {"controllers": "hosts"}
    for setting in ARGUMENT_SPEC:
        name = "slurm_controller_" + names.get(setting, setting)
        for scope in (values, known, defaults):
            if name in scope:
                given[setting] = scope[name]
                break
    return render(given)


@pytest.mark.parametrize("resume", [True, False])
def test_drained_nodes_are_asked_where_they_take_back_their_drain(
    tmp_path: Path, resume: bool
) -> None:
    """From Slurm 23.02 on, NONDRAINED_IDLE is the default of the role."""
    inventory = example(tmp_path, "core_12")
    write(inventory, "group_vars/gpu_nodes/resume.yml", {"node_health_resume": resume})
    conf = slurm_files(Wiring(inventory))["slurm.conf"]
    state = "IDLE" if resume else "NONDRAINED_IDLE"
    assert f"\nHealthCheckNodeState={state},CYCLE\n" in conf


@pytest.mark.parametrize("wanted", EXAMPLES, ids=lambda one: one.name)
def test_the_files_of_an_example(wanted: Example, tmp_path: Path) -> None:
    wired = Wiring(example(tmp_path, wanted.name))
    files = slurm_files(wired)
    conf = files["slurm.conf"].splitlines()
    nodes = [line for line in conf if line.startswith("NodeName=")]
    assert len(nodes) == 1
    assert nodes[0].startswith(f"NodeName={wanted.nodes} ")
    assert "Gres=gpu:h100:8" in nodes[0]
    partitions = [line.split()[0] for line in conf if line.startswith("PartitionName=")]
    assert partitions == [f"PartitionName={name}" for name in wanted.partitions]
    # One for each GPU of a node: its links name the other seven.
    gres = [line for line in files["gres.conf"].splitlines() if line.startswith("NodeName=")]
    assert len(gres) == 8
    assert gres[0] == (
        f"NodeName={wanted.nodes} Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-55 "
        "Links=-1,18,18,18,18,18,18,18"
    )
    assert files.get("topology.conf", "").count("SwitchName=") == wanted.switches
    cables = find_cables(wired.plan, None).plan
    assert cables is not None
    counts = cable_counts(cables)
    assert {kind: counts[kind] for kind in wanted.cables} == wanted.cables


def test_what_jobs_and_nodes_get_comes_from_the_inventory(tmp_path: Path) -> None:
    inventory = example(tmp_path, "superpod_127")
    write(inventory, "group_vars/slurm_controllers/values.yml", {
        "slurm_base_version": "25.11",
        "slurm_controller_topology_plugin": "block",
        "slurm_controller_topology_format": "yaml",
        "slurm_controller_block_sizes": [16, 32],
        "slurm_controller_mpi_default": "pmix",
        "slurm_controller_resume_timeout_s": 1200,
        "slurm_controller_reboot_program": "/usr/sbin/reboot",
        "slurm_controller_accounting_enforce": ["associations", "limits"],
        "slurm_controller_default_cpus_per_gpu": 12,
        "slurm_controller_default_mem_per_gpu_mb": 128000,
        "slurm_controller_default_mem_per_cpu_mb": 4000,
    })  # fmt: skip
    files = slurm_files(Wiring(inventory))
    assert {
        "MpiDefault=pmix", "ResumeTimeout=1200",
        "RebootProgram=/usr/sbin/reboot", "AccountingStorageEnforce=associations,limits",
        "DefCpuPerGPU=12", "DefMemPerGPU=128000", "DefMemPerCPU=4000",
        "TopologyPlugin=topology/block",
    } <= set(files["slurm.conf"].splitlines())  # fmt: skip
    assert "topology.conf" not in files
    assert "    block_sizes:\n    - 16\n    - 32\n    blocks:\n" in files["topology.yaml"]


def test_the_files_of_the_mixed_cluster(tmp_path: Path) -> None:
    """Six nodes with eight rails, two without any, two without GPUs."""
    wired = Wiring(example(tmp_path, "mixed"))
    files = slurm_files(wired)
    conf = files["slurm.conf"].splitlines()
    nodes = {line.split()[0]: line for line in conf if line.startswith("NodeName=")}
    gres = {
        "dgx-[01-04]": "h100:8",
        "old-[01-02]": "a100:7,gpu:1g.10gb:7",
        "debug-[01-02]": "a6000:4",
    }
    assert set(nodes) == {f"NodeName={name}" for name in (*gres, "cpu-[01-02]")}
    for name, expected in gres.items():
        assert f"Gres=gpu:{expected} " in nodes[f"NodeName={name}"]
    assert "Gres=" not in nodes["NodeName=cpu-[01-02]"]
    partitions = [line.split()[0] for line in conf if line.startswith("PartitionName=")]
    assert partitions == [f"PartitionName={name}" for name in ("batch", "a100", "debug", "cpu")]
    lines = [line for line in files["gres.conf"].splitlines() if line.startswith("NodeName=")]
    # Undivided A100: seven in two lines, since cores alone differ. A workstation's have the same.
    assert len(lines) == 8 + (2 + 7) + 1
    link = "/dev/baremetal-dgx/mig/gpu7-1g.10gb-6"
    assert (
        f"NodeName=old-[01-02] Name=gpu Type=1g.10gb "
        f"MultipleFiles=/dev/nvidia7,{link}-gi,{link}-ci Cores=64-127"
    ) in lines
    cables = find_cables(wired.plan, None).plan
    assert cables is not None
    assert cable_counts(cables) == {"node-leaf": 48, "leaf-leaf": 24}
    assert not [cable for cable in cables.cables if cable.a.host.startswith("debug")]
    debug, old = wired.of("debug-01"), wired.of("old-01")
    assert "infiniband" not in debug["__cluster_roles"]
    assert {"nvidia_driver", "dcgm", "slurm_compute"} <= set(debug["__cluster_roles"])
    assert debug["__validation_nothing"]["ib_health"] == "no rails are declared"
    assert debug["__gate_without_rails"] == ["debug-01", "debug-02"]
    assert [rail["rate_gbps"] for rail in old["infiniband_rails"]] == [200] * 8
    assert list(old["node_health_profile"]["gpus"]["mig"]) == ["7"]
    assert "mig" not in wired.of("dgx-01")["node_health_profile"]["gpus"]
    assert old["__validation_nothing"]["burn"] == old["__validation_nothing"]["nccl"] != ""
    assert wired.of("dgx-01")["__validation_nothing"]["burn"] == ""


def test_shells_name_no_rails_where_there_are_none(tmp_path: Path) -> None:
    root = example(tmp_path, "mixed")
    hosts = root / "hosts.yml"
    kept, _debug, rest = hosts.read_text().partition("        # Workstations")
    shutil.rmtree(root / "group_vars/debug_nodes")
    hosts.write_text(kept + rest[rest.index("    cpu_nodes:") :])
    controller = root / "group_vars/slurm_controllers/slurm_controller.yml"
    lines = controller.read_text().splitlines(keepends=True)
    controller.write_text("".join(line for line in lines if "debug" not in line))
    wired = Wiring(root)
    name = "login_environment_environment"
    assert wired.of("dgx-01")[name]["NCCL_IB_HCA"].startswith("=mlx5_rail0:1,")
    # A job that went to cpu-01 would inherit it, and UCX finds no such device there.
    assert "UCX_NET_DEVICES" not in wired.of("dgx-01")[name]
    assert wired.of("head-01")[name] == wired.of("dgx-01")[name], "what jobs inherit"
    assert wired.of("cpu-01")[name] == {}
    gone = "        cpu-[01:02]: {node_state: absent}"
    hosts.write_text(hosts.read_text().replace("        cpu-[01:02]:", gone))
    lines = controller.read_text().splitlines(keepends=True)
    controller.write_text("".join(line for line in lines if "cpu-" not in line))
    devices = Wiring(root).of("head-01")[name]["UCX_NET_DEVICES"]
    assert devices.startswith("mlx5_rail0:1,")


def test_the_files_of_the_ethernet_cluster(tmp_path: Path) -> None:
    wired = Wiring(example(tmp_path, "roce_16"))
    conf = slurm_files(wired)["slurm.conf"].splitlines()
    (line,) = [line for line in conf if line.startswith("NodeName=")]
    assert line.startswith("NodeName=hgx-[01-16] ")
    assert "CPUs=192" in line
    assert "Gres=gpu:h100:8" in line
    cables = find_cables(wired.plan, None).plan
    assert cables is not None
    assert cable_counts(cables) == {"node-leaf": 128, "leaf-leaf": 64}
    ends = {cable.a: cable.b for cable in cables.cables if cable.a.host == "hgx-16"}
    # Four rails of each node are on a switch: the last node's are its ports 61 to 64.
    assert sorted((end.host, end.port) for end in ends.values()) == [
        (leaf, port) for leaf in ("leaf-01", "leaf-02") for port in range(61, 65)
    ]
    node = wired.of("hgx-16")
    assert node["infiniband_link_layer"] == "Ethernet"
    assert {"infiniband", "roce"} <= set(node["__cluster_roles"])
    assert node["infiniband_addresses"][7] == {
        "port": "rail7", "address": "10.5.23.116/24", "mtu": 9000,
    }  # fmt: skip
    assert node["__fabric"]["ports_per_cage"] == 2


def test_the_subnet_of_the_superpod_is_left_to_ufm(tmp_path: Path) -> None:
    wired = Wiring(example(tmp_path, "superpod_127"))
    assert wired.of("dgx-001")["fabric_exporter_subnet_manager_provider"] == "ufm"
    hosts = [host for host in wired.texts if "subnet_manager" in wired.of(host)["__cluster_roles"]]
    assert hosts == []
