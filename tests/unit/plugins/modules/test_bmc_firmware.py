# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""bmc_firmware against BMCs over TLS."""

from __future__ import annotations

import hashlib
import json

import pytest
from redfish_server import PASSWORD, V1, Bmc

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.updates import Event, line_of
from ansible_collections.baremetal.dgx.plugins.modules import bmc_firmware


def slurm(*states, reason="fan"):
    return "".join(
        f"NodeName=dgx-{number:02d} State={state} Reason={reason} [root@2026-11-21T09:00:00]\n"
        for number, state in enumerate(states, start=1)
    )


@pytest.fixture
def package(tmp_path):
    """A package that needs a DC cycle; its content is for the simulated BMC."""
    file = tmp_path / "bios.fwpkg"
    brings = {"HostBIOS_0": "9.9"}
    file.write_text(json.dumps({"brings": brings, "activation": "dc", "name": "bios"}))
    return {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "components": brings, "activation": "dc"}  # fmt: skip


@pytest.fixture
def update(ask_bmcs, package, tmp_path):
    """update(bmc…, options…) → the answer, the BMCs being dgx-01, dgx-02, …"""

    def update(*bmcs, **params):
        each = {"packages": [package], **params.pop("each", {})}
        given = {"folder": str(tmp_path / "bmc"), "soft_s": 1, "change_s": 5, "poll_s": 0.05}
        return ask_bmcs(bmc_firmware.main, bmcs, each, **{**given, **params})

    return update


def outcomes(answer):
    return {one["subject"][5:]: (one["status"], one["text"]) for one in answer["records"]}


def lines(tmp_path):
    path = tmp_path / "bmc" / "updates.jsonl"
    return [json.loads(line)["what"] for line in path.read_text().splitlines()]


def test_what_has_a_job_or_is_not_held_is_not_touched(update):
    bmcs = [Bmc(), Bmc(), Bmc(), Bmc()]
    text = slurm("IDLE+DRAIN", "IDLE+DRAIN", "MIXED+DRAIN", "IDLE")
    answer = update(*bmcs, nodes=text, held=["dgx-01", "dgx-03", "dgx-04"])
    assert outcomes(answer) == {
        "dgx-01": ("pass", "1 packages as declared"),
        "dgx-02": ("not_measured", "not updated: it is not held against jobs"),
        "dgx-03": ("not_measured", "not updated: it has jobs: MIXED+DRAIN"),
        "dgx-04": ("not_measured", "not updated: it is IDLE, and a job could start"),
    }
    assert [bmc.flashed for bmc in bmcs] == [["bios"], [], [], []]
    assert [bmc.log for bmc in bmcs[1:]] == [[], [], []]
    assert bmcs[0].sessions == set()
    assert PASSWORD not in json.dumps(answer)


@pytest.mark.parametrize("status", [200, 202])
def test_the_power_is_not_cut_while_a_task_runs_that_a_message_alone_names(
    update, status, tmp_path
):
    bmc = Bmc()
    bmc.ami, bmc.looks = status, 3
    answer = update(bmc, nodes=slurm("IDLE+DRAIN"), held=["dgx-01"])
    assert outcomes(answer) == {"dgx-01": ("pass", "1 packages as declared")}
    assert (bmc.torn, bmc.looks, bmc.flashed) == ([], 0, ["bios"])
    assert bmc.acts == ["GracefulShutdown", "On"]
    assert lines(tmp_path) == ["pushing", "pushed", "flashed", "activating", "done"]


@pytest.mark.parametrize("status", [200, 201, 204])
def test_a_monitor_that_answers_otherwise_than_202_is_of_a_task_that_is_over(
    update, status, tmp_path
):
    bmc = Bmc()
    bmc.monitored, bmc.looks = status, 3
    answer = update(bmc, nodes=slurm("IDLE+DRAIN"), held=["dgx-01"])
    assert outcomes(answer) == {"dgx-01": ("pass", "1 packages as declared")}
    assert (bmc.torn, bmc.looks, bmc.flashed) == ([], 0, ["bios"])
    path = tmp_path / "bmc" / "updates.jsonl"
    pushed = json.loads(path.read_text().splitlines()[1])
    assert "/TaskMonitors/" in pushed["tasks"]
    assert pushed["serial"] == "1660224000001"


