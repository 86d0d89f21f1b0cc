# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of dcgmi diag, whole and broken: who is failed, who is not, and what is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkout import FIXTURES

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    TIMED_OUT,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.dcgm import (
    TESTS,
    TIME_LIMITS,
    Result,
    command,
    documents,
    is_deep,
    judge,
    judge_result,
    judge_run,
    parse,
    without_skips,
    word,
    worst,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.dcgm import test_name as plain_name
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.dcgm_data import TEXTS
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.dcgm_severity import (
    CONFIG,
    ISOLATE,
    MONITOR,
    RESET,
    SEVERITIES,
    TRIAGE,
    Complaint,
    kind_of,
    remedy_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.thresholds import QUESTIONS


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
    # An error that no table has: the severity is all there is.
    reported = warning(severity, number=999)
    found = records_of(of_4({"pcie": [entity(0, "Fail", reported), entity(1)]}))
    record = found["dcgm.pcie", "gpu:dgx-01/0"]
    assert record.status == FAIL
    assert record.remedy.startswith(remedy)


def test_persistence_mode_off_fails_no_gpu() -> None:
    off = warning(CONFIG, "Persistence mode for GPU 1 is disabled.", 8, 29)
    found = records_of(of_4({"software": [entity(0), entity(1, "Fail", off)]}))
    assert statuses(found) == {
        "dcgm.software gpu:dgx-01/0": PASS,
        "dcgm.software gpu:dgx-01/1": PASS,
        "dcgm.settings node:dgx-01": FAIL,
    }
    assert found["dcgm.settings", "node:dgx-01"].remedy.startswith("settings:")


def test_settings_that_a_deep_test_names_are_its_own() -> None:
    """A run at level 2, which does not ask that test, would end them."""
    off = warning(CONFIG, "a graphics process", 8, 29)
    found = records_of(of_4({"targeted_power": [entity(0), entity(1, "Fail", off)]}))
    assert statuses(found) == {
        "dcgm.targeted_power gpu:dgx-01/0": PASS,
        "dcgm.targeted_power gpu:dgx-01/1": PASS,
        "dcgm.settings_under_load node:dgx-01": FAIL,
    }
    assert is_deep("dcgm.settings_under_load")
    assert not is_deep("dcgm.settings")


def test_settings_do_not_hide_what_is_broken() -> None:
    both = [warning(CONFIG, "off", 8, 29), warning(RESET, "row remap pending")]
    found = records_of(of_4({"software": [entity(0, "Fail", *both), entity(1)]}))
    assert found["dcgm.software", "gpu:dgx-01/0"].status == FAIL
    assert found["dcgm.settings", "node:dgx-01"].text == "off"
    noted = [warning(CONFIG, "off", 8, 29), warning(MONITOR, "watch it")]
    found = records_of(of_4({"software": [entity(0, "Fail", *noted), entity(1)]}))
    assert found["dcgm.software", "gpu:dgx-01/0"].status == FAIL


@pytest.mark.parametrize(
    ("message", "complaints", "status"),
    [
        ("Warn", (Complaint("a little", 1, MONITOR),), PASS),
        ("Warn", (Complaint("much", 1, ISOLATE),), FAIL),
        ("Warn", (Complaint("who knows"),), NOT_MEASURED),
        ("Fail", (Complaint("who knows"),), FAIL),
        ("Fail", (), FAIL),
        ("Fail", (Complaint("plug-in died", 44, 0, 16),), NOT_MEASURED),
        ("Skip", (), NOT_MEASURED),
        ("Skipped", (), NOT_MEASURED),
        ("Not Run", (), NOT_MEASURED),
        ("Splendid", (), NOT_MEASURED),
        ("", (), NOT_MEASURED),
        ("PASS", (), PASS),
    ],
)
def test_every_word_has_one_meaning(message: str, complaints: Any, status: str) -> None:
    (record,) = judge_result(Result("memory", "gpu", 0, message, complaints), "gpu:n/0", "n", ())
    assert record.status == status
    assert bool(record.remedy) == (status != PASS)


@pytest.mark.parametrize(
    ("number", "severity", "category", "status", "remedy"),
    [
        # The number decides: severity isolate is not a reason to return a GPU.
        (4, ISOLATE, 10, FAIL, "reset:"),
        (81, ISOLATE, 5, FAIL, "reset:"),
        (120, ISOLATE, 15, FAIL, "reboot:"),
        (126, ISOLATE, 15, FAIL, "reboot:"),
        (95, ISOLATE, 7, FAIL, "replace:"),
        # One fault, one answer: gpu_health calls it a case for return as well.
        (80, RESET, 10, FAIL, "replace:"),
        (85, RESET, 10, FAIL, "reset:"),
        (46, CONFIG, 13, FAIL, "look:"),
        # Software, whatever the severity.
        (24, ISOLATE, 4, "settings", "settings:"),
        (25, RESET, 8, "settings", "settings:"),
        (122, ISOLATE, 8, "settings", "settings:"),
        # It has looked at nothing.
        (47, CONFIG, 8, NOT_MEASURED, "look:"),
        (56, TRIAGE, 8, NOT_MEASURED, "look:"),
        (44, TRIAGE, 16, NOT_MEASURED, "look:"),
        # No table has it: category, then severity.
        (999, ISOLATE, 8, "settings", "settings:"),
        (999, CONFIG, 13, FAIL, "look:"),
        (999, ISOLATE, 13, FAIL, "replace:"),
        (999, CONFIG, 3, "settings", "settings:"),
        (999, 77, 77, FAIL, "look: DCGM does not say"),
    ],
)
def test_the_number_decides_then_the_category_then_the_severity(
    number: int, severity: int, category: int, status: str, remedy: str
) -> None:
    reported = Complaint("it reports it", number, severity, category)
    records = judge_result(Result("memory", "gpu", 0, "Fail", (reported,)), "gpu:n/0", "n", ())
    if status == "settings":
        assert [(one.check, one.status) for one in records] == [
            ("dcgm.memory", PASS),
            ("dcgm.settings", FAIL),
        ]
        assert records[1].remedy.startswith(remedy)
        return
    (record,) = records
    assert record.status == status
    assert record.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("complaint", "status"),
    [
        (Complaint("Couldn't allocate at least 75.0% of GPU memory on GPU 0", 56, 4, 8), 1),
        (Complaint("Couldn't allocate at least 75.0% of GPU memory on GPU 0"), 1),
        (Complaint("GPU 0 has uncorrectable memory errors", 84, RESET, 10), 2),
        (Complaint("watch it", 34, MONITOR, 2), 0),
        (Complaint("a remark"), 0),
        (Complaint("Persistence mode", 29, CONFIG, 8), 0),
    ],
)
def test_a_test_that_passes_and_complains(complaint: Complaint, status: int) -> None:
    note = Complaint("a remark")
    result = Result("memory", "gpu", 0, "Pass", (note, complaint))
    (record,) = judge_result(result, "gpu:n/0", "n", ())
    assert record.status == (PASS, NOT_MEASURED, FAIL)[status]
    assert any(complaint.text in line for line in record.evidence)


@pytest.mark.parametrize(
    ("version", "test", "status"),
    [
        ("4.5.0", "nvbandwidth", NOT_MEASURED),
        ("4.5.2", "nvbandwidth", NOT_MEASURED),
        ("4.6.0", "nvbandwidth", FAIL),
        ("4.4.9", "nvbandwidth", FAIL),
        ("", "nvbandwidth", FAIL),
        ("4.5.0", "memory", FAIL),
    ],
)
def test_a_false_alarm_is_known_by_release_and_test(version, test, status) -> None:
    text = "The memory copy utilitization for the GPU: 3 is greater than 10%. "
    reported = Complaint(
        f"{text}This may affect the results of the nvbandwidth test.", 38, ISOLATE, 10
    )
    result = Result(test, "gpu", 3, "Fail", (reported,))
    (record,) = judge_result(result, "gpu:n/3", "n", (), version)
    assert record.status == status
    assert ("issue 272" in record.text) == (status == NOT_MEASURED)


def test_the_names_that_nvvs_writes() -> None:
    text = of_3({"Environmental Variables": [{"gpu_ids": "0", "status": "Fail"}]})
    assert statuses(records_of(text)) == {
        "dcgm.environmental_variables gpu:dgx-01/0": PASS,
        "dcgm.settings node:dgx-01": FAIL,
    }


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
    ("text", "message"),
    [
        ("", "no JSON"),
        ("Error: nothing works", "no JSON"),
        ("{}", "none of DCGM Diagnostic"),
        ("[1, 2]", "no JSON"),
        ('{"DCGM Diagnostic": {}}', "holds no test"),
        ('{"DCGM Diagnostic": {"test_categories": [{"tests": [7]}]}}', "is not an object"),
        ('{"iterations": [4]}', "is not an object"),
    ],
)
def test_what_is_no_answer(text: str, message: str) -> None:
    report = parse(text)
    assert message in "; ".join(report.errors)
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
    report = parse(f"NVRM printed {{something}}\n{text}")
    assert report.errors == ("unexpected text: NVRM printed {something}",)
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
    ("result", "message", "remedy"),
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
def test_how_the_command_ended(result: CommandResult, message: str, remedy: str) -> None:
    (record,) = judge_run(result, parse(of_4({"memory": [entity(0)]})), "dgx-01")
    assert record.status == NOT_MEASURED
    assert message in record.text
    assert record.remedy.startswith(remedy)


