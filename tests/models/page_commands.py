# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that a page shows in fenced code, and the table that says where each one is run.

A line is a command after a prompt: `$`, `HOST$`, `USER@HOST$` or `USER@HOST:~$`. In a block of `sh`
every line is one, without a prompt. What else such blocks have is output of the command before,
also in a later block below the same heading. Blocks of YAML are neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "pod" / "page_commands.yml"
FENCE = re.compile(r" *```(\w*)")
HEADING = re.compile(r"#+ (.*)")
PROMPT = re.compile(r"((?:[a-z0-9-]+@)?[a-z0-9-]*)(?::~)?\$ (.*)")
COMMENT = re.compile(r"(?:^|\s{2,})# .*$")


@dataclass
class Command:
    """One command, as it is on the page, without its comment."""

    heading: str
    prompt: str
    text: str
    output: list[str] = field(default_factory=list)


def parse_commands(page: str) -> list[Command]:
    """Return the commands of a page, in order."""
    found: list[Command] = []
    heading = ""
    for language, line in _code_lines(page):
        if language is None:
            heading = line
        elif found and found[-1].text.endswith("\\"):
            text = COMMENT.sub("", line).strip()
            found[-1].text = f"{found[-1].text[:-1].rstrip()} {text}"
        elif prompt := PROMPT.fullmatch(line):
            found.append(Command(heading, prompt[1], COMMENT.sub("", prompt[2]).rstrip()))
        elif language == "sh" and (text := COMMENT.sub("", line).rstrip()):
            found.append(Command(heading, "", text))
        elif language != "sh" and line and found and found[-1].heading == heading:
            found[-1].output.append(line)
    return found


def _code_lines(page: str) -> Iterator[tuple[str | None, str]]:
    """Return each line of fenced code with its language, and each heading without one."""
    language = None
    for line in page.splitlines():
        if fence := FENCE.match(line):
            language = fence[1] if language is None else None
        elif language is None and (heading := HEADING.match(line)):
            yield None, heading[1]
        elif language not in (None, "yaml"):
            yield language, line.strip()


@dataclass(frozen=True)
class Row:
    """A command's row of the table; the comment at its head says what each field means."""

    command: str
    not_run: str = ""
    run_in: str = ""
    log: bool = False
    before: str = ""
    sample: bool = False
    settles: bool = False
    shows: tuple[str, ...] = ()


def read_table() -> dict[str, list[Row]]:
    """Return the rows of each page."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {page: [Row(**row) for row in rows] for page, rows in table.items()}


def read_page(page: str) -> list[Command]:
    """Return the commands of a page of docs/."""
    return parse_commands((ROOT / "docs" / page).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Entry:
    """A row of a table of troubleshooting.md that a line leads to."""

    pattern: str
    cells: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The anchor on the same page that the row links to."""
        links = re.findall(r"\]\(#([^)]+)\)", self.cells[-1])
        return links[0] if links else ""


def find_entry(page: str, line: str) -> Entry:
    """Return the row whose pattern says most of what the line has.

    In a pattern `…` stands for anything, a word in capitals for a word, a number for any number.
    """
    found = []
    for row in page.splitlines():
        if row.startswith("| `"):
            cells = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
            for pattern in re.findall(r"`([^`]+)`", cells[0]):
                wanted = re.escape(pattern.replace(r"\|", "|")).replace("…", ".*")
                wanted = re.sub(r"\b[A-Z]+\b", r"\\S+", re.sub(r"\d+", r"\\d+", wanted))
                if re.search(wanted, line):
                    found.append(Entry(pattern, cells))
    if not found:
        raise LookupError(f"no entry of the page has: {line}")
    return max(found, key=lambda one: len(one.pattern.replace("…", "")))


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and GitLab make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def section(page: str, name: str) -> list[tuple[Command, Row]]:
    """Return the commands below the heading with this anchor of a page of docs/."""
    both = zip(read_page(page), read_table()[page], strict=True)
    return [(command, row) for command, row in both if anchor(command.heading) == name]
