# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.constants import DEFAULT_VAULT_ID_MATCH
from ansible.parsing.vault import VaultLib, VaultSecret

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Opaque, Unresolved
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Inventory
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan

GPU_NODES = "group_vars/gpu_nodes/node.yml"
BASE = "group_vars/all/slurm_base.yml"
OPTIONS = "group_vars/slurm_controllers/options.yml"


def path(inventory: Inventory, host: str, name: str) -> str:
    return inventory.hosts[host][name].path


def value(inventory: Inventory, host: str, name: str) -> Any:
    return inventory.hosts[host][name].value


def vaulted(text: str) -> str:
    """An inline vault value as a line of YAML."""
    secret = VaultSecret(b"a test's own")
    lines = VaultLib([(DEFAULT_VAULT_ID_MATCH, secret)]).encrypt(text, secret).decode().splitlines()
    return "!vault |\n" + "".join(f"  {line}\n" for line in lines)


def test_values_have_the_path_of_where_they_are_written(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    small_files["hosts.yml"] += "      vars: {node_state: present}\n"
    small_files["host_vars/dgx-04.yml"] = "node_serial: S4\n"
    inventory = collected(small_files, {"node_features": ["x"]})
    assert path(inventory, "dgx-03", "node_rack") == "gpu_nodes.dgx-03.node_rack"
    assert path(inventory, "dgx-03", "node_profile") == "gpu_nodes.node_profile"
    assert path(inventory, "dgx-03", "node_state") == "gpu_nodes.node_state"
    assert path(inventory, "dgx-04", "node_serial") == "gpu_nodes.dgx-04.node_serial"
    assert path(inventory, "dgx-03", "cluster_name") == "all.cluster_name"
    assert path(inventory, "dgx-03", "node_features") == "--extra-vars.node_features"
    assert value(inventory, "dgx-03", "node_features") == ["x"]
    assert path(inventory, "head-01", "node_first_address") == (
        "slurm_controllers.node_first_address"
    )


def test_a_first_address_is_a_groups(
    collected: Callable[..., Inventory],
    small_files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A template of the group may make another one for each host, and merging makes new values."""
    first = (
        "node_first_address: {management: '10.1.{{ node_rack[-1] }}.101', storage: 10.2.0.101}\n"
    )
    small_files[GPU_NODES] = f"node_profile: dgx_h100\n{first}"
    inventory = collected(small_files)
    assert inventory.problems == ()
    assert value(inventory, "dgx-03", "node_first_address")["management"] == "10.1.2.101"
    small_files["host_vars/dgx-03.yml"] = "node_first_address: {management: 10.1.0.9}\n"
    (problem,) = collected(small_files).problems
    assert problem.path == "gpu_nodes.dgx-03.node_first_address"
    # An inventory of a program has the groups' values on the hosts; the group that wins counts.
    small_files["host_vars/dgx-03.yml"] = first
    small_files["group_vars/all/node.yml"] = "node_first_address: {management: 10.1.9.1}\n"
    assert collected(small_files).problems == ()
    small_files["host_vars/dgx-03.yml"] = "node_first_address: {management: 10.1.9.1}\n"
    (problem,) = collected(small_files).problems
    del small_files["group_vars/all/node.yml"]
    small_files[GPU_NODES] = "node_profile: dgx_h100\n"
    assert collected(small_files).problems == ()
    small_files[GPU_NODES] += first
    monkeypatch.setattr("ansible.constants.DEFAULT_HASH_BEHAVIOUR", "merge")
    assert collected(small_files).problems == ()


def test_a_host_wins_over_its_group(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    small_files["host_vars/dgx-04.yml"] = "node_profile: dgx_h200\n"
    inventory = collected(small_files)
    assert value(inventory, "dgx-04", "node_profile") == "dgx_h200"
    assert path(inventory, "dgx-04", "node_profile") == "gpu_nodes.dgx-04.node_profile"
    assert value(inventory, "dgx-03", "node_profile") == "dgx_h100"


def test_a_template_that_differs_is_the_hosts_own(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    small_files[GPU_NODES] += (
        "node_serial: \"S{{ '%04d' | format(inventory_hostname[-2:] | int) }}\"\n"
        'node_state: "{{ my_state }}"\nmy_state: present\n'
    )
    inventory = collected(small_files)
    assert value(inventory, "dgx-03", "node_serial") == "S0003"
    assert path(inventory, "dgx-03", "node_serial") == "gpu_nodes.dgx-03.node_serial"
    assert value(inventory, "dgx-03", "node_state") == "present"
    assert path(inventory, "dgx-03", "node_state") == "gpu_nodes.node_state"


def test_a_template_sees_what_its_host_has(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    """A result is kept for other hosts only while nothing differs, at any depth."""
    small_files[GPU_NODES] += 'node_serial: "{{ my_first }}"\nmy_first: "{{ my_second }}"\n'
    small_files["group_vars/all/my.yml"] = "my_second: common\n"
    small_files["host_vars/dgx-02.yml"] = "my_second: own\n"
    small_files["host_vars/dgx-03.yml"] = "my_first: other\n"
    inventory = collected(small_files)
    found = [value(inventory, f"dgx-0{number}", "node_serial") for number in range(1, 5)]
    assert found == ["common", "own", "other", "common"]


def test_a_template_that_reaches_by_name_is_read_for_each_host(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    small_files[GPU_NODES] += (
        "node_serial: \"{{ lookup('vars', 'my_' ~ 'serial') }}\"\nmy_serial: S0\n"
    )
    small_files["host_vars/dgx-02.yml"] = "my_serial: S2\n"
    inventory = collected(small_files)
    assert value(inventory, "dgx-01", "node_serial") == "S0"
    assert value(inventory, "dgx-02", "node_serial") == "S2"


def test_defaults_of_roles_can_be_referred_to(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    small_files[OPTIONS] = 'slurm_controller_options: {SlurmUser: "{{ slurm_base_uid }}"}\n'
    inventory = collected(small_files)
    found = value(inventory, "head-01", "slurm_controller_options")
    assert str(found["SlurmUser"]) == "64030"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ansible_facts['memtotal_mb'] }}",
        "{{ ansible_facts.memtotal_mb // 2 }}",
        "{{ ansible_memtotal_mb }}",
    ],
)
def test_facts_are_left_to_the_roles(
    template: str,
    collected: Callable[..., Inventory],
    planned: Callable[..., Plan],
    small_files: dict[str, str],
) -> None:
    small_files[OPTIONS] = f'slurm_controller_options: {{A: "{template}", B: 1}}\n'
    found = value(collected(small_files), "head-01", "slurm_controller_options")
    assert isinstance(found["A"], Unresolved)
    assert found["A"].later
    assert found["B"] == 1
    assert planned(small_files).problems == ()


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ my_nothing }}", "refers to the undefined variable 'my_nothing'"),
        ("{{ my_things.nothing }}", "refers to the undefined attribute 'nothing'"),
    ],
)
def test_only_the_part_that_cannot_be_templated_is_reported(
    template: str, reason: str, planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[OPTIONS] = (
        f'slurm_controller_options: {{A: ["x", "{template}"], B: 1}}\nmy_things: {{}}\n'
    )
    assert planned(small_files).problems == (
        (
            f"slurm_controllers.slurm_controller_options.A[1]: cannot be templated: {reason}; "
            "define what it refers to, or write the value itself"
        ),
    )


def test_a_broken_template_is_one_line(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[OPTIONS] = "slurm_controller_options: {A: \"{{ 'x' | no_such_filter }}\"}\n"
    (line,) = planned(small_files).problems
    assert line.startswith("slurm_controllers.slurm_controller_options.A: cannot be templated: ")
    assert "no_such_filter" in line
    assert "\n" not in line


def test_secrets_are_not_templated(
    collected: Callable[..., Inventory], planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """The template of a secret often makes it."""
    small_files[BASE] += (
        "slurm_base_key: \"{{ lookup('ansible.builtin.file', '/does/not/exist') }}\"\n"
    )
    assert value(collected(small_files), "head-01", "slurm_base_key") == Opaque()
    assert planned(small_files).problems == ()


@pytest.mark.parametrize("text", ["a{{b-is-long", "a{%b-is-long", "a{#b-is-long"])
def test_a_secret_that_is_no_template_may_look_like_one(
    planned: Callable[..., Plan], small_files: dict[str, str], text: str
) -> None:
    small_files[BASE] += f"slurm_base_key: !unsafe '{text * 4}'\n"
    plan = planned(small_files)
    assert plan.problems == ()
    assert text not in plan.plan_text()


def test_a_comment_of_jinja_that_does_not_end_is_named(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[OPTIONS] = "slurm_controller_options: {A: 'echo ${#a[@]}'}\n"
    (line,) = planned(small_files).problems
    assert line.startswith("slurm_controllers.slurm_controller_options.A: cannot be templated: ")
    assert "Missing end of comment tag" in line


def test_secrets_inside_other_values_are_not_templated(
    collected: Callable[..., Inventory], planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files[BASE] += (
        'node_base_users: [{name: "{{ my_name }}", '
        "password: \"{{ lookup('ansible.builtin.file', '/does/not/exist') }}\"}]\nmy_name: eve\n"
    )
    found = value(collected(small_files), "head-01", "node_base_users")
    assert found == [{"name": "eve", "password": Opaque()}]
    assert planned(small_files).problems == ()


def test_vaulted_values_of_roles_stay_closed(
    collected: Callable[..., Inventory], planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """Here there is no vault password at all."""
    small_files[BASE] += "slurm_base_key: " + vaulted("hunter2")
    small_files[OPTIONS] = "slurm_controller_options:\n  A: " + vaulted("hunter2").replace(
        "\n  ", "\n    "
    )
    inventory = collected(small_files)
    assert value(inventory, "head-01", "slurm_base_key") == Opaque()
    assert value(inventory, "head-01", "slurm_controller_options") == {"A": Opaque()}
    plan = planned(small_files)
    assert plan.problems == ()
    assert "hunter2" not in plan.plan_text()


def test_other_variables_are_left_out(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    small_files[GPU_NODES] += "my_own: {a: 1}\nansible_user: root\n"
    inventory = collected(small_files)
    assert set(inventory.hosts["dgx-01"]) == {
        "cluster_name",
        "cluster_domain",
        "cluster_networks",
        "cluster_fabric",
        "node_rack",
        "node_rack_unit",
        "node_profile",
        "node_first_address",
        "node_features",
        "slurm_base_version",
    }
    assert inventory.others["my_own"] == "gpu_nodes.my_own"


def test_plain_values_only(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    """From ansible-core 2.19 on, values carry tags, which must not reach the plan."""

    def kinds(item: Any) -> set[type]:
        if isinstance(item, dict):
            return {type(item)}.union(*(kinds(key) | kinds(inner) for key, inner in item.items()))
        if isinstance(item, list):
            return {type(item)}.union(*(kinds(inner) for inner in item))
        return {type(item)}

    inventory = collected(small_files)
    for variables in inventory.hosts.values():
        for item in variables.values():
            assert kinds(item.value) <= {str, int, bool, float, list, dict, type(None)}


def test_groups_are_in_the_inventorys_order(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    """The first controller is the primary, so the order of hosts.yml must survive."""
    small_files["hosts.yml"] = small_files["hosts.yml"].replace(
        "slurm_controllers:\n      hosts:\n        head-01:\n",
        "slurm_controllers:\n      hosts:\n        head-09:\n        head-01:\n        head-05:\n",
    )
    inventory = collected(small_files)
    assert inventory.groups["slurm_controllers"] == ("head-09", "head-01", "head-05")
    assert "gpu_nodes" in inventory.cluster_groups
    assert inventory.memberships["head-01"] == (
        "all",
        "cluster",
        "slurm_controllers",
        "slurm_databases",
        "subnet_managers",
    )


USUAL = (
    "{{ inventory_hostname_short | baremetal.dgx.node_address(node_first_address | default({}), "
    "node_address | default({}),\\n  cluster_access_network | default('management')NUMBER) }}"
)
# What a node has, and whether it has an address: with node_number in the template, and without.
ADDRESSED = {
    "": (True, True),
    "node_number: 9\n": (True, True),
    'node_number: "8"\n': (True, True),
    'node_number: "{{ 4 + 3 }}"\n': (True, True),
    "node_number: first\n": (False, True),
    "node_address: {management: 10.0.0.77}\n": (True, True),
    "node_address: {management: '{{ mine }}'}\nmine: 10.0.0.78\n": (True, True),
    "cluster_access_network: storage\n": (False, False),
    "cluster_access_network:\n": (False, False),
    "node_address:\nnode_first_address: {management: 10.9.0.1}\n": (True, True),
    "node_address: {management: 300.1.1.1}\n": (False, False),
    "node_address: [10.0.0.1]\n": (False, False),
}

# The filter is found by its name only where Ansible's finder of collections is at work.
ADDRESSES = """
import json, sys
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
_AnsibleCollectionFinder(paths=[sys.argv[1]])._install()
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory import collect

for folder in sys.argv[2:]:
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[folder])
    made = collect._Reader.template
    asked = []
    collect._Reader.template = lambda *given, **other: asked.append(1) or made(*given, **other)
    manager = VariableManager(loader=loader, inventory=inventory)
    found = collect.collect(loader, inventory, manager, {}, "/nonexistent").addresses
    collect._Reader.template = made
    print(json.dumps([found, len(asked)]))
"""


@pytest.mark.parametrize("number", [", node_number | default(none)", ""])
def test_the_usual_address_is_what_jinja_makes(tmp_path: Path, number: str) -> None:
    """The text that the examples have is not templated, and a text that means the same is."""
    usual = USUAL.replace("NUMBER", number)
    for name, text in {"usual": usual, "other": f"{usual[:-3]} | trim }}}}"}.items():
        for folder in ("group_vars", "host_vars"):
            (tmp_path / name / folder).mkdir(parents=True)
        hosts = "".join(f"    dgx-{place:02}:\n" for place in range(1, len(ADDRESSED) + 1))
        (tmp_path / name / "hosts.yml").write_text(f"gpu_nodes:\n  hosts:\n{hosts}")
        (tmp_path / name / "group_vars/all.yml").write_text(
            f'ansible_host: "{text}"\nnode_first_address: {{management: 10.1.0.1}}\n'
        )
        for place, variables in enumerate(ADDRESSED, 1):
            (tmp_path / name / f"host_vars/dgx-{place:02}.yml").write_text(variables)
    root = Path(__file__).resolve().parents[5] / ".cache" / "collections"
    done = subprocess.run(
        [sys.executable, "-c", ADDRESSES, str(root), tmp_path / "usual", tmp_path / "other"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found, asked), (by_jinja, asked_of_all) = map(json.loads, done.stdout.splitlines())
    assert found == by_jinja
    with_number, without = zip(*ADDRESSED.values(), strict=True)
    expected = with_number if number else without
    assert [f"dgx-{place:02}" in found for place in range(1, len(ADDRESSED) + 1)] == list(expected)
    # A host with a template or a mistake in its variables is left to Jinja.
    assert asked < asked_of_all


def test_hosts_of_several_folders_need_one_for_the_state(
    collected: Callable[..., Inventory], small_files: dict[str, str]
) -> None:
    """Ansible's inventory_dir is that of each host's own file, and no plan is there."""
    small_files["rack/more.yml"] = "cluster: {children: {gpu_nodes: {hosts: {dgx-05: }}}}\n"
    (problem,) = collected(small_files).problems
    assert problem.path == "all.cluster_state_dir"
    assert "several folders: head-01 in " in problem.wrong
    assert "/rack" in problem.wrong
    small_files["group_vars/all/state.yml"] = "cluster_state_dir: /srv/cluster\n"
    assert collected(small_files).problems == ()


@pytest.mark.parametrize("written", ["true", "'yes'", "'{{ 1 == 1 }}'"])
def test_the_control_machine_becomes_root_by_no_variable(
    written: str,
    collected: Callable[..., Inventory],
    small_files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable wins over `become: false` of tasks there, and localhost is in the group all."""
    small_files["group_vars/all/way.yml"] = f"ansible_become: {written}\n"
    # Of root Ansible makes no other root.
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert collected(small_files).problems == ()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (problem,) = collected(small_files).problems
    assert problem.path == "all.ansible_become"
    assert problem.remedy == "write it in group_vars/cluster"
    small_files["group_vars/cluster/way.yml"] = small_files.pop("group_vars/all/way.yml")
    assert collected(small_files).problems == ()
    (problem,) = collected(small_files, {"ansible_become": True}).problems
    assert problem.path == "--extra-vars.ansible_become"
