# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/inventory.md says what the contract says; UPDATE_DOCS=1 brings it up to date."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._burn.thresholds import OWN as OWN_RATES
from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import (
    Option,
    check_value,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl.halving import (
    KINDS as GROUP_KINDS,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.contract import (
    CLUSTER_VARIABLES,
    COMPUTE_GROUPS,
    GROUPS,
    NODE_VARIABLES,
    VARIABLES,
    load,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    resolve_profiles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import COMPUTED
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import LEVELS, PARTS

DOCUMENT = ROOT / "docs" / "inventory.md"

KINDS = {
    "str": "text",
    "path": "path",
    "int": "number",
    "bool": "true or false",
    "list": "list",
    "dict": "mapping",
}


def plain(text: str) -> str:
    """Ansible's markup as Markdown."""
    return re.sub(r"\b[CVO]\(([^)]*)\)", r"`\1`", text)


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell for cell in line)} |" for line in lines)


def values(option: Option) -> str:
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    if option.minimum is not None and option.maximum is not None:
        return f"{option.minimum} to {option.maximum}"
    if option.type == "list" and option.each is not None:
        return f"list of {KINDS[option.each.type]}"
    return KINDS[option.type]


def default(option: Option) -> str:
    if option.required:
        return "required"
    if option.default in (None, [], {}):
        return ""
    text = str(option.default)
    return text if " " in text and "{" not in text else f"`{text}`"


def rows(name: str, option: Option) -> Iterator[list[str]]:
    """A row for the variable and one for each key in it; profiles have their own section."""
    yield [f"`{name}`", values(option), default(option), plain(option.description)]
    if name == "cluster_profiles":
        return
    inside = option.options
    prefix = name
    if option.each is not None and option.each.options is not None:
        inside, prefix = option.each.options, name + ".NAME"
    for key, inner in (inside or {}).items():
        yield from rows(f"{prefix}.{key}", inner)


def variables(options: Mapping[str, Option]) -> str:
    found = [row for name, option in options.items() for row in rows(name, option)]
    return table(["variable", "value", "default", "meaning"], found)


def profiles() -> str:
    resolved, _problems, _broken = resolve_profiles({}, "")
    found = []
    for name, profile in sorted(resolved.items()):
        cpu, gpus, nvlink = profile.cpu, profile.gpus, profile.nvlink
        assert gpus is not None
        assert nvlink is not None
        layout = cpu and f"{cpu.sockets} x {cpu.cores_per_socket} x {cpu.threads_per_core}"
        found.append(
            [
                f"`{name}`",
                f"{gpus.count} x {gpus.type}",
                layout or "the site's to say",
                f"{profile.real_memory_mb:,}" if profile.real_memory_mb else "the site's to say",
                f"{len(profile.rails)} x {profile.link_rate_gbps} Gb/s",
                f"{nvlink.links_per_gpu} / {nvlink.nvswitches}",
                f"{profile.rack_units}" if profile.rack_units else "",
                f"{profile.power_w / 1000:.1f} kW" if profile.power_w else "",
            ]
        )
    heads = "profile|GPUs|sockets, cores, threads|memory for jobs, MiB|rails|NVLinks / NVSwitches"
    return table([*heads.split("|"), "rack units", "power"], found)


def generated() -> dict[str, str]:
    return {
        "groups": table(
            ["group", "its hosts"], [[f"`{name}`", words] for name, words in GROUPS.items()]
        ),
        "cluster": variables(CLUSTER_VARIABLES),
        "node": variables(NODE_VARIABLES),
        "profiles": profiles(),
    }


def section(name: str) -> re.Pattern[str]:
    begin, end = (f"<!-- {word} generated: {name} -->" for word in ("BEGIN", "END"))
    return re.compile(f"({begin}\n)(.*?)({end})", re.DOTALL)


@pytest.mark.parametrize("name", sorted(generated()))
def test_the_document_is_current(name: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    current = f"\\g<1>{generated()[name]}\n\\g<3>"
    wanted, count = section(name).subn(current, text)
    assert count == 1
    if os.environ.get("UPDATE_DOCS"):
        DOCUMENT.write_text(wanted, encoding="utf-8")
        return
    assert text == wanted, f"UPDATE_DOCS=1 pytest {Path(__file__).name}"


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_each_variable_is_described(name: str) -> None:
    option = VARIABLES[name]
    assert option.description
    assert not option.description.endswith(".")
    assert name.startswith(("cluster_", "node_"))
    assert name in DOCUMENT.read_text(encoding="utf-8")
    for pattern, words in (
        (option.pattern, option.pattern_words),
        (option.key_pattern, option.key_words),
    ):
        assert bool(pattern) <= bool(words), "a pattern is explained in words"


def test_groups() -> None:
    assert set(COMPUTE_GROUPS) < set(GROUPS)
    # A host's type is the first of these, so a head that runs jobs, too, is a compute node.
    assert tuple(GROUPS)[: len(COMPUTE_GROUPS)] == COMPUTE_GROUPS


WORDS = {field.name for field in fields(Option)} - {"each"} | {"elements"}


def specs(name: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A spec of contract.yml and all that are in it."""
    yield name, spec
    for key, inner in (spec.get("options") or {}).items():
        yield from specs(f"{name}.{key}", inner)
    if isinstance(spec.get("elements"), Mapping):
        yield from specs(f"{name}[]", spec["elements"])


def every_spec() -> list[tuple[str, Mapping[str, Any]]]:
    data = load("contract.yml")
    tops = {**data["cluster"], **data["node"]}
    return [found for name, spec in tops.items() for found in specs(name, spec)]


def every_option(name: str, option: Option) -> Iterator[tuple[str, Option]]:
    yield name, option
    for key, inner in (option.options or {}).items():
        yield from every_option(f"{name}.{key}", inner)
    if option.each is not None:
        yield from every_option(f"{name}[]", option.each)


def test_each_word_of_the_contract_is_known() -> None:
    """A misspelt one would be no limit at all."""
    found = every_spec()
    assert len(found) > 150
    assert [(name, set(spec) - WORDS) for name, spec in found if set(spec) - WORDS] == []
    kinds = {spec["elements"] for _name, spec in found if isinstance(spec.get("elements"), str)}
    assert kinds <= {"str", "dict"}
    # Limits are each element's, not the list's.
    limits = {"choices", "pattern", "minimum", "maximum"}
    assert [name for name, spec in found if "elements" in spec and limits & set(spec)] == []


def test_each_default_is_a_value_that_its_option_takes() -> None:
    found = [each for name, option in VARIABLES.items() for each in every_option(name, option)]
    assert sum(option.default is not None for _name, option in found) > 80
    for name, option in found:
        if option.default is not None and "{{" not in str(option.default):
            assert list(check_value(name, option.default, option)) == []


def test_the_contract_knows_the_words_of_the_code() -> None:
    validation = CLUSTER_VARIABLES["cluster_validation"].options or {}
    assert validation["level"].choices == LEVELS
    parts = validation["parts"].options or {}
    assert {name: option.description for name, option in parts.items()} == {
        name: f"Whether it is asked, from {part.level} on" for name, part in PARTS.items()
    }
    rates = (validation["burn"].options or {})["thresholds"]
    assert replace(rates, description="", default=None) == OWN_RATES
    fabric = CLUSTER_VARIABLES["cluster_fabric"].options or {}
    kinds = (fabric["group_tests"].options or {})["kinds"]
    assert kinds.each == Option(choices=GROUP_KINDS)
    assert kinds.default == list(GROUP_KINDS)
    assert fabric["rail_groups"].default == "halves"
    assert (fabric["cabling"].options or {})["source"].default == COMPUTED
    assert (CLUSTER_VARIABLES["cluster_gate"].options or {})["level"].choices == LEVELS
