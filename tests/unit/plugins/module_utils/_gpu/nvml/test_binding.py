# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The binding against the simulated library: its ABI, its answers, an older driver, and events."""

from __future__ import annotations

import ctypes
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml import types as t
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml.binding import (
    Answer,
    Nvml,
    NvmlError,
    XidEvents,
    reason,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.read import (
    gpu_from_data,
    read_gpu,
    read_system,
)

# What only newer drivers have; the simulated older library lacks these.
NEWER = {
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
}


def symbols(path: str) -> set[str]:
    text = subprocess.run(
        ["nm", "-D", "--defined-only", path], check=True, stdout=subprocess.PIPE
    ).stdout.decode()
    return {line.split()[-1] for line in text.splitlines()}


@pytest.fixture
def nvml(simulated_node):
    opened = Nvml(simulated_node.library)
    yield opened
    opened.close()


def test_the_simulated_library_has_all_that_the_binding_calls(simulated_node) -> None:
    exported = symbols(simulated_node.library)
    assert set(t.SIGNATURES) - exported == set()
    # Nothing of its inside may clash with another library of the process.
    assert all(name.startswith("nvml") for name in exported)
    old = symbols(simulated_node.old_library)
    assert set(t.SIGNATURES) - old == NEWER


def test_it_can_be_found_by_its_name(simulated_node) -> None:
    text = subprocess.run(
        ["readelf", "-d", simulated_node.library], check=True, stdout=subprocess.PIPE
    ).stdout.decode()
    assert "Library soname: [libnvidia-ml.so.1]" in text


# Sizes that nvml.h gives on x86-64; with a version they are part of its number.
@pytest.mark.parametrize(
    ("structure", "size"),
    [
        (t.PciInfo, 68),
        (t.Memory, 24),
        (t.MemoryV2, 40),
        (t.SramEcc, 104),
        (t.FieldValue, 40),
        (t.Utilization, 8),
        (t.Process, 24),
        (t.Margin, 8),
        (t.RepairStatus, 12),
        (t.RemapperHistogram, 20),
        (t.Fabric, 28),
        (t.FabricV2, 36),
        (t.EventData, 32),
    ],
)
def test_sizes_of_structures(structure, size: int) -> None:
    assert ctypes.sizeof(structure) == size


@pytest.mark.parametrize(
    ("structure", "version"),
    [
        (t.MemoryV2, 0x02000028),
        (t.SramEcc, 0x01000068),
        (t.Margin, 0x01000008),
        (t.RepairStatus, 0x0100000C),
        (t.FabricV2, 0x02000024),
    ],
)
def test_versions_of_structures(structure, version: int) -> None:
    assert t.versioned(structure).version == version


def test_a_healthy_node(nvml) -> None:
    system = read_system(nvml)
    assert system == {
        "driver_version": "580.105.08",
        "nvml_version": "13.580.105.08",
        "cuda_version": 13000,
        "count": 8,
    }
    gpus = [gpu_from_data(read_gpu(nvml, index)) for index in range(8)]
    assert [gpu.pci[5:7] for gpu in gpus] == ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]
    assert len({gpu.uuid for gpu in gpus}) == len({gpu.serial for gpu in gpus}) == 8
    one = gpus[0]
    assert one.name == "NVIDIA H100 80GB HBM3"
    assert (one.memory_total_mib, one.memory_used_mib) == (81559, 0)
    assert (one.active_links, one.links[17].speed_mbps) == (18, 26562)
    assert (one.power_w, one.power_limit_w) == (68.92, 700.0)
    assert (one.temperature_c, one.margin_c, one.tlimit_slowdown_c) == (29, 58, -2)
    assert (one.fabric_state, one.fabric_status, one.recovery_action) == (3, 0, 0)
    assert one.processes == ()
    # A Hopper has no such counters, and no retired pages are asked of what remaps rows.
    assert one.absent == dict.fromkeys(
        ("link_recoveries_failed", "link_effective_ber"), "not supported by this GPU"
    )


@pytest.mark.parametrize(
    ("value", "ratio"),
    [
        (0x10C, 1e-12), (0x20C, 2e-12), (0xA0D, 1e-12), (0xB0D, 1.1e-12), (0x10B, 1e-11),
        (0xFFF, 15e-255), (0, 0.0), (0x50000 | 0x30A, 3e-10),
    ],
)  # fmt: skip
def test_how_nvlinks_write_a_bit_error_ratio(value: int, ratio: float) -> None:
    assert t.bit_error_ratio(value) == pytest.approx(ratio, rel=1e-9)
    assert (t.bit_error_ratio(value) <= 1e-12) == (ratio <= 1e-12)


def test_values_reach_the_reader(simulated_node, nvml) -> None:
    simulated_node.state(
        "gpu.*.temperature = 40\n"
        "gpu.4.temperature = 71\n"
        "gpu.4.link.7.state = 0\n"
        "gpu.4.link.3.replay = 5\n"
        "gpu.4.ecc.aggregate.sram.uncorrectable = 5\n"
        "gpu.4.sram_threshold_exceeded = 1\n"
        "gpu.4.processes = 2\n"
        "gpu.4.process.1.pid = 99\n"
        "gpu.4.throttle = 0x48\n"
    )
    gpu = gpu_from_data(read_gpu(nvml, 4))
    assert (gpu.temperature_c, gpu.margin_c) == (71, 16)
    assert [link.number for link in gpu.links if not link.active] == [7]
    assert (gpu.links[3].replays, gpu.links[7].speed_mbps) == (5, 0)
    assert (gpu.sram_aggregate_uncorrected, gpu.sram_threshold_exceeded) == (5, 1)
    assert [(one.pid, one.memory_mib) for one in gpu.processes] == [(4242, 512), (99, 512)]
    assert gpu.throttle == 0x48
    assert gpu_from_data(read_gpu(nvml, 3)).temperature_c == 40


