# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The primary of two controllers is lost with the database, while its stand-by lives and schedules.

For its own pod (tests/soak/lost_controller). The tests build on each other, in their order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import yaml

from .conftest import INVENTORY, on, playbook, until
from .copies import HEAD, ask, lose, repository

STANDBY, LOGIN, NODE, OTHER = "head-02", "login-01", "dgx-01", "dgx-02"
# After those of the example, which has another cluster_validation.
VALUES = INVENTORY / "group_vars" / "cluster" / "standby.yml"
SHARED = "/shared"
# slurmctld writes its state every few seconds; what is younger is lost with a killed one.
STATE_IS_SAVED_S = 12
# The accounts' part of the state is written each five minutes (seen with 24.11.5).
SAVED_S = 400
REASON = "dgx-gate: gpu3 ecc_uncorrectable: kept by the stand-by"
ASSOCIATIONS = "sacctmgr -nP show assoc format=cluster,account,user,qos,fairshare | sort"


def alice(words: str) -> str:
    """Run a command as alice on the login host."""
    return ask(f"cd / && su alice -c '{words}'", LOGIN, 120).strip()


def trial() -> str:
    """Submit a job that nothing depends on; return its number, or what was refused."""
    words = "su alice -c 'sbatch --parsable -o /dev/null --wrap true'"
    return on(LOGIN, f"cd / && {words}", 120).stdout.strip()


def state(job: str) -> str:
    """Return a job's state, as a controller that lives has it."""
    return alice(f"squeue -h -j {job} -o %T")


def ended(job: str) -> str:
    """Return what the accounting has of a job."""
    return ask(f"sacct -nXP -j {job} -o jobid,user,state").strip()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> None:
    """Two controllers that share their state, and a copy of the cluster on the login host."""
    values = {
        "cluster_fabric": {"topology": "none"},
        "slurm_controller_state_save_location": f"{SHARED}/slurmctld",
        # The pod itself mounts it on both.
        "cluster_validation": {"canary": {"mounts": [{"name": "shared", "path": SHARED}]}},
        "slurm_controller_options": {"SlurmctldTimeout": 10},
    }
    VALUES.parent.mkdir(exist_ok=True)
    VALUES.write_text(yaml.safe_dump(values), encoding="utf-8")
    for name in ("prepare_nodes", "configure_scheduler"):
        done = playbook(name)
        assert done.rc == 0, done.why


@pytest.fixture(scope="module", name="copied")
def the_copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with repository(LOGIN, tmp_path_factory.mktemp("backup")):
        yield


@pytest.mark.usefixtures("copied")
def test_copies_of_two_controllers() -> None:
    for name in ("configure_backup", "back_up", "prove_backup"):
        done = playbook(name)
        assert done.rc == 0, done.why
    again = playbook("configure_backup")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.why


@pytest.mark.usefixtures("copied")
def test_the_standby_keeps_its_queue_and_the_accounting_comes_back() -> None:
    before = alice("sbatch --parsable -o /dev/null --wrap true")
    until(lambda: ended(before) == f"{before}|alice|COMPLETED", "a job in the accounting")
    running = alice(f'sbatch --parsable -o /dev/null -w {NODE} --wrap "sleep 3600"')
    until(lambda: state(running) == "RUNNING", "a job runs")
    ask(f"scontrol update NodeName={OTHER} State=DRAIN Reason='{REASON}'")
    copied = playbook("back_up")
    assert copied.rc == 0, copied.why
    associations = ask(ASSOCIATIONS)
    process = ask("pgrep -x sleep -u alice -a", NODE)
    time.sleep(STATE_IS_SAVED_S)
    # Without it and without slurmdbd the stand-by knows no account, and does not answer.
    listing = f"ls {SHARED}/slurmctld"
    until(lambda: "assoc_mgr_state" in ask(listing), "accounts in the state", SAVED_S)

    lose(HEAD)
    until(
        lambda: f"Slurmctld(backup) at {STANDBY} is UP" in ask("scontrol ping || true", LOGIN),
        "the stand-by answers",
    )
    # A request may still be lost while the stand-by misses the primary and the database.
    until(lambda: trial().isdigit(), "the stand-by takes jobs")
    # What no copy has: a job that is over, and one that waits, since the copy and the loss.
    over = alice(f"sbatch --parsable -o /dev/null -w {NODE} --wrap true")
    waiting = alice("sbatch --parsable --hold -o /dev/null --wrap true")
    until(lambda: state(over) == "", "a job is over under the stand-by")

    restored = playbook("restore_cluster", seconds=1800)
    assert restored.rc == 0, restored.why
    pings = ask("scontrol ping")
    assert f"Slurmctld(primary) at {HEAD} is UP" in pings
    assert f"Slurmctld(backup) at {STANDBY} is UP" in pings
    assert (state(running), state(waiting)) == ("RUNNING", "PENDING")
    assert ask("pgrep -x sleep -u alice -a", NODE) == process
    assert REASON in ask(f"scontrol show node {OTHER}")
    assert ask(ASSOCIATIONS) == associations
    assert ended(before) == f"{before}|alice|COMPLETED"
    # slurmctld kept it for the database.
    until(lambda: ended(over) == f"{over}|alice|COMPLETED", "the stand-by's job in the accounting")
    following = alice("sbatch --parsable --hold -o /dev/null --wrap true")
    assert int(following) > int(waiting)

    again = playbook("restore_cluster", seconds=1800)
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why
    ask(f"scancel {running} {waiting} {following}; scontrol update NodeName={OTHER} State=RESUME")