def test_another_machine_under_the_name_of_a_node_gets_its_package(update, package, tmp_path):
    """The lines of a node are of the machine that has left, also in a plan."""
    event = Event(1.0, "dgx-01", package["sha256"], "flashed", serial="1660224000099")
    (tmp_path / "bmc").mkdir()
    (tmp_path / "bmc" / "updates.jsonl").write_text(line_of(event) + "\n")
    done, old = Bmc(), slurm("IDLE+DRAIN")
    done.tree[f"{V1}/UpdateService/FirmwareInventory/HostBIOS_0"]["Version"] = "9.9"
    assert update(done, nodes=old, state="planned")["done"] == ["dgx-01"]
    assert lines(tmp_path) == ["flashed"]
    bmc = Bmc()
    answer = update(bmc, nodes=old, held=["dgx-01"])
    assert outcomes(answer) == {"dgx-01": ("pass", "1 packages as declared")}
    assert bmc.flashed == ["bios"]


@pytest.mark.parametrize("version", [None, ""])
def test_a_component_without_a_version_is_not_measured_and_not_flashed(
    update, package, version, tmp_path
):
    bmc = Bmc()
    package = {**package, "components": {"HGX_FW_GPU_SXM_*": "9.9"}}
    each, out = {"packages": [package]}, slurm("IDLE+DRAIN")
    path = f"{V1}/UpdateService/FirmwareInventory/HGX_FW_GPU_SXM"
    for number in range(1, 9):
        bmc.tree[f"{path}_{number}"]["Version"] = "9.9"
    event = Event(1.0, "dgx-01", package["sha256"], "done")
    (tmp_path / "bmc").mkdir()
    (tmp_path / "bmc" / "updates.jsonl").write_text(line_of(event) + "\n")
    bmc.tree[f"{path}_3"]["Version"] = version
    why = "HGX_FW_GPU_SXM_3 without a version; look at the BMC, then write -e firmware_again=true"
    # No node leaves service for it.
    answer = update(bmc, each=each, nodes=slurm("IDLE"), state="planned", share=1.0)
    assert outcomes(answer) == {"dgx-01": ("not_measured", f"not reached: {why}")}
    assert (answer["due"], answer["changed"]) == ([], False)
    answer = update(bmc, each=each, nodes=out, held=["dgx-01"])
    assert outcomes(answer) == {"dgx-01": ("not_measured", f"bios.fwpkg: {why}")}
    assert (bmc.flashed, bmc.acts, lines(tmp_path), answer["changed"]) == ([], [], ["done"], False)
    # With consent it is sent and cycled once.
    given = {"each": each, "nodes": out, "again": True}
    assert update(bmc, **given, state="planned")["due"] == ["dgx-01"]
    answer = update(bmc, **given, change_s=0.1, held=["dgx-01"])
    text = "bios.fwpkg: reads back HGX_FW_GPU_SXM_3 without a version"
    assert outcomes(answer) == {"dgx-01": ("not_measured", text)}
    assert bmc.flashed == ["bios"]
    bmc.tree[f"{path}_3"]["Version"] = "9.9"
    answer = update(bmc, each=each, nodes=out, state="planned")
    assert outcomes(answer) == {"dgx-01": ("pass", "as declared")}


def test_who_has_the_version_needs_no_outing(update):
    old, new = Bmc(), Bmc()
    new.tree[f"{V1}/UpdateService/FirmwareInventory/HostBIOS_0"]["Version"] = "9.9"
    answer = update(old, new, state="planned", nodes=slurm("MIXED", "MIXED"))
    assert outcomes(answer) == {
        "dgx-01": ("not_measured", "not updated: it has jobs: MIXED"),
        "dgx-02": ("pass", "as declared"),
    }
    assert answer["due"] == []


