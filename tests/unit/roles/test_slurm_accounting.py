# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""QOS and accounts in the order in which the role has them made, against a model of slurmdbd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from role_render import ROLES, render_many
from role_rules import flat, read_yaml
from sacctmgr_model import Sacctmgr

from ansible_collections.baremetal.dgx.plugins.module_utils._accounting import parse, plan, qos

QOS, ACCOUNT = "baremetal.dgx.slurm_qos", "baremetal.dgx.slurm_account"
INTERACTIVE = {"name": "interactive", "priority": 5}
GONE = {"name": "interactive", "state": "absent"}
USED = [{"name": "vision", "qos": ["normal", "interactive"], "users": [{"name": "alice"}]}]
UNUSED = [{"name": "vision", "qos": ["normal"], "users": [{"name": "alice"}]}]
# What the inventory says in each run, one after the other.
RUNS = {
    "first": ([{"name": "normal", "state": "present"}, INTERACTIVE], USED),
    "retired": ([{"name": "normal"}, GONE], UNUSED),
    "again": ([{"name": "normal"}, GONE], UNUSED),
}


def _run(database: Sacctmgr, module: str, arguments: dict[str, Any]) -> list[str]:
    done: list[str] = []
    if module == ACCOUNT:
        accounts = parse.parse_declared(arguments.get("accounts", []))[0]
        todo = plan.make_plan(database, "dgx", accounts, False, plan.load(database, "dgx"))
        plan.bring_about(database, "dgx", accounts, False, todo, done)
        return done
    declared, absent = qos.desired(arguments["qos"])
    params = {"exclusive": False, "create_only": bool(arguments.get("create_only"))}
    steps = qos.make_plan(database, declared, absent, params, qos.load(database))
    qos.bring_about(database, declared, absent, params, steps, done)
    return done


def test_a_qos_is_retired_in_the_run_that_takes_it_from_the_accounts(tmp_path: Path) -> None:
    tasks = [
        (module, task[module])
        for task in flat(read_yaml(ROLES / "slurm_controller/tasks/service.yml"))
        for module in (QOS, ACCOUNT)
        if module in task
    ]
    shown = {
        f"{number}.{name}": value.strip().removeprefix("{{").removesuffix("}}")
        for number, (_module, arguments) in enumerate(tasks)
        for name, value in arguments.items()
        if name in ("qos", "accounts")
    }
    inputs = {
        name: {
            "slurm_controller_qos": entries,
            "slurm_controller_accounts": accounts,
            "slurm_controller_cluster_name": "dgx",
        }
        for name, (entries, accounts) in RUNS.items()
    }
    rendered = render_many(tmp_path, "slurm_controller", "Debian", inputs, shown)
    database, done = Sacctmgr(), {}
    for run in RUNS:
        done[run] = [
            line
            for number, (module, arguments) in enumerate(tasks)
            for line in _run(
                database,
                module,
                {**arguments, **{
                    name: rendered[run][f"{number}.{name}"]
                    for name in ("qos", "accounts")
                    if f"{number}.{name}" in rendered[run]
                }},
            )
        ]  # fmt: skip
    limits = done["first"].index("modify qos where name=interactive set priority=5")
    assert limits < [line.startswith("add account vision") for line in done["first"]].index(True)
    assert done["retired"] == [
        "modify account where name=vision cluster=dgx set qos=normal",
        "delete qos where name=interactive",
    ]
    assert done["again"] == []
