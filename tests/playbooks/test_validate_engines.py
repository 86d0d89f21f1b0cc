# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""validate_nodes by engine slurm where Slurm gives some nodes no job, with the real clush.

Slurm's commands, ssh and the program of the nodes are stand-ins; tests/pod/test_engines.py has the
real ones. Of the nodes dgx-01 is free, dgx-02 drained before it was ever admitted, dgx-03 busy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._burn.plan import Settings
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.state import State, save

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / ".cache" / "collections"
NODES = {"dgx-01": "IDLE", "dgx-02": "IDLE+DRAIN", "dgx-03": "ALLOCATED"}
BUSY = "9|alice|RUNNING|2026-11-25T09:00:00|dgx-03"
REASON = "Reason=new: no evidence yet [root@2026-11-21T09:00:00]"
SLURM = """\
#!{python}
import os, sys, pathlib
folder, words = pathlib.Path("{folder}"), sys.argv[1:]
tool, given = os.path.basename(sys.argv[0]), dict(w.split("=", 1) for w in words if "=" in w)
with open(folder / "calls", "a") as calls:
    print(tool, *words, file=calls)
job, reserved = folder / "job", folder / "reserved"
if tool == "salloc":
    job.write_text(given["--job-name"] + "|" + given["--nodelist"])
    print("salloc: Granted job allocation 7", file=sys.stderr)
elif tool == "scancel":
    job.unlink()
elif tool == "squeue":
    names = "%A|%j" in words
    if not names:
        print("{busy}")
    if job.exists():
        name, nodes = job.read_text().split("|")
        row = os.environ["USER"] + "|RUNNING|2026-11-25T10:00:00|" + nodes
        print("7|" + (name if names else row))
elif words[:2] == ["show", "node"]:
    for name, state in {nodes}.items():
        if not words[2:3] or words[2] in ("-o", name):
            print("NodeName=" + name + " CPUTot=224 State=" + state + " Partitions=batch {reason}")
elif words[:2] == ["show", "partition"]:
    print("PartitionName=batch AllowGroups=ALL MaxTime=7-00:00:00 Nodes=dgx-[01-03]")
elif words[:2] == ["show", "reservation"]:
    print(reserved.read_text() if reserved.exists() else "No reservations in the system")
elif words[:2] == ["show", "job"]:
    print("JobId=7 NodeList=dgx-01 NumNodes=1")
elif words[:1] == ["create"]:
    line = "ReservationName={{ReservationName}} StartTime=2026-11-25T10:00:00 Nodes={{Nodes}}"
    reserved.write_text(line.format(**{{k.replace("reservation", "Reservation"): v
                                      for k, v in given.items()}}))
    print("Reservation created: " + given.get("ReservationName", ""))
elif words[:1] == ["delete"]:
    reserved.unlink()
"""
# Plays nodes: NAME... and, last, the command that would run the program on them.
NODE = """\
#!{python}
import io, json, os, sys, time, zipfile
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.spool import lines_of
folder, tool, words = "{folder}", os.path.basename(sys.argv[0]), sys.argv[1:]
run = words[-1].split()[-1]
if tool == "srun":
    names = [one.split("=", 1)[1] for one in words if one.startswith("--nodelist=")]
else:
    names = ["dgx-%02d" % (int(words[words.index("--") + 1].rpartition(".")[2]) - 100)]
open(os.path.join(folder, "began-" + tool), "w").close()
archive = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))
# Both are at work at the same time, or the test waits in vain.
until = time.monotonic() + 120
other = os.path.join(folder, "began-" + {{"srun": "ssh", "ssh": "srun"}}[tool])
while os.path.exists(folder + "/both") and not os.path.exists(other):
    if time.monotonic() > until:
        sys.exit("one waits for the other")
    time.sleep(0.2)
for number, name in enumerate(names):
    work = json.loads(archive.read("work/%s.json" % name))
    with open(os.path.join(folder, "node-" + name), "w") as kept:
        json.dump([tool, work["refused"], bool(work["hold"])], kept)
    record = dict(check="gpu.run", subject="node:" + name, at="2026-11-25T10:00:00Z", status="pass",
                  severity="critical", text="all is well")
    for part in work["parts"]:
        answer = dict(verdict="pass", records=[record])
        for line in lines_of(run, name, part["name"], answer):
            print(("%d: " % number if tool == "srun" else "") + line)
"""


