# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback node_answer."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_answer
type: stdout
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: The end of a run as one line of JSON
description:
  - Prints nothing while the run goes on, and at its end one line, which the control machine reads
    when a node applies its own roles (P(baremetal.dgx.node_apply#module)).
  - It has names of tasks and messages of failures, and no results of modules.
"""

import json
from typing import Any

from ansible.plugins.callback import CallbackBase

# An answer is read by people, and of a thousand nodes.
_LONGEST = 600
_MOST = 50


class CallbackModule(CallbackBase):
    """Keeps what changed and what failed."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "baremetal.dgx.node_answer"

    def __init__(self) -> None:
        super().__init__()
        self._ok = self._changed = self._skipped = 0
        self._changes: list[str] = []
        self._failed: list[dict[str, str]] = []

    def v2_runner_on_ok(self, result: Any) -> None:
        """Count a task, and keep the name of one that changed something."""
        self._ok += 1
        if _data(result).get("changed"):
            self._changed += 1
            self._changes.append(_task(result))

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Count a task."""
        self._skipped += 1

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Keep why a task failed."""
        if ignore_errors:
            return
        data = _data(result)
        items = [item for item in data.get("results") or () if item.get("failed")]
        texts = [str(item.get("msg", "")) for item in items] or [str(data.get("msg", ""))]
        text = "; ".join(texts).strip() or "it failed without a message"
        self._failed.append({"task": _task(result), "msg": text[:_LONGEST]})

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Keep it: a node always reaches itself."""
        self.v2_runner_on_failed(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the line."""
        reported = {
            "ok": self._ok,
            "changed": self._changed,
            "skipped": self._skipped,
            "changes": self._changes[:_MOST],
            "failed": self._failed,
        }
        self._display.display(json.dumps(reported))


def _data(result: Any) -> dict[str, Any]:
    """Return what the task returned; up to ansible-core 2.18 it has no public name."""
    found: dict[str, Any] = getattr(result, "result", None) or result._result
    return found


def _task(result: Any) -> str:
    return str((getattr(result, "task", None) or result._task).get_name())
