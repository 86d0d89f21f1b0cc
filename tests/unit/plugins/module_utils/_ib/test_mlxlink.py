# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import re

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._ib.mlxlink import (
    MODULE_FAULTS,
    Reading,
    parse_mlxlink,
    parse_reading,
)

TEXT = """\

Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-NDR
Width                              : 4x

Module Info
-----------
Identifier                         : OSFP
Cable Type                         : Optical Module (separated)
Temperature [C]                    : \x1b[32m54 [-5..75]\x1b[0m
Rx Power Current [dBm]             : 1.886,1.989,2.281,1.976 [-10.41..6]
Tx Power Current [dBm]             : N/A
Vendor Serial Number               : EX123

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 12.5
Effective Physical Errors          : 2
Effective Physical BER             : 3E-15
Raw Physical BER                   : 1E-9
"""


def test_text():
    report = parse_mlxlink(TEXT)
    assert (report.state, report.width) == ("Active", "4x")
    assert report.effective_ber == 3e-15
    assert report.effective_errors == 2
    assert report.minutes == 12.5
    assert report.optics.temperature_c == Reading((54.0,), -5.0, 75.0)
    assert report.optics.rx_power_dbm.values == (1.886, 1.989, 2.281, 1.976)
    assert report.optics.tx_power_dbm is None
    assert report.optics.optical is True
    assert report.optics.serial == "EX123"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-E- Failed to open device : 18:00.0",
        '{"status": {"code": 1, "message": "Failed to open device"}}',
        '{"result": {"output": {}}, "status": {"code": 0}}',
        '{"result": {"output": {"EYE Opening Info (PCIe)": {"Lane": 1}}}, "status": {"code": 0}}',
        '{"result": {"output": {"Operational Info": {"State": "Act',
    ],
)
def test_what_is_no_report(text):
    with pytest.raises(ValueError, match=r"."):
        parse_mlxlink(text)


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("61 [-10..80]", Reading((61.0,), -10.0, 80.0)),
        ("-40.0,1.5 [-9.9..6]", Reading((-40.0, 1.5), -9.9, 6.0)),
        ("61", Reading((61.0,), None, None)),
        ("N/A", None),
        ("N/A [N/A..N/A]", None),
        ("", None),
        (None, None),
        ({"values": ["1"]}, None),
    ],
)
def test_readings(text, reading):
    assert parse_reading(text) == reading


ACTIVE = "Active cable (active copper / optics)"


# Names and technologies of mstflint's mlxlink_maps.cpp, old and new.
@pytest.mark.parametrize(
    ("kind", "technology", "optical"),
    [
        ("Optical Module (separated)", "N/A", True),
        ("Optical Module (separated)", "1310 nm EML", True),
        (ACTIVE, "850 nm VCSEL", True),
        (ACTIVE, "1310 nm EML", True),
        (ACTIVE, "1310 nm FP", True),
        (ACTIVE, "1550 nm DFB laser", True),
        (ACTIVE, "C-band tunable laser", True),
        (ACTIVE, "Copper cable, linear active equalizers", False),
        (ACTIVE, "Copper cable with near and far end limiting active equalizers", False),
        (ACTIVE, "N/A", None),
        (ACTIVE, "Other / Undefined", None),
        (ACTIVE, "Active", None),
        ("Passive copper cable", "Copper cable, passive, unequalized", False),
        ("Passive copper cable", "N/A", False),
        ("N/A", "N/A", None),
        ("Unidentified", "N/A", None),
        ("Cable unplugged", "N/A", None),
    ],
)
def test_kinds_of_cable(kind, technology, optical):
    fields = {"Cable Type": kind, "Cable Technology": technology, "Identifier": "OSFP"}
    data = {"Module Info": fields}
    text = json.dumps({"result": {"output": data}, "status": {"code": 0}})
    assert parse_mlxlink(text).optics.optical is optical


FIXTURES = FIXTURES / "mlxlink"


@pytest.mark.parametrize("name", ["ndr-optical.json", "ndr-optical.txt"])
def test_both_forms_say_the_same(name):
    report = parse_mlxlink((FIXTURES / name).read_text())
    assert (report.state, report.width, report.opcode) == ("Active", "4x", 0)
    assert report.recommendation == "No issue was observed"
    assert set(report.faults) == set(MODULE_FAULTS)
    assert report.faults["Module FW Fault"] == (0,)
    assert report.faults["Rx CDR LOL"] == (0, 0, 0, 0)
    assert report.optics.serial == "FB2404000017"
    assert report.optics.optical is True
    assert report.effective_ber < 1e-200


BINS = (7421903377120, 30118422, 5210, 96, 22, 3, 1, 0, 2)


