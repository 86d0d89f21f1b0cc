# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from slurm_clusters import CASES, dgx_a100, dgx_h100, names

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.check import OWNED, check
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.inputs import (
    DEFAULTS,
    seconds,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.releases import spell

GOOD: dict[str, Any] = {
    "version": "24.11",
    "cluster_name": "core",
    "controllers": ["head-01"],
    "databases": ["head-01"],
    "nodes": [dgx_h100(name) for name in names(4)],
    "node_sets": [{"name": "half", "nodes": ["dgx-[01-02]"]}],
    "partitions": [
        {"name": "batch", "nodes": ["ALL"], "default": True, "max_time": "7-00:00:00"},
        {"name": "debug", "nodes": ["half", "dgx-03"], "max_time": "00:30:00"},
    ],
    "topology": [
        {"switch": "su1", "nodes": ["dgx-01", "dgx-02"]},
        {"switch": "su2", "nodes": ["dgx-03", "dgx-04"]},
        {"switch": "core", "switches": ["su1", "su2"]},
    ],
}


def errors(**other: Any) -> list[str]:
    return check({**GOOD, **other})


def changed(edit: Callable[[dict[str, Any]], Any]) -> list[str]:
    values = copy.deepcopy(GOOD)
    edit(values)
    return check(values)


def test_a_good_cluster_has_no_errors() -> None:
    assert errors() == []
    for values in CASES.values():
        assert check(values) == []


def test_tls_without_slurmdbd_is_the_sites() -> None:
    assert errors(options={"TLSType": "tls/s2n"}, databases=[], version="25.11") == []


def test_what_jobs_and_nodes_get_may_be_set() -> None:
    assert errors(
        mpi_default="pmix_v4",
        accounting_enforce=["All", "safe"],
        resume_timeout_s=65533,
        reboot_program="/usr/sbin/ipmitool chassis power reset",
        default_cpus_per_gpu=28,
        default_mem_per_gpu_mb=250000,
        default_mem_per_cpu_mb=8928,
    ) == []  # fmt: skip
    old = [dgx_a100("dgx-04")]
    # Of nodes that differ, the largest: a partition of the others has its own options.
    assert errors(nodes=[*GOOD["nodes"][:3], *old], default_mem_per_gpu_mb=250000) == []


BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"version": "21.08"},
        (
            "version: 21.08 is not supported; write one of 22.05, 23.02, 23.11, "
            "24.05, 24.11, 25.05, "
            "25.11, 26.05"
        ),
    ),
    (
        {"cluster_name": "my cluster"},
        "cluster_name: 'my cluster' is not a name of a cluster; write ",
    ),
    ({"controllers": []}, "controllers: empty; name the hosts that run slurmctld"),
    ({"controllers": ["a", "a"]}, "controllers: a is declared 2 times; declare it once"),
    ({"controllers": [{"address": "10.0.0.1"}]}, "controllers[0].name: missing; write a text"),
    ({"controllers": [7]}, "controllers[0]: is not a mapping; write name"),
    (
        {"databases": ["a", "b", "c"]},
        "databases: Slurm knows one stand-by of slurmdbd; name two hosts at most",
    ),
    (
        {"auth": "slurm", "version": "23.11"},
        "auth: slurm needs 24.11 or later, version is 23.11; write munge",
    ),
    (
        {"gres_autodetect": "nvidia", "version": "24.05"},
        "gres_autodetect: nvidia needs 24.11 or later, version is 24.05; write nvml or off",
    ),
    (
        {"topology_plugin": "block", "version": "23.02"},
        "topology_plugin: block needs 23.11 or later, version is 23.02; write tree",
    ),
    (
        {"partitions": [{"name": "p", "nodes": ["ALL"], "topology": "flat"}]},
        "partitions[0].topology needs 25.05 or later, version is 24.11; leave it out",
    ),
    (
        {
            "partitions": [{"name": "p", "nodes": ["ALL"], "topology": "flat"}],
            "topology_plugin": "none",
            "version": "25.05",
        },
        "partitions[0].topology: there is no topology to depart from; leave it out",
    ),
    (
        {"topology_format": "yaml"},
        "topology_format: yaml needs 25.05 or later, version is 24.11; write conf",
    ),
    (
        {"prolog": ["/a/*", "/b/*"], "version": "24.05"},
        (
            "prolog: more than one path needs 24.11 or later, version is 24.05; "
            "write a pattern like "
            "/etc/slurm/prolog.d/*"
        ),
    ),
    (
        {"node_sets": [{"name": "half", "nodes": ["dgx-01"]}, {"name": "half", "feature": "x"}]},
        "node_sets: half is declared 2 times; declare it once",
    ),
    (
        {"node_sets": [{"name": "half", "nodes": ["dgx-09"]}]},
        "node_sets[0].nodes[0]: dgx-09 is not a node of the cluster; write one that is",
    ),
    (
        {"node_sets": [{"name": "half", "nodes": ["dgx-01"], "feature": "x"}]},
        "node_sets[0]: has neither nodes nor feature, or both; write one of them",
    ),
    (
        {"node_sets": [{"name": "half"}]},
        "node_sets[0]: has neither nodes nor feature, or both; write one of them",
    ),
    (
        {"block_sizes": [3], "topology_plugin": "block"},
        "block_sizes: the smallest block has 2 nodes, and Slurm 24.11 takes none below the first ",
    ),
    (
        {"block_sizes": [0, 1], "topology_plugin": "block", "version": "25.05"},
        "block_sizes: 0 is out of range; begin with 1 or more",
    ),
    (
        {"block_sizes": [0], "topology_plugin": "block"},
        "block_sizes: 0 is out of range; begin with 1 or more",
    ),
    (
        {"block_sizes": [1, 3], "topology_plugin": "block"},
        "block_sizes: must rise by powers of two of the first; write for example 18, 36, 72",
    ),
    (
        {"block_sizes": [1, 2]},
        "block_sizes: tree has no blocks; leave it out, or write block as the plugin",
    ),
    (
        {"block_sizes": [1, 2], "topology": [], "topology_plugin": "block"},
        "block_sizes: the fabric has no units that could be blocks; leave it out",
    ),
    ({"mpi_default": "pmx"}, "mpi_default: pmx is not known; write none, pmi2 or pmix"),
    (
        {"accounting_enforce": ["limits", "qoss"]},
        "accounting_enforce: qoss is not known; write one of all, associations, limits, nojobs",
    ),
    ({"resume_timeout_s": 0}, "resume_timeout_s: 0 is out of range; write 1 to 65533"),
    ({"resume_timeout_s": 65534}, "resume_timeout_s: 65534 is out of range; write 1 to 65533"),
    (
        {"reboot_program": "reboot"},
        "reboot_program: reboot is not an absolute path; write one",
    ),
    (
        {"default_cpus_per_gpu": 29},
        "default_cpus_per_gpu: 29, but no node has more than 28 for each; write 1 to 28",
    ),
    (
        {"default_mem_per_gpu_mb": -1},
        "default_mem_per_gpu_mb: -1, but no node has more than 250000 for each; write 1 to 250000",
    ),
    (
        {"default_mem_per_cpu_mb": 8929},
        "default_mem_per_cpu_mb: 8929, but no node has more than 8928 for each; write 1 to 8928",
    ),
    (
        {"options": {"ResumeTimeout": 600}},
        "options.ResumeTimeout: is written by the role; use slurm_controller_resume_timeout_s",
    ),
    (
        {"plugstack": ["include /etc/slurm/plugstack.conf.d/*.conf"]},
        (
            "plugstack[0]: slurmctld serves no include with a path or a pattern; "
            "write the plug-in's "
            "own line"
        ),
    ),
    (
        {"health_check": {"interval_s": 300}},
        "health_check.program: missing; name the program, or leave health_check out",
    ),
    (
        {"health_check": {"program": "/x", "interval_s": 60}},
        "health_check.interval_s: 60, but one run may take 60; write more",
    ),
    (
        {"health_check": {"program": "/x", "interval_s": 300, "timeout_s": 120}},
        "health_check.timeout_s: exists from 26.05 on, version is 24.11; leave it out",
    ),
    (
        {"health_check": {"program": "/x", "node_state": ["NONDRAINED_IDLE"]}, "version": "22.05"},
        (
            "health_check.node_state: NONDRAINED_IDLE exists from 23.02 on, "
            "version is 22.05; leave it "
            "out"
        ),
    ),
    (
        {"health_check": {"programme": "/x"}},
        "health_check.programme: is not an input; write one of program, interval_s, node_state, ",
    ),
    (
        {"cgroup": {"plugin": "v2"}},
        "cgroup.plugin: v2 is not known; write one of autodetect, cgroup/v2, cgroup/v1, disabled",
    ),
    (
        {"cgroup": {"constrain_gpus": True}},
        "cgroup.constrain_gpus: is not an input; write one of plugin, mountpoint, constrain_cores",
    ),
    (
        {"options": {"NodeName": "x"}},
        "options.NodeName: is written by the role; use node_profile, node_features and node_slurm_",
    ),
    (
        {"options": {"prolog": "/x"}},
        "options.prolog: is written by the role; use slurm_controller_prolog",
    ),
    (
        {"options": {"NamespaceType": "namespace/tmpfs"}},
        "options.NamespaceType: exists from 25.11 on, version is 24.11; leave it out",
    ),
    (
        {"options": {"SlurmdTimout": 30}},
        "options.SlurmdTimout: is not a key of slurm.conf; write SlurmdTimeout",
    ),
    (
        {"options": {"tlsType": "tls/s2n"}},
        "options.tlsType: needs a certificate of slurmdbd, which no role makes; leave it out",
    ),
    (
        {"options": {"CgroupAutomount": "yes"}},
        "options.CgroupAutomount: is a name of old; write nothing, Slurm mounts no cgroups any",
    ),
    (
        {"options": {"KillWait": None}},
        "options.KillWait: is not a value; write a text, a number or",
    ),
    (
        {"options": {"PrologFlags": "NoHold"}},
        "options.PrologFlags: nohold excludes contain; leave it out",
    ),
    (
        {"options": {"PrologFlags": "ForceRequeueOnFail"}, "version": "22.05"},
        "options.PrologFlags: ForceRequeueOnFail exists from 23.02 on, version is 22.05; leave it",
    ),
    *(
        (
            {"options": {key: 3600}},
            f"options.{key}: 3600 is not a text; write times in quotes, such as",
        )
        for key in (
            "preemptExemptTime",
            "PriorityCalcPeriod",
            "PriorityDecayHalfLife",
            "PriorityMaxAge",
        )
    ),
    (
        {"options": {"MailDomain": "x # y"}},
        "options.MailDomain: has a '#', which begins a comment and cuts the value; leave it out",
    ),
    (
        {"options": {"MailDomain": "x\nDisableRootJobs=NO"}},
        "options.MailDomain: has a line break; write one line",
    ),
]


