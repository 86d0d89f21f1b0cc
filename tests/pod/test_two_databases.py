# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two slurmdbd that share a database server which the site runs: first start, loss, and a change.

For its own pod (tests/soak/two_databases). The tests build on each other, in their order.
"""

from __future__ import annotations

import re

import pytest
import yaml

from .conftest import INVENTORY, playbook, services, until
from .copies import ask

PRIMARY, STANDBY, LOGIN, NODE = "head-01", "head-02", "login-01", "dgx-01"
DATABASES = INVENTORY / "two_databases.yml"
VALUES = INVENTORY / "group_vars" / "cluster" / "two_databases.yml"
SHARED = "/shared"
PASSWORD = "only-for-the-pod-and-its-database"
# What the site does on its own server.
SERVER = (
    "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y mariadb-server"
    " && printf '[mysqld]\\nbind-address=0.0.0.0\\ninnodb_snapshot_isolation=OFF\\n'"
    " > /etc/mysql/mariadb.conf.d/90-site.cnf && systemctl restart mariadb"
    f""" && mariadb -e "create user slurm@'%' identified by '{PASSWORD}';"""
    """ grant all on slurm_acct_db.* to slurm@'%'; create database slurm_acct_db" """
)


def alice(words: str) -> str:
    """Run a command as alice on the login host."""
    return ask(f"cd / && su alice -c '{words}'", LOGIN, 120).strip()


def ended(job: str) -> str:
    """Return what the accounting has of a job."""
    return ask(f"sacct -nXP -j {job} -o jobid,user,state", LOGIN).strip()


def daemon(host: str) -> dict[str, str]:
    """Return what systemd has of slurmdbd on a host."""
    shown = ask("systemctl show slurmdbd -p ActiveState -p NRestarts -p Result", host)
    return dict(line.split("=", 1) for line in shown.split())


WELL = {"ActiveState": "active", "NRestarts": "0", "Result": "success"}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> None:
    """The inventory of two slurmdbd; the server that both use is on the login host."""
    ask(SERVER, LOGIN, 600)
    hosts = {name: {} for name in (PRIMARY, STANDBY)}
    group = {"all": {"children": {"slurm_databases": {"hosts": hosts}}}}
    DATABASES.write_text(yaml.safe_dump(group), encoding="utf-8")
    values = {
        "cluster_fabric": {"topology": "none"},
        "slurm_controller_state_save_location": f"{SHARED}/slurmctld",
        # The pod itself mounts it on both.
        "cluster_validation": {"canary": {"mounts": [{"name": "shared", "path": SHARED}]}},
        "slurm_database_manage_server": False,
        "slurm_database_storage": {"host": LOGIN},
        "slurm_database_password": PASSWORD,
    }
    VALUES.parent.mkdir(exist_ok=True)
    VALUES.write_text(yaml.safe_dump(values), encoding="utf-8")
    prepared = playbook("prepare_nodes")
    assert prepared.rc == 0, prepared.why


def test_both_start_on_an_empty_database() -> None:
    """Started at one moment, the stand-by found other tables than its own, and ended."""
    first = playbook("configure_scheduler")
    assert first.rc == 0, first.why
    assert {host: daemon(host) for host in (PRIMARY, STANDBY)} == {PRIMARY: WELL, STANDBY: WELL}
    log = ask("cat /var/log/slurm/slurmdbd.log", STANDBY)
    assert not re.search("fatal|error: mysql", log), log
    again = playbook("configure_scheduler")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why


def test_the_standby_accounts_while_the_primary_is_gone() -> None:
    before = alice("sbatch --parsable -o /dev/null --wrap true")
    until(lambda: ended(before) == f"{before}|alice|COMPLETED", "a job in the accounting")
    running = alice(f'sbatch --parsable -o /dev/null -w {NODE} --wrap "sleep 3600"')
    ask("systemctl stop slurmdbd", PRIMARY)
    # slurmctld's own connection moves to the stand-by, and so do the commands.
    during = alice("sbatch --parsable -o /dev/null --wrap true")
    until(lambda: ended(during) == f"{during}|alice|COMPLETED", "a job through the stand-by", 300)
    assert ended(before) == f"{before}|alice|COMPLETED"
    ask("sacctmgr -i add account physics", LOGIN)

    standby = services(STANDBY)["slurmdbd.service"]
    repaired = playbook("configure_scheduler")
    assert repaired.rc == 0, repaired.why
    changed = {host for host, count in repaired.changed.items() if count}
    assert changed == {PRIMARY}, repaired.tasks("changed")
    assert daemon(PRIMARY) == WELL
    assert services(STANDBY)["slurmdbd.service"] == standby
    after = alice("sbatch --parsable -o /dev/null --wrap true")
    until(lambda: ended(after) == f"{after}|alice|COMPLETED", "a job through the primary", 300)
    jobs = ask("sacct -nXP -S now-1hour -a -o jobid,state", LOGIN).split()
    assert set(jobs) == {f"{job}|COMPLETED" for job in (before, during, after)} | {
        f"{running}|RUNNING"
    }
    assert "physics" in ask("sacctmgr -nP show account format=account", LOGIN).split()
    ask(f"scancel {running}")


def test_a_setting_of_both_restarts_both() -> None:
    started = {host: services(host)["slurmdbd.service"] for host in (PRIMARY, STANDBY)}
    option = '{"slurm_database_options": {"DebugLevel": "verbose"}}'
    changed = playbook("configure_scheduler", "-e", option)
    assert changed.rc == 0, changed.why
    for host in (PRIMARY, STANDBY):
        assert services(host)["slurmdbd.service"] != started[host]
        assert daemon(host) == WELL
        assert "DebugLevel=verbose" in ask("cat /etc/slurm/slurmdbd.conf", host)
    back = playbook("configure_scheduler")
    assert back.rc == 0, back.why
    assert [daemon(host) for host in (PRIMARY, STANDBY)] == [WELL, WELL]
