# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From Slurm's answers to a file of metrics; commands that hang, fail or say nonsense."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from exposition_text import Samples, names, read, value
from slurm_use_texts import ANSWERS, PING_BOTH, node

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._exporters import (
    slurm as _slurm_collector,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._exporters.slurm import (
    Settings,
    collect,
    main,
    settings_from_data,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    KEPT_OUT,
    REPLACED,
    SPARE,
    UNPROVEN,
    write_reason,
)

OURS = "baremetal_dgx_slurm"


class Slurm:
    """A CommandRunner: command -> text, (rc, out, err), or how it ended."""

    def __init__(self, **changed: object) -> None:
        self.answers: dict[str, object] = {
            **ANSWERS,
            **{k.replace("_", " "): v for k, v in changed.items()},
        }
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, argv, timeout_s=30, env=None) -> CommandResult:
        self.calls.append(tuple(argv))
        assert env["SLURM_BITSTR_LEN"] == "0"
        assert env["TZ"] == "UTC", "an hour of local time is there twice"
        answer = self.answers.get(" ".join(argv[:2])) or self.answers[argv[0]]
        if answer in (TIMED_OUT, MISSING):
            return CommandResult(tuple(argv), answer, took_s=timeout_s)
        rc, out, err = answer if isinstance(answer, tuple) else (0, answer, "")
        return CommandResult(tuple(argv), ENDED, rc, out, err, 0.01)


def metrics(slurm: Slurm, **settings: object) -> tuple[Samples, list[str]]:
    given = {"host": "head-01", "metrics_file": "/x.prom", **settings}
    text, problems = collect(settings_from_data({"version": 1, **given}), slurm)
    return read(text), problems


def test_slurms_own_metrics() -> None:
    found, problems = metrics(Slurm())
    assert problems == []
    wanted = {
        "slurm_nodes": 4, "slurm_nodes_mixed": 1, "slurm_nodes_alloc": 1, "slurm_nodes_idle": 1,
        "slurm_nodes_down": 1, "slurm_nodes_drain": 2, "slurm_nodes_drained": 1,
        "slurm_nodes_draining": 1, "slurm_nodes_noresp": 1, "slurm_jobs": 19,
        "slurm_jobs_running": 1, "slurm_jobs_pending": 16, "slurm_jobs_hold": 1,
        "slurm_jobs_completed": 1, "slurm_jobs_node_failed": 1, "slurm_jobs_cpus_alloc": 112,
        "slurm_jobs_nodes_alloc": 2, "slurm_partitions": 2, "slurm_bf_mean_cycle": 2000,
        "slurm_sdiag_jobs_started": 17,
    }  # fmt: skip
    assert {name: value(found, name) for name in wanted} == wanted
    assert value(found, "slurm_node_cpus_idle", node="dgx-01") == 168
    assert value(found, "slurm_node_memory_bytes", node="dgx-01") == 2000000 * 2**20
    assert value(found, "slurm_node_memory_free_bytes", node="dgx-03") is None
    assert value(found, "slurm_partition_jobs_pending", partition="debug") == 1
    assert value(found, "slurm_partition_nodes_drain", partition="batch") == 2


def test_what_slurm_does_not_tell_by_itself() -> None:
    found, _problems = metrics(Slurm())
    state = f"{OURS}_node_unfit"
    out = {dict(labels)["node"]: dict(labels) for name, labels in found if name == state}
    assert sorted(out) == ["dgx-02", "dgx-03", "dgx-04"]
    assert (out["dgx-02"]["state"], out["dgx-02"]["owner"]) == ("draining", "dgx-gate")
    assert (out["dgx-03"]["state"], out["dgx-03"]["owner"]) == ("drained", "operator")
    assert out["dgx-03"]["reason"] == 'fan|noise "x", ask Ann'
    assert (out["dgx-04"]["state"], out["dgx-04"]["owner"]) == ("down", "slurm")
    assert value(found, f"{OURS}_node_state", node="dgx-04", state="not_responding") == 1
    job = {"slurm_job": "1", "user": "alice", "account": "research", "partition": "batch"}
    assert value(found, f"{OURS}_node_job_gpus", node="dgx-02", **job) == 6
    assert value(found, f"{OURS}_account_gpus", account="research", state="pending") == 13 * 8
    assert value(found, f"{OURS}_account_gpus", account="research", state="running") == 12
    assert value(found, f"{OURS}_account_jobs", account="", state="running") == 0
    assert value(found, f"{OURS}_pending_jobs", partition="batch", reason="ReqNodeNotAvail") == 13
    waits = value(found, f"{OURS}_pending_oldest_seconds", partition="batch")
    submitted = time.mktime((2026, 11, 21, 11, 0, 0, 0, 0, -1))
    assert waits == pytest.approx(max(0, time.time() - submitted), abs=30)
    assert value(found, f"{OURS}_account_usage_ratio", account="teaching") == 0.25
    assert value(found, f"{OURS}_database_up") == 1
    assert value(found, f"{OURS}_controller_up", controller="head-01", role="primary") == 1
    assert value(found, f"{OURS}_run_timestamp_seconds") == pytest.approx(time.time(), abs=30)


