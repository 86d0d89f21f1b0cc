# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""check_idle_nodes as a whole, on a scontrol of the test's own, with the shipped gate."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from test_upgrade_nodes import NODES, Site


def checked(tmp_path: Path, **gate: object) -> tuple[Site, int, str]:
    """Check an idle node; the machine that runs the tests has none of the eight GPUs."""
    site = Site(tmp_path)
    scontrol = tmp_path / "bin/scontrol"
    scontrol.write_text(scontrol.read_text().replace("[root@", f"[{getpass.getuser()}@"))
    variables = {"cluster_gate": {"enabled": True, "share": 0.5}, **gate}
    return site, *site.run(playbook="check_idle_nodes", level="quick", **variables)


def test_the_gate_drains_an_idle_node_that_fails_and_the_run_is_red(tmp_path: Path) -> None:
    site, rc, output = checked(tmp_path)
    state, reason = site.slurm["dgx-01"]
    assert (state, reason.partition(" ")[0]) == ("IDLE+DRAIN", "dgx-gate:"), output
    assert all(site.slurm[name] == ["IDLE", ""] for name in NODES[1:])
    assert rc != 0
    shown = output.partition("TASK [Fail unless the node passed]")[2]
    assert "gpu:dgx-01/0 gpu.present is False" in shown, output


def test_what_a_node_fails_is_shown_though_the_gate_refuses(tmp_path: Path) -> None:
    site, rc, output = checked(tmp_path, gate_share=0)
    assert site.slurm["dgx-01"] == ["IDLE", ""]
    assert rc != 0
    assert "gpu:dgx-01/0 gpu.present is False" in output.partition("TASK [Apply")[0], output
