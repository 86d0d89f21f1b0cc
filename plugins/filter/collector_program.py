# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter collector_program."""

from __future__ import annotations

DOCUMENTATION = r"""
name: collector_program
short_description: A collector of metrics, as one file
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal)
description:
  - Makes the programs that the roles C(slurm_exporter) and C(fabric_exporter) install, of the
    sources of this collection.
  - They are the same for the same release, and need nothing on the host but Python 3.8.
options:
  _input:
    description: Where Python is on the host.
    type: str
    required: true
  name:
    description: Which collector, V(slurm) or V(fabric).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Install the collector
  baremetal.dgx.managed_files:
    files:
      - path: /usr/local/libexec/baremetal-dgx/slurm-metrics
        content: "{{ '/usr/bin/python3' | baremetal.dgx.collector_program('slurm') }}"
        encoding: base64
        mode: "0755"
"""

RETURN = r"""
_value:
  description: The file in base64.
  type: str
"""

import base64
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError


def collector_program(python: str, name: str) -> str:
    """Return a collector in base64; AnsibleFilterError for no path, or an unknown name."""
    from ansible_collections.baremetal.dgx.plugins.module_utils._collector_program import (
        PROGRAMS,
        program,
    )

    if not python.startswith("/") or len(python.split()) != 1:
        raise AnsibleFilterError(f"collector_program: {python!r} is no absolute path")
    if name not in PROGRAMS:
        raise AnsibleFilterError(f"collector_program: {name!r} is none of {', '.join(PROGRAMS)}")
    return base64.b64encode(program(name, python)).decode("ascii")


class FilterModule:
    """Hands the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"collector_program": collector_program}
