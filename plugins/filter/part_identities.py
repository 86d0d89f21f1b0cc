# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter part_identities."""

from __future__ import annotations

DOCUMENTATION = r"""
name: part_identities
short_description: Which GPU belongs into which slot of a node
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes the records of a node, and what is known of its slots, and returns what is known after
    them.
  - A slot keeps the GPU that was seen there first, until it is said to be replaced.
options:
  _input:
    description: The records of M(baremetal.dgx.gpu_health).
    type: list
    elements: dict
    required: true
  known:
    description: What was known, by subject.
    type: dict
    default: {}
seealso:
  - plugin: baremetal.dgx.parts_without
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show who sits where
  ansible.builtin.debug:
    msg: "{{ health.records | baremetal.dgx.part_identities }}"
"""

RETURN = r"""
_value:
  description: By subject the C(pci), C(uuid) and C(serial).
  type: dict
  sample:
    "gpu:dgx-07/3": {pci: "0000:61:00.0", uuid: "GPU-51a7ed00", serial: "1650000000004"}
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any


def part_identities(
    records: Iterable[Mapping[str, Any]], known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what is known of the slots of a node after these records."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.identities import merged

    found: dict[str, Any] = merged(known or {}, records)
    return found


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"part_identities": part_identities}
