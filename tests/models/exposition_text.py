# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A strict reader of Prometheus' text format: it refuses what node_exporter drops a file for."""

from __future__ import annotations

import math
import re

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_COMMENT = re.compile(rf"# (HELP|TYPE) ({_NAME}) (.*)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")
# What stands below these besides samples of that name.
_PARTS = {"summary": ("", "_sum", "_count"), "histogram": ("_bucket", "_sum", "_count")}


def read(text: str) -> Samples:
    """Return the samples of a file. ValueError where it breaks a rule of the format.

    HELP and TYPE come once and before their samples, samples of a metric stand together, no sample
    is there twice, no value is NaN, counters are not negative, and the last line has an end.
    """
    if text and not text.endswith("\n"):
        raise ValueError("the last line has no end")
    reader = _Reader()
    for line in text.split("\n")[:-1]:
        if line.startswith("#"):
            reader.comment(line)
        else:
            reader.sample(line)
    for name in reader.types:
        if not any(key[0] in reader.parts(name) for key in reader.found):
            raise ValueError(f"{name} has no sample")
    return reader.found


class _Reader:
    def __init__(self) -> None:
        self.found: Samples = {}
        self.types: dict[str, str] = {}
        self._helped: set[str] = set()
        self._done: set[str] = set()
        self._current = ""

    def comment(self, line: str) -> None:
        comment = _COMMENT.fullmatch(line)
        if comment is None:
            raise ValueError(f"neither HELP nor TYPE: {line}")
        kind, name, rest = comment.groups()
        if name in (self._helped if kind == "HELP" else self.types):
            raise ValueError(f"{kind} of {name} is there twice")
        if kind == "HELP":
            self._helped.add(name)
        elif rest in _TYPES:
            self.types[name] = rest
        else:
            raise ValueError(f"{rest} is not a type")
        if name != self._current:
            self._done.add(self._current)
            self._current = name

    def parts(self, name: str) -> set[str]:
        """Return the names of the samples that a metric may have."""
        return {name + part for part in _PARTS.get(self.types.get(name, ""), ("",))}

    def sample(self, line: str) -> None:
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise ValueError(f"no sample: {line!r}")
        name, inner, text = sample.groups()
        metric = self._current
        above = name in self.parts(metric) and metric not in self._done
        if not above or metric not in self.types or metric not in self._helped:
            raise ValueError(f"{name} does not stand below its HELP and TYPE")
        key = (name, _labels(inner) if inner else frozenset())
        if key in self.found:
            raise ValueError(f"there twice: {line}")
        number = float(text)
        if math.isnan(number) or (self.types[metric] == "counter" and number < 0):
            raise ValueError(f"no value of a {self.types[metric]}: {line}")
        self.found[key] = number


def _labels(text: str) -> frozenset[tuple[str, str]]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        if label is None or label.group(1) in found:
            raise ValueError(f"labels: {text}")
        plain = re.sub(r"\\(.)", lambda one: {"n": "\n"}.get(one[1], one[1]), label.group(2))
        found[label.group(1)] = plain
        at = label.end()
    if text.endswith(","):
        raise ValueError(f"labels: {text}")
    return frozenset(found.items())


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """Return the value of one sample, None where it is not there."""
    return samples.get((name, frozenset(labels.items())))


def names(samples: Samples) -> set[str]:
    """Return the names of all metrics."""
    return {name for name, _labels in samples}
