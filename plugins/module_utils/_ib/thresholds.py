# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is asked of rails, the threshold of each question, its source, what to do. Data only."""

from __future__ import annotations

from .._core.question import Question

_PROFILE = "profile of the node"
_DECLARED = "declared in the inventory"
_STATE_SOURCE = "IBTA volume 1, 14.2.5.6 (PortInfo): only an active port carries data"
_FLAP_SOURCE = "no link of the fabric may go down in use (GCM: any flap is critical)"
_PCIE_SOURCE = "the lower of what both ends of each link are able to, and the profile of the node"
_RESEAT = "clean and reseat the cable at both ends, then replace it"
_SETTINGS = "systemctl restart baremetal-dgx-fabric-settings.service"

# The adapters of a node
COUNT = Question(
    "ib.count", "rails that have an RDMA device", "==", None, "rails", _PROFILE,
    "see ib.present of the rails",
)  # fmt: skip
PRESENT = Question(
    "ib.present", "RDMA device at {place}", "==", True, "present", _PROFILE,
    "look for {place} with lspci; absent there: reseat or replace the adapter; present there: read "
    "dmesg for mlx5_core",
)  # fmt: skip


def _equal(check: str, what: str, remedy: str) -> Question:
    source = f"one {what} on all rails of a node (IMB, CMX)"
    return Question(check, what, "==", 1, "different values", source, remedy)


FIRMWARE = _equal("ib.firmware", "firmware", "bring all adapters to one firmware: {wanted}")
PSID = _equal("ib.psid", "PSID", "bring all adapters to one PSID: {wanted}")
PKEYS = _equal("ib.pkeys", "PKey table", "compare partitions.conf with the GUIDs of the rails")
FIRMWARE_DECLARED = Question(
    "ib.firmware", "firmware", "==", None, "firmware", _DECLARED, "bring it to {wanted}",
)  # fmt: skip
PSID_DECLARED = Question(
    "ib.psid", "PSID", "==", None, "PSID", _DECLARED, "bring it to {wanted}",
)  # fmt: skip

# The port of a rail
LINK_LAYER = Question(
    "ib.link_layer", "link layer of the port", "==", None, "link layer", _PROFILE,
    "set LINK_TYPE_P{port} with mlxconfig, then reset the adapter",
)  # fmt: skip
PHYSICAL_STATE = Question(
    "ib.physical_state", "physical state of the port", "==", "LinkUp", "physical state",
    _STATE_SOURCE,
    "look at cable and transceiver at both ends; the plan of cables names the far end",
)  # fmt: skip
STATE = Question(
    "ib.state", "state of the port", "==", "ACTIVE", "state", _STATE_SOURCE,
    "the port waits for the subnet manager; ask sminfo, look at the role subnet_manager",
)  # fmt: skip
RATE = Question(
    "ib.rate", "rate of the link", ">=", None, "Gb/s", _PROFILE,
    "reseat or replace the cable; compare the speeds that both ends have enabled",
)  # fmt: skip
WIDTH = Question(
    "ib.width", "width of the link", "==", None, "lanes", _PROFILE,
    "reseat or replace the cable: lanes are lost",
)  # fmt: skip
SUBNET_MANAGER = Question(
    "ib.subnet_manager", "the port knows its subnet manager", "==", True, "subnet manager known",
    "IBTA volume 1, 14.2.5.6: MasterSMLID", "start a subnet manager",
)  # fmt: skip
NAME = Question(
    "ib.name", "name of the device", "==", None, "name", "role infiniband",
    "run the role infiniband, or reboot",
)  # fmt: skip
# By this the fabric knows the port. A wrong one would let a sweep find the wrong node.
DESCRIPTION = Question(
    "ib.description", "description that the fabric sees", "==", None, "NodeDescription",
    "rdma-ndd of rdma-core: HOST DEVICE; MLNX_OFED: HOST HCA-4",
    "systemctl restart rdma-ndd; compare the host name with the inventory",
)  # fmt: skip

# The interface of a rail: rail_addresses
ADDRESS = Question(
    "ib.address", "address of {netdev}", "==", None, "", _DECLARED,
    "if there is no {netdev}: reboot, interfaces are renamed then; otherwise ask {manager}",
)  # fmt: skip
MTU = Question(
    "ib.mtu", "MTU of {netdev}", "==", None, "bytes", _DECLARED,
    "ask {manager}; IPoIB has at most the MTU of its multicast group",
)  # fmt: skip
RULE = Question(
    "ib.rule", "what {netdev} sends from {source} leaves by it", "==", None, "", _DECLARED,
    "ask {manager}; ip rule show priority {table}",
)  # fmt: skip
ROUTE = Question(
    "ib.route", "route of {netdev} to {to}", "==", None, "", _DECLARED,
    "ask {manager}; ip route show table all",
)  # fmt: skip

