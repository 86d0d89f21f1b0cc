# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup run_owner."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_owner
short_description: The name by which a run knows what it holds on the cluster
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Returns the control machine's name and a number, the same all through one ansible-playbook. It
    is kept beside the inventory, so that a run takes over what one that was killed has left.
  - Two runs at once, on one machine or on two, have different names.
options:
  _terms:
    description: The folder C(.dgx) beside the inventory.
    type: list
    elements: path
    required: true
  former:
    description:
      - Returns instead the names of runs of this control machine whose process is gone. They are
        this run's from now on, and so is what those runs have left on the cluster.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.slurm_node_hold
  - module: baremetal.dgx.run_lock
"""

EXAMPLES = r"""
- name: Know what this run holds
  ansible.builtin.set_fact:
    owner: "{{ lookup('baremetal.dgx.run_owner', '/srv/cluster/.dgx') }}"
"""

RETURN = r"""
_raw:
  description: The name.
  type: list
  elements: str
"""

import multiprocessing
import os
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.module_utils._core.lock import BusyError, host_lock
from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import short_name
from ansible_collections.baremetal.dgx.plugins.plugin_utils._operations.run_owner import (
    process,
    take_owners,
)


def _playbook() -> int:
    """Return the number of the process of ansible-playbook: tasks run in children of it."""
    parent = multiprocessing.parent_process()
    return os.getpid() if parent is None or parent.pid is None else parent.pid


class LookupModule(LookupBase):
    """Keeps the name in a file of the control machine's own."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[str]:
        """Return the name; AnsibleLookupError where it cannot be kept."""
        self.set_options(var_options=variables, direct=kwargs)
        host = short_name()
        path = os.path.join(str(terms[0]), "runs", f"{host}.json")
        try:
            with host_lock("run_owner", 30):
                names = take_owners(path, host, process(_playbook()))
        except BusyError as exc:
            raise AnsibleLookupError(f"{path}: process {exc.holder} keeps it locked") from exc
        except OSError as exc:
            raise AnsibleLookupError(f"{path}: {exc}") from exc
        except ValueError as exc:
            raise AnsibleLookupError(f"{path}: {exc}; remove it if it is broken") from exc
        return names[1:] if self.get_option("former") else names[:1]
