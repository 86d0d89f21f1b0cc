# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes `ansible_collections.baremetal.dgx` importable from a checkout at any path."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def collections_path() -> Path:
    """The folder above `ansible_collections`; a checkout elsewhere is linked into .cache."""
    if ROOT.parts[-3:] == ("ansible_collections", "baremetal", "dgx"):
        return ROOT.parents[2]
    collections = ROOT / ".cache" / "collections"
    link = collections / "ansible_collections" / "baremetal" / "dgx"
    if not (link.exists() and link.resolve() == ROOT):
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".dgx.{os.getpid()}")
        fresh.symlink_to(os.path.relpath(ROOT, link.parent))
        fresh.replace(link)
    return collections


sys.path.insert(0, str(collections_path()))


def pytest_configure(config: pytest.Config) -> None:
    """Count the tests for .ci/run, which sets $TEST_COUNTS; workers of pytest-xdist do not."""
    if os.environ.get("TEST_COUNTS") and not hasattr(config, "workerinput"):
        import test_counts  # of .ci, which pyproject.toml puts on the path

        config.pluginmanager.register(test_counts.counter(), "test_counts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on recorded outputs of real clusters are an extra: only for who names their folder."""
    if os.environ.get("CAPTURES"):
        return
    extra = [item for item in items if "captures" in getattr(item, "fixturenames", ())]
    if extra:
        config.hook.pytest_deselected(items=extra)
        items[:] = [item for item in items if item not in extra]


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder that $CAPTURES names; without it no test that asks for it is collected."""
    return Path(os.environ["CAPTURES"])


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


# Two ordinary users that need no account.
ALICE, MALLORY = 65533, 65532


@pytest.fixture
def as_user() -> Callable[..., None]:
    """Do something as another user: `as_user(MALLORY, work)`. Only root can.

    Where CI promises root (CI is set), not being root is a failure.
    """
    if os.geteuid():
        assert not os.environ.get("CI"), "tests with several users need root, and CI has to be it"
        pytest.skip("only root can act as another user")

    def do(uid: int, work: Callable[[], object]) -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, f"user {uid} failed"

    return do


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user can reach: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="open-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


# What a program of Python does most, and its processor time on the machine of the figures in docs/.
# Reckoned: 0.26 s where a loop of additions took 1.5 times as long as there.
USUAL_PROGRAM = """
import argparse, json, re, subprocess
data = {str(n): [n, {"name": f"node-{n}", "text": "x" * (n % 50)}] for n in range(8000)}
text = json.dumps(data)
total = sum(len(json.loads(text)) for _ in range(2)) + len(re.findall(r"node-\\d+", text))
for n in range(500000):
    total += n * n
"""
USUAL_PROGRAM_S = 0.17


@pytest.fixture
def slowness() -> Callable[[], float]:
    """How many times slower Python runs here, now, than on the machine of the limits: at least 1.

    Machines differ by three times, and a shared one from minute to minute, so a limit in seconds
    alone would judge the machine. Ask right after what was measured, each time.
    """

    def measure() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _attempt in range(3):
            subprocess.run([sys.executable, "-I", "-S", "-c", USUAL_PROGRAM], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return max(1.0, taken / 3 / USUAL_PROGRAM_S)

    return measure


@pytest.fixture
def mounts_of_this_host() -> Iterator[None]:
    """This host's mounts, for one test at a time: a hang names each mount that does not answer."""
    with open(Path(tempfile.gettempdir()) / f"hung-mount-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def hung_mount(tmp_path: Path, mounts_of_this_host: None) -> Iterator[Path]:
    """A mount that never answers: who touches it waits in the kernel, and cannot be killed.

    Where CI promises one (CI is set), not having it is a failure.
    """
    import hung_mount as fuse  # of tests/models, which pyproject.toml puts on the path

    place = tmp_path / "dead"
    place.mkdir()
    why, holder = "", 0
    try:
        holder = fuse.hold(str(place))
    except fuse.NoFuseError as error:
        why = str(error)
    if why:
        assert not os.environ.get("CI"), f"tests of hung mounts need FUSE, as CI has: {why}"
        pytest.skip(f"no FUSE: {why}")
    try:
        yield place
    finally:
        fuse.release(str(place), holder)
