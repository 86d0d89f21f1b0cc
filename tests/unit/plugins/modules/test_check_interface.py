# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All modules that check something have the same options, end alike and return the same."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
import yaml

from ansible_collections.baremetal.dgx.plugins.doc_fragments.check import ModuleDocFragment
from ansible_collections.baremetal.dgx.plugins.module_utils._core import check_module
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Threshold,
    line_of,
)

MODULES = Path(__file__).resolve().parents[4] / "plugins/modules"
FRAGMENT = "baremetal.dgx.check"
CHECKS = sorted(
    path.stem for path in MODULES.glob("*.py") if f"- {FRAGMENT}\n" in path.read_text("utf-8")
)
# It also plans, and returns records only where it verifies.
OTHERS = {"nvidia_driver_plan"}
MOST_LINES = 60
# What one option is for a check, and was called before.
OLD = {"fail", "findings_ok", "not_measured_ok", "time_limit_s", "limit_s", "marks", "mark_source"}
# Module -> its lines after the documentation, and why it needs them. Nothing above 90.
LONGER = {
    "fabric_pairs": (79, "34 options"),
    "fabric_verify": (86, "23 options, and two ways to end: a list of cables, or records"),
    "gpu_burn": (80, "21 options, and a burn-in that outlives the module"),
    "nccl_groups": (65, "18 options, and a job to give back when it is killed"),
}
RETURN = """\
records:
  description:
    - One record for each question; C(verdict) folds them into one, C(counts) has how many there are
      of each status, C(findings) and C(not_measured) a line for each that did not pass.
      C(docs/records.md) describes them all.
  returned: always
  type: list
  elements: dict
"""
GOOD = Record("gpu.x", "gpu:n/0", PASS, "well")
BAD = Record(
    "gpu.x", "gpu:n/1", FAIL, "text", {"value": 3, "unit": "errors"},
    Threshold("==", 0, "errors", "NVIDIA"), remedy="look: here",
)  # fmt: skip
UNKNOWN = Record("gpu.x", "gpu:n/2", NOT_MEASURED, "it hangs")


def module(name: str):
    return importlib.import_module(f"ansible_collections.baremetal.dgx.plugins.modules.{name}")


def lines_after_documentation(text: str) -> int:
    """Return how many lines a module has below its documentation."""
    ends = [
        node.end_lineno or 0
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("DOCUMENTATION", "EXAMPLES", "RETURN")
    ]
    return len(text.splitlines()) - max(ends)


def test_who_finishes_as_a_check_says_so():
    """No module uses the one end without the one documentation."""
    users = {
        path.stem for path in MODULES.glob("*.py") if "check_module" in path.read_text("utf-8")
    }
    assert users == set(CHECKS)
    assert len(CHECKS) >= 15


@pytest.mark.parametrize("name", CHECKS)
def test_options_are_those_of_the_fragment(name):
    spec = module(name).ARGUMENT_SPEC
    docs = yaml.safe_load(module(name).DOCUMENTATION)
    used = docs["extends_documentation_fragment"]
    shared = {"fail_on"}
    assert spec["fail_on"] == check_module.check_options()["fail_on"]
    for part in ("node", "thresholds", "timeout"):
        options = yaml.safe_load(getattr(ModuleDocFragment, part.upper()))["options"]
        if f"{FRAGMENT}.{part}" in used:
            shared |= set(options)
    for option in shared:
        own = docs.get("options", {}).get(option, {})
        assert not {"type", "choices", "elements"} & set(own), option
        assert {**check_module.check_options(option)[option], **own}["type"] == spec[option]["type"]
        assert "default" not in own or own["default"] == spec[option]["default"], option
    assert {"node", "thresholds", "timeout_s"} & set(spec) <= shared
    assert not OLD & set(spec)


@pytest.mark.parametrize("name", sorted(set(CHECKS) - OTHERS))
def test_returns_are_the_same(name):
    assert module(name).RETURN.lstrip().startswith(RETURN)


@pytest.mark.parametrize("name", sorted(path.stem for path in MODULES.glob("*.py")))
def test_a_module_is_documentation_spec_and_main(name):
    count = lines_after_documentation((MODULES / f"{name}.py").read_text("utf-8"))
    most, why = LONGER.get(name, (MOST_LINES, "every module"))
    assert count <= most, f"{count} lines; move what is not a wiring to module_utils"
    assert most <= 90, why


def test_the_longer_ones_are_long():
    for name in LONGER:
        count = lines_after_documentation((MODULES / f"{name}.py").read_text("utf-8"))
        assert count > MOST_LINES, f"{name} needs no exception any more"


class Module:
    """AnsibleModule as far as a check needs it to end."""

    def __init__(self, on, check_mode=False):
        self.params, self.check_mode = {"fail_on": on, "node": ""}, check_mode

    def exit_json(self, **result):
        raise EndedError(False, result)

    def fail_json(self, **result):
        raise EndedError(True, result)


class EndedError(Exception):
    """How it ended, and with what."""


def end(on, *records, check_mode=False, **more):
    with pytest.raises(EndedError) as ended:
        check_module.finish(Module(on, check_mode), records, **more)
    return ended.value.args


@pytest.mark.parametrize(
    ("on", "records", "failed"),
    [
        (["fail", "not_measured"], [GOOD], False),
        (["fail", "not_measured"], [GOOD, BAD], True),
        (["fail", "not_measured"], [GOOD, UNKNOWN], True),
        (["fail", "not_measured"], [], True),
        (["fail"], [BAD, UNKNOWN], True),
        (["fail"], [GOOD, UNKNOWN], False),
        (["fail"], [], False),
        (["not_measured"], [GOOD, BAD], False),
        # A failure that is allowed does not hide what was not measured.
        (["not_measured"], [BAD, UNKNOWN], True),
        ([], [BAD, UNKNOWN], False),
    ],
)
def test_what_fails_the_task(on, records, failed):
    assert end(on, *records)[0] is failed
    assert end(on, *records, check_mode=True)[0] is False


def test_what_is_returned():
    failed, result = end(["fail"], GOOD, BAD, UNKNOWN, extra=1, took_s=0.12345)
    assert failed
    assert result["msg"] == line_of(BAD)
    assert result["verdict"] == FAIL
    assert result["counts"] == {PASS: 1, FAIL: 1, NOT_MEASURED: 1}
    assert result["findings"] == [line_of(BAD)]
    assert result["not_measured"] == ["gpu:n/2 gpu.x not measured: it hangs"]
    assert result["extra"] == 1
    assert result["changed"] is False
    assert all(one["at"] and one["took_s"] == 0.123 for one in result["records"])
    assert end([], GOOD, BAD, at="")[1]["records"][0]["at"] == ""
    assert [one["status"] for one in end([], GOOD, BAD, all_records=False)[1]["records"]] == [FAIL]
    assert end(["fail"], BAD, msg="the whole")[1]["msg"] == "the whole"
    assert end(["not_measured"])[1]["msg"] == "nothing was measured"
