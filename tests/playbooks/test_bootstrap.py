# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""bootstrap on an ssh of the test's own, which notes what it was called with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_upgrade_nodes import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A stand-in for ssh, and nodes behind another machine; the head is the control machine."""
    made = Site(tmp_path)
    ssh = tmp_path / "bin/ssh"
    ssh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/calls\n')
    ssh.chmod(0o755)
    with made.inventory() as described:
        del described["all"]["vars"]["ansible_connection"]
        cluster = described["all"]["children"]["cluster"]
        del cluster["vars"]["ansible_connection"]
        cluster["children"]["slurm_controllers"]["vars"]["ansible_connection"] = "local"
        cluster["children"]["gpu_nodes"]["vars"] |= {
            "ansible_host": "fd00::{{ inventory_hostname[-1] }}",
            "ansible_user": "admin",
            "ansible_port": 2222,
            "ansible_password": "not tried here",
            "ansible_ssh_args": "-F site.conf",
            "ansible_ssh_extra_args": "-J jump-01",
            "ansible_ssh_private_key_file": "/srv/key",
        }
    return made


def test_the_login_by_key_takes_the_way_of_ansible(site: Site) -> None:
    rc, output = site.run("-e", "bootstrap_accept_host_keys=true", playbook="bootstrap")
    assert rc == 0, output
    calls = sorted((site.folder / "calls").read_text().splitlines())
    assert [call.partition(" -- ")[2].split()[0] for call in calls] == [
        f"fd00::{number}" for number in range(1, 5)
    ]
    for call in calls:
        for words in (
            *("-F site.conf", "-J jump-01", "-o Port=2222", '-o User="admin"'),
            *('-o IdentityFile="/srv/key"', "-o StrictHostKeyChecking=accept-new"),
        ):
            assert f" {words} " in call


def test_a_login_that_nothing_names_is_not_taken_for_root(site: Site) -> None:
    with site.inventory() as described:
        del described["all"]["children"]["cluster"]["children"]["gpu_nodes"]["vars"]["ansible_user"]
    options = ("--check", "-e", '{"target": "dgx-01", "bootstrap_public_keys": ["ssh-ed25519 x"]}')
    # ssh's own choice may do.
    rc, output = site.run(*options, playbook="bootstrap")
    assert rc == 0, output
    assert "User=" not in (site.folder / "calls").read_text()
    ssh = site.folder / "bin/ssh"
    ssh.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    rc, output = site.run(*options, playbook="bootstrap")
    assert rc != 0, output
    assert "ansible_user: missing, so that it is not known who shall log in by key" in output
    rc, output = site.run(*options, "-u", "ops", playbook="bootstrap")
    assert rc == 0, output
    assert "would log in as ops with a password, install Python, and admit ops by key" in output


UNKNOWN = """\
No ED25519 host key is known for [fd00::1]:2222 and you have requested strict checking.
Host key verification failed."""
CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /root/.ssh/known_hosts:1
Host key verification failed."""


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (UNKNOWN, "is unknown: add it to known_hosts, or, in a network that you trust, write -e "),
        (CHANGED, "has changed: if the machine was installed again, remove the old one with "),
    ],
)
def test_a_host_key_that_ssh_refuses_is_named_with_its_remedy(
    site: Site, text: str, remedy: str
) -> None:
    ssh = site.folder / "bin/ssh"
    ssh.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 255\n")
    rc, output = site.run("-e", "target=dgx-01", playbook="bootstrap")
    assert rc != 0
    assert f"the host key of fd00::1 {remedy}" in output
    words = {UNKNOWN: "bootstrap_accept_host_keys=true", CHANGED: "ssh-keygen -R '[fd00::1]:2222'"}
    assert words[text] in output
    assert "Install Python" not in output
