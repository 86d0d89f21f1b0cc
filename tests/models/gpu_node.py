# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with two GPUs as it was read: healthy but for what a test changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    Record,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.host import Host, PciGpu
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.judge_node import (
    judge_node,
    wanted_from_profile,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.nvml import types as t
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu.read import (
    Gpu,
    Link,
    Sweep,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._host import pci
from ansible_collections.baremetal.dgx.plugins.module_utils._host.kernel_log import KernelLog
from ansible_collections.baremetal.dgx.plugins.module_utils._host.pci import PciFunction

BUSES = ("0000:1b:00.0", "0000:43:00.0")
PORTS = ("0000:1a:01.0", "0000:42:01.0")
RELEASE = "580.105.08"
LINKS = tuple(Link(number, True, 26562, 0, 0, 0) for number in range(18))
PROFILE: dict[str, Any] = {
    "gpus": {"count": 2, "type": "h100", "memory_mib": 81559, "pci": BUSES, "numa": (0, 1)},
    "nvlink": {"links_per_gpu": 18, "nvswitches": 4},
}
GPU = Gpu(
    index=0, name="NVIDIA H100 80GB HBM3", part_number="699-2G520", vbios="96.00.68.00.01",
    memory_total_mib=81559, memory_used_mib=0, ecc_mode=1, ecc_mode_pending=1,
    ecc_volatile_uncorrected=0, ecc_aggregate_uncorrected=0, ecc_dram_corrected=0,
    ecc_sram_corrected=0, sram_aggregate_uncorrected=0, sram_threshold_exceeded=0,
    remap_corrected=0, remap_uncorrected=0, remap_pending=0, remap_failed=0, links=LINKS,
    pcie_generation=5, pcie_generation_max=5, pcie_width=16, pcie_width_max=16,
    clock_sm_mhz=345, clock_memory_mhz=2619, clock_sm_max_mhz=1980, clock_memory_max_mhz=2619,
    throttle=0, temperature_c=40, memory_temperature_c=45, margin_c=47, power_w=90.0,
    power_limit_w=700.0, power_limit_default_w=700.0, persistence=1, compute_mode=0, mig=0,
    mig_pending=0, pstate=0, fabric_state=3, fabric_status=0, fabric_health=0x1AA,
    inforom_valid=True, recovery_action=0, processes=(), repair_channel=0, repair_tpc=0,
    absent=dict.fromkeys(
        ("link_recoveries_failed", "link_effective_ber"), t.ERRORS[t.NOT_SUPPORTED]
    ),
)  # fmt: skip


def gpu(number: int, **changes: Any) -> Gpu:
    own = {"pci": BUSES[number], "uuid": f"GPU-{number}", "serial": f"165{number}"}
    return replace(GPU, **{"index": number, "minor": number, **own, **changes})


def path(number: int, **changes: Any) -> tuple[PciFunction, ...]:
    own = PciFunction(BUSES[number], 0, 32.0, 16, 32.0, 16)
    port = PciFunction(PORTS[number], pci.ROOT_PORT, 32.0, 16, 32.0, 16)
    return (replace(own, **changes), port)


def host(paths: dict[int, tuple[PciFunction, ...]] | None = None, **changes: Any) -> Host:
    cards = tuple(
        PciGpu(BUSES[number], "nvidia", number, (paths or {}).get(number, path(number)))
        for number in range(2)
    )
    node = Host(
        has_pci=True,
        gpus=cards,
        switches=("0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0"),
        module_version=RELEASE,
        fabric_manager=RELEASE,
        instances={0: ("1g.10gb", "3g.40gb"), 1: ("1g.10gb", "3g.40gb")},
    )
    return replace(node, **changes)


def records(
    changes: dict[str, Any] | None = None,
    node: Host | None = None,
    profile: dict[str, Any] | None = None,
    log: str = "",
    *,
    everywhere: dict[str, Any] | None = None,
    **options: Any,
) -> list[Record]:
    """The records of a node whose GPU 1 has these changes."""
    gpus = (gpu(0, **(everywhere or {})), gpu(1, **{**(everywhere or {}), **(changes or {})}))
    seen = Sweep(driver_version=RELEASE, nvml_version=f"13.{RELEASE}", count=2, gpus=gpus)
    wanted = wanted_from_profile(profile or PROFILE, **options)
    return list(judge_node("n", wanted, seen, node or host(), KernelLog(log)))


def outcome(found: list[Record]) -> dict[str, set[str]]:
    """What did not pass: the checks with their subject, by status."""
    assert len({(one.check, one.subject) for one in found}) == len(found)
    return {
        status: {f"{one.subject} {one.check}" for one in found if one.status == status}
        for status in (FAIL, NOT_MEASURED)
    }


SOUND: dict[str, set[str]] = {FAIL: set(), NOT_MEASURED: set()}


def expect(*checks: str) -> dict[str, set[str]]:
    """Failures of GPU 1, and with a `?` what is not measured of it."""
    return {
        FAIL: {f"gpu:n/1 gpu.{check}" for check in checks if check[0] != "?"},
        NOT_MEASURED: {f"gpu:n/1 gpu.{check[1:]}" for check in checks if check[0] == "?"},
    }


def link(**changes: Any) -> tuple[Link, ...]:
    """The links with the eighth changed."""
    return (*LINKS[:7], replace(LINKS[7], **changes), *LINKS[8:])


def behind_a_switch(**upper: Any) -> tuple[PciFunction, ...]:
    """GPU, downstream and upstream port of a switch, root port."""
    own, _port = path(1)
    down = PciFunction("0000:42:00.0", pci.DOWNSTREAM_PORT, 32.0, 16, 32.0, 16)
    up = PciFunction("0000:41:00.0", pci.UPSTREAM_PORT, 32.0, 16, 32.0, 16)
    root = PciFunction("0000:40:01.0", pci.ROOT_PORT, 32.0, 16, 32.0, 16)
    return (own, down, replace(up, **upper), root)
