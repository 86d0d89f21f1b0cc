# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Judgement of what the kernel log says of GPUs and NVSwitches. Pure."""

from __future__ import annotations

from typing import Collection, Iterator, Sequence

from .._core.record import Record
from .._host.hardware_log import MINUTE_S, Fault, at, most_in, refusals
from .._host.kernel_log import KernelLog
from .judge_device import Asker, Wanted
from .sxid_data import LINK_FAULTS
from .thresholds import ACTION_REMEDIES, MARKS
from .xid import Event, Meaning, meaning, open_events, rank
from .xid_table import CHECK, REBOOT

# A GPU that throws Xids throws thousands; the first of each kind tells all there is.
_MOST_LINES = 8
# The switches see their links fail about when the driver sees the GPU gone.
_BEFORE_S, _AFTER_S = 2.0, 10.0


def judge_events(ask: Asker, events: Sequence[Event], log: KernelLog) -> Iterator[Record]:
    """Yield the record of a GPU's Xids since boot."""
    yield _record(ask, "gpu.xid", "Xids", open_events(events, ask.wanted.since_s), log)


def judge_switch_events(
    ask: Asker,
    events: Sequence[Event],
    log: KernelLog,
    wanted: Wanted,
    xids: Sequence[Event] = (),
) -> Iterator[Record]:
    """Yield the record of the NVSwitches' errors since boot, if there are NVSwitches.

    What links report when a GPU falls off the bus is one cause with that, and its Xid is the
    finding: the reboot that it asks for resets the switches as well.
    """
    if not wanted.nvswitches and not events:
        return
    lost = [
        event
        for event in open_events(xids, wanted.since_s)
        if rank(meaning(event).action) >= rank(REBOOT)
    ]
    told: list[str] = []
    own: list[Event] = []
    for event in open_events(events, wanted.since_s):
        cause = next((one for one in lost if _follows(event, one)), None)
        if cause is None:
            own.append(event)
        elif len(told) < _MOST_LINES:
            told.append(f"follows from Xid {cause.code} of the GPU at {cause.pci}: {event}")
    yield _record(ask, "gpu.sxid", "SXids", own, log, tuple(told))


def judge_pcie_errors(
    ask: Asker, addresses: Collection[str], faults: Sequence[Fault], log: KernelLog
) -> Iterator[Record]:
    """Yield the PCIe errors of a GPU's own link, whose two ends have these addresses."""
    mine = at(faults, addresses)
    hard = [fault for fault in mine if fault.hard]
    soft = [fault for fault in mine if fault.corrected]
    for check, found, count, besides in (
        ("gpu.pcie_errors", hard, len(hard), refusals(mine)),
        ("gpu.pcie_corrected", soft, most_in(soft, MINUTE_S), ()),
    ):
        what = MARKS[check].what
        told = (*(fault.text for fault in found[:_MOST_LINES]), *besides)
        if log.gap and not count:
            yield ask(check, None, None, f"{what}; {log.gap}")
        else:
            yield ask(check, count, None, f"{what}; {len(found)} in all", evidence=told)


def _follows(event: Event, cause: Event) -> bool:
    if event.code not in LINK_FAULTS or event.uptime_s is None or cause.uptime_s is None:
        return False
    return -_BEFORE_S <= event.uptime_s - cause.uptime_s <= _AFTER_S


def _record(
    ask: Asker,
    check: str,
    words: str,
    events: Sequence[Event],
    log: KernelLog,
    besides: tuple[str, ...] = (),
) -> Record:
    kinds: dict[tuple[int, Meaning], list[Event]] = {}
    for event in events:
        kinds.setdefault((event.code, meaning(event)), []).append(event)
    ordered = sorted(kinds.items(), key=lambda kind: -rank(kind[0][1].action))
    told = tuple(
        f"{said.action or 'unknown'}, {len(group)} x {group[0]} ({said.text}; {said.source})"
        for (_code, said), group in ordered[:_MOST_LINES]
    )
    told += besides
    serious = [
        (code, said)
        for (code, said), _group in ordered
        if said.action and rank(said.action) >= rank(CHECK)
    ]
    if serious:
        code, said = serious[0]
        count = sum(len(kinds[kind]) for kind in serious)
        remedy = ACTION_REMEDIES[said.action or CHECK]
        text = f"{words[:-1]} {code}: {said.text}"
        return ask(check, count, None, text, remedy=remedy, evidence=told)
    unknown = [code for (code, said), _group in ordered if said.action is None]
    what = MARKS[check].what
    if unknown:
        text = f"{what}; not known: {', '.join(str(code) for code in sorted(set(unknown)))}"
        return ask(check, None, None, text, evidence=told)
    if log.gap:
        # What is there was judged; what is missing may hold anything.
        return ask(check, None, None, f"{what}; {log.gap}", evidence=told)
    return ask(check, 0, None, f"{what}; {len(events)} that ask for no more", evidence=told)