def test_a_code_that_the_answer_explains_is_no_finding() -> None:
    report = parse(of_4({"memory": [entity(0, "Fail", warning(RESET))]}))
    assert judge_run(CommandResult(("dcgmi",), ENDED, 226), report, "n") == []
    assert judge_run(CommandResult(("dcgmi",), ENDED, 0), report, "n") == []


def test_a_run_that_ends_as_it_should_says_nothing_of_itself() -> None:
    report = parse(of_4({"memory": [entity(0)]}))
    assert judge_run(CommandResult(("dcgmi",), ENDED, 0), report, "n") == []


def test_the_time_of_each_level_in_seconds() -> None:
    # NVIDIA's guide: seconds, 2 and 15 minutes; AWS saw 10.5 minutes at level 2, 2 h 15 at 4.
    assert TIME_LIMITS == {1: 120, 2: 1800, 3: 3600, 4: 10800}


def test_the_errors_that_dcgm_3_writes_as_text_only_by_their_number_in_dcgm_errors_h() -> None:
    assert dict(TEXTS) == {
        "fallen off the bus": 120,
        "Couldn't allocate at least": 56,
        "aborted early due to user signal": 47,
        "processes with graphics contexts open": 25,
        "row remapping failed": 80,
        "uncontained error (XID 95)": 81,
    }


