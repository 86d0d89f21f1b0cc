# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role node_network would write for each backend, and its script with the way back."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_render import ROLES, by_path, lines, render

SCRIPT = ROLES / "node_network/files/baremetal-dgx-network"
WANTED = "/var/lib/baremetal-dgx/network/wanted/"
SHOWN = {
    "own": "__node_network_own_files",
    "files": "__node_network_wanted",
    "refusals": "__node_network_refusals | selectattr('when') | map(attribute='say') | list",
    "conflicts": "__node_network_conflicts | selectattr('when') | map(attribute='say') | list",
}
BOND = {
    "name": "bond0", "members": ["enp1s0f0", "enp1s0f1"], "mtu": 9000,
    "addresses": ["10.1.0.11/24", "fd00::b/64"], "gateway": "10.1.0.1",
    "routes": [{"to": "10.8.0.0/16", "via": "10.1.0.2", "metric": 50}],
}  # fmt: skip
VLAN = {"name": "bond0.20", "parent": "bond0", "vlan": 20, "addresses": ["10.2.0.11/24"]}
PLAIN = {"name": "eno1", "dhcp": True}
INPUTS: dict[str, Any] = {
    "node_network_interfaces": [BOND, VLAN, PLAIN],
    "node_network_dns_servers": ["10.1.0.53", "fd00::53"],
    "node_network_dns_search": ["cluster.example.org"],
    "node_network_replaces": ["/etc/a b.nmconnection", "/etc/netplan/50-cloud-init.yaml"],
    "__node_network_found": {"stdout_lines": ["networkd"]},
}


def written(folder: Path, backend: str, distribution: str = "Debian") -> dict[str, str]:
    result = render(
        folder, "node_network", distribution, {**INPUTS, "node_network_backend": backend}, SHOWN
    )
    assert result["refusals"] == result["conflicts"] == []
    files = by_path(result["files"])
    assert all(path.startswith(WANTED) for path in files)
    settings = by_path(result["own"])["/var/lib/baremetal-dgx/network/settings"]["content"]
    named = next(line for line in settings.splitlines() if line.startswith("FILES="))
    assert named == "FILES={}".format(shlex.quote(" ".join(path[len(WANTED) :] for path in files)))
    # In the order of the inventory: a set's own would change from run to run.
    assert "PHYSICAL='eno1 enp1s0f0 enp1s0f1'" in settings
    assert "VIRTUAL='bond0 bond0.20'" in settings
    assert "REPLACES='/etc/a b.nmconnection\n/etc/netplan/50-cloud-init.yaml'\n" in settings
    assert "BELOW='bond0 enp1s0f0 enp1s0f1\nbond0.20 bond0\n'" in settings
    return {path[len(WANTED) :]: one["content"] for path, one in files.items()}


def test_netplan(tmp_path: Path) -> None:
    files = written(tmp_path, "netplan", "Ubuntu")
    assert list(files) == ["60-baremetal-dgx-host.yaml"]
    assert yaml.safe_load(files["60-baremetal-dgx-host.yaml"])["network"] == {
        "version": 2,
        "ethernets": {
            "eno1": {"dhcp4": True, "dhcp6": False},
            "enp1s0f0": {"dhcp4": False, "dhcp6": False, "mtu": 9000},
            "enp1s0f1": {"dhcp4": False, "dhcp6": False, "mtu": 9000},
        },
        "bonds": {
            "bond0": {
                "interfaces": ["enp1s0f0", "enp1s0f1"],
                "parameters": {
                    "mode": "802.3ad",
                    "mii-monitor-interval": 100,
                    "transmit-hash-policy": "layer3+4",
                    "lacp-rate": "fast",
                },
                "dhcp4": False,
                "dhcp6": False,
                "mtu": 9000,
                "addresses": ["10.1.0.11/24", "fd00::b/64"],
                "routes": [
                    {"to": "default", "via": "10.1.0.1"},
                    {"to": "10.8.0.0/16", "via": "10.1.0.2", "metric": 50},
                ],
                "nameservers": {
                    "addresses": ["10.1.0.53", "fd00::53"],
                    "search": ["cluster.example.org"],
                },
            }
        },
        "vlans": {
            "bond0.20": {
                "id": 20, "link": "bond0", "dhcp4": False, "dhcp6": False,
                "addresses": ["10.2.0.11/24"],
            }
        },
    }  # fmt: skip


