# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter scrape_jobs."""

from __future__ import annotations

DOCUMENTATION = r"""
name: scrape_jobs
short_description: Scrape configurations of Prometheus and their files
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes jobs as the input C(prometheus_jobs) of the role prometheus has them, and returns what the
    configuration of Prometheus has about them, and the files that it names.
positional: interval_s, timeout_s
options:
  _input:
    description: The jobs.
    type: list
    elements: dict
    required: true
  interval_s:
    description: Seconds between two questions, unless the job sets another.
    type: int
    required: true
  timeout_s:
    description: Seconds to answer, unless the job sets another.
    type: int
    required: true
  folder:
    description: Where the files lie on the host.
    type: str
    default: ""
  group:
    description: Who may read passwords and keys.
    type: str
    default: root
"""

EXAMPLES = r"""
configuration: "{{ (prometheus_jobs | baremetal.dgx.scrape_jobs(15, 10)).configs }}"
"""

RETURN = r"""
_value:
  description: >-
    The elements of scrape_configs as C(configs), and C(files) for M(baremetal.dgx.managed_files).
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def scrape_jobs(
    jobs: Sequence[Mapping[str, Any]],
    interval_s: int,
    timeout_s: int,
    folder: str = "",
    group: str = "root",
) -> dict[str, list[dict[str, Any]]]:
    """Return configurations and files of the jobs; AnsibleFilterError for what is not a job."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring import (
        scrape_jobs as _scrape_jobs,
    )
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.plain import plain

    given = plain(jobs)
    try:
        return {
            "configs": [_scrape_jobs.scrape_config(job, interval_s, timeout_s) for job in given],
            "files": list(_scrape_jobs.files(given, str(folder), str(group))),
        }
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(f"scrape_jobs: {error}") from error


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"scrape_jobs": scrape_jobs}
