# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The key that signs the mirror's repositories: made once, kept where the cluster's secrets are."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timezone
from email.utils import format_datetime

from ...module_utils._core.files import make_folder, text_if_there, write_atomic
from ...module_utils._core.run import CommandRunner, ToolError
from .apt import release

_NAME = "baremetal.dgx mirror"


class Key:
    """A key of GnuPG in a separate folder, without a passphrase, which a run could not ask for."""

    def __init__(self, run: CommandRunner, home: str) -> None:
        self._run, self._home = run, home
        make_folder(os.path.dirname(home))
        make_folder(home, 0o700)
        if not self._gpg("--list-secret-keys", "--with-colons").strip():
            words = ["--passphrase", "", "--quick-generate-key", _NAME, "rsa3072", "sign", "never"]
            self._gpg(*words)
        self.public = self._gpg("--armor", "--export", _NAME)

    def _gpg(self, *words: str) -> str:
        answer = self._run(["gpg", "--homedir", self._home, "--batch", "--yes", *words], 120)
        if not answer.ok:
            raise ToolError(f"the mirror cannot be signed: {answer.describe(3)}")
        return answer.out

    def close(self) -> None:
        """End the agent that gpg has started."""
        self._run(["gpgconf", "--homedir", self._home, "--kill", "all"], 30)

    def sign(self, folder: str, text: str, origin: str, fresh: bool) -> bool:
        """Put an index and its signed Release in place; returns whether they were another.

        The index first: apt refuses one that does not fit, until the run is repeated. fresh says
        that the key is not the one of before.
        """
        size, digest = len(text.encode()), hashlib.sha256(text.encode()).hexdigest()
        signed = text_if_there(f"{folder}/InRelease") or ""
        if f" {digest} {size} Packages\n" in signed and not fresh:
            if text_if_there(f"{folder}/Packages") == text:
                return False
        write_atomic(f"{folder}/Packages", text)
        date = format_datetime(datetime.now(timezone.utc), usegmt=True)
        write_atomic(f"{self._home}/Release", release(digest, size, origin, date))
        write_atomic(
            f"{folder}/InRelease",
            self._gpg("--clearsign", "--output", "-", f"{self._home}/Release"),
        )
        return True
