# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The restic repository: what is called, and what its answers are worth.

`backup` ends with 0 although a pack is missing or has a flipped bit, and plain `check` passes a
flipped bit; only `check --read-data` and a restore find it, and a failed restore leaves files of
full size with wrong content (tried with restic 0.14). So a copy proves nothing, a restore goes to
a new folder, and its files are compared with their digests. Before 0.17 all failures are exit
status 1.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Mapping, Sequence

from .._core.record import utc_text
from .._core.run import ENDED, CommandResult, CommandRunner, ToolError, last_lines
from .._core.wait import attempts
from .settings import KINDS, METRICS, Settings

_PAUSE_S = 5
_LOCKED = "already locked"
# Exit status of restic 0.17 and later for a repository that is not there; before, the reason is in
# what each error of opening ends up in: that of a server that does not answer, too.
_ABSENT_RC = 10
_CLOSED = "unable to open config file"
_ABSENT = re.compile(rf"{_CLOSED}.*(no such file|does(n't| not) exist|not ?found)", re.IGNORECASE)
_WRONG_WORD = "wrong password"
_NEWER, _UNKNOWN = "unsupported repository version", "unknown flag"
NO_ROOM = "no space left on device"
# Clocks of a cluster agree better than this.
_CLOCK_S = 600
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)\Z")


class WrongWordError(ToolError):
    """The passphrase is not that of the repository."""


class NoRepositoryError(ToolError):
    """There is no repository."""


class UnansweredError(ToolError):
    """restic is missing, did not end, or another host kept the lock: nothing is known."""


@dataclass(frozen=True)
class Snapshot:
    """One copy in the repository; `at_s` is Unix time.

    `job` is the next job's number, of time series the Unix time at which they end; 0 for none.
    """

    name: str
    at_s: float
    kind: str
    folder: str
    job: int = 0


