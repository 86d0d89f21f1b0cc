# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is **PRIVATE** to the collection: it can have breaking changes at any time.
# Do not use it from other collections or standalone plugins/modules!

"""Values of Slurm's accounting: as people write them, as sacctmgr prints and takes them. Pure.

Every value has one canonical form, in which what is wanted and what is there are compared; None is
a limit that is not set. Formats: sacctmgr(1) and "slurm.conf(5), time formats".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Sequence

INTEGER, MINUTES, SECONDS, FACTOR = "integer", "minutes", "seconds", "factor"
TRES, NAMES, NAME, WORD, TEXT = "tres", "names", "name", "word", "text"

Settings = Dict[str, Any]

# counted in MiB by Slurm; everything else is a plain number
_MEMORY = ("mem", "vmem", "pages", "fs/", "bb/")
_UNITS = "KMGTPE"
_NAME = re.compile(r"^[A-Za-z0-9_.@+-]+$")
_TRES_NAME = re.compile(r"^[a-z_]+(/[A-Za-z0-9_.:@+-]+)?$")
_WORD = re.compile(r"^[A-Za-z0-9_,-]+$")
# the parsable output is cut at |, and sacctmgr turns quotes into other characters
_UNFIT_FOR_TEXT = re.compile(r"[|\"'`\\\n]")


@dataclass(frozen=True)
class Field:
    """One setting: its option, the column that shows it, the keyword that sets it, its kind.

    unset is its canonical value when it is not set, clear what sacctmgr gets to unset it.
    """

    option: str
    column: str
    keyword: str
    kind: str
    unset: Any = None
    clear: str = "-1"


def parse_cell(field: Field, cell: str) -> Any:
    """Canonical value of what sacctmgr printed, ours or not. ValueError where it cannot be read."""
    text = cell.strip()
    if field.kind == NAMES:
        return frozenset(part for part in text.split(",") if part)
    if field.kind == TRES:
        return canonical_tres(dict(part.split("=", 1) for part in text.split(",") if part))
    if text == "":
        return field.unset
    return _canonical(field, text)


def parse_wanted(field: Field, value: Any) -> Any:
    """Canonical value of what was asked for. Raises ValueError with what to write instead."""
    if field.kind == NAMES:
        names = [str(name) for name in value or []]
        wrong = [name for name in names if not _NAME.match(name)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not a name; write letters, digits and _.@+-")
        return frozenset(names)
    if field.kind == TRES:
        if not isinstance(value, Mapping):
            raise ValueError("is not a mapping; write one such as {gres/gpu: 16}")
        for name in value:
            if not isinstance(name, str) or not _TRES_NAME.match(name):
                raise ValueError(
                    f"{name!r} is not the name of a TRES; write one such as cpu or gres/gpu"
                )
        return canonical_tres(value)
    if field.kind in (MINUTES, SECONDS) and isinstance(value, bool):
        raise ValueError(f"{value!r} is not a time; write one such as 2-00:00:00 in quotes")
    if field.kind == MINUTES and not isinstance(value, str):
        # YAML reads an unquoted 2:00:00 as the number 7200, which would be taken for minutes
        raise ValueError(
            f'{value!r} is a number; write times in quotes, such as "2-00:00:00" or "90"'
        )
    text = str(value).strip()
    if field.kind == NAME and not _NAME.match(text):
        raise ValueError(f"{text!r} is not a name; write letters, digits and _.@+-")
    if field.kind == WORD and not _WORD.match(text):
        raise ValueError(f"{text!r} is not a word; write letters, digits and _-")
    if field.kind == TEXT and _UNFIT_FOR_TEXT.search(text):
        raise ValueError("has a quote, a | or a line end; leave it out")
    return _canonical(field, text)


def _canonical(field: Field, text: str) -> Any:
    if field.kind == INTEGER:
        return _number(text)
    if field.kind == MINUTES:
        return None if text.upper() in ("-1", "UNLIMITED", "INFINITE") else minutes(text)
    if field.kind == SECONDS:
        return int(text) if text.isdigit() else seconds(text)
    if field.kind == FACTOR:
        return round(float(text), 6)
    if field.kind == NAME:
        return text
    if field.kind == WORD:
        return ",".join(sorted(text.lower().split(",")))
    # sacctmgr stores descriptions in lower case
    return text.lower()


def _number(text: str) -> int | None:
    if text in ("-1", "UNLIMITED"):
        return None
    if not text.isdigit():
        raise ValueError(f"{text!r} is not a number; write a whole one, or -1 for no limit")
    return int(text)


def seconds(text: str) -> int:
    """Seconds of `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS`, or minutes alone."""
    found = re.match(r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$", text)
    if not found:
        raise ValueError(f"{text!r} is not a time; write one such as 2-00:00:00")
    days, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found.group(1) is not None:
        return days * 86400 + first * 3600 + second * 60 + third
    if found.group(4) is not None:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def minutes(text: str) -> int:
    """Minutes of a time; part of a minute counts as one, as in Slurm."""
    return math.ceil(seconds(text) / 60)


def format_minutes(value: int) -> str:
    """Minutes as D-HH:MM:SS."""
    return f"{value // 1440}-{value // 60 % 24:02d}:{value % 60:02d}:00"


def canonical_tres(values: Mapping[Any, Any]) -> dict[str, int]:
    """TRES name → number, memory in MiB. Raises ValueError."""
    tres = {}
    for name, value in values.items():
        tres[name] = _tres_number(name, str(value).strip())
    # -1 is how sacctmgr says "no limit"
    return {name: number for name, number in sorted(tres.items()) if number >= 0}


def _tres_number(name: str, text: str) -> int:
    if text == "-1":
        return -1
    found = re.match(r"^(\d+(?:\.\d+)?)([KMGTPE])?(?:i?B)?$", text, re.IGNORECASE)
    if not found:
        raise ValueError(f"{name}={text} is not a number; write one such as 16 or 512G")
    number, unit = float(found.group(1)), (found.group(2) or "").upper()
    if name.startswith(_MEMORY):
        number *= 1024.0 ** (_UNITS.index(unit) - 1) if unit else 1.0
    elif unit:
        number *= 1024.0 ** (_UNITS.index(unit) + 1)
    return round(number)


def assignments(field: Field, before: Any, after: Any) -> list[str]:
    """`keyword=value` words that bring a setting from before to after; none when they are equal."""
    if before == after:
        return []
    if field.kind == TRES:
        # what is not named stays as it is, so what is gone must be unset by name
        changed = {name: n for name, n in after.items() if (before or {}).get(name) != n}
        gone = {name: -1 for name in before or {} if name not in after}
        pairs = sorted({**changed, **gone}.items())
        return [f"{field.keyword}=" + ",".join(f"{name}={number}" for name, number in pairs)]
    if after == field.unset:
        return [f"{field.keyword}={field.clear}"]
    return [f"{field.keyword}={format_value(field, after)}"]


def format_value(field: Field, value: Any) -> str:
    """A canonical value as sacctmgr takes it, and as it is shown in a diff."""
    if value is None:
        return "none"
    if field.kind == TRES:
        return ",".join(f"{name}={number}" for name, number in sorted(value.items()))
    if field.kind == NAMES:
        return ",".join(sorted(value))
    if field.kind == MINUTES:
        return format_minutes(value)
    if field.kind == FACTOR:
        return f"{value:g}"
    return str(value)


def parse_settings(fields: Sequence[Field], row: Mapping[str, str]) -> Settings:
    """Canonical settings of one row of sacctmgr's output."""
    return {field.option: parse_cell(field, row[field.column]) for field in fields}


