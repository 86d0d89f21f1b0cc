# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of validate_nodes is made from the plan's inputs, the inventory and the tasks."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import subprocess
import zipfile
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.baremetal.dgx.plugins.action.validation_program import ActionModule
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.main import whole
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.start import (
    clush_start,
)

LEVEL = {
    "parts": {"cpu_memory": False, "dcgm": False, "fio": False, "nccl": False},
    "hardware_root": "",
    "health_thresholds": {},
    "ecc": True,
    "idle": True,
    "burn": {
        "duration_s": 600,
        "n": 8192,
        "memory_mib": 0,
        "most_batch": 32,
        "thresholds": {},
        "again_after_days": 7,
    },
}
NOTHING = {"ib_health": "no rails are declared", "canary": "no mounts are declared"}
HOSTS = ["dgx-01", "dgx-02", "dgx-03", "login-01"]


class HostVars(dict[str, Any]):
    def raw_get(self, name: str) -> Any:
        return self[name]


@pytest.fixture
def make(tmp_path: Path) -> Any:
    inputs = tmp_path / "plan" / "inputs"
    inputs.mkdir(parents=True)
    for host in HOSTS:
        gpus = {"count": 8, "type": "h100"} if host.startswith("dgx") else None
        data = {
            "node_health_profile": {"name": "dgx_h100", "gpus": gpus},
            "node_health_rails": [],
            "node_state": "absent" if host == "dgx-03" else "present",
            "__validation_levels": {"standard": LEVEL},
            "__validation_nothing": NOTHING,
        }
        (inputs / f"{host}.json").write_text(json.dumps(data))

    def run(
        check: bool = False, again: bool = False, reached: Any = MappingProxyType({}), **given: Any
    ) -> dict[str, Any]:
        action = object.__new__(ActionModule)
        action._loader = DataLoader()
        action._task = SimpleNamespace(check_mode=check)
        arguments = {
            "hosts": HOSTS,
            "level": "standard",
            "parts": {},
            "engine": "slurm",
            "state_dir": str(tmp_path),
            "plan_dir": str(tmp_path / "plan"),
            "beside": False,
            "held": {},
            "hold": {},
            "seconds": 3600.0,
            "since": "",
            **given,
        }
        known = HostVars(
            {host: {"ansible_host": f"10.0.0.{host[-1]}", **reached.get(host, {})}
             for host in HOSTS}
        )  # fmt: skip
        return action._make(arguments, {"hostvars": known, "omit": "__omit__", "again": again})

    return run


def held(*names: str) -> dict[str, Any]:
    result = {name: {"may_load": True, "why": "held by job 7", "busy": False} for name in names}
    others = {name: {"may_load": False, "why": "it has jobs: 9", "busy": True}
              for name in HOSTS if name not in names}  # fmt: skip
    return {"nodes": {**result, **others}, "jobs": {"7": [*names]}}


def work(made: dict[str, Any], node: str) -> dict[str, Any]:
    data = Path(made["folder"], "program").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return whole(json.loads(archive.read(f"work/{node}.json")), archive.read)


def test_nodes_that_slurm_holds_are_asked_and_the_others_left(make: Any) -> None:
    made = make(held=held("dgx-01"))
    assert (made["nodes"], made["groups"]) == (["dgx-01"], {"7": ["dgx-01"]})
    # Neither an absent node nor one without GPUs is asked, or left.
    assert made["left"] == {"dgx-02": "it has jobs: 9"}
    own = work(made, "dgx-01")
    assert [part["name"] for part in own["parts"]] == ["gpu_health", "burn"]
    assert own["hold"] is None, "Slurm ends the step itself"
    assert own["parts"][0]["calls"][0]["options"]["profile"]["name"] == "dgx_h100"
    assert json.loads(Path(made["folder"], "asked.json").read_text()) == {
        "dgx-01": ["gpu_health", "burn"]
    }


