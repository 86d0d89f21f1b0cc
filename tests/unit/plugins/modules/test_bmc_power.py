# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""bmc_power against BMCs over TLS."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest
from redfish_server import PASSWORD, V1, Bmc, serving

from ansible_collections.baremetal.dgx.plugins.modules import bmc_power

SYSTEM = f"{V1}/Systems/DGX"
# A module of another run, which is still at work on a machine.
BUSY = """\
import sys
sys.path[:0] = {path!r}
from ansible_collections.baremetal.dgx.plugins.module_utils._core.lock import part_locks
with part_locks("bmc", ["127.0.0.1 {port}"]):
    print("held", flush=True)
    sys.stdin.read()
"""


def slurm(*states):
    """What scontrol prints for dgx-01, dgx-02, …"""
    return "".join(
        f"NodeName=dgx-{number:02d} State={state} Reason=fan [root@2026-11-21T09:00:00]\n"
        for number, state in enumerate(states, start=1)
    )


@pytest.fixture
def power(ask_bmcs):
    """power(action, bmc…, options…) → the answer, the BMCs being dgx-01, dgx-02, …"""
    return lambda action, *bmcs, **params: ask_bmcs(
        bmc_power.main, bmcs, **{"action": action, "poll_s": 0.05, **params}
    )


def outcomes(answer):
    return {one["subject"][5:]: (one["status"], one["text"]) for one in answer["records"]}


def test_a_plan_switches_nothing_and_names_who_is_there(power):
    bmcs = [Bmc(), Bmc(), Bmc(), Bmc()]
    bmcs[1].tree[SYSTEM]["PowerState"] = "Off"
    text = slurm("IDLE", "IDLE+DRAIN", "ALLOCATED", "DOWN+DRAIN")
    answer = power("off", *bmcs, state="planned", nodes=text, share=0.5)
    assert (answer["due"], answer["fresh"]) == (["dgx-01", "dgx-04"], ["dgx-01"])
    assert answer["power"] == {"dgx-01": "On", "dgx-02": "Off", "dgx-04": "On"}
    assert outcomes(answer) == {
        "dgx-02": ("pass", "was Off already"),
        "dgx-03": ("not_measured", "not switched: it has jobs: ALLOCATED"),
    }
    assert not answer["changed"]
    assert [bmc.acts for bmc in bmcs] == [[], [], [], []]
    # Whose node has a job is not even asked.
    assert bmcs[2].log == []


@pytest.mark.parametrize("action", ["cycle", "ac_cycle"])
def test_a_cycle_of_more_than_the_share_is_refused(power, action):
    """Two runs would cycle the first nodes twice, and the others never."""
    bmcs = [Bmc(), Bmc(), Bmc(), Bmc()]
    nodes = slurm("IDLE", "IDLE+DRAIN", "IDLE", "ALLOCATED")
    answer = power(action, *bmcs, state="planned", nodes=nodes, share=0.25)
    assert answer["failed"]
    assert answer["msg"] == (
        f"target: {action} would take 2 nodes out of service, and 1 may leave; write fewer of them "
        "as -e target=, or write a greater -e power_share="
    )
    assert all(bmc.log == [] for bmc in bmcs)
    # One that an earlier run has taken out is of the share: fewer targets would not help.
    left = nodes.replace("DRAIN Reason=fan", "DRAIN Reason=dgx-power: cycle")
    answer = power(action, *bmcs, state="planned", nodes=left, share=0.25)
    assert answer["msg"] == (
        f"target: {action} would take 2 nodes out of service, but 1 of 4 nodes are out for this, "
        "and 1 may be; bring those back, or write a greater -e power_share="
    )
    # Off stays off, and what is out, or has a job, leaves no service.
    answer = power("off", *bmcs, state="planned", nodes=nodes, share=0.25)
    assert answer["due"] == ["dgx-01", "dgx-02"]
    answer = power(action, *bmcs, state="planned", nodes=nodes, share=0.5)
    assert answer["due"] == ["dgx-01", "dgx-02", "dgx-03"]


