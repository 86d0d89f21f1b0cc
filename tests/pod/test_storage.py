# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CephFS on a live pod: what breaks is reported, nothing hangs, nothing acknowledged is lost.

Ceph is real, and so is ceph-fuse; a container's kernel has no ceph. Needs a pod with stor-01.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from .conftest import CHECKOUT, INVENTORY, POD, environment, on, playbook

STORAGE = "stor-01"
HOME, SCRATCH = "/cluster/home", "/cluster/scratch"
# Appends numbered lines and says on the node's own disk which of them were acknowledged.
WRITER = f"""\
import os, time
file = os.open("{SCRATCH}/acknowledged", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
log = open("/run/acknowledged", "w")
for number in range(10**6):
    os.write(file, b"%08d\\n" % number)
    os.fsync(file)
    log.seek(0)
    log.write("%d\\n" % number)
    log.flush()
    time.sleep(0.05)
"""


@pytest.fixture(scope="module", autouse=True)
def mounted() -> None:
    """See that there is storage, and that all is mounted."""
    listing = subprocess.run(
        [str(CHECKOUT / "virtual_pod" / "pod"), "status", "--name", POD],
        capture_output=True,
        text=True,
        check=False,
    )
    if STORAGE not in listing.stdout:
        pytest.skip(f"the pod {POD} has no {STORAGE}")
    done = playbook("mount_storage")
    assert done.rc == 0, done.why


