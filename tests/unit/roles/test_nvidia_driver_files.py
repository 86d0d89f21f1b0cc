# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_driver would write and do, for each distribution and source."""

from __future__ import annotations

import configparser
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from role_render import ROLES, by_path, lines, render, render_many
from role_rules import read_yaml

from ansible_collections.baremetal.dgx.plugins.module_utils._driver.packages import (
    wants_fabric_manager,
)

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n=x\n-----END PGP PUBLIC KEY BLOCK-----\n"
NOBLE = {"distribution_version": "24.04", "distribution_major_version": "24"}
TRIXIE = {"distribution_version": "13.1", "distribution_major_version": "13"}
NINE = {"distribution_version": "9.6", "distribution_major_version": "9"}
H100 = {"nvidia_driver_gpu": "h100", "nvidia_driver_nvswitches": 4}
SOURCES = "/etc/apt/sources.list.d/baremetal-dgx-nvidia.sources"
DRIVER = {
    "sources": "__nvidia_driver_source_files[ansible_facts['os_family']]",
    "pins": "__nvidia_driver_pin_files",
    "files": "__nvidia_driver_files",
    "refusals": "__nvidia_driver_refusals | selectattr('when') | map(attribute='say') | list",
    "units": "__nvidia_driver_units | selectattr('when') | map(attribute='sync') | list",
    "probes": "__nvidia_driver_probes",
    "request": "__nvidia_driver_request",
    "act": "__nvidia_driver_act",
    "fetches": "__nvidia_driver_fetches_key",
    "key_url": "__nvidia_driver_key_url",
    "initramfs": "__nvidia_driver_initramfs_script",
    "settings": "__nvidia_driver_settings_findings",
}
Render = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """`driver(distribution, facts, **inputs)`; inputs without their prefix."""

    def compute(distribution: str, facts: dict[str, str], **inputs: Any) -> dict[str, Any]:
        given = {
            "__nvidia_driver_plan": {"pin": "580.126.20-*"},
            "__nvidia_driver_seen": {"next_step": "reload", "steps": [], "loaded": "580.1.1"},
            "__nvidia_driver_now": {"loaded": "580.126.20"},
            "__nvidia_driver_settings": {
                "differences": [
                    {"gpu": 1, "pci": "43:00.0", "setting": "ecc", "before": "off", "after": "on"}
                ],
                "reset_pending": [
                    {"gpu": 2, "pci": "52:00.0", "setting": "ecc", "before": "off", "after": "on"}
                ],
            },
            **H100,
            **{f"nvidia_driver_{key}": value for key, value in inputs.items()},
        }
        folder = tmp_path_factory.mktemp("driver")
        found = render(folder, "nvidia_driver", distribution, given, DRIVER, facts=facts)
        for kind in ("sources", "pins", "files"):
            found[kind] = by_path(found[kind])
        return found

    return compute


@pytest.fixture(scope="module")
def ubuntu(driver: Render) -> dict[str, Any]:
    return driver(
        "Ubuntu",
        {**NOBLE, "architecture": "x86_64"},
        source="nvidia_repository",
        version="580.126.20",
        mirror="https://mirror.example.org/cuda/repos/",
        repository={"signed_by": KEY},
        cuda="13.0",
        nccl="2.30.4-1+cuda13.0",
        module_options={"NVreg_RestrictProfilingToAdminUsers": 0, "NVreg_Other": "x"},
        mig=[{"gpus": [6, 7], "profiles": ["3g.40gb", "1g.10gb"]}, {"profiles": []}],
        reload_allowed=True,
        reboot_allowed=True,
    )


@pytest.fixture(scope="module")
def debian(driver: Render) -> dict[str, Any]:
    return driver(
        "Debian",
        {**TRIXIE, "architecture": "aarch64"},
        source="directory",
        branch="580",
        directory={"path": "/srv/nvidia", "sha256": "0" * 64},
        nvswitches=0,
        persistence=False,
        reboot_allowed=True,
    )


@pytest.fixture(scope="module")
def rocky(driver: Render) -> dict[str, Any]:
    return driver(
        "Rocky",
        {**NINE, "architecture": "x86_64"},
        source="nvidia_repository",
        branch="580",
        repository={"key_sha256": "1" * 64},
        nccl="2.30.4-1+cuda13.0",
    )


def test_nothing_is_refused(
    ubuntu: dict[str, Any], debian: dict[str, Any], rocky: dict[str, Any]
) -> None:
    for found in (ubuntu, debian, rocky):
        assert found["refusals"] == []