@pytest.mark.parametrize(("other", "message"), BAD, ids=[message[:40] for _other, message in BAD])
def test_each_mistake_has_its_line(other: dict[str, Any], message: str) -> None:
    found = errors(**other)
    assert len([line for line in found if line.startswith(message)]) == 1, found


EDITS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda v: v.update(nodes=[]), "nodes: empty; add hosts to the group gpu_nodes"),
    (
        lambda v: v["nodes"].append(dgx_h100("dgx-01")),
        "nodes: dgx-01 is declared 2 times; declare it once",
    ),
    (lambda v: v["nodes"][0].pop("cpus"), "nodes[0].cpus: missing; write a whole number"),
    (
        lambda v: v["nodes"][0].update(name="[1"),
        "nodes[0].name: the brackets of '[1' do not match; write names as Slurm does, dgx-[01-12]",
    ),
    (
        lambda v: v["nodes"][0].update(name="dgx-[02-03]"),
        "nodes: dgx-03 is declared 2 times; declare it once",
    ),
    (
        lambda v: v["nodes"][0].update(cpus="224"),
        "nodes[0].cpus: '224' is not a whole number; write one",
    ),
    (
        lambda v: v["nodes"][0].update(cpus=112),
        (
            "nodes.dgx-01.cpus: 112, but sockets x cores_per_socket x "
            "threads_per_core is 224; correct "
            "the profile"
        ),
    ),
    (
        lambda v: v["nodes"][0].update(real_memory_mb=0),
        "nodes.dgx-01.real_memory_mb: 0; write what the node has",
    ),
    (
        lambda v: v["nodes"][0].update(name="ALL"),
        "nodes.ALL: ALL has its own meaning to Slurm; choose another name",
    ),
    (
        lambda v: v["nodes"][0]["gres"][0].update(count=4),
        "nodes.dgx-01.gres.gpu.files: 8 of them, but count is 4; give one for each, or none",
    ),
    (
        lambda v: v["nodes"][0]["gres"][0].update(files=["/dev/nvidia0"], cores=[], links=[]),
        "nodes.dgx-01.gres.gpu.files: 1 of them, but count is 8; give one for each, or none",
    ),
    (
        lambda v: v["nodes"][0]["gres"][0].update(files=[]),
        "nodes.dgx-01.gres.gpu.files: missing, but cores or links are given; name the device files",
    ),
    (
        lambda v: v["nodes"][0]["gres"][0].update(files=["/dev/nvidia0"] * 8),
        "nodes.dgx-01.gres.gpu.files: /dev/nvidia0 is declared 8 times; declare it once",
    ),
    (
        lambda v: v["nodes"][0]["gres"][0].pop("count"),
        "nodes[0].gres[0].count: missing; write a whole number",
    ),
    (lambda v: v.update(partitions=[]), "partitions: empty; declare at least one"),
    (
        lambda v: v["partitions"][1].update(default=True),
        "partitions: batch, debug are all the default; leave one",
    ),
    (
        lambda v: v["partitions"][1].update(name="batch"),
        "partitions: batch is declared 2 times; declare it once",
    ),
    (
        lambda v: v["partitions"][1].update(name="DEFAULT"),
        "partitions[1].name: DEFAULT has its own meaning to Slurm; choose another name",
    ),
    (
        lambda v: v["topology"][0].update(node=["dgx-01"]),
        "topology[0].node: is not an input; write one of switch, nodes, switches",
    ),
    (
        lambda v: v["partitions"][1].update(nodes="ALL"),
        "partitions[1].nodes: 'ALL' is not a list; write one",
    ),
    (
        lambda v: v["partitions"][1].update(nodes=["dgx-[03-06]"]),
        "partitions[1].nodes[0]: dgx-[05-06] is not a node of the cluster; write one that is",
    ),
    (
        lambda v: v["partitions"][1].update(nodes=["dgx-[03"]),
        (
            "partitions[1].nodes[0]: the brackets of 'dgx-[03' do not match; write a node set like "
            "dgx-[01-04]"
        ),
    ),
    (
        lambda v: v["partitions"][1].update(max_time="3 days"),
        "partitions[1].max_time: 3 days is not a time; write minutes, HH:MM:SS or D-HH:MM:SS",
    ),
    (
        lambda v: v["partitions"][1].update(default_time="01:00:00"),
        "partitions[1].default_time: is longer than max_time; shorten it",
    ),
    (
        lambda v: v["partitions"][1].update(allow_groups=["the staff"]),
        "partitions[1].allow_groups[0]: has a space, which ends the value; leave it out",
    ),
    (
        lambda v: v["partitions"][1].update(options={"maxtime": 3}),
        "partitions[1].options.maxtime: has its own input; write max_time",
    ),
    (
        lambda v: v["partitions"][1].update(options={"Topology": "x"}),
        "partitions[1].options.Topology: exists from 25.05 on, version is 24.11; leave it out",
    ),
    (
        lambda v: v["node_sets"][0].update(name="dgx-01"),
        "node_sets[0].name: dgx-01 is a node; choose another name",
    ),
    (
        lambda v: v["topology"][0]["nodes"].append("dgx-99"),
        "topology.su1.nodes: dgx-99 is not a node of the cluster; write one that is",
    ),
    (
        lambda v: v["topology"][0]["nodes"].remove("dgx-02"),
        "topology: dgx-02 is below no switch, and jobs could not use it; add it",
    ),
    (
        lambda v: v["topology"][0]["nodes"].append("dgx-03"),
        "topology: dgx-03 is below more than one switch; leave one",
    ),
    (
        lambda v: v["topology"][2]["switches"].append("su3"),
        "topology.core.switches: su3 is not a switch of the topology; name one",
    ),
    (
        lambda v: v["topology"][2].update(nodes=["dgx-01"]),
        "topology.core: has neither nodes nor switches, or both; write one of them",
    ),
    (
        lambda v: v["topology"].append({"switch": "su1", "nodes": ["dgx-01"]}),
        "topology: su1 is declared 2 times; declare it once",
    ),
    (
        lambda v: v.update(
            version="23.11",
            topology_plugin="block",
            topology=[
                {"switch": "a", "nodes": ["dgx-01"]},
                {"switch": "b", "nodes": ["dgx-02", "dgx-03", "dgx-04"]},
            ],
        ),
        "topology: has blocks of 1 and of 3 nodes, but Slurm 23.11 wants them alike; write tree",
    ),
    (
        lambda v: v.update(options={"KillWait": 30, "killwait": 60}),
        "options.KillWait: is given more than once, since Slurm ignores case; leave one",
    ),
]


