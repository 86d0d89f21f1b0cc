# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.down_reasons import (
    ask_down_reasons,
    module_events,
    parse_amber,
)

AMBER = FIXTURES / "mlxlink_amber"
PCI = "0000:18:00.0"
LOG = """\
6,1,1000000,-;mlx5_core 0000:18:00.0: Port module event: module 0, Cable plugged
6,2,900000000,-;mlx5_core 0000:18:00.0: Port module event: module 0, Cable unplugged
3,3,950000000,-;mlx5_core 0000:18:00.0: Port module event[error]: module 0, Cable error, High Temperature
6,4,960000000,-;mlx5_core 0000:40:00.0: Port module event: module 1, Cable unplugged
6,5,970000000,-;python3[77]: mlx5_core 0000:18:00.0: Port module event: module 0, Cable unplugged
"""  # noqa: E501


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndr-alignment-loss.csv", ["Local_phy", "Alignment_loss"]),
        ("ndr-remote-fault.csv", ["Remote_phy", "Received_Remote_Fault", "Cable_was_unplugged"]),
        ("hdr-never-down.csv", []),
    ],
)
def test_reasons_of_the_firmware(name, message):
    assert parse_amber((AMBER / name).read_text()) == message


@pytest.mark.parametrize("text", ["", "-E- no such device", "a,b\n1,2\n", "down_blame\n"])
def test_what_is_no_table(text):
    with pytest.raises(ValueError, match="does not tell why"):
        parse_amber(text)


def test_the_tool_is_asked_for_a_file():
    asked = []

    def run(argv, timeout_s=30, env=None):
        asked.append(argv[:4])
        if argv[0] == "mlxlink":
            return CommandResult(tuple(argv), MISSING)
        with open(argv[4], "w", encoding="ascii") as handle:
            handle.write((AMBER / "ndr-remote-fault.csv").read_text())
        return CommandResult(tuple(argv), ENDED, 0)

    assert ask_down_reasons(run, PCI, 5)[0] == "Remote_phy"
    assert asked[1] == ["mstlink", "-d", PCI, "--amber_collect"]


@pytest.mark.parametrize("result", [(MISSING, -1), (ENDED, 1), (ENDED, 0)])
def test_a_tool_that_tells_nothing_gives_no_reason(result):
    assert ask_down_reasons(lambda argv, **_: CommandResult(tuple(argv), *result), PCI, 5) == []


def test_what_the_kernel_reports_of_a_module():
    assert module_events(LOG, PCI, 0) == ["Cable unplugged", "Cable error, High Temperature"]
    assert module_events(LOG, PCI, 920) == ["Cable error, High Temperature"]
    assert module_events("", PCI, 0) == []