def test_a_mirror_that_is_signed(ubuntu: dict[str, Any]) -> None:
    assert ubuntu["fetches"] is False
    assert ubuntu["sources"][SOURCES]["content"].splitlines()[1:] == [
        "Types: deb",
        "URIs: https://mirror.example.org/cuda/repos/ubuntu2404/x86_64/",
        "Suites: /",
        "Signed-By:",
        " -----BEGIN PGP PUBLIC KEY BLOCK-----",
        " .",
        " abc",
        " =x",
        " -----END PGP PUBLIC KEY BLOCK-----",
    ]


def test_a_directory_that_is_checked(debian: dict[str, Any]) -> None:
    assert debian["sources"][SOURCES]["content"].splitlines()[1:] == [
        "Types: deb",
        "URIs: file:/var/lib/baremetal-dgx/packages/nvidia_driver",
        "Suites: ./",
        "Trusted: yes",
    ]


def test_a_fetched_key(driver: Render, rocky: dict[str, Any]) -> None:
    found = driver(
        "Debian",
        {**TRIXIE, "architecture": "aarch64"},
        source="nvidia_repository",
        branch="580",
        repository={"key_sha256": "1" * 64},
    )
    assert found["fetches"] is True
    base = "https://developer.download.nvidia.com/compute/cuda/repos"
    assert found["key_url"] == f"{base}/debian13/sbsa/3bf863cc.pub"
    assert "Signed-By: /usr/share/keyrings/baremetal-dgx-nvidia.asc" in lines(
        found["sources"][SOURCES]
    )
    repository = configparser.ConfigParser()
    repository.read_string(
        rocky["sources"]["/etc/yum.repos.d/baremetal-dgx-nvidia.repo"]["content"]
    )
    section = repository["baremetal-dgx-nvidia"]
    assert section["baseurl"] == f"{base}/rhel9/x86_64/"
    assert section["gpgcheck"] == "1"
    assert section["gpgkey"] == "file:///etc/pki/rpm-gpg/RPM-GPG-KEY-baremetal-dgx-nvidia"


def test_what_installs_nothing_has_no_source(driver: Render) -> None:
    found = driver("Ubuntu", {**NOBLE, "architecture": "x86_64"})
    assert found["sources"][SOURCES]["state"] == "absent"
    states = {path: entry.get("state") for path, entry in found["files"].items()}
    assert states["/etc/modprobe.d/baremetal-dgx-nvidia.conf"] == "absent"
    assert states["/etc/modules-load.d/baremetal-dgx-nvidia.conf"] == "absent"
    assert found["request"]["source"] == "preinstalled"


def test_all_parts_are_pinned(ubuntu: dict[str, Any]) -> None:
    assert lines(ubuntu["pins"]["/etc/apt/preferences.d/baremetal-dgx-nvidia"]) == [
        "Package: *nvidia* cuda-drivers* libcuda1 libnvcuvid*",
        "Pin: version 580.126.20-*",
        "Pin-Priority: 1001",
    ]


def test_user_space_is_that_of_the_table(ubuntu: dict[str, Any], rocky: dict[str, Any]) -> None:
    nccl = "2.30.4-1+cuda13.0"
    assert ubuntu["request"]["extra"] == ["cuda-libraries-13-0", f"libnccl2={nccl}"]
    assert rocky["request"]["extra"] == [f"libnccl={nccl}"]


def test_module_parameters(ubuntu: dict[str, Any]) -> None:
    assert lines(ubuntu["files"]["/etc/modprobe.d/baremetal-dgx-nvidia.conf"]) == [
        "blacklist nouveau",
        "options nouveau modeset=0",
        "options nvidia NVreg_Other=x NVreg_RestrictProfilingToAdminUsers=0",
    ]
    (probe,) = ubuntu["probes"]
    assert probe["expect"] == "(?m)^RestrictProfilingToAdminUsers: 0$"


