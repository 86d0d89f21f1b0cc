# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A laboratory with one DGX: it is controller, database and login host, and runs the jobs.

For its own pod (tests/soak/few_hosts).
"""

from __future__ import annotations

from .conftest import playbook
from .shapes import CONTROL, assert_cluster, declare

ONLY = "dgx-01"


def test_one_machine_is_a_cluster() -> None:
    declare({ONLY: (*CONTROL, "login_nodes", "gpu_nodes")})
    assert_cluster(ONLY, [ONLY], [ONLY])


def test_all_is_as_promised() -> None:
    done = playbook("verify")
    assert done.rc == 0, done.why
