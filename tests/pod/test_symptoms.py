# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five faults: from the first line seen, docs/troubleshooting.md leads to the repair.

In two steps: the table's entry for the line, and the section that it links to. Its commands are run
as they are there. What a technician does comes before the first playbook of the section.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from page_commands import ROOT, anchor, find_entry, section

from .commands import Shell
from .conftest import INVENTORY, on, playbook
from .containers import in_place
from .test_fabric import pretend as pretend_fabric
from .test_gate import until_ready
from .test_gpus import pretend as pretend_gpus

HEAD, LOGIN, NODE = "head-01", "login-01", "dgx-02"
PAGE = "troubleshooting.md"
PROGRAM = "/usr/local/libexec/baremetal-dgx/node-health"
GATE = INVENTORY / "group_vars" / "all" / "symptoms.yml"
# What an image needs to run `true`.
ROOT_OF_TRUE = """
rm -rf /srv/root
for file in /bin/true $(ldd /bin/true | grep -o '/[^ ]*'); do
  mkdir -p /srv/root$(dirname $file) && cp -L $file /srv/root$file || exit
done
"""
# A GPU's faults are seen without load.
QUICK = ("-e", json.dumps({"level": "quick", "again": True, "target": NODE}))


@pytest.fixture
def shell(tmp_path_factory: pytest.TempPathFactory, nodes: list[str]) -> Iterator[Shell]:
    """Where commands run; the gate is enabled meanwhile, and all nodes serve before and after."""
    settings: dict[str, object] = {"gate_enabled": True}
    GATE.write_text(json.dumps(settings), encoding="utf-8")
    serve(nodes)
    yield Shell(tmp_path_factory.mktemp("symptoms"))
    GATE.unlink()
    serve(nodes)


def serve(nodes: list[str]) -> None:
    for node in nodes:
        on(HEAD, f"scontrol update NodeName={node} State=UNDRAIN")
    until_ready(nodes)


def reasons() -> str:
    """Which nodes are out, as the page says to ask."""
    asked = "sinfo -R -o '%N %E'"
    assert f"`{asked}`" in (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    return on(HEAD, asked).stdout


def idle() -> bool:
    return "idle" in on(HEAD, f"sinfo -h -n {NODE} -o %t").stdout.split()


def wait_for(what: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, reasons()
        time.sleep(2)


def follow(shell: Shell, line: str, heading: str, repair: Callable[[], object]) -> None:
    """Look the line up, go where its entry leads, and run what is there."""
    entry = find_entry((ROOT / "docs" / PAGE).read_text(encoding="utf-8"), line)
    assert entry.heading == anchor(heading), f"{line} leads to {entry}"
    steps = section(PAGE, entry.heading)
    assert steps
    repaired = False
    for command, row in steps:
        if not repaired and command.text.startswith("ansible-playbook"):
            repair()
            repaired = True
        shell.check(command, row)


def nothing() -> None:
    """The section has the whole repair."""


def test_a_drained_node(shell: Shell) -> None:
    pretend_gpus("--fault", "ecc", "--node", NODE)
    try:
        assert playbook("validate_nodes", *QUICK).rc != 0
        assert playbook("admit_nodes").rc == 0
        (line,) = [one for one in reasons().splitlines() if NODE in one]
        follow(shell, line, "A node that a check drained", pretend_gpus)
        wait_for(idle, 60)
    finally:
        pretend_gpus()


def test_exchanged_cables(shell: Shell) -> None:
    pretend_fabric("--fault", "rail_swap")
    try:
        seen = playbook("validate_fabric")
        assert seen.rc != 0
        assert playbook("admit_nodes").rc == 0
        assert "dgx-01" in reasons()
        line = next(one for one in seen.output.splitlines() if ": 1 finding" in one)
        follow(shell, line, "A cable that is not as planned", pretend_fabric)
        wait_for(lambda: "dgx-01" not in reasons(), 60)
    finally:
        pretend_fabric()


def test_a_dead_slurmd(shell: Shell) -> None:
    on(NODE, "systemctl kill -s KILL slurmd; sleep 1; systemctl stop slurmd")
    try:
        # SlurmdTimeout, 300 s, and up to two rounds of slurmctld's questions, 100 s each.
        wait_for(lambda: NODE in reasons(), 600)
        (line,) = [one for one in reasons().splitlines() if NODE in one]
        follow(shell, line, "A dead slurmd", nothing)
        wait_for(idle, 60)
    finally:
        # Without it no test after this one has all nodes.
        on(NODE, "systemctl start slurmd")


@pytest.fixture
def scratch(nodes: list[str]) -> Iterator[None]:
    """Scratch of 100 MB on every node, which the health program watches."""
    for node in nodes:
        made = on(node, "mkdir -p /raid && mount -t tmpfs -o size=100m scratch /raid")
        assert made.returncode == 0, made.stderr
    disks = [{"path": "/raid", "free_mib": 64}]
    given = {"node_health_enabled": True, "node_health_disks": disks}
    done = playbook("configure_health", "-e", json.dumps(given))
    assert done.rc == 0, done.why
    yield
    done = playbook("configure_health", "-e", '{"node_health_enabled": false}')
    assert done.rc == 0, done.why
    for node in nodes:
        on(node, "umount /raid; rmdir /raid")


@pytest.mark.usefixtures("scratch")
def test_a_full_scratch(shell: Shell) -> None:
    on(NODE, "mkdir /raid/job-1042 && head -c 60000000 /dev/zero > /raid/job-1042/left")
    assert on(NODE, f"{PROGRAM} --health").returncode == 10
    (line,) = [one for one in reasons().splitlines() if NODE in one]
    follow(shell, line, "A full scratch", nothing)
    wait_for(idle, 60)


def test_a_missing_image(shell: Shell, nodes: list[str]) -> None:
    folder, image = "/shared/images", "pytorch.sqsh"
    images = [{"name": image, "uri": "dir:///srv/root"}]
    for host in (HEAD, LOGIN):
        assert on(host, ROOT_OF_TRUE).returncode == 0
    with in_place(nodes, enroot_images_dir=folder, enroot_images=images):
        on(HEAD, f"rm {folder}/{image}")
        user = f"su - alice -c 'srun --container-image={folder}/{image} true'"
        seen = on(LOGIN, user)
        assert seen.returncode != 0
        (line,) = [one for one in seen.stderr.splitlines() if image in one]
        follow(shell, line, "A missing image", nothing)
