# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role keeps every house rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from role_rules import RULES, Role, flat, restarts_daemons, roles_of

ROOT = Path(__file__).resolve().parents[3]
ROLES = [Role(spec.parents[1]) for spec in sorted((ROOT / "roles").glob("*/meta/main.yml"))]
CONVERGES = sorted((ROOT / "molecule").glob("*/converge.yml"))


def test_roles_were_found() -> None:
    assert ROLES
    assert {path.name for path in (ROOT / "roles").iterdir()} == {role.name for role in ROLES}


def test_vars_hold_what_several_tasks_read() -> None:
    """What one task reads is a variable of that task, where it is looked for."""
    files = [*ROOT.glob("roles/*/vars/*.yml"), *ROOT.glob("playbooks/vars/*.yml")]
    assert sum(len(path.read_text().splitlines()) for path in files) <= 1140
    refusals = [role.name for role in ROLES if "_refusals:" in role.texts.get("vars/main.yml", "")]
    assert not refusals, "they are read by preflight alone"


def test_what_is_taken_out_of_service_need_not_be_there() -> None:
    """A node declared absent may never have had the daemon, or was installed again."""
    stopped = [
        task["baremetal.dgx.service_sync"]
        for role in ROLES
        for stem, task in role.tasks
        if stem == "remove" and "state" in task.get("baremetal.dgx.service_sync", {})
    ]
    assert stopped
    assert [one["name"] for one in stopped if not one.get("missing_ok")] == []


def test_calendars_of_the_inventory_are_refused_where_a_timer_would_pass_over_them() -> None:
    """systemd only warns of a line that it cannot read, and the timer runs no more."""
    calendars = [
        (path.relative_to(ROOT / "roles").parts[0], name)
        for path in sorted(ROOT.glob("roles/*/templates/**/*.timer.j2"))
        for name in re.findall(r"^OnCalendar=.*?{{ (\w+)", path.read_text(), re.MULTILINE)
    ]
    assert len(calendars) > 2
    for role, name in calendars:
        tasks = ROOT / "roles" / role / "tasks"
        assert f"{name} is not search(__{role}_calendar" in (tasks / "preflight.yml").read_text()
        asked = r"systemd-analyze calendar .*{{ %s \| quote }}" % name
        assert re.search(asked, (tasks / "configure.yml").read_text())


_NAMES_PACKAGES = re.compile(r"_(packages|needs|package_of|rpms)$")
_SOURCE = re.compile(r"[.]spec|spec file|EPEL|AppStream|BaseOS|No distribution has it")


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("roles/*/vars/RedHat.yml")), ids=lambda path: path.parts[-3]
)
def test_packages_of_enterprise_linux_have_a_source(path: Path) -> None:
    """None of these systems was at hand, so each name is from a public spec file or repository."""
    text = path.read_text(encoding="utf-8")
    if any(_NAMES_PACKAGES.search(name) for name in yaml.safe_load(text)):
        comments = " ".join(line.partition("#")[2] for line in text.splitlines())
        assert _SOURCE.search(comments), "write the spec file or the repository beside the names"


def test_packages_of_playbooks_restart_no_daemon() -> None:
    plays = [
        play
        for path in ROOT.glob("playbooks/*.yml")
        for play in yaml.safe_load(path.read_text(encoding="utf-8"))
    ]
    tasks = [task for play in plays for task in flat(play.get("tasks"))]
    tasks += [
        task
        for path in ROOT.glob("playbooks/tasks/*.yml")
        for task in flat(yaml.safe_load(path.read_text(encoding="utf-8")))
    ]
    assert not [task["name"] for task in tasks if restarts_daemons(task)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_keeps_rule(role: Role, rule: Callable[[Role], Iterator[str]]) -> None:
    findings = list(rule(role))
    assert not findings, "\n".join(["", *findings])


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_is_in_a_molecule_scenario(role: Role) -> None:
    run = {path.parent.name: roles_of(path, ROOT) for path in CONVERGES}
    names = {role.name}
    if role.internal:
        call = f"baremetal.dgx.{role.name}"
        names = {one.name for one in ROLES if any(call in text for text in one.texts.values())}
    assert any(names & roles for roles in run.values()), f"scenarios run {run}"
