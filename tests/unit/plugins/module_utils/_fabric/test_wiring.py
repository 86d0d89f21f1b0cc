# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chains of cables that are not where they belong, in a small fabric: what is reported of each."""

from __future__ import annotations

import pytest
from small_fabric import L0, RAILS, S1, UNPLANNED, Small

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import (
    Observation,
    judge_fabric,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.match import match
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CA,
    FoundDevice,
    rail_end,
    switch_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.wiring import (
    Misrouted,
    find_misrouted,
    wiring_of,
)

GUID = Small().guid
N1, N2, L1 = (GUID["n1", 0], 1), (GUID["n2", 0], 1), ("l1", -1)
OTHER = (UNPLANNED, 1)


def port(switch: tuple[str, int], number: int) -> tuple[str, int]:
    return GUID[switch], number


def misrouted(*links: tuple[tuple[str, int], tuple[str, int]], gone: str = "") -> Misrouted:
    """Links that were made one after the other; of the node `gone` rail 0 is not there."""
    small = Small()
    small.sweep.devices[UNPLANNED] = FoundDevice(UNPLANNED, CA, "other mlx5_0", 2)
    for one, two in links:
        small.link(one, two)
    if gone:
        small.remove((gone, 0))
    return find_misrouted(
        wiring_of(small.plan, small.sweep, match(small.plan, small.sweep)), set(), set()
    )


def moved(what: str, there: str, here: str) -> tuple[str, str]:
    return (
        f"the cable of {what} is in {there} and belongs in {here}",
        f"move the plug from {there} to {here}",
    )


N1_IN_6 = moved("n1 rail 0", "l0 port 6", "l0 port 1")
N1_IN_2 = moved("n1 rail 0", "l0 port 2", "l0 port 1")
N2_IN_1 = moved("n2 rail 0", "l0 port 1", "l0 port 2")
N2_IN_6 = moved("n2 rail 0", "l0 port 6", "l0 port 2")


@pytest.mark.parametrize(
    ("links", "reported", "unlinked", "unknown"),
    [
        ([(N1, port(L0, 6))], N1_IN_6, [], []),
        (
            [(N1, port(L0, 2)), (N2, port(L0, 6))],
            (
                f"2 cables are moved on: {N1_IN_2[0]}; {N2_IN_6[0]}",
                f"{N1_IN_2[1]}, then {N2_IN_6[1]}",
            ),
            [],
            [],
        ),
        # A cable too few: an adapter keeps its plug, and so does the lower port of two switches.
        ([(N1, port(L0, 2))], N1_IN_2, ["n2/rail0--l0/2"], []),
        ([(N2, port(L0, 1))], N2_IN_1, ["n1/rail0--l0/1"], []),
        ([(N1, port(L0, 11))], moved("n1 rail 0", "l0 port 11", "l0 port 1"), ["l0/11--s1/1"], []),
        (
            [(port(L0, 1), port(S1, 1))],
            moved("l0 port 1", "s1 port 1", "n1 rail 0"),
            ["l0/11--s1/1"],
            [],
        ),
        (
            [(port(L0, 11), port(L1, 11))],
            moved("l0 port 11", "l1 port 11", "s1 port 1"),
            ["l1/11--s1/2"],
            [],
        ),
        ([(port(L0, 7), port(L1, 11))], moved("l1 port 11", "l0 port 7", "s1 port 2"), [], []),
        # A link too many: that of what is in no plan.
        ([(N1, port(L0, 6)), (OTHER, port(L0, 1))], N1_IN_6, [], ["l0 port 1"]),
        ([(N1, port(L0, 6)), (OTHER, port(L0, 7))], N1_IN_6, [], ["l0 port 7"]),
        (
            [(N1, port(L0, 2)), (N2, port(L0, 6)), (OTHER, port(L0, 1))],
            (
                f"2 cables are moved on: {N1_IN_2[0]}; {N2_IN_6[0]}",
                f"{N1_IN_2[1]}, then {N2_IN_6[1]}",
            ),
            [],
            ["l0 port 1"],
        ),
    ],
)
def test_what_is_reported_of_a_chain(links, reported, unlinked, unknown) -> None:
    found = misrouted(*links)
    assert [(one.kind, one.text, one.remedy) for one in found.findings] == [("moved", *reported)]
    assert [cable.subject for cable in found.unlinked] == [f"cable:{one}" for one in unlinked]
    assert [f"{end.host} port {end.port}" for end, _far in found.unknown] == unknown


@pytest.mark.parametrize(
    ("there", "gone", "reported"),
    [
        ((N1, port(L0, 2)), "n2", N1_IN_2),
        ((N2, port(L0, 1)), "n1", N2_IN_1),
    ],
)
def test_an_adapter_that_is_nowhere_has_lost_its_cable(there, gone, reported) -> None:
    found = misrouted(there, gone=gone)
    assert [(one.text, one.remedy) for one in found.findings] == [reported]
    (cable,) = found.unlinked
    assert cable.a.host == gone


@pytest.mark.parametrize(
    ("node", "to", "by"), [("n1", 6, "5 ports higher"), ("n4", 1, "3 ports lower")]
)
def test_a_node_at_another_place_is_reported_with_the_direction(
    node: str, to: int, by: str
) -> None:
    small = Small()
    for rail in RAILS:
        small.unlink((small.guid["n1", rail], 1))
        small.link((small.guid[node, rail], 1), (small.guid[f"l{rail}", -1], to))
    found = {
        one.subject: one.text for one in judge_fabric(small.plan, Observation(small.sweep)).findings
    }
    assert found[f"node:{node}"] == (
        f"{node} is at another place: 4 of its cables are {by} on their leaves than planned"
    )


@pytest.mark.parametrize(
    ("link", "what", "do"),
    [
        ((port(L0, 6), port(L1, 6)), "a link that the plan does not have", ""),
        (
            (OTHER, port(L0, 6)),
            "other is not in the plan, but is linked",
            ", or add the device to the inventory or to the hosts that are known to be there",
        ),
    ],
)
def test_what_to_do_about_a_link_that_is_not_planned(
    link: tuple[tuple[str, int], tuple[str, int]], what: str, do: str
) -> None:
    small = Small()
    small.sweep.devices[UNPLANNED] = FoundDevice(UNPLANNED, CA, "other mlx5_0", 2)
    small.link(*link)
    (found,) = judge_fabric(small.plan, Observation(small.sweep)).findings
    assert found.text.startswith(f"{what}: ")
    assert found.remedy == f"take the cable out{do}"


def test_a_link_with_a_cause_at_either_end_is_not_reported() -> None:
    small = Small()
    small.link(N1, port(L0, 6))
    wiring = wiring_of(small.plan, small.sweep, match(small.plan, small.sweep))
    for end in (rail_end("n1", 0), switch_end("l0", 6)):
        found = find_misrouted(wiring, set(), {end})
        assert (found.findings, found.unknown) == ((), ())
        assert [cable.subject for cable in found.unlinked] == ["cable:n1/rail0--l0/1"]
