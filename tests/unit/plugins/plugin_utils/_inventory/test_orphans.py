# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""group_vars that nobody reads."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.orphans import find_orphans


def test_a_misspelt_group_is_named_and_others_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "group_vars"
    (folder / "gpu_node").mkdir(parents=True)
    for name in (
        "login_node.yml",
        "storage_nodes.yml",
        "racks.yml",
        "all.yml",
        ".gpu_node.yml.swp",
    ):
        (folder / name).write_text("a: 1\n")
    groups = ("all", "cluster", "gpu_nodes", "login_nodes")
    found = find_orphans([str(tmp_path), str(tmp_path / "hosts.yml")], groups)
    assert [str(problem) for problem in found] == [
        (
            "group_vars/gpu_node: no group is called 'gpu_node', and this is never read; "
            "write gpu_nodes"
        ),
        (
            "group_vars/login_node.yml: no group is called 'login_node', and this is never read; "
            "write login_nodes.yml"
        ),
    ]
