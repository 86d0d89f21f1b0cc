# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An Ethernet fabric by what its nodes hear: what lldpd prints, and faults that must be named."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cable_plans import plan_data

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import (
    ENDED,
    MISSING,
    CommandResult,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.judge import Verdict
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import (
    NODE_LEAF,
    Cable,
    rail_end,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._lldp.ask import ask_lldp
from ansible_collections.baremetal.dgx.plugins.module_utils._lldp.sweep import (
    Neighbour,
    parse_neighbours,
    port_number,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._lldp.verify import judge
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.cables import plan_cables

TEXT = Path(__file__).parents[3] / "fixtures" / "lldpcli" / "json0-1.0.16.json"
PLAN = plan_cables(plan_data(16, radix=128))
OF_NODES = [cable for cable in PLAN.cables if cable.kind == NODE_LEAF]
PARAMS: dict[str, Any] = {
    "switch_neighbor_files": {},
    "ports_per_cage": 2,
    "other_hosts": [],
    "least_share": 0.25,
}


def swp(number: int) -> str:
    return f"swp{(number + 1) // 2}s{(number + 1) % 2}"


def world() -> dict[str, dict[str, Any]]:
    """What lldp_info returns of each node of a fabric that is as planned."""
    found: dict[str, dict[str, Any]] = {}
    for cable in OF_NODES:
        answer = found.setdefault(cable.a.host, {"problem": "", "links": []})
        answer["links"].append(
            {
                "interface": f"rail{cable.a.rail}",
                "carrier": True,
                "rate_gbps": 400.0,
                "neighbors": [{"name": cable.b.host, "ports": [swp(cable.b.port)]}],
            }
        )
    return found


def link(nodes: dict[str, Any], node: str, rail: int) -> dict[str, Any]:
    return next(one for one in nodes[node]["links"] if one["interface"] == f"rail{rail}")


def judged(nodes: dict[str, Any], **params: Any) -> Verdict:
    return judge(PLAN, {**PARAMS, "neighbors": nodes, **params})[1]


def cable_of(node: str, rail: int) -> Cable:
    return PLAN.by_end()[rail_end(node, rail)]


def not_passed(verdict: Verdict) -> dict[Cable, str]:
    """The status of each cable of a node that did not pass."""
    return {one: verdict.cables[one][0] for one in OF_NODES if verdict.cables[one][0] != PASS}


def swap(one: dict[str, Any], two: dict[str, Any]) -> None:
    one["neighbors"], two["neighbors"] = two["neighbors"], one["neighbors"]


def test_what_lldpd_prints() -> None:
    text = TEXT.read_text()
    assert parse_neighbours(text) == [
        Neighbour("rail3", "leaf-01", ("00:00:5e:00:53:4c", "swp12s1"))
    ]
    assert parse_neighbours('{"lldp": [{}]}') == []
    nameless = text.replace('"name": [', '"other": [')
    assert parse_neighbours(nameless)[0].name == "00:00:5e:00:53:4c"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"lldp": {}}', '{"lldp": [{"interface": [{}]}]}', "{}"]
)
def test_another_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not an answer"):
        parse_neighbours(text)


@pytest.mark.parametrize(
    ("names", "number"),
    [
        (["swp12"], 12), (["swp12s0"], 23), (["00:00:5e:00:53:4c", "swp12s1"], 24),
        (["Eth1/12"], 12), (["Eth1/12/1"], 23), (["Eth1/12/2"], 24),
        (["Ethernet88", "etp12a"], 23), (["etp12b"], 24), (["Ethernet88"], None), ([], None),
    ],
)  # fmt: skip
def test_names_of_ports(names: list[str], number: int | None) -> None:
    assert port_number(names) == number


def test_a_fabric_as_planned() -> None:
    verdict = judged(world())
    assert not verdict.findings
    assert not not_passed(verdict)
    between = {cable for cable in PLAN.cables if cable.a.is_switch}
    assert between
    assert {verdict.cables[cable][0] for cable in between} == {NOT_MEASURED}
    assert [doubt.kind for doubt in verdict.doubts] == ["unheard"]


def test_two_exchanged_plugs_are_one_finding() -> None:
    nodes = world()
    swap(link(nodes, "dgx-0003", 2), link(nodes, "dgx-0009", 2))
    verdict = judged(nodes)
    (finding,) = verdict.findings
    assert finding.kind == "swapped"
    assert set(finding.cables) == {cable_of("dgx-0003", 2), cable_of("dgx-0009", 2)}
    assert set(not_passed(verdict).values()) == {FAIL}
    assert len(not_passed(verdict)) == 2


def test_exchanged_rails_of_one_node() -> None:
    nodes = world()
    swap(link(nodes, "dgx-0003", 2), link(nodes, "dgx-0003", 5))
    verdict = judged(nodes)
    assert [finding.kind for finding in verdict.findings] == ["swapped"]


def test_a_plug_in_a_free_port() -> None:
    nodes = world()
    one = link(nodes, "dgx-0003", 2)
    one["neighbors"] = [{"name": "leaf-001.example.org", "ports": ["swp60s1"]}]
    (finding,) = judged(nodes).findings
    assert finding.kind == "moved"
    assert "port 120" in finding.text


def test_a_link_that_is_down() -> None:
    nodes = world()
    link(nodes, "dgx-0003", 2).update(carrier=False, rate_gbps=None, neighbors=[])
    verdict = judged(nodes)
    (finding,) = verdict.findings
    assert finding.kind in ("missing", "dark")
    assert not_passed(verdict) == {cable_of("dgx-0003", 2): FAIL}


def test_a_slow_link() -> None:
    nodes = world()
    link(nodes, "dgx-0003", 2)["rate_gbps"] = 200.0
    (finding,) = judged(nodes).findings
    assert finding.kind == "speed"
    assert "runs at 200GbE, 200 of 400 Gb/s" in finding.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"neighbors": []}, "rail2 is up and hears no neighbour"),
        ({"carrier": None}, "whether rail2 is up could not be read"),
        ({"neighbors": [{"name": "leaf-001", "ports": ["uplink"]}]}, "has no known form"),
        ({"neighbors": [{"name": n, "ports": ["swp1"]} for n in "ab"]}, "more than one neighbour"),
    ],
)
def test_what_was_not_received_fails_nothing(change: dict[str, Any], words: str) -> None:
    nodes = world()
    link(nodes, "dgx-0003", 2).update(change)
    verdict = judged(nodes)
    assert not verdict.findings
    assert not_passed(verdict) == {cable_of("dgx-0003", 2): NOT_MEASURED}
    assert words in verdict.cables[cable_of("dgx-0003", 2)][1]


