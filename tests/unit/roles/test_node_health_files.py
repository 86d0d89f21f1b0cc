# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role node_health writes: a configuration that is understood, careful scripts."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_render import by_path, render
from role_rules import Role

from ansible_collections.baremetal.dgx.plugins.module_utils._node_health.settings import (
    settings_from_data,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._contract.profiles import (
    BUILT_IN,
)
from ansible_collections.baremetal.dgx.plugins.plugin_utils._programs import program as made_here

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "/usr/local/libexec/baremetal-dgx/node-health"
SHOWN = {
    "program": "__node_health_program_files",
    "files": "__node_health_files",
    "leftovers": "__node_health_leftovers",
    "refusals": "__node_health_refusals | selectattr('when') | map(attribute='say') | list",
    "units": "__node_health_units",
    "absent": "__node_health_absent_files",
}


@pytest.fixture(autouse=True)
def _collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".cache/collections"))


def health(folder: Path, distribution: str = "Debian", **inputs: Any) -> dict[str, Any]:
    given = {f"node_health_{key}": value for key, value in inputs.items()}
    found = render(folder, "node_health", distribution, given, SHOWN)
    return {**found, **{k: by_path(found[k]) for k in ("program", "files", "leftovers")}}


def test_the_program_understands_what_the_role_writes(tmp_path: Path) -> None:
    found = health(
        tmp_path, profile=BUILT_IN["dgx_h100"],
        rails=[{"rail": 0, "pci": "18:00.0", "rate_gbps": 400}],
        mounts=[{"path": "/lustre", "fstype": "lustre", "patience_s": 60.0}],
        disks=[{"path": "/raid", "free_mib": 1000}],
        gpu={"driver_version": "580.126.20", "thresholds": {"gpu.power_limit": 700}},
        ib={"firmware": "28.43.1014"},
    )  # fmt: skip
    settings = settings_from_data(
        json.loads(found["program"]["/etc/baremetal-dgx/node-health.json"]["content"])
    )
    assert settings.node == "dgx-01"
    assert (settings.cpus, settings.memory_mib) == (224, 2000000)
    assert settings.profile["gpus"]["count"] == 8
    assert settings.mounts[0].patience_s == 60
    assert settings.roots.sysfs == "/sys"
    assert settings.roots.kernel_log == ""
    assert settings.ib["rails"][0]["pci"] == "18:00.0"
    program = base64.b64decode(found["program"][PROGRAM]["content"])
    assert program == made_here("node-health")
    assert found["refusals"] == []


def test_a_node_without_a_profile_is_asked_less(tmp_path: Path) -> None:
    found = health(tmp_path, "Rocky", hardware_root="/run/simulated-hardware")
    settings = settings_from_data(
        json.loads(found["program"]["/etc/baremetal-dgx/node-health.json"]["content"])
    )
    assert (settings.cpus, settings.memory_mib) == (0, 0)
    assert settings.roots.kernel_log == "/run/simulated-hardware/kernel.log"
    assert settings.environment == {"SIMULATED_HARDWARE": "/run/simulated-hardware/state"}


@pytest.mark.parametrize("root", ["", "/run/simulated-hardware"])
def test_simulated_hardware_has_no_disks_and_no_bmc(tmp_path: Path, root: str) -> None:
    limits = {"count": 10, "wear_percent": 90, "media_errors": 0}
    found = health(tmp_path, hardware_root=root, nvme=limits, bmc=True)
    text = found["program"]["/etc/baremetal-dgx/node-health.json"]["content"]
    settings = settings_from_data(json.loads(text))
    assert (settings.nvme, settings.bmc) == (({}, False) if root else (limits, True))
    service = found["files"]["/etc/systemd/system/baremetal-dgx-node-health.service"]["content"]
    loads = "ExecStartPre=-/sbin/modprobe --quiet ipmi_devintf" in service.splitlines()
    assert loads != bool(root)


