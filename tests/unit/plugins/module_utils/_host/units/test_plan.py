# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import plan as _units
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.plan import (
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
        digest(UNIT, unit, unit_at or changed_at),
        {
            KEY: digest(KEY, key, key_at or changed_at),
            CONF: digest(CONF, conf, conf_at or changed_at),
        },
    )


def digest(path, content, changed_at, around=""):
    return PathDigest({path: content}, changed_at, str(changed_at), around)


def stamp(invocation="one", pending=False, restart_key="", process=None, settled=True, **more):
    """A stamp of UP, or of what was there before; `more` as for `disk`."""
    then = disk(**more)
    process = _units.process_of(UP) if process is None else process
    return Stamp(
        invocation, pending, then.definition, then.paths, restart_key, process, settled, (CONF,)
    )


# What the unit is, by what the stamp says by what is on disk → what is done. AFTER means that the
# file changed after the unit was started.
TABLE = [
    # nothing to do
    ("runs with what is on disk", UP, stamp(), disk(), []),
    ("key and definition written again", UP, stamp(), disk(key_at=AFTER, unit_at=AFTER), []),
    ("restarted by hand, same content", UP, stamp("zero"), disk(), []),
    ("restarted by hand after a change of the key", UP, stamp("zero"), disk(key="k2"), []),
    ("restarted by hand after a change of the conf", UP, stamp("zero"), disk(conf="c2"), []),
    ("no stamp, started after every change", UP, None, disk(), []),
    ("announced start happened", UP, stamp("zero", pending=True), disk(), []),
    ("restarted by hand, clock stepped", UP, stamp("zero", conf_at=AFTER), disk(conf_at=AFTER), []),
    ("reloaded by hand", replace(UP, state_changed_us=9), stamp(), disk(), []),
    # changed and changed back: what was read in between, only a later start can prove
    ("restarted with another key", UP, stamp("zero"), disk(key_at=AFTER), ["restart"]),
    ("restarted with another definition", UP, stamp("zero"), disk(unit_at=AFTER), ["restart"]),
    ("restarted with another conf", UP, stamp("zero"), disk(conf_at=AFTER), ["reload"]),
    ("conf may have been reloaded", UP, stamp(), disk(conf_at=AFTER), ["reload"]),
    (
        "key may have been read by a reload",
        replace(UP, state_changed_us=9),
        stamp(),
        disk(key_at=AFTER),
        ["restart"],
    ),
    ("key may not have been read yet", UP, stamp(settled=False), disk(key_at=AFTER), ["restart"]),
    (
        "another process of the same unit",
        replace(UP, main_pid=900),
        stamp(),
        disk(key_at=AFTER),
        ["restart"],
    ),
    (
        "conf changed back, cannot be reloaded",
        replace(UP, can_reload=False),
        stamp(),
        disk(conf_at=AFTER),
        [],
    ),
    (
        "announced start happened, key changed and changed back since",
        UP,
        stamp("zero", pending=True),
        disk(key_at=AFTER),
        ["restart"],
    ),
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
    done = replace(UP, invocation_id=invocation, started_at=AFTER + 1, can_reload=now.can_reload)
    written = _units.stamp_of(WANT, on_disk, done, pending=False)
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


@pytest.mark.parametrize(
    ("known", "now", "actions"),
    [
        # what stands behind the key may have been another when the new process started
        (stamp("zero", restart_key="v2"), disk(conf_at=AFTER), ("restart",)),
        (stamp("zero", restart_key="v2"), disk(conf="c2", conf_at=AFTER), ("restart",)),
        (stamp("zero", restart_key="v2"), disk(), ()),
        (stamp(restart_key="v2"), disk(conf="c2", conf_at=AFTER), ("reload",)),
    ],
)
def test_a_restart_key_that_was_changed_and_changed_back(known, now, actions):
    want = replace(WANT, restart_key="v2")
    assert _units.plan_unit(want, UP, known, now, False).actions == actions


def test_a_newly_watched_path_needs_no_restart_when_it_is_older_than_the_process():
    old = replace(stamp(), paths={KEY: disk().paths[KEY]})
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
    ("missing_ok", "enabled", "now", "actions"),
    [
        (False, False, UP, ["disable", "stop"]),
        (False, None, UP, ["stop"]),
        (False, False, replace(DOWN, unit_file_state="disabled"), []),
        (False, None, FAILED, ["reset-failed"]),
        (False, None, AUTO_RESTART, ["stop"]),
        (False, False, MASKED, []),
        (True, False, ABSENT, []),
        # A link that leads to nothing is left.
        (True, False, replace(ABSENT, unit_file_state="enabled"), ["disable"]),
        (True, None, replace(ABSENT, unit_file_state="enabled"), []),
        # Their file went away while they ran.
        (True, False, replace(UP, load_state="not-found", unit_file_state=""), ["stop"]),
        (True, None, replace(FAILED, load_state="not-found", unit_file_state=""), ["reset-failed"]),
        (True, False, UP, ["disable", "stop"]),
    ],
)
def test_plan_stopped(missing_ok, enabled, now, actions):
    want = Wanted("slurmd.service", state="stopped", missing_ok=missing_ok, enabled=enabled)
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
        (
            replace(AUTO_RESTART, result="exit-code", exit_status=7),
            True,
            "is restarting (exit-code 7)",
        ),
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
    for nonsense in (None, [], {}, {"version": 1}, {"version": 2, "paths": 3}):
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


