# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of a made-up cluster of any size, in the form and number of the real modules."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ansible_collections.baremetal.dgx.plugins.module_utils._core.record import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Record,
    Threshold,
    judge,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._evidence.store import Store

AT = "2026-03-01T00:00:00Z"
GPU_CHECKS = [f"gpu.question_{number}" for number in range(33)]
IB_CHECKS = [f"ib.question_{number}" for number in range(14)]
THRESHOLD = Threshold("<=", 0, "errors", "NVIDIA, GPU Memory Error Management")
RATES = {
    "bf16": (720, 650, "TFLOP/s"),
    "fp8": (1320, 1200, "TFLOP/s"),
    "hbm": (2990, 2800, "GB/s"),
    "peer": (395, 350, "GB/s"),
    "down": (55, 48, "GB/s"),
    "up": (55, 48, "GB/s"),
}


def names(count: int) -> list[str]:
    return [f"dgx-{number:04d}" if count > 99 else f"dgx-{number:02d}"
            for number in range(1, count + 1)]  # fmt: skip


def plan(count: int) -> list[dict[str, Any]]:
    return [
        {"name": name, "rack": f"r{index // 4 + 1:03d}", "rack_unit": 1 + 8 * (index % 4),
         "su": index // 32 + 1,
         "groups": ["gpu_nodes"], "state": "present", "profile": "dgx_h100"}
        for index, name in enumerate(names(count))
    ]  # fmt: skip


def uuid(node: str, gpu: int) -> str:
    return f"GPU-51a7ed00-0000-4000-{int(node[4:]):04d}-{gpu:012d}"


def node_records(node: str, chance: random.Random) -> Iterator[Record]:
    yield judge("gpu.versions", f"node:{node}", 1, replace(THRESHOLD, op="==", value=1),
                evidence=["kernel module 580.105.08", "driver 580.105.08"])  # fmt: skip
    for gpu in range(8):
        subject = f"gpu:{node}/{gpu}"
        who = (f"PCI 0000:{gpu:02x}:00.0, UUID {uuid(node, gpu)}, serial 16{node[4:]}{gpu}",)
        for check in GPU_CHECKS:
            yield judge(check, subject, 0, THRESHOLD, "what was looked at", "replace", who)
        yield judge("gpu.memory_temperature", subject, 35 + chance.randrange(8),
                    Threshold("<", 95, "C", "scitix/sichek"), evidence=who)  # fmt: skip
        yield judge("burn.gemm_bf16", subject, 0, replace(THRESHOLD, source="exact arithmetic"),
                    "9000 products", "return the GPU", who)  # fmt: skip
        for name, (middle, least, unit) in RATES.items():
            value = round(chance.gauss(middle, middle / 150), 1)
            threshold = Threshold(">=", least, unit, "published for this model")
            yield judge(f"burn.rate_{name}", subject, value, threshold, "", "return it", who)
        yield Record("burn.watch", subject, PASS, "690 W, mean; 700 W, most; "
                     f"{58 + chance.randrange(9)} C, most; 71 C of memory, most",
                     measured={"value": 680 + chance.randrange(20), "unit": "W"},
                     evidence=who)  # fmt: skip
    for rail in range(8):
        for check in IB_CHECKS:
            yield judge(check, f"hca:{node}/rail{rail}", 0, THRESHOLD, "port", "reseat", ())


def fabric_records(nodes: list[str]) -> Iterator[Record]:
    threshold = Threshold(">=", 400, "Gb/s", "cable plan")
    for index, node in enumerate(nodes):
        for rail in range(8):
            cable = f"cable:{node}/rail{rail}--leaf-{index // 32}-{rail}/{index % 32 + 1}"
            yield judge("fabric.cable", cable, 400.0, threshold)
            yield Record("fabric.pairs.part", f"hca:{node}/rail{rail}", PASS, "8 flows",
                         measured={"value": 392.0, "unit": "Gb/s"})  # fmt: skip


def flows(nodes: list[str]) -> str:
    lines = []
    chance = random.Random(3)
    for step in (1, 2, 5):
        for index, node in enumerate(nodes):
            other = nodes[(index + step) % len(nodes)]
            if other != node:
                gbps = round(chance.gauss(392, 2), 1)
                lines.append(
                    f'{{"kind":"flow","from":["{node}",0],"to":["{other}",0],"gbps":{gbps}}}\n'
                )
    return "".join(lines)


def broken(record: Record) -> Record:
    """The same question answered wrongly where the cluster has faults."""
    where = (record.check, record.subject.partition(":")[2].partition("--")[0])
    if where in (("burn.gemm_bf16", "dgx-03/4"), ("burn.gemm_bf16", "dgx-0003/4")):
        return replace(
            record, status=FAIL, measured={"value": 1, "unit": "errors"},
            text="row 17 column 4711 is 3.5, must be 3.0 (bits 0x00400000), data set 2",
            remedy="drain the node, burn this GPU again; where the error returns, return the GPU",
        )  # fmt: skip
    if where in (("fabric.cable", "dgx-02/rail1"), ("fabric.cable", "dgx-0002/rail1")):
        return replace(
            record, status=FAIL, text="plugged into leaf-0-2/2 instead of leaf-0-1/2",
            remedy="exchange the cables of rail 1 and rail 2 at the node",
        )  # fmt: skip
    if where[0] == "ib.question_3" and where[1] in ("dgx-01/rail5", "dgx-0001/rail5"):
        return replace(
            record, status=NOT_MEASURED, measured=None, text="mlxlink ran longer than 20 s",
            remedy="run it by hand",
        )  # fmt: skip
    if where in (("burn.rate_bf16", "dgx-04/2"), ("burn.rate_bf16", "dgx-0004/2")):
        return replace(record, measured={"value": 655.0, "unit": "TFLOP/s"})
    return record


def fill(store: Store, count: int, faults: bool = False, at: str = AT, simulated: str = "") -> None:
    """Put a run of both playbooks into a store."""
    chance = random.Random(7)
    repair = broken if faults else lambda record: record
    run = store.begin("validate_nodes", at)
    for node in names(count):
        records = [repair(record).as_data() for record in node_records(node, chance)]
        store.add(run, node, "validate_nodes", records, at, "standard", simulated)
    run = store.begin("validate_fabric", at)
    records = [repair(record).as_data() for record in fabric_records(names(count))]
    store.add(run, "fabric", "fabric_verify", records, at, "", simulated)
