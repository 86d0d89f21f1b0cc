# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users and operators of the cluster see, asked of a running pod."""

from __future__ import annotations

import re
import subprocess

import pytest

from .conftest import STATE, dgx_nodes, eventually, node, ssh

NODES = dgx_nodes() if (STATE / "ssh_config").exists() else []
COUNT = len(NODES)

# In a job with two of eight GPUs an allowed device reaches the driver layer (ENXIO: the pod
# has no driver), a forbidden one is refused by the device cgroup (EPERM).
DEVICES = (
    "python3 -c 'import errno\n"
    "for i in range(8):\n"
    '  try: open(f"/dev/nvidia{i}"); answer = "open"\n'
    "  except OSError as error: answer = errno.errorcode[error.errno]\n"
    "  print(i, answer)'"
)


def alice(command: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command as the user alice on the login node."""
    return ssh("login-01", "alice", command, seconds)


def test_sinfo_shows_every_node_idle() -> None:
    def idle() -> bool:
        out = alice("sinfo --noheader --Node --partition=batch --format='%N %T'").stdout
        return sorted(out.split("\n")[:-1]) == [f"{name} idle" for name in NODES]

    eventually(idle, what="every node idle in sinfo")


def test_a_job_over_all_nodes_gets_eight_gpus_on_each() -> None:
    done = alice(
        f"srun -N{COUNT} --gres=gpu:8 --ntasks-per-node=8 "
        "sh -c 'echo $SLURMD_NODENAME $SLURM_LOCALID $CUDA_VISIBLE_DEVICES'"
    )
    assert done.returncode == 0, done.stderr
    expected = [f"{name} {task} 0,1,2,3,4,5,6,7" for name in NODES for task in range(8)]
    assert sorted(done.stdout.splitlines()) == expected


def test_batch_script_and_its_accounting() -> None:
    script = (
        "#!/bin/sh\\n#SBATCH --gres=gpu:8 -N1 -o batch.out\\nhostname; echo $CUDA_VISIBLE_DEVICES"
    )
    submitted = alice(f"printf '{script}\\n' > job.sh && sbatch --parsable job.sh")
    job = submitted.stdout.strip()
    assert job.isdigit(), submitted.stderr

    def recorded() -> bool:
        out = alice(f"sacct --noheader --parsable2 -X -j {job} --format=State,AllocTRES").stdout
        return out.startswith("COMPLETED|") and "gres/gpu=8" in out

    eventually(recorded, what=f"job {job} COMPLETED with gres/gpu=8 in sacct")
    ran_on = alice(f"sacct --noheader --parsable2 -X -j {job} --format=NodeList").stdout.strip()
    assert (
        node(ran_on).file("/home/alice/batch.out").content_string == f"{ran_on}\n0,1,2,3,4,5,6,7\n"
    )


def test_device_cgroup_confines_the_job() -> None:
    done = alice(f"srun -w {NODES[0]} --gres=gpu:2 {DEVICES}")
    assert done.stdout.splitlines() == [f"{i} {'ENXIO' if i < 2 else 'EPERM'}" for i in range(8)], (
        done.stderr
    )


def test_debug_qos_limits_gpus_of_a_user() -> None:
    held = alice(
        "sbatch --parsable --qos=debug --partition=debug --gres=gpu:8 -N1 --wrap 'sleep 120'"
    ).stdout.strip()
    second = alice(
        "sbatch --parsable --qos=debug --partition=debug --gres=gpu:1 -N1 --wrap 'sleep 1'"
    ).stdout.strip()
    try:
        eventually(
            lambda: (
                "QOSMaxGRESPerUser" in alice(f"squeue --noheader -j {second} --format=%r").stdout
            ),
            what="the second job waiting for QOSMaxGRESPerUser",
        )
    finally:
        alice(f"scancel {held} {second}")


def test_account_limit_holds_for_the_group() -> None:
    done = ssh(
        "login-01",
        "bob",
        "srun --immediate=5 --gres=gpu:8 -N1 true && sbatch --parsable -N1 --wrap true",
    )
    assert done.returncode == 0, done.stderr
    refused = ssh("login-01", "bob", f"srun --qos=debug -N{COUNT} true")
    assert "Invalid qos specification" in refused.stderr


def test_ssh_without_a_job_is_refused() -> None:
    eventually(lambda: alice("squeue --noheader --me").stdout == "", what="no job of alice left")
    done = ssh(NODES[0], "alice", "echo IN")
    assert done.returncode != 0
    assert "IN" not in done.stdout
    assert ssh(NODES[0], "root", "echo IN").stdout == "IN\n"


def test_ssh_with_a_job_lands_in_it_and_ends_with_it() -> None:
    job = alice(
        f"sbatch --parsable -w {NODES[0]} --gres=gpu:2 -o /dev/null --wrap 'sleep 300'"
    ).stdout.strip()
    try:
        eventually(
            lambda: alice(f"squeue --noheader -j {job} --format=%T").stdout == "RUNNING\n",
            what="job running",
        )
        seen = ssh(NODES[0], "alice", DEVICES)
        assert seen.stdout.splitlines() == [
            f"{i} {'ENXIO' if i < 2 else 'EPERM'}" for i in range(8)
        ], seen.stderr
        assert ssh(NODES[0], "bob", "echo IN").returncode != 0
        login = subprocess.Popen(
            [
                "ssh",
                "-F",
                str(STATE / "ssh_config"),
                "-o",
                "ControlPath=none",
                f"alice@{NODES[0]}",
                "sleep 250",
            ],
            stdin=subprocess.DEVNULL,
        )
        eventually(
            lambda: node(NODES[0]).run("pgrep -u alice -f 'sleep 250'").rc == 0,
            what="alice logged in",
        )
        alice(f"scancel {job}")
        eventually(
            lambda: node(NODES[0]).run("pgrep -u alice -f 'sleep 250'").rc == 1,
            what="the login ended",
        )
        assert login.wait(timeout=30) != 0
    finally:
        alice(f"scancel {job}")


@pytest.mark.parametrize("name", ["head-01", "login-01", *NODES])
def test_no_secret_is_readable_by_everyone(name: str) -> None:
    secrets = {path.name: path.read_text(encoding="utf-8").strip() for path in secret_files()}
    assert secrets, "the run made no secrets, so this test would prove nothing"
    host = node(name)
    for secret, text in secrets.items():
        host.run("umask 077; printf '%%s' %s > /run/pattern", text)
        found = host.run(
            "find /etc /var /tmp /home /root /run -xdev -type f ! -path /run/pattern -perm -o=r "
            "-exec grep -lsF -f /run/pattern {} +"
        )
        host.run("rm /run/pattern")
        assert found.stdout == "", f"{secret} is in a file that everyone can read"
        assert text not in host.run("journalctl --no-pager").stdout


def secret_files() -> list:
    """Return the files of the controller that hold what was generated."""
    return sorted((STATE / "inventory" / ".dgx" / "secrets").glob("*"))


def test_secrets_on_the_controller_are_private() -> None:
    for path in secret_files():
        assert path.stat().st_mode & 0o077 == 0, path
        assert path.parent.stat().st_mode & 0o077 == 0, path.parent
        assert re.fullmatch(r"\S{16,}\s*", path.read_text(encoding="utf-8")), path
