# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The secrets among the values of an inventory, as roles and contract declare them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils._core.schema import Option, RoleSpec
from .._contract.contract import NODE_VARIABLES
from .given import READ


def secret_options(roles: Mapping[str, RoleSpec]) -> dict[str, Option]:
    """Return the variables that are a secret or have one inside, by name."""
    options = {name: one for role in roles.values() for name, one in role.options.items()}
    # What the plan hands on as another input has the secrets of that one.
    jobs = {"monitoring_jobs": options["prometheus_jobs"]} if "prometheus_jobs" in options else {}
    return {
        name: one
        for name, one in {**options, **READ, **NODE_VARIABLES, **jobs}.items()
        if one.no_log or hides(one)
    }


def hides(option: Option) -> bool:
    """Return whether something inside the option is a secret."""
    inside = [*(option.options or {}).values(), *([option.each] if option.each else [])]
    return any(item.no_log or hides(item) for item in inside)


def secret_texts(option: Option | None, value: Any, secret: bool = False) -> Iterator[str]:
    """Yield the texts in the value that are secrets."""
    secret = secret or (option is not None and option.no_log)
    if isinstance(value, Mapping):
        known = (option.options if option else None) or {}
        for key, item in value.items():
            inner = known.get(key, option.each if option else None)
            yield from secret_texts(inner, item, secret)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from secret_texts(option.each if option else None, item, secret)
    elif secret and value is not None:
        yield str(value)
