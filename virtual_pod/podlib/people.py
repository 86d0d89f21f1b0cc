# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person of the directory does on the cluster, and who is not let in."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from podlib import ceph, host, nodes
from podlib.layout import expect

if TYPE_CHECKING:
    from podlib.demo import Demo

GPUS = 8
# GPUs of the job.
_OWN = 2
# Opens each GPU, as in demo.py: a shell in a job reaches the job's own and no other.
_LOOK = (
    "cat /proc/self/cgroup; "
    'for i in 0 1 2 3 4 5 6 7; do (true < /dev/nvidia$i) 2>&1 | sed "s/.*nvidia/nvidia/"; done'
)
# Asks a URL with the token of the environment; the pod's authority is the only one that counts.
_ASK = (
    "import os, ssl, sys, urllib.request as u; "
    "r = u.Request(sys.argv[1], headers={'X-SLURM-USER-TOKEN': os.environ['SLURM_JWT']}); "
    "c = ssl.create_default_context(cafile='/srv/directory/ca.pem'); "
    "print(u.urlopen(r, context=c, timeout=20).read().decode())"
)
# A home has no such attribute before its quota.
_QUOTA = (
    'python3 -c \'import os; print(os.getxattr(".", "ceph.quota.max_bytes").decode())\''
    " 2>/dev/null || echo none"
)
_MAX_MIB = 64
_OVER = f"dd if=/dev/zero of=over bs=1M count={_MAX_MIB + 16} 2>&1; rm over"


def use_people(demo: Demo) -> None:
    """Log in by the directory, submit, look into the job, ask slurmrestd; be refused elsewhere."""
    who = demo.user("id -un; id -Gn; pwd", name="carol").split()
    expect(who[:3] == ["carol", "people", "hpc"], f"carol is {who}")
    refused(demo, "erin", "login-01")
    refused(demo, "carol", "dgx-01")
    job = demo.user(
        f"sbatch --parsable -w dgx-01 --gres=gpu:{_OWN} -o /dev/null --wrap 'sleep 600'",
        name="carol",
    ).split(";")[0]
    running = f"squeue -h -j {job} -t R -o %A"
    host.wait_until(f"job {job}", lambda: demo.user(running, name="carol") == job, 60, 2)
    seen = demo.user(_LOOK, node="dgx-01", name="carol")
    expect(f"job_{job}" in seen, f"the shell on dgx-01 is not in job {job}: {seen[:300]}")
    kept = seen.count("Operation not permitted")
    expect(kept == GPUS - _OWN, f"the shell is kept from {kept} GPUs, not from {GPUS - _OWN}")
    url = f"https://head-01:6820/slurm/{rest_version(demo)}/job/{job}"
    answer = demo.user(
        f'export $(scontrol token lifespan=60); python3 -c "{_ASK}" {url}', name="carol"
    )
    states = json.loads(answer)["jobs"][0]["job_state"]
    expect("RUNNING" in states, f"slurmrestd says that job {job} is {states}")
    demo.user(f"scancel {job}", name="carol")
    if ceph.has_storage(demo.pod()):
        quota(demo)


def rest_version(demo: Demo) -> str:
    """Return the newest API that Slurm of the pod has; Debian calls it slurm-wlm."""
    found = re.search(r"slurm\S* (\d+\.\d+)", demo.user("sinfo --version", name="carol"))
    return {"24.11": "v0.0.42", "22.05": "v0.0.38"}[found[1] if found else ""]


def refused(demo: Demo, name: str, node: str) -> None:
    """Let a person be refused."""
    config = nodes.state_folder(demo.name) / "ssh_config"
    argv = ["ssh", "-F", str(config), "-o", "BatchMode=yes", f"{name}@{node}", "true"]
    demo.progress.say(f"{name} logs in on {node}")
    done = host.ask(argv, timeout=60)
    expect(done.returncode == 255, f"{node} lets {name} in")
    demo.progress.show("    refused")


def quota(demo: Demo) -> None:
    """Wait for the quota of a home that was made at the login, and write more than it allows."""
    found = ""

    def has_quota() -> bool:
        nonlocal found
        found = demo.user(_QUOTA, name="carol")
        return found == str(_MAX_MIB << 20)

    host.wait_until("the quota of carol's home", has_quota, 120, 5)
    written = demo.user(_OVER, name="carol")
    expect("Disk quota exceeded" in written, f"carol writes more than her quota: {written[:300]}")