def test_networkd(tmp_path: Path) -> None:
    files = written(tmp_path, "networkd")
    shown = {
        name.removeprefix("60-baremetal-dgx-host-"): lines({"content": text})
        for name, text in files.items()
    }
    assert shown == {
        "bond0.network": [
            "[Match]", "Name=bond0", "[Link]", "MTUBytes=9000", "[Network]", "DHCP=no",
            "IPv6AcceptRA=no", "Address=10.1.0.11/24", "Address=fd00::b/64", "Gateway=10.1.0.1",
            "DNS=10.1.0.53", "DNS=fd00::53", "Domains=cluster.example.org", "VLAN=bond0.20",
            "[Route]", "Destination=10.8.0.0/16", "Gateway=10.1.0.2", "Metric=50",
        ],
        "bond0.20.network": [
            "[Match]", "Name=bond0.20", "[Network]", "DHCP=no", "IPv6AcceptRA=no",
            "Address=10.2.0.11/24",
        ],
        "eno1.network": [
            "[Match]", "Name=eno1", "[Network]", "DHCP=ipv4", "IPv6AcceptRA=no",
        ],
        "enp1s0f0.network": [
            "[Match]", "Name=enp1s0f0", "[Link]", "MTUBytes=9000", "[Network]", "Bond=bond0",
        ],
        "enp1s0f1.network": [
            "[Match]", "Name=enp1s0f1", "[Link]", "MTUBytes=9000", "[Network]", "Bond=bond0",
        ],
        "bond0.netdev": [
            "[NetDev]", "Name=bond0", "Kind=bond", "MTUBytes=9000", "[Bond]", "Mode=802.3ad",
            "MIIMonitorSec=100ms", "TransmitHashPolicy=layer3+4", "LACPTransmitRate=fast",
        ],
        "bond0.20.netdev": ["[NetDev]", "Name=bond0.20", "Kind=vlan", "[VLAN]", "Id=20"],
    }  # fmt: skip


def test_networkmanager(tmp_path: Path) -> None:
    files = written(tmp_path, "networkmanager", "Rocky")
    read = {}
    for name, text in files.items():
        parser = configparser.ConfigParser(strict=True)
        parser.read_string(text)
        own = {part: dict(parser[part]) for part in parser.sections()}
        assert len(own["connection"].pop("uuid")) == 36
        read[name.removeprefix("baremetal-dgx-host-").removesuffix(".nmconnection")] = own
    assert list(read) == ["bond0", "bond0.20", "eno1", "enp1s0f0", "enp1s0f1"]
    assert read["bond0"] == {
        "connection": {
            "id": "baremetal-dgx-host-bond0", "type": "bond", "interface-name": "bond0",
            "autoconnect": "true", "autoconnect-priority": "100", "autoconnect-slaves": "1",
        },
        "ethernet": {"mtu": "9000"},
        "bond": {
            "mode": "802.3ad", "miimon": "100", "xmit_hash_policy": "layer3+4", "lacp_rate": "fast",
        },
        "ipv4": {
            "method": "manual", "address1": "10.1.0.11/24", "gateway": "10.1.0.1",
            "route1": "10.8.0.0/16,10.1.0.2,50", "dns": "10.1.0.53;",
            "dns-search": "cluster.example.org;",
        },
        "ipv6": {
            "method": "manual", "address1": "fd00::b/64", "dns": "fd00::53;",
            "dns-search": "cluster.example.org;",
        },
    }  # fmt: skip
    assert read["bond0.20"]["vlan"] == {"id": "20", "parent": "bond0"}
    assert read["bond0.20"]["ipv6"] == {"method": "link-local"}
    assert read["eno1"]["ipv4"] == {"method": "auto"}
    assert (
        read["enp1s0f1"]["connection"] | {"master": "bond0", "slave-type": "bond"}
        == (read["enp1s0f1"]["connection"])
    )
    assert "ipv4" not in read["enp1s0f1"]


