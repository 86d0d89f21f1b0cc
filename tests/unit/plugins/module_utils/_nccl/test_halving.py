# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random faults in random groups: who is blamed, who never is, and how many runs it takes."""

from __future__ import annotations

import random

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.halving import (
    ALL,
    CHECKER,
    CULPRIT,
    INTERACTION,
    KINDS,
    LEAF,
    RAIL,
    SCALE,
    TURNS,
    UNIT,
    UNSEPARATED,
    groups_of,
    search,
)

pytestmark = pytest.mark.slow


def most_runs(nodes: int, culprits: int) -> int:
    """Return how many runs a search takes at most for so many culprits; 0 for an interaction."""
    levels = max(1, (nodes - 1).bit_length())
    if culprits:
        return TURNS * (1 + culprits * (1 + 2 * levels))
    # It is halved to, then each of its sides is shrunk.
    return TURNS * (1 + 6 * levels)


class World:
    """What a run of these nodes says; counts the runs and sees that none is of one node alone."""

    def __init__(
        self, culprits=(), pairs=(), most=10**6, broken=(), noise=0.0, seed=0, glitches=0.0
    ):
        self.culprits, self.pairs, self.most = set(culprits), [set(pair) for pair in pairs], most
        self.broken, self.noise, self.dice = set(broken), noise, random.Random(seed)
        self.runs, self.glitches = 0, glitches

    def answer(self, nodes):
        assert len(nodes) > 1, "a node alone uses no fabric"
        assert len(set(nodes)) == len(nodes)
        self.runs += 1
        there = set(nodes)
        if there & self.broken:
            return "not_measured"
        if self.glitches and self.dice.random() < self.glitches:
            return "wrong"
        bad = bool(there & self.culprits) or any(pair <= there for pair in self.pairs)
        bad = bad or len(there) > self.most
        if self.dice.random() < self.noise:
            return self.dice.choice(["pass", "fail", "not_measured"])
        return "fail" if bad else "pass"

    def search(self, nodes, good=()):
        steps, found = search(nodes, good), []
        try:
            asked = next(steps)
            while True:
                asked = steps.send(self.answer(asked))
        except StopIteration as end:
            found.extend(end.value)
        return found


def names(count):
    return [f"dgx-{number:03}" for number in range(1, count + 1)]


def blamed(findings):
    return {node for one in findings if one.kind == CULPRIT for node in one.nodes}


def test_a_good_group_is_run_once():
    world = World()
    assert world.search(names(127)) == []
    assert world.runs == 1


@pytest.mark.parametrize("count", [3, 4, 5, 7, 8, 12, 31, 32, 127, 1024])
def test_one_culprit_is_found_wherever_it_is(count):
    nodes = names(count)
    for culprit in nodes if count < 130 else nodes[::37]:
        world = World([culprit])
        (finding,) = world.search(nodes)
        assert (finding.kind, finding.status, finding.nodes) == (CULPRIT, "fail", (culprit,))
        assert world.runs <= most_runs(count, 1)


def test_one_culprit_of_1024_takes_this_many_runs():
    world = World(["dgx-001"])
    world.search(names(1024))
    # The whole twice; nine levels with a good half, run once, and a bad one, run twice; then two
    # nodes with a good one by their side, the culprit with a second one, too.
    assert world.runs == 2 + 9 * 3 + 1 + 4
    assert world.runs <= most_runs(1024, 1) == 66


def test_random_culprits_are_all_found_and_no_other():
    dice = random.Random(1)
    for turn in range(400):
        nodes = names(dice.choice([12, 16, 32, 64, 127]))
        culprits = set(dice.sample(nodes, dice.choice([1, 2, 3])))
        world = World(culprits, seed=turn)
        found = world.search(nodes)
        assert world.runs <= most_runs(len(nodes), len(culprits)) + 14
        assert blamed(found) <= culprits
        if blamed(found) != culprits:
            # Where none of whole, halves and quarters passes, the checker is asked first.
            assert [one.kind for one in found] == [CHECKER] or any(
                one.kind == UNSEPARATED and culprits & set(one.nodes) for one in found
            )


