# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two database servers of the site that replicate (Galera): one is lost while jobs are accounted.

For its own pod (tests/soak/replicated_database). The tests build on each other, in their order.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from .conftest import INVENTORY, on, playbook, services, until
from .copies import ask, repository

HEAD, FIRST, SECOND = "head-01", "login-01", "login-02"
# The name service of the site has the addresses of both servers for it.
NAME = "accounting"
VALUES = INVENTORY / "group_vars" / "cluster" / "replicated_database.yml"
PASSWORD = "only-for-the-pod-and-its-database"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y "
# What the site does on its own servers; the third vote is an arbitrator on the head node.
CONF = f"""[mysqld]
bind-address=0.0.0.0
innodb_snapshot_isolation=OFF
innodb_autoinc_lock_mode=2
binlog_format=ROW
wsrep_on=ON
wsrep_provider=/usr/lib/galera/libgalera_smm.so
wsrep_cluster_name=site
wsrep_cluster_address=gcomm://{FIRST},{SECOND}
wsrep_sst_method=rsync
"""
SERVER = (
    f"{INSTALL} mariadb-server galera-4 rsync && systemctl stop mariadb"
    f" && printf '{CONF}' > /etc/mysql/mariadb.conf.d/90-site.cnf"
)
USER = (
    f"""mariadb -e "create user slurm@'%' identified by '{PASSWORD}';"""
    """ grant all on slurm_acct_db.* to slurm@'%'; create database slurm_acct_db" """
)
ARBITRATOR = (
    f"{INSTALL} galera-arbitrator-4 && systemd-run --unit site-arbitrator"
    f" garbd --group site --address gcomm://{FIRST},{SECOND}"
)


def address(server: str) -> str:
    """Return its address in the pod's network."""
    return ask(f"getent hosts {server}").split()[0]


def state(server: str, name: str) -> str:
    """Return a status variable of Galera; empty where the server does not answer."""
    return on(server, f"mariadb -N -e \"show status like 'wsrep_{name}'\"").stdout[6:].strip()


def is_whole() -> bool:
    """Return whether both servers and the arbitrator are one cluster."""
    wanted = ["cluster_size\t3", "local_state_comment\tSynced"]
    return all(
        [state(server, one.split("\t")[0]) for one in wanted] == wanted
        for server in (FIRST, SECOND)
    )


def kill(server: str) -> None:
    """As a crash; and the server stays away."""
    ask("systemctl mask --runtime mariadb && systemctl kill -s KILL mariadb", server)
    until(lambda: on(server, "pgrep -x mariadbd").returncode == 1, "the end of a server")


def come_back(server: str) -> None:
    """Boot it, so that it takes what it missed from the other one."""
    ask("systemctl unmask --runtime mariadb && systemctl start mariadb", server, 300)
    until(is_whole, "both servers again")


def submit(number: int) -> None:
    """Submit jobs as alice, five a second, in the background."""
    loop = (
        f"for n in $(seq {number}); do sbatch --parsable -o /dev/null --wrap true; sleep 0.2; done"
    )
    ask(
        "systemd-run --unit load --property User=alice --working-directory=/tmp"
        f" --property StandardOutput=truncate:/tmp/jobs sh -c '{loop}'",
        SECOND,
    )


def accounted(number: int) -> None:
    """Each job that was submitted is accounted, once, as ended."""
    until(lambda: on(SECOND, "systemctl is-active load").returncode != 0, "the load", 300)
    jobs = ask("cat /tmp/jobs", SECOND).split()
    assert len(set(jobs)) == number, ask("journalctl -u load -o cat | tail -20", SECOND)

    def found() -> list[str]:
        # Repeated records of one number would show with duplicates.
        shown = on(SECOND, "sacct -nXPa -D -S now-2hours -o jobid,state").stdout.split()
        return [line for line in shown if line.partition("|")[0] in jobs]

    until(lambda: len(found()) >= number, "all jobs in the accounting", 400)
    until(lambda: sorted(found()) == sorted(f"{job}|COMPLETED" for job in jobs), "ends", 400)


