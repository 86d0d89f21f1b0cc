# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of the fault matrix, of the table alone: a test holds what it says to what happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matrix import ASKED_BY, SOUND, Fault

from ansible_collections.baremetal.dgx.plugins.module_utils._repair.ladders import (
    PERSON,
    ladder_of,
)

_WORDS = {"fail": "fail", "not_measured": "not measured", "pass": "**not found**"}
_HEAD = """\
# Fault matrix

Each row is one fault, what the shipped code reports for it, and what the gate does.
`tests/faults/matrix.py` breaks everything again and fails if one record, subject, outcome or gate
action differs from `tests/faults/faults.yml`, from which this page is made (`--write`).

* **checked by**: the module, or the program on the node. It runs unmodified on simulated libraries,
  sysfs, tools or fabric.
* **in service**: what the gate does with a fleet of twelve at work. *itself*: the node's own
  program has drained it, and the gate leaves that drain alone.
* **repair**: the steps that `repair_nodes` takes one by one, as far as they are allowed, and who
  has the node after the last: a person, or the maker of the part (*return*). The cycles
  need a BMC. Rows without a drain have none.
* **new**: what it does when all twelve are new and held. Nodes that are not named are let in.

"""


def summary(table: Sequence[Fault]) -> str:
    """Return the figures in one line."""
    found = sum(not fault.blind for fault in table)
    broken = sum(fault.outcome == "fail" for fault in table)
    open_ = sum(fault.outcome == "not_measured" for fault in table)
    return (
        f"{len(table)} faults, {found} found ({100 * found / len(table):.1f} %): "
        f"{broken} fail, {open_} are not measured"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _at_work(fault: Fault) -> str:
    if fault.fleet:
        return "nothing: refused, a question about the checker"
    if fault.held:
        return "stays: the brake holds"
    if fault.itself:
        return "drained, itself"
    if fault.drains:
        return "drained: " + ", ".join(fault.drains)
    return "stays"


def _repair(fault: Fault) -> str:
    if fault.fleet or fault.held or not (fault.drains or fault.itself):
        return ""
    ways = dict.fromkeys(ladder_of(check, subject=subject) for check, subject in fault.fail)
    return "; ".join(
        " → ".join([*way.steps, "a person" if way.end == PERSON else way.end]) for way in ways
    )


def _new(fault: Fault) -> str:
    if fault.fleet or fault.rig == "health":
        return ""
    out = [*fault.drains, *fault.holds]
    return "all stay out" if len(out) > 4 else "out: " + ", ".join(out) if out else "let in"


def _rows(faults: Sequence[Fault]) -> Iterator[str]:
    yield "| fault | checked by | outcome | record | in service | repair | new |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for fault in faults:
        reported = [f"`{check}` {subject}" for check, subject in (*fault.fail, *fault.unsure)]
        more = f" and {len(reported) - 2} more" if len(reported) > 3 else ""
        record = "; ".join(reported[:2] if more else reported) + more
        cells = [fault.what, f"`{ASKED_BY[fault.rig]}`", _WORDS[fault.outcome],
                 record or fault.blind, _at_work(fault), _repair(fault), _new(fault)]  # fmt: skip
        if fault.rig == "records":
            cells[1], cells[2] = "the gate", "not measured"
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def render(table: Sequence[Fault]) -> str:
    """Return the page."""
    healthy = sum(SOUND.values())
    text = _HEAD
    text += f"**{summary(table)}.** Other faults exist: these are the known ones.\n"
    runs = ", ".join(f"{ASKED_BY[rig]} {count}" for rig, count in SOUND.items())
    text += (
        f"\n**{healthy} healthy runs, no false alarm**: no node drained, all let in. Each is "
        "another day of a healthy cluster, warm and used before,\nwith corrected errors and "
        f"old counts: {runs}.\n"
    )
    for layer in dict.fromkeys(fault.layer for fault in table):
        rows = [fault for fault in table if fault.layer == layer]
        text += f"\n## {layer}\n\n" + "\n".join(_rows(rows)) + "\n"
    twins = [(fault.what, fault.twin.what) for fault in table if fault.twin is not None]
    text += "\n## Harmless look-alikes\n\n"
    text += f"{len(twins)} faults have a healthy twin on the same rig: no finding, no drain.\n\n"
    text += "| fault | healthy twin |\n| --- | --- |\n"
    text += "".join(f"| {_cell(fault)} | {_cell(twin)} |\n" for fault, twin in twins)
    blind = [fault for fault in table if fault.blind]
    text += "\n## Not found by the check of the same row\n\n"
    text += "".join(f"* {fault.what}: {fault.blind}.\n" for fault in blind)
    return text
