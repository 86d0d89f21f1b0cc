# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part that is asked for leaves a record, whatever happens to it; one that is not is named."""

from __future__ import annotations

import itertools
import random
import re

import pytest
import yaml
from checkout import ROOT
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.baremetal.dgx.plugins.filter.validation_parts import validation_parts
from ansible_collections.baremetal.dgx.plugins.filter.validation_result import validation_result
from ansible_collections.baremetal.dgx.plugins.module_utils._core.question import Question
from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import Record
from ansible_collections.baremetal.dgx.plugins.module_utils._core.verdict import layer_of, place_of
from ansible_collections.baremetal.dgx.plugins.module_utils._host import thresholds
from ansible_collections.baremetal.dgx.plugins.plugin_utils._validation.levels import (
    LEVELS,
    PARTS,
    ended,
    fold,
    level_that_asks,
    proven,
    reasons,
)

PLAYBOOKS = ROOT / "playbooks"
AT = "2026-03-01T00:00:00Z"
SOUND = {"records": [Record("gpu.ecc", "gpu:n/0", "pass", at=AT).as_data()]}


def asked(found):
    return [name for name, why in found.items() if not why]


def test_levels_ask_more_and_more():
    quick, standard, burn_in = (asked(reasons(level, {})) for level in LEVELS)
    assert quick == ["gpu_health", "ib_health", "canary"]
    assert standard == burn_in == list(PARTS)


def test_why_a_part_is_not_asked():
    found = reasons(
        "standard", {"dcgm": False, "fio": True}, {"fio": "no disk", "canary": "no mount"}
    )
    assert found["dcgm"] == "switched off"
    assert found["canary"] == "no mount"
    # Switched on by name it is asked, and reports what it lacks.
    assert found["fio"] == ""
    assert reasons("quick", {"burn": True})["burn"] == "level standard"
    # What has nothing to ask is not asked at a deeper level, either.
    for level in LEVELS:
        assert reasons(level, {}, {"burn": "MIG"})["burn"] == "MIG"
    assert reasons("quick", {"burn": True}, {"burn": "MIG"})["burn"] == "level standard"


@pytest.mark.parametrize(
    ("level", "site", "run", "wanted"),
    [
        ("burn_in", {"dcgm": False}, {}, "burn_in"),
        ("burn_in", {"dcgm": False}, {"dcgm": False, "burn": True}, "burn_in"),
        ("burn_in", {}, {"dcgm": False}, "quick"),
        ("standard", {"fio": True}, {"fio": False}, "quick"),
        # Of these the inventory asks nothing.
        ("standard", {}, {"ib_health": False}, "standard"),
        ("quick", {}, {"dcgm": False}, "quick"),
        ("standard", {}, {"canary": False}, "quick"),
    ],
)
def test_a_run_that_leaves_out_parts_proves_no_more_than_it_asked(level, site, run, wanted):
    found = reasons(level, site, {"ib_health": "no rails are declared"}, run)
    assert proven(level, found) == wanted
    answers = dict.fromkeys(asked(found), SOUND)
    result = validation_result(answers, "n", found, level=level)
    assert result["level"] == wanted
    # What it was not asked does not fail it.
    assert result["verdict"] == "pass"
    unknown = [one for one in result["records"] if one["status"] == "not_measured"]
    assert [one["check"] for one in unknown] == (["storage.run"] if "canary" in run else [])
    for one in unknown:
        assert one["text"] == "canary: switched off in this run"
        assert (one["subject"], bool(one["at"]), bool(one["remedy"])) == ("node:n", True, True)


def test_why_this_run_does_not_ask_a_part():
    found = reasons("standard", {"dcgm": False}, {}, {"dcgm": True, "burn": False})
    assert (found["dcgm"], found["burn"]) == ("", "switched off in this run")
    quick = reasons("quick", {"dcgm": False}, {"burn": "MIG"}, {"dcgm": False, "nccl": False})
    assert (quick["dcgm"], quick["nccl"]) == ("switched off", "switched off in this run")
    assert validation_parts("standard", {"dcgm": False}, {}, {"burn": False})["burn"] == (
        "switched off in this run"
    )
    with pytest.raises(ValueError, match="no part 'gpu'"):
        reasons("quick", {}, {}, {"gpu": False})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("often", {}), "no level 'often'"), (("quick", {"gpu": True}), "no part 'gpu'")],
)
def test_wrong_words_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        reasons(*arguments)
    with pytest.raises(Exception, match=f"validation_parts: there is {text}"):
        validation_parts(*arguments)


