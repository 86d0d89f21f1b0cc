# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ufm_topology against a model of UFM's ports, and its file judged by fabric_verify."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from library import build, fresh
from ufm_server import PASSWORD, USER, UfmModel, certificate, serving
from world import World

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    PASS,
    Record,
    utc_text,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    SWITCH,
    Sweep,
    plan_to_data,
)
from ansible_collections.baremetal.dgx.plugins.modules import fabric_verify, ufm_topology
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (
    gate_verdicts,
)


def ports_of(seen: Sweep) -> list[dict[str, Any]]:
    """The ports of a fabric as UFM lists them: an adapter goes by the GUID of its port."""

    def label(guid: str, number: int) -> str:
        device = seen.devices[guid]
        name = device.description.strip()
        return f"{name}:1/{number}/1" if device.kind == SWITCH else name

    def name(guid: str, number: int) -> str:
        device = seen.devices[guid]
        own = guid if device.kind == SWITCH else device.ports[number].guid
        return f"{own}_{number}"

    ports = []
    for guid, device in seen.devices.items():
        for number, port in device.ports.items():
            if port.peer is not None:
                kind = "Switch" if device.kind == SWITCH else "Computer"
                ports.append(
                    {
                        "name": name(guid, number),
                        "number": number,
                        "description": f"{kind} IB Port",
                        "lid": device.lid or 0,
                        "system_name": device.description.strip().split()[0],
                        "node_description": label(guid, number),
                        "active_width": port.width,
                        "active_speed": port.speed,
                        "peer": name(*port.peer),
                        "peer_lid": seen.devices[port.peer[0]].lid or 0,
                        "peer_node_description": label(*port.peer),
                    }
                )
    # Without a cable, as UFM writes it.
    idle = {"peer": "N/A", "active_width": None, "active_speed": None}
    return [*ports, {**ports[0], **idle, "name": "0002c90300000001_60"}]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def read(run_module, files, tmp_path):
    def read(model: UfmModel, **params: Any) -> dict[str, Any]:
        with serving(model, *files) as url:
            given = {
                "url": url, "ca_certificate": files[1].read_text(), "username": USER,
                "password": PASSWORD, "dest": str(tmp_path / "ufm.txt"),
            }  # fmt: skip
            return run_module(ufm_topology.main, {**given, **params}, False)

    return read


@pytest.fixture
def judged(run_module, read, tmp_path):
    """The answer of fabric_verify for a fabric that UFM alone has seen."""

    def judged(world: World) -> dict[str, Any]:
        model = UfmModel()
        model.ports = ports_of(world.fabric)
        answer = read(model)
        assert answer.get("failed") is None, answer["msg"]
        assert (answer["changed"], answer["release"]) == (False, "6.15.1-4")
        given = {
            "plan": plan_to_data(world.plan),
            "sweep_files": {"ibnetdiscover": str(tmp_path / "ufm.txt")},
            "sweep_at": answer["at"],
            "output": str(tmp_path / "out"),
            "subnet_manager_provider": "ufm",
            "adapters": world.adapters,
            "fail_on": [],
        }
        return run_module(fabric_verify.main, given, False)

    return judged


def test_a_healthy_fabric_has_every_cable(judged):
    answer = judged(fresh("basepod-12"))
    assert answer["causes"] == []
    assert answer["summary"]["cables"] == {"pass": 112, "fail": 0, "not_measured": 0}
    assert answer["information"] == ["the subnet managers were not looked for"]


@pytest.mark.parametrize(
    "fault", ["rails_of_a_node_swapped", "rail_at_hdr", "node_at_hdr", "uplink_at_two_lanes"]
)
def test_a_fault_is_named_as_by_a_sweep(judged, fault):
    case = build("basepod-12", (fault,), 1)
    answer = judged(case.world)
    assert {(found["kind"], found["subject"]) for found in answer["causes"]} == case.expected


@pytest.mark.parametrize(("fault", "verdict"), [((), "pass"), (("rail_at_hdr",), "fail")])
def test_the_gate_goes_by_it(judged, tmp_path, fault, verdict):
    case = build("basepod-12", fault, 1)
    before = utc_text()
    judged(case.world)
    data = json.loads((tmp_path / "out/records.json").read_text())
    nodes = sorted({host for host, _rail in case.world.plan.hcas})
    files = []
    for node in nodes:
        own = Record("gpu.ecc", f"gpu:{node}/0", PASS, at=utc_text())
        files.append((node, {"version": 1, "node": node, "records": [own.as_data()]}))
    found = gate_verdicts(files, data["records"], [], True, findings=data["findings"])
    assert min(one["at"] for one in found) >= before
    assert {one["verdict"] for one in found} == {"pass", verdict}


def test_the_password_is_in_no_file(read, tmp_path):
    model = UfmModel()
    model.ports = ports_of(fresh("basepod-12").fabric)
    assert read(model)["links"] == 112
    assert os.listdir(tmp_path) == ["ufm.txt"]
    assert PASSWORD not in (tmp_path / "ufm.txt").read_text()


@pytest.mark.parametrize("speed", ["", None, "N/A"])
def test_a_link_that_is_training_has_no_line(read, speed):
    model = UfmModel()
    model.ports = ports_of(fresh("basepod-12").fabric)
    for port in model.ports:
        if model.ports[0]["name"] in (port["name"], port["peer"]):
            port["active_speed"] = speed
    assert read(model)["links"] == 111


def test_a_blank_speed_is_an_error(read, tmp_path):
    model = UfmModel()
    model.ports = ports_of(fresh("basepod-12").fabric)
    model.ports[0]["active_speed"] = " "
    answer = read(model)
    assert answer["failed"]
    assert "not as documented: ValueError(\"active_speed ' ' is not like NDR\")" in answer["msg"]
    assert not (tmp_path / "ufm.txt").exists()


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ([], "UFM knows no active link"),
        ({"error": "x"}, "not as documented"),
        ([{"name": "port-1"}], "'port-1' is not GUID_NUMBER"),
        ([{"name": "0002c90300000001_1", "peer": "0002c90300000002_1", "active_width": "4x"}],
         "not as documented: KeyError"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_is_an_error(read, tmp_path, ports, words):
    model = UfmModel()
    model.ports = ports
    answer = read(model)
    assert answer["failed"]
    assert words in answer["msg"]
    assert not (tmp_path / "ufm.txt").exists()
