# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

from ansible_collections.baremetal.dgx.plugins.modules import path_status


def test_what_is_there(run_module, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("/proc")
    paths = [str(tmp_path), str(tmp_path / "file"), str(tmp_path / "no/where"), "/proc"]
    found = run_module(path_status.main, {"paths": [*paths, str(tmp_path / "link")]}, True)
    assert list(found["paths"].values()) == [
        {"exists": True, "directory": True, "mount": False},
        {"exists": True, "directory": False, "mount": False},
        {"exists": False, "directory": False, "mount": False},
        {"exists": True, "directory": True, "mount": True},
        {"exists": True, "directory": True, "mount": True},
    ]


def test_names_in_a_directory(run_module, tmp_path):
    for name in ("b.json", "a.json", "a.txt"):
        (tmp_path / name).write_text("x")
    paths = [str(tmp_path), str(tmp_path / "no"), str(tmp_path / "a.txt")]
    found = run_module(path_status.main, {"paths": paths, "names": "*.json"}, True)
    assert found["names"] == {str(tmp_path): ["a.json", "b.json"]}


def test_a_mount_that_does_not_answer_is_named(run_module, hung_mount):
    begun = time.monotonic()
    result = run_module(path_status.main, {"paths": [str(hung_mount)], "timeout_s": 0.5})
    assert time.monotonic() - begun < 15
    assert result["hung"] is True
    assert f"{hung_mount} (fuse.hung, storage:/dead) does not answer" in result["msg"]
