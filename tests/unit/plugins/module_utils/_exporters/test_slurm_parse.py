# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

import pytest
from slurm_use_texts import JOBS, NODES, PING, PING_BOTH, SDIAG, SHARES, node

from ansible_collections.baremetal.dgx.plugins.module_utils._exporters.slurm_parse import (
    JOB_FORMAT,
    ParseError,
    count_tasks,
    parse_job_uses,
    parse_node_uses,
    parse_ping,
    parse_sdiag,
    parse_shares,
    plain_reason,
)


def test_nodes() -> None:
    one, two, three, four = parse_node_uses(NODES)
    assert (one.cpus, one.cpus_used, one.gpus, one.gpus_used) == (224, 56, 8, 4)
    assert (one.memory_mib, one.memory_used_mib, one.memory_free_mib) == (2000000, 500000, 1990000)
    assert one.partitions == ("batch", "debug")
    assert two.node.states == ("ALLOCATED", "DRAIN")
    assert three.memory_free_mib is None
    assert (three.gpus, three.gpus_used) == (8, 0)
    assert three.node.reason == 'fan|noise "x", ask Ann'
    assert three.since_s is not None
    assert three.since_s == four.since_s
    assert four.node.states == ("DOWN", "NOT_RESPONDING")


def test_the_hour_that_summer_time_repeats_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm is asked with TZ=UTC, whatever the zone of the controller is."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        (one,) = parse_node_uses(node("a", "DOWN", "Reason=x [root@2026-10-25T00:30:00]"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert one.since_s == 1_792_888_200.0


def test_gpus_that_are_not_accounted_for_are_configured_all_the_same() -> None:
    (one,) = parse_node_uses(node("a", "IDLE", CfgTRES="cpu=224,mem=1M"))
    assert (one.gpus, one.gpus_used) == (8, None)
    (one,) = parse_node_uses(node("a", "IDLE", CfgTRES="cpu=224", Gres="(null)"))
    assert (one.gpus, one.gpus_used) == (None, None)
    (one,) = parse_node_uses(
        node("a", "MIXED", used="gres/gpu:h100=3", CfgTRES="cpu=224,gres/gpu:h100=8")
    )
    assert (one.gpus, one.gpus_used) == (8, 3)


def test_jobs() -> None:
    waits, nowhere, _queued, held, runs, _done, _failed = parse_job_uses(JOBS)
    assert (waits.job, waits.tasks, waits.gpus, waits.reason) == ("6", 13, 8, "ReqNodeNotAvail")
    assert nowhere.partitions == ("batch", "debug")
    assert (nowhere.account, nowhere.reason, nowhere.nodes) == ("", "NodesUnavailable", 1)
    assert held.reason == "JobHeldUser"
    assert (runs.state, runs.gpus, runs.cpus, runs.node_list) == ("RUNNING", 12, 112, "dgx-[01-02]")
    assert JOB_FORMAT.count("|") == 10


@pytest.mark.parametrize(
    ("text", "count"),
    [("0-99", 100), ("0-99%4", 100), ("1,3,5", 3), ("0-30:5", 7), ("7", 1), ("0-3,...", 5)],
)
def test_tasks_of_an_array(text: str, count: int) -> None:
    assert count_tasks(text) == count


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Resources", "Resources"),
        ("QOSMaxGRESPerUser", "QOSMaxGRESPerUser"),
        ("ReqNodeNotAvail(Unavailable:a)", "ReqNodeNotAvail"),
        ("launch failed requeued held", "Other"),
        ("", "None"),
    ],
)
def test_reasons_are_few(text: str, word: str) -> None:
    assert plain_reason(text) == word


def test_controllers() -> None:
    assert parse_ping(PING) == [("primary", "head-01", True)]
    assert parse_ping(PING_BOTH)[1] == ("backup1", "head-02", True)


def test_scheduler() -> None:
    found = parse_sdiag(SDIAG)
    assert found["slurm_server_thread_cnt"] == 3
    assert found["slurm_slurmdbd_queue_size"] == 41
    assert found["slurm_schedule_cycle_last"] == 1631
    assert found["slurm_bf_cycle_last"] == 5120
    assert found["slurm_backfilled_jobs"] == 7
    assert (found["slurm_schedule_queue_len"], found["slurm_bf_queue_len"]) == (4, 5)


def test_shares() -> None:
    root, research, _teaching = parse_shares(SHARES)
    assert (root.account, root.shares, root.usage) == ("root", None, 1)
    assert (research.account, research.shares, research.usage_s) == ("research", 10 / 11, 123456)
    assert research.usage == 0.75


def shares_of(text: str) -> dict[str, tuple[float | None, float | None]]:
    return {one.account: (one.shares, one.usage) for one in parse_shares(text)}


def test_shares_of_a_nested_account_are_of_the_whole_cluster() -> None:
    """Slurm's columns of parts have 1.0 for an only child."""
    found = shares_of("""\
root|||1000
 root|root|1|0
 chemistry||1|600
  chemistry|ann|1|600
 physics||2|400
  theory||7|400
   theory|bob|parent|400
""")
    assert found == {
        "root": (None, 1), "chemistry": (0.25, 0.6), "physics": (0.5, 0.4), "theory": (0.5, 0.4),
    }  # fmt: skip


def test_accounts_with_the_shares_of_their_parent() -> None:
    found = shares_of("""\
root||parent|0
 staff||3|0
 guests||parent|0
  visitors||1|0
 unused||0|0
  none||0|0
""")
    assert found == {
        "root": (None, 0), "staff": (0.75, 0), "guests": (None, 0), "visitors": (0.25, 0),
        "unused": (0, 0), "none": (0, 0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_ping, ""),
        (parse_node_uses, "slurm_load_node error: Unable to contact slurm controller\n"),
        (parse_node_uses, NODES.replace("CPUTot=224", "CPUTot=many")),
        (parse_job_uses, JOBS.replace("|alice|", "|al|ice|", 1)),
        (parse_job_uses, JOBS[: len(JOBS) // 2]),
        (parse_job_uses, "squeue: error: Invalid job format specification: a"),
        (parse_sdiag, ""),
        (parse_shares, "research||1\n"),
    ],
)
def test_what_is_not_understood_is_not_measured(parse, text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)
