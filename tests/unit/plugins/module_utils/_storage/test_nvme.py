# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wear of disks, out of what smartctl reports about them, whole or broken."""

from __future__ import annotations

import json

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._storage.nvme import (
    judge_disk,
    warnings_of,
)

GOOD = {
    "smartctl": {"version": [7, 4], "exit_status": 0},
    "device": {"name": "/dev/nvme0", "type": "nvme", "protocol": "NVMe"},
    "model_name": "DISK 3840",
    "serial_number": "S123",
    "nvme_smart_health_information_log": {
        "critical_warning": 0,
        "temperature": 35,
        "available_spare": 100,
        "available_spare_threshold": 10,
        "percentage_used": 3,
        "media_errors": 0,
    },
}


def records(change=None, rc=0, outcome="ended", text=None):
    log = {**GOOD["nvme_smart_health_information_log"], **(change or {})}
    data = {**GOOD, "nvme_smart_health_information_log": log}
    out = json.dumps(data) if text is None else text
    asked = CommandResult(("smartctl",), outcome, rc, out, "", 30)
    return {one.check: one for one in judge_disk("dgx-01", "/dev/nvme0", asked)}


def test_a_healthy_disk_passes_and_is_known_by_its_serial():
    found = records()
    assert set(found) == {
        "nvme.critical_warning",
        "nvme.wear",
        "nvme.spare",
        "nvme.media_errors",
    }
    assert {one.status for one in found.values()} == {"pass"}
    assert {one.subject for one in found.values()} == {"nvme:dgx-01/S123"}
    assert "serial S123" in found["nvme.wear"].evidence


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"critical_warning": 4}, "nvme.critical_warning"),
        ({"percentage_used": 91}, "nvme.wear"),
        ({"percentage_used": 255}, "nvme.wear"),
        ({"available_spare": 9}, "nvme.spare"),
        ({"media_errors": 1}, "nvme.media_errors"),
    ],
)
def test_each_threshold_fails_for_itself(change, check):
    found = records(change, rc=8 if "critical_warning" in change else 0)
    assert [name for name, one in found.items() if one.status == "fail"] == [check]
    assert found[check].remedy


def test_thresholds_hold_at_their_edge():
    found = records({"percentage_used": 90, "available_spare": 10})
    assert {one.status for one in found.values()} == {"pass"}


@pytest.mark.parametrize(
    "case",
    [
        {"text": '{"smartctl": {'},
        {"text": "[]"},
        {"text": "{}"},
        {"outcome": "timed_out", "rc": -1, "text": ""},
        {"outcome": "missing", "rc": -1, "text": ""},
        {"rc": 2},
    ],
)
def test_a_disk_that_was_not_read_is_not_measured(case):
    found = records(**case)
    assert [one.status for one in found.values()] == ["not_measured"]


FORMS = FIXTURES / "smartctl"


@pytest.mark.parametrize("path", sorted(FORMS.glob("nvme-*.json")), ids=lambda path: path.stem)
def test_the_form_of_every_supported_version(path):
    data = json.loads(path.read_text())
    status = data["smartctl"]["exit_status"]
    asked = CommandResult(("smartctl",), "ended", status, path.read_text(), "", 1)
    found = {one.check: one for one in judge_disk("dgx-01", "/dev/nvme0", asked)}
    assert {one.subject for one in found.values()} == {f"nvme:dgx-01/{data['serial_number']}"}
    wanted = data["expected"]
    assert {name for name, one in found.items() if one.status == "fail"} == set(wanted)
    assert {one.status for one in found.values()} <= {"pass", "fail"}


@pytest.mark.parametrize(
    ("rc", "status"),
    [
        # Bits by their meaning: not opened, a command failed, an entry in the log of errors.
        (0b1, {"nvme.read": "not_measured"}),
        (0b10, {"nvme.read": "not_measured"}),
        (0b100, {}),
        (0b1000, {"nvme.smart_status": "fail"}),
        (0b10000, {}),
        (0b100000, {}),
        (0b1000000, {}),
        (0b10000000, {"nvme.self_test": "fail"}),
    ],
)
def test_each_bit_of_the_exit_status_is_judged_by_its_meaning(rc, status):
    found = {name: one.status for name, one in records(rc=rc).items() if one.status != "pass"}
    assert found == status


def test_a_failed_command_without_the_health_page_is_not_measured():
    text = json.dumps({**GOOD, "nvme_smart_health_information_log": None})
    (record,) = records(rc=4, text=text).values()
    assert record.status == "not_measured"


def test_what_smartctl_says_of_a_disk_it_cannot_open_is_told():
    text = json.dumps(
        {"smartctl": {"messages": [{"string": "Smartctl open device: /dev/nvme0 failed"}]}}
    )
    (record,) = records(rc=2, text=text).values()
    assert "open device" in record.text
    assert record.subject == "nvme:dgx-01/nvme0"


def test_a_number_that_is_missing_or_none_is_not_measured():
    found = records({"percentage_used": None, "media_errors": "many"})
    assert found["nvme.wear"].status == "not_measured"
    assert found["nvme.media_errors"].status == "not_measured"


def test_bits_have_words():
    assert warnings_of(0) == "none"
    assert warnings_of(0b1001) == "spare below its threshold, read only"
