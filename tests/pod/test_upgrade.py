# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rolling upgrade under a stream of jobs: none is lost, the floor holds, a failure stops it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .conftest import INVENTORY, Run, on, playbook
from .test_gate import node, scontrol, until_ready
from .test_gpus import pretend
from .test_operations import job_of_alice

HEAD = "head-01"
NAME = "pod-test"
STAMP = "/var/lib/pod-upgrade"
FLOOR = 2
# It upgrades a file, and breaks a GPU of the node that the file `breaks` on the controller names.
CHANGE = [
    {
        "hosts": "{{ target }}",
        "gather_facts": False,
        "tasks": [
            {
                "name": "See that no job runs here",
                # Not slurmd's own `slurmstepd infinity`.
                "ansible.builtin.command": {"argv": ["pgrep", "-f", "^slurmstepd: [[]"]},
                "register": "steps",
                "changed_when": False,
                "failed_when": "steps.rc != 1",
            },
            {
                "name": "Change the node",
                "ansible.builtin.shell": {"cmd": f"echo upgraded >> {STAMP}"},
                "changed_when": True,
            },
            {
                "name": "Break it",
                "ansible.builtin.command": {
                    "argv": ["/usr/local/lib/simulated-hardware/inject", "nvlink_down"]
                },
                "changed_when": True,
                "when": "breaks == inventory_hostname",
                "vars": {
                    "breaks": "{{ lookup('ansible.builtin.file', playbook_dir ~ '/breaks') }}"
                },
            },
        ],
    }
]


class Stream:
    """Submits a short job every few seconds, and watches how many nodes serve."""

    def __init__(self, nodes: list[str]) -> None:
        self.jobs: list[str] = []
        self.serving: list[int] = []
        self._nodes = nodes
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._submit, self._watch)]

    def _submit(self) -> None:
        while not self._over.is_set():
            self.jobs.append(job_of_alice("sleep 8", "-N1", "--gres=gpu:1"))
            self._over.wait(3)

    def _watch(self) -> None:
        while not self._over.is_set():
            shown = on(HEAD, "scontrol show node -o").stdout.splitlines()
            states = [line.partition(" State=")[2].split(" ")[0] for line in shown]
            self.serving.append(sum("DRAIN" not in one and "DOWN" not in one for one in states))
            self._over.wait(1)

    def __enter__(self) -> Stream:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_how: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def outcomes(self) -> dict[str, list[str]]:
        """Return the jobs by how they ended, once all have; a requeued one ended twice."""
        deadline = time.monotonic() + 180
        while True:
            text = on(HEAD, f"sacct -nXPD -j {','.join(self.jobs)} -o JobID,State").stdout
            found: dict[str, list[str]] = {}
            for line in text.splitlines():
                job, state = line.split("|")
                found.setdefault(state, []).append(job)
            if not {"PENDING", "RUNNING", "COMPLETING"} & set(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(2)


@pytest.fixture
def upgrade(tmp_path: Path, nodes: list[str]) -> Iterator[Path]:
    """A folder with the upgrade; afterwards the nodes are as they were."""
    pretend()
    for name in nodes:
        scontrol(f"NodeName={name}", "State=UNDRAIN")
        on(name, f"rm -f {STAMP}")
    until_ready(nodes)
    (tmp_path / "change.yml").write_text(yaml.safe_dump(CHANGE))
    (tmp_path / "breaks").write_text("")
    path = INVENTORY / ".dgx" / "upgrade" / f"{NAME}.json"
    path.unlink(missing_ok=True)
    yield tmp_path
    pretend()
    path.unlink(missing_ok=True)
    for name in nodes:
        scontrol(f"NodeName={name}", "State=UNDRAIN")
        on(name, f"rm -f {STAMP}")
    until_ready(nodes)


def run(folder: Path, *arguments: str) -> Run:
    given = {
        "upgrade": str(folder / "change.yml"),
        "upgrade_name": NAME,
        "upgrade_batch": 2,
        "upgrade_in_service": FLOOR,
        "upgrade_level": "quick",
        "upgrade_wait_s": 300,
    }
    return playbook("upgrade_nodes", "-e", json.dumps(given), *arguments, seconds=1800)


def upgraded(names: list[str]) -> dict[str, int]:
    """Return how often each node was changed."""
    return {name: on(name, f"cat {STAMP} 2>/dev/null").stdout.count("upgraded") for name in names}


def test_no_job_is_lost_the_floor_holds_and_a_failure_stops_it(
    upgrade: Path, nodes: list[str]
) -> None:
    first, broken, last = nodes[0], nodes[1], nodes[-1]
    shown = run(upgrade, "--check")
    assert shown.rc == 0, shown.output
    assert f"{nodes[1]}, {nodes[2]}" in shown.output
    assert set(upgraded(nodes).values()) == {0}
    (upgrade / "breaks").write_text(broken)
    with Stream(nodes) as stream:
        stopped = run(upgrade)
        assert stopped.rc != 0
        assert f"{broken} did not pass" in stopped.output, stopped.output
        assert f"Reason=dgx-upgrade: {NAME}" in node(broken)
        assert "DRAIN" not in node(first)
        # The neighbour in its batch passed and is back; what comes after was not touched.
        assert "DRAIN" not in node(nodes[2])
        assert upgraded(nodes)[last] == 0
        # Repaired, the same command continues where it stopped.
        (upgrade / "breaks").write_text("")
        pretend()
        went_on = run(upgrade)
        assert went_on.rc == 0, went_on.output
    counts = upgraded(nodes)
    assert counts.pop(broken) == 2
    assert set(counts.values()) == {1}
    assert all("DRAIN" not in node(name) for name in nodes)
    assert min(stream.serving) >= FLOOR, stream.serving
    ended = stream.outcomes()
    assert {state: sorted(jobs) for state, jobs in ended.items()} == {
        "COMPLETED": sorted(stream.jobs)
    }
    assert len(stream.jobs) > 10
    # Once done it does nothing again, and does not end well.
    again = run(upgrade)
    assert again.rc != 0
    assert "no node is left to upgrade" in again.output
    assert upgraded(nodes)[first] == 1


def test_what_an_operator_drained_is_left_alone(upgrade: Path, nodes: list[str]) -> None:
    mine = nodes[0]
    scontrol(f"NodeName={mine}", "State=DRAIN", "Reason=broken fan")
    done = run(upgrade)
    assert done.rc == 0, done.output
    assert f"{mine} is left alone: drained by root: broken fan" in done.output
    assert "Reason=broken fan" in node(mine)
    assert upgraded(nodes)[mine] == 0
