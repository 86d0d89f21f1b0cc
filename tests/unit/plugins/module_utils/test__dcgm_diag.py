# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of dcgmi diag, whole and broken: who is condemned, who is not, and what is not known."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._dcgm_diag import (
    Result,
    command,
    documents,
    judge,
    judge_result,
    judge_run,
    parse,
    word,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._dcgm_diag import (
    test_name as plain_name,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._dcgm_severity import (
    CONFIG,
    ISOLATE,
    MONITOR,
    RESET,
    TRIAGE,
    Complaint,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)

CAPTURES = Path(os.environ.get("CAPTURES", Path(__file__).parents[5] / "shared" / "captures"))


def entity(gpu: int, status: str = "Pass", *warnings: dict[str, Any]) -> dict[str, Any]:
    entry = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
    return {**entry, "warnings": list(warnings)} if warnings else entry


def warning(severity: int, text: str = "it is broken", category: int = 15, number: int = 95):
    return {
        "error_category": category,
        "error_id": number,
        "error_severity": severity,
        "warning": text,
    }


def of_4(tests: dict[str, list[dict[str, Any]]], gpus: int = 2) -> str:
    entities = [
        {"device_id": "2330", "entity_id": gpu, "serial_num": f"165000{gpu}"} for gpu in range(gpus)
    ]
    return json.dumps(
        {
            "DCGM Diagnostic": {
                "test_categories": [
                    {
                        "category": "Hardware",
                        "tests": [
                            {"name": name, "results": results, "test_summary": {"status": "Pass"}}
                            for name, results in tests.items()
                        ],
                    }
                ]
            },
            "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}],
            "metadata": {"version": "4.4.1", "Driver Version Detected": "580.105.08"},
        },
        indent=1,
    )


def of_3(tests: dict[str, list[dict[str, Any] | None]]) -> str:
    categories = [{"category": "x", "tests": [{"name": n, "results": r} for n, r in tests.items()]}]
    return json.dumps(
        {"DCGM GPU Diagnostic": {"test_categories": categories, "version": "3.3.9"}}, indent=1
    )


def records_of(text: str, level: int = 1, **more: Any) -> dict[tuple[str, str], Record]:
    found = judge(parse(text), "dgx-01", level, {}, **more)
    assert len({(r.check, r.subject) for r in found}) == len(found)
    return {(r.check, r.subject): r for r in found}


def statuses(records: dict[tuple[str, str], Record]) -> dict[str, str]:
    return {f"{check} {subject}": r.status for (check, subject), r in records.items()}


def test_the_last_gpu_is_judged_like_the_first() -> None:
    text = of_4({"memory": [entity(0), entity(1, "Fail", warning(ISOLATE))]})
    found = records_of(text)
    assert statuses(found) == {"dcgm.memory gpu:dgx-01/0": PASS, "dcgm.memory gpu:dgx-01/1": FAIL}
    bad = found["dcgm.memory", "gpu:dgx-01/1"]
    assert bad.text == "it is broken"
    assert bad.remedy.startswith("replace:")
    assert bad.evidence == ("error 95, severity isolate: it is broken",)


@pytest.mark.parametrize(
    ("severity", "remedy"),
    [(ISOLATE, "replace:"), (RESET, "reset:"), (TRIAGE, "look:"), (MONITOR, "look: jobs may run")],
)
def test_a_severity_has_its_remedy(severity: int, remedy: str) -> None:
    found = records_of(of_4({"pcie": [entity(0, "Fail", warning(severity)), entity(1)]}))
    record = found["dcgm.pcie", "gpu:dgx-01/0"]
    assert record.status == FAIL
    assert record.remedy.startswith(remedy)


def test_persistence_mode_off_condemns_no_gpu() -> None:
    off = warning(CONFIG, "Persistence mode for GPU 1 is disabled.", 8, 29)
    found = records_of(of_4({"software": [entity(0), entity(1, "Fail", off)]}))
    assert statuses(found) == {
        "dcgm.software gpu:dgx-01/0": PASS,
        "dcgm.software gpu:dgx-01/1": PASS,
        "dcgm.settings node:dgx-01": FAIL,
    }
    assert found["dcgm.settings", "node:dgx-01"].remedy.startswith("settings:")


def test_settings_do_not_hide_what_is_broken() -> None:
    both = [warning(CONFIG, "off", 8, 29), warning(RESET, "row remap pending")]
    found = records_of(of_4({"software": [entity(0, "Fail", *both), entity(1)]}))
    assert found["dcgm.software", "gpu:dgx-01/0"].status == FAIL
    assert found["dcgm.settings", "node:dgx-01"].text == "off"
    noted = [warning(CONFIG, "off", 8, 29), warning(MONITOR, "watch it")]
    found = records_of(of_4({"software": [entity(0, "Fail", *noted), entity(1)]}))
    assert found["dcgm.software", "gpu:dgx-01/0"].status == FAIL


@pytest.mark.parametrize(
    ("said", "complaints", "status"),
    [
        ("Warn", (Complaint("a little", 1, MONITOR),), PASS),
        ("Warn", (Complaint("much", 1, ISOLATE),), FAIL),
        ("Warn", (Complaint("who knows"),), NOT_MEASURED),
        ("Fail", (Complaint("who knows"),), FAIL),
        ("Fail", (), FAIL),
        ("Fail", (Complaint("plug-in died", 50, 0, 16),), NOT_MEASURED),
        ("Skip", (), NOT_MEASURED),
        ("Skipped", (), NOT_MEASURED),
        ("Not Run", (), NOT_MEASURED),
        ("Splendid", (), NOT_MEASURED),
        ("", (), NOT_MEASURED),
        ("PASS", (), PASS),
    ],
)
def test_every_word_has_one_meaning(said: str, complaints: Any, status: str) -> None:
    (record,) = judge_result(Result("memory", "gpu", 0, said, complaints), "gpu:n/0", "n", ())
    assert record.status == status
    assert bool(record.remedy) == (status != PASS)


def test_dcgm_3_lists_gpus_in_one_result() -> None:
    text = of_3(
        {
            "Denylist": [{"gpu_ids": "0,1,2", "status": "PASS"}],
            "Persistence Mode": [
                {"gpu_ids": "0,1,2", "status": "Fail", "warnings": "GPU 0 is in the wrong mode"}
            ],
            "Page Retirement/Row Remap": [
                {"gpu_ids": "0,1,2", "status": "Fail", "warnings": ["GPU 2 is to be remapped"]}
            ],
            "PCIe": [
                None,
                {"gpu_ids": "0", "status": "Pass"},
                {"gpu_id": 1, "status": "Fail", "warnings": [{"warning": "slow", "error_id": 4}]},
                {"gpu_ids": "2", "status": "Skip"},
            ],
        }
    )
    report = parse(text)
    assert report.version == "3.3.9"
    assert report.gpus == (0, 1, 2)
    found = statuses(records_of(text))
    assert found["dcgm.settings node:dgx-01"] == FAIL
    assert [found[f"dcgm.persistence_mode gpu:dgx-01/{gpu}"] for gpu in range(3)] == [PASS] * 3
    assert found["dcgm.page_retirement_row_remap gpu:dgx-01/2"] == FAIL
    assert [found[f"dcgm.pcie gpu:dgx-01/{gpu}"] for gpu in range(3)] == [PASS, FAIL, NOT_MEASURED]


def test_a_gpu_without_a_result_is_not_measured() -> None:
    found = records_of(of_4({"memory": [entity(0)], "pcie": [entity(0), entity(1)]}), 2)
    assert statuses(found) == {
        "dcgm.memory gpu:dgx-01/0": PASS,
        "dcgm.memory gpu:dgx-01/1": NOT_MEASURED,
        "dcgm.pcie gpu:dgx-01/0": PASS,
        "dcgm.pcie gpu:dgx-01/1": PASS,
    }


def test_a_test_of_the_level_that_is_absent_is_not_measured() -> None:
    found = records_of(of_4({"memory": [entity(0), entity(1)]}), 2)
    assert found["dcgm.pcie", "node:dgx-01"].status == NOT_MEASURED
    assert statuses(records_of(of_4({"memory": [entity(0), entity(1)]}), 1)) == {
        "dcgm.memory gpu:dgx-01/0": PASS,
        "dcgm.memory gpu:dgx-01/1": PASS,
    }


def test_fewer_gpus_than_the_node_has() -> None:
    text = of_4({"memory": [entity(0), entity(1)]})
    found = records_of(text, expected=8)
    assert found["dcgm.gpus", "node:dgx-01"].text == "DCGM tested 2 GPUs of 8"
    assert ("dcgm.gpus", "node:dgx-01") not in records_of(text, expected=2)
    # Two were asked for, of eight.
    assert ("dcgm.gpus", "node:dgx-01") not in records_of(text, expected=8, chosen=[0, 1])
    found = records_of(text, expected=8, chosen=[0, 7])
    assert found["dcgm.memory", "gpu:dgx-01/7"].status == NOT_MEASURED


def test_a_runtime_error_says_nothing_about_gpus() -> None:
    text = json.dumps({"DCGM Diagnostic": {"version": "4.4.1", "runtime_error": "it is paused"}})
    found = records_of(text, 3)
    assert statuses(found) == {"dcgm.run node:dgx-01": NOT_MEASURED}
    assert found["dcgm.run", "node:dgx-01"].text == "it is paused"


def test_the_worst_of_all_iterations_counts() -> None:
    first = json.loads(of_4({"memory": [entity(0), entity(1)]}))
    second = json.loads(of_4({"memory": [entity(0), entity(1, "Fail", warning(RESET))]}))
    text = json.dumps({"iterations": [second, first], "Overall Result": "Fail"})
    assert statuses(records_of(text))["dcgm.memory gpu:dgx-01/1"] == FAIL


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"),
        ("Error: nothing works", "no JSON"),
        ("{}", "none of DCGM Diagnostic"),
        ("[1, 2]", "no JSON"),
        ('{"DCGM Diagnostic": {}}', "holds no test"),
        ('{"DCGM Diagnostic": {"test_categories": [{"tests": [7]}]}}', "is no object"),
        ('{"iterations": [4]}', "is no object"),
    ],
)
def test_what_is_no_answer(text: str, said: str) -> None:
    report = parse(text)
    assert said in "; ".join(report.errors)
    assert all(r.status == NOT_MEASURED for r in judge(report, "dgx-01", 1, {}))
    assert judge(report, "dgx-01", 1, {})


