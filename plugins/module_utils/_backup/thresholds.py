# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Questions about a copy that was restored."""

from __future__ import annotations

from .._core.question import Question, by_check

_OURS = "baremetal.dgx"
_READ = (
    "restore an older copy to see which are whole (docs/operations.md), then begin a new repository"
)

QUESTIONS = by_check(
    Question(
        "backup.repository", "errors when all of the repository is read", "==", 0, "errors",
        _OURS, "compare the passphrase with .dgx/secrets/backup_password; look at the disk of the "
        "repository; `restic check --read-data` names what is damaged; " + _READ,
    ),
    Question(
        "backup.age", "age of the newest copy", "<=", 192, "h",
        f"{_OURS}: eight days", "journalctl -u baremetal-dgx-backup says why none was made",
    ),
    Question(
        "backup.restore", "restored files that differ from their manifest", "==", 0, "files",
        _OURS, _READ,
    ),
    Question(
        "backup.database", "tables with other rows than the manifest", "==", 0, "tables",
        _OURS, _READ,
    ),
    Question(
        "backup.blocks", "blocks of Prometheus that are not whole in the copy", "==", 0, "blocks",
        _OURS, _READ,
    ),
)  # fmt: skip
