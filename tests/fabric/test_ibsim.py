# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fault library on real tools: ibsim, opensm, infiniband-diags."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent)]

from world import World  # noqa: E402, I001
from role_render import by_path, render  # noqa: E402
import rates  # noqa: E402
from library import NAMES, build, fresh, healthy_world  # noqa: E402
from sim import LARGE, Sim, find, simulator  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._exporters.fabric import (  # noqa: E402
    Settings,
    collect,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import (  # noqa: E402
    Ask,
    ask_fabric,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import (  # noqa: E402
    Verdict,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (  # noqa: E402
    plan_to_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.judge import (  # noqa: E402
    inspect,
)
from fabric_netlist import (  # noqa: E402
    netlist_of,
    whole_links,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_discovery import (  # noqa: E402
    read_ibnetdiscover,
)


@pytest.fixture(scope="session", autouse=True)
def _simulator() -> None:
    """Find or fetch ibsim, opensm and infiniband-diags; without them every test is an error."""
    find()


# What the simulator can do, on small fabrics; the pure run has all of them on all fabrics.
ALONE = [
    ("basepod-12", name)
    for name in (
        "rail_missing", "uplink_dark", "rails_of_a_node_swapped", "nodes_on_a_leaf_swapped",
        "uplinks_of_a_leaf_swapped", "node_cable_swapped_with_uplink", "three_rails_in_turn",
        "all_rails_of_a_node_in_turn", "rail_in_the_port_of_a_pulled_one",
        "unplanned_host_in_the_port_of_a_rail", "two_nodes_exchanged",
        "node_plugged_as_an_absent_one", "rail_renamed", "node_renamed", "node_without_a_name",
        "node_with_a_foreign_name", "node_with_the_name_of_another", "leaf_with_a_foreign_name",
        "names_of_declared_nodes_exchanged", "duplicate_guid", "node_absent", "leaf_absent",
        "cage_of_a_node_dead", "cage_of_uplinks_dead", "rail_silent", "node_silent",
        "rail_at_one_lane", "uplink_at_two_lanes", "rail_at_hdr", "node_at_hdr",
        "symbol_errors_at_a_rail", "symbol_errors_at_both_ends", "link_went_down",
        "counter_that_stands_at_its_end", "counter_that_was_cleared", "no_subnet_manager",
        "standby_missing", "switches_without_names", "aggregation_nodes", "old_totals",
        "congestion", "kernel_names",
    )
] + [
    ("superpod-32-of-64", name)
    for name in (
        "two_leaves_exchanged", "spine_absent", "spine_silent", "uplinks_of_two_leaves_swapped",
        # A full fabric has no port free.
        "rail_in_a_free_port", "two_cables_moved_on", "unplanned_host_in_a_free_port",
        "node_that_is_not_in_the_plan", "switch_that_is_not_in_the_plan",
        "cable_between_two_free_ports", "a_host_that_is_known",
    )
]  # fmt: skip
TOGETHER = [
    ("basepod-12", ("rails_of_a_node_swapped", "node_absent")),
    ("basepod-12", ("rail_at_one_lane", "symbol_errors_at_both_ends")),
    ("superpod-32", ("two_nodes_exchanged", "uplinks_of_two_leaves_swapped")),
    ("superpod-32", ("cage_of_uplinks_dead", "rail_silent")),
    ("superpod-127", ("leaf_absent", "rails_of_a_node_swapped")),
]

# Ten faults at once each, with the names of other tools or none, and nodes that answer. None has
# two masters: real opensm settles that while a large fabric is swept.
RATED = (129, 185, 319)


def play(world: World, folder: Path) -> tuple[set, set]:
    """Break the simulated fabric as the world is broken, look at it, and judge."""
    sms = dict(world.sms)
    with simulator(folder, netlist_of(world.fabric), f"H-{world.start}", *LARGE) as sim:
        _start_sms(world, sim, sms)
        # Muteness and duplicates after the start: a subnet manager would never come up with them.
        for guid in sorted(world.silent):
            kind = "S" if world.fabric.devices[guid].kind == "switch" else "H"
            sim.console(f'Error "{kind}-{guid}" 100')
        for first, second in world.doubled:
            device = int(first, 16) - 1
            sim.console(f'Guid "H-{second}" 0x{device:016x}')
        _set(sim, world, world.before)
        waited = []

        def sleep(_seconds: float) -> None:
            waited.append(1)
            _set(sim, world, world.after)

        ask = Ask(interval_s=0.1, timeout_s=120)
        answers = ask_fabric(sim.run, ask, sleep)
        assert waited
        seen = answers.observation
        assert seen.before is not None
        assert seen.after is not None
        # The simulator's hour is not that of the world.
        seen.after.at_s = seen.before.at_s + 720
        verdict = world.judge_seen(seen)
    found = {(finding.kind, finding.subject) for finding in verdict.findings}
    unsure = {(finding.kind, finding.subject) for finding in verdict.doubts}
    if world.silent:
        # Questions to ports behind a silent device go through it: they are lost, too.
        unsure = {item for item in unsure if item[0] != "errors"}
    assert len(found) == len(verdict.findings)
    return found, unsure


def _start_sms(world: World, sim: Sim, sms: dict[str, str]) -> None:
    hosts = {host: f"H-{world.key_of[host, 0]}" for host in sms}
    if not sms and world.options.get("subnet_managers"):
        # There was one: ports keep their addresses.
        sim.start_opensm(f"H-{world.key_of[world.options['subnet_managers'][0], 0]}")
        sim.stop_opensm()
    for host, state in sms.items():
        if state == "MASTER":
            sim.start_opensm(hosts[host], "-p", "5")
    for host, state in sms.items():
        if state == "STANDBY":
            sim.start_opensm(hosts[host], "-p", "1", wait_for="STANDBY")


def _set(sim: Sim, world: World, values: dict) -> None:
    commands = []
    for (guid, number), counters in values.items():
        device = world.fabric.devices[guid]
        kind = "S" if device.kind == "switch" else "H"
        for name, value in counters.items():
            commands.append(f'PerformanceSet "{kind}-{guid}"[{number}] PortCounters.{name}={value}')
    if commands:
        sim.console(*commands)


WITHOUT_A_PLAN = [
    ("basepod-12", "rails_of_a_node_swapped"),
    ("basepod-12", "nodes_on_a_leaf_swapped"),
    ("basepod-12", "two_nodes_exchanged"),
    ("basepod-12", "rail_at_hdr"),
    ("superpod-32-of-64", "uplink_dark"),
    ("superpod-32-of-64", "rail_in_a_free_port"),
    ("superpod-32-of-64", "node_silent"),
]


@pytest.mark.parametrize(("size", "name"), WITHOUT_A_PLAN)
def test_one_fault_without_a_plan(size: str, name: str, tmp_path: Path) -> None:
    case = build(size, (name,), 0)
    verdict = unplanned(case.world, tmp_path / "sim")
    assert {(finding.kind, finding.subject) for finding in verdict.findings} == case.expected


@pytest.mark.parametrize("size", ["basepod-12", "superpod-32-of-64"])
def test_a_healthy_fabric_without_a_plan(size: str, tmp_path: Path) -> None:
    verdict = unplanned(healthy_world(size), tmp_path / "sim")
    assert (verdict.findings, verdict.doubts, verdict.complaints) == ([], [], [])


def unplanned(world: World, folder: Path) -> Verdict:
    """Look at the simulated fabric, and judge it without its plan."""
    with simulator(folder, netlist_of(world.fabric), f"H-{world.start}", *LARGE) as sim:
        _start_sms(world, sim, dict(world.sms))
        for guid in sorted(world.silent):
            sim.console(f'Error "H-{guid}" 100')
        return inspect(ask_fabric(sim.run, Ask(timeout_s=120)).observation)


@pytest.mark.parametrize("size", ["basepod-12", "superpod-32", "superpod-127"])
def test_a_healthy_fabric_has_no_finding(size: str, tmp_path: Path) -> None:
    case = build(size, ("old_totals",), 0)
    assert play(case.world, tmp_path / "sim") == (set(), set())


@pytest.mark.parametrize(("size", "name"), ALONE)
def test_one_fault(size: str, name: str, tmp_path: Path) -> None:
    case = build(size, (name,), 0)
    assert play(case.world, tmp_path / "sim") == (case.expected, case.doubts)


@pytest.mark.parametrize(("size", "names"), TOGETHER)
def test_two_faults(size: str, names: tuple[str, ...], tmp_path: Path) -> None:
    case = build(size, names, 0)
    assert play(case.world, tmp_path / "sim") == (case.expected, case.doubts)


@pytest.mark.parametrize("number", RATED)
def test_fabrics_of_the_rates(number: int, tmp_path: Path) -> None:
    fabric = rates.broken(number)
    due = set().union(*(one.findings for one in fabric.done))
    assert len(due) >= 4
    found, _unsure = play(fabric.world, tmp_path / "sim")
    names = {item for item in found if fabric.rate.form != "planned" and item[0] in NAMES}
    assert found - names == due


@pytest.mark.parametrize(
    "name",
    [
        "small-topo.txt", "hdr-cs8500-faked.txt", "edr-osc-p-test.out", "selene-storage-hdr.txt",
        "azure-director-cs8500-hdr.txt", "selene-compute-hdr.txt",
    ],
)  # fmt: skip
def test_a_capture_goes_through_the_simulator_and_comes_back(
    name: str, captures: Path, tmp_path: Path
) -> None:
    path = captures / "ibnetdiscover" / name
    with path.open(newline="", errors="replace") as handle:
        sweep = largest_part(whole_links(read_ibnetdiscover(handle.read())))
    host = next(g for g, device in sweep.devices.items() if device.kind == "ca")
    with simulator(tmp_path / "sim", netlist_of(sweep), f"H-{host}", *LARGE) as sim:
        result = sim.run(["ibnetdiscover"], timeout_s=120)
    back = read_ibnetdiscover(result.out)
    assert back.complaints == []
    assert set(back.devices) == set(sweep.devices)
    assert back.links() == sweep.links()
    for guid, device in sweep.devices.items():
        assert back.devices[guid].description.strip() == device.description[:63].strip()
        for number, port in device.ports.items():
            there = back.devices[guid].ports[number]
            assert (there.width, there.speed) == (port.width, port.speed), device.description


def largest_part(sweep):
    """What hangs together: the far part of a cut capture cannot be reached at all."""
    left, best = set(sweep.devices), set()
    while left:
        part, queue = set(), [left.pop()]
        while queue:
            guid = queue.pop()
            if guid in part:
                continue
            part.add(guid)
            queue += [port.peer[0] for port in sweep.devices[guid].ports.values() if port.peer]
        left -= part
        best = max(best, part, key=len)
    sweep.devices = {guid: device for guid, device in sweep.devices.items() if guid in best}
    return sweep


@pytest.mark.parametrize("name", ["old_totals", "rail_silent"])
def test_the_exporter_tells_whole_sweeps(name: str, tmp_path: Path) -> None:
    """Neither what the tools print of a healthy fabric nor a silent device is a broken sweep."""
    world = build("basepod-12", (name,), 0).world
    plan = tmp_path / "cables.json"
    plan.write_text(json.dumps(plan_to_data(world.plan)))
    settings = Settings(str(plan), str(tmp_path / "fabric.prom"), str(tmp_path))
    with simulator(tmp_path / "sim", netlist_of(world.fabric), f"H-{world.start}", *LARGE) as sim:
        _start_sms(world, sim, dict(world.sms))
        for guid in sorted(world.silent):
            sim.console(f'Error "H-{guid}" 100')
        text, problems = collect(settings, sim.run)
    assert problems == []
    assert "baremetal_dgx_fabric_collector_ok 1\n" in text


def test_a_fabric_without_any_manager_is_still_judged(tmp_path: Path) -> None:
    world = fresh("basepod-12")
    world.sms = {}
    world.options = {}
    world.start = world.key_of["dgx-0001", 0]
    # No port has an address that a question could go to.
    assert play(world, tmp_path / "sim") == ({("no_sm", "fabric")}, {("errors", "fabric")})


def test_a_partition_of_a_thousand_ports_reaches_the_last(tmp_path: Path) -> None:
    """One line for all of them is more than opensm reads; then it takes no partition at all."""
    world = fresh("basepod-12")
    member, other, manager = (world.key_of[f"dgx-{n:04}", 0] for n in (1, 2, 3))
    (port,) = (port for port in world.fabric.devices[member].ports.values() if port.peer)
    absent = [f"0x{0xA088C20300000000 + number:016x}" for number in range(1015)]
    tenant = {
        "name": "tenant",
        "pkey": "0x0010",
        "full": [*absent, port.guid or member],
        "limited": ["ALL_CAS"],
    }
    (tmp_path / "render").mkdir()
    inputs = {"subnet_manager_hosts": ["dgx-01"], "subnet_manager_partitions": [tenant]}
    only = {"files": "__subnet_manager_files"}
    rendered = render(tmp_path / "render", "subnet_manager", "Debian", inputs, only)
    partitions = by_path(rendered["files"])["/etc/opensm/baremetal-dgx-partitions.conf"]
    (tmp_path / "partitions").write_text(partitions["content"])
    with simulator(tmp_path / "sim", netlist_of(world.fabric), f"H-{manager}", *LARGE) as sim:
        sim.start_opensm(f"H-{manager}", "-P", str(tmp_path / "partitions"))
        keys = {
            guid: sim.run(["smpquery", "-D", "pkeys", "0"], env={"SIM_HOST": f"H-{guid}"}).out
            for guid in (member, other)
        }
    assert "0x8010" in keys[member]
    assert "0x0010" in keys[other]