def test_each_part_has_a_layer_of_its_own():
    layers = [layer for part in PARTS.values() for layer in part.layers]
    assert len(set(layers)) == len(layers)
    assert all(layer_of(part.check) in part.layers for part in PARTS.values())
    questions = [one.check for one in vars(thresholds).values() if isinstance(one, Question)]
    assert {layer_of(check) for check in questions} == {*PARTS["cpu_memory"].layers}


@pytest.mark.parametrize("found_at", LEVELS)
def test_the_level_that_asks_a_check(found_at):
    for check in ("gpu.ecc", "ib.rate", "fabric.cable", "fabric.pairs.part", "groups.culprit"):
        assert level_that_asks(check, found_at) == "quick"
    for check in ("memory.size", "burn.gemm", "dcgm.pcie", "dcgm.software", "dcgm.settings"):
        assert level_that_asks(check, found_at) == "standard"
    deep = "burn_in" if found_at == "burn_in" else "standard"
    for check in ("dcgm.targeted_stress", "dcgm.pulse_test", "dcgm.eud"):
        assert level_that_asks(check, found_at) == deep


def test_layers_that_the_inventory_asks_no_more():
    found = reasons("quick", {"cpu_memory": False}, {"fio": "no scratch"}, {"gpu_health": False})
    assert ended(found) == ["cpu", "fio", "memory"]


@pytest.mark.parametrize(
    ("answer", "begun"),
    [
        (None, False),
        ({"skipped": True}, False),
        ({"unreachable": True, "msg": "ssh"}, False),
        # Its tool is missing, or it broke: next time it would be so, too.
        ({"failed": True, "msg": "no nvcc"}, True),
        ({"records": [Record("dcgm.run", "node:n", "not_measured", at=AT).as_data()]}, True),
    ],
)
def test_a_look_is_begun_by_what_loads_the_node(answer, begun):
    answers = {"gpu_health": SOUND, "ib_health": {"unreachable": True}, "dcgm": answer}
    assert fold("n", reasons("standard", {}), answers, AT, level="standard")["begun"] is begun
    off = {name: False for name, part in PARTS.items() if part.loads}
    for level, switches in (("quick", {}), ("standard", off)):
        assert fold("n", reasons(level, switches), answers, AT, level=level)["begun"]
    assert not fold("n", reasons("quick", {}), {}, AT)["begun"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "jobs run on it"),
        ({"skipped": True, "changed": False}, "jobs run on it"),
        ({"unreachable": True, "msg": "Connection timed out"}, "does not answer: Connection timed"),
        ({"failed": True, "msg": "another gpu_burn\nholds the lock"}, "another gpu_burn holds the"),
        ({"changed": False, "records": []}, "it gave no records"),
        ({"changed": False}, "it gave no records"),
    ],
)
def test_whatever_happens_to_a_part_is_told(answer, text):
    answers = {} if answer is None else {"dcgm": answer}
    wanted = {"gpu_health": "", "dcgm": "", "fio": "level standard"}
    answers["gpu_health"] = SOUND
    found = validation_result(answers, "n", wanted, {"dcgm": "jobs run on it"})
    (record,) = [one for one in found["records"] if one["check"] == "dcgm.run"]
    assert record["status"] == found["verdict"] == "not_measured"
    assert text in record["text"]
    assert record["subject"] == "node:n"
    assert record["remedy"]
    assert record["at"]
    assert found["not_asked"] == ["fio (level standard)"]
    assert found["lines"][0].startswith("node:n dcgm.run not measured: dcgm: ")


@pytest.mark.parametrize(
    ("part", "write"), [("canary", "cephfs_mounts"), ("ib_health", "cluster_fabric.topology")]
)
def test_a_part_by_name_that_has_nothing_to_ask_says_what_to_write(part, write):
    nothing = {part: "none are declared"}
    wanted = {**reasons("quick", {name: name == part for name in PARTS}, nothing)}
    assert asked(wanted) == [part]
    found = validation_result({part: {"records": []}}, "n", wanted, {}, nothing)
    (record,) = found["records"]
    assert found["verdict"] == "not_measured"
    assert record["text"] == f"{part}: it has nothing to ask: none are declared"
    assert record["remedy"].startswith(f"settings: write {write}")


