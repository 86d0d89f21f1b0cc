# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated dcgm-exporter: the role's counters, faults, jobs, and what ends the real one."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from exposition_text import Samples, names, read
from role_rules import Role

ROOT = Path(__file__).resolve().parents[3]
HARDWARE = ROOT / "virtual_pod" / "hardware"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("libraries")
    subprocess.run(
        ["make", "-s", "-C", str(HARDWARE), f"OUT={out}", f"{out}/libnvidia-ml.so.1"], check=True
    )
    return out


def counters() -> str:
    """The counters file of the role, for DCGM 4."""
    found = Role(ROOT / "roles/dcgm_exporter").values
    rows = found["__dcgm_exporter_own"] + found["__dcgm_exporter_of_profiling"]
    lines = [
        ", ".join("DCGM_FI_DEV_CLOCKS_EVENT_REASONS" if "{{" in c else c for c in row)
        for row in rows
    ]
    return "\n".join(["# field, type, help", *lines]) + "\n"


class Node:
    """A node with an exporter that measures ten times a second."""

    def __init__(self, folder: Path, libraries: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        (folder / "counters.csv").write_text(counters())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(libraries),
            "SIMULATED_HARDWARE": str(self.state),
        }
        self.process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> subprocess.Popen[str]:
        words = [
            str(HARDWARE / "dcgm-exporter"), "-f", str(self.folder / "counters.csv"), "-a",
            f"127.0.0.1:{self.port}", "-r", "127.0.0.1:5555", "-c", "100",
            "--hpc-job-mapping-dir", str(self.jobs), *more,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            words, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self.process

    def samples(self) -> Samples:
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return read(answer.read().decode())

    def until(self, what: Callable[[Samples], bool]) -> Samples:
        """Scrape until it is so.

        A fault comes between two values of one scrape as well, as on a real node: the
        library and the exporter read the state file each for itself. A test of several
        values waits for all of them.
        """
        began = time.monotonic()
        while True:
            try:
                found = self.samples()
            except OSError:
                found = {}
            if found and what(found):
                return found
            assert time.monotonic() - began < 30, "was never so"
            time.sleep(0.1)


@pytest.fixture
def node(tmp_path: Path, libraries: Path) -> Iterator[Node]:
    node = Node(tmp_path, libraries)
    yield node
    if node.process is not None:
        node.process.kill()
        node.process.communicate()


def of(found: Samples, name: str, gpu: int) -> list[tuple[float, dict[str, str]]]:
    """Samples of a metric of a GPU, with their labels."""
    return [
        (value, dict(labels))
        for (one, labels), value in found.items()
        if one == name and ("gpu", str(gpu)) in labels
    ]


def test_eight_gpus_with_every_field_of_the_role(node: Node) -> None:
    node.start()
    found = node.until(lambda samples: True)
    wanted = {line.split(",")[0] for line in counters().splitlines()[1:]}
    assert names(found) == wanted
    for name in wanted:
        assert sum(one == name for one, _labels in found) == 8, name
    ((value, labels),) = of(found, "DCGM_FI_DEV_GPU_TEMP", 0)
    assert value == 29
    assert labels == {
        "gpu": "0", "UUID": labels["UUID"], "pci_bus_id": "00000000:1B:00.0", "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3", "Hostname": socket.gethostname(),
        "simulated": "true",
    }  # fmt: skip
    assert labels["UUID"].startswith("GPU-")


def test_faults_of_the_pod_show(node: Node) -> None:
    faults = HARDWARE / "faults"
    text = (faults / "ecc.state").read_text() + (faults / "hot.state").read_text()
    node.start()
    node.until(lambda samples: True)
    node.state.write_text(text)
    wanted = [
        ("DCGM_FI_DEV_GPU_TEMP", 2, 90),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 2, 0x48),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 3, 2),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", 3, 1),
    ]
    found = node.until(
        lambda samples: all(of(samples, name, gpu)[0][0] == value for name, gpu, value in wanted)
    )
    assert of(found, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 4)[0][0] == 0


def test_a_gpu_that_is_lost_tells_only_its_xid(node: Node) -> None:
    node.start()
    node.until(lambda samples: True)
    node.state.write_text((HARDWARE / "faults" / "xid79.state").read_text())
    found = node.until(
        lambda samples: (
            not of(samples, "DCGM_FI_DEV_GPU_TEMP", 5)
            and of(samples, "DCGM_FI_DEV_XID_ERRORS", 5)[0][0] == 79
        )
    )
    ((count, labels),) = of(found, "DCGM_EXP_XID_ERRORS_COUNT", 5)
    assert (count, labels["xid"]) == (1, "79")
    ((count, labels),) = of(found, "DCGM_EXP_XID_ERRORS_COUNT", 4)
    assert (count, "xid" in labels) == (0, False)
    assert not of(found, "DCGM_FI_PROF_SM_ACTIVE", 5)


def test_jobs_are_named(node: Node) -> None:
    (node.jobs / "3").write_text("77\n")
    node.start()
    found = node.until(lambda samples: True)
    ((_value, labels),) = of(found, "DCGM_FI_DEV_GPU_UTIL", 3)
    assert labels["hpc_job"] == "77"
    (node.jobs / "3").unlink()
    found = node.until(
        lambda samples: "hpc_job" not in of(samples, "DCGM_FI_DEV_GPU_UTIL", 3)[0][1]
    )
    assert len(of(found, "DCGM_FI_DEV_GPU_UTIL", 3)) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("DCGM_FI_DEV_WEATHER, gauge, x", "could not find DCGM field"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, a, b", "expected 3 fields"),
        ("DCGM_FI_DEV_GPU_TEMP, histogram, a", "metric type"),
    ],
)
def test_counters_that_end_the_real_one_end_this_one(node: Node, line: str, says: str) -> None:
    (node.folder / "counters.csv").write_text(line + "\n")
    process = node.start()
    _out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert says in err


def test_without_a_host_engine_it_ends(node: Node) -> None:
    node.state.write_text("dcgm.host_engine = down\n")
    process = node.start()
    _out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "nv-hostengine" in err


def test_what_is_not_simulated_is_refused(node: Node) -> None:
    process = node.start("--web-config-file", "/x")
    _out, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "unrecognized" in err
