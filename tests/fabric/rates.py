# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fabrics are judged: by size and rule, by what is known of the adapters, 1 to 30 faults each.

Each number is one fabric, always the same. A long run is made of ranges, in any order:

.venv/bin/python tests/fabric/rates.py 0 500 rates.jsonl     adds a line for each fabric
.venv/bin/python tests/fabric/rates.py rates.jsonl [...]     prints the tables of docs/fabric.md,
                                                             and fails on what must not be

Every fourth fabric goes through the module fabric_verify, with options, saved answers and output;
the others through what it calls.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

# It makes the collection importable.
from world import INTERVAL_S, Cable, CablePlan, NoRoomError, World, choose_start, plan_of

# isort: split
from ansible.module_utils import basic
from cable_plans import plan_data
from hand import Done, Hand, declare, name_all, protected
from library import ALONE, FAULTS, NAMES, OF_NAMES, fresh, worlds

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.cable_lists import (
    cables_csv,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    NODE_LEAF,
    plan_to_data,
    switch_end,
)
from ansible_collections.baremetal.dgx.plugins.modules import fabric_verify
from ansible_collections.baremetal.dgx.plugins.plugin_utils._cables.files import read_cables
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import (
    plan_cables,
    plan_devices,
)

MODULE_EVERY = 4


def _ruled(*args: Any, **fabric: Any) -> CablePlan:
    plan = plan_cables(plan_data(*args, **fabric))
    return replace(plan, hcas={key: replace(hca, guid=None) for key, hca in plan.hcas.items()})


def _leaf_spine(nodes: int, tiers: tuple[int, ...], rails: int, **rule: int) -> CablePlan:
    return _ruled(nodes, tiers, rails, topology="leaf_spine", leaf_spine=rule)


def _listed() -> CablePlan:
    """A list of cables: on each leaf the nodes are in any port."""
    rng, data = random.Random("list"), plan_data(48, (16, 8))
    plan = plan_cables(data)
    ports: dict[str, list[int]] = {}
    for cable in plan.cables:
        if cable.kind == NODE_LEAF:
            ports.setdefault(cable.b.host, []).append(cable.b.port)
    for some in ports.values():
        rng.shuffle(some)
    cables = tuple(
        replace(c, b=switch_end(c.b.host, ports[c.b.host].pop())) if c.kind == NODE_LEAF else c
        for c in plan.cables
    )
    text = cables_csv(replace(plan, cables=tuple(sorted(cables))), {})
    read, problems = read_cables(plan_devices(data), text.encode(), "cables.csv")
    assert read is not None, problems
    return replace(read, hcas={key: replace(hca, guid=None) for key, hca in read.hcas.items()})


# Of a hundred fabrics so many.
SHAPES: dict[str, tuple[int, Callable[[], CablePlan]]] = {
    "BasePOD, 12 nodes": (20, lambda: plan_of("basepod-12")),
    "SuperPOD, 16 nodes": (10, lambda: _ruled(16, (8, 4))),
    "SuperPOD, 32 nodes": (12, lambda: plan_of("superpod-32")),
    "SuperPOD, 32 nodes of 64": (14, lambda: plan_of("superpod-32-of-64")),
    "list, 48 nodes in any port": (13, _listed),
    "leaf_spine, 16 nodes, 2 rails a leaf": (
        13,
        lambda: _leaf_spine(16, (8, 4), 4, nodes_per_group=4, rails_per_leaf=2, trunk=2),
    ),
    "leaf_spine, 139 nodes, 4 rails, 9 spines": (
        8,
        lambda: _leaf_spine(139, (32, 9), 4, nodes_per_group=18, trunk=2),
    ),
    "SuperPOD, 127 nodes": (7, lambda: plan_of("superpod-127")),
    "SuperPOD, 256 nodes": (2, lambda: _ruled(256, (64, 32))),
    "SuperPOD, 1,024 nodes with cores": (1, lambda: _ruled(1024, (256, 256, 128))),
}
ASKED, DECLARED, NOT = "nodes answer", "GUIDs declared", "no node answers"
FORMS_OF = {
    "planned": "as planned",
    "hca": "MLNX_OFED's default",
    "capitals": "in capitals",
    "shifted": "the kernel's, two higher",
    "renamed": "other than planned",
    "lost": "lost on a third of the nodes",
    "cloned": "cloned: one node in 16 has the name of another",
    "none": "none",
}
COUNTS = (1, 1, 2, 2, 10, 30)
# Each adds a device whose GUID is always the same, or is about the fabric as a whole.
ONCE = {
    "unplanned_host_in_a_free_port", "unplanned_host_in_the_port_of_a_rail",
    "node_that_is_not_in_the_plan", "switch_that_is_not_in_the_plan", "another_fabric_joined",
    "rail_in_the_storage_adapter_of_its_node", "adapter_replaced", "leaf_replaced",
}  # fmt: skip
# With GUIDs declared, these are names that are wrong, and the devices are in place.
BY_NAME = {"two_leaves_exchanged", "two_spines_exchanged"}
CLASSES = {
    "half devices": (
        "half_of_a_leaf_dead", "half_of_a_spine_dead", "spine_that_loses_most",
        "spine_that_loses_a_few_cables", "leaf_at_hdr_on_most_links", "node_at_hdr_on_most_links",
    ),
    "trunks": ("two_trunks_exchanged",),
    "two fabrics joined": ("another_fabric_joined",),
    "nodes elsewhere": (
        "node_at_another_place", "two_nodes_exchanged", "three_nodes_exchanged",
        "node_plugged_as_an_absent_one",
    ),
}  # fmt: skip


