# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""bmc_info against BMCs over TLS, by DMTF's client library."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import time
from unittest import mock

import pytest
from redfish_server import COMPONENTS, PASSWORD, V1, Bmc, certificate, machine, serving
from ufm_server import plain_authority
from urllib3 import util
from urllib3.util import ssl_

from ansible_collections.baremetal.dgx.plugins.modules import bmc_info

BIOS = COMPONENTS.index("HostBIOS_0")


@pytest.fixture
def look(ask_bmcs):
    """look(bmc…, options…) → the answer, the BMCs being dgx-01, dgx-02, …"""
    return lambda *bmcs, **params: ask_bmcs(bmc_info.main, bmcs, **params)


def found(answer):
    """The records that did not pass, by check: status and text."""
    return {one["check"]: (one["status"], one["text"]) for one in answer["records"]}


def test_a_healthy_machine_passes_and_its_session_is_gone(look, tmp_path):
    bmc = Bmc()
    answer = look(bmc, each={"serial": "1660224000001"}, output=str(tmp_path))
    assert (answer["verdict"], answer["records"], answer["counts"]["pass"]) == ("pass", [], 7)
    assert (bmc.opened, bmc.sessions) == (1, set())
    kept = json.loads((tmp_path / "records.json").read_text())
    assert {one["check"] for one in kept} == {
        *("bmc.access", "bmc.power", "bmc.health", "bmc.serial"),
        *("bmc.supplies", "bmc.fans", "bmc.temperatures"),
    }
    assert PASSWORD not in json.dumps([kept, answer])


def test_check_mode_writes_nothing(look, tmp_path):
    assert look(Bmc(), check=True, output=str(tmp_path / "bmc"))["verdict"] == "pass"
    assert not (tmp_path / "bmc").exists()


def test_what_is_wrong_fails_by_name(look):
    bmc = Bmc()
    system, chassis = bmc.tree[f"{V1}/Systems/DGX"], f"{V1}/Chassis/DGX"
    system["PowerState"], system["Status"] = "Off", {"Health": "Critical"}
    supplies = bmc.tree[f"{chassis}/Power"]["PowerSupplies"]
    supplies[2]["Status"] = {"State": "Enabled", "Health": "Critical"}
    supplies[3]["Status"] = {"State": "Absent"}
    bmc.tree[f"{chassis}/Thermal"]["Fans"][0]["Status"]["Health"] = "Warning"
    bmc.tree[f"{chassis}/Thermal"]["Temperatures"][1]["ReadingCelsius"] = 95
    answer = look(bmc, each={"serial": "another"})
    assert found(answer) == {
        "bmc.power": ("fail", "power of the machine"),
        "bmc.health": ("fail", "health of the machine with all its parts"),
        "bmc.serial": ("fail", "serial number of the machine"),
        "bmc.supplies": ("fail", "PSU2: Critical"),
        "bmc.fans": ("fail", "FAN0: Warning"),
        "bmc.temperatures": ("fail", "TEMP_GPU1: 95 of 95 °C"),
    }


@pytest.mark.parametrize("expand", [True, False])
def test_firmware_against_the_profile(look, expand):
    bmcs = [Bmc(machine(expand=expand)) for _number in range(3)]
    path = f"{V1}/UpdateService/FirmwareInventory"
    bmcs[1].tree[f"{path}/HGX_FW_GPU_SXM_4"]["Version"] = "96.00"
    bmcs[2].tree[f"{path}/HostBIOS_0"]["Version"] = "01.02.9"
    rules = {
        "HGX_FW_GPU_SXM_*": {"alike": True},
        "HostBIOS_0": {"minimum": "1.2.10"},
        "HostBMC_0": {"exact": "01.02.00"},
    }
    for bmc in bmcs[:2]:
        bmc.tree[f"{path}/HostBIOS_0"]["Version"] = "01.02.10"
    answer = look(*bmcs, each={"firmware": rules})
    number = COMPONENTS.index("HGX_FW_GPU_SXM_4")
    assert [(one["subject"], one["text"]) for one in answer["records"]] == [
        ("node:dgx-02", f"HGX_FW_GPU_SXM_4 96.00, most nodes have 01.02.{number}"),
        ("node:dgx-03", "HostBIOS_0 01.02.9, at least 1.2.10"),
    ]
    asked = [path for _method, path in bmcs[0].log if "FirmwareInventory" in path]
    assert len(asked) == (1 if expand else 1 + len(COMPONENTS))