def test_an_answer_cut_anywhere_is_never_a_pass() -> None:
    text = of_4({"memory": [entity(0), entity(1)], "pcie": [entity(0), entity(1)]})
    for length in range(0, len(text), 7):
        found = judge(parse(text[:length]), "dgx-01", 2, {})
        assert {r.status for r in found} == {NOT_MEASURED}, length


def test_text_around_the_json() -> None:
    text = of_4({"memory": [entity(0), entity(1)]})
    assert parse(f"Successfully ran diagnostic for group.\n{text}\n").errors == ()
    report = parse(f"NVRM said {{something}}\n{text}")
    assert report.errors == ("unexpected text: NVRM said {something}",)
    assert len(report.results) == 2
    assert documents(f"{text}\n{text}")[0] == [json.loads(text)] * 2


def test_a_summary_speaks_where_no_entity_does() -> None:
    test = {"name": "nvbandwidth", "test_summary": {"status": "Skip"}}
    text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": [test]}]}})
    assert statuses(records_of(text)) == {"dcgm.nvbandwidth node:dgx-01": NOT_MEASURED}
    test = {
        "name": "nccl_tests",
        "results": [entity(0)],
        "test_summary": {"status": "Fail", "warnings": [warning(TRIAGE)]},
    }
    text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": [test]}]}})
    assert statuses(records_of(text)) == {
        "dcgm.nccl_tests gpu:dgx-01/0": PASS,
        "dcgm.nccl_tests node:dgx-01": FAIL,
    }


