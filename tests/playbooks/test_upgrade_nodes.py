# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade_nodes as a whole, on a scontrol of the test's own and playbooks that note each call."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NODES = [f"dgx-0{number}" for number in range(1, 5)]
# Takes what slurm_node sends, keeps how many serve at each step, and refuses all else.
SCONTROL = """\
#!{python}
import json, sys
path = "{folder}/slurm.json"
nodes = json.load(open(path))
words = sys.argv[1:]
if words[:2] == ["show", "node"]:
    for name, (state, reason) in nodes.items():
        why = f" Reason={{reason}} [root@2026-11-21T09:00:00]" if reason else ""
        print(f"NodeName={{name}} Arch=x86_64 State={{state}} ThreadsPerCore=2{{why}}")
elif words[0] == "update":
    given = dict(word.split("=", 1) for word in words[1:])
    for name in given["NodeName"].split(","):
        if given.get("State", "DRAIN") == "DRAIN":
            nodes[name] = ["IDLE+DRAIN", given["Reason"]]
        elif given["State"] == "RESUME":
            nodes[name] = ["IDLE", ""]
        else:
            sys.exit(f"unknown {{words}}")
    json.dump(nodes, open(path, "w"))
    with open("{folder}/serving", "a") as kept:
        print(sum(not reason for _state, reason in nodes.values()), file=kept)
else:
    sys.exit(f"unknown {{words}}")
"""
CHANGE = [
    {
        "hosts": "{{ target }}",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.shell": {
                    "cmd": "echo {{ inventory_hostname }} >> {{ notes }}/changed;"
                    " while test -e {{ notes }}/hold; do sleep 0.1; done;"
                    " ! test -e {{ notes }}/fails-{{ inventory_hostname }}"
                },
                "changed_when": True,
            }
        ],
    }
]
PROVE = [
    {
        "hosts": "{{ target }}",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.copy": {
                    "content": "{{ {'version': 1, 'node': inventory_hostname, 'level': level,"
                    " 'since': validate_since | default(''),"
                    " 'records': [{'check': 'gpu.count', 'subject': 'node:' ~ inventory_hostname,"
                    " 'status': verdict, 'at': '%Y-%m-%dT%H:%M:%SZ' | ansible.builtin.strftime("
                    "now().timestamp() - behind_s | default(0) | int, utc=true)}]} | to_json }}",
                    "dest": "{{ cluster_state_dir }}/nodes/{{ inventory_hostname }}.json",
                    "mode": "0644",
                },
                "vars": {
                    "verdict": "{{ 'fail' if (notes ~ '/bad-' ~ inventory_hostname) is file"
                    " else 'pass' }}"
                },
            },
            {
                "ansible.builtin.assert": {
                    "that": "(notes ~ '/bad-' ~ inventory_hostname) is not file"
                }
            },
        ],
    }
]


