# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""service_sync on a host that is made up but behaves: files are real, systemd is a model of it."""

from __future__ import annotations

import pytest
from systemd_host import Clock, Host, Killed, Patches

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import apply as _units_apply
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import ask
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units import (
    systemd as _units_host,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.plan import Wanted
from ansible_collections.baremetal.dgx.plugins.modules import service_sync


@pytest.fixture
def host(tmp_path):
    with Patches(Host(tmp_path, Clock())) as host:
        yield host


def slurmd_on(host):
    """A unit with a key (needs a restart) and a configuration (needs a reload)."""
    key, conf = str(host.folder / "munge.key"), str(host.folder / "slurm.conf")
    host.write(key, "key 1")
    host.write(conf, "conf 1")
    host.clock.sleep(1)
    unit = host.add("slurmd.service", [key], [conf])
    unit.log = [f"line {number}" for number in range(9)]
    return unit


@pytest.fixture
def slurmd(host):
    return slurmd_on(host)


def want(unit, **options):
    return Wanted(
        "slurmd.service",
        enabled=True,
        restart_on=tuple(map(str, unit.reads)),
        reload_on=tuple(map(str, unit.rereads)),
        **options,
    )


def sync(host, *wanted, check=False):
    host.commands.clear()
    return _units_apply.synchronise(host, wanted, check)


def test_start_then_nothing(host, slurmd):
    assert sync(host, want(slurmd)).actions == ["enable slurmd.service", "start slurmd.service"]
    assert sync(host, want(slurmd)).actions == []
    assert host.commands == []
    assert slurmd.starts == 1


def test_each_kind_of_change(host, slurmd):
    sync(host, want(slurmd))
    host.write(slurmd.rereads[0], "conf 2")
    assert sync(host, want(slurmd)).actions == ["reload slurmd.service"]
    host.write(slurmd.reads[0], "key 2")
    outcome = sync(host, want(slurmd))
    assert outcome.actions == ["restart slurmd.service"]
    assert outcome.reasons == {"slurmd.service": [f"{slurmd.reads[0]} changed"]}
    host.write(str(slurmd.definition), "[Service]\nExecStart=/bin/y\n")
    assert sync(host, want(slurmd)).actions == ["daemon-reload", "restart slurmd.service"]
    host.write(str(slurmd.definition), "# a comment\n[Service]\nExecStart=/bin/y\n")
    assert sync(host, want(slurmd)).actions == ["daemon-reload"]
    assert sync(host, want(slurmd)).actions == []
    assert (slurmd.starts, slurmd.reloads) == (3, 1)


def test_started_by_its_package_before_the_configuration_was_written(host, slurmd):
    host.start(slurmd)
    host.write(slurmd.reads[0], "key 2")
    assert sync(host, want(slurmd)).actions == ["enable slurmd.service", "restart slurmd.service"]


def test_started_by_another_one_with_what_is_on_disk(host, slurmd):
    host.clock.sleep(1)
    host.start(slurmd)
    slurmd.enabled = True
    assert sync(host, want(slurmd)).actions == []
    # from now on it is on record
    assert _units_host.read_stamp("slurmd.service").invocation_id == slurmd.invocation
    host.write(slurmd.reads[0], "key 2")
    assert sync(host, want(slurmd)).actions == ["restart slurmd.service"]


def test_restarted_by_hand_after_the_change(host, slurmd):
    sync(host, want(slurmd))
    host.write(slurmd.reads[0], "key 2")
    host.clock.sleep(1)
    host.start(slurmd)
    assert sync(host, want(slurmd)).actions == []


def test_restarted_by_hand_with_the_old_definition(host, slurmd):
    """Without a daemon-reload a later start has not seen the new definition."""
    sync(host, want(slurmd))
    host.write(str(slurmd.definition), "[Service]\nExecStart=/bin/y\n")
    host.clock.sleep(1)
    host.start(slurmd)
    assert sync(host, want(slurmd)).actions == ["daemon-reload", "restart slurmd.service"]
    assert host.up_to_date(slurmd)


@pytest.mark.parametrize("failed", [False, True])
def test_what_goes_on_without_its_file_is_stopped_and_does_not_come_back(
    host, slurmd, monkeypatch, failed
):
    """A run before this one, or an older release, has removed the file and not stopped it."""
    monkeypatch.setattr(_units_host, "UNIT_FOLDERS", [str(host.folder / "units")])
    link = host.folder / "units/multi-user.target.wants/slurmd.service"
    link.parent.mkdir(parents=True)
    link.symlink_to(slurmd.definition)
    sync(host, want(slurmd))
    host.write(str(slurmd.definition), None)
    if failed:
        slurmd.restarts_itself = False
        host.die(slurmd, "exit-code", 1)
    gone = Wanted("slurmd.service", state="stopped", missing_ok=True, enabled=False)
    done = ["disable slurmd.service", f"{'reset-failed' if failed else 'stop'} slurmd.service"]
    predicted = sync(host, gone, check=True)
    assert predicted.actions == ["daemon-reload", *done]
    outcome = sync(host, gone)
    assert outcome.actions == predicted.actions
    assert outcome.reasons["slurmd.service"] != ["it is not installed"]
    assert (slurmd.alive, slurmd.active) == (False, "inactive")
    assert not link.is_symlink()
    assert host.commands[-2] == "daemon-reload"
    assert sync(host, gone).actions == []
    assert outcome.after["slurmd.service"].describe() == "not installed"


def test_check_mode_predicts_and_touches_nothing(host, slurmd):
    for change in (lambda: None, lambda: host.write(slurmd.reads[0], "key 2")):
        change()
        predicted = sync(host, want(slurmd), check=True)
        assert host.commands == []
        stamp = _units_host.read_stamp("slurmd.service")
        assert stamp is None or stamp.invocation_id == slurmd.invocation
        assert sync(host, want(slurmd)).actions == predicted.actions != []


def test_check_mode_on_a_virgin_host(host):
    outcome = sync(host, Wanted("none.service", enabled=True), check=True)
    assert outcome.actions == ["enable none.service", "start none.service"]


def test_a_blocked_restart_is_announced_until_it_is_done(host, slurmd, run_module, monkeypatch):
    jobs = {"restart_blocked_by": "job steps run here: 4711.0", "restart_key": "1"}
    # What is not up harms no job.
    assert sync(host, want(slurmd, **jobs)).actions == [
        "enable slurmd.service",
        "start slurmd.service",
    ]
    host.write(slurmd.reads[0], "key 2")
    for _run in range(2):
        outcome = sync(host, want(slurmd, **jobs))
        assert (outcome.actions, slurmd.starts) == ([], 1)
        assert list(outcome.deferred) == ["slurmd.service"]
        state = _units_host.show(host, ["slurmd.service"])["slurmd.service"]
        *_rest, files = ask.judge_files(state, *ask.known_files(state))
        assert (files.status, "drain a node with jobs" in files.remedy) == ("fail", True)
    monkeypatch.setattr(service_sync, "ModuleRunner", lambda _module: host)
    params = {"name": "slurmd.service", "restart_on": slurmd.reads, **jobs}
    answer = run_module(service_sync.main, params, check=True)
    (text,) = answer["warnings"]
    assert text.startswith(
        "slurmd.service was left running (job steps run here: 4711.0); restart it when this node "
        "is drained: "
    )
    outcome = sync(host, want(slurmd, restart_key="1"))
    assert outcome.actions == ["restart slurmd.service"]
    assert sync(host, want(slurmd, **jobs)).deferred == {}


def test_a_blocked_restart_by_another_hand_is_enough(host, slurmd):
    sync(host, want(slurmd, restart_key="1"))
    jobs = {"restart_blocked_by": "jobs", "restart_key": "2"}
    assert sync(host, want(slurmd, **jobs)).deferred == {
        "slurmd.service": ["its restart key changed"]
    }
    host.clock.sleep(1)
    host.start(slurmd)
    outcome = sync(host, want(slurmd, **jobs))
    assert (outcome.actions, outcome.deferred) == ([], {})


def test_reload_command(host, slurmd):
    sync(host, want(slurmd))
    host.write(slurmd.rereads[0], "conf 2")
    sync(host, want(slurmd, reload_command=("scontrol", "reconfigure")))
    assert host.commands == ["scontrol reconfigure"]
    assert host.up_to_date(slurmd)


def test_a_reload_that_fails_is_tried_again(host, slurmd):
    sync(host, want(slurmd))
    host.write(slurmd.rereads[0], "conf 2")
    options = {"reload_command": ("scontrol", "reconfigure")}
    host.broken["scontrol reconfigure"] = CommandResult(
        ("scontrol", "reconfigure"), ENDED, 1, "", "slurm_reconfigure error: Unable to contact"
    )
    with pytest.raises(ToolError, match="Unable to contact"):
        sync(host, want(slurmd, **options))
    host.broken.clear()
    assert sync(host, want(slurmd, **options)).actions == ["reload slurmd.service"]
    assert sync(host, want(slurmd, **options)).actions == []


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (CommandResult(("systemctl", "start"), TIMED_OUT, took_s=90), "did not end within 90 s"),
        (
            CommandResult(("systemctl", "start"), ENDED, 1, "", "Job failed"),
            "ended with 1: Job failed",
        ),
    ],
)
def test_a_failing_start_tells_state_and_journal(host, slurmd, result, words):
    host.broken["systemctl start"] = result
    with pytest.raises(ToolError) as caught:
        sync(host, want(slurmd))
    message = str(caught.value)
    assert message.startswith("slurmd.service: start failed: ")
    assert words in message
    assert "line 4 | line 5 | line 6 | line 7 | line 8" in message
    assert caught.value.details["actions"] == ["enable slurmd.service", "start slurmd.service"]


