# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""People of a directory: two real slapd with TLS, sssd and Slurm in a pod of three nodes."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .conftest import CHECKOUT, Run, environment, recap

NAME, SUBNET = "people", "10.78.252"
ADDRESSES = {"head-01": f"{SUBNET}.11", "login-01": f"{SUBNET}.21", "dgx-01": f"{SUBNET}.101"}
SERVERS = ("head-01", "login-01")
STATE = CHECKOUT / ".pod" / NAME
INVENTORY = STATE / "inventory"
BASE = "dc=example,dc=org"
PASSWORD = "only-for-reading"
CACHE_S = 30
# Homes of this pod are on no shared file system, and made at a login alone.
SUBMIT = "sbatch --parsable -D /tmp -o /dev/null -w dgx-01 --wrap"
PEOPLE = {"carol": 20001, "dave": 20002, "erin": 20003}
GROUPS = {"people": (20000, []), "hpc": (20010, ["carol", "dave"])}
# Of OpenSSH-LPK, which directories have for public keys.
LPK = """\
attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey' EQUALITY octetStringMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY
  MAY ( sshPublicKey $ uid ) )
"""
CONF = """\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
include /srv/directory/lpk.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCertificateFile /srv/directory/server.pem
TLSCertificateKeyFile /srv/directory/server.key
security ssf=1
database mdb
maxsize 1073741824
suffix "dc=example,dc=org"
rootdn "cn=admin,dc=example,dc=org"
rootpw directory
directory /srv/directory/db
index objectClass,uid,uidNumber,gidNumber,memberUid,cn eq
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,dc=example,dc=org" read by * none
"""
START = """\
systemd-run --quiet --collect --unit directory \
  slapd -d 0 -u openldap -g openldap -f /srv/directory/slapd.conf -h ldaps:///
"""


def pod(*arguments: str) -> str:
    """Run virtual_pod/pod; return what it prints."""
    done = subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shell(host: str, script: str) -> str:
    """Run a script as root on a host, without SSH; return what it prints."""
    return pod("exec", "--name", NAME, host, "sh", "-ec", script)


def write(host: str, path: str, text: str) -> None:
    """Write a file on a host."""
    assert "EOF-OF-TEXT" not in text
    shell(host, f"cat > {path} <<'EOF-OF-TEXT'\n{text}\nEOF-OF-TEXT")


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


def entries(key: str) -> str:
    """Return the directory as LDIF."""
    found = [
        f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: example\n",
        (
            f"dn: cn=reader,{BASE}\nobjectClass: organizationalRole\n"
            f"objectClass: simpleSecurityObject\ncn: reader\nuserPassword: {PASSWORD}\n"
        ),
    ]
    found += [
        (
            f"dn: uid={name},{BASE}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\n"
            f"objectClass: ldapPublicKey\ncn: {name}\nsn: {name}\nuid: {name}\n"
            f"uidNumber: {number}\ngidNumber: 20000\nhomeDirectory: /elsewhere/{name}\n"
            f"sshPublicKey: {key}\n"
        )
        for name, number in PEOPLE.items()
    ]
    found += [
        f"dn: cn={name},{BASE}\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {number}\n"
        + "".join(f"memberUid: {member}\n" for member in members)
        for name, (number, members) in GROUPS.items()
    ]
    return "\n".join(found)


def serve(key: str) -> str:
    """Start a slapd on each server; return the authority of their certificates."""
    first, *_ = SERVERS
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends"
    for host in SERVERS:
        shell(
            host,
            f"apt-get update -qq; {install} slapd ldap-utils openssl > /dev/null 2>&1\n"
            "systemctl disable --quiet --now slapd 2> /dev/null; mkdir -p /srv/directory/db",
        )
    shell(
        first,
        "cd /srv/directory; openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority "
        "-keyout ca.key -out ca.pem 2> /dev/null",
    )
    for host in SERVERS:
        shell(
            first,
            f"cd /srv/directory; openssl req -newkey rsa:2048 -nodes -subj /CN={host} "
            f"-keyout {host}.key -out {host}.csr 2> /dev/null; "
            f"printf subjectAltName=DNS:{host} > san; openssl x509 -req -in {host}.csr -CA ca.pem "
            f"-CAkey ca.key -CAcreateserial -days 2 -extfile san -out {host}.pem 2> /dev/null",
        )
        for kind in ("key", "pem"):
            text = shell(first, f"cat /srv/directory/{host}.{kind}")
            write(host, f"/srv/directory/server.{kind}", text)
        write(host, "/srv/directory/lpk.schema", LPK)
        write(host, "/srv/directory/slapd.conf", CONF)
        write(host, "/srv/directory/people.ldif", entries(key))
        shell(
            host,
            "chown -R openldap:openldap /srv/directory; setpriv --reuid openldap --regid openldap "
            "--clear-groups slapadd -f /srv/directory/slapd.conf -l /srv/directory/people.ldif "
            f"2>&1\n{START}",
        )
    return shell(first, "cat /srv/directory/ca.pem")


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


