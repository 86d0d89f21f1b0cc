# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A copy comes back: looked for, fetched and compared, then put where it belongs.

Each step can be killed and done again. What is there already is replaced only by consent, and then
kept beside; what a killed run has begun to load is replaced without.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import pwd
import time
from functools import partial
from typing import Any, Callable, Mapping, Sequence

from .._core.files import (
    NO_OTHER_WRITER,
    copy_tree,
    give_tree,
    json_if_readable,
    make_folder,
    open_folder,
    read_bytes,
    read_json,
    remove_tree,
    rename,
    temporary_folder,
    write_atomic,
)
from .._core.mounts import all_mounts
from .._core.record import utc_text
from .._core.run import CommandRunner, ToolError
from .._slurm.saved_queue import queue_of
from .._slurm.saved_state import refusal
from . import blocks, dump, jobs, manifest, state, work
from .control import unpack
from .copy import BLOCKS_NAME, DUMP_NAME, HOST_NAME, STATE_NAME
from .proof import restored
from .repository import Repository, Snapshot, ahead
from .settings import (
    CONTROL,
    CONTROLLER,
    DATABASE,
    METRICS,
    Database,
    Settings,
    settings_from_data,
)

_FETCHED = "restored"
_REHEARSAL_S = 60
_NEVER = float(1 << 36)
_SLURM, _PROMETHEUS = "slurm", "prometheus"
_UNIT = "prometheus.service"
_QUEUE = "job_state"
# Of the file system, at the top of a mount; names with a dot are of this program and its roles.
_LOST = "lost+found"
# By the roles, from the control machine's secrets.
_WRITTEN = ("/etc/munge/munge.key", "/etc/slurm/slurm.key", "/etc/slurm/slurmdbd.conf",
            "/etc/slurm/jwt_hs256.key")  # fmt: skip
# In the folder of a database that was only created.
_NOTHING = frozenset({"db.opt"})


