# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup node_verdicts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_verdicts
short_description: Verdicts on nodes, of the records beside the inventory
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Reads what the playbooks validate_nodes and validate_fabric left on the controller, and folds it
    into one verdict a node, as M(baremetal.dgx.slurm_gate) takes them.
  - A record that cannot be read has measured nothing. A node behind a bad cable fails, and so does
    one with a failure that its last run has not measured.
  - A failure of pair or group tests counts as long as it stands, as M(baremetal.dgx.evidence_add)
    keeps it. Where it has kept none yet, those of the last runs count.
options:
  _terms:
    description: The nodes.
    type: list
    elements: str
    required: true
  folder:
    description: The folder C(.dgx) beside the inventory.
    type: path
    required: true
  fabric:
    description: Whether a node whose cables were not checked is not measured.
    type: bool
    default: false
  without_rails:
    description: Nodes that have no cables, of which O(fabric) asks nothing.
    type: list
    elements: str
    default: []
  own_age:
    description:
      - Whether a verdict is as old as what the node itself was asked. Without it, and with
        O(fabric), a pass is as old as the last sweep of the fabric, when that is older.
    type: bool
    default: false
  looks:
    description:
      - Whether each verdict has in C(looks) when its own level and deeper ones were last asked, by
        level, as M(baremetal.dgx.slurm_nodes_due) takes it. A level that was asked in vain, since
        no part that loads the node began, is not among them. Then C(tried) has the time.
      - One that fails then has in C(asked_by) the least level of validate_nodes that asks all that
        fails, as M(baremetal.dgx.repair_step) takes it.
    type: bool
    default: false
seealso:
  - module: baremetal.dgx.slurm_gate
"""

EXAMPLES = r"""
- name: Show the verdicts
  ansible.builtin.debug:
    msg: "{{ query('baremetal.dgx.node_verdicts', 'dgx-01', folder='/srv/cluster/.dgx') }}"
"""

RETURN = r"""
_raw:
  description: The verdict of each node, in the order of the nodes.
  type: list
  elements: dict
  sample:
    - node: dgx-01
      verdict: fail
      at: "2026-01-31T23:59:59Z"
      level: standard
      first_failing: {check: gpu.ecc, subject: "gpu:dgx-01/3", text: 12 errors, remedy: replace it}
      fleet_share: 0.01
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.baremetal.dgx.plugins.module_utils._core.verdict import record_from_data
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.parts import known_parts
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (
    gate_verdicts,
)


class LookupModule(LookupBase):
    """Reads the files one by one: those of a large cluster are 100 MB."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[Any]:
        """Return the verdicts; AnsibleLookupError for what is not a list of names."""
        self.set_options(var_options=variables, direct=kwargs)
        names: list[Any] = []
        for term in terms:
            names += term if isinstance(term, list) else [term]
        if not all(isinstance(name, str) and name and "/" not in name for name in names):
            raise AnsibleLookupError("node_verdicts: takes names of nodes")
        folder = self.get_option("folder")
        names = list(dict.fromkeys(str(name) for name in names))
        fabric = _load(os.path.join(folder, "fabric", "records.json"))
        swept = fabric.get("records") if isinstance(fabric, dict) else None
        failures = {name: _failures(folder, name) for name in names}
        unknown = {name: why for name, why in failures.items() if isinstance(why, str)}
        standing = [one for name in names if name not in unknown for one in failures[name]]
        if not os.path.isdir(os.path.join(folder, "failures")):
            standing = _last_runs(folder)
        found = gate_verdicts(
            ((name, unknown.get(name, data)) for name, data in _files(folder, names)),
            swept if isinstance(swept, list) else None,
            standing,
            self.get_option("fabric"),
            self.get_option("own_age"),
            self.get_option("without_rails"),
            (fabric.get("findings") or ()) if isinstance(fabric, dict) else (),
        )
        if not self.get_option("looks"):
            # The gate takes no more than it reads.
            for one in found:
                del one["looks"]
                one.pop("asked_by", None)
                one.pop("tried", None)
        return found


def _files(folder: str, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for name in names:
        yield name, _load(os.path.join(folder, "nodes", f"{name}.json"))


def _failures(folder: str, name: str) -> list[Any] | str:
    """The failures of a node that stand, or the text of why they are not known."""
    path = os.path.join(folder, "failures", f"{name}.json")
    try:
        known = known_parts(path).values()
        return [record_from_data(one).as_data() for some in known for one in some]
    except (OSError, ValueError) as error:
        return f"its failures in pairs and groups are not known: {error}"
    except (AttributeError, KeyError, TypeError):
        return f"its failures in pairs and groups are not known: {path} has other content"


def _last_runs(folder: str) -> list[Any]:
    """The records of the last pair and group tests, of which the failures may not be kept yet."""
    paths = ("pairs/pairs-records.json", "groups/groups-records.json")
    found = [_load(os.path.join(folder, "fabric", path)) for path in paths]
    return [one for some in found if isinstance(some, list) for one in some]


def _load(path: str) -> Any:
    """The content of a file, or the text of why there is none."""
    try:
        with open(path, encoding="utf-8") as handle:
            data = json.load(handle)
    except FileNotFoundError:
        return "there are no records"
    except (OSError, ValueError) as error:
        return f"{os.path.basename(path)} cannot be read: {error}"
    return data if isinstance(data, (dict, list)) else f"{os.path.basename(path)} has no records"
