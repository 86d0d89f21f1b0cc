# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""power as a whole: a scontrol of the test's own, and simulated BMCs over TLS."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from redfish_server import PASSWORD, USER, V1, Bmc, certificate, serving

sys.path.insert(0, str(Path(__file__).parent))

from test_upgrade_nodes import NODES, SCONTROL, Site

SYSTEM = f"{V1}/Systems/DGX"
# What slurm_node_hold needs beside nodes: reservations, each noted.
HOLDS = """\
elif words[:2] == ["show", "partition"] or words == ["--version"]:
    pass
elif words[:2] == ["show", "config"]:
    print("SlurmdPort              = 1")
elif words[:2] == ["show", "reservation"]:
    for name, node in json.load(open("{folder}/reserved.json")).items():
        print(f"ReservationName={{name}} StartTime=2026-11-21T09:00:00 EndTime=x Nodes={{node}} x")
elif words[0] in ("create", "delete"):
    kept = json.load(open("{folder}/reserved.json"))
    given = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    if words[0] == "create":
        kept[given["ReservationName"]] = given["Nodes"]
    else:
        del kept[given["ReservationName"]]
    json.dump(kept, open("{folder}/reserved.json", "w"))
    with open("{folder}/holds", "a") as notes:
        print(words[0], given.get("Nodes", ""), file=notes)
elif words[0] == "update":
"""


class Machines:
    """The stand-in site, with a BMC for each of its nodes."""

    def __init__(self, site: Site, stack: contextlib.ExitStack) -> None:
        self.site = site
        self.bmcs = {name: Bmc() for name in NODES}
        # Where the nodes' slurmd would listen.
        self.slurmds = {
            name: stack.enter_context(socket.create_server((f"127.0.0.{number}", 0)))
            for number, name in enumerate(NODES, start=1)
        }
        places = {name: one.getsockname() for name, one in self.slurmds.items()}
        (site.folder / "slurmds.json").write_text(json.dumps(places))
        tls = site.folder / "tls"
        tls.mkdir()
        key, cert, pin = certificate(tls)
        path = site.folder / "hosts.yml"
        data = yaml.safe_load(path.read_text())
        cluster = data["all"]["children"]["cluster"]
        cluster["vars"]["cluster_networks"]["bmc"] = {"cidr": "127.0.0.0/24"}
        for number, (name, bmc) in enumerate(self.bmcs.items(), start=1):
            port = stack.enter_context(serving(bmc, key, cert, f"127.0.0.{number}"))
            cluster["children"]["gpu_nodes"]["hosts"][name] = {
                "node_address": {"bmc": f"127.0.0.{number}"},
                "node_bmc": {"user": USER, "password": PASSWORD, "certificate": pin, "port": port},
            }
        path.write_text(yaml.safe_dump(data))
        scontrol = SCONTROL.replace('== "RESUME"', 'in ("RESUME", "UNDRAIN")')
        scontrol = scontrol.replace('elif words[0] == "update":\n', HOLDS).replace(
            "for name, (state, reason) in nodes.items():",
            "for name, (state, reason) in nodes.items():\n"
            "        if words[2:] and words[2] != '-o' and words[2] != name:\n"
            "            continue\n"
            '        address, port = json.load(open("{folder}/slurmds.json"))[name]',
        )
        scontrol = scontrol.replace(" State=", " NodeAddr={{address}} Port={{port}} State=")
        text = scontrol.format(python=sys.executable, folder=site.folder)
        (site.folder / "bin" / "scontrol").write_text(text)
        (site.folder / "reserved.json").write_text("{}")

    def options(self, more: dict[str, object]) -> dict[str, object]:
        return {"power_lock_folder": str(self.site.folder / "locks"), "power_soft_s": 1,
                "power_share": 0.5, **more}  # fmt: skip

    def run(self, *arguments: str, **more: object) -> tuple[int, str]:
        rc, output = self.site.run(*arguments, playbook="power", **self.options(more))
        assert PASSWORD not in output
        assert self.reserved == {}
        assert not list((self.site.folder / "locks").glob("*.json"))
        return rc, output

    @property
    def reserved(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.site.folder / "reserved.json").read_text())
        return found

    def reserve(self, name: str) -> None:
        """What a run of another control machine does."""
        kept = {f"dgx-validate_laptop2-ab12cd34_{name}": name}
        (self.site.folder / "reserved.json").write_text(json.dumps(kept))

    @property
    def power(self) -> list[str]:
        return [bmc.tree[SYSTEM]["PowerState"] for bmc in self.bmcs.values()]

    @property
    def holds(self) -> list[str]:
        path = self.site.folder / "holds"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with contextlib.ExitStack() as stack:
        yield Machines(Site(tmp_path), stack)


