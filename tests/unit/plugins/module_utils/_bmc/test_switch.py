# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switching one machine, on one that is made of a script; and who may be switched at all."""

from __future__ import annotations

import contextlib
import ssl

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.outing import (
    OWNER,
    left_out,
    obstacle,
    plan_outing,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.redfish import (
    BmcError,
    LackError,
    RefusedError,
    SilentError,
    _failure,
    _refusal,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.switch import (
    NEVER_OFF,
    Limits,
    Switched,
    switch,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.nodes import (
    Node,
    Wanted,
    plan_nodes,
)

LIMITS = Limits(soft_s=4, change_s=6, poll_s=2)


class Scripted:
    """Answers each question by the next of a list: a state, or an error; resets likewise."""

    def __init__(self, states, resets=()):
        self.states, self.resets = list(states), list(resets)
        self.sent, self.sessions, self.now = [], 0, 0.0

    @contextlib.contextmanager
    def open(self):
        self.sessions += 1
        yield self

    def power(self):
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state

    def reset(self, kind):
        self.sent.append(kind)
        if self.resets:
            raise self.resets.pop(0)

    def sleep(self, seconds):
        self.now += seconds

    def switch(self, action):
        return switch(self.open, action, LIMITS, self.sleep, lambda: self.now)


LOST = SilentError("no answer in time")
BROKEN = BmcError("HTTP 503")
NEVER_GONE = Switched(None, "the BMC was asked for an AC cycle and never went away")
NO_SOFT, NO_AC = LackError("no reset GracefulShutdown"), LackError("no way to cycle AC power")


@pytest.mark.parametrize(
    ("action", "states", "resets", "sent", "wanted"),
    [
        ("on", ["On"], [], [], Switched("On", "was On already", False)),
        ("on", ["Off", "PoweringOn", "On"], [], ["on"], Switched("On", "switched on")),
        ("on", ["Off"], [], ["on"], Switched("Off", "is Off after 6 s")),
        # The answer was lost, and the machine is on all the same.
        ("on", ["Off", "On"], [LOST], ["on"], Switched("On", "switched on")),
        ("on", ["Off"], [RefusedError("HTTP 403")], ["on"], Switched(None, "HTTP 403")),
        # Refused, since it was switched on meanwhile.
        ("on", ["Off", "On"], [RefusedError("HTTP 409")], ["on"], Switched("On", "switched on")),
        ("on", ["Off", LOST], [], ["on"], Switched(None, "no answer in time")),
        ("off", ["On", "Off"], [], ["soft_off"],
         Switched("Off", "shut down by its operating system")),
        ("off", ["On", "On", "On", "On", "Off"], [], ["soft_off", "off"],
         Switched("Off", "switched off")),
        ("off", ["On", "Off"], [NO_SOFT], ["soft_off", "off"], Switched("Off", "switched off")),
        ("cycle", ["On", "Off", "On"], [], ["soft_off", "on"], Switched("On", "cycled")),
        ("cycle", ["Off", "On"], [], ["on"], Switched("On", "cycled")),
        # It does not go off: it is not switched on either, and it does not pass for one that was.
        ("cycle", ["On"], [], ["soft_off", "off"],
         Switched(NEVER_OFF, "did not go off: is On after 6 s")),
        ("cycle", ["On", *["On"] * 4, LOST], [], ["soft_off", "off"],
         Switched(None, "did not go off: no answer in time")),
        ("ac_cycle", ["On", LOST, LOST, "On"], [], ["ac_cycle"], Switched("On", "AC power cycled")),
        # That the answer of the command itself is lost proves nothing: the network loses some, too.
        ("ac_cycle", ["On", "On"], [LOST], ["ac_cycle"], NEVER_GONE),
        ("ac_cycle", ["On", LOST, LOST, "On"], [LOST], ["ac_cycle"],
         Switched("On", "AC power cycled")),
        # One look gets lost, and a BMC that answers, with whatever, is there.
        ("ac_cycle", ["On", LOST, "On", LOST, "On"], [], ["ac_cycle"], NEVER_GONE),
        ("ac_cycle", ["On", BROKEN], [], ["ac_cycle"], NEVER_GONE),
        ("ac_cycle", ["On", LOST, LOST, "On"], [BROKEN], ["ac_cycle"], Switched(None, "HTTP 503")),
        ("ac_cycle", ["On", LOST, LOST, *["Off"] * 4, "On"], [], ["ac_cycle", "on"],
         Switched("On", "AC power cycled, then switched on")),
        ("ac_cycle", ["On", LOST], [], ["ac_cycle"],
         Switched(None, "the BMC does not answer after an AC cycle: no answer in time")),
        ("ac_cycle", ["On"], [], ["ac_cycle"], NEVER_GONE),
        ("ac_cycle", ["On"], [NO_AC], ["ac_cycle"],
         Switched(None, "no way to cycle AC power", False)),
    ],
)  # fmt: skip
def test_a_machine_is_brought_there_and_read_back(action, states, resets, sent, wanted):
    machine = Scripted(states, resets)
    assert machine.switch(action) == wanted
    assert machine.sent == sent


def test_a_bmc_that_cannot_be_asked_is_not_sent_anything():
    machine = Scripted([LOST])
    with pytest.raises(BmcError, match="no answer in time"):
        machine.switch("off")
    assert machine.sent == []


def test_a_lost_session_is_opened_again():
    machine = Scripted(["Off", LOST, LOST, "On"])
    assert machine.switch("on").power == "On"
    assert machine.sessions == 3


def test_what_a_starting_bmc_lacks_refuses_no_command():
    """Its session begins with resources that come late."""
    machine = Scripted(["On", LOST, "Off", "On"])
    inner, fails = machine.open, [None, *[LackError("/redfish/v1/Systems/DGX: HTTP 404")] * 4]

    @contextlib.contextmanager
    def opened():
        error = fails.pop(0) if fails else None
        if error:
            raise error
        with inner() as one:
            yield one

    machine.open = opened
    assert machine.switch("cycle") == Switched("On", "cycled")
    assert machine.sent == ["soft_off", "on"]


def nodes(**states):
    found = {}
    for name, text in states.items():
        state, _colon, reason = text.partition(":")
        found[name] = Node(name, tuple(state.split("+")), reason)
    return found


def test_those_that_are_out_cost_no_service_and_the_share_is_of_all():
    known = nodes(
        a="IDLE", b="IDLE", c="IDLE+DRAIN:broken fan", d="DOWN+NOT_RESPONDING", e="ALLOCATED",
        f="IDLE+DRAIN:dgx-firmware: update", g="ALLOCATED+DRAIN:dgx-gate", h="IDLE+REBOOT_ISSUED",
    )  # fmt: skip
    plan = plan_outing(known, [*"abcdefghi", "a"], 0.25)
    assert plan.names == ("a", "c", "d", "f")
    assert plan.fresh == ("a",)
    assert plan.crowded == ("b",)
    assert plan.refused == {
        "b": "2 of 8 nodes are out for this, and 2 may be",
        "e": "it has jobs: ALLOCATED",
        "g": "it has jobs: ALLOCATED+DRAIN",
        "h": "it is IDLE+REBOOT_ISSUED",
        "i": "Slurm has no such node, so that jobs on it are not known",
    }
    assert plan_outing(known, ["a"], 0.0).names == ()
    serving = plan_outing(known, ["a", "c", "i"], 0.25, ["a", "i"])
    assert (serving.names, serving.fresh) == (("c",), ())
    assert serving.refused == {
        "a": "it runs services of the cluster, too; do it by hand",
        "i": "Slurm has no such node, so that jobs on it are not known",
    }


@pytest.mark.parametrize(
    ("state", "is_held", "why"),
    [
        ("IDLE+DRAIN", True, ""),
        ("DOWN+NOT_RESPONDING", True, ""),
        ("IDLE+DRAIN", False, "it is not held against jobs"),
        ("IDLE", True, "it is IDLE, and a job could start"),
        ("MIXED+DRAIN", True, "it has jobs: MIXED+DRAIN"),
        ("IDLE+DRAIN+REBOOT_ISSUED", True, "it is IDLE+DRAIN+REBOOT_ISSUED"),
        ("FUTURE+DRAIN", True, "it is FUTURE+DRAIN"),
    ],
)
def test_what_is_in_the_way(state, is_held, why):
    assert obstacle(Node("a", tuple(state.split("+"))), is_held) == why
    assert obstacle(None, True).startswith("Slurm has no such node")
    assert obstacle(Node("a", ("IDLE", "DRAIN")), True, serves=True).startswith("it runs services")


@pytest.mark.parametrize(
    ("status", "is_refusal"), [(400, True), (404, True), (401, False), (503, False)]
)
def test_a_lost_session_and_a_servers_error_are_no_refusals(status, is_refusal):
    assert isinstance(_refusal("/redfish/v1", status), RefusedError) == is_refusal


@pytest.mark.parametrize(
    ("error", "is_silent"),
    [
        (ConnectionRefusedError(111, "refused"), True),
        (TimeoutError("timed out"), True),
        (ssl.SSLCertVerificationError("self-signed certificate"), False),
        (ValueError("not JSON"), False),
        (RuntimeError("Service is busy, return code: 503"), False),
    ],
)
def test_only_a_bmc_without_any_answer_is_gone(error, is_silent):
    outer = RuntimeError("the library gave up")
    outer.__cause__ = error
    assert isinstance(_failure(outer), SilentError) is is_silent


def test_what_is_out_for_firmware_counts_in_the_share_and_is_its_own():
    known = nodes(a="IDLE+DRAIN:dgx-firmware: update", b="IDLE", c="IDLE", d="IDLE")
    assert plan_outing(known, ["b"], 0.25).refused == {
        "b": "1 of 4 nodes are out for this, and 1 may be"
    }
    assert left_out(known, ["a", "b"]) == ["a"]
    # power=on would let in a machine that is half flashed.
    plan = plan_nodes(Wanted("resumed", "", OWNER), known.values())
    assert (plan.updates, [node.name for node in plan.refused]) == ((), ["a"])
