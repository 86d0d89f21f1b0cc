# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Finds keys that one mapping of an inventory file has twice.

YAML readers keep the last one and Ansible only warns, so the copy of a host's line that somebody
forgot to edit replaces that host, and nothing in the inventory that Ansible hands on shows it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from ...module_utils._core.schema import Problem

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SUFFIXES = (".yml", ".yaml")


def _files(source: str) -> Iterator[str]:
    """Yield the YAML files that Ansible reads for an inventory source, hidden ones left out."""
    if os.path.isfile(source):
        if source.endswith(_SUFFIXES):
            yield source
        folders = [
            os.path.join(os.path.dirname(source), name) for name in ("group_vars", "host_vars")
        ]
    else:
        folders = [source]
    for top in folders:
        for folder, names, files in os.walk(top):
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in sorted(files):
                if name.endswith(_SUFFIXES) and not name.startswith("."):
                    yield os.path.join(folder, name)


def _twice(node: Any) -> Iterator[tuple[str, int, int]]:
    """Yield each key that a mapping has again: its text and the two lines, from 1."""
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                waiting.append(value)
                if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                    continue
                line = key.start_mark.line + 1
                if key.value in lines:
                    yield key.value, lines[key.value], line
                lines.setdefault(key.value, line)


def find_duplicates(sources: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each key that is there twice, with file and line as its path."""
    for source in sources:
        if not os.path.exists(source):
            continue
        base = source if os.path.isdir(source) else os.path.dirname(source)
        for path in _files(source):
            # Ansible has refused what it cannot decode, where it matters.
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
            if text.startswith("$ANSIBLE_VAULT"):
                continue
            try:
                node = yaml.compose(text, Loader=_LOADER)
            except yaml.YAMLError:
                # Ansible has read the file or has said why not; its own tags do not matter here.
                continue
            for key, first, second in _twice(node):
                where = f"{os.path.relpath(path, base)}:{second}"
                yield Problem(
                    where,
                    f"'{key}' is written here and on line {first}, and only one of the two counts",
                    "leave one",
                )
