# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""group_vars that are not read."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader

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


def test_what_is_beside_another_of_the_same_name_is_named(tmp_path: Path) -> None:
    for name in (
        "group_vars/gpu_nodes/node.yml",
        "group_vars/gpu_nodes.yml",
        "group_vars/all.yml",
        "group_vars/all.json",
        "host_vars/dgx-01.example.org/node.yml",
        "host_vars/dgx-01.example.org.yaml",
        "host_vars/dgx-02/node.yml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a: 1\n")
    hosts = ["dgx-01.example.org", "dgx-02"]
    found = find_orphans([str(tmp_path), str(tmp_path / "hosts.yml")], ["gpu_nodes"], hosts)
    assert [str(problem) for problem in found] == [
        "group_vars/all.json: is not read beside all.yml; write both into one file",
        (
            "group_vars/gpu_nodes.yml: is not read beside a folder gpu_nodes/; move it to "
            "group_vars/gpu_nodes/gpu_nodes.yml"
        ),
        (
            "host_vars/dgx-01.example.org.yaml: is not read beside a folder dgx-01.example.org/; "
            "move it to host_vars/dgx-01.example.org/dgx-01.example.org.yaml"
        ),
    ]


@pytest.mark.parametrize("name", ["gpu_nodes", "gpu_nodes.yml", "gpu_nodes.yaml", "gpu_nodes.json"])
def test_ansible_reads_the_first_of_these_names_alone(tmp_path: Path, name: str) -> None:
    """A host's group is asked of Ansible itself."""
    folder = tmp_path / "group_vars"
    folder.mkdir()
    (folder / name).write_text('{"own": 1}')
    (folder / "gpu_nodes.json").write_text('{"own": 2}')
    found = DataLoader().find_vars_files(str(folder), "gpu_nodes")
    assert found == [str(folder / name)]
    covered = [] if name.endswith(".json") else ["group_vars/gpu_nodes.json"]
    problems = find_orphans([str(tmp_path)], ["gpu_nodes"], [])
    assert [problem.path for problem in problems] == covered
