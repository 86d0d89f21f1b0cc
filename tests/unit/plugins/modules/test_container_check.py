# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are asked, as whom, and what of their text; srun and sinfo are models."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import container_check

TOKEN = "0123456789ab"
SINFO = "#!/bin/sh\ncat {states}\n"
# srun that always returns 0, as the real one did; what each node prints is in a file.
SRUN = """\
#!/bin/sh
echo "$@" >> {log}
for word in "$@"; do case "$word" in --nodelist=*) nodes=${{word#*=}} ;; esac; done
cat {folder}/$nodes
"""


@pytest.fixture
def cluster(tmp_path, run_module, monkeypatch):
    """`cluster()` runs the module; `cluster.say(nodes, text)` sets what a job there prints."""

    def run(check=False, **params):
        given = {"nodes": ["dgx-01", "dgx-02"], "image": "/x.sqsh", "token": TOKEN, **params}
        return run_module(container_check.main, given, check)

    run.states, run.log = tmp_path / "states", tmp_path / "log"
    run.states.write_text("dgx-01 idle\ndgx-02 mixed\n")
    run.say = lambda nodes, text: (tmp_path / nodes).write_text(text)
    (tmp_path / "bin").mkdir()
    for name, text in (("sinfo", SINFO), ("srun", SRUN)):
        path = tmp_path / "bin" / name
        path.write_text(text.format(states=run.states, log=run.log, folder=tmp_path))
        path.chmod(0o755)
    run.bin = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{run.bin}:/usr/bin:/bin")
    return run


def line(node: str, token: str = TOKEN) -> str:
    return f"container-job: {node} in={token}\n"


def test_all_in_the_image(cluster):
    cluster.say("dgx-[01-02]", line("dgx-01") + line("dgx-02"))
    result = cluster()
    assert result["passed"] == ["dgx-01", "dgx-02"]
    assert not result["changed"]
    (call,) = cluster.log.read_text().splitlines()
    assert "--container-image=/x.sqsh sh -c" in call
    assert "--nodes=2" in call


def test_bare_host_although_srun_returns_0(cluster):
    cluster.say("dgx-[01-02]", line("dgx-01") + line("dgx-02", "none"))
    result = cluster()
    assert result["failed"]
    (only,) = result["findings"]
    assert only.startswith("node:dgx-02 slurm.container: the job ran on the bare host")
    assert result["msg"] == only


def test_broken_line_although_srun_returns_0(cluster):
    broken = "srun: error: task 1 launch failed: Plugin initialization failed\n"
    cluster.say("dgx-[01-02]", broken)
    cluster.say("dgx-01", line("dgx-01"))
    cluster.say("dgx-02", broken)
    result = cluster()
    # the node beside it is not blamed
    assert result["passed"] == ["dgx-01"]
    (only,) = result["findings"]
    assert only.startswith(
        "node:dgx-02 slurm.container: a plug-in of plugstack.conf cannot be loaded"
    )


def test_nodes_that_take_no_job_are_not_measured(cluster):
    cluster.states.write_text("dgx-01 idle\ndgx-02 drained\n")
    cluster.say("dgx-01", line("dgx-01"))
    result = cluster(fail_on=["fail"])
    assert not result.get("failed")
    assert result["passed"] == ["dgx-01"]
    assert result["not_measured"] == [
        "node:dgx-02 slurm.container not measured: the node is drained"
    ]
    assert cluster()["failed"]


def test_no_user_can_be_asked(cluster):
    cluster.states.write_text("dgx-01 drained\ndgx-02 down*\n")
    result = cluster(fail_on=["fail"])
    assert not result.get("failed")
    assert len(result["not_measured"]) == 2
    assert not cluster.log.exists()


def test_without_slurm(cluster):
    (cluster.bin / "sinfo").write_text("#!/bin/sh\necho 'Unable to contact' >&2\nexit 1\n")
    assert len(cluster()["not_measured"]) == 2


def test_as_another_user(cluster):
    runuser = cluster.bin / "runuser"
    runuser.write_text('#!/bin/sh\nshift; echo "as $1" >> %s; shift 2; exec "$@"\n' % cluster.log)
    runuser.chmod(0o755)
    cluster.say("dgx-[01-02]", line("dgx-01") + line("dgx-02"))
    assert cluster(user="alice", arguments=["--partition=debug"])["passed"]
    who, call = cluster.log.read_text().splitlines()
    assert who == "as alice"
    assert "--partition=debug" in call


def test_check_mode_runs_no_job(cluster):
    assert cluster(check=True)["passed"] == []
    assert not cluster.log.exists()
