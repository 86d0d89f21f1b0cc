# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A secret that is made once, by the first caller, whatever a killed run left."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.baremetal.dgx.plugins.lookup.generated_secret import secret_of


def test_it_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "key"
    first = secret_of(str(path), 128)
    assert len(first) == 128
    assert first.isalnum()
    assert secret_of(str(path), 32) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["key"]


def test_all_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "key")
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _each: secret_of(path, 32), range(64)))) == 1
    assert os.listdir(tmp_path) == ["key"]


def test_a_lock_that_a_killed_run_left_stops_none(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("theOldSecret\n")
    (tmp_path / ".key.ansible_lockfile").touch()
    (tmp_path / "key.ansible_lockfile").touch()
    assert secret_of(str(tmp_path / "key"), 32) == "theOldSecret"
    (tmp_path / ".new.ansible_lockfile").touch()
    assert len(secret_of(str(tmp_path / "new"), 32)) == 32


def test_what_the_lookup_password_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("oldSecret salt=abc\n")
    assert secret_of(str(tmp_path / "key"), 32) == "oldSecret"


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_file_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(content)
    with pytest.raises(AnsibleLookupError, match=f"{tmp_path}/key: is empty") as raised:
        secret_of(str(tmp_path / "key"), 32)
    assert "\n" not in str(raised.value)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    with pytest.raises(AnsibleLookupError, match=f"{tmp_path}/key"):
        secret_of(str(tmp_path / "key"), 32)
