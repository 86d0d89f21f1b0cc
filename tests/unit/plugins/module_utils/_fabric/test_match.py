# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which found device is which planned one: what decides, in which order, and what decides nothing.

On a fabric of four nodes with four rails, so that every majority can be counted on one hand.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_fabric import (
    L0,
    L1,
    NO_NAME,
    NO_SWITCH_NAME,
    NODES,
    RAILS,
    S1,
    S2,
    SPINES,
    UNPLANNED,
    A,
    B,
    C,
    Small,
)

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge_adapters import (
    Identities,
    Key,
    OwnHca,
    _most,
    _mostly_moved,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.match import (
    BY_ELIMINATION,
    BY_GUID,
    BY_NAME,
    BY_NODE,
    BY_PLACE,
    BY_REMAINDER,
    BY_USUAL,
    Matches,
    _Matcher,
    match,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CA,
    SWITCH,
    End,
    rail_end,
    switch_end,
)


def taken(small: Small, **more) -> dict[Key, tuple[Key, str]]:
    """What the device of each key was taken for, and why: only what is not as its name says."""
    small.found = match(small.plan, small.sweep, **more)
    result = {}
    for key, guid in small.guid.items():
        if guid in small.sweep.devices:
            matched = small.found.by_guid.get(guid), small.found.reasons.get(guid)
            if matched != (key, BY_NAME):
                result[key] = matched
    assert {key: guid for guid, key in small.found.by_guid.items()} == small.found.by_key
    return result


UNKNOWN = (None, None)


@pytest.fixture
def small() -> Small:
    return Small()


def test_each_device_is_what_it_says(small: Small) -> None:
    assert taken(small) == {}
    assert small.found.shifted == {}
    assert small.found.unproved == set()
    assert set(small.found.by_key) == set(small.guid)


# ends


def test_the_end_of_a_port() -> None:
    found = Matches()
    found.add(A, "a", BY_NAME)
    found.add(L0, "l", BY_NAME)
    assert (found.end("l", 7), found.end("l", 8)) == (switch_end("l0", 7), switch_end("l0", 8))
    # An adapter of the plan has one port, whatever its number.
    assert found.end("a", 2) == rail_end("n1", 0)
    assert found.end("l", 7) is found.end("l", 7)
    assert found.end("x", 1) is None


def test_the_links_to_known_devices(small: Small) -> None:
    taken(small)
    small.unlink(small.at(switch_end("l0", 2)))
    small.add(UNPLANNED, CA, "ufm mlx5_0", switch_end("l0", 3))
    assert sorted(small.found.links(small.device(L0))) == [
        (1, small.guid[A], rail_end("n1", 0)),
        (4, small.guid["n4", 0], rail_end("n4", 0)),
        (11, small.guid[S1], switch_end("s1", 1)),
        (12, small.guid[S2], switch_end("s2", 1)),
    ]


# the order of what counts


@pytest.mark.parametrize(
    ("description", "declared", "reported", "expected"),
    [
        ("n3 mlx5_rail0", None, None, (C, BY_NAME)),
        (NO_NAME, None, None, (A, BY_PLACE)),
        ("n3 mlx5_rail0", B, None, (B, BY_GUID)),
        ("n3 mlx5_rail0", None, B, (B, BY_NODE)),
        ("n3 mlx5_rail0", ("n4", 0), B, (B, BY_NODE)),
        (NO_NAME, B, None, (B, BY_GUID)),
        ("n1 mlx5_rail0", B, A, (A, BY_NODE)),
    ],
)
@pytest.mark.parametrize("of", ["adapter", "port"])
def test_a_report_counts_before_a_declared_guid_and_that_before_a_name_and_a_place(
    small: Small, description: str, declared: Key, reported: Key, expected: tuple, of: str
) -> None:
    small.remove(B, C)
    small.call(description, A)
    guid = small.guid[A] if of == "adapter" else small.port((small.guid[A], 1)).guid
    known = Identities()
    if declared:
        small.declare(declared, guid)
    if reported:
        known = Identities({guid: reported}, own={reported: OwnHca("mlx5_7", guids=(guid,))})
    found = taken(small, known=known)
    assert found.get(A, (A, BY_NAME)) == expected
    assert small.found.identities is known


@pytest.mark.parametrize(
    ("description", "declared", "expected"),
    [
        ("MF0;s2:MQM/U1", None, (S2, BY_NAME)),
        (NO_SWITCH_NAME, None, (S1, BY_PLACE)),
        ("MF0;s2:MQM/U1", S1, (S1, BY_GUID)),
        (NO_SWITCH_NAME, S2, (S2, BY_GUID)),
    ],
)
def test_of_a_switch_a_declared_guid_counts_before_a_name_and_a_place(
    small: Small, description: str, declared: Key, expected: tuple
) -> None:
    small.remove(S2)
    small.call(description, S1)
    if declared:
        small.declare(declared, small.guid[S1])
    assert taken(small) == {S1: expected}


def test_names_are_of_a_kind_of_device(small: Small) -> None:
    small.remove(A, L0)
    small.call("l0", B)
    small.call("n1 mlx5_rail0", L1)
    assert taken(small) == {B: UNKNOWN, L1: (L1, BY_PLACE)}


# reports of the nodes


def test_an_adapter_with_the_guids_of_two_rails_is_neither(small: Small) -> None:
    port = small.port((small.guid[A], 1)).guid
    known = Identities({small.guid[A]: A, str(port): B})
    assert taken(small, known=known) == {A: UNKNOWN}


def test_of_two_adapters_that_one_report_names_the_first_is_taken(small: Small) -> None:
    known = Identities({small.guid[A]: C, small.guid[B]: C})
    assert taken(small, known=known) == {A: (C, BY_NODE), B: UNKNOWN, C: UNKNOWN}
    # Neither name nor place counts against a report.


@pytest.mark.parametrize("word", ["key_of", "others"])
def test_a_switch_is_no_adapter_of_a_node_whatever_it_reports(small: Small, word: str) -> None:
    what = {"key_of": A, "others": "n1 mlx5_9"}[word]
    assert taken(small, known=Identities(**{word: {small.guid[L1]: what}})) == {}


@pytest.mark.parametrize("of", ["adapter", "port"])
@pytest.mark.parametrize("name", [NO_NAME, "n1 mlx5_rail0"])
def test_an_adapter_that_its_node_knows_as_no_rail_is_none(
    small: Small, of: str, name: str
) -> None:
    small.call(name, A)
    guid = small.guid[A] if of == "adapter" else small.port((small.guid[A], 1)).guid
    assert taken(small, known=Identities(others={str(guid): "n1 mlx5_9"})) == {A: UNKNOWN}


def test_the_part_of_a_switch_that_works_for_sharp_is_no_rail(small: Small) -> None:
    small.call("Mellanox Technologies Aggregation Node", A)
    assert taken(small) == {A: UNKNOWN}


@pytest.mark.parametrize("name", [NO_NAME, "n1 mlx5_rail0", "n1 mlx5_9"])
def test_another_guid_in_the_report_contradicts_a_name_and_a_place(small: Small, name: str) -> None:
    small.call(name, A)
    small.call(NO_NAME, B)
    known = Identities({UNPLANNED: A}, own={A: OwnHca("mlx5_0", guids=(UNPLANNED,))})
    assert taken(small, known=known) == {A: UNKNOWN, B: (B, BY_PLACE)}


# declared GUIDs


@pytest.mark.parametrize("key", [A, L0])
def test_a_declared_guid_of_something_else_contradicts_a_place_and_no_name(
    small: Small, key: Key
) -> None:
    small.declare(key, UNPLANNED)
    assert taken(small) == {}
    small.call(NO_NAME, key)
    assert taken(small) == {key: UNKNOWN}


def test_a_guid_that_its_node_reports_otherwise_is_not_declared(small: Small) -> None:
    small.remove(B)
    small.declare(B, small.guid[A])
    known = Identities({UNPLANNED: B}, own={B: OwnHca("mlx5_0", guids=(UNPLANNED,))})
    assert taken(small, known=known) == {}


def test_a_report_without_a_guid_leaves_the_declared_one_to_count(small: Small) -> None:
    small.call(NO_NAME, A)
    small.declare(A, UNPLANNED)
    assert taken(small, known=Identities(own={A: OwnHca("mlx5_0")})) == {A: UNKNOWN}


def test_a_declared_guid_is_of_its_kind_of_device(small: Small) -> None:
    small.declare(A, small.guid[L1])
    small.declare(L0, small.guid[B])
    assert taken(small) == {}


def test_a_second_guid_of_an_adapter_counts_where_the_first_is_declared_for_a_switch(
    small: Small,
) -> None:
    port = small.port((small.guid[A], 1)).guid
    small.declare(L0, small.guid[A])
    small.declare(A, str(port))
    assert taken(small) == {A: (A, BY_GUID)}


def test_declared_guids_count_beside_reported_ones(small: Small) -> None:
    small.declare(C, small.guid[C])
    assert taken(small, known=Identities({small.guid[A]: A, small.guid[B]: B})) == {
        A: (A, BY_NODE), B: (B, BY_NODE), C: (C, BY_GUID),
    }  # fmt: skip


def test_of_two_guids_that_are_declared_for_one_adapter_the_first_free_one_counts(
    small: Small,
) -> None:
    port = small.port((small.guid[C], 1)).guid
    small.declare(A, small.guid[C])
    small.declare(B, str(port))
    assert taken(small) == {A: UNKNOWN, C: (A, BY_GUID)}
    # Where the first one is taken, the second one.
    known = Identities({small.guid["n4", 0]: A})
    found = taken(small, known=known)
    assert (found["n4", 0], found[C]) == ((A, BY_NODE), (B, BY_GUID))


def test_a_device_with_the_name_of_a_declared_one_only_says_so(small: Small) -> None:
    small.declare(A, small.guid[A])
    small.declare(L0, small.guid[L0])
    small.call("n1 mlx5_rail0", B)
    small.call("l0", L1)
    # The switch is in its place all the same, and so is an adapter that says it is another.
    assert taken(small) == {
        A: (A, BY_GUID), L0: (L0, BY_GUID), B: (B, BY_PLACE), L1: (L1, BY_PLACE),
    }  # fmt: skip


# names of switches


@pytest.mark.parametrize(
    ("description", "mapped", "expected"),
    [
        (" l0 ", None, (L0, BY_NAME)),
        (NO_SWITCH_NAME, "l0", (L0, BY_NAME)),
        ("MF0;old:MQM/U1", "l0", (L0, BY_NAME)),
        ("MF0;old:MQM/U1", None, (L0, BY_PLACE)),
        # A map that names something else is believed; then the place tells.
        ("MF0;l0:MQM/U1", "old", (L0, BY_PLACE)),
        ("MF0;L0:MQM/U1", None, (L0, BY_NAME)),
        # Of the empty name nothing is known.
        ("MF0;l0:MQM/U1", "", (L0, BY_NAME)),
    ],
)
def test_a_map_of_names_counts_before_the_description(
    small: Small, description: str, mapped: str, expected: tuple
) -> None:
    small.call(description, L0)
    names = {} if mapped is None else {small.guid[L0]: mapped}
    assert taken(small, names=names).get(L0, (L0, BY_NAME)) == expected


def test_the_full_name_of_a_part_counts_before_that_of_its_director(small: Small) -> None:
    full = "MF0;l0:MQM/U1"
    small.plan = replace(
        small.plan,
        switches={full if n == "l1" else n: s for n, s in small.plan.switches.items()},
        cables=tuple(c for c in small.plan.cables if "l1" not in (c.a.host, c.b.host)),
    )
    small.remove(L1)
    taken(small)
    assert small.found.by_guid[small.guid[L0]] == (full, -1)


# names of adapters


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("n1 mlx5_rail0", (A, BY_NAME)),
        ("n1.site.example mlx5_0", (A, BY_NAME)),
        ("n1 mlx5_1", (A, BY_PLACE)),  # the name of a rail that is there
        ("n1 mlx5_9", (A, BY_PLACE)),
        # Case and domain are not compared, and HCA-1 is the kernel's mlx5_0.
        ("N1 MLX5_Rail0", (A, BY_NAME)),
        ("N1.site.example HCA-1", (A, BY_NAME)),
        ("n1 HCA-2", (A, BY_PLACE)),
        ("n1 HCA-0", (A, BY_PLACE)),
        ("n1", (A, BY_PLACE)),
        ("", (A, BY_PLACE)),
        ("n11 mlx5_rail0", UNKNOWN),
        ("n2 mlx5_9", UNKNOWN),
    ],
)
def test_what_an_adapter_says_of_itself(small: Small, description: str, expected: tuple) -> None:
    small.call(description, A)
    assert taken(small).get(A, (A, BY_NAME)) == expected


