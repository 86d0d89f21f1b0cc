# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's text tells where it ran; srun's return code was 0 in the worst of these."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.containers.job import (
    FAIL,
    NOT_MEASURED,
    PASS,
    SCRIPT,
    Place,
    can_run,
    judge_job,
    ready,
    single_out,
)

TOKEN = "0123456789ab"
IN = f"container-job: dgx-01 in={TOKEN}\n"
BARE = "container-job: dgx-01 in=none\n"
# What srun printed on each of these, with return code 0 or 1.
BROKEN = """\
slurmstepd: error: pyxis: unknown configuration option: no_such_option=1
slurmstepd: error: spank: required plugin spank_pyxis.so: init() failed with rc=-1
srun: error: task 0 launch failed: Plugin initialization failed
"""
CLIENT = """\
srun: error: spank: /usr/local/lib/slurm/spank_pyxis.so: Plugin file not found
srun: error: Plug-in initialization failed
"""


def answer(text: str, ended: bool = True) -> tuple[str, str]:
    (only,) = judge_job(text, ["dgx-01"], TOKEN, ended)
    assert only.subject == "node:dgx-01"
    assert "\n" not in only.text
    return only.status, only.text


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (IN, PASS, "ran in the image"),
        ("slurmstepd: info: pyxis: imported\n" + IN, PASS, "ran in the image"),
        (BARE, FAIL, "ran on the bare host"),
        ("container-job: dgx-01 in=ba9876543210\n", FAIL, "another image"),
        (BROKEN, FAIL, "no job starts, whatever srun returns"),
        (CLIENT, FAIL, "Plugin file not found"),
        ("srun: unrecognized option '--container-image=/x'\n", FAIL, "does not know"),
        (
            "srun: error: Something is wrong with the boot of the nodes.\n",
            FAIL,
            "no step starts there",
        ),
        ("", FAIL, "nothing was printed"),
        ("slurmstepd: error: pyxis: failed to create container filesystem\n", FAIL, "filesystem"),
        (
            "srun: error: Unable to allocate resources: Requested nodes are busy\n",
            NOT_MEASURED,
            "busy",
        ),
        (
            "srun: error: Unable to contact slurm controller (connect failure)\n",
            NOT_MEASURED,
            "contact",
        ),
        (
            "srun: error: Unable to confirm allocation for job 7: Connection refused\n",
            NOT_MEASURED,
            "no job could be made",
        ),
        (
            "runuser: user alice does not exist\n",
            NOT_MEASURED,
            "(runuser: user alice does not exist); write another in pyxis_trial_user",
        ),
        (
            "runuser: cannot open session: Permission denied\n",
            NOT_MEASURED,
            "write another in pyxis_trial_user",
        ),
        (
            "runuser: failed to execute srun: No such file or directory\n",
            NOT_MEASURED,
            "no job could be made: runuser: failed to execute srun",
        ),
        ("runuser: warning: cannot change directory to /home/a\n" + BROKEN, FAIL, "plug-in of"),
        ("runuser: warning: cannot change directory to /home/a\n", FAIL, "printed nothing"),
        (
            "srun: job 7 queued\nsrun: error: Node failure on dgx-02\nsrun: Force Terminated\n",
            NOT_MEASURED,
            "ended from outside",
        ),
        ("srun: error: Job allocation 17 has been revoked\n", NOT_MEASURED, "has been revoked"),
        *(
            (
                f"slurmstepd: error: *** STEP 7.0 ON dgx-01 CANCELLED AT 9:00 DUE TO {why} ***\n",
                NOT_MEASURED,
                why,
            )
            for why in ("PREEMPTION", "TIME LIMIT", "NODE FAILURE", "JOB REQUEUE")
        ),
        (
            "slurmstepd: error: *** STEP 7.0 ON dgx-01 CANCELLED AT 2026-11-29T00:00:00 ***\n",
            FAIL,
            "printed nothing",
        ),
    ],
)
def test_text_of_one_node(text: str, status: str, words: str) -> None:
    result = answer(text)
    assert result[0] == status
    assert words in result[1]


def test_a_job_that_hangs_is_not_measured() -> None:
    assert answer("srun: job 7 queued\n", ended=False)[0] == NOT_MEASURED


def test_each_node_for_itself() -> None:
    text = f"{IN}container-job: dgx-02 in=none\n"
    found = {
        a.subject[5:]: a.status for a in judge_job(text, ["dgx-01", "dgx-02", "dgx-03"], TOKEN)
    }
    assert found == {"dgx-01": PASS, "dgx-02": FAIL, "dgx-03": FAIL}


def test_silent_nodes_of_many_are_asked_alone() -> None:
    nodes = ["dgx-01", "dgx-02", "dgx-03", "dgx-04"]
    assert single_out(nodes, IN + BROKEN, 2) == ["dgx-02", "dgx-03"]
    assert single_out(["dgx-01"], BROKEN, 2) == []
    # The fault of one ended the job of all, and the others may answer.
    assert single_out(nodes, IN + "srun: error: Node failure on dgx-02\n", 2) == nodes[1:3]
    assert single_out(nodes, "runuser: user alice does not exist\n", 2) == []
    assert single_out(nodes, "srun: unrecognized option '--container-image=/x'", 2) == []


def test_states() -> None:
    places = ready(
        "dgx-01 idle batch* up\ndgx-01 idle all up\ndgx-01 idle old inact\n"
        "dgx-02 drained* n/a n/a\nnoise\n"
    )
    assert places == {"dgx-01": Place("idle", ["batch*", "all"]), "dgx-02": Place("drained*", [])}
    assert [can_run(state) for state in ("idle", "mixed", "idle*", "drained", "")] == [
        True, True, False, False, False
    ]  # fmt: skip


def test_script_is_one_that_a_bare_host_answers_as_well(tmp_path) -> None:
    import subprocess

    def run() -> str:
        script = SCRIPT.format(marker=tmp_path / "marker")
        done = subprocess.run(
            ["sh", "-c", script],
            env={"SLURMD_NODENAME": "dgx-01"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    assert run() == BARE
    (tmp_path / "marker").write_text(f"{TOKEN}\n")
    assert run() == IN
