# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The store of evidence on disk: `_evidence` says what is in its files.

Whoever is told that something was added can rely on it: it has been written and synced. Whoever is
killed before leaves at most the beginning of a batch, which is known by its missing end. The
histories follow from the runs; what is missing there is added by the next run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import json
import os
import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence import (
    RECORDS_FILE,
    Batch,
    Problems,
    batch_lines,
    file_name,
    history_lines,
    housekeeping,
    pack,
    parse,
    parts_of,
    run_name,
    run_time,
    unpack,
)

_RUNS, _HISTORY, _PARTS, _RAW, _SETTLED = "runs", "history", "parts", "raw", "settled"
_GONE = ".gone-"
_PART = ".part"
_ISO = "%Y-%m-%dT%H:%M:%SZ"


def sync_folder(path: str) -> None:
    """Make the names in a folder last. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def write_whole(path: str, content: bytes, sync: bool = True, mode: int = 0o640) -> None:
    """Write a file that is there as a whole or not at all. Raises OSError.

    Without `sync` a power failure may take it back.
    """
    fresh = f"{path}.{os.getpid()}{_PART}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
            if sync:
                handle.flush()
                os.fsync(handle.fileno())
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
    if sync:
        sync_folder(os.path.dirname(path))


@dataclass(frozen=True)
class Added:
    """What was added: the batch's number, and how many records and files."""

    batch: int
    records: int
    raw: tuple[str, ...]