def test_a_rate_that_is_not_known_is_not_a_pass() -> None:
    nodes = world()
    link(nodes, "dgx-0003", 2)["rate_gbps"] = None
    assert not_passed(judged(nodes)) == {cable_of("dgx-0003", 2): NOT_MEASURED}


@pytest.mark.parametrize("answer", [None, {"problem": "lldpcli is not installed", "links": []}])
def test_a_node_that_did_not_answer(answer: dict[str, Any] | None) -> None:
    nodes = world()
    del nodes["dgx-0003"]
    if answer:
        nodes["dgx-0003"] = answer
    verdict = judged(nodes)
    assert not verdict.findings
    assert not_passed(verdict) == {cable_of("dgx-0003", rail): NOT_MEASURED for rail in range(8)}
    assert "node:dgx-0003" in [doubt.subject for doubt in verdict.doubts]


def test_an_adapter_that_its_node_lacks() -> None:
    nodes = world()
    nodes["dgx-0003"]["links"].remove(link(nodes, "dgx-0003", 2))
    verdict = judged(nodes)
    assert len(verdict.findings) == 1
    assert not_passed(verdict) == {cable_of("dgx-0003", 2): FAIL}


@pytest.mark.parametrize("others", [["dgx-0003"], ["dgx-0003", "dgx-0007"]])
def test_a_port_that_more_than_one_claims_is_believed_of_none(others: list[str]) -> None:
    nodes = world()
    claimed = link(nodes, "dgx-0004", 2)["neighbors"]
    for other in others:
        link(nodes, other, 2)["neighbors"] = copy.deepcopy(claimed)
    verdict = judged(nodes)
    assert not verdict.findings
    assert not_passed(verdict) == {
        cable_of(node, 2): NOT_MEASURED for node in ["dgx-0004", *others]
    }


