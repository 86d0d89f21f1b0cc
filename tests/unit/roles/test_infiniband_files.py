# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role infiniband would write and do, for each distribution and stack."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_render import ROLES, by_path, lines, played, render, render_many

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n=x\n-----END PGP PUBLIC KEY BLOCK-----\n"
RAILS = [
    {"rail": 0, "pci": "18:00.0", "rate_gbps": 400},
    {"rail": 1, "pci": "0000:4F:00.0", "rate_gbps": 400},
]
ADDRESSES = [
    {"port": "rail0", "address": "10.1.16.101/24", "mtu": 4092},
    {"port": "rail1", "address": "10.1.17.101/24"},
]
INPUTS: dict[str, Any] = {
    "infiniband_rails": RAILS,
    "infiniband_ports": [{"name": "storage0", "pci": "aa:00.0"}],
    "infiniband_addresses": ADDRESSES,
    "infiniband_gpus": ["1b:00.0"],
    "infiniband_nccl_socket_interface": "bond0",
    "infiniband_nccl_settings": {"NCCL_IB_TIMEOUT": 22, "NCCL_CROSS_NIC": ""},
}
SHOWN = {
    "package_files": "__infiniband_package_files[ansible_facts['os_family']]",
    "packages": "__infiniband_wanted_packages",
    "held": "__infiniband_held_packages",
    "files": "__infiniband_files",
    "manager": "__infiniband_network_manager",
    "units": "__infiniband_units | selectattr('when') | map(attribute='sync') | list",
    "refusals": "__infiniband_refusals | selectattr('when') | map(attribute='say') | list",
    "firmware": "__infiniband_firmware_findings",
    "renamed": "__infiniband_rename_paths",
    "modules": "__infiniband_modules",
    "load": "__infiniband_load",
}


def shown(folder: Path, distribution: str, inputs: dict[str, Any]) -> dict[str, Any]:
    result = render(folder, "infiniband", distribution, inputs, SHOWN)
    for kind in ("package_files", "files"):
        result[kind] = by_path(result[kind])
    return result


@pytest.fixture(scope="module")
def ubuntu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    inputs = {
        **INPUTS,
        "infiniband_stack": "doca",
        "infiniband_version": "3.2.0",
        "infiniband_repository": {"uris": ["file:/srv/doca"], "signed_by": KEY},
        "__infiniband_kernel": {"stdout": "6.8.0-1"},
        "__infiniband_stored": {
            "differences": [
                {"device": "0000:18:00.0", "setting": "SRIOV_EN", "before": "1", "after": "0"}
            ],
            "reset_pending": [
                {"device": "0000:18:00.0", "setting": "OTHER", "before": "1", "after": "0"},
                {"device": "0000:4f:00.0", "setting": "SRIOV_EN", "before": "1", "after": "0"},
            ],
        },
        "infiniband_firmware_settings": {"SRIOV_EN": False},
        "__infiniband_seen": {
            "misnamed": [
                {"rail": 1, "device": "mlx5_4", "name": "mlx5_rail1", "netdevs": ["ibp79s0"]}
            ]
        },
    }
    return shown(tmp_path_factory.mktemp("ubuntu"), "Ubuntu", inputs)


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return shown(tmp_path_factory.mktemp("debian"), "Debian", INPUTS)