@pytest.mark.parametrize(
    ("reason", "owner"),
    [
        (write_reason("dgx-01", SPARE, "spare, ready"), "gate-spare"),
        (write_reason("dgx-01", UNPROVEN, "unproven, run validate_nodes"), "gate-new"),
        (write_reason("dgx-01", REPLACED, "replaced gpu:3, run validate_nodes"), "gate-new"),
        (write_reason("dgx-01", KEPT_OUT, "gpu3 ecc"), "dgx-gate"),
        # Of another node, and edited: what it is now is not known.
        (write_reason("dgx-02", SPARE, "spare, ready"), "dgx-gate"),
        ("dgx-gate: spare, ready", "dgx-gate"),
        ("dgx-upgrade: install_gpu_stack", "dgx-upgrade"),
        ("dgx-power: off", "dgx-power"),
        ("dgx-firmware: bios", "dgx-firmware"),
        ("dgx-upgrade of Ann", "operator"),
    ],
)
def test_whom_a_reason_of_the_gate_makes_the_owner(reason: str, owner: str) -> None:
    line = node("dgx-01", "IDLE+DRAIN", f"Reason={reason} [root@2026-11-21T11:12:01]")
    found, _problems = metrics(Slurm(scontrol_show=line))
    labels = {"node": "dgx-01", "state": "drained", "owner": owner, "reason": reason}
    assert value(found, f"{OURS}_node_unfit", **labels) == 1


@pytest.mark.parametrize(
    ("rest", "held"),
    [
        ("ReservationName=dgx-validate_repair-1_dgx-01", 1),
        ("ReservationName=project-7", None),
        ("Reason=see ReservationName=dgx-validate_x [root@2026-11-21T11:12:01]", None),
    ],
)
def test_what_a_run_has_reserved_is_held(rest: str, held: int | None) -> None:
    found, _problems = metrics(Slurm(scontrol_show=node("dgx-01", "IDLE+DRAIN+RESERVED", rest)))
    labels = frozenset({("node", "dgx-01"), ("state", "held")})
    assert found.get((f"{OURS}_node_state", labels)) == held


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("state", "free"),
    [
        ("IDLE", 1), ("IDLE+DRAIN", 0), ("IDLE+PLANNED", 0), ("IDLE+RESERVED", 0),
        ("IDLE+MAINTENANCE", 0), ("IDLE*", 0), ("MIXED", 0),
    ],
)  # fmt: skip
def test_nodes_that_could_take_a_job(state: str, free: int, native: bool) -> None:
    found, _problems = metrics(Slurm(scontrol_show=node("dgx-01", state)), native=native)
    assert value(found, f"{OURS}_nodes_free") == free
    assert value(found, f"{OURS}_partition_nodes_free", partition="batch") == free
    assert value(found, f"{OURS}_partition_nodes_free", partition="debug") == free


def test_slurm_tells_the_rest_itself() -> None:
    slurm = Slurm()
    found, problems = metrics(slurm, native=True)
    assert problems == []
    assert not [name for name in names(found) if name.startswith("slurm_")]
    assert value(found, f"{OURS}_node_gpus", node="dgx-01") == 8
    assert ("sdiag",) not in slurm.calls


def test_only_the_controller_that_schedules_speaks_for_the_cluster() -> None:
    slurm = Slurm(scontrol_ping=PING_BOTH)
    found, problems = metrics(slurm)
    assert problems == []
    assert len(slurm.calls) == 1
    assert value(found, f"{OURS}_collector_active") == 0
    assert value(found, f"{OURS}_controller_up", controller="head-01", role="primary") == 0
    assert not [name for name in names(found) if "node" in name]
    found, _problems = metrics(Slurm(scontrol_ping=PING_BOTH), host="head-02")
    assert value(found, f"{OURS}_collector_active") == 1
    assert value(found, "slurm_nodes") == 4


