# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The program of the role backup: `cluster-backup [--config FILE] COMMAND`.

Commands are copy, prove, copied and check-config. Exit status: 0, or 3 when something was not
copied, failed, or was not measured. One copies or proves at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from typing import Sequence

from .._core.check_module import result_of
from .._core.files import read_json, read_text, text_if_there
from .._core.record import PASS, Record
from .._core.run import CommandRunner, ToolError, run
from . import copy, proof, status, work
from .repository import Repository
from .settings import CONTROL, Settings, settings_from_data

CONFIG = "/etc/baremetal-dgx/cluster-backup.json"
_OK, _FAULT = 0, 3
# Less than a validation of managed_files may take.
_OPENS_S = 45


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster-backup", description="Copies of Slurm's memory")
    parser.add_argument("--config", default=CONFIG, metavar="FILE")
    commands = parser.add_subparsers(dest="command", required=True)
    checks = commands.add_parser("check-config", help="only read the configuration")
    checks.add_argument(
        "--passphrase", metavar="FILE", help="that replaces the host's, if it opens the repository"
    )
    commands.add_parser("copied", help="what this repository lacks: no copy, or an old one")
    copies = commands.add_parser("copy", help="make a copy of what this host has")
    copies.add_argument("--control", default="", metavar="TAR", help="of the control machine")
    copies.add_argument(
        "--younger-ok", action="store_true", help="also if the numbers of jobs have begun again"
    )
    commands.add_parser("prove", help="restore the newest copies and compare; records as JSON")
    return parser


def make_copies(
    settings: Settings, runner: CommandRunner, archive: str = "", younger_ok: bool = False
) -> list[str]:
    """Make a copy of each kind; return what went wrong. OSError for a status that is not kept."""
    problems = []
    known = status.load(settings)
    for kind in [CONTROL] if archive else settings.kinds:
        at_s, took_s = time.time(), 0.0
        is_known = "copy_timestamp_seconds" in known.get(kind, {})
        try:
            took_s = copy.make(settings, runner, kind, is_known, archive, younger_ok)["took_s"]
        except (ToolError, OSError) as error:
            problems.append(f"{kind}: {error}")
        known = status.copied(known, kind, round(at_s), took_s, bool(took_s))
    status.save(settings, known)
    return problems


def prove(settings: Settings, runner: CommandRunner) -> list[Record]:
    """Prove the newest copies. OSError."""
    kinds = list(settings.kinds)
    if settings.tidies and CONTROL in status.load(settings):
        kinds.append(CONTROL)
    records = proof.prove(settings, runner, kinds)
    status.save(settings, status.proved(status.load(settings), kinds, records, round(time.time())))
    return records


def tidy(settings: Settings, runner: CommandRunner, records: Sequence[Record]) -> list[str]:
    """Forget what is old if all is well; return what went wrong, or what it waits for."""
    if not settings.tidies:
        return []
    waits = sorted({one.check for one in records if one.status != PASS})
    if waits:
        why = f"{', '.join(waits)} must pass first"
        return [f"old copies are not removed until a proof passes, the repository grows: {why}"]
    try:
        Repository(settings, runner).tidy()
    except (ToolError, OSError) as error:
        return [f"old copies are not removed: {error}"]
    return []


def require_same_word(settings: Settings, runner: CommandRunner, staged: str) -> None:
    """Raise ToolError for a passphrase that would replace the only one that opens the copies.

    The folder of the new one has all files of the host's, as they are to be.
    """
    known = text_if_there(settings.password_file)
    if not known or known.strip() == read_text(staged).strip():
        return
    former, folder = (f"{os.path.dirname(path)}/" for path in (settings.password_file, staged))
    options = [option.replace(former, folder) for option in settings.options]
    new = replace(settings, password_file=staged, options=options, limit_s=_OPENS_S)
    try:
        Repository(new, runner).open()
    except ToolError as error:
        raise ToolError(
            f"backup_password: is not what {settings.password_file} of this host has, and does not "
            f"open {settings.repository}: {error}; write what that file has into "
            ".dgx/secrets/backup_password, where a new one may lie; if no copy needs it, move the "
            "file elsewhere"
        ) from error


def _work(given: argparse.Namespace) -> list[str]:
    settings = settings_from_data(read_json(given.config))
    if given.command == "check-config":
        if given.passphrase:
            require_same_word(settings, run, given.passphrase)
        return []
    if given.command == "copied":
        return status.lacks(settings, status.load(settings), time.time())
    os.umask(0o077)
    with work.alone(settings):
        if given.command == "copy":
            return make_copies(settings, run, given.control, given.younger_ok)
        records = prove(settings, run)
        found = result_of(records)
        # Before the repository is tidied, which may fail or last.
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        return [*found["findings"], *found["not_measured"], *tidy(settings, run, records)]


def main(words: Sequence[str]) -> int:
    """Do one run. Returns the exit status."""
    parser = _parser()
    given = parser.parse_args(list(words))
    try:
        problems = _work(given)
    except (ToolError, OSError, ValueError) as error:
        problems = [str(error)]
    for line in problems:
        sys.stderr.write(f"{parser.prog}: {line}\n")
    return _FAULT if problems else _OK
