# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one line that a node's run ends with."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.callback.node_answer import CallbackModule


def result(name: str, **data: Any) -> SimpleNamespace:
    task = SimpleNamespace(get_name=lambda: name)
    return SimpleNamespace(_result=data, _task=task)


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def callback(shown: list[str]) -> CallbackModule:
    made = CallbackModule()
    made._display = SimpleNamespace(display=shown.append)
    return made


def test_changes_and_failures_are_in_the_line(callback: CallbackModule, shown: list[str]) -> None:
    callback.v2_runner_on_ok(result("Read", changed=False))
    callback.v2_runner_on_ok(result("Write", changed=True, content="a secret"))
    callback.v2_runner_on_skipped(result("Skip"))
    callback.v2_runner_on_failed(result("Allowed", msg="x"), ignore_errors=True)
    callback.v2_runner_on_failed(result("Start", msg="y" * 9999))
    items = [{"msg": "one", "failed": True}, {"msg": "fine"}, {"msg": "two", "failed": True}]
    callback.v2_runner_on_failed(result("Loop", msg="all", results=items))
    callback.v2_runner_on_failed(result("Silent"))
    assert shown == []
    callback.v2_playbook_on_stats(None)
    (line,) = shown
    assert json.loads(line) == {
        "ok": 2,
        "changed": 1,
        "skipped": 1,
        "changes": ["Write"],
        "failed": [
            {"task": "Start", "msg": "y" * 600},
            {"task": "Loop", "msg": "one; two"},
            {"task": "Silent", "msg": "it failed without a message"},
        ],
    }
