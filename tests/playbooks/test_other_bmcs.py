# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks against BMCs that others wrote: sushy-tools' emulator, and OpenIPMI's ipmi_sim.

One machine is behind each, and one behind the simulated BMC of the other tests; the commands are
the same for all three. What a server lacks is not measured, by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import yaml
from redfish_server import PASSWORD, USER, V1

sys.path.insert(0, str(Path(__file__).parent))

from test_power import Machines
from test_upgrade_nodes import Site

OWN, SUSHY, IPMI, OTHER = "dgx-01", "dgx-02", "dgx-03", "dgx-04"
UUID = "11111111-2222-3333-4444-555555555555"
LAN = """\
name "dgx"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.3 {port}
    priv_limit admin
    allowed_auths_admin md5
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{folder}/control 0x20"
  user 1 false "" "" user 10 md5
  user 2 true "{user}" "{password}" admin 10 md5
"""
MC = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
"""
# DEVICE get|set NAME [VALUE]; an operating system that shuts down when it is asked.
CONTROL = """\
#!/bin/sh
shift
case "$1 $2 $3" in
"get power "*) echo "power:$(cat {folder}/power)" ;;
"set power 0" | "set shutdown 1") echo 0 > {folder}/power ;;
"set power 1") echo 1 > {folder}/power ;;
esac
echo "$*" >> {folder}/control.log
"""


def free_port(kind: socket.SocketKind, host: str) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def running(*argv: object, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server meanwhile."""
    with log.open("wb") as handle:
        process = subprocess.Popen([str(one) for one in argv], stdout=handle, stderr=handle)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def sushy(folder: Path, tls: Path, stack: contextlib.ExitStack) -> int:
    """sushy-tools' emulator over TLS, with one machine that is on; returns its port."""
    port = free_port(socket.SOCK_STREAM, "127.0.0.2")
    word = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4))
    (folder / "htpasswd").write_bytes(USER.encode() + b":" + word + b"\n")
    settings = {
        "LISTEN_IP": "127.0.0.2", "LISTEN_PORT": port, "SSL_CERT": str(tls / "cert.pem"),
        "SSL_KEY": str(tls / "key.pem"), "AUTH_FILE": str(folder / "htpasswd"),
        "FAKE_DRIVER": True, "STATE_DIR": str(folder),
        "FAKE_SYSTEMS": [{"uuid": UUID, "name": SUSHY, "power_state": "On", "nics": []}],
    }  # fmt: skip
    text = "".join(f"SUSHY_EMULATOR_{name} = {value!r}\n" for name, value in settings.items())
    (folder / "conf.py").write_text(text)
    program = Path(sys.executable).with_name("sushy-emulator")
    stack.enter_context(running(program, "--config", folder / "conf.py", log=folder / "log"))
    end = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.2", port), 1):
            return port
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.2)


def ipmi_sim(folder: Path, program: str, stack: contextlib.ExitStack) -> int:
    """OpenIPMI's simulator, with a machine that is on; returns its port."""
    port = free_port(socket.SOCK_DGRAM, "127.0.0.3")
    (folder / "lan.conf").write_text(
        LAN.format(port=port, folder=folder, user=USER, password=PASSWORD)
    )
    (folder / "mc.emu").write_text(MC)
    (folder / "power").write_text("1\n")
    (folder / "control").write_text(CONTROL.format(folder=folder))
    (folder / "control").chmod(0o755)
    stack.enter_context(
        running(program, "-c", folder / "lan.conf", "-f", folder / "mc.emu", "-s", folder, "-n",
                log=folder / "log")
    )  # fmt: skip
    return port