# Counters over a window
LINK_DOWNED = Question(
    "ib.link_downed", "times that the link went down", "<=", 0, "times down in the window",
    _FLAP_SOURCE,
    "unless the switch or the cable was worked on: reseat the cable at both ends, replace it when "
    "it happens again",
)  # fmt: skip
# Bit error ratio after correction, and its source. From HDR on lanes always correct errors: UFM's
# limits for a short and a long window. Slower links: what InfiniBand demands without correction.
BER_SHORT = (1e-14, "UFM PDR plug-in: BER 1e-14 over 12 min")
BER_LONG = (1e-15, "UFM PDR plug-in: BER 1e-15 over 125 min")
BER_PLAIN = (1e-12, "IBTA volume 2: BER 1e-12 of a link")
BER_SOURCES = "; ".join(source for _ratio, source in (BER_SHORT, BER_LONG, BER_PLAIN))
SYMBOL_ERRORS = Question(
    "ib.symbol_errors", "symbol errors of an InfiniBand link, by speed, rate and window", "<=",
    None, "symbol errors in the window", BER_SOURCES, _RESEAT,
)  # fmt: skip
ETHERNET_SYMBOL_ERRORS = Question(
    "ib.symbol_errors", "symbol errors that FEC did not correct", "<=", None,
    "errors in the window", BER_SOURCES, _RESEAT,
)  # fmt: skip
CRC_ERRORS = Question(
    "ib.crc_errors", "frames dropped for a wrong checksum", "<=", None, "errors in the window",
    BER_SOURCES, _RESEAT,
)  # fmt: skip
LOSSLESS_DISCARDS = Question(
    "ib.lossless_discards", "packets dropped of the priorities with PFC", "<=", 0,
    "packets dropped in the window",
    "IEEE 802.1Qbb: with PFC nothing of a priority is dropped for want of buffers",
    "compare PFC, its priority and the buffers of the adapter with those of the switch port; no "
    "adapter or cable is at fault",
)  # fmt: skip

# PCIe
_PCIE = "reseat the adapter; look for AER messages of this bridge in dmesg; then replace it"
PCIE_SPEED = Question(
    "ib.pcie_speed", "slowest PCIe link up to the root", ">=", None, "GT/s", _PCIE_SOURCE, _PCIE,
)  # fmt: skip
PCIE_WIDTH = Question(
    "ib.pcie_width", "narrowest PCIe link up to the root", ">=", None, "lanes", _PCIE_SOURCE, _PCIE,
)  # fmt: skip
MAX_READ_REQUEST = Question(
    "ib.max_read_request", "largest read request", "==", None, "bytes",
    "declared for the role infiniband", _SETTINGS,
)  # fmt: skip
ACS = Question(
    "ib.acs", "ACS of the bridges above the adapter", "==", 0, "bridges that redirect",
    "NCCL documentation: PCI access control", _SETTINGS,
)  # fmt: skip

# What mlxlink reports about link and module. "15E-255" is how it writes that there was no error at
# all.
EFFECTIVE_BER = Question(
    "ib.effective_ber", "bit error ratio after correction", "<=", 1e-12, "bit error ratio",
    "IBTA volume 2: 1e-12 on a link; OCI judges effective BER so", _RESEAT,
)  # fmt: skip
LINK_STATE = Question(
    "ib.link_state", "state of the link by its firmware", "==", "Active", "state",
    "mlxlink, of a port ACTIVE in sysfs",
    "the link goes up and down: reseat the cable at both ends, then replace it",
)  # fmt: skip
TROUBLESHOOTING = Question(
    "ib.troubleshooting", "the firmware recommends: {advice}", "==", 0, "Status Opcode",
    "mlxlink, Troubleshooting Info: 0 means no issue", "follow the firmware: {advice}",
)  # fmt: skip
MODULE_ALARMS = Question(
    "ib.module_faults", "alarms of the transceiver", "==", 0, "alarms",
    "CMIS: alarms of the module itself",
    "reseat the transceiver {module}, then replace it; LOS or LOL of Rx may come from the far end: "
    "exchange the transceivers and see which end the alarm follows",
)  # fmt: skip
_RANGE = "{reading} of the transceiver, against the {end} end of its range"
OPTICS_LOW = Question(
    "ib.optics_{reading}", _RANGE.replace("{end}", "lower"), ">=", None, "{unit}",
    "alarm range that the module itself states",
    "clean the fibre ends; check the airflow; then replace the module",
)  # fmt: skip
OPTICS_HIGH = OPTICS_LOW._replace(what=_RANGE.replace("{end}", "upper"), op="<=")
