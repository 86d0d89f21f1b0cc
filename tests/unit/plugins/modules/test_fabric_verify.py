# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""fabric_verify with tools that print what a broken fabric would say, hang, crash or are gone."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace

import pytest
from ansible.module_utils import basic
from checkout import FIXTURES, ROOT
from fabric_netlist import (
    discovery_text,
    states_text,
)
from hand import name_all
from library import build, fresh
from world import choose_start, rail_end

from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.cable_lists import (
    Rows,
    take_own,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._fabric.model import plan_to_data
from ansible_collections.baremetal.dgx.plugins.modules import fabric_verify

SWAP, OTHER = rail_end("dgx-0005", 2), rail_end("dgx-0005", 3)
TOOLS = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "saquery", "ibswinfo")
SWITCHES = FIXTURES / "ibswinfo"
# Counts its calls, so that the second reading may differ from the first.
TOOL = """\
#!/bin/sh
folder={folder}/answers
count=$(cat "$folder/{name}.calls" 2>/dev/null || echo 0)
echo $((count + 1)) > "$folder/{name}.calls"
echo "$LD_PRELOAD$POD_FABRIC" > "$folder/{name}.environment"
for file in "$folder/{name}-$((count + 1))" "$folder/{name}"; do
  if [ -e "$file" ]; then cat "$file"; break; fi
done
[ ! -e "$folder/{name}.err" ] || cat "$folder/{name}.err" >&2
{ending}
"""


def answers_of(world) -> dict[str, str]:
    seen, errors = world.reached()
    observed = world.observe()
    masters = [sm for sm in observed.sms.sms if sm.state == "MASTER"]
    sm = masters[0] if masters else None
    lids = "".join(
        f"PortInfoRecord dump:\n\t\tEndPortLid..............{sm.lid}\n" for sm in masters
    )
    return {
        "ibnetdiscover": discovery_text(seen),
        "ibnetdiscover.err": "\n".join(errors),
        "iblinkinfo": states_text(seen),
        "ibqueryerrors-1": world.counters(world.before, seen),
        "ibqueryerrors-2": world.counters(world.after, seen),
        "sminfo": f"sminfo: sm lid {sm.lid} sm guid 0x{sm.guid}, activity count 7 priority 0 "
        "state 3 SMINFO_MASTER\n"
        if sm
        else "sminfo: iberror: failed: query\n",
        "saquery": f"IsSM ports\n{lids}\nIsSMdisabled ports\n",
    }


