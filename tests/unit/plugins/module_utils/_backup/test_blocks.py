# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blocks of Prometheus: those that are whole are copied, and come back; no link is followed."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import time
import urllib.request
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._backup import (
    blocks,
    copy,
    main,
    manifest,
    restore,
    work,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.repository import (
    Repository,
    Snapshot,
    UnansweredError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._backup.settings import Settings
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import Folder, UnsafeError
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    CommandResult,
    ToolError,
    run,
)

NEVER = float(1 << 36)
HOUR_MS = 3_600_000
A, B, C = (f"01M8E38XMTA4CRRXBFXY6ZSBT{letter}" for letter in "8AB")


@pytest.fixture(autouse=True)
def prometheus_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine of CI has Prometheus' user."""
    entry = namedtuple("entry", "pw_uid pw_gid")(os.getuid(), os.getgid())
    monkeypatch.setattr(pwd, "getpwnam", lambda name: entry)


@pytest.fixture(name="data")
def the_folder(tmp_path: Path) -> Path:
    """A folder of Prometheus with two blocks, and what is none."""
    data = tmp_path / "metrics2"
    make_block(data / A, 0)
    make_block(data / B, 2)
    make_block(data / f"{C}.tmp-for-creation", 4)
    (data / "wal").mkdir()
    (data / "wal" / "00000000").write_bytes(b"log")
    return data


@pytest.fixture(name="own")
def with_metrics(settings: Settings, data: Path) -> Settings:
    """The host that runs Prometheus."""
    return replace(settings, kinds=["metrics"], blocks_dir=str(data), keep_metrics={"last": 1})


def make_block(path: Path, hour: int, samples: int = 600) -> None:
    """A block of two hours, with the beginnings of its files."""
    (path / "chunks").mkdir(parents=True)
    times = {"minTime": hour * HOUR_MS, "maxTime": (hour + 2) * HOUR_MS}
    stats = {"numSamples": samples, "numSeries": 5, "numChunks": 5}
    meta = {"ulid": path.name[:26], **times, "stats": stats, "version": 1}
    (path / "meta.json").write_text(json.dumps(meta))
    (path / "index").write_bytes(bytes.fromhex("baaad700") + os.urandom(2000))
    (path / "chunks" / "000001").write_bytes(bytes.fromhex("85bd40dd") + os.urandom(2000))
    (path / "tombstones").write_bytes(b"none")


def test_what_is_copied(data: Path, tmp_path: Path) -> None:
    torn, bare = data / f"{A[:-1]}C", data / f"{A[:-1]}D"
    make_block(torn, 4)
    (torn / "meta.json").write_text('{"ulid": "01M8')
    make_block(bare, 4)
    (bare / "index").unlink()
    (data / A / "visit-mark.json").write_text("{}")
    target = tmp_path / "copy"
    found = blocks.copy(str(data), str(target), 1)
    assert sorted(os.listdir(target)) == [A, B]
    assert blocks.facts(found) == {
        "blocks": {A: 600, B: 600},
        "series": 5,
        "from_s": 0,
        "until_s": 14400,
    }
    names = {str(path.relative_to(target / A)) for path in (target / A).rglob("*")}
    assert names == {"meta.json", "index", "tombstones", "chunks", "chunks/000001"}
    assert (target / A / "index").samefile(data / A / "index"), "it is not copied on one disk"
    shutil.rmtree(data / A)
    assert set(blocks.copy(str(data), str(target), 1)) == {B}
    assert os.listdir(target) == [B]


def test_a_prometheus_that_was_not_started_has_no_block(tmp_path: Path) -> None:
    assert blocks.copy(str(tmp_path / "none"), str(tmp_path / "copy"), 1) == {}
    assert not blocks.is_there(str(tmp_path / "none"))


def before_take(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
    """Have something happen before each file is taken."""
    real = Folder.take

    def take(self: Folder, source: Folder, name: str) -> None:
        act(os.path.join(source.path, name))
        real(self, source, name)

    monkeypatch.setattr(Folder, "take", take)
    monkeypatch.setattr(blocks, "_PAUSE_S", 0.01)


def test_blocks_that_are_compacted_meanwhile(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Prometheus does: the new one first, then the old ones are renamed and removed."""

    def compact(path: str) -> None:
        if path.endswith("index") and not (data / C).exists():
            make_block(data / C, 0, 1200)
            for name in (A, B):
                (data / name).rename(data / f"{name}.tmp-for-deletion")

    before_take(monkeypatch, compact)
    assert set(blocks.copy(str(data), str(tmp_path / "copy"), 5)) == {C}
    assert os.listdir(tmp_path / "copy") == [C]


def test_a_block_that_is_removed_file_by_file(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(path: str) -> None:
        if A in path and path.endswith("000001"):
            shutil.rmtree(data / A)

    before_take(monkeypatch, remove)
    assert set(blocks.copy(str(data), str(tmp_path / "copy"), 5)) == {B}


def test_blocks_that_never_rest(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(path: str) -> None:
        if path.endswith("meta.json"):
            block = Path(path).parent
            block.rename(block.with_name(f"{A[:-3]}{len(os.listdir(data)):03}"))
            make_block(data / f"01M8{time.time_ns():022}", 0)

    before_take(monkeypatch, vanish)
    with pytest.raises(ToolError, match="went all the time"):
        blocks.copy(str(data), str(tmp_path / "copy"), 0.1)


@pytest.mark.parametrize("where", ["block", "chunks", "index", "chunks/000001"])
def test_no_link_is_followed(data: Path, tmp_path: Path, where: str) -> None:
    secret = tmp_path / "secret"
    make_block(secret, 0)
    place = data / A / where if where != "block" else data / A
    target = secret / where if where != "block" else secret
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.symlink_to(target)
    with pytest.raises(UnsafeError, match="is a link"):
        blocks.copy(str(data), str(tmp_path / "copy"), 1)
    copied = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert not any(path.samefile(one) for path in copied for one in secret.rglob("*"))


def test_a_file_that_becomes_a_link_is_not_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(name: str, *words: object, **more: object) -> None:
        if name == "index":
            (data / A / "index").unlink()
            (data / A / "index").symlink_to("/etc/passwd")
        real(name, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UnsafeError, match="is a link"):
        blocks.copy(str(data), str(tmp_path / "copy"), 1)
    assert not list((tmp_path / "copy").rglob("index"))


@pytest.mark.usefixtures("as_user")
def test_a_file_of_another_user_is_not_taken(data: Path, tmp_path: Path) -> None:
    """Where the kernel lets users link what they may not read (fs.protected_hardlinks=0)."""
    for path in (data, *data.rglob("*")):
        os.chown(path, 65533, 65533)
    secret = tmp_path / "secret"
    secret.write_text("root's")
    (data / A / "index").unlink()
    os.link(secret, data / A / "index")
    with pytest.raises(UnsafeError, match="belongs to user 0, not to 65533"):
        blocks.copy(str(data), str(tmp_path / "copy"), 1)


def test_another_disk(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_words: object, **_more: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    made: list[str] = []
    before_take(monkeypatch, made.append)
    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(blocks, "is_linked", lambda *_paths: False)
    target = tmp_path / "copy"
    assert set(blocks.copy(str(data), str(target), 1)) == {A, B}
    old, new = data / A / "index", target / A / "index"
    assert new.read_bytes() == old.read_bytes()
    assert not new.samefile(old)
    assert new.stat().st_mtime_ns == old.stat().st_mtime_ns, "restic does not read it again"
    make_block(data / C, 4)
    made.clear()
    assert set(blocks.copy(str(data), str(target), 1)) == {A, B, C}
    assert all(C in path for path in made), "only what is missing is copied"
    make_block(data / f"{A[:-1]}C", 6)
    monkeypatch.setattr(work, "_SHARE", 0)
    with pytest.raises(ToolError, match="which is on another disk, takes"):
        blocks.copy(str(data), str(target), 1)


def test_digests_of_the_last_copy(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, memory = str(tmp_path / "copy"), str(tmp_path / "memory.json")
    blocks.copy(str(data), target, 1)
    with pytest.raises(ToolError, match="not read after -1 s; the next run goes on"):
        blocks.digests(target, memory, -1)
    found = blocks.digests(target, memory, 10)
    assert found == manifest.digests(target)
    read: list[str] = []
    monkeypatch.setattr(manifest, "digest", lambda path: read.append(path) or "0")
    assert blocks.digests(target, memory, -1) == found, "nothing is read again"
    (data / A / "tombstones").write_bytes(b"a series was deleted")
    assert blocks.digests(target, memory, 10) == {**found, f"{A}/tombstones": "0"}
    assert len(read) == 1


def outcomes(own: Settings) -> dict[str, str]:
    """The status of each check of a proof."""
    return {one.check: one.status for one in main.prove(own, run)}


@pytest.mark.slow
def test_copy_and_proof(own: Settings, data: Path) -> None:
    assert main.make_copies(own, run) == []
    wanted = ["backup.age", "backup.blocks", "backup.repository", "backup.restore"]
    assert outcomes(own) == dict.fromkeys(wanted, PASS)
    left = sorted(os.listdir(own.work_dir))
    assert left == ["blocks.json", "cache", "stage", "status.json"]
    assert os.listdir(Path(own.work_dir, "stage")) == [], "no block is held that Prometheus removes"
    make_block(data / C, 4)
    assert main.make_copies(own, run) == []
    records = main.prove(own, run)
    assert {one.check: one.status for one in records}["backup.blocks"] == PASS
    assert main.tidy(own, run, records) == []
    assert [one.job for one in Repository(own, run).snapshots("metrics")] == [6 * 3600]
    # As a power failure leaves a file that was not synced.
    (data / C / "index").write_bytes(b"\0" * 2004)
    assert main.make_copies(own, run) == []
    (found,) = [one for one in main.prove(own, run) if one.status == FAIL]
    assert (found.check, found.evidence) == (
        "backup.blocks",
        (f"{C}: index is none of Prometheus",),
    )


@pytest.mark.slow
def test_no_block_is_not_measured(own: Settings, data: Path) -> None:
    for name in (A, B):
        shutil.rmtree(data / name)
    assert main.make_copies(own, run) == []
    assert outcomes(own)["backup.blocks"] == NOT_MEASURED
    assert "proof_ok" not in Path(own.metrics_file).read_text(encoding="utf-8")


@pytest.mark.slow
def test_no_room_is_not_measured(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main.make_copies(own, run) == []
    monkeypatch.setattr(work, "_SHARE", 0)
    assert outcomes(own)["backup.restore"] == NOT_MEASURED
    with pytest.raises(UnansweredError, match="a copy of the metrics takes"):
        restore.fetch(own, run, "metrics", NEVER, "", check=False)


def test_blocks_that_are_not_those_of_the_manifest(data: Path) -> None:
    shutil.rmtree(data / B)
    assert blocks.broken(str(data), {A: 600}) == []
    assert blocks.broken(str(data), {A: 601, B: 600}) == [
        f"{A}: 600 of 601 samples",
        f"{B}: no of 600 samples",
    ]
    assert blocks.broken(str(data), {}) == [f"{A}: 600 of no samples"]


@pytest.mark.parametrize(
    ("found", "ended_s", "why"),
    [
        ({}, 0, ""),
        ({}, 7200, "the time series have no block here and ended at 1970-01-01T02:00:00Z"),
        ({A: blocks.Block(7_200_000, 14_400_000, 5, 600)}, 7200, ""),
        ({A: blocks.Block(7_201_000, 14_400_000, 5, 600)}, 7200, "begin at 1970-01-01T02:00:01Z"),
        ({A: blocks.Block(7_201_000, 14_400_000, 5, 600)}, 0, ""),
    ],
)
def test_another_prometheus_does_not_take_the_place(
    found: dict[str, blocks.Block], ended_s: int, why: str
) -> None:
    data = {"kind": "metrics", **blocks.facts(found)}
    found_why = copy.another(data, Snapshot("a", 20_000, "metrics", "/x", ended_s))
    assert why in found_why
    assert bool(found_why) == bool(why)
    assert not found_why or "run restore_metrics" in found_why
    # A shell finds it by its path alone.
    program = "`/usr/local/libexec/baremetal-dgx/cluster-backup copy --younger-ok`"
    assert not found_why or program in found_why


@pytest.mark.slow
def test_time_series_come_back(own: Settings, data: Path, tmp_path: Path) -> None:
    assert main.make_copies(own, run) == []
    data.rename(tmp_path / "lost")
    # Prometheus was installed again and runs since an hour: it has a log, and no block.
    (data / "wal").mkdir(parents=True)
    (data / "wal" / "00000000").write_bytes(b"newer")
    (problem,) = main.make_copies(own, run)
    assert "the time series have no block here" in problem
    seen = restore.look(own, run, "metrics", NEVER, False)
    assert (seen["there"], seen["done"]) == (False, False)
    assert restore.fetch(own, run, "metrics", NEVER, "", check=False)["changed"]
    placed = restore.place(own, run, "metrics", NEVER, False, check=False)
    assert placed == {"changed": True, "kept": ""}
    assert (data / A / "index").read_bytes() == (tmp_path / "lost" / A / "index").read_bytes()
    assert (data / "wal" / "00000000").read_bytes() == b"newer"
    assert (data / A).stat().st_mode & 0o777 == 0o755
    assert not Path(own.work_dir, "restored", "metrics").exists()
    again = restore.place(own, run, "metrics", NEVER, False, check=False)
    assert again == {"changed": False, "kept": ""}
    assert main.make_copies(own, run) == []


@pytest.mark.slow
def test_blocks_that_are_there_are_replaced_by_consent_and_kept(own: Settings, data: Path) -> None:
    assert main.make_copies(own, run) == []
    shutil.rmtree(data / A)
    make_block(data / C, 4)
    restore.fetch(own, run, "metrics", NEVER, "", check=False)
    with pytest.raises(ToolError, match=r"consent is restore_over=\[metrics\]"):
        restore.place(own, run, "metrics", NEVER, False, check=False)
    assert not (data / A).exists()

    def active(argv: Sequence[str], *words: Any) -> CommandResult:
        return CommandResult(tuple(argv), ENDED, 0) if "systemctl" in argv else run(argv, *words)

    with pytest.raises(ToolError, match="Prometheus runs"):
        restore.place(own, active, "metrics", NEVER, True, check=False)
    with pytest.raises(ToolError, match="consent"):
        restore.place(own, run, "metrics", NEVER, False, check=False)
    kept = restore.place(own, run, "metrics", NEVER, True, check=False)["kept"]
    assert blocks.is_there(str(data))
    assert sorted(os.listdir(data)) == [A, B]
    assert (Path(kept) / C / "index").exists()


@pytest.mark.slow
def test_an_empty_copy_is_put_once(own: Settings, data: Path) -> None:
    """Of the first hours of a Prometheus: else each run would stop it and put nothing."""
    for name in (A, B):
        shutil.rmtree(data / name)
    assert main.make_copies(own, run) == []
    restore.fetch(own, run, "metrics", NEVER, "", check=False)
    assert restore.place(own, run, "metrics", NEVER, False, check=False)["changed"]
    assert main.make_copies(own, run) == []
    assert restore.look(own, run, "metrics", NEVER, False)["done"]


@pytest.mark.slow
def test_blocks_are_not_put_below_a_prometheus_that_runs(own: Settings, data: Path) -> None:
    def active(argv: Sequence[str], *words: Any) -> CommandResult:
        if argv[0] == "systemctl":
            assert list(argv[1:]) == ["is-active", "--quiet", "prometheus.service"]
            return CommandResult(tuple(argv), ENDED, 0)
        return run(argv, *words)

    assert main.make_copies(own, run) == []
    shutil.rmtree(data)
    restore.fetch(own, active, "metrics", NEVER, "", check=False)
    with pytest.raises(ToolError, match=r"Prometheus runs on .*: `systemctl stop prometheus"):
        restore.place(own, active, "metrics", NEVER, False, check=False)
    assert not data.exists()


def test_a_killed_run_is_done_again(data: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "fetched", tmp_path / "new"
    blocks.copy(str(data), str(source), 1)
    make_block(target / f"{B}.tmp-for-creation", 9)
    make_block(target / B, 9)
    for _turn in range(2):
        blocks.put(str(source), str(target), os.getuid(), os.getgid())
        assert sorted(os.listdir(target)) == [A, B]
        assert (target / B / "index").samefile(data / B / "index")


@contextmanager
def prometheus(tools: Path, data: Path) -> Iterator[str]:
    """A real Prometheus on a folder that scrapes nothing; its address."""
    config = data.parent / "prometheus.yml"
    config.write_text("{}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    words = [f"--config.file={config}", f"--storage.tsdb.path={data}"]
    words += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=10y"]
    with (data.parent / "prometheus.log").open("w") as log:
        process = subprocess.Popen([tools / "prometheus", *words], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, (data.parent / "prometheus.log").read_text()
            try:
                urllib.request.urlopen(f"http://{address}/-/ready", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def answer(address: str, query: str, at_s: int) -> list[str]:
    """The values that a query has at a time."""
    url = f"http://{address}/api/v1/query?query={query}&time={at_s}"
    with urllib.request.urlopen(url, timeout=30) as handle:
        found = json.load(handle)["data"]["result"]
    return [one["value"][1] for one in found]


@pytest.mark.slow
def test_a_real_prometheus_has_its_series_again(own: Settings, tmp_path: Path) -> None:
    done = subprocess.run([ROOT / ".ci" / "promtool"], capture_output=True, text=True, check=True)
    tools = Path(done.stdout.strip())
    end = int(time.time()) // 7200 * 7200 - 7200
    times = range(end - 6 * 3600, end, 60)
    lines = [f'demo{{n="{n}"}} {n} {at}' for n in range(20) for at in times]
    text = tmp_path / "text"
    text.write_text("\n".join(["# TYPE demo gauge", *lines, "# EOF", ""]))
    data = tmp_path / "data"
    made = [tools / "promtool", "tsdb", "create-blocks-from", "openmetrics", text, data]
    subprocess.run(made, check=True, capture_output=True)
    real = replace(own, blocks_dir=str(data))
    with prometheus(tools, data) as address:
        assert answer(address, "count(demo)", end - 60) == ["20"]
        assert main.make_copies(real, run) == []
    assert outcomes(real)["backup.blocks"] == PASS
    data.rename(tmp_path / "lost")
    restored = replace(real, work_dir=str(tmp_path / "work-2"))
    restore.fetch(restored, run, "metrics", NEVER, "", check=False)
    assert restore.place(restored, run, "metrics", NEVER, False, check=False)["changed"]
    with prometheus(tools, data) as address:
        assert answer(address, "sum(demo)", end - 60) == ["190"]
        assert answer(address, "sum(count_over_time(demo[6h]))", end - 1) == [str(20 * len(times))]
    assert main.make_copies(real, run) == []
