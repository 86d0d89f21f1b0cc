# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from slurm_clusters import CASES, FOLDER, POD, cpu_node, dgx_a100, dgx_h100, names

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.render import (
    FILES,
    MARKER,
    VERSIONS,
    check,
    remarks,
    render,
    restart_key,
)


def cluster(**other: Any) -> dict[str, Any]:
    """Two DGX and their controller."""
    return {
        "version": "24.11",
        "cluster_name": "core",
        "controllers": ["head-01"],
        "databases": ["head-01"],
        "nodes": [dgx_h100(name) for name in names(2)],
        "partitions": [{"name": "batch", "nodes": ["ALL"], "default": True}],
        **other,
    }


def slurm_conf(**other: Any) -> str:
    values = cluster(**other)
    assert check(values) == []
    return render(values)["slurm.conf"]


def value(text: str, key: str) -> str | None:
    """The value of a key that is there at most once."""
    found = re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)
    assert len(found) < 2
    return found[0] if found else None


@pytest.mark.parametrize("name", CASES)
def test_every_line_of_the_files(name: str) -> None:
    assert check(CASES[name]) == []
    files = render(CASES[name])
    expected = {path.name: path.read_text("utf-8") for path in (FOLDER / name).iterdir()}
    assert files == expected


def test_nodes_that_are_alike_may_be_one_entry() -> None:
    apart = [*(dgx_h100(name) for name in names(12)), dgx_a100("dgx-13"), cpu_node("cpu-01")]
    together = [dgx_h100("dgx-[01-07,09-12]"), dgx_h100("dgx-08"), *apart[-2:]]
    partitions = [
        {"name": "batch", "nodes": ["ALL"], "default": True},
        {"name": "debug", "nodes": ["dgx-[08,13]"]},
    ]
    given = [cluster(nodes=nodes, partitions=partitions) for nodes in (apart, together)]
    assert [check(values) for values in given] == [[], []]
    assert render(given[0]) == render(given[1])
    assert remarks(given[0]) == remarks(given[1])


def test_the_cases_are_those_of_the_folders() -> None:
    assert {path.name for path in FOLDER.iterdir() if (path / "slurm.conf").exists()} == set(CASES)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_file_is_marked_and_ends_with_a_line(version: str) -> None:
    for name, text in render(cluster(version=version)).items():
        assert name in FILES
        assert text.startswith(MARKER + "\n")
        assert text.endswith("\n")
        assert not re.search(r"[ \t]$", text, re.MULTILINE)


def test_what_is_given_in_another_order_is_rendered_alike() -> None:
    nodes = [*map(dgx_h100, names(3)), *map(dgx_a100, ("old-01", "old-02")), cpu_node("cpu-01")]
    partition = {"name": "p", "nodes": ["dgx-03", "dgx-01", "cpu-01"], "default": True}
    turned = {"name": "p", "nodes": ["cpu-01", "dgx-[01,03]"], "default": True}
    one = render(cluster(nodes=nodes, partitions=[partition]))
    other = render(cluster(nodes=nodes[::-1], partitions=[turned]))
    assert one == other


def test_a_thousand_nodes_are_rendered_in_a_second_and_stay_short(
    slowness: Callable[[], float],
) -> None:
    nodes = names(1024, 4)
    units = [nodes[first : first + 32] for first in range(0, 1024, 32)]
    switches: list[dict[str, Any]] = [
        {"switch": f"su{index}", "nodes": unit} for index, unit in enumerate(units, 1)
    ]
    top = {"switch": "core", "switches": [switch["switch"] for switch in switches]}
    values = cluster(
        nodes=[dgx_h100(name) for name in nodes],
        topology=[*switches, top],
        partitions=[
            {"name": "batch", "nodes": ["ALL"], "default": True},
            {"name": "half", "nodes": ["dgx-[0001-0512]"]},
        ],
    )
    started = time.process_time()
    assert check(values) == []
    files = render(values)
    taken = time.process_time() - started
    assert taken < slowness()
    assert sum(map(len, files.values())) < 6000
    assert "NodeName=dgx-[0001-1024] " in files["slurm.conf"]
    assert "SwitchName=su32 Nodes=dgx-[0993-1024]\n" in files["topology.conf"]


# ------------------------------------------------------------------------------- what a site says


