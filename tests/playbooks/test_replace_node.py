# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""replace_node on a scontrol of the test's own: what it forgets, what it keeps, who holds it."""

from __future__ import annotations

import getpass
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_upgrade_nodes import Site

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    PASS,
    Record,
    utc_text,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.reason import (
    REPLACED,
    read_reason,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.data import Request
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.load import load_report

NODE = "dgx-03"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    # The gate holds what it has drained itself, as the user who runs the tests.
    scontrol = tmp_path / "bin/scontrol"
    scontrol.write_text(scontrol.read_text().replace("[root@", f"[{getpass.getuser()}@"))
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
    assert found.kind == REPLACED
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
    # Validated since, the same part gets its reason again, which dates what was measured.
    before = len(site.serving)
    (site.state / f"nodes/{NODE}.json").write_text("{}")
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="gpu:1", **gate)
    assert rc == 0, output
    assert len(site.serving) == before + 2
    assert site.slurm[NODE] == [state, reason]


def test_what_is_no_part_is_refused(site: Site) -> None:
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="fan:1")
    assert rc != 0
    assert "write the node and its part" in output
    assert site.slurm[NODE] == ["IDLE", ""]


def records(at: str, *subjects: str, check: str = "gpu.count") -> list[dict[str, object]]:
    return [Record(check, subject, PASS, at=at).as_data() for subject in subjects]


@pytest.mark.parametrize(
    ("swept", "why"),
    [
        # The stand-in dates each reason 2026-11-21T09:00:00Z.
        ("2026-11-21T08:00:00Z", " is left alone: passes, on evidence from before it was taken"),
        ("2026-11-21T10:00:00Z", ": resume: passes at level standard"),
    ],
)
def test_cables_are_swept_again_before_the_node_is_let_in(site: Site, swept: str, why: str) -> None:
    site.plan_fabric()
    gate = {"cluster_gate": {"enabled": True, "evidence_days": 3650}}
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="hca:rail5", **gate)
    assert rc == 0, output
    assert "-e again=true" in output
    own = {"version": 1, "node": NODE, "level": "standard"}
    own["records"] = records(utc_text(), f"node:{NODE}")
    (site.state / f"nodes/{NODE}.json").write_text(json.dumps(own))
    (site.state / "fabric").mkdir()
    cable = records(swept, f"cable:{NODE}/rail5--leaf-05/3", check="fabric.cable")
    (site.state / "fabric/records.json").write_text(json.dumps({"records": cable}))
    rc, output = site.run("--check", playbook="admit_nodes", **gate)
    assert rc == 0, output
    assert f"{NODE}{why}" in output


def test_the_report_knows_nothing_of_the_node_until_it_was_validated(site: Site) -> None:
    now = utc_text()
    store = Store(str(site.state / "evidence"))
    run = store.begin("validate_nodes", now)
    old = ["node:dgx-03", "gpu:dgx-03/1"]
    store.add(run, NODE, "validate_nodes", records(now, *old), now, "standard")
    store.add(run, NODE, "bmc_info", records(now, *old, check="bmc.power"), now)

    def verdict() -> tuple[str, set[str]]:
        report = load_report(store.folder, [{"name": NODE}], Request(fabric=False), utc_text())
        return report["verdict"], {one["check"] for one in report["not_measured"]}

    assert verdict() == (PASS, set())
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="gpu:1")
    assert rc == 0, output
    assert verdict() == ("not_measured", {"bmc.replaced", "gpu.replaced", "node.records"})
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="gpu:1")
    assert "changed=0" in output
    run = store.begin("validate_nodes", now)
    store.add(run, NODE, "validate_nodes", records(now, *old), now, "standard")
    assert verdict() == ("not_measured", {"bmc.replaced"})


def test_what_a_part_failed_in_pairs_goes_with_it(site: Site) -> None:
    path = site.state / f"failures/{NODE}.json"
    path.parent.mkdir()
    failed = {subject: [{"check": "x", "subject": subject, "status": "fail"}]
              for subject in (f"hca:{NODE}/rail5", f"node:{NODE}")}  # fmt: skip
    path.write_text(json.dumps(failed))
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="hca:rail5")
    assert rc == 0, output
    assert list(json.loads(path.read_text())) == [f"node:{NODE}"]
    rc, output = site.run(playbook="replace_node", node=NODE, replaced="node")
    assert rc == 0, output
    assert json.loads(path.read_text()) == {}
