# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Is each rail of this node what its profile says? Pure: what was found, against the thresholds.

The rails are found by PCI address, since names and numbers of RDMA devices follow the operating
system. Only a tree without PCI addresses is matched by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from .._core.names import RAIL_DEVICE, full_pci
from .._core.question import Question
from .._core.record import NOT_MEASURED, PASS, Record
from .counters import Sample, growth_of_port, symbol_errors_allowed
from .descriptions import has_default_name
from .ethtool import ETHERNET, Answer, judge_ethernet
from .mlxlink import FIRMWARE_FAULTS, MODULE_FAULTS, LinkReport, Optics, Reading
from .sysfs import Hca, Port
from .thresholds import (
    ACS,
    COUNT,
    DESCRIPTION,
    EFFECTIVE_BER,
    FIRMWARE,
    FIRMWARE_DECLARED,
    LINK_DOWNED,
    LINK_LAYER,
    LINK_STATE,
    MAX_READ_REQUEST,
    MODULE_ALARMS,
    NAME,
    OPTICS_HIGH,
    OPTICS_LOW,
    PCIE_SPEED,
    PCIE_WIDTH,
    PHYSICAL_STATE,
    PKEYS,
    PRESENT,
    PSID,
    PSID_DECLARED,
    RATE,
    STATE,
    SUBNET_MANAGER,
    SYMBOL_ERRORS,
    TROUBLESHOOTING,
    WIDTH,
)


@dataclass(frozen=True)
class WantedRail:
    """What one rail must be."""

    rail: int
    pci: str | None
    rate_gbps: float
    width: str = ""  # empty: that of a port which has the rate
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
class Request:
    """What a site may set; the numbers that are facts are in thresholds.py."""

    firmware: str = ""  # empty: the rails must only be equal
    psid: str = ""
    names: bool = True
    max_read_request: int = 0  # 0: not asked
    acs_off: bool = False
    optics: bool = True
    window_s: float = 720.0


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
        yield PRESENT.filled(place=place).judge(
            subject(wanted.rail),
            hca is not None and not hca.ignored and bool(hca.ports),
            evidence=[hca.ignored] if hca and hca.ignored else [],
        )


def _equal(question: Question, subject: str, values: Mapping[str, str | None]) -> Record:
    """Judge whether all rails show the same; one that shows nothing leaves it open."""
    known = {value for value in values.values() if value is not None}
    unread = [name for name, value in values.items() if value is None]
    groups = "; ".join(
        f"{value}: {', '.join(name for name in values if values[name] == value)}"
        for value in sorted(known)
    )
    if len(known) < 2 and (unread or not known):
        text = f"{question.what} not readable on {', '.join(unread) or 'any rail'}"
        return Record(
            question.check, subject, NOT_MEASURED, text, threshold=question.threshold(),
            evidence=(groups,),
        )  # fmt: skip
    return question.judge(subject, len(known), evidence=[groups])


def _one_or_declared(
    equal: Question,
    as_declared: Question,
    subject: str,
    values: Mapping[str, str | None],
    declared: str,
) -> Iterator[Record]:
    wanted = declared or "that of most of the nodes"
    yield _equal(equal.filled(wanted=wanted), subject, values)
    for name, value in values.items() if declared else ():
        yield as_declared.filled(wanted=declared).judge(name, value, declared)


def _judge_port(
    wanted: WantedRail, hca: Hca, port: Port, subject: str, request: Request
) -> Iterator[Record]:
    at = f"{hca.device} port {port.number}"
    layer = LINK_LAYER.filled(port=port.number)
    yield layer.judge(subject, port.link_layer, wanted.link_layer, text=at)
    yield PHYSICAL_STATE.judge(subject, port.physical_state, text=at)
    if port.physical_state is not None and port.physical_state != "LinkUp":
        # A port without a link is neither active nor of any rate: one finding is enough.
        return
    yield STATE.judge(subject, port.state, text=at)
    yield RATE.judge(subject, port.rate_gbps, wanted.rate_gbps, text=at)
    yield WIDTH.judge(subject, port.width, wanted.width or _width_for_rate(wanted, port), text=at)
    if wanted.link_layer == "InfiniBand":
        answers = None if port.sm_lid is None else port.sm_lid != 0
        yield SUBNET_MANAGER.judge(subject, answers, text=at)
    if request.names:
        yield NAME.judge(subject, hca.device, wanted.name, text=at)
    if request.names and wanted.link_layer == "InfiniBand":
        node = subject[len("hca:") :].split("/")[0]
        described = f"{node} {hca.device}"
        if hca.description and has_default_name(hca.description, node):
            described = hca.description
        yield DESCRIPTION.judge(subject, hca.description or None, described, text=at)


