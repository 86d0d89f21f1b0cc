# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role refuses is asked of the inventory, and only what the inventory alone can tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan

OWN = "group_vars/all/own.yml"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("slurm_base_key: \"{{ lookup('env', 'KEY') }}\"\n", id="a secret's template"),
        pytest.param('node_base_timezone: "{{ ansible_facts.date_time.tz }}"\n', id="a fact"),
        pytest.param("enroot_scratch_mount: /raid\n", id="what a task looks at on the node"),
        pytest.param("enroot_images_dir: /cephfs/images\n", id="a folder on the node"),
        pytest.param("slurm_exporter_enabled: false\nslurm_exporter_interval_s: 1\n", id="off"),
        pytest.param("fabric_exporter_enabled: true\n", id="the plan gives the file"),
    ],
)
def test_what_is_not_known_waits_for_the_host(
    text: str, planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    assert planned_by_roles({**small_files, OWN: text}).problems == ()


def test_each_host_is_judged_by_its_own_values(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """The value of one host is refused there, those of its group stay right."""
    hosts = small_files["hosts.yml"].replace(
        "dgx-03: {", "dgx-03: {nvidia_container_toolkit_version: new, "
    )
    more = {"hosts.yml": hosts, OWN: "nvidia_container_toolkit_version: 1.20.0\n"}
    (line,) = planned_by_roles({**small_files, **more}).problems
    assert line.startswith("gpu_nodes.dgx-03.nvidia_container_toolkit_version: new is not")


def test_a_value_of_the_wrong_kind_is_refused_once(
    planned_by_roles: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    text = "node_health_enabled: true\nnode_health_share: ten\n"
    (line,) = planned_by_roles({**small_files, OWN: text}).problems
    assert line.startswith("all.node_health_share: a number is wanted")
