# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils import _units
from ansible_collections.baremetal.dgx.plugins.module_utils._units import (
    OnDisk,
    PathDigest,
    Stamp,
    UnitState,
    Wanted,
)

KEY, CONF, UNIT = "/etc/munge/munge.key", "/etc/slurm/slurm.conf", "/lib/slurmd.service"
STARTED_AT = 1000.0
BEFORE, AFTER = STARTED_AT - 10, STARTED_AT + 10

WANT = Wanted("slurmd.service", enabled=True, restart_on=(KEY,), reload_on=(CONF,))
UP = UnitState(
    "slurmd.service",
    load_state="loaded",
    active_state="active",
    sub_state="running",
    result="success",
    unit_file_state="enabled",
    kind="notify",
    main_pid=812,
    invocation_id="one",
    can_reload=True,
    files=(UNIT,),
    started_at=STARTED_AT,
)
DOWN = replace(UP, active_state="inactive", sub_state="dead", main_pid=0)
FAILED = replace(DOWN, active_state="failed", sub_state="failed", result="exit-code")
AUTO_RESTART = replace(DOWN, active_state="activating", sub_state="auto-restart", result="signal")
ABSENT = UnitState("slurmd.service", load_state="not-found")
MASKED = replace(DOWN, load_state="masked", unit_file_state="masked")


def disk(
    key="k1", conf="c1", unit="u1", changed_at=BEFORE, key_at=None, conf_at=None, unit_at=None
):
    return OnDisk(
        PathDigest({UNIT: unit}, unit_at or changed_at),
        {
            KEY: PathDigest({KEY: key}, key_at or changed_at),
            CONF: PathDigest({CONF: conf}, conf_at or changed_at),
        },
    )


def stamp(invocation="one", pending=False, key="k1", conf="c1", unit="u1", restart_key=""):
    return Stamp(
        invocation, pending, {UNIT: unit}, {KEY: {KEY: key}, CONF: {CONF: conf}}, restart_key
    )


# What the unit is, by what the stamp says by what is on disk → what is done. AFTER means that the
# file changed after the unit was started.
TABLE = [
    # nothing to do
    ("runs with what is on disk", UP, stamp(), disk(), []),
    ("same content written again", UP, stamp(), disk(changed_at=AFTER), []),
    ("restarted by hand, same content", UP, stamp("zero"), disk(), []),
    ("restarted by hand after a change of the key", UP, stamp("zero"), disk(key="k2"), []),
    ("restarted by hand after a change of the conf", UP, stamp("zero"), disk(conf="c2"), []),
    ("no stamp, started after every change", UP, None, disk(), []),
    ("announced start happened", UP, stamp("zero", pending=True), disk(changed_at=AFTER), []),
    # restart
    ("key changed", UP, stamp(), disk(key="k2", changed_at=AFTER), ["restart"]),
    ("key changed, clock stepped", UP, stamp(), disk(key="k2"), ["restart"]),
    ("unit definition changed", UP, stamp(), disk(unit="u2"), ["restart"]),
    ("key and conf changed", UP, stamp(), disk(key="k2", conf="c2"), ["restart"]),
    ("no stamp, key changed since", UP, None, disk(key_at=AFTER), ["restart"]),
    ("no stamp, definition changed since", UP, None, disk(unit_at=AFTER), ["restart"]),
    (
        "restarted by hand before the change",
        UP,
        stamp("zero"),
        disk("k2", key_at=AFTER),
        ["restart"],
    ),
    ("announced restart did not happen", UP, stamp("one", pending=True), disk(), ["restart"]),
    (
        "announced start happened, key changed since",
        UP,
        stamp("zero", pending=True),
        disk("k2", key_at=AFTER),
        ["restart"],
    ),
    ("start time unknown", replace(UP, started_at=0.0), None, disk(), ["restart"]),
    (
        "definition not loaded yet",
        replace(UP, need_daemon_reload=True),
        stamp("zero"),
        disk(unit="u2"),
        ["restart"],
    ),
    ("definition touched only", replace(UP, need_daemon_reload=True), stamp(), disk(), []),
    # reload
    ("conf changed", UP, stamp(), disk(conf="c2", changed_at=AFTER), ["reload"]),
    ("no stamp, conf changed since", UP, None, disk(conf_at=AFTER), ["reload"]),
    (
        "conf changed, cannot be reloaded",
        replace(UP, can_reload=False),
        stamp(),
        disk(conf="c2"),
        ["restart"],
    ),
    # down
    ("down", DOWN, stamp(), disk(), ["start"]),
    ("down, never seen", DOWN, None, disk(), ["start"]),
    ("failed", FAILED, stamp(), disk(), ["reset-failed", "start"]),
    ("dies again and again", AUTO_RESTART, stamp(), disk(), ["restart"]),
    ("announced start did not happen", DOWN, stamp("one", pending=True), disk(), ["start"]),
    # at boot
    ("not enabled", replace(UP, unit_file_state="disabled"), stamp(), disk(), ["enable"]),
    (
        "until the next boot",
        replace(UP, unit_file_state="enabled-runtime"),
        stamp(),
        disk(),
        ["enable"],
    ),
    ("cannot be enabled", replace(UP, unit_file_state="static"), stamp(), disk(), []),
    (
        "down and disabled",
        replace(DOWN, unit_file_state="disabled"),
        None,
        disk(),
        ["enable", "start"],
    ),
]