def test_with_nodes_known_to_be_good_all_culprits_are_found():
    dice = random.Random(2)
    for turn in range(200):
        nodes = names(dice.choice([2, 3, 4, 8, 31]))
        culprits = set(dice.sample(nodes, min(2, len(nodes) // 2)))
        world = World(culprits, seed=turn)
        assert blamed(world.search(nodes, ["dgx-900"])) == culprits


def test_a_pair_that_only_fails_together_is_told_as_such_and_none_is_blamed():
    dice = random.Random(3)
    for turn in range(300):
        nodes = names(dice.choice([3, 4, 8, 12, 32, 127]))
        pair = set(dice.sample(nodes, 2))
        world = World(pairs=[pair], seed=turn)
        found = world.search(nodes)
        assert world.runs <= most_runs(len(nodes), 0)
        assert not blamed(found)
        (one,) = found
        assert one.kind == INTERACTION
        assert {*one.nodes, *one.others} == pair
        assert one.status == "fail"


def test_what_fails_by_its_size_alone_blames_none():
    for count in (8, 32, 127):
        world = World(most=count - 1)
        (one,) = world.search(names(count))
        assert one.kind == SCALE
        assert set(one.nodes) | set(one.others) == set(names(count))


def test_where_nothing_passes_the_checker_is_asked():
    for count in (16, 127, 1024):
        world = World(names(count))
        (one,) = world.search(names(count))
        assert (one.kind, one.status) == (CHECKER, "not_measured")
        assert world.runs <= 3 * 8
    # Known-good company does not make a fleet bad.
    (one,) = World(names(16)).search(names(16), ["dgx-900"])
    assert one.kind == CHECKER


def test_two_nodes_cannot_be_told_apart_without_a_third():
    (one,) = World(["dgx-001"]).search(names(2))
    assert (one.kind, one.nodes) == (UNSEPARATED, ("dgx-001", "dgx-002"))


def test_a_node_with_which_nothing_runs_is_named_and_not_failed():
    for broken in names(16):
        (one,) = World(broken=[broken]).search(names(16))
        assert (one.kind, one.status, one.nodes) == (CULPRIT, "not_measured", (broken,))


def test_when_nothing_runs_at_all_that_is_told():
    (one,) = World(broken=names(12)).search(names(12))
    assert (one.kind, one.status) == (CHECKER, "not_measured")


def test_noise_seldom_misleads():
    """One run of 25 says anything at all: the right node alone in nearly all searches."""
    dice = random.Random(4)
    right = wrong = 0
    for turn in range(400):
        nodes = names(32)
        culprit = dice.choice(nodes)
        world = World([culprit], noise=0.04, seed=turn)
        found = world.search(nodes)
        assert world.runs <= most_runs(32, 3) + 14
        right += blamed(found) == {culprit}
        wrong += bool(blamed(found) - {culprit})
    assert right >= 340
    assert wrong <= 8


def test_noise_in_a_healthy_group_blames_none():
    found = [World(noise=0.03, seed=turn).search(names(32)) for turn in range(300)]
    assert sum(bool(one) for one in found) <= 3
    assert not [
        one for some in found for one in some if one.kind == CULPRIT and one.status == "fail"
    ]


def test_a_sum_that_is_wrong_once_is_no_answer_about_a_part_of_the_group():
    """Its nodes are not known to be good, and what it hides is not made up."""

    def searched(answers, nodes="abc", good=""):
        steps, asked = search(tuple(nodes), good), []
        try:
            asked.append(next(steps))
            for answer in answers:
                asked.append(steps.send(answer))
        except StopIteration as end:
            return asked, end.value
        raise AssertionError(asked)

    assert searched(["wrong", "pass", "pass"])[1] == []
    # The whole is bad, its first half is wrong once, and the third node has no good one beside it.
    asked, found = searched(["fail", "fail", "wrong", "pass", "pass"])
    assert asked == [("a", "b", "c")] * 2 + [("a", "b")] * 3
    assert [(one.kind, one.status, one.nodes) for one in found] == [
        (UNSEPARATED, "fail", ("a", "b", "c"))
    ]
    # So is a pair of three nodes.
    bad = ["fail"] * 4
    for rest in (["pass", "wrong", "pass", "pass"], ["wrong", "pass", "pass", "pass"]):
        (one,) = searched([*bad, *rest])[1]
        assert (one.kind, one.status, one.nodes) == (UNSEPARATED, "fail", ("a", "b", "c"))
    # The rest of the whole is good, and the whole is not.
    (one,) = searched(["fail", "fail", "wrong", "pass", "pass", "pass"], "abcd")[1]
    assert (one.kind, one.status, one.nodes) == (UNSEPARATED, "fail", tuple("abcd"))
    # None is blamed for what is bad beside one partner alone.
    bad = ["fail"] * 4
    (one,) = searched([*bad, "wrong", "pass", "pass", "pass"], "ab", "xy")[1]
    assert (one.kind, one.status, one.nodes, one.others) == (INTERACTION, "fail", ("a",), ("x",))
    # Seen twice it is a fault like any other.
    assert [(one.kind, one.nodes) for one in World(["a"], glitches=1.0).search(("a", "b"))] == [
        (UNSEPARATED, ("a", "b"))
    ]


def test_sums_that_are_wrong_now_and_then_seldom_blame_another():
    dice = random.Random(6)
    others = 0
    for turn in range(600):
        nodes = names(dice.choice([2, 3, 4, 5, 12]))
        culprits = dice.sample(nodes, dice.choice([0, 1]))
        pairs = [dice.sample(nodes, 2)] if dice.random() < 0.3 else []
        found = World(culprits, pairs, seed=turn, glitches=0.15).search(
            nodes, dice.choice([(), ("x",)])
        )
        assert {one.status for one in found} <= {"fail", "not_measured"}
        others += bool(blamed(found) - {*culprits, *(node for pair in pairs for node in pair)})
    assert others <= 12


def test_any_world_ends():
    dice = random.Random(5)
    for turn in range(300):
        nodes = names(dice.randint(2, 40))
        world = World(
            dice.sample(nodes, dice.randint(0, len(nodes))),
            [dice.sample(nodes, 2) for _pair in range(dice.randint(0, 3))],
            dice.choice([3, 10, 10**6]),
            dice.sample(nodes, dice.choice([0, 0, 1])),
            dice.choice([0.0, 0.1, 0.4]),
            turn,
        )
        world.search(nodes)
        assert world.runs <= 3 * 8 * len(nodes) + 30


def cable_plan(units, nodes_each, rails):
    """A rail-optimised fabric as cables.json has it: a leaf for each unit and rail."""
    hcas, cables, switches = [], [], []
    for unit in range(units):
        for rail in range(rails):
            leaf = f"su{unit + 1}-leaf-{rail}"
            switches.append({"name": leaf})
            for place in range(nodes_each):
                node = f"dgx-{unit * nodes_each + place + 1:03}"
                hcas.append({"node": node, "rail": rail})
                ends = [[node, rail, 1], [leaf, -1, place + 1]]
                cables.append(dict(zip("ab", ends if place % 2 else ends[::-1], strict=True)))
            cables.append({"a": [leaf, -1, 60], "b": ["spine", -1, 1]})
    return {"hcas": hcas, "cables": cables, "switches": [*switches, {"name": "spine"}]}


def test_groups_of_a_superpod():
    groups = groups_of(cable_plan(2, 4, 8), KINDS, [])
    assert [group.kind for group in groups] == [LEAF] * 16 + [UNIT] * 2 + [RAIL] * 8 + [ALL]
    leaf = next(group for group in groups if group.name == "su2-leaf-3")
    assert leaf.nodes == ("dgx-005", "dgx-006", "dgx-007", "dgx-008")
    assert leaf.rails == (3,)
    unit = next(group for group in groups if group.kind == UNIT)
    assert (len(unit.nodes), unit.rails) == (4, tuple(range(8)))
    assert len(groups[-1].nodes) == 8


def test_groups_that_are_the_same_are_run_once():
    groups = groups_of(cable_plan(1, 4, 2), KINDS, [])
    # Leaf and rail are the same here, and so are unit and all.
    assert [(group.kind, group.name) for group in groups] == [
        (LEAF, "su1-leaf-0"), (LEAF, "su1-leaf-1"), (UNIT, "su1"),
    ]  # fmt: skip


def test_groups_without_those_that_take_no_part():
    groups = groups_of(cable_plan(2, 2, 2), KINDS, ["dgx-001"])
    assert all("dgx-001" not in group.nodes for group in groups)
    # A leaf with one node left shows nothing about the fabric.
    assert "su1-leaf-0" not in {group.name for group in groups}
    assert [group.kind for group in groups_of(cable_plan(2, 2, 2), [ALL], [])] == [ALL]
    assert groups_of(cable_plan(1, 1, 2), KINDS, []) == []