def test_clustershell_asks_all_and_loads_those_that_are_free(make: Any) -> None:
    hold = {"job_name": "dgx-validate", "owner": "c-1", "former": [], "transport": "auto"}
    made = make(engine="clustershell", held=held("dgx-01"), hold=hold)
    assert (made["nodes"], made["left"]) == (["dgx-01", "dgx-02"], {})
    assert (made["groups"], list(made["beside"])) == ({}, ["dgx-01", "dgx-02"])
    free, busy = work(made, "dgx-01"), work(made, "dgx-02")
    assert (free["refused"], busy["refused"]) == ("", "it has jobs: 9")
    assert free["hold"] == hold
    idle = [one["parts"][0]["calls"][0]["options"]["idle"] for one in (free, busy)]
    assert idle == [True, False], "the processes of a job are not a finding"
    ways = Path(made["folder"], "ways")
    assert stat.S_IMODE(ways.stat().st_mode) == 0o700
    for path in (*ways.iterdir(), Path(made["folder"], "program")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_beside_slurm_clustershell_starts_what_slurm_cannot(make: Any) -> None:
    """A node that is out of service is held by a reservation, and asks Slurm before each load."""
    hold = {"job_name": "dgx-validate", "owner": "c-1", "former": [], "transport": "auto"}
    out = held("dgx-01")
    out["nodes"]["dgx-02"] = {"may_load": True, "why": "it is IDLE+DRAIN, and reserved"}
    made = make(held=out, hold=hold, beside=True)
    assert (made["nodes"], made["left"]) == (["dgx-01", "dgx-02"], {})
    assert made["groups"] == {"7": ["dgx-01"]}
    assert made["beside"] == {"dgx-02": "it is IDLE+DRAIN, and reserved"}
    assert [work(made, node)["hold"] for node in made["nodes"]] == [None, hold]
    assert not work(made, "dgx-02")["refused"]


def test_clustershell_goes_the_ways_of_ansible(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real clush, and a stand-in for ssh that says how it was called."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nsha256sum | cut -c1-64\nprintf "%s " "$@"\n')
    ssh.chmod(0o700)
    monkeypatch.setenv("ANSIBLE_SSH_EXECUTABLE", str(ssh))
    jump = {"ansible_ssh_args": "-o 'ProxyCommand=nc %h %p'", "ansible_port": 2222}
    become = {"ansible_user": "ops", "ansible_become": True}
    made = make(engine="clustershell", reached={"dgx-01": jump, "dgx-02": become})
    assert made["become"] == ["", "sudo -H -S -n -u root --"]
    script = Path(made["folder"], "ways", "ssh")
    start = clush_start("c-1", made["nodes"], ["echo", "a b"], str(script), 2, "", "")
    given = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(start.argv, check=True, **given)
    lines = [line.rstrip().split(": ", 1) for line in done.stdout.splitlines()]
    digest = hashlib.sha256(Path(made["folder"], "program").read_bytes()).hexdigest()
    assert [text for _node, text in lines].count(digest) == 2, "each gets the program"
    words = {node: text for node, text in lines if text != digest}
    assert "-o ProxyCommand=nc %h %p -o Port=2222 " in words["dgx-01"]
    assert words["dgx-01"].endswith(" -- 10.0.0.1 echo 'a b'")
    assert '-o User="ops"' in words["dgx-02"]
    assert words["dgx-02"].endswith(" -- 10.0.0.2 sudo -H -S -n -u root -- echo 'a b'")


def test_a_node_that_ssh_alone_does_not_reach_is_left_by_name(make: Any) -> None:
    made = make(engine="clustershell", reached={"dgx-02": {"ansible_password": "x"}})
    assert made["nodes"] == ["dgx-01"]
    why = "dgx-02: has a password for SSH, and this engine logs in by key"
    assert made["left"] == {"dgx-02": why}


def test_without_slurm_clustershell_asks_and_loads_all(make: Any) -> None:
    made = make(engine="clustershell")
    assert made["nodes"] == ["dgx-01", "dgx-02"]
    assert (work(made, "dgx-02")["refused"], work(made, "dgx-02")["hold"]) == ("", None)


def test_the_same_question_is_the_same_run_whatever_slurm_says_now(make: Any) -> None:
    first = make(held=held("dgx-01", "dgx-02"))
    assert make(held=held("dgx-02"))["run"] == first["run"]
    assert make(held=held("dgx-02"), parts={"burn": False})["run"] != first["run"]


def test_what_only_this_run_leaves_out_is_told_from_what_the_inventory_does(make: Any) -> None:
    made = make(held=held("dgx-01"), parts={"burn": False, "dcgm": False})
    notes = json.loads(Path(made["folder"], "notes.json").read_text())
    asked = notes["dgx-01"]["asked"]
    assert (asked["burn"], asked["dcgm"]) == ("switched off in this run", "switched off")


def test_what_a_caller_has_changed_the_nodes_since_is_another_run(make: Any) -> None:
    """After a repair without a boot, the node takes what it has kept for answers of now."""
    first = make(held=held("dgx-01"))
    again = make(held=held("dgx-01"), since="2026-11-29T10:00:00Z")
    assert (again["run"] != first["run"], again["goes_on"]) == (True, False)
    assert make(held=held("dgx-01"), since="2026-11-29T10:00:00Z")["goes_on"]


def test_again_is_another_question(make: Any) -> None:
    first = make(held=held("dgx-01"))
    assert make(held=held("dgx-01"), again=True)["run"] != first["run"]


def test_check_mode_writes_nothing(make: Any, tmp_path: Path) -> None:
    made = make(check=True, held=held("dgx-01"))
    assert made["nodes"] == ["dgx-01"]
    assert not (tmp_path / "validation").exists()