def gpu_nodes() -> list[str]:
    """First and last of the nodes that mount."""
    text = subprocess.run(
        ["ansible-inventory", "-i", str(INVENTORY), "--list"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = sorted(json.loads(text)["gpu_nodes"]["hosts"])
    assert len(names) > 1, "two nodes are needed"
    return [names[0], names[-1]]


def wait_for(what: str, test: Callable[[], bool], seconds: float) -> float:
    """Return after how many seconds it came true."""
    begun = time.monotonic()
    while not test():
        assert time.monotonic() - begun < seconds, f"not in {seconds:g} s: {what}"
        time.sleep(1)
    return time.monotonic() - begun


def answers(node: str, path: str = HOME) -> bool:
    """Return whether a mount takes a file."""
    script = f"findmnt {path} > /dev/null && timeout -k 1 10 touch {path}/.alive"
    return on(node, script).returncode == 0


def canary(node: str, *options: str) -> tuple[int, float, str]:
    """Run the canary as a task: exit status, seconds, output."""
    asked = {"name": "scratch", "path": SCRATCH, "limit_s": 8}
    begun = time.monotonic()
    done = subprocess.run(
        [
            "ansible",
            node,
            "-i",
            str(INVENTORY),
            "-m",
            "baremetal.dgx.mount_check",
            "-a",
            json.dumps({"mounts": [asked]}),
            *options,
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, time.monotonic() - begun, done.stdout


def statuses(output: str) -> dict[str, str]:
    """Return check -> status of the canary's records."""
    records = json.loads(output[output.index("=> {") + 3 :])["records"]
    return {record["check"]: record["status"] for record in records}


@pytest.fixture
def writer() -> Iterator[Callable[[], int]]:
    """A writer on the first node; calling it returns the last number that was acknowledged."""
    first, last = gpu_nodes()
    on(first, f"rm -f {SCRATCH}/acknowledged /run/acknowledged")
    begun = on(
        first, f"cat > /run/writer.py <<'END'\n{WRITER}END\n"
        "systemd-run --quiet --unit=writer --collect python3 /run/writer.py"
    )  # fmt: skip
    assert begun.returncode == 0, begun.stderr

    def acknowledged() -> int:
        return int(on(first, "cat /run/acknowledged").stdout.strip() or -1)

    wait_for("the writer writes", lambda: acknowledged() > 5, 30)
    yield acknowledged
    on(first, "systemctl kill -s KILL writer; rm -f /run/writer.py")
    # From the other node: what it reads has left the first one.
    count = acknowledged()
    wait_for("the file can be read", lambda: answers(last, SCRATCH), 90)
    lines = on(last, f"cat {SCRATCH}/acknowledged", 120).stdout.split()
    whole = [int(line) for line in lines if len(line) == 8]
    assert whole == list(range(len(whole)))
    assert len(whole) > count, f"acknowledged up to {count}, found {len(whole)}"
    on(last, f"rm -f {SCRATCH}/acknowledged")


def test_a_second_run_changes_nothing_with_and_without_check_mode() -> None:
    for options in ([], ["--check"]):
        done = playbook("mount_storage", *options)
        assert done.rc == 0, done.why
        assert set(done.changed.values()) == {0}, done.why


def test_the_client_is_said_and_keys_are_nowhere_but_in_their_files() -> None:
    first, _last = gpu_nodes()
    done = playbook("mount_storage", "-vv", "--diff")
    assert "ceph-fuse (kernel" in done.output or "the kernel's client" in done.output
    key = on(first, "cat /etc/ceph/ceph.client.node.secret").stdout.strip()
    assert len(key) == 40
    assert key not in done.output
    modes = on(first, "stat -c %a:%U /etc/ceph/ceph.client.*").stdout.split()
    assert set(modes) == {"600:root"}
    seen = on(
        first, "cat /etc/systemd/system/cluster-*.mount /proc/*/cmdline | tr '\\0' ' '"
    ).stdout
    assert "cluster-" not in key
    assert key not in seen
    assert "Where=/cluster/home" in seen


def test_one_node_reads_what_another_wrote() -> None:
    first, last = gpu_nodes()
    script = f"head -c 20000000 /dev/urandom | tee {SCRATCH}/shared | sha256sum"
    written = on(first, script).stdout
    assert on(last, f"sha256sum < {SCRATCH}/shared").stdout == written != ""
    on(last, f"rm {SCRATCH}/shared")


def test_a_killed_metadata_server_loses_nothing(writer: Callable[[], int]) -> None:
    before = writer()
    on(
        STORAGE,
        "systemctl kill -s KILL ceph-mds@stor-01; sleep 5; systemctl start ceph-mds@stor-01",
    )
    took = wait_for("writing goes on", lambda: writer() > before + 20, 180)
    print(f"writing went on {took:.0f} s after the metadata server was killed")


def test_a_cut_network_hangs_no_task_and_loses_nothing(writer: Callable[[], int]) -> None:
    first, _last = gpu_nodes()
    address = on(STORAGE, "hostname -I").stdout.split()[0]
    device = on(first, f"ip -o route get {address}").stdout.split(" dev ")[1].split()[0]
    # Frames to an address that no host has: nothing is refused, nothing comes back.
    cut = f"ip neigh replace {address} lladdr 02:00:00:00:00:99 dev {device} nud permanent"
    assert on(first, cut).returncode == 0
    begun = time.monotonic()
    try:
        rc, took, output = canary(first)
        assert rc != 0
        assert took < 40
        assert statuses(output) == {"storage.mounted": "pass", "storage.write": "not_measured"}
        stopped = writer()
        done = playbook("mount_storage", "--limit", first, seconds=200)
        assert done.rc != 0
        assert f"{SCRATCH} is mounted but has not answered" in done.output
        time.sleep(max(0.0, 60 - (time.monotonic() - begun)))
    finally:
        on(first, f"ip neigh del {address} dev {device}")
    took = wait_for("writing goes on", lambda: writer() > stopped + 20, 120)
    print(f"writing went on {took:.0f} s after the network was back")
    assert canary(first)[0] == 0


def test_a_mount_without_a_monitor_fails_in_time_and_comes_by_itself() -> None:
    first, _last = gpu_nodes()
    on(first, "systemctl stop cluster-home.mount")
    on(STORAGE, "systemctl stop ceph-mon@stor-01")
    try:
        begun = time.monotonic()
        done = playbook("mount_storage", "--limit", first, seconds=300)
        assert done.rc != 0
        assert "no monitor answers" in done.output
        assert time.monotonic() - begun < 200
    finally:
        on(STORAGE, "systemctl start ceph-mon@stor-01")
    took = wait_for("the mount is back", lambda: answers(first), 180)
    print(f"the mount was back {took:.0f} s after the monitor")


def test_a_wrong_key_is_said_and_the_right_one_repairs_it() -> None:
    first, _last = gpu_nodes()
    wrong = "AQAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAA=="
    extra = json.dumps({"cephfs_keys": {"node": wrong}})
    try:
        done = playbook("mount_storage", "--limit", first, "-e", extra, seconds=300)
        assert done.rc != 0
        assert "the cluster refuses the key" in done.output
        assert wrong not in done.output.replace(extra, "")
    finally:
        done = playbook("mount_storage")
    assert done.rc == 0, done.why
    assert answers(first)
    assert answers(first, SCRATCH)


def test_a_full_quota_is_a_record_with_its_remedy() -> None:
    first, _last = gpu_nodes()
    try:
        # The small blocks take what is too little for a large one.
        full = on(
            first,
            f"dd if=/dev/zero of={SCRATCH}/full bs=1M count=400 conv=fsync; "
            f"dd if=/dev/zero of={SCRATCH}/full.1 bs=1k count=4000 conv=fsync",
            180,
        )
        assert "Disk quota exceeded" in full.stderr

        def refused() -> bool:
            # Each client enforces it itself. Others learn it late, and may write on for minutes.
            rc, _took, output = canary(first)
            return rc != 0 and "over its quota" in output and "raise the quota" in output

        wait_for("the quota is felt", refused, 60)
        assert statuses(canary(first)[2])["storage.write"] == "fail"
    finally:
        on(first, f"rm -f {SCRATCH}/full*")
    wait_for("there is room again", lambda: canary(first)[0] == 0, 60)


def test_a_killed_ceph_fuse_is_started_again_by_the_node() -> None:
    first, _last = gpu_nodes()
    killed = on(first, "pkill -KILL -f '[c]eph-fuse.* /cluster/home'")
    assert killed.returncode == 0
    took = wait_for("the mount is back", lambda: answers(first), 120)
    print(f"the mount was back {took:.0f} s after its ceph-fuse was killed")


def test_a_node_boots_to_its_end() -> None:
    """What comes after the mounts is started, slurmd among it, and no job of the boot waits on."""
    node = "dgx-03"
    pod = [str(CHECKOUT / "virtual_pod" / "pod"), "podman", "--name", POD]
    subprocess.run([*pod, "restart", "-t", "5", f"{POD}-{node}"], check=True, capture_output=True)
    until, state = time.monotonic() + 60, ""
    while state not in ("running", "degraded") and time.monotonic() < until:
        time.sleep(1)
        state = on(node, "systemctl is-system-running").stdout.strip()
    assert state in ("running", "degraded"), on(node, "systemctl list-jobs --after").stdout
    active = on(node, "systemctl is-active slurmd cluster-home.mount").stdout
    assert active.split() == ["active", "active"]


def test_a_mount_in_use_is_not_removed_and_the_user_is_named() -> None:
    first, _last = gpu_nodes()
    listed = json.loads(
        subprocess.run(
            ["ansible-inventory", "-i", str(INVENTORY), "--host", first],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )["cephfs_mounts"]
    only = [mount for mount in listed if mount["mountpoint"] != HOME]
    less = ["--limit", first, "-e", json.dumps({"cephfs_mounts": only})]
    on(first, f"systemd-run --quiet --unit=user --collect -p WorkingDirectory={HOME} sleep 600")
    try:
        done = playbook("mount_storage", *less)
        assert done.rc != 0
        assert re.search(r"in use by sleep \(pid \d+, uid 0\)", done.output), done.output[-2000:]
        assert answers(first)
    finally:
        on(first, "systemctl stop user")
    done = playbook("mount_storage", *less)
    assert done.rc == 0, done.why
    left = on(first, "ls /etc/systemd/system; findmnt -n -o TARGET -t fuse.ceph-fuse,ceph")
    assert "cluster-home.mount" not in left.stdout
    assert SCRATCH in left.stdout
    assert HOME not in left.stdout
    assert set(playbook("mount_storage", *less).changed.values()) == {0}
    assert playbook("mount_storage").rc == 0
    assert answers(first)


def test_a_home_on_a_mount_is_made_once_by_all_nodes_at_once() -> None:
    first, last = gpu_nodes()
    home = f"{SCRATCH}/homes/carol"
    key = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43} carol"
    carol = {"name": "carol", "uid": 2901, "home": home, "ssh_keys": [key]}
    reported = ["-e", json.dumps({"node_base_users": [carol], "cluster_user_directory": True})]
    try:
        done = playbook("mount_storage", *reported)
        assert done.rc == 0, done.why
        for node in (first, last):
            assert on(node, f"stat -c '%U %a' {home}").stdout == "carol 700\n"
            assert on(node, f"cat {home}/.ssh/authorized_keys").stdout == f"{key}\n"
        assert on(first, f"ls -A {SCRATCH}/homes").stdout == "carol\n"
        assert set(playbook("mount_storage", *reported).changed.values()) == {0}
    finally:
        carol |= {"state": "absent"}
        gone = {"users": [carol]}
        subprocess.run(
            ["ansible", "cluster", "-i", str(INVENTORY), "-m", "baremetal.dgx.system_accounts",
             "-a", json.dumps(gone)],
            env=environment(), capture_output=True, check=False,
        )  # fmt: skip
        on(first, f"rm -rf {SCRATCH}/homes")
