# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Switches many machines at once, or says which would be: the module bmc_power."""

from __future__ import annotations

from typing import Any, Mapping

from .._core.record import Record, stamped, utc_text
from .._core.run import ToolError
from .._slurm.nodes import parse_nodes
from .access import ask_bmcs, by_node, change_bmcs, loaded, opener
from .machine import AC_CYCLE, ON
from .outing import Outing, obstacle, plan_outing
from .switch import CYCLE, Limits, Switched, switch
from .thresholds import SWITCHED


def bring_about(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return what the module returns beside the records, which are `records`. ToolError."""
    bmcs = by_node(params["bmcs"])
    loaded(bmcs)
    action = params["action"]
    nodes = parse_nodes(params["nodes"])
    if action != ON and bmcs and not nodes:
        raise ToolError("nodes: holds no node; give what `scontrol show node -o` prints")
    if params["state"] == "planned":
        return _planned(params, bmcs, nodes, action)
    held, serving = set(params["held"]), set(params["serving"])
    refused = {
        name: why
        for name in bmcs
        if action != ON and (why := obstacle(nodes.get(name), name in held, name in serving))
    }
    due = {name: bmc for name, bmc in bmcs.items() if name not in refused}
    if check_mode:
        return {**_result(action, sorted(due), refused, {}, {}), "changed": bool(due)}
    limits = Limits(params["soft_s"], params["change_s"], params["poll_s"])

    def ask(_name: str, bmc: Mapping[str, Any]) -> Switched:
        return switch(opener(bmc, params["timeout_s"]), action, limits)

    done, lacking = change_bmcs(due, ask, params)
    return _result(action, sorted(due), refused, done, lacking)


def _require_room(action: str, outing: Outing) -> None:
    """ToolError for a cycle of more nodes than the share: afterwards none shows who had it.

    The next run would begin with the same ones.
    """
    if action in (CYCLE, AC_CYCLE) and outing.crowded:
        wanted = len(outing.fresh) + len(outing.crowded)
        why = f"and {len(outing.fresh)} may leave; write fewer of them as -e target="
        if not outing.fresh:
            why = f"but {outing.refused[outing.crowded[0]]}; bring those back"
        raise ToolError(
            f"target: {action} would take {wanted} nodes out of service, {why}, or write a greater "
            "-e power_share="
        )


def _planned(
    params: Mapping[str, Any], bmcs: Mapping[str, Any], nodes: Mapping[str, Any], action: str
) -> dict[str, Any]:
    """Ask for the power of what may be switched: who is there already stays as it is."""
    outing = None
    if action != ON:
        outing = plan_outing(nodes, list(bmcs), params["share"], params["serving"])
        _require_room(action, outing)
    asked = {name: bmc for name, bmc in bmcs.items() if outing is None or name in outing.names}

    def ask(_name: str, bmc: Mapping[str, Any]) -> str:
        with opener(bmc, params["timeout_s"])() as machine:
            return machine.power()

    found, lacking = ask_bmcs(asked, ask, params)
    there = {
        name: Switched(state, f"was {state} already", acted=False)
        for name, state in found.items()
        if state.lower() == action
    }
    due = [name for name in asked if name in found and name not in there]
    refused = dict(outing.refused) if outing else {}
    return {
        **_result(action, due, refused, there, lacking),
        "fresh": [name for name in due if outing and name in outing.fresh],
        "power": found,
    }


def _result(
    action: str,
    due: list[str],
    refused: Mapping[str, str],
    done: Mapping[str, Switched],
    lacking: Mapping[str, str],
) -> dict[str, Any]:
    wanted = "Off" if action == "off" else "On"
    records = [
        SWITCHED.judge(f"node:{name}", one.power, wanted, text=one.text)
        for name, one in done.items()
    ]
    records += [
        SWITCHED.judge(f"node:{name}", None, wanted, text=f"{what}: {why}")
        for what, some in (("not switched", refused), ("not reached", lacking))
        for name, why in some.items()
    ]
    at: list[Record] = stamped(records, utc_text())
    return {
        "changed": any(one.acted for one in done.values()),
        "due": due,
        "done": sorted(name for name, one in done.items() if one.power == wanted),
        "refused": [{"node": name, "why": why} for name, why in refused.items()],
        "fresh": [],
        "power": {},
        "records": at,
    }
