# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user does on a cluster of several kinds of nodes, and what the answers must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podlib.layout import expect

if TYPE_CHECKING:
    from podlib.demo import Demo

# What a user asks for, and the one node that has it.
_ASKED = (
    ("--gres=gpu:a6000:4", "debug-01"),
    ("--constraint=a6000 --gres=gpu:1", "debug-01"),
    ("--gres=gpu:1g.10gb:9", "mig-01"),
    ("--gres=gpu:3g.40gb:1", "mig-01"),
    ("--gres=gpu:2g.20gb:1", "mig-01"),
    # Of two types: Slurm places it only if it says its CPUs (docs/slurm.md).
    ("--cpus-per-task=26 --gres=gpu:3g.40gb:1,gpu:2g.20gb:1", "mig-01"),
    ("--constraint=mig --gres=gpu:h100:6", "mig-01"),
)
_DGX = ["dgx-01", "dgx-02", "dgx-03", "dgx-04"]
# Opens what the job was given: the links are the instances', the files those of the GPUs.
_OPEN = (
    "cd /dev; for f in nvidia[0-9] baremetal-dgx/mig/*-gi; do "
    '(true < $f) 2>&1 | grep -q "not permitted" || echo $f; done'
)


def use_mixed(demo: Demo) -> None:
    """Run jobs on each kind of node."""
    demo.user("sinfo -N -o '%N %T %f %G'")
    answers = demo.user("srun -N4 --gres=gpu:h100:8 hostname").split()
    expect(sorted(answers) == _DGX, f"eight whole GPUs: {sorted(answers)}, not {_DGX}")
    for options, node in _ASKED:
        answer = demo.user(f"srun {options} hostname")
        expect(answer == node, f"{options} ran on {answer}, not on {node}")
    opened = demo.user(f"srun --gres=gpu:1g.10gb:1 sh -c '{_OPEN}'").split()
    expect(
        len(opened) == 2
        and opened[0] == "nvidia6"
        and opened[1].startswith("baremetal-dgx/mig/gpu6-1g"),
        f"a job with one instance may open {opened}",
    )
