# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All layers together: a second run of site.yml changes nothing, and everything is as promised."""

from __future__ import annotations

from .conftest import assert_no_secret, playbook


def test_a_second_run_changes_nothing() -> None:
    # The demo's last playbook was given variables by -e, and so was the plan that it made.
    assert playbook("check_inventory").rc == 0
    done = playbook("site", "--diff", "-vvv", seconds=1800)
    assert done.rc == 0, done.why
    assert_no_secret(done.output)
    assert set(done.changed.values()) == {0}, f"{done.changed}\n{done.tasks('changed')}"


def test_all_is_as_promised() -> None:
    # One of each kind: a second node of a kind is asked the same.
    done = playbook("verify", "-e", "target=head-01:login-01:stor-01:dgx-01", seconds=1800)
    assert done.rc == 0, done.why
