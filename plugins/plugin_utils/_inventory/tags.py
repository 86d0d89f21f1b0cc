# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Tags of the command line that no task has: Ansible ends green there, and has done nothing."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from ansible import context
from ansible.playbook import Playbook
from ansible.utils.collection_loader._collection_finder import _get_collection_playbook_path

from ...module_utils._core.schema import closest
from .role_specs import collection_root

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPTIONS = {"tags": "--tags", "skip_tags": "--skip-tags"}
# Words of Ansible's own.
_ALWAYS_KNOWN = frozenset({"all", "always", "never", "tagged", "untagged"})


def tags_refusal(loader: Any, variable_manager: Any) -> str:
    """Return which tag of the command line no task of the collection's playbooks has, or nothing.

    Playbooks of the site may include tasks with further tags while they run.
    """
    given = context.CLIARGS
    asked = [(word, str(tag)) for name, word in _OPTIONS.items() for tag in given.get(name) or ()]
    asked = [(word, tag) for word, tag in asked if tag not in _ALWAYS_KNOWN]
    playbooks = [_path(str(name)) for name in given.get("args") or ()]
    ours = os.path.join(os.path.realpath(collection_root()), "playbooks")
    if not asked or any(os.path.dirname(os.path.realpath(path)) != ours for path in playbooks):
        return ""
    known = set(_known(playbooks, loader, variable_manager))
    for word, tag in asked:
        if tag not in known:
            near = closest(tag, known, 0.8)
            remedy = f"write {near}" if near else "--list-tags shows those that there are"
            return f"{word} {tag}: no task of the playbook has this tag; {remedy}"
    return ""


def _path(name: str) -> str:
    found = _get_collection_playbook_path(name)
    return str(found[1]) if found else name


def _known(paths: Iterable[str], loader: Any, variable_manager: Any) -> Iterator[str]:
    for path in paths:
        book = Playbook.load(path, variable_manager=variable_manager, loader=loader)
        for play in book.get_plays():
            yield from _inside(play.compile())


def _inside(tasks: Iterable[Any]) -> Iterator[str]:
    for task in tasks:
        yield from (str(tag) for tag in task.tags)
        if str(getattr(task, "action", "")).endswith("include_role"):
            yield from _of_role(str(task.args.get("name", "")))
        for part in ("block", "rescue", "always"):
            yield from _inside(getattr(task, part, None) or ())


def _of_role(name: str) -> Iterator[str]:
    """Yield the tags in a role that is included while the playbook runs; of all, for a template."""
    folder = "*" if "{{" in name else name.rpartition(".")[2]
    for path in glob.glob(os.path.join(collection_root(), "roles", folder, "tasks", "*.yml")):
        with open(path, encoding="utf-8") as stream:
            yield from _written(yaml.load(stream, Loader=_LOADER))


def _written(tasks: Any) -> Iterator[str]:
    for task in tasks or ():
        tags = task.get("tags") or ()
        yield from (str(tag) for tag in (tags if isinstance(tags, list) else [tags]))
        for part in ("block", "rescue", "always"):
            yield from _written(task.get(part))
