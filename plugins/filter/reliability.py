# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter reliability."""

from __future__ import annotations

DOCUMENTATION = r"""
name: reliability
short_description: How often something of a cluster fails, and how many spares that takes
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes how many parts of each kind there are and how long one lasts on average, and returns when
    the first failure of any is to be expected, how many there will be a month, and how many spares
    suffice.
  - What the cluster itself has seen moves the assumed figures. A guess weighs as much as
    O(_input.prior_failures) failures, and every failure that was seen outweighs it a little more.
  - Parts are taken to fail independently and at a constant rate. A switch that takes many links
    with it, or a bad batch, is worse than this.
options:
  _input:
    description: Each kind of part by name.
    type: dict
    required: true
    suboptions:
      count:
        description: How many there are.
        type: int
        required: true
      mttf_years:
        description: How long one lasts on average. Write this or O(_input.mttf_hours).
        type: float
      mttf_hours:
        description: How long one lasts on average. Write this or O(_input.mttf_years).
        type: float
      failures:
        description: How many have failed here.
        type: int
        default: 0
      hours:
        description: For how long that many were watched. Write this or O(_input.part_hours).
        type: float
      part_hours:
        description: The hours of all parts together, where their number has changed.
        type: float
      prior_failures:
        description: How many failures the assumed figure is worth.
        type: float
        default: 1
  repair_hours:
    description: How long a failed part, or the node it is in, is out of service on average.
    type: float
    default: 72
  confidence:
    description: How surely the spares suffice at any moment, between 0 and 1.
    type: float
    default: 0.99
  job_hours:
    description: Length of a job on the whole cluster, whose luck is told.
    type: float
    default: 24
"""

EXAMPLES = r"""
# 26.28 minutes to the first failure
minutes: "{{ ({'links': {'count': 100000, 'mttf_years': 5}}
              | baremetal.dgx.reliability).first_failure_minutes }}"

# What 127 nodes have seen in three months
spares: "{{ ({'nodes': {'count': 127, 'mttf_years': 1, 'failures': 20, 'hours': 2190}}
             | baremetal.dgx.reliability(repair_hours=120, confidence=0.95)).spares }}"
"""

RETURN = r"""
_value:
  description:
    - C(first_failure_hours) and C(first_failure_minutes), C(failures_a_month), C(out_at_once) on
      average, C(spares) that suffice with C(confidence), and C(job_survives), the probability that
      nothing fails in C(job_hours).
    - C(parts), a list, has of each kind C(name), C(count), C(mttf_hours) and C(mttf_years) as the
      history has moved them, C(assumed_mttf_hours), C(failures_seen), C(failures_a_month), and
      its C(share) of all failures.
  type: dict
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def reliability(
    parts: Mapping[str, Any],
    repair_hours: float = 72,
    confidence: float = 0.99,
    job_hours: float = 24,
) -> dict[str, Any]:
    """Return the figures of the parts; AnsibleFilterError names what is wrong with them."""
    from ansible_collections.baremetal.dgx.plugins.module_utils import _reliability

    if not isinstance(parts, Mapping):
        raise AnsibleFilterError("reliability: takes a mapping of kinds of parts")
    try:
        repair, sure, job = float(repair_hours), float(confidence), float(job_hours)
        if repair < 0 or job < 0:
            raise ValueError("repair_hours and job_hours: write 0 or more")
        return _reliability.reliability(_reliability.parts_from_data(parts), repair, sure, job)
    except (TypeError, ValueError) as error:
        raise AnsibleFilterError(f"reliability: {error}") from error


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"reliability": reliability}
