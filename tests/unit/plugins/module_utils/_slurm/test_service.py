# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a job may start on a host, by what scontrol and pgrep answer."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.service import in_service

DOWN = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
UNKNOWN = f"Slurm does not say whether a job may start here ({DOWN})"


@pytest.mark.parametrize(
    ("outcome", "rc", "why"),
    [
        # A controller, a login host or an image: no job runs there.
        (ENDED, 1, ""),
        (ENDED, 0, UNKNOWN),
        # Whether slurmd runs is not known either.
        (ENDED, 2, UNKNOWN),
        (MISSING, -1, UNKNOWN),
        (TIMED_OUT, -1, UNKNOWN),
    ],
)
def test_a_host_without_slurmd_needs_no_answer_of_slurm(outcome, rc, why):
    def run(argv, timeout_s=30, env=None):
        if argv[0] == "scontrol":
            return CommandResult(tuple(argv), ENDED, 1, err=DOWN)
        assert argv == ["pgrep", "-x", "slurmd"]
        return CommandResult(tuple(argv), outcome, rc)

    assert in_service(run, "login-01") == why


def test_what_slurm_says_counts_whether_slurmd_runs_or_not():
    def run(argv, timeout_s=30, env=None):
        shown = "NodeName=dgx-01 State=IDLE\n" if argv[1:3] == ["show", "node"] else ""
        return CommandResult(tuple(argv), ENDED, int(argv[0] == "pgrep"), shown)

    assert in_service(run, "dgx-01") == "dgx-01 is in service in Slurm (IDLE)"
