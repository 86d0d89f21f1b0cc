# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from dataclasses import replace

import pytest
from checkout import FIXTURES
from ib_tree import RAILS, add_hca, dgx

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.pci import Tree
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.counters import (
    Sample,
    baseline,
    growth_of_port,
    sample_from_data,
    sample_to_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.judge import (
    Request,
    WantedRail,
    judge_node,
    wanted_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.mlxlink import (
    MODULE_FAULTS,
    LinkReport,
    Optics,
    Reading,
    parse_mlxlink,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.sysfs import load_hcas

WANTED = [WantedRail(rail, f"{bus}:00.0", 400) for rail, bus in enumerate(RAILS)]
OPTICS = Optics(
    True,
    Reading((61.0,), -10.0, 80.0),
    Reading((3.5, 3.2, 3.2, 2.6), -9.9, 7.0),
    Reading((2.1, 1.2, 1.7, 1.2), -6.9, 7.0),
    "EXAMPLE",
    "OSFP-400G",
    "S1",
    "40.1",
)
HEALTHY = {
    **dict.fromkeys(MODULE_FAULTS[:2], (0,)),
    **dict.fromkeys(MODULE_FAULTS[2:], (0, 0, 0, 0)),
}
REPORT = LinkReport(
    "Active", "4x", OPTICS, 15e-255, 0, 5e-10, 2718.0, "No issue was observed", 0, HEALTHY
)
REQUEST = Request(max_read_request=4096, acs_off=True)


def sample(hcas, seconds, boot="b"):
    return Sample(boot, seconds, {h.ports[0].guid: h.ports[0].counters for h in hcas if h.ports})


def records(
    path, request=REQUEST, wanted=WANTED, reports=None, window=3600.0, before=None, **report
):
    hcas = load_hcas(Tree(str(path)))
    now = sample(hcas, 10000.0)
    earlier = sample(hcas, 10000.0 - window) if before is None else before(now)
    reported = (
        {hca.device: replace(REPORT, **report) for hca in hcas} if reports is None else reports
    )
    return judge_node("dgx-01", hcas, wanted, request, reported, earlier, now)


def bad(found):
    return sorted((r.check, r.subject, r.status) for r in found if r.status != PASS)


def test_a_node_without_declared_rails_has_not_been_measured(tmp_path):
    (found,) = records(dgx(tmp_path), wanted=())
    assert (found.check, found.status) == ("ib.count", "not_measured")
    assert "no rails are declared" in found.text
    assert found.remedy.startswith("settings: ")


def test_a_healthy_node_passes_everything(tmp_path):
    found = records(dgx(tmp_path))
    assert bad(found) == []
    checks = {record.check for record in found}
    assert checks == {
        "ib.count", "ib.present", "ib.link_layer", "ib.physical_state", "ib.state", "ib.rate",
        "ib.width", "ib.subnet_manager", "ib.name", "ib.description", "ib.link_downed",
        "ib.symbol_errors",
        "ib.link_state",
        "ib.module_faults",
        "ib.troubleshooting",
        "ib.pcie_speed", "ib.pcie_width", "ib.max_read_request", "ib.acs", "ib.effective_ber",
        "ib.optics_temperature", "ib.optics_rx_power", "ib.optics_tx_power", "ib.firmware",
        "ib.psid", "ib.pkeys",
    }  # fmt: skip
    for record in found:
        assert record.threshold is not None
        assert record.threshold.source


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        ({"rate": "200 Gb/sec (4X HDR)"}, ["ib.rate"]),
        ({"rate": "200 Gb/sec (2X NDR)"}, ["ib.rate", "ib.width"]),
        ({"state": "2: INIT"}, ["ib.state"]),
        # without a link there is one finding, not four
        ({"state": "1: DOWN", "physical": "2: Polling"}, ["ib.physical_state"]),
        ({"layer": "Ethernet"}, ["ib.link_layer"]),
        ({"speed": "16.0 GT/s PCIe"}, ["ib.pcie_speed"]),
        ({"switch_width": 8}, ["ib.pcie_width"]),
        ({"read_request": 512}, ["ib.max_read_request"]),
        ({"acs": 0x1D}, ["ib.acs"]),
        ({"description": "dgx-02 mlx5_rail7"}, ["ib.description"]),
        ({"description": "dgx-02 HCA-8"}, ["ib.description"]),
        ({"description": "dgx-01 mlx5_7"}, ["ib.description"]),
        ({"description": "dgx-01"}, ["ib.description"]),
        ({"description": "HCA-8"}, ["ib.description"]),
        # As MLNX_OFED writes it: the host is right.
        ({"description": "dgx-01 HCA-8"}, []),
        ({"description": "DGX-01.site.example HCA-1"}, []),
    ],
)
def test_one_fault_is_found_at_its_rail_and_nothing_else(tmp_path, change, checks):
    # rail 7 shares no bridge with the others
    found = records(dgx(tmp_path, mlx5_rail7=change))
    assert bad(found) == [(check, "hca:dgx-01/rail7", FAIL) for check in checks]
    assert all(record.remedy for record in found if record.status == FAIL)


@pytest.mark.parametrize(
    ("wanted", "rate", "checks"),
    [
        (200, "200 Gb/sec (2X NDR)", []),
        (200, "200 Gb/sec (4X HDR)", []),
        (800, "800 Gb/sec (8X NDR)", []),
        (400, "400 Gb/sec (8X HDR)", []),
        (100, "100 Gb/sec (2X HDR)", []),
        (200, "400 Gb/sec (4X NDR)", []),
        (400, "100 Gb/sec (1X NDR)", ["ib.rate", "ib.width"]),
        (200, "100 Gb/sec (1X NDR)", ["ib.rate", "ib.width"]),
        (400, "200 Gb/sec (4X HDR)", ["ib.rate"]),
    ],
)
def test_a_width_that_gives_the_rate_is_right(tmp_path, wanted, rate, checks):
    dgx(tmp_path, **{f"mlx5_rail{rail}": {"rate": rate} for rail in range(8)})
    rails = [replace(rail, rate_gbps=wanted) for rail in WANTED]
    found = records(tmp_path, wanted=rails)
    assert {record.check for record in found if record.status != PASS} == set(checks)
    declared = records(tmp_path, wanted=[replace(rail, width="3x") for rail in rails])
    assert sum(record.check == "ib.width" and record.status == FAIL for record in declared) == 8


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"firmware": "28.40.0"}, "ib.firmware"),
        ({"psid": "MT_1"}, "ib.psid"),
        ({"pkeys": ("0xffff", "0x8001")}, "ib.pkeys"),
    ],
)
def test_rails_must_be_equal(tmp_path, change, check):
    found = records(dgx(tmp_path, mlx5_rail3=change))
    assert bad(found) == [(check, "node:dgx-01", FAIL)]
    evidence = next(record for record in found if record.check == check).evidence[0]
    assert "hca:dgx-01/rail3" in evidence


