# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""update_firmware as a whole: a scontrol of the test's own, and simulated BMCs over TLS."""

from __future__ import annotations

import contextlib
import hashlib
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

sys.path.insert(0, str(Path(__file__).parent))

from test_power import Machines
from test_upgrade_nodes import Site

NODE = "dgx-02"


class Fleet(Machines):
    """Machines whose profile has packages, of which one node lacks all."""

    def __init__(self, site: Site, stack: contextlib.ExitStack) -> None:
        super().__init__(site, stack)
        packages = []
        for name, component, activation in (("bios", "HostBIOS_0", "dc"), ("gpus", "PSU_0", "ac")):
            content = {"brings": {component: "9.9"}, "activation": activation, "name": name}
            file = site.folder / f"{name}.fwpkg"
            file.write_text(json.dumps(content))
            packages.append({
                "file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                "components": {component: "9.9"}, "activation": activation,
            })  # fmt: skip
        self.packages = packages
        for name, bmc in self.bmcs.items():
            if name != NODE:
                bmc.waiting["none"] = {"HostBIOS_0": "9.9", "PSU_0": "9.9"}
                bmc.activate("none")
        self.declare()

    def declare(self) -> None:
        path = self.site.folder / "hosts.yml"
        data = yaml.safe_load(path.read_text())
        described = data["all"]["children"]["cluster"]["vars"]
        described["cluster_profiles"] = {"dgx_h100": {"bmc": {"packages": self.packages}}}
        path.write_text(yaml.safe_dump(data))

    def given(self, more: dict[str, object]) -> dict[str, object]:
        return {"power_lock_folder": str(self.site.folder / "locks"), "power_soft_s": 1,
                "firmware_poll_s": 0.1, "power_change_s": 10, **more}  # fmt: skip

    def update(self, *arguments: str, **more: object) -> tuple[int, str]:
        return self.site.run(*arguments, playbook="update_firmware", **self.given(more))

    @property
    def lines(self) -> list[str]:
        path = self.site.state / "bmc/updates.jsonl"
        if not path.exists():
            return []
        return [json.loads(line)["what"] for line in path.read_text().splitlines()]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with contextlib.ExitStack() as stack:
        yield Fleet(Site(tmp_path), stack)


def test_an_update_needs_consent_and_is_read_back(fleet: Fleet) -> None:
    rc, output = fleet.update()
    assert rc != 0
    assert "dgx-02 has HostBIOS_0 01.02.01; PSU_0 01.02.06" in output, output
    assert "firmware_allowed: is not given, and an update interrupts dgx-02" in output
    assert fleet.bmcs[NODE].flashed == []
    rc, output = fleet.update(firmware_allowed=True)
    assert rc == 0, output
    bmc = fleet.bmcs[NODE]
    assert bmc.flashed == ["bios", "gpus"]
    assert bmc.acts == ["GracefulShutdown", "On", "AuxPowerCycle"]
    assert fleet.lines == ["pushing", "pushed", "flashed", "activating", "done"] * 2
    assert fleet.holds == [f"create {NODE}", "delete "]
    assert all(node == ["IDLE", ""] for node in fleet.site.slurm.values())
    assert all(not other.flashed for name, other in fleet.bmcs.items() if name != NODE)
    # All have it: no consent is needed for nothing.
    rc, output = fleet.update()
    assert rc == 0, output
    assert bmc.flashed == ["bios", "gpus"]


def test_killed_while_it_waits_for_the_bmc_it_goes_on(fleet: Fleet) -> None:
    bmc = fleet.bmcs[NODE]
    bmc.busy = True
    process = fleet.site.start(
        playbook="update_firmware", **fleet.given({"firmware_allowed": True})
    )
    end = time.monotonic() + 240
    while fleet.lines[-1:] != ["pushed"] and time.monotonic() < end:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert bmc.flashed == ["bios"]
    assert fleet.site.slurm[NODE] == ["IDLE+DRAIN", "dgx-firmware: update"]
    # The module that the killed run has started is still at work.
    bmc.busy = False
    while fleet.lines[-1] != "done" or fleet.lines.count("done") < 2:
        assert time.monotonic() < end + 240
        time.sleep(0.1)
    # It has ended; its node is still out, and returns without consent to anything.
    rc, output = fleet.update()
    assert rc == 0, output
    assert bmc.flashed == ["bios", "gpus"]
    assert fleet.site.slurm[NODE] == ["IDLE", ""]
    assert fleet.reserved == {}


