# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine of validate_nodes costs the control machine for 4,096 nodes; fails beyond the aim.

Nodes are simulated: each has 660 records of a standard validation, in the lines of a real spool.
Measured are the work of all nodes and the program, and then what came: read, judged, saved beside
the inventory and in the evidence. Not measured is what happens on the nodes and on Slurm's side.

    engine.py [COUNT]
"""

from __future__ import annotations

import gzip
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".cache" / "collections"), str(ROOT / "tests" / "models")]

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (  # noqa: E402
    Record,
    Threshold,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import (  # noqa: E402
    Store,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.spool import (  # noqa: E402
    lines_of,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import (  # noqa: E402
    validation_program,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.calls import (  # noqa: E402
    Reader,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import (  # noqa: E402
    PARTS,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.save import (  # noqa: E402
    save_all,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.work import (  # noqa: E402
    Archive,
)

MOST_CPU_S = 0.1
RUN, AT = "0123456789abcdef", "2026-03-01T00:00:00Z"
# Records of a part on a node with eight GPUs and eight rails.
RECORDS = {"gpu_health": 390, "ib_health": 120, "cpu_memory": 12, "dcgm": 72, "burn": 60, "nccl": 2}
OMIT = "__omit_place_holder__1"


def settings() -> dict[str, Any]:
    """Return what a level says, as the plan has it."""
    return {
        "hardware_root": "", "health_thresholds": {}, "ecc": True, "idle": True,
        "canary": {"mounts": [{"name": "home", "path": "/home"}]},
        "cpu_memory": {"seconds": 30, "memory_share": 0.25, "edac": True},
        "dcgm": {"level": 2, "parameters": {}, "skips_ok": ["eud"]},
        "burn": {"duration_s": 600, "n": 8192, "memory_mib": 0, "most_batch": 32,
                 "thresholds": {}, "again_after_days": 7},
        "nccl": {"tool": "", "environment": {}, "time_limit_s": 300},
        "fio": {"folder": "/raid", "size_mib": 8192, "seconds": 10, "root_ok": False},
    }  # fmt: skip


def work_of_all(names: list[str]) -> bytes:
    """Make the program with the work of all nodes."""
    reader, archive = Reader(DataLoader(), str(ROOT)), Archive()
    level = settings()
    gpus = {"count": 8, "type": "h100", "pci": [f"{number:02x}:00.0" for number in range(8)]}
    rails = [{"rail": number, "rate_gbps": 400} for number in range(1, 9)]
    for name in names:
        parts = {f"gpu:{name}/{one}": {"pci": f"{one:02x}:00.0", "uuid": f"GPU-{name}-{one}",
                                       "serial": f"{name}-{one}"} for one in range(8)}  # fmt: skip
        variables = {
            "inventory_hostname": name, "node_health_rails": rails, "again": False, "omit": OMIT,
            "node_health_profile": {"name": "dgx_h100", "gpus": gpus}, "__validation": level,
            "__validation_identities": parts, "__validate_seen": {"busy": False},
        }  # fmt: skip
        asked = reader.parts(list(PARTS), variables, OMIT)
        archive.add(
            name, {"parts": asked, "refused": "", "hold": None, "folder": "/x", "seconds": 1}
        )
    return validation_program(archive.entries)


def records_of(node: str, part: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield records of the size that real ones have."""
    numbers = random.Random(f"{node}{part}")
    least = Threshold(">=", 24.0, "GB/s", "NVIDIA DGX H100 user guide, table 3")
    for number in range(count):
        unit = number % 8
        evidence = (f"{unit:02x}:00.0, UUID GPU-{node}-{unit}, serial {node}-{unit}",)
        measured = {"value": round(numbers.uniform(24, 26), 3), "unit": "GB/s"}
        check = f"{part.partition('_')[0]}.check_{number // 8}"
        yield Record(
            check, f"gpu:{node}/{unit}", "pass", "as it must be", measured, least, evidence,
            at=AT, took_s=0.2,
        ).as_data()  # fmt: skip


def write_spool(folder: Path, names: list[str]) -> list[str]:
    """Write what validation_run brings; this is the nodes' and Slurm's work."""
    paths = []
    for at in range(0, len(names), 256):
        path = folder / f"spool-{at:05}.gz"
        with gzip.open(path, "wt", compresslevel=1) as stream:
            for node in names[at : at + 256]:
                for part, count in RECORDS.items():
                    answer = {"verdict": "pass", "records": list(records_of(node, part, count))}
                    lines = lines_of(RUN, node, part, answer)
                    stream.writelines(f"{node}: {line}\n" for line in lines)
        paths.append(str(path))
    return paths


def main() -> int:
    """Measure; returns the exit status."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    names = [f"dgx-{number:04}" for number in range(1, count + 1)]
    with tempfile.TemporaryDirectory() as place:
        state = Path(place)
        begun, wall = time.process_time(), time.monotonic()
        program = work_of_all(names)
        made = time.process_time() - begun
        print(f"work of {count} nodes: {made:.1f} CPU s, {time.monotonic() - wall:.0f} s, "
              f"program {len(program) / 1e6:.1f} MB")  # fmt: skip
        files = write_spool(state, names)
        size = sum(Path(path).stat().st_size for path in files) / 1e6
        own = state / "validation" / RUN
        own.mkdir(parents=True, mode=0o700)
        own.parent.chmod(0o700)
        asked = {part: "" if part in RECORDS else "switched off" for part in PARTS}
        notes = {name: {"asked": asked, "nothing": {}} for name in names}
        (own / "notes.json").write_text(json.dumps(notes))
        run = Store(str(state / "evidence")).begin("validate_nodes", AT)
        options = {"run": RUN, "files": files, "evidence_run": run, "level": "standard",
                   "simulated": "", "state_dir": str(state), "shown": 20}  # fmt: skip
        begun, wall = time.process_time(), time.monotonic()
        result = save_all(options, time.time())
        saved = time.process_time() - begun
        print(f"collected: {saved:.1f} CPU s, {time.monotonic() - wall:.0f} s, {size:.0f} MB came")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        each = (made + saved) / count
        print(f"{result['text']}; {each:.4f} CPU s a node (aim {MOST_CPU_S}), {memory:.0f} MB")
        if result["nodes"] != {"pass": names} or each > MOST_CPU_S:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
