# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every parser of a tool's output has texts in this repository: fixtures/parsers.yml."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
FIXTURES = ROOT / "tests" / "unit" / "fixtures"
PACKAGE = "ansible_collections.baremetal.dgx.plugins."
TABLE: dict[str, dict[str, Any]] = yaml.safe_load((FIXTURES / "parsers.yml").read_text())
FILES = [
    (name, str(file.relative_to(FIXTURES)))
    for name, row in TABLE.items()
    for pattern in row.get("files", ())
    for file in sorted(FIXTURES.glob(pattern))
]


def parsers(folder: Path) -> Iterator[str]:
    """What takes a tool's text: functions `parse*` and `read_*` whose first argument is `text`."""
    for path in sorted(folder.glob("*_utils/**/*.py")):
        module = ".".join(path.relative_to(folder).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith(("parse", "read_")):
                arguments = node.args.args
                if arguments and arguments[0].arg in ("text", "mountinfo", "output"):
                    yield f"{module}:{node.name}"


def without_texts(names: list[str], table: dict[str, Any]) -> list[str]:
    """Return the parsers that the table gives neither files nor a test with texts."""
    rows = {name for name, row in table.items() if row.get("files") or row.get("texts_in")}
    return [name for name in names if name not in rows]


def test_each_parser_has_texts() -> None:
    found = list(parsers(PLUGINS))
    assert len(found) > 30
    assert without_texts(found, TABLE) == []
    # A bad example: a new parser without a row, and a row without a text.
    table = {"a:parse": {"files": []}, "b:parse": {"texts_in": "x"}}
    assert without_texts(["a:parse", "b:parse", "c:parse"], table) == ["a:parse", "c:parse"]


@pytest.mark.parametrize("name", TABLE)
def test_each_row_is_true(name: str) -> None:
    row = TABLE[name]
    assert set(row) <= {"tool", "files", "texts_in", "of"}
    module, function = name.split(":")
    path = PLUGINS.joinpath(*module.split(".")).with_suffix(".py")
    assert f"def {function}(" in path.read_text(encoding="utf-8")
    for pattern in row.get("files", ()):
        assert list(FIXTURES.glob(pattern)), f"no fixture is {pattern}"
    if "texts_in" in row:
        text = (ROOT / "tests" / "unit" / row["texts_in"]).read_text(encoding="utf-8")
        assert row.get("of", function) in text


@pytest.mark.parametrize(("name", "file"), FILES)
def test_each_text_is_read(name: str, file: str) -> None:
    module, function = name.split(":")
    parse = getattr(importlib.import_module(PACKAGE + module), function)
    assert parse((FIXTURES / file).read_text(encoding="utf-8"))


def test_each_fixture_belongs_to_a_parser() -> None:
    mine = {file for _name, file in FILES}
    sources = [path for path in (ROOT / "tests" / "unit").rglob("*.py") if path != Path(__file__)]
    tests = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    folders = {str(path.parent.relative_to(FIXTURES)) for path in FIXTURES.glob("*/*.*")}
    unread = [
        folder
        for folder in folders
        if not any(file.startswith(f"{folder}/") for file in mine) and folder not in tests
    ]
    assert unread == []
