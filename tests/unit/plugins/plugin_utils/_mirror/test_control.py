# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a mirror has for the control machine."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import run
from ansible_collections.baremetal.dgx.plugins.plugin_utils._mirror.control import build_collection


def test_a_web_server_can_read_the_collection_whatever_the_umask(tmp_path: Path) -> None:
    root = tmp_path / "installed"
    root.mkdir()
    (root / "FILES.json").write_text("{}")
    before = os.umask(0o077)
    try:
        path = Path(build_collection(run, str(root), str(tmp_path / "control")))
        made = path.stat().st_mode & 0o777
        # What an earlier run has left is put right, too.
        path.chmod(0o600)
        build_collection(run, str(root), str(tmp_path / "control"))
    finally:
        os.umask(before)
    assert (made, path.stat().st_mode & 0o777) == (0o644, 0o644)