def test_a_result_that_cannot_be_read_hides_no_other() -> None:
    report = parse(of_4({"memory": ["?", entity(0, "Fail", warning(ISOLATE))]}))
    assert [(one.kind, one.status) for one in report.results] == [
        ("node", "unreadable"),
        ("gpu", "Fail"),
    ]


def test_what_was_not_measured_outweighs_a_pass() -> None:
    both = [Record("dcgm.memory", "gpu:n/0", status) for status in (PASS, NOT_MEASURED)]
    for records in (both, both[::-1]):
        assert [one.status for one in worst(records)] == [NOT_MEASURED]


def test_of_unexpected_lines_five_are_told() -> None:
    lines = "\n".join(f"line {number}" for number in range(9))
    (record,) = judge_run(CommandResult(("dcgmi",), ENDED, 0, "", lines), None, "n")
    assert record.text.count("on stderr: ") == 5


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


def test_captures(captures: Path) -> None:
    folder = captures / "dcgmi-diag"
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
    # The table for people is not an answer to -j.
    text = parse((folder / "r4-text-pass.txt").read_text())
    assert text.results == ()
    assert text.errors[0] == "there is no JSON in what it printed"


FIXTURES = FIXTURES / "dcgmi_diag"


@pytest.mark.parametrize(
    ("name", "version", "driver", "level"),
    [
        ("dcgm-3.1.8-level2.json", "3.1.8", "535.129.03", 2),
        ("dcgm-3.3.9-level2.json", "3.3.9", "550.144.03", 2),
        ("dcgm-4.2.3-level2.json", "4.2.3", "570.86.15", 2),
        ("dcgm-4.5.0-level3.json", "4.5.0", "580.105.08", 3),
    ],
)
def test_the_form_of_every_release(name: str, version: str, driver: str, level: int) -> None:
    text = (FIXTURES / name).read_text(encoding="utf-8")
    report = parse(text)
    assert (report.version, report.driver, report.gpus) == (version, driver, (0, 1))
    found = records_of(text, level)
    # The same in each: GPU 0 off the bus, the memory of GPU 1 not tested, an environment variable.
    assert found["dcgm.pcie", "gpu:dgx-01/0"].status == FAIL
    assert found["dcgm.pcie", "gpu:dgx-01/0"].remedy.startswith("reboot:")
    assert found["dcgm.memory", "gpu:dgx-01/1"].status == NOT_MEASURED
    assert found["dcgm.settings", "node:dgx-01"].status == FAIL
    failed = {subject for (_check, subject), one in found.items() if one.status == FAIL}
    assert failed == {"gpu:dgx-01/0", "node:dgx-01"}
    open_ = {key for key, one in found.items() if one.status == NOT_MEASURED}
    known = {("dcgm.nvbandwidth", "gpu:dgx-01/1")} if level == 3 else set()
    assert open_ == {("dcgm.memory", "gpu:dgx-01/1"), *known}


