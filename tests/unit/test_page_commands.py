# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fenced command of the pages for operators and users is run in a pod, or has a reason."""

from __future__ import annotations

import pytest
from page_commands import ROOT, TABLE, find_entry, parse_commands, read_page, read_table

TESTS = TABLE.parent
PAGES = {
    "quick_start.md", "operations.md", "troubleshooting.md", "using_the_cluster.md",
    "virtual_pod.md",
}  # fmt: skip
ROWS = read_table()

PAGE = """
# Try it
```sh
make demo     # from nothing
run -a \\
  -b          # both
# a comment alone
```
1. Read it.
   ```console
   $ ssh x -- 'a # b'
   one
   [demo 1.0s] alice@x$ two
   ```
   ```yaml
   a: $b
   ```
   ```text
   three
   ```
## Use it
```text
none
login$ sbatch   # prints its number
alice@x:~$ sinfo
```
"""


def test_commands_and_outputs_are_read() -> None:
    found = [(one.prompt, one.text, one.output) for one in parse_commands(PAGE)]
    assert found == [
        ("", "make demo", []),
        ("", "run -a -b", []),
        ("", "ssh x -- 'a # b'", ["one", "[demo 1.0s] alice@x$ two", "three"]),
        ("login", "sbatch", []),
        ("alice@x", "sinfo", []),
    ]


def test_the_table_has_these_pages() -> None:
    assert set(ROWS) == PAGES


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_command_is_run_or_has_a_reason(page: str) -> None:
    shown = [one.text for one in read_page(page)]
    listed = [row.command for row in ROWS[page]]
    table = TABLE.relative_to(ROOT)
    assert not [one for one in shown if one not in listed], f"write these into {table}"
    assert not [one for one in listed if one not in shown], f"no page has these; see {table}"
    assert listed == shown, f"the order of the page; see {table}"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_what_a_page_shows_is_asserted(page: str) -> None:
    for command, row in zip(read_page(page), ROWS[page], strict=True):
        lost = [one for one in row.shows if not any(one in line for line in command.output)]
        assert not lost, f"{command.text}: the page does not show this"
        ran = not row.not_run
        assert not (command.output and ran) or row.shows, f"{command.text}: write `shows`"
        assert not (row.not_run and (row.shows or row.run_in or row.before)), command.text


@pytest.mark.parametrize("page", sorted(PAGES))
def test_what_runs_elsewhere_is_there(page: str) -> None:
    for command, row in zip(read_page(page), ROWS[page], strict=True):
        if row.run_in:
            assert f'"{command.heading}"' in (TESTS / row.run_in).read_text(encoding="utf-8")


ENTRIES = """
| `dgx-gate: spare, ready` | a spare | nothing |
| `dgx-gate: PART CHECK…` | a check | [there](#a-check), `x` |
| `N nodes, 2 switches: 1 finding; …`, `other \\| one` | the fabric | `run` |
"""


def test_the_entry_of_a_line_is_found() -> None:
    assert find_entry(ENTRIES, "dgx-gate: gpu3 ecc_unco root x dgx-02").heading == "a-check"
    assert find_entry(ENTRIES, "dgx-gate: spare, ready").cells[1] == "a spare"
    assert find_entry(ENTRIES, '"7 nodes, 4 switches: 3 finding; 4"').heading == ""
    assert find_entry(ENTRIES, "an other | one").cells[1] == "the fabric"
    with pytest.raises(LookupError):
        find_entry(ENTRIES, "dgx-upgrade: x")