@pytest.mark.parametrize(
    ("now", "known", "on_disk", "actions"), [pytest.param(*row[1:], id=row[0]) for row in TABLE]
)
def test_plan(now, known, on_disk, actions):
    plan = _units.plan_unit(WANT, now, known, on_disk, check_mode=False)
    assert plan.error == ""
    assert list(plan.actions) == actions
    if {"start", "restart", "reload"} & set(actions):
        assert plan.reasons
        assert plan.write_stamp


@pytest.mark.parametrize(
    ("now", "known", "on_disk", "actions"), [pytest.param(*row[1:], id=row[0]) for row in TABLE]
)
def test_what_was_done_needs_no_doing_again(now, known, on_disk, actions):
    """Whatever the table says, once it is done and stamped nothing is left to do."""
    plan = _units.plan_unit(WANT, now, known, on_disk, check_mode=False)
    invocation = "two" if plan.starts else now.invocation_id
    done = replace(UP, invocation_id=invocation, started_at=AFTER + 1)
    written = _units.stamp_of(WANT, on_disk, invocation, pending=False)
    again = _units.plan_unit(WANT, done, written, on_disk, check_mode=False)
    assert again.actions == ()
    assert not again.write_stamp


def test_reload_command_makes_a_unit_reloadable():
    want = replace(WANT, reload_command=("scontrol", "reconfigure"))
    now = replace(UP, can_reload=False)
    assert _units.plan_unit(want, now, stamp(), disk(conf="c2"), False).actions == ("reload",)


@pytest.mark.parametrize(
    ("known", "actions"),
    [
        (stamp(restart_key="v2"), ()),
        (stamp(restart_key="v1"), ("restart",)),
        (stamp("zero", restart_key="v1"), ("restart",)),
        (stamp("zero", pending=True, restart_key="v2"), ()),
        (None, ("restart",)),
    ],
)
def test_restart_key(known, actions):
    want = replace(WANT, restart_key="v2")
    assert _units.plan_unit(want, UP, known, disk(), False).actions == actions


def test_a_newly_watched_path_needs_no_restart_when_it_is_older_than_the_process():
    old = Stamp("one", False, {UNIT: "u1"}, {KEY: {KEY: "k1"}}, "")
    assert _units.plan_unit(WANT, UP, old, disk(), False).actions == ()
    assert _units.plan_unit(WANT, UP, old, disk(conf_at=AFTER), False).actions == ("reload",)


def test_a_path_that_is_no_longer_watched_is_forgotten():
    want = replace(WANT, reload_on=())
    on_disk = OnDisk(disk().definition, {KEY: disk().paths[KEY]})
    plan = _units.plan_unit(want, UP, stamp(), on_disk, False)
    assert plan.actions == ()
    assert plan.write_stamp


