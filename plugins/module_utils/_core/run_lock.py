# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Who runs a playbook that must not run twice, kept in a file; for the module run_lock."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from . import files
from .record import utc_text
from .run import ToolError


def read(path: str) -> dict[str, str]:
    """Return who holds it and since when; empty where nobody does. OSError, ValueError."""
    try:
        found = files.read_json(path, "who holds it")
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a mapping; remove it if no run is going on")
    return {key: str(found.get(key, "")) for key in ("owner", "since")}


def apply(params: Mapping[str, Any], path: str, check_mode: bool) -> dict[str, Any]:
    """Take it or give it back; return what the module returns. ToolError, OSError, ValueError."""
    kept = read(path)
    owner, held = params["owner"], kept.get("owner", "")
    if held in params["former"]:
        # Of a run that was killed: it is given back, or taken over, like this run's own.
        held = owner
    if params["state"] == "released":
        if held == owner and not check_mode:
            files.remove(path)
        return {"changed": held == owner, "held_by": "", "since": ""}
    if held and held != owner:
        raise ToolError(
            f"{params['name']}: {held} does it since {kept['since']}: wait for it; if that run "
            f"is over, remove {path} on {os.uname().nodename}",
            held_by=held,
            since=kept["since"],
        )
    since = kept.get("since") or utc_text()
    if kept.get("owner", "") != owner and not check_mode:
        files.write_atomic(path, json.dumps({"owner": owner, "since": since}) + "\n", 0o644)
    return {"changed": not held, "held_by": owner, "since": since}
