# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/records.schema.json holds for what the modules answer, and refuses what is not a record."""

from __future__ import annotations

import copy
import json
import re

import pytest
from burned_node import burnt
from checkout import ROOT
from ib_tree import RAILS, dgx
from library import FAULTS, build

from ansible_collections.baremetal.dgx.plugins.module_utils._burn.judge import judge_burn
from ansible_collections.baremetal.dgx.plugins.module_utils._core.verdict import (
    place_of,
    record_from_data,
    serials_of,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import records_of
from ansible_collections.baremetal.dgx.plugins.modules import gpu_health, ib_health
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    BUILT_IN,
)

SCHEMA = json.loads((ROOT / "docs/records.schema.json").read_text())

# The words of JSON Schema that are checked here: another one in the file is an error.
ANNOTATIONS = {"$schema", "title", "description"}
TYPES = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _types(value, wanted):
    names = [wanted] if isinstance(wanted, str) else wanted
    return any(TYPES[name](value) for name in names)


def wrong(value, schema, path="record") -> list[str]:
    """What of a value is not as the schema says."""
    found = []
    for word, wanted in schema.items():
        if word in ANNOTATIONS:
            continue
        if word == "properties":
            if isinstance(value, dict):
                for name, one in wanted.items():
                    if name in value:
                        found += wrong(value[name], one, f"{path}.{name}")
        elif word == "additionalProperties":
            extra = set(value) - set(schema["properties"]) if isinstance(value, dict) else set()
            found += [f"{path}: {name}" for name in extra]
        elif word == "items":
            for number, one in enumerate(value if isinstance(value, list) else ()):
                found += wrong(one, wanted, f"{path}[{number}]")
        elif not CHECKS[word](value, wanted):
            found.append(f"{path}: {value!r} is not {word} {wanted!r}")
    return found


CHECKS = {
    "type": _types,
    "const": lambda value, wanted: value == wanted and type(value) is type(wanted),
    "enum": lambda value, wanted: value in wanted,
    "pattern": lambda value, wanted: not isinstance(value, str) or bool(re.search(wanted, value)),
    "minLength": lambda value, wanted: not isinstance(value, str) or len(value) >= wanted,
    "minimum": lambda value, wanted: not TYPES["number"](value) or value >= wanted,
    "required": lambda value, wanted: not isinstance(value, dict) or set(wanted) <= set(value),
    "anyOf": lambda value, wanted: any(not wrong(value, one) for one in wanted),
}


def hold(records) -> None:
    assert records
    for record in records:
        data = json.loads(json.dumps(record))
        assert wrong(data, SCHEMA) == []
        assert record_from_data(data).as_data() == data


GOOD = {
    "check": "gpu.ecc", "subject": "gpu:dgx-01/0", "status": "fail", "text": "",
    "measured": {"value": 1, "unit": "errors"},
    "threshold": {"op": "<=", "value": 0, "unit": "errors", "source": "x"},
    "evidence": ["a"], "remedy": "", "at": "2026-01-02T03:04:05Z", "took_s": 0.5, "version": 1,
}  # fmt: skip


def test_a_good_record():
    hold([GOOD, {**GOOD, "measured": None, "threshold": None, "took_s": None, "at": ""}])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("check",), "ECC errors"),
        (("subject",), "dgx-01"),
        (("subject",), "gpu:"),
        (("status",), "skipped"),
        (("measured",), 5),
        (("measured", "value"), None),
        (("measured", "more"), 1),
        (("threshold", "op"), "~"),
        (("threshold", "source"), ""),
        (("evidence",), "said"),
        (("evidence",), [1]),
        (("at",), "yesterday"),
        (("took_s",), -1),
        (("version",), 2),
        (("more",), 1),
    ],
)
def test_what_is_no_record(path, value):
    data = copy.deepcopy(GOOD)
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    assert wrong(data, SCHEMA)


@pytest.mark.parametrize("name", GOOD)
def test_what_lacks_something_is_no_record(name):
    assert wrong({key: value for key, value in GOOD.items() if key != name}, SCHEMA)


@pytest.mark.parametrize("faults", [(), ("nvlink_down",), ("hot",)])
def test_records_of_gpu_health(run_module, simulated_node, faults):
    if faults:
        simulated_node.inject(*faults)
    answer = run_module(
        gpu_health.main,
        {
            "node": "dgx-01",
            "profile": BUILT_IN["dgx_h100"],
            "library": simulated_node.library,
            "kernel_log": str(simulated_node.kernel_log),
            "fabric_manager": simulated_node.fabric_manager,
            "sysfs": simulated_node.sysfs,
            "proc": simulated_node.proc,
            "fail_on": [],
        },
    )
    hold(answer["records"])
    # The store follows GPUs by what their evidence names.
    named = {
        place_of(one["subject"]).name: serials_of(record_from_data(one))
        for one in answer["records"]
        if one["check"] == "gpu.model"
    }
    assert len(named) == 8
    assert all(len(names) == 2 and names[0].startswith("gpu-") for names in named.values())
    assert len({names[0] for names in named.values()}) == 8


def test_records_of_ib_health(run_module, tmp_path):
    dgx(tmp_path / "sys")
    wanted = [{"rail": rail, "pci": f"{bus}:00.0", "rate_gbps": 400}
              for rail, bus in enumerate(RAILS)]  # fmt: skip
    answer = run_module(
        ib_health.main,
        {"node": "dgx-01", "rails": wanted, "sysfs": str(tmp_path / "sys"), "fail_on": [],
         "optics": False, "state_file": str(tmp_path / "state.json")},
    )  # fmt: skip
    hold(answer["records"])
    named = {one["subject"]: serials_of(record_from_data(one)) for one in answer["records"]
             if one["subject"].startswith("hca:") and one["check"] == "ib.state"}  # fmt: skip
    assert len(named) == 8
    assert len({names[0] for names in named.values() if names}) == 8


def test_records_of_a_burn_in():
    state = burnt()
    records = judge_burn("dgx-01", state, lambda _name: None)
    hold([record.as_data() for record in records])
    named = [record for record in records if record.check == "burn.run"]
    assert len(named) == 4
    assert all(serials_of(record) for record in named)


@pytest.mark.parametrize("name", FAULTS)
def test_records_of_a_broken_fabric(name):
    case = build("superpod-32-of-64", (name,), 7)
    verdict = case.world.judge()
    records = [record.as_data() for record in records_of(verdict, ["said"])]
    # Those of cables that are right are alike.
    hold([record for record in records if record["status"] != "pass"] + records[:1])