@pytest.mark.parametrize(("edit", "message"), EDITS, ids=[message[:40] for _edit, message in EDITS])
def test_each_edit_has_its_line(edit: Callable[[dict[str, Any]], Any], message: str) -> None:
    assert message in changed(edit)


@pytest.mark.parametrize(
    ("version", "counts", "sizes", "good"),
    [
        ("24.11", (3, 1), [3], False),
        ("25.05", (3, 1), [3], True),
        # A single rack, or each rack, may lack a tray.
        ("25.05", (3, 1), [4], True),
        ("25.05", (2, 2), [3], True),
        ("24.11", (1, 3), [3], False),
        ("24.11", (3, 1), [1, 2], True),
        # Without sizes the first block is the measure.
        ("24.11", (3, 1), [], False),
        ("24.11", (1, 3), [], True),
        ("24.05", (3, 1), [], False),
        ("25.11", (3, 1), [], True),
    ],
)
def test_a_block_may_lack_nodes_from_a_release_on(
    version: str, counts: tuple[int, int], sizes: list[int], good: bool
) -> None:
    every = names(4)
    blocks = {"rack1": every[: counts[0]], "rack2": every[counts[0] :]}
    found = errors(
        version=version,
        topology_plugin="block",
        block_sizes=sizes,
        topology=[{"switch": name, "nodes": nodes} for name, nodes in blocks.items()],
    )
    assert [line.partition(":")[0] for line in found] == ([] if good else ["block_sizes"])


