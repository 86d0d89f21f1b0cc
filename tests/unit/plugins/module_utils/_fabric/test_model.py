# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    NODE_LEAF,
    Cable,
    CablePlan,
    PlannedHca,
    PlannedSwitch,
    plan_from_data,
    plan_to_data,
    rail_end,
    rate_gbps,
    switch_end,
)

CABLE = Cable(rail_end("dgx-01", 3), switch_end("leaf-01", 17), NODE_LEAF, 400)


@pytest.mark.parametrize(
    ("width", "speed", "rate"),
    [
        ("4x", "NDR", 400),
        ("1x", "HDR", 50),
        ("2x", "NDR", 200),
        ("4X", "SDR", 10),
        (None, "NDR", None),
        ("4x", None, None),
        ("4x", "LDR", None),
        ("?", "NDR", None),
    ],
)
def test_rate_of_a_link(width, speed, rate):
    assert rate_gbps(width, speed) == rate


def test_names_of_ends_and_cables():
    assert CABLE.subject == "cable:dgx-01/rail3--leaf-01/17"
    assert CABLE.other(CABLE.a) == CABLE.b
    assert CABLE.b.is_switch
    assert not CABLE.a.is_switch
    with pytest.raises(ValueError, match="dgx-02/rail3 is not an end"):
        CABLE.other(rail_end("dgx-02", 3))


def test_a_plan_survives_json():
    hca = PlannedHca("dgx-01", 3, None, "0000:5e:00.0", "OSFP4", 1, ("mlx5_rail3", "mlx5_5"), 400)
    leaf = PlannedSwitch("leaf-01", "leaf", 1, 3, 64, None)
    reserved = (switch_end("leaf-01", 32),)
    spare = (replace(CABLE, a=switch_end("leaf-01", 33), b=switch_end("leaf-01", 34)),)
    plan = CablePlan({("dgx-01", 3): hca}, {"leaf-01": leaf}, (CABLE,), reserved, spare)
    data = json.loads(json.dumps(plan_to_data(plan)))
    assert plan_from_data(data) == plan
    slow = {**data, "spare": [{**data["spare"][0], "rate_gbps": "400"}]}
    with pytest.raises(ValueError, match=r"spare\[0\].rate_gbps: '400' is not a number"):
        plan_from_data(slow)
    del data["spare"]
    assert plan_from_data(data) == replace(plan, spare=())
    assert plan.by_end()[CABLE.b] == CABLE
