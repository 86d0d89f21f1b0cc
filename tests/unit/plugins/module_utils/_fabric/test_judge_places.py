# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices in the places of others, and devices that say that they are others, in a small fabric."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from small_fabric import L0, L1, NO_NAME, NO_SWITCH_NAME, NODES, RAILS, S1, S2, A, B, C, Small

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.findings import Finding
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import first_look
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_adapters import (
    Identities,
    Key,
    OwnHca,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_places import (
    Placed,
    _below,
    judge_identity,
    judge_names,
    judge_replaced,
    place,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.match import BY_PLACE, match
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CablePlan,
    rail_end,
    switch_end,
)

F, N = "fail", "not_measured"


@pytest.fixture
def small() -> Small:
    return Small()


def placed(small: Small) -> Placed:
    return place(small.plan, small.sweep, match(small.plan, small.sweep))


def rails_of(node: str, *rails: int) -> list[Key]:
    return [(node, rail) for rail in rails or RAILS]


def rename(small: Small, names: dict[str, str], rails: Iterable[int] = RAILS) -> None:
    """Let nodes, or switches, say that they are others."""
    for name, message in names.items():
        if (name, -1) in small.guid:
            small.call(message, (name, -1))
        else:
            for rail in rails:
                small.call(f"{message} mlx5_rail{rail}", (name, rail))


def test_no_adapter_belongs_where_the_place_of_its_switch_has_an_uplink(small: Small) -> None:
    found = match(small.plan, small.sweep)
    partner = {cable.a: cable.b for cable in small.plan.cables}
    partner |= {two: one for one, two in partner.items()}
    found.unproved = {small.guid[A], small.guid[B]}
    # Ports 1 and 2 of s1 are those of l0 and l1, and of l1 those of n1 and n2.
    assert _below(small.sweep, found, partner, {L0: S1}) == {}
    assert _below(small.sweep, found, partner, {L0: L1}) == {A: ("n1", 1), B: ("n2", 1)}


@pytest.mark.parametrize("reports", [False, True])
def test_the_serial_of_what_is_there_instead_is_evidence(small: Small, reports: bool) -> None:
    small.declare(A, "d" * 16)
    own = OwnHca("mlx5_0", guids=(small.guid[A],), serial="MT2345X01234")
    found = match(small.plan, small.sweep)
    found.identities = Identities(own={A: own} if reports else {})
    (finding,) = judge_replaced(small.plan, small.sweep, found, {})
    lines = ("serial MT2345X01234, as its node reports",) if reports else ()
    assert (finding.subject, finding.evidence) == ("hca:n1/rail0", lines)


# devices in the places of others


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"l0": "l1", "l1": "l0"}, "l0 and l1 are exchanged: each has all cables of the other"),
        ({"s1": "s2", "s2": "s1"}, "s1 and s2 are exchanged: each has all cables of the other"),
        ({"n1": "n3", "n3": "n1"}, "n1 and n3 are exchanged: each has all cables of the other"),
        (
            {"l0": "l1", "l1": "l2", "l2": "l0"},
            (
                "3 switches are exchanged in turn: l0 is where l2 belongs, l2 is where l1 belongs, "
                "l1 is where l0 belongs"
            ),
        ),
        (
            {"n1": "n2", "n2": "n3", "n3": "n1"},
            (
                "3 nodes are exchanged in turn: n1 is where n3 belongs, n3 is where n2 belongs, "
                "n2 is where n1 belongs"
            ),
        ),
    ],
)
def test_devices_that_are_exchanged(small: Small, names: dict[str, str], text: str) -> None:
    rename(small, names)
    found = placed(small)
    (finding,) = found.findings
    kind = "node" if "n1" in names else "switch"
    assert (finding.kind, finding.subject) == ("exchanged", f"{kind}:{min(names)}")
    assert (finding.status, finding.text) == (F, text)
    assert set(finding.cables) == {
        c for c in small.plan.cables if {c.a.host, c.b.host} & set(names)
    }
    assert finding.remedy.startswith("compare the serial number of each with its rack place: ")
    assert ("node_rack" in finding.remedy) is (kind == "node")
    # All are judged in their places from then on.
    assert found.matches.by_key == small.guid
    assert {key: guid for guid, key in found.matches.by_guid.items()} == small.guid
    assert found.absent_as == {}


