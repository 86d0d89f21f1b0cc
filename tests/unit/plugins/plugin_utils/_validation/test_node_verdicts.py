# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts for the gate, of files as validate_nodes and validate_fabric leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleLookupError
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.lookup.node_verdicts import LookupModule
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Record, Threshold
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.failures import note_failures
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (
    gate_verdicts,
)

EARLY, LATE = "2026-11-21T08:00:00Z", "2026-11-21T09:00:00Z"


def record(check: str, subject: str, status: str = "pass", at: str = LATE) -> dict[str, Any]:
    mark = Threshold("==", 0, "errors", "a test")
    measured = {"value": 1, "unit": "errors"}
    return Record(check, subject, status, "text", measured, mark, (), "repair it", at).as_data()


def node_file(node: str, *records: dict[str, Any], level: str = "standard") -> tuple[str, Any]:
    given = records or (record("gpu.ecc", f"gpu:{node}/0"),)
    return node, {"version": 1, "node": node, "level": level, "records": list(given)}


def cable(node: str, rail: int, status: str = "pass", at: str = LATE) -> dict[str, Any]:
    return record("fabric.wiring", f"cable:{node}/rail{rail}--leaf-01/{rail + 1}", status, at)


def verdicts(*args: Any) -> dict[str, tuple[str, str]]:
    return {one["node"]: (one["verdict"], one["at"]) for one in gate_verdicts(*args)}


def test_a_node_alone() -> None:
    found = gate_verdicts([node_file("n1", level="burn_in")], None, [], False)
    assert found == [{
        "node": "n1", "verdict": "pass", "at": LATE, "level": "burn_in", "first_failing": None,
        "fleet_share": 0.0, "looks": {"burn_in": LATE},
    }]  # fmt: skip


def test_what_the_last_run_has_not_measured_fails_the_node_and_is_named_last() -> None:
    node, data = node_file("n1", level="quick")
    data["standing"] = [record("burn.gemm_bf16", "gpu:n1/0", "fail", EARLY)]
    data["looks"] = {"standard": EARLY}
    (found,) = gate_verdicts([(node, data)], None, [], False)
    assert (found["verdict"], found["at"], found["level"]) == ("fail", EARLY, "quick")
    assert found["looks"] == {"standard": EARLY, "quick": LATE}
    assert found["asked_by"] == "standard"
    assert found["first_failing"]["remedy"] == (
        "repair it; then run validate_nodes at the level that asks it"
    )
    data["records"].append(record("gpu.ecc", "gpu:n1/7", "fail"))
    (found,) = gate_verdicts([(node, data)], None, [], False)
    assert (found["first_failing"]["subject"], found["at"]) == ("gpu:n1/7", LATE)
    assert found["asked_by"] == "standard"
    (found,) = gate_verdicts([(node, {**data, "standing": [], "looks": 5})], None, [], False)
    assert (found["asked_by"], found["looks"]) == ("quick", {"quick": LATE})
    # A file that cannot count hides none, and none of another node counts.
    data["records"] = [5]
    assert verdicts([(node, data)], None, [], False) == {"n1": ("fail", EARLY)}
    for odd in (
        [record("burn.gemm_bf16", "gpu:n2/0", "fail"), 5, record("burn.run", "gpu:n1/0")],
        5,
    ):
        data = {**node_file("n1")[1], "standing": odd}
        assert verdicts([("n1", data)], None, [], False) == {"n1": ("pass", LATE)}


def test_one_node_cannot_have_another_drained() -> None:
    lie = record("gpu.xid", "gpu:dgx-01/0", "fail")
    files = [node_file("dgx-01"), node_file("dgx-05", record("gpu.ecc", "gpu:dgx-05/0"), lie)]
    assert verdicts(files, None, [], False) == {
        "dgx-01": ("pass", LATE),
        "dgx-05": ("not_measured", LATE),
    }
    (found,) = gate_verdicts(files[1:], None, [], False)
    assert found["first_failing"]["text"] == "1 records are about another node: gpu:dgx-01/0"
    own = record("gpu.xid", "gpu:dgx-05/0", "fail")
    assert verdicts([node_file("dgx-05", own, lie)], None, [], False) == {"dgx-05": ("fail", LATE)}


