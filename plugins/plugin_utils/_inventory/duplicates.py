# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Finds keys that one mapping of an inventory file has twice.

YAML readers keep the last one and Ansible only warns, so the copy of a host's line that was
not edited replaces that host, and nothing in the inventory that Ansible hands on shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from ...module_utils._core.schema import Problem
from .files import File, mappings


def _twice(node: Any) -> Iterator[tuple[str, int, int]]:
    """Yield each key that a mapping has again: its text and the two lines, from 1."""
    for mapping in mappings(node):
        lines: dict[str, int] = {}
        for key, _value in mapping.value:
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                yield key.value, lines[key.value], line
            lines.setdefault(key.value, line)


def find_duplicates(files: Iterable[File]) -> Iterator[Problem]:
    """Yield a problem for each key that is there twice, with file and line as its path."""
    for file in files:
        for key, first, second in _twice(file.node):
            yield Problem(
                f"{file.name}:{second}",
                f"'{key}' is written here and on line {first}, and only one of the two counts",
                "leave one",
            )
