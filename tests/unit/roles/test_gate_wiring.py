# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate holds what it can prove, and admit_nodes with the gate off admits nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment
from role_render import ROLES
from role_rules import read_yaml
from wiring import Wiring, example, write

from ansible_collections.baremetal.dgx.plugins.filter.nodeset_expand import nodeset_expand

PLAYBOOKS = ROLES.parent / "playbooks"


def refusal():
    for play in read_yaml(PLAYBOOKS / "admit_nodes.yml"):
        for task in play.get("pre_tasks", []):
            words = task.get("ansible.builtin.assert", {})
            if "cluster_gate.enabled" in words.get("fail_msg", ""):
                return words["that"]
    raise AssertionError("admit_nodes ends green with the gate off")


@pytest.mark.parametrize(
    ("variables", "goes_on"),
    [
        pytest.param({"__gate": {"enabled": True}}, True, id="on"),
        pytest.param({"__gate": {"enabled": False}}, False, id="off"),
        pytest.param({"__gate": {"enabled": False}, "admit_nodes_is_part": True}, True, id="part"),
    ],
)
def test_admit_nodes_with_the_gate_off_is_red_when_run_by_name(variables, goes_on):
    environment = NativeEnvironment()
    environment.filters["bool"] = bool
    assert environment.from_string("{{ " + refusal() + " }}").render(variables) is goes_on


def test_the_checks_of_idle_nodes_go_on_without_the_gate():
    (play,) = (
        play
        for play in read_yaml(PLAYBOOKS / "check_idle_nodes.yml")
        if play.get("ansible.builtin.import_playbook") == "admit_nodes.yml"
    )
    assert play["vars"]["admit_nodes_is_part"] is True


def test_no_finding_keeps_the_gate_from_it():
    """A play that loses all its hosts ends the run."""
    found = []
    for path in sorted(PLAYBOOKS.glob("*.yml")):
        plays = read_yaml(path)
        imports = [str(play.get("ansible.builtin.import_playbook", "")) for play in plays]
        gates = [place for place, name in enumerate(imports) if name == "admit_nodes.yml"]
        found += [
            (path.stem, play["vars"].get("findings_fail"))
            for play, name in list(zip(plays, imports, strict=True))[: max(gates, default=0)]
            if "validate_nodes.yml" in name or "validate_fabric.yml" in name
        ]
    assert {name for name, _fail in found} == {"check_idle_nodes", "repair_nodes"}
    assert all(fail is False for _name, fail in found), found


@pytest.mark.parametrize("name", ["check_idle_nodes", "repair_nodes"])
def test_a_node_that_is_still_held_is_red_after_all_else(name: str) -> None:
    """Earlier it would end the run before the gate, the tickets and the end of the lock."""
    *before, last = read_yaml(PLAYBOOKS / f"{name}.yml")
    held = {"ansible.builtin.include_tasks": "tasks/validate_held.yml"}
    (asked,) = [task for task in last["tasks"] if held.items() <= task.items()]
    assert set(asked) == {"name", *held}, "for each node, without a condition"
    assert not {"when", "run_once"} & set(last)
    assert set(last["hosts"].split(":")) == {
        group
        for play in before
        if "validate_nodes.yml" in str(play.get("ansible.builtin.import_playbook"))
        for group in [play["vars"]["target"]]
    }
    names = [task["name"] for play in before for task in play.get("tasks", [])]
    assert name == "check_idle_nodes" or "Unlock repairs" in names


def test_the_checks_of_idle_nodes_come_to_all_of_them():
    """Validated at a lesser level, or with a burn-in of before, the same ones stay due."""
    plays = read_yaml(PLAYBOOKS / "check_idle_nodes.yml")
    (group,) = (
        task["ansible.builtin.add_host"]
        for play in plays
        for task in play.get("tasks", [])
        if "ansible.builtin.add_host" in task
    )
    (due,) = (
        task["baremetal.dgx.slurm_nodes_due"]
        for play in plays
        for task in play.get("tasks", [])
        if "baremetal.dgx.slurm_nodes_due" in task
    )
    assert group["__check_level"] == due["level"]
    assert "looks=true" in due["verdicts"]
    (validate,) = (
        play["vars"]
        for play in plays
        if play.get("ansible.builtin.import_playbook") == "validate_nodes.yml"
    )
    assert (validate["level"], validate["again"]) == ("{{ __check_level }}", True)


def test_repairs_know_the_level_of_the_gate():
    steps = [
        task["baremetal.dgx.repair_step"]
        for play in read_yaml(PLAYBOOKS / "repair_nodes.yml")
        for task in play.get("tasks", [])
        if "verdicts" in task.get("baremetal.dgx.repair_step", {})
    ]
    assert [step["level"] for step in steps] == ["{{ __gate.level }}"] * 2


def test_a_repair_is_validated_at_the_level_that_asks_what_failed():
    plays = read_yaml(PLAYBOOKS / "repair_nodes.yml")
    (chosen,) = (play for play in plays if play.get("name") == "Choose the steps")
    assert "looks=true" in chosen["vars"]["__repair_verdicts"]
    (group,) = (
        task["ansible.builtin.add_host"]
        for play in plays
        for task in play.get("tasks", [])
        if "__repair_level" in task.get("ansible.builtin.add_host", {})
    )
    assert group["__repair_level"] == "{{ repair_level | default(item.level) }}"