def test_a_record_without_a_number_is_no_pass() -> None:
    bad = {**record("gpu.ecc", "gpu:n1/0"), "measured": {"value": float("nan"), "unit": ""}}
    assert verdicts([node_file("n1", bad)], None, [], False)["n1"][0] == "not_measured"


def test_a_record_that_cannot_be_read_hides_no_failure() -> None:
    bad = {**record("gpu.ecc", "gpu:n1/0"), "measured": {"value": float("nan"), "unit": ""}}
    failed = record("gpu.count", "node:n1", "fail")
    for odd in (bad, {}, 5, {**failed, "evidence": 5}):
        node, data = node_file("n1", failed)
        data["records"].append(odd)
        assert verdicts([(node, data)], None, [], False) == {"n1": ("fail", LATE)}
        data["records"][0] = record("gpu.count", "node:n1")
        assert verdicts([(node, data)], None, [], False)["n1"][0] == "not_measured"


def test_a_pass_is_as_old_as_its_oldest_record() -> None:
    files = [node_file("n1", record("gpu.a", "gpu:n1/0", at=EARLY), record("gpu.b", "gpu:n1/1"))]
    assert verdicts(files, [cable("n1", 0)], [], True) == {"n1": ("pass", EARLY)}
    assert verdicts([node_file("n1")], [cable("n1", 0, at=EARLY)], [], True) == {
        "n1": ("pass", EARLY)
    }


def test_a_node_without_rails_has_no_cables_to_prove() -> None:
    files = [node_file("n1"), node_file("n2")]
    found = gate_verdicts(files, [], [], True, without_rails=["n2"])
    assert [one["verdict"] for one in found] == ["not_measured", "pass"]


def finding(kind: str, severity: str, subject: str, *cables: str) -> dict[str, Any]:
    return {"kind": kind, "subject": subject, "severity": severity, "cables": list(cables)}


def test_a_harmless_finding_fails_no_node_and_what_costs_most_is_named_first() -> None:
    def bad(rail: int, node: str = "n1") -> dict[str, Any]:
        return record("fabric.cable", f"cable:{node}/rail{rail}--leaf-01/{rail}", "fail")

    names = [f"cable:n1/rail{rail}--leaf-01/{rail}" for rail in range(4)]
    renamed = record("fabric.renamed", "hca:n2/rail0", "fail")
    swept = [bad(0), bad(1), bad(2), renamed]
    findings = [
        finding("swapped", "critical", "cable:x", names[2]),
        "nonsense", {"kind": "x"},
        finding("errors", "major", names[1], names[1]),
        finding("swapped", "harmless", names[0], names[0], names[1]),
        finding("renamed", "harmless", "hca:n2/rail0"),
    ]  # fmt: skip
    files = [node_file("n1"), node_file("n2")]
    found = gate_verdicts(files, swept, [], True, findings=findings)
    assert [one["verdict"] for one in found] == ["fail", "pass"]
    assert found[0]["first_failing"]["subject"] == names[2]
    # Without the critical one the next, and with none but the harmless one the node passes.
    found = gate_verdicts(files, swept[:2], [], False, findings=findings)
    assert found[0]["first_failing"]["subject"] == names[1]
    assert gate_verdicts(files, swept[:1], [], True, findings=findings)[0]["verdict"] == "pass"
    assert gate_verdicts(files, swept[:1], [], True)[0]["verdict"] == "fail"
    # What costs most is first in the list, whatever its severity is called.
    listed = [finding("errors", "major", "x", names[1]), finding("x", "critical", "y", names[2])]
    found = gate_verdicts(files, [bad(2), bad(1)], [], False, findings=listed)
    assert found[0]["first_failing"]["subject"] == names[1]
    # What the node itself reports comes before a cable of less weight.
    own = [node_file("n1", record("gpu.ecc", "gpu:n1/3", "fail"))]
    found = gate_verdicts(own, swept[:2], [], False, findings=findings)
    assert found[0]["first_failing"]["check"] == "gpu.ecc"


