# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store of evidence: what is whole, what was truncated, what has the last word, what is old."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import (
    Problems,
    batch_lines,
    changes,
    current,
    file_name,
    history_lines,
    housekeeping,
    is_from_the_future,
    not_pass,
    pack,
    parse,
    parts_of,
    proven_now,
    run_name,
    run_playbook,
    unpack,
)

WHO = "PCI 0000:1b:00.0, UUID GPU-51a7ed00-0000-4000-8000-00000000000{}, serial 165{}"
RUN = "20260301T000000Z-validate_nodes"


def record(check, subject, status=PASS, number=None):
    evidence = () if number is None else (WHO.format(number, number),)
    return Record(check, subject, status, evidence=evidence).as_data()


def batch(run, number, scope, records, at="2026-03-01T00:00:00Z", **more):
    return batch_lines(run, number, scope, "test", records, at, **more)


def read(lines, problems=None):
    return list(parse(lines, "records.jsonl", problems or Problems()))


def heads(lines):
    return [one for one, data in read(lines) if data is None]


@pytest.mark.parametrize(
    ("status", "ahead", "kept"),
    [
        (PASS, "2026-03-01T00:09:00Z", (PASS, "2026-03-01T00:09:00Z")),
        (PASS, "2026-03-01T02:00:00Z", (NOT_MEASURED, "2026-03-01T00:00:00Z")),
        (PASS, "2036-03-01T00:00:00Z", (NOT_MEASURED, "2026-03-01T00:00:00Z")),
        (FAIL, "2036-03-01T00:00:00Z", (FAIL, "2026-03-01T00:00:00Z")),
        (PASS, "1970-01-01T00:00:09Z", (PASS, "1970-01-01T00:00:09Z")),
    ],
)
def test_a_pass_from_the_future_is_none(status, ahead, kept):
    """A node's clock that is ahead: its pass would be newer than the drain that comes after it."""
    lines = batch(RUN, 0, "dgx-001", [{**record("gpu.count", "node:dgx-001", status), "at": ahead}])
    ((_head, data),) = [one for one in read(lines) if one[1] is not None]
    assert (data["status"], data["at"]) == kept
    if kept[0] == NOT_MEASURED:
        assert f"dated {ahead}" in data["text"]
        # The control machine's may be behind as well.
        assert "the clock of the node or of the control machine was wrong" in data["text"]
        assert "chronyc tracking on both" in data["remedy"]


def test_a_line_is_json_that_proves_itself():
    line = pack({"kind": "record", "text": 'Ünïcode "quoted"\n\x1b[0m'})
    assert json.loads(line)["text"] == 'Ünïcode "quoted"\n\x1b[0m'
    assert "\n" not in line
    assert unpack(line) == {"kind": "record", "text": 'Ünïcode "quoted"\n\x1b[0m'}


def test_every_line_cut_short_or_changed_is_known():
    line = pack({"kind": "record", "n": 12345})
    for length in range(len(line)):
        with pytest.raises(ValueError, match=r"truncated|no line|checksum"):
            unpack(line[:length])
    for place in range(len(line)):
        changed = line[:place] + ("x" if line[place] != "x" else "y") + line[place + 1 :]
        with pytest.raises(ValueError, match=r"truncated|no line|checksum"):
            unpack(changed)


def test_a_batch_is_read_as_it_was_written():
    records = [record("gpu.ecc", "gpu:n/0"), record("gpu.xid", "gpu:n/0", FAIL)]
    problems = Problems()
    found = read(batch(RUN, 0, "n", records, level="quick", simulated="GPUs"), problems)
    assert problems.lines == []
    head = found[0][0]
    assert head.whole
    assert head.head["counts"] == {PASS: 1, FAIL: 1, NOT_MEASURED: 0}
    assert head.head["not_pass"] == [["gpu.xid", "gpu:n/0", FAIL]]
    assert head.head["layers"] == ["gpu"]
    assert (head.head["level"], head.head["simulated"]) == ("quick", "GPUs")
    assert [data["check"] for _batch, data in found[1:]] == ["gpu.ecc", "gpu.xid"]
    # Checks without their own time have that of the batch.
    assert {data["at"] for _batch, data in found[1:]} == {"2026-03-01T00:00:00Z"}


