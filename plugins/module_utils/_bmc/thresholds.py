# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is asked of a BMC, the threshold, its source, and what to do. Data only."""

from __future__ import annotations

from .._core.question import Question

_BMC = "the BMC's own judgement (Redfish, Status)"

ACCESS = Question(
    "bmc.access", "login with the declared certificate and account", "==", "open", "",
    "declared in the inventory",
    "look: node_address and node_bmc of the node; the BMC's network, certificate and account",
)  # fmt: skip
POWER = Question(
    "bmc.power", "power of the machine", "==", "On", "", "a node of the cluster is on",
    "look: the BMC's event log shows what switched it off; then switch it on",
)  # fmt: skip
HEALTH = Question(
    "bmc.health", "health of the machine with all its parts", "==", "OK", "", _BMC,
    "look: the BMC's event log names the part",
)  # fmt: skip
SUPPLIES = Question(
    "bmc.supplies", "power supplies that are not well", "==", 0, "supplies", _BMC,
    "look: is the supply's cable plugged in, does its feed have power? Then replace it",
)  # fmt: skip
FANS = Question(
    "bmc.fans", "fans that are not well", "==", 0, "fans", _BMC,
    "replace: the fan that is named; keep load away until then",
)  # fmt: skip
TEMPERATURES = Question(
    "bmc.temperatures", "sensors at or above their critical temperature", "==", 0, "sensors",
    "critical threshold that the BMC reports of each sensor",
    "look: inlet air, fans, dust; keep load away until it has cooled",
)  # fmt: skip
SERIAL = Question(
    "bmc.serial", "serial number of the machine", "==", None, "", "node_serial of the inventory",
    "look: the address leads to the BMC of another machine, or node_serial is wrong",
)  # fmt: skip
FIRMWARE = Question(
    "bmc.firmware", "firmware components that are not as declared", "==", 0, "components",
    "bmc.firmware of the node's profile",
    "settings: update the components that are named, or change the profile",
)  # fmt: skip
LOG = Question(
    "bmc.log", "critical entries of the event log since the last look", "==", 0, "entries",
    "Severity of each entry (Redfish, LogEntry)",
    "look: the entries say what happened; each counts once",
)  # fmt: skip
ACCOUNTS = Question(
    "bmc.accounts", "accounts that are not as declared", "==", 0, "accounts",
    "node_bmc of the inventory", "settings: configure_bmc; the text names the account",
)  # fmt: skip
TIME_SERVERS = Question(
    "bmc.time_servers", "time servers that are not as declared", "==", 0, "settings",
    "node_bmc.time_servers", "settings: configure_bmc",
)  # fmt: skip
LOG_SERVER = Question(
    "bmc.log_server", "subscriptions of the syslog server that are missing", "==", 0, "settings",
    "node_bmc.log_server", "settings: configure_bmc",
)  # fmt: skip
BIOS = Question(
    "bmc.bios", "attributes of the BIOS that are not as declared", "==", 0, "attributes",
    "bmc.bios of the node's profile",
    "settings: configure_bmc; what is pending is in force after the next boot",
)  # fmt: skip
BOOT_ORDER = Question(
    "bmc.boot_order", "boot orders that are not as declared", "==", 0, "settings",
    "bmc.boot_order of the node's profile",
    "settings: configure_bmc; what is pending is in force after the next boot",
)  # fmt: skip
UPDATED = Question(
    "bmc.updated", "firmware packages of the machine", "==", "done", "",
    "bmc.packages of the node's profile",
    "look: the text names the package and what it waits for; then update_firmware again",
)  # fmt: skip
SWITCHED = Question(
    "bmc.switched", "power of the machine after it was switched", "==", None, "",
    "what the operator or the ladder of repair asked for",
    "look: the text names what refused; the BMC's event log, then the command again with "
    "-e target= of this node",
)  # fmt: skip
