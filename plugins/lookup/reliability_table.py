# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup reliability_table."""

from __future__ import annotations

DOCUMENTATION = r"""
name: reliability_table
short_description: What is to be expected of a cluster, of its plan and its history
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Counts the parts of the plan, and the failures in the store of evidence, and returns the rows
    that the report shows.
  - Until there is a history it rests on what was published of 16,384 H100.
options:
  _terms:
    description: The folder C(.dgx) beside the inventory.
    type: list
    elements: path
    required: true
  years:
    description: How long one part lasts on average in years, by C(GPUs), C(adapters) and C(links),
      where the site knows better.
    type: dict
    default: {}
  repair_hours:
    description: How long a failed part is out of service on average.
    type: float
    default: 72
  job_hours:
    description: Length of the job on all of the cluster whose chance is computed.
    type: float
    default: 24
"""

EXAMPLES = r"""
- name: Show it
  ansible.builtin.debug:
    msg: "{{ query('baremetal.dgx.reliability_table', '/srv/cluster/.dgx', years={'links': 5}) }}"
"""

RETURN = r"""
_raw:
  description: Rows of texts; none where there is no plan.
  type: list
  elements: list
"""

import json
import os
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import Problems
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store, now_utc
from ansible_collections.baremetal.dgx.plugins.plugin_utils._operations.reliability import (
    counts_of,
    parts_for,
    reliability,
    seen_in,
    table_of,
)


class LookupModule(LookupBase):
    """Reads the plan and the histories."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[Any]:
        """Return the rows; AnsibleLookupError where a file or a figure is none."""
        self.set_options(var_options=variables, direct=kwargs)
        folder, years = str(terms[0]), self.get_option("years")
        try:
            with open(os.path.join(folder, "plan", "plan.json"), encoding="utf-8") as handle:
                counts = counts_of(json.load(handle))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise AnsibleLookupError(f"reliability_table: {error}") from error
        problems = Problems()
        try:
            store = Store(os.path.join(folder, "evidence"))
            seen = seen_in(store.histories(problems), now_utc())
            parts = parts_for(counts, seen, years)
            figures = reliability(
                parts, self.get_option("repair_hours"), 0.99, self.get_option("job_hours")
            )
        except (OSError, ValueError) as error:
            raise AnsibleLookupError(f"reliability_table: {error}") from error
        return table_of(figures, years)