def test_a_part_without_row_remapping_has_retired_pages(simulated_node, nvml) -> None:
    simulated_node.state(
        "gpu.*.remapping = 0\ngpu.1.retired.double = 3\ngpu.1.retired.pending = 1\n"
    )
    gpu = gpu_from_data(read_gpu(nvml, 1))
    assert (gpu.retired_single, gpu.retired_double, gpu.retired_pending) == (0, 3, 1)
    assert gpu.remap_pending is None
    assert gpu.absent["remap_pending"] == reason(t.NOT_SUPPORTED)


def test_banks_of_memory_by_their_spare_rows(simulated_node, nvml) -> None:
    simulated_node.state("gpu.1.remap.uncorrectable = 3\ngpu.2.remap.full_banks = 1\n")
    found = [gpu_from_data(read_gpu(nvml, index)).remap_full_banks for index in range(3)]
    assert found == [0, 0, 1]
    banks = nvml.structure("nvmlDeviceGetRowRemapperHistogram", nvml.handle(1).value).value
    assert (banks.max, banks.high, banks.partial, banks.low, banks.none) == (2559, 0, 1, 0, 0)


def test_a_function_that_fails_is_an_absent_value(simulated_node, nvml) -> None:
    simulated_node.state("gpu.2.ret.nvmlDeviceGetTemperature = 999\n")
    gpu = gpu_from_data(read_gpu(nvml, 2))
    assert gpu.temperature_c is None
    assert gpu.absent["temperature_c"] == "an internal driver error"
    assert gpu.power_w == 68.92
    assert gpu.lost == ""


def test_an_older_driver_lacks_functions_and_nothing_else(simulated_node) -> None:
    nvml = Nvml(simulated_node.old_library)
    gpu = gpu_from_data(read_gpu(nvml, 0))
    missing = reason(t.FUNCTION_NOT_FOUND)
    for name in ("margin_c", "fabric_state", "processes", "sram_threshold_exceeded"):
        assert gpu.absent[name] == missing, name
    # Where there is an older way, it is taken.
    assert (gpu.memory_total_mib, gpu.throttle, gpu.limit_slowdown_c) == (81559, 1, 89)
    assert gpu.memory_used_mib is None
    assert gpu.active_links == 18


def test_many_processes(simulated_node, nvml) -> None:
    simulated_node.state("gpu.0.processes = 150\n")
    assert len(nvml.processes(nvml.handle(0).value).value) == 150


def test_the_handle_of_an_address(nvml) -> None:
    handle = nvml.handle_at("0000:9d:00.0")
    assert nvml.address(handle.value) == Answer("0000:9d:00.0")
    assert nvml.text("nvmlDeviceGetSerial", handle.value).value == "1650000000005"
    assert nvml.handle_at("0000:aa:00.0").reason == "not found"


@pytest.mark.parametrize(
    ("state", "code"),
    [("driver_loaded = 0\n", t.DRIVER_NOT_LOADED), ("ret.nvmlInit = 18\n", 18)],
)
def test_nvml_that_does_not_start(simulated_node, state: str, code: int) -> None:
    simulated_node.state(state)
    with pytest.raises(NvmlError) as raised:
        Nvml(simulated_node.library)
    assert raised.value.code == code


def test_no_library(tmp_path: Path) -> None:
    with pytest.raises(NvmlError, match="no-such") as raised:
        Nvml(str(tmp_path / "no-such.so"))
    assert raised.value.code == t.LIBRARY_NOT_FOUND


def test_an_xid_reaches_one_who_waits(simulated_node, nvml) -> None:
    handles = {f"GPU {index}": nvml.handle(index).value for index in range(8)}
    events = XidEvents(nvml, handles)
    assert list(events.answers) == list(handles)
    assert all(answer.ok for answer in events.answers.values())
    assert events.wait(20).code == t.TIMEOUT
    inject = threading.Timer(
        0.1, lambda: (simulated_node.folder / "state").write_text("gpu.6.xid = 94\n")
    )
    inject.start()
    started = time.monotonic()
    # The name that it was given: a GPU that fell off the bus no longer tells its address.
    assert events.wait(30000) == Answer(("GPU 6", 94))
    assert time.monotonic() - started < 15
    inject.join()
    assert events.wait(20).code == t.TIMEOUT
    events.close()


def test_an_event_is_told_once_to_each(simulated_node, nvml) -> None:
    simulated_node.state("gpu.1.xid = 31\n")
    # What was there before is not an event; the same Xid again is one.
    events = XidEvents(nvml, {"0000:43:00.0": nvml.handle(1).value})
    assert events.wait(10).code == t.TIMEOUT
    simulated_node.state("gpu.1.xid = 31\ngpu.1.xid_serial = 1\n")
    assert events.wait(1000).value == ("0000:43:00.0", 31)
    events.close()


def test_the_state_is_read_again_while_it_is_used(simulated_node, nvml) -> None:
    assert nvml.count().value == 8
    simulated_node.state("gpu.7.absent = 1\n")
    assert nvml.count().value == 7
    (simulated_node.folder / "state").unlink()
    assert nvml.count().value == 8
