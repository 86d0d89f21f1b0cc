# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of many subjects, folded: who fails, who was not measured, and who only touches them."""

from __future__ import annotations

import pytest
from verdict_fold import verdicts

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Threshold,
    judge,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.verdict import (
    BACKUP,
    FABRIC,
    CommonFinding,
    Fold,
    NodeVerdict,
    failing_checks,
    gate_data,
    is_about_another,
    judge_again,
    layer_of,
    place_of,
    questions,
    record_from_data,
    serials_of,
)

CABLE = "cable:dgx-02/rail1--ib-leaf-01/6"
RATE = Threshold(">=", 715, "TFLOP/s", "published for this model")


def one(check, subject, status, **more):
    return Record(check, subject, status, **more)


@pytest.mark.parametrize(
    ("subject", "owner", "nodes"),
    [
        ("node:dgx-01", "dgx-01", ("dgx-01",)),
        ("gpu:dgx-01/7", "dgx-01", ("dgx-01",)),
        ("hca:dgx-01/rail3", "dgx-01", ("dgx-01",)),
        # What the program on the node asks besides GPUs and adapters.
        ("path:dgx-01/home", "dgx-01", ("dgx-01",)),
        ("service:dgx-01/munge.service", "dgx-01", ("dgx-01",)),
        (CABLE, FABRIC, ("dgx-02",)),
        ("cable:ib-leaf-01/40--ib-spine-02/3", FABRIC, ()),
        ("port:dgx-01/rail3", FABRIC, ("dgx-01",)),
        ("pair:dgx-01/rail3--dgx-02/rail3", FABRIC, ("dgx-01", "dgx-02")),
        ("pair:dgx-01--dgx-02", FABRIC, ("dgx-01", "dgx-02")),
        ("nodes:dgx-01,dgx-02", FABRIC, ("dgx-01", "dgx-02")),
        ("switch:ib-leaf-01", FABRIC, ()),
        ("sm:head-01", FABRIC, ()),
        ("fabric", FABRIC, ()),
        ("gpu:", FABRIC, ()),
        ("backup:alpha/database", BACKUP, ()),
    ],
)
def test_where_a_subject_belongs(subject, owner, nodes):
    place = place_of(subject)
    assert (place.owner, place.nodes) == (owner, nodes)


def test_a_failure_wins_then_what_was_not_measured():
    records = {
        "dgx-01": [one("gpu.ecc", "gpu:dgx-01/0", PASS)],
        "dgx-02": [
            one("gpu.ecc", "gpu:dgx-02/0", PASS),
            one("gpu.xid", "gpu:dgx-02/1", NOT_MEASURED),
        ],
        "dgx-03": [
            one("gpu.nvml", "node:dgx-03", FAIL),
            one("gpu.ecc", "gpu:dgx-03/0", NOT_MEASURED),
            one("gpu.ecc", "gpu:dgx-03/1", FAIL),
        ],
    }
    found = {each.node: each for each in verdicts(records, {"dgx-01": "quick"})}
    assert {name: each.verdict for name, each in found.items()} == {
        "dgx-01": PASS,
        "dgx-02": NOT_MEASURED,
        "dgx-03": FAIL,
    }
    assert found["dgx-01"].level == "quick"
    # The part is what a technician looks for first.
    assert found["dgx-03"].first.subject == "gpu:dgx-03/1"
    assert found["dgx-02"].first.check == "gpu.xid"


def test_no_evidence_is_no_pass():
    (found,) = verdicts({"dgx-01": []})
    assert found.verdict == NOT_MEASURED
    assert found.at == ""
    assert found.first is None


def test_a_cable_is_the_fabrics_and_is_shown_at_its_node():
    records = {"dgx-02": [one("gpu.ecc", "gpu:dgx-02/0", PASS)], FABRIC: []}
    records[FABRIC].append(one("fabric.cable", CABLE, FAIL))
    node, fabric = verdicts(records)
    assert node.verdict == PASS
    assert [record.subject for record in node.shown] == [CABLE]
    assert fabric.verdict == FAIL

    node, fabric = verdicts(records, cables_fail_nodes=True)
    assert (node.verdict, fabric.verdict) == (FAIL, FAIL)
    assert node.shown == ()