@pytest.mark.parametrize(
    ("chain", "text"),
    [
        (("l0", "l1"), "l0 is where l1 belongs"),
        (("n1", "n2"), "n1 is where n2 belongs"),
        (("n3", "n2", "n4"), "n3 is where n2 belongs, n2 is where n4 belongs"),
    ],
)
def test_a_device_in_the_place_of_an_absent_one(
    small: Small, chain: tuple[str, ...], text: str
) -> None:
    rename(small, dict(zip(chain[1:], chain, strict=False)))
    gone = [key for key in small.guid if key[0] == chain[0]]
    small.remove(*gone)
    found = placed(small)
    (finding,) = found.findings
    assert (finding.text, finding.subject.split(":")[1]) == (text, chain[0])
    # It is the last one that none sees, though the place of the first is empty.
    assert found.absent_as == {chain[0]: chain[-1]}
    assert set(found.matches.by_key) == {key for key in small.guid if key not in gone}
    assert set(finding.cables) == {
        c for c in small.plan.cables if {c.a.host, c.b.host} & set(chain)
    }


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_what_is_not_read_may_have_the_name_that_another_has(
    small: Small, closed: bool, cut: bool
) -> None:
    rename(small, {"n2": "n1"} | ({"n1": "n2"} if closed else {}))
    if not closed:
        small.remove(*rails_of("n1"))
    small.sweep.partial = cut
    (finding,) = placed(small).findings
    assert finding.status == ("not_measured" if cut and not closed else "fail")


def test_two_exchanges_are_two_findings_and_one_that_cannot_be_is_none(small: Small) -> None:
    rename(small, {"n1": "n2", "n2": "n1", "n3": "n4", "n4": "n3"})
    assert [f.subject for f in placed(small).findings] == ["node:n1", "node:n3"]
    # What has the name of n2 is there without a link: n1 is not in a place that is free.
    for key in rails_of("n1"):
        small.unlink((small.guid[key], 1))
    found = placed(small)
    assert [f.subject for f in found.findings] == ["node:n3"]
    assert found.matches.by_key["n1", 0] == small.guid["n2", 0]


@pytest.mark.parametrize(
    ("moved", "left", "found"),
    [(4, 0, True), (3, 1, True), (2, 2, False), (3, 0, True), (2, 0, False)],
)
def test_three_quarters_and_three_of_the_rails_are_a_node(
    small: Small, moved: int, left: int, found: bool
) -> None:
    rename(small, {"n1": "n2", "n2": "n1"}, range(moved))
    for node in ("n1", "n2"):
        small.remove(*((node, rail) for rail in range(moved + left, 4)))
    assert bool(placed(small).findings) is found


@pytest.mark.parametrize(("wrong", "found"), [(0, True), (1, True), (2, False)])
@pytest.mark.parametrize("port", ["free", "of another device", "of a node"])
def test_links_that_fit_nowhere_speak_against_an_exchange(
    small: Small, wrong: int, found: bool, port: str
) -> None:
    rename(small, {"l0": "l1", "l1": "l0"})
    # A leaf has six links, and five of them are more than three quarters.
    for key in (L0, L1):
        for number in range(1, wrong + 1):
            far = small.port((small.guid[key], number)).peer
            assert far
            if port == "of another device":
                small.link((small.guid[key], number + 30), far)
            elif port == "free":
                end = switch_end("s1", 30 + 2 * number + (key == L0))
                small.link((small.guid[key], number), small.at(end))
            else:
                end = switch_end("l3", 1 + 2 * (number - 1) + (key == L0))
                small.link((small.guid[key], number), small.at(end))
    assert bool(placed(small).findings) is found


def test_a_node_in_free_ports_is_nowhere_and_the_next_ones_are_exchanged(small: Small) -> None:
    rename(small, {"n3": "n4", "n4": "n3"})
    for rail in RAILS:
        small.link((small.guid["n1", rail], 1), small.at(switch_end(f"l{rail}", 30)))
    assert [f.subject for f in placed(small).findings] == ["node:n3"]


def test_links_to_unplanned_devices_do_not_speak(small: Small) -> None:
    rename(small, {"l0": "l1", "l1": "l0"})
    for key, number in ((L0, 1), (L1, 2)):
        for more in range(4):
            guid = f"{0xE0 + 10 * number + more:016x}"
            small.add(guid, "ca", "ufm mlx5_0")
            small.link((guid, 1), (small.guid[key], 30 + more))
    assert [f.subject for f in placed(small).findings] == ["switch:l0"]


