# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings, steps, sums, what is left out, what is kept, and when the load must stop."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._burn import plan as plans
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.control import (
    FOLLOW,
    REPORT,
    RESUME,
    START,
    BurnError,
    is_again,
    next_action,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.cublaslt import places
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.state import (
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    STOPPED,
    State,
    load,
    save,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.watcher import (
    Seen,
    add_sample,
    too_hot,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.worker import cpu_list
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.cuda import KERNELS
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.kernels import PTX


@pytest.mark.parametrize("duration", [30.0, 600.0, 3 * 86400.0])
def test_steps_fill_the_time(duration):
    steps = plans.plan(plans.Settings(duration_s=duration))
    assert sum(step.seconds for step in steps) == pytest.approx(duration, rel=0.01)
    assert {step.phase for step in steps} == set(plans.NAMES)
    # Long ones come back to every phase, so that each is seen at every temperature.
    assert len(steps) == len(plans.NAMES) * max(1, round(duration / plans.ROUND_S))
    assert sum(phase.share for phase in plans.PHASES) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"phases": ["gemm_int4"]}, "unknown phases: gemm_int4"),
        ({"phases": []}, "no phases"),
        ({"n": 100}, "n is 100"),
        ({"duration_s": 0}, "duration_s"),
        ({"memory_share": 1.0}, "memory_share"),
        ({"pulse_s": 0}, "pulse_s"),
        ({"silent_s": 0}, "time limits"),
    ],
)
def test_settings_that_cannot_be(data, message):
    with pytest.raises(ValueError, match=message):
        plans.settings_from_data(data)


GPU = {"address": "0000:1b:00.0", "error": "", "mig": False, "processes": []}


@pytest.mark.parametrize(
    ("change", "settings", "reason"),
    [
        ({}, {}, None),
        ({"processes": [7]}, {}, "busy"),
        ({"processes": None}, {}, "busy"),
        ({"processes": [7]}, {"busy_ok": True}, None),
        ({"mig": True}, {"busy_ok": True}, "mig"),
        ({"error": "the GPU has fallen off the bus"}, {}, "lost"),
        ({}, {"gpus": ("0000:43:00.0",)}, "no_gpu"),
    ],
)
def test_which_gpus_are_burned(change, settings, reason):
    burn, left = plans.chosen_gpus([{**GPU, **change}], plans.Settings(**settings))
    if reason is None:
        assert (burn, left) == ([GPU["address"]], {})
    else:
        assert burn == []
        assert [one["reason"] for one in left.values()] == [reason]


def test_days_of_rates_stay_few():
    total = plans.Sum()
    for number in range(100_000):
        plans.add(total, {"event": "beat", "flop": (number % 2 + 1) * 1e12, "product_ms": 1})
    assert len(total.rates) <= 256
    assert sum(total.rates) / len(total.rates) == pytest.approx(1500)
    assert total.totals["product_ms"] == 100_000


def test_errors_are_counted_and_the_first_kept():
    total = plans.Sum()
    for row in range(50):
        plans.add(total, {"event": "error", "phase": "x", "what": "product", "row": row})
    assert total.errors == 50
    assert [one["row"] for one in total.first] == list(range(20))


def test_a_state_comes_back_as_it_was(tmp_path):
    state = State(plans.Settings(gpus=("0000:1b:00.0",)), started=5.0)
    plans.add(state.sum_of("a b"), {"event": "beat", "flop": 2e12, "product_ms": 1})
    state.seen["a"] = Seen(samples=2, xids=[79], throttled={"idle": 1})
    assert load(str(tmp_path)) is None
    save(str(tmp_path), state)
    assert load(str(tmp_path)) == state
    assert os.listdir(tmp_path) == ["state.json"]

    # An earlier version did not know these.
    kept = state.as_data()
    for name in ("ecc_silent", "unwatched"):
        del kept["seen"]["a"][name]
    (tmp_path / "state.json").write_text(json.dumps(kept))
    assert load(str(tmp_path)) == state