@pytest.mark.parametrize(
    "fate",
    [
        # seen at once after the start, then after settle_s
        [("active", "running"), ("failed", "failed")],
        [("active", "running"), ("activating", "auto-restart")],
        [("activating", "start"), ("active", "running"), ("failed", "failed")],
    ],
)
def test_a_unit_that_dies_after_its_start(host, slurmd, fate):
    original = host.start

    def start(unit):
        original(unit)
        unit.fate = list(fate)

    host.start = start
    with pytest.raises(
        ToolError, match=r"did not stay up after its start: it is (failed|restarting|act)"
    ):
        sync(host, want(slurmd))
    host.start = original
    slurmd.fate = []
    assert sync(host, want(slurmd)).actions[-1].endswith("start slurmd.service")
    assert host.up_to_date(slurmd)


def test_a_unit_that_hit_its_start_limit(host, slurmd):
    slurmd.active, slurmd.sub, slurmd.result = "failed", "failed", "start-limit-hit"
    assert sync(host, want(slurmd)).actions == [
        "enable slurmd.service",
        "reset-failed slurmd.service",
        "start slurmd.service",
    ]


def test_another_run_is_starting_it_right_now(host, slurmd):
    host.start(slurmd)
    slurmd.enabled = True
    slurmd.fate = [("activating", "start"), ("activating", "start"), ("active", "running")]
    sync(host, want(slurmd))
    assert slurmd.active == "active"


