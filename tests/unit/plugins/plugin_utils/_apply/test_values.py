# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node gets is what the inventory has, byte for byte, as Ansible reads both."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.manager import VariableManager

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import Option, RoleSpec
from ansible_collections.baremetal.dgx.plugins.plugin_utils._apply.values import Values

HOST = "dgx-01"
ROLE = RoleSpec(
    "one",
    {
        "one_text": Option(),
        "one_nested": Option("dict"),
        "one_key": Option(no_log=True),
        "one_made": Option(no_log=True),
    },
)
TEXTS = [
    "${#a[@]}",
    "x{# y #}z",
    "{{ a }}",
    "{% x %}",
    "{# open",
    "#jinja2: trim_blocks:False\nx\n",
    "{# y #}\n\n",
    "plain",
]


def variables_of(inventory: Path) -> dict[str, Any]:
    loader = DataLoader()
    hosts = InventoryManager(loader, [str(inventory)])
    found: dict[str, Any] = VariableManager(loader, hosts).get_vars(host=hosts.get_host(HOST))
    return found


def on_the_node(folder: Path, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the values that roles on the node see."""
    values = Values(DataLoader(), str(folder), {"one": ROLE}, str(folder), str(folder / "plan"))
    sent = json.loads(values.blob(HOST, variables, ["one"]))
    inventory = folder / "sent.yml"
    inventory.write_text(sent["inventory"])
    known = variables_of(inventory)
    templar = Templar(loader=DataLoader(), variables=known)
    return {name: templar.template(known[name]) for name in ROLE.options if name in known}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_stays_as_it_is(tmp_path: Path, text: str) -> None:
    quoted = json.dumps(text)
    written = tmp_path / "hosts.yml"
    written.write_text(
        f"""all: {{hosts: {{{HOST}: {{
          one_text: !unsafe {quoted}, one_key: !unsafe {quoted},
          one_nested: {{plain: x, list: [!unsafe {quoted}, {{deep: !unsafe {quoted}}}]}}
        }}}}}}"""
    )
    # A secret that a template of the role makes.
    defaults = tmp_path / "roles/one/defaults/main.yml"
    defaults.parent.mkdir(parents=True)
    coded = base64.b64encode(text.encode()).decode()
    defaults.write_text(json.dumps({"one_made": "{{ '%s' | b64decode }}" % coded}))
    assert on_the_node(tmp_path, variables_of(written)) == {
        "one_text": text,
        "one_key": text,
        "one_nested": {"plain": "x", "list": [text, {"deep": text}]},
        "one_made": text,
    }


def test_a_comment_of_the_inventory_is_left_out_as_over_ssh(tmp_path: Path) -> None:
    written = tmp_path / "hosts.yml"
    written.write_text(f"all: {{hosts: {{{HOST}: {{one_text: 'x{{# y #}}z'}}}}}}")
    assert on_the_node(tmp_path, variables_of(written)) == {"one_text": "xz"}
