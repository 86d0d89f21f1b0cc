# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The place of a GPU among those of the profile."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.idle import gpus_of
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.read import Gpu, Sweep

# Of a GB200 tray: each GPU is alone in its domain.
TRAY = ("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0")


@pytest.mark.parametrize(
    ("profile", "addresses", "places"),
    [
        (TRAY, TRAY, [0, 1, 2, 3]),
        # One that is gone does not rename those behind it.
        (TRAY, (*TRAY[:1], *TRAY[2:]), [0, 2, 3]),
        (("00000008:01:00.0", "00000009:01:00.0"), TRAY[:2], [0, 1]),
        (("43:00.0", "1B:00.0"), ("0000:1b:00.0", "0000:43:00.0"), [1, 0]),
        ((), TRAY, [0, 1, 2, 3]),
    ],
)
def test_a_gpu_has_the_place_of_its_address(profile, addresses, places) -> None:
    gpus = tuple(Gpu(index, pci=pci, processes=()) for index, pci in enumerate(addresses))
    found = gpus_of(Sweep(count=len(gpus), gpus=gpus), profile)
    assert found.problems == ()
    assert {place: gpu.pci for place, gpu in found.found.items()} == dict(
        zip(places, addresses, strict=True)
    )
