# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role subnet_manager would write, and that opensm takes it where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_render import ROLES, by_path, lines, render, render_many

from ansible_collections.baremetal.dgx.plugins.module_utils._core.run import ENDED, CommandResult
from ansible_collections.baremetal.dgx.plugins.module_utils._host.files.change import (
    judge_validation,
)

SHOWN = {
    "files": "__subnet_manager_files",
    "validations": "__subnet_manager_validations",
    "units": "__subnet_manager_units",
    "wanted": "__subnet_manager_wanted_units",
    "gone": "__subnet_manager_gone_files",
    "find": "__subnet_manager_find",
    "probes": "__subnet_manager_probes",
    "refusals": "__subnet_manager_refusals | selectattr('when') | map(attribute='say') | list",
    "packages": "__subnet_manager_packages",
    "load": "__subnet_manager_load",
}
ROOTS = ["0xFC6A1C0301000002", "fc6a1c0301000001"]
FOUND = {"__subnet_manager_found": {"stdout_lines": ["compute", "old"]}}
INPUTS: dict[str, Any] = {
    "subnet_manager_hosts": ["head-01", "head-02"],
    "subnet_manager_topology": "superpod",
    "subnet_manager_root_guids": ROOTS,
    "subnet_manager_settings": {"sweep_interval": 20, "use_ucast_cache": False},
    "subnet_manager_partitions": [
        {
            "name": "storage",
            "pkey": "0x0A01",
            "ipoib": True,
            "full": ["946dae0300a1b2c3"],
            "limited": ["ALL_CAS"],
        }
    ],
}
CONF = "/etc/opensm/baremetal-dgx-compute.conf"
MODULES = "/etc/modules-load.d/baremetal-dgx-subnet-manager.conf"


def shown(folder: Path, inputs: dict[str, Any], host: str = "head-01", os_: str = "Debian") -> Any:
    result = render(folder, "subnet_manager", os_, {**FOUND, **inputs}, SHOWN, host)
    result["files"] = by_path(result["files"])
    return result


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("master")
    (folder / "names").write_text('0x1 "leaf-01"\n')
    return shown(folder, {**INPUTS, "subnet_manager_node_names_file": str(folder / "names")})


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The second host, in two fabrics, with NVIDIA's opensm, on Enterprise Linux."""
    inputs = {
        "subnet_manager_hosts": ["head-01", "head-02"],
        "subnet_manager_topology": "superpod",
        "subnet_manager_flavour": "nvidia",
        "subnet_manager_rate_gbps": 400,
        "subnet_manager_fabrics": [
            {"name": "compute", "guid": "946dae0300000018"},
            {"name": "storage", "guid": "0x946dae03000000aa", "topology": "none"},
        ],
    }
    return shown(tmp_path_factory.mktemp("standby"), inputs, "head-02", "Rocky")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = {"LD_PRELOAD": "/usr/lib/libumad2sim.so", "SIM_HOST": 'head-01 "x" 100%'}
    inputs = {
        "subnet_manager_hosts": ["head-01"],
        "subnet_manager_topology": "basepod",
        "subnet_manager_environment": environment,
    }
    return shown(tmp_path_factory.mktemp("simulated"), inputs)


def test_master(master: dict[str, Any]) -> None:
    assert master["refusals"] == []
    assert set(lines(master["files"][CONF])) == {
        "force_log_flush TRUE",
        "guid 0x0000000000000000",
        "log_file /var/log/opensm-compute.log",
        "log_max_size 100",
        "node_name_map_name /etc/opensm/baremetal-dgx-node-names",
        "partition_config_file /etc/opensm/baremetal-dgx-partitions.conf",
        "root_guid_file /etc/opensm/baremetal-dgx-compute-root.guids",
        "routing_engine ftree,updn",
        "sm_priority 14",
        "sweep_interval 20",
        "use_ucast_cache FALSE",
    }


