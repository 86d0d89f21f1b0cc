# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives to the roles of Slurm where a host has several jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from role_render import render
from role_rules import read_yaml
from wiring import ROOT, Wiring, example, write

from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.report import hosts_text

# Controller and login host of inventories/minimal, whose dgx-01 runs jobs.
SHAPES = {
    "controller": ("head-01", "head-01"),
    "runs_jobs": ("head-01", "dgx-01"),
    "all": ("dgx-01", "dgx-01"),
    "alone": ("dgx-01", "head-01"),
}


@pytest.fixture(scope="module")
def wirings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wiring]:
    """Return the inputs of the hosts of each shape."""
    found = {}
    for shape, (controller, login) in SHAPES.items():
        inventory = example(tmp_path_factory.mktemp(shape), "minimal")
        path = inventory / "hosts.yml"
        hosts = yaml.safe_load(path.read_text())
        groups = hosts["cluster"]["children"]
        for group in ("slurm_controllers", "slurm_databases", "subnet_managers"):
            groups[group]["hosts"] = {controller: None}
        groups["login_nodes"]["hosts"] = {login: None}
        path.write_text(yaml.safe_dump(hosts))
        if "head-01" in (controller, login):
            address = {"node_address": {"management": "10.3.0.12"}}
            write(inventory, "host_vars/head-01.yml", address)
        found[shape] = Wiring(inventory)
    return found


@pytest.fixture(scope="module")
def logins(wirings: dict[str, Wiring]) -> dict[str, dict[str, Any]]:
    """Return the inputs of the login host of each shape."""
    return {shape: wirings[shape].of(login) for shape, (_host, login) in SHAPES.items()}


def test_a_host_of_slurmctld_or_slurmd_has_the_configuration(logins: dict[str, Any]) -> None:
    found = {shape: inputs["slurm_login_manage_config"] for shape, inputs in logins.items()}
    assert found == {"controller": False, "runs_jobs": False, "all": False, "alone": True}


def test_the_files_of_slurmctld_stay_where_slurmd_runs_beside_it(
    wirings: dict[str, Wiring], logins: dict[str, Any]
) -> None:
    """Configless, the role slurm_compute removes /etc/slurm/slurm.conf."""
    assert logins["all"]["slurm_compute_configless"] is False
    assert wirings["alone"].of("dgx-01")["slurm_compute_configless"] is False
    assert logins["runs_jobs"]["slurm_compute_configless"] is True


def test_users_come_to_a_login_host_without_a_job(
    wirings: dict[str, Wiring], logins: dict[str, Any]
) -> None:
    assert logins["all"]["slurm_compute_pam_adopt"] is False
    assert logins["runs_jobs"]["slurm_compute_pam_adopt"] is False
    assert "slurm_compute_pam_adopt" not in wirings["alone"].of("dgx-01")


def test_a_node_that_moves_to_another_address_has_slurm_read_all_again(tmp_path: Path) -> None:
    """Slurm's daemons keep what they have looked up; slurm.conf has names alone."""
    (task,) = [
        one
        for one in read_yaml(ROOT / "roles/slurm_controller/tasks/service.yml")
        if one["name"] == "service | Start slurmctld"
    ]
    sync = task["baremetal.dgx.service_sync"]
    assert "__slurm_controller_reloaded" in sync["reload_on"]
    assert "/etc/hosts" in task["vars"]["__slurm_controller_reloaded"]
    assert sync["reload_command"] == ["scontrol", "reconfigure"]
    texts = []
    for address in ("10.3.0.77", "10.3.0.78", "10.3.0.78"):
        inventory = example(tmp_path / str(len(texts)), "minimal")
        write(inventory, "host_vars/dgx-01.yml", {"node_address": {"management": address}})
        texts.append(hosts_text(Wiring(inventory).plan))
    assert texts[0] != texts[1] == texts[2]


def test_other_ports_reach_who_asks_there(tmp_path: Path) -> None:
    """slurmd and sackd have no slurm.conf when they ask for it; slurmctld has none of slurmdbd."""
    inventory = example(tmp_path, "minimal")
    options = {"slurmctldport": "7000-7003", "SlurmdPort": 7100}
    write(inventory, "group_vars/slurm_controllers/zz.yml", {"slurm_controller_options": options})
    write(
        inventory,
        "group_vars/slurm_databases/zz.yml",
        {"slurm_database_options": {"dbdPort": 7031}},
    )
    exporter = {"slurm_exporter_enabled": True, "slurm_exporter_native": True}
    write(inventory, "group_vars/all/zz.yml", exporter)
    found = Wiring(inventory)
    (head,) = found.plan["cluster"]["groups"]["slurm_controllers"]
    (login,) = found.plan["cluster"]["groups"]["login_nodes"]
    assert found.of("dgx-01")["slurm_compute_controllers"] == [f"{head}:7000"]
    assert found.of(login)["slurm_login_controllers"] == [f"{head}:7000"]
    inputs = found.of(head)
    assert inputs["slurm_controller_hosts"] == inputs["slurm_base_controllers"] == [head]
    assert inputs["slurm_controller_database_port"] == 7031
    assert inputs["slurm_exporter_controller_port"] == 7000


def test_another_port_of_slurmd_restarts_who_listens_there(tmp_path: Path) -> None:
    """A reconfiguration leaves slurmd and sackd at the old one, and slurmctld reaches none."""
    shown = {
        role: task["baremetal.dgx.service_sync"]["units"]
        for role in ("slurm_compute", "slurm_login")
        for task in read_yaml(ROOT / "roles" / role / "tasks/service.yml")
        if "baremetal.dgx.service_sync" in task
    }
    ports = {"Slurms": {}, "written": {"SlurmdPort": 6818}, "other": {"slurmdport": 7100}}
    keys = {}
    for name, options in ports.items():
        inventory = example(tmp_path / name, "minimal")
        where = "group_vars/slurm_controllers/zz.yml"
        write(inventory, where, {"slurm_controller_options": options})
        wired = Wiring(inventory)
        (login,) = wired.plan["cluster"]["groups"]["login_nodes"]
        keys[name] = [
            _restart_key(tmp_path / name, role, wired.of(host), shown[role])
            for role, host in (("slurm_compute", "dgx-01"), ("slurm_login", login))
        ]
    assert keys == {"Slurms": ["24.11"] * 2, "written": ["24.11"] * 2, "other": ["24.11 7100"] * 2}


def _restart_key(folder: Path, role: str, given: dict[str, Any], units: Any) -> str:
    names = {
        "slurm_base_version": "24.11",
        "slurm_base_slurmd_port": given["slurm_base_slurmd_port"],
    }
    if isinstance(units, str):
        shown = {"key": "__slurm_login_started.restart_key"}
    else:
        shown = {"key": units[-1]["restart_key"].removeprefix("{{").removesuffix("}}")}
    here = folder / role
    here.mkdir()
    return str(render(here, role, "Debian", names, shown)["key"])


def test_without_other_ports_no_host_is_given_one(wirings: dict[str, Wiring]) -> None:
    found = wirings["alone"]
    assert found.of("dgx-01")["slurm_compute_controllers"] == ["dgx-01"]
    assert found.of("head-01")["slurm_login_controllers"] == ["dgx-01"]
    assert found.of("dgx-01")["slurm_controller_database_port"] == 6819


def test_a_controller_compares_itself_with_the_one_that_schedules(
    wirings: dict[str, Wiring],
) -> None:
    assert wirings["alone"].of("dgx-01")["slurm_base_controllers"] == ["dgx-01"]
