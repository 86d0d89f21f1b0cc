# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every alert fires when it must, does not when it must not, and tells what to do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import alert_table
import pytest
import yaml
from prometheus_tools import ROOT, RULES, tool

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.xid_table import (
    CHECK,
    IGNORE,
    REBOOT,
    RESET,
    RESTART_JOB,
    XIDS,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.alert_rules import (
    alerts_of,
    seconds_of,
)

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


def test_all_files_are_read_by_prometheus() -> None:
    files = [str(RULES / f"{name}.yml") for name in FILES]
    done = subprocess.run(
        [tool("promtool"), "check", "rules", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


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


@pytest.mark.parametrize("name", ALERTS)
def test_texts_name_labels_that_are_there(name: str) -> None:
    """A template with a label that an alert lacks leaves a hole in the message."""
    had = {
        label for key, case in CASES.items() if key.split()[0] == name for label in case["labels"]
    }
    texts = [*ALERTS[name]["annotations"].values(), *ALERTS[name]["labels"].values()]
    named = set(re.findall(r"\$labels\.([A-Za-z_]+)", " ".join(texts)))
    assert named <= had, f"{named - had} is not a label of the alert"


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
