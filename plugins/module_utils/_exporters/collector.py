# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What both collectors share: their command line, settings, exit status, and what a run costs."""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Any, Callable, Iterable, Mapping, TypeVar

from .._core.files import read_text

OK, FAULT = 0, 3
Settings = TypeVar("Settings")


def parser_of(program: str, description: str, config: str) -> argparse.ArgumentParser:
    """Return the command line; `config` is where the settings are by default."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--config", default=config, metavar="FILE")
    parser.add_argument("--check-config", action="store_true", help="only read the configuration")
    parser.add_argument(
        "--check-metrics", type=float, metavar="SECONDS",
        help="only judge the last metrics: whole, and at most so old",
    )  # fmt: skip
    return parser


def read_settings(
    data: Any, made_of: Callable[..., Settings], kinds: Mapping[str, Any]
) -> Settings:
    """Return the settings of a configuration, `kinds` by name; ValueError for anything else."""
    if not isinstance(data, Mapping) or data.get("version") != 1:
        raise ValueError("version: must be 1")
    given = {name: value for name, value in data.items() if name != "version"}
    for name, value in given.items():
        if name not in kinds:
            raise ValueError(f"{name}: there is no such setting")
        if not isinstance(value, kinds[name]):
            raise ValueError(f"{name}: {value!r} is of the wrong kind")
    try:
        settings = made_of(**given)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if not given["metrics_file"].endswith(".prom"):
        raise ValueError("metrics_file: must end with .prom, or node_exporter does not read it")
    return settings


def last_run(path: str, prefix: str, most_s: float) -> list[str]:
    """Return what is wrong with the metrics of the last run. OSError."""
    text = read_text(path)
    found = re.search(rf"^{prefix}_run_timestamp_seconds (\S+)$", text, re.MULTILINE)
    age_s = abs(time.time() - float(found[1] if found else 0))
    if age_s > most_s:
        return [f"{path} is {age_s / 60:.0f} min old, and may be {most_s / 60:.0f} min"]
    if f"\n{prefix}_collector_ok 1\n" not in text:
        return [f"{path}: the last run has not measured all"]
    return []


def finish(program: str, work: Callable[[], Iterable[str]]) -> int:
    """Return the exit status of one run, whose problems and errors are lines of the log."""
    try:
        problems = list(work())
    except (OSError, ValueError) as error:
        problems = [str(error)]
    for line in problems:
        sys.stderr.write(f"{program}: {line}\n")
    return FAULT if problems else OK
