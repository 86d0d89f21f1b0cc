# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A proof: the newest copy of each kind is restored, compared, and what is in it is counted.

The database is loaded for that, and of time series each block is read.

What shows nothing of the copy (a server that does not answer, a tool that is missing) is not
measured; a passphrase that is not the repository's, or a repository that is gone, is a failure.
"""

from __future__ import annotations

import errno
import os
import time
from typing import Any, Callable, Iterator, Sequence

from .._core.files import make_temporary, remove_tree
from .._core.record import PASS, Record
from .._core.run import CommandRunner, ToolError
from . import blocks, dump, manifest, work
from .copy import BLOCKS_NAME, DUMP_NAME
from .repository import (
    NoRepositoryError,
    Repository,
    Snapshot,
    UnansweredError,
    WrongWordError,
    ahead,
)
from .settings import METRICS, Settings
from .thresholds import QUESTIONS

_SHOWN = 5


def _subject(settings: Settings, kind: str) -> str:
    return f"backup:{settings.cluster}/{kind}"


def _named(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _answer(
    check: str, subject: str, ask: Callable[[], Sequence[str]], text: str | None = None
) -> Record:
    """Return the record of what is wrong, which `ask` returns; an error of restic is one thing."""
    question = QUESTIONS[check]
    try:
        wrong = ask()
    except UnansweredError as error:
        return question.judge(subject, None, text=str(error))
    except (ToolError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return question.judge(subject, None, text=str(error))
        wrong = [str(error)]
    return question.judge(subject, len(wrong), text=text, evidence=_named(wrong))


def _opened(settings: Settings, repository: Repository) -> Record | None:
    """Return why nothing can be proved; None for a repository that opens."""
    question, subject = QUESTIONS["backup.repository"], _subject(settings, "repository")
    try:
        repository.open()
    except (WrongWordError, NoRepositoryError) as error:
        return question.judge(subject, 1, evidence=[str(error)])
    except ToolError as error:
        return question.judge(subject, None, text=str(error))
    return None


def restored(
    repository: Repository, snapshot: Snapshot, above: str
) -> tuple[str, dict[str, Any], list[str]]:
    """Restore a copy below a folder; return its own, manifest and differing files. ToolError.

    UnansweredError where there is no room for it.
    """
    work.require_room(above, repository.size(snapshot), f"a copy of the {snapshot.kind}")
    repository.restore(snapshot, above)
    folder = os.path.join(above, snapshot.folder.lstrip("/"))
    data = manifest.read(folder)
    return folder, data, manifest.differing(data, folder)


def _of_kind(
    settings: Settings, run: CommandRunner, repository: Repository, kind: str, now_s: float
) -> Iterator[Record]:
    subject = _subject(settings, kind)
    try:
        found = repository.snapshots(kind)
    except ToolError as error:
        yield QUESTIONS["backup.age"].judge(subject, None, text=str(error))
        return
    if not found:
        yield QUESTIONS["backup.age"].judge(subject, None, text="there is no copy")
        return
    why = ahead(found, now_s)
    hours = max(round((now_s - found[-1].at_s) / 3600, 1), 0.0)
    yield QUESTIONS["backup.age"].judge(subject, None if why else hours, text=why or None)
    above = make_temporary(work.PROOF, settings.work_dir)
    parts: list[str] = []

    def compare() -> list[str]:
        folder, data, wrong = restored(repository, found[-1], above)
        parts.append(folder)
        known.update(data)
        return wrong

    known: dict[str, Any] = {}

    def count() -> list[str]:
        path = os.path.join(parts[0], DUMP_NAME)
        if not dump.is_complete(path):
            return ["the dump ends before its last line"]
        loaded = dump.load_scratch(run, path, settings.work_dir, settings.limit_s)
        return dump.differing(known["tables"], loaded)

    def count_blocks() -> list[str]:
        if not known["blocks"]:
            raise UnansweredError("there is no block yet: Prometheus makes the first in 3 hours")
        return blocks.broken(os.path.join(parts[0], BLOCKS_NAME), known["blocks"])

    try:
        yield _answer("backup.restore", subject, compare)
        if known.get("tables"):
            yield _answer("backup.database", subject, count)
        if known and kind == METRICS:
            samples = sum(known["blocks"].values())
            text = f"blocks that are not whole, of {len(known['blocks'])} with {samples} samples"
            yield _answer("backup.blocks", subject, count_blocks, text)
    finally:
        remove_tree(above)


def prove(
    settings: Settings, run: CommandRunner, kinds: Sequence[str], now_s: float | None = None
) -> list[Record]:
    """Return the records of a proof. OSError for a folder that cannot be written."""
    repository = Repository(settings, run)
    closed = _opened(settings, repository)
    if closed is not None:
        return [closed]

    def see() -> list[str]:
        repository.check()
        return []

    text = (
        None if settings.tidies else "errors in the lists of the repository, which one host reads"
    )
    records = [_answer("backup.repository", _subject(settings, "repository"), see, text)]
    # A restore from a damaged repository may take hours until it fails.
    if records[0].status == PASS:
        now_s = time.time() if now_s is None else now_s
        for kind in kinds:
            records += _of_kind(settings, run, repository, kind, now_s)
    return records