def test_switches_that_were_asked(tmp_path: Path) -> None:
    between = [cable for cable in PLAN.cables if cable.a.is_switch]
    received = [
        {
            "name": swp(cable.a.port),
            "chassis": [{"name": [{"value": cable.b.host}]}],
            "port": [{"id": [{"type": "ifname", "value": swp(cable.b.port)}]}],
        }
        for cable in between
    ]
    path = tmp_path / "leaf-001.json"
    path.write_text(str({"lldp": [{"interface": received}]}).replace("'", '"'))
    files = {"switch_neighbor_files": {"leaf-001": str(path)}}
    verdict = judged(world(), **files)
    assert not verdict.findings
    assert {verdict.cables[one][1] for one in between} == {"in place; its rate was not reported"}
    swapped = copy.deepcopy(received)
    swapped[0]["port"], swapped[1]["port"] = swapped[1]["port"], swapped[0]["port"]
    path.write_text(str({"lldp": [{"interface": swapped[2:]}]}).replace("'", '"'))
    kinds = {finding.kind for finding in judged(world(), **files).findings}
    assert kinds
    assert kinds <= {"missing", "dark", "cage"}


BETWEEN = [cable for cable in PLAN.cables if cable.a.is_switch]


def etp(number: int) -> str:
    return f"etp{(number + 1) // 2}{'ba'[number % 2]}"


def netdev(number: int) -> str:
    return f"Ethernet{(number - 1) * 4}"


def of_arista(number: int) -> str:
    return f"Ethernet{(number + 1) // 2}/1"


def entry(interface: str, name: str, port: str) -> dict[str, Any]:
    return {
        "name": interface,
        "chassis": [{"name": [{"value": name}]}],
        "port": [{"id": [{"type": "local", "value": port}]}],
    }


def of_leaf(
    here: Callable[[int], str] = swp,
    there: Callable[[int], str] = swp,
    cables: Sequence[Cable] = BETWEEN,
    prefix: str = "",
) -> list[dict[str, Any]]:
    """What leaf-001 reports of its cables to leaf-002."""
    return [entry(here(one.a.port), prefix + one.b.host, there(one.b.port)) for one in cables]


def asked(tmp_path: Path, **answers: list[dict[str, Any]]) -> Verdict:
    """The verdict with the answers of switches, written leaf_001 here."""
    files = {}
    for key, found in answers.items():
        name = key.replace("_", "-")
        files[name] = str(tmp_path / f"{name}.json")
        Path(files[name]).write_text(json.dumps({"lldp": [{"interface": found}]}))
    return judged(world(), switch_neighbor_files=files)


@pytest.mark.parametrize(
    ("received", "words"),
    [
        (of_leaf(netdev, etp), "port Ethernet508 of leaf-001 has no known form"),
        (of_leaf(swp, of_arista), "port Ethernet64/1 of leaf-002 has no known form"),
        (of_leaf(prefix="sp"), "swp64s1 of leaf-001 hears spleaf-002, which the plan does"),
        (of_leaf(netdev, etp, prefix="sp"), "port Ethernet508 of leaf-001 has no known form"),
    ],
)
def test_names_of_a_switch_that_cannot_be_read_fail_nothing(
    received: list[dict[str, Any]], words: str, tmp_path: Path
) -> None:
    verdict = asked(tmp_path, leaf_001=received)
    assert verdict.findings == []
    assert {verdict.cables[one][0] for one in BETWEEN} == {NOT_MEASURED}
    (doubt,) = verdict.doubts
    assert words in doubt.text
    assert words in verdict.cables[BETWEEN[0]][1]
    assert doubt.remedy.startswith("give lldp_verify the answer of the switch at the other end")


