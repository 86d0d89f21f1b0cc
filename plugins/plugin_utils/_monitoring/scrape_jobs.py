# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus is to ask, as its configuration and files have it. Pure.

A job is an element of the role input `prometheus_jobs`. Files are next to prometheus.yml, which
names them without a folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Of a job, what is in its own file, and how that is called.
_SECRETS = {
    "ca": "ca-{}.pem",
    "certificate": "certificate-{}.pem",
    "key": "key-{}.pem",
    "password": "password-{}",
}


def scrape_config(job: Mapping[str, Any], interval_s: int, timeout_s: int) -> dict[str, Any]:
    """Return the element of `scrape_configs`.

    Args:
        job: the job.
        interval_s: seconds between two questions, unless the job sets another.
        timeout_s: seconds to answer, the same; never more than the interval.
    """
    name = job["name"]
    interval = job.get("interval_s") or interval_s
    found = {
        "job_name": name,
        "scheme": job.get("scheme") or "http",
        "metrics_path": job.get("path") or "/metrics",
        "scrape_interval": f"{interval}s",
        "scrape_timeout": f"{min(job.get('timeout_s') or timeout_s, interval)}s",
        "honor_labels": bool(job.get("honor_labels")),
        "file_sd_configs": [{"files": [f"targets-{name}.json"]}],
    }
    tls = {}
    if job.get("ca"):
        tls["ca_file"] = _SECRETS["ca"].format(name)
    if job.get("certificate"):
        tls["cert_file"] = _SECRETS["certificate"].format(name)
        tls["key_file"] = _SECRETS["key"].format(name)
    if job.get("server_name"):
        tls["server_name"] = job["server_name"]
    if tls:
        found["tls_config"] = tls
    if job.get("username"):
        password = _SECRETS["password"].format(name)
        found["basic_auth"] = {"username": job["username"], "password_file": password}
    if job.get("drop"):
        rule = {"source_labels": ["__name__"], "action": "drop", "regex": "|".join(job["drop"])}
        found["metric_relabel_configs"] = [rule]
    return found


def files(jobs: Sequence[Mapping[str, Any]], folder: str, group: str) -> Iterator[dict[str, Any]]:
    """Yield the targets of the jobs, and the secrets that the group may read, for managed_files."""
    for job in jobs:
        name = job["name"]
        targets = [
            {"targets": [one["address"]], "labels": one.get("labels") or {}}
            for one in job["targets"]
        ]
        yield {
            "path": f"{folder}/targets-{name}.json",
            "mode": "0644",
            "content": json.dumps(targets, indent=4, sort_keys=True) + "\n",
        }
        for key, file in _SECRETS.items():
            if job.get(key):
                yield {
                    "path": f"{folder}/{file.format(name)}",
                    "mode": "0640",
                    "group": group,
                    "secret_content": job[key],
                }
