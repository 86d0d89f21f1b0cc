# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Is each rail of this node what its profile says? Pure: what was found and the marks give records.

The rails are found by PCI address, since names and numbers of RDMA devices follow the operating
system. Only a tree without PCI addresses is matched by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import RAIL_DEVICE
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_counters import Sample
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_health_ports import (
    PCIE_GTS,
    judge_counters,
    judge_optics,
    judge_pcie,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_mlxlink import LinkReport
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_sysfs import Hca, Port
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    NOT_MEASURED,
    Record,
    Threshold,
    judge,
)

PROFILE = "profile of the node"
_STATE_SOURCE = "IBTA volume 1, 14.2.5.6 (PortInfo): only an active port carries data"


@dataclass(frozen=True)
class WantedRail:
    """What one rail must be."""

    rail: int
    pci: str | None
    rate_gbps: float
    width: str = "4x"
    link_layer: str = "InfiniBand"
    devices: tuple[str, ...] = ()
    # Of the adapter's own link and all above it; None where the profile leaves it open.
    pcie_generation: int | None = None
    pcie_width: int | None = None

    @property
    def name(self) -> str:
        """The name that the role infiniband gives it."""
        return RAIL_DEVICE.format(rail=self.rail)


@dataclass(frozen=True)
class Marks:
    """What a site may set; the numbers that are facts stand beside their sources."""

    firmware: str = ""  # empty: the rails must only be equal
    psid: str = ""
    names: bool = True
    max_read_request: int = 0  # 0: not asked
    acs_off: bool = False
    optics: bool = True
    window_s: float = 720.0


def full_pci(address: str) -> str:
    """Return an address with its domain, in lower case, as sysfs writes it."""
    return address.lower() if address.count(":") == 2 else "0000:" + address.lower()


def find_rail(wanted: WantedRail, hcas: Sequence[Hca]) -> Hca | None:
    """Return the device of a rail, None where there is none."""
    for hca in hcas:
        if wanted.pci is not None and hca.pci == full_pci(wanted.pci):
            return hca
    for hca in hcas:
        named = hca.device in (wanted.name, *wanted.devices)
        if named and (hca.pci is None or wanted.pci is None):
            return hca
    return None


def _found(
    rails: Sequence[WantedRail], hcas: Sequence[Hca], subject: Callable[[int], str]
) -> Iterator[Record]:
    for wanted in rails:
        hca = find_rail(wanted, hcas)
        place = f"PCI {full_pci(wanted.pci)}" if wanted.pci else f"the name {wanted.name}"
        yield judge(
            "ib.present",
            subject(wanted.rail),
            hca is not None and not hca.ignored and bool(hca.ports),
            Threshold("==", True, "present", PROFILE),
            text=f"RDMA device at {place}",
            remedy=(
                f"look for {place} with lspci; absent there: reseat or replace the adapter; "
                "present there: read dmesg for mlx5_core"
            ),
            evidence=[hca.ignored] if hca and hca.ignored else [],
        )


def _equal(
    check: str, subject: str, values: Mapping[str, str | None], what: str, remedy: str
) -> Record:
    """Judge whether all rails show the same; one that shows nothing leaves it open."""
    known = {value for value in values.values() if value is not None}
    unread = [name for name, value in values.items() if value is None]
    groups = "; ".join(
        f"{value}: {', '.join(name for name in values if values[name] == value)}"
        for value in sorted(known)
    )
    mark = Threshold("==", 1, "different values", f"one {what} on all rails of a node (IMB, CMX)")
    if len(known) < 2 and (unread or not known):
        text = f"{what} not readable on {', '.join(unread) or 'any rail'}"
        return Record(check, subject, NOT_MEASURED, text, threshold=mark, evidence=(groups,))
    return judge(check, subject, len(known), mark, what, remedy, [groups])


def _one_or_declared(
    check: str, subject: str, values: Mapping[str, str | None], what: str, declared: str
) -> Iterator[Record]:
    remedy = f"bring all adapters to one {what}: {declared or 'that of most of the nodes'}"
    yield _equal(check, subject, values, what, remedy)
    for name, value in values.items() if declared else ():
        mark = Threshold("==", declared, what, "declared in the inventory")
        yield judge(check, name, value, mark, what, f"bring it to {declared}")


