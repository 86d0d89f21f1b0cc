# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Groups of nodes that are measured together, and how a bad group is halved to the culprit. Pure.

A group that is not good is run once more; two of three answers count. Then its halves are run. A
half that is not good is halved again; the nodes of a good one are known to be good, and stand by a
suspect that is left alone, since one node alone uses no fabric. Where both halves are good the
fault is between them: each side is shrunk against the other to the least that still shows it, and
no node is blamed. Where nothing at all passes, the checker is asked first. A sum that was wrong is
not unsaid by those after it: two that are right end the search, and make none of its nodes good.

Runs for b culprits among n: at most TURNS * (1 + b * (1 + 2 * ceil(log2 n))).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generator, Iterable, Mapping, Sequence

from .._core.record import FAIL, NOT_MEASURED, PASS

RAIL, LEAF, UNIT, ALL = "rail", "leaf", "su", "all"
KINDS = (LEAF, UNIT, RAIL, ALL)

# Answers to one question until two of them agree.
TURNS = 3
# An answer: a failure that no other answer outvotes.
WRONG = "wrong"
# In place of an answer: a finding was made of it already, or will be of its wrong sum.
_TOLD = "told"
# Whole, halves, quarters: where none of so many passes, the nodes are not the question.
_NONE_PASS = 7

CULPRIT, INTERACTION, SCALE = "culprit", "interaction", "scale"
UNSEPARATED, CHECKER, LIMIT = "unseparated", "checker", "limit"


@dataclass(frozen=True)
class Group:
    """Nodes that are run together, over these rails (all of theirs when there are none)."""

    kind: str
    name: str
    nodes: tuple[str, ...]
    rails: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finding:
    """What the search came to. `status` is FAIL where it was measured, else NOT_MEASURED.

    `nodes` are the culprits, or one side of an interaction whose other side is `others`.
    """

    kind: str
    status: str
    nodes: tuple[str, ...]
    others: tuple[str, ...] = ()


@dataclass
class Search:
    """What is known while a group is searched."""

    good: dict[str, None] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    asked: int = 0
    passed: int = 0

    def partner(self, not_these: Iterable[str]) -> str | None:
        """Return a node that is known to be good and is none of these."""
        left = set(not_these)
        return next((node for node in self.good if node not in left), None)


# Yields the nodes to run next, is sent what came of it, and returns what was found.
Steps = Generator["tuple[str, ...]", str, "list[Finding]"]
Ask = Generator["tuple[str, ...]", str, str]


def groups_of(plan: Mapping[str, Any], kinds: Sequence[str], exclude: Iterable[str]) -> list[Group]:
    """Return the groups of a cable plan (cables.json), the smallest first; none is there twice.

    A leaf's group are the nodes on it over the rails that it carries, a unit's those that hang on
    the same leaves. One of a single node shows nothing about the fabric and is left out.
    """
    left_out = set(exclude)
    rails: dict[str, set[int]] = {}
    for hca in plan["hcas"]:
        if hca["node"] not in left_out:
            rails.setdefault(hca["node"], set()).add(int(hca["rail"]))
    leaves: dict[str, dict[str, set[int]]] = {}
    for node, rail, switch in _links(plan):
        if node in rails:
            leaves.setdefault(switch, {}).setdefault(node, set()).add(rail)
    found: list[Group] = []
    for leaf in sorted(leaves):
        on_it = leaves[leaf]
        found.append(Group(LEAF, leaf, tuple(sorted(on_it)), _common(on_it.values())))
    units: dict[tuple[str, ...], list[str]] = {}
    for node in sorted(rails):
        units.setdefault(tuple(leaf for leaf in sorted(leaves) if node in leaves[leaf]), []).append(
            node
        )
    for number, key in enumerate(sorted(units), 1):
        if key:
            found.append(Group(UNIT, f"su{number}", tuple(units[key])))
    for rail in sorted({rail for some in rails.values() for rail in some}):
        of = tuple(node for node in sorted(rails) if rail in rails[node])
        found.append(Group(RAIL, f"rail{rail}", of, (rail,)))
    found.append(Group(ALL, "all", tuple(sorted(rails))))
    seen: dict[tuple[tuple[str, ...], tuple[int, ...]], None] = {}
    chosen = []
    every = {node: tuple(sorted(some)) for node, some in rails.items()}
    for group in sorted(found, key=lambda one: KINDS.index(one.kind)):
        # The rails of a group that uses all of them need no naming: so that twins are known.
        used = group.rails or _common([set(every[node]) for node in group.nodes])
        # Nodes that have no rail in common cannot be measured over any.
        new = used and (group.nodes, used) not in seen
        if group.kind in kinds and len(group.nodes) > 1 and new:
            seen[group.nodes, used] = None
            chosen.append(Group(group.kind, group.name, group.nodes, used))
    return chosen


def _common(some: Iterable[Iterable[int]]) -> tuple[int, ...]:
    sets = [set(one) for one in some]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def _links(plan: Mapping[str, Any]) -> Iterable[tuple[str, int, str]]:
    """Node, rail and switch of each cable between an adapter and a switch."""
    switches = {switch["name"] for switch in plan["switches"]}
    for cable in plan["cables"]:
        # An end is name, rail (-1 for a switch) and port.
        ends = cable["a"], cable["b"]
        for one, other in (ends, ends[::-1]):
            if one[0] not in switches and other[0] in switches:
                yield one[0], int(one[1]), other[0]


