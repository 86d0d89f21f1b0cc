# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the description of a device says."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._ib.descriptions import (
    device_key,
    host_and_device,
    is_storage,
    kernel_number,
)


@pytest.mark.parametrize(
    ("description", "key"),
    [
        ("dgx-01 mlx5_3", ("dgx-01", "mlx5_3")),
        ("DGX-01.Site.example HCA-4", ("dgx-01", "mlx5_3")),
        ("dgx-01 hca-10", ("dgx-01", "mlx5_9")),
        ("dgx-01 MLX5_Rail0", ("dgx-01", "mlx5_rail0")),
        ("dgx-01", ("dgx-01", "")),
        ("", ("", "")),
    ],
)
def test_names_are_compared_without_case_domain_and_form(
    description: str, key: tuple[str, str]
) -> None:
    assert host_and_device(description).key == key


@pytest.mark.parametrize(
    ("device", "number"),
    [("mlx5_0", 0), ("mlx5_17", 17), ("HCA-1", 0), ("HCA-0", None), ("mlx5_rail0", None),
     ("mlx5_3x", None), ("", None)],
)  # fmt: skip
def test_numbers_of_the_kernel(device: str, number: int | None) -> None:
    assert kernel_number(device) == number
    assert number is None or device_key(device) == f"mlx5_{number}"


def test_ports_for_storage() -> None:
    assert is_storage("mlx5_storage0")
    assert is_storage("MLX5_STORAGE1")
    assert not is_storage("mlx5_0")
