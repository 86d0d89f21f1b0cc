# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages are to be had, out of what the package managers list."""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._driver.read import offered

HEADERS = "kernel-devel-5.14.0-570.el9.x86_64"


def test_a_name_is_not_offered_by_a_longer_one():
    lines = [
        ("nvidia-driver-libs", "580.126.20-1.el9", "nvidia-driver-libs-580.126.20-1.el9.x86_64"),
        ("kernel-devel", "5.14.0-570.el9", HEADERS),
    ]
    out = "".join("\t".join(line) + "\n" for line in lines)

    def run(argv, timeout_s):
        return CommandResult(tuple(argv), "ended", 0, out)

    names = ["nvidia-driver", "nvidia-driver-libs", HEADERS]
    found = offered(run, "rhel9", names)
    assert "nvidia-driver" not in found
    assert found["nvidia-driver-libs"] == ["580.126.20-1.el9"]
    assert found[HEADERS] == ["5.14.0-570.el9"]
