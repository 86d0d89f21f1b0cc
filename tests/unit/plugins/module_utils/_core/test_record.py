# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Tally,
    Threshold,
    brief_of,
    flaw,
    judge,
    line_of,
    lines_of,
    number_flaw,
    stamped,
)

THRESHOLD = Threshold(">=", 380, "Gb/s", "a source")


@pytest.mark.parametrize(
    ("measured", "status"), [(380, PASS), (379.9, FAIL), (0, FAIL), (None, NOT_MEASURED)]
)
def test_a_value_is_on_one_side_of_its_threshold_or_not_measured(measured, status):
    record = judge("pairs.bandwidth", "hca:a/rail0", measured, THRESHOLD, remedy="reseat")
    assert record.status == status
    assert record.remedy == ("" if status == PASS else "reseat")
    assert (record.measured is None) == (measured is None)


def test_a_record_is_plain_data():
    data = judge("c", "s", 1, THRESHOLD, evidence=["line"]).as_data()
    assert json.loads(json.dumps(data)) == data
    assert data["threshold"] == {"op": ">=", "value": 380, "unit": "Gb/s", "source": "a source"}
    assert data["measured"] == {"value": 1, "unit": "Gb/s"}
    # docs/records.schema.json describes this version.
    assert data["version"] == 1


def test_a_record_without_a_value_and_a_threshold_is_plain_data_too():
    data = Record("c", "s", NOT_MEASURED).as_data()
    assert json.loads(json.dumps(data)) == data
    assert data["measured"] is data["threshold"] is None


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


def test_what_is_not_a_number_is_not_measured():
    """No comparison with NaN holds: it would be taken for the fault of what was asked."""
    for value in (float("nan"), float("inf"), -float("inf"), 10**400):
        record = judge("gpu.power", "gpu:n/0", value, Threshold("<=", 700, "W", "a test"))
        assert (record.status, record.measured) == (NOT_MEASURED, None)
        assert record.text


SOUND = {
    "measured": {"value": 1, "unit": "Gb/s"},
    "threshold": {"op": ">=", "value": 1, "unit": "Gb/s", "source": "s"},
    "took_s": 0.5, "text": "a", "remedy": "b", "at": "2026-01-31T23:59:59Z", "evidence": ["a"],
}  # fmt: skip


@pytest.mark.parametrize("left_out", [*SOUND, ""])
def test_a_healthy_record_has_no_flaw(left_out):
    assert flaw({name: value for name, value in SOUND.items() if name != left_out}) == ""
    if left_out:
        assert flaw({**SOUND, left_out: None}) == ""


NAN, HUGE = float("nan"), 10**21


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measured": 5}, "measured has no value and unit"),
        ({"measured": {"value": 5}}, "measured has no value and unit"),
        ({"measured": {"value": 5, "more": 1}}, "measured has no value and unit"),
        ({"measured": {"value": NAN, "unit": ""}}, "measured: it is not a number"),
        ({"measured": {"value": HUGE, "unit": ""}}, "measured: the number is too large to be true"),
        ({"measured": {"value": [1, NAN], "unit": ""}}, "measured: it is not a number"),
        ({"threshold": ">= 5"}, "threshold has no operator"),
        ({"threshold": {"op": "~", "value": 1}}, "threshold has no operator"),
        ({"threshold": {"op": ">=", "value": NAN}}, "threshold: it is not a number"),
        ({"took_s": NAN}, "took_s: it is not a number"),
        ({"text": 5}, "text is not a text"),
        ({"remedy": ["a"]}, "remedy is not a text"),
        ({"at": 5}, "at is not a text"),
        ({"at": "yesterday"}, "at is not like 2026-01-31T23:59:59Z"),
        ({"evidence": "a line"}, "evidence is not a list of lines"),
        ({"evidence": ["a", 5]}, "evidence is not a list of lines"),
    ],
)
def test_flaws(change, message):
    assert flaw({**SOUND, **change}) == message
    # More than a value and a unit is not a flaw.
    assert flaw({**SOUND, "measured": {"value": 1, "unit": "", "more": 2}}) == ""


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_that_no_counter_reaches(sign):
    assert number_flaw(sign * (HUGE - 1)) == ""
    assert number_flaw(sign * HUGE) == "the number is too large to be true"
    assert number_flaw(sign * 1e21) == "the number is too large to be true"
    assert number_flaw({"a": {"b": sign * HUGE}}) == "the number is too large to be true"


