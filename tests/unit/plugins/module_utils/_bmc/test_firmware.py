# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates of firmware: killed at 200 random points and at each single one, and what goes wrong."""

from __future__ import annotations

import contextlib
import hashlib

import pytest
from firmware_walk import NODE, PACKAGES, Walk, walk

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.firmware import (
    Book,
    Outcome,
    verify_packages,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.machine import RedfishMachine
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.redfish import (
    LackError,
    SilentError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.updates import (
    ACTIVATE,
    ACTIVATING,
    DONE,
    FAILED,
    FLASHED,
    FOLLOW,
    PUSH,
    PUSHED,
    PUSHING,
    SETTLE_S,
    STOP,
    TAKEN,
    UNSENT,
    WAIT,
    Event,
    Step,
    declared,
    line_of,
    next_step,
    read_line,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError

NOW = 1_800_000_000.0


@pytest.mark.parametrize("seed", range(200))
def test_killed_anywhere_nothing_is_sent_twice(tmp_path, seed):
    walk(tmp_path, seed)


def test_each_single_point_was_a_kill(tmp_path):
    whole = Walk(tmp_path / "whole")
    assert whole.run().value == "done"
    points = whole.ticks
    assert points > 60
    for fuse in range(1, points + 1):
        world = Walk(tmp_path / str(fuse))
        assert world.run(fuse) is None
        world.now += SETTLE_S
        assert world.run().value == "done", fuse
        world.check()
        assert len(world.flashed) == len(PACKAGES), fuse


def test_each_package_has_its_own_cycle_unless_it_shares_that_of_the_next(tmp_path):
    own, shared = Walk(tmp_path / "own"), Walk(tmp_path / "shared", shares=True)
    assert own.run().value == shared.run().value == "done"
    assert own.cycles == ["soft_off", "on", "ac_cycle"]
    assert shared.cycles == ["ac_cycle"]
    assert shared.flashed == own.flashed
    # Both are written before the machine is cycled.
    steps = [(one.package[0], one.what) for one in shared.events() if one.package[0] in "bc"]
    assert steps.index(("c", "flashed")) < steps.index(("b", "activating"))
    assert shared.run() == Outcome("done", "3 packages as declared", False)


def test_a_shared_cycle_that_is_not_possible_is_pending_and_what_fails_is_named(tmp_path):
    world = Walk(tmp_path / "pending", shares=True)
    assert world.run(activate=False).value == "pending until AC cycle"
    assert (len(world.flashed), world.cycles) == (3, [])
    # The last package has come by itself; the one before it still waits for its cycle.
    world.versions.update(GPU_1="2", GPU_2="2")
    assert world.run().value == "done"
    assert world.cycles == ["soft_off", "on"]
    world = Walk(tmp_path / "lies", shares=True)
    world.lies = {"HostBIOS_0"}
    assert world.run() == Outcome("failed", "tray.fwpkg: reads back HostBIOS_0 1", True)
    assert world.cycles == ["ac_cycle"]


def test_a_second_run_sends_nothing(tmp_path):
    world = Walk(tmp_path)
    assert world.run() == Outcome("done", "3 packages as declared", True)
    assert world.cycles == ["soft_off", "on", "ac_cycle"]
    assert world.run() == Outcome("done", "3 packages as declared", False)
    assert len(world.cycles) == 3


def test_what_waits_for_the_ac_power_is_pending_and_no_pass(tmp_path):
    world = Walk(tmp_path)
    world.cannot_cycle = True
    outcome = world.run()
    assert outcome.value == "pending until AC cycle"
    assert "gpu.fwpkg: GPU_1 1, GPU_2 1; no way to cycle AC power" in outcome.text
    assert len(world.flashed) == 3
    # A person has cycled it.
    world.waiting, world.versions = {}, dict.fromkeys(world.versions, "2")
    assert world.run().value == "done"
    assert world.events()[-1].what == DONE


def test_without_a_cycle_it_stays_pending_and_goes_on_later(tmp_path):
    world = Walk(tmp_path)
    assert world.run(activate=False).value == "pending until DC cycle"
    assert world.cycles == []
    assert world.run().value == "done"
    assert len(world.flashed) == 3


def test_a_bad_image_fails_and_is_sent_again_on_a_persons_word_alone(tmp_path):
    world = Walk(tmp_path)
    world.spoils = True
    outcome = world.run()
    assert (outcome.value, outcome.text) == ("failed", "bmc.fwpkg: /t/1: invalid image")
    world.spoils = False
    outcome = world.run()
    assert outcome.value is None
    assert "failed before (/t/1: invalid image)" in outcome.text
    assert len(world.flashed) == 1
    assert world.run(again=True).value == "done"
    assert len(world.flashed) == 4


def test_a_bmc_that_starts_again_and_forgets_its_task_is_read_back(tmp_path):
    world = Walk(tmp_path)
    world.forgets = True
    outcome = world.run()
    # The first package was for the BMC itself; what the second is shows after its cycle alone.
    assert outcome.value is None
    assert "tray.fwpkg: the BMC has no task /t/0 any more (HTTP 404); look" in outcome.text
    assert world.cycles == []
    last = {one.package[0]: one.what for one in world.events()}
    assert last == {"a": DONE, "b": PUSHED}
    # On a person's word it is sent once more.
    world.forgets = False
    assert world.run(again=True).value == "done"
    assert world.flashed.count("/fw/tray.fwpkg") == 2


@pytest.mark.parametrize(("version", "value"), [("1", "failed"), ("", None)])
def test_a_forgotten_task_of_what_needs_no_cycle_is_judged_by_the_versions(
    tmp_path, version, value
):
    world = Walk(tmp_path)
    world.forgets, world.lies = True, {"HostBMC_0"}
    begun = world.now
    world.unnamed = set() if version else {"HostBMC_0"}
    world.packages = [{**PACKAGES[0], "components": {"HostBMC_0": "2", "GPU_1": "2"}}]
    outcome = world.run()
    assert outcome.value == value
    assert "bmc.fwpkg: the BMC has no task /t/1 any more (HTTP 404)" in outcome.text
    # Its versions, and its tasks, may be late.
    assert world.now - begun >= 20


class Starting(Walk):
    """A BMC that starts again at the end of a flash, and lacks its parts for half a minute."""

    complete_at = 0.0

    def task(self, path):
        state, text = super().task(path)
        if state == "ended" and not self.complete_at:
            self.complete_at = self.now + 30
            raise SilentError("no answer in time")
        return state, text

    @contextlib.contextmanager
    def opener(self):
        self._asked()
        if self.now < self.complete_at:
            raise LackError("/redfish/v1/Systems/DGX: HTTP 404")
        yield self


def test_what_a_starting_bmc_lacks_is_no_lost_task(tmp_path):
    world = Starting(tmp_path)
    assert world.run() == Outcome("done", "3 packages as declared", True)
    assert len(world.flashed) == 3


@pytest.mark.parametrize("what", [FLASHED, PUSHED, PUSHING, ACTIVATING, FAILED])
def test_lines_of_another_machine_are_none(tmp_path, what):
    """The node is another machine now: what waits for its cycle is in the machine that left."""
    world = Walk(tmp_path)
    world.packages = [PACKAGES[1]]
    line = Event(world.now, NODE, PACKAGES[1]["sha256"], what, "/t/old", serial="1660224000099")
    (tmp_path / "updates.jsonl").write_text(line_of(line) + "\n")
    assert world.run() == Outcome("done", "1 packages as declared", True)
    assert world.flashed == ["/fw/tray.fwpkg"]
    # Each machine has its own: the one that left comes back, and so does its line.
    assert {one.serial for one in world.events()[1:]} == {world.number}
    book = Book(str(tmp_path))
    assert book.last(NODE, line.package, line.serial) == line
    assert book.last(NODE, line.package, world.number).what == DONE


def test_a_line_without_a_serial_number_counts_for_each_machine(tmp_path):
    world = Walk(tmp_path)
    world.packages = [PACKAGES[1]]
    line = line_of(Event(world.now, NODE, PACKAGES[1]["sha256"], FLASHED))
    old = line.replace('"serial": "", ', "")
    assert old != line
    (tmp_path / "updates.jsonl").write_text(old + "\n")
    assert world.run().value == "failed"
    assert (world.flashed, world.cycles) == ([], ["soft_off", "on"])


def test_a_version_that_does_not_come_fails(tmp_path):
    world = Walk(tmp_path)
    world.lies = {"GPU_2"}
    assert world.run() == Outcome("failed", "gpu.fwpkg: reads back GPU_2 1", True)
    assert world.run().value is None
    assert len(world.flashed) == 3


def test_a_lost_answer_is_looked_for_and_not_sent_again(tmp_path):
    world = Walk(tmp_path)
    world.loses_answers = True
    outcome = world.run()
    assert outcome.value is None
    assert "bmc.fwpkg: sending it: no answer in time" in outcome.text
    world.loses_answers = False
    assert world.run().value == "done"
    assert len(world.flashed) == 3


@pytest.mark.parametrize("is_accepted", [True, False])
@pytest.mark.parametrize("late_s", [0.0, 300.0])
def test_a_task_that_no_answer_names_is_looked_for_before_the_power_is_cut(
    tmp_path, is_accepted, late_s
):
    world = Walk(tmp_path)
    world.names_none, world.is_accepted, world.late_s = True, is_accepted, late_s
    assert world.run() == Outcome("done", "3 packages as declared", True)
    assert len(world.flashed) == 3
    steps = [one.what for one in world.events() if one.package == "b" * 64]
    assert steps == ["pushing", "taken", "flashed", "activating", "done"]
    # Its task is the one that is new.
    world.spoils, world.versions["HostBMC_0"] = True, "1"
    assert "bmc.fwpkg: /t/4: invalid image" in world.run().text


def test_an_accepted_package_without_a_task_is_not_measured(tmp_path):
    world = Walk(tmp_path)
    world.names_none = world.is_accepted = True
    world.late_s = None
    why = "bmc.fwpkg: the BMC took the package and named no task (HTTP 202); look at the BMC"
    for _run in range(2):
        outcome = world.run()
        assert (outcome.value, why in outcome.text) == (None, True), outcome
    assert (world.cycles, world.flashed) == ([], ["/fw/bmc.fwpkg"])
    # Consent sends it once more, not again and again.
    assert world.run(again=True).value is None
    assert len(world.flashed) == 2


def test_what_is_done_at_once_has_no_task(tmp_path):
    world = Walk(tmp_path)
    world.names_none, world.late_s = True, None
    begun = world.now
    assert world.run().value == "done"
    assert len(world.flashed) == 3
    # What needs a cycle has time to show a task.
    assert world.now - begun >= 2 * SETTLE_S


@pytest.mark.parametrize("late_s", [None, 300.0])
def test_a_bmc_starts_again_after_it_took_a_package(tmp_path, late_s):
    world = Walk(tmp_path)
    world.names_none, world.late_s, world.restart = True, late_s, 100
    assert world.run() == Outcome("done", "3 packages as declared", True)
    assert len(world.flashed) == 3


def test_a_bmc_that_stays_away_after_it_took_a_package_ends_the_run(tmp_path):
    world = Walk(tmp_path)
    world.names_none, world.restart = True, 10_000
    begun = world.now
    with pytest.raises(SilentError):
        world.run()
    assert SETTLE_S <= world.now - begun < SETTLE_S + 10
    world.restart = 0
    assert world.run().value == "done"
    assert len(world.flashed) == 3


def test_a_refusal_after_a_package_was_taken_is_not_waited_out(tmp_path):
    world = Walk(tmp_path)
    world.names_none, world.is_accepted, world.late_s = True, True, None
    begun = world.now
    world.firmware = lambda: {} if world.flashed else {"HostBMC_0": "1"}
    with pytest.raises(LackError, match="the BMC has no component HostBMC_0"):
        world.run()
    assert world.now == begun


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_bmc_without_a_list_of_tasks(tmp_path, is_accepted):
    world = Walk(tmp_path)
    world.names_none, world.has_list, world.late_s = True, False, None
    world.is_accepted = is_accepted
    begun = world.now
    outcome = world.run()
    if is_accepted:
        assert outcome.value is None
        assert "and the BMC has no list of tasks; look at the BMC" in outcome.text
        assert (world.cycles, len(world.flashed)) == ([], 1)
    else:
        assert outcome == Outcome("done", "3 packages as declared", True)
        assert len(world.flashed) == 3
        assert world.now - begun >= 2 * SETTLE_S


def test_what_no_version_shows_after_a_flash_is_not_measured(tmp_path):
    world = Walk(tmp_path)
    world.unnamed = {"GPU_2"}
    reads = Outcome(None, "gpu.fwpkg: reads back GPU_2 without a version", True)
    assert world.run() == reads
    done = len(world.flashed), list(world.cycles)
    # The next runs neither send nor cycle.
    for _run in range(2):
        outcome = world.run()
        why = "gpu.fwpkg: GPU_2 without a version; look at the BMC, then write"
        assert (outcome.value, outcome.text.startswith(why), outcome.acted) == (None, True, False)
    assert (len(world.flashed), world.cycles) == done
    world.unnamed = set()
    assert world.run() == Outcome("done", "3 packages as declared", False)


def test_of_packages_with_one_cycle_the_one_that_failed_decides(tmp_path):
    world = Walk(tmp_path, shares=True)
    world.unnamed, world.lies = {"GPU_2"}, {"HostBIOS_0"}
    assert world.run() == Outcome("failed", "tray.fwpkg: reads back HostBIOS_0 1", True)
    last = {one.package[0]: one.what for one in world.events()}
    assert last == {"a": DONE, "b": FAILED, "c": ACTIVATING}


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(("names_none", "late_s"), [(False, 0.0), (True, 0.0), (True, 30.0)])
def test_a_task_that_goes_on_is_followed_with_consent_too(tmp_path, names_none, late_s, ends):
    """The word is for all nodes, and a killed run may have begun the task."""
    found = []
    for fuse in range(1, 60):
        world = Walk(tmp_path / str(fuse))
        world.packages, world.names_none, world.is_accepted = [PACKAGES[1]], names_none, True
        world.late_s = late_s
        if world.run(fuse) is None and any(world.known.values()):
            if ends:
                # Longer ago than a flash may take.
                world.now, world.known = world.now + 7200, dict.fromkeys(world.known, 0)
            outcome = world.run(again=True)
            assert len(world.flashed) == 1, (fuse, outcome)
            found.append((outcome.value, "in ten minutes" in outcome.text))
    assert ("done", False) in found
    assert set(found) <= {("done", False), (None, True)}


def test_what_was_taken_without_a_task_is_not_sent_again_on_a_persons_word(tmp_path):
    """Any answer but 202 is its end, and a killed run has not activated it yet."""
    found = []
    for fuse in range(1, 60):
        world = Walk(tmp_path / str(fuse))
        world.packages, world.names_none, world.late_s = [PACKAGES[1]], True, None
        if world.run(fuse) is None and world.flashed and world.events()[-1].what == TAKEN:
            world.now += 7200
            found.append((world.run(again=True).value, len(world.flashed)))
    assert set(found) == {("done", 1)}


def test_a_task_without_an_end_is_sent_again_on_a_persons_word(tmp_path):
    world = Walk(tmp_path)
    world.packages, world.endless = [PACKAGES[1]], True
    for _run in range(2):
        outcome = world.run()
        assert outcome.value is None
        assert "tray.fwpkg: /t/1 is not over: 39.1 %; look at the BMC, then write" in outcome.text
    assert (len(world.flashed), world.cycles) == (1, [])
    world.endless, world.known = False, {"/t/old": 0}
    assert world.run(again=True) == Outcome("done", "1 packages as declared", True)
    assert len(world.flashed) == 2


class Monitor:
    """A session with a BMC whose monitor of a task gives this answer."""

    root = {}

    def __init__(self, answer):
        self.answer = answer

    def system(self, _name):
        return {"@odata.id": "/redfish/v1/Systems/1"}

    def get(self, _path):
        return self.answer


@pytest.mark.parametrize(
    ("path", "answer", "state"),
    [
        ("TaskMonitors/7", {"TaskState": "Running"}, "running"),
        ("TaskMonitors/7", {"error": {"code": "Base.1.8.Success"}}, "ended"),
        ("TaskMonitors/7", {"TaskState": "Exception"}, "failed"),
        ("Tasks/7", {"Name": "Update"}, "running"),
        ("Tasks/7/", {"Name": "Update"}, "running"),
        ("Tasks/7/Monitor", {"error": {"code": "Base.1.8.Success"}}, "ended"),
        ("Tasks/7", {"TaskState": "Completed"}, "ended"),
    ],
)
def test_the_monitor_of_a_task_ends_with_the_answer_of_what_was_asked(path, answer, state):
    machine = RedfishMachine(Monitor(answer), "")
    assert machine.task(f"/redfish/v1/TaskService/{path}")[0] == state


def event(what, tasks="", at=NOW, text=""):
    return Event(at, NODE, "a" * 64, what, tasks, text)


@pytest.mark.parametrize(
    ("known", "tasks", "wanted"),
    [
        (None, None, PUSH),
        (event(DONE), None, PUSH),
        (event(UNSENT), None, PUSH),
        (event(FAILED, text="HTTP 400"), None, STOP),
        (event(PUSHING, "/t/1"), None, STOP),
        (event(PUSHING, "/t/1"), ["/t/2"], STOP),
        (event(PUSHING, "/t/1"), ["/t/1", "/t/2", "/t/3"], STOP),
        (event(PUSHING, "/t/1"), ["/t/1"], STOP),
        (event(PUSHING, "/t/1", at=NOW - SETTLE_S), ["/t/1"], PUSH),
        (event(PUSHING, "/t/1"), ["/t/1", "/t/2"], Step(FOLLOW, "/t/2")),
        (event(TAKEN, "/t/1"), None, STOP),
        (event(TAKEN, "?"), ["/t/1"], STOP),
        (event(TAKEN, "?"), None, WAIT),
        (event(TAKEN, "?", at=NOW - SETTLE_S), None, ACTIVATE),
        (event(TAKEN, "?", text="HTTP 202"), None, STOP),
        (event(PUSHING, "?", at=NOW - SETTLE_S), None, STOP),
        (event(TAKEN, "/t/1"), ["/t/1"], WAIT),
        (event(TAKEN, "/t/1", at=NOW - SETTLE_S), ["/t/1"], ACTIVATE),
        (event(TAKEN, "/t/1", at=NOW - SETTLE_S, text="HTTP 202"), ["/t/1"], STOP),
        (event(TAKEN, "/t/1"), ["/t/1", "/t/2"], Step(FOLLOW, "/t/2")),
        (event(PUSHED, "/t/2"), None, Step(FOLLOW, "/t/2")),
        (event(PUSHED, "/t/2"), ["/t/1"], Step(FOLLOW, "/t/2")),
        (event(FLASHED), None, ACTIVATE),
        (event(ACTIVATING), None, ACTIVATE),
    ],
)
def test_what_is_next(known, tasks, wanted):
    step = next_step(known, False, tasks, NOW)
    assert (step if isinstance(wanted, Step) else step.what) == wanted
    assert bool(step.why) == (step.what == STOP)
    assert next_step(known, True, tasks, NOW).what == DONE
    if known and known.what in (FAILED, PUSHING, TAKEN, PUSHED):
        consented = next_step(known, False, tasks, NOW, again=True)
        # The task of what was sent a moment ago may still show; what is written is activated.
        goes_on = step.what in (WAIT, ACTIVATE) or "in ten minutes" in step.why
        assert consented == (step if goes_on else Step(PUSH))
        if step.what == FOLLOW:
            assert next_step(known, False, tasks, NOW, True, lambda task: task == "/t/2") == step


@pytest.mark.parametrize(
    ("known", "wanted", "with_consent"),
    [
        (None, STOP, PUSH),
        (event(DONE), STOP, PUSH),
        (event(UNSENT), STOP, PUSH),
        (event(ACTIVATING), STOP, ACTIVATE),
        (event(FLASHED), ACTIVATE, ACTIVATE),
        (event(PUSHED, "/t/2"), FOLLOW, PUSH),
        (event(TAKEN, "/t/1"), WAIT, WAIT),
    ],
)
def test_what_is_next_where_versions_are_not_named(known, wanted, with_consent):
    assert next_step(known, None, ["/t/1"], NOW).what == wanted
    assert next_step(known, None, ["/t/1"], NOW, again=True).what == with_consent


def test_versions_by_id_and_pattern():
    versions = {"GPU_1": "2", "GPU_2": "1", "BIOS": "1.6"}
    assert declared({"GPU_*": "2", "BIOS": "1.6"}, versions) == (False, "GPU_2 1")
    assert declared({"GPU_1": "2"}, versions) == (True, "")
    assert declared({"GPU_*": "2"}, {"GPU_1": "2", "GPU_2": ""}) == (
        None, "GPU_2 without a version"
    )  # fmt: skip
    assert declared({"GPU_*": "2"}, {"GPU_1": "1", "GPU_2": ""}) == (
        False, "GPU_1 1, GPU_2 without a version"
    )  # fmt: skip
    with pytest.raises(ValueError, match="the BMC has no component CPLD"):
        declared({"CPLD": "1"}, versions)


def test_lines_are_read_back_and_cut_ones_are_not():
    line = line_of(event(PUSHING, "/t/1 /t/2"))
    assert read_line(line) == event(PUSHING, "/t/1 /t/2")
    for wrong in (line[:-9], "[]", "{}", line.replace('"version": 1', '"version": 9'),
                  line.replace("pushing", "flying")):  # fmt: skip
        assert read_line(wrong) is None


def test_a_package_with_another_checksum_is_named(tmp_path):
    path = tmp_path / "gpu.fwpkg"
    path.write_bytes(b"firmware")
    good = {"file": str(path), "sha256": hashlib.sha256(b"firmware").hexdigest()}
    verify_packages({NODE: {"packages": [good]}})
    with pytest.raises(ToolError, match=r"its sha256 is [0-9a-f]+, declared is bbbb"):
        verify_packages({NODE: {"packages": [{**good, "sha256": "b" * 64}]}})
    with pytest.raises(ToolError, match="No such file"):
        verify_packages({NODE: {"packages": [{**good, "file": str(tmp_path / "no")}]}})
