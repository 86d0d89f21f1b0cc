# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a sweep to a file of metrics, on fabrics that are healthy, broken or silent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import FIXTURES
from exposition_text import Samples, names, read, value
from library import fresh
from world import World, discovery_text, rail_end, states_text

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._exporters import (
    fabric as _fabric_collector,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._exporters.fabric import (
    Settings,
    collect,
    main,
    reading_from_data,
    reading_to_data,
    settings_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import CA, plan_to_data
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_counters import Reading

OURS = "baremetal_dgx_fabric"


class Tools:
    """A CommandRunner that prints what the tools would say of a world."""

    def __init__(self, world: World, **ended: str) -> None:
        self.world, self.ended, self.calls = world, ended, []
        self.switches: list[str] = []

    def __call__(self, argv, timeout_s=30, env=None) -> CommandResult:
        self.calls.append(argv[0])
        if argv[0] in self.ended:
            return CommandResult(tuple(argv), self.ended[argv[0]], took_s=timeout_s)
        seen, errors = self.world.reached()
        out, err = "", ""
        if argv[0] == "ibnetdiscover":
            Path(argv[-1]).write_text(discovery_text(seen))
            err = "\n".join(errors)
        elif argv[0] == "iblinkinfo":
            out = states_text(seen)
        elif argv[0] == "ibswinfo":
            lid = int(argv[-1].partition("-")[2])
            (guid,) = (one.guid for one in seen.devices.values() if one.lid == lid)
            out = self.switches.pop(0).replace("0xfc6a1c0301000000", f"0x{guid}")
        elif argv[0] == "ibqueryerrors":
            out = self.world.counters(self.world.after, seen)
        else:
            lid = next(iter(self.world.fabric.devices.values())).lid
            out = (
                f"sminfo: sm lid {lid} sm guid 0x1, activity count 7 priority 0 "
                "state 3 SMINFO_MASTER\n"
                if argv[0] == "sminfo"
                else f"IsSM ports\n\t\tEndPortLid..............{lid}\n\nIsSMdisabled ports\n"
            )
        return CommandResult(tuple(argv), ENDED, 0, out, err, 0.1)


@pytest.fixture
def world() -> World:
    world = fresh("basepod-12")
    world.start = world.key_of["dgx-0001", 0]
    return world


@pytest.fixture
def settings(tmp_path: Path, world: World) -> Settings:
    plan = tmp_path / "cables.json"
    plan.write_text(json.dumps(plan_to_data(world.plan)))
    return Settings(str(plan), str(tmp_path / "text" / "fabric.prom"), str(tmp_path / "state"))


def metrics(settings: Settings, tools: Tools) -> tuple[Samples, list[str]]:
    text, problems = collect(settings, tools)
    return read(text), problems


def findings(found: Samples) -> list[dict[str, str]]:
    return [dict(labels) for name, labels in found if name == f"{OURS}_finding"]


def test_a_healthy_fabric(settings: Settings, world: World) -> None:
    found, problems = metrics(settings, Tools(world))
    assert problems == []
    assert findings(found) == []
    assert value(found, f"{OURS}_collector_ok") == 1
    assert value(found, f"{OURS}_cables", tier="node-leaf", rail="3", status="pass") == 12
    assert value(found, f"{OURS}_cables", tier="node-leaf", rail="3", status="fail") == 0
    cables = sum(number for (name, _labels), number in found.items() if name == f"{OURS}_cables")
    assert cables == len(world.plan.cables)
    assert value(found, f"{OURS}_devices", device="node", source="found") == 12
    assert value(found, f"{OURS}_devices", device="switch", source="found") == 2
    assert value(found, f"{OURS}_subnet_managers", state="master") == 1
    info = [dict(labels) for name, labels in found if name == f"{OURS}_cable_info"]
    assert len(info) == 96
    assert {
        "node": "dgx-0001",
        "device": "mlx5_rail0",
        "rail": "0",
        "switch": "leaf-001",
        "port": "1",
    } in info
    # Nothing is known of the time that totals are of.
    assert f"{OURS}_window_seconds" not in names(found)


def test_a_lost_power_supply_is_a_finding_if_switches_are_asked(
    settings: Settings, world: World
) -> None:
    folder = FIXTURES / "ibswinfo"
    healthy, failed = (
        (folder / f"ndr-{name}.txt").read_text() for name in ("healthy", "psu-failed")
    )
    tools = Tools(world)
    found, problems = metrics(settings, tools)
    assert (findings(found), problems) == ([], [])
    assert "ibswinfo" not in tools.calls
    asking = replace(settings, switch_health=True)
    tools.switches = [healthy, failed]
    found, problems = metrics(asking, tools)
    assert problems == []
    (one,) = findings(found)
    assert (one["kind"], one["switch"], one["status"]) == ("switch_psu", "leaf-002", "fail")
    assert value(found, f"{OURS}_switch_temperature_celsius", switch="leaf-001") == 51
    tools.switches = [healthy, healthy]
    found, problems = metrics(asking, tools)
    assert findings(found) == []
    # Without the tool, and if it hangs, nothing is a fault of a switch.
    for ended in (MISSING, TIMED_OUT):
        found, problems = metrics(asking, Tools(world, ibswinfo=ended))
        assert {one["status"] for one in findings(found)} == {"not_measured"}


def test_a_missing_cable_names_node_switch_and_rail(settings: Settings, world: World) -> None:
    cable = world.by_end[rail_end("dgx-0005", 6)]
    world.unplug(cable)
    found, problems = metrics(settings, Tools(world))
    assert problems == []
    (one,) = findings(found)
    assert (one["kind"], one["status"]) == ("missing", "fail")
    assert (one["node"], one["switch"], one["rail"]) == ("dgx-0005", cable.b.host, "6")
    assert value(found, f"{OURS}_cables", tier="node-leaf", rail="6", status="fail") == 1


def test_a_dead_leaf_is_one_finding(settings: Settings, world: World) -> None:
    world.remove(world.key_of["leaf-002", -1])
    found, _problems = metrics(settings, Tools(world))
    (one,) = findings(found)
    assert (one["kind"], one["switch"], one["node"]) == ("switch_absent", "leaf-002", "")
    assert one["severity"] == "critical"
    assert value(found, f"{OURS}_devices", device="switch", source="found") == 1


def test_counters_are_judged_between_two_runs(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1e9, 1e9, 1e9 + 600, 1e9 + 600, 1e9 + 1200, 1e9 + 1200])
    monkeypatch.setattr(_fabric_collector.time, "time", lambda: next(clock))
    place = world.place(rail_end("dgx-0002", 4))
    world.after = {place: {"LinkDownedCounter": 3, "PortXmitWait": 9}}
    found, _problems = metrics(settings, Tools(world))
    assert findings(found) == []
    labels = {"device": "dgx-0002", "port": "1", "rail": "4"}
    assert value(found, f"{OURS}_port_errors_total", counter="LinkDownedCounter", **labels) == 3
    # The same total: nothing has happened since.
    found, _problems = metrics(settings, Tools(world))
    assert findings(found) == []
    assert value(found, f"{OURS}_window_seconds") == 600
    world.after = {place: {"LinkDownedCounter": 4, "PortXmitWait": 9}}
    found, _problems = metrics(settings, Tools(world))
    (one,) = findings(found)
    assert (one["kind"], one["node"], one["rail"], one["status"]) == (
        "errors",
        "dgx-0002",
        "4",
        "fail",
    )


def without(nodes: list[str]) -> World:
    world = fresh("basepod-12")
    world.start = world.key_of["dgx-0001", 0]
    for node in nodes:
        for rail in range(8):
            world.remove(world.key_of[node, rail])
    return world


def test_totals_of_a_node_that_was_off_are_not_of_this_interval(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1e9]
    monkeypatch.setattr(_fabric_collector.time, "time", lambda: clock[0])
    found, _problems = metrics(settings, Tools(without(["dgx-0005"])))
    assert [(one["kind"], one["node"]) for one in findings(found)] == [("node_absent", "dgx-0005")]
    place = world.place(rail_end("dgx-0005", 4))
    world.after = {place: {"LinkDownedCounter": 2, "SymbolErrorCounter": 700}}
    clock[0] += 600
    found, problems = metrics(settings, Tools(world))
    assert problems == []
    assert [(one["node"], one["rail"], one["status"]) for one in findings(found)] == [
        ("dgx-0005", "4", "not_measured")
    ]
    clock[0] += 600
    found, _problems = metrics(settings, Tools(world))
    assert findings(found) == []
    world.after = {place: {"LinkDownedCounter": 3, "SymbolErrorCounter": 700}}
    clock[0] += 600
    found, _problems = metrics(settings, Tools(world))
    assert [(one["kind"], one["status"]) for one in findings(found)] == [("errors", "fail")]


@pytest.mark.parametrize(
    ("counters", "known"),
    [({"PortXmitWait": 9}, True), ({"PortXmitWait": 9, "SymbolErrorCounter": 1}, False)],
)
@pytest.mark.parametrize("nodes", [["dgx-0005"], ["dgx-0005", "dgx-0006"]])
def test_a_node_that_comes_back_without_errors_is_in_no_doubt(
    nodes: list[str],
    counters: dict[str, int],
    known: bool,
    settings: Settings,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1e9]
    monkeypatch.setattr(_fabric_collector.time, "time", lambda: clock[0])
    metrics(settings, Tools(without(nodes)))
    rails = [(node, rail) for node in nodes for rail in range(8)]
    world.after = {world.place(rail_end(*rail)): counters for rail in rails}
    clock[0] += 600
    found, problems = metrics(settings, Tools(world))
    assert problems == []
    # One for each of them, also of many: it is none of a fabric that does not answer.
    assert sorted((one["node"], int(one["rail"]), one["status"]) for one in findings(found)) == (
        [] if known else [(*rail, "not_measured") for rail in rails]
    )


def test_devices_that_are_described_alike_have_a_series_each(
    settings: Settings, world: World
) -> None:
    sharp = "Mellanox Technologies Aggregation Node"
    guids = {"leaf-001": "fc6a1c0300010048", "leaf-002": "fc6a1c0300020048"}
    for count, (leaf, guid) in enumerate(guids.items(), 5):
        world.add(guid, CA, sharp)
        world.link((world.key_of[leaf, -1], 65), (guid, 1))
        world.after[guid, 1] = {"PortXmitWait": count}
    world.add("fc6a1c0300030048", CA, "storage-01 mlx5_0")
    world.link((world.key_of["leaf-001", -1], 66), ("fc6a1c0300030048", 1))
    world.after["fc6a1c0300030048", 1] = {"PortXmitWait": 7}
    found, _problems = metrics(settings, Tools(world))
    series = {
        dict(labels)["device"]: number
        for (name, labels), number in found.items()
        if name == f"{OURS}_port_errors_total"
    }
    assert series == {
        f"{sharp} (0xfc6a1c0300010048)": 5,
        f"{sharp} (0xfc6a1c0300020048)": 6,
        "storage-01 mlx5_0": 7,
    }


@pytest.mark.parametrize("how", [TIMED_OUT, MISSING])
@pytest.mark.parametrize("tool", ["ibnetdiscover", "ibqueryerrors", "sminfo"])
def test_a_tool_that_does_not_answer_fails_nothing(
    settings: Settings, world: World, tool: str, how: str
) -> None:
    found, problems = metrics(settings, Tools(world, **{tool: how}))
    assert problems
    assert value(found, f"{OURS}_collector_ok") == 0
    assert [one for one in findings(found) if one["status"] == "fail"] == []
    assert value(found, f"{OURS}_run_timestamp_seconds") is not None
    if tool == "sminfo":
        assert f"{OURS}_subnet_managers" not in names(found)


class Cut(Tools):
    """Tools of which one ends as always, with a part of its answer."""

    def __init__(self, world: World, tool: str, share: float) -> None:
        super().__init__(world)
        self.tool, self.share = tool, share

    def __call__(self, argv, timeout_s=30, env=None) -> CommandResult:
        result = super().__call__(argv, timeout_s, env)
        if argv[0] != self.tool:
            return result
        if argv[0] == "ibnetdiscover":
            text = Path(argv[-1]).read_text()
            Path(argv[-1]).write_text(text[: int(len(text) * self.share)])
        return replace(result, out=result.out[: int(len(result.out) * self.share)])


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("ibnetdiscover", "the answer is cut off: the far end of"),
        ("ibqueryerrors", "the answer of ibqueryerrors has no end"),
    ],
)
def test_an_answer_that_is_not_whole_is_told(
    settings: Settings, world: World, tool: str, says: str
) -> None:
    found, problems = metrics(settings, Cut(world, tool, 0.6))
    assert [line for line in problems if line.startswith(says)]
    assert value(found, f"{OURS}_collector_ok") == 0
    assert [one for one in findings(found) if one["status"] == "fail"] == []


