# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node gets the user that Ansible logs in as, which tasks see over SSH."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants, context
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.utils.context_objects import CLIArgs
from ansible.vars.manager import VariableManager

from ansible_collections.baremetal.dgx.plugins.action.node_apply import ActionModule
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import (
    collection_root,
)


@pytest.mark.parametrize(
    ("words", "settings", "variables", "user"),
    [
        ({"remote_user": "admin"}, "", {}, "admin"),
        ({}, "remote_user = admin", {}, "admin"),
        ({}, "", {"ansible_ssh_user": "admin"}, "admin"),
        ({"remote_user": "admin"}, "", {"ansible_user": "ops"}, "ops"),
        ({}, "remote_user = admin", {"ansible_user": "ops"}, "ops"),
        # ssh itself chooses.
        ({}, "", {}, None),
        ({"remote_user": "admin"}, "", {"ansible_connection": "local"}, None),
    ],
)
def test_the_user_of_the_connection(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, str],
    settings: str,
    variables: dict[str, str],
    user: str | None,
) -> None:
    configuration = tmp_path / "ansible.cfg"
    configuration.write_text(f"[defaults]\n{settings}\n")
    monkeypatch.setattr(constants.config, "_config_file", str(configuration))
    monkeypatch.setattr(constants.config, "_parsers", {})
    monkeypatch.setattr(context, "CLIARGS", CLIArgs(words))
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps({"all": {"hosts": {"dgx-01": variables}}}))
    loader = DataLoader()
    manager = VariableManager(loader, InventoryManager(loader, [str(hosts)]))
    action: Any = object.__new__(ActionModule)
    action._loader = loader
    action._task = SimpleNamespace(get_variable_manager=lambda: manager)
    plan = {"plan_dir": str(tmp_path / "plan")}
    nodes, problems = action._nodes(collection_root(), plan, {"dgx-01": []}, {})
    assert problems == []
    sent = json.loads(json.loads(nodes["dgx-01"].values)["inventory"].replace("!unsafe ", ""))
    assert sent["all"]["hosts"]["dgx-01"].get("ansible_user") == user
