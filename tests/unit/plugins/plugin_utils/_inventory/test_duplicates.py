# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.duplicates import (
    find_duplicates,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.files import read_files

TWICE = "{}:{}: '{}' is written here and on line {}, and only one of the two counts; leave one"


def lines(*sources: Path) -> list[str]:
    files = read_files(str(source) for source in sources)
    return [str(problem) for problem in find_duplicates(files)]


def test_every_yaml_file_of_an_inventory_is_read(tmp_path: Path) -> None:
    (tmp_path / "group_vars" / "all").mkdir(parents=True)
    (tmp_path / ".dgx").mkdir()
    (tmp_path / "hosts.yml").write_text("a:\n  hosts:\n    x:\n    y:\n    x: {b: 1}\n")
    (tmp_path / "group_vars" / "all" / "cluster.yml").write_text("a: 1\nb: {c: 1, c: 2}\na: 2\n")
    (tmp_path / "group_vars" / "all" / "other.yml").write_text(
        "a: &x {b: 1}\nc: {<<: *x, <<: *x}\n"
    )
    (tmp_path / "group_vars" / "all" / "vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n00\n")
    (tmp_path / ".dgx" / "hidden.yml").write_text("a: 1\na: 2\n")
    (tmp_path / "README.md").write_text("a: 1\na: 2\n")
    found = lines(tmp_path)
    assert sorted(found) == sorted(
        [
            TWICE.format("hosts.yml", 5, "x", 3),
            TWICE.format("group_vars/all/cluster.yml", 2, "c", 2),
            TWICE.format("group_vars/all/cluster.yml", 3, "a", 1),
        ]
    )


def test_an_inventory_that_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("a: {hosts: {x: , x: }}\n")
    (tmp_path / "group_vars" / "all.yml").write_text("a: 1\na: 2\n")
    (tmp_path / "notes.yml").write_text("a: 1\na: 2\n")
    assert lines(tmp_path / "hosts.yml") == [
        TWICE.format("hosts.yml", 1, "x", 1),
        TWICE.format("group_vars/all.yml", 2, "a", 1),
    ]


def test_what_is_no_file_or_no_yaml_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("a: [unclosed\n")
    (tmp_path / "tags.yml").write_text("a: !vault |\n  00\nb: !unsafe x\n")
    assert lines(tmp_path, Path("a,b")) == []