def test_a_plan_reads_and_check_mode_leaves_no_file(update, tmp_path):
    bmc = Bmc()
    for params in ({"state": "planned"}, {"check": True}):
        answer = update(bmc, nodes=slurm("IDLE"), share=1.0, **params)
        assert (answer["due"], answer["fresh"]) == (["dgx-01"], ["dgx-01"])
        assert answer["versions"] == {"dgx-01": "HostBIOS_0 01.02.01"}
    assert bmc.flashed == []
    assert not (tmp_path / "bmc").exists()


def test_pending_is_an_outcome_of_its_own(update, tmp_path):
    bmc = Bmc()
    given = {"nodes": slurm("IDLE+DRAIN"), "held": ["dgx-01"]}
    answer = update(bmc, **given, activate=False)
    (record,) = answer["records"]
    assert (record["status"], record["measured"]["value"]) == ("fail", "pending until DC cycle")
    assert answer["done"] == []
    # A person switches it off and on: the next plan ends what was begun, and names the node that
    # is still out for it.
    bmc.activate("dc")
    nodes = slurm("IDLE+DRAIN", reason="dgx-firmware: update")
    answer = update(bmc, nodes=nodes, state="planned", check=True)
    assert answer["left"] == ["dgx-01"]
    assert lines(tmp_path)[-1] == "flashed"
    answer = update(bmc, nodes=nodes, state="planned")
    assert (answer["due"], answer["done"], answer["left"]) == ([], ["dgx-01"], ["dgx-01"])
    assert lines(tmp_path) == ["pushing", "pushed", "flashed", "done"]
    # What others have drained is theirs.
    assert update(bmc, nodes=slurm("IDLE+DRAIN"), state="planned")["left"] == []


def test_what_a_bmc_lacks_is_named(update, tmp_path):
    bare, other = Bmc(), Bmc()
    del bare.tree[f"{V1}/UpdateService"]["MultipartHttpPushUri"]
    del other.tree[f"{V1}/UpdateService/FirmwareInventory/HostBIOS_0"]
    other.tree[f"{V1}/UpdateService/FirmwareInventory"]["Members"] = []
    answer = update(bare, other, nodes=slurm("DOWN", "DOWN"), held=["dgx-01", "dgx-02"])
    why = (
        "bios.fwpkg: the BMC takes no file (MultipartHttpPushUri), and the package has no uri for "
        "SimpleUpdate"
    )
    assert outcomes(answer) == {
        "dgx-01": ("not_measured", why),
        "dgx-02": ("not_measured", "not reached: the BMC has no component HostBIOS_0"),
    }
    assert (lines(tmp_path), answer["changed"]) == (["pushing", "unsent"], False)


def test_another_checksum_stops_everything(update, package):
    bmc = Bmc()
    answer = update(bmc, each={"packages": [{**package, "sha256": "0" * 64}]}, nodes=slurm("DOWN"))
    assert answer["failed"]
    assert "its sha256 is" in answer["msg"]
    assert bmc.log == []


@pytest.mark.parametrize("state", ["planned", "updated"])
def test_a_machine_that_is_not_the_declared_one_gets_no_package(update, package, state, tmp_path):
    bmc = Bmc()
    each = {"packages": [package], "serial": "1660224000007"}
    answer = update(
        bmc, each=each, nodes=slurm("IDLE+DRAIN"), held=["dgx-01"], share=1.0, state=state
    )
    why = (
        "the machine at 127.0.0.1 is 1660224000001, declared is 1660224000007; correct "
        "node_address or node_serial"
    )
    assert outcomes(answer) == {"dgx-01": ("not_measured", f"not reached: {why}")}
    assert (answer["done"], answer["versions"], bmc.flashed) == ([], {}, [])
    assert not (tmp_path / "bmc").exists()
