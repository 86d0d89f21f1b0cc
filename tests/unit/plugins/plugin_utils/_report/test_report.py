# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a small and of a larger cluster: what it says, what it never says, how it looks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import report_world as world

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Threshold,
    judge,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.redact import Redactor
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import (
    batch_lines,
    pack,
    unpack,
    with_standing,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.failures import note_failures
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.data import Request
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.html import report_html
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.junit import junit
from ansible_collections.baremetal.dgx.plugins.plugin_utils._report.load import (
    load_report,
    read_secrets,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import fold, reasons
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_file import node_file
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (
    gate_verdicts,
)

NOW = "2026-03-03T00:00:00Z"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><style>text{fill:red}</style></svg>'
VOID = {"meta", "input", "br", "img", "link", "hr"}
# Elements whose end HTML lets one leave out are ended all the same.


class Page(HTMLParser):
    """Whether elements are nested as they must be, and what a reader meets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def make(folder: Path, count: int, request: Request | None = None, **more) -> dict:
    return load_report(
        str(folder / "evidence"), world.plan(count), request or Request(cluster="demo"), NOW, **more
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """Evidence of twelve nodes: healthy once, then with a fault of each kind."""
    folder = tmp_path_factory.mktemp("small")
    store = Store(str(folder / "evidence"))
    world.fill(store, 12)
    world.fill(store, 12, True, "2026-03-02T00:00:00Z", "GPUs and PCI")
    (folder / "pairs.jsonl").write_text(world.flows(world.names(12)) + '{"kind":"fl')
    return folder


@pytest.fixture(scope="module")
def found(small) -> dict:
    return make(small, 12, pairs=str(small / "pairs.jsonl"))


def test_a_healthy_cluster_is_green(tmp_path):
    world.fill(Store(str(tmp_path / "evidence")), 4)
    report = make(tmp_path, 4)
    assert report["verdict"] == "pass"
    assert report["failed"] == report["not_measured"] == report["questions"] == []
    assert report["simulated"] == []
    page = Page(report_html(report))
    assert "nothing failed" in page.text
    assert "simulated" not in page.text.lower()


def test_a_look_at_the_bmc_leaves_the_level_of_the_validation(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    world.fill(store, 4)
    before = [one["level"] for one in make(tmp_path, 4)["nodes"]]
    assert before[0]
    run = store.begin("validate_bmc", "2026-03-03T00:00:00Z")
    record = Record("bmc.power", "node:dgx-01", PASS, at="2026-03-03T00:00:00Z").as_data()
    store.add(run, "dgx-01", "bmc_info", [record], "2026-03-03T00:00:00Z")
    assert [one["level"] for one in make(tmp_path, 4)["nodes"]] == before


def add(store, playbook, scope, *records):
    run = store.begin(playbook, NOW)
    store.add(run, scope, playbook, [one.as_data() for one in records], NOW)


def test_copies_and_bmcs_make_neither_fabric_nor_nodes_pass(tmp_path):
    """They are in the same store, and show nothing about either."""
    store = Store(str(tmp_path / "evidence"))
    add(store, "prove_backup", "backup of head-01", Record("backup.age", "backup:a/jobs", PASS))
    report = make(tmp_path, 2)
    assert (report["verdict"], report["summary"]["fabric"]) == ("not_measured", "not_measured")
    assert report["summary"]["backup"] == "pass"
    assert report["unplanned"] == []
    add(store, "validate_bmc", "dgx-01", Record("bmc.access", "node:dgx-01", PASS))
    part = Record("fabric.pairs.part", "hca:dgx-02/rail0", PASS)
    flows = Record("fabric.pairs.fleet", "fabric", PASS)
    add(store, "validate_fabric", "fabric", part, flows)
    report = make(tmp_path, 2)
    assert report["verdict"] == report["summary"]["fabric"] == "not_measured"
    assert [one["verdict"] for one in report["nodes"]] == ["not_measured"] * 2
    assert [(one["check"], one["subjects"], one["remedy"]) for one in report["not_measured"]] == [
        ("node.records", ["node:dgx-01", "node:dgx-02"], "run validate_nodes"),
        ("fabric.records", ["fabric"], "run validate_fabric"),
    ]
    # Where they were measured, copies that fail are a separate verdict.
    world.fill(store, 2)
    assert make(tmp_path, 2)["verdict"] == "pass"
    add(store, "prove_backup", "backup of head-01", Record("backup.age", "backup:a/jobs", FAIL))
    report = make(tmp_path, 2)
    assert (report["verdict"], report["summary"]["fabric"]) == (FAIL, "pass")
    assert report["summary"]["backup"] == FAIL
    assert '<testsuite name="backup" tests="1" failures="1"' in junit(report)
    assert "backup" in Page(report_html(report)).text
    names = [one["name"] for one in load_report(
        str(tmp_path / "evidence"), None, Request(), NOW)["nodes"]]  # fmt: skip
    assert names == ["dgx-01", "dgx-02"]


def test_what_was_validated_too_long_ago_is_not_measured(tmp_path):
    """The gate takes such evidence for none, and junit.xml must not be green by it."""
    store = Store(str(tmp_path / "evidence"))
    world.fill(store, 2)
    page = Page(report_html(make(tmp_path, 2))).text
    assert f"; the oldest validation is of {world.AT}" in page
    for days, verdict in ((0, "pass"), (2, "pass"), (1.5, "not_measured")):
        report = make(tmp_path, 2, Request(evidence_days=days))
        assert report["verdict"] == report["summary"]["fabric"] == verdict
    assert [(one["check"], one["text"], one["remedy"]) for one in report["not_measured"]] == [
        ("node.records", "the last validate_nodes is 2 days old", "run validate_nodes"),
        ("fabric.records", "the last validate_fabric is 2 days old", "run validate_fabric"),
    ]
    assert '<testsuite name="fabric" tests="1" failures="0" errors="1"' in junit(report)
    # A look at a BMC and a pair test of today do not validate again.
    add(store, "validate_bmc", "dgx-01", Record("bmc.access", "node:dgx-01", PASS))
    add(store, "validate_fabric", "fabric", Record("fabric.pairs.fleet", "fabric", PASS))
    assert make(tmp_path, 2, Request(evidence_days=1.5))["summary"]["nodes"]["not_measured"] == 2
    assert make(tmp_path, 2, Request(evidence_days=1.5))["summary"]["fabric"] == "not_measured"
    world.fill(store, 2, at=NOW)
    assert make(tmp_path, 2, Request(evidence_days=1.5))["verdict"] == "pass"


OFF = dict.fromkeys(("ib_health", "canary", "cpu_memory", "burn", "nccl"), False)


class Validated:
    """A node that is validated again and again: what the gate and the report make of it."""

    def __init__(self, folder: Path) -> None:
        self.store, self.file = Store(str(folder / "evidence")), None

    def run(self, level: str, *failed: str, **site: bool) -> tuple[str, str, list[str]]:
        """Return the verdicts of both, and what the report says is missing."""
        asked = reasons(level, {**OFF, **site})
        checks = ["gpu.ecc", "fio.data", "dcgm.memory"]
        checks += ["dcgm.targeted_stress"] if level == "burn_in" else []
        answers = {
            {"gpu": "gpu_health"}.get(layer, layer): {"records": [
                Record(check, "node:dgx-01", FAIL if check in failed else PASS, at=NOW).as_data()
                for check in checks if check.startswith(layer)
            ]} for layer in ("gpu", "fio", "dcgm")
        }  # fmt: skip
        folded = fold("dgx-01", asked, answers, NOW, level=level)
        self.file = node_file(folded, "dgx-01", asked, [], self.file)
        run, ends = self.store.begin("validate_nodes", NOW), self.file["ended"]
        self.store.add(
            run, "dgx-01", "validate_nodes", with_standing(self.file), NOW, folded["level"],
            ended=ends,
        )  # fmt: skip
        (judged,) = gate_verdicts([("dgx-01", self.file)], None, [], False)
        report = load_report(self.store.folder, [{"name": "dgx-01"}], Request(fabric=False), NOW)
        missing = [one["check"] for one in report["not_measured"]]
        return judged["verdict"], report["verdict"], missing


def test_a_test_that_only_a_deeper_run_asks_stands_in_gate_and_report(tmp_path):
    node = Validated(tmp_path)
    assert node.run("burn_in", "dcgm.targeted_stress") == (FAIL, FAIL, [])
    for level in ("standard", "quick", "standard"):
        assert node.run(level) == (FAIL, FAIL, [])
    assert node.run("burn_in") == (PASS, PASS, [])


def test_what_the_site_asks_no_more_is_neither_red_nor_missing(tmp_path):
    node = Validated(tmp_path)
    assert node.run("standard", "fio.data") == (FAIL, FAIL, [])
    assert node.run("quick") == (FAIL, FAIL, [])
    assert node.run("quick", fio=False) == (PASS, PASS, [])
    assert node.run("standard")[:2] == (PASS, PASS)
    # What a machine is replaced by need not measure it, either.
    records = [Record("fio.replaced", "node:dgx-01", NOT_MEASURED, at=NOW).as_data()]
    node.store.add(node.store.begin("replace_node", NOW), "dgx-01", "replaced", records, NOW)
    assert node.run("quick")[1:] == (NOT_MEASURED, ["fio.replaced"])
    assert node.run("quick", fio=False) == (PASS, PASS, [])


def test_what_a_replaced_part_failed_with_others_is_not_measured(tmp_path):
    """replace_node removes it from the failures that stand; its record is of the whole fabric."""
    store, failures = Store(str(tmp_path / "evidence")), tmp_path / "failures"
    world.fill(store, 2)
    part = Record("fabric.pairs.part", "hca:dgx-02/rail3", FAIL, remedy="reseat")
    culprit = Record("groups.culprit", "node:dgx-01", FAIL)
    both_ways = Record("groups.busbw", "nodes:dgx-01,dgx-02", FAIL)
    records = [one.as_data() for one in (part, culprit, both_ways)]
    store.add(store.begin("validate_fabric", NOW), "fabric", "fabric_pairs", records, NOW)

    def failed():
        report = make(tmp_path, 2, failures=str(failures))
        return [(one["check"], one["subject"]) for one in report["failed"]], report

    all_of_them = [(one["check"], one["subject"]) for one in records]
    # A site that has not kept any yet.
    assert sorted(failed()[0]) == sorted(all_of_them)
    note_failures(str(failures), records)
    assert sorted(failed()[0]) == sorted(all_of_them)
    (failures / "dgx-02.json").write_text("{}")
    found, report = failed()
    assert sorted(found) == sorted(all_of_them[1:])
    assert report["nodes"][1]["verdict"] == "not_measured"
    assert [(one["subjects"], one["text"]) for one in report["not_measured"]] == [
        (["hca:dgx-02/rail3"], "not measured since its part was replaced")
    ]
    # What cannot be read clears nothing.
    for odd in ("[", "[1]", '{"hca:dgx-01/rail0": [5]}'):
        (failures / "dgx-01.json").write_text(odd)
        found, report = failed()
        assert sorted(found) == sorted(all_of_them)
        assert "failures of pairs and groups stand is not known" in report["store_problems"][-1]


def test_gpus_of_other_profiles_are_no_outliers(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    for node in world.names(4):
        rate = 290.0 if node == "dgx-04" else 720.0
        records = [
            judge("burn.rate_bf16", f"gpu:{node}/{gpu}", rate, Threshold(">=", 1, "TFLOP/s", "x"))
            for gpu in range(8)
        ]
        add(store, "validate_nodes", node, *records)
    nodes = world.plan(4)
    assert len(load_report(store.folder, nodes, Request(), NOW)["outliers"]) == 8
    nodes[3]["profile"] = "dgx_a100"
    assert load_report(store.folder, nodes, Request(), NOW)["outliers"] == []


def test_rails_are_green_by_the_record_that_lists_the_right_cables(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    at = "2026-03-03T00:00:00Z"
    run = store.begin("validate_fabric", at)
    right = ("dgx-01/rail0--leaf-1/1", "dgx-01/rail3--leaf-4/1")
    records = [
        Record("fabric.cable", "cables:dgx-01", PASS, evidence=right, at=at).as_data(),
        Record("fabric.cable", "cable:dgx-01/rail2--leaf-3/1", FAIL, at=at).as_data(),
    ]
    store.add(run, "fabric", "fabric_verify", records, at)
    first = make(tmp_path, 2)["nodes"][0]
    assert first["rails"] == ["pass", "", "fail", "pass"]


def test_exactly_the_faults_are_told(found):
    assert found["verdict"] == FAIL
    assert {(one["subject"], one["check"]) for one in found["failed"]} == {
        ("gpu:dgx-03/4", "burn.gemm_bf16"),
        ("cable:dgx-02/rail1--leaf-0-1/2", "fabric.cable"),
    }
    assert [one["subjects"] for one in found["not_measured"]] == [["hca:dgx-01/rail5"]]
    verdicts = {one["name"]: one["verdict"] for one in found["nodes"]}
    assert [name for name, verdict in verdicts.items() if verdict != "pass"] == ["dgx-01", "dgx-03"]
    assert found["summary"]["fabric"] == FAIL
    assert [one["subject"] for one in found["outliers"]] == ["gpu:dgx-04/2"]
    assert found["nodes"][1]["shown"] == ["cable:dgx-02/rail1--leaf-0-1/2 fabric.cable"]
    assert len(found["changes"]["new"]) == 3
    assert found["gate"][2]["first_failing"]["subject"] == "gpu:dgx-03/4"


def test_what_is_asked_no_more_has_not_passed(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    kinds = ("gpu.ecc", "gpu.xid")
    first = [Record(check, "gpu:dgx-01/0", FAIL) for check in kinds]
    # The GPU with errors is off the bus in the second run.
    lost = Record("gpu.count", "node:dgx-01", FAIL)
    for at, records in (
        ("2026-03-01T00:00:00Z", first),
        ("2026-03-02T00:00:00Z", [Record("gpu.ecc", "gpu:dgx-01/0", PASS), lost]),
    ):
        run = store.begin("validate_nodes", at)
        store.add(run, "dgx-01", "gpu_health", [one.as_data() for one in records], at)
    found = make(tmp_path, 1)["changes"]
    assert found["new"] == (("gpu.count", "node:dgx-01", "", FAIL),)
    assert [(row[0], row[3]) for row in found["gone"]] == [
        ("gpu.ecc", PASS),
        ("gpu.xid", ""),
    ]
    page = Page(report_html(make(tmp_path, 1))).text
    assert "gpu.xid ✗ Failed None" in page
    assert "gpu.count None ✗ Failed" in page


def test_a_repaired_cable_is_measured_among_those_of_its_node(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    line = "dgx-01/rail0--leaf-1/1"
    failed = Record("fabric.cable", f"cable:{line}", FAIL)
    right = Record("fabric.cable", "cables:dgx-01", PASS, evidence=(line,))
    unswept = Record("fabric.sweep", "fabric", NOT_MEASURED)
    for at, records in (
        ("2026-03-01T00:00:00Z", [failed, unswept]),
        ("2026-03-02T00:00:00Z", [right]),
    ):
        run = store.begin("validate_fabric", at)
        store.add(run, "fabric", "fabric", [one.as_data() for one in records], at)
    gone = make(tmp_path, 1)["changes"]["gone"]
    assert [(row[0], row[2], row[3]) for row in gone] == [
        ("fabric.cable", FAIL, PASS),
        ("fabric.sweep", NOT_MEASURED, ""),
    ]


def test_cables_fail_their_nodes_where_a_site_says_so(small):
    report = make(small, 12, Request(cables_fail_nodes=True))
    assert report["nodes"][1]["verdict"] == FAIL
    assert len(report["failed"]) == 2


def test_a_node_without_records_is_not_measured(small):
    report = make(small, 13)
    assert report["nodes"][12]["verdict"] == "not_measured"
    assert "there are no records" in junit(report)


def test_what_has_no_records_is_named(small, tmp_path):
    report = make(small, 13)
    assert "No records at all , so no pass either: dgx-13." in Page(report_html(report)).text
    report = make(tmp_path, 2)
    assert "dgx-01, dgx-02, fabric" in Page(report_html(report)).text


def test_a_cluster_without_a_fabric_needs_no_records_of_one(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    world.fill(store, 2)
    shutil.rmtree(next((tmp_path / "evidence/runs").glob("*fabric")))
    assert make(tmp_path, 2)["verdict"] == "not_measured"
    report = make(tmp_path, 2, Request(fabric=False))
    assert report["verdict"] == "pass"
    assert '<testsuite name="fabric"' not in junit(report)
    assert "nothing failed" in Page(report_html(report)).text


def test_judged_again_without_measuring(small):
    report = make(small, 12, Request(thresholds={"burn.rate_bf16": 660}, whose="a site"))
    assert ("gpu:dgx-04/2", "burn.rate_bf16") in {
        (one["subject"], one["check"]) for one in report["failed"]
    }
    mark = next(one for one in report["failed"] if one["check"] == "burn.rate_bf16")["threshold"]
    assert mark["source"].startswith("a site (was >= 650")


def test_a_site_may_let_outliers_fail(small):
    report = make(small, 12, Request(fleet_failing=frozenset({"burn.rate_bf16"})))
    assert report["nodes"][3]["verdict"] == FAIL


def test_one_record_without_a_number_leaves_the_others_their_report(tmp_path):
    """A store of before it was refused on entry; and a run whose clock was wrong."""
    store = Store(str(tmp_path / "evidence"))
    world.fill(store, 2, False)
    run = store.begin("validate_nodes", "2026-03-04T00:00:00Z")
    path = Path(store.runs) / run / "records.jsonl"
    lines = batch_lines(run, 0, "dgx-01", "", [
        Record("gpu.power_draw", f"gpu:dgx-01/{gpu}", PASS, measured={"value": 1.0, "unit": "W"})
        for gpu in range(2)
    ], "2026-03-04T00:00:00Z", sequence=10**6)  # fmt: skip
    data = unpack(lines[1])
    data["record"]["measured"]["value"] = float("nan")
    foreign = unpack(lines[2])
    foreign["record"].update(subject="gpu:dgx-02/0", status="fail")
    path.write_text("\n".join([lines[0], pack(data), pack(foreign), *lines[3:]]) + "\n")
    found = make(tmp_path, 2)
    report_html(found)
    json.dumps(found, allow_nan=False)
    report = "\n".join(found["store_problems"])
    assert (
        f"{run}: gpu:dgx-01/0 gpu.power_draw: the record cannot be used: measured: it is" in report
    )
    assert f"{run}: gpu:dgx-02/0 gpu.power_draw: dgx-01 has handed over a record about" in report
    assert f"{run} is from the future: the clock of the controller was wrong" in report
    assert "dgx-02" not in [one["node"] for one in found["failed"]]


def test_damage_after_writing_is_no_pass(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    world.fill(store, 2)
    path = next((tmp_path / "evidence/runs").glob("*nodes/records.jsonl"))
    text = path.read_text()
    place = text.index("gpu.question_7")
    path.write_text(text[:place] + "gpu.question_8" + text[place + 14 :])
    report = make(tmp_path, 2)
    assert report["nodes"][0]["verdict"] == "not_measured"
    assert report["nodes"][1]["verdict"] == "pass"
    assert any("checksum" in line for line in report["store_problems"])


def test_the_page_holds_everything_and_needs_nothing(found):
    text = report_html(found, SVG)
    page = Page(text)
    for words in (
        "dgx-03", "Matrix products, bf16", "row 17 column 4711",
        "drain the node, burn this GPU again", "SIMULATED",
        "mlxlink ran longer than 20 s", "655", "exact arithmetic", "580.105.08", "r001",
        "20260302T000000Z-validate_nodes", "Gb/s from nodes",
    ):  # fmt: skip
        assert words in page.text, words
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:image/svg+xml;base64,")), (tag, value)
    assert not re.search(r"@import|url\(|https?://", text)
    # The picture's styles must not reach the page.
    assert "<svg" not in text


def test_every_link_leads_somewhere_and_no_name_is_there_twice(found):
    page = Page(report_html(found, SVG))
    names = [attributes["id"] for _tag, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    links = {(attributes["href"] or "")[1:] for attributes in page.of("a")}
    assert links <= set(names)
    assert "n-dgx-03" in links


def test_states_have_a_sign_beside_their_colour(found):
    page = report_html(found)
    states = re.findall(r'<td class="(fail|not_measured|pass)"[^>]*>([^<]*)<', page)
    assert len(states) > 100
    signs = {"fail": "✗", "not_measured": "?", "pass": "✓"}
    assert all(shown.startswith(signs[state]) for state, shown in states)
    for state, word in (("fail", "Failed"), ("pass", "Passed")):
        assert re.search(rf'class="box {state}"[^>]*>[^<]*{signs[state]}[^<]*', page)
        assert f"<span hidden>{word}</span>" in page


def test_what_is_operated_is_an_element_that_keyboards_know(found):
    page = Page(report_html(found))
    assert not [attributes for _tag, attributes in page.tags if "onclick" in attributes]
    assert {attributes.get("tabindex", "0") for _tag, attributes in page.tags} == {"0"}
    assert (
        page.tags[next(i for i, (tag, _a) in enumerate(page.tags) if tag == "a")][1]["class"]
        == "skip"
    )
    assert len(page.of("h1")) == 1
    assert page.of("html")[0]["lang"] == "en"


HOSTILE = '</script><img src=x onerror="alert(1)">\x1b[31m\u202e&amp;<b>'


def test_nothing_that_a_tool_says_can_change_the_page(tmp_path):
    store = Store(str(tmp_path / "evidence"))
    run = store.begin("validate_nodes", world.AT)
    records = [
        Record(
            f"gpu.{HOSTILE}", f"gpu:{HOSTILE}/{gpu}", status, HOSTILE,
            {"value": HOSTILE, "unit": HOSTILE}, None, (HOSTILE,), HOSTILE,
        ).as_data()
        for gpu, status in enumerate(("fail", "not_measured", "pass"))
    ]  # fmt: skip
    store.add(run, "x", HOSTILE, records, world.AT, HOSTILE, HOSTILE)
    for count in (1, 65):
        nodes = [
            {"name": f"{HOSTILE}{n or ''}", "rack": HOSTILE, "rack_unit": 1} for n in range(count)
        ]
        report = load_report(
            str(tmp_path / "evidence"), nodes, Request(cluster=HOSTILE), NOW,
            states={HOSTILE: {"state": HOSTILE, "reason": HOSTILE}},
            versions={HOSTILE: HOSTILE}, more={HOSTILE: [[HOSTILE]]},
        )  # fmt: skip
        page = Page(report_html(report))
        assert page.of("img") == []
        assert len(page.of("script")) == 2
        assert page.of("b") == Page(report_html(report).replace("onerror", "x")).of("b")
        assert not re.search("[\x1b\u202e]", page.text)
        ElementTree.fromstring(junit(report))


# Words that the page compares with, which no tool says.
KEPT = {"pass", "fail", "not_measured", "low", "high", "fabric", ">=", "<=", "==", ">", "<"}


def hostile(data, keys=False):
    """The report with a hostile end to each of its texts; where `keys`, names are keys, too."""
    if isinstance(data, str):
        return data if data in KEPT or not data else data + HOSTILE
    if isinstance(data, dict):
        return {
            hostile(key) if keys else key: hostile(
                value, key in ("gpus", "maps", "values", "versions", "more", "records_by_kind")
            )
            for key, value in data.items()
        }
    if isinstance(data, (list, tuple)):
        return [hostile(one) for one in data]
    return data


TRENDS = {
    "text": "trends of 12 links: 1 will fail (cable:S9); 2 not measured",
    "simulated": True,
    "judged": 12,
    "will_fail": [
        {"word": "will_fail", "subject": "cable:S9", "part": "DR4", "places": ["dgx-01/rail3"],
         "ports": ["leaf-4/1"], "remedy": "clean the fibre ends",
         "trends": [{"quantity": "receive power", "text": "receive power falls", "days_left": 4.0}],
         "evidence": ["worse than 11 of 12 links"],
         "points": [[1.0, 2.0], [2.0, 1.0], [4.0, -2.0]]},
    ],
    "not_measured": [{"text": "no serial number", "subjects": ["hca:dgx-02/rail0"]}],
    "flap_days": 30.0,
    "flap_causes": {"unknown": 2},
    "flaps": [],
    "problems": [],
}  # fmt: skip


def test_links_that_will_fail_are_apart_from_failures(found):
    page = Page(report_html({**found, "trends": TRENDS}))
    assert "trends of 12 links: 1 will fail (cable:S9)" in page.text
    assert "dgx-01/rail3 leaf-4/1 receive power falls" in page.text
    assert "Links that went down in 30 days, by cause" in page.text
    (line,) = page.of("polyline")
    assert line["points"] == "0.0,0.0 40.0,6.0 120.0,24.0"
    failed = report_html(found).count("finding")
    assert report_html({**found, "trends": TRENDS}).count("finding") == failed


def test_without_readings_there_is_no_section(found):
    assert "Links that will fail" not in report_html({**found, "trends": None})
    empty = {**TRENDS, "judged": 0, "will_fail": [], "not_measured": [], "flap_causes": {}}
    assert "Links that will fail" not in report_html({**found, "trends": empty})


def with_repeat_offenders(report):
    """The report with parts that failed before, which the worlds do not have."""
    one = {"serial": "S1", "score": 2.5, "incidents": 3, "nodes": ["dgx-01"], "checks": ["c"],
           "ambiguous": True, "is_repeat_offender": True}  # fmt: skip
    return {
        **report,
        "trends": TRENDS,
        "repeat_offenders": [one],
        "more": {"More": [["a", 1]]},
        "store_problems": ["cut"],
    }


@pytest.mark.parametrize("count", [12, 70])
def test_whatever_a_report_is_made_of_is_escaped(found, count):
    """Of each text of a report, not of some: the elements of the page stay what they were."""
    report = with_repeat_offenders(found)
    more = [{**report["nodes"][0], "name": f"more-{n}"} for n in range(count - 12)]
    report = {**report, "nodes": [*report["nodes"], *more]}
    plain, broken = Page(report_html(report)), Page(report_html(hostile(report)))
    assert [tag for tag, _attributes in broken.tags] == [tag for tag, _attributes in plain.tags]
    assert broken.of("script") == plain.of("script")
    assert not re.search("[\x1b\u202e]", report_html(hostile(report)))
    for words in (f"S1{HOSTILE}", f"mlxlink ran longer than 20 s{HOSTILE}", f"580.105.08{HOSTILE}"):
        assert words.replace("\x1b", "\ufffd").replace("\u202e", "\ufffd") in broken.text, words


def test_no_template_writes_a_value_as_markup():
    folder = Path(report_html.__code__.co_filename).parents[1]
    templates = list(folder.glob("*/templates/*.j2"))
    assert len(templates) > 4
    for path in templates:
        assert not re.search(r"\| *safe\b|autoescape|Markup", path.read_text()), path
    for path in folder.rglob("*.css"), folder.rglob("*.js"):
        assert all("</" not in one.read_text() for one in path)


def test_secrets_never_appear(tmp_path):
    (tmp_path / "secrets/deep").mkdir(parents=True)
    (tmp_path / "secrets/deep/key").write_text("c2VjcmV0LWtleQ==line1\nsecond-line-of-key\n")
    redactor = Redactor(read_secrets(str(tmp_path / "secrets")))
    result = redactor.data(
        {"a": ["x c2VjcmV0LWtleQ==line1 y", "second-line-of-key", 'password="hunter2 x" rest'],
         "b": "Authorization: Bearer abcdef, https://me:pass@host/x token=abc; "
              "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----",
         "c": 3, "d": None}
    )  # fmt: skip
    text = json.dumps(result)
    for secret in ("c2VjcmV0", "second-line", "hunter2", "abcdef", "me:pass", "=abc", "AAAA"):
        assert secret not in text
    assert "rest" in text
    assert "host/x" in text


def test_junit_counts_what_was_not_measured_as_an_error(found):
    root = ElementTree.fromstring(junit(found))
    suites = {one.get("name"): one for one in root}
    assert len(suites) == 13
    assert (suites["dgx-03"].get("failures"), suites["dgx-03"].get("errors")) == ("1", "0")
    assert (suites["dgx-01"].get("failures"), suites["dgx-01"].get("errors")) == ("0", "1")
    assert (suites["fabric"].get("failures"), suites["dgx-05"].get("failures")) == ("1", "0")
    for suite in suites.values():
        assert int(suite.get("tests")) == len(list(suite)) > 0


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> tuple[dict, str]:
    """A report of 80 nodes, whose maps have a row for each rack."""
    folder = tmp_path_factory.mktemp("large")
    world.fill(Store(str(folder / "evidence")), 80, True)
    report = make(folder, 80)
    return report, report_html(report)


@pytest.mark.slow
def test_a_large_cluster_shows_its_racks(large):
    report, text = large
    page = Page(text)
    assert len(page.of("button")) == 20 * len(report["maps"])
    data = json.loads(re.search(r'id="data">(.*?)</script>', text).group(1))
    assert data["racks"]["r001"] == ["dgx-04", "dgx-03", "dgx-02", "dgx-01"]
    assert data["maps"]["burn.rate_bf16"]["values"]["dgx-04"][2] == 655.0
    # The worst of the rack is what its row shows.
    row = re.search(r'data-map="burn.rate_bf16" data-rack="r001".*?</tr>', text).group(0)
    assert "▼ 655" in row


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PROBE = """<script>
var lines=[];window.onerror=function(text){lines.push('error '+text);};
var button=document.querySelector('button.row');
if(button){button.click();lines.push('rows '+document.querySelectorAll('tr.of').length);
 lines.push('first '+document.querySelector('tr.of').textContent);
 button.click();lines.push('closed '+document.querySelectorAll('tr.of').length);}
var filter=document.getElementById('filter');
filter.value='leaf-0-1';filter.dispatchEvent(new Event('input'));
lines.push('shown '+document.querySelectorAll('.finding:not([hidden])').length);
lines.push('image '+Array.from(document.images).every(function(i){return i.naturalWidth>0;}));
document.title=lines.join('; ');
</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_in_a_browser(large, found, tmp_path):
    svg = SVG.replace("<svg", '<svg width="100" height="50"')
    for text, rows in ((large[1], True), (report_html(found, svg), False)):
        path = tmp_path / "report.html"
        path.write_text(text.replace("</body>", PROBE))
        done = subprocess.run(
            [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu",
             f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=3000", "--dump-dom",
             path.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        title = re.search("<title>(.*?)</title>", done.stdout).group(1)
        result = dict(line.split(" ", 1) for line in title.split("; "))
        assert "error" not in result
        assert result["shown"] == "1"
        if rows:
            assert result["rows"] == "4"
            assert result["first"].startswith("dgx-04")
            assert result["closed"] == "0"
