# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mistake of the table leads to its one line, and to no plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan

TABLE = FIXTURES / "bad_inventories.yml"
CASES = yaml.safe_load(TABLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"].replace(" ", "_") for case in CASES])
def test_one_line_for_one_mistake(
    case: dict[str, Any],
    planned: Callable[..., Plan],
    planned_by_roles: Callable[..., Plan],
    small_files: dict[str, str],
) -> None:
    for edit in case.get("edits", ()):
        text = small_files.get(edit["file"], "")
        assert edit["old"] in text, "the edit does not apply to the small cluster"
        small_files[edit["file"]] = text.replace(edit["old"], edit["new"], 1)
    small_files.update(case.get("files", {}))
    plan = (planned_by_roles if case.get("against") == "collection" else planned)(small_files)
    assert plan.problems == (case["says"],)
    assert plan.data is None


def test_the_small_cluster_is_healthy(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    assert planned_by_roles(small_files).problems == ()


def test_an_empty_threshold_is_not_given(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files["group_vars/all/own.yml"] = (
        "cluster_validation:\n"
        "  {health_thresholds: {gpu.power_limit: }, burn: {thresholds: {bf16: }}}\n"
        "node_health_gpu: {thresholds: {gpu.power_limit: }}\n"
    )
    assert planned_by_roles(small_files).problems == ()


def test_ages_have_the_units_of_systemd(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    words = ("second", "minute", "hour", "day", "week", "month", "year")
    units = [*"smhdwMy", "us", "usec", "ms", "msec", "sec", "min", "hr", *words]
    units += [f"{word}s" for word in words]
    folders = [{"path": f"/raid/{unit}", "age": f"~1d2{unit}"} for unit in units]
    ages = {"enroot_cache_age": "".join(f"2{unit}" for unit in units)}
    ages |= {"local_storage_folders": folders}
    small_files["group_vars/gpu_nodes/own.yml"] = yaml.safe_dump(ages)
    assert planned_by_roles(small_files).problems == ()


@pytest.mark.parametrize(
    "options", ["Parameters: PreserveCaseUser", "Parameters: '{{ ansible_facts.fqdn }}'"]
)
def test_users_have_capitals_where_slurmdbd_keeps_them(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str], options: str
) -> None:
    """What comes from a fact is not known here."""
    small_files["group_vars/slurm_databases/own.yml"] = f"slurm_database_options: {{{options}}}\n"
    accounts = "slurm_controller_accounts: [{name: research, users: [JDoe]}]\n"
    small_files["group_vars/slurm_controllers/own.yml"] = accounts
    assert planned_by_roles(small_files).problems == ()


def test_an_upgrade_goes_down_from_the_database(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """The rest follows, in batches: each state in between is what Slurm talks across."""
    small_files["group_vars/all/slurm_base.yml"] = 'slurm_base_version: "24.11"\n'
    for written in (
        "group_vars/slurm_databases/own.yml",
        "group_vars/slurm_controllers/own.yml",
        "host_vars/dgx-01/own.yml",
        "group_vars/gpu_nodes/own.yml",
        "group_vars/login_nodes/own.yml",
    ):
        small_files[written] = 'slurm_base_version: "25.11"\n'
        assert planned_by_roles(small_files).problems == ()


def test_all_mistakes_at_once(planned: Callable[..., Plan], small_files: dict[str, str]) -> None:
    """Mistakes in different places are all reported by one run, sorted."""
    chosen = [
        case for case in CASES if case["name"] in ("unknown profile", "vlan", "bad guid", "mtu")
    ]
    for edit in (edit for case in chosen for edit in case["edits"]):
        text = small_files[edit["file"]]
        small_files[edit["file"]] = text.replace(edit["old"], edit["new"], 1)
    assert planned(small_files).problems == tuple(sorted(case["says"] for case in chosen))


def test_the_table_is_large_enough() -> None:
    assert len({case["says"] for case in CASES}) == len(CASES) >= 319
    assert len({case["name"] for case in CASES}) == len(CASES)