def test_the_domain_of_a_planned_node_is_not_compared(small: Small) -> None:
    full = "n1.site.example"

    def end(one: End) -> End:
        return rail_end(full, one.rail) if one.host == "n1" else one

    small.plan = replace(
        small.plan,
        hcas={
            (full if node == "n1" else node, rail): replace(
                hca, node=full if node == "n1" else node
            )
            for (node, rail), hca in small.plan.hcas.items()
        },
        cables=tuple(replace(c, a=end(c.a)) for c in small.plan.cables),
    )
    small.call("n1 mlx5_9", ("n1", 1))
    found = taken(small)
    assert found[A] == ((full, 0), BY_NAME)
    assert found["n1", 1] == ((full, 1), BY_PLACE)


@pytest.mark.parametrize(("impostor", "kept"), [(B, A), (A, B)])
def test_of_two_adapters_with_one_name_the_one_in_its_place_has_it(
    small: Small, impostor: Key, kept: Key
) -> None:
    # By its GUID A is the first; it is not the first that counts.
    small.call(f"{kept[0]} mlx5_rail0", A, B)
    assert taken(small) == {impostor: (impostor, BY_PLACE)}


@pytest.mark.parametrize("name", ["n1 mlx5_rail0", "n4 mlx5_rail0"])
def test_of_adapters_with_one_name_and_none_in_its_place_the_first_has_it(
    small: Small, name: str
) -> None:
    key = (name.split(" ")[0], 0)
    small.remove(key)
    small.call(name, B, C)
    # What only reports it is known by its place, though its name is that of another node.
    assert taken(small) == {B: (key, BY_NAME), C: (C, BY_PLACE)}


