# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts and report of 1,024 nodes: prints time, memory and sizes; fails above the aims.

The records are as many as those of the real checks (465 a node). Making them up is not counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".cache" / "collections"))
sys.path.insert(0, str(ROOT / "tests" / "models"))

import report_world as world  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._core.redact import Redactor  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import (  # noqa: E402
    Store,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.data import Request  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.html import (  # noqa: E402
    report_html,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.junit import junit  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.load import (  # noqa: E402
    load_report,
)

# The aims of the project for 1,024 nodes on two cores.
MOST_SECONDS = 20.0
MOST_VERDICT_SECONDS = 60.0
MOST_MEGABYTES = 1000.0
MOST_PAGE_MEGABYTES = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--keep", type=Path, help="folder to leave the report in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        started = time.perf_counter()
        world.fill(Store(str(folder / "evidence")), options.nodes, True)
        (folder / "pairs.jsonl").write_text(world.flows(world.names(options.nodes)))
        filled = time.perf_counter() - started
        on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{options.nodes} nodes: kept in {filled:.1f} s, {on_disk / 1e6:.0f} MB")
        wall, cpu = time.perf_counter(), time.process_time()
        found = load_report(
            str(folder / "evidence"), world.plan(options.nodes), Request(cluster="bench"),
            "2026-03-03T00:00:00Z", pairs=str(folder / "pairs.jsonl"),
        )  # fmt: skip
        verdicts = time.process_time() - cpu
        report = Redactor(["a-secret-of-the-cluster"]).data(found)
        page, xml = report_html(report), junit(report)
        data = json.dumps(report, separators=(",", ":"))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    records = sum(found["summary"]["records"].values())
    print(f"verdicts of {records:,} records: {verdicts:.1f} s of CPU; with the report {cpu:.1f} s")
    print(f"wall {wall:.1f} s (on a machine that may be busy), memory {megabytes:.0f} MB")
    sizes = {"report.html": len(page), "report.json": len(data), "junit.xml": len(xml)}
    print(", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in sizes.items()))
    failed = [(one["subject"], one["check"]) for one in found["failed"]]
    print(f"failed: {failed}")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / "report.html").write_text(page)
    assert len(failed) == 2
    assert cpu <= MOST_SECONDS, cpu
    assert verdicts <= MOST_VERDICT_SECONDS, verdicts
    assert megabytes <= MOST_MEGABYTES, megabytes
    assert len(page) <= MOST_PAGE_MEGABYTES * 1e6, len(page)


if __name__ == "__main__":
    main()
