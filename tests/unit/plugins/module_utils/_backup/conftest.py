# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real restic, and a real MariaDB with a small accounting database."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import (
    Database,
    Settings,
)

ROWS = 300


def job_state(number: int, protocol: int = 42 << 8) -> bytes:
    """The beginning of a job_state; 42 << 8 is 24.11."""
    word = b"PROTOCOL_VERSION\0"
    head = struct.pack("!I", len(word)) + word
    return head + struct.pack("!HQI", protocol, 1_700_000_000, number) + b"jobs"


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    """The program sets its own, which other tests must not inherit."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def real_tools() -> Iterator[None]:
    """Put CI's tools behind those of this machine."""
    tools = ROOT / ".ci" / "tools"
    if not tools.exists():
        pytest.skip("there is no .ci here")
    done = subprocess.run([tools], capture_output=True, text=True, check=True)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{before}:/usr/sbin:{done.stdout.strip()}"
    yield
    os.environ["PATH"] = before


@pytest.fixture(scope="session", name="server")
def the_server(tmp_path_factory: pytest.TempPathFactory, real_tools: None) -> Iterator[str]:
    """A MariaDB on a socket with accounting in it; the socket's path."""
    folder = tmp_path_factory.mktemp("mariadb")
    data, socket = folder / "data", folder / "s"
    data.mkdir()
    words = ["--user=root", "--skip-networking", "--skip-grant-tables"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            ["mariadbd", "--no-defaults", *words, f"--datadir={data}", f"--socket={socket}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    deadline = time.monotonic() + 60
    while not socket.exists():
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)
    rows = ",".join(f"({n},'it''s (\\'{n}), a\\nline;')" for n in range(1, ROWS + 1))
    sql(
        str(socket),
        "CREATE DATABASE slurm_acct_db; USE slurm_acct_db;"
        "CREATE TABLE demo_job_table (id_job INT PRIMARY KEY, name TEXT);"
        "CREATE TABLE `odd``name` (x BLOB); INSERT INTO `odd``name` VALUES (0x282927), (NULL);"
        f"CREATE TABLE empty_table (x INT); INSERT INTO demo_job_table VALUES {rows};",
    )
    yield str(socket)
    server.terminate()
    server.wait(30)


def sql(socket: str, text: str) -> str:
    """What the server answers."""
    return subprocess.run(
        ["mariadb", "--no-defaults", f"--socket={socket}", "-N"],
        input=text, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.fixture(name="settings")
def the_settings(tmp_path: Path) -> Settings:
    """A host with a controller alone."""
    state = tmp_path / "state"
    (state / "hash.1" / "job.11").mkdir(parents=True)
    (state / "job_state").write_bytes(job_state(11))
    (state / "node_state").write_bytes(b"nodes")
    (state / "hash.1" / "job.11" / "script").write_text("#!/bin/sh\n")
    key = tmp_path / "munge.key"
    key.write_text("secret")
    (tmp_path / "password").write_text("passphrase of the repository\n")
    (tmp_path / "work").mkdir()
    # The scratch server runs as another user, and pytest's folders are for their owner alone.
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o711)
    return Settings(
        cluster="demo",
        kinds=["controller"],
        repository=str(tmp_path / "repository"),
        password_file=str(tmp_path / "password"),
        metrics_file=str(tmp_path / "backup.prom"),
        keep={"last": 2},
        tidies=True,
        same_disk_ok=True,
        state_dir=str(state),
        secrets=[str(key), str(tmp_path / "not-there")],
        work_dir=str(tmp_path / "work"),
        limit_s=120,
        state_limit_s=2,
    )


@pytest.fixture(name="both")
def with_database(settings: Settings, server: str) -> Settings:
    """The same with the database."""
    database = Database("slurm_acct_db", socket=server)
    return replace(settings, kinds=["controller", "database"], database=database)
