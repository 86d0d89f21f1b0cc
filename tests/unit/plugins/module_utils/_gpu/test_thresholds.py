# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of thresholds, profiles, and what a single card of any kind is asked."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.names import full_pci
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Record
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.host import Host
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.judge_device import throttle_text
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.judge_node import (
    judge_node,
    wanted_from_profile,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml import types as t
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.read import Gpu, Sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.thresholds import (
    KINDS,
    MODELS,
    QUESTIONS,
    actions,
    model_of,
    same_part,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host.kernel_log import KernelLog
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    BUILT_IN,
)


def single(**values: Any) -> list[Record]:
    """A node of one GPU, such as a development machine."""
    gpu = Gpu(index=0, pci="0000:01:00.0", uuid="u", serial="s", fabric_state=0, **values)
    wanted = wanted_from_profile({"gpus": {"count": 1}, "nvlink": {"nvswitches": 4}})
    return list(judge_node("n", wanted, Sweep(count=1, gpus=(gpu,)), Host(), KernelLog()))


def test_a_single_gpu_has_no_fabric() -> None:
    assert "gpu.fabric" not in {record.check for record in single()}


def test_a_value_that_is_not_told_is_never_a_pass() -> None:
    checks = {record.check: record for record in single(absent={"throttle": "no permission"})}
    assert checks["gpu.throttle"].status == "not_measured"
    assert "no permission" in checks["gpu.throttle"].text
    passed = {name for name, record in checks.items() if record.status == "pass"}
    # Only what has a value here.
    assert passed == {
        *("gpu.nvml", "gpu.count", "gpu.present", "gpu.access", "gpu.identity"),
        *("gpu.xid", "gpu.sxid", "gpu.pcie_errors", "gpu.pcie_corrected"),
    }


def test_a_card_without_a_function_of_large_parts_is_not_asked_for_it() -> None:
    absent = dict.fromkeys(
        ("mig", "remap_pending", "retired_single", "sram_threshold_exceeded", "recovery_action"),
        t.ERRORS[t.NOT_SUPPORTED],
    )
    checks = {record.check for record in single(absent=absent)}
    assert not checks & {
        "gpu.mig",
        "gpu.remap_pending",
        "gpu.retired_pages",
        "gpu.sram_threshold",
        "gpu.recovery_action",
    }


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"gpus": {"count": 8, "pci": ["1b:00.0"]}}, "gpus.count is 8"),
        ({"gpus": {"pci": ["1b:00.0", "1B:00.0"]}}, "twice"),
        ({"gpus": [1]}, "mappings"),
    ],
)
def test_profiles_that_contradict_themselves(profile: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wanted_from_profile(profile)


def test_a_threshold_that_no_check_has() -> None:
    with pytest.raises(ValueError, match=r"gpu\.colour"):
        wanted_from_profile({}, thresholds={"gpu.colour": 1})


def test_an_empty_threshold_of_the_site_is_none() -> None:
    wanted = wanted_from_profile({}, thresholds={"gpu.power_limit": None, "gpu.clock_sm": 1980})
    assert wanted.thresholds == {"gpu.clock_sm": 1980}


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("1b:00.0", "0000:1b:00.0"),
        ("0000:1B:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0001:1b:00.0", "0001:1b:00.0"),
    ],
)
def test_addresses(given: str, full: str) -> None:
    assert full_pci(given) == full


def test_reasons_in_words() -> None:
    assert throttle_text(0) == "none"
    assert throttle_text(0x48) == "hardware slowdown, hardware thermal slowdown"
    assert throttle_text(0x8000) == "0x8000"


def test_every_question_has_a_source_and_says_what_kind_of_action_it_asks_for() -> None:
    for check, question in QUESTIONS.items():
        assert question.what, check
        assert question.source, check
        assert question.remedy.partition(":")[0] in KINDS, check
        assert question.op in ("==", "<=", ">=", "<", ">"), check


def test_the_models_cover_the_profiles() -> None:
    types = {profile["gpus"]["type"] for profile in BUILT_IN.values() if "type" in profile["gpus"]}
    assert types <= set(MODELS)