@pytest.mark.parametrize(("impostor", "kept"), [(L0, L1), (L1, L0)])
@pytest.mark.parametrize("spines", [BY_NAME, BY_GUID])
def test_of_two_switches_with_one_name_the_one_in_its_place_has_it(
    small: Small, impostor: Key, kept: Key, spines: str
) -> None:
    small.call(kept[0], L0, L1)
    expected = {impostor: (impostor, BY_PLACE)}
    if spines == BY_GUID:
        small.call(NO_SWITCH_NAME, S1, S2)
        for key in (S1, S2):
            small.declare(key, small.guid[key])
            expected[key] = (key, BY_GUID)
    assert taken(small) == expected


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        ((), (), L0),
        ((11,), (12,), L0),
        ((), (11,), L1),
        ((11,), (), L0),
        # A link in another port than planned, or to an unplanned device, is none.
        ((31,), (12,), L1),
        ((32,), (12,), L1),
        ((31, 32), (12,), L1),
    ],
)
def test_links_are_counted_in_their_ports_and_the_first_wins_a_tie(
    small: Small, first: tuple[int, ...], second: tuple[int, ...], winner: Key
) -> None:
    # Both are called l1, and have uplinks of l1 in these ports; 32 has an unplanned device.
    small.call("l1", L0, L1)
    for key in (L0, L1):
        for port in (11, 12):
            small.unlink((small.guid[key], port))
    small.add(UNPLANNED, SWITCH, "MF0;x:MQM/U1")
    for key, ports in ((L0, first), (L1, second)):
        for port in ports:
            spine = S2 if port == 12 else S1
            far = (UNPLANNED, 1) if port == 32 else (small.guid[spine], 2)
            small.link((small.guid[key], port), far)
    taken(small)
    assert small.found.by_key[L1] == small.guid[winner]


def test_switches_that_are_not_known_yet_speak_by_their_own_names(small: Small) -> None:
    # Each pair has one name, and only links to the other pair.
    for name, keys in (("l1", (L0, L1)), ("s2", (S1, S2))):
        small.call(name, *keys)
    for node in NODES:
        small.remove((node, 0), (node, 1))
    found = taken(small)
    assert L1 not in found
    assert S2 not in found


# what most nodes call a rail


def call_all(small: Small, device: str, nodes: tuple[str, ...] = NODES) -> None:
    """Let adapters have this name: {0} is the rail."""
    for node in nodes:
        for rail in RAILS:
            small.call(f"{node} {device.format(rail, rail + 2, 3 - rail)}", (node, rail))


def swap(small: Small, one: Key, two: Key) -> None:
    small.exchange(rail_end(*one), rail_end(*two))


@pytest.mark.parametrize(
    ("device", "proved"), [("mlx5_{1}", True), ("HCA-{1}", True), ("ibp{0}s0", False)]
)
def test_what_most_nodes_call_a_rail_tells_the_others(
    small: Small, device: str, proved: bool
) -> None:
    call_all(small, device)
    swap(small, ("n2", 1), ("n2", 2))
    taken(small)
    assert small.found.by_key == small.guid
    adapters = {guid for key, guid in small.guid.items() if key[1] >= 0}
    assert {small.found.reasons[guid] for guid in adapters} == {BY_USUAL}
    # Numbers that moved by the same prove the rails, names that were only seen there do not.
    assert small.found.unproved == (set() if proved else adapters)


def test_adapters_that_are_known_otherwise_prove_the_names_of_the_rest(small: Small) -> None:
    call_all(small, "ibp{0}s0")
    swap(small, ("n4", 1), ("n4", 2))
    sure = [(node, rail) for node in NODES[:3] for rail in RAILS]
    known = Identities({small.guid[key]: key for key in sure})
    found = taken(small, known=known)
    assert {rail: found["n4", rail] for rail in RAILS} == {
        rail: (("n4", rail), BY_USUAL) for rail in RAILS
    }
    assert small.found.unproved == set()