def test_a_cycle_needs_consent_takes_out_and_brings_back(machines: Machines) -> None:
    rc, output = machines.run("--check", power="cycle", target="dgx-02:dgx-03")
    assert rc == 0, output
    assert "cycle: dgx-02, dgx-03" in output
    rc, output = machines.run(power="cycle", target="dgx-02:dgx-03")
    assert rc != 0
    assert "power_allowed: is not given, and cycle interrupts dgx-02, dgx-03" in output
    assert machines.holds == machines.site.serving == []
    rc, output = machines.run(power="cycle", target="dgx-02:dgx-03", power_allowed=True)
    assert rc == 0, output
    acts = [bmc.acts for bmc in machines.bmcs.values()]
    assert acts == [[], ["GracefulShutdown", "On"], ["GracefulShutdown", "On"], []]
    assert machines.power == ["On"] * 4
    assert sorted(machines.holds[:2]) == ["create dgx-02", "create dgx-03"]
    assert min(machines.site.serving) == 2
    assert all(node == ["IDLE", ""] for node in machines.site.slurm.values())
    assert all(bmc.sessions == set() for bmc in machines.bmcs.values())


def test_off_stays_out_until_on(machines: Machines) -> None:
    # Its firmware is half written, or waits for a cycle: that it is On proves nothing.
    flashed = ["IDLE+DRAIN", "dgx-firmware: update"]
    machines.site.set_slurm({**machines.site.slurm, "dgx-02": flashed})
    rc, output = machines.run(power="off", target="dgx-01", power_allowed=True)
    assert rc == 0, output
    assert machines.power == ["Off", "On", "On", "On"]
    assert machines.site.slurm["dgx-01"] == ["IDLE+DRAIN", "dgx-power: off"]
    # Off already: nothing is done, and no consent is needed.
    rc, output = machines.run(power="off", target="dgx-01")
    assert rc == 0, output
    rc, output = machines.run("--check", power="on")
    assert rc == 0, output
    assert machines.power[0] == "Off"
    rc, output = machines.run(power="on")
    assert rc == 0, output
    assert machines.power == ["On"] * 4
    assert machines.site.slurm["dgx-01"] == ["IDLE", ""]
    assert machines.site.slurm["dgx-02"] == flashed


def test_jobs_the_share_and_others_drains_are_respected(machines: Machines) -> None:
    nodes = {"dgx-01": ["MIXED", ""], "dgx-02": ["IDLE+DRAIN", "broken fan"],
             "dgx-03": ["IDLE", ""], "dgx-04": ["IDLE", ""]}  # fmt: skip
    machines.site.set_slurm(nodes)
    target = "dgx-01:dgx-02:dgx-03"
    rc, output = machines.run(power="cycle", power_share=0.25, power_allowed=True, target=target)
    assert rc != 0
    assert "not switched: it has jobs: MIXED" in output
    assert [bool(bmc.acts) for bmc in machines.bmcs.values()] == [False, True, True, False]
    # What others have drained is cycled, and stays theirs.
    assert machines.site.slurm == nodes
    rc, output = machines.run(power="off", power_share=0.25, power_allowed=True)
    assert rc != 0
    assert "not switched: 1 of 4 nodes are out for this, and 1 may be" in output
    assert machines.power == ["On", "Off", "Off", "On"]


def test_a_fleet_is_cycled_in_parts_and_no_node_twice(machines: Machines) -> None:
    for _run in range(2):
        rc, output = machines.run(power="cycle", power_share=0.25, power_allowed=True)
        assert rc != 0
        assert "target: cycle would take 4 nodes out of service, and 1 may leave; write" in output
    assert machines.holds == machines.site.serving == []
    assert [bmc.acts for bmc in machines.bmcs.values()] == [[]] * 4
    rc, output = machines.run(
        power="cycle", power_share=0.25, power_allowed=True, target="dgx-02", power_return_s=60
    )
    assert rc == 0, output
    assert machines.bmcs["dgx-02"].acts == ["GracefulShutdown", "On"]


def test_a_node_returns_when_its_host_answers_again(machines: Machines) -> None:
    """Slurm calls it idle while it is in its power-on self test."""
    number, port = machines.slurmds["dgx-02"].getsockname()
    machines.slurmds["dgx-02"].close()
    given = {"power": "cycle", "target": "dgx-02:dgx-03", "power_allowed": True}
    rc, output = machines.run(**given, power_return_s=3)
    assert rc != 0
    assert (
        f"dgx-02 stays out: its slurmd at {number} port {port} does not answer within 3 s "
        "(ConnectionRefusedError"
    ) in output
    assert machines.site.slurm["dgx-02"] == ["IDLE+DRAIN", "dgx-power: cycle"]
    assert machines.site.slurm["dgx-03"] == ["IDLE", ""]
    with socket.create_server((number, port)):
        rc, output = machines.run(power="on")
    assert rc == 0, output
    assert machines.site.slurm["dgx-02"] == ["IDLE", ""]
    assert len(machines.bmcs["dgx-02"].acts) == 2


