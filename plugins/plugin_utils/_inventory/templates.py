# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Ansible's templating in the running process, and the collection's own files of templates."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ansible import template
from ansible.template import Templar

# Up to ansible-core 2.18 every text may be a template, unless it is marked as unsafe.
trusted = getattr(template, "trust_as_template", str)
_is_trusted = getattr(
    template, "is_trusted_as_template", lambda text: not hasattr(text, "__UNSAFE__")
)
# A comment is one, too: Jinja cuts it out.
_MARKS = ("{{", "{%", "{#")
# From ansible-core 2.19 on, a first line with it is enough.
_HEADER = "#jinja2:"


def is_like_template(text: str) -> bool:
    """Return whether Ansible would read the text as a template if it trusted it."""
    return text.startswith(_HEADER) or any(mark in text for mark in _MARKS)


def texts(value: Any) -> Iterator[str]:
    """Yield the texts of the value and of its parts, but no key."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)


def has_template(value: Any) -> bool:
    """Return whether Ansible templates the value or a part of it."""
    return any(is_like_template(text) and _is_trusted(text) for text in texts(value))


def templar(loader: Any) -> Any:
    """Return a Templar that compiles each template once instead of once a host.

    Compiling is nine tenths of the time of a small template, and Ansible keeps nothing of it. The
    attributes are private, so their absence in some release only costs that time.
    """
    made = Templar(loader=loader, variables={})
    engine = getattr(made, "_engine", made)
    try:
        environment = engine.environment
        environment.compile = functools.cache(environment.compile)
    except AttributeError:
        pass
    return made


def load_templates(loader: Any, *parts: str) -> Any:
    """Return what a YAML file of the collection holds, its templates included; {} without one."""
    path = os.path.join(*parts)
    if not os.path.exists(path):
        return {}
    try:
        # From ansible-core 2.19 on, nothing is a template that is not marked as one.
        found = loader.load_from_file(path, cache="all", unsafe=True, trusted_as_template=True)
    except TypeError:
        found = loader.load_from_file(path, cache="all", unsafe=True)
    return found or {}
