# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real restic, and a real MariaDB with a small accounting database."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import ROOT
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import (
    Database,
    Settings,
)

ROWS = 300
PASSPHRASE = "passphrase of the repository"


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


def open_in_no_time(repository: Path) -> None:
    """Derive the key of the passphrase with the least work: else each call takes 0.4 s.

    restic's design: scrypt makes a key that encrypts (32 bytes), and one that signs (16 for AES,
    16 for Poly1305); what is encrypted lies between its IV and the signature, 16 bytes each.
    """
    (path,) = (repository / "keys").iterdir()
    key = json.loads(path.read_text())
    data = base64.b64decode(key["data"])
    start, hidden = data[:16], data[16:-16]

    def derived() -> bytes:
        salt = base64.b64decode(key["salt"])
        cost = {"n": key["N"], "r": key["r"], "p": key["p"]}
        return hashlib.scrypt(PASSPHRASE.encode(), salt=salt, **cost, maxmem=1 << 30, dklen=64)

    def turned(secret: bytes, text: bytes) -> bytes:
        return Cipher(algorithms.AES(secret[:32]), modes.CTR(start)).encryptor().update(text)

    def signature(secret: bytes, text: bytes) -> bytes:
        once = Cipher(algorithms.AES(secret[32:48]), modes.ECB()).encryptor().update(start)
        return Poly1305.generate_tag(secret[48:] + once, text)

    secret = derived()
    assert signature(secret, hidden) == data[-16:]
    plain = turned(secret, hidden)
    key.update(N=2, r=1, p=1)
    secret = derived()
    hidden = turned(secret, plain)
    signed = start + hidden + signature(secret, hidden)
    text = json.dumps({**key, "data": base64.b64encode(signed).decode()}).encode()
    path.unlink()
    path.with_name(hashlib.sha256(text).hexdigest()).write_bytes(text)


@pytest.fixture(scope="session", name="empty_repository")
def the_empty_repository(tmp_path_factory: pytest.TempPathFactory, real_tools: None) -> Path:
    """What `restic init` makes, but for the work of its key."""
    folder = tmp_path_factory.mktemp("restic")
    repository, word = folder / "repository", folder / "password"
    word.write_text(f"{PASSPHRASE}\n")
    words = ["-r", str(repository), "-p", str(word), "--no-cache"]
    subprocess.run(["restic", "init", "--quiet", *words], check=True)
    open_in_no_time(repository)
    return repository


@pytest.fixture(name="settings")
def with_repository(bare: Settings, empty_repository: Path) -> Settings:
    """A host with a controller alone, and an empty repository."""
    shutil.copytree(empty_repository, bare.repository)
    return bare


@pytest.fixture(name="bare")
def the_settings(tmp_path: Path) -> Settings:
    """The same before there is a repository."""
    state = tmp_path / "state"
    (state / "hash.1" / "job.11").mkdir(parents=True)
    (state / "job_state").write_bytes(job_state(11))
    (state / "node_state").write_bytes(b"nodes")
    (state / "hash.1" / "job.11" / "script").write_text("#!/bin/sh\n")
    key = tmp_path / "munge.key"
    key.write_text("secret")
    (tmp_path / "password").write_text(f"{PASSPHRASE}\n")
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