def test_what_is_out_and_held_is_switched_and_nothing_else(power):
    bmcs = [Bmc(), Bmc(), Bmc(), Bmc()]
    for bmc in bmcs:
        bmc.change_s = 0.2
    text = slurm("IDLE+DRAIN", "IDLE+DRAIN", "IDLE", "MIXED+DRAIN")
    held = ["dgx-01", "dgx-03", "dgx-04"]
    answer = power("cycle", *bmcs, nodes=text, held=held, check=True)
    assert (answer["due"], answer["changed"]) == (["dgx-01"], True)
    answer = power("cycle", *bmcs, nodes=text, held=held)
    assert outcomes(answer) == {
        "dgx-01": ("pass", "cycled"),
        "dgx-02": ("not_measured", "not switched: it is not held against jobs"),
        "dgx-03": ("not_measured", "not switched: it is IDLE, and a job could start"),
        "dgx-04": ("not_measured", "not switched: it has jobs: MIXED+DRAIN"),
    }
    assert answer["done"] == ["dgx-01"]
    assert [bmc.acts for bmc in bmcs] == [["GracefulShutdown", "On"], [], [], []]
    assert all(bmc.sessions == set() for bmc in bmcs)
    assert PASSWORD not in json.dumps(answer)


def test_without_slurms_answer_nothing_is_switched_off(power):
    bmc = Bmc()
    answer = power("off", bmc, held=["dgx-01"])
    assert answer["failed"]
    assert "nodes: holds no node" in answer["msg"]
    assert bmc.acts == []


def test_on_needs_no_slurm_and_a_silent_bmc_delays_none(power):
    off, quiet = Bmc(), Bmc()
    off.tree[SYSTEM]["PowerState"] = "Off"
    quiet.silent = {SYSTEM}
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        begun = time.monotonic()
        answer = power("on", off, quiet, deaf.getsockname()[1], each_s=2, timeout_s=30)
    assert time.monotonic() - begun < 20
    assert outcomes(answer) == {
        "dgx-01": ("pass", "switched on"),
        "dgx-02": ("not_measured", "not reached: no answer in 2 s"),
        "dgx-03": ("not_measured", "not reached: no answer in 2 s"),
    }
    assert (answer["changed"], answer["verdict"]) == (True, "not_measured")


def test_a_machine_that_does_not_follow_fails(power):
    bmc = Bmc()
    bmc.change_s = 60
    bmc.tree[SYSTEM]["PowerState"] = "Off"
    answer = power("on", bmc, change_s=0.3)
    assert outcomes(answer) == {"dgx-01": ("fail", "is Off after 0.3 s")}
    assert answer["done"] == []


def test_a_cycle_that_never_happened_does_not_pass(power):
    """The machine is On, as after a cycle."""
    bmc = Bmc()
    bmc.hangs, bmc.ignored = True, {"ForceOff"}
    given = {"nodes": slurm("IDLE+DRAIN"), "held": ["dgx-01"], "soft_s": 0.1, "change_s": 0.3}
    answer = power("cycle", bmc, **given)
    assert bmc.acts == ["GracefulShutdown", "ForceOff"]
    assert outcomes(answer) == {"dgx-01": ("fail", "did not go off: is On after 0.3 s")}
    assert answer["done"] == []


def test_ac_power_is_cycled_where_the_bmc_can(power):
    bmc, unable, broken = Bmc(), Bmc(), Bmc()
    bmc.away_s, broken.breaks = 0.5, {"AuxPowerCycle"}
    del unable.tree[f"{V1}/Chassis/DGX"]["Actions"]
    held = ["dgx-01", "dgx-02", "dgx-03"]
    answer = power("ac_cycle", bmc, unable, broken, nodes=slurm(*["DOWN"] * 3), held=held)
    path = f"{V1}/Chassis/DGX/Actions/Oem/NvidiaChassis.AuxPowerReset"
    why = "the BMC has no way to cycle AC power (FullPowerCycle, AuxPowerReset)"
    assert outcomes(answer) == {
        "dgx-01": ("pass", "AC power cycled"), "dgx-02": ("not_measured", why),
        "dgx-03": ("not_measured", f"{path}: HTTP 500"),
    }  # fmt: skip
    assert answer["done"] == ["dgx-01"]
    assert bmc.acts == ["AuxPowerCycle"]
    both = Bmc()
    both.away_s = 0.5
    action = both.tree[SYSTEM]["Actions"]["#ComputerSystem.Reset"]
    action["ResetType@Redfish.AllowableValues"].append("FullPowerCycle")
    power("ac_cycle", both, nodes=slurm("DOWN"), held=["dgx-01"])
    assert both.acts == ["FullPowerCycle"]


