# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The primary controller dies, and users hardly notice."""

from __future__ import annotations

import time

from .conftest import eventually, node, ssh

# slurmctld writes its state every few seconds; what is younger is lost with a killed one.
STATE_IS_SAVED_S = 12


def alice(command: str) -> str:
    """Run a command as the user alice on the login node; return what it printed."""
    done = ssh("login-01", "alice", command, 120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_standby_takes_over_and_the_primary_comes_back() -> None:
    job = alice("sbatch --parsable -o /dev/null --gres=gpu:1 --wrap 'sleep 600'")

    def runs() -> bool:
        return alice(f"squeue --noheader --jobs={job} --format=%T") == "RUNNING"

    def controllers() -> str:
        return ssh("login-01", "alice", "scontrol ping").stdout

    eventually(runs, what=f"job {job} running")
    time.sleep(STATE_IS_SAVED_S)
    head = node("head-01")
    head.run_test("systemctl kill -s KILL slurmctld; systemctl stop slurmctld")
    eventually(
        lambda: "head-01 is DOWN" in controllers() and "head-02 is UP" in controllers(),
        what="the standby answers",
    )
    eventually(runs, what=f"job {job} known to the standby")
    assert alice("srun --gres=gpu:1 hostname") == "dgx-01"

    head.run_test("systemctl start slurmctld")
    eventually(lambda: "head-01 is UP" in controllers(), what="the primary answers")
    eventually(runs, what=f"job {job} known to the primary")
    alice(f"scancel {job}")


def test_the_key_is_slurms_own_and_munge_is_not_needed() -> None:
    for name in ("head-01", "head-02", "login-01", "dgx-01"):
        key = node(name).file("/etc/slurm/slurm.key")
        assert (key.user, key.mode) == ("slurm", 0o600), name
    configured = node("head-01").file("/etc/slurm/slurm.conf").content_string
    assert "AuthType=auth/slurm\n" in configured
