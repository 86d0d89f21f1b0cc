# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What all modules that check something share: their options, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Collection, Mapping, NoReturn, Sequence

from .names import short_name
from .record import FAIL, NOT_MEASURED, PASS, Record, Tally, lines_of, stamped, utc_text

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

# As plugins/doc_fragments/check.py documents them.
_OPTIONS: dict[str, Any] = {
    "fail_on": {
        "type": "list",
        "elements": "str",
        "choices": [FAIL, NOT_MEASURED],
        "default": [FAIL, NOT_MEASURED],
    },
    "node": {"type": "str", "default": ""},
    "thresholds": {"type": "dict", "default": {}},
    "timeout_s": {"type": "float"},
}


def check_options(*names: str, **defaults: Any) -> dict[str, Any]:
    """Return `fail_on` and the shared options of these names, some with a default of one's own."""
    options = {name: dict(_OPTIONS[name]) for name in ("fail_on", *names, *defaults)}
    for name, value in defaults.items():
        options[name]["default"] = value
    return options


def node_of(module: AnsibleModule) -> str:
    """Return the node that records name: the option, or this host."""
    node: str = module.params["node"]
    return node or short_name()


def result_of(
    records: Sequence[Record],
    *,
    at: str | None = None,
    took_s: float | None = None,
    counted: Mapping[str, Collection[str]] | None = None,
    all_records: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return what a check returns, `more` is the module's own.

    Records without a time get `at`, by default now: the gate wants to know how old each of them
    is. `counted` names by status the checks whose records share one line. Without `all_records`
    those that passed are left out.
    """
    tally, counted = Tally.of(records), counted or {}
    shown = [one for one in records if all_records or one.status != PASS]
    return {
        "changed": False,
        **more,
        "verdict": tally.verdict,
        "counts": tally.counts,
        "records": [
            one.as_data() for one in stamped(shown, utc_text() if at is None else at, took_s)
        ],
        "findings": lines_of(records, FAIL, counted.get(FAIL, ())),
        "not_measured": lines_of(records, NOT_MEASURED, counted.get(NOT_MEASURED, ())),
    }


def end(module: AnsibleModule, result: dict[str, Any], msg: str = "") -> NoReturn:
    """End a check: it fails on what `fail_on` names, never in check mode.

    `msg` says why it failed in place of the lines. Nothing at all was not measured.
    """
    on = module.params["fail_on"]
    red = []
    if FAIL in on:
        red += result["findings"]
    if NOT_MEASURED in on:
        red += result["not_measured"]
        if result["verdict"] == NOT_MEASURED and not red:
            red = ["nothing was measured"]
    if not red:
        module.exit_json(**result)
    if module.check_mode:
        module.exit_json(msg="check mode: this does not fail the task", **result)
    module.fail_json(msg=msg or "\n".join(red), **result)
    raise AssertionError("fail_json does not return")


def finish(
    module: AnsibleModule, records: Sequence[Record], *, msg: str = "", **more: Any
) -> NoReturn:
    """End a check with these records; `msg` as for end, `more` as for result_of."""
    end(module, result_of(records, **more), msg)
