# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""apply_nodes as a whole, on an example inventory and an ssh that answers as nodes do."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NODES = [f"dgx-{number:02d}" for number in range(1, 13)]
# Keeps what it is sent, by node, and lacks what it was not sent; files say how else it behaves.
SSH = """\
#!{python}
import json, os, sys, time
folder, words, read = "{folder}", sys.argv[1:], sys.stdin.buffer
if words == ["-V"]:
    sys.exit(0)
name = words[words.index("--") + 1].rpartition(".")[2]
name = "dgx-%02d" % (int(name) - 100)
how = ""
if os.path.exists(folder + "/how-" + name):
    how = open(folder + "/how-" + name).read()
if how == "dead":
    os._exit(255)
if how == "hangs":
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)
if how == "no python":
    print("sh: 1: python3: not found", file=sys.stderr)
    sys.exit(127)
program = read.read(int(read.readline()))
head = json.loads(read.readline())
place = os.path.join(folder, "nodes", name)
os.makedirs(place, exist_ok=True)
with open(folder + "/asked", "a") as kept:
    print(name, *head["sizes"], "check" if head["check"] else "", file=kept)
for part, size in head["sizes"].items():
    open(os.path.join(place, part), "wb").write(read.read(size))
    open(os.path.join(place, part + ".digest"), "w").write(head["digests"][part])
lacks = []
for part, digest in head["digests"].items():
    path = os.path.join(place, part + ".digest")
    if not os.path.exists(path) or open(path).read() != digest:
        lacks.append(part)
ran = dict(ok=9, changed=0, skipped=1, changes=[], failed=[])
if how == "fails":
    ran["failed"] = [dict(task="Start slurmd", msg="it is dead")]
text = json.dumps(dict(lacks=lacks) if lacks else dict(ran=ran))
print(text[:20] if how == "torn" else text)
"""
SECRETS = {
    "slurm_base_key": "k" * 40,
    "slurm_base_jwt_key": "j" * 40,
    "slurm_database_password": "database-word-is-long",
    "grafana_admin_password": "grafana-word-is-long",
    "cephfs_keys": {"node": "AQnode" + "A" * 34, "admin": "AQadmin" + "A" * 33},
    "monitoring_access": {"username": "m", "password": "monitoring-word-is-long"},
}


class Site:
    """An example inventory, its nodes, and what they were sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory = folder / "inventory"
        ignored = shutil.ignore_patterns(".dgx")
        shutil.copytree(ROOT / "inventories/core_12", self.inventory, ignore=ignored)
        ssh = folder / "ssh"
        ssh.write_text(SSH.format(python=sys.executable, folder=folder))
        ssh.chmod(0o755)
        self.say("all", ansible_ssh_executable=str(ssh), **SECRETS)
        self.say(
            "slurm_controllers",
            ansible_connection="local",
            ansible_python_interpreter=sys.executable,
            slurm_lock_folder=str(folder / "locks"),
        )

    def say(self, group: str, **variables: Any) -> None:
        path = self.inventory / "group_vars" / group / "zz.yml"
        known = yaml.safe_load(path.read_text()) if path.exists() else {}
        path.write_text(yaml.safe_dump({**known, **variables}))

    def how(self, **nodes: str) -> None:
        for name, how in nodes.items():
            (self.folder / f"how-{name.replace('_', '-')}").write_text(how)

    def start(self, *arguments: str, **variables: Any) -> subprocess.Popen[str]:
        given = {"engine": "local", "apply_limit_s": 5, **variables}
        line = [str(Path(sys.executable).with_name("ansible-playbook")),
                str(ROOT / "playbooks/apply_nodes.yml"), "-i", str(self.inventory),
                "-e", json.dumps(given), *arguments]  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE")}
        collections = str(ROOT / ".cache" / "collections")
        env = {**kept, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_COLLECTIONS_PATH": collections}
        return subprocess.Popen(
            line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *arguments: str, **variables: Any) -> tuple[int, str]:
        with self.start(*arguments, **variables) as running:
            output = running.communicate()[0]
        return running.returncode, re.sub(r"(\s|\\n)+", " ", output)

    def asked(self) -> list[str]:
        path = self.folder / "asked"
        lines = sorted(path.read_text().splitlines()) if path.exists() else []
        path.write_text("")
        return [line.rstrip() for line in lines]

    def values(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "nodes" / node / "values").read_text())
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_each_node_gets_its_own_values_once(site: Site) -> None:
    rc, output = site.run()
    assert rc == 0, output
    assert "12 of 12 nodes applied their roles, 0 changed" in output
    asked = [line for name in NODES for line in (name, f"{name} runtime values")]
    assert site.asked() == asked
    # Only a word of one node's values changes.
    site.say("gpu_nodes", slurm_compute_slurmd_options="-v")
    rc, output = site.run("--check")
    assert rc == 0, output
    asked = [line for name in NODES for line in (f"{name} check", f"{name} values check")]
    assert site.asked() == sorted(asked)
    rc, output = site.run()
    assert rc == 0, output
    assert site.asked() == NODES


class Loader(yaml.SafeLoader):
    """Reads what Ansible reads."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def test_a_node_gets_finished_values_and_no_secret_of_others(site: Site) -> None:
    rc, output = site.run()
    assert rc == 0, output
    sent = site.values("dgx-03")
    values = yaml.load(sent["inventory"], Loader)["all"]["hosts"]["dgx-03"]
    assert values["slurm_base_key"] == SECRETS["slurm_base_key"]
    assert values["cephfs_keys"] == {"node": SECRETS["cephfs_keys"]["node"]}
    assert values["slurm_base_jwt_key"] == ""
    text = json.dumps(sent)
    for secret in (
        "j" * 40,
        "database-word-is-long",
        "grafana-word-is-long",
        "monitoring-word-is-long",
        "AQadmin",
    ):
        assert secret not in text
    assert values["slurm_compute_controllers"] == ["head-01", "head-02"]
    assert values["__apply_roles"][0] == "node_base"
    hosts = values["__apply_hosts_file"]
    assert hosts == "/var/lib/baremetal-dgx/apply/state/plan/hosts"
    assert "dgx-03" in sent["files"]["plan/hosts"]
    # One template is left, for the node's own Python; others are texts that look like one.
    left = re.findall(r'(?<!!unsafe )"[^"]*\{[{%]', sent["inventory"])
    assert left == ['"{{']
    assert str(site.folder) not in text