def test_stop_forgets(host, slurmd):
    sync(host, want(slurmd))
    stop = Wanted("slurmd.service", state="stopped", enabled=False)
    assert sync(host, stop).actions == ["disable slurmd.service", "stop slurmd.service"]
    assert _units_host.read_stamp("slurmd.service") is None
    assert sync(host, stop).actions == []


def test_nothing_is_done_when_one_unit_cannot_be(host, slurmd):
    with pytest.raises(ToolError, match=r"none\.service: there is no such unit"):
        sync(host, want(slurmd), Wanted("none.service"))
    assert slurmd.starts == 0


def test_systemd_that_does_not_answer(host, slurmd):
    host.broken["systemctl show"] = CommandResult(("systemctl", "show"), TIMED_OUT, took_s=30)
    with pytest.raises(ToolError, match="systemd does not answer: `systemctl show` did not end"):
        sync(host, want(slurmd))
    host.broken["systemctl show"] = CommandResult(("systemctl", "show"), MISSING)
    with pytest.raises(ToolError, match="not run by systemd"):
        sync(host, want(slurmd))


def scenario(host, unit, name):
    """Bring the host to the state in which a run is due, for the kill tests."""
    if name != "virgin":
        sync(host, want(unit))
    if name == "key":
        host.write(unit.reads[0], "key 2")
    elif name == "conf":
        host.write(unit.rereads[0], "conf 2")
    elif name == "definition":
        host.write(str(unit.definition), "[Service]\nExecStart=/bin/y\n")
    elif name == "failed":
        unit.active, unit.sub, unit.pid = "failed", "failed", 0
    elif name == "both":
        host.write(unit.reads[0], "key 2")
        host.write(unit.rereads[0], "conf 2")


