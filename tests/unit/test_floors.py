# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which package may import which, and what reaches a node.

A new arrow between packages is a decision: it is written here, and its reason in
docs/architecture.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
if not (PLUGINS.parent / ".ci").exists():
    pytest.skip("there is no .ci here", allow_module_level=True)
import house  # noqa: E402

# Package -> the packages that it imports. What is not listed is not allowed.
ARROWS: dict[str, set[str]] = {
    # floor 1
    "_core": set(),
    "_monitoring": set(),
    "_templating": set(),
    # floor 2
    "_contract": {"_core"},
    "_host": {"_core"},
    "_local": {"_core"},
    "_slurm": {"_core"},
    "_storage": {"_core"},
    "_ufm": {"_core"},
    # floor 3
    "_accounting": {"_core", "_slurm"},
    "_backup": {"_core", "_slurm"},
    "_bmc": {"_core", "_slurm"},
    "_driver": {"_core", "_host", "_slurm"},
    "_gpu": {"_core", "_host"},
    "_ib": {"_core", "_host"},
    "_repair": {"_core", "_slurm"},
    # floor 4
    "_burn": {"_core", "_gpu"},
    "_evidence": {"_core", "_ib"},
    "_fabric": {"_core", "_ib"},
    "_nccl": {"_core", "_gpu", "_slurm"},
    "_node_health": {"_core", "_gpu", "_host", "_ib", "_slurm", "_storage"},
    # floor 5
    "_cables": {"_core", "_fabric", "_slurm", "_templating"},
    "_exporters": {"_bmc", "_core", "_fabric", "_slurm"},
    "_inspection": {"_core", "_fabric", "_ib"},
    "_lldp": {"_core", "_fabric", "_ib"},
    "_pairs": {"_core", "_fabric", "_slurm"},
    "_node_validation": {
        "_burn",
        "_core",
        "_evidence",
        "_gpu",
        "_host",
        "_ib",
        "_nccl",
        "_slurm",
        "_storage",
    },
    "_operations": {"_core", "_evidence", "_repair"},
    "_trends": {"_core", "_evidence", "_fabric", "_ib"},
    # floor 6
    "_inventory": {"_contract", "_core"},
    "_report": {"_core", "_evidence", "_operations", "_templating", "_trends"},
    "_programs": {
        "_backup",
        "_core",
        "_exporters",
        "_local",
        "_node_health",
        "_node_validation",
        "_storage",
    },
    # floor 7
    "_apply": {"_core", "_inventory", "_local"},
    "_validation": {"_core", "_evidence", "_gpu", "_inventory", "_node_validation", "_slurm"},
    "_mirror": {"_core", "_driver", "_host", "_inventory", "_templating"},
    "_plan": {
        "_accounting",
        "_bmc",
        "_cables",
        "_contract",
        "_core",
        "_fabric",
        "_gpu",
        "_inventory",
        "_repair",
        "_slurm",
    },
    # floor 8
    "_inputs": {
        "_cables",
        "_contract",
        "_core",
        "_inventory",
        "_plan",
        "_slurm",
        "_validation",
    },
}
MOST_FILES = 22
MODULES = house.graph()


def of(folder: str) -> set[str]:
    return {module for module in MODULES if module.split(".")[0] == folder}


def reached(starts: set[str]) -> set[str]:
    """Return these modules and all that they import."""
    seen: set[str] = set()
    todo = list(starts)
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo.extend(MODULES.get(module, ()))
    return seen


def test_arrows_are_those_of_the_table() -> None:
    assert house.packages(MODULES) == ARROWS


def test_there_is_no_circle_of_packages_or_of_files() -> None:
    assert house.circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert house.circle(ARROWS) == []
    assert house.circle(MODULES) == []


def test_imports_of_each_form_are_seen() -> None:
    text = (
        f"from {house.NAME}.module_utils._core import run, files\n"
        "from .model import Cable\nfrom ..  _core.record import Record\nfrom . import routes\n"
        "def late():\n    from ..._core import lock\nimport os\nfrom json import loads\n"
    ).replace("..  _core", ".._core")
    assert set(house.imports(text, "module_utils._fabric.judge")) == {
        "module_utils._core.run",
        "module_utils._core.files",
        "module_utils._fabric.model",
        "module_utils._core.record",
        "module_utils._fabric.routes",
        "_core",
    }
    with pytest.raises(ValueError, match="write from … import …"):
        list(house.imports(f"import {house.NAME}.modules.evidence", "module_utils._core.run"))


def test_no_file_for_nodes_imports_one_of_the_controller() -> None:
    """AnsiballZ carries what a module imports; plugin_utils needs Python 3.10 and Ansible."""
    wrong = {
        module: targets
        for module in of(house.NODE) | of("modules")
        if (targets := {one for one in MODULES[module] if one.split(".")[0] == house.CONTROLLER})
    }
    assert wrong == {}


def test_each_wing_has_what_its_side_needs_and_nothing_else() -> None:
    """What only the controller reaches is not a node's, and what nothing reaches is dead."""
    parts = {one for one in MODULES["plugin_utils._programs"] if one.split(".")[1] != "_core"}
    assert of(house.NODE) - reached(of("modules") | parts) == set()
    plugins = of("action") | of("filter") | of("lookup")
    assert of(house.CONTROLLER) - reached(plugins) == set()


def test_packages_are_small_and_their_init_is_empty() -> None:
    """What an __init__.py imports would be carried to the node with each of its files."""
    inits = {path.parent for path in PLUGINS.rglob("__init__.py")}
    assert [folder for folder in inits if (folder / "__init__.py").read_bytes()] == []
    for wing in (house.NODE, house.CONTROLLER):
        assert {path.stem for path in (PLUGINS / wing).glob("*.py")} <= {"__init__", "_programs"}
        files = {path for path in (PLUGINS / wing).rglob("*.py") if path.name != "__init__.py"}
        assert {path.parent for path in files} - {PLUGINS / wing} <= inits
        crowded = {one for one in inits if len(list(one.glob("*.py"))) > MOST_FILES}
        assert crowded == set()
        for package in ARROWS:
            mine = [path for path in files if PLUGINS / wing / package in path.parents]
            assert len(mine) <= MOST_FILES, package


def test_the_drawing_is_that_of_the_imports() -> None:
    assert house.DRAWING.read_text(encoding="utf-8") == house.svg(MODULES)
