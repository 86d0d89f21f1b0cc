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
    "__identity_locals": {"stdout_lines": []},
    # The command of the task that reads the local users.
    "__identity_reads": read_yaml(ROLES / "identity/tasks/set_vars.yml")[-1][
        "ansible.builtin.command"
    ]["argv"],
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
    "reads": "__identity_reads",
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
after=$(sed -n '/^# end of pam-auth-update config/,$p' "$SELECTED")
case $* in
"--package --remove mkhomedir --enable baremetal-dgx-homes") cat PROFILE > "$SELECTED" ;;
"--package --remove mkhomedir baremetal-dgx-homes") : > "$SELECTED" ;;
*) exit 1 ;;
esac
echo "$after" >> "$SELECTED"
"""
# What is below it stays as it is.
OWN = "# end of pam-auth-update config\n"
PROFILE = ROLES / "identity/templates/usr/share/pam-configs/baremetal-dgx-homes.j2"
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
    (folder / name).write_text(f"#!/bin/sh\n{text or program}".replace("PROFILE", str(PROFILE)))
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
    """They are closed: the distribution's profile leaves others in where login.defs does."""
    theirs, closed = "optional pam_mkhomedir.so\n", "optional pam_mkhomedir.so umask=0077\n"
    cases = {
        "h0": ("pam_unix.so\n", True),
        "h1": ("pam_unix.so\n", False),
        "h2": (theirs, True),
        "h3": (theirs, False),
        "h4": (closed, True),
        "h5": (closed, False),
        "h6": (theirs + closed, True),
        # A site's that names a mode stays, if others are left out.
        "h7": (closed.replace("77", "27"), True),
        "h8": (closed.replace("77", "22"), True),
        "h9": (f"{OWN}# pam_mkhomedir.so was here\n", True),
        "h10": (f"{OWN}# pam_mkhomedir.so was here\n", False),
        "h11": (f"{OWN}{closed}", True),
        "h12": (f"{theirs}{OWN}# pam_mkhomedir.so was here\n", False),
    }
    hosts = {host: {"identity_make_homes": made} for host, (_before, made) in cases.items()}
    for host, (before, _made) in cases.items():
        (tmp_path / host).write_text(before)
    assert changed(set_homes(tmp_path, "Debian", hosts, "--check")) == set()
    assert changed(set_homes(tmp_path, "Debian", hosts)) == {
        "h0", "h2", "h3", "h5", "h6", "h8", "h9", "h12",
    }  # fmt: skip
    for host, (_before, made) in cases.items():
        found = (tmp_path / host).read_text().splitlines()
        set_up = [line for line in found if "pam_mkhomedir.so" in line and line[0] != "#"]
        assert len(set_up) == made
        assert all(line.endswith(("umask=0077", "umask=0027")) for line in set_up)
    assert changed(set_homes(tmp_path, "Debian", hosts)) == set()


def test_an_own_line_of_pam_that_leaves_homes_open_is_named(tmp_path: Path) -> None:
    """The tool leaves it alone, and the failure says what to do."""
    line = "session optional pam_mkhomedir.so umask=0022\n"
    hosts = {"h0": {"identity_make_homes": True}, "h1": {"identity_make_homes": False}}
    for host in hosts:
        (tmp_path / host).write_text(f"{OWN}{line}")
    output = " ".join(set_homes(tmp_path, "Debian", hosts).split())
    assert output.count("failed=1") == 2
    report = "and PAM does otherwise: /etc/pam.d/common-session has a line by which others may read"
    for way in ("true, {} homes; write umask=0077 there, or", "false, {} homes;"):
        assert f"identity_make_homes: {way.format(report)} remove the line" in output
    (tmp_path / "h0").write_text(OWN + line.replace("0022", "0077"))
    (tmp_path / "h1").write_text(OWN)
    assert changed(set_homes(tmp_path, "Debian", hosts)) == set()


def test_the_profile_of_homes_is_debians_alone(tmp_path: Path) -> None:
    path = "/usr/share/pam-configs/baremetal-dgx-homes"
    profile = shown(tmp_path, "Debian", "13")["files"][path]
    assert profile["content"].startswith("Name: ")
    assert "pam_mkhomedir.so umask=0077" in profile["content"]
    assert path not in shown(tmp_path, "Rocky", "9")["files"]