def test_a_batch_cut_anywhere_is_told_and_takes_nobodys_place():
    old = batch(RUN, 0, "n", [record("gpu.ecc", "gpu:n/0")])
    text = "\n".join(
        batch(RUN, 99, "n", [record("gpu.ecc", "gpu:n/0", FAIL)] * 2, at="2026-03-02T00:00:00Z")
    )
    for length in range(1, len(text)):
        problems = Problems()
        found = heads_of(old + text[:length].split("\n"), problems)
        assert problems.lines, length
        assert current(found)["n", "gpu"].head["batch"] == 0
    problems = Problems()
    found = heads_of(old + text.split("\n"), problems)
    assert problems.lines == []
    assert current(found)["n", "gpu"].head["batch"] == 99


def heads_of(lines, problems):
    return [one for one, data in list(parse(lines, "f", problems)) if data is None]


def test_what_is_no_record_is_refused_before_anything_is_written():
    with pytest.raises(KeyError):
        batch(RUN, 0, "n", [{"check": "x"}])
    with pytest.raises(TypeError):
        batch(RUN, 0, "n", [{**record("a", "b"), "status": "great"}])


def test_a_store_of_a_newer_release_is_told():
    line = pack({**unpack(batch(RUN, 0, "n", [])[0]), "v": 2})
    problems = Problems()
    assert read([line], problems) == []
    assert "newer release" in problems.lines[0]


def test_each_layer_has_its_own_last_word():
    first = batch(RUN, 0, "n", [record("gpu.ecc", "gpu:n/0"), record("burn.run", "gpu:n/0", FAIL)])
    quick = batch(RUN, 500, "n", [record("gpu.ecc", "gpu:n/0", FAIL)], at="2026-03-05T00:00:00Z")
    last = current(heads(first + quick))
    assert last["n", "gpu"].head["batch"] == 500
    assert last["n", "burn"].head["batch"] == 0
    assert not_pass(last) == {
        ("gpu.ecc", "gpu:n/0"): FAIL,
        ("burn.run", "gpu:n/0"): FAIL,
    }


def test_a_layer_that_is_asked_no_more_has_no_last_word():
    first = batch(
        RUN, 0, "n", [record("gpu.ecc", "gpu:n/0"), record("fio.data", "mount:n/r", FAIL)]
    )
    other = batch(RUN, 300, "m", [record("fio.data", "mount:m/r", FAIL)])
    ended = batch(RUN, 500, "n", [record("gpu.ecc", "gpu:n/0")], ended=["fio"])
    found = heads(first + other + ended)
    assert sorted(current(found)) == [("m", "fio"), ("n", "gpu")]
    # A store of a release before that.
    for one in found:
        del one.head["ended"]
    assert not_pass(current(found))["fio.data", "mount:n/r"] == FAIL
    # It is asked again.
    again = batch(RUN, 900, "n", [record("fio.data", "mount:n/r")])
    assert ("n", "fio") in current(heads(first + ended + again))


def test_what_changed_since_the_run_before():
    before = batch(
        "20260301T000000Z-validate_nodes", 0, "n",
        [record("gpu.ecc", "gpu:n/0", FAIL), record("gpu.xid", "gpu:n/1", FAIL)],
    )  # fmt: skip
    after = batch(
        "20260302T000000Z-validate_nodes", 0, "n",
        [record("gpu.ecc", "gpu:n/0"), record("gpu.xid", "gpu:n/1", NOT_MEASURED),
         record("gpu.sxid", "node:n", FAIL)],
        at="2026-03-02T00:00:00Z",
    )  # fmt: skip
    found = changes(heads(before) + heads(after))
    assert found.new == (
        ("gpu.sxid", "node:n", "", FAIL),
        ("gpu.xid", "gpu:n/1", FAIL, NOT_MEASURED),
    )
    assert found.gone == (("gpu.ecc", "gpu:n/0", FAIL, ""),)
    assert found.with_passed({("gpu.ecc", "gpu:n/0")}).gone == (("gpu.ecc", "gpu:n/0", FAIL, PASS),)
    assert found.since == "2026-03-01T00:00:00Z"
    assert changes(heads(before)).since == ""


def test_a_part_is_followed_by_what_names_it():
    records = [
        record("gpu.ecc", "gpu:n/0", PASS, 1),
        record("gpu.xid", "gpu:n/0", FAIL),
        record("gpu.ecc", "gpu:n/1", NOT_MEASURED, 2),
        record("gpu.nvml", "node:n", FAIL),
    ]
    parts = parts_of(records)
    first = "gpu-51a7ed00-0000-4000-8000-000000000001"
    assert parts["gpu:n/0"] == first
    found = history_lines({"run": RUN, "batch": 0, "at": "t"}, records, parts)
    assert len(found) == 2
    assert found[first]["status"] == FAIL
    assert found[first]["checks"] == ["gpu.xid"]
    assert found[first]["node"] == "n"


