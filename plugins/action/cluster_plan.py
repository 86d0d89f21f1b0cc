# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes the plan from the inventory of the running process; the module of its name says more."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.inventory.manager import split_host_pattern
from ansible.plugins.action import ActionBase

from ansible_collections.baremetal.dgx.plugins.modules.cluster_plan import ARGUMENTS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.plan_files import (
    InventoryError,
    StateError,
    write_plan,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.subject import (
    Subject,
    at_work,
    fabric_host,
    fabric_refusal,
    refusal,
    undeclared,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.tags import tags_refusal

# The group of the one host that looks at the fabric, which the playbook check_inventory makes.
_FABRIC_HOST = "__fabric_host"


def roles_of(plan_dir: str, hosts: Iterable[str]) -> dict[str, list[str]]:
    """Return the roles that the plan has for each of the hosts."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        with open(os.path.join(plan_dir, "inputs", f"{host}.json"), encoding="utf-8") as stream:
            found[host] = json.load(stream)["__cluster_roles"]
    return found


def _settings_refusal() -> str:
    """Return why the playbooks must not run with these settings of Ansible."""
    strategy = str(constants.config.get_config_value("DEFAULT_STRATEGY"))
    if not strategy.rpartition(".")[2].endswith(("linear", "debug")):
        return (
            f"strategy: '{strategy}' lets each host run ahead, and what is done once for all would "
            "be done for each; write strategy = linear in ansible.cfg, or unset ANSIBLE_STRATEGY"
        )
    cache = str(constants.config.get_config_value("CACHE_PLUGIN"))
    if cache.rpartition(".")[2] != "memory":
        return (
            f"fact_caching: '{cache}' has facts of earlier runs, and a host may have another "
            "system since; run with ANSIBLE_CACHE_PLUGIN=memory"
        )
    return ""


class ActionModule(ActionBase):
    """Runs on the controller only and opens no connection."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the plan's summary, or fail with everything that is wrong."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        manager = self._task.get_variable_manager()
        inventory = getattr(manager, "_inventory", None)
        if inventory is None:
            raise AnsibleActionFail("the inventory of the running process cannot be reached")
        made = arguments["made"]
        strange = _settings_refusal()
        if not strange and not made.get("plan_dir"):
            strange = tags_refusal(self._loader, manager)
        if strange:
            result.update(failed=True, msg=strange)
            return result
        if made.get("plan_dir"):
            result.update(
                changed=False,
                **{key: made[key] for key in ("plan_dir", "summary", "report", "whole")},
            )
        else:
            try:
                plan = write_plan(self._loader, inventory, manager, arguments["state_dir"])
            except (InventoryError, StateError) as error:
                result.update(failed=True, msg=str(error))
                if isinstance(error, InventoryError):
                    # With it, the default callback puts each item of a list on its own line.
                    result.update(_ansible_verbose_always=True, problems=list(error.lines))
                    result.update({"warnings": list(error.warnings)} if error.warnings else {})
                return result
            result.update({"warnings": list(plan.warnings)} if plan.warnings else {})
            result.update(
                changed=plan.changed,
                plan_dir=plan.folder,
                summary=plan.summary,
                report=plan.report,
                whole=not arguments["hosts"],
            )
        if arguments["hosts"]:
            self._refuse_nothing(result, inventory, arguments)
        return result

    def _refuse_nothing(
        self, result: dict[str, Any], inventory: Any, arguments: dict[str, Any]
    ) -> None:
        """Fail where the playbook that asks for the plan has no host to work on."""
        with open(os.path.join(result["plan_dir"], "plan.json"), encoding="utf-8") as stream:
            plan = json.load(stream)
        present = [node["name"] for node in plan["nodes"] if node["state"] == "present"]
        result["fabric_host"] = fabric_host(plan, present)
        if arguments["fabric"]:
            why = fabric_refusal(plan, arguments["fabric"])
            if why:
                result.update(failed=True, msg=why)
                return

        def match(patterns: list[str]) -> list[str]:
            found = inventory.get_hosts(patterns, ignore_limits=True, ignore_restrictions=True)
            return [host.name for host in found]

        for hosts in arguments["hosts"]:
            patterns = [
                result["fabric_host"] if name == _FABRIC_HOST else name
                for name in split_host_pattern(str(hosts))
            ]
            is_part = result["whole"] or arguments["part"]
            subject = Subject(tuple(patterns), tuple(arguments["groups"]), is_part=is_part)
            limits = tuple(inventory._subset or ())
            why = refusal(subject, limits, match, present)
            if not why and arguments["declared"] and not subject.is_part:
                working = at_work(subject, limits, match, present)
                declared = arguments["declared"]
                found = roles_of(result["plan_dir"], working)
                why = undeclared(found, declared["roles"], declared["write"])
                if why:
                    able = set(present).intersection(match(list(subject.groups)))
                    others = roles_of(result["plan_dir"], sorted(able.difference(working)))
                    why = undeclared(found, **declared, others=others)
            if why:
                result.update(failed=True, msg=why)
                return
