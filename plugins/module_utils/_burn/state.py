# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What a burn-in has found so far, on disk: written whole or not at all, so that it can go on."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping

from .._core.files import write_atomic
from .plan import Settings, Sum, settings_from_data, sum_from_data
from .watcher import Seen

VERSION = 1
FILE = "state.json"
RUNNING, DONE, STOPPED, INTERRUPTED, FAILED = (
    "running",
    "done",
    "stopped",
    "interrupted",
    "failed",
)
# After these nothing is left to do.
ENDED = (DONE, STOPPED, FAILED)


@dataclass
class State:
    """All of a burn-in.

    `left` are GPUs that were not burned in, `ended` those that were given up; both say {reason,
    text}. `sums` is keyed by _burn_plan.key, `seen` by PCI address, empty for
    Xids whose GPU NVML does not tell. Times are seconds since the epoch.
    """

    settings: Settings
    state: str = RUNNING
    text: str = ""
    step: int = 0
    steps: int = 0
    step_done_s: float = 0.0
    phase: str = ""
    started: float = 0.0
    updated: float = 0.0
    burnt_s: float = 0.0
    pid: int = 0
    resumed: int = 0
    gpus: dict[str, dict[str, Any]] = field(default_factory=dict)
    left: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    peers_ended: dict[str, Any] = field(default_factory=dict)
    closed_pairs: list[list[str]] = field(default_factory=list)
    stop: dict[str, Any] = field(default_factory=dict)
    watch_error: str = ""
    simulated: bool = False
    sums: dict[str, Sum] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)

    def sum_of(self, name: str) -> Sum:
        """Return the sum of this name, a new one where there is none."""
        return self.sums.setdefault(name, Sum())

    def as_data(self) -> dict[str, Any]:
        """Return mappings, lists and scalars."""
        data = asdict(self)
        data["settings"] = self.settings.as_data()
        data["version"] = VERSION
        return data


def state_from_data(data: Mapping[str, Any]) -> State:
    """Return a state as it was kept. Raises ValueError for one of another version."""
    values = dict(data)
    if values.pop("version", None) != VERSION:
        raise ValueError("the burn-in on disk is of another version of the collection")
    values["settings"] = settings_from_data(values["settings"])
    values["sums"] = {name: sum_from_data(one) for name, one in values["sums"].items()}
    # States of earlier versions counted each sample.
    values["seen"] = {
        name: Seen(**{"throttle_samples": one["samples"], **one})
        for name, one in values["seen"].items()
    }
    return State(**values)


def save(folder: str, state: State) -> None:
    """Write the state; a reader sees the old one or the new one. Raises OSError."""
    state.updated = time.time()
    write_atomic(os.path.join(folder, FILE), json.dumps(state.as_data()))


def load(folder: str) -> State | None:
    """Return what is on disk, None where nothing is. Raises ValueError, OSError."""
    try:
        with open(os.path.join(folder, FILE), encoding="ascii") as stream:
            return state_from_data(json.load(stream))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError) as error:
        raise ValueError(f"{FILE} cannot be understood: {error}") from None
