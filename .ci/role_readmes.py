# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the variable tables of the roles' READMEs from their argument specs (`make readmes`)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

BEGIN, END = "<!-- BEGIN VARIABLES -->", "<!-- END VARIABLES -->"
LONGEST_DEFAULT = 60

# Ansible's semantic markup, as Markdown has it
MARKUP = [
    (re.compile(r"\bL\(([^,)]+),\s*([^)]+)\)"), r"[\1](\2)"),
    (re.compile(r"\bU\(([^)]+)\)"), r"<\1>"),
    (re.compile(r"\bB\(([^)]+)\)"), r"**\1**"),
    (re.compile(r"\bI\(([^)]+)\)"), r"*\1*"),
    (re.compile(r"\b(?:O|V|RV|C|E|M|P)\(([^)]+)\)"), r"`\1`"),
]


def text(description: str | list[str]) -> str:
    """The description of an option as one Markdown table cell."""
    cell = " ".join([description] if isinstance(description, str) else description)
    for pattern, replacement in MARKUP:
        cell = pattern.sub(replacement, cell)
    return " ".join(cell.split()).replace("|", "\\|")


def type_of(option: dict[str, Any]) -> str:
    """`list of str`, `str: a, b` (choices) or the plain type."""
    words = str(option.get("type", "str"))
    if "elements" in option:
        words += f" of {option['elements']}"
    if "choices" in option:
        choices = [json.dumps(choice).strip('"') for choice in option["choices"]]
        words += ": " + ", ".join(f"`{choice}`" for choice in choices)
    return words


def default_of(option: dict[str, Any]) -> str:
    """The default as one table cell, or `required`, or nothing where there is none."""
    if option.get("required"):
        return "required"
    if option.get("default") is None:
        return ""
    shown = option["default"]
    if not isinstance(shown, str) or not shown:
        shown = json.dumps(shown, ensure_ascii=False)
    if len(shown) > LONGEST_DEFAULT or "\n" in shown:
        return "see `defaults/main.yml`"
    return "`" + shown.replace("|", "\\|") + "`"


def rows(options: dict[str, Any], above: str = "") -> Iterator[str]:
    """One row an option; those inside it (or its elements) follow as `above.name`."""
    for name, option in options.items():
        path = above + name
        cells = (f"`{path}`", type_of(option), default_of(option), text(option["description"]))
        yield "| " + " | ".join(cells) + " |"
        yield from rows(option.get("options", {}), path + ".")


def tables(specs: dict[str, Any]) -> str:
    """The tables of all entry points of a role; `main` goes without a heading.

    Args:
        specs: what `argument_specs` holds in meta/argument_specs.yml.
    """
    parts = []
    for entry_point, spec in specs.items():
        if entry_point != "main":
            parts.append(f"### Entry point `{entry_point}`\n\n{text(spec['short_description'])}.\n")
        if spec.get("options"):
            head = "| Variable | Type | Default | Meaning |\n| --- | --- | --- | --- |\n"
            parts.append(head + "\n".join(rows(spec["options"])) + "\n")
        else:
            parts.append("No variables.\n")
    return "\n".join(parts)


def with_tables(readme: str, generated: str) -> str:
    """The README with what stands between its markers replaced.

    Raises:
        ValueError: a marker is missing.
    """
    before, begin, rest = readme.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md lacks the line {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{generated}\n{END}{after}"


def main() -> int:
    """Rewrite every role's README; returns the exit status."""
    status = 0
    for spec in sorted(Path("roles").glob("*/meta/argument_specs.yml")):
        readme = spec.parents[1] / "README.md"
        try:
            old = readme.read_text(encoding="utf-8")
            specs = yaml.safe_load(spec.read_text(encoding="utf-8"))["argument_specs"]
            new = with_tables(old, tables(specs))
        except (OSError, ValueError) as problem:
            print(f"{readme}: {problem}", file=sys.stderr)
            status = 1
            continue
        if new != old:
            readme.write_text(new, encoding="utf-8")
            print(f"wrote {readme}")
    return status


if __name__ == "__main__":
    sys.exit(main())
