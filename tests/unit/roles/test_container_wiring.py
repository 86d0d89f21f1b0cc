# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives to configure_containers, configure_scheduler and configure_logins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from wiring import Wiring, example, write

from ansible_collections.baremetal.dgx.plugins.lookup.spank_in_use import LookupModule
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import Site
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Inventory

LINE = "required /usr/local/lib/slurm/spank_pyxis-0123456789ab.so runtime_path=/run/pyxis"
ASKS = {"enroot_source": "packages", "pyxis_source": "directory"}
GROUPS = {
    "slurm_controllers": {"head-01": ASKS},
    "login_nodes": {
        # a release in which the plug-in would not load
        "login-01": {**ASKS, "slurm_base_version": "23.02", "login_environment_banner": False},
        "login-02": {
            "enroot_state": "absent",
            "pyxis_source": "directory",
            "pyxis_trial_user": "carol",
        },
    },
    "gpu_nodes": {
        "dgx-01": ASKS,
        "dgx-02": {"pyxis_source": "directory", "login_environment_environment": {"X": "1"}},
    },
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Host → its inputs."""
    inventory = example(tmp_path_factory.mktemp("cluster"), "core_12")
    everybody = {
        "slurm_base_version": "24.11",
        "slurm_controller_plugstack": ["optional /x.so"],
        "slurm_controller_accounts": [
            {"name": "empty"},
            {"name": "gone", "state": "absent", "users": ["bob"]},
            {"name": "lab", "users": [{"name": "bob", "state": "absent"}, {"name": "alice"}]},
        ],
    }
    for name in (
        "slurm_controllers/slurm_controller.yml",
        "all/slurm_base.yml",
        "monitoring_nodes/monitoring.yml",
    ):
        (inventory / "group_vars" / name).unlink()
    write(inventory, "group_vars/all/slurm.yml", everybody)
    children = {name: {"hosts": dict.fromkeys(group)} for name, group in GROUPS.items()}
    children["slurm_databases"] = {"hosts": {"head-01": None}}
    children["subnet_managers"] = {"hosts": {"head-01": None}}
    write(inventory, "hosts.yml", {"cluster": {"children": children}})
    for group in GROUPS.values():
        for host, message in group.items():
            write(inventory, f"host_vars/{host}.yml", message)
    wired = Wiring(inventory)
    return {host: wired.of(host) for group in GROUPS.values() for host in group}


def test_who_gets_which_role(given: dict[str, dict[str, Any]]) -> None:
    roles = ("enroot", "pyxis")
    assert {
        host: [role for role in values["__cluster_roles"] if role in roles]
        for host, values in given.items()
    } == {
        # the controller only submits
        "head-01": ["pyxis"],
        "login-01": ["enroot", "pyxis"],
        "login-02": ["enroot", "pyxis"],
        "dgx-01": ["enroot", "pyxis"],
        "dgx-02": ["pyxis"],
    }


def test_what_a_host_is_to_slurm(given: dict[str, dict[str, Any]]) -> None:
    assert given["head-01"]["pyxis_parts"] == ["controller"]
    assert given["dgx-01"]["pyxis_parts"] == ["compute"]
    # configless compute nodes, and login hosts with and without sackd
    assert not given["dgx-01"]["pyxis_holds_files"]
    assert given["login-01"]["pyxis_holds_files"]
    assert not given["login-02"]["pyxis_holds_files"]
    assert given["dgx-01"]["pyxis_nodes"] == ["dgx-01", "dgx-02"]
    assert given["dgx-01"]["pyxis_configless_logins"] == ["login-02"]


def test_who_builds_and_who_tries(given: dict[str, dict[str, Any]]) -> None:
    assert given["dgx-01"]["pyxis_builder"] == "head-01"
    assert given["dgx-01"]["pyxis_submit_host"] == "login-01"
    assert given["dgx-01"]["pyxis_trial_user"] == "alice"
    # The inventory's own value is the role's, since the plan writes none.
    assert "pyxis_trial_user" not in given["login-02"]


def test_the_scheduler_keeps_the_line_while_it_would_load(
    given: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    record = {"release": "24.11", "line": LINE, "plugin": LINE.split()[1], "built": True}
    (tmp_path / "pyxis").mkdir()
    (tmp_path / "pyxis/in-use.json").write_text(json.dumps(record))
    lookup = LookupModule()
    lookup.set_options = lambda **_options: None
    (used,) = lookup.run([str(tmp_path), "24.11"])
    assert used["lines"] == [LINE]
    (plugin,) = used["plugins"]
    assert plugin["dest"] == LINE.split()[1]
    assert plugin["src"] == f"{tmp_path}/pyxis/builds/spank_pyxis-0123456789ab.so"
    assert lookup.run([str(tmp_path), "22.05"]) == [{"lines": [], "plugins": []}]
    assert lookup.run([str(tmp_path / "none"), "24.11"]) == [{"lines": [], "plugins": []}]
    for host in ("head-01", "login-01"):
        assert given[host]["__slurm_plugstack"] == ["optional /x.so"]
    assert given["head-01"]["pyxis_other_lines"] == ["optional /x.so"]


def test_only_controllers_have_state(given: dict[str, dict[str, Any]]) -> None:
    assert given["head-01"]["slurm_base_state_dir"] == "/var/lib/slurm/slurmctld"
    assert given["dgx-01"]["slurm_base_state_dir"] == ""


def test_shells(given: dict[str, dict[str, Any]]) -> None:
    rails = ",".join(f"mlx5_rail{rail}:1" for rail in range(8))
    # on login hosts as on nodes
    assert given["login-02"]["login_environment_environment"] == {
        "NCCL_IB_HCA": f"={rails}", "NCCL_CROSS_NIC": "0", "UCX_NET_DEVICES": rails
    }  # fmt: skip
    assert given["dgx-02"]["login_environment_environment"]["X"] == "1"
    assert {host: values.get("login_environment_banner") for host, values in given.items()} == {
        "head-01": False, "login-01": None, "login-02": True, "dgx-01": False, "dgx-02": False
    }  # fmt: skip


def test_no_more_rails_than_every_node_has() -> None:
    four, eight = ({"rails": [{"rail": rail} for rail in range(count)]} for count in (4, 8))
    nodes = {"dgx-01": "eight", "dgx-02": "four", "dgx-03": "none"}
    states = {"dgx-03": "absent"}
    plan = {
        "cluster": {"groups": {"gpu_nodes": list(nodes)}, "fabric_kind": "infiniband"},
        "nodes": [
            {"name": name, "profile": kind, "groups": [], "state": states.get(name, "present")}
            for name, kind in nodes.items()
        ],
        "profiles": {"four": four, "eight": eight, "none": {}},
    }
    result = Inventory({}, (), {name: {} for name in nodes})
    assert Site(plan, result, {}).common_rails == 4
