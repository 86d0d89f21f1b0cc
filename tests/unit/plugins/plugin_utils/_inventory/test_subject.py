# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A playbook that would run on no host is refused; a part of a whole run may be empty."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.subject import (
    Subject,
    at_work,
    fabric_host,
    fabric_refusal,
    refusal,
    undeclared,
)

GROUPS = {
    "cluster": ["head-01", "dgx-01", "dgx-02"],
    "gpu_nodes": ["dgx-01", "dgx-02"],
    "slurm_controllers": ["head-01"],
    "others": ["backup-01"],
}


def match(patterns: list[str]) -> list[str]:
    known = {host for hosts in GROUPS.values() for host in hosts}
    found = [GROUPS.get(name, [name] if name in known else []) for name in patterns]
    return [host for hosts in found for host in hosts]


@pytest.mark.parametrize(
    ("patterns", "limits", "says"),
    [
        (("gpu_nodes",), (), ""),
        (("gpu_nodes",), ("dgx-01",), ""),
        (("dgx-01", "head-01"), (), ""),
        (("gpu_nodes",), ("head-01",), "--limit head-01: leaves out dgx-01,"),
        (("gpu_nodes",), ("dgx-07",), "--limit: no host of the inventory is called dgx-07"),
        (("dgx-01", "dgx-09"), (), "hosts: no host of the inventory is called dgx-09"),
        (("head-01",), (), "hosts: 'head-01' is not a host of gpu_nodes that is present"),
        # Declared absent.
        (("dgx-02",), (), "hosts: 'dgx-02' is not a host of gpu_nodes that is present"),
        # A group of the contract without hosts.
        (("login_nodes",), (), "hosts: 'login_nodes' is not a host of gpu_nodes"),
    ],
)
def test_who_is_left(patterns: tuple[str, ...], limits: tuple[str, ...], says: str) -> None:
    why = refusal(Subject(patterns, ("gpu_nodes",)), limits, match, ["head-01", "dgx-01"])
    assert why.startswith(says)
    assert bool(why) == bool(says)
    assert "\n" not in why


def test_a_part_of_a_whole_run_may_be_empty_but_not_the_whole() -> None:
    part = Subject(("gpu_nodes",), ("gpu_nodes",), is_part=True)
    present = ["head-01", "dgx-01"]
    assert refusal(part, ("head-01",), match, present) == ""
    assert refusal(part, ("backup-01",), match, present).startswith("--limit backup-01: leaves no")
    strange = Subject(("dgx-09",), ("gpu_nodes",), is_part=True)
    assert "dgx-09" in refusal(strange, (), match, present)


def test_the_host_that_looks_at_the_fabric() -> None:
    plan = {
        "cluster": {
            "fabric": {"fabric_host": None},
            "fabric_kind": "infiniband",
            "groups": {
                "subnet_managers": ["head-01", "head-02"],
                "gpu_nodes": ["dgx-01", "dgx-02"],
            },
        }
    }
    assert fabric_host(plan, ["head-02"]) == "head-02"
    assert fabric_host(plan, []) == ""
    plan["cluster"]["fabric"] = {"fabric_host": "dgx-01"}
    assert fabric_host(plan, ["head-02"]) == "dgx-01"
    assert fabric_refusal(plan, ["infiniband"]) == ""
    plan["cluster"]["fabric_kind"] = "ethernet"
    assert "only InfiniBand can be swept" in fabric_refusal(plan, ["infiniband"])
    assert fabric_refusal(plan, ["infiniband", "ethernet"]) == ""
    assert fabric_host(plan, ["head-02", "dgx-02"]) == "dgx-01"
    plan["cluster"]["fabric"] = {"fabric_host": None}
    assert fabric_host(plan, ["head-02", "dgx-02"]) == "dgx-02", "a node judges what it received"


def test_a_playbook_of_which_nothing_is_declared_has_nothing_to_do() -> None:
    subject = Subject(("gpu_nodes", "head-01"), ("cluster",))
    present = ["head-01", "dgx-01", "dgx-02"]
    assert at_work(subject, (), match, present) == ["dgx-01", "dgx-02", "head-01"]
    hosts = at_work(subject, ("dgx-01", "dgx-02"), match, present)
    assert hosts == ["dgx-01", "dgx-02"]
    roles = {host: ["node_base"] for host in hosts}
    assert undeclared({**roles, "dgx-02": ["node_base", "dcgm"]}, ["dcgm", "roce"], "one") == ""
    assert undeclared(roles, ["dcgm", "roce"], "one") == (
        "inventory: nothing is declared for dgx-[01-02] to do here; write one"
    )
    # Others have something to do: then not the whole cluster lacks it.
    others = {"head-01": ["node_base"], "dgx-03": ["roce"], "dgx-04": ["dcgm"]}
    assert undeclared(roles, ["dcgm", "roce"], "one", "a profile", others) == (
        "inventory: nothing is declared for dgx-[01-02] to do here, as it is for dgx-[03-04]; "
        "name some of those, or write a profile for dgx-[01-02]"
    )
    assert undeclared(roles, ["dcgm"], "one", others=others).endswith(
        "or write one for dgx-[01-02]"
    )
    assert undeclared(roles, ["pyxis"], "one", others=others).endswith("to do here; write one")