def _judge_port(
    wanted: WantedRail, hca: Hca, port: Port, subject: str, marks: Marks
) -> Iterator[Record]:
    at = f"{hca.device} port {port.number}"
    yield judge(
        "ib.link_layer",
        subject,
        port.link_layer,
        Threshold("==", wanted.link_layer, "link layer", PROFILE),
        at,
        f"set LINK_TYPE_P{port.number} with mlxconfig, then reset the adapter",
    )
    physical = judge(
        "ib.physical_state",
        subject,
        port.physical_state,
        Threshold("==", "LinkUp", "physical state", _STATE_SOURCE),
        at,
        "look at cable and transceiver at both ends; the plan of cables names the far end",
    )
    yield physical
    if port.physical_state is not None and port.physical_state != "LinkUp":
        # A port without a link is neither active nor of any rate: one finding is enough.
        return
    yield judge(
        "ib.state",
        subject,
        port.state,
        Threshold("==", "ACTIVE", "state", _STATE_SOURCE),
        at,
        "the port waits for the subnet manager; ask sminfo, look at the role subnet_manager",
    )
    yield judge(
        "ib.rate",
        subject,
        port.rate_gbps,
        Threshold(">=", wanted.rate_gbps, "Gb/s", PROFILE),
        at,
        "reseat or replace the cable; compare the speeds that both ends have enabled",
    )
    yield judge(
        "ib.width",
        subject,
        port.width,
        Threshold("==", wanted.width, "lanes", PROFILE),
        at,
        "reseat or replace the cable: lanes are lost",
    )
    if wanted.link_layer == "InfiniBand":
        answers = None if port.sm_lid is None else port.sm_lid != 0
        mark = Threshold("==", True, "subnet manager known", "IBTA volume 1, 14.2.5.6: MasterSMLID")
        yield judge("ib.subnet_manager", subject, answers, mark, at, "start a subnet manager")
    if marks.names:
        mark = Threshold("==", wanted.name, "name", "role infiniband")
        yield judge("ib.name", subject, hca.device, mark, at, "run the role infiniband, or reboot")
    if marks.names and wanted.link_layer == "InfiniBand":
        # By this the fabric knows the port. A wrong one would let a sweep find the wrong node.
        described = f"{subject[len('hca:') :].split('/')[0]} {hca.device}"
        mark = Threshold("==", described, "NodeDescription", "rdma-ndd of rdma-core: HOST DEVICE")
        remedy = "systemctl restart rdma-ndd; compare the host name with the inventory"
        yield judge("ib.description", subject, hca.description or None, mark, at, remedy)


def judge_node(
    node: str,
    hcas: Iterable[Hca],
    rails: Sequence[WantedRail],
    marks: Marks,
    reports: Mapping[str, LinkReport | str],
    before: Sample | None,
    now: Sample,
) -> list[Record]:
    """Return the records of a node.

    `reports` holds by device what mlxlink said, or why it said nothing.
    """

    def subject(rail: int) -> str:
        return f"hca:{node}/rail{rail}"

    sound = [hca for hca in hcas if not hca.ignored]
    records = list(_found(rails, list(hcas), subject))
    pairs = [(wanted, find_rail(wanted, sound)) for wanted in rails]
    there = [(wanted, hca) for wanted, hca in pairs if hca is not None and hca.ports]
    count = Threshold("==", len(rails), "rails", PROFILE)
    records.insert(
        0,
        judge("ib.count", f"node:{node}", len(there), count, "rails that have an RDMA device",
              "see ib.present of the rails"),
    )  # fmt: skip
    for wanted, hca in there:
        port, name = hca.ports[0], subject(wanted.rail)
        records += _judge_port(wanted, hca, port, name, marks)
        records += judge_counters(port, name, wanted.rate_gbps, before, now, marks.window_s)
        needed = (PCIE_GTS.get(wanted.pcie_generation or 0), wanted.pcie_width)
        records += judge_pcie(hca, name, needed, marks.max_read_request, marks.acs_off)
        if marks.optics and port.physical_state in (None, "LinkUp"):
            records += judge_optics(reports.get(hca.device, "mlxlink was not asked"), name)
    if there:
        by = {subject(wanted.rail): hca for wanted, hca in there}
        firmware = {name: hca.firmware for name, hca in by.items()}
        records += _one_or_declared(
            "ib.firmware", f"node:{node}", firmware, "firmware", marks.firmware
        )
        psid = {name: hca.psid for name, hca in by.items()}
        records += _one_or_declared("ib.psid", f"node:{node}", psid, "PSID", marks.psid)
        active = {
            name: None if hca.ports[0].pkeys is None else " ".join(hca.ports[0].pkeys)
            for name, hca in by.items()
            if hca.ports[0].state == "ACTIVE" and hca.ports[0].link_layer == "InfiniBand"
        }
        if active:
            remedy = "compare partitions.conf with the GUIDs of the rails"
            records.append(_equal("ib.pkeys", f"node:{node}", active, "PKey table", remedy))
    return records


def wanted_from_data(items: Iterable[Mapping[str, Any]]) -> list[WantedRail]:
    """Return the rails of module options; ValueError where two of them are the same."""
    rails = [
        WantedRail(
            rail=int(item["rail"]),
            pci=item.get("pci") or None,
            rate_gbps=float(item["rate_gbps"]),
            width=item.get("width") or "4x",
            link_layer=item.get("link_layer") or "InfiniBand",
            devices=tuple(item.get("devices") or ()),
            pcie_generation=int(item.get("pcie_generation") or 0) or None,
            pcie_width=int(item.get("pcie_width") or 0) or None,
        )
        for item in items
    ]
    for key in ("rail", "pci"):
        seen = [getattr(rail, key) for rail in rails if getattr(rail, key) is not None]
        twice = sorted({str(value) for value in seen if seen.count(value) > 1})
        if twice:
            raise ValueError(f"rails: {key} {', '.join(twice)} is given twice; write each once")
    return rails
