#!/usr/bin/env python
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a Prometheus for every panel of every dashboard: .ci/panels.py URL [--pod].

Prints the panels without data and ends with 1 when there are any. Panels that show nothing while
all is well are named, and forgiven; with --pod also those of hardware that a pod has not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".cache" / "collections"))

from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.dashboards import (  # noqa: E402
    queries_of,
)

SPEC = ROOT / "roles/grafana/files/dashboards.yml"

# What a virtual pod cannot have, by the beginning of the metric's name.
NOT_IN_POD = {
    "node_infiniband_": "the nodes of a pod have no adapters",
    "rail:": "recorded from node_infiniband_",
    "instance:rail_": "recorded from node_infiniband_",
    "node_md_": "a pod has no arrays",
    "ceph_": "Debian 13's Ceph has no manager module prometheus",
    'baremetal_dgx_health_measured{check="nvme.': "a pod has no NVMe disks",
}


def panels_of(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each panel with the title of its dashboard."""
    for dashboard in spec["dashboards"]:
        for row in dashboard["rows"]:
            for panel in row["panels"]:
                yield dashboard["title"], panel


def executable(expr: str, range_s: int = 60) -> str:
    """Return the expression without Grafana's variables: all nodes, and a fixed range."""
    text = expr.replace("$__rate_interval", f"{range_s}s").replace("$__range", f"{range_s}s")
    return re.sub(r"\$[a-z_]+", ".+", text)


@dataclass(frozen=True)
class Question:
    """One query of a panel, as Prometheus takes it."""

    panel: str
    expr: str
    quiet: str

    @property
    def missing_in_pod(self) -> str:
        """Return why a pod has no data for it; empty when it must have."""
        return next((why for name, why in NOT_IN_POD.items() if name in self.expr), "")


def questions(spec: dict[str, Any]) -> Iterator[Question]:
    """Yield every query of every panel."""
    for dashboard, panel in panels_of(spec):
        for query in queries_of(panel):
            name = f"{dashboard}: {panel['title']}"
            yield Question(name, executable(query["expr"]), panel.get("quiet", ""))


def load() -> list[Question]:
    """Return the queries of the collection's dashboards."""
    return list(questions(yaml.safe_load(SPEC.read_text(encoding="utf-8"))))


def asker(url: str) -> Callable[[str], int]:
    """Return a function that tells how many samples an expression has now."""

    def ask(expr: str) -> int:
        query = urllib.parse.urlencode({"query": expr}).encode()
        with urllib.request.urlopen(f"{url.rstrip('/')}/api/v1/query", query, timeout=30) as answer:
            return len(json.load(answer)["data"]["result"])

    return ask


def main() -> int:
    """Ask for all panels and say which have no data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="http://HOST:9090")
    parser.add_argument("--pod", action="store_true", help="forgive what a pod cannot have")
    given = parser.parse_args()
    ask = asker(given.url)
    empty = [one for one in load() if not ask(one.expr)]
    bad = 0
    for one in empty:
        why = one.quiet or (one.missing_in_pod if given.pod else "")
        bad += not why
        print(f"{'no data' if not why else 'quiet  '}  {one.panel}: {one.expr}  {why}".rstrip())
    print(f"{len(load())} queries, {len(empty)} without data, {bad} of them wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
