# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookups that read the variables of other hosts: their values, their addresses, their mounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import constants, context
from ansible.errors import AnsibleLookupError
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader

from ansible_collections.baremetal.dgx.plugins.lookup import (
    canary_peers,
    host_values,
    ssh_targets,
    target_hosts,
)
from ansible_collections.baremetal.dgx.plugins.lookup.host_values import value_at


def ask(plugin: Any, terms: list[Any], variables: dict[str, Any], **options: Any) -> list[Any]:
    """What a template gets."""
    documented = yaml.safe_load(plugin.DOCUMENTATION)
    name = f"baremetal.dgx.{documented['name']}"
    # As Ansible's loader does, which a process can have once only.
    constants.config.initialize_plugin_configuration_definitions(
        "lookup", name, documented["options"]
    )
    lookup = plugin.LookupModule(loader=DataLoader())
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


@pytest.mark.parametrize(
    ("pattern", "limit", "hosts"),
    [
        ("gpu_nodes", None, ["dgx-01", "dgx-02", "dgx-03"]),
        ("gpu_nodes:!dgx-01", "head-01,dgx-*", ["dgx-02", "dgx-03"]),
        ("gpu_nodes", "all:!dgx-02", ["dgx-01", "dgx-03"]),
        ("gpu_nodes", "@{folder}/site.retry", ["dgx-03"]),
        ("gpu_nodes", "head-01", []),
    ],
)
def test_the_hosts_of_a_pattern_are_those_of_the_limit(
    pattern: str, limit: str | None, hosts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "site.retry").write_text("dgx-03\nhead-01\n")
    nodes = ["dgx-01", "dgx-02", "dgx-03"]
    groups = {"all": ["head-01", *nodes], "slurm_controllers": ["head-01"], "gpu_nodes": nodes}
    known: dict[str, Any] = {"groups": groups}
    if limit:
        known["ansible_limit"] = limit.format(folder=tmp_path)
    assert ask(target_hosts, [pattern], known) == hosts


def test_a_resumed_run_has_no_hosts_that_a_task_would_leave_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"groups": {"all": ["head-01"], "slurm_controllers": ["head-01"]}}
    terms = ["slurm_controllers[0]", "localhost"]
    assert ask(target_hosts, terms, known, resumed=False) == ["head-01", "localhost"]
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict({"start_at_task": "Unlock Slurm"}))
    assert ask(target_hosts, terms, known) == ["head-01", "localhost"]
    assert ask(target_hosts, terms, known, resumed=False) == []


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


class HostVars(dict[str, Any]):
    def raw_get(self, name: str) -> Any:
        return self[name]


def test_hosts_are_reached_by_ssh_and_absent_ones_are_not() -> None:
    """plugin_utils/_inventory/test_way.py compares the words with Ansible's own."""
    hostvars = HostVars(
        {
            "dgx-01": {"node_state": "present", "ansible_user": "ops", "ansible_ssh_args": "-J g"},
            "dgx-02": {"node_state": "absent"},
            "dgx-03": {"ansible_host": "fd00::1"},
        }
    )
    (found,) = ask(ssh_targets, [["dgx-01", "dgx-02"], "dgx-03"], {"hostvars": hostvars})
    assert list(found) == ["dgx-01", "dgx-03"]
    assert found["dgx-01"][0] == "ssh"
    assert {"-J", "g", 'User="ops"'} <= set(found["dgx-01"])
    assert found["dgx-03"][-2:] == ["--", "fd00::1"]
    for variable, value, why in (
        ("ansible_password", "x", "has a password for SSH"),
        ("ansible_connection", "local", "is reached by local"),
    ):
        hostvars["dgx-03"] = {variable: value}
        with pytest.raises(AnsibleLookupError, match=f"dgx-03: {why}"):
            ask(ssh_targets, ["dgx-03"], {"hostvars": hostvars})


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