def test_cables_that_are_right_have_one_record_for_each_node() -> None:
    files = [node_file("n1"), node_file("n2"), node_file("n3")]
    swept = [record("fabric.cable", "cables:n1", at=EARLY), record("fabric.cable", "cables:leaf")]
    found = gate_verdicts([*files, ("n4", "no records")], swept, [], True)
    # They prove the cables, and nothing of the node itself.
    assert [one["verdict"] for one in found] == ["pass", *["not_measured"] * 3]
    assert found[0]["at"] == EARLY


def test_who_validates_a_node_asks_for_its_own_age() -> None:
    swept = [cable("n1", 0, at=EARLY)]
    (found,) = gate_verdicts([node_file("n1")], swept, [], True, own_age=True)
    assert (found["verdict"], found["at"]) == ("pass", LATE)
    swept = [cable("n1", 0, at=EARLY, status="fail")]
    (found,) = gate_verdicts([node_file("n1")], swept, [], True, own_age=True)
    assert found["verdict"] == "fail"
    assert verdicts([node_file("n1")], [cable("n1", 0, at="")], [], True) == {"n1": ("pass", "")}


def test_without_the_fabric_no_sweep_makes_a_pass_older() -> None:
    swept = [cable("n1", 0, at=EARLY)]
    assert verdicts([node_file("n1")], swept, [], False) == {"n1": ("pass", LATE)}
    swept = [cable("n1", 0, at=EARLY, status="fail")]
    assert verdicts([node_file("n1")], swept, [], False) == {"n1": ("fail", EARLY)}


def test_a_failure_is_as_new_as_its_newest() -> None:
    bad = record("gpu.ecc", "gpu:n1/3", "fail")
    files = [node_file("n1", record("gpu.a", "gpu:n1/0", at=EARLY), bad), node_file("n2")]
    found = gate_verdicts(files, None, [], False)
    assert (found[0]["verdict"], found[0]["at"], found[0]["fleet_share"]) == ("fail", LATE, 0.5)
    assert found[0]["first_failing"] == {
        "check": "gpu.ecc", "subject": "gpu:n1/3", "text": "text", "remedy": "repair it",
    }  # fmt: skip
    assert found[1]["verdict"] == "pass"


def test_a_node_behind_a_bad_cable_fails() -> None:
    files = [node_file("n1"), node_file("n2")]
    swept = [cable("n1", 0), cable("n1", 1, "fail"), cable("n2", 0)]
    found = gate_verdicts(files, swept, [], True)
    assert [one["verdict"] for one in found] == ["fail", "pass"]
    assert found[0]["first_failing"]["subject"] == "cable:n1/rail1--leaf-01/2"


def test_a_cable_that_was_not_measured_is_no_pass() -> None:
    swept = [cable("n1", 0), cable("n1", 1, "not_measured")]
    assert verdicts([node_file("n1")], swept, [], True)["n1"][0] == "not_measured"


def test_switches_and_the_fabric_fail_no_node() -> None:
    swept = [cable("n1", 0), record("fabric.sm", "fabric", "fail"),
             record("fabric.wiring", "cable:leaf-01/50--leaf-02/50", "fail")]  # fmt: skip
    assert verdicts([node_file("n1")], swept, [], True)["n1"][0] == "pass"


def test_a_fabric_that_was_not_verified() -> None:
    files = [node_file("n1"), node_file("n2")]
    assert verdicts(files, None, [], True)["n1"][0] == "not_measured"
    assert verdicts(files, None, [], False)["n1"][0] == "pass"
    assert verdicts(files, [cable("n1", 0)], [], True)["n2"][0] == "not_measured"


@pytest.mark.parametrize("bad", [None, 3, "text", {}, {"check": "fabric.wiring"}])
def test_what_comes_after_a_record_that_cannot_be_read_counts(bad: Any) -> None:
    swept = [bad, cable("n1", 0), cable("n1", 1, "fail")]
    assert verdicts([node_file("n1")], swept, [], True) == {"n1": ("fail", LATE)}