@pytest.mark.parametrize(("exchanged", "elsewhere"), [(2, []), (3, ["s1", "s2"])])
def test_a_switch_is_elsewhere_if_most_of_its_cables_are_those_of_another(
    small: Small, exchanged: int, elsewhere: list[str]
) -> None:
    for rail in range(exchanged):
        small.exchange(switch_end(f"l{rail}", 11), switch_end(f"l{rail}", 12))
    matcher = _Matcher(small.plan, small.sweep, {}, Identities())
    matcher.switches_by_name()
    assert sorted(matcher._elsewhere()) == elsewhere


def test_two_cables_show_of_no_switch_that_it_is_elsewhere(small: Small) -> None:
    # Of its uplinks two are left, and both are those of another leaf.
    matcher = _Matcher(small.plan, small.sweep, {}, Identities())
    matcher.switches_by_name()
    small.exchange(switch_end("l0", 11), switch_end("l1", 11))
    small.exchange(switch_end("l0", 12), switch_end("l1", 12))
    assert list(matcher._elsewhere()) == []


@pytest.mark.parametrize(("seen", "learned"), [(3, True), (2, False)])
def test_numbers_that_moved_alike_tell_rails_that_no_node_shows(
    small: Small, seen: int, learned: bool
) -> None:
    call_all(small, "mlx5_{1}")
    for rail in range(seen, 4):
        for node in NODES:
            small.unlink(small.at(rail_end(node, rail)))
    taken(small)
    last = small.guid["n4", 3]
    assert (small.found.reasons.get(last) == BY_USUAL) is learned
    assert last not in small.found.unproved


@pytest.mark.parametrize(
    "changed",
    ["two nodes", "one rail", "no name", "one name for two rails", "names of the plan", "reversed"],
)
def test_no_name_is_learned_from_too_little(small: Small, changed: str) -> None:
    call_all(small, "ibp{0}s0")
    if changed == "two nodes":
        call_all(small, "mlx5_rail{0}", NODES[:2])
    elif changed == "one rail":
        small.call(NO_NAME, *((node, 3) for node in NODES[:2]))
    elif changed == "no name":
        for node in NODES:
            small.call(node, (node, 3))
    elif changed == "one name for two rails":
        for node in NODES:
            small.call(f"{node} ibp0s0", (node, 3))
    elif changed == "reversed":
        # Names of the plan, at the wrong rails of all nodes: so all nodes may be cabled wrongly.
        call_all(small, "mlx5_{2}")
    else:
        call_all(small, "MLX5_RAIL{0}")
    swap(small, ("n4", 1), ("n4", 2))
    taken(small)
    assert BY_USUAL not in small.found.reasons.values()


@pytest.mark.parametrize(("others", "name"), [(1, {0: "mlx5_0"}), (2, {})])
def test_the_usual_name_is_that_of_three_in_four(others: int, name: dict[int, str]) -> None:
    assert _most({0: {"mlx5_0": 3, "mlx5_9": others}}) == name


def test_reports_that_say_otherwise_than_the_places_teach_nothing() -> None:
    # Of three nodes that are known otherwise, all have rails 0 and 1 exchanged.
    other = {0: 1, 1: 0, 2: 2, 3: 3}
    small = Small(("n1", "n2", "n3", "n4", "n5", "n6"))
    nodes = tuple(node for node, rail in small.plan.hcas if rail == 0)
    call_all(small, "ibp{0}s0", nodes)
    known = Identities({small.guid[n, r]: (n, other[r]) for n in nodes[:3] for r in RAILS})
    taken(small, known=known)
    assert BY_USUAL not in small.found.reasons.values()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("n1 mlx5_storage0", True),
        ("N1.site mlx5_storage0", True),
        ("n1 mlx5_1", True),
        ("n1 HCA-2", True),
        # After the last rail a device that came late has its number, and each may have a new name.
        ("n1 mlx5_9", False),
        ("n1 ibp0s0", False),
        ("n9 mlx5_storage0", None),
    ],
)
def test_another_adapter_of_the_node_in_the_place_of_a_rail(
    small: Small, name: str, other: bool | None
) -> None:
    for node in NODES:
        plan_numbers(small, 0, 2, 4, 6, node=node)
        number(small, {rail: 2 * rail for rail in RAILS}, node)
    small.call(name, A)
    expected = UNKNOWN if other is not False else (A, BY_PLACE)
    assert taken(small) == {A: expected}
    if name == "n1 mlx5_1":
        # If another rail does not have its number either, none of them tells anything.
        small.call("n1 mlx5_5", ("n1", 2))
        assert taken(small)[A] == (A, BY_PLACE)


def test_an_adapter_with_the_number_of_a_rail_is_no_other_adapter(small: Small) -> None:
    """Another one has that name, too, and the number does not show which of them is the rail."""
    for node in NODES:
        plan_numbers(small, 0, 2, 4, 6, node=node)
        number(small, {rail: 2 * rail for rail in RAILS}, node)
    matcher = _Matcher(small.plan, small.sweep, {}, Identities())
    matcher.adapters_by_name()
    assert small.found.by_key == {}
    for name, other in (("n1 mlx5_1", True), ("n1 mlx5_2", False), ("n1 mlx5_6", False)):
        small.call(name, A)
        assert matcher._another_of_its_node(small.device(A), A) is other


@pytest.mark.parametrize("declared", [False, True])
def test_only_names_prove_the_order_of_the_kernel(small: Small, declared: bool) -> None:
    """An adapter that is known by its GUID may have any number."""
    for node in NODES:
        plan_numbers(small, 0, 2, 4, 6, node=node)
        number(small, {rail: 2 * rail for rail in RAILS}, node)
    small.call("n1 mlx5_1", A)
    if declared:
        small.declare(("n1", 1), small.guid["n1", 1])
    assert taken(small)[A] == ((A, BY_PLACE) if declared else UNKNOWN)


def test_names_that_two_nodes_have_tell_neither(small: Small) -> None:
    twin = ("N1", 0)
    hcas = {**small.plan.hcas, twin: replace(small.plan.hcas[A], node="N1")}
    small.plan = replace(small.plan, hcas=hcas)
    found = taken(small)
    assert found[A] == (A, BY_PLACE)
    assert twin not in small.found.by_key


# switches by their neighbours


def only_links(small: Small, name: str, *ports: int) -> None:
    """Take all links of a switch but those in these ports."""
    for number in small.device((name, -1)).ports:
        if number not in ports:
            small.unlink((small.guid[name, -1], number))


