# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes the plan from the inventory of the running process; the module of its name says more."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterable
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.inventory.manager import split_host_pattern
from ansible.plugins.action import ActionBase

from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import Folder, open_folder
from ansible_collections.baremetal.dgx.plugins.modules.cluster_plan import ARGUMENTS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import (
    FILES,
    cable_counts,
    cable_line,
    fabric_files,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Site
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.role_inputs import role_inputs
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.refusals import Refusals
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
    load_roles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.run_plan import (
    folder_to_write,
    planned_by,
    shared_folder,
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
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cabling_files import find_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import make_plan
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.report import (
    hosts_text,
    node_texts,
    report,
    summary,
)

# The group of the one host that looks at the fabric, which the playbook check_inventory makes.
_FABRIC_HOST = "__fabric_host"


def write_texts(folder: str, texts: dict[str, str], ours: Iterable[str] | None = None) -> bool:
    """Write each text that differs and remove the other files: all, or only those of `ours`."""
    with open_folder(folder, make=0o755) as here:
        changed = []
        for name, text in texts.items():
            data = text.encode()
            if not _holds(here, name, data):
                # No secrets, and each playbook writes it again: no waiting for the disk.
                here.write(name, data, sync=False)
                changed.append(name)
        there = here.names()
        stale = set(there if ours is None else ours).intersection(there) - set(texts)
        for name in stale:
            here.remove(name)
    return bool(changed or stale)


def _holds(folder: Folder, name: str, data: bytes) -> bool:
    try:
        same_size = folder.lstat(name).st_size == len(data)
    except FileNotFoundError:
        return False
    return same_size and folder.read(name, len(data)) == data


def roles_of(plan_dir: str, hosts: Iterable[str]) -> dict[str, list[str]]:
    """Return the roles that the plan has for each of the hosts."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        with open(os.path.join(plan_dir, "inputs", f"{host}.json"), encoding="utf-8") as stream:
            found[host] = json.load(stream)["__cluster_roles"]
    return found


def _mistakes(problems: tuple[str, ...]) -> dict[str, Any]:
    count = len(problems)
    return {
        "failed": True,
        # With it, the default callback puts each item of a list on its own line.
        "_ansible_verbose_always": True,
        "msg": f"{count} mistake{'s' * (count > 1)} in the inventory; no host was touched",
        "problems": list(problems),
    }


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


def _state_refusal(state_dir: str) -> str:
    """Return why the state cannot be this user's: the secrets in it are its owner's alone."""
    mine = os.geteuid()
    if mine == 0 or not os.path.isdir(state_dir):
        return ""
    with os.scandir(state_dir) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner != mine:
                return (
                    f"{entry.path}: belongs to {_user(owner)}, and what is in it may be read or "
                    f"changed by that user alone; run as that user, or give all of {state_dir} to "
                    f"{_user(mine)}"
                )
    return ""


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


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
            self._plan(result, inventory, manager, arguments["state_dir"])
            if result.get("failed"):
                return result
            result["whole"] = not arguments["hosts"]
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

    def _plan(
        self, result: dict[str, Any], inventory: Any, manager: Any, state_dir: str | None
    ) -> None:
        """Make the plan of the inventory as it is now, and put what it says into the result."""
        root = collection_root()
        roles = load_roles(root)
        found = collect(self._loader, inventory, manager, roles, root)
        plan = make_plan(found, roles, Refusals(self._loader, roles, root).find)
        if plan.warnings:
            result["warnings"] = list(plan.warnings)
        if plan.data is None:
            result.update(_mistakes(plan.problems))
            return
        cabling = find_cables(plan.data, found.directory)
        if cabling.warnings:
            result["warnings"] = [*plan.warnings, *cabling.warnings]
        if cabling.plan is None:
            result.update(_mistakes(cabling.problems))
            return
        state_dir = state_dir or plan.state_dir
        if not state_dir:
            raise AnsibleActionFail(
                "all.cluster_state_dir: missing, and the inventory is not a file; write its path"
            )
        foreign = _state_refusal(state_dir)
        if foreign:
            result.update(failed=True, msg=foreign)
            return
        fabric = fabric_files(cabling.plan, plan.data)
        site = Site(plan.data, found, roles, frozenset(fabric))
        inputs, problems = role_inputs(site)
        if problems:
            result.update(_mistakes(problems))
            return
        extra = manager.extra_vars
        folder = folder_to_write(state_dir, extra, roles, found.names)
        # In check mode too: the plan is a copy of the inventory beside it, and later tasks read it.
        result["changed"] = any(
            [
                write_texts(
                    folder, {"plan.json": plan.plan_text(), "hosts": hosts_text(plan.data)}, ()
                ),
                write_texts(
                    os.path.join(folder, "nodes"),
                    {f"{name}.json": text for name, text in node_texts(plan.data).items()},
                ),
                write_texts(
                    os.path.join(folder, "inputs"),
                    {f"{name}.json": text for name, text in inputs.items()},
                ),
                write_texts(os.path.join(folder, "fabric"), fabric, FILES),
            ]
        )
        lines = [cable_line(cabling.plan)] if cabling.plan.switches else []
        if folder != shared_folder(state_dir):
            by = ", ".join(planned_by(extra, roles, found.names))
            lines.append(f"a plan for this run, with -e {by}: {folder}")
        result.update(
            plan_dir=folder,
            summary={**summary(plan.data), "cables": cable_counts(cabling.plan)},
            report=[*report(plan.data), *lines],
        )
