# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""admit_nodes with the gate off has admitted nothing, and says so."""

from __future__ import annotations

import pytest
from jinja2.nativetypes import NativeEnvironment
from role_render import ROLES
from role_rules import read_yaml

PLAYBOOKS = ROLES.parent / "playbooks"


def refusal():
    for play in read_yaml(PLAYBOOKS / "admit_nodes.yml"):
        for task in play.get("pre_tasks", []):
            words = task.get("ansible.builtin.assert", {})
            if "cluster_gate.enabled" in words.get("fail_msg", ""):
                return words["that"]
    raise AssertionError("admit_nodes ends green with the gate off")


@pytest.mark.parametrize(
    ("variables", "goes_on"),
    [
        pytest.param({"__gate": {"enabled": True}}, True, id="on"),
        pytest.param({"__gate": {"enabled": False}}, False, id="off"),
        pytest.param({"__gate": {"enabled": False}, "admit_nodes_is_part": True}, True, id="part"),
    ],
)
def test_admit_nodes_with_the_gate_off_is_red_when_run_by_name(variables, goes_on):
    environment = NativeEnvironment()
    environment.filters["bool"] = bool
    assert environment.from_string("{{ " + refusal() + " }}").render(variables) is goes_on


def test_the_checks_of_idle_nodes_go_on_without_the_gate():
    (play,) = (
        play
        for play in read_yaml(PLAYBOOKS / "check_idle_nodes.yml")
        if play.get("ansible.builtin.import_playbook") == "admit_nodes.yml"
    )
    assert play["vars"]["admit_nodes_is_part"] is True
