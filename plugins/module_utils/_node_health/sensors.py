# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the node's own BMC reports of its sensors, as `ipmitool sdr elist` prints it. Pure.

A line is name, number, health, entity and reading, with bars between. Of a sensor with thresholds
the health tells where it is: ok, ns (no reading), or the end (l, u) and the threshold that is
passed: nc (not critical), cr, nr (not recoverable). Of one that has states, health is ok, and the
reading has the states that are set (1.8.19, asked of OpenIPMI's ipmi_sim).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._core.record import Record
from .._core.run import CommandResult
from .thresholds import SENSORS

_FIELDS = 5
_MOST_LINES = 8
_NO_READING = "ns"
# Without the end in the short form of the list, and in those of other releases.
_BEYOND = ("lcr", "ucr", "cr", "lnr", "unr", "nr")
# States of power supplies (sensor type 08h) and of redundancy (generic type 0Bh) that mean a loss:
# IPMI 2.0, tables 42-2 and 42-3, in ipmitool's words.
_LOST = (
    "power supply ac lost",
    "ac lost or out-of-range",
    "ac out-of-range, but present",
    "failure detected",
    "predictive failure",
    "redundancy lost",
)


# It ends with 0 where it has read a part of the list alone: it tries each record five times, and
# goes on behind one that it got at last (lib/ipmi_sdr.c).
_BROKE_OFF = re.compile(r"renew SDR reservation|(Get SDR \w+ command failed)(?:.*\n\1){4}")
# Records that it leaves out, as those of OpenBMC that are of no hardware.
_LEFT_OUT = re.compile(r"ipmi_sdr_get_record\(\) failed")


@dataclass(frozen=True)
class Sensor:
    """A sensor: what it is called, its health in ipmitool's word, its reading or states."""

    name: str
    health: str
    reading: str

    @property
    def is_bad(self) -> bool:
        """Whether it is beyond a critical threshold, or reports a loss."""
        states = self.reading.lower()
        return self.health in _BEYOND or any(state in states for state in _LOST)


def parse_sensors(text: str) -> list[Sensor]:
    """Return the sensors of `ipmitool sdr elist`; other lines are left out."""
    rows = ([field.strip() for field in line.split("|")] for line in text.splitlines())
    return [Sensor(row[0], row[2], row[4]) for row in rows if len(row) == _FIELDS]


def judge_sensors(node: str, shown: CommandResult) -> Record:
    """Return whether all sensors are well; ipmitool ends with 1 where one cannot be read.

    Where it did not come to the end of the list, what it has shown can fail, and the rest is not
    known.
    """
    found = parse_sensors(shown.out)
    bad = [sensor for sensor in found if sensor.is_bad]
    unread = all(sensor.health == _NO_READING for sensor in found)
    if not bad and (unread or shown.rc < 0 or _BROKE_OFF.search(shown.err)):
        text = f"ipmitool has not read the sensors: {shown.describe(1)}"
        return SENSORS.judge(f"node:{node}", None, text=text)
    named = ", ".join(sensor.name for sensor in bad[:_MOST_LINES])
    text = f"{SENSORS.what}: {named}" if bad else f"{len(found)} sensors of the BMC"
    unknown = len(_LEFT_OUT.findall(shown.err))
    return SENSORS.judge(
        f"node:{node}", len(bad),
        text=f"{text}; ipmitool could not read {unknown} more" if unknown else text,
        evidence=tuple(f"{one.name}: {one.health}, {one.reading}" for one in bad[:_MOST_LINES]),
    )  # fmt: skip