def test_bad_nodes_are_named_and_the_others_finish(site: Site) -> None:
    site.how(dgx_01="dead", dgx_02="hangs", dgx_03="torn", dgx_04="fails", dgx_05="no python")
    rc, output = site.run(apply_limit_s=1)
    assert rc != 0
    assert "7 of 12 nodes applied their roles, 0 changed" in output
    assert "failed on dgx-04: Start slurmd: it is dead" in output
    assert "failed on dgx-05: sh: 1: python3: not found; Python 3 (or sudo) is missing" in output
    assert "not_measured on dgx-01: not reached" in output
    assert "not_measured on dgx-02: no answer within" in output
    assert "not_measured on dgx-03: its answer arrived in part" in output
    # The second run continues.
    for path in site.folder.glob("how-*"):
        path.unlink()
    site.asked()
    rc, output = site.run()
    assert rc == 0, output
    late = [line for line in site.asked() if "values" in line]
    assert [line.split()[0] for line in late] == ["dgx-01", "dgx-02", "dgx-03", "dgx-05"]


def test_a_run_that_is_killed_goes_on(site: Site) -> None:
    """tests/soak/apply_kills does it at many moments, with nodes that really are at work."""
    site.how(dgx_01="hangs")
    sent = {f"{name} runtime values " for name in NODES[1:]}
    asked = site.folder / "asked"
    with site.start(apply_limit_s=600) as running:
        deadline = time.monotonic() + 300
        while not (asked.exists() and sent <= set(asked.read_text().splitlines())):
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        os.killpg(running.pid, signal.SIGKILL)
    assert (site.folder / "locks/slurm.json").exists(), "Slurm is locked still"
    (site.folder / "how-dgx-01").unlink()
    asked.unlink()
    rc, output = site.run()
    assert rc == 0, output
    assert "12 of 12 nodes applied their roles, 0 changed" in output
    assert site.asked() == sorted([*NODES, "dgx-01 runtime values"])
    assert not list((site.folder / "locks").glob("*.json"))


def test_a_role_that_needs_another_host_is_refused_by_name(site: Site) -> None:
    site.say("all", pyxis_source="preinstalled", enroot_source="preinstalled")
    rc, output = site.run()
    assert rc != 0
    assert "dgx-[01-12]: role pyxis needs another host (pyxis/tasks/build.yml" in output
    assert "write apply_roles: [" in output
    assert site.asked() == []
    rc, output = site.run(apply_roles=["node_base", "slurm_compute"], target="dgx-02")
    assert rc == 0, output
    assert "1 of 1 nodes applied their roles" in output
    values = yaml.load(site.values("dgx-02")["inventory"], Loader)
    found = values["all"]["hosts"]["dgx-02"]
    assert found["__apply_roles"] == ["node_base", "slurm_compute"]
    # slurm_compute runs tasks of slurm_base; of other roles the node gets nothing.
    assert found["slurm_base_version"] == "23.11"
    assert "login_environment_environment" not in found


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"engine": "magic"}, "engine: magic is neither ansible nor local"),
        ({"apply_roles": ["nodebase"]}, "apply_roles: no node has the role nodebase"),
        ({"target": "login_nodes"}, "hosts: 'login_nodes' is not a host of gpu_nodes"),
    ],
)
def test_what_cannot_be_done_is_refused(site: Site, variables: dict[str, Any], why: str) -> None:
    rc, output = site.run(**variables)
    assert rc != 0
    assert why in output
    assert site.asked() == []


def test_an_engine_without_its_tool_is_refused(site: Site) -> None:
    site.say("all", ansible_ssh_executable="/nowhere/ssh")
    rc, output = site.run()
    assert rc != 0
    assert "engine local needs /nowhere/ssh on the control machine; install it" in output
    assert not list((site.folder / "locks").glob("*.json"))


def test_a_value_that_a_fact_makes_is_named_and_slurm_is_unlocked(site: Site) -> None:
    site.say("gpu_nodes", slurm_compute_slurmd_options="-N {{ ansible_facts['hostname'] }}")
    rc, output = site.run(target="dgx-01")
    assert rc != 0
    assert "dgx-01: slurm_compute_slurmd_options is known only over SSH" in output
    assert "no node was asked" in output
    assert site.asked() == []
    assert not list((site.folder / "locks").glob("*.json"))


def test_another_control_machine_at_work_is_named(site: Site) -> None:
    (site.folder / "locks").mkdir(mode=0o755)
    (site.folder / "locks/slurm.json").write_text('{"owner": "other", "since": "noon"}')
    rc, output = site.run()
    assert rc != 0
    assert "slurm: other does it since noon" in output
    assert site.asked() == []
