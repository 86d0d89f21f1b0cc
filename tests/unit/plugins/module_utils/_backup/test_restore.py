# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy comes back: never over what is there without consent, and the same the second time."""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import shutil
import subprocess
import time
import traceback
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._backup import (
    dump,
    jobs,
    main,
    restore,
    work,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import (
    Database,
    Settings,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.lock import BusyError, host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError, run
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import saved_queue
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.saved_queue import Queued

from .conftest import job_state, sql

NEVER = float(1 << 36)


@pytest.fixture(autouse=True)
def slurm_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine of CI has Slurm's user."""
    entry, real = namedtuple("entry", "pw_uid pw_gid"), pwd.getpwnam

    def found(name: str) -> object:
        return entry(os.getuid(), os.getgid()) if name == "slurm" else real(name)

    monkeypatch.setattr(pwd, "getpwnam", found)


def fetch(settings: Settings, kind: str, version: str = "24.11") -> dict[str, object]:
    """Fetch the newest copy."""
    return restore.fetch(settings, run, kind, NEVER, version, check=False)


def test_the_queue_comes_back(settings: Settings) -> None:
    main.make_copies(settings, run)
    state = Path(settings.state_dir)
    state.rename(f"{state}-lost")
    if os.geteuid() == 0:
        # As /var/lib/slurm, which belongs to Slurm's user.
        settings = replace(settings, state_dir=str(state.parent / "slurm" / "slurmctld"))
        state = Path(settings.state_dir)
        state.parent.mkdir()
        os.chown(state.parent, 65534, 65534)
    seen = restore.look(settings, run, "controller", NEVER, False)
    assert (seen["there"], seen["done"], seen["job"]) == (False, False, 11)
    dry = restore.fetch(settings, run, "controller", NEVER, "24.11", check=True)
    assert dry["changed"]
    assert restore.place(settings, run, "controller", NEVER, False, check=True)["changed"]
    assert not Path(settings.work_dir, "restored").exists()
    with pytest.raises(ToolError, match="was not fetched"):
        restore.place(settings, run, "controller", NEVER, False, check=False)
    found = fetch(settings, "controller")
    assert (found["changed"], found["next_job"], found["release"]) == (True, 11, "24.11")
    assert list(found["files"]) == settings.secrets[:1]  # type: ignore[call-overload]
    assert not fetch(settings, "controller")["changed"], "it is there already"
    placed = restore.place(settings, run, "controller", NEVER, False, check=False)
    assert placed == {"changed": True, "kept": ""}
    assert (state / "hash.1/job.11/script").read_text() == "#!/bin/sh\n"
    assert state.stat().st_mode & 0o777 == 0o700
    again = restore.place(settings, run, "controller", NEVER, False, check=False)
    assert again == {"changed": False, "kept": ""}
    assert restore.look(settings, run, "controller", NEVER, True)["done"], "of the same copy"
    # It is lost again.
    shutil.rmtree(state)
    assert not restore.look(settings, run, "controller", NEVER, False)["done"]
    fetch(settings, "controller")
    assert restore.place(settings, run, "controller", NEVER, False, check=False)["changed"]
    assert (state / "job_state").read_bytes() == job_state(11)


def test_another_copy_replaces_by_consent_what_was_restored(settings: Settings) -> None:
    main.make_copies(settings, run)
    (first,) = restore.Repository(settings, run).snapshots()
    state = Path(settings.state_dir, "job_state")
    time.sleep(max(0, first.at_s + 1 - time.time()))  # a copy's time has whole seconds
    state.write_bytes(job_state(12))
    main.make_copies(settings, run)
    shutil.rmtree(settings.state_dir)
    restore.fetch(settings, run, "controller", first.at_s, "", check=False)
    restore.place(settings, run, "controller", first.at_s, False, check=False)
    assert state.read_bytes() == job_state(11)
    fetch(settings, "controller")
    assert not restore.place(settings, run, "controller", NEVER, False, check=False)["changed"]
    kept = restore.place(settings, run, "controller", NEVER, True, check=False)["kept"]
    assert state.read_bytes() == job_state(12)
    assert Path(kept, "job_state").read_bytes() == job_state(11)


def once(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> None:
    """Let the first call of a function fail, as on a full disk."""
    real: Callable[..., object] = getattr(where, name)

    def failing(*_words: object) -> None:
        monkeypatch.setattr(where, name, real)
        raise OSError("full")

    monkeypatch.setattr(where, name, failing)


def test_a_queue_that_was_not_kept_yet_is_not_replaced(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    main.make_copies(settings, run)
    state = Path(settings.state_dir, "job_state")
    state.write_bytes(job_state(2))
    fetch(settings, "controller")
    once(monkeypatch, restore, "copy_tree")
    with pytest.raises(OSError, match="full"):
        restore.place(settings, run, "controller", NEVER, True, check=False)
    with pytest.raises(ToolError, match="consent"):
        restore.place(settings, run, "controller", NEVER, False, check=False)
    kept = restore.place(settings, run, "controller", NEVER, True, check=False)["kept"]
    assert Path(kept, "job_state").read_bytes() == job_state(2)


def test_a_database_that_was_not_kept_yet_is_not_replaced(
    both: Settings, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main.make_copies(both, run)
    (tmp_path / "data" / "live").mkdir(parents=True)
    (tmp_path / "data" / "live" / "x.ibd").write_text("")
    sql(server, "CREATE DATABASE live; CREATE TABLE live.newer (x INT)")
    live = replace(both, database=Database("live", socket=server), data_dir=str(tmp_path / "data"))
    fetch(live, "database", "")
    once(monkeypatch, dump, "make")
    with pytest.raises(OSError, match="full"):
        restore.place(live, run, "database", NEVER, True, check=False)
    with pytest.raises(ToolError, match="consent"):
        restore.place(live, run, "database", NEVER, False, check=False)
    # From here on it is kept.
    once(monkeypatch, dump, "load")
    with pytest.raises(OSError, match="full"):
        restore.place(live, run, "database", NEVER, True, check=False)
    (kept,) = Path(live.work_dir).glob("replaced-database-*.sql")
    assert "CREATE TABLE `newer`" in kept.read_text()
    assert restore.place(live, run, "database", NEVER, False, check=False)["changed"]
    sql(server, "DROP DATABASE live")


def test_nothing_is_copied_before_a_restore_is_over(settings: Settings) -> None:
    """Half of a database would be the newest copy, which the next run would restore."""
    work.mark(settings, "controller", "abc", is_done=False)
    (problem,) = main.make_copies(settings, run)
    assert problem.startswith("controller: a restore is not over")
    assert restore.Repository(settings, run).snapshots() == []
    work.mark(settings, "controller", "abc", is_done=True)
    assert main.make_copies(settings, run) == []


def test_nothing_is_restored_while_a_copy_is_made(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    main.make_copies(settings, run)
    shutil.rmtree(settings.state_dir)
    monkeypatch.setattr(work, "_LOCK_S", 0)
    with host_lock("cluster-backup", 60):
        with pytest.raises(BusyError, match="holds the lock cluster-backup"):
            fetch(settings, "controller")
        with pytest.raises(BusyError, match="holds the lock cluster-backup"):
            restore.place(settings, run, "controller", NEVER, False, check=False)
        # A dry run changes nothing, and does not wait.
        assert restore.place(settings, run, "controller", NEVER, False, check=True)["changed"]


def test_a_queue_that_is_there_is_replaced_by_consent_and_kept(settings: Settings) -> None:
    main.make_copies(settings, run)
    Path(settings.state_dir, "job_state").write_bytes(job_state(2))
    fetch(settings, "controller")
    with pytest.raises(ToolError, match=r"consent is restore_over=\[controller\]"):
        restore.place(settings, run, "controller", NEVER, False, check=False)
    placed = restore.place(settings, run, "controller", NEVER, True, check=False)
    assert Path(settings.state_dir, "job_state").read_bytes() == job_state(11)
    assert Path(placed["kept"], "job_state").read_bytes() == job_state(2)


@pytest.mark.parametrize(
    ("version", "message"),
    [("22.05", "goes from 24.11 back to 22.05"), ("27.05", "is not known here"), ("26.05", "")],
)
def test_releases(settings: Settings, version: str, message: str) -> None:
    main.make_copies(settings, run)
    if not message:
        assert fetch(settings, "controller", version)["changed"]
        return
    with pytest.raises(ToolError, match=message):
        fetch(settings, "controller", version)


def test_what_no_role_writes_comes_back_as_it_was(settings: Settings, tmp_path: Path) -> None:
    known = tmp_path / "gate" / "known.json"
    known.parent.mkdir()
    known.write_text("{}")
    known.chmod(0o644)
    own = replace(settings, secrets=[*settings.secrets, str(known)])
    main.make_copies(own, run)
    known.unlink()
    Path(settings.secrets[0]).write_text("newer")
    fetch(own, "controller")
    assert (known.read_text(), known.stat().st_mode & 0o777) == ("{}", 0o644)
    assert Path(settings.secrets[0]).read_text() == "newer", "never over a file"


def test_what_no_role_writes_comes_back_after_a_run_that_was_killed_before(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "known.json"
    known.write_text("{}")
    own = replace(settings, secrets=[str(known)])
    main.make_copies(own, run)
    known.unlink()
    once(monkeypatch, restore, "_place_files")
    with pytest.raises(OSError, match="full"):
        fetch(own, "controller")
    fetch(own, "controller")
    assert known.read_text() == "{}"


def test_an_older_copy(settings: Settings) -> None:
    main.make_copies(settings, run)
    (first,) = restore.Repository(settings, run).snapshots()
    time.sleep(max(0, first.at_s + 1 - time.time()))  # a copy's time has whole seconds
    Path(settings.state_dir, "job_state").write_bytes(job_state(12))
    main.make_copies(settings, run)
    assert restore.choose(settings, run, "controller", NEVER).job == 12
    assert restore.choose(settings, run, "controller", first.at_s).job == 11
    with pytest.raises(ToolError, match="no copy of the controller until"):
        restore.choose(settings, run, "controller", first.at_s - 1)


def test_the_database_comes_back(both: Settings, server: str, tmp_path: Path) -> None:
    main.make_copies(both, run)
    sql(server, "CREATE DATABASE lost")
    data = tmp_path / "data"
    (data / "lost").mkdir(parents=True)
    (data / "lost" / "db.opt").write_text("")
    lost = replace(both, database=Database("lost", socket=server), data_dir=str(data))
    assert not restore.look(lost, run, "database", NEVER, False)["there"], "it was only created"
    fetch(lost, "database", "")
    placed = restore.place(lost, run, "database", NEVER, False, check=False)
    assert placed["changed"]
    assert sql(server, "SELECT MAX(id_job) FROM lost.demo_job_table") == "300\n"
    (data / "lost" / "demo_job_table.ibd").write_text("")
    assert not restore.place(lost, run, "database", NEVER, False, check=False)["changed"]
    # A run that was killed while it loaded is done again, without consent.
    marks = Path(lost.work_dir, "restored.json")
    known = json.loads(marks.read_text())
    known["database"]["done"] = False
    marks.write_text(json.dumps(known))
    sql(server, "DROP TABLE lost.demo_job_table")
    fetch(lost, "database", "")
    assert restore.place(lost, run, "database", NEVER, False, check=False)["changed"]
    assert sql(server, "SELECT COUNT(*) FROM lost.demo_job_table") == "300\n"
    # What is there is dumped before it is replaced.
    marks.unlink()
    fetch(lost, "database", "")
    with pytest.raises(ToolError, match="consent"):
        restore.place(lost, run, "database", NEVER, False, check=False)
    kept = restore.place(lost, run, "database", NEVER, True, check=False)["kept"]
    assert Path(kept).read_text().count("CREATE TABLE") == 3
    sql(server, "DROP DATABASE lost")


@pytest.mark.parametrize("name", ["slurm-acct", "elsewhere"])
def test_a_living_database_is_found_wherever_its_data_are(
    both: Settings, server: str, tmp_path: Path, name: str
) -> None:
    """MariaDB calls the first one's folder slurm@002dacct, and no other is in `data_dir`."""
    main.make_copies(both, run)
    sql(server, f"CREATE DATABASE `{name}`; CREATE TABLE `{name}`.newer (x INT)")
    data = tmp_path / "data"
    live = replace(both, database=Database(name, socket=server), data_dir=str(data))
    assert restore.look(live, run, "database", NEVER, False)["there"]
    fetch(live, "database", "")
    with pytest.raises(ToolError, match="consent"):
        restore.place(live, run, "database", NEVER, False, check=False)
    kept = restore.place(live, run, "database", NEVER, True, check=False)["kept"]
    assert "CREATE TABLE `newer`" in Path(kept).read_text()
    sql(server, f"DROP DATABASE `{name}`")


def test_a_database_whose_server_is_stopped(
    both: Settings, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder says that it is there; before anything is dropped, its server does."""
    main.make_copies(both, run)
    sql(server, "CREATE DATABASE `at-rest`; CREATE TABLE `at-rest`.newer (x INT)")
    data = tmp_path / "data"
    rest = replace(
        both, database=Database("at-rest", socket=str(tmp_path / "no")), data_dir=str(data)
    )
    assert not restore.look(rest, run, "database", NEVER, False)["there"]
    folder = data / "at@002drest"
    folder.mkdir(parents=True)
    assert (Path(server).parent / "data" / folder.name).is_dir(), "so MariaDB calls it"
    (folder / "newer.ibd").write_text("")
    assert restore.look(rest, run, "database", NEVER, False)["there"]
    # A server that restarts at this moment, with its data elsewhere.
    (folder / "newer.ibd").unlink()
    fetch(rest, "database", "")
    with pytest.raises(ToolError, match="socket"):
        restore.place(rest, run, "database", NEVER, False, check=False)
    assert work.marks(rest) == {}, "or the next run needs no consent"
    assert restore.place(rest, run, "database", NEVER, False, check=True)["changed"]
    back = replace(rest, database=Database("at-rest", socket=server))
    monkeypatch.setattr(dump, "answers", lambda _database: False)
    with pytest.raises(ToolError, match="consent"):
        restore.place(back, run, "database", NEVER, False, check=False)
    sql(server, "DROP DATABASE `at-rest`")


def apart(inside: Callable[[], None]) -> None:
    """Do something in a user and a mount namespace, where its root may mount."""
    ids = (os.geteuid(), os.getegid())
    child = os.fork()
    if not child:
        code = 1
        try:
            # CLONE_NEWUSER | CLONE_NEWNS
            if ctypes.CDLL(None).unshare(0x10000000 | 0x00020000):
                code = 3
            else:
                Path("/proc/self/setgroups").write_text("deny")
                Path("/proc/self/uid_map").write_text(f"0 {ids[0]} 1")
                Path("/proc/self/gid_map").write_text(f"0 {ids[1]} 1")
                inside()
                code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 3:
        pytest.skip("a mount namespace cannot be made here")
    assert code == 0


def mount(place: str | Path) -> None:
    """A separate file system, as a site has one for the queue."""
    Path(place).mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    Path(place, "lost+found").mkdir()


def names(place: str | Path) -> set[str]:
    return {path.name for path in Path(place).iterdir() if path.name != "lost+found"}


def killed_at(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """End the next run before so many of its renames."""
    real, calls = restore.rename, []

    def rename(old: str, new: str) -> None:
        calls.append(old)
        if len(calls) == count:
            monkeypatch.setattr(restore, "rename", real)
            raise KeyboardInterrupt
        real(old, new)

    monkeypatch.setattr(restore, "rename", rename)


RESTORED = {"job_state", "node_state", "hash.1"}


def test_a_queue_that_was_on_a_mount_comes_back_into_it(settings: Settings) -> None:
    main.make_copies(settings, run)
    shutil.rmtree(settings.state_dir)
    fetch(settings, "controller")

    def inside() -> None:
        mount(settings.state_dir)
        placed = restore.place(settings, run, "controller", NEVER, False, check=False)
        assert placed == {"changed": True, "kept": ""}
        assert names(settings.state_dir) == RESTORED
        assert Path(settings.state_dir, "hash.1/job.11/script").read_text() == "#!/bin/sh\n"
        again = restore.place(settings, run, "controller", NEVER, False, check=False)
        assert again == {"changed": False, "kept": ""}
        subprocess.run(["umount", settings.state_dir], check=True)
        assert names(settings.state_dir) == set(), "below the mount point it would be covered"

    apart(inside)


def test_a_queue_on_a_mount_is_replaced_by_consent_and_kept_in_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main.make_copies(settings, run)
    fetch(settings, "controller")
    state = Path(settings.state_dir)
    place = partial(restore.place, settings, run, "controller", NEVER)

    def inside() -> None:
        mount(state)
        for name in ("job_state", "job_state.old", "part_state"):
            (state / name).write_bytes(job_state(2))
        (state / "hash.2").mkdir()
        with pytest.raises(ToolError, match=r"consent is restore_over=\[controller\]"):
            place(False, check=False)
        assert names(state) == {"job_state", "job_state.old", "part_state", "hash.2"}
        # A run that is killed while it keeps what is there needs consent again.
        killed_at(monkeypatch, 4)
        with pytest.raises(KeyboardInterrupt):
            place(True, check=False)
        with pytest.raises(ToolError, match="consent"):
            place(False, check=False)
        # One that is killed later is done again without.
        killed_at(monkeypatch, 2)
        with pytest.raises(KeyboardInterrupt):
            place(True, check=False)
        killed_at(monkeypatch, 3)
        with pytest.raises(KeyboardInterrupt):
            place(False, check=False)
        assert "job_state" not in names(state), "it comes last: without it there is no queue"
        assert place(False, check=False)["changed"]
        kept = {path for path in state.iterdir() if path.name.startswith(".replaced-")}
        assert names(state) - {path.name for path in kept} == RESTORED
        old = {path.name: path for folder in kept for path in folder.iterdir()}
        assert set(old) == {"job_state", "job_state.old", "part_state", "hash.2"}
        assert old["job_state"].read_bytes() == job_state(2)
        assert {path.stat().st_mode & 0o777 for path in kept} == {0o700}
        assert (state / "job_state").read_bytes() == job_state(11)
        restore.state.copy(str(state), str(tmp_path / "copy"), 1)
        assert names(tmp_path / "copy") == RESTORED, "nothing of the kept folders"

    apart(inside)


def test_time_series_on_a_mount_are_kept_in_it(settings: Settings) -> None:
    def inside() -> None:
        data = Path(settings.work_dir, "series")
        mount(data)
        block = "01HZX3M8Y5T7V9A1B2C3D4E5F6"
        for name in ("wal", block, "chunks_head"):
            (data / name).mkdir()
        # A run that is killed in between must find that something is there.
        assert restore._entries(str(data))[-1] == block
        kept = Path(restore._set_aside(str(data)))
        assert (names(data), names(kept)) == ({kept.name}, {"wal", "chunks_head", block})

    apart(inside)


def test_what_becomes_of_the_jobs() -> None:
    message = "PID      JOBID    STEPID   LOCALID GLOBALID\n812      6        batch    0       0\n"
    assert jobs.parse_listpids(message) == {6}
    assert jobs.parse_listpids("No job steps exist on this node.") == set()
    queue = [
        Queued(6, "RUNNING"),
        Queued(7, "PENDING"),
        Queued(9, "RUNNING"),
        Queued(10, "PENDING"),
    ]
    found = jobs.compare({"dgx-01": {6, 7}, "dgx-02": {8, 7}}, queue)
    assert found["go_on"] == [6]
    assert found["ended"] == [
        "7 on dgx-01, dgx-02: PENDING in the copy, starts again",
        "8 on dgx-02: unknown to the copy",
    ]
    assert found["over"] == [9]
    assert found["queued"] == [7, 10]
    assert found["highest"] == 10


@pytest.mark.parametrize(
    ("numbers", "age_s", "first"),
    [([], 0, 10_000), ([8, 123], 60, 11_000), ([1], 7200, 73_000), ([50_000, 8], 3600, 86_000)],
)
def test_the_next_number_is_above_all(numbers: list[int], age_s: float, first: int) -> None:
    assert jobs.first_job(numbers, age_s) == first


def test_the_queue_that_slurmctld_has_read() -> None:
    log = "--- the queue ---\n6|RUNNING\n7|PENDING\n--- its end ---\n[..] Running as primary\n"
    assert saved_queue.parse(log) == [Queued(6, "RUNNING"), Queued(7, "PENDING")]
    with pytest.raises(ToolError, match="squeue printed"):
        saved_queue.parse("--- the queue ---\nUnable to contact\n--- its end ---\n")
    with pytest.raises(ToolError, match="did not answer"):
        saved_queue.parse("slurmctld: fatal: x")