def test_firmware_that_cannot_be_judged_is_not_measured(look):
    bmcs = [Bmc(), Bmc()]
    bmcs[0].tree[f"{V1}/UpdateService/FirmwareInventory/CPLDMB_0"]["Version"] = "7"
    rules = {"CPLDMB_0": {"alike": True}}
    for answer in look(*bmcs, each={"firmware": rules})["records"]:
        assert answer["status"] == "not_measured"
        assert answer["text"] == "no version of CPLDMB_0 is that of most nodes"
    answer = look(Bmc(), each={"firmware": {"CPLD_9": {"exact": "1"}}})
    assert found(answer)["bmc.firmware"] == ("not_measured", "the BMC has no component CPLD_9")


@pytest.mark.parametrize("rule", [{"minimum": "0"}, {"alike": True}])
def test_a_component_that_other_nodes_have_is_not_measured(look, rule):
    path = f"{V1}/UpdateService/FirmwareInventory"
    bmcs = [Bmc(machine(expand=False)) for _number in range(3)]
    # One that few have is missed nowhere, nor is one that no pattern asks for.
    lacks = {
        0: ("HGX_FW_GPU_SXM_5", "CPLDMB_0"),
        1: ("HGX_FW_GPU_SXM_6",),
        2: ("HGX_FW_GPU_SXM_6",),
    }
    for number, names in lacks.items():
        for name in names:
            bmcs[number].tree[path]["Members"].remove({"@odata.id": f"{path}/{name}"})
    answer = look(*bmcs, each={"firmware": {"HGX_FW_GPU_SXM_*": rule}})
    assert [(one["subject"], one["status"], one["text"]) for one in answer["records"]] == [
        (
            "node:dgx-01",
            "not_measured",
            "the BMC has no component HGX_FW_GPU_SXM_5, which most nodes of its profile have",
        )
    ]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"State": "UnavailableOffline", "Health": None}, "PSU2: UnavailableOffline, no health"),
        ({"State": "Enabled"}, "PSU2: Enabled, no health"),
        ({"State": "Absent", "Health": None}, ""),
    ],
)
def test_a_part_without_a_health_is_not_measured_and_an_absent_one_left_out(look, status, text):
    bmc = Bmc()
    supplies = bmc.tree[f"{V1}/Chassis/DGX/Power"]["PowerSupplies"]
    supplies[2]["Status"] = status
    assert found(look(bmc)) == ({"bmc.supplies": ("not_measured", text)} if text else {})
    # What is bad fails, whatever is not known of others.
    supplies[0]["Status"]["Health"] = "Critical"
    assert found(look(bmc)) == {"bmc.supplies": ("fail", "PSU0: Critical")}


def test_parts_of_which_none_has_a_health_are_named(look):
    bmc = Bmc()
    supplies = bmc.tree[f"{V1}/Chassis/DGX/Power"]["PowerSupplies"]
    for supply in supplies:
        supply["Status"] = {"State": "Enabled", "Health": None}
    text = ", ".join(f"PSU{number}: Enabled, no health" for number in range(len(supplies)))
    assert found(look(bmc)) == {"bmc.supplies": ("not_measured", text)}


