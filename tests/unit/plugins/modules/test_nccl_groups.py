# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_groups on a model of Slurm and nccl-tests: who is blamed, and who is given back."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.modules import nccl_groups

HEAD = """\
# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 8589934592 validation: 1 graph: 0
#
# Using devices
{ranks}
NCCL version 2.27.3+cuda12.9
#
#       size         count      type   redop    root {side}  wrong {side}  #wrong
"""
SIDE = "    time   algbw   busbw"
ROW = "  8589934592    2147483648     float     sum      -1  {side}  {side}\n"
TAIL = "# Out of bounds values : {w} {word}\n# Avg bus bandwidth    : {bw}\n#\n"


def cables(units=2, each=4, rails=2, rate=400):
    hcas, found, switches = [], [], []
    for unit in range(units):
        for rail in range(rails):
            leaf = f"leaf-{unit}-{rail}"
            switches.append({"name": leaf})
            for place in range(each):
                node = f"dgx-{unit * each + place + 1:02}"
                hcas.append({"node": node, "rail": rail, "rate_gbps": rate,
                             "devices": [f"mlx5_rail{rail}", f"mlx5_{rail}"]})  # fmt: skip
                found.append({"a": [node, rail, 1], "b": [leaf, -1, place + 1]})
    return {"version": 1, "hcas": hcas, "switches": switches, "cables": found}


class Cluster:
    """Nodes with states; `slow` runs slowly, `wrong` sums wrongly, `hangs` does not end.

    `glitches` are runs, by their number, whose sum is wrong with any nodes.
    """

    def __init__(self):
        self.states, self.slow, self.wrong, self.hangs = {}, set(), set(), set()
        self.pairs, self.refuses, self.silent = [], False, False
        self.glitches, self.held, self.calls = set(), [], []

    def __call__(self, argv, timeout_s=30, env=None):
        self.calls.append((list(argv), dict(env or {})))
        if self.silent:
            return CommandResult(tuple(argv), MISSING)
        outcome, rc, out, err = getattr(self, argv[0])(argv[1:], env or {})
        return CommandResult(tuple(argv), outcome, rc, out, err, 1.0)

    def scontrol(self, _words, _env):
        lines = [
            f"NodeName=dgx-{n:02} State={self.states.get(f'dgx-{n:02}', 'IDLE')} X=1"
            for n in range(1, 9)
        ]
        return ENDED, 0, "\n".join(lines) + "\n", ""

    def salloc(self, words, _env):
        if self.refuses:
            return (
                ENDED,
                1,
                "",
                "salloc: error: Unable to allocate resources: Requested nodes are busy",
            )
        self.held.append("55")
        return ENDED, 0, "", "salloc: Granted job allocation 55\n"

    def scancel(self, words, _env):
        self.held.remove(words[0])
        return ENDED, 0, "", ""

    def srun(self, words, env):
        given = dict(
            word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word
        )
        assert given["jobid"] in self.held
        nodes = given["nodelist"].split(",")
        assert len(nodes) == int(given["nodes"]) > 1
        if set(nodes) & self.hangs:
            return TIMED_OUT, -1, "", ""
        rails = len(env["NCCL_IB_HCA"].split(","))
        bad = set(nodes) & self.slow or any(set(pair) <= set(nodes) for pair in self.pairs)
        bw = rails * 50 * (0.5 if bad else 0.95)
        wrong = 3 if set(nodes) & self.wrong or len(self.sizes) in self.glitches else 0
        ranks = "\n".join(
            f"#  Rank {node * 8 + gpu:>2} Group  0 Pid   1 on {name} device {gpu} [0x1b] H100"
            for node, name in enumerate(nodes)
            for gpu in range(8)
        )
        result = TAIL.format(w=wrong, word="FAILED" if wrong else "OK", bw=bw)
        side = f"1000.0  200.00  {bw:.2f}  {wrong}"
        text = HEAD.format(ranks=ranks, side=SIDE) + ROW.format(side=side) + result
        return ENDED, 1 if wrong else 0, text, ""

    @property
    def sizes(self):
        found = [
            re.findall(r"--nodelist=(\S+)", " ".join(argv))
            for argv, _env in self.calls
            if argv[0] == "srun"
        ]
        return [len(one[0].split(",")) for one in found]


