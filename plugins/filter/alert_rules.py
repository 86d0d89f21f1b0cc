# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter alert_rules."""

from __future__ import annotations

DOCUMENTATION = r"""
name: alert_rules
short_description: Rule files of Prometheus with a site's changes
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
description:
  - Takes names of rule files, reads them, and returns their text with what a site wants otherwise.
  - Templates of Prometheus in them are never seen by Jinja.
positional: folder
options:
  _input:
    description: Names of the files, without C(.yml).
    type: list
    elements: str
    required: true
  folder:
    description: >-
      Where they lie on the controller; those of the role prometheus when not given. A change may
      name a rule of any file in it.
    type: path
    default: ""
  changes:
    description: By the name of an alert, C(enabled), C(expr), C(for) or C(severity).
    type: dict
    default: {}
  wait_factor:
    description: Multiple of the time that alerts wait, where it is not changed.
    type: float
    default: 1
  prefix:
    description: What the names in the answer begin with.
    type: str
    default: ""
  extra:
    description: Rule groups of the site's own; with any the answer has a file C(site.yml).
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
# {"/etc/rules-gpu.yml": "groups: ..."}
files: >-
  {{ ['gpu'] | baremetal.dgx.alert_rules(prefix='/etc/rules-',
                                         changes={'GpuHot': {'for': '10m', 'severity': 'info'}}) }}
"""

RETURN = r"""
_value:
  description: Name of a file, with prefix and C(.yml), and its text.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

_RULES = Path(__file__).parents[2] / "roles/prometheus/files/rules"
_HEADER = "# Managed by Ansible: baremetal.dgx. Local changes will be overwritten.\n"


def alert_rules(
    names: Sequence[str],
    folder: str = "",
    changes: Mapping[str, Any] | None = None,
    wait_factor: float = 1.0,
    prefix: str = "",
    extra: Sequence[Mapping[str, Any]] = (),
) -> dict[str, str]:
    """Return the text of each file; AnsibleFilterError says what is wrong with the changes."""
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring import (
        alert_rules as _alert_rules,
    )
    from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.plain import plain

    try:
        files = {
            path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
            for path in sorted(Path(folder or _RULES).glob("*.yml"))
        }
        unknown = [name for name in names if name not in files]
        if unknown:
            raise ValueError(f"no such rules: {', '.join(unknown)}")
        found = _alert_rules.changed_rules(files, changes or {}, float(wait_factor), names)
    except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise AnsibleFilterError(f"alert_rules: {error}") from error
    if extra:
        found["site"] = {"groups": list(extra)}
    return {
        f"{prefix}{name}.yml": _HEADER
        + yaml.safe_dump(plain(content), sort_keys=False, width=200, allow_unicode=True)
        for name, content in found.items()
    }


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"alert_rules": alert_rules}