def test_a_place_that_two_devices_share_is_of_neither(small: Small) -> None:
    # The cables of l2 are at l0 and l1, three at each, in their ports.
    far = {port: small.port((small.guid["l2", -1], port)).peer for port in (1, 2, 3, 4, 11, 12)}
    for key, ports in ((L0, (1, 2, 3)), (L1, (4, 11, 12))):
        for number in list(small.device(key).ports):
            small.unlink((small.guid[key], number))
        for number in ports:
            peer = far[number]
            assert peer
            small.link((small.guid[key], number), peer)
    small.remove(("l2", -1))
    assert placed(small).findings == []


@pytest.mark.parametrize(
    ("declared", "sure"), [((L0, L1), True), ((L0,), False), ((L1,), False), ((), False)]
)
def test_of_known_guids_the_cables_or_the_declaration_are_wrong(
    small: Small, declared: tuple[Key, ...], sure: bool
) -> None:
    rename(small, {"l0": "l1", "l1": "l0"})
    for key in declared:
        small.declare(key, small.guid[L1 if key == L0 else L0])
    (finding,) = placed(small).findings
    assert finding.remedy.startswith("their GUIDs are known") is sure


def test_a_node_whose_rails_are_not_all_there_is_exchanged_with_those_that_are(
    small: Small,
) -> None:
    rename(small, {"n1": "n2", "n2": "n1"})
    small.remove(("n1", 3))
    for key in rails_of("n1", 0, 1, 2):
        small.declare(("n2", key[1]), small.guid[key])
    for key in rails_of("n2"):
        small.declare(("n1", key[1]), small.guid[key])
    (finding,) = placed(small).findings
    assert finding.subject == "node:n1"
    assert finding.remedy.startswith("their GUIDs are known")


# names


def names(small: Small, **more) -> dict[str, Finding]:
    found = judge_names(small.plan, small.sweep, match(small.plan, small.sweep, **more))
    result = {f"{finding.kind} {finding.subject}": finding for finding in found}
    assert len(result) == len(found)
    return result


def test_names_that_are_right_or_cannot_be_given(small: Small) -> None:
    assert names(small) == {}
    # A switch without its own system has no name.
    small.call(NO_SWITCH_NAME, L0)
    small.declare(L1, small.guid[L1])
    assert names(small) == {}
    small.call("l1", L1)
    assert names(small) == {}


@pytest.mark.parametrize(
    ("description", "reported", "expected"),
    [
        ("n1 mlx5_rail0", True, None),
        ("n1.site mlx5_9", True, None),
        ("N1 mlx5_9", True, None),
        ("n9 mlx5_rail0", True, "description hca:n1/rail0"),
        (NO_NAME, True, "description hca:n1/rail0"),
        ("n1 mlx5_rail0", False, None),
        ("n1 mlx5_9", False, "renamed hca:n1/rail0"),
        ("N1.site HCA-1", False, None),
        ("n1 HCA-10", False, "renamed hca:n1/rail0"),
        (NO_NAME, False, "description hca:n1/rail0"),
    ],
)
def test_the_name_of_an_adapter(
    small: Small, description: str, reported: bool, expected: str | None
) -> None:
    small.call(description, A)
    # Whatever is of the first, the second is found.
    small.call("n2 mlx5_9", B)
    known = Identities({small.guid[A]: A}) if reported else None
    found = names(small, known=known)
    assert set(found) == {"renamed hca:n2/rail0"} | ({expected} if expected else set())
    assert found["renamed hca:n2/rail0"].text == (
        "n2 rail 0 is in its place, but is called 'mlx5_9' and not mlx5_rail0 or mlx5_0"
    )


def test_a_planned_name_counts_though_it_looks_like_that_of_the_maker() -> None:
    assert names(Small(("quantum-1", "connectx-2", "hca-3", "n4"))) == {}


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("n2 mlx5_rail0", "compare its GUID with ibstat on n1; it may belong to n2"),
        (NO_NAME, "compare its GUID with ibstat on n1; see that rdma-ndd.service runs"),
    ],
)
def test_one_adapter_with_another_name(small: Small, message: str, remedy: str) -> None:
    small.declare(A, small.guid[A])
    small.call(message, A)
    (found,) = names(small).values()
    assert (found.kind, found.subject, found.remedy) == ("description", "hca:n1/rail0", remedy)
    assert found.text == f"the adapter in the place of n1 rail 0 says that it is {message!r}"


