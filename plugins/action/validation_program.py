# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the program of validate_nodes for many nodes, where the plan and the inventory are."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.baremetal.dgx.plugins.module_utils._core.child import Process, start_of
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import (
    NO_OTHER,
    open_folder,
    read_json,
    write_atomic,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import short_name
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.kept import FOLDER
from ansible_collections.baremetal.dgx.plugins.modules.validation_program import ARGUMENTS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.templates import (
    load_templates,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.way import (
    Way,
    WayError,
    Ways,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import validation_program
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.calls import Reader
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import reasons
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.runs import Holder, run_for
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.work import (
    Archive,
    question_of,
    text_of,
)

_CLUSTERSHELL = "clustershell"


class ActionModule(ActionBase):
    """Runs on the controller only and opens no connection to a host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Make the program, and return what runs it where."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        arguments = json.loads(json.dumps(arguments, default=str))
        try:
            result.update(changed=False, **self._make(arguments, task_vars or {}))
        except (AnsibleError, OSError, ValueError) as error:
            result.update(failed=True, msg=str(error))
        return result

    def _make(self, arguments: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        held, engine = arguments["held"].get("nodes") or {}, arguments["engine"]
        jobs = arguments["held"].get("jobs") or {}
        job_of = {node: job for job, nodes in jobs.items() for node in nodes}
        reader = Reader(self._loader, collection_root())
        left: dict[str, str] = {}
        found, ways = Ways(self._loader), dict[str, Way]()
        works: dict[str, dict[str, Any]] = {}
        notes: dict[str, dict[str, Any]] = {}
        for host in arguments["hosts"]:
            reported = held.get(host) or {}
            variables = self._variables(host, arguments, task_vars, bool(reported.get("busy")))
            profile = reader.value(variables.get("node_health_profile") or {}, variables)
            if variables.get("node_state") == "absent" or not (profile or {}).get("gpus"):
                continue
            by_slurm = engine != _CLUSTERSHELL and host in job_of
            if not by_slurm and engine != _CLUSTERSHELL and not arguments["beside"]:
                left[host] = str(reported.get("why") or "Slurm does not hold it")
                continue
            if not by_slurm:
                try:
                    ways[host] = found.to(host, variables)
                except WayError as error:
                    left[host] = str(error)
                    continue
            levels = reader.value(variables["__validation_levels"], variables)
            variables["__validation"] = levels[arguments["level"]]
            nothing = reader.value(variables["__validation_nothing"], variables)
            switches = variables["__validation"]["parts"]
            asked = reasons(arguments["level"], switches, nothing, arguments["parts"])
            wanted = [part for part, why in asked.items() if not why]
            parts = reader.parts(wanted, variables, task_vars.get("omit"))
            refused = "" if reported.get("may_load", True) else str(reported.get("why"))
            works[host] = {
                "parts": parts,
                "refused": refused,
                "hold": arguments["hold"] if reported and not by_slurm else None,
                "folder": FOLDER,
                "seconds": sum(part["limit_s"] for part in parts),
            }
            notes[host] = {"asked": asked, "nothing": nothing}
        made = {
            "left": left,
            "nodes": list(works),
            "groups": {
                job: asked_there
                for job, nodes in jobs.items()
                if (asked_there := [node for node in nodes if node in works.keys() - ways.keys()])
            },
            "beside": {host: str((held.get(host) or {}).get("why") or "") for host in ways},
            "become": sorted({shlex.join(way.root) for way in ways.values()}),
        }
        if self._task.check_mode or not works:
            return {**made, "run": "", "folder": ""}
        return {**made, **_write(arguments, works, notes, ways)}

    def _variables(
        self, host: str, arguments: Mapping[str, Any], task_vars: Mapping[str, Any], busy: bool
    ) -> dict[str, Any]:
        """Return the variables of a host as the tasks of the parts see them."""
        path = os.path.join(arguments["state_dir"], "identities", f"{host}.json")
        try:
            identities = read_json(path, "parts of a node")
        except FileNotFoundError:
            identities = {}
        inputs = load_templates(self._loader, arguments["plan_dir"], "inputs", f"{host}.json")
        return {
            **task_vars["hostvars"].raw_get(host),
            **inputs,
            "__validation_identities": identities,
            "__validate_seen": {"busy": busy},
            "again": task_vars.get("again", False),
            "inventory_hostname": host,
        }


# clush gives its own options, then the node and the command. What comes over its own standard input
# it keeps in memory once for each node: 100 nodes and a program of 5 MB took it 205 MB and 62 s.
_INSTEAD_OF_SSH = """\
while [ $# -gt 2 ]; do shift; done
exec < "${0%/*}/../program"
. "${0%/*}/$1.sh"
"""


def _write(
    arguments: Mapping[str, Any],
    works: Mapping[str, Mapping[str, Any]],
    notes: Mapping[str, Any],
    ways: Mapping[str, Way],
) -> dict[str, Any]:
    """Write the files of the run; return its name and folder. OSError, ValueError."""
    names = ("hosts", "level", "parts", "engine", "since")
    asked = text_of({name: arguments[name] for name in names})
    questions = {host: question_of(work["parts"]) for host, work in works.items()}
    place = os.path.join(arguments["state_dir"], "validation")
    parent = multiprocessing.parent_process()
    pid = os.getpid() if parent is None or parent.pid is None else parent.pid
    mine = Holder(short_name(), Process(pid, start_of(pid)))
    run = run_for(place, asked, questions, arguments["seconds"], mine)
    archive = Archive()
    for host, work in works.items():
        archive.add(host, work)
    texts: dict[str, bytes] = {
        "program": validation_program(archive.entries),
        # In the order of the parts, which is that of the records.
        "notes.json": json.dumps(notes).encode(),
        "asked.json": text_of(
            {host: [part["name"] for part in work["parts"]] for host, work in works.items()}
        ).encode(),
    }
    for name, data in texts.items():
        write_atomic(os.path.join(run.folder, name), data, 0o600)
    with open_folder(os.path.join(run.folder, "ways"), make=0o700, deny=NO_OTHER) as folder:
        for host, way in ways.items():
            folder.write(f"{host}.sh", way.script("2"), 0o600, sync=False)
        folder.write("ssh", _INSTEAD_OF_SSH, 0o600, sync=False)
    return {"run": run.name, "folder": run.folder, "goes_on": run.goes_on}
