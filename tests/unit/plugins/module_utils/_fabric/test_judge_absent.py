# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is not there and what is silent: each cause beside its neighbours, in a small fabric."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from small_fabric import L0, L1, NODES, RAILS, S1, S2, UNPLANNED, A, B, Small

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.findings import Finding
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import first_look
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_absent import (
    Absence,
    _block_of,
    is_down,
    is_silent,
    judge_absence,
    judge_unlinked,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_adapters import (
    Identities,
    Key,
    OwnHca,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    LEAF_SPINE,
    Cable,
    CablePlan,
    End,
    rail_end,
    switch_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.wiring import Wiring

F, N = "fail", "not_measured"


@pytest.fixture
def small() -> Small:
    return Small()


def look(small: Small, known: Identities | None = None) -> Wiring:
    wiring = first_look(small.plan, small.sweep).wiring
    wiring.matches.identities = known or Identities()
    return wiring


def absent(small: Small, known: Identities | None = None, **absent_as: str) -> Absence:
    return judge_absence(look(small, known), absent_as)


def findings_of(findings: Iterable[Finding]) -> set[tuple[str, str, str]]:
    found = list(findings)
    result = {(f.kind, f.subject, f.status) for f in found}
    assert len(result) == len(found)
    return result


def only(findings: Iterable[Finding], subject: str) -> Finding:
    (found,) = [finding for finding in findings if finding.subject == subject]
    return finding_with_cables(found)


def finding_with_cables(finding: Finding) -> Finding:
    assert len(set(finding.cables)) == len(finding.cables)
    return finding


def cable(small: Small, end: End) -> Cable:
    return small.plan.by_end()[end]


def state(small: Small, end: End, state: str | None, physical: str | None = None) -> None:
    port = small.port(small.at(end))
    port.state, port.physical_state = state, physical


def silent(small: Small, *keys: Key) -> None:
    """Take devices away, and leave their links up at the far end."""
    for key in keys:
        for port in small.device(key).ports.values():
            if port.peer:
                far = small.port(port.peer)
                far.state, far.physical_state = "Active", "LinkUp"
    small.remove(*keys)


def leaf(rail: int, node: str = "n1") -> End:
    return switch_end(f"l{rail}", NODES.index(node) + 1)


# ports


@pytest.mark.parametrize(
    ("now", "physical", "down", "silent"),
    [
        ("Down", "Polling", True, False),
        ("Down", None, True, False),
        ("Down", "Disabled", True, False),
        ("Init", "Disabled", True, False),
        (None, "Disabled", True, False),
        (None, None, False, False),
        ("Init", "LinkUp", False, True),
        ("Active", None, False, True),
    ],
)
def test_what_a_port_without_a_link_says(
    small: Small, now: str, physical: str, down: bool, silent: bool
) -> None:
    end = switch_end("l0", 1)
    small.unlink(small.at(end))
    state(small, end, now, physical)
    wiring = look(small)
    assert (is_down(wiring, end), is_silent(wiring, end)) == (down, silent)


def test_a_port_with_a_link_or_without_a_record_is_neither_down_nor_silent(small: Small) -> None:
    state(small, switch_end("l0", 1), "Active", "LinkUp")
    small.remove(L1)
    wiring = look(small)
    for end in (switch_end("l0", 1), switch_end("l0", 39), switch_end("l1", 1)):
        assert (is_down(wiring, end), is_silent(wiring, end)) == (False, False)


@pytest.mark.parametrize(
    ("dead", "of", "block"),
    [
        # Half of them, wherever they are; from eight on.
        (range(0, 16, 2), 16, 8),
        (range(0, 16, 2), 17, 0),
        (range(0, 14, 2), 14, 0),
        # Side by side, however many others there are.
        (range(3, 11), 40, 8),
        ([*range(3, 11), 20], 40, 8),
        (range(3, 10), 40, 0),
    ],
)
def test_ports_that_are_dead_together(small: Small, dead, of: int, block: int) -> None:
    cables = [
        Cable(switch_end("l0", number), switch_end("s1", number), LEAF_SPINE, 400)
        for number in range(of)
    ]
    found = _block_of(list(enumerate(cables)), {cables[number] for number in dead})
    assert [number for number, _cable in found] == list(dead)[:block]


def test_a_healthy_fabric_lacks_nothing(small: Small) -> None:
    for end in small.plan.by_end():
        state(small, end, "Active", "LinkUp")
    found = absent(small)
    assert (found.findings, found.explained, found.excused) == ([], set(), set())


# what is silent


@pytest.mark.parametrize("rails", [1, 3, 4])
def test_a_node_is_silent_as_a_whole_or_rail_by_rail(small: Small, rails: int) -> None:
    silent(small, *(("n1", rail) for rail in range(rails)), ("n3", 2))
    found = absent(small)
    first = {("silent", f"hca:n1/rail{rail}", F) for rail in range(rails)}
    if rails == 4:
        first = {("silent", "node:n1", F)}
        whole = only(found.findings, "node:n1")
        assert "though the links of its 4 rails are up" in whole.text
        assert set(whole.cables) == {cable(small, rail_end("n1", rail)) for rail in RAILS}
    assert findings_of(found.findings) == first | {("silent", "hca:n3/rail2", F)}
    last = only(found.findings, "hca:n3/rail2")
    assert last.text == "n3 rail 2 does not answer, though its link at l2 port 3 is up"
    assert last.evidence == ("l2 port 3: the link is up",)
    assert last.cables == (cable(small, rail_end("n3", 2)),)
    assert len(found.explained) == rails + 1
    assert last.remedy.startswith("on n3: ")


@pytest.mark.parametrize("rest", ["absent", "elsewhere"])
def test_a_node_is_not_silent_as_a_whole_if_a_rail_is_something_else(
    small: Small, rest: str
) -> None:
    silent(small, *(("n1", rail) for rail in range(3)))
    if rest == "absent":
        small.remove(("n1", 3))
    else:
        # Its plug is in another port, and the link at its own one is up, too.
        small.link((small.guid["n1", 3], 1), small.at(switch_end("l3", 30)))
        state(small, leaf(3), "Active", "LinkUp")
    rails = range(3) if rest == "absent" else RAILS
    expected = {("silent", f"hca:n1/rail{rail}", F) for rail in rails}
    assert findings_of(absent(small).findings) == expected


@pytest.mark.parametrize(("rails", "subject"), [(1, "hca:n1/rail0"), (2, "node:n1")])
def test_a_node_is_silent_as_a_whole_from_two_rails_on(
    small: Small, rails: int, subject: str
) -> None:
    silent(small, *(("n1", rail) for rail in range(rails)))
    small.remove(*(("n1", rail) for rail in range(rails, 4)))
    kept = {key: hca for key, hca in small.plan.hcas.items() if key[0] != "n1" or key[1] < rails}
    small.plan = CablePlan(
        kept,
        small.plan.switches,
        tuple(c for c in small.plan.cables if c.a.is_switch or (c.a.host, c.a.rail) in kept),
    )
    assert findings_of(absent(small).findings) == {("silent", subject, F)}


def test_a_silent_switch_is_one_finding_with_the_evidence_of_four_links(small: Small) -> None:
    silent(small, L0)
    # No rail of l0 hides another node that is silent.
    silent(small, ("n2", 3))
    # An adapter that stays without its leaf says by its own port that the link is up.
    found = absent(small)
    assert findings_of(found.findings) == {
        ("silent", "switch:l0", F),
        ("silent", "hca:n2/rail3", F),
    }
    whole = only(found.findings, "switch:l0")
    assert whole.text == "l0 does not answer, though 6 of its links are up"
    assert len(whole.evidence) == 4
    assert "n1 rail 0: the link is up" in whole.evidence
    assert len(whole.cables) == 6


def test_what_is_behind_a_silent_switch_is_explained_and_others_are_absent(small: Small) -> None:
    silent(small, L0)
    small.remove(S1, *((node, 0) for node in NODES[1:]))
    found = absent(small)
    assert findings_of(found.findings) == {
        ("silent", "switch:l0", F),
        ("switch_absent", "switch:s1", F),
    }
    both = {c for c in small.plan.cables if {"l0", "s1"} & {c.a.host, c.b.host}}
    assert found.explained == both
    assert only(found.findings, "switch:l0").text.startswith("l0 does not answer, though 2 of")


@pytest.mark.parametrize(
    ("route", "subject", "evidence"),
    [
        ((1, 1), "hca:n1/rail0", "l0 port 1: no answer on route 0,1,1"),
        ((1, 30), "port:l0/30", None),
    ],
)
def test_a_route_that_is_not_answered(
    small: Small, route: tuple, subject: str, evidence: str | None
) -> None:
    small.sweep.start = small.guid[B]
    small.unlink(small.at(leaf(0)))
    small.sweep.silent = [route]
    findings = absent(small).findings
    assert [f.subject for f in findings if f.kind == "silent"] == [subject]
    assert small.sweep.complaints == []
    if evidence:
        assert findings[0].evidence == (evidence,)
    else:
        assert findings[0].text.endswith("does not answer (no answer on route 0,1,30)")
        assert findings[0].ends == (switch_end("l0", 30),)
        assert findings[0].cables == ()


def test_a_route_that_was_answered_after_all_is_a_complaint(small: Small) -> None:
    small.sweep.start = small.guid[B]
    small.sweep.silent = [(1, 2)]
    assert absent(small).findings == []
    assert small.sweep.complaints == ["an answer on route 0,1,2 was lost"]


def test_a_route_that_leads_nowhere_is_a_complaint(small: Small) -> None:
    small.sweep.start = small.guid[B]
    small.sweep.silent = [(1, 30, 2)]
    assert absent(small).findings == []
    assert small.sweep.complaints == ["something at the end of route 0,1,30,2 is silent"]


def test_a_link_that_one_end_alone_tells_has_nothing_silent_behind_it(small: Small) -> None:
    end = leaf(0)
    small.port(small.at(end)).peer = None
    state(small, end, "Active", "LinkUp")
    assert absent(small).findings == []


def test_the_part_of_a_switch_that_works_for_sharp_is_not_silent(small: Small) -> None:
    small.remove(A)
    small.add(UNPLANNED, "ca", "Mellanox Technologies Aggregation Node")
    small.link((UNPLANNED, 1), small.at(leaf(0)))
    state(small, leaf(0), "Active", "LinkUp")
    assert absent(small).findings == []


# GUIDs of more than one port


@pytest.mark.parametrize("of", ["adapter", "port"])
def test_a_guid_of_two_ports(small: Small, of: str) -> None:
    guid = small.guid[A] if of == "adapter" else str(small.port((small.guid[A], 1)).guid)
    # The tools show one of the two; behind the port of the other one nothing answers.
    silent(small, ("n3", 2))
    small.sweep.duplicate_guids = [guid]
    found = absent(small)
    assert findings_of(found.findings) == {("duplicate_guid", f"guid:0x{guid}", F)}
    ends = {rail_end("n1", 0), leaf(0), leaf(2, "n3")}
    assert found.excused == ends
    assert set(found.findings[0].cables) == {cable(small, end) for end in ends}
    assert found.findings[0].text.endswith("it shows at l0 port 1, l2 port 3")


def test_the_guid_of_a_switch_shows_at_its_neighbours_and_in_ports_that_are_not_planned(
    small: Small,
) -> None:
    small.sweep.duplicate_guids = [small.guid[S1]]
    small.add(UNPLANNED, "ca", "ufm mlx5_0")
    small.link((UNPLANNED, 1), small.at(switch_end("s1", 30)))
    small.unlink(small.at(switch_end("s1", 2)))
    found = absent(small)
    assert set(found.findings[0].cables) == {c for c in small.plan.cables if c.b.host == "s1"}
    near = {switch_end("s1", port) for port in (1, 2, 3, 4, 30)}
    assert found.excused == near | {switch_end(f"l{rail}", 11) for rail in (0, 2, 3)}


def test_a_doubled_guid_explains_what_a_route_says_of_its_cables_and_nothing_else(
    small: Small,
) -> None:
    small.sweep.start = small.guid[B]
    small.sweep.duplicate_guids = [small.guid[A]]
    for end in (leaf(0), leaf(0, "n3")):
        small.unlink(small.at(end))
    small.sweep.silent = [(1, 1), (1, 3)]
    assert findings_of(absent(small).findings) == {
        ("duplicate_guid", f"guid:0x{small.guid[A]}", F),
        ("silent", "hca:n3/rail0", F),
    }


# switches


def test_an_absent_switch(small: Small) -> None:
    small.remove(L0, S2)
    found = absent(small, s2="s9")
    assert findings_of(found.findings) == {
        ("switch_absent", "switch:l0", F), ("switch_absent", "switch:s9", F),
    }  # fmt: skip
    first = only(found.findings, "switch:l0")
    assert first.text == "leaf l0 is not in the fabric; its 6 cables cannot be judged"
    assert set(first.cables) == {c for c in small.plan.cables if "l0" in (c.a.host, c.b.host)}
    assert "spine s9 is not in the fabric; its 4 " in only(found.findings, "switch:s9").text


@pytest.mark.parametrize(
    ("lost", "nodes", "expected"),
    [
        (("l0", "l1", "s1"), (), {"switch:l0", "switch:l1", "switch:s1"}),
        (("l0", "l1", "s1", "s2"), (), "l0, l1, s1, s2"),
        # Behind what is lost is more that nothing is known of.
        (("l0", "s1", "s2"), NODES, {"switch:s1", "switch:s2"}),
        (("l0", "l1", "s1", "s2"), NODES, "l1, s1, s2"),
    ],
)
def test_more_than_half_of_the_switches_are_the_fabric(
    small: Small, lost: tuple[str, ...], nodes: tuple[str, ...], expected: set | str
) -> None:
    small.remove(*((name, -1) for name in lost), *((node, 0) for node in nodes))
    found = absent(small)
    cables = {c for c in small.plan.cables if {c.a.host, c.b.host} & set(lost)}
    assert found.explained == cables
    if isinstance(expected, str):
        (split,) = found.findings
        assert (split.kind, split.subject, set(split.cables)) == ("split", "fabric", cables)
        assert split.text == (
            "4 of 6 switches are out of reach; next to what was reached: " + expected
        )
    else:
        assert {f.subject for f in found.findings} == expected
        assert {f.kind for f in found.findings} == {"switch_absent"}


def test_where_nothing_was_reached_all_switches_are_named(small: Small) -> None:
    small.remove(*small.guid)
    split = only(absent(small).findings, "fabric")
    assert split.text.endswith("reached: l0, l1, l2 and 3 more")


def test_a_switch_without_cables_is_not_missed(small: Small) -> None:
    more = {f"x{n}": replace(small.plan.switches["s1"], name=f"x{n}") for n in range(9)}
    small.plan = replace(small.plan, switches={**more, **small.plan.switches})
    small.remove(L0)
    assert findings_of(absent(small).findings) == {("switch_absent", "switch:l0", F)}


# nodes


def test_an_absent_node_and_one_with_a_rail_left(small: Small) -> None:
    small.remove(*(("n1", rail) for rail in RAILS), *(("n3", rail) for rail in range(3)))
    small.remove(*(("n4", rail) for rail in RAILS))
    found = absent(small, n4="n9")
    assert findings_of(found.findings) == {
        ("node_absent", "node:n1", F),
        ("node_absent", "node:n9", F),
    }
    first = only(found.findings, "node:n1")
    assert first.text == "n1 is not in the fabric: none of its 4 rails has a link"
    assert first.remedy.startswith("see that n1 has power, has booted")
    assert set(first.cables) == {cable(small, rail_end("n1", rail)) for rail in RAILS}


def test_rails_that_nothing_is_known_of_do_not_count_for_a_node(small: Small) -> None:
    # Rail 0 hangs on a leaf that is absent, rail 1 has no cable in the plan.
    gone = cable(small, rail_end("n1", 1))
    small.remove(L0, *(("n1", rail) for rail in RAILS))
    small.plan = replace(small.plan, cables=tuple(c for c in small.plan.cables if c != gone))
    text = only(absent(small).findings, "node:n1").text
    assert text == "n1 is not in the fabric: none of its 2 rails has a link"
    # One rail is a cable.
    small.plan = replace(
        small.plan, cables=tuple(c for c in small.plan.cables if c.a != rail_end("n1", 2))
    )
    assert findings_of(absent(small).findings) == {("switch_absent", "switch:l0", F)}


def test_a_node_with_a_rail_that_is_silent_is_there(small: Small) -> None:
    silent(small, A)
    small.remove(*(("n1", rail) for rail in (1, 2, 3)), *(("n2", rail) for rail in RAILS))
    assert findings_of(absent(small).findings) == {
        ("silent", "hca:n1/rail0", F), ("node_absent", "node:n2", F),
    }  # fmt: skip


KEYS = [("n1", rail) for rail in RAILS]


@pytest.mark.parametrize(
    ("known", "words", "remedy"),
    [
        (Identities(), "has a link", "see that n1 has power"),
        (Identities(counts={"n1": 4}), "has a link", "see that n1 has power"),
        (Identities(counts={"n1": 1}), "has a link", "see that n1 has power"),
        (Identities(counts={"n1": 0}), "sees none of their adapters", "on n1: look for"),
        (Identities(absent=set(KEYS)), "sees none of their adapters", "on n1: look for"),
        (Identities(absent=set(KEYS[1:])), "has a link", "see that n1 has power"),
        (
            Identities(own={key: OwnHca("mlx5_0") for key in KEYS}),
            "reports all of these adapters",
            "on n1: ibstat",
        ),
        (
            Identities(own={key: OwnHca("mlx5_0") for key in KEYS[1:]}),
            "has a link",
            "see that n1 has power",
        ),
    ],
)
def test_an_absent_node_by_what_it_reports(
    small: Small, known: Identities, words: str, remedy: str
) -> None:
    small.remove(*KEYS)
    (found,) = absent(small, known).findings
    assert (found.kind, found.subject) == ("node_absent", "node:n1")
    assert found.text.endswith(words)
    assert found.remedy.startswith(remedy)


# how sure an absence is


@pytest.mark.parametrize("complaints", [(), ("what?",)])
@pytest.mark.parametrize(
    ("one", "two", "sure"),
    [
        ("Down", "Down", True),
        ("Down", None, False),
        (None, "Down", False),
        (None, None, False),
        ("removed", "Down", True),
        ("removed", None, False),
        ("removed", "removed", False),
    ],
)
def test_an_absence_is_proved_by_a_whole_sweep_or_by_ports_that_are_down(
    small: Small, one: str, two: str, sure: bool, complaints: tuple
) -> None:
    lost = cable(small, switch_end("l0", 11))
    small.unlink(small.at(lost.a))
    small.sweep.complaints.extend(complaints)
    for end, message in ((lost.a, one), (lost.b, two)):
        if message == "removed":
            small.remove((end.host, -1))
        else:
            state(small, end, message)
    (found,) = judge_unlinked(look(small), [lost])
    assert found.status == (F if sure or not complaints else N)


@pytest.mark.parametrize("down", [True, False])
def test_what_is_absent_in_a_disturbed_sweep_is_in_doubt(small: Small, down: bool) -> None:
    small.sweep.complaints.append("what?")
    small.remove(*KEYS, S1)
    for end in [*(leaf(rail) for rail in RAILS), *(switch_end(f"l{r}", 11) for r in RAILS)]:
        state(small, end, "Down" if down else None)
    status = F if down else N
    assert findings_of(absent(small).findings) == {
        ("node_absent", "node:n1", status), ("switch_absent", "switch:s1", status),
    }  # fmt: skip
    small.remove(S2, *((f"l{rail}", -1) for rail in RAILS))
    assert findings_of(absent(small).findings) == {("split", "fabric", N)}


# adapters that their nodes do not see


@pytest.mark.parametrize(
    ("known", "rails"),
    [
        (Identities(absent={A, ("n1", 2), ("n1", 3)}), {0, 2}),
        (Identities(counts={"n1": 0}), {0, 1, 2}),
        (Identities(counts={"n1": 1}), set()),
        (Identities(counts={"n2": 0}), set()),
        (Identities(absent={B, ("n1", 2)}), {2}),
    ],
)
def test_an_adapter_that_its_node_does_not_see(
    small: Small, known: Identities, rails: set[int]
) -> None:
    # The last rail is there, whatever is reported of it.
    small.remove(*KEYS[:3])
    small.sweep.complaints.append("what?")
    found = absent(small, known)
    assert findings_of(found.findings) == {
        ("hca_absent", f"hca:n1/rail{rail}", F) for rail in rails
    }
    assert found.explained == {cable(small, rail_end("n1", rail)) for rail in rails}
    for finding in found.findings:
        assert finding.text == f"n1 itself does not see the adapter of rail {finding.subject[-1]}"


def test_an_absent_adapter_without_a_cable_or_behind_an_absent_leaf_is_not_told(
    small: Small,
) -> None:
    small.remove(A, ("n1", 1), ("n1", 2), L1)
    small.plan = replace(
        small.plan, cables=tuple(c for c in small.plan.cables if c.a != rail_end("n1", 0))
    )
    found = absent(small, Identities(absent=set(KEYS)))
    assert findings_of(found.findings) == {
        ("switch_absent", "switch:l1", F), ("hca_absent", "hca:n1/rail2", F),
    }  # fmt: skip


@pytest.mark.parametrize("complaints", [(), ("what?",)])
def test_an_adapter_before_those_whose_numbers_moved_down(small: Small, complaints: tuple) -> None:
    small.remove(A, ("n1", 1))
    small.sweep.complaints.extend(complaints)
    small.plan = replace(
        small.plan,
        hcas={
            k: replace(h, pci="0000:1b:00.0") if k == A else h for k, h in small.plan.hcas.items()
        },
    )
    wiring = look(small)
    wiring.matches.shifted = {"n1": (0,)}
    (found,) = judge_absence(wiring, {}).findings
    status = N if complaints else F
    assert (found.kind, found.subject, found.status) == ("hca_absent", "hca:n1/rail0", status)
    assert found.text == (
        "the adapter of n1 rail 0 is gone: no link at l0 port 1, and the kernel's numbers of the "
        "later adapters of n1 moved down (PCI 0000:1b:00.0)"
    )


# cages


def cages(small: Small, *keys: Key, cage: str = "C1") -> None:
    hcas = {k: replace(h, cage=cage) if k in keys else h for k, h in small.plan.hcas.items()}
    small.plan = replace(small.plan, hcas=hcas)


def twin(small: Small, *names: str) -> None:
    """Let these switches have two ports in a cage, as those with 64 ports do."""
    switches = {
        n: replace(s, radix=64) if n in names else s for n, s in small.plan.switches.items()
    }
    small.plan = replace(small.plan, switches=switches)


def unlinked(small: Small, *ends: End) -> list[Finding]:
    cables = [cable(small, end) for end in ends]
    for one in cables:
        small.unlink(small.at(one.a))
    return list(judge_unlinked(look(small), cables))


def test_no_block_of_a_switch_that_is_not_there_is_dead() -> None:
    small = Small(tuple(f"n{number}" for number in range(1, 11)))
    cables = {cable for cable in small.plan.cables if cable.b.host == "l0"}
    assert len(cables) == 10
    assert [one.kind for one in judge_unlinked(look(small), cables)] == ["ports"]
    small.remove(L0)
    kinds = {one.kind for one in judge_unlinked(look(small), cables)}
    assert "ports" not in kinds


def test_a_cage_of_a_node_is_to_blame_if_all_its_links_are_gone(small: Small) -> None:
    cages(small, A, ("n1", 1))
    cages(small, ("n2", 2), ("n2", 3))
    cages(small, ("n3", 2), cage="C2")
    ends = [rail_end(*key) for key in (A, ("n1", 1), ("n1", 2), ("n2", 3), ("n3", 2))]
    found = unlinked(small, *ends)
    assert {(f.kind, f.subject) for f in found} == {
        ("cage", "cage:n1/C1"),
        *(("dark", cable(small, end).subject) for end in ends[2:]),
    }
    cage = only(found, "cage:n1/C1")
    assert set(cage.cables) == {cable(small, end) for end in ends[:2]}
    assert cage.text == (
        "both links of cage C1 of n1 are gone: rails 0 and 1, which should be at "
        "l0 port 1 and l1 port 1"
    )


def test_rails_without_a_known_cage_are_cables_and_a_later_cage_is_one(small: Small) -> None:
    cages(small, ("n1", 2), ("n1", 3))
    cages(small, ("n2", 2), ("n2", 3))
    ends = [rail_end(*key) for key in (A, ("n1", 1), B, ("n2", 1), ("n2", 2), ("n2", 3))]
    found = unlinked(small, *ends)
    assert {f.subject for f in found} == {
        "cage:n2/C1", *(cable(small, end).subject for end in ends[:4]),
    }  # fmt: skip


def test_a_rail_without_a_cable_is_no_link_of_its_cage(small: Small) -> None:
    cages(small, A, ("n1", 1), ("n1", 2))
    small.plan = replace(
        small.plan, cables=tuple(c for c in small.plan.cables if c.a != rail_end("n1", 2))
    )
    found = unlinked(small, rail_end("n1", 0), rail_end("n1", 1))
    assert [f.subject for f in found] == ["cage:n1/C1"]


@pytest.mark.parametrize("twins", [("l0",), ()])
def test_a_cage_of_a_leaf_is_to_blame_if_both_its_links_are_gone(
    small: Small, twins: tuple[str, ...]
) -> None:
    twin(small, *twins)
    # Ports 1 and 2 are a cage, 11 and 12 another; of that of 3 and 4 one has a link.
    ends = [switch_end("l0", port) for port in (1, 2, 3, 11, 12)]
    found = unlinked(small, *ends)
    single = {cable(small, end).subject for end in ends}
    if not twins:
        assert {f.subject for f in found} == single
        return
    assert {f.subject for f in found} == {
        "cage:l0/1", "cage:l0/6", cable(small, switch_end("l0", 3)).subject,
    }  # fmt: skip
    nodes, uplinks = only(found, "cage:l0/1"), only(found, "cage:l0/6")
    assert nodes.text == (
        "both links of cage 1 of l0 (ports 1 and 2) are gone: they should be at "
        "n1 rail 0 and n2 rail 0"
    )
    assert uplinks.text.endswith(
        "(ports 11 and 12) are gone: they should be at s1 port 1 and s2 port 1"
    )
    for one in (nodes, uplinks):
        assert one.remedy.startswith("reseat the transceiver in cage ")
        assert "or the cage at" not in one.remedy


def test_a_cage_of_a_spine_is_to_blame_for_the_links_of_two_leaves(small: Small) -> None:
    twin(small, "s1")
    (found,) = unlinked(small, switch_end("s1", 3), switch_end("s1", 4))
    assert found.subject == "cage:s1/2"
    assert found.text.endswith("they should be at l2 port 11 and l3 port 11")


def test_of_a_cable_with_two_cages_the_lower_one_is_named_and_the_upper_one_may_be_it(
    small: Small,
) -> None:
    twin(small, "l0", "s1")
    more = tuple(
        Cable(switch_end("l0", 12 + n), switch_end("s1", 4 + n), LEAF_SPINE, 400) for n in (1, 2)
    )
    small.plan = replace(small.plan, cables=small.plan.cables + more)
    found = list(judge_unlinked(look(small), more))
    assert [(f.subject, f.cables) for f in found] == [("cage:l0/7", more)]
    assert "in cage 7 of l0, or the cage at s1, then" in found[0].remedy


# single cables


@pytest.mark.parametrize(
    ("what", "kind", "text", "remedy"),
    [
        ("gone", "missing", "no link at l0 port 1, where n1 rail 0 belongs; it shows nowhere else",
         "on n1: does ib_info show the adapter?"),
        ("gone, but seen", "missing", "the node itself sees this adapter (mlx5_7)", "plug in,"),
        ("there", "dark", "between n1 rail 0 and l0 port 1, though both devices are in the fabric",
         "plug in or reseat the cable at both ends"),
        ("there and seen", "dark", "though both devices are in the fabric", "plug in or reseat"),
        ("disabled here", "dark", "the port n1 rail 0 is disabled", "unless it was disabled"),
        ("disabled there", "dark", "the port l0 port 1 is disabled", "unless it was disabled"),
        ("gone and disabled", "missing", "the port l0 port 1 is disabled", "unless it was"),
        ("taken", "dark", "l0 port 1 is taken by n2 rail 0", "first put right what is in l0 "),
        ("elsewhere", "dark", "n1 rail 0 is taken by l0 port 30", "first put right what is in n1 "),
        ("taken and disabled", "dark", "is disabled", "unless it was disabled"),
    ],
)  # fmt: skip
def test_a_cable_without_a_link(small: Small, what: str, kind: str, text: str, remedy: str) -> None:
    own, far, known = rail_end("n1", 0), leaf(0), Identities()
    lost = cable(small, own)
    small.unlink(small.at(own))
    if "gone" in what:
        small.remove(A)
    if "seen" in what:
        known = Identities(own={A: OwnHca("mlx5_7")})
    if "taken" in what:
        small.link(small.at(rail_end("n2", 0)), small.at(far))
    if what == "elsewhere":
        small.link(small.at(own), small.at(switch_end("l0", 30)))
    if "disabled" in what:
        state(small, own if what == "disabled here" else far, "Down", "Disabled")
    (found,) = judge_unlinked(look(small, known), [lost])
    assert (found.kind, found.subject, found.cables) == (kind, lost.subject, (lost,))
    assert found.text.endswith(text)
    assert found.remedy.startswith(remedy)


def test_a_cable_between_switches_is_dark_also_if_the_sweep_lacks_one(small: Small) -> None:
    small.remove(L0)
    lost = cable(small, switch_end("l0", 11))
    (found,) = judge_unlinked(look(small), [lost])
    assert (found.kind, found.subject) == ("dark", lost.subject)
