# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cable_plans import plan_data

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CablePlan,
    rail_end,
    switch_end,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.netlist import (
    hca_description,
    hca_guid,
    made_up_guid,
    netlist,
    node_name_map,
    switch_description,
    switch_guid,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import plan_cables

_DEVICE = re.compile(r'(Ca|Switch) (\d+) "([HS]-[0-9a-f]{16})"\t# "([^"]+)"( enhanced port 0 .*)?')
_CABLE = re.compile(
    r'\[(\d+)\](\([0-9a-f]{16}\))?\t"([HS]-[0-9a-f]{16})"\[(\d+)\](\([0-9a-f]{16}\))?'
    r'\t\t# (lid 0 lmc 0 )?"([^"]+)" lid 0 4x([A-Z]DR)'
)


@dataclass
class Read:
    """What a netlist says: descriptions by identity, and both ends and the speed of each line."""

    names: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    lines: list[tuple[str, int, str, int, str]] = field(default_factory=list)


def read(text: str) -> Read:
    found = Read()
    for record in text.split("\n\n")[1:]:
        values = dict(re.findall(r"^(\w+)=0x([0-9a-f]+)", record, re.MULTILINE))
        lines = [line for line in record.splitlines() if "=" not in line]
        head = _DEVICE.fullmatch(lines[0])
        assert head, lines[0]
        kind, count, identity, name, _tail = head.groups()
        assert values["caguid" if kind == "Ca" else "switchguid"] == identity[2:]
        assert values["sysimgguid"] == identity[2:]
        assert values["vendid"] == "2c9"
        assert identity not in found.names
        found.names[identity] = name
        found.ports[identity] = int(count)
        for line in lines[1:]:
            match = _CABLE.fullmatch(line)
            assert match, line
            port, _guid, other, other_port, _other_guid, _lid, _name, speed = match.groups()
            found.lines.append((identity, int(port), other, int(other_port), speed))
    for _own, _port, other, _other_port, _speed in found.lines:
        assert other in found.names
    return found


def ends(plan: CablePlan, found: Read) -> set[tuple[object, object, str]]:
    """The cables of a netlist in the words of the plan, each from both sides."""
    of_name: dict[str, tuple[str, int]] = {
        hca_description(hca): key for key, hca in plan.hcas.items()
    }
    of_name.update({name: (name, -1) for name in plan.switches})

    def end(identity: str, port: int) -> object:
        host, rail = of_name[found.names[identity]]
        return switch_end(host, port) if rail < 0 else rail_end(host, rail)

    return {(end(a, p), end(b, q), speed) for a, p, b, q, speed in found.lines}


@pytest.mark.parametrize(
    "data",
    [
        plan_data(4),
        plan_data(12, rail_groups="even_odd"),
        plan_data(31, (8, 4), ufm_unit=1),
        plan_data(95, (24, 16)),
        plan_data([5], (128, 128, 64)),
        plan_data(6, (2, 1), rails=2),
    ],
    ids=["basepod", "even_odd", "1_su", "3_su", "three_tiers", "two_rails"],
)
def test_a_netlist_says_what_the_plan_says(data: dict[str, object]) -> None:
    plan = plan_cables(data)
    found = read(netlist(plan))
    assert len(found.names) == len(plan.hcas) + len(plan.switches)
    assert len(found.lines) == 2 * len(plan.cables)
    wanted = {(cable.a, cable.b, "NDR") for cable in plan.cables}
    wanted |= {(cable.b, cable.a, "NDR") for cable in plan.cables}
    assert ends(plan, found) == wanted


def test_made_up_guids() -> None:
    plan = plan_cables(plan_data(1024, (256, 256, 128)))
    guids = [hca_guid(hca) for hca in plan.hcas.values()]
    guids += [switch_guid(switch) for switch in plan.switches.values()]
    assert len(guids) == len(set(guids)) == 8192 + 640
    assert all(re.fullmatch("02d6[0-9a-f]{12}", guid) for guid in guids if guid[:2] != "94")
    # The same on every day and machine: a netlist may be kept beside a recorded sweep.
    assert made_up_guid("leaf-01") == "02d622e03a48976e"


def test_known_guids_win() -> None:
    data = plan_data(2, switch_guids={"leaf-002": "0xfc6a1c0301000040"})
    plan = plan_cables(data)
    text = netlist(plan)
    assert 'Switch 64 "S-fc6a1c0301000040"\t# "leaf-002"' in text
    assert 'Ca 1 "H-946dae0300a1b2c3"\t# "dgx-0001 mlx5_rail3"' in text
    assert "[1](946dae0300a1b2c4)" in text
    assert node_name_map(plan).splitlines()[1:] == [
        '0xfc6a1c0301000040 "leaf-002"',
        '0x946dae0300a1b2c3 "dgx-0001 mlx5_rail3"',
    ]


def test_speeds_and_devices() -> None:
    data = plan_data(1)
    data["profiles"]["dgx"]["link_rate_gbps"] = 200
    text = netlist(plan_cables(data))
    assert text.count("4xHDR") == 2 * 8
    assert text.count("4xNDR") == 2 * 4
    assert text.count("devid=0x101b") == 8
    # ibsim knows no XDR.
    fast = plan_data(1, rate_gbps=800)
    fast["profiles"]["dgx"]["link_rate_gbps"] = 800
    assert "XDR" not in netlist(plan_cables(fast))


def test_a_port_without_a_cable_has_no_line() -> None:
    plan = plan_cables(plan_data(2))
    without = replace(plan, cables=plan.cables[1:])
    found = read(netlist(without))
    assert len(found.names) == 16 + 2
    assert len(found.lines) == 2 * (len(plan.cables) - 1)


def test_descriptions() -> None:
    plan = plan_cables(plan_data(2))
    leaf = plan.switches["leaf-001"]
    assert switch_description(leaf) == "leaf-001"
    assert switch_description(leaf, managed=True) == "MF0;leaf-001:MQM9700/U1"
    assert '# "MF0;leaf-001:MQM9700/U1" enhanced port 0' in netlist(plan, managed=True)
    long = plan_data(1)
    long["nodes"][0]["name"] = "n" * 63
    descriptions = read(netlist(plan_cables(long))).names.values()
    assert max(map(len, descriptions)) == 63


def _ibsim() -> str:
    """The simulator to load the netlist with: IBSIM, or that of the PATH."""
    found = os.environ.get("IBSIM") or shutil.which("ibsim")
    if not found:
        pytest.skip("ibsim is not installed")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "data", [plan_data(12), plan_data(31, (8, 4), ufm_unit=1)], ids=["basepod", "superpod"]
)
def test_ibsim_loads_it(data: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "ibsim.net"
    file.write_text(netlist(plan_cables(data)), encoding="utf-8")
    done = subprocess.run(
        [_ibsim(), str(file)],
        input="Dump\nQuit\n",
        env={**os.environ, "IBSIM_SOCKNAME": f"netlist-{os.getpid()}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Network simulator ready" in done.stdout
    plan = plan_cables(data)
    names = {"H-" + hca_guid(hca): key for key, hca in plan.hcas.items()}
    names.update({"S-" + switch_guid(item): (name, -1) for name, item in plan.switches.items()})
    loaded = set()
    own = ("", 0)
    for line in done.stdout.splitlines():
        head = re.match(r'(?:Hca|Ca|Switch) \d+ "([HS]-[0-9a-f]{16})"', line)
        port = re.match(
            r'[0-9a-f]+\t\[(\d+)\]\t"([HS]-[0-9a-f]{16})"\[(\d+)\]\t .*4x +([\d.]+)G', line
        )
        if head:
            own = names[head[1]]
        elif port:
            loaded.add((*own, int(port[1]), *names[port[2]], int(port[3])))
            # 2.5 is what ibsim 0.10 makes of NDR, with a complaint for each line.
            assert float(port[4]) == (2.5 if "invalid speed" in done.stderr else 100.0)
    wanted = {
        (one.host, one.rail, one.port, two.host, two.rail, two.port)
        for cable in plan.cables
        for one, two in ((cable.a, cable.b), (cable.b, cable.a))
    }
    assert loaded == wanted