def test_two_ends_that_are_both_able_to_less(tmp_path):
    dgx(tmp_path)
    wanted = [replace(rail, pcie_generation=6, pcie_width=16) for rail in WANTED]
    found = records(tmp_path, wanted=wanted)
    assert len(bad(found)) == 8
    record = of(found, "ib.pcie_speed")
    assert (record.measured["value"], record.threshold.value) == (32.0, 64.0)


def test_declared_firmware(tmp_path):
    found = records(dgx(tmp_path), replace(REQUEST, firmware="28.40.0"))
    assert len(bad(found)) == 8
    assert {check for check, _subject, _status in bad(found)} == {"ib.firmware"}


def test_an_absent_rail_is_one_finding_and_the_count(tmp_path):
    dgx(tmp_path)
    (tmp_path / "class/infiniband/mlx5_rail4").unlink()
    assert bad(records(tmp_path)) == [
        ("ib.count", "node:dgx-01", FAIL),
        ("ib.present", "hca:dgx-01/rail4", FAIL),
    ]


def test_others_do_not_count(tmp_path):
    dgx(tmp_path)
    add_hca(tmp_path, "irdma0", "29", vendor="0x8086", state="1: DOWN", physical="3: Disabled")
    for number in range(4):
        add_hca(
            tmp_path, f"mlx5_{number}", f"0{number + 1}", vital=b"SMDL=SW_MNG", state="1: DOWN",
            physical="2: Polling", firmware="28.1",
        )  # fmt: skip
    assert bad(records(tmp_path)) == []