@pytest.mark.parametrize(
    ("number", "check"),
    [
        (80, "gpu.remap_failed"),
        (85, "gpu.remap_pending"),
        (6, "gpu.retired_pending"),
        (46, "gpu.pcie_width"),
        (45, "gpu.pcie_speed"),
        (9, "gpu.inforom"),
        (14, "gpu.nvlink_active"),
    ],
)
def test_one_fault_has_one_kind_of_remedy_in_both_modules(number: int, check: str) -> None:
    reported = remedy_of([Complaint("it reports it", number, ISOLATE, 10)])
    assert reported.partition(":")[0] == QUESTIONS[check].remedy.partition(":")[0]


@pytest.mark.parametrize("severity", [-1, len(SEVERITIES), 99, None])
def test_a_severity_that_is_not_known_is_not_given(severity: int | None) -> None:
    line = Complaint("it is broken", None, severity).line()
    assert line == "error not given, severity not given: it is broken"


@pytest.mark.parametrize("severity", range(len(SEVERITIES)))
def test_each_severity_has_its_name(severity: int) -> None:
    assert f"severity {SEVERITIES[severity]}: " in Complaint("x", 95, severity).line()


# dcgmErrorCategory_enum and dcgmErrorSeverity_enum of dcgm_errors.h, DCGM 4.
CATEGORIES = (
    "NONE", "PERF_THRESHOLD", "PERF_VIOLATION", "SOFTWARE_CONFIG", "SOFTWARE_LIBRARY",
    "SOFTWARE_XID", "SOFTWARE_CUDA", "SOFTWARE_EUD", "SOFTWARE_OTHER", "HARDWARE_THERMAL",
    "HARDWARE_MEMORY", "HARDWARE_NVLINK", "HARDWARE_NVSWITCH", "HARDWARE_PCIE", "HARDWARE_POWER",
    "HARDWARE_OTHER", "INTERNAL_OTHER", "of a later release",
)  # fmt: skip
BY_SEVERITY = {
    "none": "unclear", "monitor": "benign", "isolate": "hardware", "unknown": "unclear",
    "triage": "hardware", "config": "settings", "reset": "hardware",
}  # fmt: skip


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("number", [None, 0, 1, 999])
def test_an_error_that_no_table_has_is_of_its_category_then_its_severity(
    category: str, number: int | None
) -> None:
    for severity, word_of in enumerate(BY_SEVERITY):
        reported = Complaint("it reports it", number, severity, CATEGORIES.index(category))
        expected = BY_SEVERITY[word_of]
        if category in ("SOFTWARE_CONFIG", "SOFTWARE_LIBRARY", "SOFTWARE_OTHER"):
            expected = "settings"
        elif category == "INTERNAL_OTHER":
            expected = "broken"
        elif category.startswith("HARDWARE") and word_of == "config":
            expected = "hardware"
        assert kind_of(reported, "memory") == expected, word_of
        # A test of DCGM 3 that looks at software only has no severities.
        if expected == "unclear":
            assert kind_of(reported, "persistence_mode") == "settings"


