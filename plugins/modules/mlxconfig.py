#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mlxconfig
short_description: Compare and set the firmware settings of adapters
description:
  - Compares what is stored for the next start of each adapter's firmware with what is declared, and
    sets what differs where O(set_allowed) gives consent.
  - A setting takes effect when the firmware is reset (C(mlxfwreset)) or the node is powered off and
    on. The module never does that; RV(reset_pending) says what waits for it.
  - Asks C(mlxconfig) of NVIDIA's MFT, or C(mstconfig) of the package mstflint.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  devices:
    description: PCI addresses of the adapters.
    type: list
    elements: str
    required: true
  settings:
    description:
      - Settings and their values, as numbers, names or both (V(1), V(IB), V(IB(1\))).
      - A setting that one of the adapters does not have is an error, and nothing is set.
    type: dict
    default: {}
  set_allowed:
    description: Consent to change what is stored in the adapters.
    type: bool
    default: false
  timeout_s:
    description: Seconds one run of the tool may take.
    type: float
    default: 60
seealso:
  - module: baremetal.dgx.ib_info
"""

EXAMPLES = r"""
- name: Have both ports run InfiniBand after the next reset
  baremetal.dgx.mlxconfig:
    devices: ["0000:18:00.0", "0000:40:00.0"]
    settings:
      LINK_TYPE_P1: IB
      SRIOV_EN: false
    set_allowed: true
"""

RETURN = r"""
differences:
  description: What is stored otherwise than declared, before this run.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: PCI address.
      type: str
    setting:
      description: Name of the setting.
      type: str
    before:
      description: The stored value.
      type: str
    after:
      description: The declared value.
      type: str
allowed:
  description: Whether the differences were set, or would be in check mode.
  returned: success
  type: bool
reset_pending:
  description: What is stored, but not yet what the firmware runs with.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: PCI address.
      type: str
    setting:
      description: Name of the setting.
      type: str
    before:
      description: The running value.
      type: str
    after:
      description: The stored value.
      type: str
reset_unknown:
  description: Adapters whose tool does not tell what the firmware runs with.
  returned: success
  type: list
  elements: str
deferred:
  description: Settings, as C(DEVICE NAME), that an adapter shows only after a reset.
  returned: success
  type: list
  elements: str
"""

from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._ib_health import full_pci
from ansible_collections.baremetal.dgx.plugins.module_utils._mlxconfig import (
    Parameter,
    Plan,
    Query,
    parse_query,
    plan,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    MISSING,
    CommandRunner,
    ModuleRunner,
    ToolError,
)

ARGUMENT_SPEC: dict[str, Any] = {
    "devices": {"type": "list", "elements": "str", "required": True},
    "settings": {"type": "dict", "default": {}},
    "set_allowed": {"type": "bool", "default": False},
    "timeout_s": {"type": "float", "default": 60},
}
_TOOLS = ("mlxconfig", "mstconfig")


def load(run: CommandRunner, device: str, timeout_s: float) -> tuple[str, Query]:
    """Return the tool that answered and the settings of an adapter."""
    for tool in _TOOLS:
        for verbose in (["-e"], []):
            answer = run([tool, "-d", device, *verbose, "query"], timeout_s=timeout_s)
            if answer.outcome == MISSING:
                break
            if answer.ok:
                try:
                    return tool, parse_query(answer.out)
                except ValueError as error:
                    raise ToolError(f"{device}: {tool}: {error}") from error
            # A release without -e says so; any other error would come again.
            if not verbose or "-e" not in answer.text:
                raise ToolError(f"{device}: {answer.describe(2)}")
    raise ToolError(f"neither {' nor '.join(_TOOLS)} is installed; install mstflint", absent=True)


def plans(queries: Mapping[str, Query], settings: Mapping[str, Any]) -> dict[str, Plan]:
    """Return what is to be set on each adapter; ToolError names everything that cannot be."""
    found: dict[str, Plan] = {}
    problems: list[str] = []
    for device, query in queries.items():
        try:
            found[device] = plan(query, settings)
        except ValueError as error:
            problems.append(f"{device}: {error}")
    if problems:
        raise ToolError("\n".join(problems))
    return found


def apply(run: CommandRunner, tool: str, device: str, wanted: Plan, timeout_s: float) -> Query:
    """Set, and read back what is stored; ToolError where the adapter did not take it."""
    words = [f"{change.name}={change.after}" for change in wanted.changes]
    answer = run([tool, "-d", device, "--yes", "set", *words], timeout_s=timeout_s)
    if not answer.ok:
        raise ToolError(f"{device}: {answer.describe(3)}")
    _tool, query = load(run, device, timeout_s)
    left = plan(query, {change.name: change.after for change in wanted.changes})
    if left.changes:
        names = ", ".join(f"{change.name} is {change.before}" for change in left.changes)
        raise ToolError(f"{device}: {tool} reports success, but {names}")
    return query


def _row(device: str, setting: str, before: Any, after: Any) -> dict[str, Any]:
    return {"device": device, "setting": setting, "before": before, "after": after}


def _text(rows: Sequence[Mapping[str, Any]], side: str) -> str:
    return "".join(f"{row['device']} {row['setting']} = {row[side]}\n" for row in rows)


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    run = ModuleRunner(module)
    timeout_s = params["timeout_s"]
    try:
        loaded = {
            device: load(run, device, timeout_s)
            for device in dict.fromkeys(full_pci(device) for device in params["devices"])
        }
        queries = {device: query for device, (_tool, query) in loaded.items()}
        found = plans(queries, params["settings"])
        if params["set_allowed"] and not module.check_mode:
            for device, wanted in found.items():
                if wanted.changes:
                    queries[device] = apply(run, loaded[device][0], device, wanted, timeout_s)
    except ToolError as error:
        # An earlier task has only pretended to install it.
        if module.check_mode and error.details.get("absent"):
            module.exit_json(changed=False, msg=f"nothing is compared in check mode: {error}")
        module.fail_json(msg=str(error))
    differences = [
        _row(device, change.name, change.before, change.after)
        for device, wanted in found.items()
        for change in wanted.changes
    ]
    waiting: dict[str, list[Parameter] | None] = {
        device: query.pending for device, query in queries.items()
    }
    result: dict[str, Any] = {
        "changed": bool(differences) and params["set_allowed"],
        "differences": differences,
        "allowed": params["set_allowed"],
        "reset_pending": [
            _row(device, item.name, item.current, item.next)
            for device, items in waiting.items()
            for item in items or []
        ],
        "reset_unknown": [device for device, items in waiting.items() if items is None],
        "deferred": [
            f"{device} {name}" for device, wanted in found.items() for name in wanted.deferred
        ],
    }
    if differences and not params["set_allowed"]:
        result["msg"] = f"{len(differences)} settings differ and are not set without set_allowed"
    if module._diff and result["changed"]:
        result["diff"] = {
            "before": _text(differences, "before"),
            "after": _text(differences, "after"),
        }
    module.exit_json(**result)


if __name__ == "__main__":
    main()