def test_the_name_is_a_finding_of_its_own(tmp_path):
    for rail, bus in enumerate(RAILS):
        add_hca(tmp_path, f"mlx5_{rail}", bus, number=rail)
    assert {check for check, _s, _st in bad(records(tmp_path))} == {"ib.name"}
    assert bad(records(tmp_path, replace(REQUEST, names=False))) == []


def test_a_tree_without_addresses_is_matched_by_name(capture):
    root = capture("sysfs-infiniband/sys-class-infiniband-h100.0")

    class Shifted(Tree):
        def path(self, *parts):
            return super().path(*parts).replace("class/infiniband/", "")

        def names(self, *parts):
            return super().names(*(() if parts == ("class", "infiniband") else parts))

    hcas = load_hcas(Shifted(str(root)))
    names = ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9")
    wanted = [WantedRail(rail, None, 400, devices=(name,)) for rail, name in enumerate(names)]
    now = Sample("b", 1.0, {})
    found = judge_node("h100", hcas, wanted, Request(names=False), {}, None, now)
    assert not [record for record in found if record.status == FAIL]
    rates = [record for record in found if record.check == "ib.rate"]
    assert [record.status for record in rates] == [PASS] * 8
    assert {record.status for record in found if record.check.startswith("ib.pcie")} == {
        NOT_MEASURED
    }


def of(found, check, rail=0):
    return next(r for r in found if r.check == check and r.subject == f"hca:dgx-01/rail{rail}")


def earlier(window, **changes):
    """A sample `window` seconds ago, in which rail 0 had other counters."""

    def before(now):
        ports = dict(now.ports)
        guid = "946dae0300000018"
        ports[guid] = {**ports[guid], **changes}
        return Sample("b", now.uptime_s - window, ports)

    return before


@pytest.mark.parametrize(
    ("counters", "was", "window", "status"),
    [
        ({"link_downed": 3}, {"link_downed": 3}, 3600, PASS),
        ({"link_downed": 3}, {"link_downed": 2}, 3600, FAIL),
        # a full counter cannot grow: that it did not is not proof
        ({"link_downed": 255}, {"link_downed": 255}, 3600, NOT_MEASURED),
        # but on its way there it did
        ({"link_downed": 255}, {"link_downed": 250}, 3600, FAIL),
        # cleared in between
        ({"link_downed": 1}, {"link_downed": 9}, 3600, NOT_MEASURED),
    ],
)
def test_link_downed(tmp_path, counters, was, window, status):
    dgx(tmp_path, mlx5_rail0={"counters": counters})
    found = records(tmp_path, before=earlier(window, **was))
    assert of(found, "ib.link_downed").status == status


@pytest.mark.parametrize(
    ("now", "was", "window", "status"),
    [
        (0, 0, 720, PASS),
        (0, 0, 60, NOT_MEASURED),
        # 2.88 are allowed in 720 s of 400 Gb/s
        (2, 0, 720, PASS),
        (3, 0, 720, FAIL),
        # too many are too many, however short the window
        (50, 0, 60, FAIL),
        (14, 0, 3600, PASS),
        (15, 0, 3600, FAIL),
        # from 125 minutes on the ratio is a tenth
        (3, 0, 7500, PASS),
        (4, 0, 7500, FAIL),
        (34, 0, 86400, PASS),
        (35, 0, 86400, FAIL),
        (65535, 65535, 3600, NOT_MEASURED),
        (65535, 65534, 3600, NOT_MEASURED),
    ],
)
def test_symbol_errors(tmp_path, now, was, window, status):
    dgx(tmp_path, mlx5_rail0={"counters": {"symbol_error": now}})
    found = records(tmp_path, before=earlier(window, symbol_error=was))
    record = of(found, "ib.symbol_errors")
    assert (record.status, record.text) == (status, record.text)