def test_a_cable_that_passes_is_no_evidence_for_a_node():
    (node,) = verdicts({"dgx-02": [one("fabric.cable", CABLE, PASS)]}, cables_fail_nodes=True)
    assert node.verdict == NOT_MEASURED


def test_an_adapter_that_fails_fails_its_node_although_the_fabric_saw_it():
    found = verdicts({"dgx-02": [], FABRIC: [one("fabric.missing", "hca:dgx-02/rail1", FAIL)]})
    assert [each.verdict for each in found] == [FAIL, NOT_MEASURED]


def test_data_and_records_are_one():
    record = judge("burn.rate_bf16", "gpu:dgx-01/0", 700, RATE, "slow", "look", ["a", "b"])
    assert record_from_data(record.as_data()) == record
    assert [each.verdict for each in verdicts({"dgx-01": [record.as_data()]})] == [FAIL]
    with pytest.raises(TypeError):
        record_from_data({**record.as_data(), "status": "ok"})


def test_judged_again_with_another_threshold():
    record = judge("burn.rate_bf16", "gpu:dgx-01/0", 700, RATE, "slow", "return it")
    again = judge_again(record, {"burn.rate_bf16": 690}, "site")
    assert (again.status, again.remedy) == (PASS, "")
    assert again.threshold == Threshold(
        ">=", 690, "TFLOP/s", "site (was >= 715: published for this model)"
    )
    stricter = judge_again(again, {"burn.rate_bf16": 710}, "site")
    assert stricter.status == FAIL
    assert stricter.remedy
    assert judge_again(record, {"other": 1}, "site") is record


def test_what_was_not_measured_is_not_judged_again():
    record = one(
        "fabric.pairs.repeat",
        "pair:a/rail0--b/rail0",
        NOT_MEASURED,
        measured={"value": 300, "unit": "Gb/s"},
        threshold=Threshold(">=", 360, "Gb/s", "x"),
    )
    assert judge_again(record, {"fabric.pairs.repeat": 1}, "site") is record


@pytest.mark.parametrize(("status", "value"), [(FAIL, 400), (PASS, 200)])
def test_what_was_not_decided_by_its_value_is_not_judged_again(status, value):
    """The second of two exchanged cables fails at its full rate; a site asks for less of all."""
    record = one(
        "fabric.cable",
        "cable:a/rail0--leaf-01/1",
        status,
        measured={"value": value, "unit": "Gb/s"},
        threshold=Threshold(">=", 400, "Gb/s", "cable plan"),
    )
    for wanted in (100, 800):
        assert judge_again(record, {"fabric.cable": wanted}, "site") is record


@pytest.mark.parametrize("threshold", ["fast", True, None])
def test_a_threshold_that_cannot_be_compared_is_refused(threshold):
    record = judge("burn.rate_bf16", "gpu:dgx-01/0", 700, RATE)
    with pytest.raises(ValueError, match="cannot be compared"):
        judge_again(record, {"burn.rate_bf16": threshold}, "site")


def test_what_many_nodes_fail_is_a_question_about_the_checker():
    names = [f"dgx-{number:02d}" for number in range(1, 13)]
    records = {name: [one("gpu.ecc", f"gpu:{name}/0", PASS)] for name in names}
    for name in names[:3]:
        records[name].append(one("gpu.clock_sm", f"gpu:{name}/0", FAIL))
    records[names[5]].append(one("gpu.xid", f"gpu:{names[5]}/0", FAIL))
    found = verdicts(records)
    assert [(each.check, len(each.nodes)) for each in failing_checks(found)] == [
        ("gpu.clock_sm", 3),
        ("gpu.xid", 1),
    ]
    assert [each.check for each in questions(found)] == ["gpu.clock_sm"]
    assert questions(found, most_share=0.25) == []
    shares = {each["node"]: each["fleet_share"] for each in gate_data(found)}
    assert shares["dgx-01"] == 0.25
    assert shares["dgx-12"] == 0.0


def test_one_of_three_nodes_is_no_question():
    records = {name: [one("gpu.xid", f"gpu:{name}/0", PASS)] for name in ("a", "b")}
    records["c"] = [one("gpu.xid", "gpu:c/0", FAIL)]
    assert questions(verdicts(records)) == []


