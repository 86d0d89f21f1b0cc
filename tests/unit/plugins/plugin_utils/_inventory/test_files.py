# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of an inventory say that Ansible does not hand on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.files import find_unparsed
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


def test_hosts_without_an_address_for_ssh_are_a_warning(
    planned: Callable[..., Plan], small_files: dict[str, str]
) -> None:
    del small_files["group_vars/cluster/node.yml"]
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
