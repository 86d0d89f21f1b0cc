# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of jobs by the words that squeue has for their states."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._backup import jobs
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.saved_queue import Queued


@pytest.mark.parametrize(
    "state", ["RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING", "RESIZING", "SIGNALING"]
)
def test_a_job_that_has_its_nodes_goes_on(state: str) -> None:
    """STOPPED is RUNNING with a flag: its user has sent SIGSTOP."""
    found = jobs.compare({"dgx-01": {6}}, [Queued(6, state), Queued(7, state)])
    assert found["go_on"] == [6]
    assert found["ended"] == []
    assert found["over"] == [7], "slurmctld finds it on no node"
    assert found["queued"] == []


@pytest.mark.parametrize(
    "state", ["PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"]
)
def test_a_job_that_waits_is_listed_and_starts_again(state: str) -> None:
    found = jobs.compare({"dgx-01": {6}}, [Queued(6, state), Queued(7, state)])
    assert found["ended"] == [f"6 on dgx-01: {state} in the copy, starts again"]
    assert found["queued"] == [6, 7]
    assert found["go_on"] == found["over"] == []


def test_a_job_that_is_over_in_the_copy_does_not_start_again() -> None:
    """Its number was used once more: it was requeued after the copy."""
    found = jobs.compare({"dgx-01": {6}}, [Queued(6, "TIMEOUT")])
    assert found["ended"] == ["6 on dgx-01: TIMEOUT in the copy"]
    assert found["queued"] == []


def test_a_job_that_is_ending_ends() -> None:
    found = jobs.compare({"dgx-01": {6}}, [Queued(6, "COMPLETING"), Queued(7, "COMPLETED")])
    assert found == {"go_on": [], "ended": [], "over": [], "queued": [], "highest": 7}
