# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The store of evidence on disk: `_evidence` says what is in its files.

A caller that was answered can rely on it: it has been written and synced. A run
that is killed before leaves at most the beginning of a batch, which is known by its missing end.
The histories follow from the runs; what is missing there is added by the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import time
import zlib
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence

from .._core.files import (
    append_lines,
    make_folder,
    open_append,
    open_folder,
    remove_tree,
    rename,
    write_atomic,
)
from .._core.record import NOT_MEASURED, Record
from .._core.verdict import FABRIC, place_of
from .batch import (
    RECORDS_FILE,
    Batch,
    Problems,
    batch_lines,
    current,
    file_name,
    history_lines,
    housekeeping,
    pack,
    parse,
    parts_of,
    run_name,
    run_time,
    unpack,
    with_standing,
)
from .failures import note_failures
from .links import LinkStore

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

_RUNS, _HISTORY, _PARTS, _RAW, _SETTLED = "runs", "history", "parts", "raw", "settled"
_SEQUENCE = "sequence"
_GONE = ".gone-"
# Who asks in a batch that only says that what was known is of another part.
_REPLACED = "replaced"
_ISO = "%Y-%m-%dT%H:%M:%SZ"


def sync_folder(path: str) -> None:
    """Make the names in a folder last. Raises OSError."""
    with open_folder(path) as folder:
        folder.sync()


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
            make_folder(path, 0o750)
        with self.locked():
            run = run_name(at, playbook, os.listdir(self.runs))
            make_folder(os.path.join(self.runs, run), 0o750)
            make_folder(os.path.join(self.runs, run, _RAW), 0o750)
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
        ended: Sequence[str] = (),
    ) -> Added:
        """Add a batch to a run, and copies of files beside it; on return it is on disk.

        Raises OSError; KeyError, TypeError where something is not a record, ValueError for a name.
        """
        run_time(run)
        home = os.path.join(self.runs, run)
        if not os.path.isdir(home):
            raise ValueError(f"{run}: no such run has begun in {self.folder}")
        with self.locked():
            raw = [self._keep_raw(home, scope, path) for path in raw_files]
            path = os.path.join(home, RECORDS_FILE)
            number = _size(path)
            lines = batch_lines(
                run,
                number,
                scope,
                source,
                records,
                at,
                level,
                simulated,
                sorted(raw),
                self._next_number(),
                ended,
            )
            append_lines(path, lines)
            sync_folder(home)
            kept = [unpack(line)["record"] for line in lines[1:-1]]
            # Not synced: it follows from the run, and settle() adds what is missing.
            self._add_history(unpack(lines[0]), kept, sync=False)
        return Added(number, len(records), tuple(raw))

    def _next_number(self) -> int:
        """The number of the next batch of the store, which no clock can set back."""
        path = os.path.join(self.folder, _SEQUENCE)
        try:
            number = int(_content(path)) + 1
        except ValueError:
            heads = [batch.head for batch in self.batches(Problems())]
            number = max((int(head.get("sequence", 0)) for head in heads), default=0) + 1
        # Not synced: without it the number is found again from the batches.
        write_atomic(path, f"{number}\n", 0o640, sync=False)
        return number

    def _keep_raw(self, home: str, scope: str, path: str) -> str:
        name = f"{file_name(scope)}/{file_name(os.path.basename(path))}"
        target = os.path.join(home, _RAW, name)
        with open(path, "rb") as handle:
            write_atomic(target, handle.read(), 0o640, make=0o750)
        return name

    def _parts_file(self, scope: str) -> str:
        return os.path.join(self.parts, f"{file_name(scope)}.json")

    def _add_history(
        self,
        head: Mapping[str, Any],
        records: Sequence[Mapping[str, Any]],
        sync: bool,
        is_last: bool = True,
    ) -> None:
        """Add lines to the histories; `is_last` says that the parts are where these records say."""
        path = self._parts_file(str(head["scope"]))
        before: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as handle:
            before = json.load(handle)
        parts = {**before, **parts_of(records)}
        if is_last and parts != before:
            write_atomic(path, json.dumps(parts, indent=1), 0o640, sync=sync)
        for serial, line in history_lines(head, records, parts).items():
            path = os.path.join(self.history, f"{file_name(serial)}.jsonl")
            known = {(one["run"], one["batch"]) for one in self._history_of(path, Problems())}
            if (line["run"], line["batch"]) not in known:
                append_lines(path, [pack(line)], sync=sync)

    def settle(self, problems: Problems) -> None:
        """Add to the histories what a killed run has left out, once for each run that is over.

        A run is over when another one begins. Raises OSError.
        """
        is_lost: dict[str, bool] = {}
        with self.locked():
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
                    # A part that was replaced since must not come back into its slot.
                    if batch.scope not in is_lost:
                        is_lost[batch.scope] = not os.path.exists(self._parts_file(batch.scope))
                    records = kept.get(key, [])
                    self._add_history(batch.head, records, True, is_lost[batch.scope])
                sync_folder(self.history)
                write_atomic(mark, b"%d\n" % size, 0o640)

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

    def history_of(self, serial: str, problems: Problems) -> list[dict[str, Any]]:
        """Return the history of one part, empty where it was never seen."""
        path = os.path.join(self.history, f"{file_name(serial)}.jsonl")
        return list(self._history_of(path, problems))

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
        with self.locked():
            for name in os.listdir(self.runs):
                if name.startswith(_GONE):
                    remove_tree(os.path.join(self.runs, name))
            old = housekeeping(self.names(), now, compress_days, keep_days)
            for run in old.compress:
                self._compress(os.path.join(self.runs, run))
            for run in old.remove:
                gone = os.path.join(self.runs, f"{_GONE}{run}")
                rename(os.path.join(self.runs, run), gone)
                remove_tree(gone)
            sync_folder(self.runs)
        return old.remove

    def _compress(self, home: str) -> None:
        for folder, _folders, names in os.walk(home):
            with open_folder(folder) as here:
                here.sweep()
                for name in names:
                    if name == _SETTLED or name.endswith((".gz", "~")):
                        continue
                    with open(os.path.join(folder, name), "rb") as handle:
                        content = gzip.compress(handle.read(), 6, mtime=0)
                    here.write(f"{name}.gz", content, 0o640)
                    here.remove(name)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time; the kernel lets go of it when the process ends, however it ends."""
        with open_append(os.path.join(self.folder, "lock"), make=None) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def now_utc() -> str:
    """Return the present time, ISO 8601 UTC."""
    return datetime.now(timezone.utc).strftime(_ISO)


def _lines(path: str) -> Iterator[str]:
    """Yield the lines of a file, or of its compressed form; none where there is no file."""
    # Both are there if compressing was interrupted: the plain one is whole then.
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace", newline="\n") as plain:
            yield from plain
    elif os.path.exists(f"{path}.gz"):
        with gzip.open(f"{path}.gz", "rt", encoding="utf-8", errors="replace") as packed:
            try:
                if not _size(f"{path}.gz"):
                    raise EOFError
                yield from packed
            except (EOFError, gzip.BadGzipFile, zlib.error):
                # No line of the store, so that the damage is named, and the batch is not whole.
                yield "{"


def _content(path: str) -> bytes:
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as handle:
        return handle.read()
    return b""


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _batches(lines: Iterable[str], file: str, problems: Problems) -> Iterator[Batch]:
    """Yield batches without reading their records as JSON: only whether each is whole is known."""
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
            counted.append(f"{file}: the batch of {one.scope} was truncated")
    problems.lines += counted
    yield from found.values()


def load_records(path: str) -> tuple[list[Any], Mapping[str, Any]]:
    """Return the records of a JSON file, and the file: a list, or a mapping with `records`.

    Those of a node's file have with them what stands. Raises OSError, ValueError; KeyError,
    TypeError for what is not a record.
    """
    with open(path, encoding="utf-8") as handle:
        data = json.load(handle)
    if isinstance(data, list):
        return data, {}
    if isinstance(data, Mapping) and isinstance(data.get("records"), list):
        return with_standing(data), data
    raise ValueError(f"{path}: has no records")


def begin(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Make a run, and put the store in order."""
    params, now = module.params, now_utc()
    if module.check_mode:
        run = run_name(now, params["playbook"], store.names())
        return {"changed": True, "run": run, "removed": [], "problems": []}
    problems = Problems()
    run = store.begin(params["playbook"], now)
    store.settle(problems)
    removed = store.tidy(datetime.now(timezone.utc), params["compress_days"], params["keep_days"])
    return {"changed": True, "run": run, "removed": list(removed), "problems": problems.lines}