def test_refusals(tmp_path: Path) -> None:
    inputs = {
        "node_network_interfaces": [
            {"name": "eth 0"},
            {"name": "bond0", "members": ["eth1", "eth1"], "gateway": "10.1.0.1"},
            {"name": "eth3.7", "parent": "eth3", "vlan": 7},
            {"name": "eth2.7", "parent": "eth2", "gateway": "10.2.0.1"},
            {"name": "eth5.7", "parent": "$(id)", "vlan": 7, "gateway": "10.1.0.1\nDNS=1.1.1.1"},
            {
                "name": "eth4",
                "addresses": [
                    "10.9.0.5",
                    "10.9.0.6/255.255.255.0",
                    "2001:DB8:0::5/64",
                    "$(id)/24",
                    "`id`/24",
                    "fe80::1%$(id)/64",
                    '10.9.0.7"/24',
                    "10.9.0.8/24\n",
                ],
                "routes": [
                    {"to": "10.8.0.0/255.255.0.0", "via": "10.9.0.1"},
                    {"to": "10.7.0.1", "via": "10.9.0.1"},
                    {"to": "10.6.0.0/16\n", "via": "$(id)"},
                ],
            },
        ],
        "node_network_dns_servers": ["fd00::53", "10.1.0.53\nGateway=10.1.0.9"],
        "node_network_dns_search": ["~.", "a-1.example.org", "b c"],
        "node_network_replaces": [
            "/etc/netplan/fine here.yaml",
            "/a$(reboot)",
            "/b`",
            '/c"',
            "/d\\e",
            "/f\n/g",
            "/h ",
        ],
        "node_network_confirm_s": 5,
        "__node_network_found": {"stdout_lines": ["none", "/etc/network/interfaces"]},
    }
    result = render(
        tmp_path, "node_network", "Debian", inputs, {**SHOWN, "files": "[]", "own": "[]"}
    )
    starts = [
        'node_network_interfaces: "eth 0", "$(id)" is not the name',
        "node_network_interfaces: eth1: written twice",
        "node_network_interfaces: eth2.7 has no VLAN tag",
        (
            'node_network_interfaces: "10.9.0.5", "10.9.0.6/255.255.255.0", "$(id)/24", "`id`/24", '
            r""""fe80::1%$(id)/64", "10.9.0.7\"/24", "10.9.0.8/24\n", "10.8.0.0/255.255.0.0", """
            r""""10.6.0.0/16\n" is not ADDRESS/BITS"""
        ),
        r"""node_network_interfaces: "$(id)", "10.1.0.1\nDNS=1.1.1.1" is not an address""",
        r"""node_network_dns_servers: "10.1.0.53\nGateway=10.1.0.9" is not an address""",
        'node_network_dns_search: "b c" is not a domain',
        "node_network_interfaces: gateway: two default routes",
        r'node_network_replaces: "/a$(reboot)", "/b`", "/c\"", "/d\\e", "/f\n/g", "/h " has',
        "node_network_confirm_s: 5; write 30",
    ]
    for line, start in zip(result["refusals"], starts, strict=True):
        assert line.startswith(start)
    assert [line.split(":")[0] for line in result["conflicts"]] == [
        "node_network_backend", "/etc/network/interfaces",
    ]  # fmt: skip