PROFILE = {"cpu": {"sockets": 2, "cores_per_socket": 32, "threads_per_core": 2, "numa_nodes": 2}}


def test_cpu_nodes_are_not_held(tmp_path: Path) -> None:
    """Nothing measures them: drained for want of evidence, they would stay so."""
    inventory = example(tmp_path, "core_12")
    more = {"cluster": {"children": {"cpu_nodes": {"hosts": {"cpu-01": None, "cpu-02": None}}}}}
    write(inventory, "more.yml", more)
    profiles = {"cpu_node": {**PROFILE, "real_memory_mb": 250000}}
    write(inventory, "group_vars/all/profiles.yml", {"cluster_profiles": profiles})
    write(inventory, "group_vars/all/gate.yml", {"cluster_gate": {"enabled": True}})
    address = {"management": "10.1.0.61", "storage": "10.1.2.61"}
    node = {"node_profile": "cpu_node", "node_first_address": address}
    write(inventory, "group_vars/cpu_nodes/node.yml", node)
    values = Wiring(inventory).of("head-01")
    # Nodes that do not differ are one entry: thousands of them cost each task of the role.
    known = [node["name"] for node in values["slurm_controller_nodes"]]
    assert known == ["dgx-[01-12]", "cpu-[01-02]"]
    held = [f"dgx-{number:02d}" for number in range(1, 13)]
    assert values["__gate_nodes"] == held
    (task,) = (
        task
        for task in read_yaml(ROLES / "slurm_controller/tasks/service.yml")
        if task["name"].endswith("Drain the new nodes")
    )
    nodes = task["baremetal.dgx.slurm_gate"]["nodes"]
    environment = NativeEnvironment()
    environment.filters["baremetal.dgx.nodeset_expand"] = nodeset_expand
    assert environment.from_string(nodes).render(values) == held


def test_steps_of_a_bmc_are_for_the_nodes_that_have_one(tmp_path: Path) -> None:
    """The plan knows them, and no password is read to find out."""
    inventory = example(tmp_path, "core_12")
    password = "{{ lookup('ansible.builtin.env', 'BMC_PASSWORD') }}"
    bmc = {"user": "operator", "password": password, "certificate": "sha256:" + 64 * "a"}
    for name, state in (("dgx-02", "present"), ("dgx-03", "absent")):
        write(inventory, f"host_vars/{name}.yml", {"node_bmc": bmc, "node_state": state})
    assert Wiring(inventory).of("head-01")["__repair_powered"] == ["dgx-02"]


def test_nodes_with_another_job_in_the_cluster_are_told(tmp_path: Path) -> None:
    assert Wiring(example(tmp_path, "core_12")).of("head-01")["__serving_nodes"] == []
    inventory = example(tmp_path / "more", "core_12")
    path = inventory / "hosts.yml"
    hosts = yaml.safe_load(path.read_text())
    hosts["cluster"]["children"]["login_nodes"]["hosts"]["dgx-05"] = None
    path.write_text(yaml.safe_dump(hosts))
    assert Wiring(inventory).of("head-01")["__serving_nodes"] == ["dgx-05"]


@pytest.mark.parametrize("part", ["pair", "group"])
def test_failures_of_nodes_that_are_held_are_kept_where_the_gate_reads_them(part: str) -> None:
    tasks = read_yaml(PLAYBOOKS / f"tasks/{part}_tests.yml")
    (kept,) = (task for task in tasks if "baremetal.dgx.evidence_add" in task)
    given = kept["baremetal.dgx.evidence_add"]["failures"]
    assert given == "{{ __cluster_state }}/failures"


@pytest.mark.parametrize(
    ("holds", "answering", "nodes"),
    [
        # power=on holds none: what an upgrade has left out is not waited for.
        ([], ["dgx-power"], []),
        (
            [{"item": "dgx-01", "may_load": True}, {"item": "dgx-02", "skipped": True}],
            ["dgx-power", "dgx-upgrade"],
            ["dgx-01"],
        ),
    ],
)
def test_power_waits_and_frees_for_what_it_held(holds, answering, nodes):
    environment = NativeEnvironment()
    values = {
        "__machines_by": "dgx-power", "__machines_holds": {"results": holds},
        "machines_free": ["dgx-03"],
    }  # fmt: skip
    (back,) = read_yaml(PLAYBOOKS / "tasks/machines_back.yml")
    resume = back["baremetal.dgx.slurm_node"]
    assert environment.from_string(resume["answering"]).render(values) == answering
    (block,) = read_yaml(PLAYBOOKS / "tasks/machines_lock.yml")
    (release,) = block["block"]
    (name,) = release["vars"]
    values[name] = environment.from_string(release["vars"][name]).render(values)
    given = release["baremetal.dgx.slurm_nodes_hold"]
    assert environment.from_string(given["nodes"]).render(values) == nodes
    assert environment.from_string(given["reserved"]).render(values) == ["dgx-03"]