def test_without_an_earlier_reading_nothing_is_measured(tmp_path):
    found = records(dgx(tmp_path), before=lambda _now: None)
    assert {record.check for record in found if record.status != PASS} == {
        "ib.link_downed",
        "ib.symbol_errors",
    }
    rebooted = records(tmp_path, before=lambda now: replace(now, boot="a", uptime_s=0.0))
    assert "rebooted" in of(rebooted, "ib.link_downed").text


def test_a_counter_that_sysfs_lacks():
    now = Sample("b", 10.0, {"x": {}})
    assert growth_of_port(now, now, "x", "link_downed").count is None
    assert growth_of_port(now, now, "y", "link_downed").count is None


def test_the_reading_that_is_kept():
    old = Sample("b", 0.0, {"x": {"link_downed": 1}})
    soon = Sample("b", 60.0, {"x": {"link_downed": 1}})
    late = Sample("b", 800.0, {"x": {"link_downed": 1}})
    cleared = Sample("b", 60.0, {"x": {"link_downed": 0}})
    grown = Sample("b", 60.0, {"x": {"link_downed": 1}, "y": {"link_downed": 0}})
    rebooted = Sample("c", 60.0, {"x": {"link_downed": 1}})
    assert baseline(old, soon, 720) == old
    for now in (late, cleared, grown, rebooted):
        assert baseline(old, now, 720) == now
    assert baseline(None, soon, 720) == soon


def test_samples_survive_the_file():
    now = Sample("b", 10.5, {"x": {"link_downed": 1}})
    assert sample_from_data(sample_to_data(now)) == now
    for broken in (None, [], {}, {"version": 0}, {"version": 1, "ports": 3}, "x"):
        assert sample_from_data(broken) is None


@pytest.mark.parametrize(
    ("change", "check", "status"),
    [
        ({"temperature_c": Reading((81.0,), -10.0, 80.0)}, "ib.optics_temperature", FAIL),
        ({"temperature_c": Reading((81.0,), None, None)}, "ib.optics_temperature", NOT_MEASURED),
        ({"temperature_c": None}, "ib.optics_temperature", NOT_MEASURED),
        ({"rx_power_dbm": Reading((-10.0, 1, 1, 1), -9.9, 7.0)}, "ib.optics_rx_power", FAIL),
        ({"rx_power_dbm": Reading((7.5, 1, 1, 1), -9.9, 7.0)}, "ib.optics_rx_power", FAIL),
        # four lanes of the other port of a twin module have no light
        ({"rx_power_dbm": Reading((1, 1, 1, 1, -40, -40, -40, -40), -9.9, 7.0)}, "", PASS),
        ({"rx_power_dbm": Reading((-40, -40, -40, -40), -9.9, 7.0)}, "ib.optics_rx_power",
         NOT_MEASURED),
        ({"tx_power_dbm": None}, "ib.optics_tx_power", NOT_MEASURED),
        ({"optical": None}, "ib.optics", NOT_MEASURED),
        # copper has neither light nor lasers
        ({"optical": False, "temperature_c": None, "rx_power_dbm": None}, "", PASS),
    ],
)  # fmt: skip
def test_optics(tmp_path, change, check, status):
    reports = {f"mlx5_rail{rail}": REPORT for rail in range(8)}
    reports["mlx5_rail2"] = replace(REPORT, optics=replace(OPTICS, **change))
    expected = [] if status == PASS else [(check, "hca:dgx-01/rail2", status)]
    assert bad(records(dgx(tmp_path), reports=reports)) == expected


