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
        ("fan#2 (rpm)        | 8010", "fan#2 (rpm)        | 0", FAN, FAIL),
        ("temperature (C)    | 51", "temperature (C)    | 91", TEMPERATURE, FAIL),
        ("temperature (C)    | 51", "temperature (C)    | foo", TEMPERATURE, NOT_MEASURED),
        ("fan#2 (rpm)        | 8010", "fan#2 (rpm)        | foo", FAN, NOT_MEASURED),
        ("PSU1 status        | OK", "PSU1 status        | ", PSU, NOT_MEASURED),
        ("     DC power      | OK\n", "", PSU, NOT_MEASURED),
    ],
)
def test_one_value(old, new, check, status):
    healthy = {PSU: PASS, FAN: PASS, TEMPERATURE: PASS}
    assert old in SOUND
    assert statuses(SOUND.replace(old, new)) == {**healthy, check: status}


def test_gaps_are_not_measured():
    text = (FIXTURES / "ndr-gaps.txt").read_text()
    assert set(statuses(text).values()) == {NOT_MEASURED}


@pytest.mark.parametrize("text", ["", "-E- Failed to open device lid-7\n", SOUND[:-100]])
def test_what_is_no_answer(text):
    with pytest.raises(ValueError, match="ibswinfo"):
        parse_ibswinfo(text)