def test_units(ubuntu: dict[str, Any], debian: dict[str, Any]) -> None:
    assert [unit["name"] for unit in ubuntu["units"]] == [
        "nvidia-persistenced.service",
        "nvidia-fabricmanager.service",
    ]
    assert [unit["restart_key"] for unit in ubuntu["units"]] == ["580.126.20"] * 2
    assert debian["units"] == []
    drop_in = "/etc/systemd/system/{}.service.d/50-baremetal-dgx.conf"
    for name, found in (("nvidia-persistenced", ubuntu), ("nvidia-fabricmanager", ubuntu)):
        assert found["files"][drop_in.format(name)]["state"] == "file"
        assert debian["files"][drop_in.format(name)]["state"] == "absent"
    mig = lines(ubuntu["files"]["/etc/systemd/system/baremetal-dgx-mig.service"])
    (before,) = (line for line in mig if line.startswith("Before="))
    # Else the specification of containers lacks the instances after some boots.
    assert "nvidia-cdi-refresh.service" in before.split()
    persistence = lines(ubuntu["files"][drop_in.format("nvidia-persistenced")])
    assert "ExecStartPost=/usr/bin/nvidia-smi -pm 1" in persistence
    assert "Before=slurmd.service nvidia-dcgm.service" in persistence


def prefixed(inputs: dict[str, Any]) -> dict[str, Any]:
    return {f"nvidia_driver_{key}": value for key, value in inputs.items()}


def test_role_and_module_agree_on_the_fabric_manager(tmp_path: Path) -> None:
    pairs = {
        f"{gpu}-{switches}": {"gpu": gpu, "nvswitches": switches}
        for gpu in ("h100", "b200", "gb200")
        for switches in (0, 4)
    }
    hosts = {host: prefixed(pair) for host, pair in pairs.items()}
    shown = {"has": "__nvidia_driver_has_fabric_manager"}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown)
    assert {host: values["has"] for host, values in found.items()} == {
        host: wants_fabric_manager(**pair) for host, pair in pairs.items()
    }


RELOAD, REBOOT = {"reload_allowed": True}, {"reboot_allowed": True}
BOTH = {**RELOAD, **REBOOT}
CONSENTS: list[tuple[str, list[str], dict[str, bool], str]] = [
    ("reload", [], {}, ""),
    ("reload", [], RELOAD, "reload"),
    ("reload", [], REBOOT, "reboot"),
    ("reload", [], BOTH, "reload"),
    ("reboot", [], RELOAD, ""),
    ("reboot", [], BOTH, "reboot"),
    ("reload", ["4711.0"], BOTH, ""),
    ("reboot", ["4711.0"], BOTH, ""),
    ("", [], BOTH, ""),
    ("load", [], BOTH, ""),
]


def test_consent(tmp_path: Path) -> None:
    hosts = {
        f"case-{number}": {
            "__nvidia_driver_seen": {"next_step": step, "steps": steps},
            **prefixed(allowed),
        }
        for number, (step, steps, allowed, _act) in enumerate(CONSENTS)
    }
    serving = {"next_step": "reload", "steps": [], "in_service": "dgx-02 is in service in Slurm"}
    hosts["serving"] = {"__nvidia_driver_seen": serving, **prefixed(BOTH)}
    shown = {"act": "__nvidia_driver_act"}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown)
    assert found.pop("serving")["act"] == "", "a job may start meanwhile"
    assert [values["act"] for values in found.values()] == [act for *_rest, act in CONSENTS]


def test_gpu_settings_findings(ubuntu: dict[str, Any]) -> None:
    first, second = ubuntu["settings"]
    assert first.startswith("GPU 1 (43:00.0) ecc is off and must be on; drain")
    assert "nvidia_driver_gpu_reset_allowed: true" in first
    assert second == (
        "GPU 2 (52:00.0) ecc becomes on when the GPU is reset; drain this node and reboot it"
    )


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"source": "directory"}, ["nvidia_driver_branch: empty", "nvidia_driver_directory: path"]),
    ({"source": "nvidia_repository", "branch": "580"}, ["signed_by: empty"]),
    ({"branch": "580.126"}, ["nvidia_driver_branch: 580.126 is not"]),
    ({"version": "580"}, ["nvidia_driver_version: 580 is not"]),
    ({"version": "v580.126.20"}, ["is not a version"]),
    ({"cuda": "13"}, ["nvidia_driver_cuda: 13 is not"]),
    ({"module_options": {"RmMsg": 1}}, ["RmMsg"]),
    ({"mig": [{"profiles": ["1g"]}]}, ["no profiles: 1g"]),
    ({"mig": [{"profiles": []}, {"profiles": ["1g.10gb"]}]}, ["two layouts without gpus"]),
]


def test_bad_inputs_are_one_line_each(tmp_path: Path) -> None:
    hosts = {f"case-{n}": prefixed(inputs) for n, (inputs, _words) in enumerate(BAD)}
    shown = {"refusals": DRIVER["refusals"]}
    facts = {**NOBLE, "architecture": "x86_64"}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", hosts, shown, facts)
    for (_inputs, words), values in zip(BAD, found.values(), strict=True):
        refusals = values["refusals"]
        assert len(refusals) == len(words)
        for line, word in zip(refusals, words, strict=True):
            assert word in line
            assert "\n" not in line