class Site:
    """A folder with an inventory, a Slurm and notes of what happened."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        (self.state / "nodes").mkdir(parents=True)
        (folder / "bin").mkdir()
        self.set_slurm({name: ["IDLE", ""] for name in NODES})
        for name, text in {
            "scontrol": SCONTROL.format(python=sys.executable, folder=folder),
            "squeue": "#!/bin/sh\n",
        }.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable,
                 "notes": str(folder)}  # fmt: skip
        # Valid for check_inventory, with which every playbook begins.
        head = {"node_first_address": {"management": "10.1.0.11"}}
        nodes = {
            "node_profile": "dgx_h100", "node_first_address": {"management": "10.1.0.101"}
        }  # fmt: skip
        hosts = {
            "slurm_controllers": {"hosts": {"head-01": {}}, "vars": head},
            "gpu_nodes": {"hosts": {name: {} for name in NODES}, "vars": nodes},
        }
        described = {
            "cluster_name": "stand_in",
            "cluster_networks": {"management": {"cidr": "10.1.0.0/24"}},
            "slurm_base_version": "24.11",
            **local,
        }
        cluster = {"cluster": {"vars": described, "children": hosts}}
        all_hosts = {"all": {"vars": local, "children": cluster}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(all_hosts, default_flow_style=False))
        for name, play in {"change": CHANGE, "prove": PROVE}.items():
            (folder / f"{name}.yml").write_text(yaml.safe_dump(play))

    @contextlib.contextmanager
    def inventory(self) -> Iterator[dict[str, Any]]:
        """Give what hosts.yml says, and write it back with what was changed in it."""
        hosts = self.folder / "hosts.yml"
        described = yaml.safe_load(hosts.read_text())
        yield described
        hosts.write_text(yaml.safe_dump(described, default_flow_style=False))

    def plan_fabric(self) -> None:
        """Give the inventory an InfiniBand fabric."""
        with self.inventory() as described:
            cluster = described["all"]["children"]["cluster"]
            cluster["children"]["subnet_managers"] = {"hosts": {"head-01": {}}}
            cluster["vars"]["cluster_fabric"] = {
                "topology": "basepod", "leaf_switches": ["leaf-01", "leaf-02"]
            }  # fmt: skip

    def set_slurm(self, nodes: dict[str, list[str]]) -> None:
        (self.folder / "slurm.json").write_text(json.dumps(nodes))

    @property
    def slurm(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = json.loads((self.folder / "slurm.json").read_text())
        return found

    @property
    def serving(self) -> list[int]:
        path = self.folder / "serving"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    @property
    def changed(self) -> list[str]:
        path = self.folder / "changed"
        return path.read_text().split() if path.exists() else []

    @property
    def done(self) -> list[str]:
        found: list[str] = json.loads((self.state / "upgrade/change.json").read_text())["done"]
        return found

    def since(self, node: str) -> str:
        """Since when answers count, as the validation of the node was given it."""
        found: str = json.loads((self.state / f"nodes/{node}.json").read_text())["since"]
        return found

    def start(
        self, *arguments: str, playbook: str = "upgrade_nodes", **variables: object
    ) -> subprocess.Popen[str]:
        given = {
            "cluster_state_dir": str(self.state),
            "upgrade": str(self.folder / "change.yml"),
            "upgrade_validate": str(self.folder / "prove.yml"),
            "upgrade_in_service": 2,
            "upgrade_batch": 2,
            # Stands for the gate host's own; several tests run at once here.
            "upgrade_lock_folder": str(self.folder / "locks"),
            **variables,
        }
        given = {name: value for name, value in given.items() if value is not None}
        line = [str(Path(sys.executable).with_name("ansible-playbook")),
                str(ROOT / f"playbooks/{playbook}.yml"), "-i", str(self.folder / "hosts.yml"),
                "-e", json.dumps(given), *arguments]  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE")}
        return subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
            env={**kept, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1",
                 "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections")},
        )  # fmt: skip

    def run(
        self, *arguments: str, playbook: str = "upgrade_nodes", **variables: object
    ) -> tuple[int, str]:
        process = self.start(*arguments, playbook=playbook, **variables)
        reported = process.communicate(timeout=300)[0]
        return process.returncode, re.sub(r"\s+", " ", reported)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_all_nodes_in_batches_with_a_first_one_and_a_floor(site: Site) -> None:
    rc, output = site.run("--check")
    assert rc == 0, output
    assert '"dgx-01", "dgx-02, dgx-03", "dgx-04"' in output
    assert site.changed == site.serving == []
    rc, output = site.run()
    assert rc == 0, output
    assert sorted(site.changed) == sorted(site.done) == NODES
    assert site.changed[0] == "dgx-01"
    assert min(site.serving) == 2
    assert all(node == ["IDLE", ""] for node in site.slurm.values())
    # What a killed validation has kept of the time before the change does not count.
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT[0-9:]{8}Z", site.since("dgx-01"))
    assert site.since("dgx-01") < site.since("dgx-04")
    # The inventory may declare another release by now.
    rc, output = site.run()
    assert rc != 0
    assert len(site.changed) == 4
    assert "change: no node is left to upgrade; 4 are done since 20" in " ".join(output.split())
    assert "-e upgrade_again=true upgrades them again" in " ".join(output.split())


def test_what_begins_again_goes_on_by_the_same_command(site: Site) -> None:
    rc, output = site.run()
    assert rc == 0, output
    (site.folder / "bad-dgx-03").touch()
    rc, output = site.run(upgrade_again=True)
    assert rc != 0
    assert sorted(site.changed[4:]) == ["dgx-01", "dgx-02", "dgx-03"]
    (site.folder / "bad-dgx-03").unlink()
    rc, output = site.run(upgrade_again=True)
    assert rc == 0, output
    assert site.changed[7:] == ["dgx-03", "dgx-04"]
    # It has ended, and the same command is another upgrade.
    rc, output = site.run("--check", upgrade_again=True)
    assert rc == 0, output
    assert '"dgx-01", "dgx-02, dgx-03", "dgx-04"' in output


def test_a_node_that_was_skipped_goes_into_no_upgrade_that_has_ended(site: Site) -> None:
    """Months later it alone would get what the inventory declares by then."""
    rc, output = site.run(upgrade_skip=["dgx-03"])
    assert rc == 0, output
    assert sorted(site.changed) == ["dgx-01", "dgx-02", "dgx-04"]
    rc, output = site.run()
    assert rc != 0
    assert len(site.changed) == 3
    assert "change has ended, and 3 of these nodes are done since 20" in output
    assert "all of them; -e target=dgx-03 upgrades the others alone" in output
    rc, output = site.run(target="dgx-03")
    assert rc == 0, output
    assert site.changed[3:] == ["dgx-03"]
    rc, output = site.run(upgrade_again=True, upgrade_skip=["dgx-03"])
    assert rc == 0, output
    rc, output = site.run("--check", upgrade_again=True)
    assert rc == 0, output
    assert '"dgx-01", "dgx-02, dgx-03", "dgx-04"' in output


def test_a_node_that_failed_is_continued_after_the_end_and_no_other(site: Site) -> None:
    (site.folder / "fails-dgx-03").touch()
    rc, output = site.run(upgrade_skip=["dgx-02"])
    assert rc != 0
    rc, output = site.run(upgrade_skip=["dgx-02", "dgx-03"])
    assert rc == 0, output
    # Its batch fails once more, and the end stays noted.
    rc, output = site.run(target="dgx-03")
    assert rc != 0
    (site.folder / "fails-dgx-03").unlink()
    known = len(site.changed)
    rc, output = site.run()
    assert rc != 0
    assert len(site.changed) == known
    assert "-e target=dgx-02:dgx-03" in output, output
    assert "upgrades the others alone" in output
    rc, output = site.run(upgrade_skip=["dgx-02"])
    assert rc == 0, output
    assert site.changed[known:] == ["dgx-03"]


def test_a_limit_is_one_for_the_nodes_too(site: Site) -> None:
    rc, output = site.run("--limit", "head-01,dgx-02")
    assert rc == 0, output
    assert site.changed == site.done == ["dgx-02"]


def test_steps_have_the_command_line_of_the_run(site: Site) -> None:
    """Else nodes are upgraded to what the inventory says, and the run ends green."""
    seen = "{{ nvidia_driver_version }} {{ ansible_user }} {{ secret }}"
    note = {"ansible.builtin.copy": {"content": seen, "dest": f"{site.folder}/seen"}}
    play = {"hosts": "{{ target }}", "gather_facts": False, "tasks": [note]}
    (site.folder / "change.yml").write_text(yaml.safe_dump([play]))
    (site.folder / "more.yml").write_text("secret: of a file\n")
    options = ("--limit", "head-01,dgx-02", "--user", "admin", "-e", f"@{site.folder}/more.yml")
    rc, output = site.run(*options, nvidia_driver_version="580.95.05")
    assert rc == 0, output
    assert (site.folder / "seen").read_text() == "580.95.05 admin of a file"


def test_it_stops_on_a_batch_that_fails_and_goes_on_there(site: Site) -> None:
    (site.folder / "bad-dgx-03").touch()
    rc, output = site.run()
    assert rc != 0
    assert "dgx-03 did not pass after" in output
    assert "1 nodes were not touched" in output
    assert sorted(site.changed) == ["dgx-01", "dgx-02", "dgx-03"]
    # Its neighbour passed, and is back.
    assert site.slurm["dgx-02"] == ["IDLE", ""]
    assert site.slurm["dgx-03"] == ["IDLE+DRAIN", "dgx-upgrade: change"]
    # Not repaired: it is tried alone, and no other node is risked.
    rc, output = site.run()
    assert rc != 0
    assert site.changed[3:] == ["dgx-03"]
    (site.folder / "bad-dgx-03").unlink()
    rc, output = site.run()
    assert rc == 0, output
    assert site.changed[4] == "dgx-03"
    assert sorted(site.done) == NODES
    assert min(site.serving) >= 2


def test_a_failure_that_the_validation_did_not_measure_is_named(site: Site) -> None:
    """At quick the validation succeeds, and the node fails all the same."""
    play = PROVE[0]["tasks"][0]
    stands = {
        "check": "burn.gemm_bf16", "subject": "gpu:dgx-01/3", "status": "fail", "text": "12 wrong",
        "remedy": "return it", "at": "2026-11-01T00:00:00Z",
    }  # fmt: skip
    content = play["ansible.builtin.copy"]["content"].replace(
        "'level': level,", f"'level': level, 'standing': [{stands}],"
    )
    copy = {**play["ansible.builtin.copy"], "content": content}
    tasks = [{**play, "ansible.builtin.copy": copy}]
    (site.folder / "prove.yml").write_text(yaml.safe_dump([{**PROVE[0], "tasks": tasks}]))
    rc, output = site.run(upgrade_level="quick")
    assert rc != 0
    assert (
        "(no new verdict; gpu:dgx-01/3, burn.gemm_bf16, 12 wrong, return it; then run"
        " validate_nodes at the level that asks it)"
    ) in " ".join(output.split())


def test_a_change_that_fails_lets_no_node_in_on_older_evidence(site: Site) -> None:
    rc, output = site.run(target="dgx-01")
    assert rc == 0, output
    (site.folder / "fails-dgx-01").touch()
    rc, output = site.run(target="dgx-01", upgrade_again=True)
    assert rc != 0
    assert site.slurm["dgx-01"][1] == "dgx-upgrade: change"
    assert site.done == []


@pytest.mark.parametrize("behind_s", [600, -600])
def test_evidence_is_dated_by_the_cluster_and_not_by_the_control_machine(
    site: Site, behind_s: int
) -> None:
    """The clock of the control machine is ten minutes ahead of the cluster, or behind it."""
    clock = site.folder / "bin/date"
    clock.write_text(f"#!/bin/sh\nexec /usr/bin/date --date='{-behind_s} seconds' \"$@\"\n")
    clock.chmod(0o755)
    rc, output = site.run(target="dgx-01", behind_s=behind_s)
    assert rc == 0, output
    assert site.done == ["dgx-01"]
    # Its evidence is from before this change.
    (site.folder / "fails-dgx-01").touch()
    rc, output = site.run(target="dgx-01", upgrade_again=True, behind_s=behind_s)
    assert rc != 0
    assert site.done == []


def test_a_node_that_was_resumed_meanwhile_is_not_rebooted(site: Site) -> None:
    play = json.loads(json.dumps(CHANGE))
    resumed = json.dumps({name: ["IDLE", ""] for name in NODES})
    play[0]["tasks"][0]["ansible.builtin.shell"]["cmd"] = (
        f"echo '{resumed}' > {site.folder}/slurm.json"
    )
    (site.folder / "change.yml").write_text(yaml.safe_dump(play))
    rc, output = site.run(target="dgx-01", upgrade_reboot=True)
    assert rc != 0
    assert "dgx-01 did not pass after" in output
    assert "(Check that no node was resumed)" in output
    assert "TASK [upgrade_batch | Reboot the nodes]" not in output
    # Who resumed it is not overruled.
    assert site.slurm["dgx-01"] == ["IDLE", ""]


def test_others_nodes_are_left_alone_and_the_floor_is_kept(site: Site) -> None:
    nodes = {name: ["IDLE", ""] for name in NODES}
    nodes["dgx-02"] = ["IDLE+DRAIN", "broken fan"]
    nodes["dgx-03"] = ["DOWN", ""]
    site.set_slurm(nodes)
    rc, output = site.run()
    assert rc != 0
    assert "2 nodes are in service, and 2 must be: none may leave" in output
    rc, output = site.run(upgrade_in_service="25%")
    assert rc == 0, output
    assert site.slurm["dgx-02"] == ["IDLE+DRAIN", "broken fan"]
    assert "dgx-02 is left alone: drained by root: broken fan" in output
    assert sorted(site.changed) == ["dgx-01", "dgx-04"]


def test_killed_in_the_middle_it_goes_on(site: Site) -> None:
    (site.folder / "hold").touch()
    process = site.start()
    deadline = time.monotonic() + 120
    while not site.changed:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (site.folder / "hold").unlink()
    assert site.slurm["dgx-01"][1] == "dgx-upgrade: change"
    rc, output = site.run()
    assert rc == 0, output
    assert site.changed[:2] == ["dgx-01", "dgx-01"]
    assert sorted(site.done) == NODES
    assert min(site.serving) >= 2


def test_two_at_once_from_two_control_machines(site: Site, tmp_path: Path) -> None:
    """The second has its own state, as a second control machine has."""
    (site.folder / "hold").touch()
    first = site.start()
    deadline = time.monotonic() + 120
    while not site.changed:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    other = tmp_path / "other"
    (other / "nodes").mkdir(parents=True)
    rc, output = site.run(cluster_state_dir=str(other))
    assert rc != 0
    assert "upgrade: " in output
    assert "does it since" in output
    assert site.changed == ["dgx-01"]
    (site.folder / "hold").unlink()
    output = first.communicate(timeout=300)[0]
    assert first.returncode == 0, output
    assert sorted(site.done) == NODES
    # It is given back.
    rc, output = site.run(cluster_state_dir=str(other), upgrade_in_service="25%")
    assert rc == 0, output


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"upgrade_in_service": "most"}, "write 24, or 75%"),
        ({"upgrade_in_service": 7}, "of 4 nodes cannot be"),
        ({"upgrade_batch": 0}, "must be 1 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(site: Site, variables: dict, message: str) -> None:
    rc, output = site.run(**variables)
    assert rc != 0
    assert message in output
    assert site.serving == []


@pytest.mark.parametrize("variable", ["upgrade", "upgrade_validate"])
def test_a_playbook_that_cannot_be_read_is_named_before_a_node_leaves(
    site: Site, variable: str
) -> None:
    """A node that has waited for its jobs for hours would be out for a word typed wrongly."""
    rc, output = site.run(upgrade_name="change", **{variable: str(site.folder / "chnage.yml")})
    assert rc != 0
    assert f"{site.folder}/chnage.yml cannot be run" in output
    assert site.serving == site.changed == []
