# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What repair_nodes may do, and whom it reports to."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.fabric import parse_fabric
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.nodes import make_node
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.repair import check_repair

PATH = "all.cluster_repair"


def lines(declared: Any, *protocols: str | None) -> list[str]:
    """The problems of this cluster_repair, where nodes have BMCs with these protocols."""
    bmcs = [{} if one is None else {"protocol": one} if one else {"user": "a"} for one in protocols]
    valid = {f"n-{at}": {"node_bmc": Value(bmc, "")} for at, bmc in enumerate(bmcs)}
    fabric = parse_fabric({})
    names = [*valid, "without"]
    nodes = [make_node(name, "gpu_nodes", ("gpu_nodes",), {}, fabric, {}) for name in names]
    found = check_repair(Value(declared, PATH), nodes, valid)
    return [str(problem).removeprefix(PATH) for problem in found]


def test_steps_of_each_protocol() -> None:
    """A step that some of the nodes can do is one."""
    steps = {"steps": ["reset_gpu", "power_cycle", "ac_cycle"]}
    for protocols in ([""], ["redfish"], ["ipmi", "redfish"], ["", None]):
        assert lines(steps, *protocols) == []
    no_command = "IPMI has no command for ac_cycle; leave the step out"
    assert lines(steps, "ipmi", "ipmi") == [f".steps[2]: {no_command}"]
    ladders = {"ladders": {"gpu.xid": ["power_cycle", "ac_cycle", "person"]}}
    assert lines(ladders, "ipmi") == [f".ladders.gpu.xid[1]: {no_command}"]
    no_bmc = "is a BMC's, and no node has one; write node_bmc, or leave the step out"
    for protocols in ([], [None]):
        assert lines(steps, *protocols) == [
            f".steps[1]: power_cycle {no_bmc}",
            f".steps[2]: ac_cycle {no_bmc}",
        ]
    assert lines({"steps": ["reset_gpu", "reboot"]}) == []


def test_what_is_not_declared_is_not_judged() -> None:
    assert not list(check_repair(None, [], {}))
    assert lines({}) == []
    assert lines({"steps": None, "ladders": None, "hooks": None}) == []


def test_ladders_are_judged_each() -> None:
    found = lines({"ladders": {"zz": [], "gpu.xids": [], "gpu.xid": [], "gpu.ecc": ["reboot"]}})
    assert found[0] == (
        ".ladders.zz: 'zz' is not a check with a ladder; write a check of docs/thresholds.md"
    )
    assert found[1] == ".ladders.gpu.xids: 'gpu.xids' is not a check with a ladder; write gpu.xid"
    assert found[2].startswith(".ladders.gpu.xid: it does not say what comes after the last step")
    assert lines({"ladders": {"gpu.xid": ["reboot", "person"]}}) == []


WEBHOOK = {"kind": "webhook", "url": "https://t.example.com/", "secret_file": "/etc/t.key"}
MAIL = {"kind": "mail", "server": "m", "sender": "a@b", "recipients": ["c@d"]}
COMMAND = {"kind": "command", "command": ["/bin/tell"]}


@pytest.mark.parametrize(
    "hook",
    [
        WEBHOOK,
        {**WEBHOOK, "ca_file": "/ca.pem"},
        MAIL,
        {**MAIL, "port": 25, "tls": "none"},
        {**MAIL, "user": "a", "secret_file": "/k"},
        {**MAIL, "user": "a", "secret_file": "/k", "tls": "starttls", "ca_file": "/ca.pem"},
        {**COMMAND, "timeout_s": 5},
    ],
)
def test_hooks_that_can_be_used(hook: dict[str, Any]) -> None:
    assert lines({"hooks": [{"name": "a", **hook}, {"name": "b", **hook}]}) == []


@pytest.mark.parametrize(
    ("hook", "problems"),
    [
        (
            {"kind": "webhook"},
            [
                ".url: missing; write where tickets are posted to",
                ".secret_file: missing; write the file with the key of the signature",
            ],
        ),
        ({**WEBHOOK, "user": "a"}, [".user: a webhook has none; leave it out"]),
        (
            {**COMMAND, "tls": "none", "user": "a"},
            [
                ".tls: a command has none; leave it out",
                ".user: a command has none; leave it out",
            ],
        ),
        (
            {**MAIL, "user": "a"},
            [".secret_file: missing, and there is a user; write the file with the password"],
        ),
        (
            {**MAIL, "user": "a", "secret_file": "/k", "tls": "none"},
            [".tls: the password would go over the network in the clear; write starttls or tls"],
        ),
        ({**MAIL, "recipients": []}, [".recipients: missing; write a list of addresses"]),
    ],
)
def test_hooks_that_cannot(hook: dict[str, Any], problems: list[str]) -> None:
    declared = {"hooks": [{"name": "a", **COMMAND}, {"name": "b", **hook}]}
    assert lines(declared) == [f".hooks[1]{line}" for line in problems]


def test_names_of_hooks() -> None:
    declared = {"hooks": [{"name": name, **COMMAND} for name in ("a", "b", "a")]}
    assert lines(declared) == [
        ".hooks[2].name: 'a' is the name of an earlier one; write another name"
    ]