@pytest.mark.parametrize("rule", [{"exact": "9"}, {"minimum": "9"}, {"alike": True}])
@pytest.mark.parametrize("version", [None, ""])
def test_a_component_without_a_version_is_not_measured(look, rule, version):
    bmcs = [Bmc(), Bmc(), Bmc()]
    path = f"{V1}/UpdateService/FirmwareInventory"
    for bmc in bmcs:
        for number in range(1, 9):
            bmc.tree[f"{path}/HGX_FW_GPU_SXM_{number}"]["Version"] = "9"
    for bmc in bmcs[1:]:
        bmc.tree[f"{path}/HGX_FW_GPU_SXM_3"]["Version"] = version
    answer = look(*bmcs, each={"firmware": {"HGX_FW_GPU_SXM_*": rule}})
    assert [(one["subject"], one["status"], one["text"]) for one in answer["records"]] == [
        (f"node:dgx-0{number}", "not_measured", "HGX_FW_GPU_SXM_3 names no version")
        for number in (2, 3)
    ]


@pytest.mark.parametrize(
    ("path", "checks"),
    [
        ("/Systems/DGX", {"power", "health", "serial", "supplies", "fans", "temperatures"}),
        ("/Chassis/DGX/Power", {"supplies"}),
        ("/Chassis/DGX/Thermal", {"fans", "temperatures"}),
        ("/UpdateService", {"firmware"}),
        ("/UpdateService/FirmwareInventory", {"firmware"}),
    ],
)
def test_what_a_bmc_lacks_is_not_measured_by_name(look, path, checks):
    bmc = Bmc()
    del bmc.tree[V1 + path]
    rules = {"HostBIOS_0": {"exact": f"01.02.{BIOS:02d}"}}
    answer = look(bmc, each={"serial": "1660224000001", "firmware": rules})
    assert found(answer) == {
        f"bmc.{check}": ("not_measured", f"{V1}{path}: HTTP 404") for check in checks
    }
    assert answer["counts"]["fail"] == 0
    assert bmc.sessions == set()


def test_several_systems_want_an_id(look):
    answer = look(Bmc(), each={"system": ""})
    why = f"{V1}/Systems: 2 systems; write bmc.system into the node's profile"
    assert found(answer)["bmc.power"] == ("not_measured", why)


@pytest.mark.parametrize(
    ("each", "why"),
    [
        ({"certificate": "sha256:" + "0" * 64}, "its certificate is not the pinned one"),
        ({"password": "pass-word-2"}, "it refuses user or password"),
        ({"password": "Admin"}, "node_bmc has a factory password, with which no login is tried"),
    ],
)
def test_who_is_not_let_in_has_measured_nothing(look, each, why):
    bmc = Bmc()
    assert found(look(bmc, each=each)) == {"bmc.access": ("not_measured", why)}
    assert bmc.opened == 0
    posted = [path for method, path in bmc.log if method == "POST"]
    assert len(posted) == (1 if "refuses user" in why else 0)


def test_a_certificate_is_checked_with_the_authorities(look, bmc_tls, tmp_path):
    assert look(Bmc(), each={"certificate": str(bmc_tls[1])})["verdict"] == "pass"
    other = certificate(tmp_path)[1]
    answer = look(Bmc(), each={"certificate": str(other)})
    status, why = found(answer)["bmc.access"]
    assert status == "not_measured"
    assert why.startswith("its certificate is refused: ")
    answer = look(Bmc(), each={"certificate": str(tmp_path / "missing.pem")})
    assert found(answer)["bmc.access"][0] == "not_measured"


def test_an_authority_without_key_usage_counts_in_each_python(look, bmc_tls, tmp_path):
    key, cert, authority = plain_authority(tmp_path)
    made = ssl_.SSLContext

    def strict(protocol):
        context = made(protocol)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    # As urllib3 does under Python 3.13.
    with mock.patch.object(ssl_, "SSLContext", strict), serving(Bmc(), key, cert) as port:
        assert look(port, each={"certificate": str(authority)})["verdict"] == "pass"
        answer = look(port, each={"certificate": str(bmc_tls[1])})
        assert found(answer)["bmc.access"][1].startswith("its certificate is refused: ")