def failed(verdict: Verdict) -> list[Cable]:
    return [one for one in BETWEEN if verdict.cables[one][0] == FAIL]


def test_a_switch_that_can_be_read_lacks_what_it_does_not_hear(tmp_path: Path) -> None:
    management = ("eth0", "eth1", "mgmt1", "Management1", "management2")
    noise = [entry(name, "management-01", "Ethernet7") for name in management]
    noise.append(entry(swp(1), "dgx-0001", "x"))
    lacking = [*noise, *of_leaf(cables=BETWEEN[1:])]
    assert failed(asked(tmp_path, leaf_001=lacking)) == BETWEEN[:1]
    # Also where others of its cables, or the switch at the other end, cannot be read.
    partly = [*of_leaf(cables=BETWEEN[2:]), *of_leaf(swp, of_arista, BETWEEN[1:2])]
    verdict = asked(tmp_path, leaf_001=partly)
    assert failed(verdict) == BETWEEN[:1]
    assert "no known form" in verdict.cables[BETWEEN[1]][1]
    other = [entry(netdev(one.b.port), "leaf-001", swp(one.a.port)) for one in BETWEEN]
    assert failed(asked(tmp_path, leaf_001=lacking, leaf_002=other)) == BETWEEN[:1]


def test_what_one_of_two_switches_hears_is_enough(tmp_path: Path) -> None:
    other = [entry(swp(one.b.port), "leaf-001", netdev(one.a.port)) for one in BETWEEN]
    for here, there in ((swp, swp), (swp, of_arista)):
        verdict = asked(tmp_path, leaf_001=of_leaf(here, there), leaf_002=other)
        expected = "in place" if there is swp else "no known form"
        assert {expected in verdict.cables[one][1] for one in BETWEEN} == {True}
        assert verdict.findings == []


def test_a_port_that_two_of_a_switch_claim_is_believed_of_neither(tmp_path: Path) -> None:
    claimed = [*of_leaf(cables=BETWEEN[1:]), *of_leaf(cables=BETWEEN[:1])]
    claimed[-1]["port"] = claimed[0]["port"]
    verdict = asked(tmp_path, leaf_001=claimed)
    assert verdict.findings == []
    assert ["more than one device" in verdict.cables[one][1] for one in BETWEEN[:3]] == [
        True, True, False]  # fmt: skip


def test_an_answer_of_no_switch_of_the_plan_is_named(tmp_path: Path) -> None:
    verdict = asked(tmp_path, leaf_001=of_leaf(), laef_002=of_leaf(), spine_1=[])
    assert verdict.findings == []
    (doubt,) = verdict.doubts
    assert (doubt.subject, doubt.status) == ("fabric", NOT_MEASURED)
    assert doubt.text == "switch_neighbor_files: the plan has no switch laef-002, spine-1"
    assert asked(tmp_path, leaf_001=of_leaf()).doubts == []


def test_cables_of_switches_that_were_not_asked_say_how_to(tmp_path: Path) -> None:
    (doubt,) = judged(world()).doubts
    assert "neither was asked" in doubt.text
    assert doubt.remedy.startswith("give lldp_verify what lldpcli -f json0 show neighbors prints")
    assert doubt.remedy.endswith("(switch_neighbor_files)")


def test_a_rail_that_has_another_name_yet_is_not_at_fault() -> None:
    nodes = world()
    whole = nodes["dgx-0003"]
    whole.update(links=[], misnamed={f"rail{rail}": f"enp{rail}s0np0" for rail in range(8)})
    verdict = judged(nodes)
    assert not verdict.findings
    wrong = not_passed(verdict)
    assert set(wrong) == {cable_of("dgx-0003", rail) for rail in range(8)}
    assert set(wrong.values()) == {NOT_MEASURED}
    why = "rail5 is still called enp5s0np0: reboot, or run configure_fabric"
    assert verdict.cables[cable_of("dgx-0003", 5)][1] == why
    remedies = [one.remedy for one in verdict.doubts if one.subject == "node:dgx-0003"]
    assert remedies == ["reboot, or run configure_fabric"]
    whole["problem"] = "lldpcli is not installed"
    found = [one.remedy for one in judged(nodes).doubts if one.subject == "node:dgx-0003"]
    assert ["systemctl status lldpd" in one for one in found] == [True]


