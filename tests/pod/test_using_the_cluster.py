# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/using_the_cluster.md tells researchers, done with their own SSH client."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from .conftest import STATE, on, playbook

HEAD, LOGIN, NODE = "head-01", "login-01", "dgx-01"


def ssh(*arguments: str, user: str = "alice", seconds: float = 60):
    """Run ssh as on a laptop."""
    return subprocess.run(
        # the pod keeps ssh silent, and so would not show the refusal
        ["ssh", "-oLogLevel=INFO", "-F", str(STATE / "ssh_config"), "-l", user, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


@pytest.fixture
def job() -> Iterator[str]:
    """An allocation of alice's on the node, made as the page says."""
    made = ssh(LOGIN, f"salloc --no-shell --gres=gpu:1 --time=10 -w {NODE} --job-name=work")
    number = made.stderr.split("Granted job allocation ")[-1].split()[0]
    assert number.isdigit(), made.stderr
    yield number
    on(HEAD, f"scancel {number}")


def test_no_job_no_entry() -> None:
    refused = ssh(NODE, "true", user="bob")
    assert refused.returncode != 0
    assert "Access denied by pam_slurm_adopt" in refused.stderr


def test_a_login_lands_in_the_job_and_ends_with_it(job: str) -> None:
    result = ssh(NODE, "cat /proc/self/cgroup")
    assert f"job_{job}/" in result.stdout, result.stdout + result.stderr
    # an editor's server: it stays when the connection goes, and goes when the job does
    left = ssh(NODE, "nohup sleep 987 > /dev/null 2>&1 & echo started")
    assert left.stdout.strip() == "started"
    assert on(NODE, "pgrep -x -a sleep").stdout.count("sleep 987") == 1
    ssh(LOGIN, f"scancel {job}")
    deadline = time.monotonic() + 60
    while "sleep 987" in on(NODE, "pgrep -x -a sleep").stdout:
        assert time.monotonic() < deadline, "the server outlived the job"
        time.sleep(1)


def test_a_port_of_the_job_is_forwarded(job: str) -> None:
    assert job
    port, here = 8000 + 2001 % 1000, free_port()
    serve = f"cd /etc && exec python3 -m http.server --bind 127.0.0.1 {port}"
    forward = f"-L127.0.0.1:{here}:localhost:{port}"
    command = ["ssh", "-F", str(STATE / "ssh_config"), "-l", "alice", "-tt", forward, NODE, serve]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as client:
        try:
            assert NODE in read_hostname(here)
            # not from the network
            address = on(NODE, "hostname -I").stdout.split()[0]
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((address, port), timeout=5)
        finally:
            client.terminate()


def read_hostname(port: int) -> str:
    """Return /etc/hostname as the program on the node serves it."""
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as line:
            line.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: line.recv(4096), b"")).decode()
            if "200 OK" in text:
                return text
        assert time.monotonic() < deadline, "nothing was forwarded"
        time.sleep(1)


def test_banner_and_defaults_of_a_shell() -> None:
    done = playbook("configure_logins")
    assert done.rc == 0, done.output
    again = playbook("configure_logins")
    assert set(again.changed.values()) == {0}, again.output
    shown = ssh("-tt", LOGIN, "bash -lic true")
    assert "nodes" in shown.stdout, shown.stdout
    assert "in service of" in shown.stdout
    # what would break scp and editors
    assert ssh(LOGIN, "bash -lc 'echo only this'").stdout == "only this\n"


def test_a_login_never_waits_for_slurm() -> None:
    on(HEAD, "systemctl stop slurmctld")
    try:
        started = time.monotonic()
        shown = ssh("-tt", LOGIN, "bash -lic true")
        assert time.monotonic() - started < 10
        assert "in service of" in shown.stdout or "not known" in shown.stdout
        text = "/run/baremetal-dgx-cluster-state/text"
        on(LOGIN, f"systemctl stop baremetal-dgx-cluster-state.timer; touch -d -1hour {text}")
        assert "is not known" in ssh("-tt", LOGIN, "bash -lic true").stdout
    finally:
        on(LOGIN, "systemctl start baremetal-dgx-cluster-state.timer")
        on(HEAD, "systemctl start slurmctld")
