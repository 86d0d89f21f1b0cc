# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup spank_in_use."""

from __future__ import annotations

DOCUMENTATION = r"""
name: spank_in_use
author:
  - The baremetal.dgx authors (@baremetal-dgx)
version_added: 1.0.0
short_description: The plug-in for containers that Slurm's jobs run with
description:
  - Returns what configure_containers has noted once a job ran with the plug-in. In another release
    of Slurm it would not load and no job would start; then nothing is returned until
    configure_containers has built it again.
options:
  _terms:
    description: The folder C(.dgx) beside the inventory, and the release of Slurm.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show the line that Slurm has for containers
  ansible.builtin.debug:
    msg: "{{ lookup('baremetal.dgx.spank_in_use', '/srv/cluster/.dgx', '24.11').lines }}"
"""

RETURN = r"""
_raw:
  description: C(lines) of plugstack.conf, and C(plugins) that are copied, with C(src) and C(dest).
  type: list
  elements: dict
"""

import json
import os
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    """Reads pyxis/in-use.json."""

    def run(self, terms: Sequence[Any], variables: Any = None, **kwargs: Any) -> list[Any]:
        """Return one mapping; AnsibleLookupError where the note cannot be read."""
        self.set_options(var_options=variables, direct=kwargs)
        state_dir, release = (str(term) for term in terms)
        path = os.path.join(state_dir, "pyxis", "in-use.json")
        try:
            with open(path, encoding="utf-8") as stream:
                used = json.load(stream)
        except FileNotFoundError:
            used = {}
        except (OSError, ValueError) as exc:
            raise AnsibleLookupError(f"{path}: {exc}; remove it if it is broken") from exc
        if used.get("release", "") != release:
            return [{"lines": [], "plugins": []}]
        name = os.path.basename(used["plugin"])
        source = os.path.join(state_dir, "pyxis", "builds", name)
        plugins = [{"src": source, "dest": used["plugin"]}] if used["built"] else []
        return [{"lines": [used["line"]], "plugins": plugins}]
