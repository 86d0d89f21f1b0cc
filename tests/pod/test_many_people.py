# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""5,000 people in 200 groups: real slapd, sssd and slurmdbd, on the pod of test_identity.py."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import environment, pod
from .people import CACHE_S, INVENTORY, NAME, run, shell

PEOPLE, GROUPS = 5000, 200
ACCOUNTS = [{"name": f"g{number:03}", "group": f"g{number:03}"} for number in range(1, GROUPS + 1)]


def sync(*arguments: str, accounts: Any = None) -> tuple[dict[str, Any], float]:
    """Run the module on head-01 as the role does; return its answer, and the seconds of all of it.

    Those of ssh and of the module's way to the host are among them.
    """
    words = {"cluster": "demo", "accounts": ACCOUNTS if accounts is None else accounts}
    begun = time.monotonic()
    done = subprocess.run(
        ["ansible", "head-01", "-i", str(INVENTORY), "-m", "baremetal.dgx.slurm_account",
         "-a", json.dumps(words), *arguments],
        env={**environment(), "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    took = time.monotonic() - begun
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :]), took


def users() -> int:
    """Return how many users the accounts have."""
    result = shell("head-01", "sacctmgr -nP show assoc format=account,user")
    return sum(line[0] == "g" and line[-1] != "|" for line in result.split())


@pytest.fixture(scope="module", name="crowd")
def the_crowd(people: Path) -> Iterator[Path]:
    pod("directory", "--name", NAME, "--people", str(PEOPLE), "--groups", str(GROUPS))
    for playbook in ("prepare_nodes", "configure_identity", "configure_scheduler"):
        done = run(playbook)
        assert done.rc == 0, done.why
    yield people
    sync(accounts=[{"name": one["name"], "state": "absent"} for one in ACCOUNTS])
    pod("directory", "--name", NAME)


def test_the_first_sync_and_one_that_changes_nothing(crowd: Path) -> None:
    shell("head-01", "sss_cache -E")
    predicted, _took = sync("--check")
    assert users() == 0
    shell("head-01", "sss_cache -E")
    first, took = sync()
    print(f"first sync: {took:.1f} s")
    assert (first["changed"], first["commands"]) == (True, predicted["commands"])
    assert users() == PEOPLE
    assert took <= 90
    again, took = sync()
    print(f"a sync that changes nothing: {took:.1f} s")
    assert again["changed"] is False
    assert took <= 5


def test_a_name_comes_from_the_cache(crowd: Path) -> None:
    script = """
import subprocess, time
for name in ["p%05d" % number for number in range(1, PEOPLE, PEOPLE // 50)] * 2:
    begun = time.monotonic()
    subprocess.run(["id", name], check=True, stdout=subprocess.DEVNULL)
    print(time.monotonic() - begun)
"""
    script = script.replace("PEOPLE", str(PEOPLE))
    shell("login-01", f"cat > /tmp/ids.py <<'EOF'\n{script}\nEOF")
    times = [float(line) for line in shell("login-01", "python3 /tmp/ids.py").split()]
    cold, warm = times[: len(times) // 2], times[len(times) // 2 :]
    for kind, found in (("asked", cold), ("cached", warm)):
        print(f"id, {kind}: median {statistics.median(found) * 1000:.0f} ms, {max(found):.3f} s")
    assert statistics.median(warm) <= 0.05


def test_an_empty_directory_removes_none_and_says_so_in_one_line(crowd: Path) -> None:
    pod("directory", "--name", NAME)
    shell("head-01", "sss_cache -E")
    time.sleep(CACHE_S)
    answer, _took = sync()
    assert answer["changed"] is False
    (line,) = answer["notes"]
    print(line)
    assert line.startswith(f"{PEOPLE} of {PEOPLE} users of {GROUPS} accounts would leave at once")
    assert users() == PEOPLE
    pod("directory", "--name", NAME, "--people", str(PEOPLE), "--groups", str(GROUPS))
