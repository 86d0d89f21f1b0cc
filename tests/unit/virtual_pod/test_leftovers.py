# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from .conftest import podlib

leftovers = podlib("leftovers")

MONITOR = ["/usr/bin/conmon", "-c", "lost", "-u", "lost", "-n", "demo-dgx-01", ""]
NOISE = [["vi", "-c", "conmon", "-n", "demo-x"], [], [""]]


def test_only_containers_that_podman_forgot_are_orphans():
    alive = ["/usr/bin/conmon", "-c", "known", "-n", "demo-head-01"]
    other = ["/usr/bin/conmon", "-c", "foreign", "-n", "t1-head-01"]
    assert leftovers.orphans([MONITOR, alive, other, *NOISE], "demo", {"known"}) == ["lost"]


def test_podman_that_is_starting_a_node_is_waited_for():
    run = [
        "/usr/bin/podman",
        "--runtime",
        "runc",
        "run",
        "-d",
        "--replace",
        "--name",
        "demo-dgx-01",
    ]
    other = ["/usr/bin/podman", "run", "-d", "--name", "t1-dgx-01"]
    execs = ["/usr/bin/podman", "exec", "demo-dgx-01", "true"]
    assert leftovers.survivors([run, other, execs, MONITOR, *NOISE], "demo") == ["demo-dgx-01"]


def test_a_container_lives_while_its_monitor_does():
    assert leftovers.monitored([MONITOR, *NOISE]) == {"lost"}
