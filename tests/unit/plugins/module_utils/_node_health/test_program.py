# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one file that the nodes get: what it needs, what it costs, and what a broken one does."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program

pytestmark = pytest.mark.slow

KEPT = ("SIMULATED_HARDWARE", "PATH", "NODE_HEALTH_CACHE")
# What Slurm is given: only the status that nothing else has is a broken node.
PROLOG = '{} --prolog --config {} --state-dir {}; [ "$?" -ne 10 ]'


def run(program_file, node, mode, config=None):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    done = subprocess.run(
        [str(program_file), f"--{mode}", "--config", str(config or node.config_file),
         "--state-dir", str(node.state)],
        env={name: os.environ[name] for name in KEPT},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done, cpu, time.monotonic() - begun


def test_it_is_the_same_file_each_time(program_file):
    assert program("node-health") == program_file.read_bytes()
    assert program_file.stat().st_size < 206_000


@pytest.mark.parametrize("mode", ["health", "prolog", "epilog", "timer"])
def test_it_runs_alone_within_its_limits(program_file, node, mode, slowness):
    """Without site packages, and the second time with what Python has kept compiled."""
    run(program_file, node, mode)
    cpu, wall = [], []
    for _attempt in range(4):
        done, cpu_s, wall_s = run(program_file, node, mode)
        assert done.returncode == 0, done.stderr
        slow = slowness()
        print(f"{mode}: {cpu_s:.2f} s of processor, {wall_s:.2f} s, {slow:.1f} times the usual")
        cpu.append(cpu_s / slow)
        wall.append(wall_s / slow)
    assert min(cpu) < 0.5
    if mode == "prolog":
        assert min(wall) < 2


def test_metrics_are_whole_and_of_the_right_form(program_file, node):
    node.inject("nvlink_down")
    done, _cpu, _wall = run(program_file, node, "timer")
    assert done.returncode == 10
    lines = node.metrics.read_text().splitlines()
    finding = (
        'baremetal_dgx_health_finding{check="gpu.nvlink_active",subject="gpu:dgx-01/6",'
        'status="fail"} 1'
    )
    assert finding in lines
    assert "baremetal_dgx_health_checker_ok 1" in lines
    assert 'baremetal_dgx_health_records{status="fail"} 1' in lines
    samples = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    assert all(float(line.rpartition(" ")[2]) >= 0 for line in lines if not line.startswith("#"))
    assert list(node.metrics.parent.iterdir()) == [node.metrics]


@pytest.mark.parametrize("cut", [0, 30, 5000, -1000])
def test_a_program_that_was_cut_short_fails_no_node(program_file, node, tmp_path, cut):
    node.inject("nvlink_down")
    broken = tmp_path / "broken"
    broken.write_bytes(program_file.read_bytes()[:cut])
    broken.chmod(0o755)
    script = PROLOG.format(broken, node.config_file, node.state)
    assert subprocess.run(["sh", "-c", script], check=False, capture_output=True).returncode == 0
    whole = PROLOG.format(program_file, node.config_file, node.state)
    # On a machine that is busy its two seconds may be over before it, or Slurm, has answered.
    codes = (
        subprocess.run(["sh", "-c", whole], check=False, capture_output=True).returncode
        for _attempt in range(10)
    )
    assert 1 in codes


@pytest.mark.parametrize("words", [[], ["--health", "--timer"], ["--nothing"]])
def test_a_wrong_command_line_is_no_word_on_the_node(program_file, words):
    done = subprocess.run([str(program_file), *words], check=False, capture_output=True)
    assert done.returncode == 2


def test_a_missing_configuration_is_told_in_a_record(program_file, node):
    done, _cpu, _wall = run(program_file, node, "health", node.folder / "none.json")
    assert done.returncode == 3
    (record,) = json.loads((node.state / "health.json").read_text())["records"]
    assert record["check"] == "health.checker"
    assert "No such file" in record["text"]


def test_nothing_that_hangs_holds_the_output_of_the_program(program_file, node):
    """slurmd reads the output of HealthCheckProgram to its end."""
    node.tool("chronyc", "sleep 100")
    config = json.loads(node.config_file.read_text())
    config["checks"] = ["clock"]
    path = node.folder / "clock.json"
    path.write_text(json.dumps(config))
    done, _cpu, wall = run(program_file, node, "health", path)
    assert done.returncode == 0
    assert wall < 15
    assert "did not end within" in done.stdout


def test_a_broken_cache_is_left_for_the_archive(program_file, node):
    assert run(program_file, node, "health")[0].returncode == 0
    (cache,) = (node.folder / "cache").iterdir()
    for path in cache.rglob("_node_health/run.py"):
        path.write_text("def look(")
    for path in cache.rglob("_health_run*.pyc"):
        path.unlink()
    assert run(program_file, node, "health")[0].returncode == 0
    assert not cache.exists()


def test_a_cache_that_others_may_write_into_is_passed_over(program_file, node):
    assert run(program_file, node, "health")[0].returncode == 0
    (cache,) = (node.folder / "cache").iterdir()
    cache.chmod(0o777)
    for path in cache.rglob("_node_health/run.py"):
        path.write_text("raise SystemExit(99)")
    for path in cache.rglob("_health_run*.pyc"):
        path.unlink()
    assert run(program_file, node, "health")[0].returncode == 0