def test_other_entities_are_no_gpus() -> None:
    results = [
        {"entity_group": "NvSwitch", "entity_id": 0, "status": "Pass"},
        {"cpu_id": "1", "status": "Fail", "warnings": [warning(TRIAGE)]},
    ]
    text = json.dumps(
        {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "a", "results": results}]}]}}
    )
    assert statuses(records_of(text)) == {
        "dcgm.a nvswitch:dgx-01/0": PASS,
        "dcgm.a cpu:dgx-01/1": FAIL,
    }


@pytest.mark.parametrize(
    ("result", "said", "remedy"),
    [
        (CommandResult(("dcgmi",), MISSING), "not installed", "settings: run the role dcgm"),
        (CommandResult(("dcgmi",), TIMED_OUT, took_s=120.0), "did not end within", "look: restart"),
        (
            CommandResult(("dcgmi",), ENDED, 235, "Error: Unable to connect to host engine."),
            "does not answer",
            "settings: start",
        ),
        (CommandResult(("dcgmi",), ENDED, 0, "", "Segmentation fault"), "on stderr: Seg", "look:"),
        (CommandResult(("dcgmi",), ENDED, 3), "ended with 3 but names no failure", "look:"),
    ],
)
def test_how_the_command_ended(result: CommandResult, said: str, remedy: str) -> None:
    (record,) = judge_run(result, parse(of_4({"memory": [entity(0)]})), "dgx-01")
    assert record.status == NOT_MEASURED
    assert said in record.text
    assert record.remedy.startswith(remedy)


