# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dumps: whole or refused, and counted as the server counts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._backup import dump, work
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.repository import (
    UnansweredError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import (
    Database,
    Settings,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    CommandResult,
    ToolError,
    run,
)

from .conftest import ROWS, sql

TABLES = {"demo_job_table": ROWS, "empty_table": 0, "odd`name": 2}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (b"", {}),
        (b"CREATE TABLE `a` (\n  `x` int\n) ENGINE=InnoDB;\n", {"a": 0}),
        # MariaDB 10.6 and later have a line for each row, older ones and MySQL one line.
        (b"INSERT INTO `a` VALUES\n(1,'x'),\n(2,NULL);\nSET x = '(';\n", {"a": 2}),
        (b"INSERT INTO `a` VALUES (1,'x'),(2,0x28),(3,_binary '\\'(');\n(4)\n", {"a": 3}),
        (b"INSERT INTO `a` (`x`, `y`) VALUES (1,'(),;\\n'),(2,'it''s (');\n", {"a": 2}),
        (b"INSERT INTO `a` VALUES (1);\nINSERT INTO `a` VALUES (2);\n", {"a": 2}),
        (b"INSERT INTO `a` VALUES\n(1,'ends;'),\n(2,'\\\\');\n", {"a": 2}),
    ],
)
def test_rows(text: bytes, counts: dict[str, int]) -> None:
    assert dump.count_rows(text.splitlines(keepends=True)) == counts


def test_a_dump_is_counted_and_loads_as_it_was(server: str, settings: Settings) -> None:
    path = str(Path(settings.work_dir) / "dump.sql")
    dump.make(run, Database("slurm_acct_db", socket=server), path, 60)
    assert os.stat(path).st_mode & 0o077 == 0
    assert dump.count_dump(path) == TABLES
    loaded = dump.load_scratch(run, path, settings.work_dir, 60)
    assert loaded == TABLES
    assert os.listdir(settings.work_dir) == ["dump.sql"], "nothing is left of the scratch server"


