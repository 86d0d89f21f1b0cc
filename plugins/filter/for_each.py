# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter for_each."""

from __future__ import annotations

DOCUMENTATION = r"""
name: for_each
short_description: The same text or mapping for each item of a list, with the item's values
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Returns a list with one copy of O(form) for each item of the list.
  - In all texts of a copy, C({}) is the item, and C({key}) the value of that key of an item that
    is a mapping.
  - A text that is nothing but one such place gets the value itself, with its type.
options:
  _input:
    description: The items.
    type: list
    elements: raw
    required: true
  form:
    description: A text, or a mapping or list of texts and other values.
    type: raw
    required: true
notes:
  - Braces around anything but a lower-case name are left as they are.
seealso:
  - module: baremetal.dgx.managed_files
"""

EXAMPLES = r"""
- name: Write a file for each fabric
  baremetal.dgx.managed_files:
    files: "{{ my_fabrics | baremetal.dgx.for_each(my_file) }}"
  vars:
    my_fabrics: [{name: compute, guids: ["0x1", "0x2"]}]
    my_file:
      path: /etc/opensm/{name}.conf
      template: etc/opensm/opensm.conf.j2
      vars: {my_guids: "{guids}"}

- name: Remove files
  baremetal.dgx.managed_files:
    files: "{{ ['/etc/a', '/etc/b'] | baremetal.dgx.for_each({'path': '{}', 'state': 'absent'}) }}"
"""

RETURN = r"""
_value:
  description: A filled form for each item, in order.
  type: list
  elements: raw
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

_PLACE = re.compile(r"\{([a-z_][a-z0-9_]*|)\}")


def for_each(items: Iterable[Any], form: Any) -> list[Any]:
    """Return one filled form for each item; AnsibleFilterError for a key that an item lacks."""
    return [_filled(form, item) for item in items]


def _filled(form: Any, item: Any) -> Any:
    if isinstance(form, str):
        whole = _PLACE.fullmatch(form)
        if whole:
            return _value(item, whole[1], form)
        return _PLACE.sub(lambda place: str(_value(item, place[1], form)), form)
    if isinstance(form, Mapping):
        return {_filled(key, item): _filled(value, item) for key, value in form.items()}
    if isinstance(form, (list, tuple)):
        return [_filled(value, item) for value in form]
    return form


def _value(item: Any, key: str, form: str) -> Any:
    """Return what is in the place of `{key}`."""
    if not key:
        return item
    if not isinstance(item, Mapping):
        raise AnsibleFilterError(
            f"for_each: '{form}': an item is not a mapping: {item!r}; write {{}}"
        )
    if key not in item:
        raise AnsibleFilterError(f"for_each: '{form}': an item has no {key}: {dict(item)!r}")
    return item[key]


class FilterModule:
    """The filter for_each."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name -> function."""
        return {"for_each": for_each}
