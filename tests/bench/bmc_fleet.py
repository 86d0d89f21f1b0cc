# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""1,024 BMCs that take 0.5 s an answer: power and firmware of all; fails beyond the aims.

The BMCs are one process (tests/models/redfish_server.py), which shares the cores with what is
measured; CPU seconds and memory are of the latter alone. One BMC more never answers.

    bmc_fleet.py [COUNT]
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".cache" / "collections"), str(ROOT / "tests" / "models")]

from redfish_server import PASSWORD, USER, certificate  # noqa: E402

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.look import look  # noqa: E402
from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.power import (  # noqa: E402
    bring_about,
)
from ansible_collections.baremetal.dgx.plugins.modules import bmc_info  # noqa: E402

DELAY_S = 0.5
MOST_MEGABYTES = 300.0
# Question: wall and CPU seconds that it may take for 1,024.
AIMS = {
    "power read": (20.0, 40.0),
    "power off": (60.0, 80.0),
    "firmware, with $expand": (40.0, 40.0),
    "firmware, without": (180.0, 40.0),
}


def fleet(count: int, port: int, pin: str, deaf: int) -> list[dict[str, Any]]:
    common = {
        "protocol": "redfish", "cipher": 17, "user": USER, "password": PASSWORD, "system": "DGX",
        "certificate": pin, "profile": "dgx_h100", "serial": "",
        "firmware": {"HGX_FW_GPU_SXM_*": {"alike": True}},
    }  # fmt: skip
    bmcs = [
        {**common, "node": f"dgx-{n:04d}", "port": port,
         "address": f"127.{1 + n // 60000}.{n // 250 % 240}.{1 + n % 250}"}
        for n in range(count)
    ]  # fmt: skip
    third = count // 3
    return [
        *bmcs[:third],
        {**common, "node": "silent", "port": deaf, "address": "127.0.0.1"},
        *bmcs[third:],
    ]


def measure(
    name: str, work: Callable[[dict[str, Any]], list[Any]], params: dict[str, Any], count: int
) -> list[str]:
    """Do it; print what it took, and return what is beyond the aims."""
    wall, cpu = time.monotonic(), time.process_time()
    records = work(params)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lost = {one.subject for one in records if one.status == "not_measured"}
    print(f"{name}: {wall:.1f} s, {cpu:.1f} CPU s, {memory:.0f} MB, {len(lost)} not measured",
          flush=True)  # fmt: skip
    most_wall, most_cpu = AIMS[name]
    found = {"s": (wall, most_wall), "CPU s": (cpu, most_cpu), "MB": (memory, MOST_MEGABYTES)}
    beyond = [f"{name}: {value:.1f} {unit} of {most:g}"
              for unit, (value, most) in found.items() if value > most]  # fmt: skip
    if lost != {"node:silent"}:
        beyond.append(f"{name}: {len(lost)} were not measured")
    return beyond


def main() -> int:
    """Measure; returns the exit status."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    limits = {"at_once": 512, "each_s": 10, "total_s": 600, "timeout_s": 10, "output": None,
              "log_folder": None}  # fmt: skip
    beyond: list[str] = []
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as deaf:
        _key, _cert, pin = certificate(Path(folder))
        for expand in ("expand", "each"):
            words = [sys.executable, str(ROOT / "tests/models/redfish_server.py"), folder,
                     str(DELAY_S), expand]  # fmt: skip
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
                assert server.stdout
                port = int(server.stdout.readline())
                bmcs = fleet(count, port, pin, deaf.getsockname()[1])
                names = "".join(f"NodeName={one['node']} State=DOWN+DRAIN\n" for one in bmcs)
                more = {"bmcs": bmcs, "nodes": names, "held": [one["node"] for one in bmcs],
                        "share": 1.0, "soft_s": 5, "change_s": 5, "poll_s": 1}  # fmt: skip
                if expand == "expand":
                    for name, action, state in (
                        ("power read", "on", "planned"), ("power off", "off", "switched"),
                    ):  # fmt: skip
                        params = {**limits, **more, "action": action, "state": state}
                        beyond += measure(
                            name, lambda given: bring_about(given, False)["records"], params, count
                        )
                name = "firmware, with $expand" if expand == "expand" else "firmware, without"
                each_s = 25 if expand == "expand" else 150
                at_once = bmc_info.ARGUMENT_SPEC["at_once"]["default"]
                params = {**limits, "bmcs": bmcs, "each_s": each_s, "at_once": at_once}
                beyond += measure(name, lambda given: look(given, False)[0], params, count)
                server.terminate()
    print("\n".join(beyond))
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
