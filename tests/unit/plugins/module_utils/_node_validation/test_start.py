# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that start the program, their labels, and the program itself from memory."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    CommandResult,
    ToolError,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation import main
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.engine import (
    in_order,
    lacking,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.spool import Spool
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.start import (
    clush_start,
    not_started,
    program_words,
    split,
    srun_start,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import validation_program
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.work import Archive

RUN = "0123456789abcdef"
NODES = ["dgx-02", "dgx-01"]


def test_a_step_takes_all_nodes_and_one_that_fails_ends_no_other() -> None:
    start = srun_start("7-1", "7", NODES, ["python3", "x"])
    assert {"--jobid=7", "--nodelist=dgx-[01-02]", "--ntasks=2", "--no-kill"} <= set(start.argv)
    assert {"--overlap", "--kill-on-bad-exit=0", "--wait=0", "--label"} <= set(start.argv)
    assert start.argv[-2:] == ("python3", "x")
    # In Slurm's order, whatever the names say.
    assert start.nodes == {"0": "dgx-02", "1": "dgx-01"}


def test_clustershell_reaches_nodes_by_a_script_in_the_place_of_ssh() -> None:
    words = ["python3", "-c", "a b;'c'"]
    start = clush_start("c-1", NODES, words, "/x y/ssh", 64, "", "sudo -n")
    assert start.argv[:5] == ("clush", "-w", "dgx-02,dgx-01", "-f", "64")
    # The script has the program; clush would keep it once for each node.
    assert start.argv[-5:-1] == ("-n", "--worker=ssh", "-O", "ssh_path=/bin/sh '/x y/ssh'")
    assert start.argv[-1].startswith("python3 -c 'a b;"), "the script knows how to become root"


def test_gateways_of_a_tree_are_not_given_a_file_of_this_machine() -> None:
    tree = clush_start("c-1", NODES, ["true"], "/x/ssh", 64, "/etc/tree.conf", "sudo -n --")
    assert tree.argv[-2:] == ("--topology=/etc/tree.conf", "sudo -n -- true")
    assert not {"-O", "-n"} & set(tree.argv)
    plain = clush_start("c-1", NODES, ["true"], "/x/ssh", 64, "/etc/tree.conf", "")
    assert plain.argv[-1] == "true"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (" 1: {}", ("dgx-01", "{}")),
        ("0: a: b", ("dgx-02", "a: b")),
        ("clush: 0: exited with exit code 1", ("dgx-02", "exited with exit code 1")),
        ("2: {}", ("", "2: {}")),
        ("srun: job 7 queued", ("", "srun: job 7 queued")),
        ("", ("", "")),
    ],
)
def test_labels_say_whose_line_it_is(line: str, found: tuple[str, str]) -> None:
    assert split(line, srun_start("7-1", "7", NODES, []).nodes) == found


def test_the_node_that_slurm_cannot_start_is_known() -> None:
    message = "srun: error: Task launch for StepId=7.0 failed on node dgx-02: Communication failure"
    assert not_started(message) == "dgx-02"
    assert not_started("0: it failed on node dgx-02: x") == ""
    assert not_started("srun: error: Application launch failed: Communication failure") == ""


def test_labels_count_in_the_order_of_slurm() -> None:
    def run(argv: object, timeout_s: float = 1, env: object = None) -> CommandResult:
        return CommandResult(("scontrol",), ENDED, 0, "JobId=7 NodeList=b[3,1],a2 NumNodes=3")

    assert in_order(run, "7", ["a2", "b1", "b3"]) == ["b3", "b1", "a2"]
    with pytest.raises(ToolError, match="job 7 is gone: Invalid job id"):
        in_order(lambda *_a, **_k: CommandResult(("s",), ENDED, 1, "", "Invalid job id"), "7", [])


@pytest.mark.parametrize(("engine", "tool"), [("slurm", "srun"), ("clustershell", "clush")])
def test_an_engine_without_its_tool_is_one_line(engine: str, tool: str) -> None:
    why = lacking(engine, lambda _tool: None)
    assert why.startswith(f"engine {engine}: {tool} is not installed on ")
    assert why.endswith("ansible")
    assert not lacking(engine, lambda name: f"/usr/bin/{name}")


# ---- the program


def program(node: str, folder: Path, **changes: object) -> bytes:
    """The whole program with a question that any host can answer."""
    mounts = [{"name": "none", "path": "/there/is/none", "fstype": "", "write": True, "peers": []}]
    options = {"mounts": [{**mounts[0], "most_s": 1.0, "limit_s": 2.0}], "stage": "write"}
    calls = [{"module": "mount_check", "options": {**options, "run": "alone", "node": node}}]
    parts = [
        {"name": "canary", "loads": False, "limit_s": 20.0, "calls": calls},
        {"name": "fio", "loads": True, "limit_s": 20.0, "calls": calls},
    ]
    work = {"parts": parts, "refused": "", "hold": None, "seconds": 60.0}
    work.update(folder=str(folder / "kept"), **changes)
    archive = Archive()
    archive.add(node, work)
    return validation_program(archive.entries)


def run_program(data: bytes, digest: str, node: str) -> tuple[int, Spool]:
    """Run it as srun and clush do."""
    words = program_words(sys.executable, digest, RUN)
    environment = {"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": node}
    done = subprocess.run(words, input=data, capture_output=True, env=environment, check=False)
    spool = Spool(RUN)
    for line in (done.stdout + done.stderr).decode().splitlines():
        spool.feed(node, line)
    return done.returncode, spool


def test_the_program_is_run_from_memory_and_answers(tmp_path: Path) -> None:
    data = program("dgx-01", tmp_path, refused="it has jobs: 7")
    rc, spool = run_program(data, hashlib.sha256(data).hexdigest(), "dgx-01")
    assert (rc, spool.messages) == (0, {})
    answer = spool.answer("dgx-01", "canary")
    assert answer is not None
    assert [one["subject"] for one in answer["records"]] == ["mount:dgx-01/there/is/none"]
    assert spool.answer("dgx-01", "fio") == {"skipped": True, "why": "it has jobs: 7"}
    # What only asks is asked again, and is not kept.
    assert not (tmp_path / "kept" / RUN / "canary.json").exists()


def test_a_program_that_came_damaged_is_not_run(tmp_path: Path) -> None:
    data = program("dgx-01", tmp_path)
    rc, spool = run_program(data[:-1], hashlib.sha256(data).hexdigest(), "dgx-01")
    assert rc == 1
    assert spool.messages == {"dgx-01": ["the program came damaged"]}


def test_a_host_that_the_run_does_not_know_says_so(tmp_path: Path) -> None:
    data = program("dgx-01", tmp_path)
    rc, spool = run_program(data, hashlib.sha256(data).hexdigest(), "dgx-99")
    assert rc == 3
    assert "the run knows none of that name" in spool.messages["dgx-99"][0]


def test_large_values_are_kept_once() -> None:
    archive = Archive()
    profile = {"gpus": {str(number): "x" * 20 for number in range(20)}}
    for node in ("dgx-01", "dgx-02"):
        calls = [{"module": "gpu_health", "options": {"profile": profile, "node": node}}]
        archive.add(node, {"parts": [{"name": "gpu_health", "calls": calls}]})
    assert len(archive.entries) == 3
    own = json.loads(archive.entries["work/dgx-02.json"])
    found = main.whole(own, lambda path: archive.entries[path].encode())
    assert found["parts"][0]["calls"][0]["options"] == {"profile": profile, "node": "dgx-02"}
