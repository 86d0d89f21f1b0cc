# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way of a pod's nodes to packages can be shut."""

from __future__ import annotations

import pathlib

import pytest

from .conftest import podlib

cache = podlib("cache")
host = podlib("host")


def test_the_way_to_packages_is_shut_and_opened(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "CHECKOUT", tmp_path)
    (tmp_path / ".pod" / "one").mkdir(parents=True)
    for offered in (False, False, True, True):
        cache.set_packages("one", offered)
        assert (tmp_path / ".pod" / "one" / cache.SHUT).exists() is not offered