def test_initramfs_is_made_again_once(tmp_path: Path, ubuntu: dict[str, Any]) -> None:
    kernel = os.uname().release
    modprobe, image = tmp_path / "modprobe.conf", tmp_path / f"initrd.img-{kernel}"
    (tmp_path / "update-initramfs").write_text(f'#!/bin/sh\ntest "$1" = -u && touch {image}\n')
    (tmp_path / "update-initramfs").chmod(0o755)
    script = ubuntu["initramfs"].replace("/boot/", f"{tmp_path}/")

    def run() -> str:
        done = subprocess.run(
            ["sh", "-c", script, "sh", str(modprobe)],
            capture_output=True, text=True, check=True,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        )  # fmt: skip
        return done.stdout

    modprobe.write_text("")
    assert run() == ""
    image.write_text("")
    os.utime(image, (1, 1))
    assert "was rebuilt" in run()
    assert run() == ""


def test_peermem_is_loaded_where_dma_buf_is_not_possible(tmp_path: Path) -> None:
    """Now and at each boot; a module that cannot be loaded would fail each boot."""
    tasks = read_yaml(ROLES / "nvidia_driver/tasks/service.yml")
    (load,) = [one for one in tasks if "nvidia-peermem" in str(one.get("ansible.builtin.command"))]
    (boot,) = [one for one in tasks if "modules-load.d" in str(one)]
    auto = {"nvidia_driver_gpudirect": "auto", "__nvidia_driver_seen": {"gpudirect": "peermem"}}
    failed = {"__nvidia_driver_peermem": {"rc": 1}}
    cases = {
        "peermem": auto,
        "failed": {**auto, **failed},
        "declared": {**auto, **failed, "nvidia_driver_gpudirect": "peermem"},
        # The driver that was loaded a moment ago is another one.
        "reloaded": {**auto, "__nvidia_driver_now": {"gpudirect": "dmabuf"}},
        "none": {"nvidia_driver_source": "none"},
    }
    shown = {
        "loads": load["when"],
        "fails": load["failed_when"],
        "state": boot["baremetal.dgx.managed_files"]["files"][0]["state"].strip("{ }"),
        "written": boot["when"],
    }
    cases = {name: {"nvidia_driver_gpudirect": "", **case} for name, case in cases.items()}
    found = render_many(tmp_path, "nvidia_driver", "Ubuntu", cases, shown)
    assert {name: [values[key] for key in shown] for name, values in found.items()} == {
        "peermem": [True, False, "file", True],
        "failed": [True, False, "absent", True],
        "declared": [True, True, "absent", False],
        "reloaded": [False, False, "absent", True],
        "none": [False, False, "absent", False],
    }


# Reload of the driver

RELOAD = ROLES / "nvidia_driver/files/baremetal-dgx-driver-reload"
SYSTEMCTL = """\
#!/bin/sh
here="$(dirname "$0")"
case "$1" in
-q) exec test -e "$here/runs/$3" ;;
stop) rm "$here/runs/$2" ;;
start) touch "$here/runs/$2" ;;
esac
echo "$1 $2" >> "$here/log"
"""
MODPROBE = """\
#!/bin/sh
here="$(dirname "$0")"
case "$1" in
-r) test ! -e "$here/held.$2" && rm "$here/module/$2" ;;
*) touch "$here/module/$1" ;;
esac
"""
DAEMONS = ["nvidia-dcgm", "nvidia-fabricmanager", "nvidia-persistenced"]
MODULES = ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem", "gdrdrv"]