def test_an_absent_file_is_known_from_its_folder_only_to_another_process():
    """Its other files touch the folder, too: a reload or a restart for each of them is too much."""
    now_disk, then = disk(), stamp()
    for path in (KEY, CONF):
        now_disk.paths[path] = digest(path, "absent", AFTER, "folder later")
        now_disk = replace(now_disk, paths={**now_disk.paths})
        then = replace(then, paths={**then.paths, path: digest(path, "absent", AFTER, "folder")})
    assert _units.plan_unit(WANT, UP, then, now_disk, False).actions == ()
    reloaded = replace(UP, state_changed_us=9)
    assert _units.plan_unit(WANT, reloaded, then, now_disk, False).actions == ("restart",)
    later = replace(UP, invocation_id="two")
    assert _units.plan_unit(WANT, later, then, now_disk, False).actions == ("restart",)
    assert (
        _units.plan_unit(WANT, replace(later, started_at=AFTER + 1), then, now_disk, False).actions
        == ()
    )


LOOP = replace(UP, restarts=4, up_s=12.0)


@pytest.mark.parametrize(
    ("now", "known", "prove_s"),
    [
        pytest.param(UP, stamp(), 0, id="never died"),
        pytest.param(LOOP, stamp("zero"), 48, id="met between two crashes"),
        pytest.param(replace(LOOP, up_s=61.0), stamp("zero"), 0, id="died once, and has recovered"),
        pytest.param(AUTO_RESTART, stamp("zero"), 60, id="met while systemd waits"),
        pytest.param(FAILED, stamp(), 60, id="died with the same files"),
        pytest.param(FAILED, stamp("zero", pending=True), 60, id="died after the last start"),
        pytest.param(FAILED, stamp(key="k0"), 2, id="died with other files"),
        pytest.param(LOOP, stamp("zero", key="k0", key_at=AFTER), 48, id="restarted with new ones"),
        pytest.param(FAILED, None, 60, id="started after every change"),
        pytest.param(replace(FAILED, started_at=0.0), None, 2, id="nothing is known"),
        pytest.param(DOWN, stamp(), 2, id="stopped"),
    ],
)
def test_what_died_before_must_stay_up_for_a_minute(now, known, prove_s):
    assert _units.plan_unit(WANT, now, known, disk(), False).prove_s == prove_s


def test_before_a_reload_the_stamp_forgets_what_the_reload_reads():
    assert set(_units.stamp_before_reload(stamp(), WANT).paths) == {KEY}


def test_times_of_the_state_are_read():
    shown = SHOWN.replace(
        "RemainAfterExit=no",
        "ActiveEnterTimestampMonotonic=100000000\nStateChangeTimestampMonotonic=100000001",
    )
    states = _units.parse_show(shown, ["a.service", "b.timer"], TWO_O_CLOCK, 105.25)
    assert (states["a.service"].up_s, states["a.service"].state_changed_us) == (5.25, 100000001)
    assert states["a.service"].unsteady