@pytest.fixture
def verify(run_module, tmp_path, monkeypatch):
    """`verify(world, endings={tool: shell text}, without=[tool], **options)`."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    # Tools of the machine that runs the tests do not count, if it has them.
    find = basic.AnsibleModule.get_bin_path

    def only_ours(self, name, *args, **kwargs):
        ours = tmp_path / "bin" / name
        if name in TOOLS:
            return str(ours) if ours.exists() else None
        return find(self, name, *args, **kwargs)

    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", only_ours)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)

    def run(world, endings=None, without=(), check=False, cut=None, **params):
        for folder in ("bin", "answers"):
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
            (tmp_path / folder).mkdir()
        for name, text in {**answers_of(world), **(cut or {})}.items():
            (tmp_path / "answers" / name).write_text(text)
        for name in TOOLS:
            ending = (endings or {}).get(name, "")
            path = tmp_path / "bin" / name
            path.write_text(TOOL.format(folder=tmp_path, name=name, ending=ending))
            path.chmod(0o755)
        for name in without:
            (tmp_path / "bin" / name).unlink()
        if "plan_file" not in params and "plan" not in params:
            params["plan"] = plan_to_data(world.plan)
        params.setdefault("interval_s", 0.01)
        params.setdefault("adapters", world.adapters)
        return run_module(fabric_verify.main, {"timeout_s": 5, **params}, check)

    return run


@pytest.fixture
def healthy():
    world = fresh("basepod-12")
    world.start = world.key_of["dgx-0001", 0]
    world.sms = {"dgx-0001": "MASTER"}
    return world


def test_a_healthy_fabric_passes(verify, healthy, tmp_path):
    answer = verify(healthy, output=str(tmp_path / "out"), subnet_managers=["dgx-0001"])
    assert answer.get("failed") is None, answer["msg"]
    assert answer["changed"] is False
    assert answer["verdict"] == "pass"
    assert (answer["causes"], answer["doubts"], answer["complaints"]) == ([], [], [])
    assert answer["summary"]["cables"] == {"pass": 112, "fail": 0, "not_measured": 0}
    names = {os.path.relpath(path, tmp_path / "out") for path in answer["files"]}
    assert {"records.json", "findings.txt", "fabric.svg", "raw/ibnetdiscover.txt"} <= names
    data = json.loads((tmp_path / "out" / "records.json").read_text())
    cables = [rec for rec in data["records"] if rec["check"] == "fabric.cable"]
    # What is right has a record for each node, and one for the cables between the switches.
    assert [rec["subject"] for rec in cables] == [
        *(f"cables:dgx-{number:04d}" for number in range(1, 13)), "cables:leaf-001",
    ]  # fmt: skip
    assert {rec["measured"]["value"] for rec in cables} == {400.0}
    assert (cables[0]["text"], cables[0]["status"]) == ("8 cables are right", "pass")
    assert cables[0]["evidence"][0] == "dgx-0001/rail0--leaf-001/1"
    assert sum(len(rec["evidence"]) for rec in cables) == 112
    # the gate lets no node in on records without a time
    assert len({rec["at"] for rec in data["records"]}) == 1
    assert data["records"][0]["at"].endswith("Z")
    assert not [path for path in (tmp_path / "out").rglob("*") if ".new-" in path.name]


def test_what_the_caller_has_is_not_sent_back(verify, healthy):
    options = verify(healthy, interval_s=0)["invocation"]["module_args"]
    assert (options["plan"], options["adapters"], options["interval_s"]) == (None, {}, 0.0)


def test_a_fault_fails_the_task_with_the_whole_text(verify, tmp_path):
    case = build("basepod-12", ("rails_of_a_node_swapped", "node_silent"), 1)
    places = {"dgx-0007": {"rack": "r03", "rack_unit": 4}}
    answer = verify(case.world, places=places, output=str(tmp_path / "out"))
    assert answer["failed"]
    assert {(found["kind"], found["subject"]) for found in answer["causes"]} == case.expected
    assert answer["msg"] == (tmp_path / "out" / "findings.txt").read_text()
    *lines, cables = answer["findings"]
    assert len(lines) == len(case.expected)
    assert re.fullmatch(r"fabric\.cable: \d+ fail", cables)
    assert "exchange the two plugs" in " ".join(answer["msg"].split())
    assert answer["verdict"] == "fail"
    green = verify(case.world, fail_on=[])
    assert green.get("failed") is None
    assert len(green["causes"]) == 2


def kinds(items: list[dict]) -> set[tuple[str, str]]:
    return {(item["kind"], item["subject"]) for item in items}


def test_a_node_that_reports_its_adapters_tells_a_dead_one_from_a_cable(verify):
    case = build("basepod-12", ("adapter_that_its_node_does_not_see",), 1)
    answer = verify(case.world)
    assert kinds(answer["causes"]) == case.expected
    (found,) = answer["causes"]
    assert found["kind"] == "hca_absent"
    node, rail = found["subject"][4:].split("/rail")
    pci = case.world.plan.hcas[node, int(rail)].pci
    assert found["text"] == f"{node} itself does not see the adapter of rail {rail} (PCI {pci})"
    # No cable is to blame, and the one behind the adapter is not proved.
    assert answer["summary"]["cables"] == {"pass": 111, "fail": 0, "not_measured": 1}
    # Its twin: the cable is pulled, and the node sees all of its adapters.
    twin = build("basepod-12", ("cable_pulled_and_its_node_sees_the_adapter",), 1)
    answer = verify(twin.world)
    assert kinds(answer["causes"]) == twin.expected
    assert "the node itself sees this adapter" in answer["causes"][0]["text"]
    # No manager was asked: from outside both look alike.
    answer = verify(case.world, adapters={})
    assert {item["kind"] for item in answer["causes"]} == {"missing"}


@pytest.mark.parametrize("form", ["hca", "capitals", "shifted", "none"])
def test_a_rail_swap_never_passes_whatever_the_adapters_are_called(verify, form):
    world = fresh("basepod-12")
    name_all(world, form)
    choose_start(world, set())
    one, two = (cable for cable in world.plan.cables if cable.a in (SWAP, OTHER))
    world.ask_nodes()
    for cable in (one, two):
        world.unplug(cable)
    world.plug(one.a, two.b)
    world.plug(two.a, one.b)
    answer = verify(world, adapters={})
    subjects = {one.subject, two.subject}
    result = {item["subject"]: item["status"] for item in answer["records"]}
    if form == "none":
        assert {result[subject] for subject in subjects} == {"not_measured"}
        assert answer["summary"]["cables"] == {"pass": 16, "fail": 0, "not_measured": 96}
        assert ("identity", "fabric") in kinds(answer["doubts"])
        assert "reports the GUIDs of its adapters" in answer["doubts"][0]["remedy"]
    else:
        # These names tell the rails: case does not count, and those that moved did so alike.
        assert {result[subject] for subject in subjects} == {"fail"}
        assert answer["summary"]["cables"] == {"pass": 110, "fail": 2, "not_measured": 0}
        assert ("swapped", one.subject) in kinds(answer["causes"])
    # The nodes answer: names no longer matter.
    answer = verify(world)
    assert ("swapped", one.subject) in kinds(answer["causes"])
    assert answer["summary"]["cables"] == {"pass": 110, "fail": 2, "not_measured": 0}
    # The healthy twin: the same names, and nothing exchanged.
    world = fresh("basepod-12")
    name_all(world, form)
    choose_start(world, set())
    world.ask_nodes()
    answer = verify(world)
    assert answer["summary"]["cables"] == {"pass": 112, "fail": 0, "not_measured": 0}
    assert not [item for item in answer["causes"] if item["kind"] != "description"]


def test_a_replaced_device_is_told_and_its_cables_are_right(verify):
    for fault, subject in (("adapter_replaced", "hca:"), ("leaf_replaced", "switch:")):
        case = build("basepod-12", (fault,), 1)
        answer = verify(case.world)
        assert kinds(answer["causes"]) == case.expected
        (found,) = answer["causes"]
        assert (found["kind"], found["subject"].startswith(subject)) == ("replaced", True)
        assert "is declared: it was replaced" in found["text"]
        assert "declare its GUID" in found["remedy"]
        assert answer["summary"]["cables"] == {"pass": 112, "fail": 0, "not_measured": 0}
    # What is declared is there, in another place: the two adapters were exchanged.
    case = build("basepod-12", ("adapter_replaced",), 1)
    hcas = case.world.plan.hcas
    key = next(key for key, hca in hcas.items() if (hca.guid or "").startswith("06"))
    other = next(one for one in hcas if one[0] != key[0])
    hca = replace(hcas[key], guid=case.world.key_of[other])
    case.world.plan = replace(case.world.plan, hcas={**hcas, key: hca})
    case.world.ask_nodes()
    (found,) = verify(case.world)["causes"]
    assert f"what is declared shows as '{other[0]} mlx5_rail{other[1]}'" in found["text"]


def test_a_replaced_adapter_has_the_serial_number_that_its_node_reports(verify):
    case = build("basepod-12", ("adapter_replaced",), 1)
    ((_kind, subject),) = case.expected
    node, rail = subject.partition(":")[2].split("/rail")
    case.world.ask_nodes()
    assert verify(case.world)["causes"][0]["evidence"] == []
    pci = case.world.plan.hcas[node, int(rail)].pci
    for hca in case.world.adapters[node]:
        hca["serial"] = "MT2231X00042" if hca["pci"] == pci else "MT2231X00001"
    (found,) = verify(case.world)["causes"]
    assert found["evidence"] == ["serial MT2231X00042, as its node reports"]


def test_a_plug_in_the_storage_adapter_of_its_node_does_not_pass(verify):
    case = build("basepod-12", ("rail_in_the_storage_adapter_of_its_node",), 1)
    answer = verify(case.world)
    assert kinds(answer["causes"]) == case.expected
    assert "mlx5_storage0" in answer["causes"][0]["text"]
    assert answer["summary"]["cables"] == {"pass": 111, "fail": 1, "not_measured": 0}


def test_adapters_that_are_none_are_one_clear_error(verify, healthy):
    answer = verify(healthy, adapters={"dgx-0001": ["0000:10:00.0"]})
    assert answer["failed"]
    assert answer["msg"] == (
        "adapters.dgx-0001: is not a list of adapters; write adapters of ib_info"
    )


def test_numbers_that_moved_down_are_one_adapter_that_is_gone(verify):
    case = build("basepod-12", ("adapter_gone_and_later_ones_renumbered",), 1)
    answer = verify(case.world)
    assert kinds(answer["causes"]) == case.expected
    assert kinds(answer["doubts"]) == case.doubts
    assert answer["summary"]["cables"]["fail"] == 0
    case = build("basepod-12", ("adapter_gone_and_renumbered_as_the_node_reports",), 1)
    answer = verify(case.world)
    assert kinds(answer["causes"]) == case.expected
    assert answer["summary"]["cables"] == {"pass": 111, "fail": 0, "not_measured": 1}


@pytest.mark.parametrize("form", ["planned", "hca", "capitals", "none"])
@pytest.mark.parametrize("share", [0.15, 0.3, 0.5, 0.75, 0.9])
def test_a_partial_sweep_fails_no_cable(verify, healthy, form, share):
    if form != "planned":
        name_all(healthy, form)
    whole = answers_of(healthy)["ibnetdiscover"]
    answer = verify(
        healthy,
        endings={"ibnetdiscover": "kill -KILL $$"},
        cut={"ibnetdiscover": whole[: int(len(whole) * share)]},
        # Who manages the subnet may be among what is cut off.
        subnet_managers=["dgx-0001", "dgx-0012"],
    )
    assert answer["failed"]
    assert answer["summary"]["cables"]["fail"] == 0, answer["msg"]
    assert not [
        item for item in answer["causes"] if item["kind"] not in ("renamed", "description")
    ], answer["msg"]
    assert answer["summary"]["cables"]["not_measured"] > 0


UFM_GUID = "0x0400000000000001"


@pytest.fixture
def ufm():
    """A fabric with UFM on its own host."""
    world = fresh("superpod-32-of-64")
    choose_start(world, set())
    guid = UFM_GUID[2:]
    device = world.add(guid, "ca", "ufm-01 mlx5_0")
    world.link((guid, 1), world.place(world.free_ports("leaf-001")[0]))
    device.lid = device.ports[1].lid = 4321
    world.sms = {}
    return world


def ufm_answers(world, *others: str) -> dict[str, str]:
    """The answers of sminfo and saquery with UFM as the master, and standbys on other nodes."""
    line = "sminfo: sm lid {} sm guid 0x{}, activity count 7 priority {} state {}\n"
    devices = [world.fabric.devices[world.key_of[host, 0]] for host in others]
    lids = [4321, *(device.lid for device in devices)]
    dump = "".join(f"PortInfoRecord dump:\n\t\tEndPortLid..............{lid}\n" for lid in lids)
    master = line.format(4321, UFM_GUID[2:], 15, "3 SMINFO_MASTER")
    # sminfo is asked for the master, and then for each LID in turn.
    each = {4321: master}
    for device in devices:
        each[device.lid] = line.format(device.lid, device.ports[1].guid, 0, "2 SMINFO_STANDBY")
    turns = {f"sminfo-{turn}": each[lid] for turn, lid in enumerate(lids, 2)}
    return {
        "sminfo": master,
        "saquery": f"IsSM ports\n{dump}\nIsSMdisabled ports\n",
        **turns,
    }


def test_with_ufm_no_host_of_the_inventory_is_expected_to_manage_the_subnet(verify, ufm):
    hosts = ["head-01", "head-02"]
    result = {"subnet_managers": hosts, "other_hosts": [*hosts, "ufm-01"]}
    answer = verify(ufm, cut=ufm_answers(ufm), subnet_manager_provider="ufm", **result)
    assert answer.get("failed") is None, answer["msg"]
    assert answer["verdict"] == "pass"
    assert answer["information"][0] == (
        "subnet managers: ufm-01 master (priority 15); which of them UFM expects was not "
        "compared, since no subnet_manager_guids are declared"
    )
    # With opensm as the provider the same fabric lacks both of its managers.
    answer = verify(ufm, cut=ufm_answers(ufm), **result)
    assert kinds(answer["causes"]) == {
        ("standby_missing", "sm:head-01"),
        ("standby_missing", "sm:head-02"),
        ("sm_unexpected", "sm:ufm-01"),
    }
    assert masked_in(answer) == []


def test_beside_ufm_a_manager_on_a_node_is_unexpected(verify, ufm):
    answer = verify(
        ufm,
        cut=ufm_answers(ufm, "dgx-0003"),
        subnet_manager_provider="ufm",
        subnet_managers=["head-01"],
        other_hosts=["ufm-01"],
    )
    assert kinds(answer["causes"]) == {("sm_unexpected", "sm:dgx-0003")}
    assert answer["causes"][0]["remedy"].startswith("stop opensm on dgx-0003; ")
    assert masked_in(answer) == []


def masked_in(answer):
    """Remedies that name a unit which the role subnet_manager masks: it cannot be started."""
    tasks = (ROOT / "roles/subnet_manager/tasks/install.yml").read_text()
    masked = re.findall(r"/etc/systemd/system/(\w+[.]service), state: link", tasks)
    assert len(masked) == 2
    remedies = [cause["remedy"] for cause in answer["causes"]]
    return [one for one in remedies if set(masked) & set(re.findall(r"[\w@.-]+[.]service", one))]


def test_declared_managers_of_ufm_are_compared(verify, ufm):
    result = {"subnet_manager_provider": "ufm", "other_hosts": ["ufm-01"]}
    good = verify(ufm, cut=ufm_answers(ufm), subnet_manager_guids=[UFM_GUID], **result)
    assert good["verdict"] == "pass"
    assert "not compared" not in good["information"][0]
    other = "0x0400000000000009"
    bad = verify(ufm, cut=ufm_answers(ufm), subnet_manager_guids=[other], **result)
    assert kinds(bad["causes"]) == {
        ("standby_missing", f"sm:{other}"),
        ("sm_unexpected", "sm:ufm-01"),
    }
    assert "opensm" not in json.dumps(bad["causes"])


def test_a_lost_power_supply_is_found_if_switches_are_asked(verify, healthy):
    def of_switch(number: int, name: str) -> str:
        guid = healthy.key_of[f"leaf-00{number}", -1]
        text = (SWITCHES / f"ndr-{name}.txt").read_text()
        return text.replace("0xfc6a1c0301000000", f"0x{guid}")

    valid, other, failed = (
        of_switch(1, "healthy"), of_switch(2, "healthy"), of_switch(2, "psu-failed"),
    )  # fmt: skip
    result = {"ibswinfo-1": valid, "ibswinfo-2": failed}
    answer = verify(healthy, cut=result, switch_health=True)
    assert kinds(answer["causes"]) == {("switch_psu", "switch:leaf-002")}
    assert "PSU1 (serial MT2308X01001)" in answer["msg"]
    assert answer["summary"]["cables"]["pass"] == 112
    # Its twin: both are healthy.
    answer = verify(healthy, cut={"ibswinfo-1": valid, "ibswinfo-2": other}, switch_health=True)
    assert answer["verdict"] == "pass"
    # Of another fabric: the same LID there is another switch, and its faults are not of this one.
    answer = verify(healthy, cut={"ibswinfo-1": valid, "ibswinfo-2": failed.replace(
        healthy.key_of["leaf-002", -1], "fc6a1c0999000000")}, switch_health=True)  # fmt: skip
    assert answer["causes"] == []
    assert kinds(answer["doubts"]) == {
        (f"switch_{part}", "switch:leaf-002") for part in ("psu", "fan", "temperature")
    }
    assert "another switch answered at LID" in answer["msg"]
    # An answer without a GUID is the switch's.
    answer = verify(healthy, cut={"ibswinfo": re.sub("GUID.*\n", "", valid)}, switch_health=True)
    assert answer["verdict"] == "pass"
    # Not asked.
    assert verify(healthy, cut={"ibswinfo": failed})["verdict"] == "pass"


def test_switches_that_were_asked_and_not_received_are_not_measured(verify, healthy):
    answer = verify(healthy, switch_health=True, without=["ibswinfo"])
    assert answer["verdict"] == "not_measured"
    assert kinds(answer["doubts"]) == {("switch_psu", "fabric")}
    hangs = {"endings": {"ibswinfo": "sleep 60"}, "timeout_s": 0.4}
    answer = verify(healthy, switch_health=True, **hangs)
    assert answer["causes"] == []
    assert len(answer["doubts"]) == 6
    assert "not asked: " in answer["doubts"][-1]["text"]


def test_switches_are_not_measured_by_a_saved_sweep(verify, healthy, tmp_path):
    path = tmp_path / "sweep.txt"
    path.write_text(answers_of(healthy)["ibnetdiscover"])
    out = {"sweep_files": {"ibnetdiscover": str(path)}, "without": TOOLS}
    assert verify(healthy, **out)["doubts"] == []
    answer = verify(healthy, switch_health=True, **out)
    assert kinds(answer["doubts"]) == {("switch_psu", "fabric")}
    assert "no switch was asked: the sweep is a saved one" in answer["msg"]
    assert answer["verdict"] == "not_measured"


def test_check_mode_judges_and_writes_nothing(verify, tmp_path):
    case = build("basepod-12", ("rail_missing",), 1)
    answer = verify(case.world, check=True, output=str(tmp_path / "out"))
    assert answer.get("failed") is None
    assert len(answer["causes"]) == 1
    assert not (tmp_path / "out").exists()


def test_counters_are_judged_by_their_growth(verify, tmp_path):
    case = build("basepod-12", ("link_went_down",), 1)
    answer = verify(case.world)
    assert {(found["kind"], found["subject"]) for found in answer["causes"]} == case.expected
    once = verify(case.world, interval_s=0, output=str(tmp_path / "out"))
    assert once.get("failed") is None, once["msg"]
    assert once["verdict"] == "pass"
    kept = json.loads((tmp_path / "out" / "records.json").read_text())["records"]
    (interval,) = [rec for rec in kept if rec["check"] == "fabric.interval"]
    assert interval["status"] == "not_measured"


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("ibnetdiscover", {"without": ["ibnetdiscover"]}),
        ("ibnetdiscover", {"endings": {"ibnetdiscover": "sleep 60"}, "timeout_s": 0.4}),
        ("ibnetdiscover", {"endings": {"ibnetdiscover": "kill -SEGV $$"}}),
        ("ibqueryerrors", {"endings": {"ibqueryerrors": "kill -SEGV $$"}}),
        ("sminfo", {"without": ["sminfo"]}),
    ],
)
def test_a_tool_that_fails_is_not_the_fabric_s_fault(verify, healthy, name, broken):
    answer = verify(healthy, **broken)
    assert answer["failed"]
    assert answer["verdict"] == "not_measured"
    assert answer["causes"] == []
    tools = {rec["subject"] for rec in answer["records"] if rec["check"] == "fabric.tool"}
    assert f"tool:{name}" in tools
    assert "Traceback" not in json.dumps(answer)
    assert verify(healthy, **broken, fail_on=["fail"]).get("failed") is None


def test_without_the_states_of_ports_no_cable_fails(verify):
    case = build("basepod-12", ("uplink_dark",), 1)
    answer = verify(case.world, without=["iblinkinfo"])
    assert answer["failed"]
    assert answer["causes"] == []
    assert {(item["kind"], item["subject"]) for item in answer["doubts"]} == case.expected
    assert answer["complaints"][0].startswith("states of ports are not known")


def test_states_are_asked_for_only_where_a_cable_is_missing(verify, healthy, tmp_path):
    verify(healthy)
    assert not (tmp_path / "answers" / "iblinkinfo.calls").exists()
    verify(build("basepod-12", ("rail_missing",), 1).world)
    assert (tmp_path / "answers" / "iblinkinfo.calls").read_text() == "1\n"


def test_the_environment_is_that_of_the_tools(verify, healthy, tmp_path):
    verify(healthy, tool_environment={"POD_FABRIC": "pretended"})
    message = (tmp_path / "answers" / "ibnetdiscover.environment").read_text()
    assert message == "pretended\n"


def test_saved_answers_are_judged(verify, tmp_path):
    case = build("basepod-12", ("uplink_at_two_lanes", "symbol_errors_at_a_rail"), 1)
    saved = verify(case.world, output=str(tmp_path / "out"))
    files = {
        name: str(tmp_path / "out" / "raw" / f"{name}.txt")
        for name in ("ibnetdiscover", "ibqueryerrors", "ibqueryerrors-2")
    }
    again = verify(case.world, sweep_files=files, interval_s=720, without=TOOLS)
    found = {(item["kind"], item["subject"]) for item in again["causes"]}
    assert found == {(item["kind"], item["subject"]) for item in saved["causes"]} == case.expected


def test_saved_answers_are_as_old_as_is_declared(verify, healthy, tmp_path):
    path = tmp_path / "sweep.txt"
    path.write_text(answers_of(healthy)["ibnetdiscover"])
    for given in ("", "2026-11-21T08:00:00Z"):
        out = {"output": str(tmp_path / "out"), "sweep_files": {"ibnetdiscover": str(path)}}
        verify(healthy, **out, sweep_at=given)
        data = json.loads((tmp_path / "out/records.json").read_text())
        assert {one["at"] for one in data["records"]} == {given}


def test_saved_states_that_are_empty_leave_absence_in_doubt(verify, tmp_path):
    case = build("basepod-12", ("uplink_dark",), 1)
    saved = answers_of(case.world)
    files = {}
    for name, text in (("ibnetdiscover", saved["ibnetdiscover"]), ("iblinkinfo", "")):
        files[name] = str(tmp_path / f"{name}.txt")
        (tmp_path / f"{name}.txt").write_text(text)
    answer = verify(case.world, sweep_files=files, without=TOOLS)
    assert "iblinkinfo holds nothing: states of ports are not known" in answer["complaints"]
    assert [item["kind"] for item in answer["causes"] if item["kind"] != "no_sm"] == []
    assert kinds(answer["doubts"]) >= case.expected


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[: text.index("vendid", len(text) // 3)], "cut off"),
        (lambda text: text[: len(text) // 3], "cannot be read"),
        (lambda text: "", "holds no device"),
        (lambda text: text.replace("dgx-", "gpu-").replace("leaf", "edge"), "another fabric"),
    ],
)
def test_bad_sweeps_are_one_clear_error_and_nothing_is_written(
    verify, healthy, tmp_path, spoil, message
):
    path = tmp_path / "sweep.txt"
    path.write_text(spoil(answers_of(healthy)["ibnetdiscover"]))
    out = tmp_path / "out"
    answer = verify(healthy, sweep_files={"ibnetdiscover": str(path)}, output=str(out))
    assert answer["failed"]
    assert message in answer["msg"]
    assert "\n" not in answer["msg"]
    assert not out.exists()


NOTHING = {"hcas": [], "switches": [], "cables": [], "reserved": []}
CABLE = {"a": ["leaf-9", -1, 1], "b": ["spine-9", -1, 1], "kind": "leaf-spine", "rate_gbps": 400}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({}, "is not a cable plan (KeyError: 'hcas'); give cables.json"),
        ({"hcas": [1], "switches": [], "cables": []}, "is not a cable plan (TypeError"),
        ({**NOTHING, "version": 1}, "has no cables"),
        (NOTHING, "KeyError: 'version'"),
        ({**NOTHING, "version": 99}, "version is 99, and 1 can be read"),
        (
            {**NOTHING, "version": 1, "cables": [{**CABLE, "rate_gbps": "fast"}]},
            "cables[0].rate_gbps: 'fast' is not a number",
        ),
        (
            {**NOTHING, "version": 1, "cables": [CABLE]},
            "cables[0].a: leaf-9/1 is not among the devices",
        ),
    ],
)
def test_bad_plans_are_one_clear_error(verify, healthy, plan, message):
    answer = verify(healthy, plan=plan)
    assert answer["failed"]
    assert message in answer["msg"]


def test_bad_files_are_one_clear_error(verify, healthy, tmp_path):
    (tmp_path / "plan.json").write_text("{")
    for params, message in (
        ({"plan_file": str(tmp_path / "plan.json")}, "is not JSON"),
        ({"plan_file": str(tmp_path / "none.json")}, "cannot be read: No such file"),
        ({"sweep_files": {}}, "ibnetdiscover is missing"),
        ({"sweep_files": {"ibnetdiscover": "/none"}}, "sweep_files.ibnetdiscover: /none cannot"),
        (
            {"sweep_files": {"ibnetdiscover": "/none", "iblinkinfos": "/none"}},
            "sweep_files: iblinkinfos: no such answer; write ibnetdiscover, iblinkinfo, ",
        ),
        (
            {"sweep_files": {"ibnetdiscover": "/none"}, "sweep_at": "yesterday"},
            "sweep_at: 'yesterday' is not a time; write it like 2026-01-31T23:59:59Z",
        ),
        ({"places": {"dgx-0001": "r01"}}, "places.dgx-0001: is 'r01'; write rack and rack_unit"),
        ({"output": str(tmp_path / "plan.json")}, "cannot be written"),
    ):
        answer = verify(healthy, **params)
        assert answer["failed"], params
        assert message in answer["msg"]


def test_a_reference_is_learned_and_then_holds(verify, healthy, tmp_path):
    path = tmp_path / "learned" / "cables.csv"
    answer = verify(healthy, learn=str(path), interval_s=0)
    assert answer.get("failed") is None, answer["msg"]
    assert answer["information"][0] == "112 cables were learned"
    lines = path.read_text().splitlines()
    assert len([line for line in lines if line and line[0] != "#"]) == 112 + 1
    case = build("basepod-12", ("rail_silent",), 1)
    refused = verify(case.world, learn=str(tmp_path / "other.csv"), interval_s=0)
    assert refused["failed"]
    assert not (tmp_path / "other.csv").exists()


def test_what_breaks_the_pattern_is_learned_with_consent_alone(verify, tmp_path):
    case = build("basepod-12", ("rails_of_a_node_swapped", "uplink_at_two_lanes"), 3)
    path = tmp_path / "cables.csv"
    names = [f"{kind} {subject}" for kind, subject in sorted(case.expected)]
    refused = verify(case.world, learn=str(path), interval_s=0)
    assert refused["failed"]
    assert all(f"{name}: " in refused["msg"] for name in names)
    assert "alike are so: confidence 0." in refused["msg"]
    assert "cluster_fabric.cabling.findings_allowed" in refused["msg"]
    half = verify(case.world, learn=str(path), interval_s=0, learn_allowed=names[:1])
    assert half["failed"]
    assert names[0] not in half["msg"]
    assert not path.exists()
    gone = "dark cable:leaf-001/1--leaf-002/1"
    answer = verify(case.world, learn=str(path), interval_s=0, learn_allowed=[*names, gone])
    assert answer.get("failed") is None, answer["msg"]
    lines = path.read_text().splitlines()
    assert [line.split(": ")[1] for line in lines if line.startswith("# allowed")] == names
    assert f"{gone} is allowed, and was not found" in answer["information"]
    rows = Rows(case.world.plan, "cables.csv")
    take_own(rows, path.read_text())
    assert rows.problems == []
    assert len(rows.plan().cables) == 112
