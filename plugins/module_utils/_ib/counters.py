# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""How much a port's counters grew since an earlier reading, and how much they may. Pure.

A total shows nothing: it may be of last year. What is judged is the growth over a known time, and
only if the counter was able to grow: one at its largest value no longer counts, one that fell was
cleared, and a reboot starts it again. A node and a sweep of the fabric ask the same questions here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping

from .thresholds import BER_LONG, BER_PLAIN, BER_SHORT

VERSION = 1

# Bits of each counter, by its name in sweeps (IBTA volume 1, PortCounters, 16.1.3.5) and by that of
# the kernel (drivers/infiniband/core/sysfs.c), which reads the same attribute.
BITS = {
    "SymbolErrorCounter": 16,
    "LinkErrorRecoveryCounter": 8,
    "LinkDownedCounter": 8,
    "PortRcvErrors": 16,
    "PortRcvRemotePhysicalErrors": 16,
    "PortRcvSwitchRelayErrors": 16,
    "PortXmitDiscards": 16,
    "PortXmitConstraintErrors": 8,
    "PortRcvConstraintErrors": 8,
    "LocalLinkIntegrityErrors": 4,
    "ExcessiveBufferOverrunErrors": 4,
    "VL15Dropped": 16,
    "PortXmitWait": 32,
}
# Those of `ethtool -S` are u64 (struct ethtool_stats).
_BITS_OF_ETHTOOL = 64
_OF_KERNEL = {
    "symbol_error": "SymbolErrorCounter",
    "link_error_recovery": "LinkErrorRecoveryCounter",
    "link_downed": "LinkDownedCounter",
    "port_rcv_errors": "PortRcvErrors",
    "port_rcv_remote_physical_errors": "PortRcvRemotePhysicalErrors",
    "port_rcv_switch_relay_errors": "PortRcvSwitchRelayErrors",
    "port_xmit_discards": "PortXmitDiscards",
    "port_xmit_constraint_errors": "PortXmitConstraintErrors",
    "port_rcv_constraint_errors": "PortRcvConstraintErrors",
    "local_link_integrity_errors": "LocalLinkIntegrityErrors",
    "excessive_buffer_overrun_errors": "ExcessiveBufferOverrunErrors",
    "VL15_dropped": "VL15Dropped",
    "port_xmit_wait": "PortXmitWait",
}

# From HDR on lanes always correct errors, also the two of HDR100, which is as fast as four of EDR.
_CORRECTED_SPEEDS = ("HDR", "NDR", "XDR")
_PLAIN_SPEEDS = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR")
# Where the speed of the lanes is not known.
_CORRECTED_GBPS = 200
_LONG_S = 125 * 60
# Fewer than these may be chance, whatever the window.
_LEAST_ERRORS = 3


@dataclass(frozen=True)
class Sample:
    """The counters of all ports at one time, by port GUID."""

    boot: str
    uptime_s: float
    ports: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Growth:
    """How much a counter grew; with `at_least` it is full, and there may be more.

    If it cannot be judged `count` is None and `reason` says why. `seconds` is set by those who know
    the window.
    """

    count: int | None
    seconds: float = 0.0
    at_least: bool = False
    reason: str = ""


def largest(counter: str) -> int:
    """Return the value at which a counter stays, by either of its names."""
    return (1 << BITS.get(_OF_KERNEL.get(counter, counter), _BITS_OF_ETHTOOL)) - 1


def growth(before: int, now: int, counter: str) -> Growth:
    """Return how much a counter grew from one reading to the next."""
    top = largest(counter)
    if now < before:
        return Growth(None, reason=f"{counter} was cleared in between (from {before} to {now})")
    # Above its own range it is one of the wide counters of newer hardware, which go on.
    if now == top and before == top:
        return Growth(None, reason=f"{counter} is at {top}, its largest value")
    return Growth(now - before, at_least=now == top)


def symbol_errors_allowed(
    rate_gbps: float, seconds: float, speed: str | None = None
) -> tuple[float, str]:
    """Return how many symbol errors a link may have in a window, and the source of the limit."""
    fast = speed not in _PLAIN_SPEEDS and rate_gbps >= _CORRECTED_GBPS
    if speed not in _CORRECTED_SPEEDS and not fast:
        ber, source = BER_PLAIN
    elif seconds >= _LONG_S:
        ber, source = BER_LONG
    else:
        ber, source = BER_SHORT
    return round(max(ber * rate_gbps * 1e9 * seconds, _LEAST_ERRORS - 1), 2), source


def growth_of_port(before: Sample | None, now: Sample, port: str, counter: str) -> Growth:
    """Return how much a counter of a port grew between two samples of its node."""
    value = now.ports.get(port, {}).get(counter)
    if value is None:
        return Growth(None, reason=f"{counter} is not reported")
    if before is None:
        top = largest(counter)
        full = f"{counter} is at {top}, its largest value; clear it with perfquery -R"
        first = "this is the first reading; the next one has a window"
        return Growth(None, reason=full if value == top else first)
    if before.boot != now.boot:
        return Growth(None, reason="the node was rebooted since the last reading")
    seconds = now.uptime_s - before.uptime_s
    old = before.ports.get(port, {}).get(counter)
    if old is None:
        return Growth(None, seconds, reason="the last reading did not have this port")
    return replace(growth(old, value, counter), seconds=seconds)


def baseline(before: Sample | None, now: Sample, window_s: float) -> Sample:
    """Return the sample to keep for the next time.

    A reading soon after the last one does not replace it: a check each minute would otherwise
    never see a window that is long enough. What was cleared in between does.
    """
    if before is None or before.boot != now.boot or now.uptime_s - before.uptime_s >= window_s:
        return now
    kept = {}
    for port, counters in now.ports.items():
        old = before.ports.get(port)
        fell = old is None or any(counters.get(name, 0) < value for name, value in old.items())
        if fell or old is None:
            # Its window would begin before its counters do.
            return now
        kept[port] = old
    return Sample(before.boot, before.uptime_s, kept)


def sample_to_data(sample: Sample) -> dict[str, Any]:
    """Return mappings and scalars, for JSON."""
    return {
        "version": VERSION,
        "boot": sample.boot,
        "uptime_s": sample.uptime_s,
        "ports": {port: dict(counters) for port, counters in sample.ports.items()},
    }


def sample_from_data(data: Any) -> Sample | None:
    """Return the sample, None where the data is none of this version's."""
    try:
        if data["version"] != VERSION:
            return None
        ports = {
            str(port): {str(name): int(value) for name, value in counters.items()}
            for port, counters in data["ports"].items()
        }
        return Sample(str(data["boot"]), float(data["uptime_s"]), ports)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
