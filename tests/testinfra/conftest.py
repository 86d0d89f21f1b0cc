# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reach the nodes of a pod as an operator or as a user would: over SSH.

POD names the pod, whose state is in .pod/POD/ (virtual_pod/pod writes ssh_config there).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import testinfra
from testinfra.host import Host

POD = os.environ.get("POD", "demo")
STATE = Path(__file__).resolve().parents[2] / ".pod" / POD


def node(name: str, user: str = "root") -> Host:
    """Return the node as testinfra sees it, logged in as `user`."""
    return testinfra.get_host(f"ssh://{user}@{name}", ssh_config=str(STATE / "ssh_config"))


def dgx_nodes() -> list[str]:
    """Return the names of the pod's DGX nodes that run now."""
    names = (STATE / "ssh_config").read_text(encoding="utf-8").split()
    return sorted({name for name in names if name.startswith("dgx-")})


def ssh(
    name: str, user: str, command: str, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run one command over a new SSH login, so that PAM decides about it."""
    return subprocess.run(
        [
            "ssh",
            "-F",
            str(STATE / "ssh_config"),
            "-o",
            "ControlPath=none",
            f"{user}@{name}",
            command,
        ],
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def eventually(question: Callable[[], bool], seconds: float = 60, what: str = "") -> None:
    """Ask until the answer is yes; Slurm's records arrive some seconds late."""
    deadline = time.monotonic() + seconds
    while not question():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {what or question.__name__}")
        time.sleep(1)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Print the daemons' logs when a test fails."""
    report = (yield).get_result()
    if report.when == "call" and report.failed and (STATE / "ssh_config").exists():
        for name in ("head-01", *dgx_nodes()[:1]):
            journal = ssh(
                name, "root", "journalctl -n 25 --no-pager -u 'slurm*' -u munge -u mariadb"
            )
            report.sections.append((f"journal of {name}", journal.stdout))
