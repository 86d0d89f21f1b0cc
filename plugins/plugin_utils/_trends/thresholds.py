# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How much worse a link may get before it is named, and where these figures come from. Data only.

A link that is named has not failed: these figures decide what is reported beside the failures, and
none of them makes a record fail.
"""

from __future__ import annotations

from typing import NamedTuple

from ...module_utils._core.question import Question

BER, RX, HEAT, BINS = "pre-FEC bit error ratio", "receive power", "temperature", "FEC histogram"


class Gauge(NamedTuple):
    """What counts as getting worse in one quantity, in its unit.

    `worse` is +1 where higher is worse, -1 where lower is; `noise` is the least spread that a
    reading is taken to have; `rise` is what a slope, `step` what a jump must have moved it at
    least; `near` is how far from its limit a jump must have ended to count; `edge` is how far from
    it any level is too near.
    """

    name: str
    unit: str
    worse: int
    noise: float
    rise: float
    step: float
    near: float
    edge: float
    source: str


class Code(NamedTuple):
    """What a code corrects.

    `limit` is the pre-FEC bit error ratio, as its decimal logarithm, at which it no longer corrects
    all; `corrected` are the symbols of a code word that it corrects, and `left` how few of them may
    be left: so few that a link at a tenth of its limit has no such code word in a day.
    """

    limit: float
    corrected: int
    left: int


# IEEE 802.3-2022, 91.5.3 and 119.2: RS(544,514) corrects 15 symbols of a code word, RS(528,514) 7;
# 2.4e-4 and 2.1e-5 leave 1e-15 after correction. RS(272,257) of InfiniBand's low latency corrects 7
# of half as many: 3.3e-5 by the same sum (tests/unit/plugins/plugin_utils/_trends). RS(546,516) is
# that of XDR; names: mstflint, operationalInfoFec_t.
CODES = {
    "544,514": Code(-3.62, 15, 3),
    "546,516": Code(-3.62, 15, 3),
    "528,514": Code(-4.68, 7, 1),
    "272,257": Code(-4.48, 7, 1),
    "271,257": Code(-4.48, 7, 1),
}
# Of a code that is not known the weakest is assumed; without one IBTA volume 2 asks for 1e-12.
LIMIT_OF_OTHERS, LIMIT_WITHOUT = -4.68, -12.0

_OWN = "chosen by us on simulated months (tests/soak/link_trends)"
GAUGES = (
    Gauge(BER, "decades", 1, 0.10, 0.6, 1.0, 1.2, 0.25, _OWN),
    Gauge(RX, "dB", -1, 0.20, 1.2, 2.0, 2.5, 0.3, f"{_OWN}; the limit is the module's own alarm"),
    Gauge(HEAT, "C", 1, 0.70, 5.0, 8.0, 4.0, 1.0, f"{_OWN}; the limit is the module's own alarm"),
)
_DAYS = "days until it reaches its limit, by its slope; jumps that end near the limit are named too"
_RESEAT = "clean and reseat both ends; if it goes on, replace the cable or transceiver"
# What names a link, as on the page of all thresholds.
QUESTIONS = {
    BER: Question(
        "links.ber", f"errors before correction: {_DAYS}", ">", 14, "days",
        f"IEEE 802.3-2022 for the limit; {_OWN}", _RESEAT,
    ),
    RX: Question(
        "links.rx_power", f"light that arrives: {_DAYS}", ">", 14, "days",
        f"alarm of the module for the limit; {_OWN}",
        "clean the fibre ends and look for a bend; then replace the transceiver of the far end",
    ),
    HEAT: Question(
        "links.temperature", f"temperature of the module: {_DAYS}", ">", 14, "days",
        f"alarm of the module for the limit; {_OWN}",
        "look at fans and air flow of this cage; then replace the transceiver",
    ),
    BINS: Question(
        "links.fec_histogram", "symbols of a code word that could still be corrected, in two "
        "readings of three (1 where the code corrects 7)", ">", 3, "symbols",
        f"IEEE 802.3-2022, 91.5.3 for the limit; {_OWN}",
        _RESEAT,
    ),
}  # fmt: skip

# Days in which a slope must reach the limit to be named.
HORIZON_DAYS = 14.0
# A slope is not drawn out for longer than this, times the days that it was seen.
REACH = 1.0
# Days that a slope is measured over; the shortest sees what goes fast.
WINDOWS_DAYS = (5.0, 9.0, 16.0, 30.0)
# Readings that a link needs to be judged, and that a window needs to count.
LEAST_READINGS = 7
LEAST_IN_WINDOW = 5
# Spreads of the readings around the slope, or of the past, that a change must have.
SPREADS = 5.0
# Share of the pairs of readings that must agree with the slope (Kendall's tau), with few readings
# and with more.
LEAST_TAU_OF_FEW, FEW, LEAST_TAU = 0.8, 8, 0.6
# The past that a jump is compared with, and the readings after it that must agree.
PAST_DAYS = 60.0
RECENT = 2
# Two readings that go for the limit so fast need no slope.
RUSH_DAYS = 2.0
# Links of a switch, node or kind from which on, and the share of its links, one cause is named.
LEAST_TOGETHER, TOGETHER_SHARE = 4, 0.5
# Links that must be read on a day for their middle to count as what all of them have in common.
LEAST_IN_COMMON = 6
# An older reading does not describe the present.
STALE_DAYS = 4.0
