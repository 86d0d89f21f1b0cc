# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The BMCs of a live pod: judged, set up, and updated with the power cycle of a real container."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from .conftest import CHECKOUT, INVENTORY, POD, on, playbook

NODE = "dgx-02"
LINES = INVENTORY / ".dgx" / "bmc" / "updates.jsonl"


@pytest.fixture(scope="module", autouse=True)
def bmcs(nodes: list[str]) -> None:
    """Give the nodes new BMCs, which know of nothing that was done to the ones before."""
    argv = [str(CHECKOUT / "virtual_pod" / "pod"), "bmc", "--name", POD]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    LINES.unlink(missing_ok=True)


def declared(**bmc: object) -> tuple[str, ...]:
    """Options of a run whose nodes have this in their profile."""
    profiles = {"cluster_profiles": {"dgx_h100": {"bmc": bmc}}}
    return "-e", json.dumps(profiles), "-e", f"target={NODE}"


def started(node: str) -> str:
    """When the node's container was started."""
    return on(node, "stat -c %Y /proc/1").stdout.strip()


def test_the_machines_are_judged_and_their_logs_are_settled(nodes: list[str]) -> None:
    assert playbook("validate_bmc").rc == 0
    looks = INVENTORY / ".dgx" / "bmc" / "logs"
    assert {path.name for path in looks.iterdir()} == {f"{name}.json" for name in nodes}


def test_settings_and_firmware_come_into_force_with_one_cycle(tmp_path: Path) -> None:
    settings = declared(bios={"NPS": "NPS4"})
    done = playbook("configure_bmc", *settings)
    assert done.rc != 0, "a setting that waits for the next boot has passed"
    assert "bmc.bios" in done.output
    package = tmp_path / "bios.fwpkg"
    package.write_text(
        json.dumps({"brings": {"HostBIOS_0": "99.1"}, "name": "bios", "activation": "dc"})
    )
    update = declared(
        packages=[
            {
                "file": str(package),
                "sha256": hashlib.sha256(package.read_bytes()).hexdigest(),
                "components": {"HostBIOS_0": "99.1"},
                "activation": "dc",
            }
        ]
    )
    before = started(NODE)
    refused = playbook("update_firmware", *update)
    assert refused.rc != 0
    assert "firmware_allowed: is not given" in refused.output
    assert started(NODE) == before
    done = playbook("update_firmware", *update, "-e", "firmware_allowed=true")
    assert done.rc == 0, done.why
    after = started(NODE)
    assert after != before, "the machine was not cycled"
    steps = [json.loads(line)["what"] for line in LINES.read_text().splitlines()]
    assert steps == ["pushing", "pushed", "flashed", "activating", "done"]
    state = on("head-01", f"sinfo -h -N -n {NODE} -o %T | sort -u").stdout.split()
    assert state == ["idle"]
    # The boot has brought the setting, too, and nothing is sent or cycled twice.
    done = playbook("configure_bmc", *settings)
    assert done.rc == 0, done.why
    done = playbook("update_firmware", *update, "-e", "firmware_allowed=true")
    assert done.rc == 0, done.why
    assert (started(NODE), len(LINES.read_text().splitlines())) == (after, len(steps))
