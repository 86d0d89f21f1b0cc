# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store on disk, with writers that are killed at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence import (
    RECORDS_FILE,
    Problems,
    current,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence_store import (
    Store,
    load_records,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    PASS,
    Record,
)

pytestmark = pytest.mark.slow

AT = "2026-03-01T00:00:00Z"
UUID = "gpu-51a7ed00-0000-4000-8000-{:012d}"

# Adds batches until it is killed; says so when each is acknowledged.
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence_store import Store
from ansible_collections.baremetal.dgx.plugins.module_utils._records import Record

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
    raw.write_text("what the tool said")
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
    later = datetime(2026, 9, 1, tzinfo=timezone.utc)
    (tmp_path / "evidence/runs" / ".gone-half").mkdir()
    assert store.tidy(later, 0, 30) == (runs[0],)
    assert store.names() == runs[1:]
    assert not list((tmp_path / "evidence/runs").glob(".gone*"))
    assert len(dict(store.histories(Problems()))[UUID.format(0)]) == 3


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
    told = []
    for writer in started:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in started:
        time.sleep(chance.uniform(0.0, 0.15))
        os.kill(writer.pid, signal.SIGKILL)
    for writer in started:
        assert writer.stdout is not None
        lines = writer.stdout.read().splitlines()
        told += [tuple(map(int, line.split())) for line in lines if len(line.split()) == 2]
        writer.stdout.close()
        writer.wait()
    return told


@pytest.mark.parametrize("seed", range(20))
def test_killed_at_random_moments(store: Store, tmp_path: Path, seed: int):
    raw = tmp_path / "said.txt"
    raw.write_text("said " * 2000)
    run = store.begin("validate_nodes", AT)
    told = killed_writers(store, run, raw, seed)

    problems = Problems()
    found = whole(store, run, problems)
    assert {number: count for number, count in told if found.get(number) != count} == {}
    # Whatever is not whole has been told: at most the last batch of each writer.
    cut = [line for line in problems.lines if "was cut short" in line]
    assert len(cut) <= 2
    assert len(found) - len(told) <= 2
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
