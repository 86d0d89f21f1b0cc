# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What validate_nodes -e engine=ansible costs the control machine, with nodes that answer at once.

Real are Ansible, the playbook, the judgement, the records beside the inventory and the evidence.
Simulated are the nodes and the Slurm controller: a local connection, and a Python interpreter of
each that answers a module with the records of a healthy node. ssh is not in the figures. Prints a
line for each size; fails when a node is not validated.

    engine_ansible.py [COUNT ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "scale")]

from engine import RECORDS, records_of  # noqa: E402
from plan_scale import write_inventory  # noqa: E402

MODULES = {"gpu_health": "gpu_health", "ib_health": "ib_health", "cpu_memory_check": "cpu_memory",
           "dcgm_diag": "dcgm", "gpu_burn": "burn", "nccl_all_reduce": "nccl",
           "mount_check": "canary"}  # fmt: skip
# The module comes by standard input; its answer is in the folder of the interpreter.
INTERPRETER = """\
#!/bin/sh
module=$(grep -om1 'baremetal.dgx.plugins.modules.[a-z_]*')
exec cat "${0%/*}/answers/${module##*.}"
"""
HOST = """\
ansible_connection: local
ansible_become: false
ansible_pipelining: true
ansible_python_interpreter: "%s/{{ inventory_hostname }}/python"
"""
HELD = {"changed": False, "action": "hold", "may_load": True, "why": "", "busy": False,
        "job": "7", "reservation": "", "command": []}  # fmt: skip


def write_host(folder: Path, answers: dict[str, object]) -> None:
    """Write the interpreter of a host, and what its modules answer."""
    (folder / "answers").mkdir(parents=True)
    for module, answer in answers.items():
        (folder / "answers" / module).write_text(json.dumps(answer), encoding="utf-8")
    (folder / "python").write_text(INTERPRETER, encoding="utf-8")
    (folder / "python").chmod(0o755)


def write_site(folder: Path, count: int) -> Path:
    """Write the inventory and all hosts."""
    inventory, hosts = folder / "inventory", folder / "hosts"
    write_inventory(inventory, count)
    for number in range(1, count + 1):
        name = f"dgx-{number:04}"
        # The controller is asked under the name of the node.
        answers: dict[str, object] = {"slurm_node_hold": HELD}
        for module, part in MODULES.items():
            records = list(records_of(name, part, RECORDS.get(part, 1)))
            answers[module] = {
                "changed": False, "verdict": "pass", "records": records, "findings": [],
                "not_measured": [], "counts": {"pass": len(records)}, "links": [],
                "run": {"state": "finished"},
            }  # fmt: skip
        write_host(hosts / name, answers)
    for group in ("gpu_nodes", "slurm_controllers"):
        path = inventory / "group_vars" / group / "bench.yml"
        path.write_text(HOST % hosts, encoding="utf-8")
    return inventory


def measure(count: int, forks: int) -> str:
    """Validate so many nodes; SystemExit shows the output when one is not validated."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inventory = write_site(folder, count)
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_FORKS": str(forks),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOME": str(folder / "home"),
        }
        command = ["ansible-playbook", "baremetal.dgx.validate_nodes", "-i", str(inventory)]
        command += ["-e", "engine=ansible", "-e", "level=standard"]
        shown = folder / "output"
        with shown.open("w", encoding="utf-8") as stream:
            begun = time.monotonic()
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, cwd=folder,
            )  # fmt: skip
            _pid, status, usage = os.wait4(process.pid, 0)
            wall = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        saved = [json.loads(path.read_text()) for path in (inventory / ".dgx/nodes").glob("*.json")]
        whole = sum(RECORDS.values()) + 1
        validated = [one for one in saved if len(one["records"]) >= whole]
        if process.returncode or len(validated) != count:
            sys.exit(f"{len(validated)} of {count} validated\n{shown.read_text()[-4000:]}")
        cpu = usage.ru_utime + usage.ru_stime
        return (f"{count} nodes, {forks} forks: {cpu:.0f} CPU s, {cpu / count:.2f} a node, "
                f"{wall:.0f} s, {usage.ru_maxrss / 1024:.0f} MB")  # fmt: skip


def main() -> None:
    """Print a line for each size."""
    for count in [int(text) for text in sys.argv[1:]] or [16, 127]:
        print(measure(count, 64), flush=True)


if __name__ == "__main__":
    main()
