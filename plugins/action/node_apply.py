# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has nodes apply their own roles; the module of its name says more."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.baremetal.dgx.plugins.module_utils._core.nodeset import fold
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError, run
from ansible_collections.baremetal.dgx.plugins.modules.node_apply import ARGUMENTS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.foreign import Foreign
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.nodes import (
    DONE,
    Node,
    Order,
    apply_all,
    report_lines,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.runtime import runtime
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.start import start
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.values import Values, ValuesError
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
    load_roles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.run_plan import state_of
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.templates import (
    load_templates,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.way import WayError, Ways
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program

_GROUPS = frozenset({"gpu_nodes", "cpu_nodes"})


class ActionModule(ActionBase):
    """Runs on the controller, and reaches the nodes by ssh itself."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return how it ended on each node, or why no node was asked."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        root = collection_root()
        applied, problems = self._applied(root, arguments)
        result.update(changed=False, applied=applied)
        if problems:
            result.update(failed=True, msg="; ".join(problems) + "; no node was asked")
        if result.get("failed") or arguments["state"] == "checked":
            return result
        nodes, problems = self._nodes(root, arguments, applied, task_vars or {})
        if not problems:
            try:
                made = runtime(root, state_of(arguments["plan_dir"]))
                order = Order(
                    made, program("node-apply"), self._task.check_mode, arguments["limit_s"]
                )
                outcomes = apply_all(nodes, order, arguments["at_once"], arguments["total_s"], run)
            except (ToolError, OSError) as error:
                problems = [str(error)]
        if problems:
            # Not a failure, so that what was locked for it is unlocked.
            result.update(
                nodes={}, unfinished=sorted(applied), lines=[*problems, "no node was asked"]
            )
            return result
        result.update(
            changed=any(one.changed for one in outcomes.values()),
            nodes={
                name: {
                    "outcome": one.how,
                    "why": one.why,
                    "changed": one.changed,
                    "changes": list(one.changes),
                }
                for name, one in outcomes.items()
            },
            unfinished=[name for name, one in outcomes.items() if one.how != DONE],
            lines=report_lines(outcomes),
        )
        return result

    def _applied(
        self, root: str, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, list[str]], list[str]]:
        """Return the roles of each node that is meant, and what prevents it."""
        with open(os.path.join(arguments["plan_dir"], "plan.json"), encoding="utf-8") as stream:
            plan = json.load(stream)
        inventory = self._task.get_variable_manager()._inventory
        meant = {
            host.name for host in inventory.get_hosts(arguments["hosts"], ignore_restrictions=True)
        }
        foreign = Foreign(self._loader, root)
        wanted = set(arguments["roles"])
        applied: dict[str, list[str]] = {}
        refused: dict[str, list[str]] = {}
        for node in plan["nodes"]:
            name = node["name"]
            if name not in meant or node["state"] != "present":
                continue
            if _GROUPS.isdisjoint(node["groups"]):
                refused.setdefault("is not of gpu_nodes or cpu_nodes", []).append(name)
                continue
            inputs = load_templates(self._loader, arguments["plan_dir"], "inputs", f"{name}.json")
            applied[name] = [
                role for role in inputs["__cluster_roles"] if not wanted or role in wanted
            ]
            for role in applied[name]:
                why = foreign.why(role)
                if why:
                    text = f"role {role} needs another host ({why})"
                    refused.setdefault(text, []).append(name)
        problems = [f"{fold(names)}: {why}" for why, names in sorted(refused.items())]
        if refused and applied:
            able = {role for roles in applied.values() for role in roles if not foreign.why(role)}
            problems.append(
                f"write apply_roles: [{', '.join(sorted(able))}], and apply the others "
                "by their own playbooks"
            )
        unknown = wanted.difference(*applied.values()) if applied else set()
        if unknown:
            problems.append(f"apply_roles: no node has the role {', '.join(sorted(unknown))}")
        return applied, problems

    def _nodes(
        self,
        root: str,
        arguments: Mapping[str, Any],
        applied: Mapping[str, list[str]],
        task_vars: Mapping[str, Any],
    ) -> tuple[dict[str, Node], list[str]]:
        """Return how each node is asked, with its values, and what prevents it."""
        manager = self._task.get_variable_manager()
        roles = load_roles(root)
        values = Values(
            self._loader, root, roles, state_of(arguments["plan_dir"]), arguments["plan_dir"]
        )
        ways = Ways(self._loader)
        nodes: dict[str, Node] = {}
        problems: list[str] = []
        for name, own in applied.items():
            variables = manager.get_vars(host=manager._inventory.get_host(name))
            variables["hostvars"] = task_vars.get("hostvars", {})
            try:
                way = ways.to(name, variables)
                if way.user:
                    # As Ansible does for tasks over SSH: of the command line and settings a node
                    # knows nothing.
                    variables.setdefault("ansible_user", way.user)
                nodes[name] = Node(
                    tuple(start(way, question=True)),
                    tuple(start(way)),
                    values.blob(name, variables, own),
                )
            except (ValuesError, WayError) as error:
                problems.append(str(error))
            except AnsibleError as error:
                problems.append(f"{name}: {' '.join(str(error).split())[:200]}")
        return nodes, problems
