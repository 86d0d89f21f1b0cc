# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role identity would write for each kind of directory and distribution."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from role_render import ROLES, by_path, lines, played, render
from role_rules import read_yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import FAIL, PASS
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._host.units.ask import (
    Probe,
    judge_probe,
)

CA = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"
CONF = "/etc/sssd/sssd.conf"
HIDDEN = "secret_content"
SSHD = "/etc/ssh/sshd_config.d/10-baremetal-dgx-identity.conf"
LDAP: dict[str, Any] = {
    "identity_domain": "example.org",
    "identity_uris": ["ldaps://ldap-1.example.org", "ldaps://ldap-2.example.org"],
    "identity_search_base": "dc=example,dc=org",
    "identity_bind_dn": "cn=reader,dc=example,dc=org",
    "identity_bind_password": "100% secret",
    "identity_login_groups": ["hpc", "domain users"],
    "identity_ca": CA,
}
SHOWN = {
    "files": "__identity_files",
    "packages": "__identity_packages",
    "probes": (
        "__identity_probes"
        " + (identity_login_groups | baremetal.dgx.for_each(__identity_group_probe))"
    ),
    "units": "__identity_units",
    "refusals": "__identity_refusals | selectattr('when') | map(attribute='say') | list",
    "homes": "__identity_homes",
    "locals": "__identity_local_users",
}


def shown(folder: Path, distribution: str, version: str, **inputs: Any) -> dict[str, Any]:
    facts = {"distribution_major_version": version}
    result = render(folder, "identity", distribution, {**LDAP, **inputs}, SHOWN, facts=facts)
    assert result["refusals"] == []
    result["files"] = by_path(result["files"])
    return result


def domain(result: dict[str, Any]) -> dict[str, str]:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(result["files"][CONF][HIDDEN])
    assert parsed["sssd"]["domains"] == "example.org"
    assert parsed["nss"]["memcache_timeout"] == parsed["domain/example.org"]["entry_cache_timeout"]
    return dict(parsed["domain/example.org"])


def test_ldap(tmp_path: Path) -> None:
    result = shown(tmp_path, "Debian", "13")
    assert domain(result) == {
        "id_provider": "ldap",
        "auth_provider": "ldap",
        "chpass_provider": "none",
        "ldap_uri": "ldaps://ldap-1.example.org, ldaps://ldap-2.example.org",
        "ldap_search_base": "dc=example,dc=org",
        "ldap_schema": "rfc2307",
        "ldap_tls_reqcert": "demand",
        "ldap_tls_cacert": "/etc/sssd/baremetal-dgx-ca.pem",
        "ldap_id_use_start_tls": "false",
        "ldap_default_bind_dn": "cn=reader,dc=example,dc=org",
        "ldap_default_authtok_type": "password",
        "ldap_default_authtok": "100% secret",
        "ldap_user_ssh_public_key": "sshPublicKey",
        "ldap_network_timeout": "3",
        "ldap_opt_timeout": "4",
        "ldap_search_timeout": "6",
        "offline_timeout": "30",
        # sssd doubles the wait up to an hour by itself.
        "offline_timeout_max": "60",
        "access_provider": "simple",
        "sudo_provider": "none",
        "simple_allow_groups": "hpc, domain users",
        "cache_credentials": "true",
        "entry_cache_timeout": "240",
        "min_id": "10000",
        "max_id": "2147483647",
        "enumerate": "false",
        "override_homedir": "/home/%u",
        "default_shell": "/bin/bash",
    }
    conf = result["files"][CONF]
    # sssd's unit of Debian 13 makes it 0640 at each start; the second run would find a change.
    assert (conf["mode"], conf["owner"]) == ("0640", "root")
    assert "services" not in conf[HIDDEN], "sockets start them"
    assert "AuthorizedKeysCommand /usr/bin/sss_ssh_authorizedkeys %u" in lines(
        result["files"][SSHD]
    )
    order = lines(result["files"]["/etc/systemd/system/sssd.service.d/50-baremetal-dgx.conf"])
    assert "Before=slurmctld.service slurmd.service slurmdbd.service" in order
    assert [one["command"] for one in result["probes"]] == [
        ["sssctl", "domain-status", "example.org", "--online"],
        ["getent", "group", "hpc"],
        ["getent", "group", "domain users"],
    ]
    assert result["probes"][0]["expect"] == "Online status: Online"


@pytest.mark.parametrize(
    ("distribution", "version"), [("Debian", "12"), ("Ubuntu", "24"), ("Rocky", "9")]
)
def test_older_sssd_refuses_what_its_group_reads(
    tmp_path: Path, distribution: str, version: str
) -> None:
    assert shown(tmp_path, distribution, version)["files"][CONF]["mode"] == "0600"


