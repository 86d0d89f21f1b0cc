# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saves what many nodes have answered to validate_nodes, beside the inventory."""

from __future__ import annotations

import json
import time
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.baremetal.dgx.plugins.modules.validation_records import ARGUMENTS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.save import save_all


class ActionModule(ActionBase):
    """Runs on the controller only and opens no connection to a host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Save the records, and return how the nodes are."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        options = json.loads(json.dumps(arguments, default=str))
        if self._task.check_mode:
            return {**result, "changed": False, "nodes": {}, "lines": [], "text": ""}
        try:
            result.update(changed=True, **save_all(options, time.time()))
        except (OSError, ValueError) as error:
            result.update(failed=True, msg=str(error))
        return result
