# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""People of an Active Directory: a real domain controller of Samba, adcli, sssd and Slurm.

For its own pod (tests/soak/active_directory). The tests build on each other, in their order.
"""

from __future__ import annotations

import time

import pytest
import yaml

from .conftest import INVENTORY, on, playbook, until
from .copies import ask

CONTROLLER, HEAD, LOGIN, NODE = "dc-01", "head-01", "login-01", "dgx-01"
MEMBERS = (HEAD, LOGIN, NODE)
DOMAIN = "ad.example.org"
VALUES = INVENTORY / "group_vars" / "cluster" / "identity.yml"
HOSTS = INVENTORY / "hosts.yml"
ACCOUNTS = INVENTORY / "group_vars" / "all" / "slurm_controller.yml"
JOINS = "Only-for-joining1"
WORDS = {"carol": "The-words-of-carol1", "erin": "The-words-of-erin1"}
CACHE_S = 30
SUBMIT = "cd /tmp && sbatch --parsable -o /dev/null --wrap id"
INSTALLS = "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y"
# A container's file system has no attributes for the rights of Windows: they are kept in a file.
SERVES = f"""set -eu
{INSTALLS} --no-install-recommends samba-ad-dc samba-ad-provision winbind > /dev/null
systemctl disable --now smbd nmbd winbind samba-ad-dc 2> /dev/null || true
rm -f /etc/samba/smb.conf
echo "ADDRESS {CONTROLLER}.{DOMAIN} {CONTROLLER}" >> /etc/hosts
samba-tool domain provision --realm={DOMAIN.upper()} --domain=AD --adminpass={JOINS} \
  --server-role=dc --dns-backend=SAMBA_INTERNAL --host-name={CONTROLLER} --host-ip=ADDRESS \
  --option='posix:eadb = /var/lib/samba/private/eadb.tdb' > /dev/null 2>&1
systemctl enable --now samba-ad-dc
until samba-tool user list > /dev/null 2>&1; do sleep 1; done
samba-tool user create carol {WORDS["carol"]}
samba-tool user create erin {WORDS["erin"]}
samba-tool group add hpc
samba-tool group addmembers hpc carol
"""
# As docs/operations.md asks for; the name is not in a DNS that the pod asks.
JOIN = f"""set -eu
{INSTALLS} --no-install-recommends adcli > /dev/null
echo "ADDRESS {CONTROLLER}.{DOMAIN}" >> /etc/hosts
printf %s {JOINS} | adcli join --stdin-password --domain={DOMAIN} \
  --domain-controller={CONTROLLER}.{DOMAIN} --host-fqdn="$(hostname).{DOMAIN}"
"""


def as_person(person: str, host: str, command: str, words: str = "") -> tuple[int, str]:
    """Log in with a password, as a user who is not root; return the code and the output."""
    given = words or WORDS[person]
    script = f"""printf '%s\\n' '{given}' | su visitor -c "su {person} -c '{command}'" """
    done = on(host, f"id -u visitor > /dev/null 2>&1 || useradd -M visitor; cd /; {script}")
    return done.returncode, done.stdout.strip()


@pytest.fixture(scope="module", autouse=True, name="address")
def domain() -> str:
    """A domain with two people, and the inventory that names it; the controller's address."""
    address = ask("hostname -I", CONTROLLER).split()[0]
    ask(SERVES.replace("ADDRESS", address), CONTROLLER, 600)
    values = {
        "identity_provider": "ad",
        "identity_domain": DOMAIN,
        "identity_login_groups": ["hpc"],
        "identity_cache_s": CACHE_S,
        "identity_settings": {"ad_server": f"{CONTROLLER}.{DOMAIN}"},
    }
    # It is not a host of the cluster.
    lines = HOSTS.read_text(encoding="utf-8").splitlines(keepends=True)
    HOSTS.write_text("".join(line for line in lines if CONTROLLER not in line), encoding="utf-8")
    VALUES.parent.mkdir(exist_ok=True)
    VALUES.write_text(yaml.safe_dump(values), encoding="utf-8")
    accounts = yaml.safe_load(ACCOUNTS.read_text(encoding="utf-8"))
    accounts["slurm_controller_accounts"].append({"name": "hpc", "group": "hpc"})
    ACCOUNTS.write_text(yaml.safe_dump(accounts), encoding="utf-8")
    prepared = playbook("prepare_nodes")
    assert prepared.rc == 0, prepared.why
    return address


def test_a_host_outside_the_domain_is_refused() -> None:
    refused = playbook("configure_identity")
    assert refused.rc != 0
    assert "join with adcli join" in refused.why


def test_a_second_run_changes_nothing(address: str) -> None:
    for host in MEMBERS:
        ask(JOIN.replace("ADDRESS", address), host, 300)
    made = playbook("configure_identity", "--diff")
    assert made.rc == 0, made.why
    again = playbook("configure_identity")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why


def test_groups_decide_who_logs_in() -> None:
    for host in MEMBERS:
        code, found = as_person("carol", host, "id -un; id -Gn; cd; pwd; stat -c %a .")
        lines = found.splitlines()
        assert (code, lines[0], lines[-2:]) == (0, "carol", ["/home/carol", "700"]), found
        assert "hpc" in lines[1]
        assert as_person("carol", host, "true", "other words")[0] != 0
        assert as_person("erin", host, "true")[0] != 0, "erin is not in the group"
    numbers = {ask("id -u carol; id -g carol", host) for host in MEMBERS}
    assert len(numbers) == 1, "a number follows from the domain, and is that of all hosts"


def test_members_of_the_group_submit_jobs() -> None:
    made = playbook("configure_scheduler")
    assert made.rc == 0, made.why
    again = playbook("configure_scheduler")
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.tasks("changed") or again.why
    code, job = as_person("carol", LOGIN, SUBMIT)
    assert code == 0, job
    asks = f"sacct -nXP -j {job} -o user,account,state"
    until(lambda: ask(asks) == "carol|hpc|COMPLETED\n", "carol's job in the accounting")


def test_people_work_while_the_controller_is_dead() -> None:
    ask("systemctl stop samba-ad-dc", CONTROLLER)
    try:
        time.sleep(2 * CACHE_S)
        code, found = as_person("carol", LOGIN, SUBMIT)
        assert code == 0, found
        # Above it: that the password came from the cache.
        job = found.splitlines()[-1]
        until(lambda: "COMPLETED" in ask(f"sacct -nXP -j {job} -o state"), "a job is over")
        assert as_person("carol", LOGIN, "true", "other words")[0] != 0
    finally:
        ask("systemctl start samba-ad-dc", CONTROLLER)


def test_who_leaves_the_group_is_refused() -> None:
    ask("samba-tool group removemembers hpc carol", CONTROLLER)
    until(lambda: as_person("carol", LOGIN, "true")[0] != 0, "carol is refused", 300)
    ask("samba-tool group addmembers hpc carol", CONTROLLER)
    until(lambda: as_person("carol", LOGIN, "true")[0] == 0, "carol logs in again", 300)
