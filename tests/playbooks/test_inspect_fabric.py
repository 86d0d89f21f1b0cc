# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""inspect_fabric as a whole: an inventory of one host, and tools that print a fabric."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from library import build, healthy_world
from world import ROOT, World, discovery_text, states_text

TOOLS = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "saquery")


@pytest.fixture
def inspected(tmp_path: Path):
    """`inspected(world, *arguments, cut)`: return code and output of the playbook.

    The answer of ibqueryerrors ends at `cut`.
    """
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"all": {"hosts": {"head": host}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (tmp_path / "bin").mkdir()

    def run(world: World, *arguments: str, cut: int | None = None) -> tuple[int, str]:
        seen, errors = world.reached()
        assert not errors
        texts = {
            "ibnetdiscover": discovery_text(seen),
            "iblinkinfo": states_text(seen),
            "ibqueryerrors": world.counters({}, seen)[:cut],
            "sminfo": "sminfo: sm lid 1 sm guid 0x1, activity count 7 priority 0 state 3 "
            "SMINFO_MASTER\n",
            "saquery": "IsSM ports\n\nIsSMdisabled ports\n",
        }
        for tool in TOOLS:
            (tmp_path / f"{tool}.txt").write_text(texts[tool])
            (tmp_path / "bin" / tool).write_text(f"#!/bin/sh\ncat {tmp_path}/{tool}.txt\n")
            (tmp_path / "bin" / tool).chmod(0o755)
        given = {"interval_s": 0.1, "__inspect_fabric_folder": str(tmp_path / "on_the_host")}
        line = [str(Path(sys.executable).with_name("ansible-playbook")),
                str(ROOT / "playbooks/inspect_fabric.yml"), "-i", str(tmp_path / "hosts.yml"),
                "-e", json.dumps(given), *arguments]  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE")}
        path = f"{tmp_path}/bin:{os.environ['PATH']}"
        collections = str(ROOT / ".cache" / "collections")
        done = subprocess.run(
            line, capture_output=True, text=True, check=False, timeout=300,
            env={**kept, "PATH": path, "ANSIBLE_NOCOLOR": "1",
                 "ANSIBLE_COLLECTIONS_PATH": collections},
        )  # fmt: skip
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return run


def test_one_host_and_no_plan_are_enough(inspected, tmp_path: Path) -> None:
    rc, output = inspected(healthy_world("basepod-12"), "-e", "fabric_host=head")
    assert rc == 0, output
    assert "12 hosts, 2 switches, 112 cables without a plan: 0 findings" in output
    kept = tmp_path / ".dgx/inspected_fabric"
    assert {one.name for one in kept.iterdir()} == {"findings.txt", "records.json", "fabric.svg"}
    assert not (tmp_path / ".dgx/plan").exists()


def test_a_finding_is_shown_and_red(inspected, tmp_path: Path) -> None:
    case = build("basepod-12", ("rails_of_a_node_swapped",), 0)
    rc, output = inspected(case.world, "-e", "fabric_host=head")
    assert rc != 0, output
    ((_kind, subject),) = case.expected
    assert f"1. swapped {subject}" in output
    assert "11 of 12 alike are so" in output
    data = json.loads((tmp_path / ".dgx/inspected_fabric/records.json").read_text())
    assert [one["subject"] for one in data["findings"]] == [subject]


def test_counters_that_could_not_be_read_are_red(inspected) -> None:
    rc, output = inspected(healthy_world("basepod-12"), "-e", "fabric_host=head", cut=-40)
    assert rc != 0, output
    assert "- the answer of ibqueryerrors has no end" in output
    assert "0 findings; 2 not measured or guessed" in output


def test_counters_that_are_read_once_are_red(inspected) -> None:
    rc, output = inspected(
        healthy_world("basepod-12"), "-e", "fabric_host=head", "-e", "interval_s=0"
    )
    assert rc != 0, output
    assert "the counters were read once: a total does not show of what time it is" in output
    assert "0 findings; 1 not measured or guessed" in output


@pytest.mark.parametrize("arguments", [(), ("-e", "fabric_host=nobody")])
def test_no_host_is_red_before_anything_is_asked(inspected, arguments, tmp_path: Path) -> None:
    rc, output = inspected(healthy_world("basepod-12"), *arguments)
    assert rc != 0, output
    assert "there is no fabric to look at: write -e fabric_host=NAME" in output
    assert not (tmp_path / "on_the_host").exists()