@pytest.mark.parametrize("misnamed", [{}, {"rail2": ""}])
def test_a_rail_whose_adapter_is_gone_or_has_no_interface_fails(misnamed: dict[str, str]) -> None:
    nodes = world()
    nodes["dgx-0003"]["links"].remove(link(nodes, "dgx-0003", 2))
    nodes["dgx-0003"]["misnamed"] = misnamed
    assert not_passed(judged(nodes)) == {cable_of("dgx-0003", 2): FAIL}


def test_random_faults_pass_nothing_broken_and_fail_nothing_healthy() -> None:
    dice = random.Random(14)
    for _round in range(150):
        nodes = world()
        touched: set[Cable] = set()
        silent: set[Cable] = set()
        for _fault in range(dice.randint(1, 4)):
            one, two = dice.sample([cable for cable in OF_NODES if cable not in touched], 2)
            links = [link(nodes, cable.a.host, cable.a.rail) for cable in (one, two)]
            kind = dice.choice(["swap", "down", "slow", "unheard"])
            if kind == "swap":
                swap(*links)
                touched |= {one, two}
                continue
            touched.add(one)
            if kind == "down":
                links[0].update(carrier=False, rate_gbps=None, neighbors=[])
            elif kind == "slow":
                links[0]["rate_gbps"] = 100.0
            else:
                links[0]["neighbors"] = []
                silent.add(one)
        wrong = not_passed(judged(nodes))
        assert set(wrong) == touched
        assert {cable for cable, status in wrong.items() if status == NOT_MEASURED} == silent


def test_lldpd_is_asked(tmp_path: Path) -> None:
    for name, carrier, speed in (("rail3", "1", "400000"), ("rail4", "0", "-1")):
        folder = tmp_path / "class/net" / name
        folder.mkdir(parents=True)
        (folder / "carrier").write_text(carrier + "\n")
        (folder / "speed").write_text(speed + "\n")
    (tmp_path / "class/net/rail5").mkdir()
    words: list[tuple[str, ...]] = []

    def run(argv: Any, timeout_s: float = 30, env: Any = None) -> CommandResult:
        words.append(tuple(argv))
        return CommandResult(tuple(argv), ENDED, 0, TEXT.read_text())

    (tmp_path / "bus/pci/devices/0000:9a:00.0/net/enp154s0np0").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:9b:00.0").mkdir(parents=True)
    pci = {
        "rail4": "9b:00.0",
        "rail6": "9A:00.0",
        "rail7": "9b:00.0",
        "rail8": "dc:00.0",
        "rail9": "",
    }
    names = [f"rail{rail}" for rail in range(3, 10)]
    answer = ask_lldp(run, names, str(tmp_path), 5, pci)
    assert words == [("lldpcli", "-f", "json0", "show", "neighbors")]
    ports = ["00:00:5e:00:53:4c", "swp12s1"]
    received = [{"name": "leaf-01", "ports": ports}]
    expected = [
        ("rail3", True, 400.0, received),
        ("rail4", False, None, []),
        ("rail5", None, None, []),
    ]
    assert answer == {
        "problem": "",
        "links": [
            dict(zip(("interface", "carrier", "rate_gbps", "neighbors"), one, strict=True))
            for one in expected
        ],
        # There is no interface (rail7), no device (rail8), or no address is known (rail9).
        "misnamed": {"rail6": "enp154s0np0"},
    }


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (CommandResult(("lldpcli",), MISSING), "lldpcli is not installed"),
        (CommandResult(("lldpcli",), ENDED, 1, "", "unable to connect"), "unable to connect"),
        (CommandResult(("lldpcli",), ENDED, 0, "<html>"), "not an answer"),
    ],
)
def test_lldpd_that_does_not_answer(tmp_path: Path, result: CommandResult, words: str) -> None:
    answer = ask_lldp(lambda *_args, **_options: result, ["rail3"], str(tmp_path), 5, {})
    assert words in answer["problem"]
