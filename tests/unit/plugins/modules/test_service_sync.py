# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""service_sync on a host that is made up but behaves: files are real, systemd is a model of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils import _units_host
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._units import Wanted
from ansible_collections.baremetal.dgx.plugins.modules import service_sync


class Killed(BaseException):
    """kill -9: no handler runs."""


@dataclass
class Unit:
    """One unit: `reads` are the files its process reads at start, `rereads` those it reloads."""

    definition: Path
    reads: list[Path] = field(default_factory=list)
    rereads: list[Path] = field(default_factory=list)
    active: str = "inactive"
    sub: str = "dead"
    file_state: str = "disabled"
    result: str = "success"
    pid: int = 0
    invocation: str = ""
    restarts: int = 0
    started: float = 0.0
    runs_with: dict[str, str] = field(default_factory=dict)
    loaded_definition: str = ""
    # answers to the next shows: what the unit turns into by itself
    fate: list[tuple[str, str]] = field(default_factory=list)
    starts: int = 0
    reloads: int = 0


class Host:
    """A model of systemd that can be killed at every step it is asked to take."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.units: dict[str, Unit] = {}
        self.log: list[str] = []
        self.kill_before: int | None = None
        self.kill_after: int | None = None
        self.broken: dict[str, CommandResult] = {}
        self.counter = 0
        self.next_pid = 100

    def add(self, name, reads=(), rereads=(), running=False):
        definition = self.folder / name
        definition.write_text("[Service]\nExecStart=/bin/x\n")
        unit = Unit(definition, list(reads), list(rereads))
        unit.loaded_definition = definition.read_text()
        self.units[name] = unit
        if running:
            self.start(unit)
            unit.starts = 0
        return unit

    def start(self, unit):
        self.next_pid += 1
        unit.pid, unit.invocation = self.next_pid, f"invocation-{self.next_pid}"
        unit.active, unit.sub, unit.result = "active", "running", "success"
        unit.restarts, unit.started = 0, time.monotonic()
        unit.runs_with = {str(p): p.read_text() for p in [*unit.reads, *unit.rereads]}
        unit.runs_with[str(unit.definition)] = unit.loaded_definition
        unit.starts += 1

    def up_to_date(self, unit):
        wanted = {str(p): p.read_text() for p in [*unit.reads, *unit.rereads, unit.definition]}
        return unit.active == "active" and unit.runs_with == wanted

    def __call__(self, argv, timeout_s=30, env=None):
        words = list(argv)
        self.counter += 1
        if self.kill_before == self.counter:
            raise Killed
        result = self.answer(words)
        if self.kill_after == self.counter:
            raise Killed
        return result

    def answer(self, words):
        key = " ".join(words[:2])
        if key in self.broken:
            return self.broken[key]
        if words[0] == "journalctl":
            return self.ended("\n".join(f"line {n}" for n in range(9)))
        if words[:2] == ["systemctl", "show"]:
            return self.ended(
                "\n\n".join(self.show(name) for name in words[words.index("--") + 1 :])
            )
        self.log.append(" ".join(words[1:] if words[0] == "systemctl" else words))
        if words[0] != "systemctl":
            for unit in self.units.values():
                self.reload(unit)
        elif words[1] == "daemon-reload":
            for unit in self.units.values():
                unit.loaded_definition = unit.definition.read_text()
        else:
            return self.act(words[1], self.units[words[2]])
        return self.ended("")

    def act(self, verb, unit):
        if verb in ("start", "restart"):
            if unit.active == "failed" and verb == "start" and unit.result == "start-limit-hit":
                return CommandResult((verb,), ENDED, 1, "", "Start request repeated too quickly.")
            self.start(unit)
        elif verb == "reload":
            self.reload(unit)
        elif verb == "stop":
            unit.active, unit.sub, unit.pid = "inactive", "dead", 0
        elif verb == "reset-failed":
            unit.active, unit.sub, unit.result = "inactive", "dead", "success"
        elif verb in ("enable", "disable"):
            unit.file_state = verb + "d"
        else:
            raise AssertionError(verb)
        return self.ended("")

    def reload(self, unit):
        unit.runs_with.update({str(path): path.read_text() for path in unit.rereads})
        unit.reloads += 1

    @staticmethod
    def ended(out):
        return CommandResult((), ENDED, 0, out)

    def show(self, name):
        if name not in self.units:
            return f"Id={name}\nLoadState=not-found\nActiveState=inactive\nSubState=dead"
        unit = self.units[name]
        if unit.fate:
            unit.active, unit.sub = unit.fate.pop(0)
        recorded = time.time() - (time.monotonic() - unit.started)
        stale = unit.loaded_definition != unit.definition.read_text()
        values = {
            "Id": name,
            "LoadState": "loaded",
            "ActiveState": unit.active,
            "SubState": unit.sub,
            "Result": unit.result,
            "UnitFileState": unit.file_state,
            "Type": "simple",
            "MainPID": unit.pid,
            "NRestarts": unit.restarts,
            "InvocationID": unit.invocation,
            "NeedDaemonReload": "yes" if stale else "no",
            "CanReload": "yes",
            "FragmentPath": unit.definition,
            "InactiveExitTimestamp": time.strftime(
                "%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(recorded)
            ),
            "InactiveExitTimestampMonotonic": int(unit.started * 1e6),
        }
        return "\n".join(f"{key}={value}" for key, value in values.items())


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(_units_host, "STAMP_FOLDER", str(tmp_path / "applied"))
    monkeypatch.setattr(_units_host, "UNIT_FOLDERS", [])
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    return Host(tmp_path)


@pytest.fixture
def slurmd(host):
    """A unit with a key (needs a restart) and a configuration (needs a reload)."""
    key, conf = host.folder / "munge.key", host.folder / "slurm.conf"
    key.write_text("key 1")
    conf.write_text("conf 1")
    return host.add("slurmd.service", [key], [conf])


def want(unit, **options):
    return Wanted(
        "slurmd.service",
        enabled=True,
        restart_on=tuple(map(str, unit.reads)),
        reload_on=tuple(map(str, unit.rereads)),
        **options,
    )


def sync(host, *wanted, check=False):
    host.log.clear()
    return service_sync.synchronise(host, wanted, check)


def later():
    """Long enough for a file's time of change to be told from a start's (real time)."""
    deadline = time.monotonic() + 0.15
    while time.monotonic() < deadline:
        pass


def test_start_then_nothing(host, slurmd):
    assert sync(host, want(slurmd)).actions == ["enable slurmd.service", "start slurmd.service"]
    assert sync(host, want(slurmd)).actions == []
    assert host.log == []
    assert slurmd.starts == 1


def test_each_kind_of_change(host, slurmd):
    sync(host, want(slurmd))
    slurmd.rereads[0].write_text("conf 2")
    assert sync(host, want(slurmd)).actions == ["reload slurmd.service"]
    slurmd.reads[0].write_text("key 2")
    outcome = sync(host, want(slurmd))
    assert outcome.actions == ["restart slurmd.service"]
    assert outcome.reasons == {"slurmd.service": [f"{slurmd.reads[0]} changed"]}
    slurmd.definition.write_text("[Service]\nExecStart=/bin/y\n")
    assert sync(host, want(slurmd)).actions == ["daemon-reload", "restart slurmd.service"]
    slurmd.definition.write_text("# a comment\n[Service]\nExecStart=/bin/y\n")
    assert sync(host, want(slurmd)).actions == ["daemon-reload"]
    assert sync(host, want(slurmd)).actions == []
    assert (slurmd.starts, slurmd.reloads) == (3, 1)


def test_started_by_its_package_before_the_configuration_was_written(host, slurmd):
    host.start(slurmd)
    slurmd.reads[0].write_text("key 2")
    assert sync(host, want(slurmd)).actions == ["enable slurmd.service", "restart slurmd.service"]


def test_started_by_somebody_else_with_what_is_on_disk(host, slurmd):
    later()
    host.start(slurmd)
    slurmd.file_state = "enabled"
    assert sync(host, want(slurmd)).actions == []
    # from now on it is on record
    assert _units_host.read_stamp("slurmd.service").invocation_id == slurmd.invocation
    slurmd.reads[0].write_text("key 2")
    assert sync(host, want(slurmd)).actions == ["restart slurmd.service"]


def test_restarted_by_hand_after_the_change(host, slurmd):
    sync(host, want(slurmd))
    slurmd.reads[0].write_text("key 2")
    later()
    host.start(slurmd)
    assert sync(host, want(slurmd)).actions == []


def test_restarted_by_hand_with_the_old_definition(host, slurmd):
    """Without a daemon-reload a later start has not seen the new definition."""
    sync(host, want(slurmd))
    slurmd.definition.write_text("[Service]\nExecStart=/bin/y\n")
    later()
    host.start(slurmd)
    assert sync(host, want(slurmd)).actions == ["daemon-reload", "restart slurmd.service"]
    assert host.up_to_date(slurmd)


def test_check_mode_predicts_and_touches_nothing(host, slurmd):
    for change in (lambda: None, lambda: slurmd.reads[0].write_text("key 2")):
        change()
        predicted = sync(host, want(slurmd), check=True)
        assert host.log == []
        stamp = _units_host.read_stamp("slurmd.service")
        assert stamp is None or stamp.invocation_id == slurmd.invocation
        assert sync(host, want(slurmd)).actions == predicted.actions != []


def test_check_mode_on_a_virgin_host(host):
    outcome = sync(host, Wanted("none.service", enabled=True), check=True)
    assert outcome.actions == ["enable none.service", "start none.service"]


def test_reload_command(host, slurmd):
    sync(host, want(slurmd))
    slurmd.rereads[0].write_text("conf 2")
    sync(host, want(slurmd, reload_command=("scontrol", "reconfigure")))
    assert host.log == ["scontrol reconfigure"]
    assert host.up_to_date(slurmd)


def test_a_reload_that_fails_is_tried_again(host, slurmd):
    sync(host, want(slurmd))
    slurmd.rereads[0].write_text("conf 2")
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


def test_somebody_is_starting_it_right_now(host, slurmd):
    host.start(slurmd)
    slurmd.file_state = "enabled"
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
        unit.reads[0].write_text("key 2")
    elif name == "conf":
        unit.rereads[0].write_text("conf 2")
    elif name == "definition":
        unit.definition.write_text("[Service]\nExecStart=/bin/y\n")
    elif name == "failed":
        unit.active, unit.sub, unit.pid = "failed", "failed", 0
    elif name == "both":
        unit.reads[0].write_text("key 2")
        unit.rereads[0].write_text("conf 2")


def killed_at(step, point, write_stamp):
    """write_stamp, killed before or after the step-th call."""
    calls = iter(range(1, 1000))

    def write(unit_name, stamp):
        due = point if next(calls) == step else ""
        if due != "before_stamp":
            write_stamp(unit_name, stamp)
        if due in ("before_stamp", "after_stamp"):
            raise Killed

    return write


@pytest.mark.parametrize("name", ["virgin", "key", "conf", "definition", "failed", "both"])
@pytest.mark.parametrize("restart_key", ["", "v1"])
def test_killed_at_any_step_the_next_run_converges(tmp_path, monkeypatch, name, restart_key):
    """Kill before and after each command and around each stamp; never more than one extra start."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(_units_host, "UNIT_FOLDERS", [])
    original_write = _units_host.write_stamp
    case = 0
    for point in ("before", "after", "before_stamp", "after_stamp"):
        for step in range(1, 30):
            case += 1
            folder = tmp_path / str(case)
            folder.mkdir()
            monkeypatch.setattr(_units_host, "STAMP_FOLDER", str(folder / "applied"))
            monkeypatch.setattr(service_sync, "write_stamp", original_write)
            host = Host(folder)
            key, conf = folder / "key", folder / "conf"
            key.write_text("key 1")
            conf.write_text("conf 1")
            unit = host.add("slurmd.service", [key], [conf])
            wanted = want(unit, restart_key=restart_key)
            scenario(host, unit, name)
            starts, host.counter = unit.starts, 0
            write = killed_at(step, point, original_write)
            monkeypatch.setattr(service_sync, "write_stamp", write)
            if point in ("before", "after"):
                setattr(host, f"kill_{point}", step)
            try:
                sync(host, wanted)
                killed = False
            except Killed:
                killed = True
            host.kill_before = host.kill_after = None
            monkeypatch.setattr(service_sync, "write_stamp", original_write)
            if not killed:
                break
            sync(host, wanted)
            assert host.up_to_date(unit), (point, step)
            assert unit.starts - starts <= 1, (point, step, "a start was repeated")
            assert sync(host, wanted).actions == [], (point, step)
        assert step > 1, f"{name}: no step to be killed at ({point})"


def test_killed_then_changed_again(host, slurmd):
    """The announced restart has happened, but the file has changed once more since."""
    sync(host, want(slurmd))
    slurmd.reads[0].write_text("key 2")
    wanted, name = want(slurmd), "slurmd.service"
    states, stamps, disk, _stale = service_sync.load(host, [wanted], False)
    plan = service_sync.plan_unit(wanted, states[name], stamps[name], disk[name], False)
    service_sync.apply_unit(host, wanted, plan, disk[name], states[name])
    later()
    slurmd.reads[0].write_text("key 3")
    assert sync(host, wanted).actions == ["restart slurmd.service"]
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
