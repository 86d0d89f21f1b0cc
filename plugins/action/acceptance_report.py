# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the report on the controller, which has Jinja2; the module of its name says more."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import (
    BrokenError,
    HungError,
    in_time,
)
from ansible_collections.baremetal.dgx.plugins.modules.acceptance_report import ARGUMENTS
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.make import make_report

# Years of records of a thousand nodes take minutes.
_LIMIT_S = 900.0


def make_in_time(options: dict[str, Any], write: bool) -> dict[str, Any]:
    """Return the result of the task, though the store may be on a mount that does not answer."""

    def work(_send: Any) -> dict[str, Any]:
        try:
            return make_report(options, write)
        except ValueError as error:
            return {"failed": True, "msg": str(error)}

    try:
        made: dict[str, Any] = in_time(options["evidence"], work, _LIMIT_S)
    except HungError as error:
        return {"failed": True, "msg": str(error), "hung": True}
    except (BrokenError, OSError) as error:
        return {"failed": True, "msg": str(error)}
    return {"changed": not made.get("failed"), **made}


class ActionModule(ActionBase):
    """Runs on the controller only and opens no connection."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Make the report, and return what it says."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        # Texts of a template or a vault are more than texts; a report is made of plain ones.
        options = json.loads(json.dumps(arguments, default=str))
        result.update(make_in_time(options, write=not self._task.check_mode))
        return result