class Site:
    """An example inventory, Slurm's commands and the nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory = folder / "inventory"
        ignored = shutil.ignore_patterns(".dgx")
        shutil.copytree(ROOT / "inventories/core_12", self.inventory, ignore=ignored)
        self.bin = folder / "bin"
        self.bin.mkdir()
        slurm = SLURM.format(
            python=sys.executable, folder=folder, busy=BUSY, nodes=NODES, reason=REASON
        )
        node = NODE.format(python=sys.executable, folder=folder)
        tools = dict.fromkeys(("scontrol", "squeue", "salloc", "scancel"), slurm)
        for name, text in {**tools, "srun": node, "ssh": node}.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        reached = {"ansible_ssh_executable": str(self.bin / "ssh"), "slurm_base_key": "k" * 40}
        self.say("all", **reached)
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        self.say("slurm_controllers", **local)

    def say(self, group: str, **variables: Any) -> None:
        path = self.inventory / "group_vars" / group / "zz.yml"
        path.write_text(yaml.safe_dump(variables))

    def run(self, path: str) -> tuple[int, str]:
        given = {
            "engine": "slurm", "level": "quick", "target": ":".join(NODES),
            "parts": {"ib_health": False, "canary": False},
            "__validation_runs": str(self.folder / "runs"),
        }  # fmt: skip
        line = [str(Path(sys.executable).with_name("ansible-playbook")),
                str(ROOT / "playbooks/validate_nodes.yml"), "-i", str(self.inventory),
                "-e", json.dumps(given)]  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE")}
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True)
        env = {
            **kept,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "PYTHONPATH": str(COLLECTIONS),
            "USER": user.stdout.strip(),
            "PATH": f"{self.bin}:{path}",
        }
        done = subprocess.run(
            line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.returncode, re.sub(r"(\s|\\n)+", " ", done.stdout)

    def seen(self, node: str) -> list[Any] | None:
        path = self.folder / f"node-{node}"
        return json.loads(path.read_text()) if path.exists() else None

    def calls(self) -> str:
        return (self.folder / "calls").read_text()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_nodes_without_a_job_are_validated_beside_those_with_one(site: Site) -> None:
    (site.folder / "both").touch()
    _rc, output = site.run(os.environ["PATH"])
    # The program itself asks Slurm whether it may load; a node with a job is not loaded.
    assert site.seen("dgx-01") == ["srun", "", False], output
    assert site.seen("dgx-02") == ["ssh", "", True], output
    assert site.seen("dgx-03") == ["ssh", "it has jobs: 9 (alice, RUNNING)", True], output
    assert "it is IDLE+DRAIN, and reserved" in output
    assert "one waits for the other" not in output
    for node in NODES:
        kept = json.loads((site.inventory / ".dgx/nodes" / f"{node}.json").read_text())
        assert [one["text"] for one in kept["records"]] == [
            "all is well",
            # What only this run leaves out is not known of the node.
            "ib_health: switched off in this run",
            "canary: switched off in this run",
        ], output
        assert kept["level"] == "quick"
    # The drained node was reserved, and neither resumed nor given another reason.
    assert re.search(r"scontrol create reservation.* Nodes=dgx-02\b", site.calls(), re.IGNORECASE)
    assert "scontrol update" not in site.calls()
    left = {path.name for path in site.folder.iterdir()} & {"job", "reserved"}
    assert not left, "job and reservation are given back"
    assert not list((site.folder / "runs").glob("*"))


def test_without_clustershell_they_are_left_to_ansible_by_name(site: Site) -> None:
    """Nothing is reserved for what Slurm cannot start."""
    venv = Path(sys.executable).parent
    other = site.folder / "tools"
    other.mkdir()
    for tool in venv.iterdir():
        if tool.name != "clush":
            (other / tool.name).symlink_to(tool)
    path = ":".join([str(other), *os.environ["PATH"].split(":")])
    rest = [one for one in path.split(":") if not (Path(one) / "clush").exists()]
    _rc, output = site.run(":".join(rest))
    assert site.seen("dgx-01") == ["srun", "", False], output
    assert site.seen("dgx-02") is None
    shown = output.partition("Show the nodes that are left to Ansible")[2][:600]
    assert '"dgx-02": "it is IDLE+DRAIN, and reserved"' in shown
    assert '"dgx-03": "it has jobs' in shown
    assert "scontrol create" not in site.calls()


BURNS = """\
import fcntl, sys, time
lock = open(sys.argv[1] + "/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("burns", flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize(
    ("verdict", "slurm", "seen", "pid", "stops"),
    [
        ("fail", [], {"skipped": True}, True, True),
        ("fail", ["head-01"], {"may_load": True}, True, True),
        # Another control machine's run is at work there; or it is not known.
        ("fail", ["head-01"], {"may_load": False}, True, False),
        ("fail", ["head-01"], {"failed": True, "msg": "no answer"}, True, False),
        ("pass", [], {"skipped": True}, True, False),
        # It is coming up, and cannot be stopped yet: what comes after the validation is done.
        ("fail", [], {"skipped": True}, False, False),
    ],
)
def test_by_ansible_too_a_burn_in_that_was_left_ends_where_gpus_have_findings(
    verdict: str, slurm: list[str], seen: dict[str, Any], pid: bool, stops: bool, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", BURNS, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as left:
        assert left.stdout is not None
        assert left.stdout.readline() == "burns\n"
        state = State(settings=Settings(duration_s=60, phases=("hbm",)), pid=left.pid if pid else 0)
        save(str(tmp_path), state)
        plays = yaml.safe_load((ROOT / "playbooks/validate_nodes.yml").read_text())
        (task,) = [
            task for play in plays for task in play.get("tasks", [])
            if task["name"] == "Stop a burn-in that a killed run has left"
        ]  # fmt: skip
        (judge,) = [
            task for play in plays for task in play.get("tasks", [])
            if task["name"] == "Fail unless every requested check passed"
        ]  # fmt: skip
        held = yaml.safe_load((ROOT / "playbooks/tasks/validate_held.yml").read_text())
        after = {"ansible.builtin.debug": {"msg": "the gate"}}
        play = {
            "hosts": "localhost", "gather_facts": False, "tasks": [task, after, judge, *held],
            "module_defaults": {"baremetal.dgx.gpu_burn": {"folder": str(tmp_path)}},
            "vars": {
                "ansible_python_interpreter": sys.executable,
                "__validation_load_parts": ["dcgm", "burn"], "groups": {},
                "__validation_slurm": slurm, "__validate_seen": seen, "findings_fail": False,
                "__validate_result": {"verdict": "fail", "lines": ["first"], "text": "last"},
                "__validation_answers": {"gpu_health": {"verdict": verdict}},
            },
        }  # fmt: skip
        (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
        line = [str(Path(sys.executable).with_name("ansible-playbook")), str(tmp_path / "play.yml")]
        env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS)}
        done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
        ended = left.poll()
        left.kill()
    assert "the gate" in done.stdout
    assert (done.returncode == 0) is pid, done.stdout
    after_it = done.stdout.partition("the gate")[2]
    goes_on = "the burn-in goes on: a burn-in is coming up; try again in a moment"
    # In the result, and as the last failure of the run.
    assert (f"first\\n{goes_on}\\nlast" in after_it) is not pid
    assert (f'"{goes_on}"' in after_it) is not pid
    assert (ended is not None) is stops, done.stdout
