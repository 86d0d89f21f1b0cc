# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_evidence: what is collected, and what of a part that hangs or is missing."""

from __future__ import annotations

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
