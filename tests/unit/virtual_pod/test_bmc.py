# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod's BMCs: their network, their place in the inventory, their faults, and their power."""

from __future__ import annotations

import shutil
import time
from types import SimpleNamespace

import pytest
import yaml
from checkout import ROOT
from redfish_server import PASSWORD, USER, V1, Bmc, certificate, serving

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.access import bmc_options
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.look import look
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.machine import machine
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.switch import Limits, switch

from .conftest import podlib

bmc = podlib("bmc")
server = podlib("bmc_server")
layout = podlib("layout")
POD = layout.resolve(layout.Request("demo", subnet="10.78.3.0/24", nodes=2), None)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


def described(port, pin):
    """A BMC as a module gets it, with what is not given by default."""
    options = bmc_options(1.0, 1.0)["bmcs"]["options"]
    defaults = {name: option.get("default") for name, option in options.items()}
    return {**defaults, "node": "dgx-01", "address": "127.0.0.1", "port": port, "user": USER,
            "password": PASSWORD, "certificate": pin, "system": "DGX"}  # fmt: skip


def test_the_page_names_each_fault():
    page = (ROOT / "docs/virtual_pod.md").read_text()
    for name, (check, title) in bmc.FAULTS.items():
        assert f"| `{name}` | {title} | `{check}`" in page


def test_bmcs_have_a_network_of_their_own_and_the_numbers_of_their_nodes():
    addresses = [bmc.address_of(POD, node) for node in bmc.machines_of(POD)]
    assert addresses == ["10.206.3.101", "10.206.3.102"]
    assert not bmc.bmc_network(POD).overlaps(layout.check_subnet(POD.subnet))


def test_the_inventory_names_them_once(tmp_path, monkeypatch):
    monkeypatch.setattr(bmc.nodes, "state_folder", lambda _name: tmp_path)
    assert not bmc.write_inventory(POD, "sha256:ab", "secret")
    shutil.copytree(ROOT / "inventories/virtual_pod", tmp_path / "inventory")
    texts = []
    for _time in range(2):
        assert bmc.write_inventory(POD, "sha256:ab", "secret")
        files = sorted((tmp_path / "inventory").rglob("*.yml"))
        texts.append([path.read_text() for path in files])
    assert texts[0] == texts[1]
    folder = tmp_path / "inventory/group_vars"
    cluster = yaml.safe_load((folder / "all/cluster.yml").read_text())
    assert cluster["cluster_networks"]["bmc"] == {"cidr": "10.206.3.0/24"}
    node = yaml.safe_load((folder / "gpu_nodes/node.yml").read_text())
    assert node["node_first_address"]["bmc"] == "10.206.3.101"
    path = folder / "gpu_nodes/bmc.yml"
    assert path.stat().st_mode & 0o777 == 0o600
    access = {"user": "dgx", "password": "secret", "certificate": "sha256:ab"}
    assert yaml.safe_load(path.read_text()) == {"node_bmc": access}


@pytest.mark.parametrize("fault", ["", *bmc.FAULTS])
def test_a_fault_fails_its_check_and_no_other(fault, tls):
    one = Bmc()
    server.break_it(one, fault)
    with serving(one, *tls[:2]) as port:
        asked = described(port, tls[2])
        params = {"bmcs": [asked], "at_once": 1, "each_s": 9, "total_s": 9, "timeout_s": 3,
                  "output": "", "log_folder": ""}  # fmt: skip
        records, _name = look(params, False)
        broken = {one.check for one in records if one.status != "pass"}
        if fault == "stays_on":
            limits = Limits(soft_s=0.1, change_s=0.1, poll_s=0.05)
            done = switch(lambda: machine(asked, 3), "off", limits)
            assert (done.power, "HTTP 400" in done.text) == (None, True)
            broken.add("bmc.switched")
    assert broken == ({bmc.FAULTS[fault][0]} if fault else set())


def test_the_power_is_that_of_the_container(monkeypatch):
    state, calls = {"now": "running"}, []

    def podman(*words, **_more):
        calls.append(words[:3])
        if words[0] == "stop":
            state["now"] = "exited"
        return SimpleNamespace(stdout=state["now"] + "\n", returncode=0)

    def start_again(_pod, node):
        calls.append(("start", node.name))
        state["now"] = "running"

    monkeypatch.setattr(server.host, "podman", podman)
    monkeypatch.setattr(server.nodes, "start_again", start_again)
    monkeypatch.setattr(server.gpus, "are_simulated", lambda _pod, _node: False)
    one = server.NodeBmc(POD, bmc.machines_of(POD)[1], PASSWORD)
    system, reset = f"{V1}/Systems/DGX", f"{V1}/Systems/DGX/Actions/ComputerSystem.Reset"

    def becomes(power):
        end = time.monotonic() + 5
        while one.answer(system, "")["PowerState"] != power:
            assert time.monotonic() < end
            time.sleep(0.01)

    becomes("On")
    assert one.post(reset, {"ResetType": "GracefulShutdown"}) == 204
    becomes("Off")
    assert one.post(reset, {"ResetType": "On"}) == 204
    becomes("On")
    assert one.post(reset, {"ResetType": "FullPowerCycle"}) == 204
    end = time.monotonic() + 5
    while calls.count(("start", "dgx-02")) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    stops = [words for words in calls if words[0] == "stop"]
    assert stops == [("stop", "--time", "60"), ("stop", "--time", "0")]
