# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of tests/mutants, in a checkout of one module: what it counts, what it leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "mutants"
sys.path[:0] = [str(FOLDER)]
if not FOLDER.is_dir():
    pytest.skip("the artefact has no mutants", allow_module_level=True)

from forks import BROKEN, Ending, in_fork  # noqa: E402

CONFTEST = """
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT.parents[2]))
"""
COUNT = """
LIMIT = 3


def count(n):
    while n < LIMIT:
        n = n + 1
    return n
"""
IMPORT = "from ansible_collections.baremetal.dgx.plugins.module_utils import _count\n"


def checkout(tmp_path: Path, test: str) -> list[str]:
    """A collection of one module and its tests; returns the command that tries its mutants."""
    root = tmp_path / "ansible_collections" / "baremetal" / "dgx"
    shutil.copytree(FOLDER, root / "tests" / "mutants", ignore=lambda *_: ["__pycache__"])
    (root / "tests" / "mutants" / "areas.yml").write_text(
        "count:\n  code: [module_utils/_count.py]\n  tests: [module_utils/test__count.py]\n"
    )
    (root / "plugins" / "module_utils").mkdir(parents=True)
    (root / "plugins" / "module_utils" / "_count.py").write_text(COUNT)
    (root / "tests" / "unit" / "plugins" / "module_utils").mkdir(parents=True)
    (root / "tests" / "conftest.py").write_text(CONFTEST)
    (root / "tests" / "unit" / "plugins" / "module_utils" / "test__count.py").write_text(
        IMPORT + test
    )
    return [sys.executable, str(root / "tests" / "mutants" / "run.py"), "count"]


def tried(tmp_path: Path, test: str, *words: str) -> list[str]:
    done = subprocess.run(
        [*checkout(tmp_path, test), "--least", "0", *words],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTEST_ADDOPTS": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_what_ends_by_the_time_limit_is_counted_apart(tmp_path: Path) -> None:
    # n - 1 never reaches the limit.
    lines = tried(tmp_path, "def test_it():\n    assert _count.count(1) == 3\n", "--patience", "8")
    where = "  time limit  plugins/module_utils/_count.py:7: n + 1  ->  n - 1"
    assert lines[:-2] == [
        "  survived  plugins/module_utils/_count.py:7: 1  ->  2",
        where,
    ]
    assert lines[-2].startswith("count: 4 of 5 killed (1 of them by the time limit), 0 accepted, ")


@pytest.mark.slow
def test_tests_that_are_slow_have_the_time_that_they_take_unchanged(tmp_path: Path) -> None:
    slow = "import time\ndef test_it():\n    time.sleep(0.6)\n"
    lines = tried(tmp_path, slow, "--patience", "0", "--only", "3  ->  4")
    assert lines[0] == "  survived  plugins/module_utils/_count.py:2: 3  ->  4"


@pytest.mark.slow
def test_a_changed_name_of_a_test_is_not_a_test_that_fails(tmp_path: Path) -> None:
    test = (
        "import pytest\n@pytest.mark.parametrize('n', [_count.LIMIT])\n"
        "def test_it(n):\n    assert n\n"
    )
    lines = tried(tmp_path, test, "--only", "3  ->  4")
    assert lines[0] == "  survived  plugins/module_utils/_count.py:2: 3  ->  4"


def waits(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("line", ["n < LIMIT", "3  ->  4"], ids=["replaced", "imported"])
def test_what_was_started_goes_with_the_runner(tmp_path: Path, number: int, line: str) -> None:
    # Hangs with the change only: the tests unchanged must end.
    pids = tmp_path / "pids"
    test = (
        "import os, pathlib, subprocess, time\n"
        "def test_it():\n"
        "    if _count.count(1) == 3:\n"
        "        return\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        f"    pathlib.Path({str(pids)!r} + '.new').write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        f"    os.rename({str(pids)!r} + '.new', {str(pids)!r})\n"
        "    time.sleep(600)\n"
    )
    command = checkout(tmp_path, test)
    with subprocess.Popen(
        [*command, "--only", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as runner:
        started = waits(pids.exists, 60)
        runner.send_signal(number)
        output = runner.communicate()[0]
    assert started, output
    left = [int(pid) for pid in pids.read_text().split()]
    assert waits(lambda: not any(map(is_running, left)), 10), left
    assert runner.returncode != 0
    if number != signal.SIGKILL:
        assert output == "stopped by a signal\n"


def test_a_fork_ends_with_the_status_of_its_work() -> None:
    assert in_fork(lambda: 7, 60) == Ending(7)
    assert in_fork(lambda: 1 // 0, 60) == Ending(BROKEN)
    killed = in_fork(lambda: os.kill(os.getpid(), signal.SIGKILL) or 0, 60)
    assert killed == Ending(signal=signal.SIGKILL)


def test_a_fork_that_does_not_end_is_ended_in_its_time() -> None:
    started = time.monotonic()
    assert in_fork(lambda: time.sleep(600) or 0, 0.1) == Ending(by_limit=True)
    assert time.monotonic() - started < 30
