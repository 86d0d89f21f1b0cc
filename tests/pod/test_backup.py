# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's memory is copied under load, and brought back after the head node was removed.

The repository is on the storage node, by sftp. The head node is the controller and the database.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator

import pytest
import yaml

from .conftest import INVENTORY, POD, on, playbook
from .copies import HEAD, TIMERS, VALUES, ask, lose, pod, repository

LOGIN, STORE, NODE = "login-01", "stor-01", "dgx-01"
PROGRAM = "/usr/local/libexec/baremetal-dgx/cluster-backup"
REASON = "dgx-gate: gpu3 ecc_uncorrectable: kept by the copy"
# A restore may take so long, and a copy may lock the database so long.
RESTORE_S, LOCK_S = 900, 2
JOBS = 500
AT_ONCE = 32  # a job has some 25 threads in all, and the machine of the pod allows a few thousand
SECRETS = "find /etc/munge /etc/slurm -type f -name '*key*' | sort | xargs sha256sum"
ASSOCIATIONS = "sacctmgr -nP show assoc format=cluster,account,user,qos,fairshare | sort"
QOS = "sacctmgr -nP show qos format=name,priority,maxwall | sort"
# Without those that run or wait, which go on; sacct's own filter by state asks for a time, too.
ENDED = (
    "sacct -nXPa -S 2020-01-01"
    " -o JobID,JobName,User,Account,State,Start,End,CPUTimeRAW,AllocTRES"
    " | grep -vE 'RUNNING|PENDING' | sort"
)


def submit(words: str) -> str:
    """Submit a job as alice; return its number."""
    return ask(f'cd / && su alice -c "sbatch --parsable -o /dev/null {words}"', LOGIN).strip()


def state(job: str) -> str:
    return ask(f"scontrol -o show job {job} | grep -o 'JobState=[A-Z]*'").strip()[9:]


