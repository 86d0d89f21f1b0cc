# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every alert fires when it must, does not when it must not, and tells what to do."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import alert_table
import pytest
import threshold_table
import yaml
from hand import FAULTS
from hand import HARMLESS as OTHERS
from library import build
from prometheus_tools import ROOT, RULES, tool

from ansible_collections.baremetal.dgx.plugins.module_utils._exporters.fabric import (
    verdict_families,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.findings import (
    COSTS,
    HARMLESS,
    IDENTITY,
    SILENT,
    SWITCH_FAN,
    SWITCH_PSU,
    SWITCH_TEMPERATURE,
    UNHEARD,
    UPLINKS,
    Finding,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.xid_table import (
    CHECK,
    IGNORE,
    REBOOT,
    RESET,
    RESTART_JOB,
    XIDS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._ib.counters import (
    symbol_errors_allowed,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.settings import OF_TIMER
from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.alert_rules import (
    alerts_of,
    seconds_of,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import PROGRAMS

FILES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(RULES.glob("*.yml"))}
ALERTS = {rule["alert"]: rule for rule in alerts_of(FILES)}
RECORDED = FILES["recording"]["groups"][0]["rules"]
CASES = yaml.safe_load((ROOT / "tests/unit/fixtures/alert_cases.yml").read_text())
SEVERITIES = ("critical", "warning", "info", "none")
SHORT = {
    "$G": 'instance="dgx-01",gpu="3",UUID="GPU-3"',
    "$H": 'instance="dgx-01"',
    "$P": 'instance="dgx-01",device="mlx5_rail3",port="1"',
    "$R": 'instance="dgx-01",subject="gpu:dgx-01/3"',
    "$F": 'instance="head-01"',
    "$C": 'instance="storage-01"',
}
HOUR = 60


def minutes(duration: str) -> int:
    return int(seconds_of(duration) // 60)


def series(given: dict[str, Any], length: int) -> list[dict[str, str]]:
    """Input series of promtool; a number is the same all the time."""
    found = []
    for name, value in given.items():
        for short, labels in SHORT.items():
            name = name.replace(short, labels)
        assert not isinstance(value, str) or "x" in value, f"{name}: {value} is one sample only"
        values = value if isinstance(value, str) else f"{value}x{length}"
        found.append({"series": name, "values": values})
    return found


def questions(name: str, case: dict[str, Any]) -> list[dict[str, Any]]:
    """Tests for promtool: fires with exactly these labels, not before its time, and not else."""
    alert = name.split()[0]
    rule = ALERTS[alert]
    at = case.get("at", f"{HOUR}m")
    selector = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    labels = {
        "alertname": alert,
        "alertstate": "firing",
        **{key: rule["labels"][key] for key in ("severity", "component")},
        **case["labels"],
    }
    shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
    expected = {"expr": selector, "eval_time": at}
    fires = [{**expected, "exp_samples": [{"labels": f"ALERTS{{{shown}}}", "value": 1}]}]
    if minutes(rule.get("for", "0s")) >= 2:
        early = {"expr": selector, "eval_time": "1m", "exp_samples": []}
        fires.append(early)
    found = [
        {
            "interval": "1m",
            "input_series": series(case["fires"], minutes(at)),
            "promql_expr_test": fires,
        }
    ]
    if "quiet" in case:
        found.append(
            {
                "interval": "1m",
                "input_series": series(case["quiet"], minutes(at)),
                "promql_expr_test": [{**expected, "exp_samples": []}],
            }
        )
    return found


def needed(alert: str) -> list[dict[str, Any]]:
    """The alert, and the recording rules that it reads: promtool needs seconds for all of them."""
    found, wanted = [ALERTS[alert]], ALERTS[alert]["expr"]
    for rule in reversed(RECORDED):
        if rule["record"] in wanted:
            found.insert(0, rule)
            wanted += rule["expr"]
    return found


def run(folder: Path, cases: dict[str, dict[str, Any]]) -> str:
    """The complaints of promtool; empty when all is as expected."""
    files = []
    for number, (name, case) in enumerate(cases.items()):
        rules = folder / f"rules-{number}.yml"
        group = {"name": "tried", "rules": needed(name.split()[0])}
        rules.write_text(yaml.safe_dump({"groups": [group]}))
        path = folder / f"{name.replace(' ', '_')}.yml"
        content = {
            "rule_files": [str(rules)],
            "evaluation_interval": "1m",
            "tests": questions(name, case),
        }
        path.write_text(yaml.safe_dump(content))
        files.append(str(path))
    return complaints(*files)


def complaints(*files: str) -> str:
    """The complaints of promtool about these tests."""
    done = subprocess.run(
        [tool("promtool"), "test", "rules", *files], capture_output=True, text=True, check=False
    )
    result = re.sub(r"(?m)^Unit Testing: .*\n *SUCCESS\n\n?", "", done.stdout)
    return "" if done.returncode == 0 else result + done.stderr


def test_every_alert_has_a_case() -> None:
    tried = {name.split()[0] for name in CASES}
    assert tried == set(ALERTS)
    quiet = {name.split()[0] for name, case in CASES.items() if "quiet" in case}
    assert set(ALERTS) - quiet == {"Watchdog"}, "it always fires, all others must be able not to"


def test_alerts_fire_and_keep_quiet(tmp_path: Path) -> None:
    assert run(tmp_path, CASES) == ""


def of_both(given: dict[str, Any]) -> dict[str, Any]:
    """The same series from a second controller, too."""
    second = 'instance="head-02"'
    return {
        **given,
        **{
            re.sub(r'\$F|instance="head-01"', second, name): value
            for name, value in given.items()
            if "$F" in name or 'instance="head-01"' in name
        },
    }


def test_two_controllers_that_publish_the_same_are_no_error(tmp_path: Path) -> None:
    """While one takes over from the other: what the label `instance` tells apart is lost."""
    renamed = {name for name, rule in ALERTS.items() if "instance" in rule["labels"]}
    cases = {
        name: {**case, "fires": of_both(case["fires"])}
        for name, case in CASES.items()
        if name.split()[0] in renamed and of_both(case["fires"]) != case["fires"]
    }
    assert {"GpuMissing", "JobIdle", "JobStalled", "NodeDrained"} <= set(cases)
    assert run(tmp_path, cases) == ""


def test_all_files_are_read_by_prometheus() -> None:
    files = [str(RULES / f"{name}.yml") for name in FILES]
    done = subprocess.run(
        [tool("promtool"), "check", "rules", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_reads_a_day_is_asked_seldom() -> None:
    """Each evaluation reads every sample of the range, and the rest of the group waits for it."""
    asked = {
        rule.get("alert", rule.get("record")): seconds_of(group.get("interval", "15s"))
        for content in FILES.values()
        for group in content["groups"]
        for rule in group["rules"]
        if any(seconds_of(one) >= 86400 for one in re.findall(r"\[(\d+[smhdw])", rule["expr"]))
    }
    assert asked == {"MemoryCorrected": 600}


def test_a_wrong_expectation_is_found(tmp_path: Path) -> None:
    case = {**CASES["GpuHot"], "fires": CASES["GpuHot"]["quiet"]}
    assert "GpuHot.yml" in run(tmp_path, {"GpuHot": case})


def test_names_are_told_once() -> None:
    names = [rule["alert"] for rule in alerts_of(FILES)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["labels"]["component"]
    assert list(rule["annotations"]) == ["summary", "look", "do", "source"]
    assert all(len(text) >= 3 for text in rule["annotations"].values())
    assert not rule["annotations"]["summary"].endswith(".")


def test_programs_of_the_collection_are_named_by_their_path() -> None:
    """They are in a folder that is on no PATH: a shell would not find them."""
    shown = re.compile(f"`({'|'.join(PROGRAMS)}) [^`]*`")
    for rule in ALERTS.values():
        assert not shown.search(" ".join(rule["annotations"].values())), rule["alert"]
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert not shown.search(page.read_text(encoding="utf-8")), page.name


@pytest.mark.parametrize("name", ALERTS)
def test_texts_name_labels_that_are_there(name: str) -> None:
    """A template with a label that an alert lacks leaves a hole in the message."""
    had = {
        label for key, case in CASES.items() if key.split()[0] == name for label in case["labels"]
    }
    texts = [*ALERTS[name]["annotations"].values(), *ALERTS[name]["labels"].values()]
    named = set(re.findall(r"\$labels\.([A-Za-z_]+)", " ".join(texts)))
    assert named <= had, f"{named - had} is not a label of the alert"


def test_a_gpu_that_two_jobs_share_is_counted_once(tmp_path: Path) -> None:
    """One series for each job: eight GPUs of 100 W, the last of which has two."""
    job = ['hpc_job=""'] * 7 + ['hpc_job="7"', 'hpc_job="8"']
    gpus = [f'instance="dgx-01",gpu="{gpu}",UUID="GPU-{gpu}"' for gpu in (*range(8), 7)]
    names = {"DCGM_FI_DEV_GPU_TEMP": 40, "DCGM_FI_DEV_POWER_USAGE": 100}
    shown = {
        'node:gpus_seen:count{node="dgx-01"}': 8,
        "cluster:gpus:count": 8,
        'instance:gpu_power:watts{instance="dgx-01"}': 800,
        "cluster:gpu_power:watts": 800,
    }
    asked = {
        "interval": "1m",
        "input_series": [
            {"series": f"{name}{{{gpu},{of}}}", "values": f"{value}x10"}
            for name, value in names.items()
            for gpu, of in zip(gpus, job, strict=True)
        ],
        "promql_expr_test": [
            {
                "expr": name.partition("{")[0],
                "eval_time": "5m",
                "exp_samples": [{"labels": name, "value": value}],
            }
            for name, value in shown.items()
        ],
    }
    path = tmp_path / "shared.yml"
    rules = [str(RULES / "recording.yml")]
    path.write_text(yaml.safe_dump({"rule_files": rules, "tests": [asked]}))
    assert complaints(str(path)) == ""


@pytest.mark.parametrize(
    ("failures", "fires"), [([300, 600, 900, 1200, 1500], True), ([300], False)]
)
def test_one_group_that_is_never_delivered(
    tmp_path: Path, failures: list[int], fires: bool
) -> None:
    """It is tried once in five minutes; rules are evaluated between two scrapes 15 s apart."""
    name = 'alertmanager_notifications_failed_total{instance="head-01",integration="email"}'
    counted = [sum(at <= scrape for at in failures) for scrape in range(0, 1800, 15)]
    firing = 'ALERTS{alertname="NotificationsFail",alertstate="firing"}'
    labels = 'component="monitoring",instance="head-01",integration="email",severity="critical"'
    found = [{"labels": f"{firing[:-1]},{labels}}}", "value": 1}] if fires else []
    asked = {
        "interval": "7s500ms",
        "input_series": [{"series": name, "values": "".join(f"_ {one} " for one in counted)}],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{minute}m", "exp_samples": found}
            for minute in ((21, 22, 25) if fires else (11, 16, 19, 20, 21))
        ],
    }
    path = tmp_path / "group.yml"
    rules = [str(RULES / "meta.yml")]
    content = {"rule_files": rules, "evaluation_interval": "15s", "tests": [asked]}
    path.write_text(yaml.safe_dump(content))
    assert complaints(str(path)) == ""


# What a node finds wrong with itself


def receives(matchers: str, check: str) -> bool:
    """Whether a selector of findings takes one of this check."""
    return all(
        (re.fullmatch(text, check) is not None) == (op in ("=", "=~"))
        for op, text in re.findall(r'check([=!]~?)"([^"]*)"', matchers)
    )


def receivers(check: str) -> list[str]:
    """The alerts that a finding of this check raises, without those about Slurm's answer to it."""
    found = re.compile(r'baremetal_dgx_health_finding\{([^}]*status="fail"[^}]*)\}')
    return [
        name
        for name, rule in ALERTS.items()
        if name != "GateOpen"
        and any(receives(matchers, check) for matchers in found.findall(rule["expr"]))
    ]


def checks_of(package: str) -> set[str]:
    """What the health program asks of a package's checks."""
    found = (
        re.sub(r"\{\w+\}", "rx_power", one.check) for one in threshold_table.packages()[package]
    )
    return {one for one in found if package != "_storage" or one.startswith("nvme.")}


ASKED = ("_gpu", "_ib", "_node_health", "_storage")


@pytest.mark.parametrize("package", ASKED)
def test_each_finding_of_a_node_raises_one_alert(package: str) -> None:
    checks = checks_of(package)
    assert len(checks) > 6
    assert {check: receivers(check) for check in checks if len(receivers(check)) != 1} == {}


def branches(pattern: str) -> list[str]:
    """A pattern for each alternative of one."""
    group = re.search(r"\(([^()]*)\)", pattern)
    if group is None:
        return pattern.split("|")
    parts = (pattern[: group.start()] + one + pattern[group.end() :] for one in group[1].split("|"))
    return sorted({branch for part in parts for branch in branches(part)})


@pytest.mark.parametrize(
    "path",
    [*sorted(RULES.glob("*.yml")), ROOT / "roles/grafana/files/dashboards.yml",
     ROOT / "tests/unit/fixtures/alert_cases.yml"],
    ids=lambda path: path.stem,
)  # fmt: skip
def test_each_check_that_is_looked_for_is_one_that_nodes_ask(path: Path) -> None:
    """What no node asks is never found, and its alert never fires."""
    checks = {check for package in ASKED for check in checks_of(package)}
    metric = re.compile(r"baremetal_dgx_health_(?:finding|measured)\{([^}]*)\}")
    wanted = {
        branch
        for matchers in metric.findall(path.read_text())
        for pattern in re.findall(r'check[=!]~?"([^"]*)"', matchers)
        for branch in branches(pattern)
    }
    assert {one for one in wanted if not any(re.fullmatch(one, each) for each in checks)} == set()


def test_a_gate_is_not_open_for_what_the_timer_alone_asks() -> None:
    """It drains no node for that."""
    (selector,) = re.findall(r"health_finding\{([^}]*)\}", ALERTS["GateOpen"]["expr"])
    checks = {check for package in ASKED for check in checks_of(package)}
    quiet = {one for one in checks if not receives(selector, one)}
    assert quiet == {one for one in checks if one.startswith(OF_TIMER)}


def test_symbol_errors_are_allowed_as_by_the_health_program(tmp_path: Path) -> None:
    """Never fewer; only of HDR100, which has the rate of EDR, more."""
    links = {"QDR": 40, "EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}
    wanted = {name: symbol_errors_allowed(rate, 900, name)[0] for name, rate in links.items()}
    record = "device:ib_symbol_errors_allowed:count"
    asked = {
        "interval": "1m",
        "input_series": [
            {
                "series": f'node_infiniband_rate_bytes_per_second{{instance="{name}",device="x"}}',
                "values": f"{rate * 125_000_000}x10",
            }
            for name, rate in links.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"round({record}, 0.01)",
                "eval_time": "5m",
                "exp_samples": [
                    {"labels": f'{{instance="{name}",device="x"}}', "value": max(value, 3)}
                    for name, value in wanted.items()
                ],
            }
        ],
    }
    path = tmp_path / "symbols.yml"
    rules = [str(RULES / "recording.yml")]
    path.write_text(yaml.safe_dump({"rule_files": rules, "tests": [asked]}))
    assert complaints(str(path)) == ""


# What a sweep finds wrong with the fabric

# Harmless ones mislead people, and the other two are never a failure.
WITHOUT_ALERT = {kind for kind, cost in COSTS.items() if cost.severity == HARMLESS}
WITHOUT_ALERT |= {IDENTITY, UNHEARD}
# What the library of faults does not have.
MORE = [
    Finding(kind, "switch:leaf-001", "", "")
    for kind in (UPLINKS, SWITCH_PSU, SWITCH_FAN, SWITCH_TEMPERATURE)
] + [Finding(SILENT, "port:leaf-001/40", "", "")]


def fabric_findings() -> Iterator[dict[str, str]]:
    """The labels of what is found of each fault of the library."""
    for name in {**FAULTS, **OTHERS}:
        world = build("superpod-32-of-64", (name,), 7).world
        verdict = world.judge()
        verdict = replace(verdict, findings=verdict.findings + MORE, doubts=[])
        for family in verdict_families(world.plan, verdict, []):
            if family.name == "baremetal_dgx_fabric_finding":
                yield from map(dict, family.samples)


def test_each_finding_of_the_fabric_raises_one_alert(tmp_path: Path) -> None:
    alike = {}
    for labels in fabric_findings():
        place = [bool(labels[one]) for one in ("node", "switch", "rail")]
        shape = (labels["kind"], labels["subject"].partition(":")[0], *place)
        alike[shape] = labels
    assert {labels["kind"] for labels in alike.values()} | {IDENTITY, UNHEARD} == set(COSTS)
    tests = []
    for labels in alike.values():
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        expected = [] if labels["kind"] in WITHOUT_ALERT else [{"labels": "{}", "value": 1}]
        question = 'count(count by (alertname) (ALERTS{alertstate="firing"}))'
        expr = f"{question} # {labels['kind']} {labels['subject']}"
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {
                        "series": f'baremetal_dgx_fabric_finding{{instance="head-01",{shown}}}',
                        "values": "1x5",
                    }
                ],
                "promql_expr_test": [{"expr": expr, "eval_time": "5m", "exp_samples": expected}],
            }
        )
    path = tmp_path / "fabric.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES / "fabric.yml")], "tests": tests}))
    assert complaints(str(path)) == ""


# The lists of Xids

LISTS = {
    "GpuXidJob": RESTART_JOB,
    "GpuXidCheck": CHECK,
    "GpuXidReset": RESET,
    "GpuXidReboot": REBOOT,
}


def xids_of(name: str) -> set[int]:
    """Codes that the matchers of the alert let pass."""
    found = re.findall(r'xid([=!]~)"([^"]*)"', ALERTS[name]["expr"])
    assert found
    return {
        code
        for code in range(1, 1000)
        if all((re.fullmatch(text, str(code)) is not None) == (op == "=~") for op, text in found)
    }


@pytest.mark.parametrize("name", LISTS)
def test_xids_are_those_of_the_table(name: str) -> None:
    assert xids_of(name) == {code for code, row in XIDS.items() if row.action == LISTS[name]}


def test_each_xid_is_somewhere() -> None:
    """What the table ignores raises nothing, what it lacks is unknown."""
    ignored = {code for code, row in XIDS.items() if row.action == IGNORE}
    received = set().union(*(xids_of(name) for name in [*LISTS, "GpuXidNvlink", "GpuXidUnknown"]))
    assert set(range(1, 1000)) - received == ignored
    assert xids_of("GpuXidNvlink") == set(range(144, 151))
    assert not xids_of("GpuXidUnknown") & set(XIDS)


@pytest.mark.parametrize("path", alert_table.PAGES, ids=lambda path: path.name)
def test_the_page_has_the_table_of_the_rules(path: Path) -> None:
    page = path.read_text()
    assert alert_table.with_table(path, page) == page, "run .ci/alert_table.py"
    assert all(f"| `{name}` |" in page for name in ALERTS)
