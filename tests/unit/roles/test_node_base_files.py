# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node_base would write, rendered by Ansible for both families; the pod boots Debian only."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import role_render

from ansible_collections.baremetal.dgx.plugins.module_utils._host import kernel_arguments

ROLE = Path(__file__).resolve().parents[3] / "roles" / "node_base"
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n=x\n-----END PGP PUBLIC KEY BLOCK-----\n"
INPUTS = {
    "node_base_hostname": "dgx-01",
    "node_base_hosts_content": "10.0.0.1 dgx-01\n",
    "node_base_users": [
        {"name": "alice", "uid": 2001, "sudo": "nopasswd"},
        {"name": "bob", "uid": 2002, "sudo": "password", "state": "absent"},
    ],
    "node_base_sudo_rules": ["%ops ALL=(root) /usr/sbin/reboot"],
    "node_base_sshd_settings": {"AcceptEnv": ["LANG", "LC_*"], "UseDNS": True, "MaxSessions": ""},
    "node_base_apt_proxy": "http://10.0.0.9:3142",
    "node_base_repositories": [
        {"name": "site", "uris": ["https://repo.example.org/x"], "signed_by": KEY},
        {"name": "local", "uris": ["file:/srv/debs"], "trusted": True},
    ],
    "node_base_distribution_sources": False,
    "node_base_chrony_sources": [
        {"address": "10.0.0.1", "options": "iburst prefer"},
        {"address": "pool.example.org", "kind": "pool"},
    ],
    "node_base_chrony_allow": ["10.0.0.0/16"],
    "node_base_chrony_local_stratum": 10,
    "node_base_locale": "C.UTF-8",
    "node_base_environment": {"A": "it's $B"},
    "node_base_profile_script": "umask 027",
    "node_base_sysctl": {"vm.swappiness": 5, "kernel.panic": True, "vm.max_map_count": ""},
    "node_base_kernel_arguments": ["pci=realloc=off", "crashkernel=1G-:2048M"],
    "node_base_kernel_arguments_removed": ["quiet", "mitigations=*"],
}
SHOWN = {
    "package_files": "__node_base_package_files[ansible_facts['os_family']]",
    "files": "__node_base_all_files",
    "validations": "__node_base_validations | selectattr('when') | map(attribute='run') | list",
    "units": "__node_base_units | selectattr('when') | map(attribute='sync') | list",
    "probes": "__node_base_probes | selectattr('when') | map(attribute='probe') | list",
    "accounts": "__node_base_accounts",
    "refusals": "__node_base_refusals | selectattr('when') | map(attribute='say') | list",
    "sysctl": "__node_base_sysctl",
    "required": "__node_base_required_packages",
    "packages": "__node_base_present",
    "removed": "__node_base_sources_removed",
    "hosts": "lookup('ansible.builtin.template', role_path ~ '/templates/etc/hosts.j2')",
}