NO_DATABASE = (
    1,
    """\
You are not running a supported accounting_storage plugin
Only 'accounting_storage/slurmdbd' is supported.
""",
    "",
)
NOTHING = (1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")


@pytest.mark.parametrize("answer", [TIMED_OUT, MISSING, NOTHING, "nonsense\n", ""])
@pytest.mark.parametrize("command", ["scontrol_ping", "scontrol_show", "sdiag", "sshare"])
def test_what_does_not_answer_has_no_sample(command: str, answer: object) -> None:
    found, problems = metrics(Slurm(**{command: answer or "\n"}))
    assert problems
    assert value(found, f"{OURS}_collector_ok") == 0
    name = {"scontrol_show": "scontrol_node"}.get(command, command)
    assert value(found, f"{OURS}_command_ok", command=name) == 0
    lost = {
        "scontrol_ping": "slurm_nodes", "scontrol_show": "slurm_nodes",
        "sdiag": "slurm_server_thread_cnt", "sshare": f"{OURS}_account_usage_ratio",
    }  # fmt: skip
    assert lost[command] not in names(found)
    if command != "scontrol_ping":
        assert value(found, "slurm_jobs_running") == 1
    assert value(found, f"{OURS}_run_timestamp_seconds") is not None


def test_a_queue_that_complains_is_not_believed() -> None:
    answer = (0, ANSWERS["squeue"], "squeue: error: something is wrong\n")
    found, problems = metrics(Slurm(squeue=answer))
    assert len(problems) == 1
    assert "slurm_jobs_running" not in names(found)
    assert "slurm_partitions" not in names(found)
    assert value(found, "slurm_nodes") == 4


def test_an_empty_queue_is_an_answer() -> None:
    found, problems = metrics(Slurm(squeue="\n"))
    assert problems == []
    assert value(found, "slurm_jobs") == 0


@pytest.mark.parametrize(
    ("answer", "up", "healthy"),
    [
        ((1, "", "sacctmgr: error: Connection refused\n"), 0, 1),
        (NO_DATABASE, None, 1),
        (TIMED_OUT, None, 0),
    ],
)  # fmt: skip
def test_the_database(answer: object, up: int | None, healthy: int) -> None:
    found, _problems = metrics(Slurm(sacctmgr=answer))
    assert value(found, f"{OURS}_database_up") == up
    assert value(found, f"{OURS}_collector_ok") == healthy
    found, problems = metrics(Slurm(sacctmgr=answer), accounting=False)
    assert problems == []
    assert f"{OURS}_database_up" not in names(found)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "version"),
        ({"version": 2}, "version"),
        ({"version": 1, "host": "a"}, "metrics_file"),
        ({"version": 1, "host": "a", "metrics_file": "/x"}, "prom"),
        ({"version": 1, "host": "a", "metrics_file": "/x.prom", "native": "no"}, "native"),
        ({"version": 1, "host": "a", "metrics_file": "/x.prom", "timeout_s": 0}, "timeout_s"),
        ({"version": 1, "host": "a", "metrics_file": "/x.prom", "colour": 1}, "colour"),
    ],
)
def test_settings_that_are_none(data: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        settings_from_data(data)


def test_main_writes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    target, config = tmp_path / "text" / "a.prom", tmp_path / "config.json"
    config.write_text(json.dumps({"version": 1, "host": "head-01", "metrics_file": str(target)}))
    monkeypatch.setattr(_slurm_collector, "run", Slurm())
    assert main(["--config", str(config), "--check-config"]) == 0
    assert not target.exists()
    assert main(["--config", str(config)]) == 0
    assert value(read(target.read_text()), f"{OURS}_collector_ok") == 1
    monkeypatch.setattr(_slurm_collector, "run", Slurm(scontrol_ping=TIMED_OUT))
    assert main(["--config", str(config)]) == 3
    assert "scontrol_ping: `scontrol ping` did not end within 15 s" in capsys.readouterr().err
    assert value(read(target.read_text()), f"{OURS}_collector_ok") == 0
    config.write_text("{")
    assert main(["--config", str(config), "--check-config"]) == 3
    assert f"slurm-metrics: {config}: not JSON: " in capsys.readouterr().err


def test_the_defaults_are_those_of_a_controller() -> None:
    assert Settings("a", "/a.prom").timeout_s * 6 < 100
