# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What a BMC answers that takes a package of firmware. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Iterator, Mapping
from urllib.parse import urlsplit

_INFO = "@Message.ExtendedInfo"


@dataclass(frozen=True)
class Taken:
    """The path of the task, empty if none is named; whether the answer claims that all is done."""

    task: str
    is_over: bool = False


def read_taken(status: int, text: str | bytes | None, location: str | None) -> Taken:
    """Return what an accepted answer says.

    DGX H100 and other BMCs of AMI name the task in a message alone (Task.New).
    """
    try:
        data = json.loads(text or "{}")
    except ValueError:
        data = {}
    named = [urlsplit(one).path for one in _names(data) if isinstance(one, str)]
    paths = [one for one in named if "/TaskService/" in one]
    place = urlsplit(location or "").path
    # With 201 it is the place of a file that was stored.
    if status == 202 or "/TaskService/" in place:
        paths.append(place)
    return Taken(paths[0] if paths else "", status != 202)


def _names(data: Any) -> Iterator[Any]:
    """Yield what may be the path of a task, the surest first."""
    if not isinstance(data, Mapping):
        return
    yield data.get("@odata.id")
    error = data.get("error")
    inner = error.get(_INFO) if isinstance(error, Mapping) else None
    for messages in (data.get("Messages"), data.get(_INFO), inner):
        for one in messages if isinstance(messages, list) else ():
            if isinstance(one, Mapping) and isinstance(one.get("MessageArgs"), list):
                yield from one["MessageArgs"]
