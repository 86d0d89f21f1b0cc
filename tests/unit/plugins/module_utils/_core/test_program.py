# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program is made of: all that its main imports, wherever it does, and nothing else."""

from __future__ import annotations

import sys
import zipfile
from io import BytesIO
from pathlib import Path
from types import ModuleType

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core import program as _program

FILES = {
    "shop/__init__.py": "",
    "shop/main.py": "import json\nfrom .deep.near import f\n\ndef main(words):\n    return f()\n",
    "shop/deep/__init__.py": "",
    "shop/deep/near.py": "def f():\n    from shop.late import VALUE\n    return VALUE\n",
    "shop/late.py": "from . import far as away\nVALUE = away.VALUE\n",
    "shop/far.py": "import shop.last\nVALUE = shop.last.VALUE\n",
    "shop/last.py": "VALUE = 5\n",
    "shop/not_needed.py": "raise RuntimeError\n",
}


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import shop.main

    yield shop.main
    for name in [one for one in sys.modules if one.split(".")[0] == "shop"]:
        del sys.modules[name]


def test_all_that_main_imports_is_found_and_nothing_else(main: ModuleType) -> None:
    assert _program.sources(main) == {
        name: text for name, text in FILES.items() if name != "shop/not_needed.py"
    }


def test_the_archive_is_the_same_for_the_same_sources_and_runs(main: ModuleType) -> None:
    start = _program.start_of("shop.main")
    first = _program.archive(_program.sources(main), start)
    assert first == _program.archive(_program.sources(main), start)
    with zipfile.ZipFile(BytesIO(first)) as made:
        assert made.read("__main__.py").decode() == start
        assert len(made.namelist()) == len(FILES)
