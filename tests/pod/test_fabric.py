# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each fault of the simulated fabric is found on a live subnet, alone, and gone once repaired.

FAULTS names those to try, separated by commas; all without it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from .conftest import CHECKOUT, POD, playbook

# Fault: kind of its one finding, and what the finding must name.
EXPECTED = {
    "rail_swap": ("swapped", ("dgx-01 rail 1", "dgx-01 rail 6")),
    "dead_cable": ("missing", ("dgx-01/rail2",)),
    "half_width": ("width", ("dgx-01/rail5",)),
    "symbol_errors": ("errors", ("dgx-01/rail3",)),
    "dead_leaf": ("switch_absent", ("ib-leaf-02",)),
    "two_masters": ("two_masters", ("dgx-01", "head-01")),
    "wrong_node": ("exchanged", ("dgx-01", "dgx-02")),
}
CHOSEN = [name for name in os.environ.get("FAULTS", "").split(",") if name] or list(EXPECTED)


def pretend(*arguments: str) -> None:
    """Run `pod fabric`."""
    subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), "fabric", "--name", POD, *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def repaired() -> Iterator[None]:
    """Leave a healthy fabric behind."""
    yield
    pretend()


def test_a_healthy_fabric_has_no_finding() -> None:
    pretend()
    done = playbook("validate_fabric")
    assert done.rc == 0, done.output
    assert "no finding" in done.output


@pytest.mark.parametrize("fault", CHOSEN)
@pytest.mark.usefixtures("repaired")
def test_a_fault_is_found_and_nothing_else(fault: str) -> None:
    kind, named = EXPECTED[fault]
    pretend("--fault", fault)
    done = playbook("validate_fabric")
    assert done.rc != 0, done.output
    assert ": 1 finding;" in done.output, done.output
    finding = re.search(rf"1\. {kind} .*", done.output)
    assert finding, done.output
    for name in named:
        assert name in done.output[finding.start() :], done.output