@pytest.fixture
def cluster(monkeypatch):
    model = Cluster()
    monkeypatch.setattr(nccl_groups, "ModuleRunner", lambda module: model)
    return model


@pytest.fixture
def groups(run_module, cluster, tmp_path):
    def run(check=False, **params):
        options = {"plan": cables(), "output": str(tmp_path / "out"), **params}
        answer = run_module(nccl_groups.main, options, check=check)
        assert cluster.held == [], "nodes were not given back"
        return answer

    return run


def of(answer, status):
    return {
        (one["check"], one["subject"]): one for one in answer["records"] if one["status"] == status
    }


def test_a_healthy_fabric_passes_and_each_group_is_run_once(groups, cluster, tmp_path):
    answer = groups()
    assert answer["verdict"] == "pass", answer["findings"]
    assert [group["name"] for group in answer["groups"]] == [
        "leaf-0-0", "leaf-0-1", "leaf-1-0", "leaf-1-1", "su1", "su2", "rail0", "rail1", "all",
    ]  # fmt: skip
    assert answer["runs"] == 9
    leaf, every = answer["records"][0], answer["records"][8]
    assert leaf["subject"] == "nodes:dgx-01,dgx-02,dgx-03,dgx-04"
    assert leaf["threshold"]["value"] == 37.5
    assert every["threshold"]["value"] == 75.0
    assert "Azure" in every["threshold"]["source"]
    assert all(one["at"] for one in answer["records"])
    runs = (tmp_path / "out" / "groups-runs.jsonl").read_text().splitlines()
    assert len(runs) == 9
    assert json.loads(runs[0])["rails"] == [0]
    kept = json.loads((tmp_path / "out" / "groups-records.json").read_text())
    assert [one["check"] for one in kept] == [one["check"] for one in answer["records"]]
    asked = [env["NCCL_IB_HCA"] for argv, env in cluster.calls if argv[0] == "srun"]
    assert asked[0] == "=mlx5_rail0"
    assert asked[-1] == "=mlx5_rail0,mlx5_rail1"


@pytest.mark.parametrize("how", ["slow", "wrong"])
def test_one_bad_node_is_the_culprit_and_is_left_out_afterwards(groups, cluster, how):
    getattr(cluster, how).add("dgx-06")
    answer = groups()
    failed = of(answer, "fail")
    assert ("groups.culprit", "node:dgx-06") in failed
    blamed = {subject for check, subject in failed if check == "groups.culprit"}
    assert blamed == {"node:dgx-06"}
    group = failed["groups.busbw", "nodes:dgx-05,dgx-06,dgx-07,dgx-08"]
    assert group["text"].startswith("all_reduce over leaf leaf-1-0, 4 nodes")
    # Known, it takes no part in what comes later, and the rest passes.
    rest = "nodes:" + ",".join(f"dgx-{n:02}" for n in (1, 2, 3, 4, 5, 7, 8))
    every = of(answer, "pass")["groups.busbw", rest]
    assert "without dgx-06, found before" in every["text"]
    assert answer["failed"] is True


def test_a_node_passes_by_a_group_over_all_of_its_rails(groups, cluster):
    """So that what one of an earlier run was blamed for ends; less load shows less."""
    names = {f"dgx-{n:02}" for n in range(1, 9)}

    def passed(answer):
        of_nodes = {subject for check, subject in of(answer, "pass") if check == "groups.culprit"}
        return {subject.partition(":")[2] for subject in of_nodes}

    assert passed(groups()) == passed(groups(kinds=["all"])) == names
    assert passed(groups(kinds=["leaf", "rail"])) == set()
    left = [name for name in sorted(names) if name not in ("dgx-01", "dgx-02")]
    assert passed(groups(exclude=left)) == {"dgx-01", "dgx-02"}
    cluster.slow.add("dgx-06")
    assert passed(groups()) == names - {"dgx-06"}
    # Not alone to blame, and not cleared.
    cluster.slow, cluster.pairs = set(), [("dgx-02", "dgx-07")]
    assert passed(groups(kinds=["all"])) == set()


