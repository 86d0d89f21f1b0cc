# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Counters of an Ethernet port as `ethtool -S` prints them for mlx5, and what they say of a rail.

The counters of InfiniBand that sysfs has for such a port are of another register: they stay at 0
while the Ethernet link loses frames.
"""

from __future__ import annotations

import re
from typing import Iterator, Mapping, Sequence, Union

from .._core.files import text_if_readable
from .._core.question import Question
from .._core.record import NOT_MEASURED, PASS, Record
from .._core.run import MISSING, CommandRunner
from .counters import Growth, Sample, growth_of_port, symbol_errors_allowed
from .sysfs import Hca
from .thresholds import CRC_ERRORS, ETHERNET_SYMBOL_ERRORS, LINK_DOWNED, LOSSLESS_DISCARDS

ETHERNET = "Ethernet"
# Counters by name, or why they could not be read.
Answer = Union[Mapping[str, int], str]

_HEAD = "NIC statistics:"
_LINE = re.compile(r"\s+(\S.*?): (\d+)\s*$")
_DOWN, _SYMBOLS, _CRC = "link_down_events_phy", "rx_pcs_symbol_err_phy", "rx_crc_errors_phy"
# mlx5 shows the pauses of a priority only if PFC is on for it.
_PFC = re.compile(r"rx_prio(\d)_pause\Z")
_DISCARDS = "rx_prio{}_discards"
_LOSSLESS = LOSSLESS_DISCARDS.check
_APPLY = "systemctl restart baremetal-dgx-roce-settings.service"
# What the role roce leaves on a node; without its rails the site cares for PFC itself, or has none.
SETTINGS = "/etc/baremetal-dgx/roce-settings.env"
_RAILS = re.compile(r'RAILS="\d', re.M)
# Beside the counters: 1 where the role has given the rails PFC.
_DECLARED = "pfc_declared"


def parse_statistics(text: str) -> dict[str, int]:
    """Return all counters of `ethtool -S`; ValueError if the text is not whole."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != _HEAD:
        raise ValueError(f"it does not begin with '{_HEAD}'")
    found: dict[str, int] = {}
    for number, line in enumerate(lines[1:], 2):
        row = _LINE.match(line)
        if row is not None:
            found[row.group(1)] = int(row.group(2))
        elif line.strip():
            raise ValueError(f"line {number} is not a counter: {line.strip()[:60]!r}")
    return found


def counters_of(statistics: Mapping[str, int]) -> dict[str, int]:
    """Return the counters that are judged; discards only of priorities with PFC."""
    lossless = [row.group(1) for row in map(_PFC.match, statistics) if row]
    names = (_DOWN, _SYMBOLS, _CRC, *map(_DISCARDS.format, lossless))
    # A kernel before 5.6 has PFC, and no counter of what is dropped.
    kept = {f"rx_prio{one}_pause": statistics[f"rx_prio{one}_pause"] for one in lossless}
    return {**kept, **{name: statistics[name] for name in names if name in statistics}}


def ask_ethernet(run: CommandRunner, hcas: Sequence[Hca], timeout_s: float) -> dict[str, Answer]:
    """Return the counters of each Ethernet port by device; after a hang others are not asked."""
    answers: dict[str, Answer] = {}
    hung = ""
    for hca in hcas:
        if not hca.ports or hca.ports[0].link_layer != ETHERNET:
            continue
        found = hung or _ask(run, hca, timeout_s)
        answers[hca.device] = found
        if isinstance(found, str) and "did not end within" in found and not hung:
            hung = f"not asked, since for {hca.device} {found}"
    return answers


def _ask(run: CommandRunner, hca: Hca, timeout_s: float) -> Answer:
    if not hca.netdevs:
        return f"{hca.device} has no network interface that ethtool could be asked for"
    answer = run(["ethtool", "-S", hca.netdevs[0]], timeout_s=timeout_s)
    if answer.outcome == MISSING:
        return "ethtool is not installed"
    if not answer.ok:
        return answer.describe(2)
    declared = int(bool(_RAILS.search(text_if_readable(SETTINGS) or "")))
    try:
        return {**counters_of(parse_statistics(answer.out)), _DECLARED: declared}
    except ValueError as error:
        return f"ethtool -S {hca.netdevs[0]}: {error}"


def judge_ethernet(
    answer: Answer,
    subject: str,
    key: str,
    rate_gbps: float,
    before: Sample | None,
    now: Sample,
    window_s: float,
) -> Iterator[Record]:
    """Yield the records of an Ethernet port; `key` is that of its counters in the samples."""
    if isinstance(answer, str):
        for check in ("ib.link_downed", "ib.symbol_errors", "ib.crc_errors", _LOSSLESS):
            yield Record(check, subject, NOT_MEASURED, answer)
        return
    down = growth_of_port(before, now, key, _DOWN)
    text = down.reason or f"{_DOWN}: {down.count} in {down.seconds:.0f} s"
    yield LINK_DOWNED.judge(subject, down.count, text=text)
    for question, counter in ((ETHERNET_SYMBOL_ERRORS, _SYMBOLS), (CRC_ERRORS, _CRC)):
        grown = growth_of_port(before, now, key, counter)
        yield _errors(question, subject, grown, counter, rate_gbps, window_s)
    lossless = sorted(row.group(1) for row in map(_PFC.match, answer) if row)
    if lossless:
        yield _lossless(subject, lossless, before, now, key)
    elif answer.get(_DECLARED):
        # A boot takes it away.
        text = "no priority has PFC: ethtool -S shows no rx_prioN_pause"
        yield Record(_LOSSLESS, subject, NOT_MEASURED, text, remedy=_APPLY)


def _errors(
    question: Question,
    subject: str,
    grown: Growth,
    counter: str,
    rate_gbps: float,
    window_s: float,
) -> Record:
    allowed, source = symbol_errors_allowed(rate_gbps, grown.seconds)
    what = f"{question.what} ({counter})"
    text = grown.reason or f"{grown.count} {what} in {grown.seconds:.0f} s"
    record = question.judge(subject, grown.count, allowed, source=source, text=text)
    # Too many errors fail at once; only a long enough window proves that a port has few.
    if record.status == PASS and grown.seconds < window_s:
        short = f"{text}; judged from a window of {window_s:.0f} s on"
        return Record(record.check, subject, NOT_MEASURED, short, record.measured, record.threshold)
    return record


def _lossless(
    subject: str, priorities: Sequence[str], before: Sample | None, now: Sample, key: str
) -> Record:
    grown = [growth_of_port(before, now, key, _DISCARDS.format(one)) for one in priorities]
    unread = [one.reason for one in grown if one.count is None]
    total = None if unread else sum(one.count or 0 for one in grown)
    names = ", ".join(priorities)
    text = unread[0] if unread else f"{LOSSLESS_DISCARDS.what} ({names})"
    return LOSSLESS_DISCARDS.judge(subject, total, text=text)