def test_enterprise_linux(tmp_path: Path) -> None:
    result = shown(tmp_path, "Rocky", "9")
    assert "services = nss, pam, ssh" in result["files"][CONF][HIDDEN].splitlines()
    assert result["packages"] == [
        "sssd", "sssd-tools", "sssd-dbus", "sssd-ldap", "authselect", "oddjob-mkhomedir",
    ]  # fmt: skip
    assert [one["name"] for one in result["units"]] == [
        "sssd.service", "sshd.service", "oddjobd.service",
    ]  # fmt: skip
    assert result["units"][2]["enabled"] is True
    without = shown(tmp_path, "Rocky", "9", identity_make_homes=False)["units"]
    assert [one["name"] for one in without] == ["sssd.service", "sshd.service"]


# What authselect of Enterprise Linux 9 takes and prints, and pam-auth-update of Ubuntu 22.04 (pam
# 1.4.0), which passes over what it does not know. The file has what is selected.
AUTHSELECT = """\
case $1 in
current) cat "$SELECTED" 2>/dev/null || { echo No existing configuration detected.; exit 2; } ;;
list-features) printf '%s\\n' with-faillock with-mkhomedir with-sudo ;;
select) shift; echo "$*" | tee "$SELECTED" ;;
*) exit 1 ;;
esac
"""
PAM_AUTH_UPDATE = """\
case $* in
*--enable*) echo pam_mkhomedir.so > "$SELECTED" ;;
*--remove*) : > "$SELECTED" ;;
esac
"""
TOOLS = {"RedHat": ("authselect", AUTHSELECT), "Debian": ("pam-auth-update", PAM_AUTH_UPDATE)}
# What is selected, and what is then, but for with-mkhomedir.
SELECTED = {
    "minimal": "sssd",
    "winbind with-krb5 with-faillock": "sssd with-faillock",
    "sssd": "sssd",
    "sssd with-sudo": "sssd with-sudo",
    "sssd with-mkhomedir with-sudo": "sssd with-sudo",
    "custom/hardened with-faillock": "custom/hardened with-faillock",
    "": "sssd",
}


def set_homes(
    folder: Path, family: str, hosts: dict[str, dict[str, Any]], *options: str, text: str = ""
) -> str:
    """Run the tasks about homes with the tool of the family; return what Ansible says."""
    name, program = TOOLS[family]
    (folder / name).write_text(f"#!/bin/sh\n{text or program}")
    (folder / name).chmod(0o755)
    role = ROLES / "identity"
    known = {**read_yaml(role / f"vars/{family}.yml"), **read_yaml(role / "vars/main.yml")}
    known["__identity_homes"] = {
        key: str(value).replace("/etc/pam.d/common-session", "$SELECTED")
        for key, value in known["__identity_homes"].items()
    }
    play = {
        "hosts": "all", "gather_facts": False, "tasks": read_yaml(role / "tasks/configure.yml")[1:],
        "environment": {"SELECTED": f"{folder}/{{{{ inventory_hostname }}}}"}, "vars": known,
    }  # fmt: skip
    return played(folder, hosts, play, *options, PATH=f"{folder}:{os.environ['PATH']}").stdout


def changed(output: str) -> set[str]:
    """Return the hosts that have changed; none has failed."""
    found = re.findall(r"^(\S+)\s+: .*changed=(\d+).*failed=0", output, re.MULTILINE)
    assert len(found) == len(re.findall(r"changed=\d", output)), output
    return {host for host, count in found if count != "0"}


def test_sssd_is_selected_and_homes_are_as_wanted_on_enterprise_linux(tmp_path: Path) -> None:
    """Without sssd in the profile the directory is not asked, with or without homes."""
    cases = [(before, made) for before in SELECTED for made in (True, False)]
    hosts = {f"h{n}": {"identity_make_homes": made} for n, (_before, made) in enumerate(cases)}
    due = set()
    for host, (before, made) in zip(hosts, cases, strict=True):
        if before:
            (tmp_path / host).write_text(f"{before}\n")
        if not before.startswith(("sssd", "custom")) or ("with-mkhomedir" in before) != made:
            due.add(host)
    assert changed(set_homes(tmp_path, "RedHat", hosts)) == due
    for host, (before, made) in zip(hosts, cases, strict=True):
        wanted = {*SELECTED[before].split(), *(["with-mkhomedir"] if made else [])}
        assert set((tmp_path / host).read_text().split()) == wanted, before
    assert changed(set_homes(tmp_path, "RedHat", hosts)) == set()


def test_homes_are_as_wanted_on_every_ubuntu(tmp_path: Path) -> None:
    cases = {
        "h0": ("", True),
        "h1": ("", False),
        "h2": ("mkhomedir", True),
        "h3": ("mkhomedir", False),
    }
    hosts = {host: {"identity_make_homes": made} for host, (_before, made) in cases.items()}
    for host, (before, _made) in cases.items():
        (tmp_path / host).write_text(f"pam_{before}.so\n")
    assert changed(set_homes(tmp_path, "Debian", hosts, "--check")) == set()
    assert changed(set_homes(tmp_path, "Debian", hosts)) == {"h0", "h3"}
    for host, (_before, made) in cases.items():
        assert ("mkhomedir" in (tmp_path / host).read_text()) is made
    assert changed(set_homes(tmp_path, "Debian", hosts)) == set()


