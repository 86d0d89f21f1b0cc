# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All layers together: a second run of site.yml changes nothing, and everything is as promised."""

from __future__ import annotations

from .conftest import playbook


def test_a_second_run_changes_nothing() -> None:
    done = playbook("site", seconds=1800)
    assert done.rc == 0, done.why
    changed = [line for line in done.output.splitlines() if line.startswith("changed:")]
    assert set(done.changed.values()) == {0}, (done.changed, changed)


def test_all_is_as_promised() -> None:
    # One of each kind: a second node of a kind is asked the same.
    done = playbook("verify", "-e", "target=head-01:login-01:stor-01:dgx-01", seconds=1800)
    assert done.rc == 0, done.why