def rows(server: str) -> str:
    """Return how many jobs a server has, and the highest number."""
    name = ask("sacctmgr -nP show cluster format=cluster", SECOND).strip()
    sql = f"select count(*), max(id_job) from slurm_acct_db.{name}_job_table"
    return ask(f'mariadb -N -e "{sql}"', server)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> None:
    """A pair of servers that the site runs, and the inventory that names both."""
    for server in (FIRST, SECOND):
        ask(SERVER, server, 900)
    ask("galera_new_cluster", FIRST, 120)
    ask(USER, FIRST)
    ask("systemctl start mariadb", SECOND, 300)
    ask(ARBITRATOR, HEAD, 600)
    until(is_whole, "two servers and an arbitrator")
    values = {
        "cluster_fabric": {"topology": "none"},
        "slurm_database_manage_server": False,
        "slurm_database_storage": {"host": NAME},
        "slurm_database_password": PASSWORD,
    }
    VALUES.parent.mkdir(exist_ok=True)
    VALUES.write_text(yaml.safe_dump(values), encoding="utf-8")
    prepared = playbook("prepare_nodes")
    assert prepared.rc == 0, prepared.why
    for server in (FIRST, SECOND):
        ask(f"echo {address(server)} {NAME} >> /etc/hosts")


def test_the_first_and_the_second_run() -> None:
    first = playbook("configure_scheduler")
    assert first.rc == 0, first.why
    again = playbook("configure_scheduler")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why


def test_a_server_dies_while_jobs_are_accounted() -> None:
    submit(150)
    until(lambda: len(ask("cat /tmp/jobs", SECOND).split()) > 30, "thirty jobs")
    daemon = services(HEAD)["slurmdbd.service"]
    kill(FIRST)
    accounted(150)
    assert ask("sacctmgr -i add account physics", SECOND)
    assert services(HEAD)["slurmdbd.service"] == daemon, "slurmdbd was restarted"
    # A run meanwhile finds all well: the accounting answers.
    repaired = playbook("configure_scheduler")
    assert (repaired.rc, set(repaired.changed.values())) == (0, {0}), repaired.why


def test_copies_come_from_the_server_that_answers(tmp_path: Path) -> None:
    with repository(SECOND, tmp_path):
        made = playbook("configure_backup")
        assert made.rc == 0, made.why
        ask("systemctl start baremetal-dgx-backup", HEAD, 300)
    come_back(FIRST)
    assert rows(FIRST) == rows(SECOND)


def test_the_other_one_dies_too() -> None:
    submit(100)
    until(lambda: len(ask("cat /tmp/jobs", SECOND).split()) > 20, "twenty jobs")
    daemon = services(HEAD)["slurmdbd.service"]
    kill(SECOND)
    accounted(100)
    assert "physics" in ask("sacctmgr -nP show account format=account", SECOND).split()
    assert services(HEAD)["slurmdbd.service"] == daemon
    come_back(SECOND)
    assert rows(FIRST) == rows(SECOND)


def test_a_server_loses_its_power() -> None:
    """It does not even say that it is gone: the kernel must give the connection up."""
    used = ask("ss -Htn state established dport = :3306")
    assert f"{address(FIRST)}:3306" in used, used
    submit(100)
    until(lambda: len(ask("cat /tmp/jobs", SECOND).split()) > 20, "twenty jobs")
    daemon = services(HEAD)["slurmdbd.service"]
    ask("ip link set eth0 down", FIRST)
    try:
        # Linux by itself takes 15 minutes.
        accounted(100)
    finally:
        ask("ip link set eth0 up", FIRST)
    assert services(HEAD)["slurmdbd.service"] == daemon
    until(is_whole, "both servers again")
    assert rows(FIRST) == rows(SECOND)
