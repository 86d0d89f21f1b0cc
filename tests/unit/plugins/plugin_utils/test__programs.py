# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collectors as one file each: they run with nothing but Python, and cost little."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from exposition_text import read, value
from slurm_use_texts import ANSWERS

from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program

pytestmark = pytest.mark.slow


def installed(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(program(name, sys.executable))
    path.chmod(0o755)
    return path


def run(path: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(path), *words],
        env={"PATH": os.environ["PATH"], **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("name", ["fabric-metrics", "slurm-metrics"])
def test_it_is_whole_and_always_the_same(name: str, tmp_path: Path) -> None:
    program.cache_clear()
    first = program(name, sys.executable)
    program.cache_clear()
    assert program(name, sys.executable) == first
    done = run(installed(tmp_path, name), "--help")
    assert done.returncode == 0, done.stderr
    assert "--check-config" in done.stdout
    # -I and -S: nothing of the host's Python but the standard library.
    done = run(installed(tmp_path, name), "--config", "/nonexistent")
    assert done.returncode == 3
    assert "nonexistent" in done.stderr
    assert "Traceback" not in done.stderr


def pretend_slurm(folder: Path) -> None:
    """Write commands that print what Slurm's do."""
    for name in ("scontrol", "squeue", "sdiag", "sacctmgr", "sshare"):
        texts = {
            key.partition(" ")[2]: text for key, text in ANSWERS.items() if key.split()[0] == name
        }
        cases = ""
        for word, text in texts.items():
            (folder / f"{name}.{word}").write_text(text)
            cases += f"{word or '*'}) cat {folder}/{name}.{word} ;;\n"
        path = folder / name
        path.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n')
        path.chmod(0o755)


def test_a_run_of_the_slurm_collector(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    pretend_slurm(tools)
    target = tmp_path / "text" / "baremetal_dgx_slurm.prom"
    config = tmp_path / "config.json"
    settings = {"version": 1, "host": "head-01", "metrics_file": str(target), "timeout_s": 5}
    config.write_text(json.dumps(settings))
    path = installed(tmp_path, "slurm-metrics")
    began = time.monotonic()
    done = run(path, "--config", str(config), PATH=f"{tools}:{os.environ['PATH']}")
    took = time.monotonic() - began
    assert (done.returncode, done.stderr) == (0, "")
    found = read(target.read_text())
    assert value(found, "slurm_jobs_running") == 1
    used = value(found, "baremetal_dgx_slurm_run_cpu_seconds")
    assert used is not None
    print(f"slurm-metrics: {used:.2f} s of processor time, {took:.2f} s")
    # At one run a minute this is less than 1 % of a core of the controller.
    assert used < 0.6


def test_a_command_that_hangs_costs_only_its_limit(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    pretend_slurm(tools)
    (tools / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    target, config = tmp_path / "a.prom", tmp_path / "config.json"
    settings = {"version": 1, "host": "head-01", "metrics_file": str(target), "timeout_s": 1}
    config.write_text(json.dumps(settings))
    began = time.monotonic()
    path = installed(tmp_path, "slurm-metrics")
    done = run(path, "--config", str(config), PATH=f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 3
    assert "squeue" in done.stderr
    assert time.monotonic() - began < 15
    found = read(target.read_text())
    assert value(found, "baremetal_dgx_slurm_command_ok", command="squeue") == 0
    assert value(found, "slurm_nodes") == 4
    assert value(found, "slurm_jobs") is None
