# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Asks many machines at once, so that one that is silent delays no other."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, Mapping

from .run import ToolError


def ask_all(
    names: Mapping[str, Any],
    ask: Callable[[str, Any], Any],
    at_once: int,
    limit_s: float,
    total_s: float,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what `ask` gives for each name, and for the others why there is nothing.

    A call may take `limit_s`, all of them together `total_s`. One that takes longer is left to
    itself: its thread ends with the process. An error of `ask` is a reason, too.
    """
    done: queue.Queue[tuple[str, bool, Any]] = queue.Queue()
    found: dict[str, Any] = {}
    lacking: dict[str, str] = {}
    waiting = list(reversed(list(names)))
    running: dict[str, float] = {}
    end = time.monotonic() + total_s

    def work(name: str) -> None:
        try:
            done.put((name, True, ask(name, names[name])))
        except ToolError as error:
            done.put((name, False, str(error)))
        except Exception as error:
            done.put((name, False, f"{type(error).__name__}: {error}"))

    while waiting or running:
        now = time.monotonic()
        if now >= end:
            lacking.update(dict.fromkeys(running, f"no answer, all had {total_s:g} s"))
            lacking.update(dict.fromkeys(waiting, f"not asked, all had {total_s:g} s"))
            break
        while waiting and len(running) < at_once:
            name = waiting.pop()
            running[name] = now + limit_s
            threading.Thread(target=work, args=(name,), daemon=True).start()
        try:
            until = min([end, *running.values()])
            name, is_found, value = done.get(timeout=max(0.0, until - time.monotonic()))
            if running.pop(name, None) is not None:
                (found if is_found else lacking)[name] = value
        except queue.Empty:
            now = time.monotonic()
            for name in [name for name, until in running.items() if until <= now]:
                del running[name]
                lacking[name] = f"no answer in {limit_s:g} s"
    return found, lacking
