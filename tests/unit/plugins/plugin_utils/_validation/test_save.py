# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came from many nodes, saved as validate_nodes saves it for one; what did not come, too."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Record
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.batch import Problems
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store
from ansible_collections.baremetal.dgx.plugins.module_utils._node_validation.spool import lines_of
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import reasons
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.node_verdicts import (
    gate_verdicts,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.save import save_all

RUN = "0123456789abcdef"
AT = "2026-03-01T00:00:00Z"
NOTHING = {"ib_health": "no rails are declared", "canary": "no mounts are declared"}
OFF = {"cpu_memory": False, "dcgm": False, "fio": False}
NODES = ["dgx-01", "dgx-02", "dgx-03", "dgx-04"]


def answer(check: str, node: str, status: str = "pass", evidence: tuple[str, ...] = ()) -> Any:
    record = Record(check, f"gpu:{node}/1", status, "text", evidence=evidence, at=AT)
    return {"verdict": status, "records": [record.as_data()]}


class World:
    """A state folder with a run, and the lines that come back."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / ".dgx"
        self.lines: list[str] = []
        self.evidence = Store(str(self.state / "evidence"))
        own = self.state / "validation" / RUN
        own.mkdir(parents=True)
        for path in (own, own.parent):
            path.chmod(0o700)
        asked = reasons("standard", OFF, NOTHING)
        notes = {node: {"asked": asked, "nothing": NOTHING} for node in NODES}
        (own / "notes.json").write_text(json.dumps(notes))

    def say(self, node: str, part: str, given: Any) -> list[str]:
        lines = [f"{node}: {line}" for line in lines_of(RUN, node, part, given)]
        self.lines += lines
        return lines

    def all_from(self, node: str) -> None:
        who = ("1b:00.0, UUID GPU-1, serial 4711",)
        self.say(node, "gpu_health", answer("gpu.device", node, evidence=who))
        self.say(node, "burn", answer("burn.run", node))
        self.say(node, "nccl", answer("nccl.run", node))

    def save(self, level: str = "standard") -> dict[str, Any]:
        path = self.state / "spool-000.gz"
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in self.lines).encode()))
        run = self.evidence.begin("validate_nodes", AT)
        options = {
            "run": RUN,
            "files": [str(path)],
            "evidence_run": run,
            "level": level,
            "simulated": "",
            "state_dir": str(self.state),
            "shown": 20,
        }
        return save_all(options, 1772323200.0)

    def records(self, node: str) -> dict[str, dict[str, Any]]:
        data = json.loads((self.state / "nodes" / f"{node}.json").read_text())
        assert (data["node"], data["level"], data["version"]) == (node, "standard", 1)
        return {one["check"]: one for one in data["records"]}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nodes_that_answer_pass_and_others_are_not_measured_by_node_and_part(world: World) -> None:
    world.all_from("dgx-01")
    world.say("dgx-02", "gpu_health", answer("gpu.device", "dgx-02"))
    torn = world.say("dgx-03", "gpu_health", {**answer("gpu.device", "dgx-03"), "msg": "x" * 9})
    world.lines.remove(torn[0])
    world.lines += [torn[0][:-7], "dgx-04: /usr/bin/python3: No such file or directory"]
    result = world.save()
    assert result["nodes"] == {"pass": ["dgx-01"], "not_measured": ["dgx-02", "dgx-03", "dgx-04"]}
    assert result["text"] == "4 nodes: 3 not measured, 1 pass"
    assert {one["status"] for one in world.records("dgx-01").values()} == {"pass"}
    two = world.records("dgx-02")
    assert two["gpu.device"]["status"] == "pass"
    assert two["burn.run"]["status"] == two["nccl.run"]["status"] == "not_measured"
    assert two["burn.run"]["text"] == (
        "burn: the node does not answer: it answered 1 parts and then nothing"
    )
    assert "nothing came from it" in world.records("dgx-03")["gpu.run"]["text"]
    assert "python3: No such file" in world.records("dgx-04")["gpu.run"]["text"]
    assert len(world.records("dgx-04")) == 3


def test_why_a_node_was_not_loaded(world: World) -> None:
    for node in NODES:
        world.all_from(node)
    world.lines = [line for line in world.lines if '"dgx-02"' not in line]
    world.say("dgx-02", "gpu_health", answer("gpu.ecc", "dgx-02", "fail"))
    for part in ("burn", "nccl"):
        world.say("dgx-02", part, {"skipped": True, "why": "gpu_health has findings"})
    result = world.save()
    assert result["nodes"] == {"pass": ["dgx-01", "dgx-03", "dgx-04"], "fail": ["dgx-02"]}
    found = world.records("dgx-02")
    assert found["nccl.run"]["text"] == ("nccl: the node was not loaded: gpu_health has findings")
    assert result["lines"][0].startswith(
        "dgx-02: 0 pass, 1 fail, 2 not measured; not asked for: ib_"
    )
    assert result["lines"][1].startswith("  gpu:dgx-02/1 gpu.ecc")


def test_a_run_that_left_out_parts_is_not_kept_as_the_whole_level(world: World) -> None:
    """The gate must let no node in on it."""
    run = {"nccl": False, "canary": False}
    notes = {
        node: {"asked": reasons("standard", OFF, {"ib_health": "none"}, given), "nothing": {}}
        for node, given in (("dgx-01", run), ("dgx-02", {}))
    }
    (world.state / "validation" / RUN / "notes.json").write_text(json.dumps(notes))
    for node in notes:
        world.all_from(node)
        world.say(node, "canary", answer("storage.canary", node))
    assert world.save()["nodes"] == {"pass": ["dgx-01", "dgx-02"]}
    kept = [json.loads((world.state / f"nodes/{node}.json").read_text()) for node in notes]
    assert [one["level"] for one in kept] == ["quick", "standard"]
    batches = world.evidence.batches(Problems())
    assert [one.head["level"] for one in batches] == ["quick", "standard"]
    left = [one for one in kept[0]["records"] if one["status"] == "not_measured"]
    assert [one["check"] for one in left] == ["storage.run"]
    assert gate_verdicts([("dgx-01", kept[0])], None, [], False)[0]["verdict"] == "not_measured"


def test_what_a_run_does_not_ask_stands_and_is_not_added_to_the_evidence(world: World) -> None:
    """Whether it is saved here or by the playbook, the file of before is read."""
    for node in NODES[:2]:
        world.all_from(node)
    world.lines = [line for line in world.lines if '"burn"' not in line]
    for node in NODES[:2]:
        world.say(node, "burn", answer("burn.gemm_bf16", node, "fail"))
    world.save()
    own = world.state / "validation" / RUN
    own.mkdir(mode=0o700)
    (world.state / "nodes/dgx-02.json").write_text('{"version": 1, "rec')
    notes = {node: {"asked": reasons("quick", OFF, NOTHING), "nothing": {}} for node in NODES[:2]}
    (own / "notes.json").write_text(json.dumps(notes))
    assert world.save("quick")["nodes"]["pass"] == NODES[:2]
    one, two = (json.loads((world.state / f"nodes/{node}.json").read_text()) for node in notes)
    assert [each["check"] for each in one["standing"]] == ["burn.gemm_bf16"]
    assert "standard" in one["looks"]
    # Of a file that was not whole nothing is left.
    assert (two["standing"], two["looks"]) == ([], {})
    head = world.evidence.batches(Problems())[-2].head
    assert head["layers"] == ["gpu"]
    assert head["ended"] == ["cpu", "dcgm", "fio", "ib", "memory", "storage"]


def test_what_stands_in_a_layer_of_the_run_is_added_to_the_evidence(world: World) -> None:
    """The batch takes the place of the one in which it failed."""
    world.all_from("dgx-01")
    failed = Record("burn.gemm", "gpu:dgx-01/7", "fail", at=AT).as_data()
    former = {"version": 1, "node": "dgx-01", "level": "standard", "records": [failed]}
    (world.state / "nodes").mkdir()
    (world.state / "nodes/dgx-01.json").write_text(json.dumps(former))
    world.lines = [line for line in world.lines if '"burn"' not in line]
    world.save()
    head = world.evidence.batches(Problems())[0].head
    assert head["not_pass"] == [
        ["burn.run", "node:dgx-01", "not_measured"], ["burn.gemm", "gpu:dgx-01/7", "fail"]
    ]  # fmt: skip


def test_evidence_serial_numbers_and_an_end(world: World) -> None:
    for node in NODES:
        world.all_from(node)
    world.save()
    batches = world.evidence.batches(Problems())
    assert [(one.scope, one.whole, one.head["source"]) for one in batches] == [
        (node, True, "validate_nodes") for node in NODES
    ]
    assert batches[0].head["counts"] == {"pass": 3, "fail": 0, "not_measured": 0}
    assert not list((world.state / "validation").iterdir()), "the run is over"


def test_an_answer_without_records_is_not_measured_and_costs_no_other_node(world: World) -> None:
    world.all_from("dgx-01")
    world.say("dgx-02", "gpu_health", {"verdict": "pass", "records": [{"check": "gpu.ecc"}]})
    world.say("dgx-02", "burn", {"verdict": "pass", "records": ["x"]})
    world.say("dgx-02", "nccl", {"verdict": "pass", "records": {}})
    result = world.save()
    assert result["nodes"]["pass"] == ["dgx-01"]
    two = world.records("dgx-02")
    text = "the check itself failed: one of its records cannot be read: "
    assert two["gpu.ecc"]["text"] == f"gpu_health: {text}KeyError('subject')"
    assert two["burn.run"]["text"].startswith(f"burn: {text}TypeError(")
    assert two["nccl.run"]["status"] == "not_measured"


LINKS = {**NOTHING, "ib_health": ""}


def gpu(node: str, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = answer("gpu.identity", node)
    given["records"][0].update(more)
    return given


@pytest.mark.parametrize(
    ("odd", "verdict"),
    [
        ({"ib_health": {"links": 5}}, "pass"),
        ({"ib_health": {"links": {"0": []}}}, "pass"),
        ({"gpu_health": gpu("dgx-01", evidence=["PCI", 5])}, "not_measured"),
        ({"burn": gpu("dgx-01", threshold={"op": [], "value": 1, "unit": "", "source": ""})},
         "not_measured"),
    ],
)  # fmt: skip
def test_an_odd_answer_costs_no_other_node(world: World, odd: Any, verdict: str) -> None:
    asked = reasons("standard", OFF, LINKS)
    own = world.state / "validation" / RUN
    notes = {node: {"asked": asked, "nothing": LINKS} for node in NODES[:2]}
    (own / "notes.json").write_text(json.dumps(notes))
    (own.parent / "current.json").write_text("{}")
    for node in NODES[:2]:
        parts = {part: answer(f"{part}.run", node) for part in ("ib_health", "burn", "nccl")}
        parts["gpu_health"] = answer("gpu.device", node)
        for part, given in parts.items():
            world.say(node, part, {**given, **odd.get(part, {})} if node == NODES[0] else given)
    result = world.save()
    assert sorted(node for nodes in result["nodes"].values() for node in nodes) == NODES[:2]
    assert "dgx-01" in result["nodes"][verdict]
    assert "dgx-02" in result["nodes"]["pass"]
    assert json.loads((world.state / "nodes/dgx-01.json").read_text())["links"] == []
    one, two = world.evidence.batches(Problems())
    assert one.scope == "dgx-01"
    assert one.head["counts"]["not_measured"] == (0 if verdict == "pass" else 1)
    assert (two.scope, two.whole, two.head["counts"]["pass"]) == ("dgx-02", True, 4)
    assert not list(own.parent.iterdir()), "the run is over, and not taken up again"


def test_an_answer_that_cannot_be_saved_is_not_measured(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in NODES:
        world.all_from(node)
    add = Store.add

    def odd(store: Store, run: str, scope: str, source: str, records: Any, *more: Any) -> Any:
        if scope == "dgx-01" and records[0]["status"] == "pass":
            raise ValueError("odd")
        return add(store, run, scope, source, records, *more)

    monkeypatch.setattr(Store, "add", odd)
    assert world.save()["nodes"] == {"not_measured": NODES[:1], "pass": NODES[1:]}
    assert "its answer has another form: odd" in world.records("dgx-01")["gpu.run"]["text"]


def test_what_is_no_answers_fault_ends_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_words: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "add", full)
    with pytest.raises(OSError, match="No space left"):
        world.save()


def test_a_node_that_speaks_for_another_changes_nothing_there(world: World) -> None:
    world.all_from("dgx-01")
    forged = lines_of(RUN, "dgx-02", "gpu_health", answer("gpu.ecc", "dgx-02", "fail"))
    world.lines += [f"dgx-03: {line}" for line in forged]
    world.all_from("dgx-02")
    result = world.save()
    assert result["nodes"]["pass"] == ["dgx-01", "dgx-02"]
    assert "its lines speak of another node" in world.records("dgx-03")["gpu.run"]["text"]


def test_the_lines_of_many_nodes_stay_few(world: World) -> None:
    result = world.save()
    assert len(result["lines"]) == 4 * 4
    assert result["nodes"] == {"not_measured": NODES}


def test_a_file_that_is_cut_gives_what_it_has(world: World) -> None:
    world.all_from("dgx-01")
    world.save()
    own = world.state / "validation" / RUN
    own.mkdir(mode=0o700)
    asked = reasons("standard", OFF, NOTHING)
    (own / "notes.json").write_text(json.dumps({"dgx-01": {"asked": asked, "nothing": NOTHING}}))
    whole = (world.state / "spool-000.gz").read_bytes()
    cut = world.state / "cut.gz"
    for size in (0, 5, len(whole) - 9, len(whole) - 1):
        cut.write_bytes(whole[:size])
        from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.save import (
            read_spool,
        )

        assert read_spool(RUN, [str(cut)], ["dgx-01"]).count("dgx-01") <= 3