def add(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Add records and files to a run."""
    params, now = module.params, now_utc()
    records = list(params["records"])
    links: list[Any] = []
    ended: list[str] = []
    for path in params["records_files"]:
        found, file = load_records(path)
        records += found
        links += file.get("links") or ()
        ended += file.get("ended") or ()
    raw = [path for path in params["raw_files"] if os.path.isfile(path)]
    for path in params["raw_files"]:
        if path not in raw:
            module.warn(f"{path} does not exist; it is missing in the evidence")
    run, scope, source = params["run"], params["scope"], params["source"]
    level, simulated = params["level"], params["simulated"]
    if params["failures"] and not module.check_mode:
        with store.locked():
            records += note_failures(params["failures"], records)
    result: dict[str, Any] = {"changed": True, "run": run, "records": len(records)}
    if module.check_mode:
        batch_lines(run, 0, scope, source, records, now, level, simulated)
        return {**result, "raw": []}
    batches = {scope: records}
    if params["by_node"]:
        batches = {}
        for record in records:
            owner = place_of(str(record["subject"])).owner
            batches.setdefault(scope if owner == FABRIC else owner, []).append(record)
    kept: list[str] = []
    for own, some in batches.items():
        kept += store.add(run, own, source, some, now, level, simulated, raw, ended).raw
        raw = []
    if links:
        with store.locked():
            refused = LinkStore(store.folder).add(scope, links, time.time(), simulated)
        for line in refused:
            module.warn(line)
    return {**result, "raw": kept}


def replace(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Let a batch that measured nothing take the place of all that is known of a node."""
    params, node = module.params, module.params["scope"]
    known = current(store.batches(Problems()))
    layers = sorted(
        layer
        for (scope, layer), batch in known.items()
        if scope == node and batch.head["source"] != _REPLACED
    )
    if not layers:
        return {"changed": False, "run": "", "records": 0}
    records = [
        Record(
            f"{layer}.replaced",
            f"node:{node}",
            NOT_MEASURED,
            f"not measured since it was replaced: {', '.join(params['replaced'])}",
            remedy=f"run {'validate_bmc' if layer == 'bmc' else 'validate_nodes'}",
        ).as_data()
        for layer in layers
    ]
    begun = begin(module, store)
    if not module.check_mode:
        store.add(begun["run"], node, _REPLACED, records, now_utc())
    return {**begun, "records": len(records)}


def bring_about(module: AnsibleModule) -> dict[str, Any]:
    """Begin a run or add to it; return what the module returns. Raises OSError, ValueError."""
    store = Store(module.params["folder"])
    states = {"begun": begin, "added": add, "replaced": replace}
    try:
        return states[module.params["state"]](module, store)
    except (KeyError, TypeError) as error:
        raise ValueError(f"records: one is not a record of this collection: {error}") from error