def test_of_pair_tests_only_failures_count() -> None:
    pairs = [record("fabric.pairs.part", f"hca:n1/rail{rail}", status, EARLY)
             for rail, status in enumerate(("pass", "not_measured"))]  # fmt: skip
    assert verdicts([node_file("n1")], None, pairs, False) == {"n1": ("pass", LATE)}
    pairs.append(record("fabric.pairs.part", "hca:n1/rail2", "fail", EARLY))
    assert verdicts([node_file("n1")], None, pairs, False) == {"n1": ("fail", EARLY)}


@pytest.mark.parametrize(
    "data",
    [
        "there are no records", None, [], {}, {"node": "n1"}, {"node": "n1", "version": 1},
        {"node": "n1", "version": 1, "records": []}, {"node": "n1", "version": 1, "records": [{}]},
        {"node": "n1", "version": 2, "records": [record("gpu.a", "gpu:n1/0")]},
        {"node": "n2", "version": 1, "records": [record("gpu.a", "gpu:n1/0")]},
        {"node": "n1", "version": 1, "records": {"a": 1}},
    ],
)  # fmt: skip
def test_what_cannot_be_read_has_measured_nothing(data: Any) -> None:
    assert verdicts([("n1", data)], None, [], False) == {"n1": ("not_measured", "")}
    assert gate_verdicts([("n1", data)], None, [], False)[0]["level"] == "quick"


def test_records_about_another_node_do_not_let_this_one_in() -> None:
    files = [node_file("n1", record("gpu.ecc", "gpu:n2/0"))]
    assert verdicts(files, None, [], False)["n1"][0] == "not_measured"


def look(folder: Path, *names: Any, **options: Any) -> list[dict[str, Any]]:
    class Lookup(LookupModule):
        """Takes its options as they are, without Ansible's loader."""

        def set_options(self, task_keys: Any = None, var_options: Any = None,
                        direct: Any = None) -> None:  # fmt: skip
            flags = dict.fromkeys(("fabric", "own_age", "looks"), False)
            self.given = {**flags, "without_rails": [], **direct}

        def get_option(self, option: str, hostvars: Any = None) -> Any:
            return self.given[option]

    return Lookup().run(list(names), {}, folder=str(folder), **options)


def test_the_lookup_reads_what_the_playbooks_leave(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "fabric").mkdir()
    for node in ("n1", "n2"):
        text = json.dumps(node_file(node)[1])
        (tmp_path / "nodes" / f"{node}.json").write_text(text, encoding="utf-8")
    (tmp_path / "nodes" / "n3.json").write_text('{"version": 1, "node": "n3', encoding="utf-8")
    swept = {"records": [cable("n1", 0), cable("n2", 0, "fail")]}
    (tmp_path / "fabric" / "records.json").write_text(json.dumps(swept), encoding="utf-8")
    found = look(tmp_path, ["n1", "n2"], "n3", "n4", fabric=True)
    assert [(one["node"], one["verdict"]) for one in found] == [
        ("n1", "pass"), ("n2", "fail"), ("n3", "not_measured"), ("n4", "not_measured"),
    ]  # fmt: skip
    subject = swept["records"][1]["subject"]
    harmless = finding("swapped", "harmless", "cable:x", subject)
    records = [swept["records"][0], record("fabric.cable", subject, "fail")]
    text = json.dumps({"records": records, "findings": [harmless]})
    (tmp_path / "fabric" / "records.json").write_text(text, encoding="utf-8")
    assert [one["verdict"] for one in look(tmp_path, "n1", "n2", fabric=True)] == ["pass", "pass"]
    # The gate has no option of this name.
    assert ["looks" in one for one in look(tmp_path, "n1", "n4")] == [False, False]
    assert [one["looks"] for one in look(tmp_path, "n1", "n4", looks=True)] == [
        {"standard": LATE}, {},
    ]  # fmt: skip
    text = json.dumps(node_file("n1", record("gpu.ecc", "gpu:n1/0", "fail"))[1])
    (tmp_path / "nodes" / "n5.json").write_text(text.replace("n1", "n5"), encoding="utf-8")
    shown = [look(tmp_path, "n5", looks=looks)[0].get("asked_by") for looks in (False, True)]
    assert shown == [None, "quick"]
    cut = look(tmp_path, "n3")[0]["first_failing"]["text"]
    assert cut.startswith("n3.json cannot be read: ")
    swept = {"records": [cable("n1", 0), cable("n2", 0)]}
    (tmp_path / "fabric" / "records.json").write_text(json.dumps(swept), encoding="utf-8")
    assert [one["verdict"] for one in look(tmp_path, "n1", "n2")] == ["pass", "pass"]