def test_files_of_pam_that_a_tool_leaves_alone_are_a_failure(tmp_path: Path) -> None:
    """pam-auth-update ends with 0 where it finds changes by hand."""
    (tmp_path / "h0").write_text("pam_mkhomedir.so\n")
    text = "echo Local modifications, not updating. >&2\n"
    output = set_homes(tmp_path, "Debian", {"h0": {"identity_make_homes": False}}, text=text)
    assert "failed=1" in output
    assert "homes; remove the line; Local modifications, not updating." in " ".join(output.split())


def test_without_groups_no_member_of_the_directory_may_log_in(tmp_path: Path) -> None:
    found = domain(shown(tmp_path, "Debian", "13", identity_login_groups=[]))
    assert "simple_allow_groups" not in found
    assert found["simple_allow_users"] == "root"


def test_local_users_by_their_numbers(tmp_path: Path) -> None:
    program = shown(tmp_path, "Debian", "13", identity_id_max=100000)["locals"]
    command = ["awk", "-v", "login=admin", *program]
    users = {
        "root": 0,
        "sshd": 101,
        "admin": 999,
        "alice": 2001,
        "low": 10000,
        "slurm": 64030,
        "nobody": 65534,
        "bob": 70000,
    }
    passwd = tmp_path / "passwd"
    lines_of = [f"{name}:x:{number}:{number}::/:/bin/sh\n" for name, number in users.items()]
    passwd.write_text("".join(lines_of) + "far:x:100001:1::/:/bin/sh\n", encoding="utf-8")
    done = subprocess.run([*command, str(passwd)], capture_output=True, text=True, check=True)
    found = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [rest for word, rest in found if word == "directory"] == ["low (10000)", "bob (70000)"]
    # No system user, which a package may bring at any time, but who logs in to run Ansible.
    names = [rest for word, rest in found if word == "local"]
    assert names == ["admin", "alice", "low", "bob", "far"]


@pytest.mark.parametrize("named", [True, False])
def test_a_login_whose_only_key_is_the_directorys(tmp_path: Path, named: bool) -> None:
    """The directory is not asked for it any more, and Ansible would have no way in.

    The name may be in the configuration of ssh alone.
    """
    inputs, environment = ({"ansible_user": "ops"}, {}) if named else ({}, {"SUDO_USER": "ops"})
    result = shown(tmp_path, "Debian", "13", **inputs)
    programs = {
        "runuser": 'test "$1 $2 $3" = "-u ops --" && shift 3 && exec "$@"',
        "sss_ssh_authorizedkeys": 'test "$1" = ops && printf %s "$DIRECTORY"',
        "getent": f'test "$*" = "passwd ops" && echo "ops:*:10000:10000::{tmp_path}:/bin/sh"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "passwd").write_text(
        f"root:x:0:0::/root:/bin/sh\nops:x:999:999::{tmp_path}:/bin/sh\n"
    )
    (tmp_path / "local").write_text(f"root:x:0:0::{tmp_path}:/bin/sh\n")
    (tmp_path / ".ssh").mkdir()

    def reads(passwd: str, directory: str) -> list[str]:
        path = f"{tmp_path}:{os.environ['PATH']}"
        known = {"SUDO_USER": "other", **environment, "PATH": path, "DIRECTORY": directory}
        command = [*result["reads"][:-1], str(tmp_path / passwd)]
        command[2] = command[2].replace("/etc/ssh", str(tmp_path))
        done = subprocess.run(command, env=known, capture_output=True, text=True, check=True)
        first, *others = done.stdout.splitlines()
        assert first == "login ops"
        return others

    assert result["reads"][-1] == "/etc/passwd"
    home = ["local ops", f"home {tmp_path}"]
    assert reads("passwd", "ssh-ed25519 AAAA") == [*home, "locked out"]
    assert reads("passwd", "") == home
    assert reads("local", "ssh-ed25519 AAAA") == [""], "a person of the directory alone"
    (tmp_path / ".ssh/authorized_keys").write_text("")
    assert reads("passwd", "ssh-ed25519 AAAA") == [*home, "locked out"]
    # Without identity_ssh_keys the file that makes sshd ask would go.
    (tmp_path / "sshd_config.d").mkdir()
    (tmp_path / "sshd_config.d" / Path(SSHD).name).touch()
    assert reads("passwd", "ssh-ed25519 AAAA") == [*home, "locked out", "sshd asks the directory"]
    assert reads("local", "ssh-ed25519 AAAA") == ["", "sshd asks the directory"]
    assert reads("local", "") == [""]
    (tmp_path / ".ssh/authorized_keys").write_text("ssh-ed25519 AAAA\n")
    assert reads("passwd", "ssh-ed25519 AAAA") == home


