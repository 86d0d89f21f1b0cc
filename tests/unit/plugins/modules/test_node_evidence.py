# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_evidence: what is collected, and what of a part that hangs or is missing."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._repair import collect
from ansible_collections.baremetal.dgx.plugins.modules import node_evidence

ANSWERS = {
    "dmesg": (ENDED, 0, "NVRM: Xid (PCI:0000:dc:00): 79\n"),
    "nvidia-smi": (TIMED_OUT, -1, "half an ans"),
    "lspci": (ENDED, 1, "one device\n"),
    "systemctl": (ENDED, 0, "x" * 100),
    "nvidia-bug-report.sh": (MISSING, -1, ""),
}


def test_each_part_is_collected_or_says_why_not(run_module, monkeypatch, tmp_path):
    def run(argv, timeout_s=30, env=None):
        outcome, rc, out = ANSWERS[argv[0]]
        return CommandResult(tuple(argv), outcome, rc, out, took_s=timeout_s)

    monkeypatch.setattr(collect, "_MOST_BYTES", 60)
    monkeypatch.setattr(node_evidence, "ModuleRunner", lambda _module: run)
    tmp_path.chmod(0o755)
    answer = run_module(node_evidence.main, {"parent": str(tmp_path)})
    assert answer["parts"] == {
        "kernel.log": "collected",
        "gpus.txt": "`nvidia-smi -q` did not end within 60 s",
        "pci.txt": "`lspci -vv` ended with 1: one device",
        "units.txt": "collected",
        "bug-report.txt": "nvidia-bug-report.sh is not installed",
    }
    path = Path(answer["path"])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with tarfile.open(path) as archive:
        found = {one.name: archive.extractfile(one).read().decode() for one in archive}
    assert set(found) == {"kernel.log", "gpus.txt", "pci.txt", "units.txt"}
    assert "Xid" in found["kernel.log"]
    assert found["gpus.txt"].startswith("half an ans")
    assert "did not end within 60 s" in found["gpus.txt"]
    # of a long text, its end
    assert found["units.txt"] == "x" * 60


REPORT = "host dgx-01.example.com of alice\nAPI_TOKEN=hunter2hunter2\n"


def opened(path: str) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {one.name: archive.extractfile(one).read().decode() for one in archive}


def collected(monkeypatch, tmp_path, answer, **given):
    """Collect with one part, NVIDIA's bug report, whose program writes a file."""
    monkeypatch.setattr(collect, "PARTS", collect.PARTS[-1:])
    monkeypatch.setattr(collect, "_own_names", lambda: ["dgx-01.example.com", "alice"])
    tmp_path.chmod(0o755)
    return collect.collect(answer, str(tmp_path), **given)


def test_the_bug_report_is_the_file_that_its_program_writes(monkeypatch, tmp_path):
    """The program adds .gz to the name where gzip is installed; `-` would be a file's name."""

    def run(argv, timeout_s=30, env=None):
        Path(argv[2] + ".gz").write_bytes(gzip.compress(REPORT.encode()))
        return CommandResult(tuple(argv), ENDED, 0, "nvidia-bug-report.sh will now collect\n")

    answer = collected(monkeypatch, tmp_path, run)
    assert answer["parts"] == {"bug-report.txt": "collected"}
    assert opened(answer["path"]) == {
        "bug-report.txt": "host [name] of [name]\nAPI_TOKEN=[hidden]\n"
    }
    assert [one.name for one in tmp_path.iterdir()] == [Path(answer["path"]).parent.name]


def test_a_bug_report_that_was_cut_is_kept_as_far_as_it_goes(monkeypatch, tmp_path):
    def run(argv, timeout_s=30, env=None):
        Path(argv[2] + ".gz").write_bytes(gzip.compress(REPORT.encode())[:-9])
        return CommandResult(tuple(argv), TIMED_OUT, -1, "", took_s=timeout_s)

    answer = collected(monkeypatch, tmp_path, run)
    assert "did not end within 300 s" in answer["parts"]["bug-report.txt"]
    assert "report.log.gz cannot be read" in opened(answer["path"])["bug-report.txt"]


def test_all_parts_together_have_a_limit_of_time_and_of_size(monkeypatch, tmp_path):
    now = [0.0]
    limits = []

    def run(argv, timeout_s=30, env=None):
        limits.append(timeout_s)
        now[0] += timeout_s
        return CommandResult(tuple(argv), ENDED, 0, "x" * 50)

    monkeypatch.setattr(collect, "TOTAL_S", 150.0)
    monkeypatch.setattr(collect, "_MOST_TOTAL", 70)
    tmp_path.chmod(0o755)
    answer = collect.collect(run, str(tmp_path), clock=lambda: now[0])
    assert limits == [60, 60, 30]
    assert answer["parts"] == {
        "kernel.log": "collected",
        "gpus.txt": "collected, the last 20 bytes",
        "pci.txt": "collected, the last 0 bytes",
        "units.txt": "not collected: all parts together have 150 s",
        "bug-report.txt": "not collected: all parts together have 150 s",
    }
    assert sum(map(len, opened(answer["path"]).values())) == 70


def test_the_node_knows_its_name_and_its_people(monkeypatch):
    monkeypatch.setattr(collect.socket, "gethostname", lambda: "dgx-01.example.com")
    monkeypatch.setattr(collect.os, "listdir", lambda _path: ["carol"])
    found = collect._own_names()
    assert {"dgx-01.example.com", "dgx-01", "carol"} <= set(found)
    assert not {"root", "nobody"} & set(found)


def test_a_full_disk_keeps_no_half_of_an_archive(run_module, monkeypatch, tmp_path):
    def full(*_words):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collect, "write_all", full)
    monkeypatch.setattr(collect, "PARTS", ())
    tmp_path.chmod(0o755)
    answer = run_module(node_evidence.main, {"parent": str(tmp_path)})
    assert answer["failed"]
    assert "collected.tar.gz: No space left on device" in answer["msg"]
    assert not list(tmp_path.iterdir())
