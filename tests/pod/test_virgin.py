# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that were not set up yet: check mode says what would happen, and nothing happens.

Its output is the loudest there is: every file that a run writes, as a difference from nothing.
"""

from __future__ import annotations

from .conftest import CHECKOUT, assert_no_secret, on, playbook

_DIGEST = CHECKOUT / "molecule" / "default" / "digest.sh"


def digests(names: list[str]) -> dict[str, set[str]]:
    """Return what a role could change on each node, as lines."""
    found = {}
    for name in names:
        done = on(name, _DIGEST.read_text())
        assert done.returncode == 0, done.stderr
        found[name] = set(done.stdout.splitlines())
    return found


def test_check_mode_of_all_layers_changes_nothing(nodes: list[str]) -> None:
    # One of each kind: what a second node of a kind would say is the same.
    names = ["head-01", "login-01", "stor-01", nodes[0]]
    before = digests(names)
    hosts = ",".join(["localhost", *names])
    done = playbook("site", "--check", "--diff", "-vvv", "--limit", hosts, seconds=1200)
    assert done.rc == 0, done.why
    assert_no_secret(done.output)
    assert set(names) < set(done.recap)
    after = digests(names)
    assert {name: after[name] ^ before[name] for name in names} == {name: set() for name in names}
