# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""bootstrap on an ssh of the test's own, which notes what it was called with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from test_upgrade_nodes import ROOT, Site

from ansible_collections.baremetal.dgx.plugins.module_utils._host.packages.plan import is_locked


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


# Debian 12: dpkg, and apt for the lists.
LOCKS = {
    "dpkg": "dpkg: error: dpkg frontend lock was locked by another process with pid 7",
    "update": "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)",
    "install": "E: Unable to lock directory /var/cache/apt/archives/",
}
# Fails as often as a file says, with the lines of another.
TOOL = """\
#!/bin/sh
did=dpkg
for word; do case $word in update|install) did=$word ;; esac; done
echo "${{0##*/}} $*" >> {0}/calls
left=$(cat {0}/$did.left)
[ "$left" = 0 ] && exit 0
echo $((left - 1)) > {0}/$did.left
cat {0}/$did.text >&2
exit 100
"""


def installed(folder: Path, left: dict[str, int], texts: dict[str, str]) -> tuple[int, str, str]:
    """Run bootstrap's script where Python is missing; status, output and calls."""
    plays = yaml.safe_load((ROOT / "playbooks/bootstrap.yml").read_text())
    tasks = [
        task for play in plays for one in play.get("tasks", []) for task in one.get("block", [])
    ]
    (script,) = (task["ansible.builtin.raw"] for task in tasks if "ansible.builtin.raw" in task)
    (folder / "bin").mkdir()
    # 20 seconds have passed whenever it is asked for.
    clock = f"#!/bin/sh\necho x >> {folder}/clock\necho $(($(wc -l < {folder}/clock) * 20))\n"
    tools = {"dpkg": TOOL.format(folder), "apt-get": TOOL.format(folder), "date": clock,
             "sleep": "#!/bin/sh\n"}  # fmt: skip
    for name, text in tools.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    for name in ("cat", "grep", "wc"):
        (folder / "bin" / name).symlink_to(f"/usr/bin/{name}")
    for name in LOCKS:
        (folder / f"{name}.left").write_text(str(left.get(name, 0)))
        (folder / f"{name}.text").write_text(texts[name])
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{folder}/bin"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, (folder / "calls").read_text()


@pytest.mark.parametrize("name", LOCKS)
def test_bootstrap_waits_for_a_package_tool_at_work(tmp_path: Path, name: str) -> None:
    assert is_locked(LOCKS[name])
    rc, output, calls = installed(tmp_path, {name: 2}, LOCKS)
    assert (rc, output.split()[-1:]) == (0, ["bootstrap-changed"])
    (configured,) = {line for line in calls.splitlines() if line.startswith("dpkg ")}
    assert configured == "dpkg --configure -a --force-confdef --force-confold"
    assert len(calls.splitlines()) == 5


@pytest.mark.parametrize("name", LOCKS)
def test_bootstrap_says_what_it_waited_for_in_vain(tmp_path: Path, name: str) -> None:
    rc, output, calls = installed(tmp_path, {name: 100}, LOCKS)
    assert (rc, output.strip()) == (1, LOCKS[name])
    # 300 seconds, by the clock of this test.
    assert 15 <= len(calls.splitlines()) <= 18


def test_bootstrap_does_not_wait_for_anything_else(tmp_path: Path) -> None:
    broken = {
        **LOCKS,
        "update": "E: The repository 'http://x bookworm Release' has no Release file",
    }
    rc, output, calls = installed(tmp_path, {"update": 9}, broken)
    assert (rc, output.strip()) == (1, broken["update"])
    assert len(calls.splitlines()) == 2