def test_guid_files(master: dict[str, Any]) -> None:
    roots = master["files"]["/etc/opensm/baremetal-dgx-compute-root.guids"]
    assert roots["content"] == "0xfc6a1c0301000001\n0xfc6a1c0301000002\n"
    assert master["files"]["/etc/opensm/baremetal-dgx-compute-compute.guids"]["state"] == "absent"
    names = master["files"]["/etc/opensm/baremetal-dgx-node-names"]
    assert names["content"] == '0x1 "leaf-01"\n'


def test_partitions(master: dict[str, Any], standby: dict[str, Any]) -> None:
    path = "/etc/opensm/baremetal-dgx-partitions.conf"
    assert lines(master["files"][path]) == [
        "Default=0x7fff, ipoib, mtu=5 : ALL=full, SELF=full;",
        "storage=0x0a01, ipoib, mtu=5 : ALL_CAS=limited,",
        "  0x946dae0300a1b2c3=full,",
        "  SELF=full;",
    ]
    assert lines(standby["files"][path]) == [
        "Default=0x7fff, ipoib, mtu=5, rate=21 : ALL=full, SELF=full;"
    ]


def test_members_of_a_partition_are_on_lines_that_opensm_reads_whole(tmp_path: Path) -> None:
    guids = [f"0x{0x946DAE0300100000 + 16 * number:016x}" for number in range(1016)]
    many = {"name": "tenant", "pkey": "0x0010", "full": guids, "limited": ["ALL_CAS", "ALL"]}
    files = shown(tmp_path, {**INPUTS, "subnet_manager_partitions": [many]})["files"]
    written = lines(files["/etc/opensm/baremetal-dgx-partitions.conf"])
    # of 4,096 characters opensm's buffer keeps one for the end, and the line feed is one, too
    assert max(map(len, written)) < 4094
    members = " ".join(written[1:]).partition(" : ")[2]
    # the last that a port is counts
    expected = ["ALL=limited", "ALL_CAS=limited", *(f"{guid}=full" for guid in guids), "SELF=full;"]
    assert [member.strip() for member in members.split(",")] == expected


def test_standby_in_two_fabrics(standby: dict[str, Any]) -> None:
    assert standby["refusals"] == []
    compute = lines(standby["files"][CONF])
    assert "sm_priority 13" in compute
    assert "guid 0x946dae0300000018" in compute
    assert "routing_engine ar_updn" in compute
    assert not [line for line in compute if "root_guid_file" in line]
    storage = lines(standby["files"]["/etc/opensm/baremetal-dgx-storage.conf"])
    assert "guid 0x946dae03000000aa" in storage
    assert "routing_engine minhop" in storage
    assert [unit["name"] for unit in standby["units"]] == [
        "baremetal-dgx-opensm@compute.service", "baremetal-dgx-opensm@storage.service",
    ]  # fmt: skip
    assert [probe["name"] for probe in standby["probes"]] == [
        "opensm for compute has read its partitions", "opensm for storage has read its partitions",
    ]  # fmt: skip


OLD = {
    "name": "baremetal-dgx-opensm@old.service",
    "enabled": False,
    "state": "stopped",
    "missing_ok": True,
}


def test_the_opensm_of_a_fabric_that_is_no_longer_declared_is_stopped(
    master: dict[str, Any], tmp_path: Path
) -> None:
    assert [unit["name"] for unit in master["wanted"] if unit.get("state") == "stopped"] == [
        "opensm.service", "opensmd.service", "baremetal-dgx-opensm@old.service",
    ]  # fmt: skip
    assert OLD in master["wanted"]
    assert master["wanted"][-1] == master["units"][0]
    assert master["gone"] == [
        {"path": f"/etc/opensm/baremetal-dgx-old{end}", "state": "absent"}
        for end in (".conf", "-root.guids", "-compute.guids")
    ]
    inputs = {"subnet_manager_hosts": ["head-01"], "subnet_manager_provider": "ufm"}
    ufm = shown(tmp_path, inputs)
    assert ufm["wanted"][2:] == [{**OLD, "name": "baremetal-dgx-opensm@compute.service"}, OLD]
    assert ufm["gone"] == master["gone"]


