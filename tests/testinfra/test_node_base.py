# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_base as seen from outside, after the molecule scenario `default` has converged.

What the role must refuse is run as a user would run it, with ansible-playbook.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from .conftest import STATE, node

NODES = ("nb-trixie", "nb-bookworm", "nb-bare")
WORK = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "/nonexistent"))

pytestmark = pytest.mark.skipif(
    not (WORK / "keys").is_dir(), reason="needs the molecule scenario default"
)


@dataclass(frozen=True)
class Run:
    """How a playbook ended on one host."""

    failed: bool
    changed: int
    text: str


def playbook(name: str, target: str, *options: str, **variables: Any) -> Run:
    """Run one of the collection's playbooks; its output has its line breaks folded."""
    done = subprocess.run(
        [
            "ansible-playbook",
            f"--inventory={WORK / 'inventory'}",
            f"--extra-vars={json.dumps({'target': target, **variables})}",
            *options,
            f"baremetal.dgx.{name}",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    recap = re.search(rf"^{target} +:.* changed=(\d+) .* failed=(\d+)", done.stdout, re.M)
    text = " ".join((done.stdout + done.stderr).split())
    # What the inventory shows to be wrong is refused before any host is asked.
    assert recap or "no host was touched" in text, text
    return Run(done.returncode != 0, int(recap[1]) if recap else 0, text)


def login(name: str, user: str, key: str, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command over a new SSH login of a user with a key of this scenario."""
    address = node(name).backend.host.name
    return subprocess.run(
        [
            "ssh", "-F", str(STATE / "ssh_config"), "-i", str(WORK / "keys" / key),
            "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "ControlPath=none",
            "-o", "BatchMode=yes", "-o", f"User={user}", address, command,
        ],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


@pytest.fixture(params=NODES)
def host(request: pytest.FixtureRequest) -> Host:
    return node(request.param)


def name_of(host: Host) -> str:
    return host.backend.host.name


# What was declared is there


def test_names(host: Host) -> None:
    name = name_of(host)
    assert host.check_output("hostname") == name
    assert host.file("/etc/hostname").content_string.strip() == name
    hosts = host.file("/etc/hosts").content_string
    assert re.search(r"^127\.0\.0\.1\s+localhost", hosts, re.M)
    assert "127.0.1.1" not in hosts
    for other, address in zip(NODES, (11, 12, 13), strict=True):
        assert host.check_output(f"getent hosts {other}").split()[0] == f"10.78.21.{address}"


def test_accounts(host: Host) -> None:
    alice, bob = host.user("alice"), host.user("bob")
    assert (alice.uid, alice.gid, alice.shell, alice.home) == (
        2001,
        2001,
        "/bin/bash",
        "/home/alice",
    )
    assert "operators" in alice.groups
    assert alice.gecos == "Alice Example"
    assert (bob.uid, bob.group, bob.shell, bob.home) == (
        2002,
        "research",
        "/bin/sh",
        "/srv/homes/bob",
    )
    for path, owner in (("/home/alice", "alice"), ("/srv/homes/bob", "bob")):
        assert host.file(path).mode == 0o700
        assert host.file(path).user == owner
        assert host.file(f"{path}/.bashrc").exists
        assert host.file(f"{path}/.ssh/authorized_keys").mode == 0o600
        assert host.file(f"{path}/.ssh/authorized_keys").user == owner


def test_users_log_in_with_their_keys_only(host: Host) -> None:
    name = name_of(host)
    assert login(name, "alice", "alice", "id -un").stdout.strip() == "alice"
    assert login(name, "bob", "bob", "id -un").stdout.strip() == "bob"
    assert login(name, "alice", "unknown", "true").returncode == 255
    assert login(name, "alice", "bob", "true").returncode == 255


def test_sudo(host: Host) -> None:
    name = name_of(host)
    assert login(name, "alice", "alice", "sudo -n id -u").stdout.strip() == "0"
    assert login(name, "bob", "bob", "sudo -n id -u").returncode != 0
    assert host.file("/etc/sudoers.d/90-baremetal-dgx").mode == 0o440


def test_ssh_daemon(host: Host) -> None:
    settings = host.check_output("/usr/sbin/sshd -T").splitlines()
    for line in (
        "passwordauthentication no",
        "kbdinteractiveauthentication no",
        "x11forwarding no",
        "maxstartups 100:30:400",
        "clientaliveinterval 60",
    ):
        assert line in settings
    # the daemon that runs, not the one that could be started from the files
    offered = subprocess.run(
        [
            "ssh", "-F", str(STATE / "ssh_config"), "-o", "PubkeyAuthentication=no",
            "-o", "BatchMode=yes", "-o", "ControlPath=none", name_of(host), "true",
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Permission denied (publickey)" in offered.stderr


def test_packages(host: Host) -> None:
    assert host.package("rsync").is_installed
    assert host.package("chrony").is_installed
    assert not host.package("systemd-timesyncd").is_installed
    assert host.check_output("apt-mark showhold") == "rsync"
    assert (
        host.check_output("apt-config dump APT::Periodic::Enable") == 'APT::Periodic::Enable "0";'
    )


def test_environment_and_limits(host: Host) -> None:
    name = name_of(host)
    shown = login(name, "alice", "alice", "bash -lc 'echo \"$NCCL_IB_HCA $QUOTED\"'")
    assert shown.stdout.strip() == "=mlx5_0 it's $HOME"
    assert host.check_output("systemctl show --property=DefaultLimitMEMLOCK").endswith("=infinity")
    # The pod's machine cannot raise a hard limit; PAM must at least not refuse the login for it.
    assert (
        "memlock unlimited"
        in host.file("/etc/security/limits.d/90-baremetal-dgx.conf").content_string
    )


def test_kernel_parameters(host: Host) -> None:
    assert host.sysctl("vm.swappiness") == 10
    assert host.sysctl("net.ipv4.conf.all.arp_announce") == 2
    text = host.file("/etc/sysctl.d/99-zz-baremetal-dgx.conf").content_string
    assert "vm.swappiness = 10" in text
    # an empty value takes a recommended one out
    assert "max_map_count" not in text


def test_time(host: Host) -> None:
    assert host.file("/etc/localtime").linked_to == "/usr/share/zoneinfo/Etc/UTC"
    assert "server 10.78.21.1 iburst" in host.file("/etc/chrony/chrony.conf").content_string
    for path in ("/etc/default/locale", "/etc/locale.conf"):
        assert host.file(path).content_string == "LANG=C.UTF-8\n"


def test_every_file_says_that_it_is_managed(host: Host) -> None:
    paths = host.check_output(
        "find /etc -xdev -type f '(' -name '*baremetal-dgx*' -o -name chrony.conf ')'"
    ).split()
    assert len(paths) >= 8
    for path in paths:
        assert "anaged" in host.file(path).content_string, path


def test_systemd_is_content(host: Host) -> None:
    assert host.check_output("systemctl --failed --no-legend --plain") == ""


# What cannot succeed is refused, and nothing is changed

# One run tells every mistake of a kind.
REFUSALS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "accounts": (
        {
            "node_base_users": [
                {"name": "mallory", "uid": 2001},
                {"name": "bob", "uid": 2999},
                {"name": "carol", "state": "absent", "remove_home": True},
                {"name": "root", "state": "absent"},
                {"name": "alice", "ssh_keys": ["no key"]},
            ],
            "node_base_groups": [{"name": "thieves", "gid": 3000}],
        },
        [
            "user mallory: uid 2001 belongs to user alice",
            "user bob: exists with uid 2002, the inventory says 2999",
            "user carol: remove_home would delete /home/carol .* node_base_home_removal_allowed",
            "user root: uid 0 cannot be removed",
            r"user alice: ssh_keys\[0\] is not an SSH public key",
            "group thieves: gid 3000 belongs to group research",
        ],
    ),
    "files that their programs cannot read": (
        {
            "node_base_sudo_rules": ["alice ALL=(ALL NOPASSWD ALL"],
            "node_base_sshd_settings": {"NoSuchKeyword": 1},
            "node_base_chrony_settings": ["nonsense"],
        },
        ["nothing was replaced", "visudo -c", "NoSuchKeyword", "chronyd -p"],
    ),
    "values": (
        {
            "node_base_hostname": "Bad_Name",
            "node_base_timezone": "../../etc/passwd",
            "node_base_environment": {"1a": "x"},
            "node_base_repositories": [{"name": "theirs", "uris": ["http://192.0.2.1/x"]}],
        },
        [
            "node_base_hostname: Bad_Name is not",
            r"node_base_timezone: \.\./",
            "node_base_environment: .* 1a",
            "node_base_repositories: no signed_by in theirs",
            "no host was touched",
        ],
    ),
    "values that only the run can judge": (
        {"node_base_sshd_permit_root_login": "no", "node_base_hosts_file": "/nonexistent"},
        [
            "node_base_sshd_permit_root_login: no would end the very login",
            "node_base_hosts_file: there is no /nonexistent",
        ],
    ),
    "a removal that takes others along": (
        {"node_base_packages_removed": ["dbus"]},
        ["would remove .*libpam-systemd"],
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(name: str) -> None:
    variables, message = REFUSALS[name]
    run = playbook("prepare_nodes", "nb-trixie", **variables)
    assert run.failed
    assert run.changed == 0, run.text
    missing = [pattern for pattern in message if not re.search(pattern, run.text)]
    assert not missing, run.text


@pytest.fixture
def worthless_keys() -> Iterator[None]:
    """sshd -T reads the files, so the running daemon need not be touched."""
    path = "/etc/ssh/sshd_config.d/00-a.conf"
    host = node("nb-trixie")
    host.check_output(f"echo AuthorizedKeysFile /nonexistent > {path}")
    yield
    host.check_output(f"rm {path}")
    # Files of the daemon came and went: the next run reloads it, whatever else it is about.
    assert not playbook("prepare_nodes", "nb-trixie").failed


@pytest.mark.usefixtures("worthless_keys")
def test_no_user_is_locked_out() -> None:
    run = playbook("prepare_nodes", "nb-trixie")
    assert run.failed
    assert "would lock root out" in run.text
    assert run.changed == 0


KERNEL_ARGUMENTS = {
    "node_base_kernel_arguments": ["iommu=pt", "pci=realloc=off"],
    "node_base_kernel_arguments_removed": ["quiet"],
}


def test_kernel_arguments_wait_for_consent() -> None:
    host = node("nb-trixie")
    for changed in (1, 0):
        run = playbook("prepare_nodes", "nb-trixie", **KERNEL_ARGUMENTS)
        assert run.failed
        assert "reboot this node, or allow it with node_base_reboot_allowed: true" in run.text
        assert run.changed == changed, run.text
    line = host.file("/boot/grub/grub.cfg").content_string.split()
    assert line == ["linux", "/vmlinuz", "root=/dev/sda", "ro", "iommu=pt", "pci=realloc=off"]
    marker = host.file("/run/baremetal-dgx/reboot-required").content_string
    assert "missing kernel argument iommu=pt" in marker
    assert "unwanted kernel argument quiet" in marker


def test_jobs_are_not_rebooted_away() -> None:
    host = node("nb-trixie")
    title = "slurmstepd: [42.batch]"
    host.check_output("ln -sf /bin/sleep /run/slurmstepd")
    host.check_output(f"systemd-run --unit=step bash -c 'exec -a \"{title}\" /run/slurmstepd 600'")
    before = host.check_output("cat /proc/sys/kernel/random/boot_id")
    run = playbook("prepare_nodes", "nb-trixie", **KERNEL_ARGUMENTS, node_base_reboot_allowed=True)
    host.check_output("systemctl stop step")
    assert run.failed
    assert "drain this node, Slurm steps run here (42.batch), and run again" in run.text
    assert host.check_output("cat /proc/sys/kernel/random/boot_id") == before


def power_on(stopped: threading.Event) -> None:
    """Start the container of nb-trixie as soon as its systemd has ended, as a machine would."""
    pod = [STATE.parents[1] / "virtual_pod" / "pod", "podman"]
    container = f"{STATE.name}-nb-trixie"
    inspect = [*pod, "inspect", "--format", "{{.State.Running}}", container]
    while not stopped.wait(0.5):
        running = subprocess.run(inspect, capture_output=True, text=True, check=False)
        if running.stdout.strip() == "false":
            subprocess.run([*pod, "start", container], capture_output=True, check=False)


def test_with_consent_the_node_reboots_once() -> None:
    done = threading.Event()
    machine = threading.Thread(target=power_on, args=(done,))
    machine.start()
    try:
        run = playbook(
            "prepare_nodes", "nb-trixie", **KERNEL_ARGUMENTS, node_base_reboot_allowed=True
        )
        assert not run.failed, run.text
        assert run.changed == 1, run.text
        host = node("nb-trixie")
        assert "iommu=pt pci=realloc=off" in host.file("/proc/cmdline").content_string
        assert not host.file("/run/baremetal-dgx/reboot-required").exists
        # what holds now also holds after the boot
        assert host.sysctl("net.ipv4.conf.all.arp_ignore") == 1
        assert host.check_output("systemctl --failed --no-legend --plain") == ""
        run = playbook("prepare_nodes", "nb-trixie", **KERNEL_ARGUMENTS)
        assert not run.failed, run.text
        assert run.changed == 0, run.text
    finally:
        done.set()
        machine.join()


def test_arguments_that_are_no_longer_declared_go() -> None:
    run = playbook("prepare_nodes", "nb-trixie")
    assert not run.failed, run.text
    assert run.changed == 1
    grub = node("nb-trixie").file("/boot/grub/grub.cfg").content_string
    assert grub.split() == ["linux", "/vmlinuz", "root=/dev/sda", "ro", "quiet"]


# What was changed by hand is found, and repaired


def test_changes_by_hand_are_repaired_without_a_restart() -> None:
    host = node("nb-bookworm")
    before = host.check_output("systemctl show --property=MainPID ssh")
    host.check_output("sysctl -w net.ipv4.conf.all.arp_ignore=0")
    host.check_output("echo x >> /etc/ssh/sshd_config.d/00-baremetal-dgx.conf")
    host.check_output("usermod --shell /bin/sh alice")
    run = playbook("prepare_nodes", "nb-bookworm", node_base_users=USERS_OF_ALICE)
    assert not run.failed, run.text
    assert run.changed >= 3
    assert host.sysctl("net.ipv4.conf.all.arp_ignore") == 1
    assert host.user("alice").shell == "/bin/bash"
    assert host.check_output("systemctl show --property=MainPID ssh") == before


USERS_OF_ALICE = [{"name": "alice", "uid": 2001, "shell": "/bin/bash", "sudo": "nopasswd"}]


@pytest.fixture
def overriding_file() -> Iterator[None]:
    """A foreign file that sshd reads before ours."""
    path = "/etc/ssh/sshd_config.d/00-a.conf"
    host = node("nb-bookworm")
    host.check_output(f"echo PasswordAuthentication yes > {path}")
    yield
    host.check_output(f"rm {path}")


@pytest.mark.usefixtures("overriding_file")
def test_verify_names_what_another_file_overrides() -> None:
    run = playbook("prepare_nodes", "nb-bookworm", "--tags=node_base_verify")
    assert run.failed
    assert "sshd has the declared settings" in run.text
    assert "look for the keyword above the Include" in run.text


def test_a_killed_package_manager_is_helped() -> None:
    host = node("nb-trixie")
    host.check_output(
        "cd /tmp && apt-get -qq download jq libjq1 libonig5 && dpkg --unpack ./libonig5*.deb"
    )
    assert "iU" in host.check_output("dpkg -l libonig5")
    run = playbook("prepare_nodes", "nb-trixie")
    assert not run.failed, run.text
    assert host.check_output("dpkg-query -W -f '${db:Status-Abbrev}' libonig5").strip() == "ii"


# Users go


def test_a_user_with_processes_stays() -> None:
    host = node("nb-trixie")
    host.check_output("systemd-run --unit=busy --uid=carol sleep 600")
    gone = [{"name": "carol", "state": "absent"}]
    run = playbook("prepare_nodes", "nb-trixie", node_base_users=gone)
    host.check_output("systemctl stop busy")
    assert run.failed
    assert re.search(r"user carol: still has processes \(\d+ sleep\)", run.text)
    assert host.user("carol").exists


def test_a_user_goes_with_consent() -> None:
    host = node("nb-trixie")
    assert host.file("/home/carol/.bashrc").exists
    assert "carol ALL" in host.file("/etc/sudoers.d/90-baremetal-dgx").content_string
    gone = [{"name": "carol", "state": "absent", "remove_home": True}]
    for changed in (True, False):
        run = playbook(
            "prepare_nodes", "nb-trixie", node_base_users=gone, node_base_home_removal_allowed=True
        )
        assert not run.failed, run.text
        assert bool(run.changed) is changed
    assert not host.user("carol").exists
    assert not host.group("carol").exists
    assert not host.file("/home/carol").exists
    assert not host.file("/etc/sudoers.d/90-baremetal-dgx").exists
    # who is not named is left alone
    assert host.user("alice").exists


# Bootstrap


def test_bootstrap_again_changes_nothing() -> None:
    run = playbook("bootstrap", "nb-bare")
    assert not run.failed
    assert run.changed == 0


def test_bootstrap_makes_an_administrator(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts"
    inventory.write_text("nb-trixie ansible_user=dgxadmin bootstrap_user=root\n")
    for changed in (True, False):
        run = playbook("bootstrap", "nb-trixie", f"--inventory={inventory}")
        assert not run.failed, run.text
        assert bool(run.changed) is changed
    host = node("nb-trixie")
    assert host.user("dgxadmin").uid < 1000
    assert host.check_output("runuser -u dgxadmin -- sudo -n id -u") == "0"


def test_bootstrap_trusts_an_unknown_host_key_only_by_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "known_hosts"
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "true")
    files = f"-o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null"
    run = playbook("bootstrap", "nb-bare", ansible_ssh_common_args=files)
    assert run.failed
    assert "the host key of 10.78.21.13 is unknown" in run.text
    assert not known.exists()
    for changed in (1, 0):
        run = playbook(
            "bootstrap", "nb-bare", ansible_ssh_common_args=files, bootstrap_accept_host_keys=True
        )
        assert not run.failed, run.text
        assert run.changed == changed
    found = subprocess.run(["ssh-keygen", "-F", "10.78.21.13", "-f", known], check=False)
    assert found.returncode == 0
    # another machine under the same address is never accepted
    unknown = (WORK / "keys" / "unknown.pub").read_text().split()[:2]
    known.write_text(f"10.78.21.13 {' '.join(unknown)}\n")
    run = playbook(
        "bootstrap", "nb-bare", ansible_ssh_common_args=files, bootstrap_accept_host_keys=True
    )
    assert run.failed
    assert "the host key of 10.78.21.13 has changed" in run.text
