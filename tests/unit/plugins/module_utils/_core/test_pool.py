# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many at once: each has its own end, and none waits for a silent one."""

from __future__ import annotations

import threading
import time
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._core.pool import ask_all
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError


def test_each_has_its_own_end() -> None:
    silent = threading.Event()

    def ask(_name: str, what: Any) -> int:
        if what == "silent":
            silent.wait(20)
        if what == "refuses":
            raise ToolError("no login")
        return 1 // what

    begun = time.monotonic()
    names = {"a": 1, "b": "silent", "c": "refuses", "d": 0, "e": 1}
    found, lacking = ask_all(names, ask, at_once=2, limit_s=0.3, total_s=9)
    silent.set()
    assert found == {"a": 1, "e": 1}
    assert lacking["b"] == "no answer in 0.3 s"
    assert lacking["c"] == "no login"
    assert lacking["d"].startswith("ZeroDivisionError: ")
    assert time.monotonic() - begun < 9


def test_all_together_have_an_end() -> None:
    silent = threading.Event()
    _found, lacking = ask_all(
        {"a": 0, "b": 0}, lambda _name, _what: silent.wait(20), at_once=1, limit_s=9, total_s=0.2
    )
    silent.set()
    assert lacking == {"a": "no answer, all had 0.2 s", "b": "not asked, all had 0.2 s"}