@pytest.mark.parametrize(
    ("right", "wrong", "known"),
    [(1, 0, True), (2, 1, True), (1, 1, False), (2, 2, False), (3, 2, True), (0, 2, False)],
)
def test_a_switch_is_known_by_more_than_half_of_its_known_neighbours(
    right: int, wrong: int, known: bool
) -> None:
    # Its own uplinks in other ports, those of l1, and unplanned links.
    for port in (1, 2, 30):
        small = Small()
        small.call(NO_SWITCH_NAME, L0)
        only_links(small, "l0", *range(1, right + 1))
        for number in range(wrong):
            far = switch_end(SPINES[number], port)
            small.link((small.guid[L0], 31 + number), small.at(far))
        assert (taken(small).get(L0) == (L0, BY_PLACE)) is known


def test_one_neighbour_is_enough_whatever_other_switches_have_no_name(small: Small) -> None:
    small.call(NO_SWITCH_NAME, L0, L1)
    only_links(small, "l0", 2)
    small.add(UNPLANNED, SWITCH, NO_SWITCH_NAME)
    small.link((UNPLANNED, 1), small.at(switch_end("s1", 30)))
    assert taken(small) == {L0: (L0, BY_PLACE), L1: (L1, BY_PLACE)}


def test_neighbours_that_are_not_known_have_no_voice(small: Small) -> None:
    small.call(NO_SWITCH_NAME, L0)
    only_links(small, "l0", 2)
    for number in range(3):
        guid = f"{0xF0 + number:016x}"
        small.add(guid, CA, f"storage-{number} mlx5_0")
        small.link((guid, 1), (small.guid[L0], 31 + number))
    assert taken(small) == {L0: (L0, BY_PLACE)}


@pytest.mark.parametrize(
    ("own", "other", "winner"), [(4, 2, L0), (3, 3, None), (2, 4, L1), (2, 3, L1), (3, 2, L0)]
)
def test_of_two_switches_in_one_place_the_one_with_more_neighbours_is_it(
    small: Small, own: int, other: int, winner: Key
) -> None:
    # Both have cables of l0 in their ports, and no others.
    small.call(NO_SWITCH_NAME, L0, L1)
    ports = [1, 2, 3, 4, 11, 12]
    far = {port: small.port((small.guid[L0], port)).peer for port in ports}
    only_links(small, "l1")
    only_links(small, "l0", *ports[:own])
    for port in ports[own : own + other]:
        small.link((small.guid[L1], port), far[port])
    taken(small)
    assert small.found.by_key.get(L0) == (small.guid[winner] if winner else None)


def test_a_switch_whose_name_is_taken_leaves_its_place_to_none(small: Small) -> None:
    small.call(NO_SWITCH_NAME, L1)
    only_links(small, "l1")
    # All cables of l0 are in a switch without a name, and l0 is there by its name.
    for port in (1, 2, 3, 4, 11, 12):
        small.link((small.guid[L1], port), small.port((small.guid[L0], port)).peer)
    assert taken(small) == {L1: UNKNOWN}


def test_a_switch_makes_adapters_known_and_they_the_next_switch(small: Small) -> None:
    # Only s1 and s2 have names. Each leaf is known by them, and the adapters by their leaves.
    small.call(NO_NAME, *(key for key in small.guid if key[1] >= 0))
    small.call(NO_SWITCH_NAME, *((f"l{rail}", -1) for rail in RAILS))
    found = taken(small)
    assert found == {key: (key, BY_PLACE) for key in small.guid if key not in (S1, S2)}


def test_switches_are_known_from_tier_to_tier(small: Small) -> None:
    # Only adapters have names: they tell three leaves, these the spines, and those the last leaf.
    switches = [key for key in small.guid if key[1] < 0]
    small.call(NO_SWITCH_NAME, *switches)
    only_links(small, "l3", 11, 12)
    small.call(NO_NAME, ("n4", 3))
    small.link((small.guid["n4", 3], 1), small.at(switch_end("l3", 4)))
    for node in NODES[:3]:
        small.remove((node, 3))
    assert taken(small) == {key: (key, BY_PLACE) for key in [*switches, ("n4", 3)]}


# adapters by their place


@pytest.mark.parametrize(("rails", "known"), [(2, False), (3, True), (4, True)])
def test_a_foreign_name_is_that_of_a_node_if_it_is_in_most_of_its_rails(
    small: Small, rails: int, known: bool
) -> None:
    keys = [("n1", rail) for rail in range(rails)]
    small.call("rescue mlx5_0", *keys)
    # The same name elsewhere counts there, not here.
    small.call("rescue mlx5_0", ("n2", 0))
    expected = {key: (key, BY_PLACE) if known else UNKNOWN for key in keys}
    assert taken(small) == {**expected, ("n2", 0): UNKNOWN}


def test_a_place_with_another_device_in_it_by_name_is_not_taken_twice(small: Small) -> None:
    # An adapter without a name is where that of n4 belongs, which has its name and no link.
    small.link((small.guid[A], 1), small.at(switch_end("l0", 4)))
    small.call(NO_NAME, A, B)
    assert taken(small) == {A: UNKNOWN, B: (B, BY_PLACE)}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((), None),
        ((switch_end("l0", 1),), A),
        ((switch_end("l0", 1), switch_end("l0", 2)), None),
        # One port in a place, the other where the plan has nothing, or a switch.
        ((switch_end("l0", 1), switch_end("l0", 30)), A),
        ((switch_end("l0", 1), switch_end("s1", 1)), A),
        ((switch_end("s1", 1),), None),
        ((switch_end("l0", 30),), None),
    ],
)
def test_an_adapter_is_in_one_place_or_in_none(small: Small, ends: tuple, expected: Key) -> None:
    small.remove(A, B)
    first = "0" * 16
    small.add(first, CA, NO_NAME, *ends)
    # Whatever becomes of the first, the next one is in its place.
    small.call(NO_NAME, C)
    assert taken(small) == {C: (C, BY_PLACE)}
    assert small.found.by_guid.get(first) == expected


# adapters by elimination