def test_an_older_urllib3_has_its_contexts_in_one_place(look, bmc_tls, monkeypatch):
    """1.26, of Debian 12, Ubuntu 22.04 and Enterprise Linux 9, exports less."""
    monkeypatch.delattr(util, "create_urllib3_context", raising=False)
    with serving(Bmc(), *bmc_tls[:2]) as port:
        assert look(port, each={"certificate": str(bmc_tls[1])})["verdict"] == "pass"


def test_silent_bmcs_delay_no_other(look):
    quiet, healthy = Bmc(), Bmc()
    quiet.silent = {f"{V1}/Systems/DGX"}
    with socket.create_server(("127.0.0.1", 0)) as deaf, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = deaf.getsockname()[1], closed.getsockname()[1]
        begun = time.monotonic()
        # The limit of one answer is longer than that of the BMC: a trickle is like this.
        answer = look(quiet, *ports, healthy, timeout_s=30, each_s=1.5)
    assert time.monotonic() - begun < 15
    assert {one["subject"]: one["text"] for one in answer["records"]} == {
        "node:dgx-01": "no answer in 1.5 s",
        "node:dgx-02": "no answer in 1.5 s",
        "node:dgx-03": "[Errno 111] Connection refused",
    }
    assert answer["counts"] == {"pass": 6, "fail": 0, "not_measured": 3}


def test_all_together_have_a_limit(look):
    bmcs = [Bmc(delay_s=0.3) for _number in range(4)]
    answer = look(*bmcs, at_once=1, total_s=0.5)
    assert {one["text"] for one in answer["records"]} == {
        "no answer, all had 0.5 s",
        "not asked, all had 0.5 s",
    }


def test_a_token_goes_to_no_other_host(look):
    bmc = Bmc()
    path = f"{V1}/Systems/DGX"
    bmc.moved = {path: "https://127.0.0.1:1/redfish/v1/Systems/DGX"}
    answer = look(bmc)
    assert found(answer)["bmc.power"] == ("not_measured", f"{path}: it leads to another address")
    bmc = Bmc()
    bmc.tree[path]["Links"]["Chassis"] = [{"@odata.id": "@127.0.0.1:1/x"}]
    answer = look(bmc)
    assert found(answer)["bmc.fans"] == (
        "not_measured",
        "'@127.0.0.1:1/x' is not a path of Redfish",
    )


def test_without_the_library_the_module_says_what_to_install(look, monkeypatch):
    monkeypatch.setitem(sys.modules, "redfish", None)
    answer = look(Bmc())
    assert answer["failed"]
    assert "pip install redfish" in answer["msg"]


def test_the_model_has_as_many_components_as_the_machine():
    assert len(set(COMPONENTS)) == 46


def test_no_bmc_is_not_a_pass(run_module):
    assert run_module(bmc_info.main, {"bmcs": [], "fail_on": []})["verdict"] == "not_measured"


def logged(answer):
    """The record of the event log: status and text; one that passes is not returned."""
    return found(answer).get("bmc.log", ("pass", ""))


def test_an_entry_of_the_event_log_counts_once(look, tmp_path):
    bmc, logs, out = Bmc(), str(tmp_path / "logs"), tmp_path / "out"
    bmc.happens("Power supply 2 has no input", "Critical", "2026-11-20T10:00:00+00:00")
    bmc.happens("Fan 3 is slow", "Warning")
    first = look(bmc, log_folder=logs, output=str(out))
    status, text = logged(first)
    assert status == "fail"
    assert "Power supply 2 has no input (2 entries at the first look, 1 warnings)" in text
    kept = json.loads((out / "log.json").read_text())["dgx-01"]
    assert [one["Message"] for one in kept] == ["Power supply 2 has no input", "Fan 3 is slow"]
    # The run was killed before its records were kept: nothing is lost.
    again = look(bmc, log_folder=logs)
    assert logged(again)[0] == "fail"
    # What another look has replaced in between is not the last look.
    assert not look(bmc, log_folder=logs, state="settled", look=first["look"])["changed"]
    settled = look(bmc, log_folder=logs, state="settled", look=again["look"])
    assert settled["changed"]
    assert look(bmc, log_folder=logs)["verdict"] == "pass"
    bmc.happens("Memory error that was not corrected", "Critical")
    assert "1 entries new since 20" in logged(look(bmc, log_folder=logs))[1]