def _width_for_rate(wanted: WantedRail, port: Port) -> str | None:
    """Return the width that gives the wanted rate at the port's speed; at most 4x for a slow port.

    No speed has one width: 200 Gb/s are 4x of HDR or 2x of NDR, 400 Gb/s 4x of NDR or 8x of HDR.
    So 2x of HDR where 200 Gb/s are wanted is taken for a port of HDR that lost lanes.
    """
    lanes, rate = _lanes(port.width), port.rate_gbps
    if not lanes or not rate or rate >= wanted.rate_gbps:
        return port.width
    return f"{min(math.ceil(wanted.rate_gbps * lanes / rate), 4)}x"


def _counted(node: str, wanted: int, there: int) -> Record:
    if not wanted:
        # None of none would be a pass of nothing.
        text = "no rails are declared, and there is nothing to look at"
        remedy = "settings: give the node's profile its rails, and declare the fabric"
        return Record("ib.count", f"node:{node}", NOT_MEASURED, text, remedy=remedy)
    return COUNT.judge(f"node:{node}", there, wanted)


def judge_node(
    node: str,
    hcas: Iterable[Hca],
    rails: Sequence[WantedRail],
    request: Request,
    reports: Mapping[str, LinkReport | str],
    before: Sample | None,
    now: Sample,
    ethernet: Mapping[str, Answer] | None = None,
) -> list[Record]:
    """Return the records of a node.

    `reports` and `ethernet` hold the answers of mlxlink and ethtool by device, or the reason.
    """

    def subject(rail: int) -> str:
        return f"hca:{node}/rail{rail}"

    healthy = [hca for hca in hcas if not hca.ignored]
    records = list(_found(rails, list(hcas), subject))
    pairs = [(wanted, find_rail(wanted, healthy)) for wanted in rails]
    there = [(wanted, hca) for wanted, hca in pairs if hca is not None and hca.ports]
    records.insert(0, _counted(node, len(rails), len(there)))
    for wanted, hca in there:
        port, name = hca.ports[0], subject(wanted.rail)
        records += _judge_port(wanted, hca, port, name, request)
        if wanted.link_layer == port.link_layer == ETHERNET:
            answer = (ethernet or {}).get(hca.device, "ethtool was not asked")
            rate, key = port.rate_gbps or wanted.rate_gbps, port.guid or name
            records += judge_ethernet(answer, name, key, rate, before, now, request.window_s)
        else:
            records += judge_counters(port, name, wanted.rate_gbps, before, now, request.window_s)
        needed = (PCIE_GTS.get(wanted.pcie_generation or 0), wanted.pcie_width)
        records += judge_pcie(hca, name, needed, request.max_read_request, request.acs_off)
        if request.optics and port.physical_state in (None, "LinkUp"):
            report = reports.get(hca.device, "mlxlink was not asked")
            records += judge_optics(report, name, port.state)
    if there:
        by = {subject(wanted.rail): hca for wanted, hca in there}
        firmware = {name: hca.firmware for name, hca in by.items()}
        records += _one_or_declared(
            FIRMWARE, FIRMWARE_DECLARED, f"node:{node}", firmware, request.firmware
        )
        psid = {name: hca.psid for name, hca in by.items()}
        records += _one_or_declared(PSID, PSID_DECLARED, f"node:{node}", psid, request.psid)
        active = {
            name: None if hca.ports[0].pkeys is None else " ".join(hca.ports[0].pkeys)
            for name, hca in by.items()
            if hca.ports[0].state == "ACTIVE" and hca.ports[0].link_layer == "InfiniBand"
        }
        if active:
            records.append(_equal(PKEYS, f"node:{node}", active))
    return records


