# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""bmc_settings against BMCs over TLS."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from redfish_server import PASSWORD, USER, V1, Bmc

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.redfish import _message
from ansible_collections.baremetal.dgx.plugins.modules import bmc_settings

SYSTEM = f"{V1}/Systems/DGX"
NEW = "another-word-2"
OPS = {"user": "ops", "password": "ops-word-3", "role": "Operator"}


@pytest.fixture
def configure(ask_bmcs):
    """configure(bmc…, each…) → the answer, the BMCs being dgx-01, dgx-02, …; no secret is in it."""

    def configure(*bmcs, check=False, **each):
        answer = ask_bmcs(bmc_settings.main, bmcs, each, check)
        text = json.dumps(answer)
        assert not [one for one in (PASSWORD, NEW, OPS["password"]) if one in text]
        assert all(bmc.sessions == set() for bmc in bmcs)
        return answer

    return configure


def outcomes(answer):
    records = [one for one in answer["records"] if one["status"] != "pass"]
    return {one["check"]: (one["status"], one["text"]) for one in records}


def written(bmc):
    return [
        one for one in bmc.log if one[0] in ("PATCH", "POST", "DELETE") and "Session" not in one[1]
    ]


def test_all_settings_are_written_once_and_read_back(configure):
    bmc = Bmc()
    each = {
        "accounts": [OPS, {"user": "old", "state": "absent"}],
        "time_servers": ["10.1.0.11", "10.1.0.12"], "log_server": "udp://10.1.0.11:514",
        "bios": {"SRIOV": "Disabled", "Timeout": 5}, "boot_order": ["debian", "*pxe ipv4*"],
    }  # fmt: skip
    bmc.make(
        f"{V1}/AccountService/Accounts", {"UserName": "old", "Password": "x", "RoleId": "ReadOnly"}
    )
    answer = configure(bmc, check=True, **each)
    assert answer["changed"]
    assert {one[0] for one in outcomes(answer).values()} == {"fail"}
    assert written(bmc) == []
    answer = configure(bmc, **each)
    assert outcomes(answer) == {
        "bmc.bios": ("fail", "pending until the next boot: SRIOV Disabled"),
        "bmc.boot_order": (
            "fail",
            "pending until the next boot: debian, UEFI: PXE IPv4 Intel, UEFI: USB",
        ),
    }
    assert answer["counts"]["pass"] == 3
    assert (answer["only_pending"], answer["pending"]) == (
        True, {"dgx-01": ["bmc.bios", "bmc.boot_order"]}
    )  # fmt: skip
    assert bmc.passwords == {USER: PASSWORD, "ops": OPS["password"]}
    assert bmc.tree[f"{V1}/Managers/BMC/NetworkProtocol"]["NTP"] == {
        "ProtocolEnabled": True, "NTPServers": ["10.1.0.11", "10.1.0.12"]
    }  # fmt: skip
    once = len(written(bmc))
    answer = configure(bmc, **each)
    assert (answer["changed"], len(written(bmc))) == (False, once)
    bmc.boot()
    answer = configure(bmc, **each)
    assert (answer["verdict"], answer["changed"], answer["pending"]) == ("pass", False, {})
    assert bmc.tree[SYSTEM]["Boot"]["BootOrder"] == ["Boot0002", "Boot0001", "Boot0003"]


SETTINGS = {"bios": {"SRIOV": "Disabled"}, "boot_order": ["debian"]}


def test_settings_that_a_job_applies_have_one(configure):
    bmc = Bmc()
    bmc.wants_jobs()
    answer = configure(bmc, **SETTINGS)
    assert (answer["changed"], answer["only_pending"]) == (True, True)
    # The jobs are there: iDRAC refuses another change, and that is not a finding.
    answer = configure(bmc, **SETTINGS)
    assert (answer["changed"], answer["only_pending"]) == (False, True)
    bmc.boot()
    answer = configure(bmc, **SETTINGS)
    assert (answer["verdict"], answer["changed"]) == ("pass", False)


def test_settings_that_wait_without_a_job_get_one(configure):
    bmc = Bmc()
    bmc.wants_jobs()
    bmc.tree[f"{SYSTEM}/Bios/SD"]["Attributes"] = {"SRIOV": "Disabled"}
    bmc.tree[f"{SYSTEM}/SD"]["Boot"] = {"BootOrder": ["Boot0002", "Boot0001", "Boot0003"]}
    bmc.boot()
    answer = configure(bmc, check=True, **SETTINGS)
    assert (answer["only_pending"], written(bmc)) == (True, [])
    answer = configure(bmc, **SETTINGS)
    assert (answer["changed"], answer["only_pending"]) == (True, True)
    assert not configure(bmc, **SETTINGS)["changed"]
    bmc.boot()
    assert configure(bmc, **SETTINGS)["verdict"] == "pass"


