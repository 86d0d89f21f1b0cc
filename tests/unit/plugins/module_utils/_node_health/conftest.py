# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated node with the health program's configuration, and its own Slurm."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._core import lock
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health import main as _health_main
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    BUILT_IN,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program

SCONTROL = ROOT / "tests" / "models" / "scontrol.py"
MOUNTINFO = "36 35 98:0 / {} rw,noatime master:1 - nfs4 storage:/home rw\n"
TRACKING = "0A4D0001,10.77.0.1,3,$(date +%s).1,{},0.00001,0.00002,1.5,0.01,0.1,0.001,0.002,64.0,{}"


class Node:
    """dgx-01 as the health program sees it; every part may be broken."""

    def __init__(self, folder: Path, hardware: Any) -> None:
        self.folder, self.hardware = folder, hardware
        self.state, self.tools = folder / "state.d", folder / "bin"
        self.home, self.scratch = folder / "home", folder / "scratch"
        for one in (self.state, self.tools, self.home, self.scratch):
            one.mkdir()
        self.slurm = folder / "slurm.json"
        self.set_slurm()
        self.tool("chronyc", f"echo {TRACKING.format('0.000012', 'Normal')}")
        self.tool(
            "systemctl", "printf 'Id=munge.service\\nLoadState=loaded\\nActiveState=active\\n'"
        )
        self.tool("scontrol", f'exec {sys.executable} -IS {SCONTROL} {self.slurm} "$@"')
        self.tool("squeue", f"test $4 = dgx-01 && cat {folder}/jobs")
        (folder / "jobs").write_text("")
        (folder / "mountinfo").write_text(MOUNTINFO.format(self.home))
        self.fstab = folder / "fstab"
        self.fstab.write_text("")
        self.show_host()
        self.metrics = folder / "textfile" / "node_health.prom"
        self.config: dict[str, Any] = {
            "version": 1,
            "node": "dgx-01",
            "profile": BUILT_IN["dgx_h100"],
            "gpu": {"library": hardware.library, "fabric_manager": hardware.fabric_manager},
            "mounts": [{"path": str(self.home)}],
            "disks": [{"path": str(self.scratch), "free_mib": 1}],
            "services": ["munge.service"],
            "memory_mib": 2000000,
            "cpus": 224,
            "roots": {
                "sysfs": hardware.sysfs,
                "proc": hardware.proc,
                "kernel_log": str(hardware.kernel_log),
                "mountinfo": str(folder / "mountinfo"),
                "fstab": str(self.fstab),
                "units": str(folder / "units"),
            },
            "state_dir": str(self.state),
            "metrics_file": str(self.metrics),
            "scontrol": str(self.tools / "scontrol"),
        }

    def show_host(self, memory_kib: int = 2113536000, cpus: str = "0-223") -> None:
        """Put memory and CPUs beside the simulated PCI."""
        (self.folder / "proc/meminfo").write_text(f"MemTotal:       {memory_kib} kB\n")
        online = self.folder / "sys/devices/system/cpu"
        online.mkdir(parents=True, exist_ok=True)
        (online / "online").write_text(f"{cpus}\n")

    def inject(self, *faults: str) -> None:
        """Put faults into the GPUs; without any they are well again."""
        if faults:
            self.hardware.inject(*faults)
        else:
            self.hardware.state("")
        self.show_host()

    @property
    def config_file(self) -> Path:
        """The configuration as a file."""
        path = self.folder / "node-health.json"
        path.write_text(json.dumps(self.config))
        return path

    def tool(self, name: str, script: str) -> None:
        """Put a program in the place of a tool."""
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def set_slurm(self, state: str = "IDLE", reason: str = "", **more: Any) -> None:
        """Put the node into a state of Slurm."""
        self.slurm.write_text(json.dumps({"dgx-01": {"state": state, "reason": reason}, **more}))

    @property
    def in_slurm(self) -> tuple[str, str]:
        """State and reason."""
        node = json.loads(self.slurm.read_text())["dgx-01"]
        return node["state"], node["reason"]

    @property
    def calls(self) -> list[str]:
        """What Slurm was asked."""
        path = Path(f"{self.slurm}.calls")
        return path.read_text().splitlines() if path.exists() else []

    def run(self, mode: str) -> int:
        """Run a mode in this process (its checks run in children)."""
        return _health_main.main(
            [f"--{mode}", "--config", str(self.config_file), "--state-dir", str(self.state)]
        )

    def records(self, mode: str = "health") -> list[dict[str, Any]]:
        """Records of the last run of a mode."""
        found = json.loads((self.state / f"{mode}.json").read_text())
        assert found["version"] == 1
        assert found["node"] == "dgx-01"
        return found["records"]

    def odd(self, mode: str = "health") -> dict[tuple[str, str], str]:
        """Subject and check of what did not pass -> status."""
        return {
            (one["subject"], one["check"]): one["status"]
            for one in self.records(mode)
            if one["status"] != "pass"
        }


@pytest.fixture
def node(tmp_path: Path, simulated_node: Any, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node that is well, idle and in service."""
    made = Node(tmp_path, simulated_node)
    monkeypatch.setenv("PATH", f"{made.tools}:/usr/bin:/bin")
    return made


@pytest.fixture(autouse=True)
def _own_cache_and_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_HEALTH_CACHE", str(tmp_path / "cache"))
    # Other tests load GPUs meanwhile.
    (tmp_path / "locks").mkdir(mode=0o700)
    monkeypatch.setattr(lock, "_folder", lambda: str(tmp_path / "locks"))


@pytest.fixture(scope="session")
def program_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as it is installed."""
    path = tmp_path_factory.mktemp("program") / "node-health"
    path.write_bytes(program("node-health"))
    path.chmod(0o755)
    return path