def test_a_factory_password_gets_no_login(power):
    bmc = Bmc()
    answer = power("on", bmc, each={"password": "admin"})
    status, why = outcomes(answer)["dgx-01"]
    assert status == "not_measured"
    assert "factory password" in why
    assert bmc.log == []


SERIAL = "1660224000001"


@pytest.mark.parametrize(
    ("has", "why"),
    [
        (
            "1660224000007",
            f"is 1660224000007, declared is {SERIAL}; correct node_address or node_serial",
        ),
        (
            "",
            f"says no serial number, declared is {SERIAL}; leave node_serial out",
        ),
    ],
)
@pytest.mark.parametrize("state", ["planned", "switched"])
def test_a_machine_that_is_not_the_declared_one_is_not_switched(power, state, has, why):
    """Two nodes changed places: under the job of the other one its power would go."""
    why = f"not reached: the machine at 127.0.0.1 {why}"
    bmc = Bmc()
    bmc.tree[SYSTEM]["SerialNumber"] = has
    given = {"nodes": slurm("IDLE+DRAIN"), "held": ["dgx-01"], "state": state, "share": 1.0}
    for action in ("cycle", "ac_cycle"):
        answer = power(action, bmc, each={"serial": SERIAL}, **given)
        assert outcomes(answer) == {"dgx-01": ("not_measured", why)}
        assert (answer["done"], answer["power"], answer["changed"]) == ([], {}, False)
    assert (bmc.acts, bmc.sessions) == ([], set())


def test_the_declared_machine_is_known_until_its_bmc_is_back(power):
    """After an AC cycle a BMC may not have read yet what the machine is."""

    class Late(Bmc):
        def lose_power(self):
            super().lose_power()
            del self.tree[SYSTEM]["SerialNumber"]

    bmc = Late()
    bmc.away_s = 0.5
    given = {"nodes": slurm("DOWN"), "held": ["dgx-01"], "each": {"serial": SERIAL}}
    assert power("ac_cycle", bmc, **given)["done"] == ["dgx-01"]


def test_over_ipmi_the_machine_is_asked_too(power, tmp_path, monkeypatch):
    tool = tmp_path / "ipmitool"
    tool.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n'
        "echo ' Product Serial : S7'\necho 'Chassis Power is off'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    given = {"change_s": 0, "each_s": 20}
    answer = power("on", 623, each={"protocol": "ipmi", "serial": "S3"}, **given)
    why = "the machine at 127.0.0.1 is S7, declared is S3; correct node_address or node_serial"
    assert outcomes(answer) == {"dgx-01": ("not_measured", f"not reached: {why}")}
    assert "power on" not in (tmp_path / "calls").read_text()
    power("on", 623, each={"protocol": "ipmi", "serial": "S7"}, **given)
    assert "power on" in (tmp_path / "calls").read_text()


def test_a_machine_that_another_run_works_on_is_not_touched(power, bmc_tls):
    busy_text = (
        "not reached: another run is at work on it; wait until it has ended, then write the same "
        "command"
    )
    free, busy = Bmc(), Bmc()
    free.tree[SYSTEM]["PowerState"] = busy.tree[SYSTEM]["PowerState"] = "Off"
    with serving(busy, *bmc_tls[:2]) as port:
        program = BUSY.format(path=sys.path, port=port)
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout.readline() == b"held\n"
            answer = power("on", free, port)
            other.stdin.close()
        assert outcomes(answer) == {
            "dgx-01": ("pass", "switched on"),
            "dgx-02": ("not_measured", busy_text),
        }
        assert busy.log == []
        assert outcomes(power("on", port)) == {"dgx-01": ("pass", "switched on")}
