# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.baremetal.dgx.plugins.filter.alert_rules import FilterModule

alert_rules = FilterModule().filters()["alert_rules"]

ONE = """\
groups:
  - name: one
    rules:
      - {record: a:b, expr: sum(a)}
      - alert: Hot
        expr: t > 85
        for: 2m
        labels: {severity: warning, component: gpu}
        annotations: {summary: "{{ $labels.gpu }} has {{ $value }} °C"}
      - {alert: Gone, expr: up == 0, labels: {severity: critical}}
"""
TWO = "groups: [{name: two, rules: [{alert: Slow, expr: s > 1, for: 90s}]}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "one.yml").write_text(ONE)
    (tmp_path / "two.yml").write_text(TWO)
    return str(tmp_path)


def test_without_changes_they_are_what_they_were(folder: str) -> None:
    found = alert_rules(["one", "two"], folder, prefix="/x/rules-")
    assert list(found) == ["/x/rules-one.yml", "/x/rules-two.yml"]
    expected = yaml.safe_load(ONE)
    expected["groups"][0]["rules"][1]["for"] = "120s"
    assert yaml.safe_load(found["/x/rules-one.yml"]) == expected
    assert "{{ $labels.gpu }} has {{ $value }} °C" in found["/x/rules-one.yml"]


def test_a_site_changes_what_it_wants_otherwise(folder: str) -> None:
    changes = {
        "Hot": {"expr": "t > 90", "severity": "info", "for": "5m"},
        "Gone": {"enabled": False},
        "Slow": {"for": "1h30m"},
    }
    found = alert_rules(["one"], folder, changes, wait_factor=0.1)
    rules = yaml.safe_load(found["one.yml"])["groups"][0]["rules"]
    assert [rule.get("alert") for rule in rules] == [None, "Hot"]
    assert rules[1]["expr"] == "t > 90"
    assert rules[1]["labels"] == {"severity": "info", "component": "gpu"}
    assert rules[1]["for"] == "300s", "what a site writes is not scaled"


def test_waiting_is_scaled(folder: str) -> None:
    found = alert_rules(["one", "two"], folder, wait_factor=0.01)
    assert "for: 1200ms" in found["one.yml"]
    assert "for: 900ms" in found["two.yml"]
    assert found["one.yml"].count("for:") == 1


def test_rules_of_the_site_are_a_file_of_their_own(folder: str) -> None:
    groups = [{"name": "ours", "rules": [{"alert": "Door", "expr": "door == 1"}]}]
    assert yaml.safe_load(alert_rules([], folder, extra=groups)["site.yml"]) == {"groups": groups}


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (["three"], {}, "no such rules: three"),
        (["one"], {"changes": {"Hott": {"for": "1m"}}}, "no rule is called Hott"),
        (["one"], {"changes": {"Hot": {"labels": {}}}}, "Hot: labels cannot be changed"),
        (["one"], {"changes": {"Hot": False}}, "Hot: write some of enabled"),
        (["one"], {"changes": {"Hot": {"for": "soon"}}}, "'soon' is not a duration"),
        (["one"], {"wait_factor": 0}, "not above 0"),
    ],
)
def test_mistakes_are_told(folder: str, names: list[str], given: dict, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        alert_rules(names, folder, **given)