@pytest.mark.parametrize(
    ("want", "now", "message"),
    [
        (
            WANT,
            ABSENT,
            "slurmd.service: there is no such unit on this host; install the package that",
        ),
        (
            replace(WANT, package="slurm-slurmd"),
            ABSENT,
            "slurmd.service: there is no such unit on this host; install the package slurm-slurmd",
        ),
        (WANT, MASKED, "slurmd.service is masked; `systemctl unmask slurmd.service` if"),
        (
            WANT,
            replace(DOWN, load_state="bad-setting", load_error="Unit has a bad unit file setting."),
            "slurmd.service cannot be loaded (bad-setting): Unit has a bad unit file setting.",
        ),
        (WANT, replace(DOWN, kind="oneshot"), "slurmd.service is a oneshot unit without Remain"),
        (
            WANT,
            replace(DOWN, active_state="deactivating", sub_state="stop-sigterm"),
            "slurmd.service is still deactivating (stop-sigterm) after 90 s",
        ),
        (replace(WANT, state="stopped"), ABSENT, "slurmd.service: there is no such unit on this"),
    ],
)
def test_obstacles(want, now, message):
    plan = _units.plan_unit(want, now, None, disk(), check_mode=False)
    assert plan.error.startswith(message)
    assert plan.actions == ()


def test_check_mode_on_a_virgin_host_predicts_a_start():
    plan = _units.plan_unit(WANT, ABSENT, None, disk(), check_mode=True)
    assert plan.error == ""
    assert plan.actions == ("enable", "start")


@pytest.mark.parametrize(
    ("state", "enabled", "now", "actions"),
    [
        ("stopped", False, UP, ["disable", "stop"]),
        ("stopped", None, UP, ["stop"]),
        ("stopped", False, replace(DOWN, unit_file_state="disabled"), []),
        ("stopped", None, FAILED, ["reset-failed"]),
        ("stopped", None, AUTO_RESTART, ["stop"]),
        ("stopped", False, MASKED, []),
        ("absent_ok_stopped", False, ABSENT, []),
        ("absent_ok_stopped", False, UP, ["disable", "stop"]),
    ],
)
def test_plan_stopped(state, enabled, now, actions):
    want = Wanted("slurmd.service", state=state, enabled=enabled)
    plan = _units.plan_unit(want, now, None, OnDisk(), check_mode=False)
    assert plan.error == ""
    assert list(plan.actions) == actions


SHOWN = """\
Type=notify
NRestarts=2
MainPID=4242
Result=success
Id=slurmctld.service
LoadState=loaded
ActiveState=active
SubState=running
FragmentPath=/lib/systemd/system/slurmctld.service
DropInPaths=/etc/systemd/system/slurmctld.service.d/a.conf /run/systemd/system/service.d/b.conf
UnitFileState=enabled
InactiveExitTimestamp=Fri 2025-11-21 02:00:00 UTC
InactiveExitTimestampMonotonic=5000000
NeedDaemonReload=no
CanReload=yes
InvocationID=0123456789abcdef0123456789abcdef
ExecMainStatus=0
RemainAfterExit=no

Id=nonesuch.timer
LoadState=not-found
ActiveState=inactive
SubState=dead
InactiveExitTimestamp=
InactiveExitTimestampMonotonic=0
"""
# 2025-11-21 02:00:00 UTC
TWO_O_CLOCK = 1763690400


def test_parse_show():
    states = _units.parse_show(
        SHOWN, ["slurmctld.service", "nonesuch.timer"], TWO_O_CLOCK + 100.5, 105.25
    )
    ctld, none = states["slurmctld.service"], states["nonesuch.timer"]
    assert ctld.running
    assert ctld.enabled
    assert ctld.can_reload
    assert (ctld.main_pid, ctld.restarts) == (4242, 2)
    assert ctld.files == (
        "/lib/systemd/system/slurmctld.service",
        "/etc/systemd/system/slurmctld.service.d/a.conf",
        "/run/systemd/system/service.d/b.conf",
    )
    assert ctld.started_at == TWO_O_CLOCK + 0.25
    assert (none.load_state, none.started_at, none.main_pid) == ("not-found", 0.0, 0)


def test_parse_show_wants_an_answer_for_each_name():
    with pytest.raises(ValueError, match="2 of 3 units"):
        _units.parse_show(SHOWN, ["a", "b", "c"], 0, 0)


