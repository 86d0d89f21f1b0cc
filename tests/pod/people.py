# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod of three nodes with a directory of people: two real slapd with TLS.

It comes and goes with the tests; PEOPLE_POD and PEOPLE_SUBNET name one that is up and stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .conftest import CHECKOUT, Run, environment, pod, recap

KEPT = os.environ.get("PEOPLE_POD")
NAME, SUBNET = KEPT or "people", os.environ.get("PEOPLE_SUBNET", "10.78.252")
ADDRESSES = {"head-01": f"{SUBNET}.11", "login-01": f"{SUBNET}.21", "dgx-01": f"{SUBNET}.101"}
SERVERS = ("head-01", "login-01")
STATE = CHECKOUT / ".pod" / NAME
INVENTORY = STATE / "inventory"
# As virtual_pod/podlib/directory.py has them.
BASE = "dc=example,dc=org"
PASSWORD = "only-for-reading"
PEOPLE = {"carol": 20001, "dave": 20002, "erin": 20003}
CACHE_S = 30
# Homes of this pod are on no shared file system, and made at a login alone.
SUBMIT = "sbatch --parsable -D /tmp -o /dev/null -w dgx-01 --wrap"


def shell(host: str, script: str) -> str:
    """Run a script as root on a host, without SSH; return what it prints."""
    return pod("exec", "--name", NAME, host, "sh", "-ec", script)


def runs(job: str) -> None:
    """Wait until the job runs."""
    asks = f"until squeue -h -j {job} -t R | grep -q .; do sleep 1; done"
    shell("head-01", f"timeout 60 sh -c '{asks}'")


def ssh(person: str, host: str, command: str = "true") -> subprocess.CompletedProcess[str]:
    """Log in with the key that is in the directory."""
    options = "BatchMode=yes StrictHostKeyChecking=no UserKnownHostsFile=/dev/null LogLevel=ERROR"
    return subprocess.run(
        ["ssh", "-F", "none", "-i", str(STATE / "id"), "-o", "IdentitiesOnly=yes",
         *(word for option in options.split() for word in ("-o", option)),
         f"{person}@{ADDRESSES[host]}", command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def change(ldif: str) -> None:
    """Change both servers."""
    for host in SERVERS:
        shell(
            host,
            f"LDAPTLS_REQCERT=never ldapmodify -x -w directory"
            f" -H ldaps://{host} -D cn=admin,{BASE} > /dev/null <<'EOF'\n{ldif}\nEOF",
        )


def run(name: str, *arguments: str) -> Run:
    """Run a playbook of the collection to its end."""
    done = subprocess.run(
        ["ansible-playbook", f"baremetal.dgx.{name}", "-i", str(INVENTORY), *arguments],
        env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    return Run(done.returncode, done.stdout, recap(done.stdout))


def boot() -> Iterator[Path]:
    """Bring the pod up with its directory, and remove it afterwards."""
    if KEPT:
        yield STATE
        return
    pod("down", "--force", "--name", NAME)
    pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0/24", "--nodes", "1")
    shutil.rmtree(INVENTORY, ignore_errors=True)
    pod("inventory", "--name", NAME)
    pod("directory", "--name", NAME)
    yield STATE
    pod("down", "--force", "--name", NAME)
