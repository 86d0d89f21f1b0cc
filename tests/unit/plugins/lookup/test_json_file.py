# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that an earlier run may have written."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.baremetal.dgx.plugins.lookup.json_file import LookupModule


def test_what_it_says_and_nothing_without_it(tmp_path: Path) -> None:
    path = tmp_path / "in-use.json"
    assert LookupModule().run([str(path)]) == [{}]
    path.write_text('{"line": "required x.so", "proven": true}\n', encoding="utf-8")
    assert LookupModule().run([str(path)]) == [{"line": "required x.so", "proven": True}]


@pytest.mark.parametrize("text", ["", "{", "not json"])
def test_a_broken_one_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "in-use.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(AnsibleLookupError, match=r"in-use.json.*; remove it if it is broken"):
        LookupModule().run([str(path)])
