# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run leaves of the runs before it in the file of a node."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.filter.validation_file import validation_file
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Record
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import fold, reasons
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (
    gate_verdicts,
)

NODE = "dgx-07"
NIGHT, MORNING, NEXT = "2026-11-21T02:00:00Z", "2026-11-21T06:00:00Z", "2026-11-22T02:00:00Z"
NOTHING = {"ib_health": "no rails", "canary": "no mounts", "fio": "no folder", "cpu_memory": "x"}
LAYERS = ("cpu.cores", "memory.balance")
PARTS = {"gpu_health": "gpu.ecc", "dcgm": "dcgm.memory", "burn": "burn.gemm_bf16", "nccl": "nccl.x"}


def run(
    former: Any,
    level: str,
    at: str,
    failed: tuple[str, ...] = (),
    parts: dict[str, bool] | None = None,
    site: dict[str, bool] | None = None,
    silent: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The file after a run in which these checks failed, and these parts gave no answer."""
    asked = reasons(level, site or {}, NOTHING, parts)
    answers = {
        part: {"records": [
            Record(check, f"gpu:{NODE}/1", "fail" if check in failed else "pass", at=at).as_data()
        ]} if part not in silent else {"unreachable": True, "msg": "no route"}
        for part, check in PARTS.items() if not asked[part]
    }  # fmt: skip
    result = fold(NODE, asked, answers, at, None, NOTHING, level)
    return validation_file(result, NODE, asked, [], former)


def verdict(data: dict[str, Any]) -> tuple[str, str, str]:
    (found,) = gate_verdicts([(NODE, data)], None, [], False)
    return found["verdict"], found["level"], found["at"]


@pytest.mark.parametrize(
    ("level", "parts", "silent"),
    [
        ("quick", None, ()),
        ("standard", {"burn": False}, ()),
        ("quick", {"burn": False}, ()),
        ("standard", None, ("burn",)),
    ],
)
def test_a_failure_under_load_stands_until_it_is_measured(
    level: str, parts: dict[str, bool] | None, silent: tuple[str, ...]
) -> None:
    data = run(None, "standard", NIGHT, ("burn.gemm_bf16",))
    for _day in range(2):
        data = run(data, level, MORNING, (), parts, None, silent)
        assert verdict(data)[::2] == ("fail", NIGHT)
        assert [one["check"] for one in data["standing"]] == ["burn.gemm_bf16"]
    data = run(data, "standard", NEXT)
    assert (data["standing"], verdict(data)) == ([], ("pass", "standard", NEXT))


@pytest.mark.parametrize("name", [{"check": "memory.size"}, {}])
def test_a_failure_stands_while_the_record_of_its_check_cannot_be_read(
    name: dict[str, str],
) -> None:
    def after(former: Any, at: str, given: Any) -> dict[str, Any]:
        """The file after a run that reads this beside healthy records of both layers."""
        healthy = [Record(one, f"node:{NODE}", "pass", at=at).as_data() for one in LAYERS]
        answers = {"cpu_memory": {"records": [*healthy, given]}}
        asked = reasons("standard", dict.fromkeys(PARTS, False), {"canary": "x", "ib_health": "x"})
        result = fold(NODE, asked, answers, at, None, {}, "standard")
        return validation_file(result, NODE, asked, [], former)

    size = Record("memory.size", f"node:{NODE}", "fail", at=NIGHT).as_data()
    data = after(after(None, NIGHT, size), MORNING, name)
    assert [one["check"] for one in data["standing"]] == ["memory.size"]
    data = after(data, NEXT, {**size, "status": "pass", "at": NEXT})
    assert data["standing"] == []


def test_a_pass_makes_the_evidence_neither_deeper_nor_older() -> None:
    data = run(run(None, "standard", NIGHT), "quick", MORNING)
    assert (data["standing"], verdict(data)) == ([], ("pass", "quick", MORNING))


def test_what_fails_again_is_there_once() -> None:
    data = run(None, "standard", NIGHT, ("burn.gemm_bf16", "gpu.ecc"))
    data = run(data, "standard", NEXT, ("burn.gemm_bf16",))
    assert (data["standing"], verdict(data)) == ([], ("fail", "standard", NEXT))


def test_a_part_that_is_asked_no_more_holds_no_node() -> None:
    """The site has switched it off, or it has nothing to ask any more."""
    failed = run(None, "standard", NIGHT, ("burn.gemm_bf16",))
    for level in ("quick", "standard"):
        assert run(failed, level, NEXT, site={"burn": False})["standing"] == []
    quick = run(failed, "quick", MORNING)
    asked = reasons("standard", {}, {**NOTHING, "burn": "MIG"})
    result = fold(NODE, asked, {}, NEXT, None, NOTHING, "standard")
    assert validation_file(result, NODE, asked, [], quick)["standing"] == []


@pytest.mark.parametrize("check", ["cpu.known_answers", "memory.patterns"])
def test_all_layers_of_a_part_that_is_asked_no_more_go(check: str) -> None:
    former = validated(None, NIGHT, (check, f"node:{NODE}", "fail"))
    asked = reasons("standard", {"cpu_memory": False}, {})
    assert after(former, asked)["standing"] == []
    assert after(former, reasons("quick", {}, {"cpu_memory": "no profile"}))["standing"] == []
    # The site asks for it still.
    standing = after(former, reasons("quick", {}, {}))["standing"]
    assert [one["check"] for one in standing] == [check]


def after(former: Any, asked: dict[str, str]) -> dict[str, Any]:
    return validation_file(fold(NODE, asked, {}, NEXT), NODE, asked, [], former)


def validated(
    former: Any,
    at: str,
    *found: tuple[str, str, str],
    level: str = "standard",
    parts: dict[str, bool] | None = None,
    site: dict[str, bool] | None = None,
) -> dict[str, Any]:
    """The file after a run with these records: check, subject and status."""
    records = [Record(*one, at=at).as_data() for one in found]
    asked = reasons(level, site or {}, NOTHING, parts)
    result = {**fold(NODE, asked, {}, at, level=level), "records": records}
    return validation_file(result, NODE, asked, [], former)


DEEP = ("dcgm.targeted_stress", f"gpu:{NODE}/3", "fail")


def level_2(gpus: int) -> list[tuple[str, str, str]]:
    """What DCGM's level 2 reports of healthy GPUs."""
    checks = ("dcgm.memory", "dcgm.pcie")
    return [(check, f"gpu:{NODE}/{gpu}", "pass") for gpu in range(gpus) for check in checks]


@pytest.mark.parametrize("parts", [None, {"nccl": False}])
def test_a_test_that_only_a_deeper_run_asks_stands(parts: dict[str, bool] | None) -> None:
    """DCGM's level 2 has no stress, and passes a GPU that fails level 3."""
    data = validated(None, NIGHT, *level_2(8), DEEP, level="burn_in", parts=parts)
    for level in ("quick", "standard", "quick", "standard"):
        data = validated(data, MORNING, *(level_2(8) if level != "quick" else ()), level=level)
        assert verdict(data)[::2] == ("fail", NIGHT)
        (found,) = gate_verdicts([(NODE, data)], None, [], False)
        assert found["asked_by"] == "burn_in"
    # A run as deep that does not measure it: the GPU is gone.
    assert validated(data, NEXT, *level_2(3), level="burn_in")["standing"] == []
    # The site asks DCGM no more.
    assert validated(data, NEXT, level="quick", site={"dcgm": False})["standing"] == []
    # Whatever level it is asked at, once it is asked.
    passed = (*DEEP[:2], "pass")
    assert validated(data, NEXT, *level_2(8), passed)["standing"] == []


@pytest.mark.parametrize("check", ["dcgm.pcie", "dcgm.settings", "burn.gemm", "gpu.ecc"])
def test_what_each_level_asks_is_ended_by_any_that_asks_its_layer(check: str) -> None:
    """A GPU that is gone would keep its node out for a day of burn-in."""
    gone = (check, f"gpu:{NODE}/7", "fail")
    data = validated(None, NIGHT, *level_2(7), gone, level="burn_in")
    (found,) = gate_verdicts([(NODE, data)], None, [], False)
    assert found["asked_by"] == ("quick" if check == "gpu.ecc" else "standard")
    layer = check.partition(".")[0]
    again = (f"{layer}.memory", f"gpu:{NODE}/0", "pass")
    assert validated(data, MORNING, again)["standing"] == []


def test_what_a_file_of_before_has_was_found_by_the_deepest_run() -> None:
    """Its level is what it proves: a burn-in without a part proved less than it asked."""
    data = validated(None, NIGHT, *level_2(8), DEEP, level="burn_in")
    del data["asked_level"], data["begun"], data["ended"]
    data["level"] = "quick"
    data = validated(data, MORNING, *level_2(8))
    assert verdict(data)[0] == "fail"
    del data["standing"][0]["asked_level"]
    data = validated(data, NEXT, *level_2(8))
    assert verdict(data)[0] == "fail"
    assert validated(data, NEXT, *level_2(8), level="burn_in")["standing"] == []


def test_a_layer_that_was_measured_in_part_ends_what_it_measured() -> None:
    """The burn-in of GPU 3 was interrupted after its memory."""
    third, gone = f"gpu:{NODE}/3", f"gpu:{NODE}/9"
    failed = validated(
        None, NIGHT, ("burn.hbm", third, "fail"), ("burn.gemm", third, "fail"),
        ("burn.gemm", gone, "fail"),
    )  # fmt: skip
    data = validated(
        failed, MORNING, ("burn.hbm", third, "pass"), ("burn.run", third, "not_measured"),
        ("burn.gemm", third, "not_measured"),
    )  # fmt: skip
    left = [(one["check"], one["subject"]) for one in data["standing"]]
    assert left == [("burn.gemm", third), ("burn.gemm", gone)]
    assert verdict(data)[0] == "fail"
    # Other parts of the run that are not measured are not its layer.
    data = validated(
        data, NEXT, ("burn.hbm", third, "pass"), ("burn.gemm", third, "pass"),
        ("nccl.run", f"node:{NODE}", "not_measured"),
    )  # fmt: skip
    assert data["standing"] == []


def test_when_deeper_levels_were_asked() -> None:
    data = run(run(None, "burn_in", "2026-11-01T00:00:00Z"), "standard", NIGHT)
    assert data["looks"] == {"burn_in": "2026-11-01T00:00:00Z"}
    for _day in range(2):
        data = run(data, "quick", MORNING)
        assert data["looks"] == {"standard": NIGHT, "burn_in": "2026-11-01T00:00:00Z"}
    assert run(data, "standard", NEXT)["looks"] == {"burn_in": "2026-11-01T00:00:00Z"}
    assert run(data, "burn_in", NEXT)["looks"] == {}


def test_a_run_that_loads_no_node_is_not_a_look() -> None:
    """A job was faster, or nothing answers: the node was not tested under load."""
    data, loads = run(None, "standard", NIGHT), ("dcgm", "burn", "nccl")
    for silent in (loads, tuple(PARTS), loads):
        data = run(data, "standard", MORNING, silent=silent)
        (found,) = gate_verdicts([(NODE, data)], None, [], False)
        assert (found["looks"], found["tried"]) == ({"standard": NIGHT}, MORNING)
    # Neither does a lesser run take it for one.
    data = run(data, "quick", NEXT)
    (found,) = gate_verdicts([(NODE, data)], None, [], False)
    assert (found["looks"], found.get("tried")) == ({"standard": NIGHT, "quick": NEXT}, None)
    # One part that cannot be measured would have it loaded at each call.
    (found,) = gate_verdicts([(NODE, run(data, "standard", NEXT, silent=("burn",)))], None, [],
                             False)  # fmt: skip
    assert (found["verdict"], found["looks"]) == ("not_measured", {"standard": NEXT})


@pytest.mark.parametrize(
    "former",
    [
        None, "", [], {}, {"node": "dgx-08", "records": []},
        {"node": NODE, "records": [5, {}], "standing": 5, "looks": 5, "level": []},
    ],
)  # fmt: skip
def test_nothing_is_left_of_what_is_no_file_of_the_node(former: Any) -> None:
    data = run(former, "quick", MORNING)
    assert (data["standing"], data["looks"], data["version"]) == ([], {}, 1)
    assert verdict(data) == ("pass", "quick", MORNING)


def test_what_another_node_failed_is_not_taken_over() -> None:
    failed = run(None, "standard", NIGHT, ("burn.gemm_bf16",))
    assert run({**failed, "node": "dgx-08"}, "quick", MORNING)["standing"] == []