def test_a_silent_device_is_a_finding_of_a_whole_sweep(settings: Settings, world: World) -> None:
    world.silent.add(world.key_of["dgx-0003", 4])
    found, problems = metrics(settings, Tools(world))
    assert problems == []
    assert value(found, f"{OURS}_collector_ok") == 1
    assert [one["kind"] for one in findings(found)] == ["silent"]


def test_the_fabric_of_another_cluster_is_not_judged(settings: Settings, world: World) -> None:
    for number, device in enumerate(world.fabric.devices.values()):
        device.description = f"other{number} mlx5_0"
    found, problems = metrics(settings, Tools(world))
    assert "another" in problems[0]
    assert value(found, f"{OURS}_collector_ok") == 0
    assert f"{OURS}_cables" not in names(found)


def test_readings_are_kept_and_grow_old() -> None:
    reading = Reading(
        1000.0, {("a", 1): {"SymbolErrorCounter": 5}}, {("b", 0)}, True, left_out=True, asked={"a"}
    )
    data = json.loads(json.dumps(reading_to_data(reading)))
    assert reading_from_data(data, 1600.0) == replace(reading, complaints=[])
    # One that an earlier release kept.
    earlier = {name: item for name, item in data.items() if name != "asked"}
    assert reading_from_data(earlier, 1600.0) == replace(reading, asked=None)
    assert reading_from_data(data, 1001.0) is None
    assert reading_from_data(data, 900.0) is None
    assert reading_from_data(data, 1000.0 + 4 * 3600) is None
    for torn in (
        None,
        [],
        {},
        {**data, "ports": [["a"]]},
        {**data, "unread": 3},
        {**data, "asked": 3},
        {**data, "at_s": "x"},
    ):
        assert reading_from_data(torn, 1600.0) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "version"),
        ({"plan_file": 1}, "plan_file"),
        ({"metrics_file": "/x"}, "prom"),
        ({"colour": 1}, "colour"),
        ({"state_dir": None}, "state_dir"),
        ({"subnet_manager_provider": "x"}, "write opensm, ufm, switch"),
    ],
)
def test_settings_that_are_none(change: dict[str, object], says: str) -> None:
    data = {"version": 1, "plan_file": "/p", "metrics_file": "/x.prom", "state_dir": "/s", **change}
    with pytest.raises(ValueError, match=says):
        settings_from_data(data)


def test_main(
    settings: Settings,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "config.json"
    data = {
        "plan_file": settings.plan_file,
        "metrics_file": settings.metrics_file,
        "state_dir": settings.state_dir,
    }
    config.write_text(json.dumps({"version": 1, **data}))
    monkeypatch.setattr(_fabric_collector, "run", Tools(world))
    assert main(["--config", str(config), "--check-config"]) == 0
    assert not Path(settings.metrics_file).exists()
    assert main(["--config", str(config)]) == 0
    assert value(read(Path(settings.metrics_file).read_text()), f"{OURS}_collector_ok") == 1
    monkeypatch.setattr(_fabric_collector, "run", Cut(world, "ibqueryerrors", 0.6))
    assert main(["--config", str(config)]) == 3
    Path(settings.plan_file).write_text("{}")
    assert main(["--config", str(config), "--check-config"]) == 3
    Path(settings.plan_file).write_text("{")
    assert main(["--config", str(config), "--check-config"]) == 3
    assert f"fabric-metrics: {settings.plan_file}: not JSON: " in capsys.readouterr().err
