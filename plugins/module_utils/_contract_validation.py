# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The inventory contract of validate_nodes and of validate_fabric's groups, as data."""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._contract_types import Option
from ansible_collections.baremetal.dgx.plugins.module_utils._group_halving import KINDS
from ansible_collections.baremetal.dgx.plugins.module_utils._validation_levels import LEVELS, PARTS

_DAYS_OF_SECONDS = 8640000


def _seconds(default: object, description: str, least: int = 1) -> Option:
    return Option(
        type="int",
        minimum=least,
        maximum=_DAYS_OF_SECONDS,
        default=default,
        description=description,
    )


def _texts(description: str) -> Option:
    return Option(type="list", each=Option(), default=[], description=description)


def _rate(description: str) -> Option:
    return Option(
        type="float", minimum=0, maximum=1000000, default="published", description=description
    )


_TOOL = Option(default="", description="Name or path of the program")

_BURN = Option(
    type="dict",
    options={
        "duration_s": _seconds("as the level says", "Seconds of load", 30),
        "n": Option(
            type="int",
            choices=(64, 256, 1024, 4096, 8192),
            default=8192,
            description="Rows and columns of the matrices",
        ),
        "memory_mib": Option(
            type="int",
            minimum=0,
            maximum=10000000,
            default=0,
            description="At most so much memory of a GPU; 0 is nearly all of it",
        ),
        "most_batch": Option(
            type="int",
            minimum=1,
            maximum=4096,
            default=32,
            description="Products between two looks at their results",
        ),
        "marks": Option(
            type="dict", default={}, description="Marks of gpu_burn that are the site's own"
        ),
        "again_after_days": Option(
            type="float",
            minimum=0,
            maximum=3650,
            default=7,
            description="Age from which on a burn-in that is over is burnt anew; 0 is never",
        ),
    },
    default={},
    description="The burn-in",
)

_CPU_MEMORY = Option(
    type="dict",
    options={
        "seconds": _seconds("as the level says", "Seconds of known answers on all CPUs", 0),
        "memory_share": Option(
            type="float",
            minimum=0,
            maximum=1,
            default=0.25,
            description="Share of the free memory that patterns are written to, 0.9 at most",
        ),
        "edac": Option(
            type="bool", default=True, description="Whether the kernel's error counts are asked for"
        ),
    },
    default={},
    description="Processors and memory",
)

_DCGM = Option(
    type="dict",
    options={
        "level": Option(
            type="int",
            choices=(1, 2, 3, 4),
            default="as the level says",
            description="C(dcgmi diag -r)",
        ),
        "parameters": Option(
            type="dict",
            default={},
            description="Parameters of its tests, C(diagnostic.test_duration)",
        ),
        "skips_ok": Option(
            type="list",
            each=Option(),
            default=["eud", "cpu_eud"],
            description="Tests that may be skipped",
        ),
        "time_limit_s": _seconds("by the level", "Seconds until it is ended"),
    },
    default={},
    description="NVIDIA's diagnostics",
)

_NCCL = Option(
    type="dict",
    options={
        "busbw_mark_gbps": _rate("Bus bandwidth that must be reached, GB/s"),
        "mark_source": Option(default="set in the inventory", description="Who says so"),
        "tool": _TOOL,
        "environment": Option(type="dict", default={}, description="Environment variables"),
        "time_limit_s": _seconds(300, "Seconds until it is ended"),
    },
    default={},
    description="All-reduce over the GPUs of one node",
)

_FIO = Option(
    type="dict",
    options={
        "folder": Option(
            type="path",
            default="the first of local_storage_volumes",
            description="Folder on scratch",
        ),
        "size_mib": Option(
            type="int",
            minimum=1,
            maximum=100000000,
            default=8192,
            description="Size of the file at most; a quarter of what is free is the limit",
        ),
        "seconds": _seconds(10, "Seconds of each of the four measurements"),
        "root_ok": Option(
            type="bool", default=False, description="Whether it may be on the root file system"
        ),
    },
    default={},
    description="Scratch disks; marks are C(nvme.read_mb_s), C(write_mb_s), C(read_iops) and "
    "C(write_iops) of the profile",
)

_CANARY = Option(
    type="dict",
    options={
        "mounts": Option(
            type="list",
            each=Option(
                type="dict",
                options={
                    "name": Option(required=True, description="What it is called"),
                    "path": Option(type="path", required=True, description="The mount point"),
                    "fstype": Option(default="", description="Type that it must have"),
                    "write": Option(
                        type="bool", default=True, description="Whether a file is written to it"
                    ),
                },
            ),
            default=[],
            description="Mounts beside those of cephfs_mounts and local_storage_volumes",
        ),
    },
    default={},
    description="A small file to each mount and back",
)

VALIDATION = Option(
    type="dict",
    options={
        "level": Option(
            choices=LEVELS,
            default="standard",
            description="No load, ten minutes of it, or a day",
        ),
        "parts": Option(
            type="dict",
            options={
                name: Option(type="bool", description=f"Whether it is asked, from {part.level} on")
                for name, part in PARTS.items()
            },
            default={},
            description="Parts that are switched off, or on though they seem to lack something",
        ),
        "transport": Option(
            choices=("auto", "ssh", "slurm"),
            default="auto",
            description="Whether a Slurm job holds a node while it is loaded: V(auto) where Slurm "
            "knows the node, V(ssh) never; a node with jobs is never loaded",
        ),
        "slurm_options": _texts("More arguments for salloc, a partition or an account"),
        "hold_s": _seconds("from the parts", "Seconds until that job ends by itself", 60),
        "idle": Option(
            type="bool",
            default=True,
            description="Whether a process on a GPU is a finding, where no job is known to run",
        ),
        "health_marks": Option(
            type="dict", default={}, description="Marks of gpu_health that are the site's own"
        ),
        "canary": _CANARY,
        "cpu_memory": _CPU_MEMORY,
        "dcgm": _DCGM,
        "burn": _BURN,
        "nccl": _NCCL,
        "fio": _FIO,
        "hardware_root": Option(
            default="",
            description="Folder with the sys and proc of simulated hardware; empty for real ones",
        ),
    },
)

GROUP_TESTS = Option(
    type="dict",
    options={
        "transport": Option(
            choices=("none", "slurm"),
            default="none",
            description="Whether validate_fabric runs all_reduce over groups of nodes, in one job "
            "that has all nodes which are idle",
        ),
        "kinds": Option(
            type="list",
            each=Option(choices=KINDS),
            default=list(KINDS),
            description="Groups, the small ones first",
        ),
        "exclude": _texts("Nodes that take no part"),
        "mark_share": Option(
            type="float",
            minimum=0,
            maximum=2,
            default=0.75,
            description="Share of the line rate of the rails in use that must be reached",
        ),
        "size_bytes": Option(
            type="int",
            minimum=1024,
            maximum=1 << 40,
            default=8589934592,
            description="Size that is judged",
        ),
        "tool": _TOOL,
        "container_image": Option(default="", description="Image for srun --container-image"),
        "slurm_mpi": Option(default="pmix", description="What srun --mpi gets"),
        "slurm_options": _texts("More arguments for salloc, a partition or a reservation"),
        "environment": Option(
            type="dict",
            default={"NCCL_ALGO": "Ring"},
            description="Environment variables; a ring does not hide a slow link",
        ),
        "time_limit_s": _seconds(300, "Seconds until one run is ended"),
        "most_runs": Option(
            type="int", minimum=1, maximum=10000, default=200, description="Runs in all"
        ),
    },
    default={},
    description="All-reduce over groups of nodes, halved down to the culprit",
)
