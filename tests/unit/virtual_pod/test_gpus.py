# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of the simulated GPUs say what finds them, and name things that there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from .conftest import podlib

gpus = podlib("gpus")
layout = podlib("layout")

ISSUE = {"sdc", "ecc", "xid79", "hot", "nvlink_down", "slow_hbm", "fm_mismatch"}


def test_every_fault_that_the_demo_promises_is_there() -> None:
    assert set(gpus.faults()) >= ISSUE


def test_a_fault_names_its_checks_and_its_gpu() -> None:
    found = gpus.faults()
    assert found["ecc"].checks == ("gpu.ecc_uncorrectable", "gpu.remap_pending")
    assert found["ecc"].gpu == 3
    assert not found["ecc"].needs_load
    assert found["fm_mismatch"].gpu is None
    assert found["sdc"].needs_load
    assert found["sdc"].gpu == 3


def test_a_fault_that_says_nothing_of_what_finds_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults" / "new.state").write_text("# GPU 1: broken\ngpu.1.lost = 1\n")
    monkeypatch.setattr(gpus, "HARDWARE", tmp_path)
    with pytest.raises(layout.PodError, match=r"new\.state does not say what finds it"):
        gpus.faults()


def test_what_a_node_gets_is_made_again_when_its_source_changes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = gpus._digest(tmp_path)
    (tmp_path / "a").write_text("2")
    assert gpus._digest(tmp_path) != before


def test_what_python_caches_is_no_other_hardware(tmp_path: Path) -> None:
    """A test that imports sysfs.py while a demo runs had all exporters restarted."""
    (tmp_path / "sysfs.py").write_text("")
    first = gpus._digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "sysfs.cpython-311.pyc").write_bytes(b"x")
    assert gpus._digest(tmp_path) == first
    (tmp_path / "sysfs.py").write_text("x = 1")
    assert gpus._digest(tmp_path) != first


def test_the_instances_of_the_pod_are_those_of_its_inventory() -> None:
    path = gpus.host.CHECKOUT / "virtual_pod/inventories/mixed/group_vars/mig_nodes/node.yml"
    declared = yaml.safe_load(path.read_text())["nvidia_driver_mig"]
    assert gpus._MIG_LAYOUT.splitlines() == [
        f"{item['gpus'][0]} {','.join(sorted(item['profiles']))}" for item in declared
    ]