def test_a_setting_beside_a_job_is_refused_until_the_next_boot(configure):
    bmc = Bmc()
    bmc.wants_jobs()
    configure(bmc, bios={"SRIOV": "Disabled"})
    status, text = outcomes(configure(bmc, bios={"SRIOV": "Disabled", "NPS": "NPS4"}))["bmc.bios"]
    assert (status, "already committed" in text) == ("fail", True)
    bmc.boot()
    configure(bmc, bios={"SRIOV": "Disabled", "NPS": "NPS4"})
    bmc.boot()
    assert configure(bmc, bios={"SRIOV": "Disabled", "NPS": "NPS4"})["verdict"] == "pass"


def test_what_a_bmc_lacks_is_named_and_nothing_else_is_written(configure):
    bare, other = Bmc(), Bmc()
    for path in (
        "/AccountService",
        "/Managers/BMC/NetworkProtocol",
        "/EventService",
        "/Systems/DGX/Bios",
    ):
        del bare.tree[V1 + path]
    del bare.tree[SYSTEM]["Boot"]
    each = {"accounts": [OPS], "time_servers": ["a"], "log_server": "tls://b:6514",
            "bios": {"SRIOV": "Disabled"}, "boot_order": ["debian"]}  # fmt: skip
    answer = configure(bare, **each)
    found = outcomes(answer)
    assert {one[0] for one in found.values()} == {"not_measured"}
    assert found["bmc.bios"][1] == f"{V1}/Systems/DGX/Bios: HTTP 404"
    assert found["bmc.boot_order"][1] == f"{SYSTEM} has no BootOrder"
    assert written(bare) == []
    answer = configure(other, bios={"SRIOV": "Disabled", "SMT": "On"}, boot_order=["*pxe*", "suse"])
    assert outcomes(answer) == {
        "bmc.bios": ("not_measured", f"{SYSTEM}/Bios has no attribute SMT"),
        "bmc.boot_order": ("not_measured", f"{SYSTEM} has no boot option suse"),
    }
    assert written(other) == []


def test_accounts_become_as_declared(configure):
    bmc = Bmc()
    configure(bmc, accounts=[OPS])
    (path,) = (path for path, one in bmc.tree.items() if one.get("UserName") == "ops")
    bmc.tree[path].update(RoleId="ReadOnly", Enabled=False)
    bmc.passwords["ops"] = "changed-by-hand"
    answer = configure(bmc, check=True, accounts=[OPS])
    assert outcomes(answer) == {
        "bmc.accounts": ("fail", "ops: has the role ReadOnly, is disabled, has another password")
    }
    answer = configure(bmc, accounts=[OPS])
    assert (answer["verdict"], answer["changed"]) == ("pass", True)
    assert (bmc.passwords["ops"], bmc.tree[path]["RoleId"]) == (OPS["password"], "Operator")
    assert not configure(bmc, accounts=[OPS])["changed"]


def test_accounts_of_a_bmc_with_slots(configure):
    bmc = Bmc()
    bmc.wants_slots()
    path = f"{V1}/AccountService/Accounts"
    answer = configure(bmc, accounts=[OPS])
    assert (outcomes(answer), answer["changed"]) == ({}, True)
    assert [bmc.tree[f"{path}/{number}"]["UserName"] for number in (1, 2, 3)] == ["", USER, "ops"]
    assert not configure(bmc, accounts=[OPS])["changed"]
    gone = [{"user": "ops", "state": "absent"}]
    answer = configure(bmc, accounts=gone)
    assert (outcomes(answer), answer["changed"]) == ({}, True)
    assert (bmc.tree[f"{path}/3"]["Enabled"], list(bmc.passwords)) == (False, [USER])
    assert not configure(bmc, accounts=gone)["changed"]


def test_an_account_that_finds_no_free_slot_is_refused(configure):
    bmc = Bmc()
    bmc.wants_slots()
    path = f"{V1}/AccountService/Accounts"
    for number in range(3, 17):
        bmc.tree[f"{path}/{number}"]["UserName"] = f"user-{number}"
    why = f"ops: {path}: HTTP 405"
    assert outcomes(configure(bmc, accounts=[OPS])) == {"bmc.accounts": ("fail", why)}