def test_blocks_of_nothing_are_no_traceback() -> None:
    empty = [{"switch": "core", "switches": ["core"]}]
    assert errors(topology_plugin="block", topology=empty) == [
        "topology: dgx-[01-04] is below no switch, and jobs could not use it; add it"
    ]


def test_everything_is_said_at_once() -> None:
    found = errors(
        auth="slurm",
        version="22.05",
        controllers=[],
        partitions=[{"name": "a", "nodes": ["dgx-09"]}, {"name": "a", "nodes": ["ALL"]}],
        options={"Foo": 1},
    )
    assert [line.partition(":")[0] for line in found] == [
        "controllers",
        "partitions",
        "partitions[0].nodes[0]",
        "auth",
        "options.Foo",
    ]


def test_each_line_says_what_to_write() -> None:
    for other, _messages in BAD:
        assert all(";" in line for line in errors(**other) if "[0]" not in line)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90", 5400),
        ("10:30", 630),
        ("01:00:00", 3600),
        ("2-0", 172800),
        ("1-12:30", 131400),
        ("1-00:00:01", 86401),
        ("INFINITE", float("inf")),
        ("unlimited", float("inf")),
        ("1h", None),
        ("", None),
        ("-1", None),
        ("1:2:3:4", None),
    ],
)
def test_times_are_read_as_slurm_does(text: str, length: float | None) -> None:
    assert seconds(text) == length


def test_a_default_time_of_none_is_legal() -> None:
    partition = {"name": "a", "nodes": ["ALL"], "default_time": "NONE", "max_time": 30}
    assert errors(partitions=[partition]) == []


def test_owned_keys_are_spelt_as_the_man_page_does() -> None:
    assert all(spell(key.lower()) == key for key in OWNED)


def test_what_is_left_out_is_filled() -> None:
    short = {key: GOOD[key] for key in GOOD if key not in DEFAULTS}
    assert check({**short, "partitions": [{"name": "a", "nodes": ["ALL"]}]}) == []
