# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts, gate and report of 1,024 nodes: prints time and memory; fails above 60 s or 1 GB.

Two nodes are broken. Making the records up is not counted; reading them is. slurmctld is a model.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".cache" / "collections"))
sys.path.insert(0, str(ROOT / "tests" / "models"))

import report_world as world  # noqa: E402
from slurmctld_model import Slurmctld  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.lookup.node_verdicts import (  # noqa: E402
    _files,
    _load,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.redact import Redactor  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import (  # noqa: E402
    Store,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.apply import (  # noqa: E402
    Slurm,
    carry_out,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._slurm.gate.policy import (  # noqa: E402
    Policy,
    plan_gate,
    seconds_of,
    verdict_from_data,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.data import Request  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.html import (  # noqa: E402
    report_html,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.junit import junit  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.load import (  # noqa: E402
    load_report,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (  # noqa: E402
    gate_verdicts,
)

MOST_SECONDS = 60.0
MOST_MEGABYTES = 1000.0


def fill(folder: Path, count: int) -> int:
    """Leave what validate_nodes and validate_fabric leave; returns how many records."""
    names, chance, total = world.names(count), random.Random(7), 0
    (folder / "nodes").mkdir()
    (folder / "fabric").mkdir()
    for name in names:
        records = [
            {**world.broken(one).as_data(), "at": world.AT}
            for one in world.node_records(name, chance)
        ]
        total += len(records)
        data = {"version": 1, "node": name, "level": "standard", "records": records}
        (folder / "nodes" / f"{name}.json").write_text(json.dumps(data))
    records = [
        {**world.broken(one).as_data(), "at": world.AT} for one in world.fabric_records(names)
    ]
    (folder / "fabric" / "records.json").write_text(json.dumps({"records": records}))
    world.fill(Store(str(folder / "evidence")), count, True)
    return total + len(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024)
    options = parser.parse_args()
    names = world.names(options.nodes)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        total = fill(folder, options.nodes)
        start, cpu = time.perf_counter(), time.process_time()
        swept = _load(str(folder / "fabric" / "records.json"))["records"]
        reported = gate_verdicts(_files(str(folder), names), swept, [], True)
        found = [verdict_from_data(one) for one in reported]
        verdicts_s = time.process_time() - cpu
        now = (seconds_of(world.AT) or 0) + 3600
        slurm = Slurmctld(names, now=now)
        policy = Policy(share=0.05, user="root")
        outcome = carry_out(
            Slurm(slurm),
            lambda nodes, spent: plan_gate(found, nodes, policy, now, (), spent),
            lambda _step: None,
        )
        gate_s = time.process_time() - cpu - verdicts_s
        data = load_report(str(folder / "evidence"), world.plan(options.nodes),
                           Request(cluster="bench"), "2026-03-03T00:00:00Z")  # fmt: skip
        report = Redactor([]).data(data)
        size = len(report_html(report)) + len(junit(report)) + len(json.dumps(report))
        used, wall = time.process_time() - cpu, time.perf_counter() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    drained = {name: one.reason for name, one in slurm.nodes.items() if one.drained}
    print(
        f"{options.nodes} nodes, {total:,} records: verdicts {verdicts_s:.1f} s, gate {gate_s:.1f} "
        f"s, report {used - verdicts_s - gate_s:.1f} s ({size / 1e6:.1f} MB); all {used:.1f} s of "
        f"processor time, {wall:.1f} s on a machine that may be busy, {megabytes:.0f} MB"
    )
    print("\n".join(f"{name}: {reason}" for name, reason in drained.items()))
    assert len(outcome.steps) == len(drained) == 2, drained
    assert used <= MOST_SECONDS, used
    assert megabytes <= MOST_MEGABYTES, megabytes


if __name__ == "__main__":
    main()
