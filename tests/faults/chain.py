#!/usr/bin/env python3
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chain from records to the report, in a process that can be killed anywhere: chain.py FOLDER.

One node of six fails. Each step is printed once it is done, so that the caller that killed this
process knows what must be there. slurm.json stands for slurmctld, which outlives it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / one) for one in (".cache/collections", "tests/faults", "tests/models")]

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator  # noqa: E402
from slurmctld_model import Machine, Slurmctld  # noqa: E402
from wider import stamp  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.action.acceptance_report import (  # noqa: E402
    make_in_time,
)
from ansible_collections.baremetal.dgx.plugins.lookup.node_verdicts import _files  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._core.files import (  # noqa: E402
    write_atomic,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (  # noqa: E402
    FAIL,
    PASS,
    Record,
)
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
    verdict_from_data,
)
from ansible_collections.baremetal.dgx.plugins.modules.acceptance_report import (  # noqa: E402
    ARGUMENTS,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (  # noqa: E402
    gate_verdicts,
)

NODES = tuple(f"dgx-{number:02d}" for number in range(1, 7))
BAD = "dgx-03"
RECORDS = 40


def report(*words: str) -> None:
    """Say what is done; the reader may rely on it."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def records_of(node: str) -> list[dict[str, Any]]:
    """Return what was measured of a node."""
    at, found = stamp(), []
    for number in range(RECORDS):
        bad = node == BAD and number == 17
        evidence = (f"PCI 0000:{number:02x}:00.0, UUID GPU-{node}-{number}, serial {number}{node}",)
        one = Record("gpu.ecc_uncorrectable", f"gpu:{node}/{number}", FAIL if bad else PASS,
                     "12 errors" if bad else "", evidence=evidence, at=at)  # fmt: skip
        found.append(one.as_data())
    return found


class Kept:
    """slurmctld with its state on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = Slurmctld(NODES, now=time.time())
        if path.exists():
            for name, state in json.loads(path.read_text()).items():
                self.model.nodes[name] = Machine(**{**state, "flags": set(state["flags"])})

    def run(self, argv: Any, timeout_s: float = 30, env: Any = None) -> Any:
        """Answer scontrol, and remember."""
        answer = self.model.command(argv, "root", env)
        if argv[1] == "update":
            state = {name: {"flags": sorted(one.flags), "reason": one.reason, "by": one.by,
                            "at": one.at} for name, one in self.model.nodes.items()}  # fmt: skip
            fresh = self.path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(state))
            fresh.replace(self.path)
        return answer


def main(folder: Path) -> None:
    """Measure, keep, judge, gate, report."""
    (folder / "nodes").mkdir(parents=True, exist_ok=True)
    store = Store(str(folder / "evidence"))
    run = store.begin("validate_nodes", stamp())
    report("began", run)
    for node in NODES:
        records = records_of(node)
        data = {"version": 1, "node": node, "level": "standard", "records": records}
        write_atomic(str(folder / "nodes" / f"{node}.json"), json.dumps(data).encode())
        store.add(run, node, "validate_nodes", records, stamp(), "standard")
        report("kept", run, node)
    found = [verdict_from_data(one) for one in
             gate_verdicts(_files(str(folder), NODES), None, [], False)]  # fmt: skip
    policy = Policy(share=0.34, user="root")
    outcome = carry_out(
        Slurm(Kept(folder / "slurm.json").run),
        lambda nodes, spent: plan_gate(found, nodes, policy, time.time(), (), spent),
        lambda _step: None,
    )
    report("gated", str(len(outcome.steps)))
    options = {"evidence": str(folder / "evidence"), "output": str(folder / "report")}
    wanted = ArgumentSpecValidator(ARGUMENTS).validate(options)
    answer = make_in_time(wanted.validated_parameters, write=True)
    report("reported", str(answer.get("failed", False)), answer.get("verdict", "none"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