class Store:
    """A folder with evidence; it is made where it does not exist."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.runs = os.path.join(folder, _RUNS)
        self.history = os.path.join(folder, _HISTORY)
        self.parts = os.path.join(folder, _PARTS)

    # ---- adding

    def begin(self, playbook: str, at: str) -> str:
        """Make a run and return its name. Raises OSError, ValueError for a bad name or time."""
        for path in (self.folder, self.runs, self.history, self.parts):
            os.makedirs(path, mode=0o750, exist_ok=True)
        with self._locked():
            run = run_name(at, playbook, os.listdir(self.runs))
            os.makedirs(os.path.join(self.runs, run, _RAW), mode=0o750)
            sync_folder(self.runs)
        return run

    def add(
        self,
        run: str,
        scope: str,
        source: str,
        records: Sequence[Mapping[str, Any]],
        at: str,
        level: str = "",
        simulated: str = "",
        raw_files: Sequence[str] = (),
    ) -> Added:
        """Add a batch to a run, and copies of files beside it; on return it is on disk.

        Raises OSError; KeyError, TypeError where something is no record, ValueError for a name.
        """
        run_time(run)
        home = os.path.join(self.runs, run)
        if not os.path.isdir(home):
            raise ValueError(f"{run}: no such run has begun in {self.folder}")
        with self._locked():
            raw = [self._keep_raw(home, scope, path) for path in raw_files]
            path = os.path.join(home, RECORDS_FILE)
            number = _size(path)
            lines = batch_lines(
                run, number, scope, source, records, at, level, simulated, sorted(raw)
            )
            _append(path, lines)
            sync_folder(home)
            kept = [unpack(line)["record"] for line in lines[1:-1]]
            # Not synced: it follows from the run, and settle() adds what is missing.
            self._add_history(unpack(lines[0]), kept, sync=False)
        return Added(number, len(records), tuple(raw))

    def _keep_raw(self, home: str, scope: str, path: str) -> str:
        name = f"{file_name(scope)}/{file_name(os.path.basename(path))}"
        target = os.path.join(home, _RAW, name)
        os.makedirs(os.path.dirname(target), mode=0o750, exist_ok=True)
        with open(path, "rb") as handle:
            write_whole(target, handle.read())
        return name

    def _add_history(
        self, head: Mapping[str, Any], records: Sequence[Mapping[str, Any]], sync: bool
    ) -> None:
        path = os.path.join(self.parts, f"{file_name(str(head['scope']))}.json")
        before: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as handle:
            before = json.load(handle)
        parts = {**before, **parts_of(records)}
        if parts != before:
            write_whole(path, json.dumps(parts, indent=1).encode("ascii"), sync)
        for serial, line in history_lines(head, records, parts).items():
            path = os.path.join(self.history, f"{file_name(serial)}.jsonl")
            known = {(one["run"], one["batch"]) for one in self._history_of(path, Problems())}
            if (line["run"], line["batch"]) not in known:
                _append(path, [pack(line)], sync)

    def settle(self, problems: Problems) -> None:
        """Add to the histories what a killed run has left out, once for each run that is over.

        A run is over when another one begins. Raises OSError.
        """
        with self._locked():
            for run in self.names()[:-1]:
                mark = os.path.join(self.runs, run, _SETTLED)
                # Its length, since a run beside this one may still be added to.
                size = _size(os.path.join(self.runs, run, RECORDS_FILE))
                if not size or _content(mark) == b"%d\n" % size:
                    continue
                kept: dict[tuple[str, int], list[dict[str, Any]]] = {}
                heads: dict[tuple[str, int], Batch] = {}
                for batch, record in self.read(run, problems):
                    heads[batch.key] = batch
                    if record is not None:
                        kept.setdefault(batch.key, []).append(record)
                for key, batch in heads.items():
                    self._add_history(batch.head, kept.get(key, []), sync=True)
                sync_folder(self.history)
                write_whole(mark, b"%d\n" % size)

    # ---- reading

    def names(self) -> list[str]:
        """Return the names of all runs, the oldest first."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.runs):
                with contextlib.suppress(ValueError):
                    run_time(name)
                    found.append(name)
        return sorted(found)

    def read(
        self,
        run: str,
        problems: Problems,
        wanted: Callable[[Batch], bool] | None = None,
    ) -> Iterator[tuple[Batch, dict[str, Any] | None]]:
        """Yield the batches of a run as parse() does; records of `wanted` ones only."""
        path = os.path.join(self.runs, run, RECORDS_FILE)
        chosen: dict[int, bool] = {}
        for batch, record in parse(_lines(path), f"{run}/{RECORDS_FILE}", problems):
            number = batch.head["batch"]
            if number not in chosen:
                chosen[number] = wanted is None or wanted(batch)
            if chosen[number] or record is None:
                yield batch, record

    def batches(self, problems: Problems) -> list[Batch]:
        """Return all batches of all runs, without their records, and what is wrong with them."""
        found: list[Batch] = []
        for run in self.names():
            path = os.path.join(self.runs, run, RECORDS_FILE)
            found += _batches(_lines(path), f"{run}/{RECORDS_FILE}", problems)
        return found

    def histories(self, problems: Problems) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield the serial and the history of each part that ever was seen."""
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            names = sorted(os.listdir(self.history))
        for name in names:
            if name.endswith(".jsonl"):
                path = os.path.join(self.history, name)
                yield name[: -len(".jsonl")], list(self._history_of(path, problems))

    def _history_of(self, path: str, problems: Problems) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(_lines(path), 1):
            if line.strip():
                try:
                    yield unpack(line.rstrip("\n"))
                except ValueError as error:
                    problems.add(os.path.basename(path), number, str(error))

    # ---- what is old

    def tidy(self, now: datetime, compress_days: float, keep_days: float) -> tuple[str, ...]:
        """Compress and remove what is old; return the names of removed runs. Raises OSError."""
        with self._locked():
            for name in os.listdir(self.runs):
                if name.startswith(_GONE):
                    shutil.rmtree(os.path.join(self.runs, name))
            old = housekeeping(self.names(), now, compress_days, keep_days)
            for run in old.compress:
                self._compress(os.path.join(self.runs, run))
            for run in old.remove:
                gone = os.path.join(self.runs, f"{_GONE}{run}")
                os.rename(os.path.join(self.runs, run), gone)
                shutil.rmtree(gone)
            sync_folder(self.runs)
        return old.remove

    def _compress(self, home: str) -> None:
        for folder, _folders, names in os.walk(home):
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith(_PART):
                    os.unlink(path)
                elif name != _SETTLED and not name.endswith(".gz"):
                    with open(path, "rb") as handle:
                        content = gzip.compress(handle.read(), 6, mtime=0)
                    write_whole(f"{path}.gz", content)
                    os.unlink(path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time; the kernel lets go of it when the process ends, however it ends."""
        path = os.path.join(self.folder, "lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def now_utc() -> str:
    """Return the present time, ISO 8601 UTC."""
    return datetime.now(timezone.utc).strftime(_ISO)


def _lines(path: str) -> Iterator[str]:
    """Yield the lines of a file, or of its compressed form; none where there is no file."""
    # Both are there where compressing was cut short: the plain one is whole then.
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace", newline="\n") as plain:
            yield from plain
    elif os.path.exists(f"{path}.gz"):
        with gzip.open(f"{path}.gz", "rt", encoding="utf-8", errors="replace") as packed:
            yield from packed


def _content(path: str) -> bytes:
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as handle:
        return handle.read()
    return b""


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _append(path: str, lines: Iterable[str], sync: bool = True) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    with os.fdopen(descriptor, "r+b") as handle:
        text = "".join(f"{line}\n" for line in lines)
        size = handle.seek(0, os.SEEK_END)
        if size:
            handle.seek(size - 1)
            # What a killed run has begun stays as a line of its own, which is told when it is read.
            text = text if handle.read(1) == b"\n" else "\n" + text
        handle.write(text.encode("utf-8"))
        handle.flush()
        if sync:
            os.fsync(handle.fileno())


def _batches(lines: Iterable[str], file: str, problems: Problems) -> Iterator[Batch]:
    """Yield batches without reading their records as JSON: only whether each is whole is told."""
    counted: list[str] = []
    found: dict[int, Batch] = {}
    batch: Batch | None = None
    for number, line in enumerate(lines, 1):
        try:
            if line.startswith('{"kind":"record"') and line.endswith('"}\n'):
                if batch is not None:
                    batch.records += 1
                continue
            if not line.strip():
                continue
            data = unpack(line.rstrip("\n"))
            if data["kind"] == "batch":
                batch = found[data["batch"]] = Batch(data)
            elif data["kind"] == "end":
                ended = found[data["batch"]]
                ended.whole = ended.records == data["records"]
        except ValueError as error:
            counted.append(f"{file} line {number}: {error}")
        except KeyError as error:
            counted.append(f"{file} line {number}: lacks {error}")
    for one in found.values():
        if not one.whole:
            counted.append(f"{file}: the batch of {one.scope} was cut short")
    problems.lines += counted
    yield from found.values()


def load_records(path: str) -> tuple[list[Any], Mapping[str, Any]]:
    """Return the records of a JSON file, and the file: a list, or a mapping with `records`.

    Raises OSError, ValueError.
    """
    with open(path, encoding="utf-8") as handle:
        data = json.load(handle)
    if isinstance(data, list):
        return data, {}
    if isinstance(data, Mapping) and isinstance(data.get("records"), list):
        return data["records"], data
    raise ValueError(f"{path}: has no records")