def test_an_active_cable_is_judged_by_its_technology(tmp_path):
    text = (FIXTURES / "mlxlink/ndr-optical.txt").read_text()
    active = "Active cable (active copper / optics)"
    text = text.replace("Optical Module (separated)", active).replace("1310 nm EML", "850 nm VCSEL")
    given = parse_mlxlink(text).optics
    hot = replace(given, temperature_c=replace(given.temperature_c, values=(92.0,)))
    assert bad(records(dgx(tmp_path), optics=given)) == []
    found = bad(records(tmp_path, optics=hot))
    assert {(check, status) for check, _subject, status in found} == {
        ("ib.optics_temperature", FAIL)
    }
    untold = parse_mlxlink(text.replace("850 nm VCSEL", "N/A")).optics
    found = bad(records(tmp_path, optics=untold))
    assert {(check, status) for check, _subject, status in found} == {("ib.optics", NOT_MEASURED)}


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"Module FW Fault": (1,)}, FAIL, "Module FW Fault"),
        ({"DataPath FW Fault": (1,)}, FAIL, "DataPath FW Fault"),
        ({"Tx Fault": (0, 0, 1, 0)}, FAIL, "Tx Fault on lane 3"),
        ({"Tx LOS": (1, 1, 1, 1)}, FAIL, "Tx LOS on lane 1, 2, 3, 4"),
        ({"Rx LOS": (0, 1, 0, 0)}, FAIL, "Rx LOS on lane 2"),
        ({"Rx CDR LOL": (0, 0, 0, 1)}, FAIL, "Rx CDR LOL on lane 4"),
        ({"Tx CDR LOL": (0, 0, 0, 1)}, FAIL, "Tx CDR LOL on lane 4"),
        # The other port of a twin module is dark, which is not a fault of this one ...
        ({"Rx LOS": (0, 0, 0, 0, 1, 1, 1, 1)}, NOT_MEASURED, "of 8 lanes of which the port uses 4"),
        # ... unless fewer lanes are left than the port uses.
        ({"Rx LOS": (0, 0, 0, 1, 1, 1, 1, 1)}, FAIL, "Rx LOS on lane 4, 5, 6, 7, 8"),
        ({"Rx LOS": None}, NOT_MEASURED, "Rx LOS is not reported"),
        ({}, PASS, "no alarm"),
    ],
)
def test_alarms_of_the_module(tmp_path, change, status, message):
    faults = {name: value for name, value in {**HEALTHY, **change}.items() if value is not None}
    reports = {f"mlx5_rail{rail}": REPORT for rail in range(8)}
    reports["mlx5_rail2"] = replace(REPORT, faults=faults)
    found = records(dgx(tmp_path), reports=reports)
    expected = [] if status == PASS else [("ib.module_faults", "hca:dgx-01/rail2", status)]
    assert bad(found) == expected
    record = next(
        r for r in found if (r.check, r.subject) == ("ib.module_faults", "hca:dgx-01/rail2")
    )
    # The transceiver is named by its serial number.
    assert "EXAMPLE OSFP-400G S1" in record.text
    assert message in record.text


# As mlxlink prints an active optical cable of HDR; separate modules alike.
@pytest.mark.parametrize(
    "kind", ["Active cable (active copper / optics)", "Optical Module (separated)"]
)
def test_a_module_without_cmis_need_not_report_its_alarms(tmp_path, kind):
    text = (FIXTURES / "mlxlink/ndr-optical.txt").read_text()
    text = text.replace("Optical Module (separated)", kind).replace("1310 nm EML", "850 nm VCSEL")
    text = re.sub(r"(\w+ (Fault|LOS|LOL)\b.*: )[0,]+", r"\1N/A", text)
    text = re.sub(r"(Tx Power Current.*: ).*", r"\1N/A", text)
    with_cmis = parse_mlxlink(text)
    assert with_cmis.faults == {}
    report = parse_mlxlink(text.replace(": OSFP", ": QSFP28"))
    given = {"optics": report.optics, "faults": report.faults}
    assert bad(records(dgx(tmp_path), **given)) == []
    # What it reports counts.
    found = bad(records(tmp_path, **{**given, "faults": {"Rx LOS": (0, 1, 0, 0)}}))
    assert {(check, status) for check, _subject, status in found} == {("ib.module_faults", FAIL)}
    sent = replace(report.optics, tx_power_dbm=Reading((9.0,) * 4, -9.0, 7.0))
    found = bad(records(tmp_path, **{**given, "optics": sent}))
    assert {(check, status) for check, _subject, status in found} == {("ib.optics_tx_power", FAIL)}
    found = bad(records(tmp_path, optics=with_cmis.optics, faults=with_cmis.faults))
    assert {(check, status) for check, _subject, status in found} == {
        ("ib.module_faults", NOT_MEASURED), ("ib.optics_tx_power", NOT_MEASURED)}  # fmt: skip