def test_an_entry_is_the_same_whatever_offset_its_bmc_shows_it_in(look, tmp_path):
    """Summer time ends, or the zone is set; clocks of 1970 and of years ahead change nothing."""
    bmc, logs = Bmc(), str(tmp_path / "logs")
    moments = [
        ("2026-10-25T00:30:00+02:00", "2026-10-24T23:30:00+01:00"),
        ("1970-01-01T00:00:10Z", "1970-01-01T01:00:10+01:00"),
        ("2099-01-01T00:00:00+00:00", "2098-12-31T16:00:00-08:00"),
        ("not set", "not set"),
    ]
    for number, (before, _after) in enumerate(moments):
        bmc.happens(f"Power supply {number} has no input", "Critical", before)
    first = look(bmc, log_folder=logs)
    look(bmc, log_folder=logs, state="settled", look=first["look"])
    entries = bmc.tree[f"{V1}/Systems/DGX/LogServices/SEL/Entries"]["Members"]
    for entry, (_before, after) in zip(entries, moments, strict=True):
        entry["Created"] = after
    again = look(bmc, log_folder=logs)
    assert again["verdict"] == "pass", logged(again)


def test_a_log_that_was_cleared_is_not_measured_until_it_has_been_seen(look, tmp_path):
    bmc, logs = Bmc(), str(tmp_path / "logs")
    entries = bmc.tree[f"{V1}/Systems/DGX/LogServices/SEL/Entries"]

    def seen():
        answer = look(bmc, log_folder=logs)
        look(bmc, log_folder=logs, state="settled", look=answer["look"])
        return logged(answer)

    for number in range(4):
        bmc.happens(f"event {number}")
    assert seen()[0] == "pass"
    # The oldest is gone, and something of the last look is there: nothing is lost.
    del entries["Members"][0]
    bmc.happens("event 4")
    assert seen()[0] == "pass"
    entries["Members"].clear()
    bmc.happens("event 0")
    status, text = seen()
    assert (status, "was cleared or has wrapped" in text) == ("not_measured", True)
    assert seen()[0] == "pass"
    # Another machine is behind the address: what its log has is new.
    bmc.tree[f"{V1}/Systems/DGX"]["SerialNumber"] = "1660224000002"
    bmc.happens("Power supply 1 has no input", "Critical")
    assert "2 entries at the first look" in seen()[1]


def test_check_mode_and_a_bmc_without_a_log(look, tmp_path):
    bmc, logs = Bmc(), tmp_path / "logs"
    look(bmc, check=True, log_folder=str(logs))
    assert not logs.exists()
    del bmc.tree[f"{V1}/Systems/DGX"]["LogServices"]
    answer = look(bmc, log_folder=str(logs))
    names = "SEL, EventLog, IML, PlatformLog, StandardLog, Log1"
    assert logged(answer) == ("not_measured", f"{V1}/Systems/DGX has no event log ({names})")
    assert look(bmc, log_folder=str(logs), state="settled", look=answer["look"])["changed"] is False


