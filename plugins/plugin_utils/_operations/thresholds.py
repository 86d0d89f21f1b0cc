# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is asked of a value that passes: how far it is from the rest of the fleet. Data only."""

from __future__ import annotations

from ...module_utils._core.question import Question

LOW = Question(
    "fleet.{check}", "a passing value against the fleet, if low is bad", ">=", None, "{unit}",
    "the site; median of {values} and {spreads:g} spreads",
    "measure it again beside a healthy one of its kind; if the difference stays, exchange it",
)  # fmt: skip
HIGH = LOW._replace(what="a passing value against the fleet, if high is bad", op="<=")