@pytest.mark.parametrize("changed", ["", "guid", "report", "second", "name", "there", "alone"])
def test_an_adapter_without_a_name_is_what_is_left_of_an_exchange(
    small: Small, changed: str
) -> None:
    # B is in the place of A, and the other way round; one of them has no name.
    swap(small, A, B)
    small.call(NO_NAME, B)
    if changed == "guid":
        small.declare(B, UNPLANNED)
    elif changed == "report":
        assert taken(small, known=Identities(absent={B})) == {B: UNKNOWN}
        return
    elif changed == "second":
        # Another one without a name is where C belongs, which is where B belongs as well.
        small.add(UNPLANNED, CA, NO_NAME)
        small.link((UNPLANNED, 1), small.at(switch_end("l0", 3)))
        small.remove(C)
    elif changed == "name":
        small.call("storage-1 mlx5_0", B)
    elif changed == "there":
        small.call("n2 mlx5_rail0", C)
        small.unlink(small.at(rail_end(*C)))
    elif changed == "alone":
        small.unlink(small.at(rail_end(*A)))
    expected = {
        "": (B, BY_ELIMINATION),
        "second": (B, BY_ELIMINATION),
        "alone": UNKNOWN,
    }.get(changed, UNKNOWN)
    assert taken(small).get(B) == expected


def test_the_turn_of_places_has_two_at_least_and_an_end(small: Small) -> None:
    matcher = _Matcher(small.plan, small.sweep, {}, Identities())
    matcher.switches_by_name()
    # It is in its own place, and nothing was taken in turn.
    assert matcher._end_of_turn(small.device(A)) is None
    matcher.found.add(A, small.guid[A], BY_NAME)
    # A port that two devices say they are in, as an answer that contradicts itself has it.
    small.add(UNPLANNED, CA, NO_NAME)
    small.port((UNPLANNED, 1)).peer = small.at(switch_end("l0", 1))
    assert matcher._end_of_turn(small.sweep.devices[UNPLANNED]) is None


@pytest.mark.parametrize(
    ("rails", "there", "clone"),
    [
        # Rail 3 of n1 has no link: the one that has its name is the machine in the place of n2.
        ((0, 1, 2, 3), (0, 1, 2), True),
        ((0, 3), (0, 1, 2), True),
        # One adapter may be in a wrong port, and a node may be where another belongs.
        ((3,), (0, 1, 2), False),
        ((0, 1, 2, 3), (), False),
    ],
)
def test_a_machine_with_the_name_of_another_shows_none_of_its_rails(
    small: Small, rails: tuple[int, ...], there: tuple[int, ...], clone: bool
) -> None:
    small.remove(*(("n1", rail) for rail in RAILS if rail not in there))
    for rail in rails:
        small.call(f"n1 mlx5_rail{rail}", ("n2", rail))
    matches = match(small.plan, small.sweep)
    guid = small.guid["n2", 3]
    expected = (("n2", 3), BY_PLACE) if clone else (("n1", 3), BY_NAME)
    assert (matches.by_guid[guid], matches.reasons[guid]) == expected


@pytest.mark.parametrize("open_end", [False, True])
def test_an_adapter_in_the_port_of_an_uplink_is_the_one_whose_port_the_uplink_has(
    small: Small, open_end: bool
) -> None:
    small.exchange(switch_end("l0", 1), switch_end("l0", 11))
    if open_end:
        small.unlink(small.at(switch_end("l0", 1)))
    small.call(NO_NAME, A)
    assert taken(small) == {A: UNKNOWN if open_end else (A, BY_ELIMINATION)}


# adapters that are left over


def move(small: Small, by: int, *keys: Key) -> None:
    """Move the plugs of these adapters so many ports further on, and take their names away."""
    for node, rail in keys:
        place = NODES.index(node) + 1
        small.unlink(small.at(rail_end(node, rail)))
        small.link(small.at(rail_end(node, rail)), small.at(switch_end(f"l{rail}", place + by)))
    small.call(NO_NAME, *keys)


LEFT = (A, BY_REMAINDER)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("", LEFT),
        ("another is lost elsewhere", LEFT),
        ("another is lost there", UNKNOWN),
        ("another has no place there", UNKNOWN),
        ("another has no place elsewhere", LEFT),
        ("it is on another leaf", LEFT),
        ("it is on another leaf, and another is lost", UNKNOWN),
        ("it is on another leaf, and another has no place", UNKNOWN),
        ("its place is taken", UNKNOWN),
        ("its place is silent", UNKNOWN),
        ("its leaf was not read", UNKNOWN),
        ("its port is reserved", UNKNOWN),
        ("it has another GUID than declared", UNKNOWN),
        ("its node does not see it", UNKNOWN),
        ("the sweep was cut off", UNKNOWN),
        ("a GUID is there twice", UNKNOWN),
    ],
)
def test_a_rail_that_is_lost_is_the_adapter_that_has_no_place(
    small: Small, changed: str, expected: tuple
) -> None:
    move(small, 20, A)
    known = Identities()
    if "another leaf" in changed:
        small.link(small.at(rail_end(*A)), small.at(switch_end("l1", 21)))
    if changed == "another is lost there":
        small.remove(B)
    elif "lost" in changed:
        small.remove(("n2", 3))
    if "another has no place" in changed:
        small.add(UNPLANNED, CA, NO_NAME)
        leaf = "l0" if changed.endswith("there") else "l2"
        small.link((UNPLANNED, 1), small.at(switch_end(leaf, 30)))
    if changed == "its place is taken":
        small.add(UNPLANNED, CA, "storage-1 mlx5_0")
        small.link((UNPLANNED, 1), small.at(switch_end("l0", 1)))
    elif changed == "its place is silent":
        small.sweep.start = small.guid[B]
        small.sweep.silent = [(1, 1)]
    elif changed == "its leaf was not read":
        small.device(L0).port_count = 0
    elif changed == "its port is reserved":
        small.plan = replace(small.plan, reserved=(switch_end("l0", 21),))
    elif changed == "it has another GUID than declared":
        small.declare(A, UNPLANNED)
    elif changed == "its node does not see it":
        known = Identities(absent={A})
    elif changed == "the sweep was cut off":
        small.sweep.partial = True
    elif changed == "a GUID is there twice":
        small.sweep.duplicate_guids = [UNPLANNED]
    assert taken(small, known=known).get(A) == expected


