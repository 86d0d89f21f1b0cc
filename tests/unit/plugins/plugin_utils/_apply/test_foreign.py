# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which roles a node can run by itself: read from their tasks, invented and real."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.foreign import Foreign
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
    load_roles,
)


def foreign(folder: Path, **files: Any) -> Foreign:
    """A role `one` with these files of tasks, and a role `other`."""
    for name, tasks in files.items():
        role, file = name.split("__")
        path = folder / "roles" / (role or "one") / "tasks" / f"{file}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(tasks))
    return Foreign(DataLoader(), str(folder))


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"name": "T", "delegate_to": "{{ x }}"}, "one/tasks/main.yml: 'T' runs on another host"),
        ({"name": "T", "run_once": True}, "one/tasks/main.yml: 'T' runs once for all hosts"),
        ({"name": "T", "run_once": False}, ""),
        ({"name": "T", "ansible.builtin.command": "x"}, ""),
        (
            {"name": "T", "ansible.builtin.wait_for_connection": None},
            "one/tasks/main.yml: 'T' asks from the control machine",
        ),
        (
            {"name": "B", "block": [], "always": [{"name": "T", "run_once": True}]},
            "one/tasks/main.yml: 'T' runs once for all hosts",
        ),
    ],
)
def test_a_task_shows_it(tmp_path: Path, task: dict[str, Any], why: str) -> None:
    assert foreign(tmp_path, __main=[task]).why("one") == why


def test_what_is_called_counts_and_what_is_not_does_not(tmp_path: Path) -> None:
    once = [{"name": "T", "run_once": True}]
    calls = [
        {"ansible.builtin.import_tasks": "a.yml"},
        {"ansible.builtin.include_role": {"name": "baremetal.dgx.other", "tasks_from": "b"}},
    ]
    loop = [{"ansible.builtin.include_tasks": {"file": "main.yml"}}]
    found = foreign(tmp_path, __main=calls, __a=loop, __admin=once, other__b=once)
    assert found.why("one") == "other/tasks/b.yml: 'T' runs once for all hosts"
    assert foreign(tmp_path, other__b=loop).why("one") == ""


def test_the_roles_of_nodes_are_as_documented() -> None:
    """docs/operations.md names those that need another host."""
    found = Foreign(DataLoader(), collection_root())
    roles = Path(collection_root(), "roles")
    text = Path(collection_root(), "docs/operations.md").read_text(encoding="utf-8")
    needy = {path.name for path in roles.iterdir() if found.why(path.name)}
    assert {"node_network", "pyxis"} <= needy
    assert {"node_base", "slurm_base", "slurm_compute", "nvidia_driver", "cephfs"}.isdisjoint(needy)
    assert "`node_network` and `pyxis`" in text


def test_a_role_needs_the_inputs_of_those_that_it_calls(tmp_path: Path) -> None:
    calls = [{"ansible.builtin.import_role": {"name": "baremetal.dgx.other", "tasks_from": "b"}}]
    found = foreign(tmp_path, __main=calls, other__b=[], other__main=calls)
    assert found.called("one") == {"one", "other"}
    assert Foreign(DataLoader(), collection_root()).called("slurm_compute") == {
        "slurm_compute", "slurm_base",
    }  # fmt: skip


def test_roles_of_nodes_read_no_input_of_a_role_that_they_do_not_call() -> None:
    """Such an input would not be sent."""
    found, roles = Foreign(DataLoader(), collection_root()), load_roles(collection_root())
    owner = {name: role.name for role in roles.values() for name in role.options}
    wrong = set()
    for role in sorted({"node_base", "slurm_base", "slurm_compute", "cephfs", "node_health"}):
        for path in Path(collection_root(), "roles", role).rglob("*"):
            if path.suffix in (".yml", ".j2") and path.parent.name != "meta":
                text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
                names = set(re.findall(r"\{\{.*?\}\}", text, re.DOTALL))
                words = {word for name in names for word in re.findall(r"[a-z_0-9]+", name)}
                wrong |= {word for word in words if owner.get(word, role) not in found.called(role)}
    assert wrong == set()
