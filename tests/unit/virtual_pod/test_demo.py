# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess

import pytest

from .conftest import podlib

demo = podlib("demo")
host = podlib("host")
layout = podlib("layout")
progress = podlib("progress")
proofs = podlib("proofs")

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


def test_warning_of_srun_is_shown_and_is_no_answer(tmp_path, monkeypatch, capsys):
    waits = "srun: Required node not available (down, drained or reserved)\n"
    done = subprocess.CompletedProcess([], 0, "dgx-02\ndgx-01\n", waits)
    monkeypatch.setattr(host, "ask", lambda *_args, **_options: done)
    run = demo.Demo(progress.Progress("t"), "demo", tmp_path, {})
    assert run.user("srun -N2 hostname").split() == ["dgx-02", "dgx-01"]
    assert "Required node not available" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("", ()), ("sdc", ("sdc",)), ("rail_swap,sdc", ("rail_swap", "sdc"))],
)
def test_faults_are_chosen_by_name(text, chosen):
    assert demo._parse(["--fault", text]).fault == chosen


@pytest.mark.parametrize("text", ["flood", "sdc,ecc", "rail_swap,dead_leaf"])
def test_faults_that_cannot_be_shown_at_once_are_refused(text, capsys):
    with pytest.raises(SystemExit):
        demo._parse(["--fault", text])
    assert "fault" in capsys.readouterr().err


def test_a_fault_that_a_power_cycle_repairs_is_repaired_and_comes_back():
    args = demo._parse(["--repair", "--fault", "xid79,again"])
    assert (args.repair, args.fault) == (True, ("xid79", "again"))


@pytest.mark.parametrize(
    "argv",
    [
        ["--repair"],
        ["--repair", "--fault", "sdc"],
        ["--repair", "--fault", "rail_swap"],
        ["--repair", "--fault", "again,xid79"],
        ["--repair", "--fault", "rail_swap,xid79"],
        ["--fault", "xid79,again"],
    ],
)
def test_what_no_power_cycle_repairs_is_refused(argv, capsys):
    with pytest.raises(SystemExit):
        demo._parse(argv)
    assert "repair" in capsys.readouterr().err


class Breakable:
    """A pod that answers as the gate would leave it; `wrong` is what it does not do."""

    def __init__(self, monkeypatch, tmp_path, wrong=""):
        self.calls, self.out, self.down, self.wrong = [], set(), set(), wrong
        self.run = demo.Demo(progress.Progress("t"), "demo", tmp_path, {})
        self.run.log.write_text("")
        pod = layout.resolve(layout.Request("demo", nodes=4), None)
        monkeypatch.setattr(demo.Demo, "pod", lambda _self: pod)
        monkeypatch.setattr(demo.Demo, "stream", lambda _self, _what, argv: self.stream(argv))
        monkeypatch.setattr(demo.Demo, "user", lambda _self, command: self.user(command))
        monkeypatch.setattr(proofs, "make_report", lambda _demo, _place: self.report())

    def report(self):
        failed = 3 if self.wrong == "nodes" else len(self.out)
        verdict = "pass" if self.wrong == "report" else "fail"
        return {"verdict": verdict, "summary": {"nodes": {"fail": failed}}}

    def stream(self, argv):
        line = " ".join(argv)
        self.calls.append(line)
        if "--fault rail_swap" in line:
            self.out.add("dgx-01")
        elif "--fault sdc" in line:
            self.out.add(argv[argv.index("--node") + 1])
        elif argv[1] in ("fabric", "gpus"):
            self.out.discard("dgx-01" if argv[1] == "fabric" else "dgx-02")
        elif "admit_nodes" in line:
            self.down = set(self.out) if self.wrong != "gate" else {"dgx-03"}
        elif self.out and self.wrong != "judge":
            text = "swapped dgx-01 rail 1 dgx-01 rail 6 : 1 finding;"
            text += " gpu:dgx-02/3 burn.gemm_bf16"
            with self.run.log.open("a") as log:
                log.write(text)
            raise layout.PodError("judged")

    def user(self, command):
        names = [f"dgx-0{n}" for n in range(1, 5)]
        if command.startswith("srun"):
            return "\n".join(name for name in names if name not in self.down)
        reason = "bad" if self.wrong == "reason" else "dgx-gate: gpu3"
        state = ("drained", reason), ("idle", "none")
        return "\n".join("|".join([name, *state[name not in self.down]]) for name in names)


def test_two_faults_are_found_drained_replaced_and_repaired(monkeypatch, tmp_path):
    pod = Breakable(monkeypatch, tmp_path)
    proofs.live_with(pod.run, ("rail_swap", "sdc"))
    lines = [line for line in pod.calls if "admit_nodes" in line]
    assert len(lines) == 4
    assert all('"gate_spares": ["dgx-04"]' in line for line in lines[:2])
    assert '"gate_return_spares": ["dgx-04"]' in lines[2]
    assert '"gate_spares": []' in lines[3]
    assert pod.out == set()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("judge", "everything was reported healthy"),
        ("gate", "dgx-0. is"),
        ("reason", "is out for: bad"),
        ("report", "the report of the broken pod says pass"),
        ("nodes", "3 nodes fail in the report, not 2"),
    ],
)
def test_what_the_product_did_not_do_fails_the_demo_and_repairs_the_pod(
    monkeypatch, tmp_path, wrong, message
):
    pod = Breakable(monkeypatch, tmp_path, wrong)
    with pytest.raises(layout.PodError, match=message):
        proofs.live_with(pod.run, ("rail_swap", "sdc"))
    assert pod.out == set()


@pytest.mark.parametrize(
    ("key", "answer", "message"),
    [
        ("", "", ""),
        ("sha256sum <", "other  -\ndgx-02", "reads something else"),
        ("sha256sum <", "abc  -\ndgx-01", "ran on dgx-01, not on dgx-02"),
        ("tee", "abc  -\noverlayfs", "is overlayfs, no CephFS"),
    ],
)
def test_what_one_node_wrote_another_must_read(cluster, key, answer, message):
    run, answers = cluster
    answers |= {"tee": "abc  -\nfuseblk", "sha256sum <": "abc  -\ndgx-02"}
    if not key:
        demo.share_files(run)
        return
    answers[key] = answer
    with pytest.raises(layout.PodError, match=message):
        demo.share_files(run)


def test_storage_is_there_unless_left_out(monkeypatch):
    monkeypatch.delenv("STORAGE", raising=False)
    assert demo._parse([]).storage
    assert not demo._parse(["--no-storage"]).storage
    monkeypatch.setenv("STORAGE", "0")
    assert not demo._parse([]).storage
