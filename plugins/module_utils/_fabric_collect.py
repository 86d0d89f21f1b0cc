# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks the fabric: one discovery, everything else from its cache. Nothing is changed.

The tools end with 0 whatever they found, and with an error when all is well: what counts is
whether they ended at all, and what they wrote.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from typing import Callable, Mapping

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_answers import (
    FoundSms,
    Reading,
    add_errors,
    gather_sms,
    read_counters,
    read_sm_lids,
    read_sminfo,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_judge import Observation
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_model import Sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric_sweep import (
    add_link_states,
    port_index,
    read_ibnetdiscover,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    ENDED,
    CommandResult,
    CommandRunner,
)

DISCOVERY = "ibnetdiscover"
STATES = "iblinkinfo"
COUNTERS = "ibqueryerrors"
SECOND_COUNTERS = "ibqueryerrors-2"
SM = "sminfo"
SM_LIDS = "saquery"

# More subnet managers than this are not asked one by one.
_SMS = 8


@dataclass(frozen=True)
class Ask:
    """How to ask: `outstanding` is how many packets of the discovery are under way at once."""

    timeout_s: float = 120
    interval_s: float = 0
    outstanding: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    # What each command begins with, for a device or port of its own: ["-C", "mlx5_rail0"].
    options: tuple[str, ...] = ()


@dataclass
class Answers:
    """What was observed, the tools' own words by name, and what kept a part from being measured."""

    observation: Observation
    raw: dict[str, str] = field(default_factory=dict)
    # (tool, why it measured nothing)
    lost: list[tuple[str, str]] = field(default_factory=list)
    # What shows that the answer of the discovery itself is not whole.
    cut: list[str] = field(default_factory=list)


def ask_fabric(
    run: CommandRunner, ask: Ask, sleep: Callable[[float], None] = time.sleep
) -> Answers:
    """Look at the fabric from this host.

    Takes as long as a discovery, the counters, and interval_s where a second reading is wanted.
    """
    folder = tempfile.mkdtemp(prefix="fabric-")
    try:
        return _Asker(run, ask, os.path.join(folder, "cache"), sleep).all()
    finally:
        # The cache is of this moment: nobody must take it for a later one.
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Asker:
    run: CommandRunner
    ask: Ask
    cache: str
    sleep: Callable[[float], None]
    raw: dict[str, str] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)

    def all(self) -> Answers:
        sweep = self._discover()
        observation = Observation(sweep)
        if sweep.devices:
            self._states(sweep)
            index = port_index(sweep)
            observation.before, first = self._counters(COUNTERS, sweep, index)
            observation.sms = self._sms()
            if self.ask.interval_s > 0 and observation.before is not None:
                self.sleep(max(0.0, first + self.ask.interval_s - time.monotonic()))
                observation.after, _at = self._counters(SECOND_COUNTERS, sweep, index)
        return Answers(observation, self.raw, self.lost)

    def _call(self, name: str, *words: str) -> CommandResult:
        argv = [words[0], *self.ask.options, *words[1:]]
        result = self.run(argv, timeout_s=self.ask.timeout_s, env=self.ask.environment)
        self.raw[name] = result.out
        if result.err.strip():
            self.raw[f"{name}.stderr"] = result.err
        return result

    def _discover(self) -> Sweep:
        words = [DISCOVERY, "--cache", self.cache]
        if self.ask.outstanding:
            words += ["-o", str(self.ask.outstanding)]
        result = self._call(DISCOVERY, *words)
        trouble = _trouble(result)
        if not result.out.strip():
            self.lost.append((DISCOVERY, trouble or "it printed nothing"))
            sweep = Sweep(complaints=[trouble or f"{DISCOVERY} printed nothing"])
            add_errors(sweep, DISCOVERY, "" if trouble else result.err)
            return sweep
        sweep = read_ibnetdiscover(result.out)
        add_errors(sweep, DISCOVERY, result.err)
        if trouble:
            self.lost.append((DISCOVERY, trouble))
            sweep.complaints.insert(0, trouble)
        return sweep

    def _states(self, sweep: Sweep) -> None:
        result = self._call(STATES, STATES, "--load-cache", self.cache, "-l")
        trouble = _trouble(result)
        if result.out.strip():
            add_link_states(sweep, result.out)
        elif not trouble:
            trouble = f"{STATES} printed nothing"
        # Reading the cache it asks nobody: what it says was said by the discovery already.
        extra = Sweep()
        add_errors(extra, STATES, result.err)
        sweep.complaints += extra.complaints
        if trouble:
            self.lost.append((STATES, trouble))
            sweep.complaints.append(f"states of ports are not known: {trouble}")

    def _counters(
        self, name: str, sweep: Sweep, index: Mapping[tuple[str, int], tuple[str, int]]
    ) -> tuple[Reading | None, float]:
        # Without --data and --counters: with them it prints the counters of data only.
        # The tool crashes now and then, and then it helps to ask again.
        for _attempt in range(2):
            at = time.monotonic()
            result = self._call(name, COUNTERS, "--skip-sl", "--load-cache", self.cache)
            trouble = _trouble(result, (0, 1))
            if not trouble:
                return read_counters(result.out, result.err, at, sweep, index), at
        self.lost.append((name, trouble))
        return None, at

    def _sms(self) -> FoundSms:
        master = self._call(SM, SM)
        lids = self._call(SM_LIDS, SM_LIDS, "-s")
        each = []
        for lid in read_sm_lids(lids.out)[:_SMS]:
            each.append((lid, self._call(f"{SM}-{lid}", SM, str(lid)).out))
        found = gather_sms(master.out, lids.out, each)
        # Without a manager both end with an error of their own; any other error is no answer. And
        # where there is a master, it must also have told of the others.
        if read_sminfo(master.out) is None and "failed: query" not in master.text:
            self._no_answer(found, master)
        if lids.rc != 0 and (found.masters or not _NO_SM.search(lids.text)):
            self._no_answer(found, lids)
        return found

    def _no_answer(self, found: FoundSms, result: CommandResult) -> None:
        trouble = result.describe(2)
        self.lost.append((result.argv[0], trouble))
        found.complaints.append(trouble)


