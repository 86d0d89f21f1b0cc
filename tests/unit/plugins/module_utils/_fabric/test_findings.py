# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a technician finds a port."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_fabric import A, Small

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.findings import at
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    End,
    rail_end,
    switch_end,
    twin_cages,
)


@pytest.mark.parametrize(
    ("radix", "port", "text"),
    [
        (64, 17, "l0 port 17 (1/9/1)"),
        (64, 18, "l0 port 18 (1/9/2)"),
        (64, 64, "l0 port 64 (1/32/2)"),
        # The part that works for SHARP hangs on its own port, which is in no cage.
        (64, 65, "l0 port 65"),
        # Where each port has a cage, its number says enough.
        (63, 17, "l0 port 17"),
        (40, 40, "l0 port 40"),
    ],
)
def test_a_port_of_a_switch(radix: int, port: int, text: str) -> None:
    small = Small()
    switches = {**small.plan.switches, "l0": replace(small.plan.switches["l0"], radix=radix)}
    plan = replace(small.plan, switches=switches)
    assert at(plan, switch_end("l0", port)) == text
    assert twin_cages(radix) is (radix == 64)
    assert at(plan, switch_end("x", 17)) == "x port 17"


@pytest.mark.parametrize(
    ("cage", "port", "text"),
    [
        (None, None, "n1 rail 0"),
        ("OSFP1", None, "n1 rail 0 (OSFP1)"),
        ("OSFP1", 2, "n1 rail 0 (OSFP1 P2)"),
    ],
)
def test_a_rail(cage: str | None, port: int | None, text: str) -> None:
    small = Small()
    hcas = {**small.plan.hcas, A: replace(small.plan.hcas[A], cage=cage, cage_port=port)}
    plan = replace(small.plan, hcas=hcas)
    assert at(plan, rail_end("n1", 0)) == text
    assert at(plan, End("x", 3, 1)) == "x rail 3"