@dataclass(frozen=True)
class Repository:
    """All calls of restic for one cluster."""

    settings: Settings
    run: CommandRunner

    def _environment(self) -> Mapping[str, str]:
        given = self.settings
        return {
            **given.environment,
            "RESTIC_REPOSITORY": given.repository,
            "RESTIC_PASSWORD_FILE": given.password_file,
        }

    def call(self, *words: str, locked_s: float = 0) -> CommandResult:
        """Return an answer without an error. A lock of another host is waited for. ToolError."""
        options = [word for option in self.settings.options for word in ("-o", option)]
        cache = ["--cache-dir", f"{self.settings.work_dir}/cache"]
        if words[0] in ("check", "restore"):
            # What is proved is what is in the repository.
            cache = ["--no-cache"]
        argv = ["restic", *options, *cache, *words]
        for _left in attempts(locked_s, _PAUSE_S):
            done = self.run(argv, self.settings.limit_s, self._environment())
            if _LOCKED not in done.text:
                break
        if done.ok:
            return done
        if done.outcome != ENDED:
            raise UnansweredError(f"restic {words[0]}: {done.describe()}")
        reported = last_lines(done.err or done.out, 3) or done.describe(2)
        if _LOCKED in done.text:
            raise UnansweredError(f"restic {words[0]}: another host is at work: {reported}")
        if words[0] == "restore" and NO_ROOM in done.text:
            raise UnansweredError(f"restic restore: {reported}")
        if _WRONG_WORD in done.text:
            raise WrongWordError(f"the passphrase is not that of the repository: {reported}")
        if _NEWER in done.text:
            raise ToolError(
                f"restic {words[0]}: {reported}: a newer restic made the repository; install "
                "restic 0.14 or later on this host, or name a new backup_repository"
            )
        if done.rc == _ABSENT_RC or _ABSENT.search(done.text):
            raise NoRepositoryError(f"there is no repository: {reported}")
        if _CLOSED in done.text:
            raise UnansweredError(f"restic {words[0]}: {reported}")
        raise ToolError(f"restic {words[0]}: {reported}")

    def snapshots(self, kind: str = "") -> list[Snapshot]:
        """Return the copies of this cluster, oldest first. ToolError."""
        words = ["snapshots", "--json", "--no-lock", f"--host={self.settings.cluster}"]
        return parse_snapshots(self.call(*words).out, kind)

    def open(self) -> None:
        """See that it is there, and that the passphrase is its own. ToolError."""
        self.call("cat", "config", "--no-lock")

    def ensure(self, is_known: bool) -> None:
        """Make the repository if there is none, and there never was. ToolError.

        One host of a cluster does: two `init` at once leave a key that does not fit, and no copy
        can ever be read (tried with restic 0.18 over sftp).
        """
        try:
            self.open()
        except NoRepositoryError as error:
            if is_known:
                raise
            if not self.settings.tidies:
                raise NoRepositoryError(
                    f"{self.settings.repository} is not there yet, and the first host that copies "
                    "creates it: run configure_backup for all hosts"
                ) from error
            self._begin()

    def _begin(self) -> None:
        """Make a repository of the format that each restic reads: 0.12 knows 1 alone."""
        try:
            self.call("init", "--repository-version=1")
        except ToolError as error:
            if _UNKNOWN not in str(error):
                raise
            self.call("init")

    def backup(self, kind: str, folder: str, job: int) -> None:
        """Put a folder into it. ToolError."""
        # Only what a killed process left: restic knows which of its locks are dead.
        self.call("unlock")
        words = [f"--host={self.settings.cluster}", f"--tag={kind},job={job}"]
        if kind == METRICS:
            # Each copy gives the files another name and takes it again, which changes this time.
            words.append("--ignore-ctime")
        self.call("backup", "--quiet", *words, folder, locked_s=300)

    def tidy(self) -> None:
        """Forget copies that are older than is declared, and what only they needed. ToolError."""
        given = self.settings
        for kind in KINDS:
            kept = given.keep_metrics if kind == METRICS else given.keep
            keep = [f"--keep-{name}={count}" for name, count in kept.items() if count]
            if keep:
                words = ["--quiet", "--group-by=host,paths", f"--tag={kind}", *keep]
                self.call("forget", f"--host={given.cluster}", *words, locked_s=300)
        self.call("prune", "--quiet", locked_s=300)

    def check(self) -> None:
        """See that nothing is missing; the host that tidies reads all of it. ToolError.

        As long as it lasts, no host can copy or check.
        """
        # Names what is missing at once; reading it would be tried again for a quarter of an hour.
        self.call("check", locked_s=self.settings.limit_s)
        if self.settings.tidies:
            self.call("check", "--read-data", locked_s=self.settings.limit_s)

    def size(self, snapshot: Snapshot) -> int:
        """Return how many bytes its files have. ToolError."""
        words = ["--mode=restore-size", "--json", "--no-lock", snapshot.name]
        done = self.call("stats", *words)
        try:
            return int(json.loads(done.out)["total_size"])
        except (ValueError, KeyError, TypeError) as error:
            raise ToolError(f"restic stats: {error!r} in its answer") from error

    def restore(self, snapshot: Snapshot, folder: str) -> None:
        """Write a copy below a folder, which may be wrong although it has the right size."""
        self.call("restore", snapshot.name, f"--target={folder}", "--no-lock")


def parse_snapshots(text: str, kind: str = "") -> list[Snapshot]:
    """Return the snapshots of `restic snapshots --json`, oldest first. ToolError. Pure."""
    try:
        data = json.loads(text) or []
        found = [_snapshot(one) for one in data]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ToolError(f"restic snapshots: {error!r} in its answer") from error
    return sorted((one for one in found if kind in ("", one.kind)), key=lambda one: one.at_s)


def ahead(snapshots: Sequence[Snapshot], now_s: float) -> str:
    """Return why the newest copy, by its time, may not be the newest; empty if it is. Pure."""
    if not snapshots or snapshots[-1].at_s <= now_s + _CLOCK_S:
        return ""
    last = snapshots[-1]
    return (
        f"the copy {last.name[:8]} is dated {utc_text(last.at_s)} and now is {utc_text(now_s)}: "
        "the clock was wrong then, or is now; set it, or `restic forget` that copy"
    )


def _snapshot(data: Mapping[str, Any]) -> Snapshot:
    tags: Sequence[str] = data.get("tags") or [""]
    job = next((tag[4:] for tag in tags if tag.startswith("job=")), "0")
    return Snapshot(
        str(data["id"]), _unix_time(data["time"]), str(tags[0]), str(data["paths"][0]), int(job)
    )


def _unix_time(text: str) -> float:
    """Return Unix time of RFC 3339 with any number of digits, which Python 3.8 does not read."""
    found = _TIME.match(text)
    if not found:
        raise ValueError(text)
    zone = "+00:00" if found[2] == "Z" else found[2]
    return datetime.fromisoformat(found[1] + zone).timestamp()
