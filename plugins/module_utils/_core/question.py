# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""A question: what is asked, the threshold, where that comes from, and what to do. Pure.

The `thresholds.py` of each package is a table of them, and docs/thresholds.md is made from these
tables. A record has a Threshold, which is what one value was compared with on one node.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple

from .record import Record, Threshold, judge


class Question(NamedTuple):
    """What a check asks, before anything is measured: `measured op value` in `unit`.

    `value` is None if `source` (the profile, the inventory, the device) gives it for each node.
    All texts but `op` may have {fields}, which filled() replaces.
    """

    check: str
    what: str
    op: str
    value: Any
    unit: str
    source: str
    remedy: str

    def filled(self, **fields: Any) -> Question:
        """Return the question with its {fields} replaced; KeyError for one that is not given."""
        return self._replace(
            check=self.check.format(**fields),
            what=self.what.format(**fields),
            unit=self.unit.format(**fields),
            source=self.source.format(**fields),
            remedy=self.remedy.format(**fields),
        )

    def threshold(self, value: Any = None, source: str = "") -> Threshold:
        """Return what a value is compared with: `value`, by default the question's own."""
        return Threshold(
            self.op, self.value if value is None else value, self.unit, source or self.source
        )

    def judge(
        self,
        subject: str,
        measured: Any,
        value: Any = None,
        *,
        text: str | None = None,
        remedy: str = "",
        evidence: Iterable[str] = (),
        source: str = "",
    ) -> Record:
        """Return the record of a measured value; None is a value that could not be read.

        `value` is the threshold's, `text`, `remedy` and `source` replace the question's own.
        """
        return judge(
            self.check,
            subject,
            measured,
            self.threshold(value, source),
            self.what if text is None else text,
            remedy or self.remedy,
            evidence,
        )


def by_check(*questions: Question) -> Mapping[str, Question]:
    """Return the questions by the name of their check; ValueError if two have the same."""
    found = {one.check: one for one in questions}
    if len(found) != len(questions):
        checks = [one.check for one in questions]
        twice = sorted({check for check in checks if checks.count(check) > 1})
        raise ValueError(f"{', '.join(twice)}: two questions of one check")
    return found