def test_a_failure_of_pairs_or_groups_stands_and_says_how_it_is_measured_again(
    tmp_path: Path,
) -> None:
    """After a run in which the node, which is held, took no part."""
    (tmp_path / "nodes").mkdir()
    for node in ("n1", "n2", "n3"):
        text = json.dumps(node_file(node)[1])
        (tmp_path / "nodes" / f"{node}.json").write_text(text, encoding="utf-8")
    folder = str(tmp_path / "failures")
    # A culprit is its node's; what only fails with two nodes together blames neither.
    note_failures(folder, [
        record("groups.culprit", "node:n1", "fail", EARLY),
        record("groups.interaction", "nodes:n2,n3", "fail"),
        record("fabric.pairs.part", "cable:n2/rail0--leaf-01/1", "fail"),
    ])  # fmt: skip
    left = note_failures(folder, [record("groups.node", "node:n1", "not_measured")])
    assert [one["check"] for one in left] == ["groups.culprit"]
    found = look(tmp_path, "n1", "n2", "n3")
    assert [one["verdict"] for one in found] == ["fail", "fail", "pass"]
    page = "(docs/validation.md, Failures of pairs and groups)"
    assert [one["first_failing"]["remedy"] for one in found[:2]] == [
        f"repair it; then run its group in a reservation {page}",
        f"repair it; then run validate_fabric with pair_tests.transport ssh {page}",
    ]
    text = (ROOT / "docs/validation.md").read_text(encoding="utf-8")
    assert "### Failures of pairs and groups" in text
    assert found[0]["at"] == EARLY
    note_failures(folder, [record("groups.culprit", "node:n1", "pass")])
    for torn in ("{", "[]", '{"node:n3": {"check": "groups.culprit"}}', '{"node:n3": [{}]}'):
        (tmp_path / "failures" / "n3.json").write_text(torn, encoding="utf-8")
        found = look(tmp_path, "n1", "n2", "n3")
        assert [one["verdict"] for one in found] == ["pass", "fail", "not_measured"]
        assert "n3.json" in found[2]["first_failing"]["text"]


def test_what_the_last_runs_failed_counts_until_failures_are_kept(tmp_path: Path) -> None:
    """In a folder of a release that kept none."""
    (tmp_path / "nodes").mkdir()
    for node in ("n1", "n2"):
        text = json.dumps(node_file(node)[1])
        (tmp_path / "nodes" / f"{node}.json").write_text(text, encoding="utf-8")
    for name, failed in (
        ("pairs", record("fabric.pairs.part", "hca:n1/rail0", "fail")),
        ("groups", record("groups.culprit", "node:n2", "fail")),
    ):
        (tmp_path / "fabric" / name).mkdir(parents=True)
        text = json.dumps([failed])
        (tmp_path / "fabric" / name / f"{name}-records.json").write_text(text, encoding="utf-8")
    assert [one["verdict"] for one in look(tmp_path, "n1", "n2")] == ["fail", "fail"]
    (tmp_path / "failures").mkdir()
    assert [one["verdict"] for one in look(tmp_path, "n1", "n2")] == ["pass", "pass"]


@pytest.mark.parametrize("names", [[""], ["../n1"], [3]])
def test_what_is_no_name_of_a_node(tmp_path: Path, names: list[Any]) -> None:
    with pytest.raises(AnsibleLookupError, match="takes names of nodes"):
        look(tmp_path, *names)
