# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import (
    Opaque,
    Option,
    Unresolved,
    check_value,
    closest,
    option_from_spec,
    role_spec_options,
    typed,
    words,
)


def problems(value: Any, option: Option) -> list[str]:
    return [str(problem) for problem in check_value("x", value, option)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("str", "a"),
        ("path", "/a"),
        ("int", 1),
        ("int", -1),
        ("float", 1),
        ("float", 1.5),
        ("bool", True),
        ("list", []),
        ("dict", {}),
        ("raw", object()),
        ("str", Opaque()),
        ("int", Unresolved("a fact", later=True)),
    ],
)
def test_values_that_fit(kind: str, value: Any) -> None:
    assert problems(value, Option(type=kind)) == []


@pytest.mark.parametrize(
    ("kind", "value", "line"),
    [
        ("str", 1, "x: text is wanted, this is the number 1; put it in quotes"),
        ("str", False, "x: text is wanted, this is false; put it in quotes"),
        ("str", ["a"], "x: text is wanted, this is a list; write one text"),
        ("str", None, "x: text is wanted, this is empty; write a value, or leave the line out"),
        ("path", 1, "x: a path is wanted, this is the number 1; put it in quotes"),
        ("int", "a", "x: a whole number is wanted, this is the text 'a'; write a whole number"),
        ("int", True, "x: a whole number is wanted, this is true; write a whole number"),
        ("int", 1.5, "x: a whole number is wanted, this is the number 1.5; write a whole number"),
        ("float", "a", "x: a number is wanted, this is the text 'a'; write a number"),
        (
            "bool",
            "maybe",
            "x: true or false is wanted, this is the text 'maybe'; write true or false",
        ),
        ("int", "1", "x: a whole number is wanted, this is the text '1'; write 1 without quotes"),
        ("float", "1.5", "x: a number is wanted, this is the text '1.5'; write 1.5 without quotes"),
        (
            "bool",
            "yes",
            "x: true or false is wanted, this is the text 'yes'; write true without quotes",
        ),
        ("bool", 0, "x: true or false is wanted, this is the number 0; write true or false"),
        ("bool", 2, "x: true or false is wanted, this is the number 2; write true or false"),
        ("list", "a", "x: a list is wanted, this is the text 'a'; write [a]"),
        ("list", {}, "x: a list is wanted, this is a mapping; write a list"),
        ("dict", [], "x: a mapping is wanted, this is a list; write `key: value` pairs below it"),
        (
            "int",
            "y" * 100,
            f"x: a whole number is wanted, this is the text '{'y' * 59}…'; write a whole number",
        ),
    ],
)
def test_values_of_the_wrong_kind(kind: str, value: Any, line: str) -> None:
    assert problems(value, Option(type=kind)) == [line]


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({"type": "str", "no_log": True}, 4711),
        ({"type": "str", "no_log": True}, ["hunter2"]),
        ({"type": "int", "no_log": True}, "4711"),
        ({"type": "str", "no_log": True, "choices": ["a"]}, "hunter2"),
        ({"type": "list", "elements": "str", "no_log": True}, [4711]),
        ({"type": "list", "no_log": True}, "hunter2"),
        ({"type": "dict", "no_log": True, "options": {"key": {"type": "int"}}}, {"key": "hunter2"}),
    ],
)
def test_no_secret_is_shown(spec: dict[str, Any], value: Any) -> None:
    lines = problems(value, option_from_spec(spec))
    assert len(lines) == 1
    assert "hunter2" not in lines[0]
    assert "4711" not in lines[0]


def test_nested_options_have_paths() -> None:
    option = option_from_spec(
        {
            "type": "list",
            "elements": "dict",
            "options": {
                "name": {"type": "str", "required": True},
                "limits": {"type": "dict", "options": {"wall": {"type": "str"}}},
                "flags": {"type": "list", "elements": "str", "choices": ["a", "b"]},
            },
        }
    )
    value = [{"name": "a"}, {"limits": {"wall": 60, "wal": "1"}, "flags": ["a", "c"]}]
    assert problems(value, option) == [
        "x[1].limits.wall: text is wanted, this is the number 60; put it in quotes",
        "x[1].limits.wal: unknown key; write wall",
        "x[1].flags[1]: 'c' is not known; write a or b",
        "x[1].name: missing; write text",
    ]


def test_an_unknown_key_without_a_likeness_names_all() -> None:
    option = Option(type="dict", options={"a": Option(), "b": Option()})
    assert problems({"zzz": 1}, option) == ["x.zzz: unknown key; write one of a, b"]


def test_ranges() -> None:
    assert problems(0, Option(type="int", minimum=1, maximum=9)) == [
        "x: 0 is out of range; write a number from 1 to 9"
    ]
    assert problems(0, Option(type="int", minimum=1)) == ["x: 0 is out of range; write at least 1"]


@pytest.mark.parametrize(
    ("kind", "text", "given"),
    [
        ("int", "0", "0"),
        ("float", "0.5", "0.5"),
        ("bool", "no", "false"),
        ("bool", "True", "true"),
    ],
)
def test_what_the_command_line_gives_is_a_text_and_the_remedy_types_it(
    kind: str, text: str, given: str
) -> None:
    (problem,) = check_value("--extra-vars.role_x", text, Option(type=kind))
    assert problem.remedy == f"write -e '{{\"role_x\": {given}}}'"
    (problem,) = check_value("--extra-vars.role_x.key", text, Option(type=kind))
    assert problem.remedy == f"write {given} without quotes"


def test_what_a_template_made_counts_as_what_it_spells() -> None:
    spec = {"type": "dict", "options": {"a": {"type": "int"}, "b": {"type": "str"}}}
    assert typed({"a": "5", "b": "5", "c": "5"}, option_from_spec(spec)) == {
        "a": 5,
        "b": "5",
        "c": "5",
    }
    each = {"type": "list", "elements": "bool"}
    assert typed(["True", "maybe"], option_from_spec(each)) == [True, "maybe"]
    assert typed("5", None) == "5"


def test_empty_takes_nothing_away_where_there_is_no_default() -> None:
    options = role_spec_options(
        {
            "argument_specs": {
                "main": {"options": {"a": {"type": "str"}, "b": {"type": "str", "default": "x"}}},
                "other": {"options": {"c": {"type": "int"}}},
            }
        }
    )
    assert problems(None, options["a"]) == []
    assert len(problems(None, options["b"])) == 1
    assert options["c"].type == "int"


def test_wording() -> None:
    assert words([]) == ""
    assert words(["a"]) == "a"
    assert words(["a", "b", "c"]) == "a, b or c"
    assert closest("node_rak", ["node_rack", "node_su"]) == "node_rack"
    assert closest("colour", ["node_rack", "node_su"]) is None