def test_what_the_gate_is_told():
    records = {
        "dgx-01": [
            one(
                "gpu.ecc", "gpu:dgx-01/3", FAIL, text="2 errors", remedy="replace", at="2026-01-02"
            ),
            one("gpu.xid", "gpu:dgx-01/3", PASS, at="2026-01-03"),
        ],
        FABRIC: [one("fabric.cable", CABLE, FAIL)],
    }
    assert gate_data(verdicts(records, {"dgx-01": "quick"})) == [
        {
            "node": "dgx-01",
            "verdict": FAIL,
            "at": "2026-01-03",
            "level": "quick",
            "first_failing": {
                "check": "gpu.ecc",
                "subject": "gpu:dgx-01/3",
                "text": "2 errors",
                "remedy": "replace",
            },
            "fleet_share": 1.0,
        }
    ]


def test_parts_are_known_by_what_names_them():
    line = "PCI 0000:1b:00.0, UUID GPU-51a7ed00-0000-4000-8000-000000000001, serial 1650000000001"
    wanted = ("gpu-51a7ed00-0000-4000-8000-000000000001", "1650000000001")
    assert serials_of(one("a", "gpu:n/0", PASS, evidence=(line,))) == wanted
    burnt = ("PCI 1", "uuid GPU-51a7ed00-0000-4000-8000-000000000001", "serial 1650000000001")
    assert serials_of(one("a", "gpu:n/0", PASS, evidence=burnt)) == wanted
    assert serials_of(one("a", "gpu:n/0", PASS, evidence=("UUID ?, serial ?",))) == ()
    assert serials_of(one("a", "node:n", PASS, evidence=(line,))) == ()
    guid = ("GUID a088:c203:0046:0b68",)
    assert serials_of(one("a", "hca:n/rail0", PASS, evidence=guid)) == ("a088:c203:0046:0b68",)


def test_layers():
    assert layer_of("gpu.ecc_mode") == "gpu"
    assert layer_of("fabric.cable") == "fabric"
    assert layer_of("fabric.pairs.part") == "fabric.pairs"


def test_a_record_of_the_least_data():
    data = {"check": "gpu.ecc", "subject": "gpu:dgx-01/0", "status": NOT_MEASURED}
    assert record_from_data(data) == one("gpu.ecc", "gpu:dgx-01/0", NOT_MEASURED)
    record = record_from_data({**data, "status": PASS, "at": "2026-01-02T00:00:00Z"})
    assert (record.status, record.at) == (PASS, "2026-01-02T00:00:00Z")
    bare = record_from_data(data)
    assert (bare.text, bare.evidence, bare.remedy, bare.at) == ("", (), "", "")


def test_ends_of_a_pair_that_are_no_rails():
    assert place_of("pair:dgx-01/x--dgx-02").nodes == ("dgx-02",)


OLD, NEW = "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"


@pytest.mark.parametrize("status", [PASS, FAIL, NOT_MEASURED])
@pytest.mark.parametrize(
    ("own", "batch", "newest"), [(OLD, NEW, OLD), (NEW, OLD, NEW), ("", NEW, NEW), ("", "", "")]
)
def test_a_record_is_as_old_as_it_says_and_else_as_its_batch(status, own, batch, newest):
    fold = Fold()
    fold.add(one("gpu.ecc", "gpu:dgx-01/0", status, at=own), batch)
    assert fold.verdict("dgx-01").at == newest


@pytest.mark.parametrize("status", [PASS, FAIL])
def test_the_newest_record_counts_whatever_the_order(status):
    for order in ((OLD, NEW), (NEW, OLD), (NEW, NEW)):
        fold = Fold()
        for at in order:
            fold.add(one("gpu.ecc", "gpu:dgx-01/0", status), at)
        assert fold.verdict("dgx-01").at == NEW


def test_passes_are_counted():
    fold = Fold()
    assert fold.verdict("dgx-01").passed == 0
    for gpu in range(3):
        fold.add(one("gpu.ecc", f"gpu:dgx-01/{gpu}", PASS))
    assert fold.verdict("dgx-01").passed == 3


def test_names_of_parts_come_from_their_own_evidence():
    uuid = "GPU-5c1fc2a8-0000-1111-2222-333344445555"
    for status in (PASS, FAIL):
        fold = Fold()
        fold.add(one("gpu.ecc", "gpu:dgx-01/0", status, evidence=(f"UUID {uuid}",)))
        fold.add(one("gpu.nvml", "node:dgx-02", status, evidence=(f"UUID {uuid}",)))
        fold.add(one("fabric.cable", CABLE, status, evidence=(f"UUID {uuid}",)))
        assert fold.verdict("dgx-01").serials == (uuid.lower(),)
        assert fold.verdict("dgx-02").serials == ()
        assert fold.verdict(FABRIC).serials == ()