@pytest.mark.parametrize(
    ("owner", "service", "is_found"),
    [
        ("Managers/BMC", {"Id": "Sel"}, True),
        ("Systems/DGX", {"Id": "IML"}, True),
        ("Systems/DGX", {"Id": "PlatformLog"}, True),
        ("Systems/DGX", {"Id": "StandardLog"}, True),
        ("Systems/DGX", {"Id": "Log1"}, True),
        ("Systems/DGX", {"Id": "events", "LogEntryType": "SEL"}, True),
        # Logins and changes of settings, on Supermicro.
        ("Managers/BMC", {"Id": "Log1"}, False),
        ("Systems/DGX", {"Id": "Lclog", "LogEntryType": "Event"}, False),
    ],
)
def test_the_event_log_has_another_name_at_each_maker(look, tmp_path, owner, service, is_found):
    bmc = Bmc()
    services = bmc.tree.pop(f"{V1}/Systems/DGX/LogServices")
    bmc.tree[f"{V1}/Systems/DGX/LogServices/SEL"] = {
        **bmc.tree[f"{V1}/Systems/DGX/LogServices/SEL"], **service
    }  # fmt: skip
    del bmc.tree[f"{V1}/Systems/DGX"]["LogServices"]
    bmc.tree[f"{V1}/{owner}/LogServices"] = services
    bmc.tree[f"{V1}/{owner}"]["LogServices"] = {"@odata.id": f"{V1}/{owner}/LogServices"}
    bmc.happens("Power supply 2 has no input", "Critical")
    status, text = logged(look(bmc, log_folder=str(tmp_path)))
    assert status == ("fail" if is_found else "not_measured"), text
    assert ("Power supply 2" in text) == is_found


def present(bmc):
    """Give a BMC the chassis of the present schema, without Power and Thermal (DSP2046)."""
    path = f"{V1}/Chassis/DGX"
    chassis = bmc.tree[path]
    power, thermal = bmc.tree.pop(f"{path}/Power"), bmc.tree.pop(f"{path}/Thermal")
    del chassis["Power"], chassis["Thermal"]

    def at(place, **data):
        bmc.tree[f"{path}/{place}"] = {"@odata.id": f"{path}/{place}", **data}
        return {"@odata.id": f"{path}/{place}"}

    def collection(place, items):
        return at(place, Members=[at(f"{place}/{n}", **one) for n, one in enumerate(items)])

    supplies = collection("PowerSubsystem/PowerSupplies", power["PowerSupplies"])
    fans = collection("ThermalSubsystem/Fans", thermal["Fans"])
    sensors = [
        {
            "Name": one["Name"], "ReadingType": "Temperature", "ReadingUnits": "Cel",
            "Reading": one["ReadingCelsius"],
            "Thresholds": {"UpperCritical": {"Reading": one["UpperThresholdCritical"]}},
        }
        for one in thermal["Temperatures"]
    ]  # fmt: skip
    sensors += [
        {"Name": "PWR_GPU0", "ReadingType": "Power", "Reading": 700, "Thresholds": {
            "UpperCritical": {"Reading": 650}}},
        {"Name": "TEMP_NIC", "ReadingType": "Temperature", "Reading": 200, "Thresholds": None},
    ]  # fmt: skip
    chassis["PowerSubsystem"] = at("PowerSubsystem", PowerSupplies=supplies)
    chassis["ThermalSubsystem"] = at("ThermalSubsystem", Fans=fans)
    chassis["Sensors"] = collection("Sensors", sensors)
    return path


@pytest.mark.parametrize("expand", [True, False])
def test_the_present_schema_is_read_too(look, expand):
    bmc = Bmc(machine(expand=expand))
    path = present(bmc)
    answer = look(bmc)
    assert (answer["verdict"], answer["counts"]["pass"]) == ("pass", 6)
    bmc.tree[f"{path}/PowerSubsystem/PowerSupplies/2"]["Status"] = {"Health": "Critical"}
    bmc.tree[f"{path}/ThermalSubsystem/Fans/0"]["Status"] = {"Health": "Warning"}
    bmc.tree[f"{path}/Sensors/1"]["Reading"] = 95
    assert found(look(bmc)) == {
        "bmc.supplies": ("fail", "PSU2: Critical"),
        "bmc.fans": ("fail", "FAN0: Warning"),
        "bmc.temperatures": ("fail", "TEMP_GPU1: 95 of 95 °C"),
    }


def test_what_the_present_schema_lacks_is_not_measured(look):
    bmc = Bmc()
    path = present(bmc)
    del bmc.tree[path]["ThermalSubsystem"], bmc.tree[path]["PowerSubsystem"]
    assert found(look(bmc)) == {
        "bmc.supplies": ("not_measured", f"{path} has no Power"),
        "bmc.fans": ("not_measured", "the BMC reports no fans"),
    }
