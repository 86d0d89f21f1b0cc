# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_switches import (
    judge_switch,
    parse_ibswinfo,
)

FIXTURES = FIXTURES / "ibswinfo"
SOUND = (FIXTURES / "ndr-healthy.txt").read_text()
PSU, FAN, TEMPERATURE = "fabric.switch_psu", "fabric.switch_fan", "fabric.switch_temperature"


def statuses(text: str) -> dict[str, str]:
    return {record.check: record.status for record in judge_switch("leaf-01", parse_ibswinfo(text))}


def test_a_healthy_switch_passes():
    health = parse_ibswinfo(SOUND)
    assert health.serial == "MT2310X00042"
    assert [supply.serial for supply in health.supplies] == ["MT2308X01000", "MT2308X01001"]
    assert health.temperature_c == 51
    assert health.fans == {1: 9120, 2: 8010, 3: 9055, 4: 7990}
    assert statuses(SOUND) == {PSU: PASS, FAN: PASS, TEMPERATURE: PASS}


def test_a_lost_power_supply_is_named_by_its_serial_number():
    text = (FIXTURES / "ndr-psu-failed.txt").read_text()
    assert statuses(text) == {PSU: FAIL, FAN: PASS, TEMPERATURE: PASS}
    record = next(iter(judge_switch("leaf-01", parse_ibswinfo(text))))
    assert "PSU1 (serial MT2308X01001) DC power is ERROR" in record.text
    assert record.subject == "switch:leaf-01"


@pytest.mark.parametrize(
    ("old", "new", "check", "status"),
    [
        ("fan status         | OK", "fan status         | ERROR", FAN, FAIL),
        # What ibswinfo cannot read is 0; a fan that stands makes the status an error.
        ("fan#2 (rpm)        | 8010", "fan#2 (rpm)        | 0", FAN, NOT_MEASURED),
        ("temperature (C)    | 51", "temperature (C)    | 0", TEMPERATURE, NOT_MEASURED),
        ("temperature (C)    | 51", "temperature (C)    | 91", TEMPERATURE, FAIL),
        ("temperature (C)    | 51", "temperature (C)    | foo", TEMPERATURE, NOT_MEASURED),
        ("fan#2 (rpm)        | 8010", "fan#2 (rpm)        | foo", FAN, NOT_MEASURED),
        ("PSU1 status        | OK", "PSU1 status        | ", PSU, NOT_MEASURED),
        ("     DC power      | OK\n", "", PSU, NOT_MEASURED),
        # As of a managed switch.
        ("     fan status    | OK\n", "", PSU, PASS),
        ("     fan status    | OK", "     fan status    | ", PSU, NOT_MEASURED),
    ],
)
def test_one_value(old, new, check, status):
    healthy = {PSU: PASS, FAN: PASS, TEMPERATURE: PASS}
    assert old in SOUND
    assert statuses(SOUND.replace(old, new)) == {**healthy, check: status}


def test_a_fan_that_stands_is_named():
    text = SOUND.replace("fan#2 (rpm)        | 8010", "fan#2 (rpm)        | 0")
    text = text.replace("\nfan status         | OK", "\nfan status         | ERROR")
    (record,) = (r for r in judge_switch("leaf-01", parse_ibswinfo(text)) if r.check == FAN)
    assert record.status == FAIL
    assert record.evidence == ("fan status is ERROR", "fan 2 does not turn")


@pytest.mark.parametrize(
    ("value", "guid"),
    [
        ("0xfc6a1c0301000000", "fc6a1c0301000000"),
        ("0x8C0EB0300D9F672", "08c0eb0300d9f672"),
        ("0x0000000000000000", None),
        ("0x0", None),
        ("", None),
    ],
)
def test_a_guid_of_zeroes_is_none(value, guid):
    assert parse_ibswinfo(SOUND.replace("0xfc6a1c0301000000", value)).guid == guid


def test_captures(captures):
    text = (captures / "ibswinfo/test1-missing.out").read_text()
    assert set(statuses(text).values()) == {NOT_MEASURED}
    healthy = (captures / "ibswinfo/test2.out").read_text()
    assert parse_ibswinfo(healthy).guid == "08c0eb0300d9f672"
    assert set(statuses(healthy).values()) == {PASS}


def test_gaps_are_not_measured():
    text = (FIXTURES / "ndr-gaps.txt").read_text()
    assert set(statuses(text).values()) == {NOT_MEASURED}


@pytest.mark.parametrize("text", ["", "-E- Failed to open device lid-7\n", SOUND[:-100]])
def test_what_is_no_answer(text):
    with pytest.raises(ValueError, match="ibswinfo"):
        parse_ibswinfo(text)
