# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of an inventory say that Ansible does not hand on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.files import (
    find_closed,
    find_duplicates,
    find_unparsed,
    find_unreadable,
    read_files,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan

OWN = "group_vars/all/own.yml"


def test_a_secret_in_clear_text_is_a_warning(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """Hashes, templates, paths and vaulted values are none."""
    small_files[OWN] = """\
slurm_base_key: 0123456789012345678901234567890123456789
node_base_users:
  - {name: eve, password: hunter2}
  - {name: eva, password: "$6$x$y"}
  - {name: bob, password: "{{ one_of_the_vault | default('') }}"}
"""
    plan = planned(small_files)
    assert plan.problems == ()
    after = "a secret in clear text; encrypt it with ansible-vault encrypt_string, or refer to a "
    assert plan.warnings == (
        f"{OWN}:1: slurm_base_key is {after}variable of a vaulted file",
        f"{OWN}:3: node_base_users[0].password is {after}variable of a vaulted file",
    )


@pytest.mark.parametrize("name", ["gpu_nodes/more", "gpu_nodes/more.json", "gpu_nodes/more/bmc"])
def test_files_of_variables_need_no_suffix(
    name: str, planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    text = '{\n\t"node_serial": "S1",\n\t"node_serial": "S2",\n\t"slurm_base_key": "0123"\n}\n'
    small_files[f"group_vars/{name}"] = text
    small_files["group_vars/gpu_nodes/more~"] = small_files["group_vars/README"] = "of no one\n"
    plan = planned(small_files)
    assert any(line.startswith(f"group_vars/{name}:3: 'node_serial' is") for line in plan.problems)
    assert any(line.startswith(f"group_vars/{name}:4: slurm_base_key") for line in plan.warnings)


def test_files_of_names_with_dots_and_behind_links_are_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("dgx-01.example.org", "README", "notes.org", "README.md"):
        (shared / name).write_text("words, and no variables\n", encoding="utf-8")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "host_vars").symlink_to(shared)
    for source in (tmp_path / "site", tmp_path / "site" / "hosts.yml"):
        found = find_closed([str(source)], ["dgx-01.example.org"])
        assert [problem.path for problem in found] == ["host_vars/dgx-01.example.org"]


VAULT = "$ANSIBLE_VAULT;1.1;AES256\n00\n"


@pytest.mark.parametrize(
    "name",
    [
        "group_vars/all/certs.d/ca",
        "group_vars/all/old~/vault",
        "group_vars/all/vault~",
        "group_vars/all/x.orig",
        "group_vars/gpu_nodes.bak/README",
        "group_vars/gpu_nodes~/vault",
        # Of another inventory in this folder.
        "group_vars/staging_nodes/vault",
        "group_vars/staging_nodes.yml",
        "host_vars/stage-01.json",
        "more/group_vars/all.yml",
        "group_vars_old/all.yml",
    ],
)
def test_what_ansible_does_not_read_is_not_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(VAULT, encoding="utf-8")
    (tmp_path / "hosts.yml").touch()
    for source in (tmp_path, tmp_path / "hosts.yml"):
        assert list(find_closed([str(source)], ["all", "gpu_nodes", "dgx-01"])) == []


@pytest.mark.parametrize(
    "name",
    ["group_vars/all", "group_vars/all.d/x", "group_vars/all.yml/x.json", "host_vars/localhost/x"],
)
def test_what_ansible_reads_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(VAULT, encoding="utf-8")
    found = find_closed([str(tmp_path)], ["all", "all.d"])
    assert [problem.path for problem in found] == [name]


def test_a_list_of_hosts_has_no_variables_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text(VAULT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert list(find_closed(["dgx-01,"], ["all"])) == []


def test_links_to_nothing_and_to_a_folder_above_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "group_vars" / "all").mkdir(parents=True)
    (tmp_path / "group_vars" / "all" / "vault").symlink_to("/none")
    (tmp_path / "gone.yml").symlink_to("/none")
    (tmp_path / "hosts.yml").touch()
    for name in ("latest", "group_vars/latest", "group_vars/before"):
        (tmp_path / name).symlink_to(tmp_path)
    assert [file.name for file in read_files([str(tmp_path)], ["all"])] == ["hosts.yml"]
    assert list(find_closed([str(tmp_path)], ["all"])) == []


@pytest.mark.parametrize("text", ['{"a": "\\ud83d\\ude00"}', json.dumps({"k" * 1100: 1})])
def test_json_that_yaml_does_not_take_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "dgx-01.json").write_text(text, encoding="utf-8")
    assert list(find_closed([str(tmp_path)], ["dgx-01"])) == []
    (file,) = read_files([str(tmp_path)], ["dgx-01"])
    assert file.problem is None