def test_a_rail_that_is_lost_has_a_cable_and_an_empty_port(small: Small) -> None:
    small.remove(A, B, C)
    # The plan has no cable of B, and the answer has no line of the port of C.
    cables = [cable for cable in small.plan.cables if (cable.a.host, cable.a.rail) != B]
    small.plan = replace(small.plan, cables=tuple(cables))
    del small.device(L0).ports[3]
    matcher = _Matcher(small.plan, small.sweep, {}, Identities())
    matcher.switches_by_name()
    matcher.adapters_by_name()
    assert matcher._lost_rails() == {A: switch_end("l0", 1), C: switch_end("l0", 3)}


def test_adapters_that_may_be_those_of_two_nodes_are_those_of_none(small: Small) -> None:
    # Those of n1 are 20 ports further on, or those of n2 19.
    move(small, 20, *(("n1", rail) for rail in RAILS))
    small.remove(*(("n2", rail) for rail in RAILS))
    taken(small)
    assert BY_REMAINDER not in small.found.reasons.values()


def test_a_node_of_which_all_adapters_are_as_many_ports_further_on_is_that_node(
    small: Small,
) -> None:
    node = [("n1", rail) for rail in RAILS]
    move(small, 20, *node)
    # On most leaves another one is lost, and another one has no place.
    for rail in range(3):
        small.remove(("n2", rail))
        small.add(f"e{rail:015x}", CA, NO_NAME)
        small.link((f"e{rail:015x}", 1), small.at(switch_end(f"l{rail}", 30 + rail)))
    assert taken(small) == {key: (key, BY_REMAINDER) for key in node}


@pytest.mark.parametrize("changed", ["two nodes", "one adapter is elsewhere", "few rails"])
def test_which_node_it_is_may_not_be_known(small: Small, changed: str) -> None:
    move(small, 20, *(("n1", rail) for rail in RAILS))
    if changed == "two nodes":
        move(small, 24, *(("n2", rail) for rail in RAILS))
    else:
        for rail in RAILS[:2] if changed == "few rails" else RAILS:
            small.remove(("n2", rail))
    if changed == "one adapter is elsewhere":
        small.link(small.at(rail_end(*A)), small.at(switch_end("l0", 22)))
    elif changed == "few rails":
        gone = {("n1", 2), ("n1", 3)}
        hcas = {key: hca for key, hca in small.plan.hcas.items() if key not in gone}
        cables = [c for c in small.plan.cables if (c.a.host, c.a.rail) not in gone]
        small.plan = replace(small.plan, hcas=hcas, cables=tuple(cables))
    assert taken(small)[A] == UNKNOWN


# kernel numbers that moved down


def number(small: Small, result: dict[int, int | None], node: str = "n1") -> None:
    """Let the adapters of these rails have these kernel numbers; None is one that is gone."""
    for rail, value in result.items():
        if value is None:
            small.remove((node, rail))
        else:
            small.call(f"{node} mlx5_{value}", (node, rail))


def plan_numbers(small: Small, *numbers: int | None, node: str = "n1") -> None:
    """Let the plan have these kernel numbers for the rails of a node."""
    hcas = {**small.plan.hcas}
    for rail, value in enumerate(numbers):
        names = (f"mlx5_rail{rail}", *([] if value is None else [f"mlx5_{value}"]))
        hcas[node, rail] = replace(hcas[node, rail], devices=names)
    small.plan = replace(small.plan, hcas=hcas)


@pytest.mark.parametrize(
    ("planned", "result", "gone"),
    [
        # One adapter is gone, each time.
        ((0, 1, 2, 3), {0: None, 1: 0, 2: 1, 3: 2}, (0,)),
        ((0, 1, 2, 3), {0: 0, 1: None, 2: 1, 3: 2}, (1,)),
        ((0, 1, 2, 3), {0: 0, 1: 1, 2: None, 3: 2}, (2,)),
        # The last one, or one whose going moved nothing: no number tells.
        ((0, 1, 2, 3), {0: 0, 1: 1, 2: 2, 3: None}, None),
        ((0, 1, 2, 3), {0: 0, 1: 1, 2: 2, 3: 3}, None),
        # Two are gone.
        ((0, 1, 2, 3), {0: None, 1: None, 2: 0, 3: 1}, (0, 1)),
        ((0, 1, 2, 3), {0: None, 1: 0, 2: None, 3: 1}, (0, 2)),
        # One that is gone before those that moved, and one after them.
        ((0, 1, 2, 3), {0: None, 1: 0, 2: 1, 3: None}, (0,)),
        # Two are gone, and numbers moved by one only.
        ((0, 1, 2, 3), {0: 0, 1: None, 2: None, 3: 2}, None),
        # A card has two functions at most.
        ((0, 4, 8, 12), {0: 0, 1: None, 2: 6, 3: 10}, (1,)),
        ((0, 4, 8, 12), {0: 0, 1: None, 2: 5, 3: 9}, None),
        ((0, 4, 8, 12), {0: None, 1: None, 2: 4, 3: 8}, (0, 1)),
        ((0, 5, 10, 15), {0: None, 1: None, 2: 5, 3: 10}, None),
        # An adapter that is not a rail is gone.
        ((0, 4, 8, 12), {0: 0, 1: 4, 2: 8, 3: 11}, ()),
        ((0, 4, 8, 12), {0: 0, 1: 4, 2: 8, 3: 10}, ()),
        ((0, 4, 8, 12), {0: 0, 1: 4, 2: 8, 3: 9}, None),
        ((1, 2, 3, 4), {0: 0, 1: 1, 2: 2, 3: 3}, ()),
        # An adapter that is not a rail came: numbers moved up, and all rails are there.
        ((0, 1, 2, 3), {0: 1, 1: 2, 2: 3, 3: 4}, ()),
        ((0, 1, 2, 3), {0: 0, 1: 1, 2: 3, 3: 4}, ()),
        ((0, 1, 2, 3), {0: None, 1: 2, 2: 3, 3: 4}, None),
        # Numbers that moved up and down, or not in order, or less the later: cables.
        ((0, 4, 8, 12), {0: 1, 1: 4, 2: 8, 3: 11}, None),
        ((0, 4, 8, 12), {0: 1, 1: 3, 2: 9, 3: 13}, None),
        ((0, 5, 10, 15), {0: 0, 1: 3, 2: 9, 3: 13}, None),
        ((0, 4, 8, 12), {0: None, 1: 2, 2: 8, 3: 12}, None),
        ((0, 4, 8, 12), {0: None, 1: 2, 2: 7, 3: 11}, None),
        ((0, 1, 2, 3), {0: None, 1: 0, 2: 0, 3: 1}, None),
        # Rails without a number of the kernel in the plan: where it is gone, it is the first.
        ((None, 1, 2, 3), {0: None, 1: 0, 2: 1, 3: 2}, (0,)),
        ((None, 1, 2, 3), {0: 0, 1: None, 2: 1, 3: 2}, None),
        ((None, 1, 2, 3), {0: None, 1: 0, 2: None, 3: None}, (0,)),
    ],
)
def test_numbers_that_moved_down(
    small: Small, planned: tuple, result: dict[int, int | None], gone: tuple | None
) -> None:
    plan_numbers(small, *planned)
    number(small, result)
    found = taken(small)
    assert small.found.shifted == ({} if gone is None else {"n1": gone})
    if gone is not None:
        # Each is the rail in whose place it is: by its name where that did not change.
        assert found == {
            ("n1", rail): (("n1", rail), BY_PLACE)
            for rail, value in result.items()
            if value is not None and value != planned[rail]
        }


