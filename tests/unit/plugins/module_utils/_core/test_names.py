# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import full_pci


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("1b:00.0", "0000:1b:00.0"),
        ("0000:1B:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0001:1b:00.1", "0001:1b:00.1"),
        # a domain of an Intel VMD has five digits
        ("10000:01:00.0", "10000:01:00.0"),
        # the kernel's line of an Xid names no function
        ("0000:1b:00", "0000:1b:00.0"),
        ("MLX5_0", "mlx5_0"),
    ],
)
def test_one_spelling(given, full):
    assert full_pci(given) == full