def test_never_silent():
    """Random answers to random questions: each part asked for has a record, no other has one."""
    dice = random.Random(7)
    failed = {"failed": True, "msg": "x"}
    for _turn in range(300):
        level = dice.choice(LEVELS)
        switches = {name: dice.choice([True, False]) for name in PARTS if dice.random() < 0.3}
        wanted = reasons(level, switches)
        answers = {}
        for name, part in PARTS.items():
            healthy = [Record(f"{layer_of(part.check)}.x", "node:n", "pass", at=AT).as_data()]
            answers[name] = dice.choice(
                [failed, {"skipped": True}, {"records": healthy}, {"unreachable": True}, {}]
            )
        found = fold("n", wanted, answers, AT)
        layers = {layer_of(one["check"]) for one in found["records"]}
        assert layers == {layer_of(PARTS[name].check) for name in asked(wanted)}
        assert len(found["not_asked"]) + len(asked(wanted)) == len(PARTS)
        whole = all("records" in answers[name] for name in asked(wanted)) and asked(wanted)
        assert (found["verdict"] == "pass") is bool(whole)
        assert all(place_of(one["subject"]).owner == "n" for one in found["records"])


def test_nothing_asked_is_no_pass():
    switches = dict.fromkeys(PARTS, False)
    assert fold("n", reasons("standard", switches), {}, AT)["verdict"] == "not_measured"


def test_a_failure_wins_and_counts_are_told():
    bad = {"records": [Record("fio.data", "mount:n/raid", "fail", "wrong", at=AT).as_data()]}
    wanted = dict.fromkeys(["gpu_health", "fio"], "")
    for order in itertools.permutations([("gpu_health", SOUND), ("fio", bad)]):
        found = fold("n", wanted, dict(order), AT)
        assert found["verdict"] == "fail"
        assert found["text"] == "1 pass, 1 fail, 0 not measured; not asked for: nothing"


def test_a_record_that_cannot_be_counted_costs_no_other():
    bad = Record("gpu.count", "node:n", "fail", "6 of 8", at=AT).as_data()
    nan = {**SOUND["records"][0], "measured": {"value": float("nan"), "unit": "C"}}
    odd = [nan, {**bad, "evidence": 5}, {}]
    found = validation_result({"gpu_health": {"records": [bad, *odd]}}, "n", {"gpu_health": ""})
    assert found["records"][0] == bad
    assert (found["verdict"], found["counts"]) == (
        "fail", {"pass": 0, "fail": 1, "not_measured": 3}
    )  # fmt: skip
    for one, (check, subject, text) in zip(
        found["records"][1:],
        [
            ("gpu.ecc", "gpu:n/0", "measured: it is not a number"),
            ("gpu.count", "node:n", "evidence is not a list"),
            ("gpu.run", "node:n", "gpu_health: the check itself failed: one of its records"),
        ],
        strict=True,
    ):
        assert (one["check"], one["subject"], one["status"]) == (check, subject, "not_measured")
        assert text in one["text"]
        assert one["at"]
        assert one["remedy"]


@pytest.mark.parametrize(
    "given",
    [5, "x", {"a": 1}, [5], ["x"], [None], [[]], [{"check": "gpu.ecc"}]]
    + [
        [{**SOUND["records"][0], **odd}]
        for odd in (
            {"status": "ok"}, {"status": []}, {"measured": "abc"}, {"evidence": ["PCI", 5]},
            {"threshold": {"op": [], "value": 1}}, {"threshold": {"op": "=="}}, {"at": "now"},
            {"subject": "gpu:other/0"},
        )
    ],
)  # fmt: skip
def test_whatever_is_not_a_record_is_not_measured(given):
    found = fold("n", {"gpu_health": ""}, {"gpu_health": {"records": given}}, AT)
    (record,) = found["records"]
    assert (record["status"], record["at"]) == (found["verdict"], AT) == ("not_measured", AT)
    assert place_of(record["subject"]).owner == "n"


@pytest.mark.parametrize(
    ("given", "check"),
    [
        ({"check": "memory.size"}, "memory.size"),
        ({"check": "cpu.cores", "subject": "node:n", "status": "ok"}, "cpu.cores"),
        ({"subject": "node:n", "status": "pass"}, "cpu.run"),
        ({"check": ["memory.size"]}, "cpu.run"),
        # The name of a check of another part.
        ({"check": "gpu.ecc"}, "cpu.run"),
    ],
)
def test_a_record_that_cannot_be_read_keeps_its_check(given, check):
    (record,) = fold("n", {"cpu_memory": ""}, {"cpu_memory": {"records": [given]}}, AT)["records"]
    assert (record["check"], record["status"]) == (check, "not_measured")
    assert (record["subject"], record["at"], bool(record["remedy"])) == ("node:n", AT, True)


