# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node freezes, a mount never answers: the run ends in the documented time, the others finish.

Without any setting of ssh that a site has not. The times are those of docs/operations.md.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from .conftest import CHECKOUT, POD, on, playbook
from .containers import in_place

FROZEN, HUNG = "dgx-02", "dgx-01"
# After these seconds, ssh gives a frozen node up, and a module a mount.
SSH_S, MOUNT_S = 75, 60
# A file system that takes requests and answers none; the process that holds it goes on.
HANGS = CHECKOUT / "tests" / "models" / "hung_mount.py"


def podman(*words: str) -> list[str]:
    """Return the command line that asks the podman of the pod: it has its own view of cgroups."""
    return [str(CHECKOUT / "virtual_pod" / "pod"), "podman", *words]


@pytest.fixture
def frozen() -> Iterator[str]:
    """Unfreeze the node at the end of the test."""
    try:
        yield FROZEN
    finally:
        subprocess.run(podman("unpause", f"{POD}-{FROZEN}"), check=False)


def test_a_frozen_node_is_unreachable_in_time_and_the_others_finish(frozen: str) -> None:
    begun = time.monotonic()
    alone = playbook("prepare_nodes", "--limit", f"all:!{frozen}")
    usual = time.monotonic() - begun
    assert alone.rc == 0, alone.why
    words = " ".join(podman("pause", f"{POD}-{frozen}"))
    begun = time.monotonic()
    # In the middle of a run, so that tasks of the node are under way.
    with subprocess.Popen(["sh", "-c", f"sleep 15; exec {words}"]) as later:
        run = playbook("prepare_nodes")
        assert later.wait(timeout=60) == 0
    assert time.monotonic() - begun < usual * 1.5 + 15 + SSH_S + 30, run.output[-3000:]
    assert run.rc != 0
    assert run.recap[frozen]["unreachable"] == 1, run.output[-3000:]
    others = {host: counts for host, counts in run.recap.items() if host != frozen}
    assert not [host for host, counts in others.items() if counts["failed"] + counts["unreachable"]]


@pytest.fixture
def hung() -> Iterator[str]:
    """Put a mount that never answers where images are to be."""
    script = HANGS.read_text(encoding="utf-8")
    on(HUNG, "mkdir -p /mnt/dead")
    on(HUNG, f"cat > /root/hung_mount.py <<'END'\n{script}\nEND")
    on(HUNG, "setsid python3 /root/hung_mount.py /mnt/dead > /dev/null 2>&1 < /dev/null & sleep 1")
    try:
        yield "/mnt/dead"
    finally:
        on(HUNG, "pkill -9 -F /run/hung_mount.pid; umount -l /mnt/dead")


def test_a_mount_that_never_answers_fails_its_node_by_name_and_no_other(
    hung: str, nodes: list[str]
) -> None:
    given = {"enroot_state": "present", "enroot_images_dir": f"{hung}/images"}
    with in_place(nodes):
        begun = time.monotonic()
        run = playbook("configure_containers", "-e", json.dumps(given))
        took = time.monotonic() - begun
    assert took < 2 * MOUNT_S + 300, run.output[-3000:]
    assert run.recap[HUNG]["failed"] == 1, run.output[-3000:]
    assert f"{hung} (fuse" in run.output
    assert "does not answer" in run.output