class Mixed(Machines):
    """One machine of each kind; the fourth has no BMC."""

    def __init__(self, site: Site, stack: contextlib.ExitStack, program: str) -> None:
        super().__init__(site, stack)
        path = site.folder / "hosts.yml"
        data = yaml.safe_load(path.read_text())
        cluster = data["all"]["children"]["cluster"]
        hosts = cluster["children"]["gpu_nodes"]["hosts"]
        hosts[OTHER] = {}
        own = hosts[OWN]["node_bmc"]
        self.folders = {name: site.folder / name for name in (SUSHY, IPMI)}
        for folder in self.folders.values():
            folder.mkdir()
        port = sushy(self.folders[SUSHY], site.folder / "tls", stack)
        hosts[SUSHY] = {"node_profile": "sushy", "node_address": {"bmc": "127.0.0.2"},
                        "node_bmc": {**own, "port": port}}  # fmt: skip
        port = ipmi_sim(self.folders[IPMI], program, stack)
        hosts[IPMI] = {
            "node_address": {"bmc": "127.0.0.3"},
            "node_bmc": {"protocol": "ipmi", "port": port, "cipher": 3,
                         "user": USER, "password": PASSWORD},
        }  # fmt: skip
        package = site.folder / "bios.fwpkg"
        brings = {"HostBIOS_0": "9.9"}
        package.write_text(yaml.safe_dump(brings))
        bmc = {
            "firmware": {"HostBIOS_0": {"exact": "9.9"}},
            "packages": [{
                "file": str(package), "components": brings, "activation": "ac",
                "sha256": hashlib.sha256(package.read_bytes()).hexdigest(),
            }],
            "bios": {"SRIOV": "Enabled"}, "boot_order": ["*PXE*"],
        }  # fmt: skip
        cluster["vars"]["cluster_profiles"] = {
            "dgx_h100": {"bmc": bmc},
            "sushy": {"inherit": "dgx_h100", "bmc": {"system": UUID}},
        }
        path.write_text(yaml.safe_dump(data))
        self.bmcs[OWN].waiting["none"] = brings
        self.bmcs[OWN].activate("none")

    def play(self, playbook: str, *arguments: str, **more: object) -> tuple[int, str]:
        given = {"power_lock_folder": str(self.site.folder / "locks"), "power_share": 1.0,
                 "power_soft_s": 30, "power_change_s": 60, "firmware_share": 1.0}  # fmt: skip
        rc, output = self.site.run(*arguments, playbook=playbook, **{**given, **more})
        assert PASSWORD not in output
        return rc, output


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    program = shutil.which("ipmi_sim")
    assert program, "ipmi_sim is not here; .ci/tools unpacks it"
    with contextlib.ExitStack() as stack:
        yield Mixed(Site(tmp_path), stack, program)


def lacking(message: str) -> set[str]:
    """What a run names as not measured, by node and check, with the reason."""
    names = re.findall(r"node:(dgx-\d+) (bmc\.\w+) not measured: (.*?); do: ", message)
    return {f"{node} {check}: {why}" for node, check, why in names}


def test_all_servers_take_the_same_commands(mixed: Mixed) -> None:
    slurm = mixed.site.slurm
    rc, output = mixed.play("power", power="cycle", power_allowed=True)
    assert rc == 0, output
    assert "3 machines are as asked for" in output
    assert mixed.bmcs[OWN].acts == ["GracefulShutdown", "On"]
    log = (mixed.folders[SUSHY] / "log").read_text()
    assert log.count("ComputerSystem.Reset") == 2
    control = (mixed.folders[IPMI] / "control.log").read_text().splitlines()
    assert [one for one in control if one.startswith("set")] == ["set shutdown 1", "set power 1"]
    assert mixed.site.slurm == slurm

    rc, output = mixed.play("power", power="ac_cycle", power_allowed=True)
    assert rc != 0
    assert lacking(output) == {
        "dgx-02 bmc.switched: the BMC has no way to cycle AC power (FullPowerCycle, AuxPowerReset)",
        "dgx-03 bmc.switched: IPMI has no command that cycles AC power",
    }


def test_what_a_server_lacks_is_not_measured_by_name(mixed: Mixed) -> None:
    system, firmware = f"{V1}/Systems/{UUID}", f"{V1}/UpdateService/FirmwareInventory"
    logs = "SEL, EventLog, IML, PlatformLog, StandardLog, Log1"
    rc, output = mixed.play("validate_bmc")
    assert rc != 0
    # The number of its chassis is another one each time.
    assert {re.sub(r"Chassis/[0-9-]+", "Chassis/N", one) for one in lacking(output)} == {
        f"dgx-02 bmc.supplies: {V1}/Chassis/N has no Power",
        f"dgx-02 bmc.firmware: {firmware}: HTTP 404",
        f"dgx-02 bmc.log: {system} has no event log ({logs})",
        "dgx-03 bmc.health: the BMC does not say it",
        "dgx-03 bmc.supplies: not read over IPMI",
        "dgx-03 bmc.fans: not read over IPMI",
        "dgx-03 bmc.temperatures: not read over IPMI",
        "dgx-03 bmc.log: not read over IPMI",
        "dgx-03 bmc.firmware: the BMC has no component HostBIOS_0",
    }

    rc, output = mixed.play("configure_bmc")
    assert rc != 0
    assert lacking(output) == {
        f"dgx-02 bmc.bios: {system} has no Bios",
        f"dgx-02 bmc.boot_order: {system} has no BootOrder",
        "dgx-03 bmc.bios: IPMI has no command for it",
        "dgx-03 bmc.boot_order: IPMI has no command for it",
    }

    rc, output = mixed.play("update_firmware", firmware_allowed=True)
    assert rc != 0
    assert lacking(output) == {
        f"dgx-02 bmc.updated: not reached: {firmware}: HTTP 404",
        "dgx-03 bmc.updated: not reached: the BMC has no component HostBIOS_0",
    }
    assert mixed.bmcs[OWN].flashed == []
    assert mixed.holds == []