def test_files_of_pam_that_a_tool_leaves_alone_are_a_failure(tmp_path: Path) -> None:
    """pam-auth-update ends with 0 where it finds changes by hand."""
    (tmp_path / "h0").write_text("pam_mkhomedir.so\n")
    text = "echo Local modifications, not updating. >&2\n"
    output = set_homes(tmp_path, "Debian", {"h0": {"identity_make_homes": False}}, text=text)
    assert "failed=1" in output
    line = "identity_make_homes: false, and the files of PAM are as they were: Local modifications"
    assert line in " ".join(output.split())


def test_without_groups_no_member_of_the_directory_may_log_in(tmp_path: Path) -> None:
    found = domain(shown(tmp_path, "Debian", "13", identity_login_groups=[]))
    assert "simple_allow_groups" not in found
    assert found["simple_allow_users"] == "root"


def test_local_users_with_numbers_of_the_directory(tmp_path: Path) -> None:
    command = shown(tmp_path, "Debian", "13", identity_id_max=100000)["locals"]
    users = {"root": 0, "alice": 2001, "low": 10000, "slurm": 64030, "nobody": 65534, "bob": 70000}
    passwd = tmp_path / "passwd"
    lines_of = [f"{name}:x:{number}:{number}::/:/bin/sh\n" for name, number in users.items()]
    passwd.write_text("".join(lines_of) + "far:x:100001:1::/:/bin/sh\n", encoding="utf-8")
    done = subprocess.run([*command, str(passwd)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["low (10000)", "bob (70000)"]


def test_start_tls_and_other_choices(tmp_path: Path) -> None:
    result = shown(
        tmp_path, "Debian", "13",
        identity_uris=["ldap://ldap-1.example.org"], identity_start_tls=True,
        identity_schema="rfc2307bis", identity_ca="", identity_bind_dn="",
        identity_bind_password="", identity_ssh_keys=False,
        identity_settings={"ldap_user_extra_attrs": "mail", "ldap_page_size": 500},
    )  # fmt: skip
    found = domain(result)
    assert found["ldap_id_use_start_tls"] == "true"
    assert found["ldap_schema"] == "rfc2307bis"
    assert (found["ldap_user_extra_attrs"], found["ldap_page_size"]) == ("mail", "500")
    assert not {"ldap_tls_cacert", "ldap_default_authtok", "ldap_user_ssh_public_key"} & set(found)
    assert found["ldap_tls_reqcert"] == "demand"
    states = {path: one.get("state") for path, one in result["files"].items()}
    assert (states[SSHD], states["/etc/sssd/baremetal-dgx-ca.pem"]) == ("absent", "absent")


@pytest.mark.parametrize("provider", ["ad", "ipa"])
def test_joined_domains(tmp_path: Path, provider: str) -> None:
    result = shown(
        tmp_path, "Ubuntu", "24", identity_provider=provider, identity_uris=[],
        identity_search_base="", identity_bind_dn="", identity_bind_password="",
    )  # fmt: skip
    found = domain(result)
    assert found["id_provider"] == found["auth_provider"] == provider
    assert found[f"{provider}_domain"] == "example.org"
    assert found["access_provider"] == "simple"
    assert not any(name.startswith("ldap_uri") for name in found)
    assert f"sssd-{provider}" in result["packages"]


def test_a_group_is_there_however_the_directory_spells_it(tmp_path: Path) -> None:
    """Active Directory knows no capitals, and sssd shows its names without."""
    groups = ["Domain Users", "HPC$all"]
    result = shown(tmp_path, "Debian", "13", identity_provider="ad", identity_login_groups=groups)
    for group, probe in zip(groups, result["probes"][1:], strict=True):
        line = f"{group.lower()}:*:10001:alice"
        command = tuple(probe["command"])
        there = judge_probe(Probe(**probe), CommandResult(command, ENDED, 0, line))
        assert there.status == PASS, there.text
        assert judge_probe(Probe(**probe), CommandResult(command, ENDED, 2)).status == FAIL


@pytest.mark.parametrize("provider", ["ldap", "ad", "ipa"])
def test_rules_of_sudo_are_not_asked_of_the_directory(tmp_path: Path, provider: str) -> None:
    """sssd looks in all of it: who may write anywhere in the directory would be root on hosts."""
    found = domain(shown(tmp_path, "Debian", "13", identity_provider=provider))
    assert found["sudo_provider"] == "none"


def test_a_site_may_keep_rules_of_sudo_in_its_directory(tmp_path: Path) -> None:
    wanted = {"sudo_provider": "ldap", "ldap_sudo_search_base": "ou=sudoers,dc=example,dc=org"}
    found = domain(shown(tmp_path, "Debian", "13", identity_settings=wanted))
    assert wanted.items() <= found.items()