def wait_for(job: str, wanted: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while state(job) != wanted:
        assert time.monotonic() < deadline, ask(f"scontrol show job {job}; sinfo -R")
        time.sleep(1)


@pytest.fixture(scope="module", name="repository")
def the_repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A repository on the storage node; the inventory names it meanwhile."""
    with repository(STORE, tmp_path_factory.mktemp("backup")):
        yield


@pytest.mark.usefixtures("repository")
def test_copies_are_made_and_proved() -> None:
    made = playbook("configure_backup", "--diff")
    assert made.rc == 0, made.why
    key = yaml.safe_load(VALUES.read_text(encoding="utf-8"))["backup_ssh_key"]
    assert key.splitlines()[1] not in made.output
    again = playbook("configure_backup")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.why
    copied = playbook("back_up")
    assert copied.rc == 0, copied.why
    proved = playbook("prove_backup")
    assert proved.rc == 0, proved.why
    assert ask(f"systemctl is-active {TIMERS}").split() == ["active", "active"]


def requests() -> dict[str, int]:
    """Return how many requests of each kind slurmctld has answered, without those of sdiag."""
    data = ask("sdiag")
    section = data.split("Remote Procedure Call statistics by message type")[1].split("\n\n")[0]
    found = re.findall(r"^\s+(REQUEST_\S+)\s*\(.*?count:(\d+)", section, re.MULTILINE)
    return {name: int(count) for name, count in found if name != "REQUEST_STATS_INFO"}


@pytest.mark.usefixtures("repository")
def test_a_copy_asks_slurmctld_nothing() -> None:
    """Nodes register by themselves, so two quiet spans of equal length are compared."""
    ask("sdiag --reset")
    begun = time.monotonic()
    ask(f"{PROGRAM} copy", seconds=300)
    lasted = time.monotonic() - begun
    asked = set(requests())
    ask("sdiag --reset")
    time.sleep(lasted)
    own = {"MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_RECONFIGURE"}
    assert asked - set(requests()) - own == set()


@pytest.mark.usefixtures("repository")
def test_a_copy_locks_the_database_for_no_job() -> None:
    """500 jobs start meanwhile; a statement that writes never waits longer than the limit."""
    ask("mariadb slurm_acct_db -e 'CREATE OR REPLACE TABLE pod_probe (n INT) ENGINE=InnoDB'")
    waits: list[float] = []

    def write() -> None:
        script = (
            "while [ ! -e /run/pod-probe ]; do"
            " s=$(date +%s%N); mariadb slurm_acct_db -e 'INSERT INTO pod_probe VALUES (1)' || exit;"
            " echo $(( $(date +%s%N) - s )); sleep 0.1; done"
        )
        done = on(HEAD, script, 900)
        waits.extend(int(line) / 1e9 for line in done.stdout.split())

    on(HEAD, "rm -f /run/pod-probe")
    probe = threading.Thread(target=write)
    probe.start()
    copies = 0
    try:
        array = submit(f"--array=1-{JOBS}%{AT_ONCE} --cpus-per-task=1 --mem=1 --wrap true")
        done = 0
        deadline = time.monotonic() + 600
        while done < JOBS or copies < 2:
            assert time.monotonic() < deadline, f"{done} jobs are over"
            ask(f"{PROGRAM} copy", seconds=300)
            copies += 1
            done = len(ask(f"sacct -nXP -j {array} -s CD -o JobID").split())
    finally:
        on(HEAD, "touch /run/pod-probe")
        probe.join(timeout=60)
        on(HEAD, "rm -f /run/pod-probe; mariadb slurm_acct_db -e 'DROP TABLE pod_probe'")
    assert copies >= 2
    assert len(waits) > 50
    print(f"{JOBS} jobs, {copies} copies, {len(waits)} statements, longest {max(waits):.2f} s")
    assert max(waits) < LOCK_S


@pytest.mark.usefixtures("repository")
def test_the_head_node_is_lost_and_brought_back() -> None:
    ended = submit("--job-name=over --wrap true")
    deadline = time.monotonic() + 120
    while f"{ended}|over|" not in ask(ENDED):
        assert time.monotonic() < deadline
        time.sleep(1)
    running = submit(f"--job-name=goes_on -w {NODE} --wrap 'sleep 3600'")
    wait_for(running, "RUNNING")
    waiting = submit("--hold --job-name=waits --wrap true")
    ask(f"scontrol update NodeName=dgx-03 State=DRAIN Reason='{REASON}'")
    ask(f"{PROGRAM} copy", seconds=300)
    copied = playbook("back_up")
    assert copied.rc == 0, copied.why
    before = {name: ask(name) for name in (SECRETS, ASSOCIATIONS, QOS, ENDED)}
    process = ask("pgrep -x sleep -u alice -a", NODE)

    lose(HEAD)
    begun = time.monotonic()
    restored = playbook("restore_cluster", seconds=RESTORE_S * 2)
    lasted = time.monotonic() - begun
    assert restored.rc == 0, restored.why
    assert f"jobs that go on: {running}" in restored.output
    assert f"jobs that wait: {waiting}" in restored.output
    print(f"restored in {lasted:.0f} s")
    assert lasted < RESTORE_S

    assert {name: ask(name) for name in before} == before
    assert state(running) == "RUNNING"
    assert ask("pgrep -x sleep -u alice -a", NODE) == process
    assert state(waiting) == "PENDING"
    assert REASON in ask("scontrol show node dgx-03")
    following = submit("--wrap true")
    assert int(following) > int(waiting) + 1000, "numbers do not repeat"
    again = playbook("restore_cluster", seconds=RESTORE_S)
    assert again.rc == 0, again.why
    assert set(again.changed.values()) == {0}, again.tasks("changed")
    ask(f"scancel {running} {waiting} {following}; scontrol update NodeName=dgx-03 State=RESUME")


@pytest.mark.usefixtures("repository")
def test_the_rest_of_the_head_node_comes_back_by_site() -> None:
    pod("fabric", "--name", POD)
    done = playbook("site", seconds=1800)
    assert done.rc == 0, done.why
    restored = json.loads((INVENTORY / ".dgx" / "restored.json").read_text(encoding="utf-8"))
    assert restored["first_job"] > 10_000
