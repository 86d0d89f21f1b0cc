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
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

from .._core.files import temporary_folder, text_of_option
from .._core.record import NOT_MEASURED, flaw, utc_text
from .._core.run import ENDED, CommandResult, CommandRunner, ToolError
from .findings import several
from .judge import Expectation, Observation
from .judge_adapters import OwnHca, adapters_from_data
from .judge_subnet_managers import Managers
from .model import Place, Sweep
from .parse_counters import (
    FoundSms,
    Reading,
    add_errors,
    gather_sms,
    read_counters,
    read_sm_lids,
    read_sminfo,
)
from .parse_discovery import add_link_states, port_index, read_ibnetdiscover

DISCOVERY = "ibnetdiscover"
STATES = "iblinkinfo"
COUNTERS = "ibqueryerrors"
SECOND_COUNTERS = "ibqueryerrors-2"
SM = "sminfo"
SM_LIDS = "saquery"

# More subnet managers than this are not asked one by one.
_SMS = 8


# The names under which answers are saved; of each also what it wrote on standard error.
_SAVED_NAMES = f"{DISCOVERY}, {STATES}, {COUNTERS}, {SECOND_COUNTERS}, {SM}, {SM_LIDS} or {SM}-LID"
_SAVED = re.compile(
    rf"({DISCOVERY}|{STATES}|{COUNTERS}|{SECOND_COUNTERS}|{SM}|{SM}-\d+|{SM_LIDS}|ibswinfo-.*)"
    r"(\.stderr)?\Z"
)

# Options that modules share, as plugins/doc_fragments/fabric.py documents them.
REPORT: dict[str, Any] = {
    "cluster_name": {"type": "str", "default": ""},
    "output": {"type": "path"},
}
PLAN: dict[str, Any] = {"plan": {"type": "dict"}, "plan_file": {"type": "path"}}
KNOWN: dict[str, Any] = {
    "other_hosts": {"type": "list", "elements": "str", "default": []},
    "places": {"type": "dict", "default": {}},
    "least_share": {"type": "float", "default": 0.25},
}
SWEEP: dict[str, Any] = {
    "interval_s": {"type": "float", "default": 60},
    "sweep_files": {"type": "dict"},
    "sweep_at": {"type": "str", "default": ""},
    "outstanding": {"type": "int", "default": 0},
    "tool_options": {"type": "list", "elements": "str", "default": []},
    "tool_environment": {"type": "dict", "default": {}},
}


@dataclass(frozen=True)
class Ask:
    """How to ask: `outstanding` is how many packets of the discovery are under way at once."""

    timeout_s: float = 120
    interval_s: float = 0
    outstanding: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    # What each command begins with, for a separate device or port: ["-C", "mlx5_rail0"].
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
    run: CommandRunner,
    ask: Ask,
    sleep: Callable[[float], None] = time.sleep,
    states_matter: Callable[[Sweep], bool] = lambda _sweep: True,
) -> Answers:
    """Look at the fabric from this host.

    Takes as long as a discovery, the counters, and interval_s where a second reading is wanted.
    What the ports without a link say of themselves is asked for where states_matter(sweep): it is
    what tells a cable that is gone from a device that is silent.
    """
    # The cache is of this moment: it must not be taken for a later one.
    with temporary_folder("fabric-") as folder:
        return _Asker(run, ask, folder, sleep, states_matter).all()


@dataclass
class _Asked:
    """A reading of the counters as the tool gave it, and when it was asked for."""

    name: str
    result: CommandResult | None = None
    at_s: float = 0