_NO_SM = re.compile(r"Query SA failed|No SM/SA found")


def _trouble(result: CommandResult, good: tuple[int, ...] = (0,)) -> str:
    """Return what is wrong with how a command ended, "" where nothing is."""
    if result.outcome == ENDED and result.rc in good:
        return ""
    return result.describe(2)


def read_files(texts: Mapping[str, str], interval_s: float) -> Answers:
    """Return what saved answers say, by the names that ask_fabric saves them under."""
    sweep = read_ibnetdiscover(texts[DISCOVERY])
    cut = list(sweep.complaints)
    add_errors(sweep, DISCOVERY, texts.get(f"{DISCOVERY}.stderr", ""))
    if STATES in texts:
        add_link_states(sweep, texts[STATES])
    observation = Observation(sweep)
    index = port_index(sweep)
    readings = [
        read_counters(texts[name], texts.get(f"{name}.stderr", ""), at, sweep, index)
        for name, at in ((COUNTERS, 0.0), (SECOND_COUNTERS, interval_s))
        if name in texts
    ]
    if readings:
        observation.before = readings[0]
    if len(readings) > 1:
        observation.after = readings[1]
    if SM in texts:
        each = [
            (int(name[len(SM) + 1 :]), text)
            for name, text in sorted(texts.items())
            if name.startswith(f"{SM}-") and name[len(SM) + 1 :].isdigit()
        ]
        observation.sms = gather_sms(texts[SM], texts.get(SM_LIDS, ""), each)
    return Answers(observation, dict(texts), cut=cut)
