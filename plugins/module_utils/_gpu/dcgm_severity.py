# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What DCGM's errors, categories and severities mean for a GPU. Pure.

The number of the error decides first (_dcgm_data), then its category, then its severity: "isolate"
alone says that a GPU should not work, not that it is broken. The numbers are of the public header
dcgm_errors.h (DCGM 3.3 and 4.6). DCGM 3 up to 3.1 writes no numbers; then the text and the name of
the test have to do.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

from .dcgm_data import DCGM_ERRORS, FALSE_ALARMS, TEXTS
from .thresholds import ACTION_REMEDIES

NONE, MONITOR, ISOLATE, UNKNOWN, TRIAGE, CONFIG, RESET = range(7)
SEVERITIES = ("none", "monitor", "isolate", "unknown", "triage", "config", "reset")

CATEGORY_SOFTWARE_CONFIG = 3
CATEGORY_SOFTWARE_LIBRARY = 4
CATEGORY_SOFTWARE_OTHER = 8
CATEGORIES_HARDWARE = range(9, 16)
CATEGORY_INTERNAL = 16

# What a complaint is about
HARDWARE = "hardware"
SETTINGS = "settings"
BENIGN = "benign"
UNCLEAR = "unclear"
BROKEN = "broken"
UNTESTED = "untested"

# Tests of DCGM 3 that only look at software; DCGM 4 has them in one test with severities.
SOFTWARE_TESTS = frozenset(
    [
        "blacklist",
        "denylist",
        "nvml_library",
        "cuda_main_library",
        "cuda_toolkit_library",
        "cuda_toolkit_libraries",
        "permissions_and_os_blocks",
        "permissions_and_os_related_blocks",
        "persistence_mode",
        "environment_variables",
        "environmental_variables",
        "graphics_processes",
    ]
)

_BY_NUMBER: dict[int | None, tuple[str, str]] = {row[0]: (row[1], row[2]) for row in DCGM_ERRORS}

# By action, the heaviest first. One fault has one remedy, whichever module has found it.
_REMEDIES = {
    "replace": ACTION_REMEDIES["replace"],
    "reboot": ACTION_REMEDIES["reboot"],
    "reset": ACTION_REMEDIES["reset"],
    "look": "look: drain the node and run gpu_health and dcgmi diag -r 3 before deciding",
    "watch": "look: jobs may run; test it again soon and compare",
}
_ACTIONS = {ISOLATE: "replace", RESET: "reset", TRIAGE: "look", MONITOR: "watch"}
_UNCLEAR = "look: DCGM does not say how serious it is; run gpu_health and gpu_burn on this GPU"


class Complaint(NamedTuple):
    """One warning of a result; numbers are None where DCGM gave none."""

    text: str
    error_id: int | None = None
    severity: int | None = None
    category: int | None = None

    def line(self) -> str:
        """Return it as a line of evidence."""
        names: dict[int | None, str] = dict(enumerate(SEVERITIES))
        severity = names.get(self.severity, "not given")
        number = "not given" if self.error_id is None else str(self.error_id)
        return f"error {number}, severity {severity}: {self.text}"


def number_of(complaint: Complaint) -> int | None:
    """Return the number of the error, by its text if DCGM gives none."""
    if complaint.error_id is not None:
        return complaint.error_id
    return next((number for part, number in TEXTS if part in complaint.text), None)


def kind_of(complaint: Complaint, test: str, version: str = "") -> str:
    """Return what a complaint is about: by its number, its category, its severity, the test."""
    if false_alarm(complaint, test, version):
        return UNTESTED
    about, _action = _BY_NUMBER.get(number_of(complaint), (UNCLEAR, ""))
    if about != UNCLEAR:
        return about
    if complaint.category in (
        CATEGORY_SOFTWARE_CONFIG,
        CATEGORY_SOFTWARE_LIBRARY,
        CATEGORY_SOFTWARE_OTHER,
    ):
        return SETTINGS
    if complaint.category == CATEGORY_INTERNAL:
        return BROKEN
    if complaint.category in CATEGORIES_HARDWARE and complaint.severity == CONFIG:
        return HARDWARE
    if complaint.severity == CONFIG:
        return SETTINGS
    if complaint.severity in (ISOLATE, RESET, TRIAGE):
        return HARDWARE
    if complaint.severity == MONITOR:
        return BENIGN
    return SETTINGS if test in SOFTWARE_TESTS else UNCLEAR


def false_alarm(complaint: Complaint, test: str, version: str) -> str:
    """Return the source that calls this complaint of this release a false alarm, or nothing."""
    release = _release(version)
    return next(
        (
            source
            for first, repaired, which, part, source in FALSE_ALARMS
            if which == test
            and part in complaint.text
            and _release(first) <= release < _release(repaired)
        ),
        "",
    )


def _release(version: str) -> tuple[int, ...]:
    parts = version.split("-")[0].split(".")
    return tuple(int(part) for part in parts if part.isdigit())


def remedy_of(complaints: Sequence[Complaint]) -> str:
    """Return what to do about the heaviest of them."""
    actions = {_action_of(one) for one in complaints}
    return next((text for action, text in _REMEDIES.items() if action in actions), _UNCLEAR)


def _action_of(complaint: Complaint) -> str:
    about, action = _BY_NUMBER.get(number_of(complaint), (UNCLEAR, ""))
    if about == BENIGN:
        return "watch"
    if about != UNCLEAR:
        return action
    return _ACTIONS.get(complaint.severity if complaint.severity is not None else NONE, "")
