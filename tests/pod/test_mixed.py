# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of three kinds in a pod of `make demo INVENTORY=mixed`: POD names it."""

from __future__ import annotations

import json
import subprocess

import pytest

from .conftest import CHECKOUT, INVENTORY, POD, playbook

INSTANCES = {"1g.10gb": 9, "2g.20gb": 1, "3g.40gb": 1}


def user(command: str) -> str:
    """What a command prints as the ordinary user alice."""
    done = subprocess.run(
        [CHECKOUT / "virtual_pod/pod", "ssh", "--name", POD, "alice@login-01", command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ("-N4 --gres=gpu:h100:8", {f"dgx-0{number}" for number in range(1, 5)}),
        ("--gres=gpu:a6000:4", {"debug-01"}),
        ("--constraint=a6000 --gres=gpu:1", {"debug-01"}),
        ("--constraint=mig --gres=gpu:h100:6", {"mig-01"}),
        *((f"--gres=gpu:{kind}:{count}", {"mig-01"}) for kind, count in INSTANCES.items()),
        ("--cpus-per-task=26 --gres=gpu:3g.40gb:1,gpu:2g.20gb:1", {"mig-01"}),
    ],
)
def test_a_job_finds_the_kind_of_node_it_asks_for(options: str, nodes: set[str]) -> None:
    assert set(user(f"srun {options} hostname").split()) == nodes


def test_a_job_opens_its_own_instance_and_no_other() -> None:
    opens = '(true < $f) 2>&1 | grep -q "not permitted" || echo $f'
    command = f"cd /dev/baremetal-dgx/mig; for f in *-gi; do {opens}; done"
    own = user(f"srun --gres=gpu:3g.40gb:1 sh -c '{command}'").split()
    assert len(own) == 1
    assert own[0].startswith("gpu7-3g.40gb-")


def test_each_kind_is_validated_by_what_is_declared_of_it() -> None:
    run = playbook("validate_nodes", "-e", "level=quick", "-e", "again=true")
    assert run.rc == 0, run.why
    found = json.loads((INVENTORY / ".dgx/nodes/mig-01.json").read_text())["records"]
    mig = {one["subject"]: one["measured"]["value"] for one in found if one["check"] == "gpu.mig"}
    assert [mig[f"gpu:mig-01/{number}"] for number in (5, 6, 7)] == ["off, off", "on, on", "on, on"]
    debug = json.loads((INVENTORY / ".dgx/nodes/debug-01.json").read_text())["records"]
    clocks = {one["measured"]["value"] for one in debug if one["check"] == "gpu.clock_sm"}
    assert clocks == {2100}
    assert not [one for one in debug if one["check"].startswith("ib.")]


def test_the_gate_holds_no_node_for_cables_that_it_does_not_have() -> None:
    run = playbook("admit_nodes", "-e", '{"gate_enabled": true}')
    assert run.rc == 0, run.why
    states = dict(line.split() for line in user("sinfo -h -N -p batch -o '%N %T'").splitlines())
    assert states["debug-01"] == "idle"
    assert states["mig-01"] == "idle"