@pytest.mark.parametrize("name", ["ndr-fec-histogram.json", "ndr-fec-histogram.txt"])
def test_the_histogram_and_the_errors_before_correction(name):
    report = parse_mlxlink((FIXTURES / name).read_text())
    assert report.bins == BINS
    assert report.fec == "Interleaved_Standard_RS-FEC - (544,514)"
    assert report.raw_errors == 2104 + 1877 + 2950 + 2311
    assert report.downs == 0


def test_the_histogram_in_other_forms():
    text = (FIXTURES / "ndr-fec-histogram.txt").read_text()
    # Without colons, and with bins of several numbers of symbols.
    plain = re.sub(r"(?m)^(Bin \d+ *): ", r"\1", text)
    assert parse_mlxlink(plain).bins == BINS
    ranges = text.replace("[8:8]", "[7:9]").replace("[9:9]", "[10:12]")
    assert parse_mlxlink(ranges).bins == (*BINS[:8], 0, 2)
    data = json.loads((FIXTURES / "ndr-fec-histogram.json").read_text())
    data["result"]["output"]["Histogram of FEC Errors"]["Bin 3"]["values"][1] = "N/A"
    assert parse_mlxlink(json.dumps(data)).bins == ()


def test_without_a_histogram_and_counters():
    assert parse_mlxlink((FIXTURES / "ndr-optical.json").read_text()).bins == ()
    text = (FIXTURES / "hdr-optical-mft-4.18.txt").read_text()
    assert parse_mlxlink(text).raw_errors == 9242
    assert parse_mlxlink(text.replace("2104,1877,2950,2311", "N/A")).raw_errors is None


def test_captures_of_histograms(capture):
    report = parse_mlxlink(capture("mlxlink/cx7-400g-dr4-fec-histogram-serdes.json").read_text())
    assert report.bins == (22858119037881, 65755507, 7970, 177, 64, 2, 1, 1, 3)
    assert report.raw_errors == 5550000 + 28835305 + 14640119 + 16746846


def test_an_alarm_on_a_lane():
    text = (FIXTURES / "ndr-optical.json").read_text()
    data = json.loads(text)
    module = data["result"]["output"]["Module Info"]
    module["Rx LOS [per lane]"]["values"][2] = "1"
    module["Module FW Fault"] = "1"
    module["Tx Fault [per lane]"] = {"values": ["N/A"]}
    faults = parse_mlxlink(json.dumps(data)).faults
    assert faults["Rx LOS"] == (0, 0, 1, 0)
    assert faults["Module FW Fault"] == (1,)
    assert "Tx Fault" not in faults


# getCableIdentifier of mstflint's mlxlink_utils.cpp; what it does not know is asked for alarms.
@pytest.mark.parametrize(
    ("identifier", "cmis"),
    [
        *dict.fromkeys(("QSFP28", "QSFP+", "SFP28/SFP+", "QSA (QSFP->SFP)"), False).items(),
        *dict.fromkeys(("SFP-DD", "QSFP-DD", "QSFP_CMIS", "OSFP", "DSFP"), True).items(),
        ("N/A", True),
        ("QSFP112", True),
    ],
)
def test_modules_with_and_without_cmis(identifier, cmis):
    text = (FIXTURES / "ndr-optical.txt").read_text()
    text = text.replace(": OSFP", f": {identifier}")
    assert parse_mlxlink(text).optics.cmis is cmis


def test_what_older_releases_and_copper_do_not_report():
    old = parse_mlxlink((FIXTURES / "hdr-optical-mft-4.18.txt").read_text())
    assert old.faults == {}
    assert old.opcode == 0
    assert old.optics.optical is True
    copper = parse_mlxlink((FIXTURES / "ndr-copper.json").read_text())
    assert copper.faults == {}
    assert copper.optics.optical is False
    assert copper.optics.temperature_c is None


def test_capture_of_a_healthy_port(capture):
    report = parse_mlxlink(capture("mlxlink/cx7-400g-dr4-ok.json").read_text())
    assert report.optics.temperature_c == Reading((61.0,), -10.0, 80.0)
    assert len(report.optics.rx_power_dbm.values) == 4
    assert report.effective_ber < 1e-200
    assert report.raw_ber == 5e-10
    assert report.minutes == 2718.1
    assert report.recommendation == "No issue was observed"


def test_captures_with_gaps(capture):
    report = parse_mlxlink(capture("mlxlink/edited-missing-module-section.json").read_text())
    assert report.optics is None
    assert report.state == "Active"
    parse_mlxlink(capture("mlxlink/edited-na-fields.json").read_text())
    assert parse_mlxlink(capture("mlxlink/sichek-dom-sample.txt").read_text()).optics.vendor
    for name, width in (("edited-lanes-1x", "1x"), ("edited-lanes-8x", "8x")):
        assert parse_mlxlink(capture(f"mlxlink/{name}.json").read_text()).width == width
    with pytest.raises(ValueError, match="neither of a link"):
        parse_mlxlink(capture("mlxlink/cx7-pcie-gen5-eye.json").read_text())
