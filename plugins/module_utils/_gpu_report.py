# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What gpu_health returns of its records, and gpu_info of a reading. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable, Sequence

from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_host import Host
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_marks import KINDS, kind_of
from ansible_collections.baremetal.dgx.plugins.module_utils._gpu_read import Sweep
from ansible_collections.baremetal.dgx.plugins.module_utils._pci_path import links_of
from ansible_collections.baremetal.dgx.plugins.module_utils._records import (
    FAIL,
    NOT_MEASURED,
    Record,
    Tally,
)


def lines(records: Iterable[Record], status: str) -> list[str]:
    """Return one line for each record of a status."""
    said = []
    for record in records:
        if record.status != status:
            continue
        mark, found = record.threshold, record.measured
        got = f" is {found['value']} {found['unit']}".rstrip() if found else ""
        want = f" (must be {mark.op} {mark.value})" if mark and found else ""
        remedy = f"; do: {record.remedy}" if record.remedy and status == FAIL else ""
        said.append(f"{record.subject} {record.check}{got}{want}: {record.text}{remedy}")
    return said


def actions(records: Iterable[Record]) -> dict[str, str]:
    """Return for each subject with a finding the most that one of them asks for."""
    most: dict[str, str] = {}
    for record in records:
        if record.status == FAIL:
            kind = kind_of(record.remedy)
            before = most.get(record.subject, KINDS[0])
            most[record.subject] = max(before, kind, key=KINDS.index)
    return most


def health_result(records: Sequence[Record], at: str, took_s: float) -> dict[str, Any]:
    """Return the module's answer; `at` is the time of the reading, `took_s` how long it took."""
    stamped = [replace(record, at=at, took_s=round(took_s, 3)) for record in records]
    return {
        "changed": False,
        "records": [record.as_data() for record in stamped],
        "verdict": Tally.of(stamped).verdict,
        "findings": lines(stamped, FAIL),
        "not_measured": lines(stamped, NOT_MEASURED),
        "actions": actions(stamped),
    }


def info_result(sweep: Sweep, host: Host) -> dict[str, Any]:
    """Return a reading as mappings, lists and scalars."""
    seen = {gpu.pci: gpu for gpu in host.gpus}
    gpus = []
    for gpu in sweep.gpus:
        # By hand: asdict copies deeply, which takes longer than the reading.
        data = dict(vars(gpu))
        data["links"] = [dict(vars(link)) for link in gpu.links]
        data["processes"] = [dict(vars(one)) for one in gpu.processes or ()]
        data["absent"] = dict(gpu.absent)
        found = seen.get(gpu.pci or "")
        data["numa"] = found.numa if found else None
        data["kernel_driver"] = found.driver if found else None
        data["pcie_links"] = [dict(vars(link)) for link in links_of(found.path)] if found else []
        gpus.append(data)
    return {
        "changed": False,
        "driver_version": sweep.driver_version or host.module_version,
        "nvml_version": sweep.nvml_version,
        "cuda_version": sweep.cuda_version,
        "module_version": host.module_version,
        "open_module": host.open_module,
        "nouveau": host.nouveau,
        "count": sweep.count,
        "gpus": gpus,
        "pci": [{"pci": gpu.pci, "driver": gpu.driver, "numa": gpu.numa} for gpu in host.gpus],
        "nvswitches": list(host.switches),
        "error": sweep.error,
        "stuck": {str(index): text for index, text in sweep.stuck.items()},
    }
