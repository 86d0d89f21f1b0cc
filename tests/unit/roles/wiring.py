# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives to the roles of each host of an inventory, as a role sees it."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from ansible_collections.baremetal.dgx.plugins.module_utils._core.nodeset import expand
from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import RoleSpec
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import fabric_files
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Site
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.role_inputs import role_inputs
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import load_roles
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cabling_files import find_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import make_plan
from ansible_collections.baremetal.dgx.plugins.plugin_utils._templating.render import trusted

_FOLDED = re.compile(r"\{\{ '(.*)' \| baremetal\.dgx\.nodeset_expand \}\}")
ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def roles() -> dict[str, RoleSpec]:
    """The collection's roles."""
    return load_roles(str(ROOT))


def example(folder: Path, name: str) -> Path:
    """A copy of an example inventory, to edit."""
    inventory = folder / "inventory"
    folder.mkdir(exist_ok=True)
    shutil.copytree(ROOT / "inventories" / name, inventory, ignore=shutil.ignore_patterns(".dgx"))
    return inventory


def write(inventory: Path, name: str, data: Mapping[str, Any]) -> None:
    """Write a file of variables."""
    path = inventory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(data), sort_keys=False))


class Wiring:
    """The inputs of all hosts of an inventory."""

    def __init__(self, inventory: Path, extra: Mapping[str, Any] | None = None) -> None:
        self.state = inventory / ".dgx"
        self._loader = DataLoader()
        self._loader.set_basedir(str(inventory.parent))
        self._inventory = InventoryManager(loader=self._loader, sources=[str(inventory)])
        self._manager = VariableManager(loader=self._loader, inventory=self._inventory)
        self._manager._extra_vars = dict(extra or {})
        found = collect(self._loader, self._inventory, self._manager, roles(), str(ROOT))
        plan = make_plan(found, roles())
        assert plan.data is not None, plan.problems
        self.plan, self.plan_warnings = plan.data, plan.warnings
        cables = find_cables(plan.data, found.directory).plan
        assert cables is not None
        site = Site(plan.data, found, roles(), frozenset(fabric_files(cables, plan.data)))
        self.texts, self.problems = role_inputs(site)

    def of(self, host: str) -> dict[str, Any]:
        """The inputs of a host, with what they refer to."""
        inputs = json.loads(self.texts[host])
        hostvars = HostVars(self._inventory, self._manager, self._loader)
        known = self._manager.get_vars(host=self._inventory.get_host(host))
        state = {"__cluster_state": str(self.state), "__cluster_plan": str(self.state / "plan")}
        own = {"hostvars": hostvars, **state}
        scope = {**known, **own, **trusted_tree(inputs)}
        templar = Templar(loader=self._loader, variables=scope)
        return {name: templar.template(scope[name]) for name in inputs}


def trusted_tree(value: Any) -> Any:
    """The value with every text in it as a template that Ansible trusts."""
    if isinstance(value, str):
        # Filters of a collection need a loader that a process can have once only.
        folded = _FOLDED.fullmatch(value)
        return expand(folded[1]) if folded else trusted(value)
    if isinstance(value, list):
        return [trusted_tree(item) for item in value]
    if isinstance(value, dict):
        return {key: trusted_tree(item) for key, item in value.items()}
    return value
