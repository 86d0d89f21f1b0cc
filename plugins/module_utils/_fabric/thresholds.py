# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is asked of cables and switches, the threshold, its source, and what to do. Data only."""

from __future__ import annotations

from .._core.question import Question
from .._ib.thresholds import BER_SOURCES

_RESEAT = "clean and reseat the cable at both ends, then replace it"

RATE = Question(
    "fabric.cable", "rate of a link; a slower one is found as fabric.width or fabric.speed", ">=",
    None, "Gb/s", "cable plan: the rate of the fabric and of the node's profile",
    "reseat the cable at both ends, then replace it and its transceivers",
)  # fmt: skip
LEAF_UPLINKS = Question(
    "fabric.uplinks", "uplinks of a leaf", ">=", None, "uplinks",
    "the number that most switches of its tier have",
    "add the cables that are missing, or see why the plan has fewer here",
)  # fmt: skip
OVERSUBSCRIPTION = Question(
    "fabric.uplinks", "rate from below over the rate upward of a leaf", "<=", None, "down to up",
    "oversubscription_max", "add uplinks",
)  # fmt: skip
# One false finding in a thousand fabrics that lost cables.
COLLECTED = Question(
    "fabric.ports", "chance of so many of the lost cables at one switch, times the switches of its "
    "tier", ">=", 0.001, "probability", "binomial test, Bonferroni: one false in 1,000",
    "look at the log and the temperature of {switch}, and at what its cables have in common (a "
    "bundle, a patch panel); reseat them there",
)  # fmt: skip

# How much a counter of a port may grow between two readings.
SYMBOL_ERRORS = Question(
    "fabric.errors", "SymbolErrorCounter, by the rate and the time in between", "<=", None,
    "symbol errors in {seconds:.0f} s", BER_SOURCES, _RESEAT,
)  # fmt: skip


def _growth(counter: str, most: int, source: str, remedy: str = _RESEAT) -> Question:
    unit = counter + " in {seconds:.0f} s"
    return Question("fabric.errors", counter, "<=", most, unit, source, remedy)


_IBQUERYERRORS = "rdma-core, error thresholds of ibqueryerrors: 10"
LINK_DOWNED = _growth(
    "LinkDownedCounter", 0, "no link of the fabric may go down in use (GCM: any flap is critical)",
    "reseat the cable at both ends, replace it when it happens again",
)  # fmt: skip
RECOVERIES = _growth("LinkErrorRecoveryCounter", 0, "Azure ib health: any recovery within a window")
RECEIVE_ERRORS = _growth("PortRcvErrors", 10, _IBQUERYERRORS)
INTEGRITY_ERRORS = _growth("LocalLinkIntegrityErrors", 10, _IBQUERYERRORS)
BUFFER_OVERRUNS = _growth("ExcessiveBufferOverrunErrors", 10, _IBQUERYERRORS)

# Switches
_TOOL_SOURCE = "ibswinfo: OK is healthy"
SUPPLIES = Question(
    "fabric.switch_psu", "power supplies of a switch", "==", 0, "power supplies with a fault",
    _TOOL_SOURCE,
    "look at the power supplies of {switch} and their feeds; replace the one that is named",
)  # fmt: skip
FANS = Question(
    "fabric.switch_fan", "fans of a switch", "==", 0, "fans with a fault", _TOOL_SOURCE,
    "look at the fans of {switch}, and replace the module that is named or shows amber",
)  # fmt: skip
# The ASIC; beyond this the kernel's own driver of these chips speeds up all fans.
TEMPERATURE = Question(
    "fabric.switch_temperature", "temperature of the switch chip", "<", 85, "C",
    "Linux, mlxsw core_thermal.c: MLXSW_THERMAL_ASIC_TEMP_HIGH",
    "look at the airflow and the fans of {switch}",
)  # fmt: skip