def test_a_lost_part_is_known_from_before():
    lost = [record("gpu.present", "gpu:n/0", FAIL)]
    assert history_lines({"run": RUN, "batch": 0, "at": "t"}, lost, {}) == {}
    found = history_lines({"run": RUN, "batch": 0, "at": "t"}, lost, {"gpu:n/0": "gpu-1"})
    assert found["gpu-1"]["checks"] == ["gpu.present"]


def only(lines):
    assert len(lines) == 1
    return next(iter(lines.values()))


def test_a_burn_in_that_is_told_again_failed_when_it_burned():
    burnt, report = "2026-03-01T00:00:00Z", "2026-03-20T00:00:00Z"
    failed = {**record("burn.gemm_bf16", "gpu:n/0", FAIL, 1), "at": burnt}
    healthy = {**record("gpu.ecc", "gpu:n/0", PASS, 1), "at": report}
    head = {"run": RUN, "batch": 0, "at": report}
    line = only(history_lines(head, [failed, healthy], parts_of([failed])))
    assert line["at"] == burnt
    line = only(history_lines(head, [healthy], parts_of([healthy])))
    assert line["at"] == report


def test_a_failure_that_stands_is_of_the_part_that_failed():
    """Another GPU sits there now, and it failed nothing."""
    now, stands = record("gpu.ecc", "gpu:n/0", PASS, 2), record("burn.hbm", "gpu:n/0", FAIL, 1)
    records = [now, record("gpu.xid", "gpu:n/0"), stands]
    found = history_lines({"run": RUN, "batch": 0, "at": "t"}, records, parts_of(records))
    reported = {serial[-1]: (one["status"], one["checks"]) for serial, one in found.items()}
    assert reported == {"1": (FAIL, ["burn.hbm"]), "2": (PASS, [])}


def test_names_of_runs():
    name = run_name("2026-03-01T00:00:00Z", "validate_nodes")
    assert name == RUN
    assert run_name("2026-03-01T00:00:00Z", "validate_nodes", [RUN, f"{RUN}-2"]) == f"{RUN}-3"
    assert run_playbook(f"{RUN}-3") == "validate_nodes"
    for bad in ("../up", "", "A", "a b"):
        with pytest.raises(ValueError, match="letters"):
            run_name("2026-03-01T00:00:00Z", bad)


def test_file_names_lead_nowhere_else():
    assert file_name("../../etc/passwd") == "_.._etc_passwd"
    assert file_name("a088:c203:0046") == "a088_c203_0046"
    for bad in ("", "..", "."):
        with pytest.raises(ValueError, match="not a name"):
            file_name(bad)


def test_old_runs_are_compressed_then_removed_but_never_the_newest():
    now = datetime(2026, 3, 31, tzinfo=timezone.utc)
    runs = [f"202603{day:02d}T000000Z-validate_nodes" for day in (1, 2, 20, 30)]
    runs.append("20250101T000000Z-validate_fabric")
    found = housekeeping(runs, now, 10, 25)
    assert found.compress == ("20250101T000000Z-validate_fabric", runs[2])
    assert found.remove == (runs[0], runs[1])
    assert housekeeping(runs, now, 0, 0) == type(found)()


def at(text):
    return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc)


WEEKLY = [f"2026{month:02d}{day:02d}T000000Z-validate_nodes" for month in (1, 2, 3)
          for day in (1, 8, 15, 22)]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "now", "proven"),
    [
        pytest.param([], "2026-03-24", "2026-03-24", id="as always"),
        pytest.param([], "2036-01-01", "2026-03-22", id="a clock ten years ahead"),
        pytest.param(["20360101"], "2036-01-01", "2026-03-22", id="whose run has begun"),
        pytest.param(["20360101"], "2026-03-24", "2026-03-24", id="and was put right"),
        pytest.param(["20360101", "20360104"], "2036-01-05", "2026-03-22", id="for some days"),
        pytest.param(["20360101", "20360109"], "2036-01-09", "2036-01-09", id="a week of runs"),
        pytest.param(["20261001"], "2026-10-01", "2026-03-22", id="after half a year of rest"),
    ],
)
def test_the_time_that_the_runs_bear_out(more, now, proven):
    runs = [*WEEKLY, *(f"{day}T000000Z-validate_nodes" for day in more)]
    assert proven_now(runs, at(now)) == at(proven)


