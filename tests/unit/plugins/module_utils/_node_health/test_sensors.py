# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sensors of a BMC in the form in which ipmitool lists them."""

from __future__ import annotations

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.sensors import (
    Sensor,
    judge_sensors,
    parse_sensors,
)

HEALTHY, BROKEN = (
    (FIXTURES / "ipmitool_sdr" / name).read_text() for name in ("healthy.txt", "broken.txt")
)
COMMAND = ("ipmitool", "sdr", "elist")


def test_names_healths_and_readings() -> None:
    found = parse_sensors(HEALTHY)
    assert len(found) == 6
    assert found[0] == Sensor("TEMP_AMBIENT", "ok", "24 degrees C")
    assert found[-1] == Sensor("PSU_REDUNDANCY", "ok", "Fully Redundant")
    (absent,) = parse_sensors("TEMP_GPU_BRD     | 4Bh | ns  |  7.8 | No Reading\n")
    assert (absent.health, absent.is_bad) == ("ns", False)
    assert parse_sensors("Could not open device at /dev/ipmi0\n") == []


@pytest.mark.parametrize("status", [0, 1])
def test_healthy_sensors_pass_also_if_one_cannot_be_read(status: int) -> None:
    record = judge_sensors("dgx-01", CommandResult(COMMAND, ENDED, status, HEALTHY))
    assert (record.status, record.subject) == ("pass", "node:dgx-01")
    assert record.measured == {"value": 0, "unit": "sensors"}


def test_critical_sensors_and_lost_supplies_are_named() -> None:
    record = judge_sensors("dgx-01", CommandResult(COMMAND, ENDED, 0, BROKEN))
    assert (record.check, record.status) == ("host.sensors", "fail")
    bad = ["TEMP_AMBIENT", "FAN_SYS0_F", "STATUS_PSU0", "STATUS_PSU1", "PSU_REDUNDANCY"]
    assert record.measured == {"value": len(bad), "unit": "sensors"}
    assert record.text.endswith(": " + ", ".join(bad))
    assert record.evidence[1] == "FAN_SYS0_F: lnr, 3 RPM"


@pytest.mark.parametrize(
    ("health", "bad"),
    [("ok", False), ("ns", False), ("lnc", False), ("unc", False), ("nc", False), ("lcr", True),
     ("ucr", True), ("lnr", True), ("unr", True), ("cr", True), ("nr", True)],
)  # fmt: skip
def test_each_word_of_the_health(health: str, bad: bool) -> None:
    assert Sensor("X", health, "47 degrees C").is_bad is bad


@pytest.mark.parametrize(
    "shown",
    [
        CommandResult(COMMAND, MISSING),
        CommandResult(COMMAND, TIMED_OUT, -1, HEALTHY),
        CommandResult(COMMAND, ENDED, 1, "", "Could not open device at /dev/ipmi0"),
        # It finds the sensors, and then reads none, or ends in the middle.
        CommandResult(COMMAND, ENDED, 1, 60 * "FAN_SYS0_F | 41h | ns  | 29.1 | No Reading\n"),
        CommandResult(COMMAND, ENDED, -9, HEALTHY.split("\n", 1)[0]),
        # It takes a record that it cannot get for the end of the list.
        *(
            CommandResult(COMMAND, ENDED, status, HEALTHY.split("\n", 1)[0], error)
            for status, error in (
                (0, 5 * "Get SDR 0081 command failed\n"),
                (0, 5 * "Get SDR 0081 command failed: Node busy\n"),
                (1, "Unable to renew SDR reservation\n"),
            )
        ),
    ],
)
def test_a_bmc_that_does_not_answer_is_not_measured(shown: CommandResult) -> None:
    record = judge_sensors("dgx-01", shown)
    assert record.status == "not_measured"
    assert record.text.startswith("ipmitool has not read the sensors: ")


@pytest.mark.parametrize(
    ("error", "more"),
    [
        ("Get SDR 0081 command failed: Node busy\n", ""),
        (4 * "Get SDR 0081 command failed\n" + "Get SDR 0082 command failed\n", ""),
        (2 * "ipmi_sdr_get_record() failed\n", "; ipmitool could not read 2 more"),
    ],
)
def test_a_retry_and_a_record_that_is_left_out_do_not_end_the_list(error: str, more: str) -> None:
    record = judge_sensors("dgx-01", CommandResult(COMMAND, ENDED, 0, HEALTHY, error))
    assert record.status == "pass"
    assert record.text.endswith(f"sensors of the BMC{more}")


@pytest.mark.parametrize(("outcome", "status"), [(ENDED, 1), (ENDED, -9), (TIMED_OUT, -1)])
def test_what_was_seen_to_be_critical_fails_however_the_tool_ended(
    outcome: str, status: int
) -> None:
    assert judge_sensors("dgx-01", CommandResult(COMMAND, outcome, status, BROKEN)).status == "fail"
