# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What DCGM's severities and categories mean for a GPU. Data and a few lines. Pure.

The numbers are of the public header dcgm_errors.h (DCGM 3.3 and 4.6). DCGM 3 up to 3.1 writes no
severity; then the name of the test and the number of the error have to do.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

NONE, MONITOR, ISOLATE, UNKNOWN, TRIAGE, CONFIG, RESET = range(7)
SEVERITIES = ("none", "monitor", "isolate", "unknown", "triage", "config", "reset")

CATEGORY_SOFTWARE_CONFIG = 3
CATEGORY_SOFTWARE_LIBRARY = 4
CATEGORY_INTERNAL = 16

# DCGM_FR_PERSISTENCE_MODE
PERSISTENCE_MODE_OFF = 29

# What a complaint is about
HARDWARE = "hardware"
SETTINGS = "settings"
BENIGN = "benign"
UNCLEAR = "unclear"
BROKEN = "broken"

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
        "graphics_processes",
    ]
)

# The heaviest first
_REMEDIES = (
    (ISOLATE, "replace: drain the node, run the field diagnostic, return the GPU"),
    (RESET, "reset: drain the node and reset the GPU; when it comes again, replace it"),
    (TRIAGE, "look: drain the node and run gpu_health and dcgmi diag -r 3 before deciding"),
    (MONITOR, "look: jobs may run; test it again soon and compare"),
)
_UNCLEAR = "look: DCGM does not say how serious it is; run gpu_health and gpu_burn on this GPU"


class Complaint(NamedTuple):
    """One warning of a result; numbers are None where DCGM gave none."""

    text: str
    error_id: int | None = None
    severity: int | None = None
    category: int | None = None

    def line(self) -> str:
        """Return it as a line of evidence."""
        known = self.severity is not None and 0 <= self.severity < len(SEVERITIES)
        severity = SEVERITIES[self.severity or 0] if known else "not given"
        number = "not given" if self.error_id is None else str(self.error_id)
        return f"error {number}, severity {severity}: {self.text}"


def kind_of(complaint: Complaint, test: str) -> str:
    """Return what a complaint is about; the severity counts more than category and test."""
    if complaint.severity in (ISOLATE, RESET):
        return HARDWARE
    if complaint.severity == CONFIG or complaint.error_id == PERSISTENCE_MODE_OFF:
        return SETTINGS
    if complaint.category in (CATEGORY_SOFTWARE_CONFIG, CATEGORY_SOFTWARE_LIBRARY):
        return SETTINGS
    if complaint.category == CATEGORY_INTERNAL:
        return BROKEN
    if complaint.severity == TRIAGE:
        return HARDWARE
    if complaint.severity == MONITOR:
        return BENIGN
    return SETTINGS if test in SOFTWARE_TESTS else UNCLEAR


def remedy_of(complaints: Sequence[Complaint]) -> str:
    """Return what to do about the heaviest of them."""
    severities = {one.severity for one in complaints}
    return next((text for severity, text in _REMEDIES if severity in severities), _UNCLEAR)
