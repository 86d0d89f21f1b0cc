# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the demo lets the collection prove, admit and report, and live with faults."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podlib import fabric, faults, gpus, host, nodes
from podlib.layout import PodError, expect

if TYPE_CHECKING:
    from podlib.demo import Demo


def playbook(demo: Demo, name: str, *options: str) -> list[str]:
    """Return the command line of a playbook of the collection on this pod."""
    inventory = nodes.state_folder(demo.name) / "inventory"
    return ["ansible-playbook", "-i", str(inventory), f"baremetal.dgx.{name}", *options]


def prove_fabric(demo: Demo) -> None:
    """Let the collection judge the fabric, which is healthy."""
    demo.stream("validate_fabric", playbook(demo, "validate_fabric"))


def prove_gpus(demo: Demo) -> None:
    """Let the collection judge the GPUs under load; they are healthy."""
    demo.stream("validate_nodes", playbook(demo, "validate_nodes"))


def admit(demo: Demo, spares: Sequence[str] = (), back: Sequence[str] = ()) -> None:
    """Let the gate decide who is in service; `back` are spares that are no longer needed."""
    policy = {"gate_enabled": True, "gate_spares": list(spares), "gate_return_spares": list(back)}
    demo.stream("admit_nodes", playbook(demo, "admit_nodes", "-e", json.dumps(policy)))


def report(demo: Demo) -> None:
    """Let the collection put all that was measured into one page; all of it must have passed."""
    made = make_report(demo)
    expect(made["verdict"] == "pass", f"the report says {made['verdict']}, not pass")


def make_report(demo: Demo, place: str = "report") -> dict[str, Any]:
    """Make the report in this folder beside the evidence; return report.json."""
    folder = nodes.state_folder(demo.name) / "inventory" / ".dgx" / place
    options = ["-e", f"report_folder={folder}", "-e", "gate_enabled=true"]
    demo.stream("report", playbook(demo, "report", *options))
    made: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return made


@dataclass(frozen=True)
class Broken:
    """One fault in the pod: what breaks and repairs it, who finds it, and what must be named.

    `out` are the nodes that must leave service for it.
    """

    fault: str
    out: tuple[str, ...]
    breaking: Sequence[str]
    repairing: Sequence[str]
    judge: Sequence[str]
    names: Sequence[str]


def broken(demo: Demo, chosen: Sequence[str]) -> list[Broken]:
    """Return the faults of these names, each on its own node."""
    dgx = sorted(node.name for node in demo.pod().nodes if node.is_gpu)
    pod = str(host.CHECKOUT / "virtual_pod" / "pod")
    found, known = [], gpus.faults()
    for name in chosen:
        if name in faults.FAULTS:
            fault = faults.FAULTS[name]
            call = [pod, "fabric", "--name", demo.name]
            names = [fault.finding, *fault.subjects, ": 1 finding;"]
            judge = playbook(demo, "validate_fabric")
            breaking = [*call, "--fault", name]
            found.append(Broken(name, fault.out, breaking, call, judge, names))
        else:
            gpu_fault, node = known[name], dgx[min(len(chosen) - 1, len(dgx) - 1)]
            call = [pod, "gpus", "--name", demo.name]
            subject = f"node:{node}" if gpu_fault.gpu is None else f"gpu:{node}/{gpu_fault.gpu}"
            level = "standard" if gpu_fault.needs_load else "quick"
            judge = playbook(demo, "validate_nodes", "-e", "again=true", "-e", f"level={level}")
            breaking = [*call, "--fault", name, "--node", node]
            names = [subject, *gpu_fault.checks]
            found.append(Broken(name, (node,), breaking, call, judge, names))
    return found


def live_with(demo: Demo, chosen: Sequence[str]) -> None:
    """Break it; show what finds it, who leaves service and who replaces it; repair it."""
    dgx = sorted(node.name for node in demo.pod().nodes if node.is_gpu)
    spares = dgx[3:4]
    parts = broken(demo, chosen)
    admit(demo, spares, back=spares)
    try:
        for part in parts:
            demo.stream("pod", part.breaking)
        for part in parts:
            find(demo, part)
        gate(demo, parts, dgx, spares)
        made = make_report(demo, "report-broken")
        expect(made["verdict"] == "fail", f"the report of the broken pod says {made['verdict']}")
        failed = made["summary"]["nodes"]["fail"]
        out = {node for part in parts for node in part.out}
        expect(failed == len(out), f"{failed} nodes fail in the report, not {len(out)}")
    finally:
        for part in parts:
            demo.stream("pod", part.repairing)
    prove_again(demo)
    admit(demo, spares, back=spares)
    admit(demo)
    left = {node: state for node, state in node_states(demo).items() if "drain" in state[0]}
    expect(not left, f"repaired, and still out: {left}")


def prove_again(demo: Demo) -> None:
    """Prove all parts again: the gate only lets a node back in on evidence from after its drain."""
    if fabric.has_fabric(demo.pod()):
        for left in (2, 1, 0):
            try:
                prove_fabric(demo)
                break
            except PodError:
                # A subnet manager that had to give way becomes master again after some 40 s.
                if not left:
                    raise
                time.sleep(20)
    demo.stream("validate_nodes", playbook(demo, "validate_nodes", "-e", "again=true"))


def gate(demo: Demo, parts: Sequence[Broken], dgx: Sequence[str], spares: Sequence[str]) -> None:
    """Let the gate act on the faults; those nodes and no others leave service, and jobs run on."""
    # The spare stays held when no node leaves.
    out = {node for part in parts for node in part.out} or set(spares)
    admit(demo, spares)
    for node, (state, reason) in node_states(demo).items():
        expect(
            ("drain" in state) == (node in out),
            f"{node} is {state} ({reason}); out should be {', '.join(sorted(out)) or 'none'}",
        )
        expect(
            node not in out or reason.startswith(("dgx-gate: ", "node-health: ")),
            f"{node} is out for: {reason}",
        )
    fit = sorted(set(dgx) - out)
    if fit:
        answers = demo.user(f"srun -N{len(fit)} hostname").split()
        expect(sorted(answers) == fit, f"answers from {sorted(answers)}, not from {fit}")


def node_states(demo: Demo) -> dict[str, tuple[str, str]]:
    """Return each node's state and reason as users see them."""
    lines = demo.user("sinfo -h -N -p batch -o '%N|%T|%.60E'").splitlines()
    return {
        name: (state, reason.strip()) for name, state, reason in (line.split("|") for line in lines)
    }


def find(demo: Demo, part: Broken) -> None:
    """Let it be judged; expect the fault's names in the output."""
    before = demo.log.stat().st_size
    try:
        demo.stream("judgement", part.judge)
    except PodError:
        log = demo.log.read_bytes()[before:].decode(errors="replace")
    else:
        raise PodError(f"with the fault {part.fault} everything was reported healthy")
    missing = [name for name in part.names if name not in log]
    expect(not missing, f"{part.fault} was not found as it is: no {', '.join(missing)}")
    demo.progress.say(f"fault {part.fault} was found")