@pytest.mark.parametrize(("moved", "others", "by"), [(15, 10, 1), (14, 11, None)])
def test_numbers_that_moved_on_six_of_ten_adapters(moved: int, others: int, by: int | None) -> None:
    planned = {rail: (f"mlx5_{rail}",) for rail in RAILS}
    seen = {rail: {f"mlx5_{rail + 1}": moved, f"mlx5_{rail + 2}": others} for rail in RAILS}
    assert _mostly_moved(planned, seen) == by


def test_two_nodes_whose_numbers_moved_down(small: Small) -> None:
    number(small, {0: None, 1: 0, 2: 1, 3: 2}, "n2")
    number(small, {0: 0, 1: None, 2: 1, 3: 2}, "n3")
    taken(small)
    assert small.found.shifted == {"n2": (0,), "n3": (1,)}


@pytest.mark.parametrize(
    "changed",
    [
        "reported",
        "declared",
        "unlinked",
        "elsewhere",
        "without a number in the plan",
    ],
)
def test_one_adapter_that_is_something_else_spoils_the_order_of_its_node(
    small: Small, changed: str
) -> None:
    last, known = ("n1", 3), Identities()
    number(small, {0: None, 1: 0, 2: 1, 3: 2})
    if changed == "reported":
        known = Identities({small.guid[last]: last})
    elif changed == "declared":
        small.declare(last, small.guid[last])
    elif changed == "unlinked":
        small.unlink((small.guid[last], 1))
    elif changed == "elsewhere":
        small.remove(("n2", 3))
        small.link((small.guid[last], 1), small.at(switch_end("l3", 2)))
        small.call("n1 mlx5_9", last)
    else:
        plan_numbers(small, 0, 1, 2, None)
    number(small, {0: 0, 1: None, 2: 1, 3: 2}, "n3")
    taken(small, known=known)
    # The other node is judged by its own adapters.
    assert small.found.shifted == {"n3": (1,)}


def test_a_name_that_the_kernel_did_not_give_spoils_no_order(small: Small) -> None:
    number(small, {0: None, 1: 0, 2: 1})
    assert taken(small) == {("n1", rail): (("n1", rail), BY_PLACE) for rail in (1, 2)}
    assert small.found.shifted == {"n1": (0,)}


def test_a_place_that_another_device_has_by_its_name_is_not_taken_by_order(small: Small) -> None:
    small.remove(("n1", 0))
    # The adapter of n2 has the name of rail 3 of n1.
    small.call("n1 mlx5_rail3", B)
    number(small, {1: 0, 2: 1, 3: 2})
    taken(small)
    assert small.found.shifted == {}
    assert small.found.by_key["n1", 3] == small.guid[B]


def test_a_place_that_becomes_free_by_order_is_taken_by_what_is_in_it(small: Small) -> None:
    # By its name the adapter of rail 1 is that of rail 0, in whose place is one without a name.
    small.call(NO_NAME, A)
    number(small, {1: 0, 2: 1, 3: 2})
    assert taken(small) == {("n1", rail): (("n1", rail), BY_PLACE) for rail in RAILS}


# what is not proved


@pytest.mark.parametrize(
    ("ports", "unnamed", "proved"),
    [
        ((1, 2, 3), (), True),
        ((1, 2, 11), (), True),
        ((1, 2), (), False),
        ((11, 12), (), False),
        # An adapter that only its place names shows nothing about the switch that names it.
        ((1, 2, 3), (A,), False),
        ((1, 2, 3, 4), (A,), True),
        # A switch has more than this one link.
        ((1, 2, 11), (S1,), True),
    ],
)
def test_three_neighbours_prove_a_switch_without_a_name(
    small: Small, ports: tuple[int, ...], unnamed: tuple[Key, ...], proved: bool
) -> None:
    small.call(NO_SWITCH_NAME, L0)
    small.call(NO_NAME, *unnamed)
    only_links(small, "l0", *ports)
    found = taken(small)
    assert found[L0] == (L0, BY_PLACE)
    adapters = {small.guid[key] for key in unnamed if key[1] >= 0}
    assert small.found.unproved == adapters | (set() if proved else {small.guid[L0]})


def test_a_neighbour_in_a_wrong_port_proves_nothing(small: Small) -> None:
    small.call(NO_SWITCH_NAME, L0)
    only_links(small, "l0", 1, 2)
    small.link((small.guid[L0], 31), small.at(rail_end("n3", 0)))
    assert taken(small) == {L0: (L0, BY_PLACE)}
    assert small.found.unproved == {small.guid[L0]}


def test_an_adapter_that_is_known_by_more_than_its_place_is_proved(small: Small) -> None:
    small.call(NO_NAME, A, B, C)
    small.declare(A, small.guid[A])
    assert taken(small, known=Identities({small.guid[B]: B})) == {
        A: (A, BY_GUID), B: (B, BY_NODE), C: (C, BY_PLACE),
    }  # fmt: skip
    assert small.found.unproved == {small.guid[C]}