def test_of_several_errors_the_heaviest_action_is_the_remedy() -> None:
    order = [("replace:", 95), ("reboot:", 120), ("reset:", 4), ("look: drain", 30)]
    order += [("look: jobs may run", 34), ("look: DCGM does not say", 1)]
    for place, (remedy, _number) in enumerate(order):
        left = [Complaint("x", number) for _remedy, number in order[place:]]
        assert remedy_of(left).startswith(remedy)
        assert remedy_of(left[::-1]).startswith(remedy)
    assert remedy_of([]).startswith("look: DCGM does not say")


def test_every_level_has_its_tests_and_a_longer_limit() -> None:
    levels = [1, 2, 3, 4]
    assert sorted(TESTS) == sorted(TIME_LIMITS) == levels
    limits = [TIME_LIMITS[level] for level in levels]
    assert limits == sorted(set(limits))
    # What was seen on DGX machines: 10.5 minutes at level 2 and 2 h 15 min at 4.
    assert limits[1] > 10.5 * 60
    assert limits[3] > 135 * 60
    assert "pulse_test" in TESTS[4]
    assert "memory" in TESTS[2]
    assert not TESTS[1]
    for level, tests in TESTS.items():
        assert all(is_deep(f"dcgm.{test}") is (level > 2) for test in tests)


def of_tests(*tests: Any, **more: Any) -> str:
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": tests}]}, **more})


@pytest.mark.parametrize(
    ("test", "result"),
    [
        ({"name": "pcie"}, Result("pcie", "node", 0, "no results")),
        ({"name": "pcie", "results": [7]}, Result("pcie", "node", 0, "unreadable")),
        ({"results": [{"gpu_ids": "3", "status": "Pass"}]}, Result("unnamed", "gpu", 3, "Pass")),
        (
            {"name": "pcie", "test_summary": {"status": "Pass", "info": "a note"}},
            Result("pcie", "node", 0, "Pass", (), ("a note",)),
        ),
        ({"name": "pcie", "test_summary": {}}, Result("pcie", "node", 0, "")),
        ({"name": "pcie", "results": [{"status": "Pass"}]}, Result("pcie", "node", 0, "Pass")),
        ({"name": "pcie", "results": [{"gpu_id": "2"}]}, Result("pcie", "gpu", 2, "")),
        ({"name": "pcie", "results": [{"entity_id": 5}]}, Result("pcie", "gpu", 5, "")),
        ({"name": "pcie", "results": [{"entity_id": "x"}]}, Result("pcie", "node", 0, "")),
        (
            {"name": "pcie", "results": [{"entity_group": "None", "entity_id": 5}]},
            Result("pcie", "node", 0, ""),
        ),
        (
            {"name": "pcie", "results": [{"gpu_id": 1, "warnings": [{"message": "slow"}]}]},
            Result("pcie", "gpu", 1, "", (Complaint("slow"),)),
        ),
        (
            {"name": "pcie", "results": [{"gpu_id": 1, "warnings": {"error_id": "46"}}]},
            Result("pcie", "gpu", 1, "", (Complaint("no text", 46),)),
        ),
        (
            {"name": "pcie", "results": [{"gpu_id": 1, "warnings": {"error_id": "4x"}}]},
            Result("pcie", "gpu", 1, "", (Complaint("no text"),)),
        ),
    ],
)
def test_the_forms_of_a_result(test: dict[str, Any], result: Result) -> None:
    assert parse(of_tests(test)).results == (result,)