def wanted_from_data(items: Iterable[Mapping[str, Any]]) -> list[WantedRail]:
    """Return the rails of module options; ValueError where two of them are the same."""
    rails = [
        WantedRail(
            rail=int(item["rail"]),
            pci=item.get("pci") or None,
            rate_gbps=float(item["rate_gbps"]),
            width=item.get("width") or "",
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


# A lane that sees less than this has no light: it belongs to the other port of a twin module.
_DARK_DBM = -30.0
# Status Opcode of mlxlink: "Troubleshooting in process" and "Information not available".
_UNDECIDED = (128, 1023)
# Transfers of a lane by generation (PCI Express Base Specification).
PCIE_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


def judge_counters(
    port: Port,
    subject: str,
    rate_gbps: float,
    before: Sample | None,
    now: Sample,
    window_s: float,
) -> Iterator[Record]:
    """Yield the records of link_downed and symbol_error over the window."""
    yield _flaps(port.guid or subject, subject, before, now)
    yield _symbols(port, subject, rate_gbps, before, now, window_s)


def _flaps(key: str, subject: str, before: Sample | None, now: Sample) -> Record:
    found = growth_of_port(before, now, key, "link_downed")
    more = " or more" if found.at_least else ""
    text = found.reason or f"down {found.count}{more} times in {found.seconds:.0f} s"
    return LINK_DOWNED.judge(subject, found.count, text=text)


def _symbols(
    port: Port,
    subject: str,
    rate_gbps: float,
    before: Sample | None,
    now: Sample,
    window_s: float,
) -> Record:
    found = growth_of_port(before, now, port.guid or subject, "symbol_error")
    # The rate and speed that the link has: a sweep of the fabric judges by those, too.
    rate = port.rate_gbps or rate_gbps
    allowed, source = symbol_errors_allowed(rate, found.seconds, port.speed)
    more = " or more" if found.at_least else ""
    text = found.reason or f"{found.count}{more} symbol errors in {found.seconds:.0f} s"
    record = SYMBOL_ERRORS.judge(subject, found.count, allowed, source=source, text=text)
    # Too many are too many at once; that there are none is proved only by a window long enough.
    if record.status == PASS and (found.seconds < window_s or found.at_least):
        short = f"{text}; judged from a window of {window_s:.0f} s on"
        return Record(record.check, subject, NOT_MEASURED, short, record.measured, record.threshold)
    return record


def judge_pcie(
    hca: Hca,
    subject: str,
    needed: tuple[float | None, int | None],
    max_read_request: int,
    acs_off: bool,
) -> Iterator[Record]:
    """Yield whether each link up to the root runs as both of its ends are able to.

    `needed` is the speed in GT/s and the width that the profile asks for besides: two ends that are
    both able to less are a fault as well.
    """
    for question, kind, least in (
        (PCIE_SPEED, "speed", needed[0]),
        (PCIE_WIDTH, "width", needed[1]),
    ):
        # The first link that is short decides; its own figures are what is reported.
        short, unread = None, not hca.links
        for link in hca.links:
            now = link.speed_gts if kind == "speed" else link.width
            able = link.able_speed_gts if kind == "speed" else link.able_width
            asked = max(able or 0, least or 0)
            if now is None or able is None:
                unread = True
            elif now < asked and short is None:
                short = (now, asked, f"{link.lower} below {link.upper}")
        first = hca.links[0] if hca.links else None
        if short:
            measured, asked, where = short
        elif unread or first is None:
            measured, asked, where = None, least or 0, "sysfs does not show both ends of each link"
        else:
            measured = first.speed_gts if kind == "speed" else first.width
            asked = max(
                (first.able_speed_gts if kind == "speed" else first.able_width) or 0, least or 0
            )
            where = f"{hca.pci or hca.device} and the links above it"
        yield question.judge(subject, measured, asked, text=where)
    if max_read_request:
        yield MAX_READ_REQUEST.judge(subject, hca.max_read_request, max_read_request)
    if acs_off:
        redirecting = hca.redirecting
        count = None if redirecting is None else len(redirecting)
        yield ACS.judge(subject, count, evidence=redirecting or ())


def judge_optics(
    report: LinkReport | str, subject: str, state: str | None = None
) -> Iterator[Record]:
    """Yield the records of link, transceiver and bit errors; a text says why there is no report.

    `state` is that of the port in sysfs: one that is active must be so to its own firmware, too.
    """
    if isinstance(report, str):
        for check in ("ib.effective_ber", "ib.optics"):
            yield Record(check, subject, NOT_MEASURED, report)
        return
    yield from _link(report, subject, state)
    raw = "not reported" if report.raw_ber is None else f"{report.raw_ber:g}"
    # Healthy links show 5e-10 to 1e-7 before correction: it is reported, and fails nothing.
    evidence = [f"raw BER {raw}, effective errors {report.effective_errors}, {report.minutes} min"]
    yield EFFECTIVE_BER.judge(subject, report.effective_ber, evidence=evidence)
    optics = report.optics
    if optics is None or optics.optical is None:
        yield Record("ib.optics", subject, NOT_MEASURED, "the tool does not tell the kind of cable")
        return
    yield from _faults(report, optics, subject)
    if optics.optical:
        yield from _module(optics, report.width, subject)


def _link(report: LinkReport, subject: str, state: str | None) -> Iterator[Record]:
    """Judge what the firmware itself reports of a port that sysfs shows as active."""
    if state != "ACTIVE":
        return
    yield LINK_STATE.judge(subject, report.state)
    advice = report.recommendation or "no recommendation"
    opcode = None if report.opcode in _UNDECIDED else report.opcode
    yield TROUBLESHOOTING.filled(advice=advice).judge(subject, opcode)


def _lanes(width: str | None) -> int | None:
    return int(width.rstrip("x")) if width and width.rstrip("x").isdigit() else None


def _faults(report: LinkReport, optics: Optics, subject: str) -> Iterator[Record]:
    """Judge the alarms that the module itself raises: with the port up they are the module's."""
    lanes = _lanes(report.width)
    must_report = optics.optical and optics.cmis
    raised, unclear = [], []
    # Some passive cables report light and clocks, which they do not have, as lost, and work.
    names = FIRMWARE_FAULTS if optics.passive else MODULE_FAULTS
    for name in names:
        values = report.faults.get(name)
        if values is None:
            if must_report:
                unclear.append(f"{name} is not reported")
            continue
        bad = [str(lane) for lane, value in enumerate(values, 1) if value]
        if not bad:
            continue
        where = f"{name} on lane {', '.join(bad)}" if len(values) > 1 else name
        # A twin module reports the lanes of both of its ports, and not which are whose.
        if lanes is not None and 1 < lanes < len(values) and len(values) - len(bad) >= lanes:
            unclear.append(f"{where}, of {len(values)} lanes of which the port uses {lanes}")
        else:
            raised.append(where)
    if not must_report and not any(name in report.faults for name in names):
        return
    module = _module_name(optics)
    if not raised and unclear:
        text = f"module {module}: " + "; ".join(unclear)
        threshold = MODULE_ALARMS.threshold()
        yield Record("ib.module_faults", subject, NOT_MEASURED, text, threshold=threshold)
        return
    text = f"module {module}: " + ("; ".join(raised) or "no alarm")
    faults = MODULE_ALARMS.filled(module=module)
    yield faults.judge(subject, len(raised), text=text, evidence=raised)


def _module_name(optics: Optics) -> str:
    return " ".join(part or "?" for part in (optics.vendor, optics.part, optics.serial))


def _module(optics: Optics, width: str | None, subject: str) -> Iterator[Record]:
    module = _module_name(optics)
    yield _inside("temperature", "C", optics.temperature_c, None, module, subject)
    lanes = _lanes(width)
    yield _inside("rx_power", "dBm", optics.rx_power_dbm, lanes, module, subject)
    sent = optics.tx_power_dbm
    if optics.cmis or (sent is not None and sent.low is not None):
        yield _inside("tx_power", "dBm", sent, lanes, module, subject)


def _inside(
    what: str, unit: str, reading: Reading | None, lanes: int | None, module: str, subject: str
) -> Record:
    """Judge a reading by the range that the module states for it."""
    check = f"ib.optics_{what}"
    words = what.replace("_", " ")
    if reading is None or reading.low is None or reading.high is None:
        return Record(check, subject, NOT_MEASURED, f"the module does not tell {words} and range")
    lit = [value for value in reading.values if what == "temperature" or value > _DARK_DBM]
    worst = max(lit, key=lambda value: _beyond(value, reading)) if lit else None
    if worst is None or (lanes is not None and len(lit) < lanes and what != "temperature"):
        text = f"{len(lit)} of {lanes or len(reading.values)} lanes have light"
        return Record(check, subject, NOT_MEASURED, text)
    low_side = reading.low - worst > worst - reading.high
    question = (OPTICS_LOW if low_side else OPTICS_HIGH).filled(reading=what, unit=unit)
    return question.judge(
        subject,
        worst,
        reading.low if low_side else reading.high,
        text=f"{words}, nearest to the end of {reading.low:g} to {reading.high:g} {unit}",
        evidence=[f"module {module}: {', '.join(f'{value:g}' for value in reading.values)} {unit}"],
    )


def _beyond(value: float, reading: Reading) -> float:
    """Return how far a value lies outside the range; below zero inside of it."""
    return max((reading.low or 0.0) - value, value - (reading.high or 0.0))
