# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What both collectors answer of their last run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._exporters import fabric, slurm

PROGRAMS = {"slurm": slurm.main, "fabric": fabric.main}
NEEDED = {"slurm": {"host": "head-01"}, "fabric": {"plan_file": "/not/there", "state_dir": "/s"}}


@pytest.mark.parametrize("part", PROGRAMS)
def test_the_last_run_is_young_and_whole(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, metrics = tmp_path / "config.json", tmp_path / "a.prom"
    config.write_text(json.dumps({"version": 1, "metrics_file": str(metrics), **NEEDED[part]}))

    def complaint(age_s: float, ok: int) -> str:
        prefix = f"baremetal_dgx_{part}"
        lines = [f"# TYPE {prefix}_collector_ok gauge", f"{prefix}_collector_ok {ok}"]
        lines.append(f"{prefix}_run_timestamp_seconds {time.time() - age_s:.3f}")
        metrics.write_text("\n".join(lines) + "\n")
        return answer()

    def answer() -> str:
        rc = PROGRAMS[part](["--config", str(config), "--check-metrics", "300"])
        found = capsys.readouterr().err
        assert rc == (3 if found else 0)
        return found.removeprefix(f"{part}-metrics: ").strip()

    assert "No such file" in answer()
    assert complaint(290, 1) == ""
    assert complaint(290, 0) == f"{metrics}: the last run has not measured all"
    for age_s in (4320, -4320):
        assert complaint(age_s, 1) == f"{metrics} is 72 min old, and may be 5 min"
    metrics.write_text("")
    assert "min old" in answer()
    assert metrics.read_text() == "", "a question writes nothing"