@pytest.mark.parametrize("name", ["virgin", "key", "conf", "definition", "failed", "both"])
@pytest.mark.parametrize("restart_key", ["", "v1"])
def test_killed_at_any_step_the_next_run_converges(tmp_path, name, restart_key):
    """Kill before and after each command and each stamp; never more than one extra start."""
    for step in range(1, 60):
        folder = tmp_path / str(step)
        folder.mkdir()
        with Patches(Host(folder, Clock())) as host:
            unit = slurmd_on(host)
            wanted = want(unit, restart_key=restart_key)
            scenario(host, unit, name)
            starts, host.steps, host.kill_at = unit.starts, 0, step
            try:
                sync(host, wanted)
                killed = False
            except Killed:
                killed = True
            host.kill_at = None
            if not killed:
                break
            sync(host, wanted)
            assert host.up_to_date(unit), step
            assert unit.starts - starts <= 1, (step, "a start was repeated")
            assert sync(host, wanted).actions == [], step
    assert step > 1, f"{name}: no step to be killed at"


def test_killed_then_changed_again(host, slurmd):
    """The announced restart has happened, but the file has changed once more since."""
    sync(host, want(slurmd))
    host.write(slurmd.reads[0], "key 2")
    wanted, name = want(slurmd), "slurmd.service"
    states, stamps, disk, _stale = _units_apply.load(host, [wanted], False)
    plan = _units_apply.plan_unit(wanted, states[name], stamps[name], disk[name], False)
    _units_apply.apply_unit(host, wanted, plan, disk[name], states[name], stamps[name])
    host.clock.sleep(1)
    host.write(slurmd.reads[0], "key 3")
    assert sync(host, wanted).actions == ["restart slurmd.service"]
    assert host.up_to_date(slurmd)


@pytest.mark.parametrize("what", ["key", "conf", "definition"])
@pytest.mark.parametrize("hand", ["restart", "crash", "reboot"])
def test_changed_back_after_another_process_has_read_it(host, slurmd, what, hand):
    """Run 1 applies A; B is written and read by a new process; A is written again."""
    paths = {
        "key": slurmd.reads[0],
        "conf": slurmd.rereads[0],
        "definition": str(slurmd.definition),
    }
    sync(host, want(slurmd))
    was = host.text(paths[what])
    host.write(paths[what], "[Service]\nExecStart=/bin/y\n")
    host.daemon_reload()
    host.clock.sleep(1)
    if hand == "restart":
        host.act("restart", slurmd, 90)
    elif hand == "crash":
        host.die(slurmd, "signal")
        host.clock.sleep(90)
    else:
        host.reboot()
    host.clock.sleep(1)
    host.write(paths[what], was)
    assert not host.up_to_date(slurmd)
    outcome = sync(host, want(slurmd))
    assert outcome.actions[-1] == f"{'reload' if what == 'conf' else 'restart'} slurmd.service"
    assert host.up_to_date(slurmd)
    assert sync(host, want(slurmd)).actions == []


@pytest.mark.parametrize("seen", [True, False])
def test_changed_back_after_a_reload_by_another_hand(host, slurmd, seen):
    """Be it by systemctl or by a signal that systemd does not see."""
    sync(host, want(slurmd))
    host.write(slurmd.rereads[0], "conf 2")
    if seen:
        host.act("reload", slurmd, 90)
    else:
        host.reload(slurmd)
    host.clock.sleep(1)
    host.write(slurmd.rereads[0], "conf 1")
    outcome = sync(host, want(slurmd))
    assert outcome.actions == ["reload slurmd.service"]
    (reason,) = outcome.reasons["slurmd.service"]
    assert reason.endswith("slurm.conf may have been changed and changed back since the last run")
    assert host.up_to_date(slurmd)