def test_a_code_that_the_answer_explains_is_no_finding() -> None:
    report = parse(of_4({"memory": [entity(0, "Fail", warning(RESET))]}))
    assert judge_run(CommandResult(("dcgmi",), ENDED, 226), report, "n") == []
    assert judge_run(CommandResult(("dcgmi",), ENDED, 0), report, "n") == []


def test_the_command_line() -> None:
    parameters = {"pcie.x": 1, "diagnostic.test_duration": 300}
    assert command("dcgmi", 3, parameters, "10.0.0.1:5555", [0, 3], ["--fail-early"]) == [
        "dcgmi", "diag", "-r", "3", "-j", "-p", "diagnostic.test_duration=300;pcie.x=1",
        "-i", "0,3", "--host", "10.0.0.1:5555", "--fail-early",
    ]  # fmt: skip
    assert command("dcgmi", 1, {}) == ["dcgmi", "diag", "-r", "1", "-j"]


def test_names_and_words() -> None:
    assert [plain_name(n) for n in ("GPU Memory", "PCIe", "SM Stress", "pulse_test")] == [
        "memory", "pcie", "sm_stress", "pulse_test",
    ]  # fmt: skip
    assert [word(w) for w in ("Pass - All", "FAIL", "Skip", "Not Run", "")] == [
        "pass", "fail", "skip", "not run", "empty",
    ]  # fmt: skip


@pytest.mark.skipif(not (CAPTURES / "dcgmi-diag").is_dir(), reason="no captures here")
def test_captures() -> None:
    folder = CAPTURES / "dcgmi-diag"
    one = parse((folder / "gb10-level1.json").read_text())
    assert (one.version, one.driver, one.gpus, one.serials) == ("4.2.3", "580.82.09", (0,), ())
    assert statuses({(r.check, r.subject): r for r in judge(one, "spark", 1, {}, 1)}) == {
        "dcgm.software gpu:spark/0": PASS,
        "dcgm.settings node:spark": FAIL,
    }
    two = parse((folder / "gb10-level2-plugins-allowed.json").read_text())
    assert two.version == "4.5.2"
    found = {(r.check, r.subject): r for r in judge(two, "spark", 2, {}, 1)}
    assert statuses(found) == {
        "dcgm.software gpu:spark/0": PASS,
        "dcgm.settings node:spark": FAIL,
        "dcgm.memory gpu:spark/0": PASS,
        "dcgm.pcie gpu:spark/0": PASS,
    }
    assert "GPU to Host bandwidth: 58.62 GB/s" in found["dcgm.pcie", "gpu:spark/0"].evidence
    # The table for people is no answer to -j.
    text = parse((folder / "r4-text-pass.txt").read_text())
    assert text.results == ()
    assert text.errors[0] == "there is no JSON in what it printed"
