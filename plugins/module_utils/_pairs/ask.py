# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Pair tests by the options of fabric_pairs: planned, measured or judged again, and kept."""

from __future__ import annotations

from typing import Any

from .._core.run import CommandRunner
from .options import check, load_plan, load_tables, make_session, make_setup, run_session
from .session import (
    Outcome,
    judge_again,
    keep_plan,
    keep_records,
    make_routes,
    round_lines,
)


def ask_pairs(
    run: CommandRunner, params: dict[str, Any], result: dict[str, Any], check_only: bool
) -> Outcome | None:
    """Return the outcome, None if it is only planned; `result` learns routes and schedule.

    ToolError where nothing can be measured or kept.
    """
    plan = load_plan(params)
    check(params, plan)
    tables, why = load_tables(params, run)
    routes, problems = make_routes(plan, tables)
    result["routes"] = {"source": routes.source, "why": why, "problems": problems}
    setup = make_setup(params, plan)
    session, result["schedule"] = make_session(params, plan, routes, setup.recipe)
    if check_only:
        result["rounds"] = round_lines(session.schedule)
        return None
    if params["judge_only"]:
        outcome = judge_again(session, params["output"])
    else:
        keep_plan(params["output"], session.schedule, tables)
        outcome = run_session(params, run, session, setup)
    keep_records(params["output"], outcome.records)
    return outcome
