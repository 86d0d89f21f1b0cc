# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup plan_inputs."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_inputs
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: The file with what the plan gives to the roles of the host
description:
  - Returns the path of C(inputs/NAME.json) in the plan that the run works from, for C(vars_files).
  - Fails for a host of the cluster that no plan has been made of. Hosts that are not of the cluster
    have no such file, and Ansible leaves it out; it asks for that of localhost, too, when a task is
    delegated.
  - Ansible reads C(vars_files) again for every task. So this has the file, and C(vars/cluster.yml)
    of the playbooks, read once, into Ansible's own cache of files, where all later tasks of the run
    find it, and loads the plugins that their processes would each load for themselves.
  - With C(--start-at-task), which passes the task that makes the plan, this makes it, so that no
    run works from the plan of an inventory that has been changed since.
options:
  _terms:
    description:
      - The folder C(.dgx) beside the inventory. Without it, C(cluster_state_dir), or that beside
        the inventory; a template of the folder would be compiled again for every task.
    type: list
    elements: path
seealso:
  - plugin: baremetal.dgx.plan_folder
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Work on nodes
  hosts: gpu_nodes
  vars_files:
    - "{{ lookup('baremetal.dgx.plan_inputs') }}"
"""

RETURN = r"""
_raw:
  description: The path of the file.
  type: list
  elements: path
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display

from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.contract import CLUSTER_GROUP
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.run_plan import folder_of_run
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.templates import (
    load_templates,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._templating.ahead import load_ahead

# Whether this run's plan has been made here.
_made: list[str] = []


class LookupModule(LookupBase):
    """Looks for one file."""

    def run(
        self, terms: Sequence[Any], variables: Mapping[str, Any] | None = None, **_options: Any
    ) -> list[str]:
        """Return the path; AnsibleLookupError without a plan of the host."""
        known = variables or {}
        host = str(known.get("inventory_hostname") or "")
        state = terms[0] if terms else self._state(known)
        if context.CLIARGS.get("start_at_task") and "hostvars" in known and not _made:
            self._make(known["hostvars"], terms)
        folder = folder_of_run(str(state), self._loader)
        path = os.path.join(folder, "inputs", f"{host}.json")
        if host in known.get("groups", {}).get(CLUSTER_GROUP, ()) and not os.path.isfile(path):
            raise AnsibleLookupError(
                "there is no plan of this node yet; run baremetal.dgx.check_inventory first"
            )
        # Beside this file the plays name theirs.
        load_templates(self._loader, collection_root(), "playbooks", "vars", "cluster.yml")
        load_templates(self._loader, path)
        load_ahead()
        return [path]

    def _state(self, known: Mapping[str, Any]) -> str:
        """Return what vars/cluster.yml calls __cluster_state."""
        if "cluster_state_dir" in known:
            return str(self._templar.template(known["cluster_state_dir"]))
        return f"{known.get('inventory_dir') or ''}/.dgx"

    def _make(self, hosts: Any, terms: Sequence[Any]) -> None:
        """Make the plan, as check_inventory does; AnsibleLookupError for mistakes."""
        # What only a resumed run needs takes a third of a second to load.
        from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.plan_files import (
            InventoryError,
            StateError,
            write_plan,
        )

        manager = hosts._variable_manager
        state = str(terms[0]) if terms else None
        try:
            plan = write_plan(self._loader, hosts._inventory, manager, state)
        except (InventoryError, StateError) as error:
            lines = getattr(error, "lines", ())
            raise AnsibleLookupError("; ".join([str(error), *lines])) from error
        for warning in plan.warnings:
            Display().warning(warning)
        _made.append(plan.folder)
