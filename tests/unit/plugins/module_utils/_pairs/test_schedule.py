# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
from cable_plans import plan_data
from pair_plans import small_plan

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    CablePlan,
    End,
    rail_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.routes import (
    COMPUTED,
    Routes,
    computed_routes,
    routes_within_switches,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._pairs.schedule import (
    Request,
    Schedule,
    Unit,
    all_pairs_rounds,
    make_schedule,
    schedule_from_data,
    schedule_to_data,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import plan_cables

PLANS = {
    "small": small_plan(),
    "odd": small_plan(nodes=7),
    "one unit": plan_cables(plan_data(8, (8, 4))),
    "basepod": plan_cables(plan_data(6)),
    "two units": plan_cables(plan_data([*range(1, 9), *range(33, 40)], (16, 8))),
}


def planned(plan: CablePlan, **request: object) -> tuple[Schedule, Routes]:
    routes = computed_routes(plan)
    return make_schedule(plan, routes, Request(**request)), routes  # type: ignore[arg-type]


def pairs_by_link(schedule: Schedule, routes: Routes) -> dict[End, set[frozenset[str]]]:
    """Counted by themselves, from the schedule alone."""
    pairs: dict[End, set[frozenset[str]]] = {}
    for _round, _half, _unit, source, target in schedule.flows():
        for end in routes.route(source, target):
            pairs.setdefault(end, set()).add(frozenset((source.host, target.host)))
    return pairs


@pytest.mark.parametrize("name", PLANS)
def test_every_link_is_loaded_and_none_is_in_the_way(name: str) -> None:
    plan = PLANS[name]
    schedule, routes = planned(plan)
    for units in schedule.rounds:
        nodes = [node for unit in units for node in sorted({unit.a, unit.b})]
        assert len(nodes) == len(set(nodes))
    taken = Counter(
        (number, half, end)
        for number, half, _unit, source, target in schedule.flows()
        for end in routes.route(source, target)
    )
    assert set(taken.values()) == {1}, "two flows of one half share a link"
    pairs = pairs_by_link(schedule, routes)
    ends = {end for cable in plan.cables for end in (cable.a, cable.b)}
    thin = dict(schedule.thin)
    for end in ends - set(schedule.unloaded):
        assert len(pairs[end]) == thin[end] if end in thin else len(pairs[end]) >= 3
    assert not any(end in pairs for end in schedule.unloaded)


@pytest.mark.parametrize("name", PLANS)
def test_only_links_that_no_pair_can_load_are_left_out(name: str) -> None:
    plan = PLANS[name]
    schedule, routes = planned(plan)
    rails = [rail_end(*key) for key in plan.hcas]
    possible = {
        end
        for one in rails
        for two in rails
        if one.host != two.host
        for end in routes.route(one, two)
    }
    ends = {end for cable in plan.cables for end in (cable.a, cable.b)}
    assert set(schedule.unloaded) == ends - possible


@pytest.mark.parametrize(
    "name", ["small", "basepod", pytest.param("two units", marks=pytest.mark.slow)]
)
def test_neighbouring_links_are_told_apart_where_like_rails_can(name: str) -> None:
    plan = PLANS[name]
    schedule, routes = planned(plan)
    uses: Counter[End] = Counter()
    both: Counter[tuple[End, End]] = Counter()
    for _round, _half, _unit, source, target in schedule.flows():
        ways = routes.route(source, target)
        uses.update(ways)
        both.update(pairwise(ways))
    rails = [rail_end(*key) for key in plan.hcas]
    possible: Counter[tuple[End, End]] = Counter()
    for one in rails:
        for two in rails:
            if one.rail == two.rail and one != two:
                ways = set(routes.route(one, two))
                for pair in both:
                    possible[pair] += len(ways & set(pair)) == 1
    for (one, two), count in both.items():
        apart = uses[one] + uses[two] - 2 * count
        assert apart >= min(2, possible[one, two])
    assert max(possible.values()) >= 2


def test_rounds_of_a_small_fabric_are_few() -> None:
    schedule, _routes = planned(PLANS["two units"])
    assert len(schedule.rounds) <= 13 < all_pairs_rounds(15)
    assert schedule.routes == COMPUTED


def test_the_first_round_is_each_adapter_with_itself() -> None:
    schedule, _routes = planned(PLANS["small"])
    assert {unit.pair for unit in schedule.rounds[0]} == {
        (node, node) for node in {node for node, _rail in PLANS["small"].hcas}
    }
    assert all(unit.loopback for unit in schedule.rounds[0])
    without, _routes = planned(PLANS["small"], loopback=False)
    assert not any(unit.loopback for units in without.rounds for unit in units)
    assert len(without.rounds) == len(schedule.rounds) - 1


def test_the_same_seed_gives_the_same_schedule() -> None:
    first, _routes = planned(PLANS["two units"], seed=7)
    assert first == planned(PLANS["two units"], seed=7)[0]
    assert first != planned(PLANS["two units"], seed=8)[0]


def test_unlike_rails_meet_only_where_they_must() -> None:
    # In one unit, like rails meet on one leaf: only unlike ones use the spines.
    schedule, _routes = planned(PLANS["one unit"], cross_rail=False)
    assert {unit.shift for units in schedule.rounds for unit in units} == {0}
    assert {end.host[:4] for end in schedule.unloaded} == {"leaf", "spin"}
    with_cross, _routes = planned(PLANS["one unit"])
    assert len(with_cross.unloaded) < len(schedule.unloaded)
    # In two units each link between switches that can be is loaded by like rails.
    both, _routes = planned(PLANS["small"])
    assert {unit.shift for units in both.rounds for unit in units} == {0}


def test_more_pairs_for_each_link() -> None:
    schedule, routes = planned(PLANS["small"], pairs_per_link=4)
    pairs = pairs_by_link(schedule, routes)
    ends = {end for cable in PLANS["small"].cables for end in (cable.a, cable.b)}
    thin = dict(schedule.thin)
    assert all(len(pairs[end]) >= 4 for end in ends - set(schedule.unloaded) - set(thin))


def test_who_is_excluded_takes_no_part() -> None:
    schedule, _routes = planned(PLANS["small"], excluded=frozenset({"dgx-03", "dgx-05/rail1"}))
    flows = [(source, target) for _r, _h, _u, source, target in schedule.flows()]
    ends = {end for flow in flows for end in flow}
    assert not any(end.host == "dgx-03" for end in ends)
    assert rail_end("dgx-05", 1) not in ends
    assert rail_end("dgx-05", 0) in ends
    # Their cables are not expected to be loaded, and not reported either.
    assert not any("dgx-03" in end.host for end in schedule.unloaded)


@pytest.mark.parametrize("nodes", [0, 1, 2, 3])
def test_few_nodes(nodes: int) -> None:
    plan = small_plan(nodes=nodes, units=1)
    schedule, routes = planned(plan)
    pairs = pairs_by_link(schedule, routes)
    expected = max(0, nodes - 1)
    assert all(len(pairs.get(rail_end(*key), ())) == expected for key in plan.hcas)
    if nodes < 4:
        assert all(count <= expected for _end, count in schedule.thin)


def test_a_unit_and_its_flows() -> None:
    unit = Unit("dgx-02", "dgx-01", 1, (0, 1), 2)
    assert unit.pair == ("dgx-01", "dgx-02")
    there = [
        (rail_end("dgx-02", 0), rail_end("dgx-01", 1)),
        (rail_end("dgx-02", 1), rail_end("dgx-01", 0)),
    ]
    assert unit.flows(0) == there
    assert unit.flows(1) == [(two, one) for one, two in there]


def test_data_and_back() -> None:
    schedule, _routes = planned(PLANS["one unit"])
    text = json.dumps(schedule_to_data(schedule))
    assert schedule_from_data(json.loads(text)) == schedule


@pytest.mark.parametrize(("nodes", "rounds"), [(0, 0), (2, 1), (126, 125), (127, 127), (128, 127)])
def test_everybody_with_everybody(nodes: int, rounds: int) -> None:
    assert all_pairs_rounds(nodes) == rounds


@pytest.mark.parametrize("name", ["small", "basepod", "two units"])
def test_where_ways_are_not_known_only_adapters_of_one_switch_meet(name: str) -> None:
    whole = PLANS[name]
    routes = routes_within_switches(whole)
    assert {cable.kind for cable in whole.cables} > {cable.kind for cable in routes.plan.cables}
    assert list(routes.plan.switches) == [
        switch for switch, planned in whole.switches.items() if planned.tier == "leaf"
    ]
    schedule = make_schedule(routes.plan, routes, Request(cross_rail=False, loopback=False))
    assert schedule.routes == "within each leaf switch"
    met: Counter[End] = Counter()
    for _round, _half, _unit, source, target in schedule.flows():
        assert source.rail == target.rail
        assert routes.leaf_port(source).host == routes.leaf_port(target).host
        met.update((source, routes.leaf_port(target)))
    # Each cable of a node is loaded both ways, by as many pairs as its leaf has partners.
    assert schedule.unloaded == ()
    assert set(met) == {end for cable in routes.plan.cables for end in (cable.a, cable.b)}
    assert min(met.values()) >= 3