def test_what_is_no_number_is_not_measured_and_says_so():
    assert judge("a.b", "gpu:a/0", NAN, THRESHOLD).text == "it is not a number"
    record = judge("a.b", "gpu:a/0", NAN, THRESHOLD, "read")
    assert (record.status, record.text) == (NOT_MEASURED, "read: it is not a number")


def test_records_are_counted_by_their_status():
    statuses = [PASS, PASS, PASS, FAIL, FAIL, NOT_MEASURED]
    found = Tally.of(Record("a.b", f"node:n{n}", status) for n, status in enumerate(statuses))
    assert found.counts == {PASS: 3, FAIL: 2, NOT_MEASURED: 1}


ZERO = Threshold("==", 0, "errors", "NVIDIA")
BAD = Record(
    "gpu.x", "gpu:n/1", FAIL, "text", {"value": 3, "unit": "errors"}, ZERO, remedy="look: here"
)
PLAIN = Record("gpu.y", "gpu:n/1", FAIL)
HUNG = Record("gpu.x", "gpu:n/2", NOT_MEASURED, "it hangs", threshold=ZERO)


@pytest.mark.parametrize(
    ("record", "brief", "line"),
    [
        (
            BAD,
            "gpu:n/1 gpu.x is 3 errors (must be == 0): text",
            "gpu:n/1 gpu.x is 3 errors (must be == 0): text; threshold: NVIDIA; do: look: here",
        ),
        (PLAIN, "gpu:n/1 gpu.y", "gpu:n/1 gpu.y"),
        (replace(BAD, threshold=None, remedy=""), "gpu:n/1 gpu.x is 3 errors: text", ""),
        (replace(BAD, measured=None, text="", remedy=""), "gpu:n/1 gpu.x", ""),
        (replace(PLAIN, measured={"value": 3, "unit": ""}), "gpu:n/1 gpu.y is 3", ""),
        (HUNG, "gpu:n/2 gpu.x: it hangs", "gpu:n/2 gpu.x not measured: it hangs"),
        (
            replace(HUNG, text="", remedy="reset"),
            "gpu:n/2 gpu.x",
            "gpu:n/2 gpu.x not measured; do: reset",
        ),
    ],
)
def test_a_record_is_one_line(record, brief, line):
    """In short, as Slurm's reason; and with whose threshold it is and what to do."""
    assert brief_of(record) == brief
    assert line_of(record) == (line or brief)


def test_records_of_a_status_are_a_line_each_or_a_count():
    records = [BAD, PLAIN, HUNG, BAD, PLAIN]
    assert lines_of(records, FAIL) == [line_of(one) for one in (BAD, PLAIN, BAD, PLAIN)]
    assert lines_of(records, FAIL, ["gpu.x", "gpu.z"]) == [line_of(PLAIN)] * 2 + ["gpu.x: 2 fail"]
    assert lines_of(records, NOT_MEASURED, ["gpu.x"]) == ["gpu.x: 1 not measured"]
    assert lines_of(records, PASS, ["gpu.x"]) == []


def test_a_record_keeps_a_time_of_its_own():
    first, second = stamped([*stamped([BAD], "2026-01-01T00:00:00Z", 2.0), PLAIN], "later", 3.4567)
    assert (first.at, first.took_s) == ("2026-01-01T00:00:00Z", 2.0)
    assert (second.at, second.took_s) == ("later", 3.457)
    assert [one.took_s for one in stamped([first, PLAIN], "later")] == [2.0, None]
