# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A burn-in by the options of gpu_burn: begun or gone on with, and judged from what is on disk."""

from __future__ import annotations

import hashlib
import time
from typing import Any, Mapping

from .._core.check_module import result_of
from .._core.lock import host_lock
from .._core.record import utc_text
from .control import FOLLOW, REPORT, START, next_action, prepare, read_sums, start, stop, summary
from .judge import judge_burn
from .parent import is_running
from .plan import Settings, settings_from_data
from .state import ENDED, State, load

_SETTINGS = tuple(Settings.__dataclass_fields__)
_LOCK_S = 30


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Return what is burnt; ValueError for settings that cannot be."""
    return settings_from_data({name: options[name] for name in _SETTINGS})


def is_again(options: Mapping[str, Any], state: State | None, now: float) -> bool:
    """Tell whether a burn-in that is over does not count any more."""
    days = options["again_after_days"]
    old = state is not None and state.state in ENDED and now - state.updated > days * 86400
    return options["again"] or bool(days and old)


def begin(
    options: Mapping[str, Any], settings: Settings, result: dict[str, Any], check: bool
) -> str:
    """Begin a burn-in, or go on with it; `result` learns what was done, which is returned.

    BurnError, BusyError, OSError. `check` only tells what would be done.
    """
    folder = options["folder"]
    place = hashlib.sha256(folder.encode("utf-8")).hexdigest()[:12]
    with host_lock(f"gpu_burn-{place}", _LOCK_S):
        found = load(folder)
        again = is_again(options, found, time.time())
        action, text = next_action(found, is_running(folder), settings, again)
        result.update(action=action, text=text, changed=action not in (FOLLOW, REPORT))
        if result["changed"] and not check:
            prepare(folder, settings, action == START)
            result["runs_as"] = start(folder)
    return action


def halt(folder: str, result: dict[str, Any], check: bool) -> None:
    """Interrupt a burn-in that runs; `result` learns it. BurnError, OSError."""
    running = is_running(folder)
    result.update(action="stop", changed=running)
    if running and not check:
        stop(folder)


def report(
    options: Mapping[str, Any], node: str, state: State | None, result: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the module returns of what is on disk."""
    if state is None:
        return result_of([], **result)
    sums = read_sums(options["folder"])
    records = judge_burn(node, state, sums, options["thresholds"], options["slots"])
    # Told again, it still counts by the time of the burn.
    return result_of(records, at=utc_text(state.updated or None), **result, run=summary(state))
