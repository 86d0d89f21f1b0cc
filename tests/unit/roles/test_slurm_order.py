# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is upgraded asks first whether the daemon that it reports to was upgraded."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from role_render import ROLES, played

# scontrol of 24.11 (shortened); sacctmgr prints its own release before the daemon's
SCONTROL = (
    "Configuration data as of 2026-11-27\nSLURM_CONF = /etc/slurm\nSLURM_VERSION           = {}\n"
)
SACCTMGR = (
    "SLURM_VERSION          = 24.11.5\n\nSlurmDBD configuration:\nSLURMDBD_VERSION       = {}\n"
)
# host → whom it asks, its own daemon, whether that runs, what its command prints (None: it fails)
ASKED = {
    "upgraded": ("slurmctld", "slurmd.service", True, SCONTROL.format("26.05.1")),
    "newer": ("slurmctld", "slurmd.service", True, SCONTROL.format("26.11.0")),
    "older": ("slurmctld", "slurmd.service", True, SCONTROL.format("24.11.5")),
    "silent": ("slurmctld", "slurmd.service", True, None),
    "unreadable": ("slurmctld", "slurmd.service", True, "nothing of it\n"),
    "dead": ("slurmctld", "slurmd.service", False, SCONTROL.format("24.11.5")),
    "commands_alone": ("slurmctld", "", False, SCONTROL.format("24.11.5")),
    "controller": ("slurmdbd", "slurmctld.service", True, SACCTMGR.format("26.05.0")),
    "old_database": ("slurmdbd", "slurmctld.service", True, SACCTMGR.format("25.11.2")),
    "without_command": ("slurmctld", "", False, ""),
}
REFUSED = {"older", "silent", "unreadable", "commands_alone", "old_database"}


def _tools(folder: Path, ahead: str, runs: bool, prints: str | None) -> None:
    folder.mkdir()
    named = "sacctmgr" if ahead == "slurmdbd" else "scontrol"
    programs = {
        "systemctl": f"exit {0 if runs else 3}",
        named: "exit 1" if prints is None else f"cat <<'EOF'\n{prints}EOF",
    }
    if prints == "":
        del programs[named]
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    # Nothing else is in PATH: the machine may have Slurm's commands.
    for name in ("sh", "timeout", "cat"):
        (folder / name).symlink_to(str(shutil.which(name)))


def test_nothing_is_newer_than_the_daemon_that_it_reports_to(tmp_path: Path) -> None:
    hosts = {}
    for host, (ahead, daemon, runs, prints) in ASKED.items():
        _tools(tmp_path / host, ahead, runs, prints)
        hosts[host] = {"__slurm_base_ahead": ahead, "__slurm_base_daemon": daemon}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"PATH": f"{tmp_path}/{{{{ inventory_hostname }}}}"},
        "vars": {"slurm_base_version": "26.05"},
        "tasks": [{"include_tasks": str(ROLES / "slurm_base/tasks/order.yml")}],
    }
    done = played(tmp_path, hosts, play)
    failed = dict(re.findall(r"^(\S+)\s+: .*failed=(\d)", done.stdout, re.MULTILINE))
    assert set(failed) == set(ASKED), done.stdout + done.stderr
    assert {host for host, count in failed.items() if count != "0"} == REFUSED, done.stdout
    assert "but slurmctld that this host asks is of release 24.11" in done.stdout
    assert "but slurmdbd that this host asks is of release 25.11" in done.stdout
    assert "is of release unknown" in done.stdout