def declare(path: str, values: object) -> None:
    """Write a file of the inventory."""
    (INVENTORY / path).write_text(yaml.safe_dump(values), encoding="utf-8")


@pytest.fixture(scope="module", name="directory")
def the_directory() -> Iterator[Path]:
    pod("down", "--force", "--name", NAME)
    pod("up", "--name", NAME, "--subnet", f"{SUBNET}.0/24", "--nodes", "1")
    shutil.rmtree(INVENTORY, ignore_errors=True)
    pod("inventory", "--name", NAME)
    authority = serve((STATE / "id.pub").read_text(encoding="utf-8").strip())
    declare(
        "group_vars/all/identity.yml",
        {
            "identity_domain": "example.org",
            "identity_uris": [f"ldaps://{host}" for host in SERVERS],
            "identity_search_base": BASE,
            "identity_bind_dn": f"cn=reader,{BASE}",
            "identity_bind_password": PASSWORD,
            "identity_login_groups": ["hpc"],
            "identity_ca": authority,
            "identity_cache_s": CACHE_S,
        },
    )
    slurm = INVENTORY / "group_vars" / "all" / "slurm_controller.yml"
    values = yaml.safe_load(slurm.read_text(encoding="utf-8"))
    values["slurm_controller_accounts"].append({"name": "hpc", "group": "hpc"})
    declare("group_vars/all/slurm_controller.yml", values)
    yield STATE
    pod("down", "--force", "--name", NAME)


def test_check_mode_and_two_runs(directory: Path) -> None:
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


def test_groups_decide_who_logs_in(directory: Path) -> None:
    welcome = ssh("carol", "login-01", "id -Gn; pwd; stat -c %a .")
    assert welcome.stdout.split() == ["people", "hpc", "/home/carol", "700"], welcome.stderr
    assert ssh("erin", "login-01").returncode == 255
    assert ssh("nobody-of-this-name", "login-01").returncode == 255


def test_a_job_of_a_person_and_its_shell(directory: Path) -> None:
    scheduler = run("configure_scheduler")
    assert scheduler.rc == 0, scheduler.why
    assert ssh("carol", "dgx-01").returncode != 0, "without a job there"
    submit = ssh("carol", "login-01", f"{SUBMIT} 'id -un; sleep 300'")
    job = submit.stdout.strip()
    assert job.isdigit(), submit.stderr
    runs(job)
    inside = ssh("carol", "dgx-01", "id -un; cat /proc/self/cgroup")
    assert inside.stdout.startswith("carol\n"), inside.stderr
    assert f"job_{job}" in inside.stdout, "the shell is in the job"
    shell("head-01", f"scancel {job}")


def test_who_leaves_is_refused_and_the_job_ends_normally(directory: Path) -> None:
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


def test_dead_servers(directory: Path) -> None:
    first, second = SERVERS
    shell(first, "systemctl stop directory")
    assert ssh("carol", "login-01").returncode == 0, "the other server answers"
    one = run("configure_identity")
    assert one.rc == 0, one.why
    shell(second, "systemctl stop directory")
    begun = time.monotonic()
    submit = ssh("carol", "login-01", f"{SUBMIT} 'id -un'")
    assert submit.stdout.strip().isdigit(), submit.stderr
    assert time.monotonic() - begun < 30
    job, deadline = submit.stdout.strip(), time.monotonic() + 60
    while shell("head-01", f"sacct -nXP -j {job} -o State").strip() != "COMPLETED":
        assert time.monotonic() < deadline
        time.sleep(1)
    assert shell("head-01", "sinfo -hN -n dgx-01 -o %t").split()[0] in ("idle", "mix")
    dead = run("configure_identity")
    assert dead.rc != 0
    assert "sssd reaches a server of example.org" in dead.why
    for host in SERVERS:
        shell(host, START)
    deadline = time.monotonic() + 120
    while run("configure_identity").rc:
        assert time.monotonic() < deadline


def test_a_local_user_with_a_number_of_the_directory(directory: Path) -> None:
    shell("dgx-01", "useradd --uid 20077 --no-create-home local-user")
    refused = run("configure_identity")
    shell("dgx-01", "userdel local-user")
    assert refused.rc != 0
    assert "this host has the local users local-user (20077)" in refused.why
