# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A repository of copies on a host of the pod, by sftp, as the inventory names it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from .conftest import CHECKOUT, INVENTORY, POD, on

HEAD = "head-01"
VALUES = INVENTORY / "group_vars" / "all" / "backup.yml"
TIMERS = "baremetal-dgx-backup.timer baremetal-dgx-backup-proof.timer"


def ask(script: str, node: str = HEAD, seconds: float = 60) -> str:
    """Return what a script on a node writes; it must succeed."""
    done = on(node, script, seconds)
    assert done.returncode == 0, f"{script}: {done.stderr}"
    return done.stdout


def pod(*arguments: str) -> None:
    """Run virtual_pod/pod."""
    command = [str(CHECKOUT / "virtual_pod" / "pod"), *arguments]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def lose(host: str) -> None:
    """Remove a host of the pod with all that it has, and boot an empty one in its place."""
    pod("down", "--name", POD, host)
    pod("up", "--name", POD)


@contextmanager
def repository(store: str, folder: Path) -> Iterator[None]:
    """Make a repository on a host, and a key for it in this folder."""
    key = folder / "key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    public = Path(f"{key}.pub").read_text(encoding="utf-8").strip()
    ask(
        "id backup-copies >/dev/null 2>&1 || useradd -m -s /bin/sh backup-copies;"
        " rm -rf /srv/copies ~backup-copies/.ssh;"
        " install -d -o backup-copies -m 0700 /srv/copies ~backup-copies/.ssh;"
        f" echo '{public}' > ~backup-copies/.ssh/authorized_keys;"
        " chown backup-copies: ~backup-copies/.ssh/authorized_keys",
        store,
    )
    host_key = ask("cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub", store).strip()
    values = {
        # A repository that was there and is gone is not made again.
        "backup_repository": f"sftp:backup-copies@{store}:/srv/copies/{time.time_ns()}",
        "backup_ssh_key": key.read_text(encoding="utf-8"),
        "backup_ssh_known_hosts": f"{store} {host_key}",
    }
    VALUES.write_text(yaml.safe_dump(values), encoding="utf-8")
    yield
    on(HEAD, f"systemctl disable --now {TIMERS}")
    # The passphrase stays: hosts that have it refuse another one for the next repository.
    VALUES.unlink()
