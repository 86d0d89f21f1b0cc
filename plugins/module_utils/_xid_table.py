# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What each Xid and SXid means and what is done about it. Data only, each row with its source.

NVIDIA's catalogue gives an immediate action for each Xid. It is written for clouds as well; where a
row says otherwise than the catalogue, its source says why.
"""

from __future__ import annotations

from typing import NamedTuple

# What is done, from nothing to the most. Only those from CHECK on are findings.
IGNORE = "ignore"
RESTART_JOB = "restart job"
CHECK = "check"
RESET = "reset"
REBOOT = "reboot"
REPLACE = "replace"
ACTIONS = (IGNORE, RESTART_JOB, CHECK, RESET, REBOOT, REPLACE)

CATALOGUE = "NVIDIA Xid catalogue, October 2025"
_NO_ACTION = "the catalogue of October 2025 has no action; "
_SWITCH_GUIDE = "NVIDIA Fabric Manager user guide, appendix D"


class Row(NamedTuple):
    """A line of the table."""

    meaning: str
    action: str
    source: str = CATALOGUE


XIDS: dict[int, Row] = {
    8: Row("GPU stopped processing", RESTART_JOB),
    11: Row("invalid or corrupted push buffer", RESTART_JOB),
    13: Row("graphics engine exception, most often of the program", RESTART_JOB),
    14: Row("unused", IGNORE),
    25: Row("invalid push buffer", RESTART_JOB),
    31: Row("memory page fault, most often of the program", RESTART_JOB),
    32: Row("invalid or corrupted push buffer", RESTART_JOB),
    37: Row("driver firmware error", IGNORE),
    38: Row("driver firmware error", IGNORE),
    43: Row("GPU stopped processing: the program was ended", IGNORE),
    44: Row("fault during a context switch", IGNORE),
    45: Row("clean-up after another error", IGNORE, CATALOGUE + ": the other Xid decides"),
    46: Row("GPU stopped processing", RESET),
    48: Row("double-bit ECC error", RESET, CATALOGUE + ": flow 48 ends in a reset"),
    54: Row("auxiliary power is not connected to the GPU", CHECK),
    60: Row("video processor exception", RESTART_JOB),
    62: Row("internal microcontroller halt", RESET),
    63: Row(
        "a memory row was remapped or a page retired",
        IGNORE,
        CATALOGUE + "; whether a reset is due is what NVML says of pending remaps",
    ),
    64: Row(
        "a memory row could not be remapped",
        REPLACE,
        "the catalogue has reset and support; NVIDIA's RMA rules name this flag as the criterion",
    ),
    66: Row("illegal access by the driver", IGNORE),
    67: Row("illegal access by the driver", IGNORE),
    69: Row("graphics engine class error", RESTART_JOB),
    74: Row("NVLink error", RESET, CATALOGUE + ": NVLink flow"),
    78: Row("vGPU start error", CHECK),
    79: Row("GPU has fallen off the bus", REBOOT),
    80: Row("corrupted data sent to the GPU", RESTART_JOB),
    92: Row("high rate of single-bit ECC errors", IGNORE),
    93: Row("infoROM wear limit", IGNORE),
    94: Row("contained memory error", RESTART_JOB),
    95: Row("uncontained memory error", RESET),
    106: Row("SMBPBI test message", IGNORE),
    107: Row("SMBPBI test message", IGNORE),
    108: Row("unused", IGNORE),
    109: Row("context switch timeout", RESET),
    110: Row("security fault", RESET),
    119: Row("GSP does not answer", RESET),
    120: Row("GSP error", RESET),
    121: Row("C2C error", IGNORE),
    136: Row("NVLink training failed", RESET),
    137: Row("NVLink privilege error, most often of a remote program", IGNORE),
    140: Row("unrecovered ECC error", RESET),
    141: Row("CUDA fast path error", IGNORE),
    143: Row("GPU initialization error", RESET),
    151: Row("key rotation error", RESTART_JOB, CATALOGUE + ": restart the virtual machine"),
    152: Row("DLA SMMU error", IGNORE),
    153: Row("DLA timeout", IGNORE),
    155: Row("NVLink error defined by software", RESET),
    156: Row("a resource was retired", RESET),
    157: Row("a resource could not be retired", IGNORE),
    158: Row("GPU fatal timeout", RESET),
    159: Row("CHI non-data error", CHECK),
    160: Row("a memory channel was retired", IGNORE),
    161: Row("a memory channel could not be retired", IGNORE),
    162: Row("power smoothing engaged again", IGNORE, _NO_ACTION + "informational"),
    163: Row("power smoothing disengaged", IGNORE, _NO_ACTION + "informational"),
    164: Row("power smoothing has little lifetime left", IGNORE, _NO_ACTION + "informational"),
    165: Row("power smoothing has no lifetime left", CHECK, _NO_ACTION + "ask NVIDIA"),
    167: Row("PCIe fatal timeout", REBOOT, _NO_ACTION + "treated as 79"),
    168: Row("reduced memory capacity", CHECK, _NO_ACTION + "ask NVIDIA"),
    171: Row("DRAM detail of Xid 48", RESET, _NO_ACTION + "goes with 48"),
    172: Row("SRAM detail of Xid 48", RESET, _NO_ACTION + "goes with 48"),
}
# Copy engines, video engines and JPEG engines: all of them ask to restart the job.
XIDS.update(
    {
        code: Row("engine exception", RESTART_JOB)
        for code in (
            *(39, 40, 41, 68, 70, 71, 72, 75, 76, 77),
            *range(82, 87),
            *(88, 89),
            *range(96, 106),
            *range(126, 136),
            139,
        )
    }
)
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

# NVSwitch errors up to the third generation. The driver writes whether one is fatal; these are
# fatal whatever it writes, and only a reboot brings the switch back.
SXID_ALWAYS_FATAL = frozenset((12020, 22003, 22011, *range(23001, 23018)))
SXID_SOURCE = _SWITCH_GUIDE
