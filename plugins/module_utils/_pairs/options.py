# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Pair tests by the options of fabric_pairs: checked, planned, measured or judged again, kept.

Each mistake in an option is one clear line.
"""

from __future__ import annotations

from typing import Any

from .._core.files import text_of_option
from .._core.nodeset import fold
from .._core.run import CommandRunner, ToolError
from .._fabric.model import CablePlan, load_plan, rail_end
from .._fabric.routes import Routes
from .._slurm.commands import allocate, release
from .perftest import SHORTEST_S, Recipe, threshold_for
from .remote import SLURM, SSH, Local, Slurm, Ssh, Transport
from .run import Setup
from .schedule import Request, make_schedule
from .session import (
    TABLES,
    Outcome,
    Session,
    ask_tables,
    describe,
    judge_again,
    keep_plan,
    keep_records,
    make_routes,
    measure,
    read_schedule,
    round_lines,
)
from .thresholds import FLEET

ONE_SWITCH = "one_switch"
ROUTES = ["auto", "tables", "computed", ONE_SWITCH]


def check(params: dict[str, Any], plan: CablePlan) -> None:
    """Raise ToolError for values that cannot be meant."""
    if not plan.hcas or not plan.cables:
        where = f"plan_file: {params['plan_file']}" if params["plan_file"] else "plan"
        raise ToolError(f"{where}: has no cable to a node; there is nothing to test")
    if params["duration_s"] < SHORTEST_S:
        raise ToolError(
            f"duration_s: {params['duration_s']} is too short; write {SHORTEST_S} or more"
        )
    for option in ("pairs_per_link", "parallel", "size_bytes"):
        if params[option] < 1:
            raise ToolError(f"{option}: {params[option]}; write 1 or more")
    known = {node for node, _rail in plan.hcas} | {f"{node}/rail{rail}" for node, rail in plan.hcas}
    for name in params["exclude"]:
        if name not in known:
            raise ToolError(
                f"exclude: {name} is neither a node of the plan nor a rail such as dgx-01/rail3"
            )
    for key, value in params["gpus"].items():
        if not str(key).isdigit() or not str(value).isdigit():
            raise ToolError(f"gpus.{key}: {value}; write a rail and the number of its GPU")


def load_tables(params: dict[str, Any], run: CommandRunner) -> tuple[str, str]:
    """The forwarding tables, or nothing and why not."""
    if params["routes"] in ("computed", ONE_SWITCH):
        return "", "asked for"
    if params["judge_only"]:
        try:
            return text_of_option(f"{params['output']}/{TABLES}", "output"), ""
        except ToolError:
            return "", "the run had none"
    if params["tables_file"]:
        return text_of_option(params["tables_file"], "tables_file"), ""
    environment = {str(key): str(value) for key, value in params["tool_environment"].items()}
    tables, why = ask_tables(run, params["timeout_s"], params["tool_options"], environment)
    if not tables and params["routes"] == "tables":
        raise ToolError(f"routes: no forwarding tables: {why}; give tables_file, or routes: auto")
    return tables, why


def make_setup(params: dict[str, Any], plan: CablePlan) -> Setup:
    """What the runner needs to know."""
    recipe = Recipe(
        memory=params["memory"],
        both_ways=params["both_ways"],
        size_bytes=params["size_bytes"],
        duration_s=params["duration_s"],
        extra=tuple(params["extra_arguments"]),
    )
    return Setup(
        recipe=recipe,
        devices={rail_end(*key): hca.devices for key, hca in plan.hcas.items()},
        addresses={str(key): str(value) for key, value in params["addresses"].items()},
        gpus={int(key): int(value) for key, value in params["gpus"].items()},
        sysfs_root=params["sysfs_root"],
        connect_s=params["connect_s"],
        listen_s=params["listen_s"],
        parallel=params["parallel"],
    )


def run_session(
    params: dict[str, Any], run: CommandRunner, session: Session, setup: Setup
) -> Outcome:
    """Measure by the transport that is asked for; a Slurm job is given back whatever happens."""
    transport: Transport
    job = ""
    if params["transport"] == SLURM:
        units = [unit for some in session.schedule.rounds for unit in some]
        nodes = sorted({unit.a for unit in units} | {unit.b for unit in units})
        # Twice the time, for steps that hang and for follow-ups.
        limit = 2 * describe(session.schedule, len(nodes), params["duration_s"])["seconds"] + 600
        job = allocate(
            run,
            nodes,
            limit,
            params["slurm_wait_s"],
            params["slurm_gres"],
            params["slurm_options"],
        )
        transport = Slurm(job, params["slurm_gres"])
    elif params["transport"] == SSH:
        targets = {**setup.addresses, **params["targets"]}
        transport = Ssh(targets, params["connect_s"], tuple(params["ssh_options"]))
    else:
        transport = Local()
    try:
        return measure(session, setup, transport, params["output"], params["follow_ups"])
    finally:
        if job:
            release(run, job)


def make_session(
    params: dict[str, Any], plan: CablePlan, routes: Routes, recipe: Recipe
) -> tuple[Session, dict[str, Any]]:
    """What is tested and what is good, and the schedule in short; ToolError for fewer than two."""
    rates = {float(part.rate_gbps) for part in plan.hcas.values()}
    rates |= {float(part.rate_gbps) for part in plan.cables}
    thresholds = {rate: threshold_for(recipe, rate) for rate in rates}
    if params["threshold_gbps"] is not None:
        given = FLEET.threshold(params["threshold_gbps"], params["threshold_source"])
        thresholds = dict.fromkeys(rates, given)
    if params["judge_only"]:
        schedule = read_schedule(params["output"])
    else:
        names = ("pairs_per_link", "seed", "loopback", "cross_rail")
        request = Request(
            excluded=frozenset(params["exclude"]), **{name: params[name] for name in names}
        )
        schedule = make_schedule(plan, routes, request)
    left = sorted({node for node, _rail in plan.hcas} - set(params["exclude"]))
    if len(left) < 2:
        # What loops back inside an adapter shows nothing about a cable.
        raise ToolError(
            f"pairs: of the plan's nodes {fold(left) or 'none'} is left, and a pair needs two; "
            "write fewer nodes into exclude, or pair_tests.transport: none"
        )
    session = Session(plan, routes, schedule, thresholds, params["both_ways"])
    return session, describe(schedule, len(left), params["duration_s"])


def ask_pairs(
    run: CommandRunner, params: dict[str, Any], result: dict[str, Any], check_only: bool
) -> Outcome | None:
    """Return the outcome, None if it is only planned; `result` learns routes and schedule.

    ToolError where nothing can be measured or kept.
    """
    plan = load_plan(params)
    check(params, plan)
    tables, why = load_tables(params, run)
    routes, problems = make_routes(plan, tables, params["routes"] == ONE_SWITCH)
    plan = routes.plan
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
