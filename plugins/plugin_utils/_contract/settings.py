# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Settings of the contract with its defaults filled in. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...module_utils._core.schema import Option

# What may be a text of any kind, and therefore a secret.
_FREE = frozenset({"str", "path", "list", "dict", "raw"})


def filled(
    option: Option,
    value: Any,
    refer: Callable[..., str] | None = None,
    keys: tuple[str, ...] = (),
) -> Any:
    """Return the value, each key that lacks and has a default added, at any depth.

    Elements of lists, and values of mappings with free keys, are filled likewise.

    With refer, what is written and may be any text is not copied: refer(*keys) takes its place.
    """
    if option.type != "dict" or option.options is None:
        if refer is not None and option.type in _FREE and not option.choices:
            return refer(*keys)
        return _each_filled(option.each, value) if option.each else value
    given = value if isinstance(value, Mapping) else {}
    return {
        name: filled(
            inner,
            given.get(name, inner.default),
            refer if name in given else None,
            (*keys, name),
        )
        for name, inner in option.options.items()
        if name in given or inner.default is not None
    }


def _each_filled(each: Option, value: Any) -> Any:
    """Return the list, or the mapping with free keys, each value of it filled."""
    if isinstance(value, Mapping):
        return {key: filled(each, item) for key, item in value.items()}
    return [filled(each, item) for item in value] if isinstance(value, (list, tuple)) else value
