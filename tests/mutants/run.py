#!/usr/bin/env python3
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mutants of the code that judges: does a test notice each small change?

For each area of areas.yml a seeded sample of all its mutations is tried. pytest collects the area's
tests once; each mutant is a forked process in which the function's code is replaced and the tests
that reach the line are run up to the first failure. What is at module level, and whatever survives,
is tried again by importing the changed text in a fresh session. A line that no test reaches counts
as survived. The files are never changed, so that anything else may go on beside it.

Prints one line a survivor (file:line, what was changed), one for each mutant that ended by the time
limit instead of by a test, and one an area; ends with 1 when an area has less than --least percent
killed. TERM and INT end what it started, too.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__" and (ROOT / ".venv/bin/python").exists():
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        os.execv(ROOT / ".venv/bin/python", [str(ROOT / ".venv/bin/python"), *sys.argv])
sys.path[:0] = [str(ROOT / "tests" / "mutants")]

import pytest  # noqa: E402
import yaml  # noqa: E402
from forks import Ending, in_fork, stop_on_signals  # noqa: E402
from mutate import Mutation, candidates, mutated  # noqa: E402

PLUGINS = ROOT / "plugins"
TESTS = ROOT / "tests" / "unit" / "plugins"
PACKAGE = "ansible_collections.baremetal.dgx.plugins."
SURVIVED, KILLED, BY_LIMIT, NOT_REPLACED = 0, 1, 2, 3
# An endless loop is a killed mutant. A mutant has so many times the seconds that the same tests
# take unchanged, and those of --patience; what ends by this limit is counted apart, for a machine
# may be busy.
TIMES = 5
# What pytest ends with when a test fails, and when it could not even collect.
NOTICED = (1, 2, 3)
UNKNOWN_NAME = 4
# For what has no limit but the reader's patience.
_NEVER_S = 24 * 3600


@functools.cache
def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class Mutant:
    """A mutation of a file."""

    file: Path
    mutation: Mutation

    def __str__(self) -> str:
        where = self.file.relative_to(ROOT)
        return f"{where}:{self.mutation.line}: {self.mutation.what}"

    @property
    def text(self) -> str:
        """Return it with its source instead of a line number, which other changes move."""
        where = self.file.relative_to(ROOT)
        source = _lines(self.file)[self.mutation.line - 1].strip()
        return f"{where}: {source}: {self.mutation.what}"


@dataclass
class Area:
    """A judging area of areas.yml."""

    name: str
    code: list[Path]
    tests: list[Path]
    accepted: dict[str, str]
    # pytest's expression of those tests that are too slow for what they notice besides the others
    leave_out: str = ""


@dataclass
class Result:
    """What became of an area's mutants; what neither survived nor is by_limit failed a test."""

    survivors: list[Mutant]
    by_limit: list[Mutant]
    # Tests that fail without any change.
    bad: list[str]


def limit_s(unchanged_s: float, patience_s: float) -> float:
    """Return the seconds for a mutant whose tests take unchanged_s without it."""
    return TIMES * unchanged_s + patience_s


def verdict_of(ending: Ending) -> int:
    """Return what an ending says about a mutant."""
    if ending.by_limit:
        return BY_LIMIT
    return KILLED if ending.signal else ending.status


def read_areas() -> dict[str, Area]:
    """Read areas.yml; a pattern that matches no file is an error."""
    found = {}
    text = (ROOT / "tests" / "mutants" / "areas.yml").read_text(encoding="utf-8")
    for name, entry in yaml.safe_load(text).items():
        files = {}
        for key, base in (("code", PLUGINS), ("tests", TESTS)):
            lists = {pattern: sorted(base.glob(pattern)) for pattern in entry[key]}
            for pattern, matched in lists.items():
                if not matched:
                    raise SystemExit(f"areas.yml: {name}: no file is {pattern}")
            files[key] = list(dict.fromkeys(file for one in lists.values() for file in one))
        found[name] = Area(
            name,
            files["code"],
            files["tests"],
            entry.get("accepted", {}),
            entry.get("leave_out", ""),
        )
    return found


def sample(area: Area, count: int, seed: int) -> list[Mutant]:
    """Return the mutants that this seed chooses."""
    every = [
        Mutant(file, mutation)
        for file in area.code
        for mutation in candidates(file.read_text(encoding="utf-8"))
    ]
    dice = random.Random(f"{seed} {area.name}")
    return every if count >= len(every) else dice.sample(every, count)


# What happens inside the session of pytest.


