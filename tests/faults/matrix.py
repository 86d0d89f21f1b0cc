#!/usr/bin/env python3
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Breaks each part of a cluster in turn and follows the fault to the gate, by the shipped code.

matrix.py                 every fault, all healthy runs; fails where one differs from faults.yml
matrix.py gpu_lost ...    these faults only
matrix.py --write         writes docs/fault_matrix.md again

A fault is right when its records are exactly those of the table, subject and outcome, when the fold
of a node says the same, and when the gate does in a fleet what the table says: with the node in
service, and with all nodes new and held.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import wider  # noqa: E402
from bench import NODE, ROOT, Bench, Seen, Tools  # noqa: E402
from slurmctld_model import Slurmctld  # noqa: E402
from verdict_fold import verdicts  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.lookup.node_verdicts import _files  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.apply import (  # noqa: E402
    Slurm,
    carry_out,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (  # noqa: E402
    Policy,
    plan_gate,
    verdict_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (  # noqa: E402
    UNPROVEN,
    heading,
    write_reason,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (  # noqa: E402
    gate_verdicts,
)

TABLE = Path(__file__).resolve().parent / "faults.yml"
PAGE = ROOT / "docs" / "fault_matrix.md"
SHARE = 0.34
WIDER = {"fabric": wider.fabric, "pairs": wider.pairs, "records": wider.records,
         "tools": wider.tools}  # fmt: skip
ASKED_BY = {
    "gpu": "gpu_health", "dcgm": "dcgm_diag", "burn": "gpu_burn", "hca": "ib_health",
    "health": "node_health", "fabric": "fabric_verify", "pairs": "fabric_pairs",
    "records": "the gate", "tools": "its reader",
}  # fmt: skip
# How many healthy worlds are asked, by rig.
SOUND = {"gpu": 30, "dcgm": 6, "burn": 6, "hca": 20, "health": 12, "fabric": 40, "pairs": 100}


# Its record says that the health program did not come to its end.
CHECKER = "health.checker"


@dataclass(frozen=True)
class Twin:
    """What looks like a fault on the same rig and is harmless: no finding and no drain."""

    what: str
    given: Mapping[str, Any]


@dataclass(frozen=True)
class Fault:
    """A row: what is broken, by which rig, and all that must come of it.

    `fail` and `unsure` are (check, subject) of what must fail, and of what must not be measured.
    `drains` are the nodes that the gate takes out; `holds` those that it does not let in besides.
    `blind` says why nothing finds it. `held` is a node that the brake over the fleet keeps in
    service. `twin` is the healthy world beside it.
    """

    name: str
    layer: str
    what: str
    rig: str
    given: Mapping[str, Any] = field(default_factory=dict)
    fail: tuple[tuple[str, str], ...] = ()
    unsure: tuple[tuple[str, str], ...] = ()
    drains: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    fleet: bool = False
    blind: str = ""
    held: bool = False
    twin: Twin | None = None

    @property
    def outcome(self) -> str:
        """fail, not_measured, or pass where nothing finds it."""
        if self.rig == "records":
            return "not_measured"
        return "fail" if self.fail else "not_measured" if self.unsure else "pass"

    @property
    def itself(self) -> bool:
        """Whether the node drains itself: its own program has asked."""
        return self.rig == "health" and bool(self.fail) and not self.held


def _pairs(lines: list[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for line in lines:
        check, _blank, subject = line.partition(" ")
        found.append((check, subject))
    return tuple(found)


def load() -> list[Fault]:
    """Return the table; ValueError where a row says too little."""
    found = []
    for group in yaml.safe_load(TABLE.read_text(encoding="utf-8")):
        rig = group["rig"]
        fleet = wider.NODES_OF[rig]
        for row in group["faults"]:
            fail, unsure = _pairs(row.get("fail", [])), _pairs(row.get("unsure", []))
            given = {**group.get("given", {}), **row.get("given", {})}
            own = (NODE,) if rig not in ("fabric", "pairs", "health") else ()
            drains = tuple(row.get("drains", own if fail else ()))
            holds = row.get("holds", () if fail or not unsure else own)
            holds = fleet if holds == "all" else tuple(holds)
            fault = Fault(
                row["name"], group["layer"], row["what"], rig, given, fail, unsure, drains, holds,
                row.get("fleet", False), row.get("blind", ""),
                row.get("held", False), _twin(group, row),
            )  # fmt: skip
            if bool(fail or unsure) == bool(fault.blind) and rig != "records":
                raise ValueError(f"{fault.name}: write what finds it, or why nothing does")
            found.append(fault)
    names = [fault.name for fault in found]
    if len(set(names)) != len(names):
        raise ValueError(f"twice: {sorted({name for name in names if names.count(name) > 1})}")
    return found


def _twin(group: Mapping[str, Any], row: Mapping[str, Any]) -> Twin | None:
    twin = row.get("twin")
    if twin is None:
        return None
    if set(twin) - {"what", "given"} or not twin.get("what"):
        raise ValueError(f"{row['name']}: a twin has `what` and `given`, not {sorted(twin)}")
    return Twin(twin["what"], {**group.get("given", {}), **twin.get("given", {})})


class Matrix:
    """Runs rows in a folder, with everything compiled once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tools: Tools | None = None
        self._count = 0

    def see(self, rig: str, given: Mapping[str, Any]) -> Seen:
        """Break and ask."""
        if rig in WIDER:
            return WIDER[rig](given)
        if self._tools is None:
            self._tools = Tools(self.folder / "tools")
        self._count += 1
        bench = Bench(self._tools, self.folder / f"{rig}{self._count}")
        seen: Seen = getattr(bench, rig)(given)
        return seen

    def problems(self, fault: Fault) -> list[str]:
        """Return what is not as the table says; empty where all is."""
        seen = self.see(fault.rig, fault.given)
        late = {one["check"] for one in seen.records if one["status"] == "not_measured"}
        if CHECKER in late - {check for check, _subject in fault.unsure}:
            # The program's time limits are real, and other tests may keep the machine busy.
            seen = self.see(fault.rig, fault.given)
        return [*_records(fault, seen), *self._gate(fault, seen)]

    def _gate(self, fault: Fault, seen: Seen) -> Iterator[str]:
        names = wider.NODES_OF[fault.rig]
        at_work = self.gate(fault.rig, seen, names, held=False, fleet=fault.fleet)
        if fault.fleet:
            if not at_work.refusal or at_work.drained:
                yield f"the gate takes out {sorted(at_work.drained)} of a fleet that all fails"
            return
        if fault.itself:
            reason = at_work.drained.get(NODE, "")
            if reason != seen.reason or len(at_work.drained) != 1:
                yield f"the gate changed a drain that is not its own: {at_work.drained}"
            return
        if set(at_work.drained) != set(fault.drains) or at_work.refusal:
            yield f"out are {sorted(at_work.drained)}, not {fault.drains}; {at_work.refusal}"
        for node, reason in at_work.drained.items():
            heads = [heading(node, check, subject) for check, subject in fault.fail]
            # Of cables that a finding explains, the record of the cable is the first.
            cables = fault.rig == "fabric" and re.match(r"dgx-gate: rail\d cable", reason)
            if not cables and not any(f"dgx-gate: {head}" in reason for head in heads):
                yield f"the reason is {reason!r}, of {heads}"
        new = self.gate(fault.rig, seen, names, held=True)
        outside = {node for node in names if node in new.drained}
        if outside != {*fault.drains, *fault.holds}:
            yield f"of new nodes {sorted(outside)} stay out, not {fault.drains + fault.holds}"

    def gate(
        self, rig: str, seen: Seen, names: tuple[str, ...], held: bool, fleet: bool = False
    ) -> Gated:
        """Let the gate act on a fleet of which one node is the one that was seen."""
        self._count += 1
        folder = self.folder / f"state{self._count}"
        (folder / "nodes").mkdir(parents=True)
        for node in names:
            mine = node == NODE and rig not in ("fabric", "pairs", "health")
            own = seen.records if mine or fleet else wider.healthy(node)
            if fleet:
                own = json.loads(json.dumps(own).replace(NODE, node))
            level = seen.level if mine else "standard"
            data: Any = {"version": 1, "node": node, "level": level, "records": own}
            text = json.dumps(data)
            if mine and seen.file is not None:
                text = seen.file if isinstance(seen.file, str) else json.dumps(seen.file)
            if text:
                (folder / "nodes" / f"{node}.json").write_text(text)
        needs = rig == "fabric" or seen.expected is not None
        reported = gate_verdicts(_files(str(folder), names), seen.fabric, seen.pairs, needs)
        found = [verdict_from_data(one) for one in reported]
        slurm = Slurmctld(names, now=time.time())
        for node in names if held else ():
            reason = write_reason(node, UNPROVEN, "unproven, run validate_nodes")
            slurm.update({"NodeName": node, "State": "DRAIN", "Reason": reason}, "root")
        if seen.reason:
            slurm.update({"NodeName": NODE, "State": "DRAIN", "Reason": seen.reason}, "root")
        policy = Policy(share=SHARE, user="root")
        outcome = carry_out(
            Slurm(slurm),
            lambda nodes, spent: plan_gate(found, nodes, policy, time.time(), (), spent),
            lambda _step: None,
        )
        drained = {name: one.reason for name, one in slurm.nodes.items() if one.drained}
        return Gated(drained, outcome.refusal)


@dataclass(frozen=True)
class Gated:
    """What came of a run of the gate: the drained nodes with their reasons, and its refusal."""

    drained: dict[str, str]
    refusal: str


def _records(fault: Fault, seen: Seen) -> Iterator[str]:
    every = [*seen.records, *(seen.fabric or ()), *seen.pairs]
    for status, wanted in (("fail", fault.fail), ("not_measured", fault.unsure)):
        # What a finding does to each of its cables is in no row; the gate judges it. A load that
        # ends at once may end before its first sample.
        found = {(one["check"], one["subject"]) for one in every
                 if one["status"] == status and one["check"] not in ("fabric.cable", "burn.watch")
                 and (one["check"].startswith("fabric.pairs") <= (status == "fail"))}  # fmt: skip
        if found != set(wanted):
            yield f"{status}: {sorted(found)}, not {sorted(wanted)}"
    if seen.expected is not None and seen.expected != {*fault.fail, *fault.unsure}:
        yield f"the hand that broke it expects {sorted(seen.expected)}"
    if fault.rig not in ("fabric", "pairs", "records"):
        (folded,) = verdicts({NODE: seen.records})
        if folded.verdict != fault.outcome:
            yield f"the fold of the node is {folded.verdict}, not {fault.outcome}"
    if fault.rig == "health":
        first = fault.fail[0] if fault.fail else ("", "")
        if fault.held:
            if seen.reason or "left in service" not in seen.comment:
                yield f"the brake did not hold: {seen.reason!r}, comment {seen.comment!r}"
            return
        if fault.fail and not any(
            seen.reason.startswith(f"node-health: {subject} {check}".replace("/home", ""))
            or f" {check} " in f"{seen.reason} ".replace(":", " ")
            for check, subject in fault.fail
        ):
            yield f"the node drained itself with {seen.reason!r}, of {first}"
        if not fault.fail and seen.reason:
            yield f"the node drained itself: {seen.reason}"


def healthy_given(rig: str, seed: int) -> dict[str, Any]:
    """Return what a healthy world looks like on another day: warm, busy before, with a past."""
    dice = random.Random(f"healthy {rig} {seed}")
    if rig in ("gpu", "dcgm", "burn", "health"):
        lines = []
        for gpu in range(8):
            lines += [
                f"gpu.{gpu}.temperature = {dice.randint(22, 55)}",
                f"gpu.{gpu}.memory_temperature = {dice.randint(30, 70)}",
                f"gpu.{gpu}.remap.correctable = {dice.choice([0, 0, 0, 1, 3])}",
                f"gpu.{gpu}.ecc.aggregate.dram.correctable = {dice.choice([0, 2, 117, 40000])}",
                f"gpu.{gpu}.pcie_replays = {dice.choice([0, 0, 12])}",
                f"gpu.{gpu}.link.{dice.randrange(18)}.crc = {dice.choice([0, 4])}",
                f"gpu.{gpu}.throttle = {dice.choice([0x1, 0x4])}",
                f"gpu.{gpu}.hbm_gbps = {dice.randint(2900, 3050)}",
            ]
        log = "" if rig == "burn" else "[  88.1] NVRM: loading NVIDIA UNIX Open Kernel Module\n"
        return {"state": "\n".join(lines) + "\n", "log": log}
    if rig == "hca":
        return {
            "changes": {
                f"mlx5_rail{rail}": {
                    "counters": {"port_xmit_data": dice.randrange(10**15), "port_rcv_errors": 14}
                }
                for rail in range(8)
            }
        }
    if rig == "fabric":
        harmless = (None, "old_totals", "few_errors", "congestion", "switches_without_names",
                    "aggregation_nodes", "kernel_names",
                    "all_guids_declared")  # fmt: skip
        return {"breaks": harmless[seed % len(harmless)], "seed": seed}
    return {"seed": seed, "noise": 0.05}


def healthy_problems(matrix: Matrix, rig: str, seed: int) -> list[str]:
    """Return what a healthy world is accused of."""
    return accusations(matrix, rig, healthy_given(rig, seed), f"{rig} {seed}")


def accusations(matrix: Matrix, rig: str, given: Mapping[str, Any], name: str) -> list[str]:
    """Return every finding and every drain in a world that must have none."""
    seen = matrix.see(rig, given)
    accused = [
        f"{name}: {one['status']} {one['check']} {one['subject']}"
        for one in [*seen.records, *(seen.fabric or ()), *seen.pairs]
        if one["status"] != "pass"
        and (one["status"] == "fail" or not one["check"].startswith("fabric.pairs"))
    ]
    if seen.reason:
        accused.append(f"{name}: the node drained itself: {seen.reason}")
    names = wider.NODES_OF[rig]
    for held in (False, True):
        drained = matrix.gate(rig, seen, names, held).drained
        if drained:
            accused.append(f"{name}: the gate keeps out {drained}")
    return accused  # fmt: skip


def main() -> int:
    """Run what was asked for; returns the exit status."""
    import page

    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", help="faults; all of them and the healthy runs without")
    parser.add_argument("--write", action="store_true", help="write docs/fault_matrix.md")
    given = parser.parse_args()
    table = load()
    if given.write:
        PAGE.write_text(page.render(table), encoding="utf-8")
        return 0
    wrong, started = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        matrix = Matrix(Path(scratch))
        for fault in table:
            if given.names and fault.name not in given.names:
                continue
            begun = time.monotonic()
            problems = matrix.problems(fault)
            if fault.twin is not None:
                twin = accusations(matrix, fault.rig, fault.twin.given, "its twin")
                problems += twin
            wrong += bool(problems)
            took = time.monotonic() - begun
            message = "\n        ".join(problems)
            print(f"{'WRONG' if problems else 'ok   '} {fault.name} ({took:.1f} s) {message}")
        for rig, count in SOUND.items() if not given.names else ():
            accused = [
                line for seed in range(count) for line in healthy_problems(matrix, rig, seed)
            ]
            wrong += len(accused)
            print(f"{rig}: {count} healthy runs, {len(accused)} false alarms {accused[:5]}")
    print(f"{page.summary(table)}; {wrong} differ; {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
