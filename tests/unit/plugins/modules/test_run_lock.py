# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""run_lock: one run at a time, from whatever control machine."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import run_lock


@pytest.fixture
def lock(run_module, tmp_path):
    def run(owner, check=False, **params):
        given = {"name": "upgrade", "owner": owner, "folder": str(tmp_path / "runs"), **params}
        return run_module(run_lock.main, given, check=check)

    return run


def test_the_second_run_is_refused_by_name_until_the_first_is_over(lock):
    first = lock("ctl-1")
    assert (first["held_by"], first["changed"]) == ("ctl-1", True)
    second = lock("ctl-2")
    assert second["failed"]
    assert second["msg"].startswith(f"upgrade: ctl-1 does it since {first['since']}: wait for it;")
    # It cannot give back what is not its own; the first goes on, killed or not.
    assert not lock("ctl-2", state="released")["changed"]
    assert not lock("ctl-1")["changed"]
    assert lock("ctl-1", state="released")["changed"]
    assert lock("ctl-2")["held_by"] == "ctl-2"


def test_check_mode_refuses_and_keeps_nothing(lock):
    assert lock("ctl-1", check=True)["changed"]
    assert lock("ctl-2")["changed"]
    assert lock("ctl-1", check=True)["failed"]


def test_what_cannot_be_read_is_no_consent(lock, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/upgrade.json").write_text("[")
    answer = lock("ctl-1")
    assert answer["failed"]
    assert "upgrade.json" in answer["msg"]
    assert lock("ctl-1", name="../x")["failed"]


def test_what_a_killed_run_has_left_is_taken_over_by_name(lock):
    lock("ctl-1")
    assert lock("ctl-2", former=["ctl-9"])["failed"]
    taken = lock("ctl-2", former=["ctl-1"])
    assert taken["held_by"] == "ctl-2"
    assert lock("ctl-1")["failed"]
    assert lock("ctl-2", state="released")["changed"]
    lock("ctl-1")
    assert lock("ctl-2", state="released", former=["ctl-1"])["changed"]