@pytest.mark.parametrize(
    ("rails", "removed", "subjects"),
    [
        (4, 0, {"node:n1"}),
        (3, 0, {"hca:n1/rail0", "hca:n1/rail1", "hca:n1/rail2"}),
        (2, 2, {"node:n1"}),
        (1, 3, {"hca:n1/rail0"}),
    ],
)
@pytest.mark.parametrize("form", ["nameless", "renamed", "of two names"])
def test_a_node_is_named_wrongly_as_a_whole_if_all_its_rails_that_show_are(
    small: Small, rails: int, removed: int, subjects: set[str], form: str
) -> None:
    small.remove(*rails_of("n1")[4 - removed :])
    for rail in range(rails):
        message = f"n1 ibp{rail}" if form == "renamed" else NO_NAME
        if form == "of two names" and rail == 0:
            message = "localhost mlx5_0"
        small.call(message, ("n1", rail))
    small.declare(A, small.guid[A])
    if form == "of two names" and rails > 1:
        small.call("n9 mlx5_0", A)
        subjects = {f"hca:n1/rail{rail}" for rail in range(rails)}
    # One adapter of another node stays one adapter.
    small.call("n3 ibp0" if form == "renamed" else NO_NAME, C)
    kind = "renamed" if form == "renamed" else "description"
    assert set(names(small)) == {f"{kind} {one}" for one in subjects | {"hca:n3/rail0"}}


@pytest.mark.parametrize("form", ["nameless", "renamed"])
@pytest.mark.parametrize(
    ("wrong", "nodes", "whole"), [(2, 4, False), (3, 4, True), (2, 3, False), (3, 3, True)]
)
def test_three_and_most_of_the_nodes_are_the_fabric(
    small: Small, form: str, wrong: int, nodes: int, whole: bool
) -> None:
    small.remove(*(key for node in NODES[nodes:] for key in rails_of(node)))
    for node in NODES[:wrong]:
        for rail in RAILS:
            small.call(f"{node} ibp{rail}" if form == "renamed" else NO_NAME, (node, rail))
    found = names(small)
    kind = "renamed" if form == "renamed" else "description"
    subjects = {"fabric"} if whole else {f"node:{node}" for node in NODES[:wrong]}
    assert set(found) == {f"{kind} {subject}" for subject in subjects}
    if whole:
        text = found[f"{kind} fabric"].text
        assert f"{wrong} of {nodes} nodes" in text
        assert ("n1 shows nothing, n2 shows nothing" in text) is (form == "nameless")


def test_most_switches_with_other_names_are_the_fabric(small: Small) -> None:
    for number, name in enumerate(("l0", "l1", "s1", "s2"), 1):
        small.declare((name, -1), small.guid[name, -1])
        small.call(f"MF0;old-{name}:MQM/U1", (name, -1))
        found = names(small)
        if number < 4:
            assert len(found) == number
            text = found["description switch:l0"].text
            assert text == "l0 says that it is old-l0"
    assert list(found) == ["description fabric"]
    assert found["description fabric"].text == (
        "4 of 6 switches are not named as planned: "
        "l0 shows old-l0, l1 shows old-l1, s1 shows old-s1, s2 shows old-s2"
    )


def test_two_devices_with_each_other_s_names_are_one_finding(small: Small) -> None:
    for key in (L0, L1, S1):
        small.declare(key, small.guid[key])
    rename(small, {"l0": "l1", "l1": "l0", "s1": "old"})
    found = names(small)
    assert set(found) == {"description switch:l0", "description switch:s1"}
    assert found["description switch:l0"].text == "l0 says that it is l1, and l1 that it is l0"
    assert found["description switch:s1"].remedy == "set its name to s1 on the switch itself"


def test_a_node_of_which_an_adapter_that_is_no_rail_is_gone(small: Small) -> None:
    hcas = {
        (node, rail): replace(hca, devices=(f"mlx5_rail{rail}", f"mlx5_{rail + 1}"))
        for (node, rail), hca in small.plan.hcas.items()
    }
    small.plan = replace(small.plan, hcas=hcas)
    for node, gone in (("n1", ()), ("n2", (0,))):
        small.remove(*((node, rail) for rail in gone))
        for rail in RAILS:
            if rail not in gone:
                small.call(f"{node} mlx5_{rail}", (node, rail))
    small.call("n3 ibp0", C)
    found = names(small)
    # Of n2 a rail is gone, which is reported of the rail; the later names are those of the kernel.
    assert set(found) == {"renamed node:n1", "renamed hca:n3/rail0"}
    assert found["renamed node:n1"].text.startswith("the kernel's numbers of the adapters of n1 ")


# what only a place tells


def identity(small: Small) -> dict[str, Finding]:
    look = first_look(small.plan, small.sweep)
    found = list(judge_identity(small.plan, look.matches, look.wiring.good))
    assert {(f.kind, f.status) for f in found} <= {("identity", N)}
    return {finding.subject: finding for finding in found}


