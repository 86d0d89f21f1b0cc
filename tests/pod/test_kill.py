# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that is killed half-way converges when it is run again.

KILLS is the number of moments tried (10 in the stage `kills` of `make soak`; CI runs none),
KILL_SEED the seed that chooses them. Each round takes the cluster half down first, so that there is
work to be interrupted.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest

from .conftest import command, environment, on, playbook

KILLS = int(os.environ.get("KILLS", "1"))
SEED = int(os.environ.get("KILL_SEED", "1"))

# What makes a following run do real work: packages, keys, configuration, daemons, users.
KEY = "/etc/munge/munge.key"
DAMAGE = {
    "head-01": f"systemctl stop slurmctld slurmdbd; rm -f /etc/slurm/slurm.conf {KEY}",
    "dgx-01": f"apt-get remove -y -q slurmd; rm -f {KEY} /etc/default/slurmd; systemctl stop munge",
    "login-01": "rm -f /etc/default/sackd; userdel bob",
}


@pytest.mark.parametrize("moment", [random.Random(SEED + n).uniform(3, 60) for n in range(KILLS)])
def test_killed_run_converges(moment: float) -> None:
    for node, script in DAMAGE.items():
        on(node, script, seconds=180)
    started = time.monotonic()
    run = subprocess.Popen(
        command("site"),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        run.wait(timeout=moment)
        pytest.fail(
            f"the run was over after {time.monotonic() - started:.0f} s, before it could be killed"
        )
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    done = playbook("site")
    assert done.rc == 0, done.output
    again = playbook("site")
    assert again.rc == 0, again.output
    assert set(again.changed.values()) == {0}, again.output
    assert playbook("verify").rc == 0
    ran = on("login-01", "su - alice -c 'srun -N1 --gres=gpu:8 hostname'")
    assert ran.returncode == 0, ran.stderr
