# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the fault library on worlds, alone and two at a time, and count what was found.

.venv/bin/python tests/fabric/library.py [PAIRS_PER_FABRIC]
.venv/bin/python tests/fabric/library.py knowledge    by what is known of the adapters
.venv/bin/python tests/fabric/library.py noplan       without a plan, and what learning refuses
"""

from __future__ import annotations

import copy
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from world import SIZES, NoRoomError, World, choose_start, copied, plan_of  # noqa: E402, I001
from hand import FAULTS, FORMS, HARMLESS, Hand, name_all, protected  # noqa: E402
import faults_cables  # noqa: E402, F401  (they enter themselves in the list)
import faults_devices  # noqa: E402, F401
import faults_links  # noqa: E402, F401
from irregular import IRREGULAR  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import Sweep  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.ask import Answers  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.findings import (  # noqa: E402
    Finding,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.judge import (  # noqa: E402
    inspect,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._inspection.learn import (  # noqa: E402
    learned_csv,
)

worlds: dict[str, World] = {}


def fresh(size: str) -> World:
    if size not in worlds:
        worlds[size] = World.of(plan_of(size))
    kept = worlds[size]
    world = copy.copy(kept)
    world.fabric = Sweep({guid: copied(device) for guid, device in kept.fabric.devices.items()})
    for name in (
        "silent",
        "disabled",
        "before",
        "after",
        "doubled",
        "sms",
        "adapters",
        "called",
        "gone",
        "errors",
        "options",
        "key_of",
        "busy",
    ):
        setattr(world, name, copy.copy(getattr(kept, name)))
    return world


@dataclass
class Case:
    """A broken fabric, what must be found in it, and what was."""

    size: str
    names: tuple[str, ...]
    seed: int
    world: World
    expected: set[tuple[str, str]] = field(default_factory=set)
    doubts: set[tuple[str, str]] = field(default_factory=set)
    touched: set = field(default_factory=set)

    def run(self) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        verdict = self.world.judge()
        found = {(finding.kind, finding.subject) for finding in verdict.findings}
        unsure = {(finding.kind, finding.subject) for finding in verdict.doubts}
        # Each finding is reported once.
        assert len(found) == len(verdict.findings), sorted(found)
        return found, unsure

    def __str__(self) -> str:
        return f"{self.size}: {' + '.join(self.names)} (seed {self.seed})"


def build(size: str, names: tuple[str, ...], seed: int) -> Case:
    """Break a fabric; NoRoomError where it has no place for these faults together."""
    world = fresh(size)
    rng = random.Random(f"{size} {names} {seed}")
    case = Case(size, names, seed, world)
    broken = []
    for name in names:
        hand = Hand(world, rng, protected(world) | case.touched)
        broken.append({**FAULTS, **HARMLESS}[name](hand))
        case.touched |= broken[-1].touched
    for done in broken:
        asked = all(_answered(world, item) for item in done.findings) and bool(done.findings)
        case.expected |= done.answered if asked and done.answered is not None else done.findings
        # What the broken nodes report leaves no doubt of the devices that it was taken for, either.
        case.doubts |= {item for item in done.doubts if not asked and not _answered(world, item)}
    choose_start(world, case.touched)
    return case


def _answered(world: World, item: tuple[str, str]) -> bool:
    """Return whether the node that this is about reports which adapter is which."""
    return item[1].partition(":")[2].partition("/")[0] in world.adapters


def singles(seeds: int = 3) -> list[tuple[str, tuple[str, ...], int]]:
    names = [*FAULTS, *HARMLESS]
    return [(size, (name,), seed) for size in SIZES for name in names for seed in range(seeds)]


# What is out of reach cannot be seen to be broken as well, and where all adapters have other names
# another fault cannot count on theirs.
ALONE = {"most_of_the_fabric_out_of_reach", "rails_swapped_under_the_usual_names"}


def pairs(per_fabric: int, seed: int = 0) -> list[tuple[str, tuple[str, ...], int]]:
    rng = random.Random(seed)
    chosen = []
    names = [name for name in FAULTS if name not in ALONE]
    for size in SIZES:
        for index in range(per_fabric):
            chosen.append((size, tuple(rng.sample(names, 2)), index))
    return chosen


@dataclass
class Score:
    runs: int = 0
    no_room: int = 0
    faults: int = 0
    detected: int = 0
    false: int = 0
    exact: int = 0
    wrong: list[str] = field(default_factory=list)

    def take(self, size: str, names: tuple[str, ...], seed: int) -> None:
        try:
            case = build(size, names, seed)
        except NoRoomError:
            self.no_room += 1
            return
        found, unsure = case.run()
        self.runs += 1
        self.faults += len(case.expected)
        self.detected += len(case.expected & found)
        self.false += len(found - case.expected)
        if found == case.expected and unsure == case.doubts:
            self.exact += 1
        else:
            self.wrong.append(
                f"{case}: not found {sorted(case.expected - found)}, besides "
                f"{sorted(found - case.expected)}, unsure {sorted(unsure ^ case.doubts)}"
            )


# Faults whose names of adapters are part of the fault, or that declare GUIDs.
OF_NAMES = {
    "two_nodes_exchanged", "three_nodes_exchanged", "rail_renamed", "node_renamed",
    "rail_without_a_name", "node_without_a_name", "node_with_a_foreign_name",
    "node_with_the_name_of_another", "rail_with_the_name_of_another_node",
    "names_of_declared_nodes_exchanged", "declared_switch_with_the_name_of_another",
    "rails_swapped_under_any_names_and_nodes_answer", "rails_swapped_under_default_names",
    "rails_swapped_under_foreign_names", "rails_swapped_under_the_usual_names",
    "rails_exchanged_and_one_has_no_name", "three_in_turn_and_one_has_no_name",
    "numbers_of_a_node_moved_up", "adapter_replaced", "leaf_replaced",
    "declared_guid_in_the_place_of_another", "adapter_gone_and_later_ones_renumbered",
    "adapter_gone_and_renumbered_as_the_node_reports", "duplicate_guid",
    "most_of_the_fabric_out_of_reach", "subnet_manager_on_a_switch",
}  # fmt: skip


@dataclass
class Known:
    """How fabrics of one class of knowledge were judged."""

    fabrics: int = 0
    due: int = 0
    found: int = 0
    false: int = 0
    broken: int = 0
    broken_passed: int = 0
    healthy: int = 0
    healthy_failed: int = 0
    passed: int = 0

    def take(self, size: str, fault: str, seed: int, form: str, asked: bool, share: float) -> None:
        world = fresh(size)
        rng = random.Random(f"{size} {fault} {seed}")
        hand = Hand(world, rng, protected(world))
        if asked:
            world.ask_nodes()
        try:
            done = FAULTS[fault](hand)
            choose_start(world, done.touched)
        except NoRoomError:
            return
        if form != "planned":
            name_all(world, form)
        world.share = share
        verdict = world.judge()
        found = {(finding.kind, finding.subject) for finding in verdict.findings}
        # That all adapters have other names than planned is true, and is not a false alarm.
        reported = {item for item in found if form == "planned" or item[0] not in NAMES}
        self.fabrics += 1
        self.due += len(done.findings)
        self.found += len(done.findings & found)
        self.false += len(reported - done.findings)
        for cable in world.plan.cables:
            status, _why = verdict.cables[cable]
            self.passed += status == "pass"
            if world.in_place(cable):
                # A cable that is slow or makes errors is where it belongs, and fails with reason.
                if cable not in done.touched:
                    self.healthy += 1
                    self.healthy_failed += status == "fail"
            else:
                self.broken += 1
                self.broken_passed += status == "pass"

    def row(self, title: str) -> str:
        return (
            f"| {title} | {self.fabrics} | {self.found} of {self.due} | {self.false} | "
            f"{self.broken_passed} of {self.broken} | {self.healthy_failed} of {self.healthy} |"
        )


NAMES = ("renamed", "description")


def knowledge(seeds: int = 1) -> int:
    """Print the rates by what is known of the adapters, as a table."""
    names = [name for name in FAULTS if name not in OF_NAMES]
    wrong = 0
    for form in ("planned", *FORMS):
        for asked in (False, True):
            for share in (1.0, 0.6):
                if share < 1 and asked:
                    continue
                known = Known()
                for size in ("basepod-12", "superpod-32-of-64"):
                    for name in names:
                        for seed in range(seeds):
                            known.take(size, name, seed, form, asked, share)
                title = f"names: {form}; nodes {'answer' if asked else 'do not answer'}"
                title += "" if share == 1 else "; the sweep is cut off at 60 %"
                print(known.row(title), flush=True)
                wrong += known.broken_passed + known.healthy_failed
    return 1 if wrong else 0


# Faults that a list would freeze when it is learned.
FROZEN = (
    "rails_of_a_node_swapped", "nodes_on_a_leaf_swapped", "rails_of_two_nodes_swapped_across",
    "two_nodes_exchanged", "uplink_dark", "uplinks_of_a_leaf_swapped", "rail_in_a_free_port",
    "uplink_at_two_lanes", "rail_at_hdr", "rail_missing",
)  # fmt: skip
# Not a matter of cables, devices and rates, or of a plan alone: a host or a switch that may as well
# be meant to be there, which hosts manage the subnet, the name of one switch among others.
_PLAN_ONLY = {
    "unplanned_host_in_a_free_port", "node_that_is_not_in_the_plan", "standby_missing",
    "switch_that_is_not_in_the_plan", "subnet_manager_on_a_node_beside_ufm",
    "leaf_with_a_foreign_name", "spine_with_a_foreign_name",
}  # fmt: skip
CLEAN = [name for name in FAULTS if name not in OF_NAMES | _PLAN_ONLY]
CLEAN += ["two_nodes_exchanged", "three_nodes_exchanged"]


@dataclass
class Unplanned:
    """How fabrics were judged without a plan."""

    fabrics: int = 0
    due: int = 0
    exact: int = 0
    found: int = 0
    guessed: int = 0
    false: int = 0
    missed: list[str] = field(default_factory=list)

    def take(self, size: str, fault: str, seed: int) -> None:
        try:
            case = build(size, (fault,), seed)
        except NoRoomError:
            return
        verdict = inspect(case.world.observe())
        self.fabrics += 1
        self.due += len(case.expected)
        exact = {(one.kind, one.subject) for one in verdict.findings} & case.expected
        rest = case.expected - exact
        named = {item for item in rest if any(tells(one, item, case) for one in verdict.findings)}
        guessed = {
            item for item in rest - named if any(tells(one, item, case) for one in verdict.doubts)
        }
        self.exact += len(exact)
        self.found += len(exact | named)
        self.guessed += len(guessed)
        self.missed += [f"{case}: {item}" for item in sorted(rest - named - guessed)]
        self.false += sum(
            not any(tells(one, item, case) for item in case.expected) for one in verdict.findings
        )


def tells(finding: Finding, item: tuple[str, str], case: Case) -> bool:
    """Return whether a finding names what is due: itself, or what the fault broke."""
    broken = {cable for cable in case.touched if not case.world.in_place(cable)}
    # What is silent is in place.
    broken = broken or case.touched
    ends = {str(end) for cable in broken for end in (cable.a, cable.b)}
    names = {cable.subject for cable in broken}
    return (
        finding.subject == item[1]
        or any(cable.subject in names for cable in finding.cables)
        or finding.subject in names
        or finding.subject.partition(":")[2] in ends
    )


def learned(size: str, fault: str, seed: int) -> bool | None:
    """Return whether a fault is named before its fabric is learned; None where there is no room."""
    try:
        case = build(size, (fault,), seed)
    except NoRoomError:
        return None
    try:
        learned_csv(case.world.plan, Answers(case.world.observe()), {})
    except ToolError as error:
        return all(subject.partition(":")[2] in str(error) for _kind, subject in case.expected)
    return False


def healthy_world(size: str) -> World:
    """Return a fabric as planned, with a place to look from and a subnet manager."""
    world = fresh(size)
    node, rail = min(world.plan.hcas)
    world.start, world.sms = world.key_of[node, rail], {node: "MASTER"}
    return world


def healthy(size: str, condition: str, seed: int) -> list[Finding] | None:
    """Return findings and guesses of a fabric that is irregular and healthy; None without room."""
    world = fresh(size)
    try:
        IRREGULAR[condition](Hand(world, random.Random(f"{size} {condition} {seed}"), set()))
    except NoRoomError:
        return None
    there = [key for key, guid in sorted(world.key_of.items()) if guid in world.fabric.devices]
    world.start = world.key_of[next(key for key in there if key[1] >= 0)]
    world.sms = {there[0][0]: "MASTER"}
    verdict = inspect(world.observe())
    return [one for one in verdict.findings + verdict.doubts if one.kind != "no_sm"]


LEAST_FOUND_UNPLANNED = 0.8


def noplan(seeds: int = 3) -> int:
    """Print the rates without a plan; the exit status is 1 if they are not what they must be."""
    wrong = 0
    for size in SIZES:
        # The large one takes ten times as long.
        few = size == "superpod-127"
        rates = Unplanned()
        for name in CLEAN:
            for seed in range(1 if few else seeds):
                rates.take(size, name, seed)
        messages = [
            healthy(size, name, seed) for name in IRREGULAR for seed in range(1 if few else seeds)
        ]
        kept = [learned(size, name, seed) for name in FROZEN for seed in range(1 if few else 10)]
        wrong += rates.false + sum(len(one) for one in messages if one) + kept.count(False)
        wrong += rates.found < LEAST_FOUND_UNPLANNED * rates.due
        print(
            f"| {size} | {rates.fabrics} | {rates.due} | {rates.exact} | {rates.found} | "
            f"{rates.guessed} | {len(rates.missed)} | {rates.false} | "
            f"{sum(len(one) for one in messages if one)} in "
            f"{sum(one is not None for one in messages)} | "
            f"{kept.count(True)} of {len(kept) - kept.count(None)} |",
            flush=True,
        )
        for line in rates.missed:
            print("  missed", line)
    return 1 if wrong else 0


def main() -> int:
    if sys.argv[1:] == ["noplan"]:
        return noplan()
    if sys.argv[1:] == ["knowledge"]:
        return knowledge()
    per_fabric = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rc = 0
    for title, runs in (("one fault", singles()), ("two faults", pairs(per_fabric))):
        for size in SIZES:
            score = Score()
            for run in runs:
                if run[0] == size:
                    score.take(*run)
            if not score.runs:
                continue
            print(
                f"{title}, {size}: {score.runs} fabrics, {score.faults} findings due, "
                f"{100 * score.detected / score.faults:.2f} % found, {score.false} false alarms, "
                f"{100 * score.exact / score.runs:.2f} % exact ({score.no_room} without room)"
            )
            for line in score.wrong[:20]:
                print("  " + line)
                rc = 1
    print(f"{len(FAULTS)} faults, {len(HARMLESS)} harmless conditions, {len(SIZES)} fabrics")
    return rc


if __name__ == "__main__":
    sys.exit(main())