@pytest.mark.parametrize(
    ("nodes", "planned", "whole"), [(2, 4, False), (3, 4, True), (2, 3, False), (3, 3, True)]
)
def test_three_and_most_of_the_nodes_without_names_are_the_fabric(
    small: Small, nodes: int, planned: int, whole: bool
) -> None:
    gone = NODES[planned:]
    small.remove(*(key for node in gone for key in rails_of(node)))
    small.plan = CablePlan(
        {key: hca for key, hca in small.plan.hcas.items() if key[0] not in gone},
        small.plan.switches,
        tuple(c for c in small.plan.cables if c.a.host not in gone),
    )
    small.call(NO_NAME, *(key for node in NODES[:nodes] for key in rails_of(node)))
    found = identity(small)
    assert set(found) == ({"fabric"} if whole else {f"node:{n}" for n in NODES[:nodes]})
    cables = {c for c in small.plan.cables if c.a.host in NODES[:nodes]}
    assert {c for finding in found.values() for c in finding.cables} == cables
    if whole:
        assert found["fabric"].text.startswith(f"the adapters of {nodes} of {planned} nodes: known")


@pytest.mark.parametrize(
    ("rails", "removed", "subjects"),
    [
        (4, 0, {"node:n1"}),
        (3, 0, {"hca:n1/rail0", "hca:n1/rail1", "hca:n1/rail2"}),
        (2, 2, {"node:n1"}),
        (1, 3, {"hca:n1/rail0"}),
    ],
)
def test_a_node_is_known_by_place_as_a_whole_if_all_its_rails_that_show_are(
    small: Small, rails: int, removed: int, subjects: set[str]
) -> None:
    small.remove(*rails_of("n1")[4 - removed :])
    small.call(NO_NAME, *rails_of("n1")[:rails], C)
    assert set(identity(small)) == subjects | {"hca:n3/rail0"}


def test_a_switch_that_two_neighbours_know_and_cables_that_are_wrong_anyhow(small: Small) -> None:
    assert identity(small) == {}
    small.call(NO_SWITCH_NAME, L0)
    for end in (rail_end("n1", 0), rail_end("n2", 0), switch_end("l0", 11), switch_end("l0", 12)):
        small.unlink(small.at(end))
    found = identity(small)
    assert set(found) == {"switch:l0"}
    # Those without a link are judged as such.
    assert set(found["switch:l0"].cables) == {
        c for c in small.plan.cables if c.b.host == "l0" and c.a.host in ("n3", "n4")
    }
    assert "switch_guids: l0" in found["switch:l0"].remedy


def test_both_switches_of_a_cable_may_be_known_by_place_alone(small: Small) -> None:
    small.call(NO_SWITCH_NAME, L0, S2)
    for rail in (1, 2, 3):
        small.unlink(small.at(switch_end("s2", rail + 1)))
    small.remove(*((node, 0) for node in NODES[1:]), S1)
    found = identity(small)
    assert "switch:l0" in found
    assert set(found) <= {"switch:l0", "switch:s2"}


def test_an_adapter_that_is_known_by_place_hides_no_replaced_one(small: Small) -> None:
    found = match(small.plan, small.sweep)
    small.declare(A, "d" * 16)
    small.declare(B, "e" * 16)
    found.reasons[small.guid[A]] = BY_PLACE
    replaced = judge_replaced(small.plan, small.sweep, found, {})
    assert [finding.subject for finding in replaced] == ["hca:n2/rail0"]


def test_a_name_that_two_adapters_have_is_told_from_none(small: Small) -> None:
    look = first_look(small.plan, small.sweep)
    for rail in RAILS:
        look.matches.unproved.add(small.guid["n1", rail])
    look.matches.contested |= {("n1", rail) for rail in RAILS}
    (whole,) = judge_identity(small.plan, look.matches, look.wiring.good)
    look.matches.unproved -= {small.guid["n1", 3]}
    one, *_rest = judge_identity(small.plan, look.matches, look.wiring.good)
    assert whole.subject == "node:n1"
    assert one.subject == "hca:n1/rail0"
    for finding in (whole, one):
        assert "known by a name that another device has, too" in finding.text


def test_a_planned_name_is_judged_though_two_switches_of_one_system_have_it(small: Small) -> None:
    for key in (S1, S2):
        small.device(key).system_guid = "5" * 16
    small.call("MF0;s2:MQM/U1", S1)
    small.declare(S1, small.guid[S1])
    small.declare(S2, small.guid[S2])
    assert set(names(small)) == {"description switch:s1"}
