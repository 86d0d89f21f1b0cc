# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter slurm_upgrade_refusal."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_upgrade_refusal
short_description: Why Slurm cannot go from one release to another
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Slurm takes over the state and the database of two releases back, from 24.11 on of three. What
    is older is refused by its daemons, after the old ones are gone.
  - Needs no library and no Slurm.
options:
  _input:
    description: The version that is there; empty where there is none.
    type: str
    required: true
  declared:
    description: The version that is wanted.
    type: str
    required: true
seealso:
  - module: baremetal.dgx.slurm_saved_state
"""

EXAMPLES = r"""
# Slurm 24.11 takes over only from 23.02, 23.11, 24.05, and not from 22.05; upgrade in steps, …
why: "{{ '22.05.8' | baremetal.dgx.slurm_upgrade_refusal('24.11') }}"
"""

RETURN = r"""
_value:
  description: One line; empty where it can.
  type: str
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError


def slurm_upgrade_refusal(found: str, declared: str) -> str:
    """Return one line or nothing; AnsibleFilterError for what is not a text."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._slurm import (
        saved_state as _slurm_upgrade,
    )

    if not isinstance(found, str) or not isinstance(declared, str):
        raise AnsibleFilterError("slurm_upgrade_refusal: takes two versions, as texts")
    return _slurm_upgrade.refusal(found, declared)


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"slurm_upgrade_refusal": slurm_upgrade_refusal}
