# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Why links went down: one cause for each time, from what firmware and kernel reported. Pure.

Many links of a switch or a node that went down between the same readings have that device as their
cause. A reason that is missing, or not in the table, is unknown and stays so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .series import Histories, Place
from .thresholds import LEAST_TOGETHER, TOGETHER_SHARE

FAR_END = "far end: it reported a fault, or was switched off"
SIGNAL = "signal lost at this end"
UNPLUGGED = "cable or module unplugged"
HEAT = "module too hot"
POWER = "module without enough power"
COMMAND = "switched off by a command"
NODE = "node: restarted, or its driver was"
SWITCH = "switch: many of its links at once"
UNKNOWN = "unknown"

# What `mlxlink --amber_collect` reports as local_reason_opcode (mstflint, mlxlink_maps.cpp), and
# mlx5 in the kernel's log (drivers/net/ethernet/mellanox/mlx5/core/events.c); in this order.
_BEGINS: tuple[tuple[str, str], ...] = (
    ("Remote_phy", FAR_END),
    ("Received_Remote_Fault", FAR_END),
    ("Received_TS1", FAR_END),
    ("Peer_side_", FAR_END),
    ("Cable_was_unplugged", UNPLUGGED),
    ("Cable unplugged", UNPLUGGED),
    ("Thermal_shutdown", HEAT),
    ("Cable error, High Temperature", HEAT),
    ("Power_budget", POWER),
    ("Current_issue", POWER),
    ("Cable error, Power budget exceeded", POWER),
    ("Down_by_", COMMAND),
    ("Reset_no_power_cycle", NODE),
    ("driver restarted", NODE),
    ("Hi_BER", SIGNAL),
    ("Hi_SER", SIGNAL),
    ("Block_Lock_loss", SIGNAL),
    ("Alignment_loss", SIGNAL),
    ("FEC_sync_loss", SIGNAL),
    ("PLL_lock_loss", SIGNAL),
    ("Fast_recovery_", SIGNAL),
    ("Minor_Error_threshold_exceeded", SIGNAL),
    ("Physical_layer_retransmission_timeout", SIGNAL),
    ("Received_local_fault", SIGNAL),
    ("Local_phy", SIGNAL),
)


@dataclass(frozen=True)
class Flap:
    """A link that went down `count` times between two readings, days of Unix time, and why."""

    serial: str
    place: Place
    port: str
    since: float
    until: float
    count: int
    cause: str
    reasons: tuple[str, ...] = ()


def cause_of(reasons: Iterable[str]) -> str:
    """Return the cause that reasons speak of; the table's order decides between several."""
    given = list(reasons)
    for begin, cause in _BEGINS:
        if any(reason.startswith(begin) for reason in given):
            return cause
    return UNKNOWN


def flaps_of(
    histories: Histories, first: float, last: float, far_end: Callable[[Place], str]
) -> list[Flap]:
    """Return the flaps that were seen from the first to the last day, the newest first."""
    found: list[Flap] = []
    for series in histories.series:
        place, port = series.place, far_end(series.place)
        found += [
            Flap(series.serial, place, port, down.since, down.until, down.count,
                 cause_of(down.why), down.why)
            for down in series.downs
            if first <= down.until <= last
        ]  # fmt: skip
    links: Counter[str] = Counter()
    for place in {series.place for series in histories.series}:
        links[f"node:{place.node}"] += 1
        links[f"switch:{far_end(place).rpartition('/')[0]}"] += 1
    return sorted(_of_devices(found, links), key=lambda one: (-one.until, str(one.place)))


def _of_devices(found: Sequence[Flap], links: Mapping[str, int]) -> list[Flap]:
    """Give those of one device in one day its name as their cause, a switch before a node."""
    causes = dict(enumerate(found))
    for kind, cause in (("node", NODE), ("switch", SWITCH)):
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for number, one in causes.items():
            name = one.place.node if kind == "node" else one.port.rpartition("/")[0]
            if name:
                groups[f"{kind}:{name}", int(one.until)].append(number)
        for (device, _day), numbers in groups.items():
            if len(numbers) >= max(LEAST_TOGETHER, TOGETHER_SHARE * links[device]):
                name = device.partition(":")[2]
                for number in numbers:
                    causes[number] = replace(causes[number], cause=f"{cause} ({name})")
    return list(causes.values())


def by_cause(flaps: Iterable[Flap]) -> dict[str, int]:
    """Return how many links went down for which cause, the most frequent first."""
    return dict(Counter(one.cause for one in flaps).most_common())
