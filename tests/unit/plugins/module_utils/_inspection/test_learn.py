# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fabric that is swept as planned teaches its own plan; one that is not whole teaches none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cable_plans import plan_data

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.cable_lists import cables_csv
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.match import match
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CA,
    SWITCH,
    CablePlan,
    End,
    FoundDevice,
    FoundPort,
    Sweep,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.parse_discovery import (
    read_ibnetdiscover,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.learn import learn_plan
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import read_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.netlist import (
    hca_description,
    hca_guid,
    netlist,
    switch_guid,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (
    plan_cables,
    plan_devices,
)

Names = dict[str, tuple[str, int]]


def swept(plan: CablePlan) -> tuple[Sweep, Names]:
    """What a sweep of the planned fabric finds, and which device is which."""
    sweep = Sweep()
    guid_of: dict[tuple[str, int], str] = {}
    for key, hca in plan.hcas.items():
        guid_of[key] = hca_guid(hca)
        sweep.devices[guid_of[key]] = FoundDevice(guid_of[key], CA, hca_description(hca), 1)
    for name, switch in plan.switches.items():
        guid_of[name, -1] = switch_guid(switch)
        # One more port than cables can take: the aggregation node of a managed switch.
        found = FoundDevice(switch_guid(switch), SWITCH, name, switch.radix + 1)
        sweep.devices[found.guid] = found
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            other = cable.other(end)
            port = FoundPort(end.port, width="4x", speed="NDR")
            port.peer = (guid_of[other.host, other.rail], other.port)
            sweep.devices[guid_of[end.host, end.rail]].ports[end.port] = port
    return sweep, {guid: key for key, guid in guid_of.items()}


def join(sweep: Sweep, guid: str, port: int, other: FoundDevice, other_port: int) -> None:
    """Plug an unplanned device into a port."""
    sweep.devices[other.guid] = other
    other.ports[other_port] = FoundPort(other_port, peer=(guid, port))
    sweep.devices[guid].ports[port] = FoundPort(port, peer=(other.guid, other_port))


@pytest.mark.parametrize("data", [plan_data(4), plan_data(31, (8, 4))], ids=["basepod", "superpod"])
def test_what_is_swept_becomes_the_reference(data: dict[str, object]) -> None:
    plan = plan_cables(data)
    sweep, names = swept(plan)
    learned = learn_plan(plan_devices(data), sweep, names)
    assert learned.problems == ()
    assert learned.notes == ()
    assert learned.plan is not None
    assert set(learned.plan.cables) == set(plan.cables)
    nodes = [cable.a for cable in learned.plan.cables if not cable.a.is_switch]
    assert nodes == sorted(nodes)
    # GUIDs are learned along with the cables, so that a device is known again under any name.
    assert all(hca.guid == hca_guid(plan.hcas[key]) for key, hca in learned.plan.hcas.items())
    text = cables_csv(learned.plan, {})
    again, problems = read_cables(plan_devices(data), text.encode(), "learned.csv")
    assert problems == []
    assert again == learned.plan


def test_from_a_netlist_through_the_reader_back_to_the_plan() -> None:
    """What is written for the simulator, read as a sweep and learned, is the plan again."""
    data = plan_data(31, (8, 4), ufm_unit=1)
    plan = plan_cables(data)
    sweep = read_ibnetdiscover(netlist(plan))
    matches = match(plan_devices(data), sweep)
    learned = learn_plan(plan_devices(data), sweep, matches.by_guid)
    assert learned.problems == ()
    assert learned.plan is not None
    assert set(learned.plan.cables) == set(plan.cables)


def test_a_slow_link_does_not_become_the_threshold() -> None:
    data = plan_data(2)
    sweep, names = swept(plan_cables(data))
    for device in sweep.devices.values():
        for port in device.ports.values():
            port.width, port.speed = "1x", "SDR"
    learned = learn_plan(plan_devices(data), sweep, names)
    assert learned.plan is not None
    assert {cable.rate_gbps for cable in learned.plan.cables} == {400}


def test_an_unplanned_device_keeps_its_port() -> None:
    data = plan_data(2)
    plan = plan_cables(data)
    sweep, names = swept(plan)
    leaf = switch_guid(plan.switches["leaf-001"])
    join(sweep, leaf, 40, FoundDevice("0c42a10300000001", CA, "ufm-01 mlx5_0", 1), 1)
    join(sweep, leaf, 65, FoundDevice("0c42a10300000002", CA, "Aggregation Node", 1), 1)
    learned = learn_plan(plan_devices(data), sweep, names)
    assert learned.problems == ()
    assert learned.notes == (
        ("leaf-001/40 is kept for 'ufm-01 mlx5_0' (0c42a10300000001), none of the inventory's"),
    )
    assert learned.plan is not None
    assert learned.plan.reserved == (End("leaf-001", -1, 40),)


def test_what_is_not_whole_teaches_nothing() -> None:
    data = plan_data(2)
    plan = plan_cables(data)
    devices = plan_devices(data)

    sweep, names = swept(plan)
    sweep.complaints.append("ibnetdiscover ended with 1")
    learned = learn_plan(devices, sweep, names)
    assert learned.plan is None
    assert learned.problems == ("the sweep is not whole: ibnetdiscover ended with 1",)

    sweep, names = swept(plan)
    sweep.silent.append((1, 17))
    sweep.duplicate_guids.append("946dae0300a1b2c3")
    learned = learn_plan(devices, sweep, names)
    assert learned.plan is None
    assert learned.problems == (
        "something at the directed route 0,1,17 does not answer; repair it",
        "more than one port claims the GUID 946dae0300a1b2c3; correct one of them",
    )

    dark = replace(plan, cables=plan.cables[:3] + plan.cables[4:])
    learned = learn_plan(devices, *swept(dark))
    assert learned.plan is None
    assert learned.problems == ("rail 3 of dgx-0001 has no cable; repair it, then sweep again",)

    sweep, names = swept(plan)
    gone = switch_guid(plan.switches["leaf-002"])
    del names[gone]
    learned = learn_plan(devices, sweep, names)
    assert learned.plan is None
    assert (
        "switch leaf-002 is not in the sweep; repair it, or leave it out of the inventory"
        in learned.problems
    )

    sweep, names = swept(plan)
    first, second = hca_guid(plan.hcas["dgx-0001", 0]), hca_guid(plan.hcas["dgx-0001", 1])
    names[second] = names[first]
    learned = learn_plan(devices, sweep, names)
    assert learned.plan is None
    assert "tell them apart by their GUIDs" in learned.problems[0]
