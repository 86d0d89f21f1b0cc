# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""plugstack.conf tried in a copy, and verified in use; srun is a model of the real one."""

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.baremetal.dgx.plugins.modules import slurm_plugstack

# Loads what plugstack.conf names, says what it cannot load, and lists the options of what it can.
SRUN = """\
#!/bin/sh
stack=$(sed -n 's/^PlugStackConfig=//p' "$SLURM_CONF")
[ -n "$stack" ] || stack=$(dirname "$SLURM_CONF")/plugstack.conf
echo "$SLURM_CONF $stack" >> "$LOG"
echo "Usage: srun [OPTIONS]"
while read -r flag plugin rest; do
  case "$flag" in required|optional) ;; *) continue ;; esac
  if ! grep -q good "$plugin"; then
    echo "srun: error: spank: $plugin: Incompatible Slurm plugin version (22.05.8)" >&2
    [ "$flag" = optional ] || exit 1
  else
    echo "      --container-image=PATH"
  fi
done < "$stack"
"""


@pytest.fixture
def host(tmp_path, run_module, monkeypatch):
    """`host(state, ...)` runs the module; `host.stack` is the plugstack.conf in use."""

    def run(state: str, check=False, **params):
        given = {"state": state, "line": run.line, "folders": [str(run.folder)], **params}
        return run_module(slurm_plugstack.main, given, check)

    run.folder = tmp_path / "slurm"
    run.folder.mkdir()
    (run.folder / "slurm.conf").write_text("ClusterName=demo\n")
    run.stack = run.folder / "plugstack.conf"
    run.plugin = tmp_path / "spank_pyxis-0123456789ab.so"
    run.plugin.write_text("good")
    run.line = f"required {run.plugin} container_scope=job"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/srun").write_text(SRUN)
    (tmp_path / "bin/srun").chmod(0o755)
    run.log = tmp_path / "log"
    monkeypatch.setenv("LOG", str(run.log))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return run


def test_trial_leaves_the_files_in_use_alone(host):
    host.stack.write_text("# nothing\n")
    result = host("tried")
    assert result["findings"] == []
    assert not result["changed"]
    assert host.stack.read_text() == "# nothing\n"
    (conf, stack) = host.log.read_text().split()
    assert str(host.folder) not in conf
    assert str(host.folder) not in stack


def test_trial_of_what_does_not_load(host):
    host.plugin.write_text("of another release")
    result = host("tried")
    assert result["failed"]
    (line,) = result["findings"]
    assert "does not work here" in line
    assert "Incompatible Slurm plugin" in line
    host.plugin.unlink()
    assert "is missing" in host("tried")["msg"]


ELF = b"\x7fELF good\0GLIBC_2.2.5\0GLIBC_2.%d\0libc.so.6\0GLIBC_PRIVATE\0"


@pytest.mark.parametrize("state", ["tried", "verified"])
def test_a_plugin_that_was_built_on_a_later_system(host, monkeypatch, state):
    """As of Ubuntu 24.04 (glibc 2.39) on DGX OS 6 (2.35)."""
    monkeypatch.setattr(os, "confstr", lambda _name: "glibc 2.35")
    host.stack.write_text(f"{host.line}\n")
    host.plugin.write_bytes(ELF % 35)
    assert host(state)["findings"] == []
    host.plugin.write_bytes(ELF % 38)
    answer = host(state)
    assert answer["failed"]
    assert answer["msg"].endswith(
        f"{host.plugin} needs glibc 2.38, and 2.35 is here; build it on the oldest system "
        "(pyxis_builder)"
    )


def test_trial_together_with_other_lines(host):
    assert host("tried", lines=["optional /nowhere.so"])["failed"]


def test_in_use(host):
    host.stack.write_text(f"{host.line}\n")
    assert host("verified")["findings"] == []
    host.stack.write_text("")
    assert "bare host" in host("verified", runs_jobs=True)["msg"]
    assert not host("verified", fail=False).get("failed")


def test_in_use_and_not_loading(host):
    host.stack.write_text(f"{host.line}\n")
    host.plugin.write_text("of another release")
    assert "does not work" in host("verified")["msg"]


def test_missing_on_a_client(host):
    host.stack.write_text(f"{host.line}\n")
    host.plugin.unlink()
    result = host("verified")
    assert "every srun, sbatch and salloc from here fails" in result["msg"]


def test_gone(host):
    host.stack.write_text(f"{host.line} use_squashfuse=1\n")
    assert "still says" in host("absent")["msg"]
    host.stack.write_text("# nothing\n")
    assert host("absent")["findings"] == []


def test_host_without_slurm(host):
    (host.folder / "slurm.conf").unlink()
    assert "run configure_scheduler first" in host("verified")["msg"]
    rehearsal = host("tried", check=True)
    assert not rehearsal.get("failed")
    assert rehearsal["findings"]


def test_waiting_ends_as_soon_as_it_is_right(host, monkeypatch):
    host.stack.write_text("")
    monkeypatch.setattr(time, "sleep", lambda _s: host.stack.write_text(f"{host.line}\n"))
    assert host("verified", wait_s=30)["findings"] == []


def test_no_line(host):
    host.line = "nonsense"
    assert "not a line of plugstack.conf" in host("tried")["msg"]