def test_options_win_in_their_place() -> None:
    text = slurm_conf(options={"slurmdtimeout": 600, "MaxArraySize": 10001, "KillOnBadExit": True})
    assert value(text, "SlurmdTimeout") == "600"
    assert text.index("SlurmdTimeout") < text.index("# What the site adds")
    assert text.index("# What the site adds") < text.index("MaxArraySize=10001")
    assert value(text, "KillOnBadExit") == "YES"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("X11", "Contain,X11"),
        (["Contain", "DeferBatch"], "Contain,DeferBatch"),
        ("contain", "Contain"),
    ],
)
def test_flags_of_the_site_are_added_to_those_we_need(given: Any, written: str) -> None:
    assert value(slurm_conf(options={"PrologFlags": given}), "PrologFlags") == written


def test_gpus_stay_counted_and_limited_beside_what_the_site_tracks() -> None:
    options = {"Licenses": ["fluent:30"], "AccountingStorageTRES": ["license/fluent"]}
    text = slurm_conf(options={**options, "grestypes": "shard"})
    assert value(text, "AccountingStorageTRES") == "gres/gpu,gres/gpu:h100,license/fluent"
    assert value(text, "GresTypes") == "gpu,shard"
    text = slurm_conf(options={"GresTypes": ["shard", "GPU"]})
    assert value(text, "GresTypes") == "shard,GPU", "another order restarts slurmctld"


def test_configless_cannot_be_lost() -> None:
    text = slurm_conf(options={"SlurmctldParameters": "idle_on_node_suspend"})
    assert value(text, "SlurmctldParameters") == "enable_configless,idle_on_node_suspend"
    text = slurm_conf(configless=False, options={"SlurmctldParameters": "idle_on_node_suspend"})
    assert value(text, "SlurmctldParameters") == "idle_on_node_suspend"


def test_without_a_database_nothing_needs_one() -> None:
    text = slurm_conf(databases=[])
    assert "Accounting" not in text
    assert "Priority" not in text


@pytest.mark.parametrize("auth", ["munge", "slurm"])
def test_messages_and_credentials_are_made_alike(auth: str) -> None:
    text = slurm_conf(auth=auth)
    assert value(text, "AuthType") == f"auth/{auth}"
    assert value(text, "CredType") == f"cred/{auth}"


# ---------------------------------------------------------------------------- who gets how much


def test_a_job_gets_the_share_of_its_gpus() -> None:
    text = slurm_conf()
    assert value(text, "DefMemPerGPU") == "250000"
    assert value(text, "DefCpuPerGPU") == "28"
    # all CPUs of a node together must fit its memory, or eight GPUs could not be had
    assert int(value(text, "DefMemPerCPU") or 0) * 224 <= 2000000


def test_cpu_nodes_alone_know_no_gpus() -> None:
    text = slurm_conf(nodes=[cpu_node("cpu-01")])
    assert value(text, "DefMemPerCPU") == "8000"
    assert value(text, "DefMemPerGPU") is None
    assert value(text, "GresTypes") is None
    assert value(text, "AccountingStorageTRES") is None


def test_what_the_site_sets_is_not_undone_by_a_partition() -> None:
    nodes = [*map(dgx_h100, names(2)), *map(dgx_a100, ("old-01",))]
    partitions = [{"name": "new", "nodes": ["dgx-[01-02]"]}]
    plain = slurm_conf(nodes=nodes, partitions=partitions)
    assert "PartitionName=new Nodes=dgx-[01-02] State=UP DefMemPerCPU=8928" in plain
    text = slurm_conf(
        nodes=nodes,
        partitions=partitions,
        default_mem_per_cpu_mb=1000,
        default_mem_per_gpu_mb=90000,
        default_cpus_per_gpu=8,
    )
    assert "PartitionName=new Nodes=dgx-[01-02] State=UP\n" in text
    assert value(text, "DefMemPerCPU") == "1000"
    assert value(text, "DefMemPerGPU") == "90000"
    assert value(text, "DefCpuPerGPU") == "8"


def test_memory_by_node_excludes_the_other_ways() -> None:
    text = slurm_conf(options={"DefMemPerNode": 4000})
    assert value(text, "DefMemPerCPU") is None
    assert value(text, "DefMemPerGPU") is None
    assert value(text, "DefCpuPerGPU") == "28"


# ------------------------------------------------------------------------------ how far jobs reach


@pytest.mark.parametrize(
    ("version", "plugin"), [("22.05", "cgroup/v1"), ("23.11", "cgroup/v1"), ("24.05", "disabled")]
)
def test_no_cgroups_in_the_words_of_the_release(version: str, plugin: str) -> None:
    files = render(cluster(version=version, cgroup={"plugin": "disabled"}))
    assert value(files["cgroup.conf"], "CgroupPlugin") == plugin
    assert "Constrain" not in files["cgroup.conf"]
    assert value(files["slurm.conf"], "ProctrackType") == "proctrack/linuxproc"
    assert value(files["slurm.conf"], "TaskPlugin") == "task/none"
    assert value(files["slurm.conf"], "JobAcctGatherType") == "jobacct_gather/linux"