@contextlib.contextmanager
def lines_of(files: set[str], seen: set[tuple[str, int]], folder: Path) -> Iterator[None]:
    """Note which lines of these files are executed, in forks of this process, too.

    What a fork sees goes into a file of this folder, line by line: modules do their work in forks,
    which are killed as soon as they have answered.
    """
    parent = os.getpid()

    def note(file: str, line: int) -> None:
        if (file, line) not in seen:
            seen.add((file, line))
            if os.getpid() != parent:
                with contextlib.suppress(OSError), open(folder / "of-forks", "a") as handle:
                    handle.write(json.dumps([file, line]) + "\n")

    def inside(frame: types.FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            note(frame.f_code.co_filename, frame.f_lineno)
        return inside

    def calls(frame: types.FrameType, _event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename in files:
            note(frame.f_code.co_filename, frame.f_code.co_firstlineno)
            return inside
        return None

    (folder / "of-forks").write_text("")
    sys.settrace(calls)
    try:
        yield
    finally:
        sys.settrace(None)
    for text in (folder / "of-forks").read_text().splitlines():
        file, line = json.loads(text)
        seen.add((file, line))


def first_failure(items: Sequence[pytest.Item]) -> str:
    """Run these tests up to the first that fails; returns its id."""
    from _pytest.runner import runtestprotocol

    for item, following in zip(items, [*items[1:], None], strict=True):
        for report in runtestprotocol(item, nextitem=following, log=False):
            if report.failed:
                return item.nodeid
    return ""


def replace(mutant: Mutant, real: dict[str, str]) -> bool:
    """Put the changed function in the place of the loaded one; False if it is not found."""
    wanted = mutant.mutation
    code = compile(
        mutated(mutant.file.read_text(encoding="utf-8"), wanted), real[str(mutant.file)], "exec"
    )
    name = wanted.function.rpartition(".")[2]

    def find(where: types.CodeType) -> types.CodeType | None:
        for constant in where.co_consts:
            if isinstance(constant, types.CodeType):
                if constant.co_name == name and constant.co_firstlineno == wanted.function_line:
                    return constant
                below = find(constant)
                if below:
                    return below
        return None

    new, done = find(code), False
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType) and new:
            old = thing.__code__
            if (
                old.co_filename == new.co_filename
                and old.co_name == new.co_name
                and old.co_firstlineno == new.co_firstlineno
            ):
                thing.__code__ = new
                done = True
    return done


def installed_modules() -> list[str]:
    """Return the modules loaded now that are installed, so neither tests nor the collection."""
    roots = (str(Path(os.__file__).parent), str(Path(pytest.__file__).parents[1]))
    return [
        name
        for name, module in sys.modules.items()
        if str(getattr(module, "__file__", None) or "").startswith(roots)
    ]


class Session:
    """The pytest plugin: instead of running the tests once, runs them for each mutant."""

    def __init__(self, area: Area, mutants: Sequence[Mutant], patience_s: float, out: Path) -> None:
        self.area = area
        self.mutants = mutants
        self.patience_s = patience_s
        self.out = out

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure what each test reaches, then try the mutants."""
        items = session.items
        modules = {
            str(Path(str(module.__file__)).resolve()): str(module.__file__)
            for module in list(sys.modules.values())
            if getattr(module, "__file__", None)
        }
        real = {str(file): modules.get(str(file), str(file)) for file in self.area.code}
        baseline = self.out / "baseline.json"

        def measure() -> int:
            found, tests = {}, list(items)
            for item, following in zip(tests, [*tests[1:], None], strict=True):
                from _pytest.runner import runtestprotocol

                seen: set[tuple[str, int]] = set()
                started = time.monotonic()
                with lines_of(set(real.values()), seen, self.out):
                    reports = runtestprotocol(item, nextitem=following, log=False)
                ok = all(report.passed for report in reports)
                took = time.monotonic() - started
                found[item.nodeid] = [ok, took, sorted(seen)]
            baseline.write_text(json.dumps(found))
            (self.out / "installed.json").write_text(json.dumps(installed_modules()))
            return SURVIVED

        in_fork(measure, _NEVER_S)
        if not baseline.exists():
            raise pytest.UsageError("the tests did not end")
        measured = json.loads(baseline.read_text())
        good = {item.nodeid: item for item in items if measured[item.nodeid][0]}
        bad = [name for name, (ok, _took, _lines) in measured.items() if not ok]
        reach: dict[tuple[str, int], list[str]] = {}
        for name, (ok, _took, lines) in measured.items():
            for file, line in lines if ok else ():
                reach.setdefault((file, line), []).append(name)
        slow: list[tuple[Mutant, list[str]]] = []
        by_limit: list[Mutant] = []
        # What noticed others before is tried first: it often notices the next one, too.
        noticed: dict[str, int] = {}
        killer = self.out / "killer"
        for mutant in self.mutants:
            file = real[str(mutant.file)]
            names = set()
            if mutant.mutation.function:
                for line in range(mutant.mutation.line - 3, mutant.mutation.line + 1):
                    names.update(reach.get((file, line), ()))
                names.update(reach.get((file, mutant.mutation.line), ()))
            else:
                names = set(good)
            ordered = sorted(names, key=lambda name: (-noticed.get(name, 0), measured[name][1]))
            expected = sum(measured[name][1] for name in ordered)
            if not mutant.mutation.function:
                slow.append((mutant, ordered))
                continue
            chosen = [good[name] for name in ordered]

            def work(chosen: list = chosen, mutant: Mutant = mutant) -> int:
                if not replace(mutant, real):
                    return NOT_REPLACED
                killer.write_text(first_failure(chosen))
                return KILLED if killer.read_text() else SURVIVED

            killer.write_text("")
            seconds = limit_s(expected, self.patience_s)
            answer = verdict_of(in_fork(work, seconds)) if chosen else SURVIVED
            if test := killer.read_text():
                noticed[test] = noticed.get(test, 0) + 1
            if answer == BY_LIMIT:
                by_limit.append(mutant)
            elif answer != KILLED:
                slow.append((mutant, ordered))
        data = {
            "slow": [[self.mutants.index(mutant), names] for mutant, names in slow],
            "by_limit": [self.mutants.index(mutant) for mutant in by_limit],
            "bad": bad,
        }
        (self.out / "slow.json").write_text(json.dumps(data))
        return True


class Loader(importlib.machinery.SourceFileLoader):
    """Imports the changed text in the place of a file."""

    mutant: Mutant

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the changed tree."""
        text = self.mutant.file.read_text(encoding="utf-8")
        return compile(mutated(text, self.mutant.mutation), self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    """Gives the Loader for the one module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = PACKAGE + ".".join(mutant.file.relative_to(PLUGINS).with_suffix("").parts)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """Answer for the mutant's module only."""
        if name != self.name:
            return None
        place = Path(os.environ["MUTANTS_COLLECTIONS"], *name.split(".")).with_suffix(".py")
        loader = Loader(name, str(place))
        loader.mutant = self.mutant
        return importlib.util.spec_from_file_location(name, place, loader=loader)


def pytest_words(names: Sequence[str], area: Area, out: Path, bad: Sequence[str] = ()) -> list[str]:
    """The command line of a session with these tests; with all of the area's without names."""
    words = list(names or map(str, area.tests))
    if not names:
        words += [f"--deselect={name}" for name in bad]
        if area.leave_out:
            words += ["-k", f"not ({area.leave_out})"]
    cache = ["-o", f"cache_dir={ROOT / '.cache' / 'mutants' / 'pytest'}"]
    # Each fork would leave its own folder among those that every later session clears away.
    cache.append(f"--basetemp={out / 'tmp'}")
    return [*words, "-q", "-x", "-m", "not slow", *cache]


def imported(mutant: Mutant | None, words: Sequence[str], seconds: float) -> int:
    """Try the mutant in a session that imports the changed text."""

    def work() -> int:
        if mutant:
            sys.meta_path.insert(0, Finder(mutant))
        code = int(pytest.main(list(words)))
        return KILLED if code in NOTICED else code

    return verdict_of(in_fork(work, seconds))


def import_all(
    area: Area,
    slow: Sequence[tuple[Mutant, list[str]]],
    bad: Sequence[str],
    patience_s: float,
    out: Path,
) -> list[int] | None:
    """Try each of these by importing it; None if the tests fail without any change.

    What is installed is imported once for all: most of what a session takes is Ansible.
    """
    for name in json.loads((out / "installed.json").read_text()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    whole = pytest_words([], area, out, bad)
    started = time.monotonic()
    if imported(None, whole, _NEVER_S) != SURVIVED:
        return None
    seconds = limit_s(time.monotonic() - started, patience_s)
    answers = []
    for mutant, names in slow:
        answer = SURVIVED
        if names:  # else no test reaches it
            answer = imported(mutant, pytest_words(names, area, out), seconds)
        if answer == UNKNOWN_NAME:
            # The names of tests contain what was changed: that alone is not a test that fails.
            answer = imported(mutant, whole, seconds)
        answers.append(answer)
    return answers


def run_area(area: Area, mutants: Sequence[Mutant], patience_s: float) -> Result:
    """Try these mutants of the area."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)

        def session() -> int:
            plugin = Session(area, mutants, patience_s, out)
            code = pytest.main(pytest_words([], area, out), plugins=[plugin])
            return SURVIVED if code in (0, 5) else 9

        in_fork(session, _NEVER_S, forks=True)
        if not (out / "slow.json").exists():
            raise SystemExit(
                f"{area.name}: pytest could not collect {', '.join(map(str, area.tests))}"
            )
        found = json.loads((out / "slow.json").read_text())
        slow = [(mutants[index], names) for index, names in found["slow"]]

        def imports() -> int:
            answers = import_all(area, slow, found["bad"], patience_s, out)
            (out / "imported.json").write_text(json.dumps(answers))
            return 0

        in_fork(imports, _NEVER_S, forks=True)
        answers = json.loads((out / "imported.json").read_text())
    if answers is None:
        raise SystemExit(f"{area.name}: its tests fail without any change in their own session")
    by_limit = [mutants[index] for index in found["by_limit"]]
    return Result(
        [mutant for (mutant, _names), answer in zip(slow, answers, strict=True)
         if answer not in (KILLED, BY_LIMIT)],
        by_limit + [mutant for (mutant, _names), answer in zip(slow, answers, strict=True)
                    if answer == BY_LIMIT],
        found["bad"],
    )  # fmt: skip


def collections_path() -> str:
    """What tests/conftest.py puts on the path."""
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("_conftest", ROOT / "tests" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    (found,) = [place for place in sys.path if place not in before]
    return found


def accepted(mutant: Mutant, area: Area) -> str:
    """Return the reason for which this survivor is accepted."""
    text = mutant.text
    return next((why for part, why in area.accepted.items() if part in text), "")


def report(area: Area, mutants: Sequence[Mutant], result: Result) -> tuple[list[str], float]:
    """Return what to print of an area, and the share that was killed of those that must be."""
    lines = [f"  left out, fails without any change: {test}" for test in result.bad]
    open_ones = [mutant for mutant in result.survivors if not accepted(mutant, area)]
    lines += [f"  survived  {mutant}" for mutant in sorted(open_ones, key=str)]
    lines += [f"  time limit  {mutant}" for mutant in sorted(result.by_limit, key=str)]
    excused = len(result.survivors) - len(open_ones)
    killed = len(mutants) - len(result.survivors)
    judged = len(mutants) - excused
    share = 100 * killed / judged if judged else 0.0
    limited = f" ({len(result.by_limit)} of them by the time limit)" if result.by_limit else ""
    counted = f"{killed} of {len(mutants)} killed{limited}, {excused} accepted"
    lines.append(f"{area.name}: {counted}, {share:.1f} %")
    return lines, share


def main() -> int:
    """Try the areas, one after the other."""
    areas = read_areas()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", help="areas of areas.yml; all without")
    parser.add_argument("--count", type=int, default=200, help="mutants an area")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--least", type=float, default=95, help="percent that must be killed")
    parser.add_argument(
        "--patience", type=float, default=20, help="seconds beyond a multiple of the tests' own"
    )
    parser.add_argument("--only", default="", help="only mutants whose line has this text")
    options = parser.parse_args()
    unknown = set(options.areas) - set(areas)
    if unknown:
        parser.error(f"no such area: {', '.join(sorted(unknown))}; write one of {', '.join(areas)}")
    os.environ["MUTANTS_COLLECTIONS"] = collections_path()
    os.environ.pop("TEST_COUNTS", None)
    # No area's tests need xdist or testinfra, which each session would import.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(ROOT / ".cache" / "mutants")
    os.chdir(ROOT)
    stop_on_signals()
    red = []
    for name in options.areas or areas:
        started = time.monotonic()
        area = areas[name]
        mutants = [
            one for one in sample(area, options.count, options.seed) if options.only in str(one)
        ]
        result = run_area(area, mutants, options.patience)
        lines, share = report(area, mutants, result)
        print("\n".join(lines) + f", {time.monotonic() - started:.0f} s", flush=True)
        if share < options.least:
            red.append(name)
    print(f"below {options.least:.0f} %: {', '.join(red)}" if red else "all areas have enough")
    return 1 if red else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped by a signal")