def test_a_run_from_the_future_is_neither_removed_nor_counted_among_the_newest():
    future = "20360101T000000Z-validate_nodes"
    found = housekeeping([*WEEKLY, future], at("2026-03-24"), 0, 30)
    assert future not in found.remove
    assert WEEKLY[-1] not in found.remove
    found = housekeeping([*WEEKLY[:2], future], at("2026-03-24"), 0, 30)
    assert found.remove == ()


HUGE = 10**400


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"measured": {"value": float("nan"), "unit": "W"}}, "measured: it is not a number"),
        ({"measured": {"value": float("inf"), "unit": "W"}}, "too large to be true"),
        ({"measured": {"value": HUGE, "unit": "W"}}, "too large to be true"),
        ({"measured": {"value": [1, float("nan")], "unit": "W"}}, "not a number"),
        ({"measured": 3}, "measured has no value and unit"),
        ({"measured": {"value": 3}}, "measured has no value and unit"),
        ({"threshold": {"op": ">=", "value": float("nan"), "unit": "", "source": ""}}, "threshold"),
        ({"threshold": {"op": "~", "value": 1, "unit": "", "source": ""}}, "no operator"),
        ({"took_s": float("nan")}, "took_s"),
        ({"text": 3}, "text is not a text"),
        ({"at": "tomorrow"}, "at is not like"),
        ({"at": "9999"}, "at is not like"),
        ({"evidence": "one line"}, "evidence is not a list"),
        ({"evidence": [3]}, "evidence is not a list"),
    ],
)
def test_a_record_that_cannot_be_used_has_measured_nothing(change, why):
    """What a node hands over must not stop the report of all others."""
    bad = {**record("gpu.power", "gpu:n/0"), **change}
    lines = batch(RUN, 0, "n", [bad, record("gpu.ecc", "gpu:n/0")])
    kept = [data for _one, data in read(lines) if data]
    assert [one["status"] for one in kept] == [NOT_MEASURED, PASS]
    assert (kept[0]["check"], kept[0]["subject"]) == ("gpu.power", "gpu:n/0")
    assert kept[0]["text"].startswith("the record cannot be used: ")
    assert why in kept[0]["text"]


@pytest.mark.parametrize(
    ("subject", "scope", "refused"),
    [
        ("gpu:n/0", "n", False),
        ("node:n", "n", False),
        ("hca:n/rail3", "n", False),
        ("port:n/rail3", "n", False),
        ("fabric", "n", False),
        ("gpu:dgx-01/0", "n", True),
        ("node:dgx-01", "n", True),
        ("cable:dgx-01/rail1--leaf-01/2", "n", True),
        ("nodes:n,dgx-01", "n", True),
        ("gpu:dgx-01/0", "fabric", False),
        ("cable:dgx-01/rail1--leaf-01/2", "fabric", False),
    ],
)
def test_a_node_can_say_nothing_of_another(subject, scope, refused):
    (_head, _none), (_one, kept) = read(batch(RUN, 0, scope, [record("gpu.ecc", subject, FAIL)]))
    assert kept["status"] == (NOT_MEASURED if refused else FAIL)
    if refused:
        assert kept["subject"] == f"node:{scope}"
        assert kept["text"] == f"n has handed over a record about another node: {subject}"