def test_a_password_is_rotated_and_the_second_run_does_nothing(configure):
    bmc = Bmc()
    answer = configure(bmc, check=True, password=NEW, former_password=PASSWORD)
    assert outcomes(answer) == {"bmc.accounts": ("fail", "dgx: has its former password")}
    assert bmc.passwords == {USER: PASSWORD}
    answer = configure(bmc, password=NEW, former_password=PASSWORD)
    assert (answer["verdict"], answer["changed"], bmc.passwords) == ("pass", True, {USER: NEW})
    # The former session is there until the new one is: login, change, login, logouts.
    sessions = [one[0] for one in bmc.log if "Session" in one[1]][-5:]
    assert sessions == ["POST", "POST", "POST", "DELETE", "DELETE"]
    assert not configure(bmc, password=NEW, former_password=PASSWORD)["changed"]


def test_a_new_password_that_does_not_work_is_taken_back_by_the_former_session(configure):
    bmc = Bmc()
    bmc.mangles = {NEW}
    answer = configure(bmc, password=NEW, former_password=PASSWORD, bios={"SRIOV": "Disabled"})
    why = "dgx: the BMC took the new password and refuses it; the former one is in force again"
    assert outcomes(answer) == {"bmc.accounts": ("fail", why)}
    assert bmc.passwords == {USER: PASSWORD}
    # Nothing else is done on such a BMC.
    assert len(written(bmc)) == 2


def test_a_refusal_that_repeats_the_password_does_not_show_it(configure):
    bmc = Bmc()
    bmc.echoes = True
    answer = configure(bmc, password=NEW, former_password=PASSWORD)
    status, text = outcomes(answer)["bmc.accounts"]
    assert status == "fail"
    assert "The value *** for the property Password is not acceptable" in text
    assert bmc.passwords == {USER: PASSWORD}


def test_a_refusal_is_cut_after_the_password_is_out():
    answer = SimpleNamespace(dict={"error": {"message": "x" * 196 + NEW}})
    text = _message(answer, NEW)
    assert text.endswith("x***")
    assert NEW[:4] not in text


def test_an_account_that_is_refused_hides_no_other_one(configure):
    bmc = Bmc()
    configure(bmc, accounts=[OPS])
    bmc.passwords["ops"], bmc.echoes = "changed-by-hand", True
    answer = configure(bmc, accounts=[OPS, {**OPS, "user": "night"}])
    status, text = outcomes(answer)["bmc.accounts"]
    assert (status, answer["changed"], "night" in bmc.passwords) == ("fail", True, True)
    assert "ops: " in text
    assert "The value *** for" in text


def test_what_is_wrong_beside_what_waits_is_not_only_pending(configure):
    bmc = Bmc()
    bmc.ignores = {"NPS"}
    answer = configure(bmc, bios={"SRIOV": "Disabled", "NPS": "NPS4"})
    text = outcomes(answer)["bmc.bios"][1]
    assert text == "NPS is NPS1, declared NPS4; pending until the next boot: SRIOV Disabled"
    assert (answer["only_pending"], answer["pending"]) == (False, {})


def test_a_delivered_password_can_be_replaced_and_nothing_else(configure):
    bmc = Bmc()
    bmc.passwords, bmc.must_change = {USER: "admin"}, {USER}
    status, text = outcomes(configure(bmc, password="admin"))["bmc.access"]
    assert (status, bmc.log) == ("not_measured", [])
    assert "factory password" in text
    answer = configure(bmc, password=NEW, former_password="admin")
    assert (answer["verdict"], bmc.passwords) == ("pass", {USER: NEW})


def test_neither_password_is_right(configure):
    bmc = Bmc()
    answer = configure(bmc, password=NEW, former_password="older-word-0")
    assert outcomes(answer) == {"bmc.access": ("not_measured", "it refuses user or password")}
    assert bmc.passwords == {USER: PASSWORD}


@pytest.mark.parametrize("has", [PASSWORD, NEW])
def test_a_machine_that_is_not_the_declared_one_keeps_its_settings(configure, has):
    """Neither a password of the own account, nor another one, is written to it."""
    bmc = Bmc()
    bmc.passwords = {USER: has}
    answer = configure(
        bmc,
        serial="1660224000007",
        password=NEW,
        former_password=PASSWORD,
        accounts=[OPS],
        bios={"SRIOV": "Disabled"},
    )
    why = (
        "the machine at 127.0.0.1 is 1660224000001, declared is 1660224000007; correct "
        "node_address or node_serial"
    )
    assert outcomes(answer) == {"bmc.access": ("not_measured", why)}
    assert (written(bmc), bmc.passwords) == ([], {USER: has})


def test_a_delivered_password_is_replaced_on_the_declared_machine(configure):
    """A BMC that wants another password first shows no serial number before."""
    bmc = Bmc()
    bmc.passwords, bmc.must_change = {USER: "admin"}, {USER}
    given = {"serial": "1660224000001", "password": NEW, "former_password": "admin"}
    assert configure(bmc, **given)["verdict"] == "pass"