@dataclass
class _Asker:
    run: CommandRunner
    ask: Ask
    folder: str
    sleep: Callable[[float], None]
    states_matter: Callable[[Sweep], bool]
    raw: dict[str, str] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)

    def all(self) -> Answers:
        text, result = self._discover()
        if not text.strip():
            return Answers(Observation(self._nothing(result)), self.raw, self.lost)
        # The counters take as long as it takes to understand the discovery: both at once.
        with ThreadPoolExecutor(max_workers=1) as aside:
            early = aside.submit(self._early)
            sweep = self._understand(text, result)
            matter = self.states_matter(sweep)
            asked, observed_sms = early.result()
        if matter:
            self._states(sweep)
        index = port_index(sweep)
        observation = Observation(sweep, sms=observed_sms)
        observation.before = self._reading(asked, sweep, index)
        if self.ask.interval_s > 0 and observation.before is not None:
            self.sleep(max(0.0, asked.at_s + self.ask.interval_s - time.monotonic()))
            observation.after = self._reading(self._counters(SECOND_COUNTERS), sweep, index)
        return Answers(observation, self.raw, self.lost)

    def _early(self) -> tuple[_Asked, FoundSms]:
        return self._counters(COUNTERS), self._sms()

    @property
    def cache(self) -> str:
        return os.path.join(self.folder, "cache")

    def _call(self, name: str, *words: str) -> CommandResult:
        argv = [words[0], *self.ask.options, *words[1:]]
        result = self.run(argv, timeout_s=self.ask.timeout_s, env=self.ask.environment)
        self.raw[name] = result.out
        if result.err.strip():
            self.raw[f"{name}.stderr"] = result.err
        return result

    def _discover(self) -> tuple[str, CommandResult]:
        words = [DISCOVERY, "--cache", self.cache]
        if self.ask.outstanding:
            words += ["-o", str(self.ask.outstanding)]
        # Into a file: many megabytes through a pipe take longer than to read them.
        topology = os.path.join(self.folder, "topology")
        result = self._call(DISCOVERY, *words, topology)
        if os.path.exists(topology):
            with open(topology, encoding="utf-8", errors="replace") as handle:
                self.raw[DISCOVERY] = handle.read()
        return self.raw[DISCOVERY], result

    def _nothing(self, result: CommandResult) -> Sweep:
        trouble = _trouble(result)
        self.lost.append((DISCOVERY, trouble or "it printed nothing"))
        sweep = Sweep(complaints=[trouble or f"{DISCOVERY} printed nothing"])
        add_errors(sweep, DISCOVERY, "" if trouble else result.err)
        return sweep

    def _understand(self, text: str, result: CommandResult) -> Sweep:
        sweep = read_ibnetdiscover(text)
        add_errors(sweep, DISCOVERY, result.err)
        trouble = _trouble(result)
        if trouble:
            self.lost.append((DISCOVERY, trouble))
            sweep.complaints.insert(0, trouble)
            sweep.partial = True
        return sweep

    def _states(self, sweep: Sweep) -> None:
        result = self._call(STATES, STATES, "--load-cache", self.cache, "-l")
        trouble = _trouble(result)
        if result.out.strip():
            add_link_states(sweep, result.out)
        elif not trouble:
            trouble = f"{STATES} printed nothing"
        # When it reads the cache it asks no device: what it prints the discovery has printed
        # already.
        extra = Sweep()
        add_errors(extra, STATES, result.err)
        sweep.complaints += extra.complaints
        if trouble:
            self.lost.append((STATES, trouble))
            sweep.complaints.append(f"states of ports are not known: {trouble}")

    def _counters(self, name: str) -> _Asked:
        # Without --data and --counters: with them it prints the counters of data only.
        # A site's thresholds would leave counters out, which then read as zero.
        # The tool crashes now and then, and then it helps to ask again.
        words = ["--skip-sl", "--threshold-file", os.devnull, "--load-cache", self.cache]
        asked = _Asked(name)
        for _attempt in range(2):
            asked.at_s = time.monotonic()
            asked.result = self._call(name, COUNTERS, *words)
            if not _trouble(asked.result, (0, 1)):
                break
        return asked

    def _reading(
        self, asked: _Asked, sweep: Sweep, index: Mapping[tuple[str, int], tuple[str, int]]
    ) -> Reading | None:
        if asked.result is None:
            return None
        trouble = _trouble(asked.result, (0, 1))
        if trouble:
            self.lost.append((asked.name, trouble))
            return None
        return read_counters(asked.result.out, asked.result.err, asked.at_s, sweep, index)

    def _sms(self) -> FoundSms:
        master = self._call(SM, SM)
        lids = self._call(SM_LIDS, SM_LIDS, "-s")
        each = []
        for lid in read_sm_lids(lids.out)[:_SMS]:
            each.append((lid, self._call(f"{SM}-{lid}", SM, str(lid)).out))
        found = gather_sms(master.out, lids.out, each)
        # Without a manager both end with their own error; any other error is not an answer. And
        # where there is a master, it must also have reported the others.
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
        if not texts[STATES].strip():
            sweep.complaints.append(f"{STATES} holds nothing: states of ports are not known")
        add_link_states(sweep, texts[STATES])
    observation = Observation(sweep)
    index = port_index(sweep)
    readings = [
        read_counters(texts[name], texts.get(f"{name}.stderr", ""), at, sweep, index, saved=True)
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


def load_places(data: Mapping[str, Any]) -> dict[str, Place]:
    """Racks by machine; raises ToolError for anything else."""
    places = {}
    for name, place in data.items():
        if not isinstance(place, dict) or not set(place) <= {"rack", "rack_unit"}:
            raise ToolError(f"places.{name}: is {place!r}; write rack and rack_unit")
        places[name] = Place(place.get("rack"), place.get("rack_unit"))
    return places


def load_adapters(data: Mapping[str, Any]) -> dict[str, tuple[OwnHca, ...]]:
    """What the nodes report about their adapters; raises ToolError for anything else."""
    try:
        return adapters_from_data(data)
    except ValueError as error:
        raise ToolError(str(error)) from error


def expectation(params: Mapping[str, Any]) -> Expectation:
    """What is wanted beside the cables; raises ToolError."""
    names = {
        str(guid).lower().replace("0x", "").zfill(16): str(name)
        for guid, name in params["node_names"].items()
    }
    return Expectation(
        subnet_managers=Managers(
            tuple(params["subnet_managers"]),
            params["subnet_manager_provider"],
            tuple(params["subnet_manager_guids"]),
        ),
        other_hosts=tuple(params["other_hosts"]),
        oversubscription_max=params["oversubscription_max"],
        node_names=names,
        adapters=load_adapters(params["adapters"]),
        least_share=params["least_share"],
    )


def environment_of(params: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables for the tools."""
    return {str(key): str(value) for key, value in params["tool_environment"].items()}


def taken_at(params: Mapping[str, Any]) -> str:
    """Return the time of what observe() returns, "" where it is not known; raises ToolError."""
    if params["sweep_files"] is None:
        return utc_text()
    at = str(params["sweep_at"])
    if flaw({"at": at}):
        raise ToolError(f"sweep_at: {at!r} is not a time; write it like 2026-01-31T23:59:59Z")
    return at


def observe(
    run: CommandRunner, params: Mapping[str, Any], states_matter: Callable[[Sweep], bool]
) -> Answers:
    """The fabric, or what was saved of it; raises ToolError where nothing can be read."""
    files = params["sweep_files"]
    if files is None:
        ask = Ask(
            timeout_s=params["timeout_s"],
            interval_s=params["interval_s"],
            outstanding=params["outstanding"],
            environment=environment_of(params),
            options=tuple(params["tool_options"]),
        )
        return ask_fabric(run, ask, states_matter=states_matter)
    if DISCOVERY not in files:
        raise ToolError(f"sweep_files: {DISCOVERY} is missing; give what ibnetdiscover printed")
    unknown = sorted(name for name in files if not _SAVED.match(name))
    if unknown:
        raise ToolError(f"sweep_files: {several(unknown)}: no such answer; write {_SAVED_NAMES}")
    texts = {name: text_of_option(str(path), f"sweep_files.{name}") for name, path in files.items()}
    answers = read_files(texts, params["interval_s"])
    if not answers.observation.sweep.devices:
        raise ToolError(f"sweep_files.{DISCOVERY}: {files[DISCOVERY]} holds no device of a fabric")
    # A saved answer that is not whole is a bad copy, and shows nothing about the fabric.
    if answers.cut and NOT_MEASURED in params["fail_on"]:
        raise ToolError(
            f"sweep_files.{DISCOVERY}: {files[DISCOVERY]}: {answers.cut[0]}; save it again, or "
            "judge what there is with fail_on: [fail]"
        )
    return answers
