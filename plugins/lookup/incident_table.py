# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup incident_table."""

from __future__ import annotations

DOCUMENTATION = r"""
name: incident_table
short_description: The open incidents of a cluster, as the report shows them
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Reads the book of incidents that M(baremetal.dgx.repair_step) keeps.
options:
  _terms:
    description: The folder C(.dgx) beside the inventory.
    type: list
    elements: path
    required: true
seealso:
  - module: baremetal.dgx.repair_step
"""

EXAMPLES = r"""
- name: Show them
  ansible.builtin.debug:
    msg: "{{ query('baremetal.dgx.incident_table', '/srv/cluster/.dgx') }}"
"""

RETURN = r"""
_raw:
  description: Rows of texts, the first with headings; none where no incident is open.
  type: list
  elements: list
"""

import os
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.module_utils._repair.book import Book
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.fleet import table_of
from ansible_collections.baremetal.dgx.plugins.module_utils._repair.incident import fold


class LookupModule(LookupBase):
    """Reads the book."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[Any]:
        """Return the rows; AnsibleLookupError where the book cannot be read."""
        self.set_options(var_options=variables, direct=kwargs)
        try:
            events, _unread = Book(os.path.join(str(terms[0]), "incidents")).events()
        except OSError as error:
            raise AnsibleLookupError(f"incident_table: {error}") from error
        return table_of(fold(events))
