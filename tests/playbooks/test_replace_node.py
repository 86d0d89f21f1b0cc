# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""replace_node on a scontrol of the test's own: what it forgets, what it keeps, who holds it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_upgrade_nodes import Site

from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    UNPROVEN,
    read_reason,
)

NODE = "dgx-03"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    for name in ("evidence/parts", "evidence/history", "identities"):
        (made.state / name).mkdir(parents=True)
    parts = {f"gpu:{NODE}/{slot}": f"gpu-{slot}" for slot in range(3)}
    (made.state / f"evidence/parts/{NODE}.json").write_text(json.dumps(parts))
    (made.state / "evidence/history/gpu-1.jsonl").write_text('{"at": "2026-01-01T00:00:00Z"}\n')
    (made.state / f"nodes/{NODE}.json").write_text("{}")
    return made


def test_a_gpu_is_forgotten_its_history_is_not_and_the_gate_holds_the_node(site: Site) -> None:
    site.set_slurm({**site.slurm, NODE: ["IDLE+DRAIN", "RMA 4711, alice"]})
    gate = {"cluster_gate": {"enabled": True}}
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="gpu:1", **gate)
    assert rc == 0, output
    state, reason = site.slurm[NODE]
    found = read_reason(NODE, reason)
    assert state == "IDLE+DRAIN"
    assert found is not None
    assert found.kind == UNPROVEN
    parts = json.loads((site.state / f"evidence/parts/{NODE}.json").read_text())
    assert set(parts) == {f"gpu:{NODE}/0", f"gpu:{NODE}/2"}
    assert (site.state / "evidence/history/gpu-1.jsonl").exists()
    assert not (site.state / f"nodes/{NODE}.json").exists()
    (line,) = (site.state / "replaced.jsonl").read_text().splitlines()
    assert json.loads(line)["was"] == {f"gpu:{NODE}/1": "gpu-1"}
    # Once more changes nothing.
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="gpu:1", **gate)
    assert rc == 0, output
    assert "changed=0" in output
    assert site.slurm[NODE] == [state, reason]


def test_what_is_no_part_is_refused(site: Site) -> None:
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="fan:1")
    assert rc != 0
    assert "write the node and its part" in output
    assert site.slurm[NODE] == ["IDLE", ""]
