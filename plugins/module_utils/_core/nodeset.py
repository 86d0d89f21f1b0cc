# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Slurm's hostlists: `dgx-[01-04,07]` for five nodes. Pure.

Only the form that Slurm itself reads and prints (slurm.conf man page, NodeName), so that a folded
set may be in slurm.conf and an expression from there can be expanded.
"""

from __future__ import annotations

import re
from typing import Iterable

_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_LAST_NUMBER = re.compile(r"(?P<before>.*?)(?P<digits>[0-9]+)(?P<after>[^0-9]*)")

# More than any cluster has; a slip like [1-99999999] must not fill the memory.
_MOST_NODES = 65536


def _split(text: str) -> list[str]:
    """Return the expressions that commas outside brackets separate."""
    parts, depth, part = [], 0, ""
    for sign in text:
        depth += {"[": 1, "]": -1}.get(sign, 0)
        if depth not in (0, 1):
            raise ValueError(f"the brackets of '{text}' do not match")
        if sign == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += sign
    if depth:
        raise ValueError(f"the brackets of '{text}' do not match")
    return [item.strip() for item in [*parts, part] if item.strip()]


def _numbers(ranges: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part.strip())
        if not found:
            raise ValueError(f"'{part}' in '{text}' is not a range like 01-12")
        first, last = found.group(1), found.group(2) or found.group(1)
        if int(last) < int(first):
            raise ValueError(f"the range {first}-{last} in '{text}' runs backwards")
        if int(last) - int(first) >= _MOST_NODES:
            raise ValueError(f"'{text}' means more than {_MOST_NODES} nodes")
        numbers.extend(str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return numbers


def expand(text: str) -> list[str]:
    """Return the names that the expression means, in its order, each once.

    ValueError says what is wrong with the expression.
    """
    names: dict[str, None] = {}
    for expression in _split(text):
        expanded = [""]
        position = 0
        for bracket in _BRACKET.finditer(expression):
            head = expression[position : bracket.start()]
            numbers = _numbers(bracket.group(1), text)
            if len(expanded) * len(numbers) > _MOST_NODES:
                raise ValueError(f"'{text}' means more than {_MOST_NODES} nodes")
            expanded = [name + head + number for name in expanded for number in numbers]
            position = bracket.end()
        names.update(dict.fromkeys(name + expression[position:] for name in expanded))
    return list(names)


def _fold_numbers(numbers: Iterable[tuple[int, int]]) -> list[str]:
    """Return ranges of (value, width of the digits) pairs; 9 and 10 join, 09 and 010 do not."""
    ranges: list[tuple[str, str]] = []
    for value, width in sorted(set(numbers)):
        text = str(value).zfill(width)
        if ranges:
            first, last = ranges[-1]
            # Slurm pads each number of a range to the width of the first.
            if value == int(last) + 1 and str(value).zfill(len(first)) == text:
                ranges[-1] = (first, text)
                continue
        ranges.append((text, text))
    return [first if first == last else f"{first}-{last}" for first, last in ranges]


def fold(names: Iterable[str]) -> str:
    """Return the shortest expression of one bracket a name that means the names; sorted."""
    plain: list[str] = []
    families: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for name in dict.fromkeys(names):
        found = _LAST_NUMBER.fullmatch(name)
        if not found:
            plain.append(name)
            continue
        key = (found.group("before"), found.group("after"))
        digits = found.group("digits")
        families.setdefault(key, []).append((int(digits), len(digits)))
    folded = list(plain)
    for (before, after), numbers in families.items():
        ranges = _fold_numbers(numbers)
        bare = len(ranges) == 1 and "-" not in ranges[0]
        middle = ranges[0] if bare else "[{}]".format(",".join(ranges))
        folded.append(before + middle + after)
    return ",".join(sorted(folded))