def test_a_summary_that_repeats_what_the_entities_said_is_no_record() -> None:
    failed = {"name": "a", "results": [entity(0, "Fail")], "test_summary": {"status": "Fail"}}
    assert [one.kind for one in parse(of_tests(failed)).results] == ["gpu"]
    odd = {"name": "a", "results": [entity(0)], "test_summary": {"status": "Fail"}}
    assert parse(of_tests(odd)).results[1:] == (Result("a", "node", 0, "Fail"),)
    warned = {"name": "a", "results": [entity(0)], "test_summary": {"status": "Warn"}}
    assert [one.kind for one in parse(of_tests(warned)).results] == ["gpu"]


def test_iterations_are_read_one_by_one() -> None:
    whole = json.loads(of_4({"memory": [entity(0), entity(1)]}))
    bare = {"DCGM Diagnostic": whole["DCGM Diagnostic"]}
    for parts in ([whole, bare], [bare, whole]):
        report = parse(json.dumps({"iterations": parts}))
        assert (report.version, report.driver, len(report.results)) == ("4.4.1", "580.105.08", 4)
        assert report.serials == ((0, "1650000"), (1, "1650001"))
    both = parse(json.dumps({"iterations": [{}, 4, whole]}))
    assert len(both.errors) == 2
    for strange in ("[]", "7", '{"a": 1}', "null"):
        report = parse(f'{{"iterations": {strange}}}')
        assert "none of DCGM Diagnostic" in "; ".join(report.errors), strange


def test_serials_are_those_of_the_gpus_that_have_one() -> None:
    entities = [
        {"entity_id": 0, "serial_num": "165"}, {"entity_id": 1, "serial_num": None},
        {"entity_id": 2}, {"entity_id": 3, "serial_num": "<<<NOT_SUPPORTED>>>"},
        {"entity_id": None, "serial_num": "166"}, None, 7,
    ]  # fmt: skip
    groups = [
        None,
        7,
        {"entity_group": "CPU", "entities": [{"entity_id": 9, "serial_num": "9"}]},
        {"entity_group": "GPU", "entities": entities},
    ]
    report = parse(of_tests({"name": "a", "results": [entity(0)]}, entity_groups=groups))
    assert report.gpus == (0, 1, 2, 3)
    assert report.serials == ((0, "165"),)


def test_what_was_cut_is_said_to_be_cut() -> None:
    whole = of_4({"memory": [entity(0), entity(1)]})
    assert documents('{"a": 1') == ([], "", True)
    assert parse(whole[:-3]).errors == ("the JSON is truncated or damaged",)
    report = parse(f"{whole}\n{whole[:-3]}")
    assert len(report.results) == 2
    assert report.errors == ("the JSON is truncated or damaged",)
    assert documents(whole) == ([json.loads(whole)], "", False)


