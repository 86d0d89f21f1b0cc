# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fact or a secret at any place of any input of a role: a plan, or a line with its path."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import (
    Opaque,
    Option,
    RoleSpec,
    Unresolved,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.host import (
    Host,
    Site,
    UnknownError,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inputs.role_inputs import inputs_of
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.given import READ
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import load_roles
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import (
    Inventory,
    Value,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan, make_plan

FACT = Unresolved("depends on the fact 'f'", later=True)
# One of each kind of host.
HOSTS = ("dgx-01", "head-01", "head-02", "login-01")

Path = tuple[Any, ...]


@functools.cache
def loaded() -> tuple[Inventory, dict[str, RoleSpec], Mapping[str, Option]]:
    """The example core_12, the roles, and all that they take and the plan reads for them."""
    roles = load_roles(str(ROOT))
    loader = DataLoader()
    loader.set_basedir(str(ROOT / "playbooks"))
    inventory = InventoryManager(loader=loader, sources=[str(ROOT / "inventories" / "core_12")])
    manager = VariableManager(loader=loader, inventory=inventory)
    options = {name: one for role in roles.values() for name, one in role.options.items()}
    found = collect(loader, inventory, manager, roles, str(ROOT))
    return found, roles, {**READ, **options}


def written(name: str, option: Option) -> Any:
    """What the example has for the input, else something of its type."""
    found, _roles, _options = loaded()
    here = [values[name].value for values in found.hosts.values() if name in values]
    return here[0] if here else of_type(option)


def of_type(option: Option) -> Any:
    """A value of the type, with each key."""
    if option.choices:
        return option.choices[0]
    if option.type == "list":
        return [of_type(option.each or Option())]
    if option.type == "dict":
        return {key: of_type(inner) for key, inner in (option.options or {"a": Option()}).items()}
    number = option.minimum or 1
    return {"int": number, "float": float(number), "bool": True}.get(option.type, "x1")


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of the value, and of each part of it; of lists, of the first."""
    yield path
    parts: Mapping[Any, Any] = value if isinstance(value, dict) else {}
    for key, item in parts.items() or enumerate(value[:1] if isinstance(value, list) else ()):
        yield from places(item, (*path, key))


def put(value: Any, path: Path, unknown: Any) -> Any:
    """The value with this part of it unknown."""
    if not path:
        return unknown
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], unknown)
    return copy


def broken(variables: Mapping[str, Any]) -> Inventory:
    """The example, each host with these variables, too."""
    found, _roles, _options = loaded()
    values = {name: Value(value, f"all.{name}") for name, value in variables.items()}
    hosts = {name: {**given, **values} for name, given in found.hosts.items()}
    return dataclasses.replace(found, hosts=hosts)


def refusal(host: Host) -> str:
    """The line that refuses the host's inputs, nothing where they are made."""
    try:
        inputs_of(host)
    except UnknownError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("unknown", [FACT, Opaque()], ids=["fact", "secret"])
def test_no_check_of_the_plan_breaks(unknown: Any) -> None:
    """All inputs at once, each with another of its places."""
    _found, roles, options = loaded()
    usual = {name: written(name, option) for name, option in options.items()}
    by_name = {name: list(places(value)) for name, value in usual.items()}
    for turn in range(max(map(len, by_name.values()))):
        variables = {
            name: put(usual[name], paths[turn % len(paths)], unknown)
            for name, paths in by_name.items()
        }
        assert isinstance(make_plan(broken(variables), roles), Plan)


@pytest.mark.slow
@pytest.mark.parametrize("unknown", [FACT, Opaque()], ids=["fact", "secret"])
def test_inputs_are_made_or_refused_with_the_path(unknown: Any) -> None:
    found, roles, options = loaded()
    data = make_plan(found, roles).data
    assert data is not None
    for name, option in options.items():
        value = written(name, option)
        for path in places(value):
            inventory = broken({name: put(value, path, unknown)})
            site = Site(data, inventory, roles)
            for host in HOSTS:
                line = refusal(site.hosts[host])
                assert not line or line.startswith(f"all.{name}")
