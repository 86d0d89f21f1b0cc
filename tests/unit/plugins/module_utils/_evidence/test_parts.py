# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who belongs into which slot, and when a change was meant."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.parts import (
    identities_of,
    merged,
    subjects_of,
    without,
)

FIRST = {"pci": "0000:61:00.0", "uuid": "GPU-51a7ed00-1", "serial": "1650000000004"}
SECOND = {"pci": "0000:61:00.0", "uuid": "GPU-51a7ed00-2", "serial": "1650000000999"}


def record(who, status="pass", check="gpu.identity", slot=3):
    line = "PCI {pci}, UUID {uuid}, serial {serial}".format(**who)
    return {"check": check, "status": status, "subject": f"gpu:dgx-07/{slot}", "evidence": [line]}


def test_only_a_gpu_that_was_identified_is_known():
    assert identities_of([record(FIRST)]) == {"gpu:dgx-07/3": FIRST}
    assert identities_of([record(FIRST, "fail"), record(FIRST, check="gpu.ecc")]) == {}
    assert identities_of([record({**FIRST, "serial": "?"})]) == {}
    assert identities_of([{"check": "gpu.identity", "status": "pass", "subject": "x"}]) == {}


def test_the_first_one_stays_until_it_is_replaced():
    known = merged({}, [record(FIRST)])
    assert merged(known, [record(SECOND)]) == known
    assert merged(known, [record(SECOND, slot=4)])["gpu:dgx-07/4"] == SECOND
    left = without(known, subjects_of("dgx-07", ["gpu:3"]))
    assert left == {}
    assert merged(left, [record(SECOND)]) == {"gpu:dgx-07/3": SECOND}


def test_parts_as_the_operator_writes_them():
    assert subjects_of("n", ["gpu:3", "hca:rail5", "node"]) == ["gpu:n/3", "hca:n/rail5", "node:n"]
    known = {"gpu:n/3": 1, "gpu:n/4": 2, "hca:n/rail5": 3}
    assert without(known, subjects_of("n", ["gpu:4"])) == {"gpu:n/3": 1, "hca:n/rail5": 3}
    assert without(known, subjects_of("n", ["node"])) == {}
    cables = {"cable:n/rail5--leaf-01/3": 4, "cable:m/rail5--leaf-01/4": 5, "cable:x--n/rail5": 6}
    left = without({**known, **cables}, subjects_of("n", ["hca:rail5"]))
    assert left == {"gpu:n/3": 1, "gpu:n/4": 2, "cable:m/rail5--leaf-01/4": 5}
    for wrong in ("gpu", "gpu:", "disk:3", "gpu:n/3", "node:n", ""):
        with pytest.raises(ValueError, match="is not a part; write gpu:3"):
            subjects_of("n", [wrong])
