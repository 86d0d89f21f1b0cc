# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookups that read the variables of other hosts: their values, their addresses, their mounts."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible import constants

from ansible_collections.baremetal.dgx.plugins.lookup import canary_peers, host_values, ssh_targets
from ansible_collections.baremetal.dgx.plugins.lookup.host_values import value_at
from ansible_collections.baremetal.dgx.plugins.lookup.ssh_targets import target


def ask(plugin: Any, terms: list[Any], variables: dict[str, Any], **options: Any) -> list[Any]:
    """What a template gets."""
    documented = yaml.safe_load(plugin.DOCUMENTATION)
    name = f"baremetal.dgx.{documented['name']}"
    # As Ansible's loader does, which a process can have once only.
    constants.config.initialize_plugin_configuration_definitions(
        "lookup", name, documented["options"]
    )
    lookup = plugin.LookupModule()
    lookup._load_name = name
    found: list[Any] = lookup.run(terms, variables, **options)
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seen", {"adapters": [{"rail": 0}], "none": None}),
        ("seen.adapters", [{"rail": 0}]),
        ("seen.none", None),
        ("seen.other", None),
        ("other", None),
        ("other.adapters", None),
        # A list has no keys.
        ("seen.adapters.rail", None),
    ],
)
def test_the_part_that_a_dotted_name_means(name: str, value: Any) -> None:
    assert value_at({"seen": {"adapters": [{"rail": 0}], "none": None}}, name) == value


HOSTS = {
    "hostvars": {
        "dgx-01": {"seen": {"adapters": ["a"]}},
        "dgx-02": {"seen": {"skipped": True}},
        "dgx-03": {},
        "dgx-04": {"seen": {"adapters": []}},
    }
}


def test_values_of_hosts_that_have_them() -> None:
    asked = [["dgx-01", "dgx-02"], ["dgx-03", "dgx-04"]]
    found = ask(host_values, asked, HOSTS, name="seen.adapters", by_host=True)
    # An empty answer is an answer; a task that was skipped gave none.
    assert found == [{"dgx-01": ["a"], "dgx-04": []}]
    assert ask(host_values, asked, HOSTS, name="seen.adapters") == [["a"], []]
    assert ask(host_values, [[]], HOSTS, name="seen", by_host=True) == [{}]


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "ssh://dgx-01"),
        ({"ansible_host": "10.0.0.1"}, "ssh://10.0.0.1"),
        (
            {"ansible_host": "10.0.0.1", "ansible_user": "root", "ansible_port": 2222},
            "ssh://root@10.0.0.1:2222",
        ),
        ({"ansible_host": "fd00::1", "ansible_port": 22}, "ssh://[fd00::1]:22"),
    ],
)
def test_how_a_host_is_reached(variables: dict[str, Any], address: str) -> None:
    assert target("dgx-01", variables) == address


def test_hosts_that_are_declared_absent_are_not_reached() -> None:
    hostvars = {
        "dgx-01": {"node_state": "present", "ansible_user": "ops"},
        "dgx-02": {"node_state": "absent"},
        "dgx-03": {},
    }
    found = ask(ssh_targets, [["dgx-01", "dgx-02"], "dgx-03"], {"hostvars": hostvars})
    assert found == [{"dgx-01": "ssh://ops@dgx-01", "dgx-03": "ssh://dgx-03"}]


def mount(name: str, **more: Any) -> dict[str, Any]:
    """A mount that hosts write to when they try it."""
    return {"name": name, "path": f"/{name}", **more}


def test_the_next_three_hosts_of_the_run_that_have_the_mount() -> None:
    both, one = [mount("home"), mount("scratch")], [mount("home")]
    hostvars = {f"dgx-0{number}": {"cephfs_mounts": both} for number in range(1, 6)}
    hostvars["dgx-03"] = {"cephfs_mounts": one}
    hostvars["dgx-04"] = {"cephfs_mounts": [mount("home", read_only=True), mount("scratch")]}
    hostvars["login-01"] = {}
    variables = {"inventory_hostname": "dgx-02", "hostvars": hostvars}
    (found,) = ask(canary_peers, [list(hostvars)], variables, mounts=both)
    # Of the next three hosts those that write there; the others' files would be waited for in vain.
    assert found == {"home": ["dgx-03", "dgx-05"], "scratch": ["dgx-04", "dgx-05"]}
    variables["inventory_hostname"] = "dgx-05"
    (last,) = ask(canary_peers, [list(hostvars)], variables, mounts=one)
    assert last == {"home": ["dgx-01", "dgx-02"]}
    (alone,) = ask(canary_peers, [["dgx-05"]], variables, mounts=both)
    assert alone == {"home": [], "scratch": []}
