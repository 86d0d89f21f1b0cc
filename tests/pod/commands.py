# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command of a page as it is there, where its prompt says.

Nothing in a command is replaced but JOB, which is the number of the last job. INVENTORY and
my_cluster are links to the pod's inventory in the directory where commands run, ssh is a script
that gives ssh the pod's settings, and ~ is a home whose collections are those of the demo. What
begins with `make` runs in the checkout.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from page_commands import Command, Row

from .conftest import CHECKOUT, INVENTORY, POD, STATE, environment

WORK = CHECKOUT / ".cache" / "demo" / POD
LOG = WORK / "log"
# Prompts of users' machines.
NAMES = {"login": "alice@login-01", "dgx-01": "alice@dgx-01"}


@dataclass
class Shell:
    """Where the commands of the pages are run."""

    folder: Path
    job: str = "JOB"

    def __post_init__(self) -> None:
        for name in ("bin", "home/.ansible"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "INVENTORY").symlink_to(INVENTORY)
        (self.folder / "home/.ansible/collections").symlink_to(WORK / "collections")
        ssh = self.folder / "bin" / "ssh"
        config = shlex.quote(str(STATE / "ssh_config"))
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} ${{SSH_AS:+-l $SSH_AS}} "$@"\n')
        ssh.chmod(0o755)

    def run(self, command: Command, seconds: float = 3600) -> tuple[int, str]:
        """Return exit status and output of a command."""
        text = re.sub(r"\bJOB\b", self.job, command.text)
        env = environment() | {
            "HOME": str(self.folder / "home"),
            "PATH": f"{self.folder}/bin:{CHECKOUT}/.venv/bin:{os.environ['PATH']}",
            "POD_NAME": POD,
        }
        argv = ["bash", "-c", text]
        if command.prompt == "laptop":
            env["SSH_AS"] = "alice"
        elif command.prompt:
            user, _at, host = NAMES.get(command.prompt, command.prompt).rpartition("@")
            terminal = ["-tt"] if "--pty" in text else []
            argv = [f"{self.folder}/bin/ssh", *terminal, "-l", user or "root", host, text]
        done = subprocess.run(
            argv,
            env=env,
            cwd=CHECKOUT if text.startswith("make ") else self.folder,
            # leaves the shell that some of them open
            input="exit\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        if job := re.search(r"(?:job allocation|batch job) (\d+)", done.stdout):
            self.job = job[1]
        return done.returncode, done.stdout

    def check(self, command: Command, row: Row) -> str:
        """Run a command, which succeeds and shows what the page shows; return its output."""
        until = time.monotonic() + (60 if row.settles else 0)
        while True:
            status, output = (0, LOG.read_text(encoding="utf-8")) if row.log else self.run(command)
            assert status == 0, f"{command.text}\n{output[-6000:]}"
            lost = [one for one in row.shows if one not in output]
            if not lost or time.monotonic() > until:
                break
            time.sleep(2)
        assert not lost, f"{command.text}: does not show {lost}\n{output[-6000:]}"
        return output