BEGUN = datetime(2026, 3, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


def named(time, playbook="validate_nodes"):
    return f"{time.strftime('%Y%m%dT%H%M%SZ')}-{playbook}"


def test_a_clock_may_be_ten_minutes_ahead():
    now = BEGUN
    assert not is_from_the_future(named(now), now)
    assert not is_from_the_future(named(now + timedelta(minutes=10)), now)
    assert is_from_the_future(named(now + timedelta(minutes=10) + SECOND), now)


def test_ninety_days_are_no_gap_and_a_second_more_is():
    gap = timedelta(days=90)
    assert proven_now([], BEGUN) == BEGUN
    assert proven_now([named(BEGUN)], BEGUN + gap) == BEGUN + gap
    assert proven_now([named(BEGUN)], BEGUN + gap + SECOND) == BEGUN
    for later, proven in ((BEGUN + gap, None), (BEGUN + gap + SECOND, BEGUN)):
        now = later + timedelta(days=1)
        assert proven_now([named(BEGUN), named(later)], now) == (proven or now)


def test_a_gap_counts_once_a_week_was_lived_through():
    later = BEGUN + timedelta(days=200)
    runs = [named(BEGUN), named(later)]
    week = later + timedelta(days=7)
    assert proven_now(runs, week) == week
    assert proven_now(runs, week - SECOND) == BEGUN


def test_what_is_as_old_as_the_limit_is_not_older():
    runs = [named(BEGUN + timedelta(days=day)) for day in range(4)]
    for age, old in ((timedelta(days=30), 0), (timedelta(days=30) + SECOND, 1)):
        now = BEGUN + age
        assert housekeeping(runs, now, 0, 30).remove == tuple(runs[:old])
        assert housekeeping(runs, now, 30, 0).compress == tuple(runs[:old])


def test_a_run_of_the_same_second_has_the_next_number():
    at_, base = "2026-03-01T00:00:00Z", RUN
    assert run_name(at_, "validate_nodes") == base
    assert run_name(at_, "validate_nodes", [base]) == f"{base}-2"
    assert run_name(at_, "validate_nodes", [base, f"{base}-2"]) == f"{base}-3"


def test_names_of_files_have_150_characters_at_most():
    assert file_name("x" * 150) == file_name("x" * 151) == "x" * 150


def test_a_line_that_is_none_is_told_from_one_that_was_cut():
    line = pack({"kind": "end", "batch": 1, "records": 0})
    for bad, why in ((line[1:], "no line of the store"), (line[:-1], "truncated"),
                     (line[:-3], "truncated"), ("", "no line of the store")):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            unpack(bad)


def test_problems_name_the_line_and_what_is_there():
    lines = batch(RUN, 0, "n", [record("gpu.ecc", "gpu:n/0"), record("gpu.ecc", "gpu:n/1")])
    problems = Problems()
    read(["noise", "", *lines[:1]], problems)
    assert problems.lines == [
        "records.jsonl line 1: no line of the store",
        "records.jsonl: the batch of n was truncated: 0 of 2 records",
    ]
    problems = Problems()
    # An empty line is none, and ends nothing.
    assert len(read([lines[0], "", *lines[1:]], problems)) == 3
    assert problems.lines == []


def test_a_record_keeps_its_time_and_has_that_of_its_batch_otherwise():
    own = {**record("gpu.ecc", "gpu:n/0"), "at": "2026-02-01T00:00:00Z"}
    found = read(batch(RUN, 0, "n", [own, record("gpu.ecc", "gpu:n/1")]))
    assert [data["at"] for _batch, data in found if data] == [
        "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z",
    ]  # fmt: skip
    assert found[0][0].head["sequence"] == 0


def test_the_line_of_a_part_is_about_its_own_records():
    head = heads(batch(RUN, 0, "n", []))[0].head
    found = history_lines(
        head,
        [
            {"check": "node.count", "subject": "node:n", "status": FAIL},
            {"check": "gpu.ecc", "subject": "gpu:n/0", "status": PASS},
            {"check": "gpu.xid", "subject": "gpu:n/0", "status": FAIL},
            {"check": "dcgm.memory", "subject": "gpu:n/0", "status": NOT_MEASURED},
        ],
        {"gpu:n/0": "part"},
    )
    assert list(found) == ["part"]
    line = found["part"]
    assert (line["status"], line["layers"], line["checks"]) == (FAIL, ["gpu", "dcgm"], ["gpu.xid"])
    assert (line["at"], line["node"]) == (head["at"], "n")


def without_number(lines):
    """The lines as a release before the numbers of batches wrote them."""
    head = unpack(lines[0])
    return [pack({key: value for key, value in head.items() if key != "sequence"}), *lines[1:]]


def test_a_batch_without_a_number_is_older_than_any_with_one():
    early, late = "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"
    failed, passed = ([record("gpu.ecc", "gpu:n/0", status)] for status in (FAIL, PASS))
    old = heads(without_number(batch(RUN, 0, "n", failed, late)))
    new = heads(batch(RUN, 1, "n", passed, early, sequence=1))
    for order in ([*old, *new], [*new, *old]):
        assert current(order)["n", "gpu"].head["batch"] == 1
    # Of two without a number the clock decides.
    older = heads(without_number(batch(RUN, 1, "n", passed, early)))
    assert current([*old, *older])["n", "gpu"].head["batch"] == 0
