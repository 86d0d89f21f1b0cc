# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from .conftest import podlib

demo = podlib("demo")
host = podlib("host")
layout = podlib("layout")
progress = podlib("progress")

POD = layout.resolve(layout.Request("demo", nodes=2), None)
NODES = ("dgx-01", "dgx-02")
TASKS = "\n".join(f"{node} {task} 0,1" for node in NODES for task in range(8))
CONFINED = "\n".join(
    [f"nvidia{i}: No such device or address" for i in (0, 1)]
    + [f"nvidia{i}: Operation not permitted" for i in range(2, 8)]
)
GOOD = {
    "sinfo": "",
    "hostname": "dgx-02\ndgx-01",
    "ntasks-per-node": TASKS,
    "gres=gpu:2": CONFINED,
    "sbatch": "17;demo",
    "sacct": "17|COMPLETED|cpu=4,gres/gpu=16,node=2",
}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster that answers what `answers` says; the last key that a command contains counts."""
    answers = dict(GOOD)

    def user(_self, command, timeout_s=120, node="login-01"):
        return next(text for key, text in reversed(answers.items()) if key in command)

    monkeypatch.setattr(demo.Demo, "user", user)
    monkeypatch.setattr(demo.Demo, "pod", lambda _self: POD)
    monkeypatch.setattr(demo, "stays_out", lambda _demo, _node: None)
    monkeypatch.setattr(
        host, "wait_until", lambda what, test, *_times: test() or pytest.fail(f"not: {what}")
    )
    run = demo.Demo(progress.Progress("t"), "demo", tmp_path, {})
    return run, answers


def test_cluster_that_answers_rightly_passes(cluster):
    run, _answers = cluster
    demo.use_cluster(run)


@pytest.mark.parametrize(
    ("key", "answer", "message"),
    [
        ("hostname", "dgx-01\ndgx-01", r"answers from \['dgx-01', 'dgx-01'\]"),
        ("hostname", "dgx-01", "answers from"),
        ("ntasks-per-node", "\n".join(TASKS.splitlines()[:-1]), "15 tasks, not 16"),
        ("gres=gpu:2", CONFINED.replace("Operation not permitted", ""), "is not kept from"),
    ],
)
def test_wrong_answer_fails_and_says_which(cluster, key, answer, message):
    run, answers = cluster
    answers[key] = answer
    with pytest.raises(layout.PodError, match=message):
        demo.use_cluster(run)


@pytest.mark.parametrize("record", ["", "17|FAILED|gres/gpu=16", "17|COMPLETED|cpu=4"])
def test_job_without_its_gpus_in_the_accounting_fails(cluster, record):
    run, answers = cluster
    answers["sacct"] = record
    with pytest.raises(pytest.fail.Exception, match="job 17 in the accounting"):
        demo.use_cluster(run)


def test_failed_phase_is_named(tmp_path):
    run = demo.Demo(progress.Progress("t"), "demo", tmp_path, {})

    def fail():
        raise layout.PodError("broken")

    with pytest.raises(layout.PodError, match=r"FAILED in phase 'site.yml': broken"):
        run.phase("site.yml", fail)
    run.phase("other", lambda: None)
    assert [title for title, _seconds in run.phases] == ["other"]
