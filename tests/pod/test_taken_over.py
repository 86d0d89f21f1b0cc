# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Slurm that was set up by hand is taken over: its queue and its accounting go on.

For its own pod of two hosts (tests/soak/taken_over). The tests build on each other.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from .conftest import INVENTORY, on, playbook, services, until
from .shapes import CONTROL, declare, job

HEAD, NODE = "head-01", "dgx-01"
FOLDER, NAME = "/var/spool/slurmctld", "lab"
SLURM_CONF = f"""\
ClusterName={NAME}
SlurmctldHost={HEAD}
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation={FOLDER}
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
ReturnToService=2
SelectType=select/cons_tres
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
JobAcctGatherType=jobacct_gather/none
NodeName={NODE} CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=work Nodes={NODE} Default=YES MaxTime=1-0 State=UP
"""
SLURMDBD_CONF = """\
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=by-hand
StorageLoc=slurm_acct_db
"""
DATABASE = (
    "create database if not exists slurm_acct_db; "
    "create user if not exists slurm@localhost identified by 'by-hand'; "
    "grant all on slurm_acct_db.* to slurm@localhost"
)


def done(host: str, script: str, seconds: float = 300) -> str:
    """Run it; return what it printed."""
    result = on(host, f"set -e; cd /; {script}", seconds)
    assert result.returncode == 0, f"{host}: {script}: {result.stdout}{result.stderr}"
    return result.stdout.strip()


def put(host: str, path: str, text: str, owner: str = "root", mode: str = "644") -> None:
    """Write a file by hand."""
    coded = base64.b64encode(text.encode()).decode()
    done(host, f"echo {coded} | base64 -d > {path}; chown {owner}: {path}; chmod {mode} {path}")


def queue() -> dict[str, str]:
    """Return the state of each job that slurmctld knows, by number."""
    shown = done(HEAD, "squeue -ah -r -o '%i %T'")
    return dict(line.split() for line in shown.splitlines())


def accounted() -> list[str]:
    """Return the ended jobs as the accounting has them."""
    fields = "jobidraw,jobname,user,account,partition,state,start,end"
    shown = done(HEAD, f"sacct -anPX -S now-1day -o {fields}").splitlines()
    return [line for line in shown if "|COMPLETED|" in line]


def by_hand() -> None:
    """Set up a Slurm such as a guide from the web leaves it."""
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends"
    packages = {
        HEAD: "munge slurmctld slurmdbd slurm-client mariadb-server",
        NODE: "munge slurmd slurm-client",
    }
    for host, names in packages.items():
        done(host, f"apt-get update -q >/dev/null; {install} {names} >/dev/null 2>&1", 600)
        done(host, "id alice || useradd -m -u 2001 -s /bin/bash alice")
        put(host, "/etc/slurm/slurm.conf", SLURM_CONF)
        # slurmd cannot use the cgroups of a container.
        put(host, "/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n")
    key = done(HEAD, "base64 -w0 /etc/munge/munge.key")
    done(NODE, f"echo {key} | base64 -d > /etc/munge/munge.key; systemctl restart munge")
    put(HEAD, "/etc/slurm/slurmdbd.conf", SLURMDBD_CONF, "slurm", "600")
    done(HEAD, f"mkdir -p {FOLDER}; chown slurm: {FOLDER}; systemctl restart munge mariadb")
    done(HEAD, f'mariadb -e "{DATABASE}"; systemctl restart slurmdbd')
    until(lambda: on(HEAD, "sacctmgr -n show cluster").returncode == 0, "slurmdbd answers")
    for what in (f"cluster {NAME}", "account old", "user alice account=old"):
        # Once it is there, slurmctld or an earlier run has made it.
        done(HEAD, f"sacctmgr -iQ add {what} || true")
    done(HEAD, "systemctl restart slurmctld")
    done(NODE, "systemctl restart slurmd")
    until(lambda: "idle" in on(HEAD, "sinfo -hN -o %T").stdout, "the node is idle")


def inventory() -> None:
    """Say what is there, and no more than that."""
    declare({HEAD: (*CONTROL, "login_nodes"), NODE: ("gpu_nodes",)})
    values: dict[str, Any] = {
        "cluster_name": NAME,
        "slurm_controller_state_save_location": FOLDER,
        "slurm_controller_partitions": [{"name": "work", "nodes": ["ALL"], "default": True}],
    }
    path = INVENTORY / "group_vars/all/zz_taken_over.yml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    (INVENTORY / ".dgx/cluster_name").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def jobs() -> dict[str, str]:
    """Jobs by what they are: one has ended, others wait."""
    by_hand()
    submit = 'su alice -c "cd /; sbatch --parsable -o /dev/null'
    ended = done(HEAD, f'{submit} --wait --wrap true"')
    held = done(HEAD, f'{submit} --hold --wrap true"')
    after = done(HEAD, f'{submit} -d afterok:{held} --wrap true"')
    array = done(HEAD, f'{submit} --hold -a 1-3 --wrap true"')
    return {"ended": ended, "held": held, "after": after, "array": array}


def test_queue_and_accounting_go_on(jobs: dict[str, str]) -> None:
    before, ended = queue(), accounted()
    waiting = {jobs["held"], jobs["after"], *(f"{jobs['array']}_{number}" for number in (1, 2, 3))}
    assert set(before) == waiting
    assert set(before.values()) == {"PENDING"}
    assert jobs["ended"] in [line.split("|")[0] for line in ended]
    inventory()
    kept = playbook("configure_scheduler", seconds=1500)
    assert "slurm_base_key: not the one that head-01 has" in " ".join(kept.output.split())
    site = playbook("site", "-e", "slurm_key_changes=true", seconds=1500)
    assert site.rc == 0, site.why
    assert queue() == before
    assert accounted() == ended
    again = playbook("site", seconds=1500)
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why


def test_what_waited_runs(jobs: dict[str, str]) -> None:
    # Its GPUs are new to Slurm.
    on(HEAD, f"scontrol update nodename={NODE} state=resume")
    until(lambda: "idle" in on(HEAD, "sinfo -hN -o %T").stdout, "the node is idle")
    done(HEAD, f"scontrol release {jobs['held']} {jobs['array']}")
    until(lambda: not queue(), "all jobs have ended", 300)
    states = done(HEAD, "sacct -anPX -S now-1day -o jobid,state").splitlines()
    wanted = {jobs["ended"], jobs["held"], jobs["after"]}
    wanted |= {f"{jobs['array']}_{number}" for number in (1, 2, 3)}
    assert {f"{number}|COMPLETED" for number in wanted} <= set(states), states
    # Numbers go on where they were.
    assert job(HEAD, [NODE]) == [NODE]
    newest = max(int(line.split("|")[0]) for line in accounted())
    assert newest > int(jobs["array"]) + 2


def test_the_former_account_is_there() -> None:
    before = services(HEAD)
    shown = done(HEAD, "sacctmgr -nP show assoc user=alice format=account").splitlines()
    assert {"old", "research"} <= set(shown)
    assert services(HEAD) == before