@pytest.fixture(scope="module")
def rocky(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    inputs = {
        **INPUTS,
        "infiniband_link_layer": "Ethernet",
        "infiniband_stack": "mlnx_ofed",
        "infiniband_repository": {
            "uris": ["https://repo.example.org/x"],
            "signed_by": "/etc/pki/k",
        },
        "infiniband_gpudirect": "peermem",
        "__infiniband_kernel": {"stdout": "5.14.0-1.el9.x86_64"},
    }
    return shown(tmp_path_factory.mktemp("rocky"), "Rocky", inputs)


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    inputs = {**INPUTS, "infiniband_hardware": False, "infiniband_network_manager": "networkd"}
    return shown(tmp_path_factory.mktemp("pod"), "Debian", inputs)


@pytest.fixture(scope="module")
def networkd(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    inputs = {
        **INPUTS,
        "infiniband_network_manager": "networkd",
        "infiniband_other_names": "kernel",
    }
    return shown(tmp_path_factory.mktemp("networkd"), "Debian", inputs)


def test_nothing_is_refused(
    ubuntu: dict[str, Any], debian: dict[str, Any], rocky: dict[str, Any], pod: dict[str, Any]
) -> None:
    for result in (ubuntu, debian, rocky, pod):
        assert result["refusals"] == []


def test_rdma_names(debian: dict[str, Any], networkd: dict[str, Any]) -> None:
    path = "/etc/udev/rules.d/60-rdma-persistent-naming.rules"
    rules = lines(debian["files"][path])
    device = 'ACTION=="add", SUBSYSTEM=="infiniband", KERNELS=="0000:4f:00.0"'
    assert rules[2] == (
        f'{device}, KERNEL!="mlx5_rail1", PROGRAM="rdma_rename %k NAME_FIXED mlx5_rail1", '
        'GOTO="baremetal_dgx_end"'
    )
    # renamed already, or not able to be: no other rule may name it
    assert rules[3] == f'{device}, GOTO="baremetal_dgx_end"'
    assert 'KERNELS=="0000:aa:00.0"' in rules[4]
    assert "mlx5_storage0" in rules[4]
    assert rules[-2].endswith('PROGRAM="rdma_rename %k NAME_FALLBACK"')
    assert rules[-1] == 'LABEL="baremetal_dgx_end"'
    assert "NAME_KERNEL" in lines(networkd["files"][path])[-2]


def test_interface_names(debian: dict[str, Any], rocky: dict[str, Any]) -> None:
    path = "/etc/udev/rules.d/70-baremetal-dgx-rails.rules"
    rule = 'ACTION=="add", SUBSYSTEM=="net", KERNELS=="0000:18:00.0", KERNEL!="*.*", '
    assert lines(debian["files"][path])[0] == rule + 'ATTR{type}=="32", NAME="ibrail0"'
    assert lines(rocky["files"][path])[0] == rule + 'ATTR{type}=="1", NAME="rail0"'


def test_nccl(debian: dict[str, Any], rocky: dict[str, Any]) -> None:
    assert lines(debian["files"]["/etc/nccl.conf"]) == [
        # without = every name would be a prefix
        "NCCL_IB_HCA==mlx5_rail0:1,mlx5_rail1:1",
        "NCCL_IB_TIMEOUT=22",
        "NCCL_SOCKET_IFNAME==bond0",
    ]
    assert "/etc/nccl.conf" not in rocky["files"]


def test_stacks_of_debian(ubuntu: dict[str, Any], debian: dict[str, Any]) -> None:
    assert "rdma-core" in debian["packages"]
    assert debian["held"] == []
    gone = debian["package_files"]["/etc/apt/sources.list.d/baremetal-dgx-rdma.sources"]
    assert gone["state"] == "absent"
    assert ubuntu["packages"] == ["doca-ofed=3.2.0*", "pciutils", "dkms", "linux-headers-6.8.0-1"]
    assert ubuntu["held"] == ["doca-ofed"]
    source = lines(ubuntu["package_files"]["/etc/apt/sources.list.d/baremetal-dgx-rdma.sources"])
    assert source == [
        "Types: deb", "URIs: file:/srv/doca", "Suites: ./", "Signed-By:",
        " -----BEGIN PGP PUBLIC KEY BLOCK-----", " .", " abc", " =x",
        " -----END PGP PUBLIC KEY BLOCK-----",
    ]  # fmt: skip
    pin = lines(ubuntu["package_files"]["/etc/apt/preferences.d/baremetal-dgx-rdma"])
    assert pin == ["Package: dkms", "Pin: release o=Ubuntu", "Pin-Priority: 1001"]
    assert [unit["name"] for unit in ubuntu["units"]] == [
        "openibd.service", "baremetal-dgx-fabric-settings.service",
    ]  # fmt: skip


def test_stack_of_redhat(rocky: dict[str, Any]) -> None:
    assert rocky["packages"] == [
        "mlnx-ofed-all", "pciutils", "dkms", "kernel-devel-5.14.0-1.el9.x86_64",
    ]  # fmt: skip
    assert lines(rocky["package_files"]["/etc/yum.repos.d/baremetal-dgx-rdma.repo"]) == [
        "[baremetal-dgx-rdma]", "name=NVIDIA RDMA", "baseurl=https://repo.example.org/x",
        "enabled=1", "priority=10", "gpgcheck=1", "gpgkey=file:///etc/pki/k",
    ]  # fmt: skip
    modules = lines(rocky["files"]["/etc/modules-load.d/baremetal-dgx-fabric.conf"])
    assert modules == ["ib_umad", "rdma_ucm", "nvidia-peermem"]


def test_netplan(ubuntu: dict[str, Any]) -> None:
    entry = ubuntu["files"]["/etc/netplan/90-baremetal-dgx-rails.yaml"]
    assert (ubuntu["manager"], entry["mode"]) == ("netplan", "0600")
    ports = yaml.safe_load(entry["content"])["network"]["ethernets"]
    assert ports["ibrail0"] == {
        "optional": True, "dhcp4": False, "dhcp6": False, "addresses": ["10.1.16.101/24"],
        "mtu": 4092,
    }  # fmt: skip
    assert "mtu" not in ports["ibrail1"]


def test_ifupdown(debian: dict[str, Any]) -> None:
    assert debian["manager"] == "ifupdown"
    assert lines(debian["files"]["/etc/network/interfaces.d/baremetal-dgx-rails"]) == [
        "allow-hotplug ibrail0", "iface ibrail0 inet static", "    address 10.1.16.101/24",
        "    pre-up ip link set dev $IFACE mtu 4092",
        "allow-hotplug ibrail1", "iface ibrail1 inet static", "    address 10.1.17.101/24",
    ]  # fmt: skip


def test_networkd(networkd: dict[str, Any]) -> None:
    entry = networkd["files"]["/etc/systemd/network/70-baremetal-dgx-ibrail0.network"]
    parsed = configparser.ConfigParser()
    parsed.read_string(entry["content"])
    assert parsed["Match"]["Name"] == "ibrail0"
    assert parsed["Link"]["MTUBytes"] == "4092"
    assert parsed["Network"]["Address"] == "10.1.16.101/24"


def test_networkmanager(rocky: dict[str, Any]) -> None:
    entry = rocky["files"]["/etc/NetworkManager/system-connections/rail0.nmconnection"]
    assert (rocky["manager"], entry["mode"]) == ("networkmanager", "0600")
    parsed = configparser.ConfigParser()
    parsed.read_string(entry["content"])
    assert parsed["connection"]["type"] == "ethernet"
    assert parsed["connection"]["interface-name"] == "rail0"
    assert parsed["ethernet"]["mtu"] == "4092"
    assert parsed["ipv4"]["address1"] == "10.1.16.101/24"
    other = rocky["files"]["/etc/NetworkManager/system-connections/rail1.nmconnection"]
    assert parsed["connection"]["uuid"] not in other["content"]


# A leaf with a router for all its ports, and a subnet of two addresses for one port.
ROUTED = [
    {
        "port": "rail0",
        "address": "10.1.16.101/24",
        "source": "10.1.16.101",
        "gateway": "10.1.16.1",
        "table": 1000,
        "routes": [
            {"to": "10.1.16.0/24", "table": 1000},
            {"to": "0.0.0.0/0", "via": "10.1.16.1", "table": 1000},
        ],
    },
    {
        "port": "rail1",
        "address": "172.17.0.1/31",
        "source": "172.17.0.1",
        "gateway": "172.17.0.0",
        "table": 1001,
        "routes": [
            {"to": "172.17.0.0/16", "via": "172.17.0.0"},
            {"to": "0.0.0.0/0", "via": "172.17.0.0", "table": 1001},
        ],
    },
]


def routed(folder: Path, manager: str, **more: Any) -> dict[str, Any]:
    inputs = {
        **INPUTS,
        "infiniband_link_layer": "Ethernet",
        "infiniband_addresses": ROUTED,
        "infiniband_network_manager": manager,
        **more,
    }
    return shown(folder, "Debian", inputs)


def test_routes_by_netplan(tmp_path: Path) -> None:
    entry = routed(tmp_path, "netplan")["files"]["/etc/netplan/90-baremetal-dgx-rails.yaml"]
    ports = yaml.safe_load(entry["content"])["network"]["ethernets"]
    assert ports["rail0"]["routes"] == [
        {"to": "10.1.16.0/24", "scope": "link", "table": 1000},
        {"to": "0.0.0.0/0", "via": "10.1.16.1", "table": 1000},
    ]
    assert ports["rail0"]["routing-policy"] == [
        {"from": "10.1.16.101", "table": 1000, "priority": 1000}
    ]
    assert ports["rail1"]["routes"][0] == {"to": "172.17.0.0/16", "via": "172.17.0.0"}


def test_routes_by_networkd(tmp_path: Path) -> None:
    entry = routed(tmp_path, "networkd")["files"]
    path = "/etc/systemd/network/70-baremetal-dgx-{}.network"
    text = [line for line in lines(entry[path.format("rail0")]) if line]
    assert text[text.index("[Route]") :] == [
        "[Route]", "Destination=10.1.16.0/24", "Scope=link", "Table=1000",
        "[Route]", "Destination=0.0.0.0/0", "Gateway=10.1.16.1", "Table=1000",
        "[RoutingPolicyRule]", "From=10.1.16.101", "Table=1000", "Priority=1000",
    ]  # fmt: skip
    text = [line for line in lines(entry[path.format("rail1")]) if line]
    assert text[text.index("[Route]") :][:3] == [
        "[Route]", "Destination=172.17.0.0/16", "Gateway=172.17.0.0",
    ]  # fmt: skip


def test_routes_by_networkmanager(tmp_path: Path) -> None:
    entry = routed(tmp_path, "networkmanager")["files"]
    parsed = configparser.ConfigParser()
    folder = "/etc/NetworkManager/system-connections"
    parsed.read_string(entry[f"{folder}/rail0.nmconnection"]["content"])
    four = {name: value for name, value in parsed["ipv4"].items() if "rout" in name}
    assert four == {
        "route1": "10.1.16.0/24",
        "route1_options": "table=1000",
        "route2": "0.0.0.0/0,10.1.16.1",
        "route2_options": "table=1000",
        "routing-rule1": "priority 1000 from 10.1.16.101 table 1000",
    }
    parsed.read_string(entry[f"{folder}/rail1.nmconnection"]["content"])
    assert parsed["ipv4"]["route1"] == "172.17.0.0/16,172.17.0.0"


def test_routes_by_ifupdown(tmp_path: Path) -> None:
    entry = routed(tmp_path, "ifupdown")["files"]["/etc/network/interfaces.d/baremetal-dgx-rails"]
    text = [line.strip() for line in lines(entry)]
    assert text[text.index("address 172.17.0.1/31") + 1 :] == [
        "up ip route replace 172.17.0.0/16 via 172.17.0.0 dev $IFACE",
        "up ip route replace 0.0.0.0/0 via 172.17.0.0 dev $IFACE table 1001",
        (
            'up test -n "$(ip rule show priority 1001)" || '
            "ip rule add from 172.17.0.1 table 1001 priority 1001"
        ),
        "down ip rule del priority 1001",
    ]
    assert "up ip route replace 10.1.16.0/24 scope link dev $IFACE table 1000" in text


def test_what_is_applied_is_verified() -> None:
    """One module asks the same of the same addresses; only the service phase changes something."""
    calls = {
        path: [
            task["baremetal.dgx.rail_addresses"]
            for task in yaml.safe_load((ROLES / f"infiniband/tasks/{path}.yml").read_text())
            if "baremetal.dgx.rail_addresses" in task
        ]
        for path in ("service", "verify")
    }
    (applied,), (verified,) = calls["service"], calls["verify"]
    assert applied.pop("apply")
    # verify waits, and is red.
    assert (applied.pop("fail_on"), verified.pop("wait_s")) == ([], 10)
    assert applied == verified


@pytest.mark.parametrize("manager", ["netplan", "networkd", "ifupdown", "networkmanager"])
def test_each_network_service_gets_the_names_of_the_interfaces(
    tmp_path: Path, manager: str
) -> None:
    inputs = {**INPUTS, "infiniband_network_manager": manager}
    argv = "['sh', '-c', __infiniband_apply[__infiniband_network_manager], 'sh']"
    command = render(tmp_path, "infiniband", "Debian", inputs, {"argv": argv})["argv"]
    for name in ("netplan", "networkctl", "ifdown", "ifup", "nmcli"):
        (tmp_path / name).write_text(
            f'#!/bin/sh\ncase "$*" in *ibrail9) exit 1 ;; esac; echo "{name} $*"\n'
        )
        (tmp_path / name).chmod(0o755)

    def applied(*names: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [*command, *names], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout.splitlines()

    each = {
        "netplan": ["netplan apply"],
        "networkd": [
            "networkctl reload", "networkctl reconfigure ibrail0", "networkctl reconfigure ibrail1",
        ],
        "ifupdown": [
            f"{word} --force ibrail{rail}" for rail in (0, 1) for word in ("ifdown", "ifup")
        ],
        "networkmanager": [
            "nmcli connection reload", "nmcli connection up ibrail0", "nmcli connection up ibrail1",
        ],
    }  # fmt: skip
    assert applied("ibrail0", "ibrail1") == (0, each[manager])
    if manager != "netplan":
        code, done = applied("ibrail9", "ibrail0")
        assert (code, [line for line in done if "ibrail0" in line]) == (1, [])


def test_files_of_addresses_that_are_no_longer_declared_go(tmp_path: Path) -> None:
    folder = "etc/NetworkManager/system-connections"
    root = tmp_path / "root"
    for path in (
        "etc/systemd/network/70-baremetal-dgx-ibrail1.network",
        "etc/systemd/network/70-baremetal-dgx-ibrail7.network",
        "etc/systemd/network/60-baremetal-dgx-host-eno1.network",
        "etc/netplan/90-baremetal-dgx-rails.yaml",
        "etc/netplan/50-site.yaml",
        f"{folder}/ibrail0.nmconnection",
        f"{folder}/ibrail1.nmconnection",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("uuid=00000000-0000-0000-0000-000000000000\n")
    shown_too = {
        "files": SHOWN["files"], "find": "__infiniband_find_files", "uuids": "__infiniband_uuids",
    }  # fmt: skip

    def hosts(*written: str) -> Any:
        seen = {**INPUTS, "__infiniband_written": {"stdout_lines": list(written)}}
        by_networkd = {**seen, "infiniband_network_manager": "networkd"}
        inputs = {
            "fewer": {**by_networkd, "infiniband_addresses": ADDRESSES[1:]},
            "none": {**by_networkd, "infiniband_addresses": []},
            "nm": {**seen, "infiniband_network_manager": "networkmanager"},
        }
        return render_many(tmp_path, "infiniband", "Debian", inputs, shown_too)

    def finds(one: Any) -> list[str]:
        return subprocess.run(
            ["sh", "-c", one["find"], "sh", one["uuids"]],
            env={"PATH": os.environ["PATH"], "ROOT": str(root)},
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip

    found = hosts()
    # What NetworkManager was given is known by its uuid.
    made = by_path(found["nm"]["files"])[f"/{folder}/ibrail1.nmconnection"]["content"]
    (root / folder / "ibrail1.nmconnection").write_text(made)
    written = finds(found["nm"])
    assert written == [
        "/etc/systemd/network/70-baremetal-dgx-ibrail1.network",
        "/etc/systemd/network/70-baremetal-dgx-ibrail7.network",
        "/etc/netplan/90-baremetal-dgx-rails.yaml",
        f"/{folder}/ibrail1.nmconnection",
    ]
    gone = {
        host: {
            path
            for path in by_path(one["files"])
            if path in written and by_path(one["files"])[path].get("state") == "absent"
        }
        for host, one in hosts(*written).items()
    }
    assert gone == {"fewer": set(written[1:]), "none": set(written), "nm": set(written[:3])}


SOURCES = "# all\n  source /etc/network/interfaces.d/*\n"


@pytest.mark.parametrize(
    ("interfaces", "tools", "manager"),
    [
        (SOURCES, ("ifup", "netplan", "systemd-networkd.service"), "ifupdown"),
        ("source-directory interfaces.d\n", ("ifup",), "ifupdown"),
        (SOURCES, ("netplan", "NetworkManager.service"), "netplan"),
        (
            "#source /etc/network/interfaces.d/*\n",
            ("ifup", "NetworkManager.service"),
            "networkmanager",
        ),
        (None, ("ifup", "systemd-networkd.service"), "networkd"),
        ("source /etc/network/interfaces.d/lo\n", ("ifup",), ""),
    ],
)
def test_debian_has_the_service_that_reads_the_files_at_a_boot(
    tmp_path: Path, interfaces: str | None, tools: tuple[str, ...], manager: str
) -> None:
    (script,) = [
        task["vars"]["__infiniband_find"]
        for task in yaml.safe_load((ROLES / "infiniband/tasks/set_vars.yml").read_text())
        if "vars" in task
    ]
    if interfaces is not None:
        (tmp_path / "interfaces").write_text(interfaces)
    running = "".join(f"'{tool}') exit 0 ;; " for tool in tools if tool.endswith(".service"))
    stand_ins = {"systemctl": f'case "$3" in {running}*) exit 3 ;; esac'}
    stand_ins.update({tool: "exit 0" for tool in tools if not tool.endswith(".service")})
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "INTERFACES": str(tmp_path / "interfaces")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == (f"{manager}\n" if manager else "")


def test_debian_takes_what_was_found(tmp_path: Path) -> None:
    found = {"ifupdown": "ifupdown", "networkd": "networkd", "nothing": ""}
    inputs = {
        name: {**INPUTS, "__infiniband_found": {"stdout": text}} for name, text in found.items()
    }
    inputs["unasked"] = {**INPUTS, "__infiniband_found": {"skipped": True}}
    shown_too = {"manager": SHOWN["manager"]}
    rendered = render_many(tmp_path, "infiniband", "Debian", inputs, shown_too)
    assert {name: one["manager"] for name, one in rendered.items()} == {
        "ifupdown": "ifupdown", "networkd": "networkd", "nothing": "ifupdown",
        "unasked": "ifupdown",
    }  # fmt: skip


def test_ifupdown_that_does_not_read_the_files_is_refused(tmp_path: Path) -> None:
    """The addresses would be there until the next boot."""
    tasks = yaml.safe_load((ROLES / "infiniband/tasks/preflight.yml").read_text())
    (task,) = [one for one in tasks if "reads the addresses at a boot" in one["name"]]
    play = {"hosts": "all", "gather_facts": False, "tasks": [task]}
    common = {"__infiniband_writes_addresses": True, "__infiniband_network_manager": "ifupdown"}
    hosts = {
        "reads": {**common, "__infiniband_found": {"stdout": "ifupdown"}},
        "asked-not": {**common, "__infiniband_found": {"skipped": True}},
        "other": {**common, "__infiniband_found": {"stdout": "networkd"}},
        "nothing": {**common, "__infiniband_found": {"stdout": ""}},
    }
    done = played(tmp_path, hosts, play)
    failed = re.findall(r"(?m)^(\S+) +: ok=\d+ .*failed=1 ", done.stdout)
    assert sorted(failed) == ["nothing", "other"], done.stdout
    assert "write `source /etc/network/interfaces.d/*` into /etc/network/interfaces" in done.stdout


def test_firmware_findings(ubuntu: dict[str, Any]) -> None:
    different, pending = ubuntu["firmware"]
    assert different.endswith("allow it with infiniband_firmware_settings_allowed: true")
    assert pending.startswith("0000:4f:00.0 SRIOV_EN becomes 0 when the adapter is reset")


def test_what_udev_is_told_to_rename(ubuntu: dict[str, Any], debian: dict[str, Any]) -> None:
    assert ubuntu["renamed"] == ["/sys/class/infiniband/mlx5_4", "/sys/class/net/ibp79s0"]
    assert debian["renamed"] == []


def test_modules_that_are_not_there_are_loaded_at_once(
    debian: dict[str, Any], tmp_path: Path
) -> None:
    wanted = ["ib_umad", "rdma_ucm", "ib_ipoib"]
    assert lines(debian["files"]["/etc/modules-load.d/baremetal-dgx-fabric.conf"]) == wanted
    assert debian["modules"] == wanted
    (tmp_path / "module" / "ib_umad").mkdir(parents=True)
    modprobe = tmp_path / "modprobe"
    modprobe.write_text(
        f'#!/bin/sh\n[ "$1" != rdma_ucm ] || exit "$FAILS"; mkdir {tmp_path}/module/$1'
    )
    modprobe.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    def load(fails: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", debian["load"], "sh", *wanted],
            env={"PATH": path, "SYS": str(tmp_path), "FAILS": fails},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert load("1").returncode == 1
    done = load("0")
    assert (done.returncode, done.stdout) == (0, "rdma_ucm\nib_ipoib\n")


def test_a_pod_has_files_and_no_units(pod: dict[str, Any]) -> None:
    assert pod["units"] == []
    assert "/etc/udev/rules.d/60-rdma-persistent-naming.rules" in pod["files"]
    assert not [path for path in pod["files"] if path.startswith("/etc/systemd/network")]
    modules = pod["files"]["/etc/modules-load.d/baremetal-dgx-fabric.conf"]
    assert modules["state"] == "absent"


def test_refusals(tmp_path: Path) -> None:
    inputs = {
        "infiniband_rails": [
            RAILS[0],
            {**RAILS[0], "rail": 1},
            {**RAILS[0], "rail": 2, "pci": "x"},
        ],
        "infiniband_ports": [{"name": "Storage", "pci": "aa:00.0"}],
        "infiniband_addresses": [{"port": "rail9", "address": "10.1.1.1"}],
        "infiniband_stack": "doca",
        "infiniband_nccl_settings": {"nccl": 1},
        "__infiniband_kernel": {"stdout": "1"},
    }
    only = {"refusals": SHOWN["refusals"]}
    reported = render(tmp_path, "infiniband", "Debian", inputs, only)["refusals"]
    expected = [
        "infiniband_rails: of these or infiniband_ports no PCI addresses: x; write one like",
        "infiniband_rails: a name or a PCI address of these or infiniband_ports is written twice",
        "infiniband_ports: no names of ports: Storage;",
        "infiniband_addresses: no port is called rail9; write one of rail0, rail1, rail2",
        "infiniband_addresses: 10.1.1.1; write ADDRESS/BITS",
        "infiniband_repository.uris: empty, but infiniband_stack is doca",
        "infiniband_repository.signed_by: empty; give the public key",
        "infiniband_nccl_settings: no settings of NCCL: nccl",
    ]
    for line, start in zip(reported, expected, strict=True):
        assert line.startswith(start)


# --- the script that runs at boot ---

SETPCI = """\
#!/bin/sh
# -s ADDRESS REGISTER[=VALUE]; bridges whose address ends in 02.0 have no ACS
echo "$*" >> "$LOG"
case $2:$3 in *:02.0:ECAP_ACS*) exit 1 ;; esac
test "$FAIL" != "$2"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Runs the script on two adapters and a GPU; returns (rc, what setpci got)."""
    for path in (
        "pci0000:10/0000:10:01.0/0000:11:00.0/0000:18:00.0",
        "pci0000:10/0000:10:01.0/0000:11:00.0/0000:1b:00.0",
        "pci0000:40/0000:40:02.0/0000:4f:00.0",
    ):
        function = tmp_path / "devices" / path
        function.mkdir(parents=True)
        link = tmp_path / "bus/pci/devices" / function.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(function)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/setpci").write_text(SETPCI)
    (tmp_path / "bin/setpci").chmod(0o755)

    def run(**changes: str) -> tuple[int, list[str]]:
        (tmp_path / "log").write_text("")
        environment = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "SYSFS": str(tmp_path),
            "LOG": str(tmp_path / "log"),
            "FAIL": "",
            "ADAPTERS": "0000:18:00.0 0000:4f:00.0 0000:99:00.0",
            "GPUS": "0000:1b:00.0",
            "MAX_READ_REQUEST": "4096",
            "ACS_OFF": "yes",
            "RELAXED_ORDERING": "keep",
            **changes,
        }
        script = ROLES / "infiniband/files/baremetal-dgx-fabric-settings"
        done = subprocess.run(
            ["sh", str(script)], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, (tmp_path / "log").read_text().splitlines()

    return run


def test_settings_are_applied_to_what_is_there(settings: Any) -> None:
    code, output = settings()
    assert code == 0
    assert output == [
        "-s 0000:18:00.0 CAP_EXP+8.w=5000:7000",
        "-s 0000:4f:00.0 CAP_EXP+8.w=5000:7000",
        # each bridge once, and none that has no ACS
        "-s 0000:10:01.0 ECAP_ACS+6.w",
        "-s 0000:10:01.0 ECAP_ACS+6.w=0000",
        "-s 0000:11:00.0 ECAP_ACS+6.w",
        "-s 0000:11:00.0 ECAP_ACS+6.w=0000",
        "-s 0000:40:02.0 ECAP_ACS+6.w",
    ]


def test_settings_that_are_left_alone(settings: Any) -> None:
    assert settings(MAX_READ_REQUEST="0", ACS_OFF="no") == (0, [])
    code, output = settings(MAX_READ_REQUEST="512", ACS_OFF="no", RELAXED_ORDERING="on", GPUS="")
    assert code == 0
    assert output[:2] == [
        "-s 0000:18:00.0 CAP_EXP+8.w=2000:7000",
        "-s 0000:18:00.0 CAP_EXP+8.w=0010:0010",
    ]


def test_settings_that_fail_do_not_keep_the_others_back(settings: Any) -> None:
    code, output = settings(FAIL="0000:18:00.0")
    assert code == 1
    assert len(output) == 7
    assert settings(MAX_READ_REQUEST="5")[0] == 1