def render(folder: Path, family: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Let Ansible resolve the role's variables on a host of a family."""
    shown = role_render.render(folder, "node_base", family, inputs, SHOWN)
    for kind in ("package_files", "files"):
        shown[kind] = role_render.by_path(shown[kind])
    return shown


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return render(tmp_path_factory.mktemp("debian"), "Debian", INPUTS)


@pytest.fixture(scope="module")
def redhat(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    repository = {**INPUTS["node_base_repositories"][0], "signed_by": "/etc/pki/site"}
    inputs = {**INPUTS, "node_base_repositories": [repository]}
    return render(tmp_path_factory.mktemp("redhat"), "RedHat", inputs)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Everything empty that may be empty."""
    inputs = {
        "node_base_hosts_content": "10.0.0.1 dgx-01\n",
        "node_base_sshd_enabled": False,
        "node_base_chrony_enabled": False,
        "node_base_timezone": "",
        "node_base_cpu_governor": "",
        "node_base_transparent_huge_pages": "",
        "node_base_sysctl_recommended": False,
    }
    return render(tmp_path_factory.mktemp("bare"), "Debian", inputs)


def lines(entry: dict[str, Any]) -> list[str]:
    return [line for line in entry["content"].splitlines() if not line.startswith(("#", "//"))]


def test_the_same_on_both(debian: dict[str, Any], redhat: dict[str, Any]) -> None:
    for name in ("accounts", "refusals", "sysctl", "hosts"):
        assert debian[name] == redhat[name]
    assert debian["refusals"] == []


def test_family_paths(debian: dict[str, Any], redhat: dict[str, Any]) -> None:
    only_debian = set(debian["files"]) - set(redhat["files"])
    only_redhat = set(redhat["files"]) - set(debian["files"])
    assert only_debian == {"/etc/timezone", "/etc/default/locale", "/etc/chrony/chrony.conf"}
    assert only_redhat == {"/etc/chrony.conf"}
    assert [unit["name"] for unit in debian["units"]] == ["ssh.service", "chrony.service"]
    assert [unit["name"] for unit in redhat["units"]] == ["sshd.service", "chronyd.service"]
    assert redhat["units"][1]["restart_on"] == ["/etc/chrony.conf"]


def test_deb822(debian: dict[str, Any]) -> None:
    shown = lines(debian["package_files"]["/etc/apt/sources.list.d/baremetal-dgx.sources"])
    assert shown == [
        "",
        "Types: deb", "URIs: https://repo.example.org/x", "Suites: ./", "Signed-By:",
        " -----BEGIN PGP PUBLIC KEY BLOCK-----", " .", " abc", " =x",
        " -----END PGP PUBLIC KEY BLOCK-----",
        "",
        "Types: deb", "URIs: file:/srv/debs", "Suites: ./", "Trusted: yes",
    ]  # fmt: skip
    assert lines(debian["package_files"]["/etc/apt/apt.conf.d/90baremetal-dgx"]) == [
        'APT::Periodic::Enable "0";',
        'Acquire::http::Proxy "http://10.0.0.9:3142";',
        'Acquire::https::Proxy "http://10.0.0.9:3142";',
    ]


def test_yum_repository(redhat: dict[str, Any]) -> None:
    assert lines(redhat["package_files"]["/etc/yum.repos.d/baremetal-dgx.repo"]) == [
        "", "[site]", "name=site", "baseurl=https://repo.example.org/x", "enabled=1", "gpgcheck=1",
        "gpgkey=file:///etc/pki/site",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "name"),
    [("Debian", "/etc/apt/sources.list.d/dgx.sources"), ("RedHat", "/etc/yum.repos.d/rocky.repo")],
)
def test_other_sources_are_removed(tmp_path: Path, family: str, name: str) -> None:
    given = {**INPUTS, "node_base_sources_removed": [Path(name).name]}
    shown = render(tmp_path, family, given)
    assert shown["removed"] == [{"path": name, "state": "absent"}]
    assert shown["refusals"] == []
    own = {**INPUTS, "node_base_sources_removed": ["../passwd", "baremetal-dgx.repo", "x.repo"]}
    (line,) = render(tmp_path, family, own)["refusals"]
    assert line.startswith("node_base_sources_removed: ../passwd, baremetal-dgx.repo: not a file")


def test_firewalld_trusts_what_is_declared(tmp_path: Path) -> None:
    networks = {"node_base_firewalld_trusted": ["10.1.0.0/24", "fd00:1::/64"]}
    shown = render(tmp_path, "RedHat", {**INPUTS, **networks})
    zone = shown["files"]["/etc/firewalld/zones/trusted.xml"]["content"]
    assert re.findall('<source address="(.*)"/>', zone) == networks["node_base_firewalld_trusted"]
    assert ElementTree.fromstring(zone).get("target") == "ACCEPT"
    assert shown["units"][-1]["name"] == "firewalld.service"
    assert shown["required"][0] == "python3-dnf-plugin-versionlock"


def test_firewalld_is_left_alone(redhat: dict[str, Any]) -> None:
    assert not [path for path in redhat["files"] if "firewalld" in path]


@pytest.mark.parametrize(("family", "xauth"), [("Debian", "xauth"), ("RedHat", "xorg-x11-xauth")])
def test_windows_and_tickets_over_ssh(tmp_path: Path, family: str, xauth: str) -> None:
    path = "/etc/ssh/sshd_config.d/00-baremetal-dgx.conf"
    asked = ["node_base_sshd_x11_forwarding", "node_base_sshd_gssapi_authentication"]
    for given, word in ((True, "yes"), ("false", "no"), (False, "no")):
        shown = render(tmp_path, family, {**INPUTS, **dict.fromkeys(asked, given)})
        assert {f"X11Forwarding {word}", f"GSSAPIAuthentication {word}"} <= set(
            lines(shown["files"][path])
        )
        assert (xauth in shown["packages"]) is (word == "yes")
        expected = probe(shown, "sshd has the declared settings")["expect"]
        assert f"x11forwarding {word}" in expected
        assert ("gssapiauthentication yes" in expected) is (word == "yes")


def test_sshd(debian: dict[str, Any]) -> None:
    shown = lines(debian["files"]["/etc/ssh/sshd_config.d/00-baremetal-dgx.conf"])
    assert "PasswordAuthentication no" in shown
    assert "UseDNS yes" in shown
    assert [line for line in shown if line.startswith("AcceptEnv")] == [
        "AcceptEnv LANG", "AcceptEnv LC_*",
    ]  # fmt: skip
    assert not [line for line in shown if line.startswith("MaxSessions")]


def test_sudoers(debian: dict[str, Any]) -> None:
    entry = debian["files"]["/etc/sudoers.d/90-baremetal-dgx"]
    assert entry["mode"] == "0440"
    assert lines(entry) == [
        "alice ALL=(ALL:ALL) NOPASSWD: ALL",
        "%ops ALL=(root) /usr/sbin/reboot",
    ]
    assert debian["accounts"] == [
        {"name": "alice", "uid": 2001},
        {"name": "bob", "uid": 2002, "state": "absent"},
    ]


BOOTSTRAP = "/etc/sudoers.d/91-baremetal-dgx-bootstrap"
# Who logs in, what else the inventory says, and whose files of bootstrap go; "" is the old name.
BOOTSTRAPPED: list[tuple[str, dict[str, Any], set[str]]] = [
    ("root", {}, {"", "-bob", "-carol"}),
    ("alice", {}, {"", "-bob", "-carol"}),
    # The quick start: a login whose sudo is not declared, or that is not declared at all.
    ("dave", {}, {"-bob", "-carol"}),
    ("ops", {"ansible_user": "ops"}, {"-bob", "-carol"}),
    # sudo would ask, and Ansible has no answer.
    ("carol", {}, {"-bob"}),
    ("carol", {"ansible_become_password": "x"}, {"", "-bob", "-carol"}),
    ("root", {"ansible_user": "carol"}, {"-bob"}),
    ("", {}, {"-bob"}),
    ("root", {"node_base_users": [{"name": "dave", "uid": 2004}]}, set()),
]


def test_the_file_of_bootstrap_does_not_outlive_what_is_declared(tmp_path: Path) -> None:
    users = [
        {"name": "alice", "uid": 2001, "sudo": "nopasswd"},
        {"name": "bob", "state": "absent"},
        {"name": "carol", "uid": 2003, "sudo": "password"},
        {"name": "dave", "uid": 2004},
    ]
    hosts = {
        f"h{number}": {
            "node_base_users": users,
            "__node_base_accounts_plan": {"login": {"user": login, "key_count": 1}},
            **more,
        }
        for number, (login, more, _gone) in enumerate(BOOTSTRAPPED)
    }
    shown = role_render.render_many(
        tmp_path, "node_base", "Debian", hosts, {"files": SHOWN["files"]}
    )
    found = [role_render.by_path(shown[host]["files"]) for host in hosts]
    gone = [
        {path[len(BOOTSTRAP) :] for path, one in files.items() if one.get("state") == "absent"
         and path.startswith(BOOTSTRAP)}
        for files in found
    ]  # fmt: skip
    assert gone == [suffixes for *_who, suffixes in BOOTSTRAPPED]
    # The role's own file is in place before the other is gone.
    order = list(found[0])
    assert order.index("/etc/sudoers.d/90-baremetal-dgx") < order.index(f"{BOOTSTRAP}-carol")
    written = (ROLE.parents[1] / "playbooks/bootstrap.yml").read_text()
    assert f'path: "{BOOTSTRAP}-{{{{ __bootstrap_admin }}}}"' in written


# AppArmor's profile lets it read no file of the stage folder. It knows what the role writes.
CHRONYD = """\
#!/bin/sh
for word; do
  case $word in
  /*) echo "Could not open $word : Permission denied" >&2; exit 1 ;;
  -p|-f|--|''|'#'*|'server '*|'pool '*|'makestep 1.0 3'|rtcsync|'driftfile '*|'logdir '*) ;;
  'allow '*|'local stratum '*) ;;
  *) echo "Invalid directive: $word" >&2; exit 1 ;;
  esac
done
"""


@pytest.mark.parametrize("family", ["debian", "redhat"])
def test_chronyd_judges_what_its_profile_keeps_it_from_reading(
    request: pytest.FixtureRequest, tmp_path: Path, family: str
) -> None:
    rendered = request.getfixturevalue(family)
    (entry,) = [one for path, one in rendered["files"].items() if path.endswith("/chrony.conf")]
    (command,) = [one["command"] for one in rendered["validations"] if "chronyd" in one["command"]]
    words = [word.replace("%(stage)s", str(tmp_path)) for word in shlex.split(command)]

    def judged(content: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "chrony.conf").write_text(content)
        return subprocess.run(
            words, env={"PATH": path}, capture_output=True, text=True, check=False
        )

    (tmp_path / "chronyd").write_text(CHRONYD)
    (tmp_path / "chronyd").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert judged(entry["content"]).returncode == 0
    wrong = judged(entry["content"] + "makstep 1.0 3\n")
    assert wrong.returncode != 0
    assert "Invalid directive: makstep 1.0 3" in wrong.stderr


def test_chrony(redhat: dict[str, Any]) -> None:
    shown = lines(redhat["files"]["/etc/chrony.conf"])
    assert shown[:2] == ["server 10.0.0.1 iburst prefer", "pool pool.example.org iburst"]
    assert "driftfile /var/lib/chrony/drift" in shown
    assert "allow 10.0.0.0/16" in shown
    assert "local stratum 10 orphan" in shown


def test_sysctl(debian: dict[str, Any]) -> None:
    shown = lines(debian["files"]["/etc/sysctl.d/99-zz-baremetal-dgx.conf"])
    assert "vm.swappiness = 5" in shown
    assert "kernel.panic = 1" in shown
    assert "net.ipv4.conf.all.arp_ignore = 1" in shown
    assert "max_map_count" not in str(shown)


def test_environment(debian: dict[str, Any]) -> None:
    text = debian["files"]["/etc/profile.d/baremetal-dgx.sh"]["content"]
    done = subprocess.run(
        ["sh", "-c", f'{text}\necho "$A"; umask'], capture_output=True, text=True, check=True
    )
    assert done.stdout == "it's $B\n0027\n"


def test_hosts(debian: dict[str, Any]) -> None:
    shown = [line for line in debian["hosts"].splitlines() if line and not line.startswith("#")]
    assert shown == [
        "127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback", "10.0.0.1 dgx-01",
    ]  # fmt: skip


def test_governor_unit_is_enabled_by_its_link(debian: dict[str, Any]) -> None:
    name = "baremetal-dgx-cpu-governor.service"
    unit = debian["files"][f"/etc/systemd/system/{name}"]["content"]
    assert 'echo performance > "$$file"' in unit
    link = debian["files"][f"/etc/systemd/system/multi-user.target.wants/{name}"]
    assert link["state"] == "link"
    assert link["target"] == f"/etc/systemd/system/{name}"


def probe(shown: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in shown["probes"] if entry["name"] == name)


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("ro pci=realloc=off crashkernel=1G-:2048M", True),
        ("crashkernel=1G-:2048M ro pci=realloc=off\n", True),
        ("ro pci=realloc=offx crashkernel=1G-:2048M", False),
        ("ro xpci=realloc=off crashkernel=1G-:2048M", False),
        ("ro crashkernel=1G-:2048M", False),
        ("ro pci=realloc=off crashkernel=1G-:2048M quiet", False),
        ("mitigations=off pci=realloc=off crashkernel=1G-:2048M", False),
        ("xquiet mitigations pci=realloc=off crashkernel=1G-:2048M", True),
        ("pci=realloc=off crashkernel=1G-:2048M crashkernel=192M\n", False),
        ("crashkernel=192M crashkernel=1G-:2048M pci=realloc=off pci=noaer\n", True),
    ],
)
def test_the_kernels_own_words_are_judged(debian: dict[str, Any], line: str, good: bool) -> None:
    entry = probe(debian, "the kernel runs with the declared arguments")
    found = re.search(entry["expect"], line, re.M) and not re.search(entry["reject"], line, re.M)
    assert bool(found) is good
    assert entry["remedy"] == "reboot this node, or allow it with node_base_reboot_allowed: true"


def test_what_keeps_a_node_from_its_reboot_is_named(tmp_path: Path) -> None:
    serving = "dgx-01 is in service in Slurm (IDLE)"
    silent = "Slurm does not say whether a job may start here (timed out)"
    remedies = {
        serving: f"drain this node, {serving}, and run again",
        # Which takes a Slurm that answers.
        silent: f"{silent}; ask scontrol ping here, and run again",
        "": "look into the boot loader, a reboot did not bring them",
    }
    hosts = {
        f"h{number}": {
            **INPUTS,
            "node_base_reboot_allowed": True,
            "__node_base_kernel": {"running_steps": [], "in_service": why},
        }
        for number, why in enumerate(remedies)
    }
    shown = {"probes": SHOWN["probes"]}
    found = role_render.render_many(tmp_path, "node_base", "Debian", hosts, shown)
    name = "the kernel runs with the declared arguments"
    assert [probe(one, name)["remedy"] for one in found.values()] == list(remedies.values())


def test_arguments_of_one_name_are_judged_by_their_order(tmp_path: Path) -> None:
    huge = ["a=1", "hugepagesz=1G", "hugepages=8", "hugepagesz=2M", "hugepages=8"]
    inputs = {**INPUTS, "node_base_kernel_arguments": huge}
    shown = {"probes": SHOWN["probes"]}
    entry = probe(
        role_render.render(tmp_path, "node_base", "Debian", inputs, shown),
        "the kernel runs with the declared arguments",
    )
    for line, good in (
        (f"ro {' '.join(huge)}\n", True),
        (" x ".join(huge), True),
        (" ".join(huge[:3]), False),
        (" ".join(huge[2:] + huge[:2]), False),
        (f"{' '.join(huge)}0", False),
        # The last word of another name counts all the same.
        (f"{' '.join(huge)} a=2\n", False),
        (f"{' '.join(huge)} b=2\n", True),
    ):
        assert bool(re.search(entry["expect"], line, re.M)) is good, line


def test_verify_takes_the_last_word_for_the_names_that_the_module_does(tmp_path: Path) -> None:
    words = [one.replace("*", "x") for one in (*kernel_arguments._LISTS, "a.b=1", "hug=1", "r=1")]
    words.append("crashkernel=1G")
    hosts = {
        f"h{number}": {**INPUTS, "node_base_kernel_arguments": [word]}
        for number, word in enumerate(words)
    }
    shown = {"probes": SHOWN["probes"]}
    found = role_render.render_many(tmp_path, "node_base", "Debian", hosts, shown)
    for word, one in zip(words, found.values(), strict=True):
        entry = probe(one, "the kernel runs with the declared arguments")
        other = re.sub("=[^,]*", "=2", word)
        lines = (f"{word} {other}\n", f"x{other} {word}", f"ro {word} x{other}\n")
        for line in (*lines, f"{word} crashkernel=9M,high\n", f"{word} crashkernel=9M\n"):
            good = not kernel_arguments.missing(line.split(), [word])
            assert bool(re.search(entry["expect"], line, re.M)) is good, (word, line)


SSHD = """\
port 22
permitrootlogin without-password
passwordauthentication no
x11forwarding no
kbdinteractiveauthentication no
"""


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (SSHD, True),
        ("\n".join(reversed(SSHD.splitlines())), True),
        (SSHD.replace("without-", "prohibit-"), True),
        (SSHD.replace("passwordauthentication no", "passwordauthentication yes"), False),
        (SSHD.replace("permitrootlogin without-password", "permitrootlogin yes"), False),
        (SSHD.replace("kbdinteractiveauthentication no\n", ""), False),
    ],
)
def test_the_daemons_own_settings_are_judged(debian: dict[str, Any], text: str, good: bool) -> None:
    entry = probe(debian, "sshd has the declared settings")
    assert bool(re.search(entry["expect"], text, re.M)) is good


def test_what_is_empty_is_taken_away_or_left_alone(bare: dict[str, Any]) -> None:
    gone = {path for path, entry in bare["files"].items() if entry.get("state") == "absent"}
    assert gone == {
        "/etc/sudoers.d/90-baremetal-dgx",
        "/etc/ssh/sshd_config.d/00-baremetal-dgx.conf",
        "/etc/tmpfiles.d/baremetal-dgx.conf",
        "/etc/systemd/system/baremetal-dgx-cpu-governor.service",
        "/etc/systemd/system/multi-user.target.wants/baremetal-dgx-cpu-governor.service",
    }
    for path in ("/etc/localtime", "/etc/timezone", "/etc/chrony/chrony.conf"):
        assert path not in bare["files"]
    assert bare["validations"] == bare["units"] == bare["probes"] == []
    assert bare["sysctl"] == {}
    # an entry to be taken away carries nothing else that managed_files would refuse
    for path in gone:
        assert not {"content", "target"} & set(bare["files"][path])


# Keys that admit, whether there is a keytab, whether tickets are declared, and whether that ends
# the login. Enterprise Linux has GSSAPIAuthentication on, and the role turns it off.
LOGINS = [
    (0, False, False, True), (1, False, False, False), (None, False, False, False),
    (0, True, False, True), (0, False, True, True), (0, True, True, False),
]  # fmt: skip


def test_the_login_of_the_run_is_not_locked_out(tmp_path: Path) -> None:
    hosts = {
        f"h{number}": {
            "node_base_sshd_gssapi_authentication": declared,
            "__node_base_accounts_plan": {
                "login": {"user": "ops", "key_count": keys, "keytab": keytab}
            },
        }
        for number, (keys, keytab, declared, _refused) in enumerate(LOGINS)
    }
    shown = role_render.render_many(
        tmp_path, "node_base", "Debian", hosts, {"refusals": SHOWN["refusals"]}
    )
    found = ["would lock ops out" in "\n".join(one["refusals"]) for one in shown.values()]
    assert found == [refused for *_rest, refused in LOGINS]


# What configure has seen: the reboot is needed, and nothing is in its way.
BEFORE = {
    "changed": True, "actions": ["update-grub"], "missing": ["dgx_test=1"], "unwanted": [],
    "reboot_needed": True, "running_steps": [], "in_service": "",
}  # fmt: skip
SCONTROL = """\
#!/bin/sh
case "$*" in
*"show node"*) echo "NodeName=$(hostname -s) State=$(cat "$(dirname "$0")/state")" ;;
esac
"""
REBOOTS = "with local connection would reboot the control node"


def service(folder: Path, before: dict[str, Any] | None = None) -> str:
    """Run the tag node_base_service on this machine, whose boot loader is not asked for more."""
    play = {
        "hosts": "all",
        "gather_facts": False,
        "pre_tasks": [{"set_fact": {"__node_base_kernel": before}, "tags": "always"}]
        if before
        else [],
        "roles": ["baremetal.dgx.node_base"],
    }
    values = {
        "node_base_sshd_enabled": False,
        "node_base_chrony_enabled": False,
        "node_base_kernel_arguments": ["dgx_test=1"],
        "node_base_reboot_allowed": True,
    }
    # Ansible refuses to reboot over a local connection, so that is what a reboot looks like.
    done = role_render.played(
        folder, {"dgx-01": values}, play, "--check", "--tags=node_base_service",
        PATH=f"{folder}:{os.environ['PATH']}",
    )  # fmt: skip
    assert (done.returncode == 0) is (REBOOTS not in done.stdout), done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_jobs_are_looked_for_immediately_before_the_reboot(tmp_path: Path) -> None:
    for name, text in (("update-grub", "#!/bin/sh\n"), ("scontrol", SCONTROL), ("squeue", "")):
        (tmp_path / name).write_text(text or "#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "state").write_text("IDLE+DRAIN")
    # The tag alone knows nothing of what configure has seen.
    assert REBOOTS in service(tmp_path)
    (tmp_path / "slurmstepd").symlink_to("/bin/sleep")
    sleep = str(tmp_path / "slurmstepd")
    with subprocess.Popen(["slurmstepd: [7.batch]", "60"], executable=sleep) as step:
        try:
            assert REBOOTS not in service(tmp_path, BEFORE)
        finally:
            step.kill()
    (tmp_path / "state").write_text("IDLE")
    assert REBOOTS not in service(tmp_path, BEFORE), "a job may start meanwhile"