def test_nothing_that_is_written_is_a_command_of_the_shell(tmp_path: Path) -> None:
    """Beside the refusals: root's shell reads the file as values."""
    odd = "$(touch a) `touch b` \"; touch c; ' touch d"
    interfaces = [
        {"name": f"eth0 {odd}", "addresses": [odd]},
        {"name": f"eth1 {odd}", "parent": odd},
        {"name": f"eth2 {odd}", "members": [odd]},
    ]
    inputs = {
        "node_network_interfaces": interfaces, "node_network_replaces": [odd],
        "node_network_backend": "networkd", "__node_network_found": {"stdout_lines": ["networkd"]},
    }  # fmt: skip
    shown = {**SHOWN, "refusals": "[]", "files": "[]"}
    result = render(tmp_path, "node_network", "Debian", inputs, shown)
    settings = by_path(result["own"])["/var/lib/baremetal-dgx/network/settings"]["content"]
    place = tmp_path / "empty"
    place.mkdir()
    done = subprocess.run(
        ["sh", "-euc", f"{settings}\nprintf '%s\n' \"$SHOWS$BELOW$REPLACES$PHYSICAL$VIRTUAL\""],
        cwd=place, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count(odd) == 13
    assert list(place.iterdir()) == []


# Each notes what it was called with. systemd-run keeps what it is to start, and the test starts it.
TOOLS = {
    "systemd-run": """#!/bin/sh
unit= ; for word; do case $word in --unit=*) unit=${word#--unit=} ;; esac; done
echo "$*" > "$HOME/$unit.timer"
""",
    "systemctl": """#!/bin/sh
echo "systemctl $*" >> "$HOME/calls"
case "$*" in
*is-active*) for unit; do :; done; test -e "$HOME/$unit" ;;
"stop "*) rm "$HOME/$2" ;;
esac
""",
    "networkctl": """#!/bin/sh
echo "networkctl $*" >> "$HOME/calls"
! test -e "$HOME/networkctl" || cat "$HOME/networkctl"
test "$*" != reload || ! test -e "$HOME/broken" || { rm "$HOME/broken"; exit 1; }
""",
    "ip": """#!/bin/sh
echo "ip $*" >> "$HOME/calls"
case "$*" in
*delete*) rm -r "$HOME/sys/$3" ;;
*" to 10.1.0.11") echo '2: lo    inet 10.1.0.11/24 brd 10.1.0.255 scope global lo' ;;
*" to "[fF][dD]00:*[bB]) echo '2: lo    inet6 fd00::b/64 scope global ' ;;
*" to "*) ;;
*show*) echo '2: lo    inet 10.1.0.11/24 brd 10.1.0.255 scope global lo
2: lo    inet6 fd00::b/64 scope global ' ;;
esac
""",
}
APPLY, BACK = "baremetal-dgx-network-change.timer", "baremetal-dgx-network-return-in-time.timer"


# As NetworkManager names it.
WIRED = "Wired connection  1.nmconnection"


class Node:
    """The script on a node whose tools are scripts and whose files are below a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.home, self.state = folder, folder / "state"
        self.live = folder / "etc/systemd/network"
        (folder / "bin").mkdir()
        (self.state / "wanted").mkdir(parents=True)
        self.live.mkdir(parents=True)
        for name, text in TOOLS.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        (self.live / "60-baremetal-dgx-host-old.network").write_text("old\n")
        (self.live / "20-dhcp.network").write_text("dhcp\n")
        (self.live / "70-baremetal-dgx-rail0.network").write_text("rail\n")
        (self.live / WIRED).write_text("wired\n")
        (self.state / "wanted/60-baremetal-dgx-host-lo.network").write_text("lo\n")
        (self.state / "wanted/60-baremetal-dgx-host-new9.network").write_text("new9\n")
        self.settings("lo 0 10.1.0.11/24")
        self.link("lo", mtu=65536)

    def link(self, name: str, *below: str, mtu: int = 1500) -> None:
        (self.home / "sys" / name).mkdir(parents=True)
        (self.home / "sys" / name / "mtu").write_text(f"{mtu}\n")
        for other in below:
            (self.home / "sys" / name / f"lower_{other}").touch()

    def settings(self, shows: str, physical: str = "lo", virtual: str = "new9") -> None:
        (self.state / "settings").write_text(
            f"BACKEND=networkd\nFOLDER={self.live}\n"
            'FILES="60-baremetal-dgx-host-lo.network 60-baremetal-dgx-host-new9.network"\n'
            f'REPLACES="{self.live}/20-dhcp.network\n{self.live}/{WIRED}\n"\n'
            f'PHYSICAL="{physical}"\nVIRTUAL="{virtual}"\nSHOWS="\n{shows}\n"\n'
            'BELOW="new9 lo eth1"\n'
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.home}/bin:{os.environ['PATH']}",
            "HOME": str(self.home),
            "NETWORK_STATE": str(self.state),
            "NETWORK_SYSFS": str(self.home / "sys"),
            "NETWORK_ETC": str(self.home / "etc"),
        }
        return subprocess.run(
            ["sh", str(SCRIPT), *arguments],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.live.iterdir())}

    @property
    def calls(self) -> list[str]:
        return (self.home / "calls").read_text().splitlines()


BEFORE = {
    "20-dhcp.network": "dhcp\n",
    "60-baremetal-dgx-host-old.network": "old\n",
    "70-baremetal-dgx-rail0.network": "rail\n",
    WIRED: "wired\n",
}
AFTER = {
    "60-baremetal-dgx-host-lo.network": "lo\n",
    "60-baremetal-dgx-host-new9.network": "new9\n",
    "70-baremetal-dgx-rail0.network": "rail\n",
}


@pytest.fixture(name="node")
def a_node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_change_that_is_confirmed(node: Node) -> None:
    assert node.ok("differs").splitlines() == [
        f"write {node.live}/60-baremetal-dgx-host-lo.network",
        f"write {node.live}/60-baremetal-dgx-host-new9.network",
        f"remove {node.live}/60-baremetal-dgx-host-old.network",
        f"remove {node.live}/20-dhcp.network",
        f"remove {node.live}/{WIRED}",
    ]
    node.ok("change", "90")
    assert node.files == BEFORE, "nothing is written while the connection is open"
    assert "--on-active=90" in (node.home / BACK).read_text()
    assert (node.home / APPLY).read_text().endswith(" apply\n")
    node.ok("apply")
    assert node.files == AFTER
    assert "networkctl reconfigure lo" in node.calls
    node.ok("confirm")
    assert not (node.home / BACK).exists(), "the way back is disarmed"
    assert node.ok("differs") == ""
    node.ok("return")
    assert node.files == AFTER


@pytest.mark.parametrize("how", ["return", "return-at-boot"])
def test_a_change_that_is_not_confirmed(node: Node, how: str) -> None:
    node.ok("change", "90")
    node.ok("apply")
    node.link("new9")
    node.ok(how)
    assert node.files == BEFORE
    assert ("ip link delete new9" in node.calls) == (how == "return")
    late = node.run("confirm")
    assert late.returncode == 1
    assert "the network is as before the change" in late.stderr
    assert ("booted before" if how == "return-at-boot" else "did not confirm") in late.stderr


@pytest.mark.parametrize("how", ["confirm", "return", "return-at-boot"])
def test_files_of_a_former_backend_go_with_the_change(node: Node, how: str) -> None:
    """They would configure the same interfaces: netplan's of /run come before networkd's."""
    for name in ("netplan", "nmcli"):
        (node.home / "bin" / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "$HOME/calls"\n')
        (node.home / "bin" / name).chmod(0o755)
    (node.home / "NetworkManager.service").touch()
    plan = node.home / "etc/netplan/60-baremetal-dgx-host.yaml"
    kept = node.home / "etc/netplan/70-baremetal-dgx-rail0.yaml"
    wired = node.home / "etc/NetworkManager/system-connections/baremetal-dgx-host-lo.nmconnection"
    for path in (plan, kept, wired):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name}\n")
    assert {f"remove {plan}", f"remove {wired}"} < set(node.ok("differs").splitlines())
    node.ok("change", "90")
    node.ok("apply")
    assert (plan.exists(), wired.exists(), kept.exists()) == (False, False, True)
    read = ["netplan generate", "nmcli connection reload", "networkctl reload"]
    assert [call for call in node.calls if call in read] == read
    (node.home / "calls").unlink()
    node.ok(how)
    again = how != "confirm"
    assert (plan.exists(), wired.exists(), kept.exists()) == (again, again, True)
    if again:
        assert (plan.read_text(), wired.read_text()) == (f"{plan.name}\n", f"{wired.name}\n")
        seen = [call for call in node.calls if call in read]
        assert seen == (read if how == "return" else ["netplan generate"])
    else:
        assert node.ok("differs") == ""


@pytest.mark.parametrize("backend", ["networkd", "networkmanager", "netplan"])
@pytest.mark.parametrize("how", ["return", "return-at-boot"])
def test_a_tool_that_fails_does_not_stop_the_way_back(node: Node, how: str, backend: str) -> None:
    """netplan fails on a file that came back, and needs it no more than before the change."""
    (node.home / "systemd-networkd.service").touch()
    if backend != "networkd":
        text = (
            (node.state / "settings").read_text().replace("BACKEND=networkd", f"BACKEND={backend}")
        )
        folder = {"netplan": "netplan", "networkmanager": "NetworkManager/system-connections"}
        text = text.replace(f"FOLDER={node.live}", f"FOLDER={node.home}/etc/{folder[backend]}")
        (node.state / "settings").write_text(text)
        (node.home / "etc" / folder[backend]).mkdir(parents=True)
    plan = node.home / "run/netplan/eno1.yaml"
    stale = node.home / "etc/netplan/60-baremetal-dgx-host.yaml"
    # For networkd, only below /run.
    files = [plan] if backend == "networkd" else [plan, stale]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("stale\n")
    with (node.state / "settings").open("a") as settings:
        settings.write(f'REPLACES="$REPLACES{plan}\n"\n')
    for name in ("netplan", "nmcli"):
        tool = node.home / "bin" / name
        tool.write_text(
            f'#!/bin/sh\necho "{name} $*" >> "$HOME/calls"\n! grep -qs . "{plan}" "{stale}"\n'
        )
        tool.chmod(0o755)
    node.ok("change", "90")
    node.ok("apply")
    assert "netplan generate" in node.calls
    (node.home / "calls").unlink()
    # A boot empties /run, in which the folder is gone, too.
    plan.parent.rmdir()
    done = node.run(how)
    assert done.returncode == 0, done.stderr
    assert "could not" in done.stderr
    assert {path.read_text() for path in files} == {"stale\n"}
    assert {name: node.files[name] for name in BEFORE} == BEFORE
    assert not (node.state / "pending").exists()
    assert (node.state / "returned/outcome").exists()
    assert ("networkctl reload" in node.calls) == (how == "return")


@pytest.mark.parametrize("folder", ["etc", "run", "usr/lib"])
def test_files_of_netplan_are_found_wherever_it_reads_them(node: Node, folder: str) -> None:
    site = node.home / folder / "netplan/10-site.yaml"
    site.parent.mkdir(parents=True)
    (node.home / "systemd-resolved.service").touch()
    status = node.home / "networkctl"
    for text, id_ in (("{ethernets: {all-en: {match: {name: en*}}}}", "all-en"), ("eno1:", "eno1")):
        site.write_text(f"network: {text}\n")
        status.write_text(f"Network File: /run/systemd/network/10-netplan-{id_}.network\n")
        assert node.ok("find", "eno1").splitlines()[1:] == [str(site)]
    # A rail of the collection is matched by its address, and the interface has another name.
    site.with_name("70-baremetal-dgx-rail0.yaml").write_text("    rail0:\n")
    status.write_text("Network File: /run/systemd/network/10-netplan-rail0.network\n")
    site.unlink()
    assert node.ok("find", "eno1").splitlines()[1:] == []


def test_a_file_of_netplan_with_a_pattern_is_found(node: Node) -> None:
    """It names no interface, and comes before the role's by its name below /run."""
    folder = node.home / "etc/netplan"
    folder.mkdir()
    site = folder / "90-default.yaml"
    site.write_text('network:\n  ethernets:\n    all-en:\n      match: {name: "en*"}\n')
    (folder / "91-other.yaml").write_text("network:\n  ethernets:\n    all-eth: {}\n")
    status = node.home / "networkctl"
    line = "● 2: eno1\n     Network File: /run/systemd/network/10-netplan-{}.network\n  State: up\n"
    found: dict[str, list[str]] = {}
    for id_ in ("all-en", "eno1", "gone"):
        status.write_text(line.format(id_))
        found[id_] = node.ok("find", "eno1").splitlines()[1:]
    (node.home / "systemd-resolved.service").touch()
    assert found == {
        "all-en": ["systemd-resolved does not run", str(site)],
        "eno1": ["systemd-resolved does not run"],
        "gone": ["systemd-resolved does not run", "definition gone of netplan"],
    }  # fmt: skip
    status.write_text("   Network File: /etc/systemd/network/80-en.network\n")
    assert node.ok("find", "eno1").splitlines()[1:] == ["/etc/systemd/network/80-en.network"]
    status.write_text("   Network File: /etc/systemd/network/60-baremetal-dgx-host-eno1.network\n")
    assert node.ok("find", "eno1").splitlines()[1:] == []


@pytest.mark.parametrize("backend", ["netplan", "networkd", "networkmanager"])
def test_servers_of_names_need_a_program_that_takes_them(tmp_path: Path, backend: str) -> None:
    """Debian installs networkd without it, and nothing would read the declared servers."""
    found = {"stdout_lines": [backend, "systemd-resolved does not run"]}
    inputs = {**INPUTS, "__node_network_found": found}
    shown = {"conflicts": SHOWN["conflicts"]}
    refused = render(tmp_path, "node_network", "Debian", inputs, shown)["conflicts"]
    assert [line.split(":")[0] for line in refused] == (
        [] if backend == "networkmanager" else ["node_network_dns_servers, node_network_dns_search"]
    )
    without = {**inputs, "node_network_dns_servers": [], "node_network_dns_search": []}
    assert render(tmp_path, "node_network", "Debian", without, shown)["conflicts"] == []


def test_networkmanager_below_netplan_has_servers_of_names(node: Node) -> None:
    """It writes /etc/resolv.conf itself."""
    (node.home / "bin/netplan").write_text("#!/bin/sh\n")
    (node.home / "bin/netplan").chmod(0o755)
    (node.home / "NetworkManager.service").touch()
    assert node.ok("find", "eno1").splitlines() == [
        "networkmanager", "systemd-resolved does not run",
    ]  # fmt: skip
    (node.home / "etc/netplan").mkdir()
    assert node.ok("find", "eno1").splitlines() == ["netplan"]
    (node.home / "NetworkManager.service").unlink()
    assert node.ok("find", "eno1").splitlines() == ["netplan", "systemd-resolved does not run"]


def test_what_no_file_of_netplan_has_is_not_taken_for_a_path(tmp_path: Path) -> None:
    """Its file below /run comes back with each boot, so that no list could take it away."""
    found = {"stdout_lines": ["netplan", "definition all-en of netplan"]}
    inputs = {
        **INPUTS,
        "node_network_replaces": ["definition all-en of netplan"],
        "__node_network_found": found,
    }
    shown = {"conflicts": SHOWN["conflicts"]}
    (line,) = render(tmp_path, "node_network", "Ubuntu", inputs, shown)["conflicts"]
    assert line.startswith("definition all-en of netplan: configures an interface of")
    assert "find its YAML file by hand" in line


def test_bonds_are_made_from_nothing(node: Node) -> None:
    """A backend keeps a member that is not declared any more, until the next boot."""
    node.ok("change", "90")
    node.ok("apply")
    node.ok("confirm")
    node.link("new9")
    node.link("eth1")
    (node.state / "wanted/60-baremetal-dgx-host-lo.network").write_text("lo again\n")
    node.settings("lo 0 10.1.0.11/24", physical="eth1", virtual="other7")
    node.ok("change", "90")
    (node.home / "calls").unlink()
    node.ok("apply")
    loaded = [call for call in node.calls if not call.startswith("systemctl")]
    assert loaded == [
        "ip link delete new9", "networkctl reload", "networkctl reconfigure eth1",
        "networkctl reconfigure lo",
    ]  # fmt: skip
    node.link("other7")
    node.ok("return")
    assert "ip link delete other7" in node.calls
    assert node.calls.count("networkctl reconfigure lo") == 2


@pytest.mark.parametrize(
    ("below", "message"),
    [
        (("lo", "eth1"), "as declared"),
        (("lo",), "new9 is not on eth1"),
        (("lo", "eth1", "eth2"), "new9 is on eth2, too"),
    ],
)
def test_what_is_below_a_bond(node: Node, below: tuple[str, ...], message: str) -> None:
    node.settings("new9 0 10.1.0.11/24")
    node.link("new9", *below)
    done = node.run("shows", "new9")
    assert message in done.stdout + done.stderr
    assert (done.returncode == 0) == (message == "as declared")


def test_a_boot_before_the_files_were_written(node: Node) -> None:
    node.ok("change", "90")
    node.ok("return-at-boot")
    node.ok("apply")
    assert node.files == BEFORE


def test_a_network_that_is_not_as_declared_is_not_kept(node: Node) -> None:
    node.settings("lo 9001 10.1.0.11/24")
    (node.home / "bin/sleep").write_text("#!/bin/sh\n")
    (node.home / "bin/sleep").chmod(0o755)
    node.ok("change", "90")
    node.ok("apply")
    late = node.run("confirm")
    assert late.returncode == 1
    assert "instead of 9001; the node returns to the old network" in late.stderr
    assert (node.home / BACK).exists(), "the way back stays armed"


def test_a_configuration_that_cannot_be_loaded_is_taken_back_at_once(node: Node) -> None:
    (node.home / "broken").touch()
    node.ok("change", "90")
    node.ok("apply")
    assert node.files == BEFORE
    assert "could not be loaded" in node.run("confirm").stderr


def test_a_second_change_waits_for_the_first(node: Node) -> None:
    node.ok("change", "90")
    assert "an earlier change waits" in node.run("change", "90").stderr
    node.ok("return")
    node.ok("change", "90")


def test_a_change_whose_run_was_killed_is_confirmed_by_the_next_one(node: Node) -> None:
    """The files are as wanted, and yet the node would take them back."""
    node.ok("change", "90")
    assert "confirm the earlier change" in node.ok("differs").splitlines()[-1]
    node.ok("apply")
    (line,) = node.ok("differs").splitlines()
    assert line.startswith("confirm the earlier change")
    early = node.run("shows", "lo")
    assert early.returncode == 1
    assert "is not confirmed" in early.stderr
    (node.home / APPLY).unlink()
    node.ok("change", "90")
    assert not (node.home / APPLY).exists(), "nothing is loaded once more"
    node.ok("confirm")
    assert not (node.home / BACK).exists()
    assert node.ok("differs") == ""
    assert node.ok("shows", "lo") == "as declared\n"


def test_nothing_changes_without_the_way_back(node: Node) -> None:
    (node.home / "bin/systemd-run").write_text("#!/bin/sh\nexit 1\n")
    assert node.run("change", "90").returncode == 1
    node.ok("apply")
    assert node.files == BEFORE


@pytest.mark.parametrize(
    ("shows", "message"),
    [
        ("lo 0 10.1.0.11/24", "as declared"),
        # ip shows another spelling than the one that the site wrote.
        ("lo 0 10.1.0.11/24 FD00:0::B/64", "as declared"),
        ("lo 0 FD00:0::B/6", "lo lacks FD00:0::B/6"),
        ("lo 0 FD00:0::C/64", "lo lacks FD00:0::C/64"),
        ("lo 0 10.1.0.12/24", "lo lacks 10.1.0.12/24"),
        ("lo 0 10.1.0.11/2", "lo lacks 10.1.0.11/2"),
        ("lo 9001 10.1.0.11/24", "instead of 9001"),
    ],
)
def test_what_an_interface_shows(node: Node, shows: str, message: str) -> None:
    node.settings(shows)
    done = node.run("shows", "lo")
    assert message in done.stdout + done.stderr
    assert (done.returncode == 0) == (message == "as declared")


def test_a_host_that_needs_no_network_to_answer_confirms_no_change(tmp_path: Path) -> None:
    """The control machine itself, by a local connection, would confirm whatever it has done."""
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/calls\n")
    script.chmod(0o755)
    role = {"name": "baremetal.dgx.node_network", "tasks_from": "change"}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": role}],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    hosts = {"head-01": {"ansible_connection": "local"}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    given = {
        "node_network_change_allowed": True, "__node_network_script": str(script),
        "__node_network_differs": {"stdout_lines": ["write eno1"]},
        "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "hosts.yml", "-e",
         json.dumps(given), "play.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert done.returncode != 0, done.stdout
    assert "run configure_network -e target=head-01 from another machine, over SSH" in done.stdout
    assert not (tmp_path / "calls").exists()