def test_pretended_hardware_is_labelled_and_not_confined() -> None:
    files = render(cluster(pretended_hardware=True, cgroup={"constrain_cores": True}))
    assert "# PRETENDED: " in files["slurm.conf"]
    assert value(files["slurm.conf"], "SlurmdParameters") == "config_overrides"
    assert value(files["slurm.conf"], "ReturnToService") == "2"
    for key in ("ConstrainCores", "ConstrainRAMSpace", "ConstrainSwapSpace"):
        assert value(files["cgroup.conf"], key) == "no"
    assert value(files["cgroup.conf"], "ConstrainDevices") == "yes"


def test_real_hardware_says_nothing_of_pretence() -> None:
    for text in render(cluster()).values():
        assert "PRETENDED" not in text
        assert "config_overrides" not in text


def test_gpus_without_links_share_a_line() -> None:
    node = dgx_h100("dgx-01")
    node["gres"][0]["links"] = []
    lines = render(cluster(nodes=[node]))["gres.conf"].splitlines()[2:]
    assert lines == [
        "NodeName=dgx-01 Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-55",
        "NodeName=dgx-01 Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=56-111",
    ]


def test_a_device_of_several_files_has_a_line_of_its_own() -> None:
    files = [f"/dev/nvidia7,/dev/gpu7-{number}-gi,/dev/gpu7-{number}-ci" for number in range(2)]
    mig = {"name": "gpu", "type": "3g.40gb", "count": 2, "files": files, "cores": ["56-111"] * 2}
    node = dgx_h100("dgx-01")
    rendered = render(cluster(nodes=[{**node, "gres": [*node["gres"], mig]}]))
    assert rendered["gres.conf"].splitlines()[-2:] == [
        f"NodeName=dgx-01 Name=gpu Type=3g.40gb MultipleFiles={one} Cores=56-111" for one in files
    ]
    assert " Gres=gpu:h100:8,gpu:3g.40gb:2 " in rendered["slurm.conf"]
    assert "gres/gpu:3g.40gb" in rendered["slurm.conf"]


def test_a_resource_without_files_is_counted() -> None:
    node = dgx_h100("dgx-01", gres=[{"name": "nic", "type": None, "count": 8}])
    files = render(cluster(nodes=[node]))
    assert files["gres.conf"].endswith("NodeName=dgx-01 Name=nic Count=8\n")
    assert " Gres=nic:8 " in files["slurm.conf"]


# ------------------------------------------------------------------------------------- the topology

TREE = [
    {"switch": "yes", "nodes": ["dgx-01"]},
    {"switch": "su2", "nodes": ["dgx-02"]},
    {"switch": "core", "switches": ["yes", "su2"]},
]


@pytest.mark.parametrize("plugin", ["tree", "block"])
def test_topology_yaml_reads_as_what_was_meant(plugin: str) -> None:
    values = cluster(
        version="25.05",
        topology=TREE,
        topology_plugin=plugin,
        topology_format="yaml",
        block_sizes=[1, 2] if plugin == "block" else [],
    )
    assert check(values) == []
    files = render(values)
    assert "topology.conf" not in files
    (only,) = yaml.safe_load(files["topology.yaml"])
    assert only["cluster_default"] is True
    if plugin == "tree":
        assert only["tree"]["switches"] == [
            {"switch": "yes", "nodes": "dgx-01"},
            {"switch": "su2", "nodes": "dgx-02"},
            {"switch": "core", "children": "su2,yes"},
        ]
    else:
        assert only["block"] == {
            "block_sizes": [1, 2],
            "blocks": [{"block": "yes", "nodes": "dgx-01"}, {"block": "su2", "nodes": "dgx-02"}],
        }
    # slurmctld that misses topology.yaml must end loudly, not forget the topology
    assert value(files["slurm.conf"], "TopologyPlugin") == f"topology/{plugin}"


