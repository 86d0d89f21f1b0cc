# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Judgement of what the kernel log says of GPUs and NVSwitches. Pure."""

from __future__ import annotations

from typing import Iterator, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_health_device import Asker, Wanted
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_marks import (
    ACTION_REMEDIES,
    MARKS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._kernel_log import KernelLog
from ansible_collections.baremetal.dgx.plugins.module_utils._records import Record
from ansible_collections.baremetal.dgx.plugins.module_utils._xid import (
    Event,
    Meaning,
    meaning,
    open_events,
    rank,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._xid_table import CHECK

# A GPU that throws Xids throws thousands; the first of each kind tells all there is.
_MOST_LINES = 8


def judge_events(ask: Asker, events: Sequence[Event], log: KernelLog) -> Iterator[Record]:
    """Yield the record of a GPU's Xids since boot."""
    yield _record(ask, "gpu.xid", "Xids", open_events(events, ask.wanted.since_s), log)


def judge_switch_events(
    ask: Asker, events: Sequence[Event], log: KernelLog, wanted: Wanted
) -> Iterator[Record]:
    """Yield the record of the NVSwitches' errors since boot, where there are NVSwitches."""
    if wanted.nvswitches or events:
        yield _record(ask, "gpu.sxid", "SXids", open_events(events, wanted.since_s), log)


def _record(ask: Asker, check: str, words: str, events: Sequence[Event], log: KernelLog) -> Record:
    kinds: dict[tuple[int, Meaning], list[Event]] = {}
    for event in events:
        kinds.setdefault((event.code, meaning(event)), []).append(event)
    ordered = sorted(kinds.items(), key=lambda kind: -rank(kind[0][1].action))
    told = tuple(
        f"{said.action or 'unknown'}, {len(group)} x {group[0]} ({said.text}; {said.source})"
        for (_code, said), group in ordered[:_MOST_LINES]
    )
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