def test_a_login_that_would_be_locked_out_is_refused(tmp_path: Path) -> None:
    seen = {"stdout_lines": ["login ops", "local ops", "locked out"]}
    inputs = {**LDAP, "__identity_locals": seen}
    shows = {"refusals": SHOWN["refusals"]}
    (line,) = render(tmp_path, "identity", "Debian", inputs, shows)["refusals"]
    assert line == (
        "identity_ssh_keys: ops, as whom Ansible logs in, is a local user with a key in the "
        "directory alone, which is not asked for local users; put its key on the host: "
        "bootstrap, or authorized_keys in node_base_users"
    )
    without = {**inputs, "identity_ssh_keys": False}
    assert render(tmp_path, "identity", "Debian", without, shows)["refusals"] == []


def test_the_only_key_of_the_login_is_not_taken_out_of_use(tmp_path: Path) -> None:
    asked = {"stdout_lines": ["login ops", "sshd asks the directory"]}
    inputs = {"identity_ssh_keys": False, "__identity_locals": asked}
    shows = {"refusals": SHOWN["refusals"]}
    (line,) = render(tmp_path, "identity", "Debian", {**LDAP, **inputs}, shows)["refusals"]
    assert line == (
        "identity_ssh_keys: false would lock out ops, as whom Ansible logs in, with a key in the "
        "directory alone; put its key on the host first, into ~/.ssh/authorized_keys"
    )
    found = shown(tmp_path, "Debian", "13", **inputs, ansible_password="x")
    # Nothing is left of what sshd was asked to do, and sshd looks at all before it reads that.
    assert found["files"][SSHD]["state"] == "absent"
    (sshd,) = [one for one in found["units"] if one["name"] == "ssh.service"]
    assert sshd["reload_command"] == [
        "sh", "-c", "/usr/sbin/sshd -t && exec systemctl reload ssh.service"
    ]  # fmt: skip
    (other,) = re.findall(
        r"reload_command: .*sshd.*", (ROLES / "node_base/vars/main.yml").read_text()
    )
    assert "/usr/sbin/sshd -t && exec systemctl reload {{ __node_base_sshd_unit }}" in other


def filtered(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(result["files"][CONF][HIDDEN])
    users, groups = (parsed["nss"][f"filter_{kind}"] for kind in ("users", "groups"))
    return users.split(", "), groups.split(", ")


def test_a_name_of_the_host_is_not_looked_up_in_the_directory(tmp_path: Path) -> None:
    """The directory's key would open the local account, and sudo compares names of groups."""
    lines_of = ["directory low (10000)", "local ops", "local debian", "local root"]
    result = shown(
        tmp_path, "Debian", "13",
        __identity_locals={"stdout_lines": lines_of},
        identity_local_users=["service", "ops"],
        identity_local_groups=["operators", "hpc"],
    )  # fmt: skip
    users, groups = filtered(result)
    assert users == ["debian", "munge", "ops", "root", "service", "slurm"]
    # One that may log in is wanted from the directory.
    assert groups == [
        "adm", "admin", "docker", "lxd", "munge", "operators", "root", "slurm", "sudo", "wheel",
    ]  # fmt: skip


def test_a_group_of_administrators_is_no_group_of_people(tmp_path: Path) -> None:
    inputs = {**LDAP, "identity_login_groups": ["hpc", "Sudo", "wheel"]}
    shows = {"refusals": SHOWN["refusals"]}
    (line,) = render(tmp_path, "identity", "Debian", inputs, shows)["refusals"]
    assert line == (
        "identity_login_groups: sudo, wheel: a group of administrators on hosts, so that the "
        "directory's is not seen; name another group"
    )


@pytest.mark.parametrize("local", ["ops", "low"])
def test_a_local_user_with_a_number_of_the_directory_is_refused(tmp_path: Path, local: str) -> None:
    (task,) = [
        one
        for one in read_yaml(ROLES / "identity/tasks/preflight.yml")
        if "__identity_clashes" in one.get("vars", {})
    ]
    clash = ["directory low (10000)"] if local == "low" else []
    known = {
        "__identity_locals": {"stdout_lines": [*clash, f"local {local}"]},
        "identity_id_min": 10000,
        "identity_id_max": 20000,
    }
    play = {"hosts": "all", "gather_facts": False, "vars": known, "tasks": [task]}
    output = " ".join(played(tmp_path, {"h0": {}}, play).stdout.split())
    line = "this host has the local users low (10000); write a range without them"
    assert (line in output) is ("failed=1" in output) is bool(clash)


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