@pytest.mark.parametrize(
    ("result", "texts"),
    [
        (Result("memory", "gpu", 0, ""), ["says 'nothing': no reason is given"]),
        (Result("memory", "gpu", 0, "Odd"), ["says 'Odd': no reason is given"]),
        (Result("memory", "gpu", 0, "Skip", (), ("no room",)), ["was skipped: no room"]),
        (Result("memory", "gpu", 0, "Fail"), ["it gives no reason"]),
        (
            Result("memory", "gpu", 0, "Warn", (Complaint("a", 34), Complaint("b", 34))),
            ["warns: a; b"],
        ),
        (Result("memory", "gpu", 0, "Warn", (Complaint("a", 999),)), ["warns: a"]),
        (
            Result("denylist", "gpu", 0, "Fail"),
            ["only settings are wrong", "denylist failed and gives no reason"],
        ),
        (
            Result("memory", "gpu", 0, "Fail", (Complaint("off", 29), Complaint("dead", 95))),
            ["off; dead", "off"],
        ),
        (Result("memory", "gpu", 0, "Fail", (Complaint("died", 44),)), ["DCGM broke: died"]),
        (Result("memory", "gpu", 0, "Fail", (Complaint("no room", 56),)), ["not tested: no room"]),
        (
            Result("memory", "gpu", 0, "Fail", (Complaint("no room", 56), Complaint("died", 44))),
            ["not tested: no room; died"],
        ),
    ],
)
def test_the_text_of_each_record(result: Result, texts: list[str]) -> None:
    records = judge_result(result, "gpu:n/0", "n", ())
    assert [record.text for record in records] == texts
    subjects = {"dcgm.settings": "node:n"}
    assert all(one.subject == subjects.get(one.check, "gpu:n/0") for one in records)


@pytest.mark.parametrize(
    ("numbers", "status"),
    [
        # A warning with something serious beside what was not tested is a failure.
        ((56, 95), FAIL),
        ((44, 95), FAIL),
        ((44, 56), NOT_MEASURED),
        ((1, 56), NOT_MEASURED),
        ((34, 29), PASS),
        ((1, 95), FAIL),
    ],
)
def test_a_warning_of_several_kinds(numbers: tuple[int, ...], status: str) -> None:
    reported = tuple(Complaint(f"error {number}", number) for number in numbers)
    record, *_settings = judge_result(
        Result("memory", "gpu", 0, "Warn", reported), "gpu:n/0", "n", ()
    )
    assert record.status == status


def test_a_failure_is_no_note_whatever_is_beside_it() -> None:
    reported = (Complaint("no room", 56), Complaint("who knows", 1))
    (record,) = judge_result(Result("memory", "gpu", 0, "Fail", reported), "gpu:n/0", "n", ())
    assert record.status == FAIL


def test_the_number_of_gpus_is_compared_only_if_something_was_tested() -> None:
    text = of_4({"memory": [entity(0), entity(1)]})
    short = records_of(text, expected=8)["dcgm.gpus", "node:dgx-01"]
    assert (short.status, short.remedy[:5]) == (NOT_MEASURED, "look:")
    assert records_of(text, chosen=[0])["dcgm.gpus", "node:dgx-01"].text.endswith("2 GPUs of 1")
    paused = json.dumps({"DCGM Diagnostic": {"runtime_error": "it is paused"}})
    assert list(records_of(paused, expected=8)) == [("dcgm.run", "node:dgx-01")]


def test_gpus_have_the_subjects_that_are_given_for_them() -> None:
    names = {0: ("gpu:dgx-01/4", ["PCI 0000:9d:00.0"]), 7: ("gpu:dgx-01/2", ["PCI 0000:43:00.0"])}
    report = parse(of_4({"memory": [entity(0), entity(1, "Fail", warning(RESET))]}))
    found = judge(report, "dgx-01", 1, names, chosen=[0, 1, 7])
    assert [(one.check, one.subject, one.status) for one in found] == [
        ("dcgm.memory", "gpu:dgx-01/4", PASS),
        ("dcgm.memory", "gpu:dgx-01/1", FAIL),
        ("dcgm.memory", "gpu:dgx-01/2", NOT_MEASURED),
        ("dcgm.gpus", "node:dgx-01", NOT_MEASURED),
    ]
    assert found[0].evidence == ("PCI 0000:9d:00.0",)
    # A node's or a CPU's number is not a GPU's.
    cpu = parse(of_tests({"name": "a", "results": [{"cpu_id": 0, "status": "Pass"}]}))
    assert [one.subject for one in judge(cpu, "dgx-01", 1, names)] == ["cpu:dgx-01/0"]


