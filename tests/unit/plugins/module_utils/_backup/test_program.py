# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies and proofs with a real restic: what is whole passes, and each damage is red."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._backup import (
    copy,
    main,
    proof,
    repository,
    restore,
    status,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.repository import (
    Repository,
    parse_snapshots,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import (
    Settings,
    settings_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    CommandResult,
    ToolError,
    run,
)

from .conftest import PASSPHRASE, job_state

pytestmark = pytest.mark.slow
DAY_S = 86400
GOOD: dict[str, Any] = {
    "version": 1, "cluster": "demo", "kinds": ["controller"], "repository": "/r",
    "password_file": "/p", "metrics_file": "/m.prom", "state_dir": "/s",
}  # fmt: skip


def outcomes(records: list[Record]) -> dict[str, str]:
    """Check of each subject -> status."""
    return {f"{one.check} {one.subject.rpartition('/')[2]}": one.status for one in records}


def packs(settings: Settings) -> list[Path]:
    """The packs of the repository, largest first."""
    found = [one for one in Path(settings.repository, "data").rglob("*") if one.is_file()]
    return sorted(found, key=lambda one: -one.stat().st_size)


def metrics(settings: Settings) -> str:
    """What node_exporter reads."""
    return Path(settings.metrics_file).read_text(encoding="utf-8")


def test_one_host_of_a_cluster_creates_the_repository(bare: Settings) -> None:
    """Two at once leave an unreadable repository."""
    other = replace(bare, tidies=False)
    (problem,) = main.make_copies(other, run)
    assert "is not there yet, and the first host that copies creates it" in problem
    assert not Path(bare.repository).exists()
    assert main.make_copies(bare, run) == []
    assert main.make_copies(other, run) == []
    assert len(Repository(bare, run).snapshots()) == 2


def test_copy_and_proof(both: Settings) -> None:
    assert main.make_copies(both, run) == []
    assert 'copy_ok{kind="database"} 1' in metrics(both)
    assert "proof_ok" not in metrics(both), "a copy proves nothing"
    records = main.prove(both, run)
    assert outcomes(records) == {
        "backup.age controller": PASS,
        "backup.restore controller": PASS,
        "backup.age database": PASS,
        "backup.restore database": PASS,
        "backup.database database": PASS,
        "backup.repository repository": PASS,
    }
    assert 'proof_ok{kind="controller"} 1' in metrics(both)
    assert [one.job for one in Repository(both, run).snapshots()] == [11, 301]
    left = sorted(os.listdir(both.work_dir))
    assert left == ["cache", "stage", "status.json"], "nothing secret is left"
    assert os.listdir(Path(both.work_dir, "stage")) == []


def test_what_a_killed_run_has_left_is_removed(settings: Settings, tmp_path: Path) -> None:
    names = ["proof-dead", "fetch-dead", "scratch-dead", "aside-dead"]
    for name in names:
        (Path(settings.work_dir) / name).mkdir()
        (Path(settings.work_dir) / name / "x").write_text("a whole copy")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**GOOD, "work_dir": settings.work_dir}))
    main.main(["--config", str(config), "prove"])
    assert not {*names} & {*os.listdir(settings.work_dir)}


