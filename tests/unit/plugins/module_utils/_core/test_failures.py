# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import (
    message_of,
    reported,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import UnsafeError
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import BrokenError, HungError
from ansible_collections.baremetal.dgx.plugins.module_utils._core.lock import BusyError
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError


class Failed(BaseException):
    pass


class Module:
    def fail_json(self, **answer):
        self.answer = answer
        raise Failed


def failure(error, *also, **result):
    module = Module()
    with pytest.raises(Failed), reported(module, result, *also):
        raise error
    return module.answer


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ToolError("no such unit", unit="a"), {"msg": "no such unit", "unit": "a"}),
        (ToolError("x", changed=True), {"msg": "x", "changed": True}),
        (HungError("/data does not answer"), {"msg": "/data does not answer", "hung": True}),
        (BrokenError("/data: ended with 1"), {"msg": "/data: ended with 1"}),
        (
            BusyError("units", "7"),
            {
                "msg": "another run is at work on this host: process 7 holds the lock units; wait "
                "for it, then run again"
            },
        ),
        (PermissionError(errno.EACCES, "Denied", "/a"), {"msg": "/a: Denied"}),
        (OSError(errno.EIO, "Input/output error"), {"msg": "Input/output error"}),
        (OSError("pipe is closed"), {"msg": "pipe is closed"}),
        (UnsafeError("/a", "belongs to user 7"), {"msg": "/a: belongs to user 7"}),
    ],
)
def test_each_error_in_one_wording(error, answer):
    assert failure(error) == answer


def test_what_was_done_before_is_returned():
    assert failure(ToolError("x"), done=["a"]) == {"msg": "x", "done": ["a"]}
    assert failure(ToolError("x", done=["b"]), done=["a"]) == {"msg": "x", "done": ["b"]}


def test_what_was_done_meanwhile_is_returned():
    module, done = Module(), []

    def work():
        done.append("a")
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(Failed), reported(module, lambda: {"changed": bool(done)}):
        work()
    assert module.answer == {"msg": "Input/output error", "changed": True}


def test_faults_of_the_module_pass():
    with pytest.raises(ValueError, match="a fault"), reported(Module()):
        raise ValueError("a fault")
    assert failure(ValueError("level: no such"), ValueError) == {"msg": "level: no such"}
    with reported(Module()):
        assert message_of(ValueError("x")) == "x"
