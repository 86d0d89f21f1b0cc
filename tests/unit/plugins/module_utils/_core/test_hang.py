# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on a mount that never answers ends in time, and the line names the mount."""

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core import hang
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import (
    BrokenError,
    HungError,
    finish_in_time,
    hung_mounts,
    in_time,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.mounts import Live
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ToolError


def test_work_that_comes_back_is_handed_on():
    assert in_time("x", lambda send: [send("part"), 7][1]) == 7
    with pytest.raises(BrokenError, match="ZeroDivisionError"):
        in_time("x", lambda _send: 1 / 0)


def test_a_hang_names_the_mount_and_keeps_what_was_sent(hung_mount):
    def work(send):
        send("begun")
        return os.listdir(hung_mount)

    begun = time.monotonic()
    with pytest.raises(HungError) as raised:
        in_time("/x", work, 0.5)
    assert time.monotonic() - begun < 10
    assert raised.value.parts == ("begun",)
    assert str(raised.value).startswith(f"/x: did not come back within 0.5 s: {hung_mount} (fuse.")


def test_a_hang_of_something_else_blames_no_mount(mounts_of_this_host):
    with pytest.raises(HungError, match="though every mount of this host answers"):
        in_time("/x", lambda _send: time.sleep(60), 0.3)


def test_only_the_mount_that_hangs_is_found(hung_mount, tmp_path):
    healthy = Live(str(tmp_path), "ext4", "disk")
    dead = Live(str(hung_mount), "fuse.hung", "storage:/dead")
    assert hung_mounts([healthy, dead], 0.5) == [dead]
    assert hung_mounts([Live(str(hung_mount), "overlay", "x")], 0.5) == []


class Module:
    """As much of AnsibleModule as is used."""

    def __init__(self):
        self.ended, self.warned = None, []

    def exit_json(self, **answer):
        self.ended = ("exit", answer)

    def fail_json(self, msg, **answer):
        self.ended = ("fail", {"msg": msg, **answer})
        raise SystemExit(1)

    def warn(self, text):
        self.warned.append(text)


def test_a_module_ends_as_its_body_would():
    module = Module()

    def body():
        module.warn("careful")
        try:
            module.exit_json(changed=True, list=[1])
        except Exception:
            module.fail_json("not reached")

    finish_in_time(module, "x", body)
    assert module.ended == ("exit", {"changed": True, "list": [1]})
    assert module.warned == ["careful"]
    with pytest.raises(SystemExit):
        finish_in_time(module, "x", lambda: module.fail_json("wrong", more=2))
    assert module.ended == ("fail", {"msg": "wrong", "more": 2})


def test_an_error_of_the_body_is_the_modules_failure():
    module = Module()

    def refused():
        raise ToolError("no such device", device="sdx")

    def broken():
        with open("/nowhere/at/all", encoding="utf-8"):
            pass

    for body, answer in (
        (refused, {"msg": "no such device", "device": "sdx"}),
        (broken, {"msg": "/nowhere/at/all: No such file or directory"}),
    ):
        with pytest.raises(SystemExit):
            finish_in_time(module, "x", body)
        assert module.ended == ("fail", answer)


def test_a_module_whose_body_hangs_fails(monkeypatch):
    module = Module()
    monkeypatch.setattr(hang, "all_mounts", dict)
    with pytest.raises(SystemExit):
        finish_in_time(module, "/x", lambda: time.sleep(60), 0.2)
    assert module.ended[1]["hung"] is True