def wanted_settings(
    fields: Sequence[Field], entry: Mapping[str, Any], where: str
) -> tuple[Settings, list[str]]:
    """Canonical settings of one declared entry, and what is wrong with it.

    An entry is complete: what it does not name is unset. Texts are the exception: None means that
    they may be anything.
    """
    settings: Settings = {}
    errors = []
    for field in fields:
        value = entry.get(field.option)
        if value is None:
            settings[field.option] = None if field.kind == TEXT else empty(field)
            continue
        try:
            settings[field.option] = parse_wanted(field, value)
        except ValueError as error:
            errors.append(f"{where}.{field.option}: {error}")
            settings[field.option] = empty(field)
    return settings, errors


def empty(field: Field) -> Any:
    """The canonical value of a setting that is not set."""
    if field.kind == NAMES:
        return frozenset()
    if field.kind == TRES:
        return {}
    return field.unset


def changes_of(fields: Sequence[Field], before: Settings, after: Settings) -> list[str]:
    """All `keyword=value` words that lead from before to after, in the order of the fields."""
    words = []
    for field in fields:
        if field.kind == TEXT and after[field.option] is None:
            continue
        words += assignments(field, before[field.option], after[field.option])
    return words


def describe(fields: Sequence[Field], settings: Settings) -> list[str]:
    """`option: value` lines of everything that is set, for a diff."""
    return [
        f"{field.option}: {format_value(field, settings[field.option])}"
        for field in fields
        if settings[field.option] not in (None, empty(field))
    ]


def is_name(text: str) -> bool:
    """True for what Slurm takes as the name of an account, a user or a QOS."""
    return bool(_NAME.match(text))
