# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Judgement of one rail's counters, transceiver and PCIe path. Pure."""

from __future__ import annotations

from typing import Iterator

from ansible_collections.baremetal.dgx.plugins.module_utils._ib_counters import Sample, growth
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_mlxlink import (
    LinkReport,
    Optics,
    Reading,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib_sysfs import Hca, Port
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    NOT_MEASURED,
    PASS,
    Record,
    Threshold,
    judge,
)

# Bit error ratio after correction that NVIDIA's UFM accepts over a short window: 2.88 symbol errors
# in 12 minutes of 400 Gb/s (ufm_sdk_3.0, PDR_deterministic plug-in).
SYMBOL_BER = 1e-14
_SYMBOL_SOURCE = "UFM PDR plug-in: BER 1e-14 over 12 min"
# Fewer than these may be chance, whatever the window.
_LEAST_ERRORS = 3
_FLAP_SOURCE = "no link of the fabric may go down in use (GCM: any flap is critical)"
_OPTICS_SOURCE = "alarm range that the module itself states"
# A lane that sees less than this has no light: it belongs to the other port of a twin module.
_DARK_DBM = -30.0
_PCIE_SOURCE = "the lower of what both ends of each link are able to, and the profile of the node"
# Transfers of a lane by generation (PCI Express Base Specification).
PCIE_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
# "15E-255" is how the tool writes that there was no error at all.
EFFECTIVE_BER = Threshold(
    "<=", 1e-12, "bit error ratio", "IBTA volume 2: 1e-12 on a link; OCI judges effective BER so"
)


def judge_counters(
    port: Port,
    subject: str,
    rate_gbps: float,
    before: Sample | None,
    now: Sample,
    window_s: float,
) -> Iterator[Record]:
    """Yield the records of link_downed and symbol_error over the window."""
    key = port.guid or subject
    yield _flaps(key, subject, before, now)
    yield _symbols(key, subject, rate_gbps, before, now, window_s)


def _flaps(key: str, subject: str, before: Sample | None, now: Sample) -> Record:
    found = growth(before, now, key, "link_downed")
    mark = Threshold("<=", 0, "times down in the window", _FLAP_SOURCE)
    more = " or more" if found.at_least else ""
    text = found.reason or f"down {found.count}{more} times in {found.seconds:.0f} s"
    remedy = (
        "unless the switch or the cable was worked on: reseat the cable at both ends, replace it "
        "when it happens again"
    )
    return judge("ib.link_downed", subject, found.count, mark, text, remedy)


def _symbols(
    key: str,
    subject: str,
    rate_gbps: float,
    before: Sample | None,
    now: Sample,
    window_s: float,
) -> Record:
    found = growth(before, now, key, "symbol_error")
    allowed = max(SYMBOL_BER * rate_gbps * 1e9 * found.seconds, _LEAST_ERRORS - 1)
    mark = Threshold("<=", round(allowed, 2), "symbol errors in the window", _SYMBOL_SOURCE)
    more = " or more" if found.at_least else ""
    text = found.reason or f"{found.count}{more} symbol errors in {found.seconds:.0f} s"
    record = judge(
        "ib.symbol_errors",
        subject,
        found.count,
        mark,
        text,
        "clean and reseat the cable at both ends, then replace it",
    )
    # Too many are too many at once; that there are none is proved only by a window long enough.
    if record.status == PASS and (found.seconds < window_s or found.at_least):
        short = f"{text}; judged from a window of {window_s:.0f} s on"
        return Record(record.check, subject, NOT_MEASURED, short, record.measured, mark)
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
    for kind, unit, least in (("speed", "GT/s", needed[0]), ("width", "lanes", needed[1])):
        # The first link that is short decides; its own figures are what is reported.
        short, unread = None, not hca.links
        for link in hca.links:
            now = link.speed_gts if kind == "speed" else link.width
            able = link.able_speed_gts if kind == "speed" else link.able_width
            mark = max(able or 0, least or 0)
            if now is None or able is None:
                unread = True
            elif now < mark and short is None:
                short = (now, mark, f"{link.lower} below {link.upper}")
        first = hca.links[0] if hca.links else None
        if short:
            measured, mark, where = short
        elif unread or first is None:
            measured, mark, where = None, least or 0, "sysfs does not show both ends of each link"
        else:
            measured = first.speed_gts if kind == "speed" else first.width
            mark = max(
                (first.able_speed_gts if kind == "speed" else first.able_width) or 0, least or 0
            )
            where = f"{hca.pci or hca.device} and the links above it"
        yield judge(
            f"ib.pcie_{kind}",
            subject,
            measured,
            Threshold(">=", mark, unit, _PCIE_SOURCE),
            where,
            "reseat the adapter; look for AER messages of this bridge in dmesg; then replace it",
        )
    if max_read_request:
        yield judge(
            "ib.max_read_request",
            subject,
            hca.max_read_request,
            Threshold("==", max_read_request, "bytes", "declared for the role infiniband"),
            "largest read request",
            "systemctl restart baremetal-dgx-fabric-settings.service",
        )
    if acs_off:
        redirecting = hca.redirecting
        yield judge(
            "ib.acs",
            subject,
            None if redirecting is None else len(redirecting),
            Threshold("==", 0, "bridges that redirect", "NCCL documentation: PCI access control"),
            "ACS of the bridges above the adapter",
            "systemctl restart baremetal-dgx-fabric-settings.service",
            redirecting or (),
        )


def judge_optics(report: LinkReport | str, subject: str) -> Iterator[Record]:
    """Yield the records of transceiver and bit errors; a text says why there is no report."""
    if isinstance(report, str):
        for check in ("ib.effective_ber", "ib.optics"):
            yield Record(check, subject, NOT_MEASURED, report)
        return
    raw = "not told" if report.raw_ber is None else f"{report.raw_ber:g}"
    yield judge(
        "ib.effective_ber",
        subject,
        report.effective_ber,
        EFFECTIVE_BER,
        "bit error ratio after correction",
        "clean and reseat the cable at both ends, then replace it",
        # Healthy links show 5e-10 to 1e-7 before correction: it is told, and fails nothing.
        [f"raw BER {raw}, effective errors {report.effective_errors}, {report.minutes} min"],
    )
    optics = report.optics
    if optics is None or optics.optical is None:
        yield Record("ib.optics", subject, NOT_MEASURED, "the tool does not tell the kind of cable")
        return
    if optics.optical:
        yield from _module(optics, report.width, subject)


def _module(optics: Optics, width: str | None, subject: str) -> Iterator[Record]:
    module = " ".join(part or "?" for part in (optics.vendor, optics.part, optics.serial))
    yield _inside("temperature", "C", optics.temperature_c, None, module, subject)
    lanes = int(width.rstrip("x")) if width and width.rstrip("x").isdigit() else None
    yield _inside("rx_power", "dBm", optics.rx_power_dbm, lanes, module, subject)
    yield _inside("tx_power", "dBm", optics.tx_power_dbm, lanes, module, subject)


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
    mark = Threshold(
        ">=" if low_side else "<=", reading.low if low_side else reading.high, unit, _OPTICS_SOURCE
    )
    return judge(
        check,
        subject,
        worst,
        mark,
        f"{words}, nearest to the end of {reading.low:g} to {reading.high:g} {unit}",
        "clean the fibre ends; check the airflow; then replace the module",
        [f"module {module}: {', '.join(f'{value:g}' for value in reading.values)} {unit}"],
    )


def _beyond(value: float, reading: Reading) -> float:
    """Return how far a value lies outside the range; below zero inside of it."""
    return max((reading.low or 0.0) - value, value - (reading.high or 0.0))