def test_what_an_earlier_run_took_out_stays_out_if_it_is_refused(machines: Machines) -> None:
    """Its machine may be off, or half way."""
    out = ["IDLE+DRAIN", "dgx-power: cycle"]
    machines.site.set_slurm({**machines.site.slurm, "dgx-02": out})
    machines.reserve("dgx-02")
    given = {"power": "cycle", "target": "dgx-02", "power_allowed": True}
    rc, output = machines.site.run(playbook="power", **machines.options(given))
    assert rc != 0
    assert "not switched: it is not held against jobs" in output
    assert machines.site.slurm["dgx-02"] == out
    assert list(machines.reserved.values()) == ["dgx-02"]
    assert machines.bmcs["dgx-02"].acts == []


def test_after_a_killed_cycle_power_on_leaves_no_reservation(machines: Machines) -> None:
    machines.bmcs["dgx-02"].hangs = True
    given = {"power": "cycle", "target": "dgx-02", "power_allowed": True, "power_soft_s": 3}
    process = machines.site.start(playbook="power", **machines.options(given))
    end = time.monotonic() + 240
    while not machines.bmcs["dgx-02"].acts:
        assert time.monotonic() < end
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(machines.reserved.values()) == ["dgx-02"]
    # The module of the killed run goes on.
    while machines.bmcs["dgx-02"].acts[-1] != "On":
        assert time.monotonic() < end
        time.sleep(0.1)
    while machines.bmcs["dgx-02"].sessions:
        assert time.monotonic() < end
        time.sleep(0.1)
    rc, output = machines.run(power="on")
    assert rc == 0, output
    assert machines.site.slurm["dgx-02"] == ["IDLE", ""]


def test_a_node_that_serves_the_cluster_is_left_alone(machines: Machines) -> None:
    path = machines.site.folder / "hosts.yml"
    data = yaml.safe_load(path.read_text())
    data["all"]["children"]["cluster"]["children"]["login_nodes"] = {"hosts": {"dgx-01": None}}
    path.write_text(yaml.safe_dump(data))
    rc, output = machines.run(power="off", target="dgx-01:dgx-02", power_allowed=True)
    assert rc != 0
    assert "not switched: it runs services of the cluster, too; do it by hand" in output
    assert machines.power == ["On", "Off", "On", "On"]
    assert machines.site.slurm["dgx-01"] == ["IDLE", ""]


def test_a_machine_that_stays_on_is_named_and_stays_out(machines: Machines) -> None:
    bmc = machines.bmcs["dgx-04"]
    bmc.hangs = True
    bmc.refuses = {"ForceOff"}
    rc, output = machines.run(power="cycle", target="dgx-04", power_allowed=True)
    assert rc != 0
    assert "node:dgx-04 bmc.switched" in output
    assert "ComputerSystem.Reset: HTTP 400" in output
    assert machines.site.slurm["dgx-04"] == ["IDLE+DRAIN", "dgx-power: cycle"]
    # Accepted, and not done: it is On, as after a cycle.
    bmc.refuses, bmc.ignored = set(), {"ForceOff"}
    rc, output = machines.run(power="cycle", target="dgx-04", power_allowed=True, power_change_s=2)
    assert rc != 0
    assert "did not go off: is On after 2 s" in output
    assert machines.site.slurm["dgx-04"] == ["IDLE+DRAIN", "dgx-power: cycle"]
    # The same command goes on.
    bmc.ignored = set()
    rc, output = machines.run(power="cycle", target="dgx-04", power_allowed=True)
    assert rc == 0, output
    assert bmc.acts[-2:] == ["ForceOff", "On"]
    assert machines.site.slurm["dgx-04"] == ["IDLE", ""]


def test_ac_power_counts_when_the_bmc_was_gone(machines: Machines) -> None:
    rc, output = machines.run(power="ac_cycle", target="dgx-01", power_allowed=True)
    assert rc == 0, output
    assert machines.bmcs["dgx-01"].acts == ["AuxPowerCycle"]
    machines.bmcs["dgx-02"].feigns = True
    rc, output = machines.run(
        power="ac_cycle", target="dgx-02", power_allowed=True, power_change_s=3
    )
    assert rc != 0
    assert "the BMC was asked for an AC cycle and never went away" in output


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"power": "reboot"}, "power: 'reboot' is not known; write on, off, cycle or ac_cycle"),
        ({}, "power: '' is not known; write on, off, cycle or ac_cycle"),
        ({"power": "on", "target": "head-01"}, "target: no node has a BMC; write node_bmc"),
        ({"power": "on", "target": "dgx-99"}, "no host of the inventory is called dgx-99"),
    ],
)
def test_wrong_inputs_are_refused(machines: Machines, given: dict[str, object], says: str) -> None:
    rc, output = machines.run(**given)
    assert rc != 0
    assert says in output
    assert all(bmc.log == [] for bmc in machines.bmcs.values())
