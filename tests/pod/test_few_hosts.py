# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts get a second job one after the other: who logs in, who runs jobs, who controls them.

For its own pod of three hosts (tests/soak/few_hosts). The tests build on each other.
"""

from __future__ import annotations

from .conftest import on
from .shapes import CONTROL, assert_cluster, declare

HEAD, NODE, OTHER = "head-01", "dgx-01", "dgx-02"


def test_a_login_host_of_its_own_has_sackd() -> None:
    declare({HEAD: CONTROL, NODE: ("gpu_nodes",), OTHER: ("login_nodes",)})
    assert_cluster(HEAD, [OTHER], [NODE])
    assert on(OTHER, "systemctl is-active sackd").stdout.strip() == "active"


def test_the_login_host_runs_jobs_from_now_on() -> None:
    declare({HEAD: CONTROL, NODE: ("gpu_nodes",), OTHER: ("login_nodes", "gpu_nodes")})
    assert_cluster(HEAD, [OTHER], [NODE, OTHER])
    assert on(OTHER, "systemctl is-active sackd").stdout.strip() == "inactive"


def test_the_controller_is_a_login_host_too() -> None:
    """As in inventories/minimal."""
    declare({HEAD: (*CONTROL, "login_nodes"), NODE: ("gpu_nodes",), OTHER: ("gpu_nodes",)})
    assert_cluster(HEAD, [HEAD], [NODE, OTHER])
    assert on(HEAD, "test -s /etc/slurm/slurm.conf").returncode == 0
