# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store of evidence: what is whole, what was cut short, what has the last word, what is old."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._evidence import (
    Problems,
    batch_lines,
    changes,
    current,
    file_name,
    history_lines,
    housekeeping,
    not_pass,
    pack,
    parse,
    parts_of,
    run_name,
    run_playbook,
    unpack,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
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


def test_a_line_is_json_that_proves_itself():
    line = pack({"kind": "record", "text": 'Ünïcode "quoted"\n\x1b[0m'})
    assert json.loads(line)["text"] == 'Ünïcode "quoted"\n\x1b[0m'
    assert "\n" not in line
    assert unpack(line) == {"kind": "record", "text": 'Ünïcode "quoted"\n\x1b[0m'}


def test_every_line_cut_short_or_changed_is_known():
    line = pack({"kind": "record", "n": 12345})
    for length in range(len(line)):
        with pytest.raises(ValueError, match=r"cut short|no line|checksum"):
            unpack(line[:length])
    for place in range(len(line)):
        changed = line[:place] + ("x" if line[place] != "x" else "y") + line[place + 1 :]
        with pytest.raises(ValueError, match=r"cut short|no line|checksum"):
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
    # Checks without a time of their own have that of the batch.
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
        ("gpu.sxid", "node:n", PASS, FAIL),
        ("gpu.xid", "gpu:n/1", FAIL, NOT_MEASURED),
    )
    assert found.gone == (("gpu.ecc", "gpu:n/0", FAIL, PASS),)
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


def test_a_burn_in_that_is_told_again_failed_when_it_burnt():
    burnt, told = "2026-03-01T00:00:00Z", "2026-03-20T00:00:00Z"
    failed = {**record("burn.gemm_bf16", "gpu:n/0", FAIL, 1), "at": burnt}
    sound = {**record("gpu.ecc", "gpu:n/0", PASS, 1), "at": told}
    head = {"run": RUN, "batch": 0, "at": told}
    line = only(history_lines(head, [failed, sound], parts_of([failed])))
    assert line["at"] == burnt
    line = only(history_lines(head, [sound], parts_of([sound])))
    assert line["at"] == told


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
        with pytest.raises(ValueError, match="no name"):
            file_name(bad)


def test_old_runs_are_compressed_then_removed_but_never_the_newest():
    now = datetime(2026, 3, 31, tzinfo=timezone.utc)
    runs = [f"202603{day:02d}T000000Z-validate_nodes" for day in (1, 2, 20, 30)]
    runs.append("20250101T000000Z-validate_fabric")
    found = housekeeping(runs, now, 10, 25)
    assert found.compress == ("20250101T000000Z-validate_fabric", runs[2])
    assert found.remove == (runs[0], runs[1])
    assert housekeeping(runs, now, 0, 0) == type(found)()
