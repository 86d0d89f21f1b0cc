# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""group_vars that are not read."""

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
    (tmp_path / "hosts.yml").touch()
    found = find_orphans([str(tmp_path / "hosts.yml")], groups, ["dgx-01"])
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


def test_an_inventory_of_its_own_has_no_files_of_others(tmp_path: Path) -> None:
    for name in ("group_vars/racks.yml", "host_vars/dgx-02.yml", "host_vars/dgx-01.example.org"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a: 1\n")
    found = find_orphans([str(tmp_path)], ["racks_of_a"], ["dgx-01", "dgx-01.example.org"])
    assert [str(problem) for problem in found] == [
        (
            "group_vars/racks.yml: no group is called 'racks', and this is never read; remove it, "
            "or add the group"
        ),
        (
            "host_vars/dgx-02.yml: no host is called 'dgx-02', and this is never read; write "
            "dgx-01.yml"
        ),
    ]
