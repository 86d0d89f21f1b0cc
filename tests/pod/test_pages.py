# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fenced commands of the pages, run one after the other as they are there.

page_commands.yml has them. They build on each other, in their order; with -m sample only those run
that need no other.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from page_commands import Command, Row, read_page, read_table

from .commands import Shell
from .conftest import CHECKOUT, INVENTORY, POD, on

HEAD = "head-01"
HOSTS = INVENTORY / "hosts.yml"
# The page on the gate says to enable it.
GATE = INVENTORY / "group_vars" / "all" / "pages.yml"


def pod(*arguments: str) -> None:
    """Run virtual_pod/pod."""
    command = [str(CHECKOUT / "virtual_pod" / "pod"), *arguments]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def declare(old: str, new: str) -> None:
    """Edit the inventory's hosts."""
    text = HOSTS.read_text(encoding="utf-8")
    assert old in text
    HOSTS.write_text(text.replace(old, new), encoding="utf-8")


def edit_the_copy(shell: Shell) -> None:
    copy = shell.folder / "my_cluster"
    if copy.exists():
        copy.rename(shell.folder / "copied")
    copy.symlink_to(INVENTORY)


def declare_a_fifth_node(_shell: Shell) -> None:
    pod("up", "--name", POD, "--nodes", "5")
    pod("gpus", "--name", POD)
    declare("dgx-[01:04]:", "dgx-[01:05]:")


def declare_it_absent(_shell: Shell) -> None:
    declare("dgx-[01:05]:", "dgx-[01:05]:\n        dgx-05: {node_state: absent}")


def take_it_away(_shell: Shell) -> None:
    declare("dgx-[01:05]:\n        dgx-05: {node_state: absent}", "dgx-[01:04]:")
    pod("down", "--name", POD, "dgx-05")


def drain_dgx_02(_shell: Shell) -> None:
    assert on(HEAD, "scontrol update NodeName=dgx-02 State=DRAIN Reason=fan").returncode == 0


BEFORE = {
    one.__name__: one
    for one in (
        edit_the_copy, declare_a_fifth_node, declare_it_absent, take_it_away, drain_dgx_02,
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Where commands run; the gate is enabled meanwhile, and the inventory is as before after."""
    hosts = HOSTS.read_text(encoding="utf-8")
    GATE.write_text("gate_enabled: true\n", encoding="utf-8")
    yield Shell(tmp_path_factory.mktemp("pages"))
    GATE.unlink()
    HOSTS.write_text(hosts, encoding="utf-8")


def cases() -> Iterator[object]:
    """Each command that is run here."""
    for page, rows in read_table().items():
        for number, (command, row) in enumerate(zip(read_page(page), rows, strict=True), 1):
            if not (row.not_run or row.run_in):
                marks = [pytest.mark.sample] if row.sample else []
                name = f"{page}-{number}-{command.text[:50]}"
                yield pytest.param(command, row, id=name, marks=marks)


@pytest.mark.parametrize(("command", "row"), list(cases()))
def test_a_command_of_a_page(shell: Shell, command: Command, row: Row) -> None:
    if row.before:
        BEFORE[row.before](shell)
    shell.check(command, row)
