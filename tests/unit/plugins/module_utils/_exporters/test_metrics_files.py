# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics that root writes into a folder of another user: Debian gives it to `prometheus`."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._exporters import (
    slurm as _slurm_collector,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import main as _health_main

PROMETHEUS = 65533


def health(state: Path, metrics: Path) -> None:
    _health_main._own_fault("timer", str(state), str(metrics), "a fault")


def slurm(state: Path, metrics: Path) -> None:
    config = state / "slurm-metrics.json"
    config.write_text(json.dumps({"version": 1, "host": "head-01", "metrics_file": str(metrics)}))
    _slurm_collector.main(["--config", str(config)])


@pytest.fixture
def world(open_place: Path, as_user: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Path:
    """`prometheus` is that user's, `root` root's own with a secret."""
    monkeypatch.setenv("PATH", str(open_place))
    for name in ("root", "state", "prometheus"):
        (open_place / name).mkdir(0o755)
    os.chown(open_place / "prometheus", PROMETHEUS, PROMETHEUS)
    (open_place / "root" / "secret").write_text("root's own file")
    (open_place / "root" / "secret").chmod(0o600)
    as_user(PROMETHEUS, lambda: os.mkdir(open_place / "prometheus" / "node-exporter"))
    return open_place


def untouched(world: Path) -> bool:
    secret = world / "root" / "secret"
    names = os.listdir(world / "root")
    mode = stat.S_IMODE(secret.stat().st_mode)
    return (secret.read_text(), mode, names) == ("root's own file", 0o600, ["secret"])


@pytest.mark.parametrize("writer", [health, slurm])
def test_they_are_written_into_a_folder_of_the_exporter(
    world: Path, writer: Callable[[Path, Path], None]
) -> None:
    metrics = world / "prometheus" / "node-exporter" / "x.prom"
    writer(world / "state", metrics)
    assert metrics.read_text()
    assert (stat.S_IMODE(metrics.stat().st_mode), metrics.stat().st_uid) == (0o644, 0)
    assert os.listdir(metrics.parent) == ["x.prom"]


@pytest.mark.parametrize("writer", [health, slurm])
def test_a_link_under_the_temporary_name_leads_nowhere(
    world: Path, as_user: Callable[..., None], writer: Callable[[Path, Path], None]
) -> None:
    metrics = world / "prometheus" / "node-exporter" / "x.prom"
    for name in ("x.prom", f"x.prom.{os.getpid()}", "x.prom.new"):
        path = metrics.with_name(name)
        as_user(PROMETHEUS, lambda path=path: os.symlink(world / "root" / "secret", path))
    writer(world / "state", metrics)
    assert untouched(world)
    assert not metrics.is_symlink()


@pytest.mark.parametrize("writer", [health, slurm])
def test_a_folder_that_the_exporter_swaps_is_not_written_to(
    world: Path, as_user: Callable[..., None], writer: Callable[[Path, Path], None]
) -> None:
    folder = world / "prometheus" / "node-exporter"

    def swap() -> None:
        os.rename(folder, folder.with_name("old"))
        os.symlink(world / "root", folder)

    as_user(PROMETHEUS, swap)
    writer(world / "state", folder / "x.prom")
    assert untouched(world)
