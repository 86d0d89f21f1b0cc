# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Tally,
    Threshold,
    judge,
)

MARK = Threshold(">=", 380, "Gb/s", "a source")


@pytest.mark.parametrize(
    ("measured", "status"), [(380, PASS), (379.9, FAIL), (0, FAIL), (None, NOT_MEASURED)]
)
def test_a_value_is_on_one_side_of_its_mark_or_not_measured(measured, status):
    record = judge("pairs.bandwidth", "hca:a/rail0", measured, MARK, remedy="reseat")
    assert record.status == status
    assert record.remedy == ("" if status == PASS else "reseat")
    assert (record.measured is None) == (measured is None)


def test_a_record_is_plain_data():
    data = judge("c", "s", 1, MARK, evidence=["line"]).as_data()
    assert json.loads(json.dumps(data)) == data
    assert data["threshold"] == {"op": ">=", "value": 380, "unit": "Gb/s", "source": "a source"}


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ([], NOT_MEASURED),
        ([PASS, PASS], PASS),
        ([PASS, NOT_MEASURED], NOT_MEASURED),
        ([NOT_MEASURED, FAIL, PASS], FAIL),
    ],
)
def test_no_evidence_is_no_pass(statuses, verdict):
    assert Tally.of(Record("c", "s", status) for status in statuses).verdict == verdict