def test_a_wrong_sum_is_not_outvoted_and_clears_no_node(groups, cluster):
    """Right sums after it do not unsay it, those of a larger group neither."""
    cluster.glitches = {1}
    answer = groups(kinds=["su", "all"])
    assert cluster.sizes == [4, 4, 4, 4, 8]
    ((key, record),) = of(answer, "fail").items()
    assert key == ("groups.correct", "nodes:dgx-01,dgx-02,dgx-03,dgx-04")
    assert record["measured"] == {"value": 6, "unit": "wrong values"}
    assert record["text"] == "su su1: values that are wrong; 1 of 3 runs have some"
    cleared = [name for check, name in of(answer, "pass") if check == "groups.culprit"]
    assert cleared == [f"node:dgx-{n:02}" for n in (5, 6, 7, 8)]
    # Where a node is to blame for it, it explains what the others had a part in.
    cluster.glitches, cluster.wrong = set(), {"dgx-06"}
    answer = groups(kinds=["su", "all"])
    assert {check for check, _name in of(answer, "fail")} == {
        "groups.busbw", "groups.culprit", "groups.correct",
    }  # fmt: skip
    cleared = [name for check, name in of(answer, "pass") if check == "groups.culprit"]
    assert cleared == [f"node:dgx-{n:02}" for n in (1, 2, 3, 4, 5, 7, 8)]


def test_nodes_that_had_a_wrong_sum_are_no_measure_for_others(groups, cluster):
    cluster.glitches, cluster.slow = {1}, {"dgx-03"}
    answer = groups(plan=cables(units=2, each=2), kinds=["su"])
    assert ("groups.unseparated", "nodes:dgx-03,dgx-04") in of(answer, "fail")
    # Nor those of one half for the other half.
    cluster.calls, cluster.glitches = [], {3}
    answer = groups(plan=cables(units=1, each=3), kinds=["all"])
    assert cluster.sizes == [3, 3, 2, 2, 2]
    assert ("groups.unseparated", "nodes:dgx-01,dgx-02,dgx-03") in of(answer, "fail")


def test_two_nodes_that_fail_only_together_are_no_culprits(groups, cluster):
    cluster.pairs = [("dgx-02", "dgx-07")]
    answer = groups(kinds=["all"])
    failed = of(answer, "fail")
    assert not [one for one in failed if one[0] == "groups.culprit"]
    (record,) = [one for (check, _subject), one in failed.items() if check == "groups.interaction"]
    assert record["subject"] == "nodes:dgx-02,dgx-07"
    assert "though each side is good by itself" in record["text"]
    assert "no node is at fault by itself" in record["remedy"]
    assert record["evidence"]


def test_a_hang_is_traced_and_fails_none(groups, cluster):
    cluster.hangs = {"dgx-03"}
    answer = groups(kinds=["su"], fail_on=["fail"])
    assert answer["counts"]["fail"] == 0
    record = of(answer, "not_measured")["groups.culprit", "node:dgx-03"]
    assert "runs with dgx-03 do not come to an end" in record["text"]
    assert (
        "hung"
        in of(answer, "not_measured")["groups.busbw", "nodes:dgx-01,dgx-02,dgx-03,dgx-04"]["text"]
    )


def test_where_nothing_passes_the_checker_is_asked(groups, cluster):
    cluster.slow = {f"dgx-{n:02}" for n in range(1, 9)}
    answer = groups(kinds=["all"], fail_on=[])
    found = [
        one for one in answer["records"] if one["check"] in ("groups.checker", "groups.unseparated")
    ]
    assert found
    assert not [one for one in answer["records"] if one["subject"].startswith("node:")]


def test_who_is_good_on_one_rail_is_no_measure_for_another(groups, cluster):
    """A group of two is distinguished by a third node, which must be good on those rails."""
    cluster.slow = {"dgx-02"}
    answer = groups(plan=cables(units=2, each=2), kinds=["leaf"], fail_on=["not_measured"])
    # The first leaf has no other yet.
    assert ("groups.unseparated", "nodes:dgx-01,dgx-02") in of(answer, "fail")
    assert ("groups.busbw", "nodes:dgx-03,dgx-04") in of(answer, "pass")


