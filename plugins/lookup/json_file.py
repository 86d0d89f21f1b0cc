# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup json_file."""

from __future__ import annotations

DOCUMENTATION = r"""
name: json_file
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: What a file of the controller says that an earlier run may have written
description:
  - Returns the content of a JSON file, and an empty mapping if there is none.
options:
  _terms:
    description: Path of the file.
    type: list
    elements: path
    required: true
"""

EXAMPLES = r"""
- name: Show which build is in use
  ansible.builtin.debug:
    msg: "{{ lookup('baremetal.dgx.json_file', '/srv/cluster/.dgx/pyxis/in-use.json') }}"
"""

RETURN = r"""
_raw:
  description: What the file says.
  type: list
  elements: raw
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import read_json


def content_of(path: str) -> Any:
    """Return what the file says; AnsibleLookupError if it cannot be read or is broken."""
    try:
        return read_json(path, "JSON")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise AnsibleLookupError(f"{path}: {exc}; remove it if it is broken") from exc


class LookupModule(LookupBase):
    """Reads files of the controller."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **_options: Any
    ) -> list[Any]:
        """Return the content of each."""
        return [content_of(str(term)) for term in terms]