@pytest.mark.parametrize("held", ["", "nvidia_uvm", "nvidia"])
def test_a_reload_leaves_running_what_ran(tmp_path: Path, held: str) -> None:
    """Also when a module is held: the node must not lose its fabric manager over it."""
    for name, text in (("systemctl", SYSTEMCTL), ("modprobe", MODPROBE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for folder, names in (("runs", [f"{one}.service" for one in DAEMONS]), ("module", MODULES)):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    if held:
        (tmp_path / f"held.{held}").touch()
    done = subprocess.run(
        ["sh", str(RELOAD)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SYS": str(tmp_path)},
        check=False,
    )
    assert done.returncode == (1 if held else 0)
    assert {path.name for path in (tmp_path / "module").iterdir()} == set(MODULES)
    running = {path.name for path in (tmp_path / "runs").iterdir()}
    assert running == {f"{one}.service" for one in DAEMONS}
    stops, starts = DAEMONS, reversed(DAEMONS)
    assert (tmp_path / "log").read_text().splitlines() == [
        *(f"stop {one}.service" for one in stops),
        *(f"start {one}.service" for one in starts),
    ]


# MIG at boot

SMI = """\
#!/bin/sh
here="$(dirname "$0")"
case "$*" in
-L) cat "$here/list" ;;
*--query-gpu=mig.mode.current*) cat "$here/mode.$2" ;;
"mig -i "*" -lgi") cat "$here/instances.$3" ;;
*) echo "$@" >> "$here/log" ;;
esac
"""
LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)
  MIG 7g.80gb     Device  0: (UUID: MIG-a)
GPU 6: NVIDIA H100 80GB HBM3 (UUID: GPU-6)
  MIG 3g.40gb     Device  0: (UUID: MIG-b)
  MIG 1g.10gb     Device  1: (UUID: MIG-c)
GPU 7: NVIDIA H100 80GB HBM3 (UUID: GPU-7)
"""


# As nvidia-smi prints them (MIG user guide): a profile, its number, the number of the instance.
INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|{gpu:4}  MIG 1g.10gb            19        9          2:1     |
+-------------------------------------------------------+
|{gpu:4}  MIG 1g.10gb            19       13          6:1     |
+-------------------------------------------------------+
|{gpu:4}  MIG 3g.40gb             9        1          0:4     |
+-------------------------------------------------------+
"""


def test_mig_layout_is_made(tmp_path: Path, ubuntu: dict[str, Any]) -> None:
    config = tmp_path / "mig.conf"
    config.write_text(ubuntu["files"]["/etc/baremetal-dgx/mig.conf"]["content"])
    assert lines({"content": config.read_text()}) == [
        "6 1g.10gb,3g.40gb",
        "7 1g.10gb,3g.40gb",
        "* -",
    ]
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "list").write_text(LIST)
    for gpu, mode in ((0, "Enabled"), (6, "Enabled"), (7, "Disabled")):
        (tmp_path / f"mode.{gpu}").write_text(mode)
    # The numbers are the driver's: 3 + 135 for each GPU, 9 for each instance.
    for gpu in (6, 7):
        (tmp_path / f"instances.{gpu}").write_text(INSTANCES.format(gpu=gpu))
        for own in (1, 9, 13):
            for place, minor in ((f"gi{own}", 0), (f"gi{own}/ci0", 1)):
                access = tmp_path / f"proc/driver/nvidia/capabilities/gpu{gpu}/mig/{place}/access"
                access.parent.mkdir(parents=True)
                number = 3 + 135 * gpu + 9 * own + minor
                access.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n")
    (tmp_path / "nvidia-modprobe").write_text(f"#!/bin/sh\necho $@ >> {tmp_path}/modprobe\n")
    (tmp_path / "nvidia-modprobe").chmod(0o755)
    caps = tmp_path / "dev/nvidia-caps"
    caps.mkdir(parents=True)
    (caps / "nvidia-cap822").touch()
    script = ROLES / "nvidia_driver/files/baremetal-dgx-mig"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    simulated = [str(tmp_path / "proc"), str(tmp_path / "dev")]
    subprocess.run(["sh", str(script), str(config), *simulated], check=True, env=environment)
    links = tmp_path / "dev/baremetal-dgx/mig"
    assert sorted(path.name for path in links.iterdir()) == [
        f"gpu{gpu}-{kind}-{part}"
        for gpu in (6, 7)
        for kind in ("1g.10gb-0", "1g.10gb-1", "3g.40gb-0")
        for part in ("ci", "gi")
    ]
    assert str((links / "gpu6-3g.40gb-0-gi").readlink()) == "../../nvidia-caps/nvidia-cap822"
    assert (links / "gpu6-3g.40gb-0-gi").exists()
    assert str((links / "gpu7-1g.10gb-1-ci").readlink()) == "../../nvidia-caps/nvidia-cap1066"
    made = (tmp_path / "modprobe").read_text().splitlines()
    assert len(made) == 11, "one device file is there already"
    assert made[0].endswith("capabilities/gpu6/mig/gi9/access")
    assert (tmp_path / "log").read_text().splitlines() == [
        "mig -i 0 -dci",
        "mig -i 0 -dgi",
        "-i 0 -mig 0",
        "-i 7 -mig 1",
        "mig -i 7 -cgi 1g.10gb,3g.40gb -C",
    ]