def test_nodes_with_jobs_take_no_part_and_are_told(groups, cluster):
    cluster.states = {"dgx-01": "MIXED", "dgx-05": "IDLE+DRAIN"}
    answer = groups(fail_on=["fail"])
    reported = of(answer, "not_measured")
    assert set(reported) == {("groups.node", "node:dgx-01"), ("groups.node", "node:dgx-05")}
    assert "it is MIXED" in reported["groups.node", "node:dgx-01"]["text"]
    assert max(cluster.sizes) == 6
    salloc = next(argv for argv, _env in cluster.calls if argv[0] == "salloc")
    assert "--nodelist=dgx-02,dgx-03,dgx-04,dgx-06,dgx-07,dgx-08" in salloc
    assert groups()["failed"] is True


def test_nodes_that_mig_divides_take_no_part_and_are_told(groups, cluster):
    """They count in no group, and do not keep the others from passing."""
    cluster.states = {"dgx-04": "IDLE+DRAIN"}
    away = ["dgx-02", "dgx-03", "dgx-04"]
    answer = groups(divided=[*away, "cpu-01"], exclude=["dgx-03"], gpus={"dgx-02": 7})
    assert answer["verdict"] == "pass"
    passed = of(answer, "pass")
    records = {name: one["text"] for (check, name), one in passed.items() if check == "groups.node"}
    text = "it is asked nothing: MIG divides GPUs of it, and only whole ones are loaded"
    assert records == {"node:dgx-02": text, "node:dgx-04": text}
    asked = {node for group in answer["groups"] for node in group["nodes"]}
    assert asked == {f"dgx-{n:02}" for n in (1, 5, 6, 7, 8)}
    salloc = next(argv for argv, _env in cluster.calls if argv[0] == "salloc")
    assert "--gres=gpu:8" in salloc
    assert groups(check=True, divided=away)["groups"][-1]["nodes"] == sorted(asked)


@pytest.mark.parametrize("whole", [(), ("dgx-01",)])
@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED"])
def test_fewer_than_two_nodes_that_mig_leaves_whole_have_nothing_to_ask(
    groups, cluster, whole, state
):
    """Nor does the one that is left keep the rest of validate_fabric from passing."""
    cluster.states = {"dgx-01": state}
    away = [f"dgx-{n:02}" for n in range(1, 9) if f"dgx-{n:02}" not in whole]
    answer = groups(divided=away)
    assert (answer["verdict"], answer["runs"]) == ("pass", 0)
    assert set(of(answer, "pass")) == {("groups.node", f"node:{name}") for name in away}
    assert len(answer["records"]) == len(away)


def test_a_slurm_that_gives_no_nodes_is_not_measured(groups, cluster):
    cluster.refuses = True
    answer = groups(fail_on=["fail"])
    (record,) = answer["records"]
    assert (record["check"], record["status"]) == ("groups.run", "not_measured")
    assert "Requested nodes are busy" in record["text"]


def test_without_slurm_it_fails(groups, cluster):
    cluster.silent = True
    assert "Slurm cannot be asked" in groups()["msg"]


def test_no_free_node_is_not_measured(groups, cluster):
    cluster.states = {f"dgx-{n:02}": "ALLOCATED" for n in range(1, 9)}
    answer = groups(fail_on=["fail"])
    assert "fewer than two nodes" in of(answer, "not_measured")["groups.run", "fabric"]["text"]


def test_one_node_in_the_plan_is_not_measured_and_says_what_to_write(groups, cluster):
    answer = groups(fail_on=["fail"], exclude=[f"dgx-{n:02}" for n in range(2, 9)])
    record = of(answer, "not_measured")["groups.run", "fabric"]
    assert record["text"] == "fewer than two nodes are planned"
    assert "write fewer nodes into exclude" in record["remedy"]
    assert answer["verdict"] == "not_measured"


def test_the_limit_of_runs_is_kept_and_told(groups, cluster):
    cluster.slow = {"dgx-06"}
    answer = groups(most_runs=5, fail_on=[])
    assert answer["runs"] == 5
    assert [one for one in answer["records"] if one["check"] == "groups.limit"]
    assert answer["verdict"] != "pass"


def test_check_mode_shows_the_groups(groups, cluster):
    answer = groups(check=True, kinds=["rail", "all"], exclude=["dgx-08"])
    assert [group["name"] for group in answer["groups"]] == ["rail0", "rail1", "all"]
    assert "dgx-08" not in answer["groups"][-1]["nodes"]
    assert cluster.calls == []