def test_what_an_earlier_run_has_written_stays_out_if_it_is_refused(fleet: Fleet) -> None:
    rc, output = fleet.update(firmware_allowed=True, firmware_activate=False)
    assert rc != 0
    assert fleet.lines[-1] == "flashed"
    out = ["IDLE+DRAIN", "dgx-firmware: update"]
    assert fleet.site.slurm[NODE] == out
    fleet.reserve(NODE)
    rc, output = fleet.update(firmware_allowed=True)
    assert rc != 0
    assert "not updated: it is not held against jobs" in output
    assert fleet.site.slurm[NODE] == out
    assert list(fleet.reserved.values()) == [NODE]


def test_pending_is_no_pass_and_jobs_are_not_disturbed(fleet: Fleet) -> None:
    fleet.site.set_slurm({**fleet.site.slurm, NODE: ["MIXED", ""]})
    rc, output = fleet.update(firmware_allowed=True)
    assert rc != 0
    assert "not updated: it has jobs: MIXED" in output
    assert fleet.bmcs[NODE].flashed == fleet.holds == []
    fleet.site.set_slurm({**fleet.site.slurm, NODE: ["IDLE", ""]})
    rc, output = fleet.update(firmware_allowed=True, firmware_activate=False)
    assert rc != 0
    assert "bios.fwpkg: HostBIOS_0 01.02.01" in output
    assert "pending until DC cycle" in output
    assert fleet.bmcs[NODE].acts == []


def test_a_node_that_serves_the_cluster_is_not_flashed(fleet: Fleet) -> None:
    path = fleet.site.folder / "hosts.yml"
    data = yaml.safe_load(path.read_text())
    data["all"]["children"]["cluster"]["children"]["login_nodes"] = {"hosts": {NODE: None}}
    path.write_text(yaml.safe_dump(data))
    rc, output = fleet.update(firmware_allowed=True)
    assert rc != 0
    assert "not updated: it runs services of the cluster, too; do it by hand" in output
    assert fleet.bmcs[NODE].flashed == fleet.bmcs[NODE].acts == fleet.holds == []
    assert fleet.site.slurm[NODE] == ["IDLE", ""]


def test_another_checksum_is_refused_before_anything_is_touched(fleet: Fleet) -> None:
    fleet.packages[0]["sha256"] = "0" * 64
    fleet.declare()
    rc, output = fleet.update(firmware_allowed=True)
    assert rc != 0
    assert "bios.fwpkg: its sha256 is" in output
    assert all(bmc.log == [] for bmc in fleet.bmcs.values())


def test_a_step_of_an_upgrade_is_validated_before_the_node_returns(fleet: Fleet) -> None:
    log = fleet.site.state / "upgrade/update_firmware.log"

    def upgrade(**more: object) -> tuple[int, str]:
        steps = ["-e", json.dumps(fleet.given({"firmware_allowed": True, **more}))]
        return fleet.site.run(
            upgrade="update_firmware", upgrade_options=steps, upgrade_in_service=3, target=NODE
        )

    # It is still in its power-on self test, and would fail the validation.
    place = fleet.slurmds[NODE].getsockname()
    fleet.slurmds[NODE].close()
    rc, output = upgrade(power_return_s=3)
    assert rc != 0
    assert "dgx-02 stays out: its slurmd at 127.0.0.2" in " ".join(log.read_text().split())
    with socket.create_server(place):
        rc, output = upgrade()
    assert rc == 0, output + log.read_text()
    assert fleet.bmcs[NODE].flashed == ["bios", "gpus"]
    assert fleet.site.slurm[NODE] == ["IDLE", ""]
    assert min(fleet.site.serving) == 3