@pytest.mark.parametrize("text", ["", "ansible_host:\n", "ansible_host: ''\n"])
def test_hosts_without_an_address_for_ssh_are_a_warning(
    text: str, planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    small_files["group_vars/cluster/node.yml"] = text
    plan = planned(small_files)
    assert plan.problems == ()
    (warning,) = plan.warnings
    assert warning.startswith("dgx-[01-04],head-01,login-[01-02]: no ansible_host, and SSH goes")


def test_hosts_that_were_not_read_are_the_only_mistake(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """What else is missing follows from it."""
    small_files["hosts.yml"] = small_files["hosts.yml"].replace("dgx-01:", "dgx[1-4]:", 1)
    assert planned(small_files).problems == (
        "hosts.yml:17: 'dgx[1-4]' is not a range of hosts to Ansible; write dgx[1:4]",
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("plugin: constructed\nstrict: false\ngroups: {a: x}\n", id="a plugin's file"),
        pytest.param("a: \nb: {hosts: x, vars: , children: ~}\nc: {}\n", id="empty"),
        pytest.param(
            "a: &a {hosts: {x: {<<: {n: 1}}}}\nb: {<<: *a, children: {c: {<<: *a}}}\n", id="merged"
        ),
        pytest.param("a: &a {children: {b: *a}}\n", id="in itself"),
        pytest.param('{"a": {"hosts": {"x": {"1": 2}}}}', id="json"),
    ],
)
def test_keys_that_ansible_reads_are_no_mistake(text: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(text)
    assert list(find_unreadable(read_files([str(tmp_path)], []))) == []


def test_keys_that_ansible_leaves_out_are_mistakes(tmp_path: Path) -> None:
    text = "all:\n  children:\n    a: {vers: {}}\n    b: {vars: {1: x}}\n  x:\nb: [x]\n"
    (tmp_path / "hosts.yml").write_text(text)
    found = [str(problem) for problem in find_unreadable(read_files([str(tmp_path)], []))]
    assert [line.rpartition("; ")[0] for line in found] == [
        "hosts.yml:3: 'vers' is not a key of a group, and is left out of a",
        "hosts.yml:4: '1' is not the name of a variable",
        "hosts.yml:5: 'x' is not a key of a group, and is left out of all",
        "hosts.yml:6: 'b' is a group, which has to be a mapping",
    ]
    assert found[0].endswith("; write vars")
    assert found[2].endswith("; write it below hosts, children or vars")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("more.ini", "[gpu_nodes]\ndgx-[05-06]\n"),
        ("more/of_a_script", "no route to the source of hosts\n"),
    ],
)
def test_hosts_that_ansible_leaves_out_are_a_mistake(
    name: str, text: str, planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    """Else the plan is that of a smaller cluster, and removes what is missing."""
    small_files[name] = text
    (problem,) = planned(small_files).problems
    assert problem == (
        f"{name}: Ansible can read no hosts in it, as its warning says, and goes on without; "
        "correct it, or take it out of the inventory"
    )


def test_sources_that_ansible_leaves_out_are_mistakes(tmp_path: Path) -> None:
    """Where no one wrote an inventory, its default is none."""
    good, bad, gone = tmp_path / "hosts.yml", tmp_path / "more", tmp_path / "hots.yml"
    good.touch()
    bad.touch()
    sources = [str(path) for path in (good, bad, gone)]
    found = list(
        find_unparsed([*sources, "dgx-01,", "/etc/ansible/hosts"], [sources[0], "dgx-01,"], [])
    )
    assert [problem.path for problem in found] == [str(bad), f"-i {gone}"]


def test_what_else_lies_in_the_folder_of_an_inventory_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").touch()
    (tmp_path / "README.md").write_text("# Our cluster\n", encoding="utf-8")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "directory-ca.pem").touch()
    read = [str(tmp_path), str(tmp_path / "hosts.yml")]
    assert list(find_unparsed([str(tmp_path)], read, [])) == []
    (tmp_path / "more.py").touch(mode=0o755)
    (found,) = find_unparsed([str(tmp_path)], read, [])
    assert found.path == "more.py"


TWICE = "{}:{}: '{}' is written here and on line {}, and only one of the two counts; leave one"


def lines(*sources: Path) -> list[str]:
    files = read_files((str(source) for source in sources), ["all"])
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
