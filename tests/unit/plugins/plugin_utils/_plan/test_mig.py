# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    Profile,
    resolve_profiles,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Value
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.mig import VARIABLE, check_mig

# Memory as nvidia-smi prints it, and the profiles of 1g (also with twice the memory), 2g, 3g, 4g
# and 7g, by NVIDIA's MIG user guide, "Supported MIG Profiles".
MODELS = [
    (40960, "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    (81920, "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    (81559, "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    (143771, "1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    (183359, "1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
]


def machine(memory_mib: int | None) -> Profile:
    gpus = {"count": 8, "type": "x"} | ({"memory_mib": memory_mib} if memory_mib else {})
    found, wrong, _broken = resolve_profiles({"x": {"gpus": gpus}}, "x")
    assert not wrong
    return found["x"]


def problems(memory_mib: int | None, *profiles: str) -> list[str]:
    variables = {VARIABLE: Value([{"profiles": list(profiles)}], "x")}
    return [one.wrong for one in check_mig(variables, machine(memory_mib))]


@pytest.mark.parametrize(("memory", "one", "wide", "two", "three", "four", "seven"), MODELS)
def test_layouts_by_the_slices_of_a_gpu(
    memory: int, one: str, wide: str, two: str, three: str, four: str, seven: str
) -> None:
    for layout in (
        (one,) * 7,
        (one + "+me",) + (one,) * 6,
        (wide,) * 4,
        (two, two, two, one),
        (two, two, two, wide),
        (three, three),
        (three, two, one, one),
        (four, three),
        (four, two, one),
        (four, wide, one, one),
        (seven,),
    ):
        assert problems(memory, *layout) == [], layout
    assert problems(memory, three, three, one) == ["9 slices of memory, and a GPU has 8"]
    assert problems(memory, *(wide,) * 5) == ["10 slices of memory, and a GPU has 8"]
    assert len(problems(memory, seven, one)) == 2


def test_slices_where_the_memory_is_not_declared() -> None:
    assert problems(None, "3g.40gb", "3g.40gb", "1g.10gb") == [
        "9 slices of memory, and a GPU has 8"
    ]
    assert problems(None, "3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb") == []
    assert problems(None, "7g.80gb") == []