@pytest.mark.parametrize(
    ("kind", "memory_mib", "clock_memory_mhz"),
    [
        ("a100", 40536, 1215),
        ("a100", 81920, 1593),
        ("a100", None, 1593),
        ("h100", 81559, 2619),
        ("NVIDIA H100 80GB HBM3", 81559, 2619),
        ("b200", 183359, 3996),
        # Separate parts; of the clocks of the last one there is no figure.
        ("gb200", 189471, 3996),
        ("b300", None, None),
    ],
)
def test_a_model_is_found_by_whole_words_and_memory(kind, memory_mib, clock_memory_mhz) -> None:
    found = model_of(kind, memory_mib)
    assert found is not None
    assert found.clock_memory_mhz == clock_memory_mhz


def test_the_parts_of_nvlink_5() -> None:
    """SM clock, NVLink, PCIe: every link up to the root of a GB300 is not of its generation."""
    figures = {
        kind: (model.clock_sm_mhz, model.nvlink_mbps, model.pcie_gts)
        for kind in ("b200", "b300", "gb200", "gb300")
        for model in [MODELS[kind]]
    }
    assert figures == {
        "b200": (1965, 50000, 32.0), "b300": (None, 50000, None),
        "gb200": (2062, 50000, None), "gb300": (2070, 50000, None),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["H100 PCIe", "h100 nvl", "l40s", "h1000", "", "gh200"])
def test_other_parts_have_no_model(kind) -> None:
    assert model_of(kind, 81559) is None


@pytest.mark.parametrize(
    ("now", "most", "pstate", "status"),
    [(4, 4, 0, "pass"), (3, 4, 0, "fail"), (1, 4, 8, "not_measured"), (None, 4, 0, "not_measured")],
)
def test_without_a_bridge_the_speed_is_the_gpus_own(now, most, pstate, status) -> None:
    values = {"pcie_generation": now, "pcie_generation_max": most, "pstate": pstate}
    checks = {record.check: record for record in single(**values)}
    assert checks["gpu.pcie_speed"].status == status
    if status == "pass":
        assert checks["gpu.pcie_speed"].as_data()["measured"]["value"] == 16.0


def test_bits_that_nvml_does_not_define_have_no_name() -> None:
    assert throttle_text(0x601) == "idle, 0x600"


@pytest.mark.parametrize(
    ("kind", "name", "same"),
    [
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("a100", "NVIDIA A100-SXM4-40GB", True),
        ("b200", "NVIDIA B200", True),
        ("b200", "NVIDIA GB200", False),
        ("h100", "NVIDIA H100 PCIe", False),
        ("h100_pcie", "NVIDIA H100 PCIe", True),
        ("h200", "NVIDIA H200 NVL", False),
        ("h100", "NVIDIA H200", False),
        ("nvidia h100", "H100 NVIDIA", True),
    ],
)
def test_a_product_is_of_a_type_by_whole_words(kind: str, name: str, same: bool) -> None:
    assert same_part(kind, name) is same


@pytest.mark.parametrize(
    ("found", "most"),
    [
        ([], {}),
        ([("pass", "replace: it")], {}),
        ([("not_measured", "replace: it")], {}),
        ([("fail", "settings: write it")], {"g": "settings"}),
        # What names no kind asks to look.
        ([("fail", "see what it is")], {"g": "look"}),
        ([("fail", "reboot: it"), ("fail", "job: it"), ("fail", "reset: it")], {"g": "reboot"}),
        ([("fail", "job: it"), ("fail", "replace: it"), ("pass", "reset: it")], {"g": "replace"}),
    ],
)
def test_a_subject_is_asked_for_the_most_of_its_findings(
    found: list[tuple[str, str]], most: dict[str, str]
) -> None:
    records = [Record("gpu.x", "g", status, remedy=remedy) for status, remedy in found]
    assert actions(records) == most
    other = Record("gpu.x", "h", "fail", remedy="settings: write it")
    assert actions([*records, other]) == {**most, "h": "settings"}
