# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""ib_write_bw of perftest: its arguments, what it prints, and what counts as good. Pure.

Sources: perftest 4.5 and 25.01 (help, source of write_bw.c and perftest_parameters.c).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from .._core.record import Threshold
from .thresholds import PUBLISHED, SHARE, UNPUBLISHED

TOOL = "ib_write_bw"
HOST = "host"
CUDA = "cuda"
CUDA_DMABUF = "cuda_dmabuf"
MEMORIES = (HOST, CUDA, CUDA_DMABUF)

# Seconds at both ends of a test that do not count; perftest wants more than twice this to last.
_MARGIN_S = 1
SHORTEST_S = 3

_HEADER = re.compile(r"^\s*#bytes\s+#iterations\s+BW peak\[(?P<unit>\S+)\]\s+BW average\[")
_ROW = re.compile(
    r"^\s*(?P<size>\d+)\s+\d+\s+(?:[\d.]+|-?nan|inf)\s+(?P<average>[\d.]+|-?nan|inf)\s+[\d.]+"
    # CPU_Util[%], with --cpu_util
    r"(?:\s+(?:[\d.]+|-?nan|inf))?\s*$"
)
# What perftest calls JSON has no quotes around its keys in some versions, and no unit anywhere.
_JSON = re.compile(r'"?BW_average"?\s*:\s*(?P<average>[\d.]+)')
# perftest's MB are 2**20 bytes.
_GBPS = {"Gb/sec": 1.0, "MB/sec": 2**20 * 8 / 1e9, "MiB/sec": 2**20 * 8 / 1e9}
_SAME = 0.02

_WC_STATUS = re.compile(r"Failed status (?P<status>\d+):")
# Work completion states that mean that packets do not arrive (ibv_wc_status).
_NOTHING_ARRIVES = {12: "transport retries exceeded", 13: "receiver not ready, retries exceeded"}
# On a processor that is shared: the tool takes the clock's rate for 0, and 0 is all that it prints.
_CLOCK = re.compile(r"Correlation coefficient r\^2: \S+ < \S+")
_PORT_STATE = re.compile(r"Port number \d+ state is (?P<state>\w+)")
_TIMED_OUT = (124, 137)
_NOT_INSTALLED = (126, 127)
_DECORATION = re.compile(r"^[\s*-]*$")


@dataclass(frozen=True)
class Recipe:
    """How a flow is measured, the same for all."""

    memory: str = HOST
    both_ways: bool = False
    size_bytes: int = 8 * 2**20
    duration_s: int = 10
    extra: tuple[str, ...] = ()

    def arguments(self, port: int, gpu: int, server: str | None) -> list[str]:
        """Return the arguments but for the device; `server` is None for the server itself."""
        words = ["-i", "1", "-p", str(port), "-s", str(self.size_bytes)]
        words += ["-D", str(self.duration_s), "-f", str(_MARGIN_S), "-F", "--report_gbits"]
        if self.both_ways:
            words.append("-b")
        if self.memory != HOST:
            words.append(f"--use_cuda={gpu}")
        if self.memory == CUDA_DMABUF:
            words.append("--use_cuda_dmabuf")
        words += self.extra
        return words if server is None else [*words, server]


@dataclass(frozen=True)
class Outcome:
    """What one test gave: Gb/s, or None and why there is no value."""

    gbps: float | None
    reason: str = ""


def read_result(rc: int, text: str, json_text: str = "") -> Outcome:
    """Return what a client's output says.

    A value of 0 is measured: the tool itself reports that no packet arrives. Everything
    else that went wrong shows nothing about the way between the two.
    """
    if rc in _TIMED_OUT:
        return Outcome(None, f"{TOOL} did not end in time")
    if rc in _NOT_INSTALLED:
        return Outcome(None, f"{TOOL} is not installed")
    status = _WC_STATUS.search(text)
    if rc != 0 and status and int(status["status"]) in _NOTHING_ARRIVES:
        return Outcome(0.0, f"no packet arrives: {_NOTHING_ARRIVES[int(status['status'])]}")
    down = _PORT_STATE.search(text)
    if rc != 0 and down:
        return Outcome(None, f"a port is {down['state']}")
    if rc != 0:
        return Outcome(None, f"{TOOL} ended with {rc}: {last_words(text)}")
    printed = _printed(text)
    written = _JSON.findall(json_text)
    if printed is None and not written:
        return Outcome(None, f"{TOOL} printed no result: {last_words(text)}")
    value = float(written[-1]) if written else printed or 0.0
    if printed is not None and abs(printed - value) > _SAME * max(printed, value):
        return Outcome(None, f"{TOOL} printed {printed:.2f} and wrote {value:.2f} Gb/s")
    if not math.isfinite(value):
        return Outcome(None, f"{TOOL} printed {value}")
    clock = _CLOCK.search(text)
    if value == 0 and clock:
        return Outcome(None, f"{TOOL} could not measure its processor's clock: {clock[0]}")
    return Outcome(value)


def _printed(text: str) -> float | None:
    """Return the average of the largest size in Gb/s; lines may stand between title and row."""
    factor: float | None = None
    best: tuple[int, float] | None = None
    for line in text.splitlines():
        header = _HEADER.match(line)
        row = _ROW.match(line)
        if header:
            factor = _GBPS.get(header["unit"])
        elif row and factor is not None:
            found = (int(row["size"]), float(row["average"]) * factor)
            if best is None or found[0] >= best[0]:
                best = found
    return None if best is None else best[1]


def last_words(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if not _DECORATION.match(line)]
    return lines[-1][:200] if lines else "it printed nothing"


def threshold_for(recipe: Recipe, rate_gbps: float) -> Threshold:
    """Return what a good flow must reach at least."""
    known = PUBLISHED.get((recipe.both_ways, recipe.memory != HOST, int(rate_gbps)))
    if known is not None:
        return known.threshold()
    ways = 2 if recipe.both_ways else 1
    return UNPUBLISHED.filled(rate=rate_gbps).threshold(SHARE * ways * rate_gbps)
