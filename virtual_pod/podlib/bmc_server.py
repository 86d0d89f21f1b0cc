# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A BMC whose machine is a node of the pod, and the server of all of them."""

from __future__ import annotations

import dataclasses
import sys
import threading
from typing import Any

from podlib import bmc, gpus, host, nodes
from podlib.layout import Node, Pod, PodError
from podlib.progress import Progress

sys.path.append(str(host.CHECKOUT / "tests" / "models"))

from redfish_server import V1, Bmc, machine
from redfish_server import serve as serve_bmc

_SYSTEM = f"{V1}/Systems/DGX"
_GRACE_S = 60


class NodeBmc(Bmc):
    """Its power is the state of a container."""

    def __init__(self, pod: Pod, node: Node, password: str) -> None:
        super().__init__(machine(serial=f"16602240{int(node.ip.rpartition('.')[2]):05d}"))
        self.passwords = {bmc.USER: password}
        self.pod, self.node = pod, node
        self._work = threading.Lock()

    def answer(self, path: str, query: str) -> dict[str, Any] | None:
        """Return a resource; the power is looked up where it is asked for."""
        if path == _SYSTEM and self._work.acquire(blocking=False):
            try:
                self.tree[_SYSTEM]["PowerState"] = self._state()
            finally:
                self._work.release()
        return super().answer(path, query)

    def set_power(self, state: str, kind: str) -> None:
        """Stop or start the node; that goes on after the answer, as on a machine."""
        threading.Thread(target=self._set_power, args=(state, kind), daemon=True).start()

    def lose_power(self) -> None:
        """AC power goes and comes, and the node with it."""
        super().lose_power()
        threading.Thread(target=self._cycle, daemon=True).start()

    def _cycle(self) -> None:
        self._set_power("Off", "ForceOff")
        self._set_power("On", "On")

    def _state(self) -> str:
        name = self.pod.container(self.node.name)
        done = host.podman("inspect", "--format", "{{.State.Status}}", name, check=False)
        return "On" if done.stdout.strip() == "running" else "Off"

    def _set_power(self, state: str, kind: str) -> None:
        name = self.pod.container(self.node.name)
        with self._work:
            if state == self._state():
                return
            print(f"{self.node.name}: {kind}", flush=True)
            try:
                if state == "Off":
                    grace = _GRACE_S if kind == "GracefulShutdown" else 0
                    host.podman("stop", "--time", str(grace), name, timeout=_GRACE_S + 60)
                else:
                    self._start()
            except PodError as error:
                print(f"{self.node.name}: {error}", flush=True)

    def _start(self) -> None:
        nodes.start_again(self.pod, self.node)
        if gpus.are_simulated(self.pod, self.node):
            # What simulates them keeps its state in /run.
            alone = dataclasses.replace(self.pod, nodes=(self.node,))
            gpus.simulate(Progress(f"bmc {self.node.name}"), alone)


def break_it(one: Bmc, fault: str) -> None:
    """Give a BMC one of bmc.FAULTS."""
    chassis = f"{V1}/Chassis/DGX"
    bad = {"State": "Enabled", "Health": "Critical"}
    if fault == "supply":
        one.tree[f"{chassis}/Power"]["PowerSupplies"][2]["Status"] = bad
    elif fault == "fan":
        one.tree[f"{chassis}/Thermal"]["Fans"][3]["Status"] = bad
    elif fault == "hot":
        one.tree[f"{chassis}/Thermal"]["Temperatures"][0]["ReadingCelsius"] = 97
    elif fault == "stays_on":
        one.hangs, one.refuses = True, {"ForceOff"}
    elif fault == "silent":
        one.is_dead = True


def serve(pod: Pod, fault: str, where: str) -> None:
    """Serve the BMCs of all nodes until killed."""
    folder = nodes.state_folder(pod.name) / "bmc"
    password = (folder / "password").read_text()
    for node in bmc.machines_of(pod):
        one = NodeBmc(pod, node, password)
        if fault and node.name == where:
            break_it(one, fault)
        server = serve_bmc(
            lambda _address, one=one: one,
            folder / "key.pem", folder / "cert.pem", bmc.address_of(pod, node), bmc.PORT,
        )  # fmt: skip
        threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()
