# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    PASS,
    line_of,
    lines_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import ask
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.ask import Probe
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.plan import UnitState

UP = UnitState("slurmd.service", "loaded", "", "active", "running", "success", "enabled", "notify")
EXITED = replace(UP, sub_state="exited")


def judge(unit, enabled=True, message="last words"):
    return ask.judge_unit(unit, enabled, message)


@pytest.mark.parametrize(
    ("unit", "statuses"),
    [
        (UP, ["pass", "pass"]),
        (replace(UP, unit_file_state="disabled"), ["pass", "fail"]),
        (replace(UP, unit_file_state="static"), ["pass", "pass"]),
        (replace(UP, active_state="reloading", sub_state="reload"), ["pass", "pass"]),
        (replace(EXITED, kind="oneshot"), ["pass", "pass"]),
        # a daemon that has gone away while its unit counts as active
        (replace(EXITED, kind="forking"), ["fail", "pass"]),
        (replace(UP, name="x.timer", sub_state="waiting"), ["pass", "pass"]),
        (replace(UP, active_state="inactive", sub_state="dead"), ["fail", "pass"]),
        (replace(UP, active_state="failed", sub_state="failed"), ["fail", "pass"]),
        (replace(UP, active_state="activating", sub_state="auto-restart"), ["fail", "pass"]),
        (replace(UP, load_state="masked", active_state="inactive"), ["fail"]),
        (UnitState("slurmd.service"), ["fail"]),
    ],
)
def test_judge_unit(unit, statuses):
    records = judge(unit)
    assert [rec.status for rec in records] == statuses
    assert all(bool(rec.remedy) == (rec.status != "pass") for rec in records)


def test_a_unit_that_need_not_be_enabled():
    assert [rec.check for rec in judge(replace(UP, unit_file_state="disabled"), False)] == [
        "service.running"
    ]


@pytest.mark.parametrize(
    ("unit", "line"),
    [
        (
            replace(UP, active_state="failed", result="exit-code", exit_status=1),
            (
                "unit:slurmd.service service.running is failed (exit-code 1): last words;"
                " do: journalctl -u"
                " slurmd.service, then systemctl restart slurmd.service"
            ),
        ),
        (
            replace(UP, active_state="failed", result="start-limit-hit"),
            (
                "unit:slurmd.service service.running is failed (start-limit-hit): last words;"
                " do: journalctl -u"
                " slurmd.service, then systemctl reset-failed slurmd.service"
            ),
        ),
        (
            UnitState("slurmd.service"),
            (
                "unit:slurmd.service service.running is not installed: there is no such unit on"
                " this host; do: install"
                " the package that ships it, or run the role that does"
            ),
        ),
        (
            replace(UP, unit_file_state="disabled"),
            (
                "unit:slurmd.service service.enabled is disabled: it does not come up at boot;"
                " do: systemctl enable slurmd.service"
            ),
        ),
    ],
)
def test_lines_of_units(unit, line):
    assert lines_of(judge(unit), FAIL) == [line]


ANSWERS = "probe:controller answers service.answers"
PING = Probe("controller answers", ("scontrol", "ping"), "is UP", "is DOWN", remedy="start it")


def ended(out, rc=0):
    return CommandResult(PING.command, ENDED, rc, out, "", 0.02)


@pytest.mark.parametrize(
    ("probe", "result", "status", "line"),
    [
        (PING, ended("Slurmctld(primary) at head-01 is UP"), "pass", None),
        (
            PING,
            ended("Slurmctld(primary) at head-01 is UP\nSlurmctld(backup) at head-02 is DOWN\n"),
            "fail",
            f"{ANSWERS}: says 'Slurmctld(backup) at head-02 is DOWN'; do: start it",
        ),
        (
            PING,
            ended("something else"),
            "fail",
            f"{ANSWERS}: says 'something else' where 'is UP' is expected; do: start it",
        ),
        (
            PING,
            ended("cannot connect", 1),
            "fail",
            f"{ANSWERS}: `scontrol ping` ended with 1: cannot connect; do: start it",
        ),
        (
            PING,
            CommandResult(PING.command, MISSING),
            "not_measured",
            f"{ANSWERS} not measured: scontrol is not installed; do: start it",
        ),
        (
            PING,
            CommandResult(PING.command, TIMED_OUT, took_s=10.01),
            "not_measured",
            (f"{ANSWERS} not measured: `scontrol ping` did not end within 10 s; do: start it"),
        ),
        (replace(PING, expect="", reject="", rc=2), ended("", 2), "pass", None),
        (
            replace(PING, expect="", reject="", remedy=""),
            ended("", 2),
            "fail",
            f"{ANSWERS}: `scontrol ping` ended with 2",
        ),
    ],
)
def test_judge_probe(probe, result, status, line):
    rec = ask.judge_probe(probe, result)
    assert rec.status == status
    assert rec.took_s is not None
    assert [line_of(rec)] * (status != PASS) == ([line] if line else [])
