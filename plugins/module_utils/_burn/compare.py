# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""One GPU against the others of its node: bits by majority, figures by median. Pure."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Callable, Iterable, Sequence

from .plan import PHASES, Sum, key, pair_key
from .state import State
from .thresholds import LEAST_TO_COMPARE, LIKE_PRODUCT, LIKE_TRANSFER, MANY_DEVIATIONS


@dataclass(frozen=True)
class Disagreement:
    """A GPU whose bits are not those of most."""

    phase: str
    address: str
    text: str
    # Whether others prove this GPU wrong; else one of those that differ is.
    decided: bool = True


def disagreements(
    state: State, addresses: Sequence[str], read_sums: Callable[[str], bytes | None]
) -> list[Disagreement]:
    """Return which GPUs gave other bits than more than half of those that ran the same kernel.

    Where no more than half agree, each of them may be wrong.
    """
    found = []
    for phase in PHASES:
        answers: dict[tuple[str, str], dict[str, tuple[str, str, int]]] = {}
        for address in addresses:
            total = state.sums.get(key(address, phase.name))
            for data_set, one in (total.digests if total else {}).items():
                group = answers.setdefault((data_set, one["algorithm"]), {})
                group[address] = (one["digest"], one["file"], one["n"])
        for (data_set, _algorithm), group in sorted(answers.items()):
            counts = Counter(digest for digest, _file, _n in group.values())
            digest, votes = counts.most_common(1)[0]
            if len(counts) == 1:
                continue
            if 2 * votes <= len(group):
                text = f"{len(group)} GPUs gave {len(counts)} answers to data set {data_set}"
                text += ", and no more than half agree"
                found += [Disagreement(phase.name, one, text, False) for one in sorted(group)]
                continue
            good = next(one for one in group.values() if one[0] == digest)
            for address, (own, file, n) in sorted(group.items()):
                if own != digest:
                    place = _place(read_sums(file), read_sums(good[1]), n)
                    text = f"{votes} GPUs agree on data set {data_set}, this one differs{place}"
                    found.append(Disagreement(phase.name, address, text))
    return found


def _place(one: bytes | None, other: bytes | None, n: int) -> str:
    """Say where two files of sums (n rows, then words of columns) first differ."""
    if not one or not other or len(one) != len(other) or len(one) < 8 * n:
        return ""
    mine, good = (struct.unpack(f"<{len(raw) // 8}Q", raw) for raw in (one, other))
    rows = [row for row in range(n) if mine[row] != good[row]]
    words = [word for word in range(len(mine) - n) if mine[n + word] != good[n + word]]
    wide = max(1, (len(mine) - n) // n)
    if not rows or not words:
        return ""
    return f" in {len(rows)} rows, the first row {rows[0]} column {words[0] // wide}"


def systematic(state: State, addresses: Sequence[str]) -> set[str]:
    """Return the exact phases in which every GPU, of two or more, shows an error all have alike."""
    found = set()
    for phase in PHASES:
        signatures = []
        for address in addresses:
            total = state.sums.get(key(address, phase.name))
            if total and (total.done or total.errors):
                signatures.append(
                    {
                        (error.get("what"), error.get("data_set"), found_bits)
                        for error in total.first
                        for found_bits in (error.get("sums") or error.get("found"),)
                        if found_bits
                    }
                )
        if len(signatures) > 1 and set.intersection(*signatures):
            found.add(phase.name)
    return found


def blame_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Return the fewest GPUs that explain the bad pairs, each with the pairs that it explains.

    A single pair explains itself by either end: then both are named.
    """
    rest = sorted(pairs)
    blamed: dict[str, list[tuple[str, str]]] = {}
    while rest:
        others: dict[str, set[str]] = {}
        for one, other in rest:
            others.setdefault(one, set()).add(other)
            others.setdefault(other, set()).add(one)
        most = max(len(ends) for ends in others.values())
        worst = sorted(end for end, ends in others.items() if len(ends) == most)
        for end in worst if most == 1 else worst[:1]:
            blamed[end] = [pair for pair in rest if end in pair]
        rest = [pair for pair in rest if not blamed.keys() & set(pair)]
    return blamed


def slow_pairs(state: State, ran: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the pairs that are slow among those of the node, with their share of the median."""
    rates = {}
    for source in ran:
        for target in ran:
            one = state.sums.get(pair_key(source, target))
            if one and one.totals.get("copy_ms"):
                rates[source, target] = one.totals["copied"] / one.totals["copy_ms"]
    if len(rates) < LEAST_TO_COMPARE:
        return {}
    middle = median(rates.values())
    shares = {pair: rate / middle for pair, rate in rates.items()}
    return {pair: share for pair, share in shares.items() if share < LIKE_TRANSFER.value}


def rates_of(state: State, address: str, ran: Sequence[str]) -> dict[str, float]:
    """Return the figures of a GPU: TFLOP/s by kind, GB/s of hbm, down, up and peer.

    That of its peers is the median of its pairs: one slow GPU must not make all look slow.
    """
    rates: dict[str, float] = {}
    for phase in PHASES:
        total = state.sums.get(key(address, phase.name)) or Sum()
        amounts = total.totals
        # Random data draws the power that work draws, so that its rate counts where there is one.
        if phase.program == "gemm" and amounts.get("product_ms") and not phase.pulsed:
            rates[phase.kind] = amounts["flop"] / amounts["product_ms"] / 1e9
    total = state.sums.get(key(address, "hbm_rate")) or Sum()
    if total.totals.get("copy_ms"):
        rates["hbm"] = total.totals["copied"] / total.totals["copy_ms"] / 1e6
    total = state.sums.get(key(address, "host")) or Sum()
    for way in ("down", "up"):
        if total.totals.get(f"{way}_ms"):
            rates[way] = total.totals[way] / total.totals[f"{way}_ms"] / 1e6
    pairs = []
    for other in ran:
        for name in (pair_key(address, other), pair_key(other, address)):
            one = state.sums.get(name)
            if one and one.totals.get("copy_ms"):
                pairs.append(one.totals["copied"] / one.totals["copy_ms"] / 1e6)
    if pairs:
        rates["peer"] = median(pairs)
    return rates


def compare(value: float, everyone: Sequence[float], transfer: bool) -> tuple[float, float] | None:
    """Return the share of the median and the least that it must be; None for too few to compare.

    The least is the lower of a fixed share and the node's own spread: where all differ, none is
    odd.
    """
    if len(everyone) < LEAST_TO_COMPARE:
        return None
    middle = median(everyone)
    if middle <= 0:
        return None
    spread = median(abs(one - middle) for one in everyone) / middle
    question = LIKE_TRANSFER if transfer else LIKE_PRODUCT
    least = min(question.value, 1 - MANY_DEVIATIONS * spread)
    return round(value / middle, 3), round(least, 3)