def test_the_level_asks_for_its_own_tests_and_those_below() -> None:
    text = of_4({"software": [entity(0), entity(1)]})
    absent = [{check for check, _subject in records_of(text, level)} for level in (1, 2, 3, 4)]
    for level, found in enumerate(absent, 1):
        wanted = {f"dcgm.{test}" for step in range(1, level + 1) for test in TESTS[step]}
        assert found == {"dcgm.software", *wanted}
    # A test of the node alone is there, and asks for no GPU.
    summary = {"name": "pcie", "test_summary": {"status": "Pass"}}
    gpus = {"name": "memory", "results": [entity(0)]}
    assert statuses(records_of(of_tests(summary, gpus), 2)) == {
        "dcgm.pcie node:dgx-01": PASS,
        "dcgm.memory gpu:dgx-01/0": PASS,
    }


def test_one_record_of_each_check_and_subject_the_worst() -> None:
    def one(status: str, text: str = "", remedy: str = "") -> Record:
        return Record("dcgm.a", "gpu:n/0", status, text, remedy=remedy)

    for order in ([PASS, NOT_MEASURED, FAIL], [FAIL, NOT_MEASURED, PASS], [NOT_MEASURED, FAIL]):
        (record,) = worst(one(status, status) for status in order)
        assert (record.status, record.text) == (FAIL, FAIL)
    (record,) = worst([one(NOT_MEASURED, "x"), one(PASS, "y")])
    assert (record.status, record.text) == (NOT_MEASURED, "x")
    # Of the same status, both texts and the first remedy; what is the same is written once.
    (record,) = worst([one(FAIL, "x", "reset:"), one(FAIL, "y", "look:"), one(FAIL, "x")])
    assert (record.text, record.remedy) == ("x; y", "reset:")
    (record,) = worst([one(FAIL), one(FAIL, "y")])
    assert record.text == "y"
    (record,) = worst([one(PASS, "x"), one(PASS, "y")])
    assert record.text == "x"
    assert len(worst([one(PASS), Record("dcgm.a", "gpu:n/1", FAIL)])) == 2


@pytest.mark.parametrize("message", ["cannot connect to the display", "the host engine is old"])
def test_only_a_host_engine_that_does_not_answer_is_one(message: str) -> None:
    (record,) = judge_run(CommandResult(("dcgmi",), ENDED, 1, "", message), None, "n")
    assert "does not answer" not in record.text
    assert message in record.text


def test_an_end_with_a_code_needs_a_reason() -> None:
    ended = CommandResult(("dcgmi",), ENDED, 3)
    passed = parse(of_4({"memory": [entity(0)]}))
    for report in (None, passed):
        (record,) = judge_run(ended, report, "n")
        assert record.text == "it ended with 3 but names no failure"
    for status in ("Fail", "Warn"):
        assert judge_run(ended, parse(of_4({"memory": [entity(0, status)]})), "n") == []
    # The answer reports what stopped it.
    assert judge_run(ended, parse('{"DCGM Diagnostic": {"runtime_error": "paused"}}'), "n") == []


def test_only_what_was_skipped_may_be_left_out_and_only_by_its_name() -> None:
    records = [
        Record(f"dcgm.{name}", "gpu:n/0", status)
        for name in ("memory", "pcie")
        for status in (PASS, FAIL, NOT_MEASURED)
    ]
    assert without_skips(records, ["memory"]) == (records[:2] + records[3:], [records[2]])
    assert without_skips(records, []) == (records, [])