def test_a_partition_departs_from_the_topology_of_the_cluster() -> None:
    partitions = [
        {"name": "batch", "nodes": ["ALL"], "topology": "tree"},
        {"name": "debug", "nodes": ["dgx-01"], "topology": "flat"},
        {"name": "nvl", "nodes": ["dgx-02"], "topology": "block", "options": {"MinNodes": 1}},
    ]
    values = cluster(version="25.05", topology=TREE, partitions=partitions)
    assert check(values) == []
    files = render(values)
    first, *others = yaml.safe_load(files["topology.yaml"])
    assert (first["topology"], first["cluster_default"], "tree" in first) == ("default", True, True)
    assert others == [
        {
            "topology": "block",
            "cluster_default": False,
            "block": {
                "blocks": [{"block": "yes", "nodes": "dgx-01"}, {"block": "su2", "nodes": "dgx-02"}]
            },
        },
        {"topology": "flat", "cluster_default": False, "flat": True},
    ]
    assert "topology.conf" not in files
    lines = re.findall(r"^PartitionName=(\S+) (.*)$", files["slurm.conf"], re.MULTILINE)
    found = {name: re.findall(r"Topology=(\S+)", line) for name, line in lines}
    assert found == {"batch": [], "debug": ["flat"], "nvl": ["block"]}


@pytest.mark.parametrize(
    ("version", "line"), [("23.11", "BlockLevels=0,1"), ("24.05", "BlockSizes=1,2")]
)
def test_blocks_in_the_words_of_the_release(version: str, line: str) -> None:
    values = cluster(version=version, topology=TREE, topology_plugin="block", block_sizes=[1, 2])
    assert render(values)["topology.conf"].splitlines()[1:] == [
        "BlockName=yes Nodes=dgx-01",
        "BlockName=su2 Nodes=dgx-02",
        line,
    ]


def test_no_topology_leaves_no_trace() -> None:
    for values in (cluster(), cluster(topology=TREE, topology_plugin="none")):
        files = render(values)
        assert not {"topology.conf", "topology.yaml"} & files.keys()
        assert "Topology" not in files["slurm.conf"]


# ------------------------------------------------------------------------------- the health check


@pytest.mark.parametrize(
    ("version", "state"), [("22.05", "IDLE,CYCLE"), ("23.11", "NONDRAINED_IDLE,CYCLE")]
)
def test_idle_nodes_are_checked_in_turn(version: str, state: str) -> None:
    text = slurm_conf(version=version, health_check={"program": "/usr/sbin/node_health"})
    assert value(text, "HealthCheckNodeState") == state
    assert value(text, "HealthCheckInterval") == "300"


# ------------------------------------------------------------------------- what needs a restart


def key_of(**other: Any) -> str:
    values = cluster(**other)
    return restart_key(render(values)["slurm.conf"], values["version"])


MORE_NODES = {"nodes": [dgx_h100(name) for name in names(3)]}
FEWER_GPUS = {"nodes": [dgx_h100(name, gres=[]) for name in names(2)]}
OTHER_PARTITION = {"partitions": [{"name": "debug", "nodes": ["ALL"]}]}


@pytest.mark.parametrize(
    ("version", "change", "restarts"),
    [
        ("22.05", MORE_NODES, True),
        ("23.02", MORE_NODES, True),
        ("22.05", FEWER_GPUS, True),
        ("22.05", {"controllers": ["head-01", "head-02"]}, True),
        ("22.05", OTHER_PARTITION, False),
        ("22.05", {"options": {"KillWait": 60}}, False),
        ("23.11", MORE_NODES, False),
        ("24.11", FEWER_GPUS, False),
        ("24.11", {"options": {"SlurmctldPort": 7000}}, True),
    ],
)
def test_what_slurmctld_is_restarted_for(
    version: str, change: dict[str, Any], restarts: bool
) -> None:
    assert (key_of(version=version) != key_of(version=version, **change)) is restarts


def test_a_release_that_takes_everything_has_no_key() -> None:
    assert key_of(version="24.11") == ""
    assert key_of(version="22.05") != ""


# ------------------------------------------------------------------------------------- the remarks


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({}, []),
        ({"pretended_hardware": True}, ["the nodes pretend to their hardware"]),
        ({"cgroup": {"plugin": "disabled"}}, ["no cgroups"]),
        ({"version": "25.05", "cgroup": {"plugin": "cgroup/v1"}}, ["cgroup/v1 is deprecated"]),
        ({"version": "24.11", "cgroup": {"plugin": "cgroup/v1"}}, []),
        ({"node_sets": [{"name": "none", "feature": "b200"}]}, ["node set none is empty"]),
        ({"topology": TREE[:2]}, ["su2, yes have no switch in common"]),
        ({"topology": TREE}, []),
    ],
)
def test_remarks(change: dict[str, Any], messages: list[str]) -> None:
    found = remarks(cluster(**change))
    assert [line[: len(start)] for line, start in zip(found, messages, strict=True)] == messages


def test_the_pod_is_told_what_it_lacks() -> None:
    assert len(remarks({**POD, "version": "24.11"})) == 1
