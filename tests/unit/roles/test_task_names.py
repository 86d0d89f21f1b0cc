# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of a run reads well: the names of its tasks, and a summary that fits a screen."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from wiring import ROOT, trusted_tree

# What a task does. A new verb may be added; a noun or a question may not.
VERBS = (
    "Add|Admit|Allow|Apply|Authorize|Back|Begin|Bootstrap|Build|Change|Check|Choose|"
    "Close|Collect|Combine|Compare|Compute|Configure|Confirm|Copy|Create|Disable|"
    "Drain|Empty|Enable|End|Fail|Fetch|Find|Gather|Group|Hold|Import|Install|Invalidate|"
    "Judge|Learn|Load|Lock|Log|Mask|Measure|Mount|Pack|Pin|Plan|Prepare|Prove|Provide|Publish|"
    "Read|Rebuild|Reboot|Reconfigure|Record|Register|Release|Reload|Remove|Rename|"
    "Render|Repair|Reset|Restart|Restore|Run|Save|Set|Share|Show|Skip|Start|Stop|Store|Switch|Take|Test|Try|"
    "Unlock|Unpack|Update|Upgrade|Validate|Verify|Wait|Write"
)
FORM = re.compile(rf"(?:{VERBS})\b.*[^.\s]")
FILES = sorted(
    path
    for pattern in ("roles/*/tasks/**/*.yml", "playbooks/**/*.yml")
    for path in ROOT.glob(pattern)
    if "vars" not in path.parts
)


def names(steps: Any) -> Iterator[str]:
    """The name of each play and task; an empty one for a task without."""
    for step in steps or ():
        yield step.get("name", "")
        for part in ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks"):
            yield from names(step.get(part))


def odd(name: str) -> bool:
    """Whether a name is not an order in one line: a verb first, no more than 80 characters."""
    # The file that imported the task, and what a role fills in.
    text = re.sub(r"\{\{.*?\}\}", "word", name).rpartition(" | ")[2]
    return not FORM.fullmatch(text) or len(text) > 80


@pytest.mark.parametrize(
    "name",
    ["", "slurmd", "What is to be done", "install Slurm", "Write slurm.conf.", "Nodes that leave"],
)
def test_an_odd_name_is_found(name: str) -> None:
    assert odd(name)


def test_tasks_are_named_by_what_they_do() -> None:
    found = {
        str(path.relative_to(ROOT)): [one for one in names(steps) if odd(one)]
        for path in FILES
        if isinstance(steps := yaml.safe_load(path.read_text(encoding="utf-8")), list)
    }
    assert len(found) > 150
    assert not {path: bad for path, bad in found.items() if bad}


# The last messages of site, add_nodes and report


def message(playbook: str, task: str, variables: dict[str, Any]) -> list[str]:
    """The lines that a task shows, as Ansible prints them on 80 columns."""
    plays = yaml.safe_load((ROOT / "playbooks" / playbook).read_text(encoding="utf-8"))
    (step,) = (one for play in plays for one in play.get("tasks", ()) if one["name"] == task)
    scope = {**variables, **trusted_tree(step.get("vars", {}))}
    templar = Templar(loader=DataLoader(), variables=scope)
    lines = templar.template(trusted_tree(step["ansible.builtin.debug"]["msg"]))
    shown = [
        f"TASK [{task}]",
        "ok: [head-01] => {",
        *(f'        "{one}",' for one in lines),
        "]",
        "}",
    ]
    return [part for line in shown for part in textwrap.wrap(line, 80, break_on_hyphens=False)]


@pytest.mark.parametrize("count", [12, 127])
@pytest.mark.parametrize("failed", ["none", "all"])
def test_the_end_of_a_run_fits_a_screen(count: int, failed: str) -> None:
    nodes = [f"dgx-{number:03}" for number in range(1, count + 1)]
    lost = nodes if failed == "all" else []
    states = ["alloc", "comp", "down", "drain", "idle", "mix"]
    sinfo = [f"batch* up 1-00:00:00 {count} {one} dgx-[001-{count:03}]" for one in states]
    scope = {"ansible_play_hosts_all": nodes, "ansible_play_hosts": [] if lost else nodes}
    found = message("summary.yml", "Show the hosts that were not reached or failed", scope)
    assert any(
        f"0 of {count} hosts failed in this run" in line or "dgx-001" in line for line in found
    ), found
    assert len(found + message("summary.yml", "Show the partitions", {
        "__summary_partitions": {"stdout_lines": ["PARTITION AVAIL", *sinfo]}
    })) <= 24  # fmt: skip

    made = {
        "verdict": "fail" if lost else "pass",
        "summary": {
            "nodes": {"pass": count, "fail": len(lost), "not_measured": 0},
            "fabric": "pass",
        },
        "trends": "2 links will fail within 30 days",
        "failing": [f"cable:{node}/rail1--ib-leaf-01/2 fabric.cable" for node in lost],
        "files": ["/srv/cluster/my_cluster/.dgx/report/report.html"],
    }
    found = message("report.yml", "Show the answer", {"report_made": made})
    assert len(found) <= 24
    assert f"{count} nodes passed" in found[2]
    assert (f"and {len(lost) - 15} more, in the report" in "".join(found)) == (len(lost) > 15)
