# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clusters whose rendered files are next to this file, in a folder of the same name.

Run with PYTHONPATH=.cache/collections, this file writes the folders again. Read every line of the
difference before committing it.
"""

from __future__ import annotations

import shutil
from typing import Any

from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.conf.render import check, render

FOLDER = FIXTURES / "slurm_conf"


def gpus(kind: str, cores: tuple[str, str] = ("0-55", "56-111"), links: int = 18) -> dict[str, Any]:
    """Eight GPUs of a DGX, as the plan describes them."""
    return {
        "name": "gpu",
        "type": kind,
        "count": 8,
        "files": [f"/dev/nvidia{index}" for index in range(8)],
        "cores": [cores[0]] * 4 + [cores[1]] * 4,
        "links": [
            ",".join("-1" if other == gpu else str(links) for other in range(8)) for gpu in range(8)
        ],
    }


def dgx_h100(name: str, **other: Any) -> dict[str, Any]:
    """A DGX H100 of the plan."""
    return {
        "name": name,
        "cpus": 224,
        "sockets": 2,
        "cores_per_socket": 56,
        "threads_per_core": 2,
        "real_memory_mb": 2000000,
        "gres": [gpus("h100")],
        "features": ["h100", "ndr"],
        **other,
    }


def dgx_a100(name: str) -> dict[str, Any]:
    """A DGX A100 of the plan, with half the memory."""
    return {
        **dgx_h100(name),
        "cpus": 256,
        "cores_per_socket": 64,
        "real_memory_mb": 1000000,
        "gres": [gpus("a100", ("0-63", "64-127"), links=12)],
        "features": ["a100"],
    }


def cpu_node(name: str) -> dict[str, Any]:
    """A server without GPUs."""
    return {
        **dgx_h100(name),
        "cpus": 64,
        "cores_per_socket": 16,
        "real_memory_mb": 512000,
        "gres": [],
        "features": [],
    }


def names(count: int, width: int = 2) -> list[str]:
    """dgx-01 and on."""
    return [f"dgx-{number:0{width}d}" for number in range(1, count + 1)]


POD: dict[str, Any] = {
    "cluster_name": "demo",
    "controllers": ["head-01"],
    "databases": ["head-01"],
    "pretended_hardware": True,
    "nodes": [dgx_h100(name, features=[]) for name in names(4)],
    "cgroup": {"plugin": "cgroup/v1", "mountpoint": "/cgv1"},
    "prolog": ["/etc/slurm/prolog.d/*"],
    "epilog": ["/etc/slurm/epilog.d/*"],
    "partitions": [
        {
            "name": "batch",
            "nodes": ["ALL"],
            "default": True,
            "default_time": "00:10:00",
            "max_time": "1-00:00:00",
        },
        {
            "name": "debug",
            "nodes": ["ALL"],
            "max_time": "00:30:00",
            "priority_tier": 10,
            "qos": "debug",
        },
    ],
}

SUPERPOD_NODES = names(127, 3)

CASES: dict[str, dict[str, Any]] = {
    "pod_2205_distributed": {**POD, "version": "22.05", "configless": False},
    "pod_2411_configless": {**POD, "version": "24.11"},
    "core_2511": {
        "version": "25.11",
        "cluster_name": "core",
        "controllers": [{"name": "head-01", "address": "10.1.0.11"}, "head-02"],
        "databases": ["head-01", "head-02"],
        "auth": "slurm",
        "nodes": [dgx_h100(name) for name in names(12)],
        "state_save_location": "/shared/slurm/slurmctld",
        "gres_autodetect": "nvidia",
        "prolog": ["/etc/slurm/prolog.d/*"],
        "epilog": ["/etc/slurm/epilog.d/*"],
        "health_check": {"program": "/usr/sbin/node_health"},
        "mpi_default": "pmix",
        "plugstack": ["required /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so"],
        "node_sets": [{"name": "test", "nodes": ["dgx-[11-12]"]}],
        "partitions": [
            {
                "name": "batch",
                "nodes": ["dgx-[01-10]"],
                "default": True,
                "default_time": "01:00:00",
                "max_time": "7-00:00:00",
                "allow_accounts": ["research", "training"],
            },
            {
                "name": "debug",
                "nodes": ["test"],
                "max_time": "00:30:00",
                "priority_tier": 10,
                "qos": "debug",
                "oversubscribe": "NO",
            },
        ],
        "options": {"MaxArraySize": 10001, "slurmctldparameters": ["max_dbd_msg_action=exit"]},
    },
    "superpod_2505": {
        "version": "25.05",
        "cluster_name": "superpod",
        "controllers": ["head-01", "head-02"],
        "databases": ["db-01"],
        "nodes": [dgx_h100(name) for name in SUPERPOD_NODES],
        "state_save_location": "/shared/slurm/slurmctld",
        "topology": [
            {"switch": "su1", "nodes": SUPERPOD_NODES[:32]},
            {"switch": "su2", "nodes": SUPERPOD_NODES[32:64]},
            {"switch": "su3", "nodes": SUPERPOD_NODES[64:96]},
            {"switch": "su4", "nodes": SUPERPOD_NODES[96:]},
            {"switch": "core", "switches": ["su1", "su2", "su3", "su4"]},
        ],
        "topology_format": "yaml",
        "node_sets": [{"name": "test", "nodes": ["dgx-[125-127]"]}],
        "partitions": [
            {"name": "batch", "nodes": ["dgx-[001-124]"], "default": True, "max_time": "2-0"},
            {"name": "debug", "nodes": ["test"], "max_time": 30, "options": {"LLN": True}},
        ],
    },
    "mixed_2311_block": {
        "version": "23.11",
        "cluster_name": "mixed",
        "controllers": ["head-01"],
        "configless": False,
        "nodes": [
            *map(dgx_h100, names(4)),
            *map(dgx_a100, ("old-01", "old-02", "old-03", "old-04")),
            *map(cpu_node, ("cpu-01", "cpu-02", "cpu-03", "cpu-04")),
        ],
        "topology": [
            {"switch": "new", "nodes": names(4)},
            {"switch": "old", "nodes": ["old-01", "old-02", "old-03", "old-04"]},
            {"switch": "cpus", "nodes": ["cpu-01", "cpu-02", "cpu-03", "cpu-04"]},
            {"switch": "all", "switches": ["new", "old", "cpus"]},
        ],
        "topology_plugin": "block",
        "block_sizes": [4, 8],
        "cgroup": {"plugin": "disabled"},
        "node_sets": [{"name": "ampere", "feature": "a100"}],
        "partitions": [
            {"name": "h100", "nodes": ["dgx-01", "dgx-02", "dgx-[03-04]"], "default": True},
            {"name": "a100", "nodes": ["ampere"], "options": {"defmempergpu": 100000}},
            {"name": "cpu", "nodes": ["cpu-[01-04]"], "state": "DRAIN"},
            {"name": "all", "nodes": ["ALL"], "options": {"DefMemPerNode": 1000}},
        ],
        "extra_lines": ["# as it stands", "DownNodes=cpu-02 Reason=repair"],
    },
}


def main() -> None:
    """Write every case's files."""
    for name, values in CASES.items():
        assert check(values) == [], name
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file, text in render(values).items():
            (folder / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
