# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apply_nodes -e engine=local costs the control machine, with workers that answer like nodes.

Real ssh, and a real sshd in a node of the pod named by POD, whose commands read a
whole request and answer as a converged node does. Fails when a run is over its aim, and when
other nodes are named than those that are dead (2 %), hang (2 %) or send torn answers (1 %).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests" / "scale"))

from plan_scale import write_inventory  # noqa: E402

# CPU seconds of the control machine: a run of 1,024 that changes nothing, and one more node.
MOST_S, MOST_A_NODE_S = 100.0, 0.1
DONE, HANGS, TORN, DEAD = 2201, 2202, 2203, 2204
TOLD = {"ran": {"ok": 53, "changed": 0, "skipped": 37, "changes": [], "failed": []}}
ANSWERS = {
    DONE: "cat > /dev/null; echo '%s'" % json.dumps(TOLD),
    HANGS: "exec sleep 100000",
    TORN: "cat > /dev/null; printf '%s'" % json.dumps(TOLD)[:40],
}
SSHD = """\
Port {port}
PidFile /run/bench-{port}.pid
MaxStartups 500
MaxSessions 500
UsePAM no
ForceCommand {command}
"""
VARIABLES = """\
ansible_host: {address}
ansible_port: "{{{{ [%s][inventory_hostname[-4:] | int %% 100] }}}}"
ansible_user: root
ansible_ssh_private_key_file: {key}
ansible_ssh_common_args: -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR
node_base_hosts_content: ""
"""

CONTROLLER = """\
ansible_connection: local
ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"
slurm_lock_folder: {folder}
"""


def pod(*arguments: str) -> str:
    """Return what virtual_pod/pod prints."""
    command = [str(CHECKOUT / "virtual_pod" / "pod"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def serve(name: str, node: str) -> None:
    """Start the workers' sshd in a node of the pod, one for each kind of answer."""
    lines = ["set -eu"]
    for port, command in ANSWERS.items():
        config = SSHD.format(port=port, command=command)
        lines += [
            f"[ ! -e /run/bench-{port}.pid ] || kill $(cat /run/bench-{port}.pid) || sleep 0",
            f"cat > /run/bench-{port} << 'END'\n{config}END",
            f"while ss -Hltn sport = :{port} | grep -q .; do sleep 0.1; done",
            f"/usr/sbin/sshd -f /run/bench-{port}",
        ]
    pod("exec", "--name", name, node, "sh", "-c", "\n".join(lines))


def faults(number: int) -> int:
    """Return the port of a node: five of a hundred do not answer as they should."""
    kinds = {1: DEAD, 51: DEAD, 2: HANGS, 52: HANGS, 3: TORN}
    return kinds.get(number % 100, DONE)


def measure(folder: Path, count: int, address: str, key: Path, faulty: bool) -> dict[str, float]:
    """Run apply_nodes on so many nodes; return what it took and whom it named."""
    inventory = folder / f"inventory-{count}-{faulty}"
    write_inventory(inventory, count)
    ports = ", ".join(str(faults(number) if faulty else DONE) for number in range(100))
    text = (VARIABLES % ports).format(address=address, key=key)
    (inventory / "group_vars/gpu_nodes/bench.yml").write_text(text, encoding="utf-8")
    (inventory / "group_vars/slurm_controllers/bench.yml").write_text(
        CONTROLLER.format(folder=folder / "locks"), encoding="utf-8"
    )
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".cache" / "collections"),
        "ANSIBLE_HOST_KEY_CHECKING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOME": str(folder / "home"),
    }
    command = ["ansible-playbook", "baremetal.dgx.apply_nodes", "-i", str(inventory)]
    command += ["-e", "engine=local", "-e", "apply_limit_s=5"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, cwd=folder,
    )  # fmt: skip
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    wrong = {kind: names(count, port) for kind, port in KINDS.items()} if faulty else {}
    result = re.sub(r"\\n", "\n", done.stdout)
    found = {kind: re.search(f"not_measured on (.*?): {kind}", result) for kind in KINDS if faulty}
    named = {kind: match.group(1) if match else "" for kind, match in found.items()}
    good = count - sum(faults(number) != DONE for number in range(1, count + 1) if faulty)
    counted = f"{good} of {count} nodes applied their roles, 0 changed" in result
    if bool(done.returncode) != faulty or not counted or named != wrong:
        sys.exit(
            f"{count} nodes: not as they are (rc {done.returncode}): {named}\n{result[-4000:]}"
        )
    return {"cpu_s": cpu, "wall_s": wall, "megabytes": after.ru_maxrss / 1024}


# How the reason of each begins.
KINDS = {"not reached": DEAD, "no answer within": HANGS, "its answer arrived in part": TORN}


def names(count: int, port: int) -> str:
    """Return the nodes behind a port, folded as the run folds them."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._core.nodeset import fold

    return fold(f"dgx-{number:04d}" for number in range(1, count + 1) if faults(number) == port)


def main() -> None:
    """Print a line for each size, and one with faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pod", default=os.environ.get("POD", "demo"))
    parser.add_argument("--node", default="dgx-03", help="where the workers are")
    parser.add_argument("--nodes", type=int, default=1024)
    options = parser.parse_args()
    serve(options.pod, options.node)
    address = pod("exec", "--name", options.pod, options.node, "hostname", "-I").split()[0]
    key = CHECKOUT / ".pod" / options.pod / "id"
    over = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        taken = {}
        for count in (options.nodes // 8, options.nodes):
            taken[count] = measure(folder, count, address, key, faulty=False)
            print(count, "nodes:", taken[count], flush=True)
        small, large = options.nodes // 8, options.nodes
        more = (taken[large]["cpu_s"] - taken[small]["cpu_s"]) / (large - small)
        print(f"one more node: {more:.3f} CPU s", flush=True)
        if more > MOST_A_NODE_S or taken[large]["cpu_s"] > MOST_S * large / 1024:
            over.append(f"more than {MOST_A_NODE_S} CPU s a node, or {MOST_S} CPU s for 1,024")
        broken = measure(folder, options.nodes, address, key, faulty=True)
        print(options.nodes, "nodes, 5 % of them faulty:", broken, flush=True)
    if over:
        sys.exit("\n".join(over))


if __name__ == "__main__":
    main()