def test_a_full_disk_of_the_host_is_not_measured(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.make_copies(settings, run) == []

    def full(argv: Sequence[str], *words: Any, **named: Any) -> CommandResult:
        if "restore" in argv:
            reported = "Fatal: write /x/job_state: no space left on device\n"
            return CommandResult(tuple(argv), ENDED, 1, "", reported)
        return run(argv, *words, **named)

    assert outcomes(main.prove(settings, full))["backup.restore controller"] == NOT_MEASURED

    def no_space(*_words: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(proof, "restored", no_space)
    assert outcomes(main.prove(settings, run))["backup.restore controller"] == NOT_MEASURED


def test_old_copies_are_forgotten_after_a_proof(settings: Settings) -> None:
    for number in (11, 12, 13):
        Path(settings.state_dir, "job_state").write_bytes(job_state(number))
        assert main.make_copies(settings, run) == []
    assert main.tidy(settings, run, main.prove(settings, run)) == []
    assert [one.job for one in Repository(settings, run).snapshots()] == [12, 13]


def test_what_is_not_measured_keeps_old_copies_and_is_named(settings: Settings) -> None:
    """The newest copies may be the bad ones; the repository grows until a person looks."""
    for number in (11, 12, 13):
        Path(settings.state_dir, "job_state").write_bytes(job_state(number))
        assert main.make_copies(settings, run) == []
    passed, *more = main.prove(settings, run)
    records = [replace(passed, check="backup.database", status=NOT_MEASURED), *more]
    (line,) = main.tidy(settings, run, records)
    assert line.startswith("old copies are not removed until a proof passes")
    assert line.endswith("backup.database must pass first")
    assert len(Repository(settings, run).snapshots()) == 3
    assert main.tidy(replace(settings, tidies=False), run, records) == []


@pytest.mark.parametrize(
    ("new", "copies_are_there", "refused"),
    [
        (PASSPHRASE, True, ""),
        ("made again, of some length", True, "passphrase is not that of the repository"),
        ("made again, of some length", False, "there is no repository"),
    ],
)
def test_a_passphrase_that_opens_no_copy_replaces_none(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], new: str,
    copies_are_there: bool, refused: str,
) -> None:  # fmt: skip
    stage = tmp_path / "stage"
    stage.mkdir()
    config = stage / "cluster-backup.json"
    names = ("repository", "password_file", "work_dir")
    config.write_text(json.dumps({**GOOD, **{name: getattr(settings, name) for name in names}}))
    if not copies_are_there:
        Path(settings.repository).rename(f"{settings.repository}-elsewhere")
    (stage / "password").write_text(f"{new}\n")
    words = ["--config", str(config), "check-config", "--passphrase", str(stage / "password")]
    assert main.main(words) == (3 if refused else 0)
    reported = capsys.readouterr().err
    assert refused in reported
    assert (f"is not what {settings.password_file} of this host has" in reported) is bool(refused)
    assert new not in reported


def test_a_passphrase_that_was_added_to_the_repository_is_taken(
    settings: Settings, tmp_path: Path
) -> None:
    """With the key and the known hosts that come with it, and on a host that has none yet."""
    stage = tmp_path / "stage"
    stage.mkdir()
    former = Path(settings.password_file)
    (stage / "password").write_text(former.read_text())
    former.write_text("former one\n")
    folder = f"{former.parent}/"
    secured = replace(settings, options=[f"sftp.command=ssh -i {folder}id -s sftp"])
    asked: list[str] = []

    def noted(argv: Sequence[str], *words: Any, **named: Any) -> CommandResult:
        asked.extend(argv)
        return run(argv, *words, **named)

    main.require_same_word(secured, noted, str(stage / "password"))
    assert f"sftp.command=ssh -i {stage}/id -s sftp" in asked
    former.unlink()
    (stage / "password").write_text("the first one\n")
    main.require_same_word(secured, run, str(stage / "password"))


def test_a_repository_is_of_the_format_that_each_release_reads(bare: Settings) -> None:
    assert main.make_copies(bare, run) == []
    config = Repository(bare, run).call("cat", "config").out
    assert json.loads(config)["version"] == 1


def test_restic_before_0_14_knows_one_format_alone(bare: Settings) -> None:
    def old(argv: Sequence[str], *words: Any, **named: Any) -> CommandResult:
        if "--repository-version=1" in argv:
            reported = "unknown flag: --repository-version\n"
            return CommandResult(tuple(argv), ENDED, 1, "", reported)
        return run(argv, *words, **named)

    assert main.make_copies(bare, old) == []


def test_a_repository_of_a_newer_restic_is_named_with_its_remedy(settings: Settings) -> None:
    def old(argv: Sequence[str], *words: Any, **named: Any) -> CommandResult:
        reported = "Fatal: config cannot be loaded: unsupported repository version\n"
        return CommandResult(tuple(argv), ENDED, 1, "", reported)

    (problem,) = main.make_copies(settings, old)
    assert "install restic 0.14 or later on this host" in problem


def test_the_records_of_a_proof_come_before_what_keeps_old_copies(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A copy of another host holds the lock of the repository for as long as it lasts."""
    assert main.make_copies(settings, run) == []
    config = tmp_path / "config.json"
    names = ("repository", "password_file", "metrics_file", "keep", "tidies", "work_dir")
    config.write_text(json.dumps({**GOOD, **{name: getattr(settings, name) for name in names}}))

    def locked(argv: Sequence[str], *words: Any, **named: Any) -> CommandResult:
        if "forget" in argv:
            reported = "repository is already locked by PID 77 on db-01"
            return CommandResult(tuple(argv), ENDED, 11, "", reported)
        return run(argv, *words, **named)

    monkeypatch.setattr(main, "run", locked)
    monkeypatch.setattr(repository, "attempts", lambda *_words: [0])
    assert main.main(["--config", str(config), "prove"]) == 3
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["verdict"], len(found["records"])) == ("pass", 3)
    assert err.startswith("cluster-backup: old copies are not removed: restic forget: another host")


def test_copies_of_another_cluster_are_kept_as_that_one_says(settings: Settings) -> None:
    other = replace(settings, cluster="other", keep={})
    for number in (11, 12, 13):
        Path(settings.state_dir, "job_state").write_bytes(job_state(number))
        assert main.make_copies(settings, run) == []
        assert main.make_copies(other, run) == []
    assert main.tidy(settings, run, main.prove(settings, run)) == []
    assert [one.job for one in Repository(settings, run).snapshots()] == [12, 13]
    assert [one.job for one in Repository(other, run).snapshots()] == [11, 12, 13]


def test_a_new_repository_is_made_and_has_proved_nothing(settings: Settings) -> None:
    main.make_copies(settings, run)
    main.prove(settings, run)
    other = replace(settings, repository=settings.repository + "-2")
    assert main.make_copies(other, run) == []
    assert [one.job for one in Repository(other, run).snapshots()] == [11]
    assert "proof_ok" not in metrics(other)


def test_what_was_copied_is_asked_of_this_repository(settings: Settings) -> None:
    def lacks(settings: Settings, later_s: float = 0) -> list[str]:
        return status.lacks(settings, status.load(settings), time.time() + later_s)

    assert main.make_copies(settings, run) == []
    assert lacks(settings) == []
    other = replace(settings, repository=settings.repository + "-2")
    assert 'copy_ok{kind="controller"} 1' in metrics(other), "of the old repository"
    assert lacks(other) == ["controller: there is no copy in this repository yet"]
    more = replace(settings, kinds=["controller", "database"])
    assert lacks(more) == ["database: there is no copy in this repository yet"]
    assert main.make_copies(more, run) != []
    assert lacks(more) == ["database: the last try made no copy"]
    assert lacks(settings, 3500) == []
    assert lacks(settings, 7200) == ["controller: the newest copy is 2.0 h old"]


def test_what_is_copied_no_longer_is_in_no_metric(both: Settings, tmp_path: Path) -> None:
    archive = tmp_path / "control.tar.gz"
    run(["tar", "-czf", str(archive), "-C", both.state_dir, "."])
    assert main.make_copies(both, run) == []
    assert main.make_copies(both, run, str(archive)) == []
    assert main.make_copies(replace(both, kinds=["controller"]), run) == []
    assert 'kind="database"' not in metrics(both)
    assert 'copy_ok{kind="controller"} 1' in metrics(both)
    assert 'copy_ok{kind="control"} 1' in metrics(both)


def test_a_flipped_bit(settings: Settings) -> None:
    main.make_copies(settings, run)
    for pack in packs(settings):
        data = bytearray(pack.read_bytes())
        data[len(data) // 3] ^= 1
        pack.chmod(0o600)
        pack.write_bytes(bytes(data))
    assert main.make_copies(settings, run) == [], "a copy does not notice"
    records = main.prove(settings, run)
    assert outcomes(records)["backup.repository repository"] == FAIL
    assert 'proof_ok{kind="controller"} 0' in metrics(settings)
    assert 'copy_ok{kind="controller"} 1' in metrics(settings)


@pytest.fixture(name="locked")
def locked_by_another_host(settings: Settings) -> Iterator[Settings]:
    """A repository that another host is reading, which restic locks for that time."""
    # At 1 KiB a second it is still reading when it is stopped.
    Path(settings.state_dir, "job_state").write_bytes(job_state(11) + os.urandom(100_000))
    assert main.make_copies(settings, run) == []
    environment = {
        **os.environ,
        "RESTIC_REPOSITORY": settings.repository,
        "RESTIC_PASSWORD_FILE": settings.password_file,
    }
    words = ["restic", "check", "--no-cache", "--read-data", "--limit-download=1"]
    reader = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    while not [one for one in os.listdir(f"{settings.repository}/locks") if "tmp" not in one]:
        assert reader.poll() is None
    reader.send_signal(signal.SIGSTOP)
    yield replace(settings, limit_s=3)
    reader.kill()
    reader.wait()


def test_a_lock_of_another_host_shows_nothing_of_the_copies(locked: Settings) -> None:
    (record,) = main.prove(locked, run)
    assert (record.check, record.status) == ("backup.repository", NOT_MEASURED)
    assert "another host is at work" in record.text
    assert "proof_ok" not in metrics(locked)


def test_one_host_of_a_cluster_reads_all_of_the_repository(settings: Settings) -> None:
    """Three that do it at once would lock each other out, and all copies meanwhile."""
    asked: list[str] = []

    def noted(argv: Sequence[str], *words: Any, **named: Any) -> CommandResult:
        asked.extend(argv)
        return run(argv, *words, **named)

    assert main.make_copies(settings, run) == []
    main.prove(replace(settings, tidies=False), noted)
    assert "check" in asked
    assert "--read-data" not in asked
    main.prove(settings, noted)
    assert "--read-data" in asked


def test_a_missing_pack(settings: Settings) -> None:
    # The largest is one of files then: those of folders restic tries to read for 45 s.
    Path(settings.state_dir, "job_state").write_bytes(job_state(11) + os.urandom(100_000))
    main.make_copies(settings, run)
    packs(settings)[0].unlink()
    (record,) = main.prove(settings, run)
    assert (record.check, record.status) == ("backup.repository", FAIL)
    assert 'proof_ok{kind="controller"} 0' in metrics(settings)


def test_a_wrong_passphrase(settings: Settings) -> None:
    main.make_copies(settings, run)
    Path(settings.password_file).write_text("another one\n")
    (problem,) = main.make_copies(settings, run)
    assert "passphrase is not that of the repository" in problem
    (record,) = main.prove(settings, run)
    assert (record.check, record.status) == ("backup.repository", FAIL)
    assert 'copy_ok{kind="controller"} 0' in metrics(settings)
    assert 'proof_ok{kind="controller"} 0' in metrics(settings)


def test_an_old_copy(settings: Settings) -> None:
    main.make_copies(settings, run)
    records = proof.prove(settings, run, ["controller"], time.time() + 8.1 * DAY_S)
    assert outcomes(records)["backup.age controller"] == FAIL
    records = proof.prove(settings, run, ["controller"], time.time() + 7.9 * DAY_S)
    assert outcomes(records)["backup.age controller"] == PASS


def test_a_file_that_is_not_what_it_was(settings: Settings) -> None:
    """restic restores what it was given: a manifest of other digests is the only witness."""
    main.make_copies(settings, run)
    stage = Path(settings.work_dir, "stage", "controller")
    stage.mkdir()
    data = {"version": 1, "at": "x", "files": {"a": "0" * 64, "gone": "0" * 64}}
    (stage / "manifest.json").write_text(json.dumps(data))
    (stage / "a").write_text("other")
    Repository(settings, run).backup("controller", str(stage), 11)
    found = {one.check: one for one in main.prove(settings, run)}
    assert found["backup.restore"].evidence == ("a", "gone")


def test_a_repository_that_is_gone_is_not_begun_again(settings: Settings) -> None:
    main.make_copies(settings, run)
    Path(settings.repository).rename(f"{settings.repository}-elsewhere")
    (problem,) = main.make_copies(settings, run)
    assert "there is no repository" in problem
    assert not Path(settings.repository).exists()
    (record,) = main.prove(settings, run)
    assert record.status == FAIL


@pytest.mark.parametrize(
    ("rc", "reason", "is_absent"),
    [
        (1, "unable to open config file: stat /r/config: no such file or directory", True),
        (1, "unable to open config file: Stat: The specified key does not exist.", True),
        (1, "unable to open config file: <config/> does not exist", True),
        (10, "repository does not exist: unable to open config file: Stat: 404", True),
        (1, "unable to open config file: dial tcp 10.0.0.9:9000: connect: connection refused",
         False),
        (1, "unable to open config file: Stat: Access Denied.", False),
        (1, "unable to open config file: stat /r/config: permission denied", False),
        (1, "ssh: no such file: id_x\nunable to open config file: permission denied", False),
    ],
)  # fmt: skip
def test_a_server_that_does_not_answer_shows_nothing(
    bare: Settings, rc: int, reason: str, is_absent: bool
) -> None:
    asked: list[str] = []

    def restic(argv: Sequence[str], *_words: Any, **_named: Any) -> CommandResult:
        asked.extend(argv)
        err = f"Fatal: {reason}\nIs there a repository at the following location?\n/r\n"
        return CommandResult(tuple(argv), ENDED, rc, "", err)

    (record,) = main.prove(bare, restic)
    assert record.status == (FAIL if is_absent else NOT_MEASURED)
    reason = reason.rpartition("\n")[2]
    assert reason in (record.evidence[0] if is_absent else record.text)
    (problem,) = main.make_copies(bare, restic)
    assert reason in problem
    assert ("init" in asked) == is_absent, "a second one where a server was only silent"


def test_what_says_nothing_is_not_measured(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    main.make_copies(settings, run)
    main.prove(settings, run)
    monkeypatch.setenv("PATH", "/nowhere")
    (record,) = main.prove(settings, run)
    assert record.status == NOT_MEASURED
    assert 'proof_ok{kind="controller"} 1' in metrics(settings), "nothing new is known"


def test_a_younger_queue_does_not_take_the_place_of_the_older_one(settings: Settings) -> None:
    """A controller that was installed again, and started before it was restored."""
    main.make_copies(settings, run)
    Path(settings.state_dir, "job_state").write_bytes(job_state(2))
    (problem,) = main.make_copies(settings, run)
    assert "the next job's number is 2 here and 11 in the copy" in problem
    assert "restore_cluster" in problem
    assert main.make_copies(settings, run, younger_ok=True) == []


def test_a_queue_that_was_restored_from_an_older_copy_is_copied(settings: Settings) -> None:
    """Its own number is that of the older copy until a job has begun; FirstJobId is above all."""
    main.make_copies(settings, run)
    Path(settings.state_dir, "job_state").write_bytes(job_state(2))
    restored = replace(settings, first_job=10_012)
    assert main.make_copies(restored, run) == []
    (problem,) = main.make_copies(settings, run)
    assert "the next job's number is 2 here and 10012 in the copy" in problem


def test_a_repository_on_the_disk_of_the_data(bare: Settings) -> None:
    """Also the mount point of a mount that is missing."""
    strict = replace(bare, same_disk_ok=False)
    (problem,) = main.make_copies(strict, run)
    assert f"{bare.repository} is on the disk of" in problem
    assert not Path(bare.repository).exists()
    remote = replace(strict, repository="sftp:nobody@127.0.0.1:/x", options=["sftp.command=false"])
    (problem,) = main.make_copies(remote, run)
    assert "is on the disk" not in problem


def test_a_repository_whose_mount_is_missing(
    bare: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where what is copied is on separate file systems."""
    real, place = os.stat, str(Path(bare.repository).parent)
    devices = {bare.work_dir: 2, bare.state_dir: 3, "/": 1, place: 1}

    def stat(path: Any, **named: Any) -> os.stat_result:
        found = list(real(path, **named))
        found[2] = devices.get(path, found[2])
        return os.stat_result(found)

    monkeypatch.setattr(os, "stat", stat)
    strict = replace(bare, same_disk_ok=False)
    with pytest.raises(ToolError, match=f"{bare.repository} is on the disk of /, which"):
        copy.other_device(strict)
    copy.other_device(bare)
    devices[place] = 4
    copy.other_device(strict)


def test_a_copy_of_the_control_machine(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "dgx" / "secrets").mkdir(parents=True)
    (tmp_path / "dgx" / "secrets" / "slurm_base_key").write_text("key")
    archive = str(tmp_path / "control.tar.gz")
    run(["tar", "-czf", archive, "-C", str(tmp_path / "dgx"), "."])
    assert main.make_copies(settings, run, archive) == []
    assert main.make_copies(settings, run) == []
    found = outcomes(main.prove(settings, run))
    assert found["backup.restore control"] == PASS
    assert main.make_copies(settings, run, "/not/there") != []


def test_it_is_one_program(
    bare: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {
        "version": 1, "cluster": "demo", "kinds": ["controller"], "same_disk_ok": True,
        "repository": bare.repository, "password_file": bare.password_file,
        "metrics_file": bare.metrics_file, "state_dir": bare.state_dir,
        "work_dir": bare.work_dir, "tidies": True,
    }  # fmt: skip
    config = tmp_path / "config.json"
    config.write_text(json.dumps(data))
    assert main.main(["--config", str(config), "check-config"]) == 0
    assert main.main(["--config", str(config), "copied"]) == 3
    assert "controller: there is no copy in this repository yet" in capsys.readouterr().err
    assert main.main(["--config", str(config), "copy"]) == 0
    assert main.main(["--config", str(config), "copied"]) == 0
    assert main.main(["--config", str(config), "prove"]) == 0
    config.write_text("{}")
    assert main.main(["--config", str(config), "copy"]) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version: must be 1"),
        ({"kinds": ["gpu"]}, "gpu: is none of"),
        ({"keep": {"yearly": 1}}, "yearly: is none of"),
        ({"state_dir": ""}, "state_dir: empty"),
        ({"kinds": ["database"]}, "database: empty"),
        ({"database": {"name": 1}}, "database.name: int is the wrong kind"),
        ({"metrics_file": "/x"}, "must end with .prom"),
        ({"cluster": "a b"}, "cluster: not a name"),
        ({"more": 1}, "more: there is no such setting"),
        ({"environment": "AWS_SECRET=x"}, "environment: str is the wrong kind"),
    ],
)
def test_settings_that_are_refused(change: dict[str, object], message: str) -> None:
    assert settings_from_data(GOOD).cluster == "demo"
    with pytest.raises(ValueError, match=message):
        settings_from_data({**GOOD, **change})


def test_snapshots_of_restic() -> None:
    text = json.dumps(
        [
            {"id": "b", "time": "2026-11-25T03:43:27.12345678+01:00", "tags": ["database", "job=7"],
             "paths": ["/x/database"]},
            {"id": "a", "time": "2026-11-25T02:00:00Z", "tags": ["controller"], "paths": ["/x"]},
        ]
    )  # fmt: skip
    found = parse_snapshots(text)
    assert [(one.name, one.kind, one.job) for one in found] == [
        ("a", "controller", 0),
        ("b", "database", 7),
    ]
    assert found[1].at_s - found[0].at_s == 2607
    assert parse_snapshots("null") == []
    with pytest.raises(ToolError):
        parse_snapshots('[{"id": 1}]')


def test_a_copy_from_the_future_is_never_young(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time of a clock that was ahead it stays the newest for years, whatever comes after."""
    shown = [
        {"id": "a" * 64, "time": at, "tags": ["controller", "job=7"], "paths": ["/stage"]}
        for at in ("2026-03-01T00:00:00Z", "2036-03-01T00:00:00Z")
    ]

    def restic(argv: Sequence[str], timeout_s: float = 0, env: object = None) -> CommandResult:
        out = json.dumps(shown) if "snapshots" in argv else ""
        return CommandResult(tuple(argv), ENDED, 0, out, "")

    given = settings_from_data(GOOD)
    now_s = 1_772_330_000.0
    monkeypatch.setattr(time, "time", lambda: now_s)
    monkeypatch.setattr(proof, "make_temporary", lambda *_words: "/nowhere")
    age = next(one for one in proof.prove(given, restic, ["controller"]) if "age" in one.check)
    assert age.status == NOT_MEASURED
    assert "is dated 2036-03-01T00:00:00Z and now is 2026-03-01T" in age.text
    with pytest.raises(ToolError, match=r"dated 2036.* or write restore_until"):
        restore.choose(given, restic, "controller", restore.limit_of(""))
    chosen = restore.choose(given, restic, "controller", now_s)
    assert chosen.at_s < now_s, "a time that the operator writes is enough"


def test_a_proof_of_one_kind_says_nothing_of_the_other() -> None:
    good = Record("backup.restore", "backup:demo/controller", PASS)
    bad = Record("backup.restore", "backup:demo/database", FAIL)
    whole = Record("backup.repository", "backup:demo/repository", PASS)
    kinds = ["controller", "database"]
    found = status.proved({}, kinds, [good, bad, whole], 5)
    assert found == {
        "controller": {"proof_ok": 1, "proof_timestamp_seconds": 5},
        "database": {"proof_ok": 0},
    }
