# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Takes secrets and names out of texts that leave the cluster or are shown to many. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping


class Redactor:
    """Takes secrets out of texts: those that are given, and what calls itself one.

    `names` are words that are taken out, too, such as those of people and hosts.
    """

    _CALLED = r"password|passwd|passphrase|secret|token|api[_-]?key|private[_-]?key"
    _WORDS = re.compile(
        rf"(?i)\b((?:[\w-]*(?:{_CALLED})[\w-]*|authorization)[\"']?\s*[=:]\s*)"
        r"(?:(?:bearer|basic)\s+)?(\"[^\"]*\"|'[^']*'|[^\s,;]+)"
    )
    # Options, also in a list of arguments, and lines of a netrc. What goes on as a sentence stays.
    _PROSE = r"(?:is|are|was|and|or|to|for|with|without|by|has|must)(?:[\s.,;:]|$)"
    _GIVEN = re.compile(
        rf"(?i)((?<![\w-])--[\w-]*(?:{_CALLED})[\"']?,?\s+(?![\"']?--)"
        rf"|\blogin\s+(?!{_PROSE})\S+\s+(?:account\s+\S+\s+)?password\s+)"
        rf"(?!{_PROSE})(?:\"[^\"]*\"|'[^']*'|\S+)"
    )
    # Not each `key: word` is a secret: one with digits and letters, as long as keys are.
    _KEYS = re.compile(
        r"((?i:\b[\w-]*key)[\"']?\s*[=:]\s*[\"']?)"
        r"(?=[A-Za-z+/_]*[0-9])(?=[0-9+/_]*[A-Za-z])[A-Za-z0-9+/_]{16,}={0,2}"
    )
    # StoragePass=x of slurmdbd.conf, DB_PASS=x, and what one types: passwd x
    _PASSES = re.compile(
        r"(\b(?:\w*[a-z]Pass|\w+_(?:PASS|pass))[\"']?\s*[=:]\s*|(?<![/\w])passwd\s+(?![=:]))"
        r"(\"[^\"]*\"|'[^']*'|[^\s,;]+)"
    )
    _BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END[^-]*-----|\Z)", re.S)
    _URL = re.compile(r"(\w+://[^\s/:]*):[^\s/]+@")

    def __init__(self, secrets: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        # Shorter ones would take ordinary words out of the text.
        kept = sorted({one for one in secrets if len(one) >= 6}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, kept))) if kept else None
        words = sorted({one for one in names if len(one) >= 3}, key=len, reverse=True)
        any_of = "|".join(map(re.escape, words))
        self._names = re.compile(rf"(?<![\w.-])(?:{any_of})(?![\w-])") if words else None

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known is not None:
            text = self._known.sub("[hidden]", text)
        text = self._BLOCK.sub("[hidden]", text)
        text = self._URL.sub(r"\1:[hidden]@", text)
        for pattern in (self._WORDS, self._GIVEN, self._KEYS, self._PASSES):
            text = pattern.sub(r"\1[hidden]", text)
        if self._names is not None:
            text = self._names.sub("[name]", text)
        return text

    def data(self, data: Any) -> Any:
        """Return mappings and lists with all their texts, keys too, without secrets."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {self.text(str(key)): self.data(value) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self.data(one) for one in data]
        return data
