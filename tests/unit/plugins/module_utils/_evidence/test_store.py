# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store on disk, with writers that are killed at random moments."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import FAIL, PASS, Record
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import (
    RECORDS_FILE,
    Problems,
    current,
    pack,
    unpack,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import (
    Store,
    load_records,
)

AT = "2026-03-01T00:00:00Z"
UUID = "gpu-51a7ed00-0000-4000-8000-{:012d}"

# Adds batches until it is killed; prints each when it is acknowledged.
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Record

store, run, scope = Store(sys.argv[2]), sys.argv[3], sys.argv[4]
raw = sys.argv[5]
print("ready", flush=True)
for number in range(100000):
    records = [
        Record("gpu.ecc", f"gpu:{scope}/{gpu}", "pass", text=f"{number} " + "x" * 3000,
               evidence=(f"UUID GPU-51a7ed00-0000-4000-8000-{gpu:012d}",)).as_data()
        for gpu in range(number % 7 + 1)
    ]
    added = store.add(run, scope, "test", records, "2026-03-01T00:00:00Z", raw_files=[raw])
    print(added.batch, added.records, flush=True)
"""


def records(status=PASS, scope="n", gpus=2):
    return [
        Record("gpu.ecc", f"gpu:{scope}/{gpu}", status,
               evidence=(f"UUID {UUID.format(gpu).replace('gpu', 'GPU', 1)}",)).as_data()
        for gpu in range(gpus)
    ]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "evidence"))


def whole(store: Store, run: str, problems: Problems) -> dict[int, int]:
    """Records by number of each batch that is whole."""
    found: dict[int, int] = {}
    batches = {}
    for batch, record in store.read(run, problems):
        batches[batch.head["batch"]] = batch
        if record is not None:
            found[batch.head["batch"]] = found.get(batch.head["batch"], 0) + 1
    return {number: found.get(number, 0) for number, batch in batches.items() if batch.whole}


def test_what_was_added_is_read_again(store: Store, tmp_path: Path):
    raw = tmp_path / "said.txt"
    raw.write_text("output of the tool")
    run = store.begin("validate_nodes", AT)
    added = store.add(run, "n", "gpu_health", records(), AT, "quick", "GPUs", [str(raw)])
    second = store.add(run, "m", "gpu_health", records(FAIL, "m"), AT)
    assert added.batch != second.batch
    problems = Problems()
    assert whole(store, run, problems) == {added.batch: 2, second.batch: 2}
    assert problems.lines == []
    assert (tmp_path / "evidence/runs" / run / "raw" / added.raw[0]).read_text() == raw.read_text()
    assert [one.scope for one in store.batches(problems)] == ["n", "m"]
    assert problems.lines == []


def test_a_part_keeps_its_history_when_it_moves(store: Store):
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(FAIL), AT)
    store.add(run, "m", "", records(PASS, "m"), AT)
    history = dict(store.histories(Problems()))
    assert [(one["node"], one["status"]) for one in history[UUID.format(0)]] == [
        ("n", FAIL),
        ("m", PASS),
    ]


def test_a_lost_part_is_counted_against_the_one_that_was_there(store: Store):
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(), AT)
    store.add(run, "n", "", [Record("gpu.present", "gpu:n/0", FAIL).as_data()], AT)
    history = dict(store.histories(Problems()))
    assert [one["status"] for one in history[UUID.format(0)]] == [PASS, FAIL]
    assert [one["status"] for one in history[UUID.format(1)]] == [PASS]


def test_a_torn_line_is_told_and_the_next_run_goes_on(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(), AT)
    path = tmp_path / "evidence/runs" / run / RECORDS_FILE
    good = path.read_bytes()
    for length in (len(good) - 1, len(good) - 40, len(good) // 2, 5):
        path.write_bytes(good[:length])
        store.add(run, "m", "", records(scope="m"), AT)
        problems, quick = Problems(), Problems()
        found = whole(store, run, problems)
        assert list(found.values()) == ([2] if length != len(good) - 1 else [2, 2])
        names = {one.scope for one in store.batches(quick) if one.whole}
        assert names == ({"m"} if length != len(good) - 1 else {"n", "m"})
        if length != len(good) - 1:
            assert problems.lines
            assert quick.lines


def test_what_a_killed_run_left_out_of_the_histories_is_added(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(FAIL), AT)
    for path in (tmp_path / "evidence/history").iterdir():
        path.unlink()
    store.begin("validate_nodes", AT)
    for _twice in range(2):
        store.settle(Problems())
        history = dict(store.histories(Problems()))
        assert [len(lines) for lines in history.values()] == [1, 1]


def test_a_part_that_was_replaced_does_not_come_back_into_its_slot(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(gpus=1), AT)
    parts = tmp_path / "evidence/parts/n.json"
    parts.write_text("{}")
    run = store.begin("validate_nodes", AT)
    store.settle(Problems())
    assert parts.read_text() == "{}"
    # The new one fails without a name, and the old one did not.
    store.add(run, "n", "", [Record("gpu.present", "gpu:n/0", FAIL).as_data()], AT)
    history = dict(store.histories(Problems()))
    assert [one["status"] for one in history[UUID.format(0)]] == [PASS]


def test_a_lost_file_of_parts_is_made_again_from_the_runs(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    given = records()
    for one in given:
        store.add(run, "n", "", [one], AT)
    parts = tmp_path / "evidence/parts/n.json"
    before = parts.read_text()
    parts.unlink()
    store.begin("validate_nodes", AT)
    store.settle(Problems())
    assert parts.read_text() == before


def test_compressed_runs_are_read_as_before(store: Store, tmp_path: Path):
    raw = tmp_path / "said.txt"
    raw.write_text("said")
    run = store.begin("validate_nodes", AT)
    added = store.add(run, "n", "", records(), AT, raw_files=[str(raw)])
    later = datetime(2026, 5, 1, tzinfo=timezone.utc)
    assert store.tidy(later, 30, 0) == ()
    home = tmp_path / "evidence/runs" / run
    assert (home / f"{RECORDS_FILE}.gz").exists()
    assert not (home / RECORDS_FILE).exists()
    assert (home / "raw" / f"{added.raw[0]}.gz").exists()
    assert whole(store, run, Problems()) == {added.batch: 2}
    # Killed after the compressed form was there: the plain one counts, and goes the next time.
    (home / RECORDS_FILE).write_text("")
    assert store.tidy(later, 30, 0) == ()


def test_old_runs_are_removed_and_histories_stay(store: Store, tmp_path: Path):
    runs = [store.begin("validate_nodes", f"2026-03-0{day}T00:00:00Z") for day in (1, 2, 3)]
    for run in runs:
        store.add(run, "n", "", records(), AT)
    # the time that has passed is borne out by other runs
    for month, playbook in ((5, "validate_fabric"), (7, "mount_storage"), (8, "verify")):
        store.begin(playbook, f"2026-0{month}-20T00:00:00Z")
    later = datetime(2026, 9, 1, tzinfo=timezone.utc)
    (tmp_path / "evidence/runs" / ".gone-half").mkdir()
    assert store.tidy(later, 0, 30) == (runs[0],)
    assert store.names()[:2] == runs[1:]
    assert not list((tmp_path / "evidence/runs").glob(".gone*"))
    assert len(dict(store.histories(Problems()))[UUID.format(0)]) == 3


def test_a_clock_that_is_years_ahead_removes_nothing(store: Store):
    runs = [store.begin("validate_nodes", f"2026-03-{day:02d}T00:00:00Z") for day in range(1, 11)]
    wrong = datetime(2036, 1, 1, tzinfo=timezone.utc)
    store.begin("validate_nodes", "2036-01-01T00:00:00Z")
    store.begin("validate_fabric", "2036-01-01T05:00:00Z")
    assert store.tidy(wrong, 30, 400) == ()
    assert store.names()[:10] == runs


def test_what_was_added_last_has_the_last_word_whatever_the_clock_said(store: Store):
    ahead = store.begin("validate_nodes", "2026-03-01T01:00:00Z")
    store.add(ahead, "n", "", records(PASS), "2026-03-01T01:00:00Z")
    right = store.begin("validate_nodes", "2026-03-01T00:10:00Z")
    store.add(right, "n", "", records(FAIL), "2026-03-01T00:10:00Z")
    last = current(store.batches(Problems()))
    assert last["n", "gpu"].head["run"] == right


def test_the_number_of_a_batch_is_found_again_when_its_file_is_lost(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    for _turn in range(3):
        store.add(run, "n", "", records(), AT)
    (tmp_path / "evidence/sequence").write_text("")
    store.add(run, "n", "", records(), AT)
    numbers = [batch.head["sequence"] for batch in store.batches(Problems())]
    assert numbers == [1, 2, 3, 4]


def test_two_runs_in_one_second_are_two(store: Store):
    assert store.begin("validate_nodes", AT) != store.begin("validate_nodes", AT)


def test_records_of_a_file(tmp_path: Path):
    path = tmp_path / "records.json"
    path.write_text('{"records": [], "level": "quick"}')
    assert load_records(str(path))[1]["level"] == "quick"
    path.write_text("[]")
    assert load_records(str(path)) == ([], {})
    for bad in ("{", '{"a": 1}', "3"):
        path.write_text(bad)
        with pytest.raises(ValueError, match=r"no records|Expecting"):
            load_records(str(path))


def collections() -> str:
    """The folder that ansible_collections is in."""
    return next(
        path for path in sys.path if (Path(path) / "ansible_collections/baremetal").exists()
    )


def killed_writers(store: Store, run: str, raw: Path, seed: int) -> list[tuple[int, int]]:
    """Start two writers, kill each after a random time, and return what they acknowledged."""
    chance = random.Random(seed)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, collections(), store.folder, run, scope, str(raw)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for scope in ("a", "b")
    ]
    reported = []
    for writer in started:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in started:
        time.sleep(chance.uniform(0.0, 0.15))
        os.kill(writer.pid, signal.SIGKILL)
    for writer in started:
        assert writer.stdout is not None
        lines = writer.stdout.read().splitlines()
        reported += [tuple(map(int, line.split())) for line in lines if len(line.split()) == 2]
        writer.stdout.close()
        writer.wait()
    return reported


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_killed_at_random_moments(store: Store, tmp_path: Path, seed: int):
    raw = tmp_path / "said.txt"
    raw.write_text("said " * 2000)
    run = store.begin("validate_nodes", AT)
    reported = killed_writers(store, run, raw, seed)

    problems = Problems()
    found = whole(store, run, problems)
    assert {number: count for number, count in reported if found.get(number) != count} == {}
    # Whatever is not whole has been reported: at most the last batch of each writer.
    cut = [line for line in problems.lines if "was truncated" in line]
    assert len(cut) <= 2
    assert len(found) - len(reported) <= 2
    for path in (tmp_path / "evidence/runs" / run / "raw").rglob("said.txt"):
        assert path.read_text() == raw.read_text()

    # The next run goes on: in the same run, and in another one, with complete histories.
    after = store.add(run, "c", "", records(scope="c"), AT)
    assert whole(store, run, Problems())[after.batch] == 2
    store.begin("validate_nodes", AT)
    store.settle(Problems())
    batches = [one for one in store.batches(Problems()) if one.whole]
    assert current(batches)["c", "gpu"].head["batch"] == after.batch
    history = dict(store.histories(Problems()))
    seen = {(one["run"], one["batch"]) for one in history[UUID.format(0)]}
    assert {one.key for one in batches} <= seen


def test_records_of_wanted_batches_only(store: Store):
    run = store.begin("validate_nodes", AT)
    first = store.add(run, "a", "", records(scope="a"), AT).batch
    second = store.add(run, "b", "", records(scope="b"), AT).batch
    seen = [
        batch.head["batch"]
        for batch, record in store.read(run, Problems(), lambda one: one.head["batch"] == second)
        if record is not None
    ]
    assert seen == [second, second]
    assert {batch for batch, count in whole(store, run, Problems()).items() if count} == {
        first,
        second,
    }


def test_a_batch_that_is_not_wanted_is_named_without_its_records(store: Store):
    run = store.begin("validate_nodes", AT)
    numbers = [store.add(run, scope, "", records(scope=scope), AT).batch for scope in "ab"]
    found = list(store.read(run, Problems(), lambda one: one.scope == "b"))
    assert [(one.head["batch"], data is None) for one, data in found] == [
        (numbers[0], True), (numbers[1], True), (numbers[1], False), (numbers[1], False),
    ]  # fmt: skip


def test_others_neither_read_nor_write_what_is_kept(store: Store, tmp_path: Path):
    raw = tmp_path / "said.txt"
    raw.write_text("said")
    for number in (1, 2):
        run = store.begin("validate_nodes", f"2026-03-0{number}T00:00:00Z")
        store.add(run, "n", "", records(), AT, raw_files=[str(raw)])
    store.settle(Problems())

    def modes() -> set[tuple[bool, str]]:
        home = tmp_path / "evidence"
        return {
            (one.is_dir(), oct(one.stat().st_mode & 0o7777)) for one in [home, *home.rglob("*")]
        }

    expected = {(True, "0o750"), (False, "0o640")}
    assert modes() == expected
    store.tidy(datetime(2026, 5, 1, tzinfo=timezone.utc), 30, 0)
    assert list((tmp_path / "evidence/runs").rglob("*.gz"))
    assert modes() == expected


def test_settling_passes_over_runs_without_records_and_those_it_has_settled(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    empty = store.begin("validate_nodes", "2026-03-01T00:00:00Z")
    full = store.begin("validate_nodes", "2026-03-02T00:00:00Z")
    store.add(full, "n", "", records(), AT)
    late = store.begin("validate_nodes", "2026-03-03T00:00:00Z")
    store.add(late, "n", "", records(), AT)
    for path in (tmp_path / "evidence/history").iterdir():
        path.unlink()
    store.begin("validate_nodes", "2026-03-04T00:00:00Z")
    looked_at: list[str] = []
    read = store.read

    def watched(run: str, problems: Problems):
        looked_at.append(run)
        return read(run, problems)

    monkeypatch.setattr(store, "read", watched)
    store.settle(Problems())
    assert looked_at == [full, late]
    assert [len(lines) for lines in dict(store.histories(Problems())).values()] == [2, 2]
    assert not (tmp_path / "evidence/runs" / empty / "settled").exists()
    store.settle(Problems())
    assert looked_at == [full, late]
    # One that was added to is looked at again, and what comes after a settled one too.
    store.add(late, "m", "", records(scope="m"), AT)
    store.settle(Problems())
    assert looked_at == [full, late, late]


def test_a_damaged_archive_is_named_and_the_rest_is_read(store: Store):
    damaged = store.begin("p", "2025-01-01T00:00:00Z")
    store.add(damaged, "n", "test", records(), AT)
    for day in ("02", "03"):
        store.add(store.begin("p", f"2025-01-{day}T00:00:00Z"), "m", "test", records(scope="m"), AT)
    store.tidy(datetime(2025, 3, 1, tzinfo=timezone.utc), 30, 0)
    path = Path(store.runs, damaged, f"{RECORDS_FILE}.gz")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    wrong_sum = whole[:-8] + bytes(4) + whole[-4:]
    for content in (b"", b"no archive", whole[:5], whole[:-20], bytes(flipped), wrong_sum):
        path.write_bytes(content)
        problems = Problems()
        found = store.batches(problems)
        assert sum(batch.scope == "m" for batch in found) == 2
        assert any(line.startswith(f"{damaged}/{RECORDS_FILE} line ") for line in problems.lines)
        problems = Problems()
        list(store.read(damaged, problems))
        assert any(line.endswith(": truncated") for line in problems.lines)
        # replace_node reads all of them, too.
        store.begin("p", AT)
        store.settle(Problems())


def test_what_is_compressed_is_compressed_once(store: Store, tmp_path: Path):
    raw = tmp_path / "said.txt"
    raw.write_text("said")
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(), AT, raw_files=[str(raw)])
    store.begin("validate_nodes", "2026-03-02T00:00:00Z")
    store.settle(Problems())
    home = tmp_path / "evidence/runs" / run
    # What another program left: neither is a file of the store.
    for name in ("a.gz", "settled.half~"):
        (home / name).write_text("as it was")
    for _twice in range(2):
        store.tidy(datetime(2026, 5, 1, tzinfo=timezone.utc), 30, 0)
        names = sorted(str(one.relative_to(home)) for one in home.rglob("*") if one.is_file())
        assert names == [
            "a.gz", "raw/n/said.txt.gz", f"{RECORDS_FILE}.gz", "settled", "settled.half~",
        ]  # fmt: skip
    assert (home / "a.gz").read_text() == "as it was"


def test_problems_of_a_run_name_its_line(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(), AT)
    path = tmp_path / "evidence/runs" / run / RECORDS_FILE
    path.write_text("\nnoise\n" + path.read_text())
    problems = Problems()
    # An empty line is passed over, and the batch after the noise is whole.
    assert [one.whole for one in store.batches(problems)] == [True]
    assert problems.lines == [f"{run}/{RECORDS_FILE} line 2: no line of the store"]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[2:4], lines[4][:-10] + "\n", *lines[5:]]))
    problems = Problems()
    assert [one.whole for one in store.batches(problems)] == [False]
    assert problems.lines == [
        f"{run}/{RECORDS_FILE} line 3: truncated",
        f"{run}/{RECORDS_FILE}: the batch of n was truncated",
    ]
    history = next((tmp_path / "evidence/history").glob("*.jsonl"))
    history.write_text("noise\n" + history.read_text())
    problems = Problems()
    assert len([one for _serial, lines in store.histories(problems) for one in lines]) == 2
    assert problems.lines == [f"{history.name} line 1: no line of the store"]


def test_a_store_without_its_number_counts_on_from_its_batches(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    assert not (tmp_path / "evidence/sequence").exists()
    store.add(run, "n", "", [], AT)
    assert (tmp_path / "evidence/sequence").read_text() == "1\n"
    (tmp_path / "evidence/sequence").unlink()
    store.add(run, "n", "", [], AT)
    assert (tmp_path / "evidence/sequence").read_text() == "2\n"


def test_numbers_begin_at_one_beside_batches_that_have_none(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(), AT)
    path = tmp_path / "evidence/runs" / run / RECORDS_FILE
    first, *rest = path.read_text().splitlines()
    head = {key: value for key, value in unpack(first).items() if key != "sequence"}
    path.write_text("\n".join([pack(head), *rest]) + "\n")
    (tmp_path / "evidence/sequence").unlink()
    store.add(run, "n", "", records(), AT)
    numbers = [batch.head.get("sequence") for batch in store.batches(Problems())]
    assert numbers == [None, 1]


def test_files_beside_compressed_ones_are_compressed(store: Store, tmp_path: Path):
    run = store.begin("validate_nodes", AT)
    store.add(run, "n", "", records(), AT)
    raw = tmp_path / "evidence/runs" / run / "raw"
    # Compressing was interrupted: some are done, and the folder lists them in any order.
    for number in range(8):
        (raw / f"{number}.txt").write_text("said")
    for number in range(8, 16):
        (raw / f"{number}.txt.gz").write_bytes(gzip.compress(b"said"))
    store.tidy(datetime(2026, 5, 1, tzinfo=timezone.utc), 30, 0)
    assert {one.name for one in raw.iterdir()} == {f"{number}.txt.gz" for number in range(16)}
    assert {gzip.decompress(one.read_bytes()) for one in raw.iterdir()} == {b"said"}