@pytest.mark.parametrize("hand", ["restart", "reload", "signal", "reboot", "crash", "chmod"])
def test_nothing_is_done_without_cause(host, slurmd, hand):
    """A package's own restart, a reboot, a crash long ago: what runs has read the same files."""
    sync(host, want(slurmd))
    host.clock.sleep(5)
    if hand == "signal":
        host.reload(slurmd)
    elif hand == "reboot":
        host.reboot()
    elif hand == "crash":
        host.die(slurmd, "signal")
    elif hand == "chmod":
        host.chmod(slurmd.reads[0])
    else:
        host.daemon_reload()
        host.act(hand, slurmd, 90)
    host.clock.sleep(90)
    assert sync(host, want(slurmd)).actions == []
    assert sync(host, want(slurmd)).actions == []


def test_a_reboot_under_a_clock_that_went_back(host, slurmd):
    """Files from the future: no start comes after their change, but nothing has touched them."""
    sync(host, want(slurmd))
    host.clock.wall -= 86400
    host.reboot()
    assert sync(host, want(slurmd)).actions == []


@pytest.mark.parametrize("phase_s", [6, 13, 17])
@pytest.mark.parametrize("repeats", [True, False])
def test_a_crash_loop_is_red_in_the_second_run_too(host, slurmd, phase_s, repeats):
    """Whether it is met between two crashes, or while systemd waits, or given up."""
    slurmd.restarts_itself = repeats
    host.write(slurmd.rereads[0], "crash 10")
    sync(host, want(slurmd))  # it dies after this run has seen it up
    for _turn in range(2):
        host.clock.sleep(phase_s + 10)
        with pytest.raises(ToolError, match=r"slurmd\.service did not stay up.* exited, status=1"):
            sync(host, want(slurmd))


def test_a_daemon_that_has_recovered_is_green_at_once(host, slurmd):
    sync(host, want(slurmd))
    host.die(slurmd, "signal")
    host.clock.sleep(70)
    before = host.clock.mono
    assert sync(host, want(slurmd)).actions == []
    assert host.clock.mono - before < 1


def test_a_daemon_that_died_a_moment_ago_is_watched_for_the_rest_of_a_minute(host, slurmd):
    sync(host, want(slurmd))
    host.die(slurmd, "signal")
    host.clock.sleep(25)
    before = host.clock.mono
    assert sync(host, want(slurmd)).actions == []
    assert 30 < host.clock.mono - before < 45


def test_another_hand_writes_while_the_unit_is_started(host, slurmd):
    """What the process has read is not known: the next run decides."""
    sync(host, want(slurmd))
    host.write(slurmd.reads[0], "key 2")
    act = host.act

    def act_and_write(verb, unit, timeout_s):
        if verb == "restart":
            host.write(slurmd.reads[0], "key of another hand")
        return act(verb, unit, timeout_s)

    host.act = act_and_write
    sync(host, want(slurmd))
    host.act = act
    host.clock.sleep(1)
    host.write(slurmd.reads[0], "key 2")
    assert sync(host, want(slurmd)).actions == ["restart slurmd.service"]
    assert host.up_to_date(slurmd)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "one of the following is required: name, units"),
        ({"name": "a", "units": [{"name": "b"}]}, "parameters are mutually exclusive: name|units"),
        ({"units": [{"name": "a"}, {"name": "a.service"}]}, "listed twice: a.service"),
    ],
)
def test_parameters(run_module, params, message):
    answer = run_module(service_sync.main, params)
    assert answer["failed"]
    assert answer["msg"] == message


def test_what_a_timer_starts_is_read_again_too(host):
    host.act("start", host.add("check.timer", [], []), 90)
    host.clock.sleep(1)
    job = host.add("check.service", [], [])
    timer = Wanted("check.timer", enabled=True)
    sync(host, timer)
    host.write(str(job.definition), "[Service]\nExecStart=/bin/x --new\n")
    assert sync(host, timer, check=True).actions == ["daemon-reload"]
    outcome = sync(host, timer)
    assert outcome.actions == ["daemon-reload"]
    assert set(outcome.after) == {"check.timer"}
    assert job.loaded_definition == job.definition.read_text()
    assert job.starts == 0
    assert sync(host, timer).actions == []