def step(run: CommandRunner, options: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Do one step by the options of cluster_restore; ToolError, OSError, ValueError."""
    kind, state_wanted = options["kind"], options["state"]
    if state_wanted == "unpacked":
        return unpack(run, options["archive"], options["folder"], check)
    until = limit_of(options["not_after"])
    settings = settings_from_data(read_json(options["config"]))
    if state_wanted == "looked":
        return {"changed": False, **look(settings, run, kind, until, options["over"])}
    if state_wanted == "fetched":
        return fetch(settings, run, kind, until, options["version"], check)
    if state_wanted == "placed":
        return place(settings, run, kind, until, options["over"], check)
    return compare(settings, run, kind, until, options["running"], options["numbers"])


class NoCopyError(ToolError):
    """There is no copy of this kind."""


def _database(settings: Settings) -> Database:
    if settings.database is None:
        raise ToolError("the configuration names no database")
    return settings.database


def is_there(settings: Settings, run: CommandRunner, kind: str, is_served: bool = False) -> bool:
    """Return whether something would be replaced. ToolError, OSError.

    A database is asked, where its server answers, and for certain with `is_served`: a folder proves
    nothing, since a server may keep its data anywhere.
    """
    if kind == CONTROLLER:
        return bool(state.release(settings.state_dir))
    if kind == METRICS:
        return blocks.is_there(settings.blocks_dir)
    if kind != DATABASE:
        return False
    database = _database(settings)
    if is_served or database.host or dump.answers(database):
        return bool(_tables(run, database))
    folder = os.path.join(settings.data_dir, dump.folder_name(database.name))
    return os.path.isdir(folder) and not _NOTHING.issuperset(os.listdir(folder))


def _tables(run: CommandRunner, database: Database) -> list[str]:
    sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema='{database.name}'"
    return [row[0] for row in dump.ask(run, database, sql)]


def _quoted(database: Database, table: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in (database.name, table))


def choose(settings: Settings, run: CommandRunner, kind: str, until_s: float) -> Snapshot:
    """Return the newest copy that is not newer than `until_s` (Unix time). ToolError.

    Which is the newest is not known while one is from the future, unless the operator says a time.
    """
    found = [one for one in Repository(settings, run).snapshots(kind) if one.at_s <= until_s]
    why = ahead(found, time.time()) if until_s == _NEVER else ""
    if why:
        raise ToolError(f"{why}, or write restore_until")
    if not found:
        raise NoCopyError(
            f"{settings.repository} has no copy of the {kind} until {utc_text(until_s)}"
        )
    return found[-1]


def look(
    settings: Settings, run: CommandRunner, kind: str, until_s: float, over: bool,
    is_served: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return what is on the host, and which copy would come. ToolError, OSError.

    What was put in place is done as long as it is there; by consent another copy replaces it.
    """
    mark = work.marks(settings).get(kind, {})
    there, was_put = is_there(settings, run, kind, is_served), bool(mark.get("done"))
    answer: dict[str, Any] = {
        "there": there,
        "done": there and was_put,
        "begun": bool(mark) and not was_put,
    }
    if answer["done"] and not over:
        return answer
    try:
        snapshot = choose(settings, run, kind, until_s)
    except NoCopyError:
        # back_up makes it, which a site need not run.
        if kind != CONTROL:
            raise
        return answer
    # An empty copy, of the first hours of a Prometheus, puts nothing there.
    answer["done"] = was_put and ((there and mark["snapshot"] == snapshot.name) or not snapshot.job)
    if not answer["done"]:
        answer.update(
            {
                "snapshot": snapshot.name,
                "at": utc_text(snapshot.at_s),
                "age_s": _age_s(snapshot),
                "job": snapshot.job,
            }
        )
    return answer


def _age_s(snapshot: Snapshot) -> int:
    return max(0, round(time.time() - snapshot.at_s))


def _folder(settings: Settings, kind: str) -> str:
    return os.path.join(settings.work_dir, _FETCHED, kind)


def _fetched(settings: Settings, kind: str, snapshot: str) -> dict[str, Any]:
    """Return the manifest of what was fetched before; empty if it was another copy, or nothing."""
    folder = _folder(settings, kind)
    if json_if_readable(f"{folder}.json") != {"snapshot": snapshot}:
        return {}
    return manifest.read(folder)


def _fetch(settings: Settings, run: CommandRunner, snapshot: Snapshot) -> dict[str, Any]:
    """Fetch a copy and return its manifest."""
    target = _folder(settings, snapshot.kind)
    make_folder(os.path.dirname(target), 0o700)
    with temporary_folder(work.FETCH, settings.work_dir) as above:
        folder, data, wrong = restored(Repository(settings, run), snapshot, above)
        if wrong:
            raise ToolError(
                f"the copy of {utc_text(snapshot.at_s)} is damaged ({', '.join(wrong[:3])}): "
                "choose an older one by restore_until"
            )
        remove_tree(target)
        rename(folder, target)
    # Before the note, with which nothing is fetched again.
    _place_files(settings, target, data.get("owners") or {})
    write_atomic(f"{target}.json", json.dumps({"snapshot": snapshot.name}) + "\n", 0o600)
    return data


def fetch(
    settings: Settings, run: CommandRunner, kind: str, until_s: float, version: str, check: bool
) -> dict[str, Any]:
    """Fetch a copy and compare it with its manifest; return what it says. ToolError, OSError."""
    snapshot = choose(settings, run, kind, until_s)
    data = _fetched(settings, kind, snapshot.name)
    changed = not data
    if changed and not check:
        with work.alone(settings):
            data = _fetch(settings, run, snapshot)
    why = refusal(data.get("release", ""), version) if version and data else ""
    if why:
        raise ToolError(f"the copy of the {kind} is of Slurm {data['release']}: {why}")
    return {
        "changed": changed,
        "snapshot": snapshot.name,
        "at": data.get("at", ""),
        "release": data.get("release", ""),
        "next_job": data.get("next_job", 0),
        "folder": _folder(settings, kind),
        "files": {
            path[len(HOST_NAME) :]: digest
            for path, digest in data.get("files", {}).items()
            if path.startswith(HOST_NAME + "/")
        },
    }


def place(
    settings: Settings, run: CommandRunner, kind: str, until_s: float, over: bool, check: bool
) -> dict[str, Any]:
    """Put a fetched copy where it belongs. ToolError, OSError."""
    with contextlib.nullcontext() if check else work.alone(settings):
        # In check mode the server may not be installed yet.
        seen = look(settings, run, kind, until_s, over, is_served=not check)
        if seen["done"]:
            return {"changed": False, "kept": ""}
        aside = seen["there"] and not seen["begun"]
        if aside and not over:
            raise ToolError(
                f"the {kind} is there, and would be replaced by the copy of {seen['at']}; consent "
                f"is restore_over=[{kind}]"
            )
        if check:
            return {"changed": True, "kept": ""}
        data = _fetched(settings, kind, seen["snapshot"])
        if not data:
            raise ToolError(f"the copy of {seen['at']} was not fetched")
        folder = _folder(settings, kind)
        putter = {
            CONTROLLER: _place_controller, DATABASE: _place_database, METRICS: _place_metrics,
        }[kind]  # fmt: skip
        begin = partial(work.mark, settings, kind, seen["snapshot"], is_done=False)
        kept = putter(settings, run, folder, data, aside, begin)
        work.mark(settings, kind, seen["snapshot"], is_done=True)
        remove_tree(f"{folder}.json")
        remove_tree(folder)
        return {"changed": True, "kept": kept}


def _is_mount(path: str) -> bool:
    """Return whether a folder is a mount: it cannot be renamed, and what it holds can."""
    return os.path.realpath(path) in all_mounts()


def _entries(path: str) -> list[str]:
    """Return what a daemon has in a folder; last is what says that it has anything, a queue or
    blocks: where that is moved, the rest is, too.
    """
    with open_folder(path) as folder:
        names = [one for one in folder.names() if not one.startswith(".") and one != _LOST]

    def place(name: str) -> tuple[bool, bool]:
        return name.startswith(_QUEUE) or blocks.is_block(name), name == _QUEUE

    return sorted(names, key=place)


def _move(source: str, target: str) -> None:
    for name in _entries(source):
        rename(os.path.join(source, name), os.path.join(target, name))


def _set_aside(path: str) -> str:
    """Keep a folder beside itself, or within where it is a mount; return where. OSError."""
    if not _is_mount(path):
        kept = f"{path}.replaced-{utc_text()}"
        rename(path, kept)
        return kept
    kept = os.path.join(path, f".replaced-{utc_text()}")
    make_folder(kept, 0o700, NO_OTHER_WRITER)
    _move(path, kept)
    return kept


# Each calls `begin` when what was there is kept as a whole: from then on a run that was killed is
# done again without consent, and keeps nothing.


def _place_controller(
    settings: Settings, _run: CommandRunner, folder: str, _data: Mapping[str, Any], aside: bool,
    begin: Callable[[], None],
) -> str:  # fmt: skip
    place_, kept = settings.state_dir, ""
    owner = pwd.getpwnam(_SLURM)
    make_folder(os.path.dirname(place_))
    within = _is_mount(place_)
    # In a folder of root's: what is above belongs to Slurm's user, on the disk of the state.
    above = os.path.join(place_, ".restored") if within else f"{place_}.restored"
    remove_tree(above)
    make_folder(above, 0o700)
    fresh = os.path.join(above, STATE_NAME)
    copy_tree(os.path.join(folder, STATE_NAME), fresh)
    give_tree(fresh, owner.pw_uid, owner.pw_gid, 0o700)
    if aside:
        kept = _set_aside(place_)
    begin()
    if within:
        for name in _entries(place_):
            remove_tree(os.path.join(place_, name))
        _move(fresh, place_)
    else:
        remove_tree(place_)
        rename(fresh, place_)
    remove_tree(above)
    return kept


def _place_database(
    settings: Settings, run: CommandRunner, folder: str, data: Mapping[str, Any], aside: bool,
    begin: Callable[[], None],
) -> str:  # fmt: skip
    database, kept = _database(settings), ""
    path = os.path.join(folder, DUMP_NAME)
    if not dump.is_complete(path):
        raise ToolError(f"{path}: the dump ends before its last line")
    if aside:
        kept = os.path.join(settings.work_dir, f"replaced-database-{utc_text()}.sql")
        with temporary_folder(work.ASIDE, settings.work_dir) as above:
            fresh = os.path.join(above, DUMP_NAME)
            dump.make(run, database, fresh, settings.limit_s)
            rename(fresh, kept)
    begin()
    for table in _tables(run, database):
        dump.ask(run, database, f"DROP TABLE {_quoted(database, table)}", settings.limit_s)
    dump.load(run, database, path, settings.limit_s)
    counts = {}
    for table in _tables(run, database):
        sql = f"SELECT COUNT(*) FROM {_quoted(database, table)}"
        counts[table] = int(dump.ask(run, database, sql, settings.limit_s)[0][0])
    wrong = dump.differing(data.get("tables") or {}, counts)
    if wrong:
        raise ToolError(f"the database is not what was copied: {', '.join(wrong[:5])}")
    return kept


def _place_metrics(
    settings: Settings, run: CommandRunner, folder: str, _data: Mapping[str, Any], aside: bool,
    begin: Callable[[], None],
) -> str:  # fmt: skip
    """Put blocks beside what Prometheus has written since it was installed, which has none yet."""
    # Not by its lock: Debian's Prometheus has none.
    if run(["systemctl", "is-active", "--quiet", _UNIT]).ok:
        raise ToolError(f"Prometheus runs on {settings.blocks_dir}: `systemctl stop {_UNIT}`")
    owner, kept = pwd.getpwnam(_PROMETHEUS), ""
    if aside:
        kept = _set_aside(settings.blocks_dir)
    begin()
    source = os.path.join(folder, BLOCKS_NAME)
    blocks.put(source, settings.blocks_dir, owner.pw_uid, owner.pw_gid)
    return kept


def _place_files(settings: Settings, folder: str, owners: Mapping[str, Any]) -> None:
    """Put back what no role writes, such as the nodes that the gate knows; never over a file."""
    for path in settings.secrets:
        source = os.path.join(folder, HOST_NAME, path.lstrip("/"))
        if path in owners and path not in _WRITTEN and not os.path.exists(path):
            owner, group, mode = owners[path]
            write_atomic(path, read_bytes(source), mode, owner, group)


def limit_of(text: str) -> float:
    """Return Unix time of an option, far ahead for none; ToolError."""
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) if text else _NEVER
    except ValueError as error:
        raise ToolError(f"not_after: {text!r} is not like 2026-01-31T23:59:59Z") from error


def compare(
    settings: Settings,
    run: CommandRunner,
    kind: str,
    until: float,
    listed: Mapping[str, str],
    given: Sequence[int],
) -> dict[str, Any]:
    """Return what becomes of the jobs, and a number above all that were given.

    listed is what `scontrol listpids` prints, by node.
    """
    snapshot = choose(settings, run, kind, until)
    path = os.path.join(settings.work_dir, _FETCHED, kind, "state")
    running = {node: jobs.parse_listpids(text) for node, text in listed.items()}
    found = jobs.compare(running, queue_of(run, path, "/etc/slurm", _REHEARSAL_S))
    first = jobs.first_job([found["highest"], snapshot.job, *given], _age_s(snapshot))
    return {"changed": False, **found, "first_job": first}
