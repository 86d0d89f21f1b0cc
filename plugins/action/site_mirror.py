# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetches everything that the site will fetch; the module of its name says more."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.release import __version__ as core_version
from ansible.utils.display import Display

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError, run
from ansible_collections.baremetal.dgx.plugins.modules.site_mirror import ARGUMENTS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
    load_defaults,
    load_roles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.run_plan import state_of
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.templates import (
    load_templates,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.fetched import Reader
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.make import (
    Host,
    Order,
    is_mirrored,
    make,
    problems_of,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.platforms import PLATFORMS

_MIRRORED = (
    "the inventory takes its packages from the mirror already; run this with the inventory as it "
    "is without the files zz_mirror.yml"
)


class ActionModule(ActionBase):
    """Runs on the controller only and opens no connection to a host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return what is in the folder, or fail with everything that is not understood."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        root = collection_root()
        hosts, problems = self._hosts(root, arguments["plan_dir"])
        sources = self._task.get_variable_manager()._inventory._sources
        problems += problems_of(hosts, arguments["url"], sources)
        if is_mirrored(hosts.values(), arguments["url"]):
            problems = [_MIRRORED]
        if problems:
            result.update(
                failed=True,
                msg="not known what the site would fetch; nothing was fetched",
                problems=problems,
                _ansible_verbose_always=True,
            )
            return result
        order = Order(
            folder=arguments["folder"].rstrip("/"),
            state=os.path.join(state_of(arguments["plan_dir"]), "mirror"),
            url=arguments["url"],
            root=root,
            core=core_version if arguments["control"] else "",
            extra=tuple(arguments["packages"]),
            hosts=hosts,
        )
        names = sorted({name for host in hosts.values() for name in host.wanted.packages})
        result.update(packages=names, changed=False)
        if self._task.check_mode:
            return result
        display = Display()
        try:
            result.update(make(order, run, lambda line: display.display(f"mirror: {line}")))
        except ToolError as error:
            result.update(failed=True, msg=str(error))
        except OSError as error:
            result.update(failed=True, msg=f"{error.filename}: {error.strerror}")
        return result

    def _hosts(self, root: str, plan_dir: str) -> tuple[dict[str, Host], list[str]]:
        """Return what each host of the plan would fetch, and the hosts without a known system."""
        manager = self._task.get_variable_manager()
        inventory = manager._inventory
        roles = load_roles(root)
        found = collect(self._loader, inventory, manager, roles, root)
        reader = Reader(self._loader, root, load_defaults(root, roles, self._loader))
        hosts: dict[str, Host] = {}
        problems: list[str] = []
        for file in sorted(os.listdir(os.path.join(plan_dir, "inputs"))):
            name = file.removesuffix(".json")
            inputs = load_templates(self._loader, plan_dir, "inputs", file)
            variables = manager.get_vars(host=inventory.get_host(name))
            stated = found.hosts.get(name, {}).get("node_platform")
            system = str(stated.value) if stated else ""
            if system not in PLATFORMS:
                problems.append(
                    f"{name}: node_platform: {system or 'missing'}; write one of "
                    + ", ".join(PLATFORMS)
                )
                continue
            platform = PLATFORMS[system]
            wanted = reader.wanted(inputs["__cluster_roles"], variables, inputs, platform)
            places = {key: value.path for key, value in found.hosts.get(name, {}).items()}
            hosts[name] = Host(platform, wanted, places)
        return hosts, problems
