# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""People of a directory: two real slapd with TLS, sssd and Slurm in a pod of three nodes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from .people import (
    ADDRESSES,
    BASE,
    CACHE_S,
    PASSWORD,
    PEOPLE,
    SERVERS,
    SUBMIT,
    change,
    run,
    runs,
    shell,
    ssh,
)

# How long no server answers; an hour in tests/soak/dead_directory.
DEAD_S = int(os.environ.get("DIRECTORY_DEAD_S", 4 * CACHE_S))


def test_check_mode_and_two_runs(people: Path) -> None:
    prepared = run("prepare_nodes")
    assert prepared.rc == 0, prepared.why
    dry = run("configure_identity", "--check", "--diff")
    assert dry.rc == 0, dry.why
    assert PASSWORD not in dry.output
    made = run("configure_identity", "--diff")
    assert made.rc == 0, made.why
    assert PASSWORD not in made.output
    again = run("configure_identity")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.output
    for host in ADDRESSES:
        assert shell(host, "id -u carol").strip() == str(PEOPLE["carol"])
        assert shell(host, "systemctl list-units --failed --plain -q 'sssd*'") == ""
        assert shell(host, "stat -c '%U %G' /etc/sssd/sssd.conf").strip() == "root root"


def test_groups_decide_who_logs_in(people: Path) -> None:
    welcome = ssh("carol", "login-01", "id -Gn; pwd; stat -c %a .")
    assert welcome.stdout.split() == ["people", "hpc", "/home/carol", "700"], welcome.stderr
    assert ssh("erin", "login-01").returncode == 255
    assert ssh("nobody-of-this-name", "login-01").returncode == 255


def test_names_of_the_host_are_not_the_directorys(people: Path) -> None:
    """The directory has a key of erin, and a group that sudo would know by its name."""
    group = f"dn: cn=sudo,{BASE}\nchangetype: "
    change(f"{group}add\nobjectClass: posixGroup\ncn: sudo\ngidNumber: 20090\nmemberUid: carol\n")
    # useradd asks sssd, which knows erin, and refuses.
    entries = {
        "passwd": "erin:x:1500:1500::/home/erin:/bin/sh",
        "group": "erin:x:1500:",
        "shadow": "erin:*:20000:0:99999:7:::",
    }
    makes = [f"echo '{line}' >> /etc/{name}" for name, line in entries.items()]
    try:
        shell("login-01", "; ".join([*makes, "install -d -o 1500 -g 1500 -m 700 /home/erin"]))
        made = run("configure_identity")
        time.sleep(CACHE_S)
        erin, carol = ssh("erin", "login-01"), ssh("carol", "login-01", "id -G; id -Gn")
    finally:
        files = " ".join(f"/etc/{name}" for name in entries)
        shell("login-01", f"sed -i '/^erin:/d' {files}; rm -rf /home/erin")
        change(f"{group}delete\n")
    assert made.rc == 0, made.why
    assert erin.returncode == 255
    assert carol.returncode == 0, carol.stderr
    assert not {"sudo", "20090"} & set(carol.stdout.split())
    assert run("configure_identity").rc == 0


def test_a_job_of_a_person_and_its_shell(people: Path) -> None:
    scheduler = run("configure_scheduler")
    assert scheduler.rc == 0, scheduler.why
    assert ssh("carol", "dgx-01").returncode != 0, "without a job there"
    # sssd's own account rules let local users pass; pam_slurm_adopt is asked all the same.
    assert ssh("alice", "login-01").returncode == 0
    assert ssh("alice", "dgx-01").returncode != 0, "without a job there"
    submit = ssh("carol", "login-01", f"{SUBMIT} 'id -un; sleep 300'")
    job = submit.stdout.strip()
    assert job.isdigit(), submit.stderr
    runs(job)
    inside = ssh("carol", "dgx-01", "id -un; cat /proc/self/cgroup")
    assert inside.stdout.startswith("carol\n"), inside.stderr
    assert f"job_{job}" in inside.stdout, "the shell is in the job"
    shell("head-01", f"scancel {job}")


