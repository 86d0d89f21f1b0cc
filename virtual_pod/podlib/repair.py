# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a fault of a GPU to the node's end of repair without a hand, with tickets to a receiver."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from podlib import gpus, host, nodes
from podlib.layout import PodError, expect
from podlib.proofs import admit, node_states, playbook, prove_again

sys.path.append(str(host.CHECKOUT / "tests" / "models"))

from ticket_server import Receiver

if TYPE_CHECKING:
    from podlib.demo import Demo

# Says in a list of faults that the fault comes back after its repair.
AGAIN = "again"
# A timer would go on; here a node that no run brings to an end is an error.
_MOST_RUNS = 3


class Repair:
    """One fault on one node of the pod, the policy of the site, and a receiver of its tickets."""

    def __init__(self, demo: Demo, fault: str, receiver: Receiver) -> None:
        self.demo, self.fault, self.receiver = demo, gpus.faults()[fault], receiver
        dgx = sorted(node.name for node in demo.pod().nodes if node.is_gpu)
        self.node, self.spares = dgx[min(1, len(dgx) - 1)], dgx[3:4]
        self.pod = str(host.CHECKOUT / "virtual_pod" / "pod")
        self.incidents = nodes.state_folder(demo.name) / "inventory" / ".dgx" / "incidents"
        self.begun = 0.0

    def play(self, name: str, *words: str, back: Sequence[str] = ()) -> None:
        """Run a playbook with the policy of the site; `back` are spares to be taken out again."""
        hook = {"name": "tracker", "kind": "webhook", "timeout_s": 10, "url": self.receiver.url,
                "secret_file": str(self.receiver.secret)}  # fmt: skip
        # A power cycle is what brings a GPU back to the bus; the least step would be a reboot.
        ladders = {check: ["power_cycle", "return"] for check in self.fault.checks}
        policy = {
            "cluster_gate": {"enabled": True, "share": 0.7, "level": "quick",
                             "spares": self.spares, "spares_in_service": 1},
            "gate_return_spares": list(back),
            "cluster_repair": {"steps": ["power_cycle"], "ladders": ladders, "hooks": [hook]},
        }  # fmt: skip
        self.demo.stream(name, playbook(self.demo, name, "-e", json.dumps(policy), *words))

    def break_it(self) -> None:
        """The GPU fails; the next look at the nodes finds it, and the gate takes the node out."""
        call = [self.pod, "gpus", "--name", self.demo.name, "--fault", self.fault.name]
        self.demo.stream("pod", [*call, "--node", self.node])
        self.begun = time.time()
        options = ("-e", "level=quick", "-e", "again=true", "-e", "findings_fail=false")
        self.play("validate_nodes", *options)
        self.play("admit_nodes")
        self.expect_out(self.node)
        if self.spares:
            state, reason = node_states(self.demo)[self.spares[0]]
            expect("drain" not in state, f"the spare {self.spares[0]} is {state} ({reason})")

    def expect_out(self, node: str) -> None:
        """The gate has taken the node out."""
        state, reason = node_states(self.demo)[node]
        expect("drain" in state, f"{node} is {state} ({reason}), and not out")

    def incident(self) -> dict[str, Any]:
        """Return the latest incident of the node, for programs."""
        incidents = json.loads((self.incidents / "incidents.json").read_text())["incidents"]
        of_node = [one for one in incidents if one["node"] == self.node]
        expect(bool(of_node), f"there is no incident of {self.node}")
        return max(of_node, key=lambda one: str(one["ticket_id"]))

    def until_it_ends(self) -> dict[str, Any]:
        """Run repair_nodes as a timer would until the incident is over, or waits for a person."""
        for _run in range(_MOST_RUNS):
            self.play("repair_nodes")
            found = self.incident()
            if found["state"] != "step":
                self.show()
                return found
        raise PodError(f"{_MOST_RUNS} runs of repair_nodes brought no end: {found}")

    def show(self) -> None:
        """Print the lines of the incident, with seconds since the fault."""
        lines = (self.incidents / "incidents.jsonl").read_text().splitlines()
        for line in map(json.loads, lines):
            if line["node"] == self.node and line["at"] >= self.begun:
                text = " ".join(one for one in (line["what"], line["step"], line["text"]) if one)
                self.demo.progress.show(f"    {line['at'] - self.begun:4.0f} s  {text[:110]}")
        took = time.time() - self.begun
        self.demo.progress.say(f"{self.node}: {took:.0f} s from the fault to the end of the runs")

    def tickets(self) -> list[str]:
        """Return the states of the tickets that the receiver has, in their order."""
        return [str(json.loads(body)["state"]) for body in self.receiver.tickets.values()]


def repair_without_a_hand(demo: Demo, fault: str, again: bool) -> None:
    """Break it, and let the loop bring the node back; the second time the part is returned."""
    with Receiver(demo.work) as receiver:
        this = Repair(demo, fault, receiver)
        demo.stream("pod bmc", [this.pod, "bmc", "--name", demo.name])
        this.play("admit_nodes", back=this.spares)
        # A hook that is new gets no ticket of what was before.
        this.play("repair_nodes")
        this.break_it()
        comes_back(this)
        this.play("admit_nodes", back=this.spares)
        if again:
            this.break_it()
            is_to_be_returned(this)
            operator_consents(this)
        else:
            prove_again(demo)
        admit(demo)
        left = {node: state for node, state in node_states(demo).items() if "drain" in state[0]}
        expect(not left, f"repaired, and still out: {left}")


def comes_back(this: Repair) -> None:
    """The node is power cycled, validated and in service again."""
    found = this.until_it_ends()
    expect(found["state"] == "closed" and found["action"] == "back", f"the incident is {found}")
    taken = [(one["step"], one["outcome"]) for one in found["actions"]]
    expect(taken == [("power_cycle", "done")], f"the steps were {taken}")
    folder = this.incidents / found["ticket_id"]
    expect((folder / "power_cycle.tar.gz").stat().st_size > 0, f"no evidence in {folder}")
    state, reason = node_states(this.demo)[this.node]
    expect("drain" not in state, f"{this.node} is {state} ({reason})")
    expect(this.tickets() == ["opened", "closed"], f"the receiver has {this.tickets()}")


def is_to_be_returned(this: Repair) -> None:
    """A part that fails again gets no step and goes back to its maker; the spare stays in."""
    found = this.until_it_ends()
    expect(found["state"] in ("return", "kept"), f"the incident is {found}")
    expect(not found["actions"], f"a step was repeated: {found['actions']}")
    expect(this.tickets()[2:] == ["opened", "return"], f"the receiver has {this.tickets()}")
    rma = this.incidents / found["ticket_id"] / "rma.txt"
    for line in rma.read_text().splitlines():
        this.demo.progress.show(f"    {line}")
    this.expect_out(this.node)


def operator_consents(this: Repair) -> None:
    """The GPU is well, and the same: it passes, and takes a person's word to serve again."""
    demo = this.demo
    demo.stream("pod", [this.pod, "gpus", "--name", demo.name])
    prove_again(demo)
    this.play("repair_nodes")
    this.expect_out(this.node)
    this.play("repair_nodes", "-e", json.dumps({"repair_allowed": [this.node]}))
    found = this.incident()
    if found["state"] == "step":
        # For a second after a node was let in, Slurm shows that it does not respond.
        found = this.until_it_ends()
    expect(found["state"] == "closed", f"the incident is {found}")
    expect(this.tickets()[4:] == ["closed"], f"the receiver has {this.tickets()}")
