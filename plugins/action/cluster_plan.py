# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes the plan from the inventory of the running process; the module of its name says more."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.baremetal.dgx.plugins.module_utils._cable_files import (
    FILES,
    cable_counts,
    cable_line,
    fabric_files,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._plan import make_plan
from ansible_collections.baremetal.dgx.plugins.module_utils._plan_report import (
    hosts_text,
    node_texts,
    report,
    summary,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cabling import find_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._specs import (
    collection_root,
    load_roles,
)


def write_text(path: str, text: str) -> bool:
    """Write the file as a whole when its text differs; return whether it did."""
    try:
        with open(path, encoding="utf-8") as stream:
            if stream.read() == text:
                return False
    except FileNotFoundError:
        pass
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes it readable for its owner only; a plan holds no secrets.
        os.chmod(temporary, 0o644)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True


def write_texts(folder: str, texts: dict[str, str], ours: Iterable[str] | None = None) -> bool:
    """Write each text under its name and remove the others: any file, or only those of `ours`."""
    changed = [write_text(os.path.join(folder, name), text) for name, text in texts.items()]
    there = set(os.listdir(folder) if os.path.isdir(folder) else ())
    stale = there - set(texts) if ours is None else there.intersection(ours) - set(texts)
    for name in stale:
        os.unlink(os.path.join(folder, name))
    return any(changed) or bool(stale)


def _mistakes(problems: tuple[str, ...]) -> dict[str, Any]:
    count = len(problems)
    return {
        "failed": True,
        # With it, the default callback puts each item of a list on a line of its own.
        "_ansible_verbose_always": True,
        "msg": f"{count} mistake{'s' * (count > 1)} in the inventory; no host was touched",
        "problems": list(problems),
    }


class ActionModule(ActionBase):
    """Runs on the controller only and opens no connection."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the plan's summary, or fail with everything that is wrong."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            argument_spec={"state_dir": {"type": "path"}}
        )
        manager = self._task.get_variable_manager()
        inventory = getattr(manager, "_inventory", None)
        if inventory is None:
            raise AnsibleActionFail("the inventory of the running process cannot be reached")
        root = collection_root()
        roles = load_roles(root)
        found = collect(self._loader, inventory, manager, roles, root)
        plan = make_plan(found, roles)
        if plan.warnings:
            result["warnings"] = list(plan.warnings)
        if plan.data is None:
            result.update(_mistakes(plan.problems))
            return result
        cabling = find_cables(plan.data, found.directory)
        if cabling.warnings:
            result["warnings"] = [*plan.warnings, *cabling.warnings]
        if cabling.plan is None:
            result.update(_mistakes(cabling.problems))
            return result
        state_dir = arguments["state_dir"] or plan.state_dir
        if not state_dir:
            raise AnsibleActionFail(
                "all.cluster_state_dir: missing, and the inventory is no file; write its path"
            )
        folder = os.path.join(state_dir, "plan")
        # In check mode too: the plan is a copy of the inventory beside it, and later tasks read it.
        result["changed"] = any(
            [
                write_text(os.path.join(folder, "plan.json"), plan.plan_text()),
                write_text(os.path.join(folder, "hosts"), hosts_text(plan.data)),
                write_texts(
                    os.path.join(folder, "nodes"),
                    {f"{name}.json": text for name, text in node_texts(plan.data).items()},
                ),
                write_texts(
                    os.path.join(folder, "fabric"), fabric_files(cabling.plan, plan.data), FILES
                ),
            ]
        )
        lines = [cable_line(cabling.plan)] if cabling.plan.switches else []
        result.update(
            plan_dir=folder,
            summary={**summary(plan.data), "cables": cable_counts(cabling.plan)},
            report=[*report(plan.data), *lines],
        )
        return result