def search(nodes: Sequence[str], good: Iterable[str] = ()) -> Steps:
    """Search a group: yield the nodes to run, take an outcome, return findings.

    An outcome is PASS, FAIL, WRONG or NOT_MEASURED. Nothing is found where the group is good, or
    where a sum was wrong once, which is the caller's to report. `good` are nodes known to be so
    from elsewhere.
    """
    state = Search(good=dict.fromkeys(node for node in good if node not in nodes))
    outcome = yield from _ask(state, tuple(nodes))
    if outcome in (PASS, _TOLD):
        return []
    waiting: list[tuple[tuple[str, ...], str]] = [(tuple(nodes), outcome)]
    unclear: list[tuple[tuple[str, ...], str]] = []
    while waiting:
        if not state.passed and state.asked >= _NONE_PASS and not state.good:
            return [Finding(CHECKER, NOT_MEASURED, tuple(nodes))]
        suspects, outcome = waiting.pop(0)
        if len(suspects) == 1:
            state.findings.append(Finding(CULPRIT, outcome, suspects))
            continue
        halves = _halves(suspects)
        reported, before = [], len(state.findings)
        for half in halves:
            reported.append((yield from _ask_half(state, half)))
        if "" in reported and len(suspects) == 3 and _TOLD not in reported:
            yield from _of_three(state, suspects, reported[0])
        elif "" in reported:
            unclear.append((suspects, outcome))
        elif reported == [PASS, PASS]:
            yield from _between(state, halves, outcome)
        else:
            bad = [(half, one) for half, one in zip(halves, reported) if one not in (PASS, _TOLD)]
            waiting += bad
            if not bad and len(state.findings) == before:
                state.findings.append(Finding(UNSEPARATED, outcome, suspects))
        # What had no partner may have one now.
        if state.good and unclear:
            waiting += unclear
            unclear = []
    for suspects, outcome in unclear:
        state.findings.append(Finding(UNSEPARATED, outcome, suspects))
    blamed = [node for one in state.findings if one.kind == CULPRIT for node in one.nodes]
    if len(blamed) > 2 and 2 * len(blamed) > len(nodes):
        return [Finding(CHECKER, NOT_MEASURED, tuple(blamed))]
    return state.findings


def _of_three(
    state: Search, nodes: tuple[str, ...], first: str
) -> Generator[tuple[str, ...], str, None]:
    """Three nodes of which the first two are not good together, and no other partner."""
    one, two, three = nodes
    left = yield from _ask(state, (one, three))
    right = yield from _ask(state, (two, three))
    if left == PASS and right == PASS:
        state.findings.append(Finding(INTERACTION, first, (one,), (two,)))
    elif left == PASS and right != _TOLD:
        state.findings.append(Finding(CULPRIT, right, (two,)))
    elif right == PASS and left != _TOLD:
        state.findings.append(Finding(CULPRIT, left, (one,)))
    else:
        state.findings.append(Finding(UNSEPARATED, first, nodes))


def _halves(nodes: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    middle = (len(nodes) + 1) // 2
    return nodes[:middle], nodes[middle:]


def _ask(state: Search, nodes: tuple[str, ...]) -> Ask:
    """What two of three runs say; one that passes at once is believed at once."""
    state.asked += 1
    reported: dict[str, int] = {}
    wrong = False
    for turn in range(TURNS):
        outcome = yield nodes
        if outcome == WRONG:
            outcome, wrong = FAIL, True
        reported[outcome] = reported.get(outcome, 0) + 1
        if turn == 0 and outcome == PASS:
            break
        if reported[outcome] == 2:
            break
    # Three different answers are none.
    outcome = (
        NOT_MEASURED if len(reported) == TURNS else max(reported, key=lambda one: reported[one])
    )
    if outcome == PASS:
        state.passed += 1
        if wrong:
            return _TOLD
        state.good.update(dict.fromkeys(nodes))
    return outcome


def _ask_half(state: Search, half: tuple[str, ...]) -> Ask:
    """What a half says, with a good node by its side where it is alone; "" where there is none."""
    if len(half) > 1:
        return (yield from _ask(state, half))
    partner = state.partner(half)
    if partner is None:
        return ""
    outcome = yield from _ask(state, (*half, partner))
    second = state.partner((*half, partner))
    if outcome in (PASS, _TOLD) or second is None:
        return outcome
    # It may be at odds with this partner only, which is not a reason to blame it.
    again = yield from _ask(state, (*half, second))
    if again not in (PASS, _TOLD):
        return again if outcome == NOT_MEASURED else outcome
    state.findings.append(Finding(INTERACTION, outcome, half, (partner,)))
    return _TOLD


def _between(
    state: Search, halves: tuple[tuple[str, ...], tuple[str, ...]], outcome: str
) -> Generator[tuple[str, ...], str, None]:
    """Each half is good, both together are not: shrink each side against the other."""
    one, two = halves
    begun = len(one) + len(two)
    shrunk = True
    while shrunk and (len(one) > 1 or len(two) > 1):
        shrunk = False
        for side in (0, 1):
            kept, other = (one, two) if side == 0 else (two, one)
            if len(kept) == 1:
                continue
            for part in _halves(kept):
                reported = yield from _ask_pair(state, part, other)
                if reported not in (PASS, _TOLD):
                    outcome, shrunk = reported, True
                    one, two = (part, other) if side == 0 else (other, part)
                    break
    kind = SCALE if begun > 2 and len(one) + len(two) == begun else INTERACTION
    state.findings.append(Finding(kind, outcome, one, two))


def _ask_pair(state: Search, one: tuple[str, ...], two: tuple[str, ...]) -> Ask:
    """What both sides say together; the nodes are known to be good in themselves already."""
    good = dict(state.good)
    outcome = yield from _ask(state, (*one, *two))
    state.good = good
    return outcome