def test_who_leaves_is_refused_and_the_job_ends_normally(people: Path) -> None:
    assert ssh("dave", "login-01").returncode == 0
    submit = ssh("dave", "login-01", f"{SUBMIT} 'sleep 60'")
    job = submit.stdout.strip()
    assert job.isdigit(), submit.stderr
    # A job that is still in the queue would stay there: Slurm starts none without its user.
    runs(job)
    change(f"dn: uid=dave,{BASE}\nchangetype: delete\n")
    change(f"dn: cn=hpc,{BASE}\nchangetype: modify\ndelete: memberUid\nmemberUid: dave\n")
    begun = time.monotonic()
    while ssh("dave", "login-01").returncode == 0:
        assert time.monotonic() - begun < 300
        time.sleep(5)
    deadline = time.monotonic() + 150
    state = ""
    while state != "COMPLETED":
        assert time.monotonic() < deadline, state
        time.sleep(2)
        state = shell("head-01", f"sacct -nXP -j {job} -o State").strip()
    time.sleep(CACHE_S)
    synchronized = run("configure_scheduler")
    assert synchronized.rc == 0, synchronized.why
    users = "sacctmgr -nP show assoc where account=hpc format=user"
    assert shell("head-01", users).split() == ["carol"]


def works(person: str) -> None:
    """Let a person log in and submit; the job must end well, and the node stay in service."""
    begun = time.monotonic()
    submit = ssh(person, "login-01", f"{SUBMIT} 'id -un'")
    assert submit.stdout.strip().isdigit(), submit.stderr
    assert time.monotonic() - begun < 30
    job, deadline = submit.stdout.strip(), time.monotonic() + 60
    while shell("head-01", f"sacct -nXP -j {job} -o State").strip() != "COMPLETED":
        assert time.monotonic() < deadline
        time.sleep(1)
    assert shell("head-01", "sinfo -hN -n dgx-01 -o %t").split()[0] in ("idle", "mix")


def test_dead_servers(people: Path) -> None:
    first, second = SERVERS
    shell(first, "systemctl stop directory")
    assert ssh("carol", "login-01").returncode == 0, "the other server answers"
    one = run("configure_identity")
    assert one.rc == 0, one.why
    shell(second, "systemctl stop directory")
    # What a host knows has to be asked again several times over.
    over = time.monotonic() + DEAD_S
    jobs = 0
    while time.monotonic() < over:
        time.sleep(min(CACHE_S, max(0, over - time.monotonic())))
        works("carol")
        jobs += 1
    assert jobs >= 3
    dead = run("configure_identity")
    assert dead.rc != 0
    assert "sssd reaches a server of example.org" in dead.why
    for host in SERVERS:
        shell(host, "systemctl start directory")
    deadline = time.monotonic() + 120
    while run("configure_identity").rc:
        assert time.monotonic() < deadline


def test_slurmctld_starts_before_the_directory_answers(people: Path) -> None:
    """sssd has lost what it knew: slurmctld reads its jobs while their user has no number."""
    running = ssh("carol", "login-01", f"{SUBMIT} 'sleep 120'").stdout.strip()
    waiting = ssh(
        "carol", "login-01", f"sbatch --hold {SUBMIT.partition(' ')[2]} 'id -un'"
    ).stdout.strip()
    assert running.isdigit()
    assert waiting.isdigit()
    runs(running)
    for host in SERVERS:
        shell(host, "systemctl stop directory")
    shell(
        "head-01",
        "systemctl stop slurmctld sssd; rm -f /var/lib/sss/db/* /var/lib/sss/mc/*; "
        "systemctl start sssd slurmctld; sleep 5",
    )
    assert shell("head-01", "getent passwd carol || echo unknown").strip() == "unknown"
    asks = f"squeue -h -j {running},{waiting} -o '%A %T'"
    found = dict(line.split() for line in shell("head-01", asks).splitlines())
    assert found == {running: "RUNNING", waiting: "PENDING"}
    for host in SERVERS:
        shell(host, "systemctl start directory")
    # sssd asks again within 90 s, and a timer has Slurm look again within two minutes.
    deadline = time.monotonic() + 400
    shell("head-01", f"scontrol release {waiting}")
    states: dict[str, str] = {}
    while set(states.values()) != {"COMPLETED"}:
        assert time.monotonic() < deadline, states
        time.sleep(2)
        result = shell("head-01", f"sacct -nXP -j {running},{waiting} -o JobID,State")
        states = dict(line.split("|") for line in result.split())


def test_a_local_user_with_a_number_of_the_directory(people: Path) -> None:
    shell("dgx-01", "useradd --uid 20077 --no-create-home local-user")
    refused = run("configure_identity")
    shell("dgx-01", "userdel local-user")
    assert refused.rc != 0
    assert "this host has the local users local-user (20077)" in refused.why