def test_copper_has_no_alarms(tmp_path):
    optics = replace(OPTICS, optical=False, temperature_c=None, rx_power_dbm=None)
    assert bad(records(dgx(tmp_path), optics=optics, faults={})) == []
    found = bad(records(tmp_path, optics=optics, faults={"Module FW Fault": (1,)}))
    assert {check for check, _subject, _status in found} == {"ib.module_faults"}


def test_what_passive_copper_says_of_light_and_clocks_is_no_alarm(tmp_path):
    text = (FIXTURES / "mlxlink/ndr-passive-copper.txt").read_text()
    report = parse_mlxlink(text)
    assert report.faults["Rx CDR LOL"] == (1, 1, 1, 1)
    given = {"optics": report.optics, "faults": report.faults}
    assert bad(records(dgx(tmp_path), **given)) == []
    given["faults"] = {**report.faults, "DataPath FW Fault": (1,)}
    found = bad(records(tmp_path, **given))
    assert {check for check, _subject, _status in found} == {"ib.module_faults"}
    # Active copper does have clock recovery.
    text = text.replace("Copper cable, passive, unequalized", "Copper cable, active, retimed")
    retimed = parse_mlxlink(text.replace("Passive copper cable", "Active copper cable"))
    found = bad(records(tmp_path, optics=retimed.optics, faults=retimed.faults))
    assert {check for check, _subject, _status in found} == {"ib.module_faults"}


@pytest.mark.parametrize(
    ("change", "check", "status"),
    [
        ({"state": "Polling"}, "ib.link_state", FAIL),
        ({"state": None}, "ib.link_state", NOT_MEASURED),
        ({"opcode": 15, "recommendation": "Bad signal integrity"}, "ib.troubleshooting", FAIL),
        ({"opcode": None}, "ib.troubleshooting", NOT_MEASURED),
        ({"opcode": 128}, "ib.troubleshooting", NOT_MEASURED),
        (
            {"opcode": 1023, "recommendation": "Information not available"},
            "ib.troubleshooting",
            NOT_MEASURED,
        ),
    ],
)
def test_what_the_firmware_says_of_an_active_port(tmp_path, change, check, status):
    found = bad(records(dgx(tmp_path), **change))
    assert {(name, report) for name, _subject, report in found} == {(check, status)}
    texts = {r.text for r in records(tmp_path, **change) if r.check == "ib.troubleshooting"}
    assert change.get("recommendation", "") in texts.pop()
    # A port that waits for its subnet manager is judged by ib.state alone.
    waiting = {f"mlx5_rail{rail}": {"state": "2: INIT"} for rail in range(8)}
    found = bad(records(dgx(tmp_path / "waiting", **waiting), **change))
    assert {name for name, _subject, _reported in found} == {"ib.state"}


def test_bit_errors(tmp_path):
    dgx(tmp_path)
    # before correction anything goes
    assert bad(records(tmp_path, raw_ber=1e-4)) == []
    assert len(bad(records(tmp_path, effective_ber=1e-9))) == 8
    found = records(tmp_path, effective_ber=None)
    assert of(found, "ib.effective_ber").status == NOT_MEASURED


def test_a_tool_that_did_not_answer_is_not_the_fault_of_the_port(tmp_path):
    reports = {f"mlx5_rail{rail}": "mlxlink did not end within 20 s" for rail in range(8)}
    found = records(dgx(tmp_path), reports=reports)
    assert {status for _check, _subject, status in bad(found)} == {NOT_MEASURED}
    assert "did not end" in of(found, "ib.optics").text


def test_options_that_contradict():
    with pytest.raises(ValueError, match=r"pci 18:00\.0 is given twice"):
        wanted_from_data([{"rail": rail, "pci": "18:00.0", "rate_gbps": 400} for rail in (0, 1)])
    with pytest.raises(ValueError, match="rail 0 is given twice"):
        wanted_from_data([{"rail": 0, "pci": pci, "rate_gbps": 400} for pci in ("a", "b")])
