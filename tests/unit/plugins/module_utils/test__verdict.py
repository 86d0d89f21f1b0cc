# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of many subjects, folded: who fails, who was not measured, and who only stands beside."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Threshold,
    judge,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._verdict import (
    FABRIC,
    failing_checks,
    gate_data,
    judge_again,
    layer_of,
    place_of,
    questions,
    record_from_data,
    serials_of,
    subject_verdicts,
    verdicts,
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

    node, fabric = verdicts(records, cables_condemn=True)
    assert (node.verdict, fabric.verdict) == (FAIL, FAIL)
    assert node.shown == ()


def test_a_cable_that_passes_is_no_evidence_for_a_node():
    (node,) = verdicts({"dgx-02": [one("fabric.cable", CABLE, PASS)]}, cables_condemn=True)
    assert node.verdict == NOT_MEASURED


def test_an_adapter_that_fails_condemns_its_node_although_the_fabric_saw_it():
    found = verdicts({"dgx-02": [], FABRIC: [one("fabric.missing", "hca:dgx-02/rail1", FAIL)]})
    assert [each.verdict for each in found] == [FAIL, NOT_MEASURED]


def test_data_and_records_are_one():
    record = judge("burn.rate_bf16", "gpu:dgx-01/0", 700, RATE, "slow", "look", ["a", "b"])
    assert record_from_data(record.as_data()) == record
    assert [each.verdict for each in verdicts({"dgx-01": [record.as_data()]})] == [FAIL]
    with pytest.raises(TypeError):
        record_from_data({**record.as_data(), "status": "ok"})


def test_verdict_of_each_subject():
    records = [
        one("gpu.ecc", "gpu:dgx-01/0", PASS),
        one("gpu.xid", "gpu:dgx-01/0", NOT_MEASURED),
        one("gpu.ecc", "gpu:dgx-01/1", PASS),
    ]
    assert subject_verdicts(records) == {"gpu:dgx-01/0": NOT_MEASURED, "gpu:dgx-01/1": PASS}


def test_judged_again_with_another_mark():
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


@pytest.mark.parametrize("mark", ["fast", True, None])
def test_a_mark_that_cannot_be_compared_is_refused(mark):
    record = judge("burn.rate_bf16", "gpu:dgx-01/0", 700, RATE)
    with pytest.raises(ValueError, match="cannot be compared"):
        judge_again(record, {"burn.rate_bf16": mark}, "site")


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