@dataclass
class Rate:
    """One fabric, and how it was judged."""

    number: int
    shape: str
    form: str
    known: str
    cut: bool
    faults: list[str] = field(default_factory=list)
    wanted: int = 0
    module: bool = False
    due: int = 0
    found: int = 0
    pieces: int = 0
    unmeasured: int = 0
    missed: int = 0
    false: int = 0
    broken: int = 0
    broken_passed: int = 0
    healthy: int = 0
    healthy_failed: int = 0
    # By fault: how much was due of it, and found.
    of_fault: list[tuple[str, int, int]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Said:
    """A finding or doubt, as the module says it."""

    kind: str
    subject: str
    cables: set[str]

    @property
    def item(self) -> tuple[str, str]:
        return self.kind, self.subject


@dataclass
class Answer:
    findings: list[Said]
    doubts: list[Said]
    status: dict[str, str]


def drawn(number: int) -> Rate:
    """What fabric a number is."""
    rng = random.Random(f"fabric {number}")
    shape = rng.choices([*SHAPES], [weight for weight, _plan in SHAPES.values()])[0]
    form = [*FORMS_OF][number % len(FORMS_OF)]
    known = rng.choices([ASKED, DECLARED, NOT], [4, 1, 4])[0]
    rate = Rate(number, shape, form, known, cut=rng.random() < 0.1)
    rate.wanted = rng.choice(COUNTS)
    rate.module = number % MODULE_EVERY == 0
    return rate


@dataclass
class Broken:
    """A fabric that is broken, with what was done to it."""

    rate: Rate
    world: World
    done: list[Done]
    touched: set[Cable]


def run(number: int) -> Rate:
    """Break the fabric of this number, and judge it."""
    fabric = broken(number)
    judge = by_module if fabric.rate.module else by_judge
    score(fabric, judge(fabric.world))
    return fabric.rate


def broken(number: int) -> Broken:
    """Return the fabric of this number."""
    rate, rng = drawn(number), random.Random(f"faults {number}")
    if rate.shape not in worlds:
        worlds[rate.shape] = World.of(SHAPES[rate.shape][1]())
    world = fresh(rate.shape)
    if rate.known == ASKED:
        world.ask_nodes()
    elif rate.known == DECLARED:
        declare(
            Hand(world, rng, set()), [*{end.host for c in world.plan.cables for end in (c.a, c.b)}]
        )
    done, touched = [], set[Cable]()
    names = [name for name in FAULTS if name not in OF_NAMES | ALONE]
    if rate.known == DECLARED:
        names = [name for name in names if name not in BY_NAME]
    elif rate.form == "planned" and rate.known == NOT and rate.wanted <= 2:
        # Among more faults of names one explains another.
        names += sorted(OF_NAMES if rate.wanted == 1 else OF_NAMES - ALONE)
    for _try in range(3 * rate.wanted + 9):
        if len(done) == rate.wanted:
            break
        name = rng.choice(names)
        if name in ONCE and name in rate.faults:
            continue
        try:
            one = FAULTS[name](Hand(world, rng, protected(world) | touched))
            choose_start(world, touched | one.touched)
        except NoRoomError:
            continue
        rate.faults.append(name)
        done.append(one)
        touched |= one.touched
    rename(world, rate.form, rng)
    world.share = rng.uniform(0.3, 0.95) if rate.cut else 1
    return Broken(rate, world, done, touched)


def rename(world: World, form: str, rng: random.Random) -> None:
    nodes = sorted({node for node, _rail in world.plan.hcas})
    if form == "lost":
        name_all(world, "none", rng.sample(nodes, len(nodes) // 3))
    elif form == "cloned":
        some = rng.sample(nodes, 2 * (len(nodes) // 16 or 1))
        for node, other in zip(some[::2], some[1::2], strict=True):
            for (name, rail), guid in world.key_of.items():
                if name == node and rail >= 0 and guid in world.fabric.devices:
                    world.fabric.devices[guid].description = f"{other} mlx5_rail{rail}"
    elif form != "planned":
        name_all(world, form)


def by_judge(world: World) -> Answer:
    verdict = world.judge()

    def in_words(some: Iterable[Any]) -> list[Said]:
        return [Said(one.kind, one.subject, {c.subject for c in one.cables}) for one in some]

    status = {cable.subject: status for cable, (status, _why) in verdict.cables.items()}
    return Answer(in_words(verdict.findings), in_words(verdict.doubts), status)


def by_module(world: World) -> Answer:
    """Let the module itself judge: its options, files with the tools' answers, its records."""
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, text in world.saved().items():
            files[name] = str(Path(folder, name))
            Path(files[name]).write_text(text)
        options = {
            "plan": plan_to_data(world.plan), "sweep_files": files, "interval_s": INTERVAL_S,
            "adapters": world.adapters, "output": f"{folder}/out", "fail_on": [], **world.options,
        }  # fmt: skip
        basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": options}).encode()
        basic._ANSIBLE_PROFILE = "legacy"
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            fabric_verify.main()
        gc.enable()
        result = json.loads(out.getvalue())
        assert not result.get("failed"), result["msg"]
        kept = json.loads(Path(folder, "out", "records.json").read_text())

    def read(some: list[dict[str, Any]]) -> list[Said]:
        return [Said(one["kind"], one["subject"], set(one["cables"])) for one in some]

    status = {cable.subject: "pass" for cable in world.plan.cables}
    status |= {
        one["subject"]: one["status"]
        for one in kept["records"]
        if one["check"] == "fabric.cable" and one["subject"].startswith("cable:")
    }
    counts = {name: [*status.values()].count(name) for name in ("pass", "fail", "not_measured")}
    assert kept["summary"]["cables"] == {"planned": len(status), **counts}
    return Answer(read(result["causes"]), read(result["doubts"]), status)


def score(fabric: Broken, answer: Answer) -> None:
    """Count what was due, and found."""
    rate, world, done = fabric.rate, fabric.world, fabric.done
    found = {one.item for one in answer.findings}
    due = set().union(*(one.findings for one in done))
    beside = [
        one
        for one in answer.findings
        if one.item not in due and not (rate.form != "planned" and one.kind in NAMES)
    ]
    doubted = {one.item for one in answer.doubts}
    named = set().union(*(one.cables for one in beside))
    all_hurt, hosts = set[str](), set[str]()
    for name, one in zip(rate.faults, done, strict=True):
        rate.of_fault.append((name, len(one.findings), len(one.findings & found)))
        away = {cable for cable in one.touched if not world.in_place(cable)}
        # What is slow, silent or makes errors is in place.
        hurt = {cable.subject for cable in (away or one.touched)}
        all_hurt |= hurt
        hosts |= {end.host for cable in one.touched for end in (cable.a, cable.b)}
        hosts |= {subject.partition(":")[2] for _kind, subject in one.findings}
        unmeasured = {name for name in hurt if answer.status[name] == "not_measured"}
        for item in one.findings:
            rate.due += 1
            if item in found:
                rate.found += 1
            elif hurt & named:
                rate.pieces += 1
            elif rate.cut or item in doubted or (one.touched and unmeasured):
                rate.unmeasured += 1
            else:
                rate.missed += 1
                rate.wrong.append(f"missed {item}")
            if item not in found and not rate.cut:
                rate.wrong.append(f"due {item}")
    for one in beside:
        place = one.subject.partition(":")[2]
        about = one.cables & all_hurt or any(place.startswith(host) for host in hosts)
        rate.false += not about
        rate.wrong.append(f"{'beside' if about else 'false'} {one.item}")
    for cable in world.plan.cables:
        status = answer.status[cable.subject]
        if not world.in_place(cable):
            rate.broken += 1
            rate.broken_passed += status == "pass"
        elif cable not in fabric.touched:
            rate.healthy += 1
            rate.healthy_failed += status == "fail"
            if status == "fail":
                rate.wrong.append(f"failed {cable.subject}")


def knowledge_of(rate: Rate) -> str:
    if rate.known == NOT:
        return f"names {FORMS_OF[rate.form]}"
    return f"{rate.known}; names {FORMS_OF[rate.form]}"


def table(title: str, of: Callable[[Rate], str], rates: list[Rate]) -> None:
    print(
        f"\n| {title} | fabrics | due | found | in pieces | not measured | missed | false "
        "| broken cables passed | healthy cables failed |\n" + "| --- " * 10 + "|"
    )
    groups: dict[str, list[Rate]] = {}
    for rate in rates:
        groups.setdefault(of(rate), []).append(rate)
    for name, some in sorted(groups.items()):

        def total(key: str, some: list[Rate] = some) -> int:
            return sum(getattr(rate, key) for rate in some)

        share = 100 * total("found") / (total("due") or 1)
        print(
            f"| {name} | {len(some)} | {total('due')} | {total('found')} ({share:.1f} %) | "
            f"{total('pieces')} | {total('unmeasured')} | {total('missed')} | {total('false')} | "
            f"{total('broken_passed')} of {total('broken')} | "
            f"{total('healthy_failed')} of {total('healthy')} |"
        )


LEAST_FOUND = 0.99


def shortfalls(rates: list[Rate]) -> Iterator[str]:
    """Yield what must not be, in words.

    With GUIDs known each class is found, and nothing is invented, of a cut sweep neither. Whatever
    is known, no broken cable passes; without a name nothing is invented either. A name that is
    another's is believed as long as no GUID contradicts it.
    """
    sure = [rate for rate in rates if rate.known != NOT]
    for rate in rates:
        if rate.broken_passed:
            yield f"fabric {rate.number}: {rate.broken_passed} broken cables passed"
        if (rate.known != NOT or rate.form == "none") and rate.false:
            yield f"fabric {rate.number}: {rate.false} false findings"
        if (rate.known != NOT or rate.form != "cloned") and rate.healthy_failed:
            yield f"fabric {rate.number}: {rate.healthy_failed} healthy cables failed"
    classes: dict[str, list[tuple[int, int]]] = {}
    for rate in sure:
        if not rate.cut:
            for name in (rate.shape, FORMS_OF[rate.form], f"{rate.wanted} at once"):
                classes.setdefault(name, []).append((rate.due, rate.found))
            for fault, due, found in rate.of_fault:
                classes.setdefault(class_of(fault), []).append((due, found))
    for name, counts in sorted(classes.items()):
        due, found = map(sum, zip(*counts, strict=True))
        if found < LEAST_FOUND * due:
            yield f"{name}: {found} of {due} found"


def class_of(fault: str) -> str:
    return next((name for name, faults in CLASSES.items() if fault in faults), "other faults")


def report(paths: list[str]) -> int:
    """Print the tables; the exit status is 1 if something is that must not be."""
    rates = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            rate = Rate(**json.loads(line))
            rates[rate.number] = rate
    every = [rates[number] for number in sorted(rates)]
    whole = [rate for rate in every if not rate.cut]
    sure = [rate for rate in whole if rate.known != NOT]
    table("known of the adapters", knowledge_of, whole)
    table("GUIDs known", lambda rate: rate.shape, sure)
    table("GUIDs known", lambda rate: f"{rate.wanted:2} at once", sure)
    table("sweep cut off", lambda rate: rate.known, [rate for rate in every if rate.cut])
    print("\n| GUIDs known | due | found |\n| --- | --- | --- |")
    reported = [one for rate in sure for one in rate.of_fault]
    for name in (*CLASSES, "other faults"):
        counts = [(due, found) for fault, due, found in reported if class_of(fault) == name]
        due, found = (sum(one) for one in zip((0, 0), *counts, strict=True))
        print(f"| {name} | {due} | {found} ({100 * found / (due or 1):.1f} %) |")
    print(f"\n{len(every)} fabrics, {sum(rate.module for rate in every)} through the module")
    wrong = list(shortfalls(every)) if every else ["no fabric was tried"]
    for line in wrong:
        print("must not be:", line)
    return 1 if wrong else 0


def main(words: list[str]) -> int:
    if len(words) != 3 or not words[0].isdigit():
        return report(words)
    with Path(words[2]).open("a") as out:
        for number in range(int(words[0]), int(words[1])):
            out.write(json.dumps(asdict(run(number))) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