def test_a_server_of_enterprise_linux_is_found(
    server: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path is /usr/libexec, which no PATH has."""
    path = str(Path(settings.work_dir) / "dump.sql")
    dump.make(run, Database("slurm_acct_db", socket=server), path, 60)
    folders = {name: tmp_path / name for name in ("bin", "libexec")}
    for name in ("sh", "timeout", "tail", "sleep", "mariadb", "mariadbd"):
        folder = folders["libexec" if name == "mariadbd" else "bin"]
        folder.mkdir(exist_ok=True)
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)

    def no_more(argv: Sequence[str], timeout_s: float = 0, env: object = None) -> CommandResult:
        done = subprocess.run(
            argv, env={"PATH": str(folders["bin"])}, timeout=timeout_s, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        return CommandResult(tuple(argv), ENDED, done.returncode, done.stdout, done.stderr)

    with pytest.raises(UnansweredError, match="mariadbd is not installed"):
        dump.load_scratch(no_more, path, settings.work_dir, 60)
    monkeypatch.setattr(dump, "_LIBEXEC", str(folders["libexec"]))
    assert dump.load_scratch(no_more, path, settings.work_dir, 60) == TABLES


def test_a_dump_that_was_cut(server: str, settings: Settings) -> None:
    """It loads without an error; its last line and the rows tell."""
    path = Path(settings.work_dir) / "dump.sql"
    dump.make(run, Database("slurm_acct_db", socket=server), str(path), 60)
    cut = path.read_bytes().partition(b"INSERT INTO `odd``name`")[0]
    path.write_bytes(cut + b"UNLOCK TABLES;\n")
    assert not dump.is_complete(str(path))
    loaded = dump.load_scratch(run, str(path), settings.work_dir, 60)
    assert dump.differing(TABLES, loaded) == ["odd`name: 0 of 2 rows"]
    path.write_bytes(cut + b"INSERT INTO nonsense")
    with pytest.raises(ToolError, match=r"does not load.*nonsense"):
        dump.load_scratch(run, str(path), settings.work_dir, 60)


@pytest.mark.parametrize(
    "reported",
    [
        "ERROR 1114 (HY000) at line 40: The table 'x' is full",
        "ERROR 2013 (HY000) at line 4: Lost connection to server\nthe scratch server ended with 9",
        'ERROR 1030 (HY000) at line 9: Got error 28 "No space left on device" from storage',
        "ERROR 3 (HY000) at line 9: Error writing file './x' (Errcode: 28 \"No space left\")",
        "scratch: 24: cannot create /w/data.asks: No space left on device",
    ],
)
def test_a_host_that_cannot_load_says_nothing_of_the_dump(reported: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.sql"
    path.write_text("")

    def full(argv: Sequence[str], timeout_s: float = 0, env: object = None) -> CommandResult:
        return CommandResult(tuple(argv), ENDED, 1, "", f"{reported}\n")

    with pytest.raises(UnansweredError, match="scratch server: "):
        dump.load_scratch(full, str(path), str(tmp_path), 60)


def test_a_dump_that_holds_the_words_of_a_full_disk(tmp_path: Path) -> None:
    """Names of jobs are their users'."""
    path = tmp_path / "dump.sql"
    path.write_text("")
    reported = (
        "ERROR 1064 (42000) at line 9: near '\n(1,'ERROR 1114 errno: 28'),\nNo space left on d"
    )

    def torn(argv: Sequence[str], timeout_s: float = 0, env: object = None) -> CommandResult:
        return CommandResult(tuple(argv), ENDED, 1, "", reported)

    with pytest.raises(ToolError, match="does not load"):
        dump.load_scratch(torn, str(path), str(tmp_path), 60)


def test_no_server_is_started_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dump.sql"
    path.write_bytes(b"x" * 1000)
    asked: list[int] = []

    def full(_folder: str, size: int, _what: str) -> None:
        asked.append(size)
        raise UnansweredError("full")

    def never(argv: Sequence[str], timeout_s: float = 0, env: object = None) -> CommandResult:
        raise AssertionError(argv)

    monkeypatch.setattr(work, "require_room", full)
    with pytest.raises(UnansweredError, match="full"):
        dump.load_scratch(never, str(path), str(tmp_path), 60)
    assert asked[0] > 2000
    assert os.listdir(tmp_path) == ["dump.sql"]


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"mariadb-dump: .*socket"):
        dump.make(run, Database("x", socket=str(tmp_path / "no")), str(tmp_path / "dump"), 20)


def test_no_lock_is_taken(server: str, settings: Settings) -> None:
    """While another connection writes, the dump is of one moment, and the writer is not held."""
    path = str(Path(settings.work_dir) / "dump.sql")
    held = subprocess.Popen(
        ["mariadb", "--no-defaults", f"--socket={server}", "-nN", "slurm_acct_db"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert held.stdin is not None
    assert held.stdout is not None
    held.stdin.write("BEGIN; INSERT INTO empty_table VALUES (1); SELECT 'open';\n")
    held.stdin.flush()
    assert held.stdout.readline() == "open\n"
    dump.make(run, Database("slurm_acct_db", socket=server), path, 20)
    held.communicate("ROLLBACK;\n", timeout=20)
    assert dump.count_dump(path) == TABLES


def test_loading_into_a_live_database(server: str, settings: Settings) -> None:
    path = str(Path(settings.work_dir) / "dump.sql")
    dump.make(run, Database("slurm_acct_db", socket=server), path, 60)
    sql(server, "CREATE DATABASE other")
    other = Database("other", socket=server)
    dump.load(run, other, path, 60)
    assert dump.ask(run, other, "SELECT MAX(id_job) FROM other.demo_job_table") == [[str(ROWS)]]
    sql(server, "DROP DATABASE other")


def test_words_of_a_remote_server_have_no_password() -> None:
    remote = Database("d", host="db-01", user="slurm", password_file="/etc/x")
    assert dump.connection(remote)[0] == "--defaults-extra-file=/etc/x", "it must come first"
    assert not any("password" in word for word in dump.connection(remote))


def test_counts_of_the_scratch_server() -> None:
    assert dump.parse_counts("job_table\t300\nuser_table\t2\n") == {
        "job_table": 300,
        "user_table": 2,
    }
    with pytest.raises(ToolError, match="printed 'job_table'"):
        dump.parse_counts("job_table\n")
