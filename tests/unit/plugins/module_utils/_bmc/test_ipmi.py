# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ipmitool's words and answers."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.ipmi import Ipmi
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.redfish import (
    BmcError,
    LackError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)

BMC = {"address": "10.3.0.1", "port": 623, "user": "dgx", "password": "pass-word-1", "cipher": 17}


def asked(out="", rc=0, outcome=ENDED):
    """An Ipmi, and the calls of ipmitool that it has made."""
    calls = []

    def run(argv, timeout_s=30, env=None):
        calls.append((list(argv), env))
        return CommandResult(tuple(argv), outcome, rc, out, "" if rc == 0 else out)

    return Ipmi(BMC, 5, run), calls


def test_the_password_is_not_in_argv():
    machine, calls = asked("Chassis Power is on\n")
    assert machine.power() == "On"
    machine.reset("soft_off")
    (argv, env), (second, _env) = calls
    assert env == {"IPMI_PASSWORD": "pass-word-1"}
    assert "pass-word-1" not in " ".join(argv + second)
    assert argv[-3:] == ["chassis", "power", "status"]
    assert second[-3:] == ["chassis", "power", "soft"]
    assert argv[argv.index("-C") + 1] == "17"


def test_what_ipmi_says_and_what_it_lacks():
    assert asked(" Product Serial         : 42\n")[0].serial() == "42"
    assert asked("nothing")[0].serial() is None
    assert asked("Firmware Revision         : 9.8\n")[0].firmware() == {"BMC": "9.8"}
    machine, calls = asked()
    with pytest.raises(LackError, match="no command that cycles AC power"):
        machine.reset("ac_cycle")
    assert calls == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"outcome": MISSING}, "the control machine lacks ipmitool: apt-get install ipmitool"),
        ({"outcome": TIMED_OUT}, "no answer in time"),
        ({"rc": 1, "out": "Unable to establish session"}, "Unable to establish session"),
        ({"out": "?"}, "prints no state"),
    ],
)
def test_what_went_wrong_is_said(given, why):
    with pytest.raises(BmcError, match=why):
        asked(**given)[0].power()
