# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all modules that check something document alike; module_utils/_core/check_module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """Options and attributes of checks."""

    DOCUMENTATION = r"""
options:
  fail_on:
    description:
      - What fails the task, a record that failed (V(fail)) or one that was not measured
        (V(not_measured)). With an empty list the caller decides.
      - In check mode nothing fails the task.
    type: list
    elements: str
    choices: [fail, not_measured]
    default: [fail, not_measured]
attributes:
  check_mode:
    support: full
    details: Findings do not fail the task in check mode.
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
"""

    NODE = r"""
options:
  node:
    description: Name of the node in the records; its host name when not given.
    type: str
    default: ""
"""

    THRESHOLDS = r"""
options:
  thresholds:
    description: The site's own thresholds instead of the collection's, by name.
    type: dict
    default: {}
"""

    TIMEOUT = r"""
options:
  timeout_s:
    description: Seconds that one command or question may take.
    type: float
"""