@pytest.mark.parametrize(
    ("recorded", "monotonic_us", "now_wall", "expected"),
    [
        pytest.param("Fri 2025-11-21 02:00:00 UTC", 5_000_000, TWO_O_CLOCK + 95.5, 0.5, id="exact"),
        pytest.param(
            "Fri 2025-11-21 02:00:00 UTC", 5_000_000, TWO_O_CLOCK + 3695, 1.0, id="stepped forward"
        ),
        pytest.param(
            "Fri 2025-11-21 02:00:00 UTC", 5_000_000, TWO_O_CLOCK - 3505, -3600, id="stepped back"
        ),
    ],
)
def test_start_time_takes_the_earlier_of_two_clocks(recorded, monotonic_us, now_wall, expected):
    assert _units.start_time(recorded, monotonic_us, now_wall, 100.0) == TWO_O_CLOCK + expected


@pytest.mark.parametrize(
    "recorded", ["", "n/a", "Fri 2025-11-21 02:00:00 CET", "Fri 2025-11-21 02:00 UTC"]
)
def test_start_time_that_cannot_be_read_is_unknown(recorded):
    assert _units.start_time(recorded, 5_000_000, TWO_O_CLOCK, 100.0) == 0.0


@pytest.mark.parametrize(
    ("then", "started", "problem"),
    [
        (UP, True, ""),
        (FAILED, True, "is failed (exit-code 0)"),
        (AUTO_RESTART, True, "is restarting (signal)"),
        (replace(UP, restarts=1), True, "died and was started again by systemd (1 restarts)"),
        (replace(UP, invocation_id="two"), True, "died and was started again"),
        (replace(UP, main_pid=900), True, "changed its main process from 812 to 900"),
        (replace(UP, main_pid=900), False, ""),
        (DOWN, False, "is inactive (dead)"),
    ],
)
def test_stayed_up(then, started, problem):
    assert _units.stayed_up(UP, then, started).startswith(problem)
    assert bool(_units.stayed_up(UP, then, started)) is bool(problem)


def test_a_start_that_systemd_had_to_repeat_at_once_is_noticed():
    crashing = replace(UP, restarts=3)
    assert "3 restarts" in _units.stayed_up(crashing, crashing, started=True)
    assert _units.stayed_up(crashing, crashing, started=False) == ""


def test_stamps_survive_json_and_nonsense_is_no_stamp():
    known = stamp(pending=True, restart_key="x")
    assert _units.stamp_from_json(_units.stamp_to_json(known)) == known
    for nonsense in (None, [], {}, {"version": 2}, {"version": 1, "paths": 3}):
        assert _units.stamp_from_json(nonsense) is None


def test_comments_of_a_definition_do_not_count():
    text = "# comment\n\n[Service]\n; other\nExecStart=/bin/x  \n"
    assert _units.normalise_definition(text) == "[Service]\nExecStart=/bin/x"


def test_full_name():
    assert _units.full_name("slurmd") == "slurmd.service"
    assert _units.full_name("a.timer") == "a.timer"
    assert _units.full_name("node_exporter@1.2") == "node_exporter@1.2.service"


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("ssh.service", ["ssh.service.d", "service.d"]),
        ("a-b-c.service", ["a-b-c.service.d", "a-b-.service.d", "a-.service.d", "service.d"]),
        ("x@1-2.service", ["x@1-2.service.d", "x@.service.d", "service.d"]),
        ("a.timer", ["a.timer.d", "timer.d"]),
    ],
)
def test_drop_in_folders(name, folders):
    assert _units.drop_in_folders(name) == folders


def test_reasons_name_the_files():
    on_disk = OnDisk(
        disk().definition,
        {
            KEY: PathDigest({f"/d/{n}": "new" for n in range(5)}, AFTER),
            CONF: disk().paths[CONF],
        },
    )
    plan = _units.plan_unit(WANT, UP, stamp(), on_disk, False)
    assert plan.reasons == ("/d/0, /d/1, /d/2 and 3 more changed",)


def test_diff():
    plan = _units.plan_unit(
        WANT, replace(UP, unit_file_state="disabled"), stamp(), disk("k2"), False
    )
    (diff,) = _units.diff_of([plan], {"slurmd.service": replace(UP, unit_file_state="disabled")})
    assert diff["before"] == "enabled: disabled\nstate: active (running)\n"
    assert diff["after"] == f"enabled: enabled\nstate: active, restarted: {KEY} changed\n"
