# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter grafana_dashboards."""

from __future__ import annotations

DOCUMENTATION = r"""
name: grafana_dashboards
short_description: Dashboards as Grafana imports them
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes a small description of dashboards and returns the JSON of each.
  - Templates of Grafana in them are never seen by Jinja.
positional: datasource, prefix
options:
  _input:
    description: File on the controller that describes the dashboards.
    type: path
    required: true
  datasource:
    description: The uid of the data source.
    type: str
    required: true
  prefix:
    description: What the names in the answer begin with.
    type: str
    default: ""
"""

EXAMPLES = r"""
# {"/etc/dashboards/bmdgx-gpu.json": "{...}"}
files: >-
  {{ (role_path ~ '/files/dashboards.yml')
     | baremetal.dgx.grafana_dashboards('prometheus', prefix='/etc/dashboards/') }}
"""

RETURN = r"""
_value:
  description: Name of a file, with prefix and C(.json), and its text.
  type: dict
"""

import json
from collections.abc import Callable
from pathlib import Path

import yaml
from ansible.errors import AnsibleFilterError


def grafana_dashboards(source: str, datasource: str, prefix: str = "") -> dict[str, str]:
    """Return the text of each file; AnsibleFilterError says what is wrong with the description."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring import (
        dashboards as _dashboards,
    )

    try:
        spec = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
        found = _dashboards.dashboards(spec, str(datasource))
    except (KeyError, OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise AnsibleFilterError(f"grafana_dashboards: {source}: {error}") from error
    return {
        f"{prefix}{uid}.json": json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"
        for uid, dashboard in found.items()
    }


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters of this file by name."""
        return {"grafana_dashboards": grafana_dashboards}
