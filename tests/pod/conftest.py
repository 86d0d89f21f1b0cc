# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the collection's playbooks against a running pod, as an operator would.

POD names the pod (virtual_pod/pod up --name POD; virtual_pod/pod inventory --name POD).
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
POD = os.environ.get("POD", "demo")
STATE = CHECKOUT / ".pod" / POD
INVENTORY = STATE / "inventory"


@dataclass(frozen=True)
class Run:
    """One ansible-playbook call: its exit status, its text, and the recap's counts per host."""

    rc: int
    output: str
    recap: dict[str, dict[str, int]]

    @property
    def changed(self) -> dict[str, int]:
        """Return the changed tasks of every host."""
        return {host: counts["changed"] for host, counts in self.recap.items()}

    def tasks(self, outcomes: str) -> str:
        """Return the tasks with these outcomes (a pattern), each with its output."""
        found, task, lines = [], "", self.output.splitlines()
        for number, line in enumerate(lines):
            if line.startswith(("TASK [", "RUNNING HANDLER [")):
                task = line.rstrip(" *")
            elif re.match(rf"({outcomes}): \[", line):
                reported = lines[number : number + (40 if line.endswith("=> {") else 1)]
                found += [task, "\n".join(reported)[:2000]]
        return "\n".join(dict.fromkeys(found))

    @property
    def why(self) -> str:
        """Return the failed tasks with their output; the end of the output when none failed."""
        return self.tasks("fatal|failed") or self.output[-3000:]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a failure at once: the stage takes hours, and pytest shows failures at its end."""
    report = yield
    terminal = item.config.pluginmanager.get_plugin("terminalreporter")
    if report.failed and terminal is not None:
        terminal.write_line(f"\n{report.longreprtext}")
    return report


def environment() -> dict[str, str]:
    """Return what ansible-playbook needs to find the collection in this checkout.

    Not the caller's settings: molecule has results written as YAML, which tests do not read.
    """
    return {
        **{name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".cache" / "collections"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_FORKS": "10",
        "ANSIBLE_NOCOLOR": "1",
    }


def command(name: str, *arguments: str) -> list[str]:
    """Return the command line of a playbook of the collection."""
    return ["ansible-playbook", f"baremetal.dgx.{name}", "-i", str(INVENTORY), *arguments]


def playbook(name: str, *arguments: str, seconds: float = 900) -> Run:
    """Run a playbook of the collection to its end."""
    done = subprocess.run(
        command(name, *arguments),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Run(done.returncode, done.stdout, recap(done.stdout))


def assert_no_secret(output: str) -> None:
    """No secret that the runs made is in this output, nor a line of one that has several."""
    secrets = {
        path.name: path.read_text(encoding="utf-8").strip()
        for path in (INVENTORY / ".dgx" / "secrets").glob("*")
    }
    assert secrets, "the run made no secrets, so this test would prove nothing"
    for name, secret in secrets.items():
        lines = [line for line in secret.splitlines() if len(line) > 7 and line[:5] != "-----"]
        # not the secret itself in the message
        assert not any(line in output for line in lines), f"the secret {name} is in the output"


def recap(output: str) -> dict[str, dict[str, int]]:
    """Return host → counter → number from the PLAY RECAP at the end of the output."""
    tail = output.rpartition("PLAY RECAP")[2]
    lines = re.findall(r"^(\S+)\s+: (ok=.*)$", tail, re.MULTILINE)
    return {
        host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", text)}
        for host, text in lines
    }


def pod(*arguments: str, seconds: float = 900) -> str:
    """Run virtual_pod/pod; return what it prints."""
    done = subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def on(node: str, script: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a shell script as root on a node, whether or not its sshd would let us in."""
    return subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), "exec", "--name", POD, node, "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(1)


def services(node: str) -> dict[str, str]:
    """Return unit → InvocationID of the cluster's daemons; only a start or restart changes it."""
    units = "munge slurmctld slurmdbd slurmd mariadb ssh sackd"
    out = on(node, f"systemctl show -p Id -p InvocationID {units}").stdout
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines())
        for block in out.strip().split("\n\n")
    ]
    return {block["Id"]: block["InvocationID"] for block in blocks if block.get("InvocationID")}


@pytest.fixture(scope="session")
def nodes() -> list[str]:
    """Return the names of the pod's DGX nodes."""
    listed = subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), "status", "--name", POD],
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(set(re.findall(r"\bdgx-\d+\b", listed.stdout)))


@pytest.fixture(scope="session")
def people() -> Iterator[Path]:
    """Return the state of a pod with a directory of people."""
    from .people import boot

    yield from boot()