def test_only_a_failed_cable_fails():
    def node(subject, status):
        fold = Fold(cables_fail_nodes=True)
        fold.add(one("fabric.cable", subject, status))
        return fold.verdict("dgx-02").verdict

    assert node(CABLE, FAIL) == FAIL
    assert node(CABLE, NOT_MEASURED) == NOT_MEASURED
    fold = Fold(cables_fail_nodes=True)
    fold.add(one("gpu.ecc", "gpu:dgx-02/0", PASS))
    fold.add(one("fabric.cable", CABLE, NOT_MEASURED))
    fold.add(one("fabric.pairs.rate", "pair:dgx-01--dgx-02", FAIL))
    assert fold.verdict("dgx-02").verdict == PASS
    assert len(fold.verdict("dgx-02").shown) == 2


def test_shares_are_of_failures_only():
    records = {
        "a": [one("gpu.xid", "gpu:a/0", NOT_MEASURED)],
        "b": [one("gpu.ecc", "gpu:b/0", PASS)],
    }
    assert [data["fleet_share"] for data in gate_data(verdicts(records))] == [0.0, 0.0]
    assert CommonFinding("gpu.ecc", ("a",), 0).share == 0.0
    assert failing_checks(verdicts(records)) == []


@pytest.mark.parametrize(
    ("measured", "value", "message"),
    [
        ("ready", "ready", PASS),
        ("ready", "late", FAIL),
        (True, True, PASS),
        (1.5, 1, FAIL),
        ("ready", 1, None),
        ("ready", True, None),
        (True, 1, None),
        (1, True, None),
    ],
)
def test_thresholds_and_values_of_one_kind(measured, value, message):
    record = judge("gpu.x", "gpu:a/0", measured, Threshold("==", measured, "", "source"))
    if message is None:
        with pytest.raises(ValueError, match="cannot be compared"):
            judge_again(record, {"gpu.x": value}, "site")
    else:
        again = judge_again(record, {"gpu.x": value}, "site")
        assert again.status == message
        assert bool(again.remedy) is (message == FAIL)


def test_a_record_without_a_threshold_or_a_value_is_not_judged_again():
    for record in (
        one("gpu.x", "gpu:a/0", FAIL, measured={"value": 1, "unit": ""}),
        one("gpu.x", "gpu:a/0", FAIL, threshold=RATE),
    ):
        assert judge_again(record, {"gpu.x": 0}, "site") is record


def test_judged_again_keeps_its_remedy_and_its_time():
    record = judge("gpu.x", "gpu:a/0", 700, RATE, "slow", "return it")
    record = Record(**{**vars(record), "at": OLD, "took_s": 3.5})
    again = judge_again(record, {"gpu.x": 710}, "site")
    assert (again.remedy, again.at, again.took_s) == ("return it", OLD, 3.5)


@pytest.mark.parametrize(
    ("subject", "another"),
    [
        ("node:dgx-01", False),
        ("gpu:dgx-01/3", False),
        ("node:dgx-02", True),
        ("gpu:dgx-02/3", True),
        # What no node owns may be reported by each; a cable, pair or group by the nodes in it
        # alone.
        ("switch:ib-leaf-01", False),
        ("cable:dgx-01/rail1--ib-leaf-01/6", False),
        (CABLE, True),
        ("nodes:dgx-01", False),
        ("nodes:dgx-01,dgx-02", True),
        ("pair:dgx-01--dgx-02", True),
    ],
)
def test_a_node_speaks_of_itself_only(subject, another):
    assert is_about_another(subject, "dgx-01") is another


def test_a_fold_begins_with_nothing():
    assert NodeVerdict("dgx-01", PASS).passed == 0
    failed = [one("fabric.cable", CABLE, FAIL), one("gpu.count", "node:dgx-02", PASS)]
    fold = Fold()
    for record in failed:
        fold.add(record)
    node = fold.verdict("dgx-02")
    assert (node.verdict, len(node.shown)) == (PASS, 1)
