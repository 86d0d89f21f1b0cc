# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup secret_values."""

from __future__ import annotations

DOCUMENTATION = r"""
name: secret_values
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: Secrets that the inventory has for hosts
description:
  - Returns the values that the roles declare as secrets, such as passwords, keys and tokens, so
    that they can be kept out of what is written for people. Each is returned once.
  - Secrets that roles generate are files in C(.dgx/secrets), and not among them.
options:
  _terms:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Write the report
  baremetal.dgx.acceptance_report:
    evidence: /srv/cluster/.dgx/evidence
    output: /srv/cluster/.dgx/report
    secret_values: "{{ query('baremetal.dgx.secret_values', groups['slurm_controllers']) }}"
"""

RETURN = r"""
_raw:
  description: The secrets.
  type: list
  elements: str
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Option
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
    load_roles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.secrets import (
    secret_options,
    secret_texts,
)


@functools.cache
def _options() -> dict[str, Option]:
    return secret_options(load_roles(collection_root()))


def _value(variables: Mapping[str, Any], host: str, name: str) -> Any:
    """Return the value, None without one, or with one that depends on what is not known here."""
    try:
        return variables.get(name)
    except AnsibleError as error:
        Display().warning(f"{host}: {name} is not known here, and not hidden: {error.message}")
        return None


class LookupModule(LookupBase):
    """Reads the variables of hosts."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **_options_: Any
    ) -> list[str]:
        """Return the secrets."""
        known = (variables or {})["hostvars"]
        found: dict[str, None] = {}
        for host in self._flatten(terms):
            for name, option in _options().items():
                found.update(dict.fromkeys(secret_texts(option, _value(known[host], host, name))))
        return list(found)