def test_the_playbook_writes_the_level_that_the_records_prove():
    plays = yaml.safe_load((PLAYBOOKS / "validate_nodes.yml").read_text())
    switches = "(__validation.parts, __validation_nothing, parts | default({}))"
    assert switches in plays[1]["vars"]["__validation_asked"]
    tasks = {task["name"]: task for task in plays[2]["tasks"]}
    folded = tasks["Combine the answers"]["ansible.builtin.set_fact"]["__validate_result"]
    assert folded.rstrip(" }\n").endswith("__validation_nothing, __validation_level)")
    kept = tasks["Save the records next to the inventory"]["ansible.builtin.copy"]
    assert "__validate_result | baremetal.dgx.validation_file(" in kept["content"]
    assert "__validation_folder ~ '/' ~ inventory_hostname ~ '.json'" in kept["content"]
    assert kept["dest"] == "{{ __validation_folder }}/{{ inventory_hostname }}.json"
    evidence = tasks["Add the records to the evidence store"]["baremetal.dgx.evidence_add"]
    assert evidence["level"] == "{{ __validate_result.level }}"


@pytest.mark.parametrize(
    ("engine", "topology", "nodes", "held", "given_up"),
    [
        ("clustershell", "", 256, 100, 100),
        ("clustershell", "", 257, 200, 200),
        ("clustershell", "", 1024, 400, 400),
        ("clustershell", "/etc/tree.conf", 1024, 100, 100),
        # Slurm starts all at once, and ClusterShell what it gives no job, be it all.
        ("slurm", "", 1024, 100, 400),
    ],
)
def test_nodes_that_take_turns_are_held_for_all_turns(engine, topology, nodes, held, given_up):
    plays = yaml.safe_load((PLAYBOOKS / "validate_nodes.yml").read_text())
    known = {
        "ansible_play_hosts": ["n"] * nodes,
        "__validation": {"hold_s": 100, "clustershell": {"fanout": 256, "topology": topology}},
        "__validation_engine": engine,
        "__validation_load_parts": ["burn"],
    }
    for name in ("parts_s", "waves", "fanned_s", "hold_s"):
        name = f"__validation_{name}"
        known[name] = NativeEnvironment().from_string(plays[1]["vars"][name]).render(known)
    assert (known["__validation_hold_s"], known["__validation_fanned_s"]) == (held, given_up)
    tasks = yaml.safe_load((PLAYBOOKS / "tasks/validate_by_clustershell.yml").read_text())
    asked = tasks[0]["baremetal.dgx.validation_run"]
    assert asked["seconds"] == "{{ __validation_fanned_s }}"


def test_the_playbook_knows_each_part_by_its_kind():
    reported = yaml.safe_load((PLAYBOOKS / "validate_nodes.yml").read_text())[1]["vars"]
    for name, loads in (("quick", False), ("load", True)):
        words = re.findall(r"'(\w+)'", reported[f"__validation_{name}_parts"])
        assert words[: words.index("in")] == [
            part for part, one in PARTS.items() if one.loads is loads
        ]


@pytest.mark.parametrize("part", PARTS)
def test_each_part_keeps_its_answer_under_its_own_name(part):
    tasks = yaml.safe_load((PLAYBOOKS / "tasks" / f"validate_{part}.yml").read_text())
    kept = tasks[-1]["ansible.builtin.set_fact"]["__validation_answers"]
    assert f"combine({{'{part}': __validation_{part}_answer}})" in kept
    assert (
        f"register: __validation_{part}_answer"
        in (PLAYBOOKS / "tasks" / f"validate_{part}.yml").read_text()
    )


def test_a_node_is_given_back_whatever_was_found_under_load():
    """The condition of a block is that of its `always`, too: it must not change meanwhile."""
    plays = yaml.safe_load((PLAYBOOKS / "validate_nodes.yml").read_text())
    play = next(one for one in plays if one["name"] == "Validate the nodes")
    block = next(task for task in play["tasks"] if "always" in task)
    facts = {
        name
        for task in play["tasks"][: play["tasks"].index(block)]
        for name in task.get("ansible.builtin.set_fact", {})
    }
    inside = {
        name
        for task in [*block["block"], *block["rescue"]]
        for name in task.get("ansible.builtin.set_fact", {})
    }
    used = set(re.findall(r"__validate_\w+", block["when"]))
    assert used <= facts - inside
    assert block["always"][-1]["baremetal.dgx.slurm_node_hold"]["state"] == "released"
