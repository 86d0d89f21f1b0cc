# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are asked, as whom, and what of their text; srun and sinfo are models."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import container_check

TOKEN = "0123456789ab"
SINFO = "#!/bin/sh\ncat {states}\n"
# srun that returns 0 where the real one did; what the nodes of a partition print is in a file.
SRUN = """\
#!/bin/sh
echo "$@" >> {log}
partition=batch
for word in "$@"
do case "$word" in --nodelist=*) nodes=${{word#*=}} ;; --partition=*) partition=${{word#*=}} ;; esac
done
cat {folder}/$partition:$nodes 2>/dev/null && exit
echo "srun: error: Unable to allocate resources: Requested nodes not in this partition" >&2
exit 1
"""
MIXED = """\
dgx-01 idle batch* up
dgx-01 idle old down
dgx-02 idle h200 up
dgx-03 idle h200 up
dgx-03 idle all up
"""


@pytest.fixture
def cluster(tmp_path, run_module, monkeypatch):
    """`cluster()` runs the module; `cluster.say(nodes, text)` sets what a job there prints.

    Its partition is batch, unless a third argument names another one.
    """

    def run(check=False, **params):
        given = {"nodes": ["dgx-01", "dgx-02"], "image": "/x.sqsh", "token": TOKEN, **params}
        return run_module(container_check.main, given, check)

    run.states, run.log = tmp_path / "states", tmp_path / "log"
    run.states.write_text("dgx-01 idle batch* up\ndgx-02 mixed batch* up\n")
    run.say = lambda nodes, text, part="batch": (tmp_path / f"{part}:{nodes}").write_text(text)
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
    cluster.states.write_text("dgx-01 idle batch* up\ndgx-02 drained batch* up\n")
    cluster.say("dgx-01", line("dgx-01"))
    result = cluster(fail_on=["fail"])
    assert not result.get("failed")
    assert result["passed"] == ["dgx-01"]
    assert result["not_measured"] == [
        "node:dgx-02 slurm.container not measured: the node is drained"
    ]
    assert cluster()["failed"]


def test_no_user_can_be_asked(cluster):
    cluster.states.write_text("dgx-01 drained batch* up\ndgx-02 down* batch* up\n")
    result = cluster(fail_on=["fail"])
    assert not result.get("failed")
    assert len(result["not_measured"]) == 2
    assert result["warnings"] == []
    assert not cluster.log.exists()


def test_each_partition_has_a_job(cluster):
    """Nodes of two in one job are refused: Requested nodes not in this partition."""
    cluster.states.write_text(MIXED)
    cluster.say("dgx-01", line("dgx-01"))
    cluster.say("dgx-[02-03]", line("dgx-02") + line("dgx-03"), "h200")
    nodes = ["dgx-01", "dgx-02", "dgx-03"]
    result = cluster(nodes=nodes)
    assert result["passed"] == nodes
    assert result["warnings"] == []
    first, second = cluster.log.read_text().splitlines()
    assert "--partition" not in first, "the default one is taken by srun itself"
    assert "--partition=h200" in second
    cluster.say("dgx-[02-03]", line("dgx-02") + line("dgx-03", "none"), "h200")
    (only,) = cluster(nodes=nodes)["findings"]
    assert only.startswith("node:dgx-03 slurm.container: the job ran on the bare host")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--partition=h200"], "h200"),
        (["--partition", "h200"], "h200"),
        (["--account=ops", "-p", "h200"], "h200"),
        (["-ph200"], "h200"),
        (["--partition=gone,h200"], "gone,h200"),
    ],
)
def test_a_partition_that_is_named_is_asked_alone(cluster, arguments, named):
    cluster.states.write_text(MIXED)
    cluster.say("dgx-[02-03]", line("dgx-02") + line("dgx-03"), "h200")
    nodes = ["dgx-01", "dgx-02", "dgx-03"]
    result = cluster(nodes=nodes, arguments=arguments, fail_on=["fail"])
    assert result["passed"] == ["dgx-02", "dgx-03"]
    (other,) = result["not_measured"]
    assert other == (
        f"node:dgx-01 slurm.container not measured: the arguments name partition {named}, "
        "which takes no jobs on this node"
    )


def test_a_default_partition_that_is_down_is_not_asked(cluster):
    cluster.states.write_text(
        "dgx-01 idle batch* down\ndgx-01 idle all up\ndgx-02 idle batch* down\n"
    )
    cluster.say("dgx-01", line("dgx-01"), "all")
    result = cluster(fail_on=["fail"])
    assert result["passed"] == ["dgx-01"]
    (other,) = result["not_measured"]
    assert other.endswith("not measured: no partition of the node takes jobs")


def test_idle_nodes_of_which_none_was_measured_are_a_warning(cluster):
    result = cluster(fail_on=["fail"])
    assert not result.get("failed")
    assert result["passed"] == []
    (warning,) = result["warnings"]
    assert warning == (
        "no container was tried, although nodes are idle (dgx-01): no job could be made: "
        "srun: error: Unable to allocate resources: Requested nodes not in this partition"
    )


def test_without_slurm(cluster):
    (cluster.bin / "sinfo").write_text("#!/bin/sh\necho 'Unable to contact' >&2\nexit 1\n")
    assert len(cluster()["not_measured"]) == 2


def test_as_another_user(cluster):
    runuser = cluster.bin / "runuser"
    runuser.write_text('#!/bin/sh\nshift; echo "as $1" >> %s; shift 2; exec "$@"\n' % cluster.log)
    runuser.chmod(0o755)
    cluster.say("dgx-[01-02]", line("dgx-01") + line("dgx-02"))
    assert cluster(user="alice", arguments=["--account=ops"])["passed"]
    who, call = cluster.log.read_text().splitlines()
    assert who == "as alice"
    assert "--account=ops" in call


def test_check_mode_runs_no_job(cluster):
    assert cluster(check=True)["passed"] == []
    assert not cluster.log.exists()
