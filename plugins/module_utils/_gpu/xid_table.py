# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What each Xid and SXid means and what is done about it; the rows are in _xid_data and _sxid_data.

NVIDIA's catalogue gives an immediate action for each Xid. It is written for clouds as well; if a
row says otherwise than the catalogue, its source says why.
"""

from __future__ import annotations

from typing import NamedTuple

from .sxid_data import SOURCES as SWITCH_SOURCES
from .sxid_data import SXIDS as SWITCH_DATA
from .xid_data import SOURCES
from .xid_data import XIDS as DATA

# What is done, from nothing to the most. Only those from CHECK on are findings.
IGNORE = "ignore"
RESTART_JOB = "restart job"
CHECK = "check"
RESET = "reset"
REBOOT = "reboot"
REPLACE = "replace"
ACTIONS = (IGNORE, RESTART_JOB, CHECK, RESET, REBOOT, REPLACE)

# Decoded from the text of the line.
LINE = "line"

CATALOGUE = SOURCES["catalogue"]


class Row(NamedTuple):
    """A line of the table."""

    meaning: str
    action: str
    source: str = CATALOGUE


# What has to be read from the line has no row here.
XIDS: dict[int, Row] = {
    code: Row(meaning, action, SOURCES[source])
    for code, action, meaning, source in DATA
    if action != LINE
}
RECOVERY_CHANGED = 154

# Words of Xid 154 and the numbers of NVML's field GPU_RECOVERY_ACTION (nvml.h).
RECOVERY: dict[int, Row] = {
    0: Row("none", IGNORE),
    1: Row("GPU reset required", RESET),
    2: Row("node reboot required", REBOOT),
    3: Row("drain peer-to-peer", RESET),
    4: Row("drain and reset", RESET),
    5: Row("recover the IMEX domain", CHECK),
    6: Row("bus reset required", RESET),
    7: Row("system reboot required", REBOOT),
}
RECOVERY_WORDS = {
    "none": 0,
    "gpu reset required": 1,
    "node reboot required": 2,
    "drain p2p": 3,
    "drain and reset": 4,
    "recover imex domain": 5,
}

# NVLink of the fifth generation (Blackwell): what decides is the unit, its sub-code (bits 20 to 25
# of the first word) and the error status (the second word).
NVLINK5_NAMES = {
    144: "SAW",
    145: "RLW",
    146: "TLW",
    147: "TREX",
    148: "NVLPW",
    149: "NETIR",
    150: "MSE",
}
NVLINK5_SOURCE = CATALOGUE + ", sheet of Xids 144 to 150"

# Error status bits by unit that ask for a reset; every other bit that the sheet has is ignored, or
# leaves the decision to the Xid 154 that follows.
NVLINK5_RESET_BITS: dict[str, int] = {
    "SAW_MVB": 0x12,
    "RLW_CTRL": 0,
    "RLW_REMAP": 0xC0,
    "RLW_RSPCOL": 0x2,
    "RLW_RXPIPE": 0,
    "RLW_SRC_TRACK": 0x31,
    "RLW_TAGSTATE": 0x120002,
    "TLW_CTRL": 0x4,
    "TLW_RX": 0x4,
    "TLW_TX": 0x4,
    "TREX": 0,
    "NVLPW": 0,
}
NVLINK5_KNOWN_BITS: dict[str, int] = {
    "SAW_MVB": 0x3F,
    "RLW_CTRL": 0x80000000,
    "RLW_REMAP": 0x800003FF,
    "RLW_RSPCOL": 0x80000003,
    "RLW_RXPIPE": 0x8000000F,
    "RLW_SRC_TRACK": 0x8000003F,
    "RLW_TAGSTATE": 0x80130003,
    "TLW_CTRL": 0x80000007,
    "TLW_RX": 0x80000007,
    "TLW_TX": 0x80000007,
    "TREX": 0x80000001,
    "NVLPW": 0x80000000,
}
# Where to look after a link went down, by the sub-code of NETIR_LINK_EVT.
_SIGNAL = "signal integrity of this link"
_CABLES = "signal integrity and cables of this link"
_PEER = "the device at the other end of the link, where it began"
_SOFTWARE = "software or a user took the link down"
LINK_DOWN: dict[int, tuple[str, str]] = {
    0: (RESET, "reported alone: send it to NVIDIA; with others, those decide"),
    1: (RESET, "report it to NVIDIA when it comes more than once a day"),
    2: (RESET, _SIGNAL),
    4: (RESET, _SIGNAL),
    10: (RESET, _SIGNAL),
    15: (RESET, _SOFTWARE),
    16: (RESET, _SOFTWARE + ", or " + _SIGNAL),
    17: (RESET, _SOFTWARE),
    18: (RESET, _SOFTWARE + ", or " + _SIGNAL),
    21: (RESET, _PEER),
    22: (RESET, _SOFTWARE),
    32: (RESET, _PEER),
    33: (RESET, _PEER),
    34: (RESET, _PEER),
    35: (RESET, _PEER),
    36: (RESET, _PEER),
    37: (RESET, _PEER),
    38: (IGNORE, _SOFTWARE),
    40: (IGNORE, "the host took the link down"),
    42: (RESET, _CABLES),
    43: (RESET, _CABLES),
}
# NETIR_MFDE_EVENT by its error status, which is a number and no mask.
FIRMWARE_EVENTS = {1: RESET, 3: IGNORE, 4: RESET, 5: RESET, 7: RESET}

# Bits of the first register of Xid 74 (NVIDIA's NVLink flow, as NVSentinel quotes it), the most
# telling first. Others than these are not known.
NVLINK_REGISTER: tuple[tuple[int, str], ...] = (
    (1 << 21 | 1 << 22, "marginal signal: check the mechanical connections of this link"),
    (1 << 4 | 1 << 5, "ECC or parity: again on the same link, it is the hardware"),
    (
        1 << 8 | 1 << 9 | 1 << 12 | 1 << 16 | 1 << 17 | 1 << 24 | 1 << 28,
        "perhaps the hardware: check the mechanical connections, then run the field diagnostic",
    ),
    (1 << 1 | 1 << 20, "follows from another error: that one decides; alone, report it to NVIDIA"),
)
NVLINK_REGISTER_HARMLESS = 1 | 1 << 23 | 1 << 30


class SwitchRow(NamedTuple):
    """An SXid: `kind` is always, fatal or nonfatal, or an action where the driver says no word."""

    meaning: str
    kind: str
    source: str


# NVSwitch errors up to the third generation.
ALWAYS, FATAL, NONFATAL = "always", "fatal", "nonfatal"
SXIDS: dict[int, SwitchRow] = {
    code: SwitchRow(meaning, kind, SWITCH_SOURCES[source])
    for code, kind, meaning, source in SWITCH_DATA
}
SXID_SOURCE = "NVIDIA Fabric Manager user guide, appendix D"