@pytest.mark.parametrize(
    ("inputs", "asks"),
    [
        ({"bmc": True}, True),
        ({"bmc": True, "checks": ["gpu", "host"]}, False),
        ({"bmc": True, "hardware_root": "/run/simulated-hardware"}, False),
        # As -e gives it.
        ({"bmc": "false"}, False),
        ({}, False),
    ],
)
def test_the_tool_and_the_driver_of_the_bmc_come_where_it_is_asked(
    tmp_path: Path, inputs: dict[str, Any], asks: bool
) -> None:
    tool = yaml.safe_load((ROOT / "roles/node_health/tasks/install.yml").read_text())[0]
    assert tool["baremetal.dgx.system_packages"] == {"present": ["ipmitool"]}
    given = {f"node_health_{key}": value for key, value in inputs.items()}
    condition = " and ".join(f"({one})" for one in tool["when"])
    shown = {"files": "__node_health_files", "installs": condition}
    found = render(tmp_path, "node_health", "Debian", given, shown)
    service = by_path(found["files"])["/etc/systemd/system/baremetal-dgx-node-health.service"][
        "content"
    ]
    assert (found["installs"], "ipmi_devintf" in service) == (asks, asks)


def test_what_calls_the_program_goes_before_it(tmp_path: Path) -> None:
    found = by_path(health(tmp_path, enabled=False)["absent"])
    assert {path: one["state"] for path, one in found.items()} == {
        f"/etc/slurm/{when}.d/50-node-health": "absent" for when in ("prolog", "epilog")
    }


@pytest.mark.parametrize(
    ("status", "passed_on"), [(0, 0), (10, 1), (3, 0), (1, 0), (2, 0), (127, 0), (137, 0)]
)
def test_scripts_pass_on_measured_failures_alone(
    tmp_path: Path, status: int, passed_on: int
) -> None:
    scripts = Role(ROOT / "roles/node_health").values["__node_health_script_files"]
    stand_in = tmp_path / "node-health"
    stand_in.write_text(f"#!/bin/sh\nexit {status}\n")
    stand_in.chmod(0o755)
    for one in scripts:
        template = ROOT / "roles/node_health/templates" / one["template"]
        text = template.read_text().replace("{{ __node_health_program }}", str(stand_in))
        assert "{{" not in text
        assert subprocess.run(["sh", "-c", text], check=False).returncode == passed_on


def test_what_is_switched_off_is_not_there(tmp_path: Path) -> None:
    found = health(tmp_path, prolog=False, metrics_file="")
    assert found["files"]["/etc/slurm/prolog.d/50-node-health"]["state"] == "absent"
    assert found["files"]["/etc/slurm/epilog.d/50-node-health"]["state"] == "file"
    tmpfiles = found["files"]["/etc/tmpfiles.d/baremetal-dgx-node-health.conf"]["content"]
    assert tmpfiles.splitlines()[1:] == ["d /var/lib/baremetal-dgx/node-health 0755 root root -"]


def test_what_was_found_before_a_boot_is_removed_by_it_alone(tmp_path: Path) -> None:
    found = health(tmp_path)["files"]
    tmpfiles = found["/etc/tmpfiles.d/baremetal-dgx-node-health.conf"]["content"].splitlines()
    metrics = "/var/lib/prometheus/node-exporter/baremetal_dgx_node_health.prom"
    assert [line for line in tmpfiles if metrics in line] == [f"r! {metrics}"]
    timer = found["/etc/systemd/system/baremetal-dgx-node-health.timer"]["content"].splitlines()
    # Sooner than CheckerVanished waits.
    assert {"OnBootSec=60", "OnCalendar=*:0/15"} <= set(timer)


def test_removal_leaves_nothing_of_what_was_written(tmp_path: Path) -> None:
    found = health(tmp_path)
    written = {
        path for kind in ("program", "files") for path, one in found[kind].items()
        if one.get("state") != "directory"
    }  # fmt: skip
    scripts = {path for path in written if "/slurm/" in path}
    assert written - scripts <= set(found["leftovers"])
    assert {one["state"] for one in found["leftovers"].values()} == {"absent"}
    metrics = "/var/lib/prometheus/node-exporter/baremetal_dgx_node_health.prom"
    assert metrics in found["leftovers"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"metrics_file": "/tmp/x"}, "node_health_metrics_file"),
        ({"clock_offset_s": 0}, "node_health_clock_offset_s"),
        ({"mounts": [{"path": "/a"}, {"path": "/a/"}]}, "node_health_mounts"),
        ({"checks": ["gpus"]}, "node_health_checks"),
    ],
)
def test_what_cannot_succeed_is_refused(
    tmp_path: Path, inputs: dict[str, Any], message: str
) -> None:
    (line,) = health(tmp_path, **inputs)["refusals"]
    assert line.startswith(message)
