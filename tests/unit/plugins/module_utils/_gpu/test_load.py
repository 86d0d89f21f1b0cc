# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each load on GPUs shows that it is one, by all engines, and is not taken for a left process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._burn import parent as burn
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.plan import settings_from_data
from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu import ask, dcgm
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.idle import Gpus
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.load import is_loaded, loading
from ansible_collections.baremetal.dgx.plugins.module_utils._nccl import run as nccl
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.calls import completed

NONE = Gpus({}, (), ())


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locks").mkdir(mode=0o700)
    monkeypatch.setattr(lock, "_folder", lambda: str(tmp_path / "locks"))


def test_several_loads_at_a_time() -> None:
    assert not is_loaded()
    with loading():
        with loading():
            assert is_loaded()
        assert is_loaded()
    assert not is_loaded()


def test_a_host_that_takes_no_lock_is_loaded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lock, "_folder", refuse)
    with loading():
        assert not is_loaded()


def _dcgm(monkeypatch: pytest.MonkeyPatch, folder: Path, during: Callable[..., Any]) -> None:
    monkeypatch.setattr(dcgm, "_measure", during)
    dcgm.diagnose(lambda *_words: None, "dgx-01", completed("dcgm_diag", {}))  # type: ignore


def _nccl(monkeypatch: pytest.MonkeyPatch, folder: Path, during: Callable[..., Any]) -> None:
    monkeypatch.setattr(nccl, "run_tests", during)
    options = completed("nccl_all_reduce", {"nodes": ["dgx-01"], "gpu_type": "h100"})
    plan = nccl.plan_of(options)
    nccl.run_if_free(plan, nccl.NCCL_TESTS, lambda *_words: None, options)  # type: ignore


def _burn(monkeypatch: pytest.MonkeyPatch, folder: Path, during: Callable[..., Any]) -> None:
    monkeypatch.setattr(burn.Burn, "run", during)
    burn.burn(str(folder), [], settings_from_data({}))


@pytest.mark.parametrize("begin", [_dcgm, _nccl, _burn])
def test_each_load_is_seen_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[..., None]
) -> None:
    seen: list[bool] = []

    def during(*_words: object) -> tuple[list[Any], None]:
        seen.append(is_loaded())
        return [], None

    for module in (dcgm, nccl):
        monkeypatch.setattr(module, "look", lambda *_words: NONE)
        monkeypatch.setattr(module, "busy_record", lambda *_words: None)
    begin(monkeypatch, tmp_path, during)
    assert (seen, is_loaded()) == ([True], False)


def test_gpus_under_a_load_are_not_held_to_be_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burn-in goes on when the run that began it was killed, and the next run asks the GPUs."""
    asked: list[bool] = []
    monkeypatch.setattr(ask, "sweep", lambda *_words: None)
    monkeypatch.setattr(ask, "judge_node", lambda _n, wanted, *_w: asked.append(wanted.idle) or [])
    options = {**completed("gpu_health", {"idle": True}), "kernel_log": "/dev/null"}
    wanted = ask.wanted_from_options(options)
    for held in (loading(), contextlib.nullcontext()):
        with held:
            ask.ask_gpus(lambda *_words: None, "dgx-01", wanted, options)  # type: ignore
    assert asked == [False, True]
