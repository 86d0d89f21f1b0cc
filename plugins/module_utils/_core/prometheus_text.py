# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Metrics in the text format of Prometheus, for the textfile collector of node_exporter. Pure.

node_exporter drops a whole file for one line that it cannot read, or one sample that is there
twice, so that nothing wrong may be written, whatever a tool has printed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Union

GAUGE, COUNTER = "gauge", "counter"
Number = Union[int, float]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
# Prometheus has these of the target, and renames those of a sample.
_OF_TARGET = ("instance", "job")


@dataclass
class Family:
    """All samples of one metric; the first of two with the same labels counts."""

    name: str
    what: str
    kind: str = GAUGE
    samples: dict[tuple[tuple[str, str], ...], Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ValueError(f"{self.name!r} is not a name of a metric")

    def add(self, value: Number | None, **labels: str) -> None:
        """Add a sample; None, and what is not a finite number, was not measured and has none."""
        if value is None or isinstance(value, bool) or not math.isfinite(value):
            return
        for name in labels:
            if not _LABEL.match(name) or name.startswith("__") or name in _OF_TARGET:
                raise ValueError(f"{name!r} is not a name of a label")
        self.samples.setdefault(tuple(labels.items()), value)

    def lines(self) -> list[str]:
        """Return its lines, none where it has no samples."""
        if not self.samples:
            return []
        what = self.what.replace("\\", "\\\\").replace("\n", "\\n")
        out = [f"# HELP {self.name} {what}", f"# TYPE {self.name} {self.kind}"]
        for labels, value in self.samples.items():
            inner = ",".join(f'{name}="{escaped(text)}"' for name, text in labels)
            out.append(f"{self.name}{{{inner}}} {number(value)}" if inner else
                       f"{self.name} {number(value)}")  # fmt: skip
        return out


def escaped(text: str) -> str:
    """Return a label's value as it is written between quotes.

    Characters that are not UTF-8, and control characters, are replaced.
    """
    plain = "".join(
        char if (char >= " " and char != "\x7f") or char == "\n" else "?" for char in text
    )
    plain = plain.encode("utf-8", "replace").decode("utf-8")
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: Number) -> str:
    """Return a value so that nothing of it is lost."""
    return str(value) if isinstance(value, int) else repr(float(value))


def exposition(families: Iterable[Family]) -> str:
    """Return the text of a file. Families of one name must be one; ValueError otherwise."""
    out: list[str] = []
    seen: set[str] = set()
    for family in families:
        if family.name in seen:
            raise ValueError(f"{family.name} is there twice")
        seen.add(family.name)
        out += family.lines()
    return "\n".join(out) + "\n" if out else ""


def counted(name: str, what: str, values: Mapping[str, Number | None]) -> Iterable[Family]:
    """Yield a gauge NAME_KEY without labels for each value; `what` has a place for the key."""
    for key, value in values.items():
        family = Family(f"{name}_{key}", what.format(key.replace("_", " ")))
        family.add(value)
        yield family


def run_families(prefix: str, at_s: float, took_s: float, cpu_s: float) -> list[Family]:
    """Return when a collector ran and what it took; by the first a silent one is noticed.

    `at_s` is Unix time, the others are seconds.
    """
    found = []
    for name, what, value in (
        ("run_timestamp_seconds", "When the last run ended.", at_s),
        ("run_duration_seconds", "How long it took.", took_s),
        ("run_cpu_seconds", "Processor time it took, commands included.", cpu_s),
    ):
        family = Family(f"{prefix}_{name}", what)
        family.add(round(value, 3))
        found.append(family)
    return found
