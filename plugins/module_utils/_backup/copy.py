# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""One copy of what a host has: gathered in a folder, counted, and put into the repository."""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Mapping

from .._core.files import copy_file, make_folder, remove_tree
from .._core.record import utc_text
from .._core.run import CommandRunner, ToolError
from .._slurm.saved_state import release_of
from . import blocks, dump, manifest, state, work
from .repository import Repository, Snapshot
from .settings import CONTROL, CONTROLLER, DATABASE, METRICS, Database, Settings

DUMP_NAME = "slurm_acct_db.sql"
STATE_NAME = "state"
HOST_NAME = "host"
BLOCKS_NAME = "blocks"
_STAGE = "stage"
# Digests of blocks that were copied before.
_MEMORY = "blocks.json"


def other_device(settings: Settings) -> None:
    """Raise ToolError if a repository of this host is on the disk of what is copied, or of `/`.

    So a mount that is missing is noticed, too: what is below its mount point is on such a disk.
    """
    place = settings.repository.partition("local:")[2] or settings.repository
    if settings.same_disk_ok or not place.startswith("/"):
        return
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    for own in (
        settings.work_dir, settings.state_dir, settings.data_dir, settings.blocks_dir, "/",
    ):  # fmt: skip
        if own and os.path.isdir(own) and os.stat(own).st_dev == os.stat(place).st_dev:
            raise ToolError(
                f"{settings.repository} is on the disk of {own}, which it would be lost with; "
                "mount another one, or write a repository of another host"
            )


def last_job(run: CommandRunner, database: Database, cluster: str) -> int:
    """Return the highest number of a job in the accounting. ToolError."""
    rows = dump.ask(
        run, database, f"SELECT MAX(id_job) FROM `{database.name}`.`{cluster}_job_table`"
    )
    text = rows[0][0] if rows else ""
    return int(text) if text.isdigit() else 0


def _gather_controller(settings: Settings, _run: CommandRunner, folder: str) -> dict[str, Any]:
    into = os.path.join(folder, STATE_NAME)
    state.copy(settings.state_dir, into, settings.state_limit_s)
    # slurmctld writes the first queue minutes after its first start.
    if not state.release(into) and not os.path.exists(os.path.join(into, "clustername")):
        raise ToolError(f"{settings.state_dir}: holds no state of slurmctld")
    return {"release": state.release(into), "next_job": state.next_job(into)}


def _gather_database(settings: Settings, run: CommandRunner, folder: str) -> dict[str, Any]:
    database = settings.database
    if database is None:
        raise ToolError("the configuration names no database")
    path = os.path.join(folder, DUMP_NAME)
    version = run(["slurmdbd", "-V"], timeout_s=20)
    number = last_job(run, database, settings.cluster)
    dump.make(run, database, path, settings.limit_s)
    release = release_of(version.out.rpartition(" ")[2].strip())
    return {"release": release, "next_job": number + 1, "tables": dump.count_dump(path)}


def _gather_secrets(settings: Settings, folder: str) -> dict[str, list[int]]:
    owners = {}
    for path in settings.secrets:
        if os.path.exists(path):
            into = os.path.join(folder, HOST_NAME, path.lstrip("/"))
            make_folder(os.path.dirname(into), 0o700)
            copy_file(path, into, 0o600)
            found = os.stat(path)
            owners[path] = [found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)]
    return owners


def gather(
    settings: Settings, run: CommandRunner, kind: str, folder: str, archive: str = ""
) -> dict[str, Any]:
    """Fill a new folder and return its manifest. ToolError, OSError."""
    at = utc_text()
    if kind != METRICS:
        remove_tree(folder)
    make_folder(folder, 0o700)
    facts: dict[str, Any] = {}
    files = None
    if kind == METRICS:
        into = os.path.join(folder, BLOCKS_NAME)
        facts = blocks.facts(blocks.copy(settings.blocks_dir, into, settings.state_limit_s))
        memory = os.path.join(settings.work_dir, _MEMORY)
        files = blocks.digests(folder, memory, settings.limit_s)
    elif kind == CONTROL:
        done = run(["tar", "-xf", archive, "-C", folder, "--no-same-owner"], settings.limit_s)
        if not done.ok:
            raise ToolError(f"{archive}: {done.describe(2)}")
    else:
        gatherer = {CONTROLLER: _gather_controller, DATABASE: _gather_database}[kind]
        facts = gatherer(settings, run, folder)
        # After a restore the queue and the accounting say less until a job has begun.
        facts["next_job"] = max(facts["next_job"], settings.first_job)
        facts["owners"] = _gather_secrets(settings, folder)
    facts = {"kind": kind, "cluster": settings.cluster, "host": os.uname().nodename, **facts}
    return manifest.make(folder, at, facts, files)


# The folder is on no PATH.
_ONCE = "`/usr/local/libexec/baremetal-dgx/cluster-backup copy --younger-ok` once"


def another(data: Mapping[str, Any], before: Snapshot) -> str:
    """Return why a manifest is not of the same cluster as the last copy; empty if it is. Pure."""
    at, job = utc_text(before.at_s), data.get("next_job", 0)
    if data["kind"] == METRICS:
        # Blocks that were deleted are in no newer copy, and old copies are forgotten.
        if not before.job or (data["blocks"] and data["from_s"] <= before.job):
            return ""
        has = f"begin at {utc_text(data['from_s'])}" if data["blocks"] else "have no block"
        return (
            f"the time series {has} here and ended at {utc_text(before.job)} in the copy of {at}: "
            "this is not the Prometheus that was copied, and would take its place; run "
            f"restore_metrics, or {_ONCE}"
        )
    if before.job <= job:
        return ""
    return (
        f"the next job's number is {job} here and {before.job} in the copy of {at}: this is not "
        "the cluster that was copied, and would take its place; run restore_cluster, or "
        f"{_ONCE}"
    )


def make(
    settings: Settings, run: CommandRunner, kind: str, is_known: bool, archive: str = "",
    younger_ok: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Make one copy; return its manifest, with what it took. ToolError, OSError."""
    began = time.monotonic()
    work.require_no_restore(settings, kind)
    repository = Repository(settings, run)
    other_device(settings)
    repository.ensure(is_known)
    folder = os.path.join(settings.work_dir, _STAGE, kind)
    try:
        data = gather(settings, run, kind, folder, archive)
        before = repository.snapshots(kind)
        why = another(data, before[-1]) if before and not younger_ok else ""
        if why:
            raise ToolError(why)
        job = data.get("until_s", data.get("next_job", 0))
        repository.backup(kind, folder, job)
    finally:
        # What is on another disk would be copied each time.
        if kind != METRICS or blocks.is_linked(settings.blocks_dir, settings.work_dir):
            remove_tree(folder)
    return {**data, "took_s": round(time.monotonic() - began, 3)}