def test_remove_stops_each_opensm_that_is_there(tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROLES / "subnet_manager/tasks/remove.yml").read_text())
    assert tasks[0]["ansible.builtin.import_tasks"] == "find.yml"
    expression = tasks[1]["baremetal.dgx.service_sync"]["units"].strip("{} ")
    inputs = {**FOUND, "subnet_manager_fabrics": [{"name": "renamed"}]}
    shown_units = render(tmp_path, "subnet_manager", "Debian", inputs, {"units": expression})
    assert shown_units["units"] == [{**OLD, "name": "baremetal-dgx-opensm@compute.service"}, OLD]


def test_instances_are_found_running_enabled_or_by_their_files(
    master: dict[str, Any], tmp_path: Path
) -> None:
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    unit = tmp_path / "etc/systemd/system/baremetal-dgx-opensm@.service"
    unit.touch()
    (wants / "baremetal-dgx-opensm@enabled.service").symlink_to(unit)
    (tmp_path / "etc/systemd/system/baremetal-dgx-opensm@.service.d").mkdir()
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(
        "#!/bin/sh\necho baremetal-dgx-opensm@runs-1.service loaded active running of a.service\n"
    )
    systemctl.chmod(0o755)

    def found() -> tuple[int, list[str]]:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ROOT": str(tmp_path)}
        done = subprocess.run(
            ["sh", "-c", master["find"]],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout.splitlines()

    assert found() == (0, ["enabled", "runs-1"])
    folder = tmp_path / "etc/opensm"
    folder.mkdir()
    for name in ("written.conf", "partitions.conf", "written-root.guids"):
        (folder / f"baremetal-dgx-{name}").touch()
    assert found() == (0, ["enabled", "runs-1", "written"])
    systemctl.write_text("#!/bin/sh\nexit 1\n")
    assert found() == (1, [])


ERROR = "0x01 -> osm_prtn_make_partitions: Partition configuration in error; retrying with"
UP, STARTED, STANDS_BY = "0x02 -> SUBNET UP", "0x80 -> OpenSM 3.3.23", "0x80 -> Entering STANDBY"


@pytest.mark.parametrize(
    ("log", "bad"),
    [
        ([STARTED, UP, UP], False),
        ([STARTED, UP, ERROR], True),
        ([STARTED, UP, ERROR, UP], True),
        ([STARTED, ERROR, UP, ERROR, UP], True),
        ([STARTED, ERROR, UP, UP], False),
        ([ERROR, UP, STARTED, STARTED], False),
        ([STARTED, ERROR, UP, STANDS_BY], False),
    ],
)
def test_partitions_that_the_last_sweep_could_not_read_are_found(
    master: dict[str, Any], tmp_path: Path, log: list[str], bad: bool
) -> None:
    (tmp_path / "log").write_text("".join(f"Nov 29 14:46:08 {line}\n" for line in log))
    (tmp_path / "conf").write_text(f"log_file {tmp_path}/log\nlog_max_size 100\n")
    probe = master["probes"][1]
    assert probe["command"][-1] == CONF
    done = subprocess.run(
        [*probe["command"][:-1], str(tmp_path / "conf")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, probe["reject"] in done.stdout) == (0, bad)


@pytest.mark.parametrize("setting", ["log_file stdout", "log_file {log}\nlog_flags 0x01"])
def test_a_site_s_log_is_not_read(master: dict[str, Any], tmp_path: Path, setting: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"Nov 29 14:46:08 {ERROR}\n")
    (tmp_path / "conf").write_text(setting.format(log=log) + "\n")
    done = subprocess.run(
        [*master["probes"][1]["command"][:-1], str(tmp_path / "conf")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_one_host_after_the_other() -> None:
    tasks = yaml.safe_load((ROLES / "subnet_manager/tasks/service.yml").read_text())
    (task,) = [task for task in tasks if task["name"] == "service | Start or stop opensm"]
    assert task["throttle"] == 1


def test_environment_reaches_opensm_and_the_probe(simulated: dict[str, Any]) -> None:
    drop_in = "/etc/systemd/system/baremetal-dgx-opensm@.service.d/environment.conf"
    assert lines(simulated["files"][drop_in]) == [
        "[Service]",
        'Environment="LD_PRELOAD=/usr/lib/libumad2sim.so"',
        'Environment="SIM_HOST=head-01 \\"x\\" 100%%"',
    ]
    assert simulated["files"][MODULES]["state"] == "absent"
    assert simulated["probes"][0]["command"] == [
        "env", "LD_PRELOAD=/usr/lib/libumad2sim.so", 'SIM_HOST=head-01 "x" 100%', "sminfo",
    ]  # fmt: skip
    assert "routing_engine minhop" in lines(simulated["files"][CONF])


@pytest.mark.parametrize("fabric", ["master", "simulated"])
def test_opensm_is_started_until_it_has_an_adapter(
    fabric: str, request: pytest.FixtureRequest
) -> None:
    """Without a port opensm ends with 0; a condition would be asked once, before udev is done."""
    files = request.getfixturevalue(fabric)["files"]
    unit = lines(files["/etc/systemd/system/baremetal-dgx-opensm@.service"])
    at = unit.index("[Service]")
    assert "StartLimitIntervalSec=0" in unit[:at]
    assert {"Restart=always", "RestartSec=5"} <= set(unit[at:])
    assert not [line for line in unit if line.startswith("Condition")]


def test_without_environment_opensm_speaks_through_the_kernel(
    master: dict[str, Any], tmp_path: Path
) -> None:
    assert lines(master["files"][MODULES]) == ["ib_umad"]
    (tmp_path / "module").mkdir()
    modprobe = tmp_path / "modprobe"
    modprobe.write_text(f'#!/bin/sh\nmkdir "{tmp_path}/module/$1"\n')
    modprobe.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SYS": str(tmp_path)}
    for loaded in ("ib_umad\n", ""):
        done = subprocess.run(
            ["sh", "-c", master["load"]],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, loaded)
    modprobe.write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "module/ib_umad").rmdir()
    done = subprocess.run(["sh", "-c", master["load"]], env=environment, check=False)
    assert done.returncode == 1
    drop_in = "/etc/systemd/system/baremetal-dgx-opensm@.service.d/environment.conf"
    assert master["files"][drop_in]["state"] == "absent"


def test_a_new_partition_is_no_restart(master: dict[str, Any]) -> None:
    (unit,) = master["units"]
    assert CONF in unit["restart_on"]
    assert unit["reload_on"][0] == "/etc/opensm/baremetal-dgx-partitions.conf"
    assert not set(unit["restart_on"]) & set(unit["reload_on"])


def test_flags_of_multicast_groups_are_a_restart(master: dict[str, Any], tmp_path: Path) -> None:
    """opensm takes over a group that is there, as it was, at each reload."""
    changes: dict[str, dict[str, Any]] = {
        "members": {"subnet_manager_partitions": []},
        "mtu": {"subnet_manager_mtu": 2048},
        "rate": {"subnet_manager_rate_gbps": 400},
        "ipoib": {"subnet_manager_ipoib": False},
    }
    inputs = {host: {**INPUTS, **change} for host, change in changes.items()}
    found = render_many(tmp_path, "subnet_manager", "Debian", inputs, {"units": SHOWN["units"]})
    keys = {host: answer["units"][0]["restart_key"] for host, answer in found.items()}
    assert keys.pop("members") == master["units"][0]["restart_key"]
    assert len({*keys.values(), master["units"][0]["restart_key"]}) == 4


def opensm(master: dict[str, Any], folder: Path, option: str = "") -> tuple[CommandResult, str]:
    """How opensm ended with one more option, and why managed_files would refuse it; "" if not."""
    if not shutil.which("opensm"):
        pytest.skip("opensm is not installed")
    (validation,) = master["validations"]
    text = f"{master['files'][CONF]['content']}{option}\n"
    (folder / "baremetal-dgx-compute.conf").write_text(text)
    command = validation["command"].replace("%(stage)s", str(folder)).split()
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    result = CommandResult(tuple(command), ENDED, done.returncode, done.stdout, done.stderr)
    return result, judge_validation(result, validation, False)[1]


def test_opensm_takes_the_configuration(master: dict[str, Any], tmp_path: Path) -> None:
    assert opensm(master, tmp_path)[1] == ""
    made = (tmp_path / "made-of-compute").read_text().splitlines()
    for line in lines(master["files"][CONF]):
        assert line in made or line.replace(",", ", ") in made


@pytest.mark.parametrize(
    ("option", "echo"),
    [
        ("perfmgr_log_errors FALSE", " Loading Cached Option:perfmgr_log_errors = FALSE"),
        ("log_file /var/log/errors.log", " Log File: /var/log/errors.log"),
    ],
)
def test_an_option_in_whose_echo_stands_error_is_taken(
    master: dict[str, Any], tmp_path: Path, option: str, echo: str
) -> None:
    result, refusal = opensm(master, tmp_path, option)
    assert echo in result.text.splitlines()
    assert refusal == ""


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("no_such_option 5", 'Unrecognized token: "no_such_option"'),
        ("max_wire_smps many", "-E- Parsing error in field max_wire_smps"),
        ("sm_priority 99", "Invalid Cached Option Value:sm_priority = 99"),
    ],
)
def test_what_opensm_does_not_take_is_refused(
    master: dict[str, Any], tmp_path: Path, option: str, words: str
) -> None:
    result, refusal = opensm(master, tmp_path, option)
    assert result.ok
    assert f"ended with 0 but says: {words}" in refusal


def test_refusals(tmp_path: Path) -> None:
    inputs = {
        "subnet_manager_hosts": ["head-01", "head-01"],
        "subnet_manager_fabrics": [{"name": "a b"}, {"name": "c", "guid": "0xzz"}],
        "subnet_manager_partitions": [
            {"name": "p", "pkey": "0x7fff", "full": ["all hosts"]},
            {"name": "q", "pkey": "0x8001"},
        ],
        "subnet_manager_settings": {"Bad Key": 1},
        "subnet_manager_environment": {"1X": "y"},
        "subnet_manager_routing_engine": "ar_updn",
        "subnet_manager_node_names_file": str(tmp_path / "none"),
    }
    only = {"refusals": SHOWN["refusals"]}
    reported = render(tmp_path, "subnet_manager", "Debian", inputs, only, "head-03")["refusals"]
    expected = [
        "subnet_manager_hosts: head-03 is not among them",
        "subnet_manager_hosts: a host is written twice",
        "subnet_manager_fabrics: several, and one without a guid",
        "subnet_manager_fabrics: of these or subnet_manager_partitions no GUIDs: 0xzz, all hosts;",
        "subnet_manager_fabrics: of these or subnet_manager_partitions no names: a b;",
        "subnet_manager_partitions: no PKeys: 0x8001, 0x7fff;",
        "subnet_manager_settings: no options of opensm.conf: Bad Key",
        "subnet_manager_environment: not names of variables: 1X",
        "subnet_manager_routing_engine: adaptive routing is",
        "subnet_manager_node_names_file: there is no",
    ]
    for line, start in zip(reported, expected, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("provider", "refused"), [("opensm", True), ("ufm", False), ("switch", False)]
)
def test_only_for_opensm_a_fabric_has_not_the_name_of_the_partitions(
    tmp_path: Path, provider: str, refused: bool
) -> None:
    inputs = {
        "subnet_manager_provider": provider, "subnet_manager_hosts": ["head-01"],
        "subnet_manager_fabrics": [{"name": "partitions"}],
    }  # fmt: skip
    only = {"refusals": SHOWN["refusals"]}
    reported = render(tmp_path, "subnet_manager", "Debian", inputs, only, "head-01")["refusals"]
    start = "subnet_manager_fabrics: partitions: /etc/opensm/baremetal-dgx-partitions.conf is the"
    assert [line[: len(start)] for line in reported] == refused * [start]


def test_what_opensm_would_make_one_partition_of_is_refused(tmp_path: Path) -> None:
    one = {"name": "one", "pkey": "0x0abc"}
    hosts = {
        "pkey": [one, {"name": "two", "pkey": "0x0ABC"}],
        "name": [one, {"name": "Two", "pkey": "0x0001"}, {"name": "one", "pkey": "0x0002"}],
        "default": [{"name": "Default", "pkey": "0x0001"}],
        "absent": [one, {"name": "one", "pkey": "0x0ABC", "state": "absent"}],
        "sound": [one, {"name": "two", "pkey": "0x0abd"}],
    }
    inputs = {
        host: {"subnet_manager_hosts": [host], "subnet_manager_partitions": partitions}
        for host, partitions in hosts.items()
    }
    only = {"refusals": SHOWN["refusals"]}
    found = render_many(tmp_path, "subnet_manager", "Debian", inputs, only)
    assert {host: [line[:48] for line in got["refusals"]] for host, got in found.items()} == {
        "pkey": ["subnet_manager_partitions: 0x0abc: written twice"],
        "name": ["subnet_manager_partitions: one: written twice (t"],
        "default": ["subnet_manager_partitions: Default: written twic"],
        "absent": [],
        "sound": [],
    }


UFM = {
    "subnet_manager_ufm_url": "https://ufm.example.org",
    "subnet_manager_ufm_token": "not a real one",
}
PORTS = [{"name": "tenant", "pkey": "0x0010", "full": ["946dae0300a1b2c3"]}]


@pytest.mark.parametrize(
    ("inputs", "start"),
    [
        ({**UFM, "subnet_manager_provider": "ufm"}, ""),
        (UFM, "subnet_manager_ufm_url: opensm manages the subnet"),
        ({"subnet_manager_provider": "ufm"}, "subnet_manager_partitions: UFM keeps the partitions"),
        (
            {**UFM, "subnet_manager_provider": "ufm", "subnet_manager_ufm_url": "http://ufm"},
            "subnet_manager_ufm_url: http://ufm; write https://",
        ),
        (
            {**UFM, "subnet_manager_provider": "ufm", "subnet_manager_ufm_token": ""},
            "subnet_manager_ufm_token: no account, or two; write",
        ),
        (
            {
                **UFM,
                "subnet_manager_provider": "ufm",
                "subnet_manager_partitions": [{"name": "p", "pkey": "0x0010", "full": ["ALL"]}],
            },
            "subnet_manager_partitions: ALL: only opensm knows such members",
        ),
    ],
)
def test_partitions_of_ufm(tmp_path: Path, inputs: dict[str, Any], start: str) -> None:
    only = {"refusals": SHOWN["refusals"]}
    given = {"subnet_manager_hosts": ["head-01"], "subnet_manager_partitions": PORTS, **inputs}
    reported = render(tmp_path, "subnet_manager", "Debian", given, only, "head-01")["refusals"]
    assert [line[: len(start)] for line in reported] == ([start] if start else [])


@pytest.mark.parametrize(("rate", "code"), [(100, 16), (400, 21), (800, 23)])
def test_codes_of_rates(tmp_path: Path, rate: int, code: int) -> None:
    files = shown(tmp_path, {**INPUTS, "subnet_manager_rate_gbps": rate})["files"]
    assert f", rate={code} :" in files["/etc/opensm/baremetal-dgx-partitions.conf"]["content"]


def test_an_absent_partition_is_not_in_opensm_s_file(tmp_path: Path) -> None:
    gone = [{"name": "old", "pkey": "0x0020", "state": "absent"}]
    files = shown(tmp_path, {**INPUTS, "subnet_manager_partitions": PORTS + gone})["files"]
    text = files["/etc/opensm/baremetal-dgx-partitions.conf"]["content"]
    assert "tenant=0x0010" in text
    assert "old" not in text


def test_a_fabric_by_rule_is_routed_as_the_fat_tree_that_it_is(tmp_path: Path) -> None:
    inputs = {"subnet_manager_hosts": ["head-01"], "subnet_manager_topology": "leaf_spine"}
    assert "\nrouting_engine ftree,updn\n" in shown(tmp_path, inputs)["files"][CONF]["content"]