@pytest.mark.parametrize("text", ["{}", "[]", '{"version": 0}', '{"version": 1}', "{"])
def test_a_state_that_is_no_state(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own, or ours
        load(str(tmp_path))


def test_what_the_module_does_next():
    settings, other = plans.Settings(), plans.Settings(duration_s=60)
    kept = State(settings, step=1, steps=12)
    assert next_action(None, False, settings, False)[0] == START
    assert next_action(kept, True, settings, False)[0] == FOLLOW
    assert next_action(kept, False, settings, False)[0] == RESUME
    assert next_action(kept, False, settings, True)[0] == START
    assert next_action(kept, False, other, False)[0] == START
    over = State(settings, state="done")
    assert next_action(over, False, settings, False)[0] == REPORT
    assert next_action(over, False, settings, True)[0] == START
    with pytest.raises(BurnError, match="other settings"):
        next_action(kept, True, other, False)


@pytest.mark.parametrize(
    ("sample", "stop_c", "slowdown", "hot"),
    [
        ({"temperature_c": 88}, 0, 89, False),
        ({"temperature_c": 89}, 0, 89, True),
        ({"temperature_c": 80}, 80, 89, True),
        ({"temperature_c": 60, "throttle": ["hardware thermal slowdown"]}, 0, 89, True),
        ({"temperature_c": 60, "throttle": ["software power cap"]}, 0, 89, False),
        ({"temperature_c": None}, 0, 89, False),
        ({"temperature_c": 95}, 0, None, False),
    ],
)
def test_when_the_load_stops(sample, stop_c, slowdown, hot):
    assert bool(too_hot(sample, stop_c, slowdown)) is hot


def test_samples_add_up():
    seen = Seen()
    for power, busy in ((100, False), (700, True), (690, True)):
        one = {
            "power_w": power,
            "temperature_c": power / 10,
            "clock_mhz": 1980 - power,
            "memory_c": None,
        }
        add_sample(seen, {**one, "throttle": ["idle", "hardware power brake"]}, busy)
    add_sample(seen, {"error": "gone"}, True)
    assert (seen.samples, seen.busy_samples, seen.power_sum, seen.clock_min) == (3, 2, 1390, 1280)
    assert (seen.power_max, seen.temperature_max, seen.memory_max) == (700, 70, None)
    assert seen.throttled == {"hardware power brake": 3}
    assert seen.error == "gone"


def test_every_kernel_s_arguments_are_those_of_the_ptx():
    """A wrong type here would pass garbage to a GPU."""
    sizes = {"p": "u64", "Q": "u64", "I": "u32"}
    for name, kinds in KERNELS.items():
        head = PTX.split(f".entry {name}(")[1].split(")")[0]
        wanted = [f".param .{sizes[kind]}" for kind in kinds]
        assert [line.strip().rsplit(" ", 1)[0] for line in head.strip().splitlines()] == wanted


def test_where_cublaslt_is_looked_for():
    assert places("/x/lib.so", 13000) == ["/x/lib.so"]
    assert places("", 13000)[:2] == ["libcublasLt.so.13", "libcublasLt.so.12"]
    # A library newer than the driver cannot work.
    assert places("", 12080)[0] == "libcublasLt.so.12"
    assert not [place for place in places("", 12080) if place.endswith(".13")]


def test_cpu_lists():
    assert cpu_list("0-2,8\n") == {0, 1, 2, 8}


def test_settings_are_json():
    data = json.loads(json.dumps(plans.Settings().as_data()))
    assert plans.settings_from_data(data) == plans.Settings()


@pytest.mark.parametrize(
    ("state", "age_days", "days", "again"),
    [
        (DONE, 6, 7, False),
        (DONE, 8, 7, True),
        (DONE, 8, 0, False),
        # An interrupted one is resumed within a day.
        (RUNNING, 0.9, 7, False),
        (RUNNING, 0.9, 0, False),
        (RUNNING, 1.1, 7, True),
        (INTERRUPTED, 1.1, 0, True),
        (INTERRUPTED, -3650, 0, True),
        # A clock that was set back a little, and one that was years ahead.
        (DONE, -0.001, 7, False),
        (DONE, -3650, 7, True),
    ],
)
def test_a_burn_in_counts_for_days(tmp_path, state, age_days, days, again):
    kept = State(plans.Settings(), state, updated=2e9 - age_days * 86400)
    options = {
        "again": False,
        "again_after_days": days,
        "again_if_unburned": True,
        "folder": str(tmp_path),
        "thresholds": {},
        "slots": [],
        "count": 0,
    }
    assert is_again(options, kept, 2e9) is again
    # Begun again, an interrupted one would forget the fault that no report had.
    total = plans.Sum(totals={"products": 1.0}, errors=1, first=[{"what": "known_answer"}])
    kept.gpus["43:00.0"], kept.sums[plans.key("43:00.0", "gemm_bf16")] = {"index": 1}, total
    assert is_again(options, kept, 2e9) is (again and state == DONE)
    assert is_again({**options, "again": True}, kept, 2e9) is True


BUSY = {"1b:00.0": {"reason": "busy", "text": "processes use it: 4242"}}
MIG = {"43:00.0": {"reason": "mig", "text": "MIG is on: only a part could be loaded"}}
LOST = {"52:00.0": {"reason": "lost", "text": "NVML no longer knows it"}}


@pytest.mark.parametrize(
    ("state", "gpus", "if_unburned", "again"),
    [
        # "no GPU is left to burn", for one.
        (FAILED, {}, True, True),
        (FAILED, {}, False, False),
        (DONE, {"left": BUSY}, True, True),
        (DONE, {"left": BUSY}, False, False),
        (DONE, {"ended": {"1b:00.0": {"reason": "hang", "text": "printed nothing"}}}, True, True),
        # A node with MIG, or with a dead GPU, would burn its others at each validation.
        (DONE, {"left": MIG, "ended": LOST}, True, False),
        (DONE, {"left": {"52:00.0": {"reason": "no_gpu", "text": "none"}}}, True, False),
        (DONE, {"left": {**MIG, **BUSY}}, True, True),
        (DONE, {"left": MIG, "ended": {"1b:00.0": {"reason": "hang", "text": ""}}}, True, True),
        # Where all have MIG nothing was burned, and the next look takes seconds.
        (FAILED, {"left": MIG}, True, True),
        (DONE, {}, True, False),
        (STOPPED, {"left": BUSY}, True, False),
        (RUNNING, {"left": BUSY}, True, False),
    ],
)
@pytest.mark.parametrize("days", [0, 7])
def test_a_burn_in_that_left_gpus_unburned_does_not_count(
    tmp_path, days, state, gpus, if_unburned, again
):
    options = {
        "again": False,
        "again_after_days": days,
        "again_if_unburned": if_unburned,
        "folder": str(tmp_path),
        "thresholds": {},
        "slots": [],
        "count": 0,
    }
    kept = State(plans.Settings(), state, updated=2e9, **gpus)
    assert is_again(options, kept, 2e9) is again
    # What it has found of another GPU must not be lost: nothing looks into the burn-in before.
    total = plans.Sum(totals={"products": 1.0}, errors=1, first=[{"what": "known_answer"}])
    key = plans.key("43:00.0", "gemm_bf16")
    found = {"gpus": {"43:00.0": {"index": 1}, "1b:00.0": {"index": 0}}, "sums": {key: total}}
    kept = State(plans.Settings(), state, updated=2e9, **found, **gpus)
    assert is_again(options, kept, 2e9) is False
