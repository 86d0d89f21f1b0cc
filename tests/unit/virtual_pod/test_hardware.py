# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state file of the simulated hardware, and the tools of a node that read it."""

from __future__ import annotations

import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HARDWARE = Path(__file__).resolve().parents[3] / "virtual_pod" / "hardware"
Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("libraries")
    names = [f"{out}/libnvidia-ml.so.1"]
    subprocess.run(["make", "-s", "-C", str(HARDWARE), f"OUT={out}", *names], check=True)
    return out


@pytest.fixture
def tool(tmp_path: Path, libraries: Path) -> Tool:
    """`tool("nvidia-smi", "-L")` → how it ended, on a node whose state is in tmp_path."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(libraries),
            "SIMULATED_HARDWARE": str(tmp_path / "state"),
            "SIMULATED_NODE": os.environ.get("SIMULATED_NODE", ""),
        }
        return subprocess.run(
            [str(HARDWARE / name), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


READER = r"""
#include "state.h"
#include <stdio.h>
int main(void) {
    printf("%s|%s|%lld|%lld|%llx|%g|%d|%d|%s\n", state_text(3, "a", "none"),
           state_text(2, "a", "none"), state_int(1, "b", 7), state_int(1, "bad", 7),
           (unsigned long long)state_int(1, "mask", 0),
           state_real(NODE, "c", 1.5), state_return(3, "f", 0), state_return(4, "f", 0),
           state_text(NODE, "gone", "fallback"));
    return 0;
}
"""


def test_the_reader_of_the_state(tmp_path: Path) -> None:
    (tmp_path / "reader.c").write_text(READER)
    program = tmp_path / "reader"
    sources = [tmp_path / "reader.c", HARDWARE / "state.c"]
    subprocess.run(
        ["gcc", "-Wall", "-Werror", f"-I{HARDWARE}", "-pthread", "-o", program, *sources],
        check=True,
    )
    state = tmp_path / "state"

    def read() -> str:
        environment = {"SIMULATED_HARDWARE": str(state)}
        return subprocess.run(
            [program], env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert read() == "none|none|7|7|0|1.5|0|0|fallback"
    state.write_text(
        "# gpu.3.a = comment\n"
        "gpu.*.a =  of all, with blanks \n"
        "gpu.3.a = first\n"
        "gpu.3.a=last\n"
        "gpu.1.b = 0x10\n"
        "gpu.1.bad = 12x\n"
        "gpu.*.mask = 0xffffffffffffffff\n"
        "c = 2.5\n"
        "gpu.3.ret.f = 999\n"
        "a line without a value\n"
    )
    assert read() == "last|of all, with blanks|16|7|ffffffffffffffff|2.5|999|0|fallback"


def test_a_person_sees_that_it_is_simulated(tool: Tool) -> None:
    for arguments in ([], ["-L"], ["-q"], ["--version"]):
        shown = tool("nvidia-smi", *arguments)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.splitlines()[0].startswith("SIMULATED"), arguments
    assert "SIMULATED" in tool("nvidia-smi", "-q", "-x").stdout.splitlines()[1]
    assert "simulated" in tool("nv-fabricmanager", "--help").stderr


def test_the_list_and_the_table(tool: Tool) -> None:
    listed = tool("nvidia-smi", "-L").stdout.splitlines()[1:]
    assert len(listed) == 8
    assert listed[3] == (
        "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-51a7ed00-0000-4000-8000-000000000004)"
    )
    table = tool("nvidia-smi").stdout
    assert "Driver Version: 580.105.08" in table
    assert table.count("00000000:") == 8


def test_queries(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("gpu.2.power_mw = 412340\ngpu.2.ecc_mode_pending = 0\n")
    query = "--query-gpu=index,pci.bus_id,power.draw,ecc.mode.current,ecc.mode.pending"
    shown = tool("nvidia-smi", query, "--format=csv", "-i", "2").stdout.splitlines()
    assert shown == [
        "index, pci.bus_id, power.draw [W], ecc.mode.current, ecc.mode.pending",
        "2, 00000000:52:00.0, 412.34 W, Enabled, Disabled",
    ]
    plain = tool("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits").stdout
    assert plain.splitlines()[2] == "412.34"
    assert len(plain.splitlines()) == 8


def test_xml_has_the_elements_of_the_real_tool(tool: Tool) -> None:
    root = ET.fromstring(tool("nvidia-smi", "-q", "-x").stdout)
    assert root.tag == "nvidia_smi_log"
    assert root.findtext("attached_gpus") == "8"
    gpus = root.findall("gpu")
    assert [gpu.get("id") for gpu in gpus][:2] == ["00000000:1B:00.0", "00000000:43:00.0"]
    assert gpus[0].findtext("fb_memory_usage/total") == "81559 MiB"
    assert gpus[0].findtext("fabric/state") == "Completed"


def test_elements_are_those_of_a_capture(tool: Tool, captures: Path) -> None:
    real = captures / "nvidia-smi-q-x/qx-h100.xml"

    def paths(element: ET.Element, above: str = "") -> set[str]:
        own = f"{above}/{element.tag}"
        return {own}.union(*(paths(child, own) for child in element), set())

    ours = paths(ET.fromstring(tool("nvidia-smi", "-q", "-x").stdout))
    assert ours <= paths(ET.parse(real).getroot())


@pytest.mark.parametrize(
    ("state", "arguments", "code", "message"),
    [
        ("gpu.5.lost = 1\n", [], 15, "GPU5: GPU is lost"),
        ("driver_loaded = 0\n", [], 9, "couldn't communicate with the NVIDIA driver"),
        ("", ["-i", "9"], 6, "No devices were found"),
        ("", ["--query-gpu=colour", "--format=csv"], 2, '"colour" is not a valid field'),
        ("", ["--query-gpu=name"], 2, "needs --format=csv"),
        ("", ["topo", "-m"], 2, "unrecognized arguments"),
        ("", ["-x"], 2, "-x needs -q"),
    ],
)
def test_what_it_cannot_do(
    tool: Tool, tmp_path: Path, state: str, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "state").write_text(state)
    shown = tool("nvidia-smi", *arguments)
    assert shown.returncode == code
    assert message in shown.stdout + shown.stderr


def test_the_fabric_manager_tells_its_release(tool: Tool, tmp_path: Path) -> None:
    assert tool("nv-fabricmanager", "--version").stdout == (
        "Fabric Manager version is : 580.105.08\n"
    )
    (tmp_path / "state").write_text("driver_version = 570.1\n")
    assert tool("nv-fabricmanager", "--version").stdout.endswith(": 570.1\n")
    (tmp_path / "state").write_text("driver_version = 570.1\nfabric_manager_version = 570.2\n")
    assert tool("nv-fabricmanager", "--version").stdout.endswith(": 570.2\n")
    assert tool("nv-fabricmanager", "--restart").returncode == 2


def test_faults_go_in_together_and_come_out_again(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("gpu.0.temperature = 31\n")
    done = tool("inject", "ecc", "xid79")
    assert done.returncode == 0, done.stderr
    state = (tmp_path / "state").read_text()
    assert "gpu.0.temperature = 31" in state
    assert "gpu.3.remap.pending = 1" in state
    assert "gpu.5.lost = 1" in state
    log = (tmp_path / "kernel.log").read_text()
    assert re.findall(r"Xid \(PCI:0000:(..):00\): (\d+)", log) == [
        *(("61", code) for code in ("63", "94", "154")),
        *(("c3", code) for code in ("79", "154")),
    ]
    assert tool("inject", "--clear").returncode == 0
    assert (tmp_path / "state").read_text() == "gpu.0.temperature = 31\n"
    assert (tmp_path / "kernel.log").read_text() == ""
    refused = tool("inject", "ecc", "flood")
    assert (refused.returncode, refused.stderr) == (2, "inject: no fault is called flood\n")
    assert (tmp_path / "state").read_text() == "gpu.0.temperature = 31\n"


def test_no_two_nodes_have_the_same_gpus(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for node in ("dgx-01", "dgx-02"):
        for path in tmp_path.glob("state*"):
            path.unlink()
        monkeypatch.setenv("SIMULATED_NODE", node)
        assert tool("inject", "xid79").returncode == 0
        lost = (tmp_path / "kernel.log").read_text().splitlines()[-4]
        assert tool("inject", "--clear").returncode == 0
        assert lost.rpartition(": ")[2] in tool("nvidia-smi", "-L").stdout
        listed = tool("nvidia-smi", "--query-gpu=serial,uuid", "--format=csv,noheader").stdout
        found[node] = listed.splitlines()
    assert len({*found["dgx-01"], *found["dgx-02"]}) == 16
    serial = found["dgx-02"][2].partition(",")[0]
    assert serial.isdigit()
    assert f'"{serial}"' in tool("dcgmi", "diag", "-r", "1", "-j").stdout


def test_a_gpu_that_computes_draws_power(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    query = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")
    idle = tool(*query).stdout.splitlines()
    (tmp_path / "state.load-3").write_text("")
    busy = tool(*query).stdout.splitlines()
    assert [float(one) > 600 for one in busy] == [index == 3 for index in range(8)]
    os.utime(tmp_path / "state.load-3", (1, 1))
    assert tool(*query).stdout.splitlines() == idle


@pytest.mark.parametrize(
    "path", sorted((HARDWARE / "faults").glob("*.state")), ids=lambda p: p.stem
)
def test_a_fault_says_what_it_is_and_what_is_found(path: Path) -> None:
    first, second = path.read_text().splitlines()[:2]
    assert re.match(r"# (GPU [0-7]|The node): ", first)
    assert second.startswith("# ")
    assert "Found: " in path.read_text()


@pytest.mark.parametrize(
    ("state", "path", "value"),
    [
        ("", "0000:1b:00.0/current_link_width", "16"),
        ("gpu.0.pcie_width = 8\n", "0000:1b:00.0/current_link_width", "8"),
        ("gpu.0.pcie_generation = 4\n", "0000:1b:00.0/current_link_speed", "16.0 GT/s PCIe"),
        ("gpu.*.numa = 3\n", "0000:df:00.0/numa_node", "3"),
        ("gpu.1.absent = 1\n", "0000:43:00.0/vendor", None),
        ("nvswitches = 2\n", "0000:07:00.0/vendor", None),
    ],
)
def test_pci_follows_the_state(
    tool: Tool, tmp_path: Path, state: str, path: str, value: str | None
) -> None:
    (tmp_path / "state").write_text(state)
    assert tool("sysfs.py", "--root", str(tmp_path)).returncode == 0
    found = tmp_path / "sys/bus/pci/devices" / path
    assert (found.read_text().strip() if found.exists() else None) == value


def test_pci_of_another_profile(tool: Tool, tmp_path: Path) -> None:
    made = tool("sysfs.py", "--root", str(tmp_path), "--gpus", "07:00.0,0f:00.0", "--numa", "3,3")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "sys/bus/pci/devices/0000:0f:00.0/numa_node").read_text() == "3\n"
    wrong = tool("sysfs.py", "--root", str(tmp_path), "--gpus", "07:00.0", "--numa", "3,3")
    assert "1 addresses, but 2 NUMA nodes" in wrong.stderr


def test_numbers_of_device_files(tool: Tool, tmp_path: Path) -> None:
    """The kernel shows the same as NVML, also where the state gives a GPU another number."""
    (tmp_path / "state").write_text("gpu.6.minor = 2\ngpu.6.mig_instances = 7:1g.10gb\n")
    assert tool("sysfs.py", "--root", str(tmp_path)).returncode == 0
    driver = tmp_path / "proc/driver/nvidia"
    assert "Device Minor: \t 0\n" in (driver / "gpus/0000:1b:00.0/information").read_text()
    assert "Device Minor: \t 2\n" in (driver / "gpus/0000:d1:00.0/information").read_text()
    assert (driver / "capabilities/gpu2/mig/gi7/access").exists()


def test_mig_instances_are_made_listed_and_taken_away(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    for arguments in (
        ("-i", "6", "-mig", "1"),
        ("mig", "-i", "6", "-cgi", "3g.40gb,1g.10gb", "-C"),
    ):
        assert tool("nvidia-smi", *arguments).returncode == 0
    assert [line.split()[:2] for line in tool("nvidia-smi", "-L").stdout.splitlines()[8:10]] == [
        ["MIG", "3g.40gb"], ["MIG", "1g.10gb"],
    ]  # fmt: skip
    access = tmp_path / "proc/driver/nvidia/capabilities/gpu6/mig/gi7/ci0/access"
    assert access.read_text().splitlines()[0] == "DeviceFileMinor: 877"
    assert "MIG 1g.10gb" in tool("nvidia-smi", "mig", "-i", "6", "-lgi").stdout
    assert tool("nvidia-smi", "mig", "-i", "6", "-dgi").returncode == 0
    assert "MIG " not in tool("nvidia-smi", "-L").stdout


@pytest.mark.parametrize(
    ("profiles", "code", "placed"),
    [
        # The examples of NVIDIA's MIG user guide, "Creating GPU Instances", with an H100's names.
        ("1g.10gb,2g.20gb,4g.40gb", 0, ["13 6:1", "5 4:2", "1 0:4"]),
        ("1g.10gb,1g.10gb,2g.20gb,3g.40gb", 23, ["13 6:1", "11 4:1", "3 0:2"]),
        ("3g.40gb,1g.10gb,2g.20gb,1g.10gb", 0, ["2 4:4", "7 0:1", "4 2:2", "8 1:1"]),
        (
            "2g.20gb" + ",1g.10gb" * 5,
            0,
            ["5 4:2", "13 6:1", "7 0:1", "8 1:1", "9 2:1", "10 3:1"],
        ),
    ],
)
def test_mig_instances_are_placed_as_they_are_named(
    tool: Tool, tmp_path: Path, profiles: str, code: int, placed: list[str]
) -> None:
    (tmp_path / "state").touch()
    made = tool("nvidia-smi", "mig", "-i", "6", "-cgi", profiles, "-C")
    assert made.returncode == code
    assert ("using profile 9: Insufficient Resources" in made.stdout) == bool(code)
    rows = tool("nvidia-smi", "mig", "-i", "6", "-lgi").stdout.splitlines()[1:]
    assert [" ".join(row.split()[5:7]) for row in rows] == placed
